/* Library functions that can run long in one call, with their work counted. Functions that walk a range of a table are
 * reimplemented (Lua 5.4 manual, 6.6), since a metamethod can return any length. Others are charged before or after
 * they call Lua's own. */
#include "script.h"
#include <limits.h>
#include <string.h>

enum { ELEMENT = 8, FAILURE = 500 }; /* instructions: per element moved, per error caught */

int call_original(lua_State *L) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* ---- tables ---- */

static lua_Integer list_length(lua_State *L, const char *function) {
    enter(L, function);
    luaL_checktype(L, 1, LUA_TTABLE);
    return luaL_len(L, 1);
}

static void move_element(lua_State *L, int to, lua_Integer at, lua_Integer from) {
    spend(L, ELEMENT);
    lua_geti(L, 1, from);
    lua_seti(L, to, at);
}

static void add_element(lua_State *L, luaL_Buffer *out, lua_Integer i) {
    lua_geti(L, 1, i);
    if (!lua_isstring(L, -1))
        luaL_error(L, "invalid value (at index %I) in table for 'concat'", (LUAI_UACINT)i);
    luaL_addvalue(out);
}

static int counted_concat(lua_State *L) {
    luaL_Buffer out;
    size_t n;
    lua_Integer last = list_length(L, "table.concat");
    const char *between = luaL_optlstring(L, 2, "", &n);
    lua_Integer i = luaL_optinteger(L, 3, 1);
    last = luaL_optinteger(L, 4, last);
    luaL_buffinit(L, &out);
    for (; i < last; i++) {
        spend(L, ELEMENT + (int64_t)n / 32);
        add_element(L, &out, i);
        luaL_addlstring(&out, between, n);
    }
    if (i == last)
        add_element(L, &out, i);
    luaL_pushresult(&out);
    return 1;
}

static int counted_insert(lua_State *L) {
    lua_Integer end = (lua_Integer)((lua_Unsigned)list_length(L, "table.insert") + 1), at = end;
    int arguments = lua_gettop(L);
    if (arguments != 2 && arguments != 3)
        return luaL_error(L, "wrong number of arguments to 'insert'");
    if (arguments == 3) {
        at = luaL_checkinteger(L, 2);
        luaL_argcheck(L, (lua_Unsigned)at - 1u < (lua_Unsigned)end, 2, "position out of bounds");
        for (lua_Integer i = end; i > at; i--)
            move_element(L, 1, i, i - 1);
    }
    lua_seti(L, 1, at);
    return 0;
}

static int counted_remove(lua_State *L) {
    lua_Integer n = list_length(L, "table.remove"), at = luaL_optinteger(L, 2, n);
    if (at != n)
        luaL_argcheck(L, (lua_Unsigned)at - 1u <= (lua_Unsigned)n, 2, "position out of bounds");
    lua_geti(L, 1, at);
    for (; at < n; at++)
        move_element(L, 1, at, at + 1);
    lua_pushnil(L);
    lua_seti(L, 1, at);
    return 1;
}

static int counted_move(lua_State *L) {
    lua_Integer from = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3), at = luaL_checkinteger(L, 4);
    int to = lua_isnoneornil(L, 5) ? 1 : 5;
    enter(L, "table.move");
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, to, LUA_TTABLE);
    if (last >= from) {
        luaL_argcheck(L, from > 0 || last < LUA_MAXINTEGER + from, 3, "too many elements to move");
        lua_Integer n = last - from + 1;
        luaL_argcheck(L, at <= LUA_MAXINTEGER - n + 1, 4, "destination wrap around");
        if (at > last || at <= from || (to != 1 && !lua_compare(L, 1, to, LUA_OPEQ)))
            for (lua_Integer i = 0; i < n; i++)
                move_element(L, to, at + i, from + i);
        else
            for (lua_Integer i = n - 1; i >= 0; i--)
                move_element(L, to, at + i, from + i);
    }
    lua_pushvalue(L, to);
    return 1;
}

static int counted_unpack(lua_State *L) {
    lua_Integer i = luaL_optinteger(L, 2, 1);
    lua_Integer last = lua_isnoneornil(L, 3) ? luaL_len(L, 1) : luaL_checkinteger(L, 3);
    if (i > last)
        return 0;
    lua_Unsigned n = (lua_Unsigned)last - (lua_Unsigned)i;
    if (n >= INT_MAX || !lua_checkstack(L, (int)++n))
        return luaL_error(L, "too many results to unpack");
    enter(L, "table.unpack");
    spend(L, 3 * (int64_t)n);
    for (lua_Unsigned k = 0; k < n; k++)
        lua_geti(L, 1, i + (lua_Integer)k);
    return (int)n;
}

static const luaL_Reg counted_tables[] = {{"concat", counted_concat}, {"insert", counted_insert},
                                          {"remove", counted_remove}, {"move", counted_move},
                                          {"unpack", counted_unpack}, {NULL, NULL}};

/* ---- strings ---- */

/* Charges nothing for the result, which is charged as memory. An empty result could take any time to make, so it is
 * returned at once. */
static int counted_rep(lua_State *L) {
    size_t n, between;
    luaL_checklstring(L, 1, &n);
    luaL_checkinteger(L, 2);
    luaL_optlstring(L, 3, "", &between);
    if (n + between > 0)
        return call_original(L);
    lua_pushliteral(L, "");
    return 1;
}

/* Charges a function that takes or returns many values. */
static int counted_values(lua_State *L) {
    int n = lua_gettop(L), results = call_original(L);
    enter(L, "a function that returns many values");
    spend(L, n + results);
    return results;
}

/* ---- caught errors ---- */

static int caught(lua_State *L, int status, lua_KContext below) {
    if (status == LUA_OK || status == LUA_YIELD)
        return lua_gettop(L) - (int)below;
    enter(L, "pcall");
    spend(L, FAILURE + cost_of_frames(L));
    lua_pushboolean(L, false);
    lua_insert(L, -2);
    return 2;
}

static int counted_pcall(lua_State *L) {
    luaL_checkany(L, 1);
    enter(L, "pcall");
    spend(L, 40);
    lua_pushboolean(L, true);
    lua_insert(L, 1);
    return caught(L, lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, 0, caught), 0);
}

/* ---- all functions ---- */

void wrap(lua_State *L, const char *name, lua_CFunction f) {
    lua_getfield(L, -1, name);
    lua_pushcclosure(L, f, 1);
    lua_setfield(L, -2, name);
}

void count_libraries(lua_State *L) {
    lua_register(L, "pcall", counted_pcall);
    lua_getglobal(L, "table");
    luaL_setfuncs(L, counted_tables, 0);
    lua_getglobal(L, "string");
    charge_patterns(L);
    wrap(L, "rep", counted_rep);
    wrap(L, "byte", counted_values);
    wrap(L, "unpack", counted_values);
    lua_getglobal(L, "utf8");
    wrap(L, "codepoint", counted_values);
    lua_pop(L, 3);
}
