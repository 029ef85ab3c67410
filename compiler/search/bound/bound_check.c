/* The proofs of a lower bound without a search: work, path and memory.
 *
 * Heads and tails. No item of a class starts before the class's head: the lags before it give the earliest start of its
 * first item. The first item of a pool needs an item of only one of the classes before it, so the least of these times
 * counts. At least a class's tail passes from the end of any of its items to the last end of all. Item k of each class
 * after it starts a lag after item k's start; the last item of a pool waits for all items before it, so it starts a lag
 * after this item.
 *
 * work: take a rank's classes with heads of at least h and tails of at least q; there must be at least one. Their items
 * run one after another, after h, and q follows the last end. path: the same for one class.
 *
 * memory: on a rank, each class that takes room is paired with a class there that gives back the same amount equally
 * often. Item by item, the second gives at least `hold` after the first took. So each item holds its room for `hold`.
 * All of that lies after the least head of the classes that take, and ends before the last end by at least the least
 * tail of the classes that give. The room held, integrated over time, is at most room x that span. A class that gives
 * without a partner would create room, so if there is one, nothing is proved. A class that only takes holds additional
 * room, and may be left out. */
#include "bound.h"
#include <stdlib.h>

__extension__ typedef __int128 wide; /* room x time: at most 2^120 */

/* Sets each class's head, the least start of an item, and tail, the least time from the end of an item to the end of
 * all. */
static void bound_paths(struct bound *b) {
    for (int32_t n = 0; n < b->nclass; n++) {
        struct bound_class *c = &b->class[b->order[n]];
        c->head = c->pool ? INT64_MAX : 0;
        for (int32_t i = 0; i < c->narc; i++) {
            int64_t head = b->class[c->arc[i].class].head + c->arc[i].lag;
            if (c->pool ? head < c->head : head > c->head)
                c->head = head;
        }
    }
    for (int32_t n = b->nclass - 1; n >= 0; n--) {
        struct bound_class *c = &b->class[b->order[n]];
        c->tail = 0;
        for (int32_t i = 0; i < c->nnext; i++) {
            const struct bound_class *next = &b->class[c->next[i].class];
            int64_t tail = c->next[i].lag - c->time + next->time + next->tail;
            if (tail > c->tail)
                c->tail = tail;
        }
    }
}

static int by_falling_head(const void *x, const void *y) {
    const struct bound_class *a = *(const struct bound_class *const *)x, *b = *(const struct bound_class *const *)y;
    if (a->head != b->head)
        return a->head < b->head ? 1 : -1;
    return a < b ? -1 : a > b;
}

/* Returns the classes of a rank; *n: their number. */
static const struct bound_class **classes_of(const struct bound *b, int32_t rank, int32_t *n) {
    const struct bound_class **of = NEW(const struct bound_class *, b->nclass);
    *n = 0;
    for (const struct bound_class *c = b->class; c < b->class + b->nclass; c++)
        if (c->rank == rank)
            of[(*n)++] = c;
    return of;
}

/* Returns the best bound by the work of a rank: 0 if it has no class. */
static int64_t bound_by_work(const struct bound *b, int32_t rank) {
    int32_t n;
    int64_t best = 0;
    const struct bound_class **of = classes_of(b, rank, &n);
    sort(of, (size_t)n, sizeof *of, by_falling_head);
    for (int32_t i = 0; i < n; i++) { /* q: the tail of class i */
        int64_t sum = 0;
        for (int32_t j = 0; j < n; j++)
            if (of[j]->tail >= of[i]->tail) {
                sum += of[j]->time * of[j]->items;
                if (of[j]->head + sum + of[i]->tail > best)
                    best = of[j]->head + sum + of[i]->tail;
            }
    }
    return best;
}

static const char *check_work(const struct bound *b, const char **by) {
    int64_t best = -1;
    int32_t of = 0;
    for (int32_t k = 0; k < b->ranks; k++) {
        struct scratch scratch = scratch_begin();
        int64_t work = bound_by_work(b, k);
        scratch_end(scratch);
        if (work > best) {
            best = work;
            of = k;
        }
    }
    *by = format("work of rank %d", (int)of);
    return best >= b->limit
               ? NULL
               : format("by work, nothing ends before %lld, the work of rank %d", (long long)best, (int)of);
}

static const char *check_path(const struct bound *b, const char **by) {
    const struct bound_class *of = NULL;
    int64_t best = -1;
    for (const struct bound_class *c = b->class; c < b->class + b->nclass; c++)
        if (c->head + c->time * c->items + c->tail > best) {
            best = c->head + c->time * c->items + c->tail;
            of = c;
        }
    *by = format("path through %s", of->name);
    return best >= b->limit
               ? NULL
               : format("by paths, nothing ends before %lld, the path through %s", (long long)best, of->name);
}

/* Two classes of a rank, one of which may take room that the other gives back */
struct pair {
    const struct bound_class *take, *give;
    int64_t hold;
};

static int by_falling_hold(const void *x, const void *y) {
    const struct pair *a = x, *b = y;
    if (a->hold != b->hold)
        return a->hold < b->hold ? 1 : -1;
    if (a->take != b->take)
        return a->take < b->take ? -1 : 1;
    return a->give < b->give ? -1 : a->give > b->give;
}

/* Sets far[c] to the longest path from `from` to class c, start to start, item by item; -1: none. Pools only count
 * items: no item of a pool follows a particular one, so no path leads through a pool. */
static void ways_from(const struct bound *b, const struct bound_class *from, int64_t *far) {
    for (int32_t n = 0; n < b->nclass; n++) {
        const struct bound_class *c = &b->class[b->order[n]];
        int64_t most = c == from ? 0 : -1;
        for (int32_t i = 0; i < c->narc && !c->pool; i++) {
            int64_t before = far[c->arc[i].class];
            if (before >= 0 && before + c->arc[i].lag > most)
                most = before + c->arc[i].lag;
        }
        far[c - b->class] = most;
    }
}

/* Returns all pairs of a rank's classes, the longest holds first. */
static struct pair *pairs_of(const struct bound *b, const struct bound_class **of, int32_t n, size_t *npair) {
    struct pair *pair = NULL;
    size_t cap = 0;
    int64_t *far = NEW(int64_t, b->nclass);
    *npair = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!of[i]->take)
            continue;
        ways_from(b, of[i], far);
        for (int32_t j = 0; j < n; j++)
            if (of[j]->give == of[i]->take && far[of[j] - b->class] >= 0) {
                GROW(pair, cap, *npair + 1);
                pair[(*npair)++] = (struct pair){of[i], of[j], far[of[j] - b->class] + of[j]->time};
            }
    }
    if (pair)
        sort(pair, *npair, sizeof *pair, by_falling_hold);
    return pair;
}

static int64_t up(wide a, int64_t b) { return (int64_t)((a + b - 1) / b); }

/* Returns the bound by the memory of a rank with room; -1: none. */
static int64_t bound_by_memory(const struct bound *b, int32_t rank) {
    int32_t n;
    size_t npair;
    const struct bound_class **of = classes_of(b, rank, &n);
    const struct pair *pair = pairs_of(b, of, n, &npair);
    bool *taken = NEW(bool, b->nclass), *given = NEW(bool, b->nclass);
    int64_t head = INT64_MAX, tail = INT64_MAX;
    wide held = 0;
    for (size_t i = 0; i < npair; i++) {
        const struct pair *p = &pair[i];
        if (taken[p->take - b->class] || given[p->give - b->class])
            continue;
        taken[p->take - b->class] = given[p->give - b->class] = true;
        head = p->take->head < head ? p->take->head : head;
        tail = p->give->tail < tail ? p->give->tail : tail;
        held += (wide)(p->take->take * p->take->items) * p->hold;
    }
    for (int32_t i = 0; i < n; i++)
        if (of[i]->give && !given[of[i] - b->class])
            return -1;
    if (held == 0)
        return -1;
    if (b->room[rank] == 0)
        return MOST_SUM; /* there is no room for what must be held, so no schedule exists */
    held = held / b->room[rank] > MOST_SUM ? (wide)MOST_SUM * b->room[rank] : held;
    return head + up(held, b->room[rank]) + tail;
}

static const char *check_memory_bound(const struct bound *b, const char **by) {
    int64_t best = -1;
    int32_t of = 0;
    for (int32_t k = 0; k < b->ranks; k++) {
        if (b->room[k] < 0)
            continue;
        struct scratch scratch = scratch_begin();
        int64_t memory = bound_by_memory(b, k);
        scratch_end(scratch);
        if (memory > best) {
            best = memory;
            of = k;
        }
    }
    *by = format("memory of rank %d", (int)of);
    if (best < 0)
        return "memory bounds nothing: that needs a rank with room whose every giving class is linked, through `after` "
               "lines, to a class that takes as much";
    return best >= b->limit
               ? NULL
               : format("by memory, nothing ends before %lld, the bound of rank %d", (long long)best, (int)of);
}

const char *check_bound(struct bound *b, const char **by) {
    if (b->spans)
        bound_ways(b);
    bound_paths(b);
    switch (b->proof) {
    case BOUND_WORK: return b->spans ? check_span_work(b, by) : check_work(b, by);
    case BOUND_PATH: return check_path(b, by);
    case BOUND_MEMORY: return check_memory_bound(b, by);
    case BOUND_COVER: break;
    }
    *by = format("cover of %d state%s", (int)b->cover.n, b->cover.n == 1 ? "" : "s");
    return check_cover(b);
}
