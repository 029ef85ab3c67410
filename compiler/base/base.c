#include "base.h"
#include <stdlib.h>
#include <string.h>

/* Memory: chunks, handed out from the front and freed all at once. A large request gets a chunk of its own, so that
 * realloc can move a growing array by remapping pages, and no old copies are left behind. A scratch reuses its large
 * chunks: clearing their pages takes a fraction of the time that the kernel takes for new ones. */
struct chunk {
    struct chunk *prev, *next;
    size_t used, size; /* of what follows the header */
    size_t depth;      /* how many scratches were open when it was taken */
};
enum { CHUNK = 1 << 20, LARGE = 1 << 15, ALIGN = 16 };
_Static_assert(sizeof(struct chunk) % 8 == 0, "header");
#ifdef __SANITIZE_ADDRESS__ /* sees uses of what was given back, unless it is used again */
#define REUSED SIZE_MAX
#else
#define REUSED ((size_t)1 << 20)
#endif
static struct chunk *chunks; /* the first one is being filled */
static struct chunk *spare;  /* to be used again, of REUSED bytes at least; a list through next */
static size_t total, depth;
#define HEAD ((sizeof(struct chunk) + ALIGN - 1) & ~(size_t)(ALIGN - 1))

static struct chunk *new_chunk(size_t size) {
    struct chunk *c = calloc(1, HEAD + size); /* large ones are fresh pages: zero without being touched */
    if (!c)
        die("out of memory: %zu bytes more were needed after %zu", size, total);
    c->size = size;
    c->depth = depth;
    return c;
}

static void push_chunk(void) {
    struct chunk *c = new_chunk(CHUNK);
    if ((c->next = chunks))
        chunks->prev = c;
    chunks = c;
}

/* The smallest spare chunk that is large enough, cleared; NULL: there is none. */
static struct chunk *spare_chunk(size_t need) {
    struct chunk **best = NULL;
    for (struct chunk **c = &spare; need >= REUSED && *c; c = &(*c)->next)
        if ((*c)->size >= need && (!best || (*c)->size < (*best)->size))
            best = c;
    if (!best)
        return NULL;
    struct chunk *c = *best;
    *best = c->next;
    c->depth = depth;
    memset((char *)c + HEAD, 0, need);
    return c;
}

void *alloc(size_t bytes) {
    size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    total += need;
    if (need > LARGE) { /* its own, second in the list: the open chunk goes on being filled */
        if (!chunks)
            push_chunk();
        struct chunk *c = spare_chunk(need);
        c = c ? c : new_chunk(need);
        c->used = need;
        c->prev = chunks;
        if ((c->next = chunks->next))
            c->next->prev = c;
        chunks->next = c;
        return (char *)c + HEAD;
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

static void give_back(struct chunk *c) {
    *(c->prev ? &c->prev->next : &chunks) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->size < REUSED) {
        free(c);
        return;
    }
    c->prev = NULL;
    c->next = spare;
    spare = c;
}

/* Its chunks come before the one that was open as it began, and, large ones, right behind that. */
void scratch_end(struct scratch s) {
    for (struct chunk *c = chunks, *next; c && (c == s.open || c->depth >= s.depth); c = next) {
        next = c->next;
        if (c != s.open)
            give_back(c);
    }
    memset((char *)s.open + HEAD + s.used, 0, s.open->used - s.used);
    s.open->used = s.used;
    depth = s.depth - 1;
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
        now += now / 2;
    *cap = now;
    size_t was = (old * size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (was > LARGE) { /* p has a chunk of its own */
        struct chunk *c = (struct chunk *)((char *)p - HEAD), *prev = c->prev, *next = c->next;
        c = realloc(c, HEAD + now * size);
        if (!c)
            die("out of memory: %zu bytes more were needed after %zu", now * size, total);
        total += now * size - was;
        c->size = c->used = now * size;
        prev->next = c;
        if (next)
            next->prev = c;
        return (char *)c + HEAD;
    }
    void *q = alloc(now * size);
    if (old)
        memcpy(q, p, old * size);
    return q;
}

int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
