/* The scheduler against a slow simulator written from the text of schedules/README.md ("How jobs are scheduled"), and
 * against known figures. */
#include "random_spec.h"
#include <criterion/criterion.h>

/* ---- the reference: looks at everything at every instant ---- */

enum { WAITS, RUNS, ENDED };

struct naive {
    const struct spec *sp;
    const struct stage *st;
    double *start, *end; /* INFINITY: not yet */
    uint8_t *state;
    int32_t *moment; /* as in struct sched */
    int nmoments;
};

static double arrival(const struct naive *z, int p, int j) {
    const struct job *a = &z->sp->job[p], *b = &z->sp->job[j];
    if (a->rank == b->rank || !z->sp->link)
        return z->end[p];
    struct link l = z->sp->link[a->rank * z->sp->workers + b->rank];
    return z->end[p] + (l.latency + (double)z->st[a->s].bytes[carried(z->sp, a, b)] / l.bandwidth);
}

/* INFINITY: nobody knows yet. */
static double ready_at(const struct naive *z, const struct graph *g, int j) {
    double t = 0;
    for (int e = g->pred_at[j]; e < g->pred_at[j + 1]; e++)
        t = fmax(t, z->state[g->pred[e]] == ENDED ? arrival(z, g->pred[e], j) : INFINITY);
    return t;
}

/* Activations that live on a rank now. */
static int live_on(const struct naive *z, int rank) {
    int n = 0;
    for (int s = 0; s < z->sp->stages; s++)
        for (int b = 0; b < z->sp->batches; b++) {
            int f = job_at(z->sp, s, b, OP_F), whole = job_at(z->sp, s, b, OP_B);
            int last = whole >= 0 ? whole : job_at(z->sp, s, b, OP_W);
            int where = z->sp->job[z->state[f] == ENDED ? last : f].rank;
            n += where == rank && z->state[f] != WAITS && z->state[last] != ENDED;
        }
    return n;
}

static bool better(const struct job *a, const struct job *b) {
    if (a->prio != b->prio)
        return a->prio < b->prio;
    if (a->b != b->b)
        return a->b < b->b;
    return a->s != b->s ? a->s < b->s : a->d < b->d; /* F < R < I < B < W */
}

/* The job that an idle rank starts at t, or -1. */
static int choice(const struct naive *z, const struct graph *g, int rank, double t) {
    int best = -1, next = -1; /* of the jobs that can start; of those in a strict order, whether or not they can */
    for (int j = 0; j < z->sp->njobs; j++) {
        const struct job *job = &z->sp->job[j];
        if (job->rank != rank || z->state[j] != WAITS)
            continue;
        bool can = ready_at(z, g, j) <= t && (job->d != OP_F || live_on(z, rank) < z->sp->cap[rank]);
        bool ordered = z->sp->strict && !job->fill;
        if (ordered && (next < 0 || better(job, &z->sp->job[next])))
            next = j;
        if (!ordered && can && (best < 0 || better(job, &z->sp->job[best])))
            best = j;
    }
    if (next >= 0) {
        int with = z->sp->job[next].pair ? z->sp->pair[z->sp->job[next].pair - 1].second : next;
        int more = (z->sp->job[next].d == OP_F) + (with != next && z->sp->job[with].d == OP_F);
        bool full = more > 0 && live_on(z, rank) + more > z->sp->cap[rank];
        if (!full && ready_at(z, g, next) <= t && ready_at(z, g, with) <= t)
            return next;
    }
    return best;
}

static void begin(struct naive *z, int j, double t, double cost) {
    z->start[j] = t;
    z->end[j] = t + cost;
    z->state[j] = RUNS;
    z->moment[z->nmoments++] = j;
}

/* All that runs and ends at t is retired, then every idle rank starts its best. */
static void play_round(struct naive *z, const struct graph *g, double t) {
    bool *idle = NEW(bool, z->sp->workers);
    for (int j = 0; j < z->sp->njobs; j++)
        if (z->state[j] == RUNS && z->end[j] == t) {
            z->state[j] = ENDED;
            z->moment[z->nmoments++] = ~j;
        }
    for (int r = 0; r < z->sp->workers; r++)
        idle[r] = true;
    for (int j = 0; j < z->sp->njobs; j++)
        if (z->state[j] == RUNS)
            idle[z->sp->job[j].rank] = false;
    for (int r = 0; r < z->sp->workers; r++) {
        int j = idle[r] ? choice(z, g, r, t) : -1;
        const struct pair *pair = j >= 0 && z->sp->job[j].pair ? &z->sp->pair[z->sp->job[j].pair - 1] : NULL;
        if (pair) {
            begin(z, pair->first, t, pair->cost);
            begin(z, pair->second, t, pair->cost);
        } else if (j >= 0)
            begin(z, j, t, z->sp->job[j].cost);
    }
}

/* When there is another round: at t again, while something that runs ends at t. */
static double next_round(const struct naive *z, const struct graph *g, double t) {
    double next = INFINITY;
    for (int j = 0; j < z->sp->njobs; j++) {
        double ready = z->state[j] == WAITS ? ready_at(z, g, j) : INFINITY;
        if (z->state[j] == RUNS)
            next = fmin(next, z->end[j]);
        else if (ready > t)
            next = fmin(next, ready);
    }
    return next;
}

/* Fills start, end and moment; returns how many jobs could start. */
static int simulate(struct naive *z, const struct graph *g) {
    int started = 0;
    for (int j = 0; j < z->sp->njobs; j++)
        z->start[j] = z->end[j] = INFINITY;
    for (double t = 0; t < INFINITY; t = next_round(z, g, t))
        play_round(z, g, t);
    for (int j = 0; j < z->sp->njobs; j++)
        started += z->state[j] == ENDED;
    return started;
}

static struct naive naive_of(const struct spec *sp, const struct stage *st) {
    int n = sp->njobs;
    return (struct naive){sp, st, NEW(double, n), NEW(double, n), NEW(uint8_t, n), NEW(int32_t, 2 * n), 0};
}

/* The same times, and the same order where times are equal. */
static void expect_same(const struct spec *sp, const struct sched *sc, const struct naive *z) {
    double last = 0;
    int *n = NEW(int, sp->workers);
    for (int j = 0; j < sp->njobs; j++) {
        const char *name = job_name(sp->job[j].s, sp->job[j].b, sp->job[j].d);
        cr_assert_eq(sc->start[j], z->start[j], "%s starts at %g, not %g", name, sc->start[j], z->start[j]);
        cr_assert_eq(sc->end[j], z->end[j], "%s ends at %g, not %g", name, sc->end[j], z->end[j]);
        last = fmax(last, sc->end[j]);
    }
    cr_assert_eq(sc->makespan, last);
    cr_assert(sc->nstarts == sp->njobs && sc->nmoments == 2 * sp->njobs && z->nmoments == sc->nmoments);
    for (int i = 0; i < sc->nmoments; i++) {
        int32_t j = sc->moment[i];
        cr_assert_eq(j, z->moment[i], "moment %d is %d, not %d", i, j, z->moment[i]);
        if (j >= 0) {
            int r = sp->job[j].rank;
            cr_assert(n[r] < sc->norder[r] && sc->order[r][n[r]] == j);
            n[r]++;
        }
    }
}

struct attempt {
    struct spec *sp;
    struct stage *st;
    struct graph *g;
    struct sched *sc;
};

static void attempt(void *x) {
    struct attempt *a = x;
    a->sc = sched_run(a->sp, a->st, a->g);
}

enum { FILL = 1 << 20 }; /* a third of the jobs has no place in a strict order */

static void compare(int first, int n, int flags, int *deadlocks) {
    for (int seed = first; seed < first + n; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, flags & ~FILL);
        for (int j = 0; flags & FILL && j < sp->njobs; j++)
            sp->job[j].fill = below(3) == 0;
        struct stage *st = draw_stages(sp);
        struct attempt a = {sp, st, graph_build(sp), NULL};
        struct naive z = naive_of(sp, st);
        int started = simulate(&z, a.g);
        const char *death = death_of(attempt, &a);
        if (started == sp->njobs) {
            cr_assert_null(death, "seed %d: %s", seed, death);
            expect_same(sp, a.sc, &z);
        } else {
            const char *want = format("pianola: error: drawn.lua: deadlock: %d of %d jobs can never start; ",
                                      sp->njobs - started, sp->njobs);
            cr_assert(death && !strncmp(death, want, strlen(want)), "seed %d: %s", seed, death);
            ++*deadlocks;
        }
        free_all();
    }
}

Test(sched, random_greedy_and_strict) {
    int deadlocks = 0;
    compare(0, 60, 0, &deadlocks);
    compare(1000, 60, ORDERS | LATENCY, &deadlocks);
    compare(2000, 60, ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
}

/* Where times are lost beside others, the order is still that of causes. Deadlocks come with caps alone. */
Test(sched, random_extremes) {
    int deadlocks = 0;
    compare(8000, 200, EXTREME, &deadlocks);
    compare(9000, 200, EXTREME | ORDERS | LATENCY, &deadlocks);
    compare(10000, 200, EXTREME | PAIRS | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
    compare(11000, 200, EXTREME | CAPS | LATENCY, &deadlocks);
    compare(12000, 200, EXTREME | PAIRS | CAPS, &deadlocks);
    cr_assert(deadlocks > 20 && deadlocks < 200, "%d", deadlocks);
}

Test(sched, random_pairs) {
    int deadlocks = 0;
    compare(5000, 60, PAIRS, &deadlocks);
    compare(6000, 80, PAIRS | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
    compare(7000, 80, PAIRS | CAPS, &deadlocks);
    cr_assert(deadlocks > 5 && deadlocks < 60, "%d", deadlocks);
}

Test(sched, random_caps) {
    int deadlocks = 0;
    compare(3000, 80, CAPS, &deadlocks);
    compare(4000, 80, CAPS | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert(deadlocks > 10 && deadlocks < 80, "%d", deadlocks);
}

Test(sched, random_fill) {
    int deadlocks = 0;
    compare(5000, 120, FILL | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
    compare(6000, 120, FILL | CAPS | LATENCY, &deadlocks);
    cr_assert(deadlocks > 10 && deadlocks < 120, "%d", deadlocks);
}

/* ---- known figures ---- */

static struct sched *run(struct spec *sp) { return sched_run(sp, unit_stages(sp), graph_build(sp)); }

static struct spec *one_f_one_b(void) {
    struct spec *sp = pipeline_spec(4, 8, 2);
    for (int r = 0; r < 4; r++)
        sp->cap[r] = 4 - r;
    return sp;
}

/* GPipe (Huang 2019) and 1F1B (PipeDream-flush, Narayanan 2021): (M + P - 1)(F + B) = 33. */
Test(sched, gpipe_and_1f1b) {
    struct spec *sp = pipeline_spec(4, 8, 0);
    struct sched *sc = run(sp);
    cr_assert_eq(sc->makespan, 33);
    cr_assert_eq(sc->start[job_at(sp, 3, 0, OP_B)], 11, "all forwards of the last rank first");
    sp = one_f_one_b();
    sc = run(sp);
    cr_assert_eq(sc->makespan, 33);
    for (int b = 0; b < 8; b++) {
        cr_assert_eq(sc->start[job_at(sp, 3, b, OP_F)], 3 + 3 * b);
        cr_assert_eq(sc->start[job_at(sp, 3, b, OP_B)], 4 + 3 * b);
        cr_assert_eq(sc->start[job_at(sp, 0, b, OP_B)], 10 + 3 * b);
    }
}

/* A hop of latency c each: 33 + 16c and 33 + 6c. */
Test(sched, latency_costs_1f1b_more) {
    for (int c = 0; c <= 2; c++) {
        struct spec *sp[] = {one_f_one_b(), pipeline_spec(4, 8, 0)};
        for (int i = 0; i < 2; i++) {
            sp[i]->link = NEW(struct link, 16);
            for (int k = 0; k < 16; k++)
                sp[i]->link[k] = (struct link){c, INFINITY};
            cr_assert_eq(run(sp[i])->makespan, 33 + (i ? 6 : 16) * c);
        }
    }
}

/* On one rank with n = 0 everywhere: smaller b first, then smaller s, then F before R before I before W. */
Test(sched, ties) {
    struct spec *sp = empty_spec(1, 2, 2);
    for (int s = 0; s < 2; s++)
        for (int b = 0; b < 2; b++)
            for (int d = 0; d < NDIRS; d++)
                if (d != OP_B)
                    add_job(sp, s, b, d, 0, 0);
    static const char *want[] = {"0F0", "0R0", "1F0", "1R0", "1I0", "0I0", "0W0", "1W0",
                                 "0F1", "0R1", "1F1", "1R1", "1I1", "0I1", "0W1", "1W1"};
    struct sched *sc = run(sp);
    for (int i = 0; i < 16; i++) {
        const struct job *j = &sp->job[sc->order[0][i]];
        cr_assert_str_eq(job_name(j->s, j->b, j->d), want[i], "place %d", i);
    }
    sp = empty_spec(1, 1, 2); /* in strict order the ties alone decide: nothing is ready before its time */
    sp->strict = true;
    for (int b = 0; b < 2; b++)
        for (int d = 0; d < NDIRS; d++)
            if (d != OP_B)
                add_job(sp, 0, b, d, 0, 0);
    sc = run(sp);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(sc->order[0][i], i);
}

Test(sched, whole_costs_give_whole_times) {
    struct spec *sp = pipeline_spec(3, 200, 0);
    for (int j = 0; j < sp->njobs; j++)
        sp->job[j].cost = 1e9 + j % 7;
    struct sched *sc = run(sp);
    for (int j = 0; j < sp->njobs; j++)
        cr_assert(sc->start[j] == floor(sc->start[j]) && sc->end[j] == sc->start[j] + sp->job[j].cost);
}

/* ---- deadlocks ---- */

static const char *deadlock(struct spec *sp) {
    return death_of(attempt, &(struct attempt){sp, unit_stages(sp), graph_build(sp), NULL});
}

/* With a cap of 1, stage 1 of the same rank finds no room while stage 0's activation lives. */
Test(sched, a_full_cap_is_explained) {
    struct spec *sp = empty_spec(1, 2, 2);
    for (int s = 0; s < 2; s++)
        for (int b = 0; b < 2; b++) {
            add_job(sp, s, b, OP_F, 0, 0);
            add_job(sp, s, b, OP_B, 0, 0);
        }
    sp->cap[0] = 1;
    cr_assert_str_eq(deadlock(sp), "pianola: error: drawn.lua: deadlock: 7 of 8 jobs can never start; raise the cap "
                                   "or change the order, because\n"
                                   "  0B0 waits for 1B0\n  1B0 waits for 1F0\n"
                                   "  1F0 waits for room on rank 0, whose cap of 1 is full until 0B0\n");
}

/* 0F1 fills: it waits for room, not for its turn. */
Test(sched, a_job_that_fills_is_explained) {
    struct spec *sp = pipeline_spec(1, 2, 0);
    static int32_t pred[] = {0, 2, 2}, pred_at[] = {0, 0, 2, 2, 3}; /* 0B0 needs 0F0 and 0F1 */
    sp->pred = pred;
    sp->pred_at = pred_at;
    sp->strict = true;
    sp->job[2].fill = true;
    sp->cap[0] = 1;
    cr_assert_str_eq(deadlock(sp), "pianola: error: drawn.lua: deadlock: 3 of 4 jobs can never start; raise the cap "
                                   "or change the order, because\n"
                                   "  0B0 waits for 0F1\n"
                                   "  0F1 waits for room on rank 0, whose cap of 1 is full until 0B0\n");
}

/* Rank 0 wants 0B0 before 0F1, rank 1 wants 1F1 before 1B0. */
Test(sched, a_strict_order_is_explained) {
    struct spec *sp = pipeline_spec(2, 2, 0);
    sp->strict = true;
    static const char *order[] = {"0F0", "0B0", "0F1", "0B1", "1F1", "1F0", "1B0", "1B1"};
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 8; i++)
            if (!strcmp(job_name(sp->job[j].s, sp->job[j].b, sp->job[j].d), order[i]))
                sp->job[j].prio = i;
    cr_assert_str_eq(deadlock(sp), "pianola: error: drawn.lua: deadlock: 7 of 8 jobs can never start; raise the cap "
                                   "or change the order, because\n"
                                   "  0B0 waits for 1B0\n"
                                   "  1B0 waits for 1F1, which comes before it in the order of rank 1\n"
                                   "  1F1 waits for 0F1\n"
                                   "  0F1 waits for 0B0, which comes before it in the order of rank 0\n");
}
