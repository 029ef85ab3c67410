/* User errors, reported with the script's line.
 *
 * A script may catch Lua errors with pcall. It must not catch ours: script_fail records the first message in the
 * script's state, where sandbox_run finds it whatever the script did, and the sandbox's hook then raises an error at
 * every instruction until the script has ended. */
#include "script.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void record_error(struct script *script, int line, int col, const char *text) {
    if (script->failure.message)
        return;
    script->failure.message = text;
    script->failure.line = line;
    script->failure.col = col;
}

static _Noreturn void raise_at(lua_State *L, int line, int col, const char *fmt, va_list ap) {
    char message[1024];
    vsnprintf(message, sizeof message, fmt, ap);
    record_error(script_of(L), line, col, copy_string(message));
    lua_pushliteral(L, "the script has ended");
    lua_error(L);
    __builtin_unreachable();
}

void script_fail(lua_State *L, int line, int col, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    raise_at(L, line, col, fmt, ap);
}

static const char *start_of_line(const char *src, int line) {
    for (; line > 1 && src; line--) {
        src = strchr(src, '\n');
        src = src ? src + 1 : NULL;
    }
    return src;
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Returns the end of a comment or string that begins at p, or p itself. */
static const char *skip_text(const char *p) {
    if (p[0] == '-' && p[1] == '-')
        return p + strcspn(p, "\n");
    if (*p != '"' && *p != '\'')
        return p;
    const char *q = p + 1;
    while (*q && *q != *p && *q != '\n')
        q += q[0] == '\\' && q[1] ? 2 : 1;
    return *q == *p ? q + 1 : q;
}

/* Finds `word` (followed by `=` if it is a field) in the source from a line on. Moves the line, sets the column. */
static bool find_word(const struct script *script, const char *word, bool field, int *line, int *col) {
    const char *start = start_of_line(script->src, *line);
    int at = *line;
    size_t n = strlen(word);
    for (const char *p = start; p && *p;) {
        const char *q = skip_text(p);
        if (q != p) {
            p = q;
            continue;
        }
        if (*p == '\n') {
            start = p + 1;
            at++;
        }
        if (!is_name(*p)) {
            p++;
            continue;
        }
        size_t len = 1;
        while (is_name(p[len]))
            len++;
        const char *after = p + len + strspn(p + len, " \t");
        if (len == n && !memcmp(p, word, n) && (!field || (after[0] == '=' && after[1] != '='))) {
            *line = at;
            *col = (int)(p - start) + 1;
            return true;
        }
        p += len;
    }
    return false;
}

/* Returns the column of a word in a line; 0: it is not there. */
static int column(const struct script *script, const char *word, int line) {
    int at = line, col = 0;
    return find_word(script, word, false, &at, &col) && at == line ? col : 0;
}

void field_fail(lua_State *L, int line, const char *field, const char *fmt, ...) {
    const struct script *script = script_of(L);
    int col = 0;
    if (!find_word(script, field, true, &line, &col))
        col = column(script, script_kinds[script->kind], line);
    va_list ap;
    va_start(ap, fmt);
    raise_at(L, line, col, fmt, ap);
}

void word_fail(lua_State *L, int line, const char *word, const char *fmt, ...) {
    int col = column(script_of(L), word, line);
    va_list ap;
    va_start(ap, fmt);
    raise_at(L, line, col, fmt, ap);
}

void function_fail(lua_State *L, int index, const char *field, const char *fmt, ...) {
    const struct script *script = script_of(L);
    lua_Debug ar;
    int line = script->line, col = 0;
    lua_pushvalue(L, index);
    lua_getinfo(L, ">S", &ar);
    if (ar.source[0] == '@' && !strcmp(ar.source + 1, script->file) && ar.linedefined > 0) {
        line = ar.linedefined;
        col = column(script, "function", line);
    } else {
        find_word(script, field, true, &line, &col);
    }
    va_list ap;
    va_start(ap, fmt);
    raise_at(L, line, col, fmt, ap);
}

int script_line(lua_State *L) {
    const struct script *script = script_of(L);
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0 && ar.source[0] == '@' && !strcmp(ar.source + 1, script->file))
            return ar.currentline;
    }
    return 0;
}

const char *call_name(const struct script *script) {
    if (script->call.d >= 0)
        return format("%s() for %s", script->call.name,
                      job_name(&script->names, script->call.s, script->call.b, script->call.d));
    int slices = slices_of(&script->names);
    if (script->call.b < 0)
        return format("%s(%d)", script->call.name, script->call.s);
    return script->names.slices ? format("%s(%d, %d, %d)", script->call.name, script->call.s, script->call.b / slices,
                                         script->call.b % slices)
                                : format("%s(%d, %d)", script->call.name, script->call.s, script->call.b);
}

const char *describe(lua_State *L, int index) {
    char buf[32];
    size_t n;
    switch (lua_type(L, index)) {
    case LUA_TNIL:
    case LUA_TNONE: return "nil";
    case LUA_TBOOLEAN: return lua_toboolean(L, index) ? "true" : "false";
    case LUA_TNUMBER:
        if (lua_isinteger(L, index))
            return format("%lld", (long long)lua_tointeger(L, index));
        double x = lua_tonumber(L, index);
        return x != x ? "nan" : copy_string(number(x, buf));
    case LUA_TSTRING: {
        const char *s = lua_tolstring(L, index, &n);
        return n > 40 ? format("\"%.40s...\"", s) : format("\"%s\"", s);
    }
    case LUA_TUSERDATA: /* part of a model */
        luaL_getmetafield(L, index, "__name");
        const char *name = copy_string(lua_tostring(L, -1));
        lua_pop(L, 1);
        return format("%s { ... }", name);
    default: return format("a %s", luaL_typename(L, index));
    }
}

const char *hint(const char *name, const char *const *names, int n) {
    const char *near = nearest(name, names, n);
    return near ? format("; did you mean '%s'?", near) : "";
}

/* Returns Lua's message without its place, `file:12: `, and sets *line. Lua shortens long file names in it. */
static const char *strip_place(const struct script *script, const char *message, int *line) {
    const char *file = script->file;
    size_t n = strlen(file);
    const char *p = message;
    if (!strncmp(p, "prelude:", 8)) /* not in the script: keeps the line of the call */
        return strstr(p, ": ") ? strstr(p, ": ") + 2 : message;
    if (!strncmp(p, "...", 3)) {
        const char *end = strchr(p + 3, ':');
        size_t tail = end ? (size_t)(end - p - 3) : n + 1;
        if (tail > n || strncmp(file + n - tail, p + 3, tail))
            return message;
        p = end;
    } else if (!strncmp(p, file, n)) {
        p += n;
    } else {
        return message;
    }
    if (p[0] != ':' || !isdigit((unsigned char)p[1]))
        return message;
    int at = atoi(p + 1);
    p += 1 + strspn(p + 1, "0123456789");
    if (strncmp(p, ": ", 2))
        return message;
    *line = at;
    return p + 2;
}

/* Returns the column of the text that Lua's message quotes: near 'word', (field 'x'). 0: it quotes nothing in that
 * line. */
static int quoted_column(const struct script *script, int line, const char *message) {
    char word[64];
    const char *near = strstr(message, "near '"), *start = near ? near + 6 : strchr(message, '\'');
    if (start && !near)
        start++;
    size_t n = start ? strcspn(start, "'") : 0;
    if (n == 0 || n >= sizeof word)
        return 0;
    memcpy(word, start, n);
    word[n] = 0;
    const char *begin = start_of_line(script->src, line), *end = begin ? begin + strcspn(begin, "\n") : NULL;
    for (const char *p = begin; p && p + n <= end; p++)
        if (!memcmp(p, word, n) && (p == begin || !is_name(p[-1]) || !is_name(*word)) &&
            (!is_name(p[n]) || !is_name(word[n - 1])))
            return (int)(p - begin) + 1;
    return 0;
}

/* Returns whether Lua code, or a wrong argument, raised the error that the message handler got. */
static bool is_fault(lua_State *L) {
    lua_Debug ar;
    if (lua_type(L, 1) != LUA_TSTRING || !lua_getstack(L, 1, &ar) || !lua_getinfo(L, "S", &ar))
        return false;
    return *ar.what != 'C' || strstr(lua_tostring(L, 1), "bad argument #");
}

int on_error(lua_State *L) {
    struct script *script = script_of(L);
    if (script->failure.message)
        return 1;
    script->failure.broken |= is_fault(L);
    int line = script_line(L);
    const char *message;
    if (lua_type(L, 1) == LUA_TSTRING) {
        message = lua_tostring(L, 1);
        for (const char *rest;
             (rest = strip_place(script, message, &line)) != message;) /* one for each coroutine the error passed */
            message = rest;
    } else if (luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL) {
        push_plain_string(L, 1);
        message = lua_tostring(L, -1);
    } else {
        message = format("the script raised %s as an error; give error() a string", describe(L, 1));
    }
    int col = line > 0 ? quoted_column(script, line, message) : 0;
    struct text text = {0};
    if (line == 0)
        put(&text, "%s: ", script->file);
    put(&text, "%.900s", message);
    if (!strcmp(message, "stack overflow") || !strcmp(message, "C stack overflow"))
        put(&text, ": a function calls itself without end");
    if (script->call.name)
        put(&text, ", in %s", call_name(script));
    record_error(script, line, col, text.s);
    return 1;
}
