/* The ground floor: memory, strings, errors. Only base.c allocates. */
#ifndef PIANOLA_BASE_H
#define PIANOLA_BASE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* base.c: one arena per compile, emptied once. Memory is zeroed. */
void *alloc(size_t bytes);
#define NEW(type, n) ((type *)alloc(sizeof(type) * (size_t)(n)))
char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *copy_string(const char *s);
void free_all(void);
/* All that is taken between the two is given back at the end; an array from before must not grow meanwhile. They nest,
 * and one that does not come to its end lasts until free_all. */
struct scratch {
    struct chunk *open; /* as it began, and what was used of it */
    size_t used, depth;
};
struct scratch scratch_begin(void);
void scratch_end(struct scratch s);
size_t allocated(void); /* bytes handed out since the last free_all */

/* A growing array in the arena: keeps what it holds; what is new may hold anything. */
void *grow_bytes(void *p, size_t *cap, size_t need, size_t size);
#define GROW(p, cap, need) ((p) = (need) > (cap) ? grow_bytes((p), &(cap), (need), sizeof *(p)) : (p))

/* A whole file as a NUL-terminated string; "-" is stdin. Of a text a byte order mark is left out, and a line's \r\n is
 * \n. Dies naming the file. */
char *read_file(const char *path, size_t *size);
const char *file_text(const char *path); /* the same of a file that must be text: without a byte that is zero */

/* Text that grows. */
struct text {
    char *s;
    size_t n, cap;
};
void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void put_bytes(struct text *t, const char *s, size_t n);
/* The UTF-8 character at s; for a byte that begins none, the replacement character: a file may have any name, JSON and
 * XML have characters. Returns the bytes taken. */
size_t put_utf8(struct text *t, const char *s);

void put_int(struct text *t, int64_t v);
/* Text of the user's as it may stand in a comment or a string: what could end either becomes _. */
const char *tame(const char *s);

/* The shortest decimal form of x that reads back as x; integers without a point. buf holds 32. */
const char *number(double x, char *buf);

int by_value(const void *x, const void *y); /* of doubles, for qsort */

/* The name among names nearest to word by edit distance, or NULL when none is near: for "did you mean". */
const char *nearest(const char *word, const char *const *names, int n);

/* diag.c: errors of the user. All end with exit code 2 unless a trap is set. Errors of ours are asserts. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* `file:line: error: message`, the source line, and a caret where col > 0. src is the file's text, or NULL. */
_Noreturn void die_at(const char *file, const char *src, int line, int col, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* While set, die() stores its text in diag_text and longjmps here instead of printing and exiting. */
extern jmp_buf *diag_trap;
extern char diag_text[4096];
#endif
