/* Values of a layer's, an input's or an optimizer's fields, checked by their ranges in passes/layers.h. */
#include "passes/layers.h"
#include "script.h"
#include <math.h>
#include <string.h>

enum { MAX_BASE = 1 << 30 };

/* Reads how a team may divide the layer: enum split. */
static double read_split(const struct table *table, const struct field *field) {
    lua_State *L = table->L;
    int type = push_field(table, field->name);
    const char *word = type == LUA_TSTRING ? lua_tostring(L, -1) : "";
    bool tokens = !strcmp(table->what, "embedding"), moe = !strcmp(table->what, "moe");
    bool attends = !strcmp(table->what, "attention");
    int split = !strcmp(word, moe ? "experts" : "rows") ? SPLIT_ROWS
                : !moe && !strcmp(word, "columns")      ? SPLIT_COLUMNS
                : attends && !strcmp(word, "heads")     ? SPLIT_HEADS
                                                        : SPLIT_NONE;
    if (type != LUA_TNIL && (split == SPLIT_NONE || (attends && split == SPLIT_COLUMNS)))
        field_fail(L, table->line, field->name, "'%s'%s must be %s, not %s", field->name,
                   attends ? " of attention" : "",
                   moe       ? "\"experts\""
                   : attends ? "\"rows\" or \"heads\""
                             : "\"columns\" or \"rows\"",
                   describe(L, -1));
    if (split == SPLIT_COLUMNS && strcmp(table->what, "linear") && strcmp(table->what, "unembedding"))
        field_fail(L, table->line, field->name, "'%s' of %s must be \"rows\": a team divides %s", field->name,
                   table->what, tokens ? "its tokens" : "the rows that it works on");
    if (split == SPLIT_ROWS && !strcmp(table->what, "unembedding"))
        field_fail(L, table->line, field->name, "'%s' of %s must be \"columns\": a team divides its logits",
                   field->name, table->what);
    lua_pop(L, 1);
    return split;
}

/* Reads the learning-rate schedule. */
static double read_schedule(const struct table *table, const struct field *field) {
    lua_State *L = table->L;
#define X(name) #name,
    static const char *const names[NSCHEDULES] = {SCHEDULES(X)};
#undef X
    int type = push_field(table, field->name), schedule = 0;
    const char *word = type == LUA_TSTRING ? lua_tostring(L, -1) : type == LUA_TNIL ? names[0] : "";
    while (schedule < NSCHEDULES && strcmp(word, names[schedule]) != 0)
        schedule++;
    if (schedule == NSCHEDULES)
        field_fail(L, table->line, field->name, "'%s' must be \"constant\", \"linear\", \"cosine\" or \"wsd\", not %s",
                   field->name, describe(L, -1));
    lua_pop(L, 1);
    return schedule;
}

static double read_whole(const struct table *table, const struct field *field) {
    bool absent = push_field(table, field->name) == LUA_TNIL;
    lua_pop(table->L, 1);
    if (absent && !isnan(field->otherwise))
        return field->otherwise;
    bool size = field->range == FIELD_SIZE;
    return integer_field(table, field->name, size ? 1 : 0, size ? MAX_SIZE : MAX_BASE);
}

static double read_value(const struct table *table, const struct field *field) {
    lua_State *L = table->L;
    if (field->range == FIELD_SIZE || field->range == FIELD_BASE)
        return read_whole(table, field);
    if (field->range == FIELD_SPLIT)
        return read_split(table, field);
    if (field->range == FIELD_SCHEDULE)
        return read_schedule(table, field);
    int type = push_field(table, field->name), wanted = field->range == FIELD_FLAG ? LUA_TBOOLEAN : LUA_TNUMBER;
    double x = type == LUA_TNIL ? field->otherwise : type == LUA_TBOOLEAN ? lua_toboolean(L, -1) : lua_tonumber(L, -1);
    if (type == LUA_TNIL && isnan(x))
        field_fail(L, table->line, field->name, "%s needs the field '%s'; add: %s = <a number>", table->what,
                   field->name, field->name);
    bool good = field->range == FIELD_FLAG      ? true
                : field->range == FIELD_ABOVE_0 ? isfinite((float)x) && (float)x > 0
                : field->range == FIELD_FROM_0  ? isfinite((float)x) && x >= 0
                                                : x >= 0 && x < 1;
    static const char *const musts[] = {[FIELD_FLAG] = "true or false",
                                        [FIELD_ABOVE_0] = "a number above 0",
                                        [FIELD_FROM_0] = "a number of at least 0",
                                        [FIELD_BELOW_1] = "a number from 0 to below 1"};
    if (type != LUA_TNIL && (type != wanted || !good))
        field_fail(L, table->line, field->name, "'%s' must be %s, not %s", field->name, musts[field->range],
                   describe(L, -1));
    lua_pop(L, 1);
    return x;
}

void read_layer_field(const struct table *table, const struct field *field, void *to) {
    double x = read_value(table, field);
    void *at = (char *)to + field->at;
    switch (field->type) {
    case HOLDS_INT32: *(int32_t *)at = (int32_t)x; break;
    case HOLDS_FLOAT: *(float *)at = (float)x; break;
    case HOLDS_DOUBLE: *(double *)at = x; break;
    }
}
