/* Lua's patterns: string.find, match, gmatch and gsub are Lua's own, charged before they run. They can backtrack inside
 * one call for hours, and no hook runs there. So a call is charged for the most that it could do, which depends only on
 * the pattern and on the length of the text.
 *
 * A match walks the pattern item by item. Each run of characters (an item with *, + or -) may consume any number of
 * them. The start of the match counts as a run; together, q runs consume at most the n characters of the text. So an
 * item after q runs is reached in at most (n + q choose q) ways. A ? doubles the ways; all other items continue in one
 * way. */
#include "script.h"
#include <ctype.h>
#include <string.h>

/* Returns the end of the set, class or character that begins at p[i]. */
static size_t item_end(const char *p, size_t n, size_t i) {
    if (p[i] == '%')
        return i + 2;
    if (p[i++] != '[')
        return i;
    i += i < n && p[i] == '^';
    do
        i += i < n && p[i] == '%' ? 2 : 1;
    while (i < n && p[i] != ']');
    return i + 1;
}

/* Returns an upper bound on the steps of all matches of pattern p in a text of n characters. one_place: all matches
 * begin at one place. */
static double most_steps(const char *p, size_t np, double n, bool one_place) {
    double runs = !one_place, ways = one_place ? 1 : n + 1, steps = ways;
    for (size_t i = 0, end; i < np; i = end) {
        double each = 1;
        if (p[i] == '(' || p[i] == ')') {
            end = i + 1;
        } else if (p[i] == '%' && i + 1 < np && p[i + 1] == 'b') {
            end = i + 4;
            each = 1 + n;
        } else if (p[i] == '%' && i + 1 < np && isdigit((unsigned char)p[i + 1])) {
            end = i + 2;
            each = 1 + n / 64;
        } else {
            bool frontier = p[i] == '%' && i + 1 < np && p[i + 1] == 'f';
            end = item_end(p, np, frontier && i + 2 < np ? i + 2 : i);
            each = 1 + (double)(end - i) / 4;
            char suffix = '\0';
            if (end < np && !frontier)
                suffix = p[end];
            if (suffix == '*' || suffix == '+' || suffix == '-') {
                runs++;
                ways *= (n + runs) / runs;
            } else if (suffix == '?') {
                ways *= 2;
            }
            end += suffix && strchr("*+-?", suffix);
        }
        steps += ways * each;
    }
    return steps;
}

static bool is_plain(const char *p, size_t np) { return strlen(p) == np && !strpbrk(p, "^$*+?.([%-"); }

/* Charges a call of the named function, whose arguments 1 and 2 are a text and a pattern. passes: how often it may try
 * a match at one place. Then calls Lua's own function in this frame, so that its errors name this call. */
static int charged(lua_State *L, const char *name, int passes, bool plain, bool anchors) {
    size_t n, np;
    luaL_checklstring(L, 1, &n);
    const char *p = luaL_checklstring(L, 2, &np);
    bool anchored = anchors && *p == '^';
    double steps =
        plain ? ((double)n + 1) * (1 + (double)np / 16) : most_steps(p + anchored, np - anchored, (double)n, anchored);
    enter(L, name);
    spend(L, steps * passes < 1e12 ? (int64_t)steps * passes : (int64_t)1e12);
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

static int charged_find(lua_State *L) {
    size_t np;
    const char *p = luaL_checklstring(L, 2, &np);
    return charged(L, "string.find", 1, lua_toboolean(L, 4) || is_plain(p, np), true);
}

static int charged_match(lua_State *L) { return charged(L, "string.match", 1, false, true); }

/* Returns the next match, or nothing after the last match or an error. Lua's own iterator would then search the rest of
 * the text again in every call. */
static int next_match(lua_State *L) {
    lua_settop(L, 0);
    if (lua_isnil(L, lua_upvalueindex(1)))
        return 0;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushnil(L);
    lua_replace(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_call(L, 0, LUA_MULTRET);
    if (lua_gettop(L) > 1) {
        lua_pushvalue(L, 1);
        lua_replace(L, lua_upvalueindex(1));
    }
    return lua_gettop(L) - 1;
}

static int charged_gmatch(lua_State *L) {
    int results = charged(L, "string.gmatch", 2, false, false);
    lua_pushcclosure(L, next_match, 1);
    return results;
}

/* Returns the replacement of a match, from the function or table that gsub was given, charged by its length. */
static int replacement(lua_State *L) {
    size_t n = 0;
    lua_pushvalue(L, lua_upvalueindex(1));
    if (lua_isfunction(L, -1)) {
        lua_insert(L, 1);
        lua_call(L, lua_gettop(L) - 1, 1);
    } else {
        lua_pushvalue(L, 1);
        lua_gettable(L, -2);
    }
    if (lua_type(L, -1) == LUA_TSTRING)
        n = lua_rawlen(L, -1);
    enter(L, "string.gsub");
    spend(L, 10 + (int64_t)n / 32);
    return 1;
}

static int charged_gsub(lua_State *L) {
    size_t n, longest = 0;
    luaL_checklstring(L, 1, &n);
    if (lua_isfunction(L, 3) || lua_istable(L, 3)) {
        lua_pushvalue(L, 3);
        lua_pushcclosure(L, replacement, 1);
        lua_replace(L, 3);
    } else {
        luaL_argexpected(L, lua_isstring(L, 3), 3, "string/function/table");
        lua_tolstring(L, 3, &longest); /* each %1 in it expands to at most the match */
    }
    enter(L, "string.gsub");
    spend(L, (int64_t)(n + 1) * (int64_t)(longest + 1) / 8);
    return charged(L, "string.gsub", 2, false, true);
}

void charge_patterns(lua_State *L) {
    wrap(L, "find", charged_find);
    wrap(L, "match", charged_match);
    wrap(L, "gmatch", charged_gmatch);
    wrap(L, "gsub", charged_gsub);
}
