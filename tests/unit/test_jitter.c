/* Makespans with noise: properties of any program, and the distribution for the smallest programs. */
#include "random_spec.h"
#include <criterion/criterion.h>

struct compiled {
    struct spec *sp;
    struct costs *costs;
    struct program *p;
};

static struct compiled compile(struct spec *sp, struct costs *costs) {
    struct graph *g = graph_of(sp);
    struct compiled c = {sp, costs, lower_of(sp, costs, g, sched_of(sp, costs, g))};
    mem_of(sp, c.p);
    lanes_sync(c.p);
    return c;
}

static void set_links(struct spec *sp, double latency, double bandwidth) {
    sp->machine.link = NEW(struct link, sp->workers * sp->workers);
    for (int i = 0; i < sp->workers * sp->workers; i++)
        sp->machine.link[i] = (struct link){latency, bandwidth};
}

static double *makespans(const struct compiled *c, double level, uint64_t seed, int runs) {
    double *all = NEW(double, runs);
    struct compile with = parts_of(c->sp, c->costs, NULL, c->p);
    sim_noisy(&with, level, seed, runs, all);
    return all;
}

/* A makespan is a maximum of sums of times that are linear in the level, so with one seed it is convex in the level.
 * All times lie within the level of themselves, and so does the makespan. */
Test(jitter, bounds_of_any_program) {
    enum { RUNS = 8 };
    for (int seed = 0; seed < 150; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, ORDERS | COARSE | BANDWIDTH | (seed % 2 ? SHARDED : PAIRS));
        sp->choices.launch = (enum launch_order)(seed % 3);
        struct compiled c = compile(sp, draw_stages(sp));
        double exact = sim_of(c.sp, c.costs, c.p)->makespan, slack = 1e-9 * exact;
        const double *none = makespans(&c, 0, 7, RUNS), *some = makespans(&c, 0.25, 7, RUNS),
                     *more = makespans(&c, 0.5, 7, RUNS), *again = makespans(&c, 0.5, 7, 2 * RUNS);
        for (int i = 0; i < RUNS; i++) {
            cr_assert_eq(none[i], exact, "seed %d: no noise, run %d", seed, i);
            cr_assert(more[i] >= 0.5 * exact - slack && more[i] <= 1.5 * exact + slack, "seed %d: %g of %g", seed,
                      more[i], exact);
            cr_assert(some[i] <= (exact + more[i]) / 2 + slack, "seed %d: %g, %g, %g", seed, exact, some[i], more[i]);
            cr_assert_eq(again[i], more[i], "seed %d: a run depends on no other", seed);
        }
        free_all();
    }
}

/* Checks that the mean and the standard deviation, relative to `of`, are within 5 % of the expected values. */
static void distributed(const char *what, const double *x, int n, double mean, double deviation) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    for (int i = 0; i < n; i++)
        squares += (x[i] - sum / n) * (x[i] - sum / n);
    double found = sqrt(squares / n);
    cr_assert(fabs(sum / n - mean) < 4 * deviation / sqrt(n), "%s: mean %g, not %g", what, sum / n, mean);
    cr_assert(fabs(found - deviation) < 0.05 * deviation, "%s: deviation %g, not %g", what, found, deviation);
}

/* A number uniform in [-l, l] has the deviation l / sqrt(3); independent ones add up by their squares. */
enum { MANY = 4000 };

Test(jitter, jobs_one_after_the_other) {
    struct spec *sp = pipeline_spec(1, 10, 0); /* 10 F of 1, 10 B of 2 */
    struct compiled c = compile(sp, unit_stages(sp));
    distributed("chain", makespans(&c, 0.3, 1, MANY), MANY, 30, 0.3 / sqrt(3) * sqrt(10 * 1 + 10 * 4));
}

/* Both sides of a message have the same noise: it arrives at one time, not at the slower of two. A latency is as noisy
 * as a transfer. */
Test(jitter, a_message_is_one) {
    for (int bytes = 0; bytes < 2; bytes++) {
        struct spec *sp = pipeline_spec(2, 1, 0);
        set_links(sp, bytes ? 0 : 100, bytes ? 0.01 : INFINITY);
        struct compiled c = compile(sp, unit_stages(sp));
        distributed(bytes ? "bytes" : "latency", makespans(&c, 0.3, 1, MANY), MANY, 206,
                    0.3 / sqrt(3) * sqrt(2 * 1e4 + 2 * 1 + 2 * 4));
    }
}

/* The same for a collective of four: 2 (4 - 1) steps of latency 100, with nothing waiting after it. */
Test(jitter, a_collective_is_one) {
    struct spec *sp = empty_spec(4, 1, 4);
    for (int b = 0; b < 4; b++) {
        add_job(sp, 0, b, OP_F, b, b)->cost = 0;
        add_job(sp, 0, b, OP_B, b, b)->cost = 0;
    }
    set_links(sp, 100, INFINITY);
    struct compiled c = compile(sp, unit_stages(sp));
    double exact = sim_of(c.sp, c.costs, c.p)->makespan;
    cr_assert(exact > 0);
    distributed("all-reduce", makespans(&c, 0.3, 1, MANY), MANY, exact, 0.3 / sqrt(3) * exact);
}

/* Takes the 95th of a hundred, the 19th of twenty, the last of ten, and the mean of all. */
Test(jitter, percentile_by_its_definition) {
    struct spec *sp = pipeline_spec(4, 8, 0);
    struct compiled c = compile(sp, unit_stages(sp));
    static const int runs[] = {1, 10, 19, 20, 21, 100, 200, 333};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int n = runs[i], within;
        double *all = makespans(&c, 0.1, 3, n), sum = 0;
        struct compile with = parts_of(c.sp, c.costs, NULL, c.p);
        struct jitter *j = jitter_make(&with, 0.1, 3, n);
        for (int k = 0; k < n; k++)
            sum += all[k];
        qsort(all, (size_t)n, sizeof *all, by_value);
        for (within = 1; within * 100 < n * 95; within++)
            ;
        cr_assert(j->level == 0.1 && j->runs == n);
        cr_assert_eq(j->p95, all[within - 1], "of %d", n);
        cr_assert_eq(j->worst, all[n - 1], "of %d", n);
        cr_assert_float_eq(j->mean, sum / n, 1e-9, "of %d", n);
    }
}
