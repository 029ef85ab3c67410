#include "read_json.h"
#include <stdlib.h>
#include <math.h>
#include <string.h>

void json_die(const struct json_in *j, const char *fmt, ...) {
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    die("%s: byte %td: %s", j->file, j->at - j->from, what);
}

char json_peek(struct json_in *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
    return j->at < j->end ? *j->at : 0;
}

static void expect_character(struct json_in *j, char c) {
    if (json_peek(j) != c || j->at == j->end)
        json_die(j, "expected %c", c);
    j->at++;
}

void json_open(struct json_in *j, char begin) {
    expect_character(j, begin);
    j->first = true;
}

bool json_more(struct json_in *j, char end) {
    bool first = j->first;
    j->first = false;
    if (json_peek(j) == end) {
        j->at++;
        return false;
    }
    if (!first)
        expect_character(j, ',');
    return true;
}

/* ---- strings ---- */

static uint32_t four_digits(struct json_in *j) {
    uint32_t x = 0;
    for (int i = 0; i < 4; i++, j->at++) {
        int c = j->at < j->end ? *j->at : 0;
        if (c >= '0' && c <= '9')
            c -= '0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            c = (c | 32) - 'a' + 10;
        else
            json_die(j, "\\u takes four hexadecimal digits");
        x = x << 4 | (uint32_t)c;
    }
    return x;
}

/* Reads a \u escape. A character beyond 16 bits takes two, a high surrogate and a low one. */
static uint32_t escaped_character(struct json_in *j) {
    uint32_t x = four_digits(j), low;
    if (x < 0xd800 || x > 0xdfff)
        return x;
    if (x > 0xdbff || j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u')
        json_die(j, "half of a surrogate pair, which is not a character");
    j->at += 2;
    low = four_digits(j);
    if (low < 0xdc00 || low > 0xdfff)
        json_die(j, "half of a surrogate pair, which is not a character");
    return 0x10000 + ((x - 0xd800) << 10) + (low - 0xdc00);
}

/* Writes a character in UTF-8. It is never longer than its escape, so it fits in its place. */
static char *write_utf8(char *to, uint32_t x) {
    int more = x < 0x80 ? 0 : x < 0x800 ? 1 : x < 0x10000 ? 2 : 3;
    *to++ = (char)(more ? (0xf00 >> (more + 1) & 0xff) | x >> 6 * more : x);
    for (more--; more >= 0; more--)
        *to++ = (char)(0x80 | (x >> 6 * more & 0x3f));
    return to;
}

const char *json_text(struct json_in *j, size_t *n) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    expect_character(j, '"');
    char *s = j->at, *to = s;
    while (j->at < j->end && *j->at != '"') {
        if ((unsigned char)*j->at < ' ')
            json_die(j, "a control character in a string");
        if (*j->at != '\\') {
            *to++ = *j->at++;
            continue;
        }
        j->at++;
        const char *letter = j->at < j->end && *j->at ? strchr(letters, *j->at) : NULL;
        if (letter) {
            *to++ = meant[letter - letters];
            j->at++;
        } else if (j->at < j->end && *j->at == 'u') {
            j->at++;
            to = write_utf8(to, escaped_character(j));
        } else
            json_die(j, "\\ followed by a letter that is not allowed");
    }
    if (j->at == j->end)
        json_die(j, "a string does not end");
    j->at++;
    *to = 0;
    *n = (size_t)(to - s);
    return s;
}

static const char *without_zero(struct json_in *j) {
    size_t n;
    const char *s = json_text(j, &n);
    if (strlen(s) != n)
        json_die(j, "a zero byte in a name");
    return s;
}

const char *json_name(struct json_in *j) {
    const char *name = without_zero(j);
    expect_character(j, ':');
    return name;
}

const char *json_any_name(struct json_in *j, size_t *n) {
    const char *name = json_text(j, n);
    expect_character(j, ':');
    return name;
}

/* ---- other values ---- */

static bool literal(struct json_in *j, const char *word) {
    size_t n = strlen(word);
    if (json_peek(j) != *word || (size_t)(j->end - j->at) < n || memcmp(j->at, word, n) != 0)
        return false;
    j->at += n;
    return true;
}

const char *json_string_or_null(struct json_in *j) { return literal(j, "null") ? NULL : without_zero(j); }

bool json_true(struct json_in *j) {
    if (literal(j, "true"))
        return true;
    if (!literal(j, "false") && !literal(j, "null"))
        json_die(j, "expected true or false");
    return false;
}

int64_t json_number(struct json_in *j) {
    json_peek(j);
    const char *from = j->at;
    int64_t x = 0;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        if ((x = 10 * x + (*j->at - '0')) > (int64_t)1 << 53)
            json_die(j, "a number beyond 2^53");
    if (j->at == from)
        json_die(j, "expected a whole number");
    return x;
}

double json_real(struct json_in *j) {
    char text[64];
    json_peek(j);
    size_t n = 0;
    while (n < sizeof text - 1 && j->at + n < j->end && j->at[n] && strchr("+-.0123456789eE", j->at[n]))
        n++;
    memcpy(text, j->at, n);
    text[n] = 0;
    char *end;
    double x = strtod(text, &end);
    if (n == 0 || *end || !isfinite(x))
        json_die(j, "expected a number");
    j->at += n;
    return x;
}

static void skip_json(struct json_in *j, int depth) {
    size_t n;
    char c = json_peek(j);
    if (depth > 100)
        json_die(j, "more than 100 nested lists");
    if (c == '{' || c == '[') {
        char end = c == '{' ? '}' : ']';
        for (json_open(j, c); json_more(j, end);) {
            if (c == '{')
                json_any_name(j, &n);
            skip_json(j, depth + 1);
        }
    } else if (c == '"')
        json_text(j, &n);
    else if (!literal(j, "true") && !literal(j, "false") && !literal(j, "null")) {
        n = j->at < j->end ? strspn(j->at, "+-.0123456789eE") : 0;
        if (n == 0 || n > (size_t)(j->end - j->at))
            json_die(j, "expected a value");
        j->at += n;
    }
}

void json_skip(struct json_in *j) { skip_json(j, 0); }

void json_close(struct json_in *j) {
    json_peek(j);
    if (j->at != j->end)
        json_die(j, "more after the end");
}
