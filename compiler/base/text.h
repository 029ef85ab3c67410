/* Text that grows in the arena, and the formatting of numbers and names in it. */
#ifndef PIANOLA_TEXT_H
#define PIANOLA_TEXT_H
#include "base.h"

struct text {
    char *s;
    size_t n, cap;
};
void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void put_bytes(struct text *t, const char *s, size_t n);
void put_word(struct text *t, const char *s); /* the whole string; cheaper than put() with "%s" */
void put_int(struct text *t, int64_t v);
/* Writes the UTF-8 character at s or, for an invalid byte, the replacement character: a file name may contain any
 * bytes, but JSON and XML only characters. Returns the number of bytes consumed. */
size_t put_utf8(struct text *t, const char *s);
/* Writes a word for a shell, quoted if necessary. */
void put_shell(struct text *t, const char *word);
/* Returns the user's text, safe inside a comment or a string: characters that could end either become _. */
const char *tame(const char *s);

/* Returns the shortest decimal form of x that reads back as x; integers have no point. buf holds 32 bytes. */
const char *number(double x, char *buf);
/* Returns a count with its noun, which is given in the singular: "1 rank", "3 ranks", "8 microbatches". */
const char *counted(int64_t n, const char *what);
/* Returns a sum of times without its rounding error: an integer, or at most 12 significant digits. */
const char *sum_text(double x, char *buf);
int decimal_digits(int64_t n); /* length in decimal, with the sign of a negative number */

/* Returns the name in names with the smallest edit distance to word, or NULL if none is near, for "did you mean". */
const char *nearest(const char *word, const char *const *names, int n);
#endif
