#include "put_json.h"
#include <math.h>
#include <string.h>

static void put_quoted(struct text *t, const char *s, size_t bytes) {
    const char *end = s + bytes;
    put_bytes(t, "\"", 1);
    for (size_t n = 1; s < end; s += n, n = 1)
        if (*s == '"' || *s == '\\')
            put(t, "\\%c", *s);
        else if (*s == '\n')
            put(t, "\\n");
        else if ((unsigned char)*s < ' ')
            put(t, "\\u%04x", (unsigned)*s);
        else
            n = put_utf8(t, s);
    put_bytes(t, "\"", 1);
}

void put_string(struct text *t, const char *s) { put_quoted(t, s, strlen(s)); }

const char *quoted_bytes(const char *s, size_t n) {
    struct text t = {0};
    put_quoted(&t, s, n);
    return t.s;
}

const char *quoted(const char *s) { return quoted_bytes(s, strlen(s)); }

const char *number_or_null(double x, char *buf) { return isfinite(x) ? number(x, buf) : "null"; }
