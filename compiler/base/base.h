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

/* A growing array in the arena. It keeps its contents; new elements are uninitialised. */
void *grow_bytes(void *p, size_t *cap, size_t need, size_t size);
#define GROW(p, cap, need) ((p) = (need) > (cap) ? grow_bytes((p), &(cap), (need), sizeof *(p)) : (p))

/* A whole file as a NUL-terminated string; "-" is stdin. In text, drops a byte order mark and turns \r\n into \n. On
 * failure, dies with the file's name. */
char *read_file(const char *path, size_t *size);
const char *file_text(const char *path); /* the same for a file that must be text: it may contain no zero byte */

/* Text that grows. */
struct text {
    char *s;
    size_t n, cap;
};
void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void put_bytes(struct text *t, const char *s, size_t n);
/* Puts the UTF-8 character at s or, for an invalid byte, the replacement character: a file name may hold any bytes, but
 * JSON and XML hold characters. Returns the number of bytes consumed. */
size_t put_utf8(struct text *t, const char *s);

void put_int(struct text *t, int64_t v);
/* The user's text, safe inside a comment or a string: characters that could end either become _. */
const char *tame(const char *s);

/* The shortest decimal form of x that reads back as x; integers have no point. buf holds 32 bytes. */
const char *number(double x, char *buf);

int by_value(const void *x, const void *y); /* compares doubles, for qsort */

/* The name in names with the smallest edit distance to word, or NULL if none is near: for "did you mean". */
const char *nearest(const char *word, const char *const *names, int n);

/* diag.c: the user's errors. All end with exit code 2 unless a trap is set. Our own errors are asserts. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* `file:line: error: message`, the source line, and a caret where col > 0. src is the file's text, or NULL. */
_Noreturn void die_at(const char *file, const char *src, int line, int col, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* While set, die() stores its text in diag_text and longjmps here instead of printing and exiting. */
extern jmp_buf *diag_trap;
extern char diag_text[4096];
#endif
