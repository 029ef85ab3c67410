#include "text.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void put_bytes(struct text *t, const char *s, size_t n) {
    GROW(t->s, t->cap, t->n + n + 1);
    if (n > 0)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

/* Writes x with two decimals, rounded like printf's "%.2f": exactly, ties to even. Returns false if x is too large. */
static bool put_hundredths(struct text *t, double x) {
    double whole = floor(fabs(x)), part = fabs(x) - whole; /* both exact */
    if (!(whole < 1e15))
        return false;
    int shift = part < 0x1p-4 ? 60 : 56; /* keeps all bits of part from 2^-8 on; less than that is 0.00 */
    uint64_t scaled = (uint64_t)(part * (double)(UINT64_C(1) << shift)) * 100, n = scaled >> shift;
    uint64_t rest = scaled & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    n += rest > half || (rest == half && n % 2 == 1);
    if (signbit(x))
        put_bytes(t, "-", 1);
    put_int(t, (int64_t)whole + (int64_t)(n / 100));
    put_bytes(t, (const char[]){'.', (char)('0' + n / 10 % 10), (char)('0' + n % 10)}, 3);
    return true;
}

/* Handles the directives that pictures and streams use. At any other directive, returns false with part of the text
 * written. */
static bool put_plain(struct text *t, const char *fmt, va_list ap) {
    for (;;) {
        size_t n = strcspn(fmt, "%");
        put_bytes(t, fmt, n);
        fmt += n;
        if (!*fmt)
            return true;
        if (fmt[1] == 's')
            put_word(t, va_arg(ap, const char *));
        else if (fmt[1] == 'd')
            put_int(t, va_arg(ap, int));
        else if (fmt[1] == '%')
            put_bytes(t, "%", 1);
        else if (!strncmp(fmt, "%.2f", 4) && put_hundredths(t, va_arg(ap, double)))
            fmt += 2;
        else if (!strncmp(fmt, "%06x", 4)) {
            unsigned x = va_arg(ap, unsigned);
            if (x >> 24)
                return false;
            for (int shift = 20; shift >= 0; shift -= 4)
                put_bytes(t, &"0123456789abcdef"[x >> shift & 15], 1);
            fmt += 2;
        } else
            return false;
        fmt += 2;
    }
}

void put(struct text *t, const char *fmt, ...) {
    size_t before = t->n;
    va_list ap;
    va_start(ap, fmt);
    bool done = put_plain(t, fmt, ap);
    va_end(ap);
    if (done)
        return;
    t->n = before;
    char small[256];
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if ((size_t)n < sizeof small) {
        put_bytes(t, small, (size_t)n);
        return;
    }
    GROW(t->s, t->cap, t->n + (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(t->s + t->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->n += (size_t)n;
}

void put_word(struct text *t, const char *s) { put_bytes(t, s, strlen(s)); }

void put_shell(struct text *t, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=,./:%@";
    bool quote = !*word || word[strspn(word, plain)];
    put_word(t, quote ? "'" : "");
    for (; *word; word++)
        *word == '\'' ? put_word(t, "'\\''") : put_bytes(t, word, 1);
    put_word(t, quote ? "'" : "");
}

/* Writes v's digits so that they end at `end`; returns their first. */
static char *write_int(char *end, int64_t v) {
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do
        *--end = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        *--end = '-';
    return end;
}

void put_int(struct text *t, int64_t v) {
    char digits[24], *end = digits + sizeof digits, *s = write_int(end, v);
    put_bytes(t, s, (size_t)(end - s));
}

size_t put_utf8(struct text *t, const char *s) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)s;
    size_t n = *c < 0x80 ? 1 : *c < 0xc0 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : *c < 0xf8 ? 4 : 0, i = 1;
    uint32_t x = *c & (n > 1 ? 0x7fu >> n : 0x7fu);
    for (; i < n && (c[i] & 0xc0) == 0x80; i++)
        x = x << 6 | (c[i] & 0x3f);
    if (n == 0 || i < n || x < least[n] || x > 0x10ffff || (x >= 0xd800 && x < 0xe000) || (x & 0xfffe) == 0xfffe) {
        put_bytes(t, "\xef\xbf\xbd", 3);
        return 1;
    }
    put_bytes(t, s, n);
    return n;
}

const char *tame(const char *s) {
    char *t = copy_string(s);
    for (char *c = t; *c; c++)
        if (*c < ' ' || *c > '~' || strchr("\"\\*?", *c))
            *c = '_';
    return t;
}

int decimal_digits(int64_t n) {
    int d = n < 0 ? 2 : 1;
    while (n /= 10)
        d++;
    return d;
}

const char *number(double x, char *buf) {
    if (x == floor(x) && fabs(x) < 9007199254740992.0) {
        char *end = buf + 31, *digits = write_int(end, (int64_t)x);
        *end = 0;
        return memmove(buf, digits, (size_t)(end - digits) + 1);
    }
    snprintf(buf, 32, "%.15g", x); /* if 15 digits do not suffice, fewer do not either */
    for (int digits = strtod(buf, NULL) == x ? 6 : 16; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, x);
        if (strtod(buf, NULL) == x)
            break;
    }
    return buf;
}

const char *sum_text(double x, char *buf) {
    if (x == floor(x))
        return number(x, buf);
    snprintf(buf, 32, "%.12g", x);
    return number(strtod(buf, NULL), buf);
}

static int distance(const char *a, const char *b) {
    int la = (int)strlen(a), lb = (int)strlen(b), row[64];
    if (la >= 63 || lb >= 63)
        return INT_MAX; /* none of our names is that long */
    for (int j = 0; j <= lb; j++)
        row[j] = j;
    for (int i = 1; i <= la; i++) {
        int diag = row[0];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diag = up;
            row[j] = best;
        }
    }
    return row[lb];
}

const char *counted(int64_t n, const char *what) {
    return format("%lld %s%s%s", (long long)n, what, n != 1 && what[strlen(what) - 1] == 'h' ? "e" : "",
                  n == 1 ? "" : "s");
}

const char *nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    int least = (int)strlen(word) / 3 + 2; /* a third of the letters may be wrong */
    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}
