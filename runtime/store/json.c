#include "json.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool json_fail(struct json *json, const char *fmt, ...) {
    if (json->bad)
        return false;
    json->bad = true;
    int n = snprintf(json->why, json->nwhy, "%s: byte %td of %s: ", json->file, json->at - json->from, json->in);
    if (n < 0 || (size_t)n >= json->nwhy)
        return false;
    va_list args;
    va_start(args, fmt);
    vsnprintf(json->why + n, json->nwhy - (size_t)n, fmt, args);
    va_end(args);
    return false;
}

static void skip(struct json *json) {
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
}

bool json_next(struct json *json, char c) {
    if (json->bad)
        return false;
    skip(json);
    if (json->at == json->end || *json->at != c)
        return false;
    json->at++;
    return true;
}

bool json_take(struct json *json, char c) { return json_next(json, c) || json_fail(json, "expected %c", c); }

char *json_string(struct json *json) {
    if (!json_next(json, '"')) {
        json_fail(json, "expected a string");
        return NULL;
    }
    char *s = json->at;
    while (json->at < json->end && *json->at >= ' ' && *json->at <= '~' && *json->at != '"' && *json->at != '\\')
        json->at++;
    if (json->at == json->end || *json->at != '"') {
        json_fail(json, json->at == json->end ? "a string does not end"
                                              : "a string with escapes or other characters than plain ASCII");
        return NULL;
    }
    *json->at++ = 0;
    return s;
}

bool json_whole(struct json *json, int64_t *out) {
    if (json->bad)
        return false;
    skip(json);
    const char *from = json->at;
    int64_t n = 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *json->at - '0', &n))
            return json_fail(json, "a number beyond 9223372036854775807");
    if (json->at == from || (*from == '0' && json->at - from > 1))
        return json_fail(json, "expected a whole number");
    *out = n;
    return true;
}

bool json_key(struct json *json, const char *key) {
    const char *s = json_string(json);
    if (s && strcmp(s, key) != 0)
        return json_fail(json, "expected \"%s\"", key);
    return s && json_take(json, ':');
}

static bool pass_string(struct json *json) {
    for (json->at++; json->at < json->end && *json->at != '"'; json->at++)
        json->at += *json->at == '\\';
    if (json->at >= json->end)
        return json_fail(json, "a string does not end");
    json->at++;
    return true;
}

/* Skips a value. Brackets are counted, not matched, because nothing between them is used. */
bool json_pass(struct json *json) {
    int64_t depth = 0;
    do {
        skip(json);
        const char *from = json->at;
        char c = json->at < json->end ? *json->at : 0;
        if (c == '"')
            pass_string(json);
        else if (c == '{' || c == '[' || (depth > 0 && strchr("}],:", c) && c)) {
            depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
            json->at++;
        } else
            while (json->at < json->end && *json->at && !strchr(" \n\r\t,:{}[]\"", *json->at))
                json->at++;
        if (json->at == from)
            json_fail(json, "expected a value");
    } while (!json->bad && depth > 0);
    return !json->bad;
}

bool json_end(struct json *json) {
    if (json->bad)
        return false;
    skip(json);
    return json->at == json->end || json_fail(json, "more after the end");
}
