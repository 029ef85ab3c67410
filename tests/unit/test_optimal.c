/* The best order against all orders. The judge tries every sequence of jobs in which each comes behind those that it
 * needs, and starts each as soon as it can, no sooner than the one before it: some best schedule, by its starts, is one
 * of these. It assumes no order of microbatches, knows no states and no dominance, and is written from
 * schedules/README.md. */
#include "optimal/optimal.h"
#include "random_spec.h"
#include "verify/bound.h"
#include <criterion/criterion.h>

enum { MOST_DRAWN = 14, LONG = 1 << 20 };

struct all_orders {
    const struct spec *sp;
    int32_t need[MOST_DRAWN][MOST_NEEDS], needs[MOST_DRAWN];
    int latency;
    double start[MOST_DRAWN], end[MOST_DRAWN]; /* start -1: not yet */
    double left[3], best;                      /* left: per rank, the work to come */
};

static int32_t last_of(const struct spec *sp, const struct job *j) {
    int32_t w = job_at(sp, j->s, j->b, OP_W);
    return w >= 0 ? w : job_at(sp, j->s, j->b, OP_B);
}

static int live_at(const struct all_orders *all, int rank, double t) {
    int live = 0;
    for (int32_t j = 0; j < all->sp->njobs; j++) {
        const struct job *job = &all->sp->job[j];
        int32_t last = last_of(all->sp, job);
        live += job->d == OP_F && job->rank == rank && all->start[j] >= 0 &&
                !(all->start[last] >= 0 && all->end[last] <= t);
    }
    return live;
}

/* The least time from t on at which job j can start; INFINITY: never, as things stand. */
static double earliest(const struct all_orders *all, int32_t j, double t) {
    const struct spec *sp = all->sp;
    const struct job *job = &sp->job[j];
    for (int32_t k = 0; k < sp->njobs; k++)
        if (all->start[k] >= 0 && sp->job[k].rank == job->rank)
            t = fmax(t, all->end[k]);
    for (int n = 0; n < all->needs[j]; n++) {
        int32_t k = all->need[j][n];
        t = fmax(t, all->end[k] + (sp->job[k].rank == job->rank ? 0 : all->latency));
    }
    while (job->d == OP_F && live_at(all, job->rank, t) >= sp->cap[job->rank]) {
        double next = INFINITY; /* something ends */
        for (int32_t k = 0; k < sp->njobs; k++)
            if (all->start[k] >= 0 && all->end[k] > t)
                next = fmin(next, all->end[k]);
        if (isinf(next))
            return next;
        t = next;
    }
    return t;
}

static void try_all(struct all_orders *all, int placed, double t, double makespan) {
    const struct spec *sp = all->sp;
    if (placed == sp->njobs) {
        all->best = fmin(all->best, makespan);
        return;
    }
    for (int r = 0; r < sp->workers; r++)
        if (t + all->left[r] >= all->best && all->left[r] > 0)
            return;
    for (int32_t j = 0; j < sp->njobs; j++) {
        bool can = all->start[j] < 0;
        for (int n = 0; can && n < all->needs[j]; n++)
            can = all->start[all->need[j][n]] >= 0;
        double begin = can ? earliest(all, j, t) : INFINITY;
        if (isinf(begin))
            continue;
        all->start[j] = begin;
        all->end[j] = begin + sp->job[j].cost;
        all->left[sp->job[j].rank] -= sp->job[j].cost;
        try_all(all, placed + 1, begin, fmax(makespan, all->end[j]));
        all->left[sp->job[j].rank] += sp->job[j].cost;
        all->start[j] = -1;
    }
}

static struct spec *draw_tiny(uint64_t seed, int *latency) {
    random_state = seed;
    int W = 1 + below(3), S = 1 + below(3), B = 1 + below(3);
    bool split = below(2), by_batch = below(4) == 0, equal = below(2), recompute = below(6) == 0;
    while (S * B * (2 + split + recompute) > MOST_DRAWN)
        S > 1 && (B == 1 || below(2)) ? S-- : B--;
    struct spec *sp = empty_spec(W, S, B);
    int stage_rank[3] = {below(W), below(W), below(W)}, cost[3][NDIRS];
    for (int i = 0; i < 3 * NDIRS; i++)
        cost[i / NDIRS][i % NDIRS] = equal ? 1 : 1 + below(4);
    *latency = below(3);
    for (int r = 0; r < W; r++)
        sp->cap[r] = below(3) ? 1 + below(3) : INT_MAX;
    sp->link = NEW(struct link, W * W);
    for (int i = 0; i < W * W; i++)
        sp->link[i] = (struct link){*latency, INFINITY};
    sp->has_cluster = true;
    for (int s = 0; s < S; s++)
        for (int b = 0; b < B; b++) {
            int rank = by_batch ? (stage_rank[s] + b) % W : stage_rank[s];
            for (int d = 0; d < NDIRS; d++)
                if (d == OP_F || (d == OP_R && recompute) || (split ? d == OP_I || d == OP_W : d == OP_B))
                    add_job(sp, s, b, d, rank, rank)->cost = cost[s][d];
        }
    return sp;
}

static double best_of_all(const struct spec *sp, int latency) {
    struct all_orders all = {.sp = sp, .latency = latency, .best = LONG};
    for (int32_t j = 0; j < sp->njobs; j++) {
        all.start[j] = -1;
        all.left[sp->job[j].rank] += sp->job[j].cost;
        all.needs[j] = needs_by_design(sp, &sp->job[j], all.need[j]);
    }
    try_all(&all, 0, 0, 0);
    return all.best;
}

/* The starts, held to the rules. */
static double replay(const struct spec *sp, int latency, const struct instance *in, const int64_t *start) {
    double makespan = 0;
    int32_t need[MOST_NEEDS];
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        double at = (double)start[j] * in->tick;
        makespan = fmax(makespan, at + job->cost);
        for (int n = needs_by_design(sp, job, need); n > 0; n--) {
            const struct job *before = &sp->job[need[n - 1]];
            double there = (double)start[need[n - 1]] * in->tick + before->cost;
            cr_assert_geq(at, there + (before->rank == job->rank ? 0 : latency));
        }
        int live = 0;
        for (int32_t k = 0; k < sp->njobs; k++) {
            const struct job *other = &sp->job[k];
            double begin = (double)start[k] * in->tick, end = begin + other->cost;
            cr_assert(k == j || other->rank != job->rank || at >= end || at + job->cost <= begin);
            int32_t last = last_of(sp, other);
            live += other->d == OP_F && other->rank == job->rank && begin <= at &&
                    (double)start[last] * in->tick + sp->job[last].cost > at;
        }
        cr_assert_leq(live, sp->cap[job->rank]);
    }
    return makespan;
}

/* By the checker, which knows nothing of the search; and not a tick more. */
static void check_certificate(const struct instance *in, struct optimum *best, uint64_t seed) {
    const char *by;
    for (int more = 0; more < 2; more++) {
        struct text t = {0};
        best->lower += more;
        emit_certificate(&t, in, best, "drawn");
        const char *why = check_bound(read_bound("drawn", t.s), &by);
        cr_assert(more ? why != NULL : why == NULL, "seed %llu: %s\n%s", (unsigned long long)seed, why ? why : by, t.s);
    }
}

Test(optimal, no_order_is_better) {
    int found = 0, none = 0, covers = 0;
    for (uint64_t seed = 1; seed <= 8000; seed++) {
        int latency;
        struct spec *sp = draw_tiny(seed, &latency);
        double best = best_of_all(sp, latency);
        struct stage *st = cost_stages(sp);
        struct graph *graph = graph_build(sp);
        struct instance *in = instance_of(sp, st, graph);
        struct optimum got = find_optimum(in, graph, serial_time(in) + 1, 100000, 0);
        cr_assert(!got.gave_up, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(best == LONG, got.start == NULL, "seed %llu: %g", (unsigned long long)seed, best);
        none += best == LONG;
        if (best < LONG) {
            found++;
            covers += got.proof == PROOF_COVER;
            cr_assert_eq((double)got.makespan * in->tick, best, "seed %llu: %g, best %g", (unsigned long long)seed,
                         (double)got.makespan * in->tick, best);
            cr_assert_eq(got.lower, got.makespan);
            cr_assert_eq(replay(sp, latency, in, got.start), best, "seed %llu", (unsigned long long)seed);
            check_certificate(in, &got, seed);
        }
        free_all();
    }
    cr_assert(found > 6000 && none > 300 && covers > 300, "%d found, %d without an order, %d covers", found, none, covers);
}

/* Times that are no multiples of a tick are rounded down, and the bound holds. */
Test(optimal, times_of_any_size) {
    static const double cost[][2] = {{0.1, 0.2}, {1e-9, 2e-9}, {1e9, 3e9}, {3.14159265358979, 2.71828182845905}, {7, 11},
                                     {0.3, 1e-3}};
    for (int i = 0; i < 6; i++) {
        struct spec *sp = pipeline_spec(3, 3, 0);
        for (struct job *j = sp->job; j < sp->job + sp->njobs; j++)
            j->cost = cost[i][j->d == OP_B];
        for (int r = 0; r < 3; r++)
            sp->cap[r] = 2;
        struct stage *st = cost_stages(sp);
        struct graph *graph = graph_build(sp);
        struct instance *in = instance_of(sp, st, graph);
        struct optimum got = find_optimum(in, graph, serial_time(in) + 1, 1000000, 0);
        double time = time_of_order(sp, st, graph, got.start), lower = (double)got.lower * in->tick;
        cr_assert(!got.gave_up && lower <= time * (1 + 1e-9), "%d: %g, at least %g", i, time, lower);
        cr_assert(in->rounded ? time < 1.01 * lower : fabs(time - lower) < 1e-9 * time, "%d: %g, %g", i, time, lower);
        cr_assert_eq(in->rounded, i == 3);
        free_all();
    }
}
