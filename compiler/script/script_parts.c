/* The constructors of a model's layers, inputs and optimizers. Each, such as linear { width = 4 }, makes a part:
 * userdata that a script can only put into lists. */
#include "script_parts.h"
#include <assert.h>
#include <math.h>

enum { MAX_FIELDS = 24 };
#define FIELD(name, range, otherwise) FIELD_TO(#name, range, otherwise, rt_model, name)
static const struct field of_stage[] = {{.name = "from"}, {0}}; /* read by read_sources */
static const struct field of_tokens[] = {FIELD(vocab, SIZE, NAN) FIELD(context, SIZE, NAN) FIELD(rows, SIZE, NAN)
                                             FIELD(labels, FLAG, false){0}};
static const struct field of_integers[] = {FIELD(features, SIZE, NAN) FIELD(rows, SIZE, NAN){0}};
#define X(NAME, name, moments, flop, fields) static const struct field of_##name[] = {fields{0}};
OPTIMIZERS(X)
#undef X
#undef FIELD

/* Index of moe's maker. Scripts write moe instead of its layers' names; its fields are its first layer's. */
enum { MOE = NLAYERS };
static const struct maker makers[] = {
#define X(name, ...) {#name, LAYER, LAYER_##name, NULL},
    LAYERS(X)
#undef X
        {"moe", LAYER, LAYER_route, NULL},
    {"tokens", INPUT, INPUT_TOKENS, of_tokens},
    {"integers", INPUT, INPUT_INTEGERS, of_integers},
#define X(NAME, name, ...) {#name, OPTIMIZER, OPT_##NAME, of_##name},
    OPTIMIZERS(X)
#undef X
};
enum { NMAKERS = sizeof makers / sizeof *makers };

const struct maker residual_maker = {"residual", LAYER, LAYER_fork, NULL};
const struct maker stage_maker = {"stage", LAYER, LAYER_fork, of_stage};

bool is_declared(const struct maker *maker) { return maker->group == LAYER && row_of(maker->kind)->declared; }
bool is_moe(const struct maker *maker) { return maker == &makers[MOE]; }

/* Returns whether scripts write this layer. They write residual instead of fork and join, and moe instead of its
 * layers. */
static bool is_written(const struct maker *maker) {
    const struct layer_row *row = row_of(maker->kind);
    return maker->group != LAYER || is_moe(maker) || !(row->block || row->of_team || row->of_moe);
}

/* Returns the fields that a maker takes, ending with one without a name. */
static const struct field *fields_of(const struct maker *maker) {
    static const struct field none[] = {{0}};
    const struct field *field = maker->field ? maker->field : row_of(maker->kind)->field;
    return field ? field : none;
}

const struct part *part_at(lua_State *L, int index, enum part_group group) {
    const struct part *part = lua_type(L, index) == LUA_TUSERDATA ? lua_touserdata(L, index) : NULL;
    return part && part->maker->group == group ? part : NULL;
}

static struct part *push_part(lua_State *L, const struct maker *maker, int line) {
    struct part *part = lua_newuserdatauv(L, sizeof *part, 2);
    *part = (struct part){.maker = maker, .line = line, .layer.kind = maker->kind};
    luaL_newmetatable(L, maker->name);
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    return part;
}

/* Fields of layers that have parameters: their names in files of other programs. */
static const char *const name_fields[] = {"hf", "gguf"};
bool has_names(const struct maker *maker) { return maker->group == LAYER && row_of(maker->kind)->named; }

/* Fields of layers that may be frozen. A unit reads its own. */
static const char *const frozen_fields[] = {"frozen", "data"};
enum { NFROZEN = 2 };
static bool may_freeze(const struct maker *maker) { return has_names(maker) && !is_declared(maker); }

static int field_names(const struct maker *maker, const char *names[MAX_FIELDS + NNAMES + 1]) {
    int n = 0;
    for (const struct field *field = fields_of(maker); field->name; field++)
        if (field->range != FIELD_DERIVED) {
            assert(n < MAX_FIELDS);
            names[n++] = field->name;
        }
    for (int i = 0; i < NNAMES && has_names(maker); i++)
        names[n++] = name_fields[i];
    for (int i = 0; i < NFROZEN && may_freeze(maker); i++)
        names[n++] = frozen_fields[i];
    for (int i = 0; is_declared(maker) && unit_fields[i]; i++)
        names[n++] = unit_fields[i];
    names[n] = NULL;
    return n;
}

void put_layer_fields(struct text *out) {
    const char *names[MAX_FIELDS + NNAMES + 1];
    for (int i = 0; i < NMAKERS; i++)
        if (is_written(&makers[i]) && field_names(&makers[i], names))
            put_names(out, format("Fields of %s", makers[i].name), names);
    if (field_names(&stage_maker, names))
        put_names(out, "Fields of stage", names);
}

/* Reads a layer's names into the part's user value, a list. */
static void read_names(const struct table *table, int part) {
    lua_State *L = table->L;
    lua_createtable(L, NNAMES, 0);
    for (int i = 0; i < NNAMES; i++) {
        int type = push_field(table, name_fields[i]);
        if (type != LUA_TNIL && type != LUA_TSTRING)
            field_fail(L, table->line, name_fields[i], "'%s' must be a name, in quotes, not %s", name_fields[i],
                       describe(L, -1));
        lua_rawseti(L, -2, i + 1);
    }
    lua_setiuservalue(L, part, 1);
}

/* Reads frozen = true, and the file with the parameters, which no checkpoint has. They are found there under the
 * layer's names. */
static void read_frozen_layer(const struct table *table, struct model_layer *layer) {
    lua_State *L = table->L;
    int type = push_field(table, "frozen");
    if (type != LUA_TNIL && type != LUA_TBOOLEAN)
        field_fail(L, table->line, "frozen", "'frozen' of %s must be true or false, not %s", table->what,
                   describe(L, -1));
    layer->frozen = lua_toboolean(L, -1);
    bool named = push_field(table, "hf") != LUA_TNIL || push_field(table, "gguf") != LUA_TNIL;
    layer->names.data = read_weights_file(table, "data");
    if (layer->frozen && !layer->names.data)
        need_data_file(table);
    if (layer->frozen && !named)
        field_fail(L, table->line, "frozen",
                   "'data' must have the parameters of a frozen layer under its name; add: hf = \"its name there\"");
    if (layer->names.data && !layer->frozen)
        field_fail(L, table->line, "data",
                   "'data' has the parameters of a frozen %s; add frozen = true, or leave 'data' out and give the file "
                   "as --weights",
                   table->what);
}

/* Implements linear { … } and the other constructors. Upvalue: the maker. */
static int make_layer(lua_State *L) {
    const struct maker *maker = lua_touserdata(L, lua_upvalueindex(1));
    struct table table = {L, 1, script_line(L), maker->name};
    const char *names[MAX_FIELDS + NNAMES + 1];
    field_names(maker, names);
    if (!lua_istable(L, 1))
        word_fail(L, table.line, maker->name, "%s takes a table of fields, not %s; write: %s { ... }", maker->name,
                  describe(L, 1), maker->name);
    lua_settop(L, 1);
    check_fields(&table, names);
    struct part *part = push_part(L, maker, table.line);
    for (const struct field *field = fields_of(maker); field->name; field++)
        if (field->range != FIELD_DERIVED)
            read_layer_field(&table, field, maker->group == LAYER ? (void *)&part->layer : &part->model);
    int at = lua_gettop(L);
    if (may_freeze(maker))
        read_frozen_layer(&table, &part->layer);
    lua_settop(L, at);
    if (has_names(maker))
        read_names(&table, at);
    if (is_declared(maker)) {
        lua_pushvalue(L, 1);
        lua_setiuservalue(L, -2, 2);
    }
    return 1;
}

/* Implements residual { … } and stage { … }. Upvalue: the maker. */
static int make_list(lua_State *L) {
    const struct maker *maker = lua_touserdata(L, lua_upvalueindex(1));
    int line = script_line(L);
    if (!lua_istable(L, 1))
        word_fail(L, line, maker->name, "%s takes a list of layers, not %s", maker->name, describe(L, 1));
    lua_settop(L, 1);
    push_part(L, maker, line);
    lua_insert(L, 1);
    lua_setiuservalue(L, 1, 1);
    return 1;
}

void open_layers(lua_State *L, int globals) {
    for (int i = 0; i < NMAKERS; i++) {
        if (!is_written(&makers[i]))
            continue;
        lua_pushlightuserdata(L, (void *)&makers[i]);
        lua_pushcclosure(L, make_layer, 1);
        lua_setfield(L, globals, makers[i].name);
    }
    const struct maker *lists[] = {&residual_maker, &stage_maker};
    for (int i = 0; i < 2; i++) {
        lua_pushlightuserdata(L, (void *)lists[i]);
        lua_pushcclosure(L, make_list, 1);
        lua_setfield(L, globals, lists[i]->name);
    }
}
