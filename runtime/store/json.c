#include "json.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool json_fail(struct json *j, const char *fmt, ...) {
    if (j->bad)
        return false;
    j->bad = true;
    int n = snprintf(j->why, j->nwhy, "%s: byte %td of %s: ", j->file, j->at - j->from, j->in);
    if (n < 0 || (size_t)n >= j->nwhy)
        return false;
    va_list args;
    va_start(args, fmt);
    vsnprintf(j->why + n, j->nwhy - (size_t)n, fmt, args);
    va_end(args);
    return false;
}

static void skip(struct json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
}

bool json_next(struct json *j, char c) {
    if (j->bad)
        return false;
    skip(j);
    if (j->at == j->end || *j->at != c)
        return false;
    j->at++;
    return true;
}

bool json_take(struct json *j, char c) { return json_next(j, c) || json_fail(j, "expected %c", c); }

char *json_string(struct json *j) {
    if (!json_next(j, '"')) {
        json_fail(j, "expected a string");
        return NULL;
    }
    char *s = j->at;
    while (j->at < j->end && *j->at >= ' ' && *j->at <= '~' && *j->at != '"' && *j->at != '\\')
        j->at++;
    if (j->at == j->end || *j->at != '"') {
        json_fail(j,
                  j->at == j->end ? "a string does not end" : "a string with other than plain ASCII, or with escapes");
        return NULL;
    }
    *j->at++ = 0;
    return s;
}

bool json_whole(struct json *j, int64_t *out) {
    if (j->bad)
        return false;
    skip(j);
    const char *from = j->at;
    int64_t n = 0;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *j->at - '0', &n))
            return json_fail(j, "a number beyond 9223372036854775807");
    if (j->at == from || (*from == '0' && j->at - from > 1))
        return json_fail(j, "expected a whole number");
    *out = n;
    return true;
}

bool json_key(struct json *j, const char *key) {
    const char *s = json_string(j);
    if (s && strcmp(s, key) != 0)
        return json_fail(j, "expected \"%s\"", key);
    return s && json_take(j, ':');
}

bool json_end(struct json *j) {
    if (j->bad)
        return false;
    skip(j);
    return j->at == j->end || json_fail(j, "more after the end");
}
