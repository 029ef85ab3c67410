/* Lua's patterns, counted: string.find, match, gmatch and gsub. Lua's own backtrack inside one call, for hours if a
 * script wants, where no hook runs. This matcher gives the same results and errors (Lua 5.4 manual, 6.4.1; a test
 * compares them) and spends an instruction on every step. */
#include "script.h"
#include <ctype.h>
#include <string.h>

enum { MAX_CAPTURES = 32, MAX_DEPTH = 200, OPEN = -1, POSITION = -2 };

struct match {
    lua_State *L;
    const char *src, *end, *pattern_end;
    int level; /* captures so far, finished or open */
    int depth; /* of recursion left */
    struct {
        const char *at;
        ptrdiff_t n; /* or OPEN, POSITION */
    } capture[MAX_CAPTURES];
};

static const char *match_here(struct match *match, const char *s, const char *p);

static void start(struct match *match, lua_State *L) {
    match->L = L;
    match->level = 0;
    match->depth = MAX_DEPTH;
}

/* ---- one character ---- */

/* The end of the single character, class or set that begins at p. */
static const char *item_end(struct match *match, const char *p) {
    const char *first = p;
    if (*p++ == '%') {
        if (p == match->pattern_end)
            luaL_error(match->L, "malformed pattern (ends with '%%')");
        return p + 1;
    }
    if (*first != '[')
        return p;
    p += *p == '^';
    do {
        if (p == match->pattern_end)
            luaL_error(match->L, "malformed pattern (missing ']')");
        if (*p++ == '%' && p < match->pattern_end)
            p++;
    } while (*p != ']');
    spend(match->L, (p - first) / 8);
    return p + 1;
}

static bool in_class(int c, int letter) {
    bool in;
    switch (tolower(letter)) {
    case 'a': in = isalpha(c); break;
    case 'c': in = iscntrl(c); break;
    case 'd': in = isdigit(c); break;
    case 'g': in = isgraph(c); break;
    case 'l': in = islower(c); break;
    case 'p': in = ispunct(c); break;
    case 's': in = isspace(c); break;
    case 'u': in = isupper(c); break;
    case 'w': in = isalnum(c); break;
    case 'x': in = isxdigit(c); break;
    default: return letter == c;
    }
    return in != (isupper(letter) != 0);
}

/* The set from its '[' at p to its ']' at last. */
static bool in_set(int c, const char *p, const char *last) {
    bool in = p[1] != '^';
    p += !in;
    while (++p < last) {
        if (*p == '%') {
            p++;
            if (in_class(c, (unsigned char)*p))
                return in;
        } else if (p[1] == '-' && p + 2 < last) {
            p += 2;
            if ((unsigned char)p[-2] <= c && c <= (unsigned char)*p)
                return in;
        } else if ((unsigned char)*p == c) {
            return in;
        }
    }
    return !in;
}

/* Whether the character at s matches the item from p to end. */
static bool fits(struct match *match, const char *s, const char *p, const char *end) {
    spend(match->L, 1 + (end - p) / 8);
    if (s >= match->end)
        return false;
    int c = (unsigned char)*s;
    switch (*p) {
    case '.': return true;
    case '%': return in_class(c, (unsigned char)p[1]);
    case '[': return in_set(c, p, end - 1);
    default: return (unsigned char)*p == c;
    }
}

/* ---- repetition, captures, %b, %f, %1 ---- */

static const char *most(struct match *match, const char *s, const char *p, const char *end) {
    ptrdiff_t n = 0;
    while (fits(match, s + n, p, end))
        n++;
    for (; n >= 0; n--) {
        const char *to = match_here(match, s + n, end + 1);
        if (to)
            return to;
    }
    return NULL;
}

static const char *fewest(struct match *match, const char *s, const char *p, const char *end) {
    for (;; s++) {
        const char *to = match_here(match, s, end + 1);
        if (to || !fits(match, s, p, end))
            return to;
    }
}

static const char *open_capture(struct match *match, const char *s, const char *p, int how) {
    if (match->level >= MAX_CAPTURES)
        luaL_error(match->L, "too many captures");
    match->capture[match->level].at = s;
    match->capture[match->level].n = how;
    match->level++;
    const char *to = match_here(match, s, p);
    match->level -= !to;
    return to;
}

static const char *close_capture(struct match *match, const char *s, const char *p) {
    int i = match->level - 1;
    while (i >= 0 && match->capture[i].n != OPEN)
        i--;
    if (i < 0)
        luaL_error(match->L, "invalid pattern capture");
    match->capture[i].n = s - match->capture[i].at;
    const char *to = match_here(match, s, p);
    if (!to)
        match->capture[i].n = OPEN;
    return to;
}

static const char *balanced(struct match *match, const char *s, const char *p) {
    if (p >= match->pattern_end - 1)
        luaL_error(match->L, "malformed pattern (missing arguments to '%%b')");
    if (*s != *p)
        return NULL;
    for (int64_t open = 1; ++s < match->end;) {
        spend(match->L, 1);
        if (*s == p[1]) {
            if (--open == 0)
                return s + 1;
        } else if (*s == *p) {
            open++;
        }
    }
    return NULL;
}

static bool at_frontier(struct match *match, const char *s, const char *p, const char *end) {
    int before = s == match->src ? 0 : (unsigned char)s[-1], after = s == match->end ? 0 : (unsigned char)*s;
    spend(match->L, 1 + (end - p) / 4);
    return !in_set(before, p, end - 1) && in_set(after, p, end - 1);
}

static const char *same_again(struct match *match, const char *s, char digit) {
    int i = digit - '1';
    if (i < 0 || i >= match->level || match->capture[i].n == OPEN)
        luaL_error(match->L, "invalid capture index %%%d", i + 1);
    size_t n = (size_t)match->capture[i].n; /* for a position: larger than any string */
    if ((size_t)(match->end - s) < n)
        return NULL;
    spend(match->L, (int64_t)n / 64);
    return memcmp(match->capture[i].at, s, n) == 0 ? s + n : NULL;
}

/* ---- a pattern ---- */

/* Matches %b, %f or %1 at *p: moves *s (NULL: no match) and *p; false: it is a class. */
static bool special(struct match *match, const char **s, const char **p) {
    const char *at = *p;
    if (at[1] == 'b') {
        *s = balanced(match, *s, at + 2);
        *p = at + 4;
    } else if (at[1] == 'f') {
        at += 2;
        if (*at != '[')
            luaL_error(match->L, "missing '[' after '%%f' in pattern");
        *p = item_end(match, at);
        if (!at_frontier(match, *s, at, *p))
            *s = NULL;
    } else if (isdigit((unsigned char)at[1])) {
        *s = same_again(match, *s, at[1]);
        *p = at + 2;
    } else {
        return false;
    }
    return true;
}

/* Matches an item and its repetition in the same way; true: *s is where the rest of the pattern ended, too. */
static bool item(struct match *match, const char **s, const char **p) {
    const char *end = item_end(match, *p), *to;
    if (!fits(match, *s, *p, end)) {
        bool may_miss = *end == '*' || *end == '?' || *end == '-';
        *s = may_miss ? *s : NULL;
        *p = end + 1;
        return false;
    }
    switch (*end) {
    case '*': *s = most(match, *s, *p, end); return true;
    case '+': *s = most(match, *s + 1, *p, end); return true;
    case '-': *s = fewest(match, *s, *p, end); return true;
    case '?':
        to = match_here(match, *s + 1, end + 1);
        *s = to ? to : *s;
        *p = end + 1;
        return to != NULL;
    default:
        ++*s;
        *p = end;
        return false;
    }
}

/* The end of a match, beginning at s, of the pattern from p on; NULL: there is none. */
static const char *match_here(struct match *match, const char *s, const char *p) {
    if (match->depth-- == 0)
        luaL_error(match->L, "pattern too complex");
    bool whole = false; /* s is where all of the pattern ended */
    while (s && !whole && p != match->pattern_end) {
        spend(match->L, 1);
        if (*p == '(') {
            bool place = p[1] == ')';
            s = open_capture(match, s, p + 1 + place, place ? POSITION : OPEN);
            whole = true;
        } else if (*p == ')') {
            s = close_capture(match, s, p + 1);
            whole = true;
        } else if (*p == '$' && p + 1 == match->pattern_end) {
            s = s == match->end ? s : NULL;
            whole = true;
        } else if (*p != '%' || !special(match, &s, &p)) {
            whole = item(match, &s, &p);
        }
    }
    match->depth++;
    return s;
}

/* ---- what it found ---- */

/* Capture i of a match from s to e: its length in *n. A position is pushed as a number instead, and gives NULL. */
static const char *captured(struct match *match, int i, const char *s, const char *e, size_t *n) {
    if (i >= match->level) {
        if (i != 0)
            luaL_error(match->L, "invalid capture index %%%d", i + 1);
        *n = (size_t)(e - s);
        return s;
    }
    if (match->capture[i].n == OPEN)
        luaL_error(match->L, "unfinished capture");
    if (match->capture[i].n == POSITION) {
        lua_pushinteger(match->L, match->capture[i].at - match->src + 1);
        return NULL;
    }
    *n = (size_t)match->capture[i].n;
    return match->capture[i].at;
}

static void push_capture(struct match *match, int i, const char *s, const char *e) {
    size_t n;
    const char *text = captured(match, i, s, e, &n);
    if (text)
        lua_pushlstring(match->L, text, n);
}

/* All of them; the whole match when the pattern has none, unless s is NULL. */
static int push_captures(struct match *match, const char *s, const char *e) {
    int n = match->level == 0 && s ? 1 : match->level;
    luaL_checkstack(match->L, n, "too many captures");
    for (int i = 0; i < n; i++)
        push_capture(match, i, s, e);
    return n;
}

/* ---- find and match ---- */

/* The offset, from 0, at which an argument asks a search in n bytes to begin. */
static size_t begin_at(lua_State *L, int arg, size_t n) {
    lua_Integer at = luaL_optinteger(L, arg, 1);
    if (at > 0)
        return (size_t)at - 1;
    return at == 0 || at < -(lua_Integer)n ? 0 : n + (size_t)at;
}

static bool plain(const char *p, size_t n) {
    static const char special[] = "^$*+?.([%-";
    for (size_t i = 0; i < n; i++)
        if (p[i] && strchr(special, p[i]))
            return false;
    return true;
}

static int find_plain(lua_State *L, const char *s, size_t n, size_t from, const char *p, size_t np) {
    spend(L, (int64_t)(n - from + np) / 8);
    const char *at = memmem(s + from, n - from, p, np);
    if (!at) {
        luaL_pushfail(L);
        return 1;
    }
    lua_pushinteger(L, at - s + 1);
    lua_pushinteger(L, at - s + (lua_Integer)np);
    return 2;
}

static int search(lua_State *L, bool find) {
    size_t n, np;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &np);
    size_t from = begin_at(L, 3, n);
    if (from > n) {
        luaL_pushfail(L);
        return 1;
    }
    if (find && (lua_toboolean(L, 4) || plain(p, np)))
        return find_plain(L, s, n, from, p, np);
    struct match match = {.src = s, .end = s + n, .pattern_end = p + np};
    bool anchored = *p == '^';
    p += anchored;
    for (const char *at = s + from; at <= match.end; at++) {
        start(&match, L);
        const char *e = match_here(&match, at, p);
        if (e && !find)
            return push_captures(&match, at, e);
        if (e) {
            lua_pushinteger(L, at - s + 1);
            lua_pushinteger(L, e - s);
            return push_captures(&match, NULL, NULL) + 2;
        }
        if (anchored)
            break;
    }
    luaL_pushfail(L);
    return 1;
}

static int counted_find(lua_State *L) {
    enter(L, "string.find");
    return search(L, true);
}

static int counted_match(lua_State *L) {
    enter(L, "string.match");
    return search(L, false);
}

/* ---- gmatch ---- */

struct walk {
    struct match m;
    const char *p, *at, *last; /* last: where the previous match ended */
};

/* Upvalues: subject and pattern, which must not be collected, and the walk. */
static int next_match(lua_State *L) {
    struct walk *walk = lua_touserdata(L, lua_upvalueindex(3));
    enter(L, "string.gmatch");
    for (const char *at = walk->at; at <= walk->m.end; at++) {
        start(&walk->m, L);
        const char *e = match_here(&walk->m, at, walk->p);
        if (e && e != walk->last) {
            walk->at = walk->last = e;
            return push_captures(&walk->m, at, e);
        }
    }
    return 0;
}

static int counted_gmatch(lua_State *L) {
    size_t n, np;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &np);
    size_t from = begin_at(L, 3, n);
    lua_settop(L, 2);
    struct walk *walk = lua_newuserdatauv(L, sizeof *walk, 0);
    walk->m = (struct match){.src = s, .end = s + n, .pattern_end = p + np};
    walk->p = p;
    walk->at = s + (from > n ? n + 1 : from);
    walk->last = NULL;
    lua_pushcclosure(L, next_match, 3);
    return 1;
}

/* ---- gsub ---- */

/* The replacement string, argument 3, with its %0 to %9. */
static void add_text(struct match *match, luaL_Buffer *out, const char *s, const char *e) {
    size_t n, nc;
    const char *text = lua_tolstring(match->L, 3, &n), *end = text + n;
    spend(match->L, (int64_t)n / 8);
    for (const char *p; (p = memchr(text, '%', (size_t)(end - text))); text = p + 1) {
        luaL_addlstring(out, text, (size_t)(p - text));
        p++;
        if (*p == '%')
            luaL_addchar(out, '%');
        else if (*p == '0')
            luaL_addlstring(out, s, (size_t)(e - s));
        else if (!isdigit((unsigned char)*p))
            luaL_error(match->L, "invalid use of '%%' in replacement string");
        else {
            const char *c = captured(match, *p - '1', s, e, &nc);
            if (c)
                luaL_addlstring(out, c, nc);
            else
                luaL_addvalue(out);
        }
    }
    luaL_addlstring(out, text, (size_t)(end - text));
}

/* Adds what replaces the match from s to e; false: it added the match itself. */
static bool add_replacement(struct match *match, luaL_Buffer *out, const char *s, const char *e, int type) {
    lua_State *L = match->L;
    spend(L, 10 + (e - s) / 32);
    if (type == LUA_TFUNCTION) {
        lua_pushvalue(L, 3);
        lua_call(L, push_captures(match, s, e), 1);
        enter(L, "string.gsub");
    } else if (type == LUA_TTABLE) {
        push_capture(match, 0, s, e);
        lua_gettable(L, 3);
    } else {
        add_text(match, out, s, e);
        return true;
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        luaL_addlstring(out, s, (size_t)(e - s));
        return false;
    }
    if (!lua_isstring(L, -1))
        luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
    luaL_addvalue(out);
    return true;
}

static int counted_gsub(lua_State *L) {
    size_t n, np;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &np), *last = NULL;
    int type = lua_type(L, 3);
    lua_Integer most = luaL_optinteger(L, 4, (lua_Integer)n + 1), found = 0;
    luaL_argexpected(L, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE, 3,
                     "string/function/table");
    bool anchored = *p == '^', changed = false;
    struct match match = {.src = s, .end = s + n, .pattern_end = p + np};
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    enter(L, "string.gsub");
    for (p += anchored; found < most;) {
        start(&match, L);
        const char *e = match_here(&match, s, p);
        if (e && e != last) {
            found++;
            changed |= add_replacement(&match, &out, s, e, type);
            s = last = e;
        } else if (s < match.end) {
            luaL_addchar(&out, *s++);
        } else {
            break;
        }
        if (anchored)
            break;
    }
    if (changed) {
        luaL_addlstring(&out, s, (size_t)(match.end - s));
        luaL_pushresult(&out);
    } else {
        lua_pushvalue(L, 1);
    }
    lua_pushinteger(L, found);
    return 2;
}

const luaL_Reg counted_patterns[] = {
    {"find", counted_find}, {"match", counted_match}, {"gmatch", counted_gmatch}, {"gsub", counted_gsub}, {NULL, NULL}};
