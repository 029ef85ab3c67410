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
/* Puts the UTF-8 character at s or, for an invalid byte, the replacement character: a file name may hold any bytes, but
 * JSON and XML hold characters. Returns the number of bytes consumed. */
size_t put_utf8(struct text *t, const char *s);
/* A word as a shell reads it: in quotes where it must. */
void put_shell(struct text *t, const char *word);
/* The user's text, safe inside a comment or a string: characters that could end either become _. */
const char *tame(const char *s);

/* The shortest decimal form of x that reads back as x; integers have no point. buf holds 32 bytes. */
const char *number(double x, char *buf);
int decimal_digits(int64_t n); /* and the sign, if it has one */

/* The name in names with the smallest edit distance to word, or NULL if none is near: for "did you mean". */
const char *nearest(const char *word, const char *const *names, int n);
#endif
