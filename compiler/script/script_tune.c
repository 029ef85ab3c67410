/* Reads the field tune of a schedule: the parameters that `pianola tune` varies, and their values. */
#include "script.h"
#include <string.h>

static bool is_param(const struct script *script, const char *name) {
    for (size_t i = 0; i < script->nparams; i++)
        if (!strcmp(script->param[i].name, name))
            return true;
    return false;
}

static int is_value(int type) { return type == LUA_TNUMBER || type == LUA_TBOOLEAN || type == LUA_TSTRING; }

/* Reads the list of values on top of the stack. */
static struct tuned read_choices(const struct owners *owners, const char *name) {
    lua_State *L = owners->S->L;
    struct tuned tuned = {.name = copy_string(name)};
    bool divisors = lua_type(L, -1) == LUA_TSTRING && !strcmp(lua_tostring(L, -1), "divisors");
    int at = lua_gettop(L);
    if (divisors)
        return tuned;
    tuned.n = lua_istable(L, at) ? (int)lua_rawlen(L, at) : 0;
    if (tuned.n == 0)
        field_fail(L, owners->t->line, "tune",
                   "tune.%s must be a list of values to try, such as { 1, 2, 4 }, or \"divisors\", of workers; not %s",
                   name, describe(L, at));
    spend(L, 100 * (int64_t)tuned.n);
    tuned.value = NEW(const char *, tuned.n);
    for (int i = 0; i < tuned.n; i++, lua_settop(L, at)) {
        struct text t = {0};
        if (!is_value(lua_rawgeti(L, at, i + 1)))
            field_fail(L, owners->t->line, "tune", "tune.%s[%d] must be a number, a boolean or a string, not %s", name,
                       i + 1, describe(L, -1));
        put(&t, "%s", "");
        put_value(&t, L, at + 1);
        tuned.value[i] = t.s;
    }
    return tuned;
}

void read_tune(struct owners *owners) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    int top = lua_gettop(L);
    if (push_field(owners->t, "tune") == LUA_TNIL) {
        lua_settop(L, top);
        return;
    }
    if (!lua_istable(L, -1))
        field_fail(L, owners->t->line, "tune",
                   "tune must be a table of parameters, such as { chunks = { 2, 4 } }, not %s", describe(L, -1));
    push_sorted_keys(L, top + 1);
    int n = (int)lua_rawlen(L, -1);
    sp->declared.tuned = NEW(struct tuned, n);
    for (; sp->declared.ntuned < n; lua_settop(L, top + 2)) {
        if (lua_rawgeti(L, top + 2, sp->declared.ntuned + 1) != LUA_TSTRING ||
            !is_param(owners->S, lua_tostring(L, -1)))
            field_fail(L, owners->t->line, "tune", "tune names %s, which is not a parameter of this script",
                       describe(L, -1));
        lua_pushvalue(L, -1);
        lua_rawget(L, top + 1);
        sp->declared.tuned[sp->declared.ntuned++] = read_choices(owners, lua_tostring(L, top + 3));
    }
    lua_settop(L, top);
}
