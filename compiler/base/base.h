/* Memory and errors, for all other files. Only base.c allocates. */
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
/* Memory allocated between scratch_begin and scratch_end is freed at the end; an older array must not grow meanwhile.
 * Scratches nest, and one that is never ended lasts until free_all. */
struct scratch {
    struct chunk *open; /* the chunk that was open at the beginning, and its used bytes */
    size_t used, depth;
};
struct scratch scratch_begin(void);
void scratch_end(struct scratch scratch);
const char *scratch_end_keeping(struct scratch scratch, const char *s); /* ends it; returns a copy of its string s */
size_t allocated(void);                                                 /* bytes allocated since the last free_all */

/* Grows an array in the arena. Keeps its contents; new elements are uninitialised. */
void *grow_bytes(void *p, size_t *cap, size_t need, size_t size);
#define GROW(p, cap, need) ((p) = (need) > (cap) ? grow_bytes((p), &(cap), (need), sizeof *(p)) : (p))

/* Sorts like qsort, but stably, so that the result does not depend on the C library's treatment of equal elements. */
void sort(void *a, size_t n, size_t size, int (*compare)(const void *x, const void *y));
int by_value(const void *x, const void *y);    /* compares doubles, for sort */
int64_t common_multiple(int64_t a, int64_t b); /* least common multiple of two positive numbers */

/* diag.c: user errors. They end the program with exit code 2, except inside try(). Internal errors are asserts. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Reports `file:line: error: message`, the source line and, if col > 0, a caret. src is the file's text, or NULL. */
_Noreturn void die_at(const char *file, const char *src, int line, int col, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Calls call(context). Returns true if it returns. If it dies, only that call ends: try returns false, and diag_text
 * holds the error's text until the next error. Tries nest: an error belongs to the innermost. */
bool try(void (*call)(void *context), void *context);
extern char diag_text[4096];
_Noreturn void die_again(void); /* repeats the error in diag_text as the caller's own */
const char *diag_line(void);    /* the first line of diag_text, without "pianola: error: " */
extern bool diag_ended;         /* whether an error has been printed and the program is ending */
extern bool diag_json;          /* whether an error that ends the program is also printed to stdout as JSON */
extern jmp_buf *diag_trap;      /* jumped to on an error: the innermost try, or NULL */
#endif
