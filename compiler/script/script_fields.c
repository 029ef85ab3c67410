/* Reads the tables that scripts write, and their parameters. */
#include "script.h"
#include <math.h>
#include <string.h>

int direction(const char *s, size_t n) {
    for (int d = 0; n == 1 && d < NDIRS; d++)
        if (op_name[d][0] == *s)
            return d;
    return -1;
}

void check_fields(const struct table *table, const char *const *names) {
    int n = 0;
    while (names[n])
        n++;
    push_sorted_keys(table->L, table->at);
    for (int i = 1; lua_rawgeti(table->L, -1, i) != LUA_TNIL; i++, lua_pop(table->L, 1)) {
        bool known = false;
        if (lua_type(table->L, -1) != LUA_TSTRING)
            script_fail(table->L, table->line, 0,
                        "%s takes fields by name, name = value; it was given an item without a name", table->what);
        const char *name = lua_tostring(table->L, -1);
        for (int k = 0; k < n; k++)
            known |= !strcmp(name, names[k]);
        if (!known)
            field_fail(table->L, table->line, name, "%s has no field '%s'%s", table->what, name, hint(name, names, n));
    }
    lua_pop(table->L, 2);
}

int push_field(const struct table *table, const char *field) {
    lua_pushstring(table->L, field);
    return lua_rawget(table->L, table->at);
}

int integer_field(const struct table *table, const char *field, int least, int most) {
    int isint = 0;
    int type = push_field(table, field);
    lua_Integer x = type == LUA_TNUMBER ? lua_tointegerx(table->L, -1, &isint) : 0;
    if (type == LUA_TNIL)
        field_fail(table->L, table->line, field, "%s needs the field '%s'; add: %s = <an integer>", table->what, field,
                   field);
    if (!isint)
        field_fail(table->L, table->line, field, "'%s' must be an integer, not %s", field, describe(table->L, -1));
    if (x < least || x > most)
        field_fail(table->L, table->line, field, "'%s' must be between %d and %d, not %lld", field, least, most,
                   (long long)x);
    lua_pop(table->L, 1);
    return (int)x;
}

bool is_positive(double x) { return x >= LEAST_TIME && x <= MOST_TIME; }

bool is_time(double x) { return x == 0 || is_positive(x); }

int function_field(const struct table *table, const char *name, const char *returns) {
    int type = push_field(table, name);
    if (type == LUA_TFUNCTION)
        return lua_gettop(table->L);
    if (type != LUA_TNIL)
        field_fail(table->L, table->line, name, "'%s' must be a function, not %s; it returns %s", name,
                   describe(table->L, -1), returns);
    lua_pop(table->L, 1);
    return 0;
}

double number_field(const struct table *table, const char *field, double otherwise) {
    int type = push_field(table, field);
    double x = type == LUA_TNUMBER ? lua_tonumber(table->L, -1) : otherwise;
    if (type != LUA_TNIL && (type != LUA_TNUMBER || !(x > 0)))
        field_fail(table->L, table->line, field, "'%s' must be a positive number, not %s", field,
                   describe(table->L, -1));
    lua_pop(table->L, 1);
    return x;
}

/* ---- params ---- */

/* Pushes the text as a value of the type of the default at index. If the text is not of that type, returns what was
 * expected and pushes nothing. */
static const char *push_as(lua_State *L, int index, const char *text) {
    bool truth = !strcmp(text, "true");
    switch (lua_type(L, index)) {
    case LUA_TBOOLEAN:
        if (!truth && strcmp(text, "false"))
            return "true or false";
        lua_pushboolean(L, truth);
        return NULL;
    case LUA_TSTRING: lua_pushstring(L, text); return NULL;
    default:
        if (!lua_stringtonumber(L, text))
            return lua_isinteger(L, index) ? "an integer" : "a number";
        bool integer = lua_isinteger(L, index);
        if (integer && !lua_isinteger(L, -1)) {
            lua_pop(L, 1);
            return "an integer";
        }
        if (!integer) {
            lua_pushnumber(L, lua_tonumber(L, -1));
            lua_remove(L, -2);
        }
        return NULL;
    }
}

/* Pushes the list written 2,1,1 in place of the default list at index. */
static const char *push_list(lua_State *L, int index, const char *text) {
    bool integers = true;
    size_t count = lua_rawlen(L, index);
    for (size_t i = 1; i <= count; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, index, (lua_Integer)i);
        integers &= lua_isinteger(L, -1);
    }
    lua_newtable(L);
    lua_Integer n = 0;
    for (const char *p = text; *text;) {
        size_t len = strcspn(p, ",");
        lua_pushlstring(L, p, len);
        if (len == 0 || !lua_stringtonumber(L, lua_tostring(L, -1))) {
            lua_pop(L, 2);
            return "numbers separated by commas, such as 2,1,1";
        }
        if (integers && !lua_isinteger(L, -1)) {
            lua_pop(L, 3);
            return "integers separated by commas, such as 2,1,1";
        }
        lua_rawseti(L, -3, ++n);
        lua_pop(L, 1);
        if (!p[len])
            break;
        p += len + 1;
    }
    return NULL;
}

static void check_default(lua_State *L, int index, int line, const char *name) {
    enum { LONGEST = 1000 };
    int type = lua_type(L, index);
    if (type == LUA_TSTRING && lua_rawlen(L, index) > LONGEST)
        field_fail(L, line, name, "parameter '%s' is a string of %llu bytes; at most %d fit into the record", name,
                   (unsigned long long)lua_rawlen(L, index), LONGEST);
    bool good = type == LUA_TNUMBER || type == LUA_TBOOLEAN || type == LUA_TSTRING || type == LUA_TTABLE;
    if (type == LUA_TTABLE) {
        push_sorted_keys(L, index);
        size_t n = lua_rawlen(L, -1);
        lua_pop(L, 1);
        spend(L, 100 * (int64_t)n);
        for (size_t i = 1; i <= n; i++, lua_pop(L, 1))
            good &= lua_rawgeti(L, index, (lua_Integer)i) == LUA_TNUMBER;
    }
    if (!good)
        field_fail(L, line, name, "parameter '%s' must be a number, a boolean, a string or a list of numbers, not %s",
                   name, type == LUA_TTABLE ? "another table" : describe(L, index));
}

void put_value(struct text *out, lua_State *L, int index) {
    char buf[32];
    if (lua_type(L, index) == LUA_TSTRING)
        put(out, "%s", lua_tostring(L, index));
    else if (lua_type(L, index) == LUA_TBOOLEAN || lua_isinteger(L, index))
        put(out, "%s", describe(L, index));
    else if (lua_type(L, index) == LUA_TNUMBER)
        put(out, "%s", number(lua_tonumber(L, index), buf));
    else
        for (lua_Integer i = 1, n = (lua_Integer)lua_rawlen(L, index); i <= n; i++, lua_pop(L, 1)) {
            lua_rawgeti(L, index, i);
            if (i > 1)
                put_bytes(out, ",", 1);
            put_value(out, L, lua_gettop(L));
        }
}

static const char *type_of_param(lua_State *L, int index) {
    switch (lua_type(L, index)) {
    case LUA_TBOOLEAN: return "boolean";
    case LUA_TSTRING: return "string";
    case LUA_TTABLE: return "list";
    default: return lua_isinteger(L, index) ? "integer" : "number";
    }
}

static const char *lua_text(lua_State *L, int index) {
    struct text text = {0};
    put(&text, "%s", "");
    put_value(&text, L, index);
    return text.s;
}

/* Pushes the value of a parameter: its last -D, or the default at index. */
static void push_setting(lua_State *L, int index, const char *name) {
    const struct script *script = script_of(L);
    struct settings *set = script->set;
    const char *text = NULL, *expected = NULL;
    for (int i = 0; i < set->n; i++)
        if (!strcmp(set->key[i], name)) {
            set->used[i] = true;
            text = set->value[i];
        }
    GROW(set->declared, set->capacity, set->ndeclared + 1);
    set->declared[set->ndeclared++] = copy_string(name);
    if (!text)
        lua_pushvalue(L, index);
    else
        expected = lua_istable(L, index) ? push_list(L, index, text) : push_as(L, index, text);
    if (expected) {
        const char *was = lua_text(L, index);
        script_fail(L, 0, 0, "-D %s=%s: expected %s; %s says %s = %s", name, text, expected, script->file, name,
                    *was ? was : "{}");
    }
}

/* Raises an error for a misspelt parameter, which would otherwise be nil and cause an error elsewhere. */
static int unknown_param(lua_State *L) {
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : luaL_typename(L, 2);
    lua_pushvalue(L, 1);
    return unknown_name(L, "params has no", name);
}

const char *undeclared_setting(struct script *script, const char *name) {
    struct settings *set = script->set;
    const char *value = NULL;
    for (size_t i = 0; i < script->nparams; i++)
        if (!strcmp(script->param[i].name, name))
            return NULL;
    for (int i = 0; i < set->n; i++)
        if (!strcmp(set->key[i], name)) {
            set->used[i] = true;
            value = set->value[i];
        }
    return value;
}

/* Adds a parameter to the record. */
static void record_param(lua_State *L, const char *name, int otherwise, int value, int line) {
    struct script *script = script_of(L);
    spend(L, (int64_t)script->nparams);
    for (size_t i = 0; i < script->nparams; i++)
        if (!strcmp(script->param[i].name, name))
            field_fail(L, line, name, "parameter '%s' is declared twice", name);
    GROW(script->param, script->params_capacity, script->nparams + 1);
    script->param[script->nparams++] = (struct param){copy_string(name), lua_text(L, value), lua_text(L, otherwise),
                                                      script_kinds[script->kind], type_of_param(L, otherwise)};
}

/* Implements params. It may be called again, for a default that depends on a parameter: params { stages = p.workers
 * }. */
int script_params(lua_State *L) {
    int line = script_line(L);
    if (!lua_istable(L, 1))
        word_fail(L, line, "params", "params takes a table of defaults, not %s; write: params { workers = 4 }",
                  describe(L, 1));
    lua_settop(L, 1);
    lua_newtable(L);
    push_sorted_keys(L, 1);
    for (int i = 1; lua_rawgeti(L, 3, i) != LUA_TNIL; i++, lua_settop(L, 3)) {
        if (lua_type(L, 4) != LUA_TSTRING)
            word_fail(L, line, "params",
                      "params takes defaults by name, name = value; it was given an item without a name");
        const char *name = lua_tostring(L, 4);
        lua_pushvalue(L, 4);
        lua_rawget(L, 1);
        check_default(L, 5, line, name);
        push_setting(L, 5, name);
        record_param(L, name, 5, 6, line);
        lua_pushvalue(L, 4);
        lua_insert(L, 6);
        lua_rawset(L, 2);
    }
    lua_settop(L, 2);
    lua_newtable(L);
    lua_pushcfunction(L, unknown_param);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, 2);
    return 1;
}
