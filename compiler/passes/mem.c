/* Gives every buffer of a rank an offset in one arena: the device's, or the one in host memory.
 *
 * Buffers that stay for the whole step come first: weights, gradients, optimizer state, workspace, each region on a
 * page of its own. The rest are placed in scheduled time (rank.event): an opening buffer takes the smallest hole that
 * fits (best fit), a closing one leaves a hole that merges with its neighbours. A hole remembers the buffers that used
 * its bytes last, its ghosts. A buffer that takes these bytes over must run after them; lanes.c keeps that order
 * (rank.over). n log n in buffers.
 *
 * If a period repeats, a buffer that is open at its end lies where its counterpart lay at its beginning (match_period).
 * In between, these bytes are lent to buffers that are closed again by then. */
#include "base/heap.h"
#include "holes.h"
#include "period.h"
#include <assert.h>
#include <math.h>
#include <string.h>

struct leaving { /* a buffer that has closed, and whose bytes are not free yet */
    double t;
    int32_t buf;
};
static inline bool leaves_before(struct leaving x, struct leaving y) { return x.t != y.t ? x.t < y.t : x.buf < y.buf; }
HEAP(leavings, struct leaving, leaves_before)

struct loan { /* the place of a buffer that closed in the period, reserved for the buffer that is there at its end */
    struct block *block;
    int32_t heir, last; /* heir: that buffer; last: the newest buffer in the place */
    bool lent;
};

/* Successors of places, where a period repeats. */
struct heirs {
    int32_t *before, *after; /* per buffer: the buffer whose place it takes, and the buffer that takes its place; -1:
                              * none */
    size_t *opened, *closed; /* per buffer: the event that opens it, and the one that closes it */
    bool *passed;            /* per buffer: another buffer has its place already */
    struct loan *loan;
    int nloans;
};

struct plan {
    const char *file; /* script's file, for error messages, with the rank's number */
    int r;
    struct rank *rank;
    struct holes holes;
    struct block **of;                /* per buffer */
    int memory;                       /* enum memory: whose arena is being planned */
    int64_t align, page, base, arena; /* base: beginning of the blocks; arena: the peak so far */
    int32_t *over; /* like rank's, but in the order in which buffers open; over_first, over_end: per buffer, its range
                    * in it */
    size_t over_cap, nover, begun; /* begun: nover at the start of this arena */
    int32_t *over_first, *over_end;
    bool *opens;                 /* per buffer: some event opens it */
    const struct lifetime *life; /* per buffer; NULL: bytes are reused as soon as the schedule permits */
    double *limit;               /* per buffer, with lifetimes: time by which the bytes that it takes over must be
                                  * free */
    struct leavings leavings;
    struct heirs heirs;
};

/* Takes over the front of a hole: the ghosts up to `end` become the buffer's predecessors. */
static void take_over(struct plan *plan, struct block *block, int64_t end) {
    while (block->ghost && block->ghost->off < end) {
        struct ghost *ghost = block->ghost;
        GROW(plan->over, plan->over_cap, plan->nover + 1);
        plan->over[plan->nover++] = ghost->buf;
        if (ghost->off + ghost->size > end) { /* the rest stays */
            ghost->size -= end - ghost->off;
            ghost->off = end;
            return;
        }
        block->ghost = ghost->next;
        ghost->next = plan->holes.ghosts;
        plan->holes.ghosts = ghost;
    }
    if (!block->ghost)
        block->last = NULL;
}

/* Largest size; sums and differences of sizes within it cannot overflow. */
static const int64_t MOST_BYTES = (int64_t)1 << 60;

static void reach_end(struct plan *plan, int64_t end) {
    if (end > MOST_BYTES)
        die("%s: rank %d needs more than 2^60 bytes, which no machine has; use fewer microbatches, or a smaller model",
            plan->file, plan->r);
    plan->arena = end > plan->arena ? end : plan->arena;
}

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t alignment(const struct spec *sp) { return sp->model ? 256 : 1; }

int64_t mem_room(const struct spec *sp, int64_t bytes) { return round_up(bytes ? bytes : 1, alignment(sp)); }

static int64_t room(const struct plan *plan, const struct buf *b) {
    return round_up(b->bytes ? b->bytes : 1, plan->align);
}

static void place(struct plan *plan, int32_t x, struct block *block) {
    struct buf *buf = &plan->rank->buf[x];
    buf->off = block->off;
    plan->of[x] = block;
    if (buf->grows >= 0) {
        plan->rank->buf[buf->grows].off = block->off;
        plan->of[buf->grows] = block;
    }
}

/* ---- places where a period repeats ---- */

/* Gives x the whole place of `last`. */
static void take_place(struct plan *plan, int32_t x, struct block *block, int32_t last) {
    plan->over_first[x] = (int32_t)plan->nover;
    GROW(plan->over, plan->over_cap, plan->nover + 1);
    plan->over[plan->nover++] = last;
    plan->over_end[x] = (int32_t)plan->nover;
    place(plan, x, block);
}

/* Gives x, which is open where the period ends, the place that it must have, whichever buffer was there last. */
static void inherit(struct plan *plan, int32_t x) {
    int32_t last = closer(plan->rank, plan->heirs.before[x]), i = 0;
    struct block *block = plan->of[plan->heirs.before[x]];
    while (i < plan->heirs.nloans && plan->heirs.loan[i].heir != x)
        i++;
    if (i < plan->heirs.nloans) {
        last = plan->heirs.loan[i].last;
        plan->heirs.loan[i] = plan->heirs.loan[--plan->heirs.nloans];
    }
    plan->heirs.passed[last] = true;
    take_place(plan, x, block, last);
}

/* Places x, which closes before the heir opens, in the heir's place, if possible; if several places fit, in the
 * smallest. */
static bool borrow(struct plan *plan, int32_t x, int64_t size, const struct block *hole) {
    struct loan *best = NULL;
    for (struct loan *loan = plan->heirs.loan; loan < plan->heirs.loan + plan->heirs.nloans; loan++)
        if (!loan->lent && loan->block->size >= size && plan->heirs.closed[x] < plan->heirs.opened[loan->heir] &&
            (!best || loan->block->size < best->block->size))
            best = loan;
    if (!best || (hole && hole->size < best->block->size))
        return false;
    take_place(plan, x, best->block, best->last);
    best->last = closer(plan->rank, x);
    best->lent = true;
    return true;
}

/* Handles the place of x, which has closed. Returns whether the place has an heir, or already belongs to another
 * buffer. */
static bool bequeath(struct plan *plan, int32_t x) {
    if (plan->heirs.passed[x])
        return true;
    for (struct loan *loan = plan->heirs.loan; loan < plan->heirs.loan + plan->heirs.nloans; loan++)
        if (loan->last == x) {
            loan->lent = false;
            return true;
        }
    int32_t heir = plan->heirs.after[opener(plan->rank, x)];
    if (heir < 0)
        return false;
    plan->heirs.loan[plan->heirs.nloans++] = (struct loan){plan->of[x], heir, x, false};
    return true;
}

static void begin_lifetime(struct plan *plan, int32_t x) {
    struct buf *buf = &plan->rank->buf[x];
    int64_t size = room(plan, buf);
    if (buf->grows >= 0 && plan->rank->buf[buf->grows].bytes > buf->bytes)
        size = room(plan, &plan->rank->buf[buf->grows]);
    struct block *block = holes_best_fit(&plan->holes, size);
    if (plan->heirs.before && plan->heirs.before[x] >= 0) {
        inherit(plan, x);
        return;
    }
    if (plan->heirs.before && borrow(plan, x, size, block))
        return;
    if (block)
        holes_remove(&plan->holes, block);
    else if (plan->holes.tail && plan->holes.tail->is_free) { /* the hole at the end grows */
        block = plan->holes.tail;
        holes_remove(&plan->holes, block);
        block->size = size;
    } else {
        block = holes_block(&plan->holes,
                            plan->holes.tail ? plan->holes.tail->off + plan->holes.tail->size : plan->base, size);
        holes_link(&plan->holes, plan->holes.tail, block);
    }
    plan->over_first[x] = (int32_t)plan->nover;
    take_over(plan, block, block->off + size);
    plan->over_end[x] = (int32_t)plan->nover;
    if (block->size > size) {
        struct block *rest = holes_block(&plan->holes, block->off + size, block->size - size);
        rest->is_free = true;
        rest->ghost = block->ghost;
        rest->last = block->last;
        holes_link(&plan->holes, block, rest);
        holes_insert(&plan->holes, rest);
    }
    block->size = size;
    block->ghost = block->last = NULL;
    block->is_free = false;
    place(plan, x, block);
    reach_end(plan, block->off + block->size);
}

static void end_lifetime(struct plan *plan, int32_t x) {
    struct block *block = plan->of[x];
    if (plan->heirs.before && bequeath(plan, x))
        return;
    block->is_free = true;
    block->ghost = block->last = holes_ghost(&plan->holes, block->off, block->size, x);
    if (block->next && block->next->is_free) {
        holes_remove(&plan->holes, block->next);
        holes_absorb(&plan->holes, block, block->next);
    }
    if (block->prev && block->prev->is_free) {
        struct block *left = block->prev;
        holes_remove(&plan->holes, left);
        holes_absorb(&plan->holes, left, block);
        block = left;
    }
    holes_insert(&plan->holes, block);
}

static bool is_here(const struct plan *plan, int32_t x) { return memory_of(&plan->rank->buf[x]) == plan->memory; }

static void find_opens(struct plan *plan) {
    const struct rank *k = plan->rank;
    memset(plan->opens, 0, sizeof *plan->opens * (size_t)k->nbufs);
    for (size_t i = 0; i < k->nevents; i++)
        if (k->event[i] >= 0) {
            plan->opens[k->event[i]] = true;
            if (k->buf[k->event[i]].grows >= 0)
                plan->opens[k->buf[k->event[i]].grows] = true;
        }
}

/* Places the buffers that no event opens: weights, gradients, optimizer state, workspace. */
static void place_permanent(struct plan *plan) {
    struct rank *k = plan->rank;
    int last = -1;
    for (int32_t x = 0; x < k->nbufs; x++) {
        if (plan->opens[x] || !is_here(plan, x))
            continue;
        plan->arena = round_up(plan->arena, k->buf[x].kind == last ? plan->align : plan->page);
        last = k->buf[x].kind;
        k->buf[x].off = plan->arena;
        reach_end(plan, plan->arena + room(plan, &k->buf[x]));
    }
    plan->arena = plan->base = round_up(plan->arena, plan->page);
    if (plan->memory == MEMORY_DEVICE)
        k->base = plan->base;
}

/* Sorts over[], which was written as buffers opened, by buffer, so that each has a range. */
static void index_over(struct plan *plan) {
    struct rank *k = plan->rank;
    k->over_at = NEW(int32_t, k->nbufs + 1);
    k->over = NEW(int32_t, plan->nover + 1);
    int32_t n = 0;
    for (int32_t x = 0; x < k->nbufs; x++) {
        k->over_at[x] = n;
        for (int32_t i = plan->over_first[x]; i < plan->over_end[x]; i++)
            k->over[n++] = plan->over[i];
    }
    k->over_at[k->nbufs] = n;
}

/* Allocates tables large enough for every rank. */
static struct plan take_tables(const struct spec *sp, const struct program *p) {
    int n = 0;
    for (int r = 0; r < p->workers; r++)
        n = p->rank[r].nbufs > n ? p->rank[r].nbufs : n;
    return (struct plan){.file = sp->file,
                         .of = NEW(struct block *, n),
                         .align = alignment(sp),
                         .page = sp->model ? 4096 : 1,
                         .over_first = NEW(int32_t, n),
                         .over_end = NEW(int32_t, n),
                         .opens = NEW(bool, n),
                         .limit = NEW(double, n)};
}

static void start_rank(struct plan *plan, const struct program *p, int r) {
    struct rank *k = &p->rank[r];
    bool period = p->period > 0;
    plan->rank = k;
    plan->nover = 0;
    memset(plan->over_first, 0, sizeof *plan->over_first * (size_t)k->nbufs);
    memset(plan->over_end, 0, sizeof *plan->over_end * (size_t)k->nbufs);
    find_opens(plan);
    plan->heirs.before = NULL;
    if (!period)
        return;
    int n = k->nbufs + 1;
    plan->heirs.before = NEW(int32_t, n);
    plan->heirs.after = NEW(int32_t, n);
    plan->heirs.opened = NEW(size_t, n);
    plan->heirs.closed = NEW(size_t, n);
    plan->heirs.passed = NEW(bool, n);
    plan->heirs.loan = NEW(struct loan, n);
    match_period(p, r, plan->heirs.before);
    memset(plan->heirs.after, -1, sizeof *plan->heirs.after * (size_t)n);
    for (int32_t b = 0; b < k->nbufs; b++)
        if (plan->heirs.before[b] >= 0)
            plan->heirs.after[plan->heirs.before[b]] = b;
    for (size_t e = 0; e < k->nevents; e++)
        *(k->event[e] >= 0 ? &plan->heirs.opened[k->event[e]] : &plan->heirs.closed[opener(k, ~k->event[e])]) = e;
}

static void start_arena(struct plan *plan) {
    plan->holes.tail = plan->holes.root = NULL;
    plan->nover = plan->begun;
    plan->leavings.n = 0;
    plan->heirs.nloans = 0;
    if (plan->heirs.before)
        memset(plan->heirs.passed, 0, sizeof *plan->heirs.passed * (size_t)plan->rank->nbufs);
    plan->arena = 0;
    place_permanent(plan);
}

/* Plans the arena; bytes are free as soon as the schedule frees them. */
static void plan_by_schedule(struct plan *plan) {
    const struct rank *k = plan->rank;
    start_arena(plan);
    for (size_t i = 0; i < k->nevents; i++) {
        int32_t x = k->event[i];
        if (!is_here(plan, x < 0 ? ~x : x))
            continue;
        if (x < 0)
            end_lifetime(plan, ~x);
        else
            begin_lifetime(plan, x);
    }
}

/* Plans the arena; bytes are free once the schedule frees them and `delay` before the end of their last access. Buffers
 * open in issue order, which is not always the order of their first accesses. A buffer whose successors start earlier
 * takes only bytes that are free for all of them. */
static void plan_by_lifetimes(struct plan *plan, double delay) {
    const struct rank *k = plan->rank;
    double limit = INFINITY;
    start_arena(plan);
    for (size_t i = k->nevents; i-- > 0;)
        if (k->event[i] >= 0 && is_here(plan, k->event[i]))
            plan->limit[k->event[i]] = limit = fmin(limit, plan->life[k->event[i]].start);
    for (size_t i = 0; i < k->nevents; i++) {
        int32_t x = k->event[i];
        if (!is_here(plan, x < 0 ? ~x : x))
            continue;
        if (x < 0) {
            leavings_push(&plan->leavings, (struct leaving){plan->life[~x].end - delay, ~x});
            continue;
        }
        while (plan->leavings.n > 0 && plan->leavings.a[0].t <= plan->limit[x])
            end_lifetime(plan, leavings_pop(&plan->leavings).buf);
        begin_lifetime(plan, x);
    }
}

/* Plans within the memory, with the least delay that makes it fit, found to a thousandth of the step. Returns whether
 * there is any delay. */
static bool plan_within(struct plan *plan, double memory) {
    const struct rank *k = plan->rank;
    plan_by_lifetimes(plan, 0);
    if ((double)plan->arena <= memory)
        return false;
    double too_little = 0, most = 0;
    for (int b = 0; b < k->nbufs; b++)
        most = fmax(most, plan->life[b].end);
    double enough = most; /* as much as the schedule permits */
    bool fits = plan->memory == MEMORY_HOST || (double)k->least < memory;
    for (int i = 0; i < 10 && fits; i++) {
        double delay = (too_little + enough) / 2;
        plan_by_lifetimes(plan, delay);
        *((double)plan->arena <= memory ? &enough : &too_little) = delay;
    }
    if (enough < most)
        plan_by_lifetimes(plan, enough);
    else {
        plan->life = NULL;
        plan_by_schedule(plan);
    }
    return true;
}

/* Plans an arena. Returns whether it had to reuse bytes sooner than lifetimes permit. */
static bool plan_arena(struct plan *plan, int memory, double limit) {
    plan->memory = memory;
    plan->begun = plan->nover;
    if (plan->life)
        return plan_within(plan, limit);
    plan_by_schedule(plan);
    return false;
}

bool mem_plan(const struct compile *c) {
    const struct spec *sp = c->spec;
    struct program *p = c->program;
    double memory = c->choices.any_memory ? INFINITY : sp->machine.memory,
           host_memory = c->choices.any_memory ? INFINITY : sp->machine.host_memory;
    struct plan plan = take_tables(sp, p);
    bool delays = false;
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        assert(k->nwaits == 0); /* lanes comes later, since reused bytes impose an order too */
        plan.r = r;
        plan.life = c->choices.life ? c->choices.life[r] : NULL;
        start_rank(&plan, p, r);
        delays |= plan_arena(&plan, MEMORY_DEVICE, memory);
        k->arena = plan.arena;
        delays |= plan_arena(&plan, MEMORY_HOST, host_memory);
        k->host = plan.arena;
        if (k->least == 0 || k->arena < k->least)
            k->least = k->arena;
        index_over(&plan);
    }
    if (!c->choices.any_memory)
        memory_check(sp, p);
    return delays;
}
