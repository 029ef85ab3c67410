/* Several measured steps, by several clocks: the clocks are made one, and the median step is taken.
 *
 * Clocks (Mills 1985, RFC 958): no message arrives before it was sent. Of two ranks, the quickest message each way
 * bounds from both sides how far their clocks are apart. Where no message contradicts them, clocks are left alone;
 * otherwise the middle is taken, along the pairs of ranks that leave the least room (a minimum spanning tree, Kruskal
 * 1956).
 *
 * Medians keep the order of causes: what ends before another begins in every step does so in their medians. */
#include "diff.h"
#include "map.h"
#include <math.h>
#include <stdlib.h>

/* Two ranks that exchange messages, a < b: the least time from a start on the one to an end on the other. */
struct pair_of_ranks {
    int32_t a, b;
    double there, back; /* from a to b, from b to a; INFINITY: no message goes this way */
};

static double room_of(const struct pair_of_ranks *p) { return p->there + p->back; }

/* What goes to b's clock, relative to a's: 0 where that is possible. A bound that is missing leaves the other. */
static double shift_of(const struct pair_of_ranks *p) {
    if (p->there >= 0 && p->back >= 0)
        return 0;
    return isinf(p->there) ? p->back : isinf(p->back) ? -p->there : (p->back - p->there) / 2;
}

static struct pair_of_ranks *pair_at(struct pair_of_ranks **pair, size_t *cap, int *n, struct map *map, int a, int b) {
    uint32_t at = map_start(map, hash_add(hash_add(1, a), b));
    for (int k; (k = map->slot[at] - 1) >= 0; at = map_next(map, at))
        if ((*pair)[k].a == a && (*pair)[k].b == b)
            return &(*pair)[k];
    GROW(*pair, *cap, (size_t)*n + 1);
    (*pair)[*n] = (struct pair_of_ranks){a, b, INFINITY, INFINITY};
    map->slot[at] = ++*n;
    return &(*pair)[*n - 1];
}

/* Each end of a message, or of a reduction, with the next of its ring: the one cannot begin after the other ends. */
static struct pair_of_ranks *pairs_of(const struct side *s, const struct timeline_rows *t, int *n) {
    struct pair_of_ranks *pair = NULL;
    struct map map = map_new((size_t)s->n);
    size_t cap = 0;
    *n = 0;
    for (int i = 0; i < s->n; i++) {
        int to = s->op[i].ring, from = s->op[i].rank, dest = s->op[to].rank;
        bool receives = s->op[i].op != OP_REDUCE && op_lane[s->op[i].op] == LANE_RECV;
        if (from == dest || receives)
            continue;
        struct pair_of_ranks *p = pair_at(&pair, &cap, n, &map, from < dest ? from : dest, from < dest ? dest : from);
        double *least = from < dest ? &p->there : &p->back;
        for (int k = 0; k < t->nsteps; k++) {
            const struct timeline_row *row = &t->row[(size_t)k * (size_t)t->n];
            *least = fmin(*least, row[to].end - row[i].start);
        }
    }
    return pair;
}

static int by_room(const void *x, const void *y) {
    const struct pair_of_ranks *p = x, *q = y;
    if (room_of(p) != room_of(q))
        return room_of(p) < room_of(q) ? -1 : 1;
    return p->a != q->a ? p->a - q->a : p->b - q->b;
}

/* Ranks whose clocks hang together: a rank's clock plus its shift is that of the rank above it. */
struct hung {
    int32_t up;
    double shift;
};

/* The rank that r hangs from, at the top, and what to add for its clock. */
static struct hung top_of(struct hung *hung, int r) {
    struct hung sum = {r, 0};
    while (hung[sum.up].up != sum.up) {
        sum.shift += hung[sum.up].shift;
        sum.up = hung[sum.up].up;
    }
    if (sum.up != r)
        hung[r] = sum;
    return sum;
}

/* Sets clock[] and clock_error, or leaves them NULL where no message contradicts the clocks. */
static void find_clocks(struct side *s, const struct timeline_rows *t) {
    int n;
    struct pair_of_ranks *pair = pairs_of(s, t, &n);
    bool wrong = false;
    for (int i = 0; i < n; i++)
        wrong |= pair[i].there < 0 || pair[i].back < 0;
    if (!wrong)
        return;
    struct hung *hung = NEW(struct hung, s->workers);
    for (int r = 0; r < s->workers; r++)
        hung[r].up = r;
    qsort(pair, (size_t)n, sizeof *pair, by_room);
    for (int i = 0; i < n; i++) {
        struct hung a = top_of(hung, pair[i].a), b = top_of(hung, pair[i].b);
        if (a.up == b.up)
            continue;
        double shift = shift_of(&pair[i]);
        hung[b.up] = (struct hung){a.up, a.shift + shift - b.shift};
        if (shift != 0)
            s->clock_error = fmax(s->clock_error, room_of(&pair[i]) / 2);
    }
    s->clock = NEW(double, s->workers);
    int32_t *first = NEW(int32_t, s->workers); /* of those that hang together, the first keeps its clock */
    for (int r = 0; r < s->workers; r++) {
        struct hung h = top_of(hung, r);
        first[h.up] = first[h.up] ? first[h.up] : r + 1;
        s->clock[r] = h.shift - top_of(hung, first[h.up] - 1).shift;
    }
}

static void set_clocks(const struct side *s, struct timeline_rows *t) {
    for (int i = 0; s->clock && i < t->n * t->nsteps; i++) {
        t->row[i].start += s->clock[t->row[i].rank];
        t->row[i].end += s->clock[t->row[i].rank];
    }
}

/* ---- the median step ---- */

static int by_size(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double median_of(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Times from the beginning of each step. */
static void start_steps_at_0(const struct timeline_rows *t) {
    for (int k = 0; k < t->nsteps; k++) {
        struct timeline_row *row = &t->row[(size_t)k * (size_t)t->n];
        double begin = INFINITY;
        for (int i = 0; i < t->n; i++)
            begin = fmin(begin, row[i].start);
        for (int i = 0; i < t->n; i++) {
            row[i].start -= begin;
            row[i].end -= begin;
        }
    }
}

void side_steps(struct side *s, struct timeline_rows *t) {
    s->steps = t;
    s->unit = "s";
    find_clocks(s, t);
    set_clocks(s, t);
    start_steps_at_0(t);
    double *start = NEW(double, t->nsteps), *end = NEW(double, t->nsteps);
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < t->nsteps; k++) {
            start[k] = t->row[(size_t)k * (size_t)t->n + (size_t)i].start;
            end[k] = t->row[(size_t)k * (size_t)t->n + (size_t)i].end;
        }
        s->start[i] = median_of(start, t->nsteps);
        s->end[i] = median_of(end, t->nsteps);
    }
}
