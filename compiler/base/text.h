/* Text that grows in the arena, and how numbers and names are written in it. */
#ifndef PIANOLA_TEXT_H
#define PIANOLA_TEXT_H
#include "base.h"

struct text {
    char *s;
    size_t n, cap;
};
void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void put_bytes(struct text *t, const char *s, size_t n);
void put_word(struct text *t, const char *s); /* all of s: cheaper than put() with "%s" */
void put_int(struct text *t, int64_t v);
/* The UTF-8 character at s; for a byte that begins none, the replacement character: a file may have any name, JSON and
 * XML have characters. Returns the bytes taken. */
size_t put_utf8(struct text *t, const char *s);
/* Text of the user's as it may stand in a comment or a string: what could end either becomes _. */
const char *tame(const char *s);

/* The shortest decimal form of x that reads back as x; integers without a point. buf holds 32. */
const char *number(double x, char *buf);

/* The name among names nearest to word by edit distance, or NULL when none is near: for "did you mean". */
const char *nearest(const char *word, const char *const *names, int n);
#endif
