/* The names a script can use: enough to compute, the same way every time, and nothing else.
 *
 * - An allow-list behind a locked table of globals: no files, clock, code loading or processes.
 * - Lua seeds its string hash, math.random and table.sort from addresses and the clock, and prints addresses. So pairs
 *   and next visit keys in sorted order, random has a fixed seed, sort is our own, and tostring shows no address. */
#include "prelude.h"
#include "script.h"
#include <stdlib.h>
#include <string.h>

/* ---- tables in a fixed order ---- */

struct sort_key {
    int type;
    bool integer;
    union {
        lua_Integer i; /* also a boolean's value */
        lua_Number x;
        struct {
            const char *s;
            size_t n;
        };
    };
};

static lua_Number key_number(const struct sort_key *key) { return key->integer ? (lua_Number)key->i : key->x; }

static int order_keys(const void *pa, const void *pb) {
    const struct sort_key *a = pa, *b = pb;
    if (a->type != b->type) { /* numbers, strings, booleans */
        static const int place[] = {[LUA_TNUMBER] = 0, [LUA_TSTRING] = 1, [LUA_TBOOLEAN] = 2};
        return place[a->type] - place[b->type];
    }
    if (a->type == LUA_TSTRING) {
        int order = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
        return order ? order : (a->n > b->n) - (a->n < b->n);
    }
    if (a->integer && b->integer)
        return (a->i > b->i) - (a->i < b->i);
    lua_Number x = key_number(a), y = key_number(b);
    return (x > y) - (x < y);
}

static struct sort_key key_at(lua_State *L, int index) {
    struct sort_key key = {.type = lua_type(L, index), .integer = true};
    if (key.type == LUA_TNUMBER) {
        key.integer = lua_isinteger(L, index);
        if (key.integer)
            key.i = lua_tointeger(L, index);
        else
            key.x = lua_tonumber(L, index);
    } else if (key.type == LUA_TBOOLEAN) {
        key.i = lua_toboolean(L, index);
    } else if (key.type == LUA_TSTRING) {
        key.s = lua_tolstring(L, index, &key.n);
        spend(L, (int64_t)key.n / 4);
    } else {
        script_fail(L, script_line(L), 0,
                    "a table with %s as a key has no fixed order; use numbers, strings or booleans as keys",
                    describe(L, index));
    }
    return key;
}

static void push_key(lua_State *L, const struct sort_key *key) {
    if (key->type == LUA_TSTRING)
        lua_pushlstring(L, key->s, key->n);
    else if (key->type == LUA_TBOOLEAN)
        lua_pushboolean(L, (int)key->i);
    else if (key->integer)
        lua_pushinteger(L, key->i);
    else
        lua_pushnumber(L, key->x);
}

/* Charges for a walk over a table's keys. Lua visits all slots, including empty ones, and does not report their number,
 * so this charges for as many as the largest memory block could hold. */
static void spend_on_walk(lua_State *L) {
    enum { PLACES_PER_INSTRUCTION = 8, PLACE = 16 };
    enter(L, "pairs or next");
    spend(L, (int64_t)(script_of(L)->heap.largest / (PLACES_PER_INSTRUCTION * PLACE)));
}

void push_sorted_keys(lua_State *L, int table) {
    table = lua_absindex(L, table);
    size_t n = 0, i = 0;
    spend_on_walk(L);
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1))
        n++;
    spend(L, 20 * (int64_t)n);
    struct sort_key *key = lua_newuserdatauv(L, (n + 1) * sizeof *key, 0);
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1))
        key[i++] = key_at(L, -2);
    sort(key, n, sizeof *key, order_keys);
    lua_createtable(L, (int)n, 0);
    for (i = 0; i < n; i++) {
        push_key(L, &key[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_remove(L, -2);
}

/* Returns the next pair. Upvalues: the keys, and the number visited. Skips keys that were removed meanwhile. */
static int pairs_next(lua_State *L) {
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
    for (;;) {
        if (lua_rawgeti(L, lua_upvalueindex(1), ++i) == LUA_TNIL)
            return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, 1) != LUA_TNIL)
            break;
        lua_pop(L, 2);
    }
    lua_pushinteger(L, i);
    lua_replace(L, lua_upvalueindex(2));
    return 2;
}

static int safe_pairs(lua_State *L) {
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    push_sorted_keys(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pairs_next, 2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* Implements next: returns the smallest key above the given one. */
static int safe_next(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    bool found = false, first = lua_isnil(L, 2);
    struct sort_key after = {0}, best = {0};
    if (!first)
        after = key_at(L, 2);
    spend_on_walk(L);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        struct sort_key key = key_at(L, -2);
        spend(L, 4);
        if ((first || order_keys(&key, &after) > 0) && (!found || order_keys(&key, &best) < 0)) {
            best = key;
            found = true;
        }
    }
    if (!found) {
        lua_pushnil(L);
        return 1;
    }
    push_key(L, &best);
    lua_pushvalue(L, -1);
    lua_rawget(L, 1);
    return 2;
}

/* ---- text without addresses ---- */

void push_plain_string(lua_State *L, int index) {
    index = lua_absindex(L, index);
    int type = lua_type(L, index);
    if (luaL_callmeta(L, index, "__tostring")) {
        if (!lua_isstring(L, -1))
            luaL_error(L, "'__tostring' must return a string");
    } else if (type == LUA_TTABLE || type == LUA_TFUNCTION || type == LUA_TTHREAD || type == LUA_TUSERDATA) {
        lua_pushstring(L, luaL_typename(L, index));
    } else {
        luaL_tolstring(L, index, NULL);
    }
}

static int safe_tostring(lua_State *L) {
    luaL_checkany(L, 1);
    enter(L, "tostring");
    spend(L, 20);
    push_plain_string(L, 1);
    return 1;
}

/* Prints to standard error, since standard output is for the compiler's results. */
static int safe_print(lua_State *L) {
    int n = lua_gettop(L);
    for (int i = 1; i <= n; i++) {
        size_t length;
        push_plain_string(L, i);
        const char *s = lua_tolstring(L, -1, &length);
        enter(L, "print");
        spend(L, 1000 + 20 * (int64_t)length);
        fwrite(s, 1, length, stderr);
        fputc(i < n ? '\t' : '\n', stderr);
        lua_pop(L, 1);
    }
    if (n == 0)
        fputc('\n', stderr);
    return 0;
}

/* Formats text. Upvalue: string.format. Its %s would print addresses, so those arguments are converted first. */
static int safe_format(lua_State *L) {
    enum { ITEM = 200 }; /* instructions for the most expensive item, %99.99f */
    int top = lua_gettop(L), arg = 1;
    enter(L, "string.format");
    for (const char *p = luaL_checkstring(L, 1); *p; p++) {
        if (*p != '%' || *++p == '%')
            continue;
        p += strspn(p, "-+ #0123456789.");
        arg++;
        spend(L, ITEM);
        if (*p == 'p')
            luaL_error(L, "'%%p' is not available: addresses differ from run to run");
        if (*p == 's' && arg <= top) {
            push_plain_string(L, arg);
            lua_replace(L, arg);
        }
        if (!*p)
            break;
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, top, 1);
    return 1;
}

/* ---- other functions, restricted; their upvalue is Lua's own ---- */

static int safe_randomseed(lua_State *L) {
    if (lua_isnoneornil(L, 1))
        luaL_error(L, "randomseed() without a seed takes the clock's; give it a number");
    return call_original(L);
}

static int safe_setmetatable(lua_State *L) {
    static const char *const refused[] = {"__gc", "__mode"};
    for (int i = 0; i < 2 && lua_istable(L, 2); i++) {
        lua_pushstring(L, refused[i]);
        if (lua_rawget(L, 2) != LUA_TNIL)
            luaL_error(L, "'%s' is not available: it would depend on when memory is collected", refused[i]);
        lua_pop(L, 1);
    }
    script_of(L)->heap.metatables++;
    return call_original(L);
}

/* Makes a coroutine, which starts an instruction count of its own, and charges for instructions that this count may
 * miss. Once the script has ended, no coroutine may start, since each could make others before its count runs out. */
static int safe_coroutine(lua_State *L) {
    if (script_ended(script_of(L)))
        luaL_error(L, "the script has ended");
    enter(L, "coroutine.create");
    spend(L, 150);
    return call_original(L);
}

static int counted_yield(lua_State *L) {
    enter(L, "coroutine.yield");
    spend(L, 60);
    return lua_yield(L, lua_gettop(L));
}

static int counted_resume(lua_State *L) {
    enter(L, "coroutine.resume");
    spend(L, 50);
    return call_original(L);
}

/* ---- globals ---- */

static const char *const allowed[] = {"_VERSION", "assert",    "error",  "getmetatable", "ipairs", "pcall",
                                      "rawequal", "rawget",    "rawlen", "rawset",       "select", "tonumber",
                                      "type",     "coroutine", "math",   "string",       "table",  "utf8"};
static const char *const withheld[] = {"io",         "os",       "require", "package",        "debug", "load",
                                       "loadstring", "loadfile", "dofile",  "collectgarbage", "_G"};

int unknown_name(lua_State *L, const char *what, const char *name) {
    push_sorted_keys(L, -1);
    int n = (int)lua_rawlen(L, -1), keys = lua_gettop(L);
    const char **names = lua_newuserdatauv(L, sizeof *names * (size_t)(n + 1), 0);
    for (int i = 0; i < n; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, keys, i + 1);
        names[i] = lua_tostring(L, -1); /* the table of keys keeps it */
    }
    spend(L, 100 * (int64_t)n);
    const char *near = nearest(name, names, n);
    return luaL_error(L, near ? "%s '%s'; did you mean '%s'?" : "%s '%s'", what, name, near);
}

/* Returns the kind of script that has this name, or -1. Upvalues of refuse_read: the globals, and the names that only
 * schedules and only models have. */
static int kind_of_name(lua_State *L, const char *name) {
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, script_kinds[i]))
            return i;
    for (int i = SCRIPT_SCHEDULE; i <= SCRIPT_MODEL; i++) {
        lua_pushvalue(L, 2);
        if (lua_rawget(L, lua_upvalueindex(2 + i)) != LUA_TNIL)
            return i;
        lua_pop(L, 1);
    }
    return -1;
}

/* Refuses a file of one kind where another belongs. Reports how it was given, and how to give it. */
static _Noreturn void refuse_kind(lua_State *L, const char *name, enum script_kind kind) {
    static const char *const given[] = {"this one was given as the schedule", "this one was given to --model",
                                        "this one was given to --cluster"};
    static const char *const how[] = {"a schedule script stands alone: pianola check FILE",
                                      "a model script stands beside a schedule: SCHEDULE.lua --model FILE",
                                      "a cluster script stands beside a schedule: SCHEDULE.lua --cluster FILE"};
    enum script_kind is = script_of(L)->kind;
    luaL_error(L, "'%s' belongs in a %s script, and %s, which ends with: return %s { ... }; %s", name,
               script_kinds[kind], given[is], script_kinds[is], how[kind]);
    __builtin_unreachable();
}

static int refuse_read(lua_State *L) {
    if (lua_type(L, 2) != LUA_TSTRING)
        return 0;
    const char *name = lua_tostring(L, 2);
    for (size_t i = 0; i < sizeof withheld / sizeof *withheld; i++)
        if (!strcmp(name, withheld[i]))
            luaL_error(L, "'%s' is not available: a script only computes, without files, clock or other code", name);
    int kind = kind_of_name(L, name);
    if (kind >= 0)
        refuse_kind(L, name, (enum script_kind)kind);
    lua_pushvalue(L, lua_upvalueindex(1));
    return unknown_name(L, "nothing is named", name);
}

static int refuse_write(lua_State *L) {
    lua_pushvalue(L, 2);
    bool built_in = lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL;
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : luaL_typename(L, 2);
    if (built_in)
        return luaL_error(L, "'%s' is built in and cannot be assigned; choose another name and declare it local", name);
    return luaL_error(L, "'%s' is not declared; write: local %s = ...", name, name);
}

static void remove_field(lua_State *L, const char *name) {
    lua_pushnil(L);
    lua_setfield(L, -2, name);
}

void confine_libraries(lua_State *L) {
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},        {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_STRLIBNAME, luaopen_string}, {LUA_MATHLIBNAME, luaopen_math},
                                         {LUA_UTF8LIBNAME, luaopen_utf8},  {LUA_COLIBNAME, luaopen_coroutine}};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    count_libraries(L);
    lua_getglobal(L, "string");
    remove_field(L, "dump");
    wrap(L, "format", safe_format);
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_getglobal(L, "math");
    lua_getfield(L, -1, "randomseed");
    lua_pushinteger(L, 1);
    lua_call(L, 1, 0);
    wrap(L, "randomseed", safe_randomseed);
    lua_getglobal(L, "coroutine");
    wrap(L, "create", safe_coroutine);
    wrap(L, "wrap", safe_coroutine);
    wrap(L, "resume", counted_resume);
    wrap(L, "yield", counted_yield);
    lua_settop(L, 0);
}

/* Pushes the table of all names that a script may use. */
static void push_globals(lua_State *L) {
    static const luaL_Reg ours[] = {{"pairs", safe_pairs}, {"next", safe_next},       {"tostring", safe_tostring},
                                    {"print", safe_print}, {"params", script_params}, {NULL, NULL}};
    lua_newtable(L);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        lua_getglobal(L, allowed[i]);
        lua_setfield(L, -2, allowed[i]);
    }
    luaL_setfuncs(L, ours, 0);
    lua_getglobal(L, "setmetatable");
    lua_pushcclosure(L, safe_setmetatable, 1);
    lua_setfield(L, -2, "setmetatable");
}

/* Runs prelude.lua, which defines table.sort, xpcall, and the orders, which go into the table at index `orders`. */
static void run_prelude(lua_State *L, int globals, int orders) {
    if (luaL_loadbufferx(L, prelude_lua, strlen(prelude_lua), "=prelude", "t"))
        lua_error(L);
    lua_call(L, 0, 3);
    lua_setfield(L, globals, "xpcall");
    lua_getfield(L, globals, "table");
    lua_insert(L, -2);
    lua_setfield(L, -2, "sort");
    lua_pop(L, 1);
    for (lua_pushnil(L); lua_next(L, -2);) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_settable(L, orders);
    }
    lua_pop(L, 1);
}

/* Takes the script's answer. Upvalue: the kind's name, "schedule". Records the line of the call, and marks the table as
 * the answer. */
static int answer(lua_State *L) {
    struct script *script = script_of(L);
    const char *name = lua_tostring(L, lua_upvalueindex(1));
    int line = script_line(L);
    if (!lua_istable(L, 1))
        script_fail(L, line, 0, "%s takes a table of fields, not %s; write: return %s { ... }", name, describe(L, 1),
                    name);
    script->line = line;
    lua_settop(L, 1);
    lua_pushvalue(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, script);
    return 1;
}

/* Pushes the script's _ENV. It is empty, so that every name that is not local goes through its metatable. Reads fall
 * through to the table of globals, and fail if the name is not there either; every assignment fails. */
void push_environment(lua_State *L, enum script_kind kind) {
    push_globals(L);
    int globals = lua_gettop(L);
    lua_pushstring(L, script_kinds[kind]);
    lua_pushcclosure(L, answer, 1);
    lua_setfield(L, globals, script_kinds[kind]);
    lua_newtable(L); /* names that only schedules have, if this is not one */
    lua_newtable(L); /* names that only models have, if this is not one */
    run_prelude(L, globals, kind == SCRIPT_SCHEDULE ? globals : globals + 1);
    open_layers(L, kind == SCRIPT_MODEL ? globals : globals + 2);
    lua_newtable(L); /* metatable of globals */
    lua_insert(L, globals + 1);
    lua_pushvalue(L, globals);
    lua_insert(L, globals + 2);
    lua_pushcclosure(L, refuse_read, 3);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, globals);
    lua_newtable(L); /* _ENV */
    lua_newtable(L); /* and its metatable */
    lua_pushvalue(L, globals);
    lua_setfield(L, -2, "__index");
    lua_pushvalue(L, globals);
    lua_pushcclosure(L, refuse_write, 1);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_replace(L, globals);
}
