/* The best order against all orders of tiny random problems. The judge below knows the rules of schedules/language.md
 * and nothing of classes, states, dominance or ticks.
 *
 * It builds a schedule job by job in the order of starts. Any job whose needs are placed may be next. It starts on its
 * rank as soon as possible, but not before the last job placed. So it covers each schedule in which no job can start
 * earlier without another order on its rank, and one of these is best. A branch ends if a bound on the rest, from what
 * must follow each job and what each rank still has to run, is not below the value to beat. */
#include "search/optimal/frontier.h"
#include "search/optimal/optimal.h"
#include "random_spec.h"
#include "search/bound/bound.h"
#include <criterion/criterion.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
enum { PROBLEMS = 400 };
#else
enum { PROBLEMS = 5000 };
#endif
enum { MOST_JOBS = 24, MOST_RANKS = 4, MOST_ALL_NEEDS = MOST_NEEDS + 2, MOST_PLACED = 20000000 };
static const double NEARLY = 1e-6;

/* ---- the judge ---- */

struct judge {
    const struct spec *sp;
    int n, needs[MOST_JOBS], need[MOST_JOBS][MOST_ALL_NEEDS];
    double delay[MOST_JOBS][MOST_ALL_NEEDS]; /* from the other job's end to this one's start */
    int last[MOST_JOBS];                     /* per F: the job that ends its activation */
    int sorted[MOST_JOBS];                   /* each job after its needs */
    double behind[MOST_JOBS];                /* least time from a job's end to the end of everything */
    double end[MOST_JOBS];                   /* ends of placed jobs */
    bool placed[MOST_JOBS];
    double free[MOST_RANKS], left[MOST_RANKS];
    int live[MOST_RANKS];
    double best; /* the shortest schedule found, or the value to beat */
    long visits;
};

static double cost_of(const struct judge *z, int j) { return z->sp->job[j].cost; }
static int rank_of(const struct judge *z, int j) { return z->sp->job[j].rank; }

/* Returns the delay: tensors reach another rank one latency after the job's end, with unlimited bandwidth. */
static double delay_between(const struct spec *sp, int from, int to) {
    int a = sp->job[from].rank, b = sp->job[to].rank;
    return a == b || !sp->machine.link ? 0 : sp->machine.link[a * sp->workers + b].latency;
}

static void find_needs(struct judge *z, int j) {
    const struct spec *sp = z->sp;
    int32_t need[MOST_NEEDS], *pred = sp->pred ? sp->pred + sp->pred_at[j] : need;
    int n = sp->pred ? sp->pred_at[j + 1] - sp->pred_at[j] : needs_by_design(sp, &sp->job[j], need);
    for (int i = 0; i < n; i++) {
        z->need[j][i] = pred[i];
        z->delay[j][i] = delay_between(sp, pred[i], j);
    }
    z->needs[j] = n;
}

static void sort_jobs(struct judge *z) {
    bool done[MOST_JOBS] = {false};
    for (int n = 0; n < z->n;)
        for (int j = 0; j < z->n; j++) {
            bool ready = !done[j];
            for (int i = 0; i < z->needs[j]; i++)
                ready &= done[z->need[j][i]];
            if (ready) {
                z->sorted[n++] = j;
                done[j] = true;
            }
        }
}

static struct judge judge_of(const struct spec *sp) {
    struct judge z = {.sp = sp, .n = sp->njobs, .best = INFINITY};
    cr_assert(sp->njobs <= MOST_JOBS && sp->workers <= MOST_RANKS);
    for (int j = 0; j < z.n; j++) {
        const struct job *job = &sp->job[j];
        find_needs(&z, j);
        int w = job_at(sp, job->s, job->b, OP_W);
        z.last[j] = w >= 0 ? w : job_at(sp, job->s, job->b, OP_B);
        z.left[job->rank] += job->cost;
    }
    sort_jobs(&z);
    for (int k = z.n - 1; k >= 0; k--) {
        int j = z.sorted[k];
        for (int i = 0; i < z.needs[j]; i++) {
            double *behind = &z.behind[z.need[j][i]];
            *behind = fmax(*behind, z.delay[j][i] + cost_of(&z, j) + z.behind[j]);
        }
    }
    return z;
}

/* Returns whether the rest can end before z->best, with no start before `now`: by what each job waits for, and by the
 * work of each rank. */
static bool has_hope(const struct judge *z, double now) {
    double end[MOST_JOBS];
    for (int r = 0; r < z->sp->workers; r++)
        if (z->left[r] > 0 && fmax(now, z->free[r]) + z->left[r] > z->best - NEARLY)
            return false;
    for (int k = 0; k < z->n; k++) {
        int j = z->sorted[k];
        double t = fmax(now, z->free[rank_of(z, j)]);
        for (int i = 0; i < z->needs[j]; i++)
            t = fmax(t, end[z->need[j][i]] + z->delay[j][i]);
        end[j] = z->placed[j] ? z->end[j] : t + cost_of(z, j);
        if (end[j] + z->behind[j] > z->best - NEARLY)
            return false;
    }
    return true;
}

/* Returns when job j can start next on its rank, or a negative number for not yet. A rank runs one job at a time, so
 * all earlier jobs of its order have ended: the order alone gives the number of live activations. */
static double start_next(const struct judge *z, int j) {
    int r = rank_of(z, j);
    double t = z->free[r];
    if (z->placed[j] || (z->sp->job[j].d == OP_F && z->live[r] >= z->sp->limits.cap[r]))
        return -1;
    for (int i = 0; i < z->needs[j]; i++) {
        if (!z->placed[z->need[j][i]])
            return -1;
        t = fmax(t, z->end[z->need[j][i]] + z->delay[j][i]);
    }
    return t;
}

static int frees(const struct judge *z, int j) { /* the activation that ends with job j */
    const struct job *job = &z->sp->job[j];
    return z->last[job_at(z->sp, job->s, job->b, OP_F)] == j;
}

static void place_next(struct judge *z, int nplaced, double now, int before) {
    if (nplaced == z->n) {
        z->best = 0;
        for (int j = 0; j < z->n; j++)
            z->best = fmax(z->best, z->end[j]);
        return;
    }
    if (++z->visits > MOST_PLACED || !has_hope(z, now))
        return;
    for (int j = 0; j < z->n; j++) {
        double start = start_next(z, j);
        if (start < 0 || start < now || (start == now && j < before))
            continue; /* jobs that start together are tried in the order of their numbers */
        int r = rank_of(z, j), change = (z->sp->job[j].d == OP_F) - frees(z, j);
        double was_free = z->free[r];
        z->placed[j] = true;
        z->free[r] = z->end[j] = start + cost_of(z, j);
        z->left[r] -= cost_of(z, j);
        z->live[r] += change;
        place_next(z, nplaced + 1, start, j);
        z->live[r] -= change;
        z->left[r] += cost_of(z, j);
        z->free[r] = was_free;
        z->placed[j] = false;
    }
}

/* Returns the makespan of the shortest schedule below `limit`, or limit. */
static double best_below(struct judge *z, double limit) {
    z->best = limit;
    place_next(z, 0, 0, -1);
    return z->best;
}

/* Checks that the starts are a schedule, and returns its end. */
static double replayed(const struct judge *z, const int64_t *start, double tick) {
    double makespan = 0;
    for (int j = 0; j < z->n; j++) {
        double t = (double)start[j] * tick, end = t + cost_of(z, j);
        makespan = fmax(makespan, end);
        cr_assert_geq(start[j], 0);
        for (int i = 0; i < z->needs[j]; i++) {
            int p = z->need[j][i];
            cr_assert_leq((double)start[p] * tick + cost_of(z, p) + z->delay[j][i], t + NEARLY * end,
                          "job %d starts before job %d is there", j, p);
        }
        int live = 0;
        for (int k = 0; k < z->n; k++) {
            if (rank_of(z, k) != rank_of(z, j))
                continue;
            double other = (double)start[k] * tick;
            cr_assert(k == j || other + cost_of(z, k) <= t + NEARLY * end || other >= end - NEARLY * end,
                      "jobs %d and %d run at once", j, k);
            live +=
                z->sp->job[k].d == OP_F && other <= t && (double)start[z->last[k]] * tick + cost_of(z, z->last[k]) > t;
        }
        cr_assert_leq(live, z->sp->limits.cap[rank_of(z, j)], "%d live activations when job %d starts", live, j);
    }
    return makespan;
}

/* ---- problems ---- */

struct problem {
    struct spec *sp;
    struct graph *graph;
    const struct instance *in;
    struct judge judge;
};

static void of_problem(void *with) {
    struct problem *x = with;
    struct compile c = parts_of(x->sp, unit_stages(x->sp), x->graph, NULL);
    x->in = instance_of(&c);
}

static struct optimum solve(const struct problem *x) {
    return find_optimum(x->in, x->graph, serial_time(x->in) + 1, INT32_MAX - 1, 0);
}

enum { OF_STAGE, OF_KIND, OF_MICROBATCH, ANYWHERE, PLACEMENTS };

/* Places jobs by stage, by two kinds of microbatches, by microbatch, or each job on its own. */
static void place_jobs(struct spec *sp, int placement) {
    int W = sp->workers, Q = slices_of(&sp->names), *rank = NEW(int, sp->stages * sp->batches * NDIRS);
    for (int i = 0; i < sp->stages * sp->batches * NDIRS; i++)
        rank[i] = below(W);
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
        int b = placement == OF_STAGE ? 0 : placement == OF_KIND ? j->b / Q % 2 : j->b / Q;
        int d = placement != ANYWHERE ? 0 : j->d == OP_R ? OP_B : j->d;
        if (placement == ANYWHERE && d == OP_B && job_at(sp, j->s, j->b, OP_B) < 0)
            d = OP_I; /* R runs where its backward does */
        j->rank = j->home = rank[(j->s * sp->batches + b) * NDIRS + d];
    }
}

/* Draws costs of 1 to 4 by stage and direction. In some specs, some microbatches have costs of their own. */
static void draw_costs(struct spec *sp) {
    int kinds = below(4) == 0 ? 2 : 1, Q = slices_of(&sp->names), *cost = NEW(int, sp->stages *NDIRS * 2);
    for (int i = 0; i < sp->stages * NDIRS * 2; i++)
        cost[i] = 1 + below(4);
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        j->cost = cost[(j->s * NDIRS + j->d) * 2 + j->b / Q % kinds];
}

static struct spec *draw_tiny(uint64_t seed) {
    random_state = seed;
    int W = 2 + below(2), Q = below(6) == 0 ? 2 : 0, S = Q ? 2 : 2 + below(3),
        B = Q ? 2 * (1 + below(2)) : 1 + below(3);
    int split = below(3), again = below(4) == 0;
    struct spec *sp = empty_spec(W, S, B);
    sp->names.slices = Q;
    for (int s = 0; s < S; s++)
        for (int b = 0; b < B; b++) {
            bool two = split == 1 || (split == 2 && s == 0), recompute = again && s % 2 == 0;
            for (int d = 0; d < NDIRS; d++)
                if (!((d == OP_R && !recompute) || (d == OP_B ? two : (d == OP_I || d == OP_W) && !two)))
                    add_job(sp, s, b, d, 0, 0);
        }
    draw_costs(sp);
    place_jobs(sp, below(PLACEMENTS));
    for (int r = 0; r < W; r++)
        if (below(2))
            sp->limits.cap[r] = 1 + below(4);
    if (below(2)) {
        sp->machine.link = NEW(struct link, W * W);
        for (int i = 0; i < W * W; i++)
            sp->machine.link[i] = (struct link){below(3), INFINITY};
    }
    name_sets(&sp->names, S, false, false);
    if (below(6) == 0)
        draw_preds(sp, draw_order(sp));
    return sp;
}

/* Returns whether an activation begins or ends on a capped rank, but not both. */
static bool leaves_a_capped_rank(const struct judge *z) {
    for (int j = 0; j < z->n; j++) {
        int r = rank_of(z, j), other = rank_of(z, z->last[j]);
        if (z->sp->job[j].d == OP_F && r != other &&
            (z->sp->limits.cap[r] < INT_MAX || z->sp->limits.cap[other] < INT_MAX))
            return true;
    }
    return false;
}

struct tally {
    int solved, refused, impossible, covers, too_large;
};

/* Checks the certificate with the independent checker, which must reject one more tick. */
static void check_certificate(const struct instance *in, const struct optimum *found, uint64_t seed) {
    struct optimum claim = *found;
    const char *by;
    for (int more = 0; more < 2; more++) {
        struct text t = {0};
        claim.lower += more;
        emit_certificate(&t, in, &claim, "drawn");
        const char *why = check_bound(read_bound("drawn", t.s), &by);
        cr_assert(more ? why != NULL : why == NULL, "seed %llu: %s\n%s", (unsigned long long)seed, why ? why : by, t.s);
    }
}

static void judge_problem(uint64_t seed, struct tally *tally) {
    struct problem x = {.sp = draw_tiny(seed)};
    if (x.sp->njobs > MOST_JOBS)
        return;
    x.graph = graph_of(x.sp);
    x.judge = judge_of(x.sp);
    const char *refusal = death_of(of_problem, &x);
    cr_assert_eq(refusal != NULL, leaves_a_capped_rank(&x.judge), "seed %d: %s", (int)seed,
                 refusal ? refusal : "taken");
    if (refusal) {
        cr_assert(strstr(refusal, "with a cap, the best order is searched where both run on one rank"), "%s", refusal);
        tally->refused++;
        return;
    }
    struct optimum best = solve(&x);
    double makespan = best.start ? replayed(&x.judge, best.start, x.in->tick) : INFINITY;
    double truth = best_below(&x.judge, makespan);
    if (x.judge.visits > MOST_PLACED) {
        tally->too_large++;
        return;
    }
    cr_assert_eq(truth, makespan, "seed %d: a schedule ends at %g, and the best is said to at %g", (int)seed, truth,
                 makespan);
    cr_assert(!best.gave_up && best.lower == best.makespan, "seed %d: not proved", (int)seed);
    cr_assert(!best.start || (double)best.makespan * x.in->tick == makespan, "seed %d: it ends at %g", (int)seed,
              makespan);
    tally->solved++;
    tally->impossible += !best.start;
    tally->covers += best.proof == PROOF_COVER;
    if (best.start)
        check_certificate(x.in, &best, seed);
}

Test(optimal, no_order_of_any_is_shorter, .timeout = 600) {
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= PROBLEMS; seed++) {
        judge_problem(seed, &tally);
        free_all();
    }
    fprintf(stderr, "%d solved, of which %d impossible; %d refused, %d by covers, %d too large\n", tally.solved,
            tally.impossible, tally.refused, tally.covers, tally.too_large);
    cr_assert_gt(tally.solved, PROBLEMS / 2);
    cr_assert_gt(tally.impossible, PROBLEMS / 100);
    cr_assert_gt(tally.covers, PROBLEMS / 40);
    cr_assert_lt(tally.too_large, PROBLEMS / 100);
}

/* A search that is cut short still gives a bound below the optimum, and an order above it. */
Test(optimal, given_up, .timeout = 600) {
    int open = 0;
    for (uint64_t seed = 1; seed <= PROBLEMS / 4; seed++) {
        struct problem x = {.sp = draw_tiny(seed)};
        x.graph = x.sp->njobs <= MOST_JOBS ? graph_of(x.sp) : NULL;
        if (x.graph && (x.judge = judge_of(x.sp), !leaves_a_capped_rank(&x.judge))) {
            of_problem(&x);
            struct optimum best = find_optimum(x.in, x.graph, serial_time(x.in) + 1, 1 + (int64_t)seed % 30, 0);
            double found = best.start ? replayed(&x.judge, best.start, x.in->tick) : INFINITY;
            double truth = best_below(&x.judge, found), lower = (double)best.lower * x.in->tick;
            cr_assert(truth <= found && (lower <= truth || isinf(truth)), "seed %d: %g, %g, %g", (int)seed, lower,
                      truth, found);
            cr_assert(!best.start || best.lower < best.makespan || truth == found, "seed %d: %g is not best", (int)seed,
                      found);
            open += best.lower < best.makespan;
        }
        free_all();
    }
    cr_assert_gt(open, PROBLEMS / 100);
}

/* ---- over the cap ---- */

/* Judges each cap by all orders: the optimum lies between the point's bound and its makespan. The last cap hardly
 * limits. */
static int judge_frontier(struct problem *x, const struct frontier *frontier) {
    double above = INFINITY, truth = INFINITY;
    int open = 0;
    for (int i = 0; i < frontier->n; i++) {
        const struct point *point = &frontier->point[i];
        double found = isnan(point->makespan) ? INFINITY : point->makespan;
        double lower = isnan(point->lower) ? INFINITY : point->lower;
        for (int r = 0; r < x->sp->workers; r++)
            x->sp->limits.cap[r] = point->cap;
        x->judge = judge_of(x->sp);
        truth = best_below(&x->judge, INFINITY);
        cr_assert(lower <= truth && truth <= found, "cap %d: %g is not in %g..%g", point->cap, truth, lower, found);
        cr_assert_leq(lower, above, "with more room, no less than %g, but with less, than %g", lower, above);
        cr_assert(!point->proved || (truth == found && truth == lower));
        above = lower;
        open += !point->proved;
    }
    cr_assert(frontier->free.makespan == frontier->point[frontier->n - 1].makespan);
    for (int r = 0; r < x->sp->workers; r++)
        x->sp->limits.cap[r] = INT_MAX;
    x->judge = judge_of(x->sp);
    truth = best_below(&x->judge, INFINITY);
    cr_assert(frontier->free.lower <= truth && truth <= frontier->free.makespan);
    return open;
}

struct frontier_of {
    struct problem *problem;
    struct searches searches;
    struct frontier frontier;
};
static void of_frontier(void *with) {
    struct frontier_of *x = with;
    struct compile c = parts_of(x->problem->sp, unit_stages(x->problem->sp), x->problem->graph, NULL);
    x->frontier = find_frontier(&c, x->searches);
}

/* The checker accepts every certificate, also for caps that no order fits, and of searches that are cut short. */
static bool accepts(void *context, const struct point *point, const char *certificate, const int64_t *start) {
    struct bound *bound = read_bound("drawn", certificate);
    double *proved = context;
    const char *by, *why = check_bound(bound, &by);
    (void)start;
    proved[point->cap] = (double)bound->limit * bound->tick;
    cr_assert_null(why, "cap %d: %s", point->cap, why);
    return true;
}

/* Every other search is cut short, some so early that no order is found. */
Test(optimal, frontiers, .timeout = 600) {
    int open = 0, points = 0, handed = 0, unbounded = 0;
    for (uint64_t seed = 1; seed <= PROBLEMS; seed++) {
        struct problem x = {.sp = draw_tiny(seed)};
        place_jobs(x.sp, below(ANYWHERE)); /* not ANYWHERE: a backward runs on the rank of its forward */
        if (x.sp->njobs <= 16) {
            x.graph = graph_of(x.sp);
            double proved[MOST_JOBS]; /* bounds proved by the certificate with each cap, and at 0 without a cap */
            struct frontier_of of = {&x,
                                     {.context = proved,
                                      .states = seed % 2 ? INT32_MAX - 1 : (int64_t)(3 + seed % 197),
                                      .ended = accepts,
                                      .command = "drawn"},
                                     {0}};
            const char *why = death_of(of_frontier, &of);
            cr_assert(!why || (seed % 2 == 0 && strstr(why, "give more --time")), "seed %d: %s", (int)seed, why);
            int left = why ? 0 : judge_frontier(&x, &of.frontier);
            for (int i = 0; !why && i < of.frontier.n; i++) {
                const struct point *point = &of.frontier.point[i];
                cr_assert(isnan(point->lower) || fabs(proved[point->by] - point->lower) < NEARLY,
                          "cap %d, by %d: %g is proved, not %g", point->cap, point->by, proved[point->by],
                          point->lower);
                handed += point->by != point->cap;
                unbounded += point->by == 0;
            }
            cr_assert(left == 0 || seed % 2 == 0, "seed %d: %d points are not proved", (int)seed, left);
            open += left;
            points += of.frontier.n;
        }
        free_all();
    }
    cr_assert(open > 0 && points > 100, "%d of %d points are not proved", open, points);
    printf("%d bounds from larger caps, %d of them without any\n", handed, unbounded);
}

/* ---- sizes ---- */

/* Returns a pipeline on as many ranks as stages, or on one, with these costs of F and B in turn. */
static struct problem pipeline_of(int stages, int batches, bool one_rank, const double *cost, int ncosts) {
    struct problem x = {.sp = empty_spec(one_rank ? 1 : stages, stages, batches)};
    for (int s = 0; s < stages; s++)
        for (int b = 0; b < batches; b++)
            for (int d = OP_F; d <= OP_B; d += OP_B - OP_F) {
                int rank = one_rank ? 0 : s;
                add_job(x.sp, s, b, d, rank, rank)->cost = cost[(2 * s + (d == OP_B)) % ncosts];
            }
    x.graph = graph_of(x.sp);
    x.judge = judge_of(x.sp);
    return x;
}

/* Times that are multiples of one tick are exact. */
static void expect_exact(const double *cost, int ncosts) {
    for (int one_rank = 0; one_rank < 2; one_rank++) {
        struct problem x = pipeline_of(3, 2, one_rank, cost, ncosts);
        of_problem(&x);
        struct optimum best = solve(&x);
        double truth = best_below(&x.judge, INFINITY), found = replayed(&x.judge, best.start, x.in->tick);
        cr_assert(!x.in->rounded && best.lower == best.makespan);
        cr_assert_float_eq(found / truth, 1, NEARLY, "%g instead of %g", found, truth);
        cr_assert_float_eq((double)best.lower * x.in->tick / truth, 1, NEARLY);
        free_all();
    }
}

Test(optimal, one_job) {
    struct problem x = {.sp = empty_spec(1, 1, 1)};
    add_job(x.sp, 0, 0, OP_F, 0, 0)->cost = 3;
    x.graph = graph_of(x.sp);
    of_problem(&x);
    struct optimum best = solve(&x);
    cr_assert(best.start && best.start[0] == 0 && (double)best.makespan * x.in->tick == 3 &&
              best.lower == best.makespan);
    free_all();
}

Test(optimal, times_of_any_unit) {
    expect_exact((double[]){0.1, 0.2, 0.3}, 3);
    expect_exact((double[]){0.3, 0.7, 1.1, 0.1}, 4);
    expect_exact((double[]){1.0 / 3, 2.0 / 3, 1}, 3);
    expect_exact((double[]){1e-9, 2e-9, 5e-9}, 3);
    expect_exact((double[]){1e9, 3e9}, 2);
    expect_exact((double[]){7, 11, 13, 997, 10007}, 5);
}

/* The bound is rounded down: it is close to the optimum, and never above it. */
static void expect_bound(const double *cost, int ncosts, int batches) {
    struct problem x = pipeline_of(2, batches, false, cost, ncosts);
    of_problem(&x);
    struct optimum best = solve(&x);
    double truth = best_below(&x.judge, INFINITY), lower = (double)best.lower * x.in->tick;
    cr_assert(x.in->rounded);
    cr_assert_leq(lower, truth * (1 + 1e-12), "no less than %.17g, and %.17g is possible", lower, truth);
    cr_assert_geq(lower, truth * 0.99);
    free_all();
}

Test(optimal, times_without_a_tick) {
    const double pi = 3.141592653589793, e = 2.718281828459045;
    for (int batches = 1; batches <= 3; batches++) {
        expect_bound((double[]){pi, e}, 2, batches);
        expect_bound((double[]){pi, e, sqrt(2), 1 / pi}, 4, batches);
        expect_bound((double[]){1, 1e-5 * pi, e, 1e-6}, 4, batches); /* far less than a thousandth of the longest */
    }
}

/* Times that no tick can count are refused, not rounded up. */
Test(optimal, times_too_far_apart) {
    struct problem x = pipeline_of(2, 2, false, (double[]){1e9, 1e-9}, 2);
    const char *refusal = death_of(of_problem, &x);
    cr_assert(refusal && strstr(refusal, "too far apart"), "%s", refusal ? refusal : "taken");
    free_all();
}

/* A wait longer than all jobs together must fit into a state's clocks. */
Test(optimal, a_long_latency) {
    struct problem x = pipeline_of(2, 3, false, (double[]){1, 2}, 2);
    x.sp->machine.link = NEW(struct link, 4);
    for (int i = 0; i < 4; i++)
        x.sp->machine.link[i] = (struct link){1e6, INFINITY};
    x.judge = judge_of(x.sp);
    of_problem(&x);
    struct optimum best = solve(&x);
    double truth = best_below(&x.judge, INFINITY);
    cr_assert(replayed(&x.judge, best.start, x.in->tick) == truth && best.lower == best.makespan);
    free_all();
}
