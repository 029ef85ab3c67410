#include "base.h"
#include <stdlib.h>
#include <string.h>

/* An arena of chunks, filled one after the other and freed all at once. A large request gets its own chunk, so that
 * realloc can grow an array by remapping pages, without leaving old copies behind. A scratch reuses its large chunks,
 * since clearing their pages takes a fraction of the time that the kernel needs for new ones. */
struct chunk {
    struct chunk *prev, *next;
    size_t used, size; /* size: bytes after the header */
    size_t depth;      /* number of open scratches when it was allocated */
};
enum { CHUNK = 1 << 20, LARGE = 1 << 15, ALIGN = 16 };
#ifdef __SANITIZE_ADDRESS__ /* detects uses of freed memory, as long as nothing reuses it */
#define REUSED SIZE_MAX
#else
#define REUSED ((size_t)1 << 20)
#endif
static struct chunk *chunks; /* the first one is open: requests fill it */
static struct chunk *spare;  /* chunks of at least REUSED bytes for reuse, linked by next */
static size_t total, depth;
#define HEAD ((sizeof(struct chunk) + ALIGN - 1) & ~(size_t)(ALIGN - 1))

static struct chunk *new_chunk(size_t size) {
    struct chunk *chunk = calloc(1, HEAD + size); /* large chunks are fresh pages, zero without being touched */
    if (!chunk)
        die("out of memory: %zu bytes more were needed after %zu", size, total);
    chunk->size = size;
    chunk->depth = depth;
    return chunk;
}

static void push_chunk(void) {
    struct chunk *chunk = new_chunk(CHUNK);
    if ((chunk->next = chunks))
        chunks->prev = chunk;
    chunks = chunk;
}

/* Returns the smallest spare chunk that is large enough, cleared; NULL if there is none. */
static struct chunk *spare_chunk(size_t need) {
    struct chunk **best = NULL;
    for (struct chunk **chunk = &spare; need >= REUSED && *chunk; chunk = &(*chunk)->next)
        if ((*chunk)->size >= need && (!best || (*chunk)->size < (*best)->size))
            best = chunk;
    if (!best)
        return NULL;
    struct chunk *chunk = *best;
    *best = chunk->next;
    chunk->depth = depth;
    memset((char *)chunk + HEAD, 0, need);
    return chunk;
}

void *alloc(size_t bytes) {
    size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    total += need;
    if (need > LARGE) { /* a chunk of its own, second in the list: the open chunk stays open */
        if (!chunks)
            push_chunk();
        struct chunk *chunk = spare_chunk(need);
        chunk = chunk ? chunk : new_chunk(need);
        chunk->used = need;
        chunk->prev = chunks;
        if ((chunk->next = chunks->next))
            chunk->next->prev = chunk;
        chunks->next = chunk;
        return (char *)chunk + HEAD;
    }
    if (!chunks || chunks->size - chunks->used < need)
        push_chunk();
    void *p = (char *)chunks + HEAD + chunks->used;
    chunks->used += need;
    return p;
}

static void free_list(struct chunk **list) {
    while (*list) {
        struct chunk *next = (*list)->next;
        free(*list);
        *list = next;
    }
}

void free_all(void) {
    free_list(&chunks);
    free_list(&spare);
    total = depth = 0;
}

struct scratch scratch_begin(void) {
    if (!chunks)
        push_chunk();
    return (struct scratch){chunks, chunks->used, ++depth};
}

static void free_chunk(struct chunk *chunk) {
    *(chunk->prev ? &chunk->prev->next : &chunks) = chunk->next;
    if (chunk->next)
        chunk->next->prev = chunk->prev;
    if (chunk->size < REUSED) {
        free(chunk);
        return;
    }
    chunk->prev = NULL;
    chunk->next = spare;
    spare = chunk;
}

/* Frees the scratch's chunks: in the list they precede the chunk that was open at its beginning or, if large, come
 * right after it. */
void scratch_end(struct scratch scratch) {
    for (struct chunk *chunk = chunks, *next; chunk && (chunk == scratch.open || chunk->depth >= scratch.depth);
         chunk = next) {
        next = chunk->next;
        if (chunk != scratch.open)
            free_chunk(chunk);
    }
    memset((char *)scratch.open + HEAD + scratch.used, 0, scratch.open->used - scratch.used);
    scratch.open->used = scratch.used;
    depth = scratch.depth - 1;
}

const char *scratch_end_keeping(struct scratch scratch, const char *s) {
    char *kept = strdup(s);
    if (!kept)
        die("out of memory: %zu bytes more were needed after %zu", strlen(s), total);
    scratch_end(scratch);
    s = copy_string(kept);
    free(kept);
    return s;
}

size_t allocated(void) { return total; }

char *copy_string(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(alloc(n), s, n);
}

char *format(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = alloc((size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

void *grow_bytes(void *p, size_t *cap, size_t need, size_t size) {
    size_t old = *cap, now = old ? old : 16;
    while (now < need)
        now *= 2;
    *cap = now;
    size_t was = (old * size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (was > LARGE) { /* p has a chunk of its own */
        struct chunk *chunk = (struct chunk *)((char *)p - HEAD), *prev = chunk->prev, *next = chunk->next;
        chunk = realloc(chunk, HEAD + now * size);
        if (!chunk)
            die("out of memory: %zu bytes more were needed after %zu", now * size, total);
        total += now * size - was;
        chunk->size = chunk->used = now * size;
        prev->next = chunk;
        if (next)
            next->prev = chunk;
        return (char *)chunk + HEAD;
    }
    void *q = alloc(now * size);
    if (old)
        memcpy(q, p, old * size);
    return q;
}

/* Copies an element. With a constant size this takes an instruction or two instead of a call. */
static void copy_element(char *to, const char *from, size_t size) {
    switch (size) {
    case 4: memcpy(to, from, 4); return;
    case 8: memcpy(to, from, 8); return;
    case 16: memcpy(to, from, 16); return;
    default: memcpy(to, from, size);
    }
}

/* Sorts by merging runs of n elements, then of 2 n, and so on, between two arrays. Two runs that are in order already,
 * the usual case, are only copied. */
void sort(void *a, size_t n, size_t size, int (*compare)(const void *x, const void *y)) {
    struct scratch scratch = scratch_begin();
    char *from = a, *to = alloc(n * size + 1);
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * run) {
            size_t left = begin, middle = begin + run < n ? begin + run : n, right = middle, i = begin;
            size_t end = begin + 2 * run < n ? begin + 2 * run : n;
            bool done = middle == end || compare(from + middle * size, from + (middle - 1) * size) >= 0;
            for (; !done && left < middle && right < end; i++) {
                bool second = compare(from + right * size, from + left * size) < 0;
                copy_element(to + i * size, from + (second ? right++ : left++) * size, size);
            }
            memcpy(to + i * size, from + left * size, (middle - left) * size);
            memcpy(to + (i + middle - left) * size, from + right * size, (end - right) * size);
        }
        char *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != a)
        memcpy(a, from, n * size);
    scratch_end(scratch);
}

int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

int64_t common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}
