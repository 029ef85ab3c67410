/* Handles several measured steps, timed by several clocks: aligns the clocks in each step, and takes the median over
 * the steps.
 *
 * No message arrives before it was sent. So the quickest message between two ranks bounds how far one clock is ahead of
 * the other, and these bounds are distances in a graph of ranks (Bellman 1958). The shortest path from rank 0 to a rank
 * gives the largest offset that may be added to its clock, and the shortest path back the smallest. Both satisfy all
 * bounds, so their midpoint does too, and half their difference bounds its error. If no message contradicts the clocks,
 * they are left alone. Each step is aligned by itself, since clocks drift.
 *
 * Medians preserve causality: what ends before another begins in every step also does so in the medians. */
#include "base/map.h"
#include "diff.h"
#include <math.h>
#include <stdlib.h>

/* The least time from a start to an end, over all messages from one rank to another in one step */
struct bound {
    int32_t from, to;
    double least;
};

struct bounds {
    struct bound *at;
    int n;
    size_t cap;
    int32_t *of; /* per operation: index of its bound, or -1 */
};

static int bound_at(struct bounds *bounds, struct map *map, int from, int to) {
    uint32_t at = map_start(map, hash_add(hash_add(1, from), to));
    for (int k; (k = map->slot[at] - 1) >= 0; at = map_next(map, at))
        if (bounds->at[k].from == from && bounds->at[k].to == to)
            return k;
    GROW(bounds->at, bounds->cap, (size_t)bounds->n + 1);
    bounds->at[bounds->n] = (struct bound){from, to, INFINITY};
    map->slot[at] = ++bounds->n;
    return bounds->n - 1;
}

/* Returns the bounds of each SEND with its RECV, and of each member of a reduction with the next: the second cannot end
 * before the first begins. */
static struct bounds bounds_of(const struct side *side) {
    struct bounds bounds = {.of = NEW(int32_t, side->n)};
    struct map map = map_new((size_t)side->n);
    for (int i = 0; i < side->n; i++) {
        const struct diff_op *op = &side->op[i];
        bounds.of[i] = side->op[op->ring].rank == op->rank || is_recv(op->op)
                           ? -1
                           : bound_at(&bounds, &map, op->rank, side->op[op->ring].rank);
    }
    return bounds;
}

/* Measures the bounds in one step. Returns by how much a message arrives before it was sent; 0: none does. */
static double measure_bounds(const struct side *side, const struct timeline_row *row, struct bounds *bounds) {
    double wrong = 0;
    for (int b = 0; b < bounds->n; b++)
        bounds->at[b].least = INFINITY;
    for (int i = 0; i < side->n; i++)
        if (bounds->of[i] >= 0) {
            double *least = &bounds->at[bounds->of[i]].least;
            *least = fmin(*least, row[side->op[i].ring].end - row[i].start);
            wrong = fmax(wrong, -*least);
        }
    return wrong;
}

/* Lowers far[], which holds initial values, to the largest offset that may be added to each clock (with `turned`,
 * subtracted from it). A bound says that the clock of `from` is at most `least` ahead of the clock of `to`. Clocks that
 * drift within a step can leave contradictory bounds; one round per rank settles all bounds that can be settled. */
static void relax(const struct bounds *bounds, double *far, int ranks, bool turned) {
    bool more = true;
    for (int round = 0; more && round < ranks; round++) {
        more = false;
        for (const struct bound *bound = bounds->at; bound < bounds->at + bounds->n; bound++) {
            int tail = turned ? bound->from : bound->to, head = turned ? bound->to : bound->from;
            if (far[tail] + bound->least < far[head]) {
                far[head] = far[tail] + bound->least;
                more = true;
            }
        }
    }
}

/* Sets shift[] to the offset added to each clock. Returns its largest error; INFINITY: unknown. */
static double find_shifts(const struct bounds *bounds, int ranks, double *shift, double *most, double *least) {
    double error = 0;
    for (int r = 0; r < ranks; r++) {
        most[r] = least[r] = r ? INFINITY : 0;
        shift[r] = 0;
    }
    relax(bounds, most, ranks, false);
    relax(bounds, least, ranks, true);
    for (int r = 0; r < ranks; r++)
        error = fmax(error, (most[r] + least[r]) / 2);
    if (isinf(error)) /* not every rank hears from all others: move no clock forward, and as few back as possible */
        relax(bounds, shift, ranks, false);
    for (int r = 0; r < ranks && !isinf(error); r++)
        shift[r] = (most[r] - least[r]) / 2;
    return error;
}

static void set_clocks(struct side *side, struct timeline_rows *rows) {
    struct bounds bounds = bounds_of(side);
    int W = side->workers, K = rows->nsteps;
    double *shift = NEW(double, W), *most = NEW(double, W), *least = NEW(double, W), *all = NEW(double, K *W);
    for (int k = 0; k < K; k++) {
        struct timeline_row *row = &rows->row[(size_t)k * (size_t)rows->n];
        if (measure_bounds(side, row, &bounds) == 0)
            continue;
        side->clocks.offset = side->clocks.offset ? side->clocks.offset : NEW(double, W);
        side->clocks.error = fmax(side->clocks.error, find_shifts(&bounds, W, shift, most, least));
        for (int i = 0; i < rows->n; i++) {
            row[i].start += shift[row[i].rank];
            row[i].end += shift[row[i].rank];
            row[i].free += shift[row[i].rank];
        }
        side->clocks.unmet = fmax(side->clocks.unmet, measure_bounds(side, row, &bounds));
        for (int r = 0; r < W; r++)
            all[r * K + k] = shift[r];
    }
    for (int r = 0; side->clocks.offset && r < W; r++)
        side->clocks.offset[r] = median_of(&all[r * K], K);
}

/* Ends each receive that no job waited for as early as its rank and its SEND allow: it arrived unseen. Messages of an
 * edge arrive in order, so it ended before the next one did. */
static void end_early(const struct side *side, const struct timeline_rows *rows) {
    for (int o = side->n - 1; o >= 0; o--) {
        const struct diff_op *op = &side->op[o];
        bool follows = o + 1 < side->n && side->op[o + 1].lane == op->lane && is_recv(side->op[o + 1].op);
        for (int k = 0; k < rows->nsteps && is_recv(op->op); k++) {
            struct timeline_row *row = &rows->row[(size_t)k * (size_t)rows->n];
            double free = follows && row[o].free < row[o].end ? fmin(row[o].free, row[o + 1].end) : row[o].free;
            row[o].end = fmin(row[o].end, fmax(free, row[op->ring].start));
        }
    }
}

/* Starts a message when all its ends have arrived: a rank's wait for the others does not count as part of it. */
static void begin_together(const struct side *side, const struct timeline_rows *rows) {
    for (int o = 0; o < side->n; o++) {
        if (!side_leads(side, o))
            continue;
        for (int k = 0; k < rows->nsteps; k++) {
            struct timeline_row *row = &rows->row[(size_t)k * (size_t)rows->n];
            double begin = row[o].start;
            for (int i = side->op[o].ring; i != o; i = side->op[i].ring)
                begin = fmax(begin, row[i].start);
            int i = o;
            do {
                row[i].start = fmin(begin, row[i].end);
                i = side->op[i].ring;
            } while (i != o);
        }
    }
}

/* ---- the median step ---- */

double median_of(double *x, int n) {
    sort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Makes times relative to the beginning of each step. */
static void start_steps_at_0(struct side *side, const struct timeline_rows *rows) {
    side->begin = NEW(double, rows->nsteps);
    for (int k = 0; k < rows->nsteps; k++) {
        struct timeline_row *row = &rows->row[(size_t)k * (size_t)rows->n];
        double begin = INFINITY;
        for (int i = 0; i < rows->n; i++)
            begin = fmin(begin, row[i].start);
        for (int i = 0; i < rows->n; i++) {
            row[i].start -= begin;
            row[i].end -= begin;
        }
        side->begin[k] = begin;
    }
}

void side_steps(struct side *side, struct timeline_rows *rows) {
    side->steps = rows;
    side->on.cores = rows->cores;
    side->on.serial = true; /* where cores are known, ranks are threads */
    side->unit = "s";
    set_clocks(side, rows);
    if (rows->recorded) {
        end_early(side, rows);
        begin_together(side, rows); /* a receive that was posted in the step before does not begin this one */
    }
    start_steps_at_0(side, rows);
    begin_together(side, rows);
    double *start = NEW(double, rows->nsteps), *end = NEW(double, rows->nsteps);
    for (int i = 0; i < side->n; i++) {
        for (int k = 0; k < rows->nsteps; k++) {
            start[k] = rows->row[(size_t)k * (size_t)rows->n + (size_t)i].start;
            end[k] = rows->row[(size_t)k * (size_t)rows->n + (size_t)i].end;
        }
        side->start[i] = median_of(start, rows->nsteps);
        side->end[i] = median_of(end, rows->nsteps);
    }
}
