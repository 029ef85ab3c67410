/* Where the time of the rank that ends last went. Its jobs are work. Each wait is divided along the path back from the
 * job that ends it to the wait's beginning, into other ranks' computation of what was needed, messages in flight, lanes
 * busy with something else, copies to host memory or back, and memory. While nothing of this explains the wait, the
 * rank waited for a thread that did something else, its own or the other side's, or for a core if other ranks used all
 * of them. A job that took longer than its CPU time waited for a core, too. The pieces add up to the makespan. */
#include "diff.h"
#include <math.h>
#include <stdlib.h>

const char *const account_name[NACCOUNTS] = {"work", "dependency", "link", "lane", "copies", "memory", "core", "other"};

/* ---- when ranks and cores are busy ---- */

struct change { /* of the number of operations that run */
    int64_t t;
    int32_t by, rank;
};

struct span {
    int64_t begin, end;
};
struct spans { /* ascending and disjoint */
    struct span *of;
    int n;
};

static int by_instant(const void *x, const void *y) {
    const struct change *a = x, *b = y;
    return a->t != b->t ? (a->t > b->t) - (a->t < b->t) : a->by - b->by;
}

static int by_rank_change(const void *x, const void *y) {
    const struct change *a = x, *b = y;
    return a->rank != b->rank ? a->rank - b->rank : by_instant(x, y);
}

static struct change *starts_and_ends(const struct side *side, bool messages_twice, int *n) {
    struct change *change = NEW(struct change, 2 * (size_t)side->n);
    *n = 0;
    for (int i = 0; i < side->n; i++) {
        const struct diff_op *op = &side->op[i];
        bool counts =
            !is_message(op->op) || (side->on.serial && (messages_twice || op->ring == i || side_leads(side, i)));
        if (!counts || op->end <= op->start)
            continue;
        change[(*n)++] = (struct change){op->start, 1, op->rank};
        change[(*n)++] = (struct change){op->end, -1, op->rank};
    }
    return change;
}

/* Returns when at least `least` operations run. change: sorted by time. */
static struct spans spans_of(const struct change *change, int n, int least) {
    struct spans spans = {NEW(struct span, n), 0};
    int run = 0;
    bool was = false;
    for (int i = 0; i < n; i++) {
        run += change[i].by;
        if (run >= least && !was)
            spans.of[spans.n++] = (struct span){change[i].t, change[i].t};
        else if (run < least && was)
            spans.of[spans.n - 1].end = change[i].t;
        was = run >= least;
    }
    return spans;
}

/* Returns when all cores are in use. */
static struct spans full_spans(const struct side *side) {
    int n;
    if (side->on.cores <= 0 || side->on.cores >= side->workers)
        return (struct spans){0};
    struct change *change = starts_and_ends(side, false, &n);
    sort(change, (size_t)n, sizeof *change, by_instant);
    return spans_of(change, n, (int)ceil(side->on.cores));
}

/* Returns, per rank, when its thread is busy. NULL: its lanes run side by side. */
static struct spans *rank_spans(const struct side *side) {
    int n;
    if (!side->on.serial)
        return NULL;
    struct spans *busy = NEW(struct spans, side->workers);
    struct change *change = starts_and_ends(side, true, &n);
    sort(change, (size_t)n, sizeof *change, by_rank_change);
    for (int from = 0, to; from < n; from = to) {
        for (to = from; to < n && change[to].rank == change[from].rank; to++)
            ;
        busy[change[from].rank] = spans_of(&change[from], to - from, 1);
    }
    return busy;
}

/* Returns the index of the first span that ends after t. */
static int span_ending_after(const struct spans *spans, int64_t t) {
    int first = 0, last = spans->n;
    while (first < last) {
        int middle = first + (last - first) / 2;
        if (spans->of[middle].end > t)
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

/* ---- the account ---- */

struct accounting {
    const struct side *side;
    int64_t *acc;
    struct spans full, *busy; /* when all cores are in use; per rank, when its thread is busy */
};

/* Divides the time from low to high among the cores, if others use all of them, and nothing known. */
static void account_idle(const struct accounting *a, int64_t low, int64_t high) {
    const struct spans *full = &a->full;
    int64_t core = 0;
    for (int i = span_ending_after(full, low); i < full->n && full->of[i].begin < high; i++)
        core += (full->of[i].end < high ? full->of[i].end : high) - (full->of[i].begin > low ? full->of[i].begin : low);
    a->acc[ACC_CORE] += core;
    a->acc[ACC_OTHER] += high - low - core;
}

/* Divides the time from low to high, in which operation x could have begun. Each side of a message may have kept it, if
 * its thread did something else. last: the side at which to end. */
static void account_rest(const struct accounting *a, int x, int last, int64_t low, int64_t high) {
    const struct diff_op *op = &a->side->op[x];
    if (low >= high)
        return;
    if (!a->busy) {
        account_idle(a, low, high);
        return;
    }
    const struct spans *busy = &a->busy[op->rank];
    for (int i = span_ending_after(busy, low); low < high; i++) {
        int64_t begin = i < busy->n && busy->of[i].begin < high ? busy->of[i].begin : high;
        int64_t end = i < busy->n && busy->of[i].end < high ? busy->of[i].end : high;
        if (low < begin && op->ring != last)
            account_rest(a, op->ring, last, low, begin);
        else if (low < begin)
            account_idle(a, low, begin);
        begin = begin > low ? begin : low;
        a->acc[ACC_LANE] += end - begin;
        low = end;
    }
}

static enum account account_of(const struct diff_op *p, const struct diff_op *x, int why) {
    if (why == BY_MEMORY)
        return ACC_MEMORY;
    if (is_copy(p->op))
        return ACC_COPIES;
    if (why == BY_LANE && is_message(p->op) <= is_message(x->op))
        return ACC_LANE;
    return is_message(p->op) ? ACC_LINK : ACC_DEPENDENCY;
}

/* Divides the time from low to high, while x waited for p, along the path back from p. */
static void account_wait(const struct accounting *a, int x, int p, int why, int64_t low, int64_t high) {
    const struct side *side = a->side;
    int64_t t = high;
    for (int steps = 0; p >= 0 && t > low && steps < side->n; steps++) {
        const struct diff_op *op = &side->op[p];
        int64_t end = op->end > low ? op->end : low, begin = diff_begin(side, op) > low ? diff_begin(side, op) : low;
        if (end < t) {
            account_rest(a, x, x, end, t);
            t = end;
        }
        if (begin < t) {
            a->acc[account_of(op, &side->op[x], why)] += t - begin;
            t = begin;
        }
        x = p;
        why = op->why;
        p = op->bind;
    }
    account_rest(a, x, x, low, t);
}

/* Returns the ticks that a measured operation took longer than its CPU time, in the median step. */
static int64_t beyond_cpu(const struct side *side, int i, int64_t took, double tick) {
    if (!side->steps || side->steps->cores <= 0)
        return 0;
    struct scratch scratch = scratch_begin();
    int n = side_nsteps(side);
    double *cpu = NEW(double, n), most = 0;
    for (int k = 0; k < n; k++) {
        cpu[k] = side->steps->row[(size_t)k * (size_t)side->n + (size_t)i].cpu;
        most = isfinite(cpu[k]) ? most : NAN;
    }
    int64_t used = isnan(most) ? took : llround(median_of(cpu, n) / tick);
    scratch_end(scratch);
    return used < took ? took - used : 0;
}

int diff_account(const struct side *side, int last, double tick, int64_t *acc) {
    int x = last, p = x, why = BY_DATA;
    int64_t t = side->makespan;
    if (x < 0)
        return -1;
    const struct accounting a = {side, acc, full_spans(side), rank_spans(side)};
    int rank = side->op[x].rank;
    const struct diff_lane *lane = &side->lane[side->lane_at[rank]];
    bool computes = lane->kind == LANE_COMPUTE; /* the compute lane is a rank's first lane */
    for (int i = lane->first + lane->n - 1; computes && i >= lane->first; i--) {
        const struct diff_op *op = &side->op[i];
        int64_t end = op->end < t ? op->end : t, begin = op->start < t ? op->start : t;
        if (end < t)
            account_wait(&a, x, p, why, end, t);
        int64_t core = beyond_cpu(side, i, end - begin, tick);
        acc[ACC_CORE] += core;
        acc[ACC_WORK] += end - begin - core;
        t = begin;
        x = i;
        p = op->bind;
        why = op->why;
    }
    account_wait(&a, x, p, why, 0, t);
    return rank;
}
