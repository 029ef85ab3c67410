/* Changes the defaults in a schedule's own text. A params table is found by its words, as Lua reads them, and the
 * default of each parameter in it is replaced. A parameter that is not found, or found twice, is refused. The caller
 * compiles the result and compares its makespan to make sure. */
#include "tune.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Returns the end of the long bracket that begins at p, "[[" or "[==["; NULL: none begins there. */
static const char *past_long(const char *p) {
    size_t level = strspn(p + 1, "=");
    if (*p != '[' || p[1 + level] != '[')
        return NULL;
    const char *end = strstr(p, format("]%.*s]", (int)level, p + 1));
    return end ? end + level + 2 : p + strlen(p);
}

static const char *past_string(const char *p) {
    char quote = *p++;
    for (; *p && *p != quote; p++)
        p += *p == '\\' && p[1];
    return *p ? p + 1 : p;
}

/* Returns the next word or sign at or after p, skipping blanks and comments. */
static const char *token(const char *p) {
    for (;;) {
        p += strspn(p, " \t\r\n");
        if (strncmp(p, "--", 2) != 0)
            return p;
        const char *end = p[2] == '[' ? past_long(p + 2) : NULL;
        p = end ? end : p + strcspn(p, "\n");
    }
}

static bool is_letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *past_token(const char *p) {
    const char *end = past_long(p);
    if (end)
        return end;
    if (*p == '"' || *p == '\'')
        return past_string(p);
    if (!is_letter(*p))
        return p + (*p != 0);
    while (is_letter(*p))
        p++;
    return p;
}

static bool begins_with_word(const char *p, const char *word) {
    size_t n = strlen(word);
    return strncmp(p, word, n) == 0 && !is_letter(p[n]);
}

/* A default in a params table: [from, to) of the text */
struct place {
    const char *from, *to;
    int n; /* how many defaults have that name */
};

/* Looks through one table, which opens at p. Returns where it ends. */
static const char *search_table(const char *p, const char *key, struct place *place) {
    const char *name = NULL, *from = NULL, *last = p;
    int depth = 0;
    for (; *p; last = past_token(p), p = token(last)) {
        bool opens = strchr("{([", *p) && !past_long(p), closes = strchr("})]", *p) != NULL;
        if (from && depth == 1 && (closes || *p == ',' || *p == ';')) {
            *place = (struct place){from, last, place->n + 1};
            from = NULL;
        }
        if (!from && depth == 1 && *p == '=' && name && begins_with_word(name, key))
            from = token(p + 1);
        name = p;
        depth += opens - closes;
        if (depth == 0)
            return p + 1;
    }
    return p;
}

/* Returns the table in a call of the function at p, `params {` or `params({`; NULL: p is no such call. */
static const char *table_of_call(const char *p, const char *function) {
    if (!begins_with_word(p, function))
        return NULL;
    p = token(past_token(p));
    if (*p == '(')
        p = token(p + 1);
    return *p == '{' ? p : NULL;
}

static struct place find_default(const char *src, const char *key) {
    struct place place = {0};
    for (const char *p = token(src); *p;) {
        const char *table = table_of_call(p, "params");
        p = token(table ? search_table(table, key, &place) : past_token(p));
    }
    return place;
}

/* Returns a setting's value as Lua writes it, in the form of the old default. */
static const char *as_lua(const char *value, char was) {
    char *end;
    bool number = (strtod(value, &end), end > value && !*end);
    if (was == '{')
        return format("{ %s }", value);
    if (was != '"' && was != '\'' && (number || !strcmp(value, "true") || !strcmp(value, "false")))
        return value;
    struct text t = {0};
    put_word(&t, "\"");
    for (const char *p = value; *p; p++)
        put(&t, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    put_word(&t, "\"");
    return t.s;
}

const char *with_default(const char *src, const char *key, const char *value) {
    struct place place = find_default(src, key);
    if (place.n != 1)
        return NULL;
    return format("%.*s%s%s", (int)(place.from - src), src, as_lua(value, *place.from), place.to);
}

const char *with_field(const char *src, const char *field) {
    const char *at = NULL;
    for (const char *p = token(src); *p; p = token(past_token(p))) {
        const char *table = table_of_call(p, "schedule");
        at = table ? table : at;
    }
    return at ? format("%.*s\n  %s,%s", (int)(at + 1 - src), src, field, at + 1) : NULL;
}

/* Returns the source without its picture, which shows the shipped script with its original defaults. */
const char *without_picture(const char *src) {
    struct text t = {0};
    put_word(&t, "");
    for (const char *line = src, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (strncmp(line, "--|", 3) != 0 && strncmp(line, "-- pianola show ", 16) != 0)
            put_bytes(&t, line, (size_t)(next - line));
    }
    return t.s;
}
