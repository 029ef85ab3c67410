/* Gives every buffer of a rank an offset in one arena.
 *
 * Buffers that stay for the whole step come first: weights, gradients, optimizer state, workspace, each region on a
 * page of its own. The rest are placed in scheduled time (rank.event): an opening buffer takes the smallest hole that
 * fits (best fit), a closing one leaves a hole that merges with its neighbours. A hole remembers the buffers that used
 * its bytes last, its ghosts. A buffer that takes these bytes over must run after them; lanes.c keeps that order
 * (rank.over). n log n in buffers. */
#include "passes.h"
#include <math.h>
#include <string.h>

struct ghost { /* bytes [off, off + size) were last used by a buffer */
    int64_t off, size;
    int32_t buf;
    struct ghost *next;
};

struct block { /* in address order; the free ones are in a treap by (size, off) too */
    int64_t off, size;
    struct block *prev, *next, *left, *right;
    struct ghost *ghost, *last;
    uint32_t heap;
    bool is_free;
};

struct plan {
    const char *file; /* and the rank's number, for error messages */
    int r;
    struct rank *rank;
    struct block *tail, *root, *spare;
    struct ghost *ghosts; /* spare ones */
    struct block **of;    /* per buffer */
    int64_t align, base;  /* base: where the blocks begin */
    uint32_t random;
    int32_t *over; /* as in rank, but as buffers open; over_first, over_end: per buffer, its part of it */
    size_t over_cap, nover;
    int32_t *over_first, *over_end;
    bool *opens; /* per buffer: some event opens it */
};

static bool before(const struct block *a, const struct block *b) {
    return a->size != b->size ? a->size < b->size : a->off < b->off;
}

static struct block *merge(struct block *a, struct block *b) {
    if (!a || !b)
        return a ? a : b;
    if (a->heap < b->heap) {
        a->right = merge(a->right, b);
        return a;
    }
    b->left = merge(a, b->left);
    return b;
}

static void split(struct block *t, const struct block *key, struct block **lo, struct block **hi) {
    if (!t)
        *lo = *hi = NULL;
    else if (before(t, key)) {
        split(t->right, key, &t->right, hi);
        *lo = t;
    } else {
        split(t->left, key, lo, &t->left);
        *hi = t;
    }
}

static void insert_hole(struct plan *z, struct block *b) {
    struct block *lo, *hi;
    z->random = z->random * 1664525u + 1013904223u; /* Numerical Recipes; any spread will do */
    b->heap = z->random;
    b->left = b->right = NULL;
    split(z->root, b, &lo, &hi);
    z->root = merge(merge(lo, b), hi);
}

static void remove_hole(struct plan *z, struct block *b) {
    struct block **at = &z->root;
    while (*at != b)
        at = before(*at, b) ? &(*at)->right : &(*at)->left;
    *at = merge(b->left, b->right);
}

static struct block *best_fit(const struct plan *z, int64_t size) {
    struct block *best = NULL, *t = z->root;
    while (t)
        if (t->size >= size) {
            best = t;
            t = t->left;
        } else
            t = t->right;
    return best;
}

static struct block *new_block(struct plan *z, int64_t off, int64_t size) {
    struct block *b = z->spare;
    if (b)
        z->spare = b->next;
    else
        b = NEW(struct block, 1);
    *b = (struct block){.off = off, .size = size};
    return b;
}

static void link_after(struct plan *z, struct block *at, struct block *b) {
    b->prev = at;
    b->next = at ? at->next : NULL;
    if (b->next)
        b->next->prev = b;
    else
        z->tail = b;
    if (at)
        at->next = b;
}

static struct ghost *new_ghost(struct plan *z, int64_t off, int64_t size, int32_t buf) {
    struct ghost *g = z->ghosts;
    if (g)
        z->ghosts = g->next;
    else
        g = NEW(struct ghost, 1);
    *g = (struct ghost){off, size, buf, NULL};
    return g;
}

/* A buffer takes over the front of hole b: the ghosts up to `end` become its predecessors. */
static void take_over(struct plan *z, struct block *b, int64_t end) {
    while (b->ghost && b->ghost->off < end) {
        struct ghost *g = b->ghost;
        GROW(z->over, z->over_cap, z->nover + 1);
        z->over[z->nover++] = g->buf;
        if (g->off + g->size > end) { /* the rest stays */
            g->size -= end - g->off;
            g->off = end;
            return;
        }
        b->ghost = g->next;
        g->next = z->ghosts;
        z->ghosts = g;
    }
    if (!b->ghost)
        b->last = NULL;
}

/* Sums and differences of sizes that fit into it cannot overflow. */
static const int64_t MOST_BYTES = (int64_t)1 << 60;

static void reach(struct plan *z, int64_t end) {
    if (end > MOST_BYTES)
        die("%s: rank %d needs more than 2^60 bytes, which no machine has; use fewer microbatches, or a smaller model",
            z->file, z->r);
    z->rank->arena = end > z->rank->arena ? end : z->rank->arena;
}

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* The bytes that a buffer takes. Even an empty one (a stage without weights) gets a place of its own. */
static int64_t room(const struct plan *z, const struct buf *b) { return round_up(b->bytes ? b->bytes : 1, z->align); }

static void open_buffer(struct plan *z, int32_t x) {
    struct buf *buf = &z->rank->buf[x];
    int64_t size = room(z, buf);
    if (buf->grows >= 0 && z->rank->buf[buf->grows].bytes > buf->bytes)
        size = room(z, &z->rank->buf[buf->grows]);
    struct block *b = best_fit(z, size);
    if (b)
        remove_hole(z, b);
    else if (z->tail && z->tail->is_free) { /* the hole at the end grows */
        b = z->tail;
        remove_hole(z, b);
        b->size = size;
    } else {
        b = new_block(z, z->tail ? z->tail->off + z->tail->size : z->base, size);
        link_after(z, z->tail, b);
    }
    z->over_first[x] = (int32_t)z->nover;
    take_over(z, b, b->off + size);
    if (b->size > size) {
        struct block *rest = new_block(z, b->off + size, b->size - size);
        rest->is_free = true;
        rest->ghost = b->ghost;
        rest->last = b->last;
        link_after(z, b, rest);
        insert_hole(z, rest);
    }
    b->size = size;
    b->ghost = b->last = NULL;
    b->is_free = false;
    buf->off = b->off;
    z->of[x] = b;
    if (buf->grows >= 0) {
        z->rank->buf[buf->grows].off = b->off;
        z->of[buf->grows] = b;
    }
    reach(z, b->off + b->size);
}

/* Merges b with its right neighbour. */
static void absorb(struct plan *z, struct block *b, struct block *right) {
    b->size += right->size;
    if (b->last)
        b->last->next = right->ghost;
    else
        b->ghost = right->ghost;
    if (right->last)
        b->last = right->last;
    b->next = right->next;
    if (b->next)
        b->next->prev = b;
    else
        z->tail = b;
    right->next = z->spare;
    z->spare = right;
}

static void close_buffer(struct plan *z, int32_t x) {
    struct block *b = z->of[x];
    b->is_free = true;
    b->ghost = b->last = new_ghost(z, b->off, b->size, x);
    if (b->next && b->next->is_free) {
        remove_hole(z, b->next);
        absorb(z, b, b->next);
    }
    if (b->prev && b->prev->is_free) {
        struct block *left = b->prev;
        remove_hole(z, left);
        absorb(z, left, b);
        b = left;
    }
    insert_hole(z, b);
}

/* Weights, gradients, optimizer state, workspace: buffers that no event opens. */
static void place_permanent(struct plan *z, int64_t page) {
    struct rank *k = z->rank;
    int last = -1;
    bool *opens = z->opens;
    memset(opens, 0, sizeof *opens * (size_t)k->nbufs);
    for (size_t i = 0; i < k->nevents; i++)
        if (k->event[i] >= 0) {
            opens[k->event[i]] = true;
            if (k->buf[k->event[i]].grows >= 0)
                opens[k->buf[k->event[i]].grows] = true;
        }
    for (int32_t x = 0; x < k->nbufs; x++) {
        if (opens[x])
            continue;
        k->arena = round_up(k->arena, k->buf[x].kind == last ? z->align : page);
        last = k->buf[x].kind;
        k->buf[x].off = k->arena;
        reach(z, k->arena + room(z, &k->buf[x]));
    }
    k->arena = z->base = round_up(k->arena, page);
}

/* over[] was written as buffers opened; sorts it by buffer, so that each has a range. */
static void index_over(struct plan *z) {
    struct rank *k = z->rank;
    int32_t *end = z->over_end, last = -1;
    k->over_at = NEW(int32_t, k->nbufs + 1);
    for (size_t i = 0; i < k->nevents; i++) {
        int32_t x = k->event[i];
        if (x < 0)
            continue;
        if (last >= 0)
            end[last] = z->over_first[x];
        last = x;
    }
    if (last >= 0)
        end[last] = (int32_t)z->nover;
    k->over = NEW(int32_t, z->nover + 1);
    int32_t n = 0;
    for (int32_t x = 0; x < k->nbufs; x++) {
        k->over_at[x] = n;
        for (int32_t i = z->over_first[x]; i < end[x]; i++)
            k->over[n++] = z->over[i];
    }
    k->over_at[k->nbufs] = n;
}

static void check_memory(const struct spec *sp, const struct rank *k, int r) {
    if ((double)k->arena <= sp->memory)
        return;
    int64_t live[NKINDS] = {0};
    for (int i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind <= K_work)
            live[k->buf[i].kind] += k->buf[i].inst < 0 ? k->buf[i].bytes : 0;
    die("%s: rank %d needs %lld bytes, but the cluster's memory is %.0f: weights %lld, gradients %lld, optimizer %lld, "
        "workspace %lld, the rest activations; lower the cap, recompute, or use more ranks",
        sp->file, r, (long long)k->arena, sp->memory, (long long)live[K_weight], (long long)live[K_wgrad],
        (long long)live[K_opt], (long long)live[K_work]);
}

/* Tables for the largest rank, which serve all. */
static struct plan take_tables(const struct spec *sp, const struct program *p) {
    int n = 0;
    for (int r = 0; r < p->workers; r++)
        n = p->rank[r].nbufs > n ? p->rank[r].nbufs : n;
    return (struct plan){.file = sp->file,
                         .of = NEW(struct block *, n),
                         .align = sp->model ? 256 : 1,
                         .over_first = NEW(int32_t, n),
                         .over_end = NEW(int32_t, n),
                         .opens = NEW(bool, n)};
}

void mem_plan(const struct spec *sp, struct program *p) {
    struct plan z = take_tables(sp, p);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        z.r = r;
        z.rank = k;
        z.tail = z.root = NULL;
        z.nover = 0;
        memset(z.over_first, 0, sizeof *z.over_first * (size_t)k->nbufs);
        memset(z.over_end, 0, sizeof *z.over_end * (size_t)k->nbufs);
        place_permanent(&z, sp->model ? 4096 : 1);
        for (size_t i = 0; i < k->nevents; i++)
            if (k->event[i] >= 0)
                open_buffer(&z, k->event[i]);
            else
                close_buffer(&z, ~k->event[i]);
        index_over(&z);
        check_memory(sp, k, r);
    }
}
