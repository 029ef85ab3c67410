#include "put_json.h"
#include <math.h>

void put_string(struct text *t, const char *s) {
    put_bytes(t, "\"", 1);
    for (size_t n = 1; *s; s += n, n = 1)
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

const char *quoted(const char *s) {
    struct text t = {0};
    put_string(&t, s);
    return t.s;
}

const char *number_or_null(double x, char *buf) { return isfinite(x) ? number(x, buf) : "null"; }
