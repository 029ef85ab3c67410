/* Measured steps: the significance tests against counts by hand and by brute force, the alignment of clocks, and the
 * median step. */
#include "random_spec.h"
#include "diff/diff.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

/* ---- tests of significance ---- */

/* Tries all ways to choose n of the n + m; returns the share whose rank sum is as far from the middle as this one. */
static double by_brute_force(const double *x, int n, const double *y, int m) {
    double all[32];
    int ways = 0, extreme = 0;
    double u0 = 0;
    for (int i = 0; i < n; i++)
        all[i] = x[i];
    for (int j = 0; j < m; j++)
        all[n + j] = y[j];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            u0 += x[i] > y[j];
    for (uint32_t set = 0; set < 1u << (n + m); set++) {
        if (__builtin_popcount(set) != n)
            continue;
        double u = 0;
        for (int i = 0; i < n + m; i++)
            for (int j = 0; j < n + m; j++)
                u += (set >> i & 1) && !(set >> j & 1) && all[i] > all[j];
        ways++;
        extreme += fabs(u - n * m / 2.0) >= fabs(u0 - n * m / 2.0);
    }
    return (double)extreme / ways;
}

Test(diff_steps, rank_sum_is_exact) {
    random_state = 7;
    for (int turn = 0; turn < 60; turn++) {
        int n = 2 + turn % 5, m = 2 + turn / 5 % 5;
        double x[8], y[8];
        for (int i = 0; i < n; i++)
            x[i] = below(1000000) + 0.5; /* no two are equal */
        for (int j = 0; j < m; j++)
            y[j] = below(1000000) + 0.001 * j;
        double want = by_brute_force(x, n, y, m), got = rank_sum_test(x, n, y, m);
        cr_assert_float_eq(got, want, 1e-12, "%d against %d: %g, by brute force %g", n, m, got, want);
    }
}

/* Published: for samples of 10 and 10, the two-sided 5 % point of U is 23 (tables after Mann & Whitney 1947). */
Test(diff_steps, rank_sum_has_the_known_critical_value) {
    double p[101];
    for (int u = 0; u <= 100; u++) {
        double x[10], y[10];
        for (int i = 0; i < 10; i++) { /* x[i] exceeds as many y as bring the total to u */
            int above = u / 10 + (i < u % 10);
            x[i] = above + 0.5 + 0.01 * i;
            y[i] = i + 1;
        }
        p[u] = rank_sum_test(x, 10, y, 10);
    }
    cr_assert(p[23] <= 0.05 && p[24] > 0.05, "%g %g", p[23], p[24]);
    cr_assert_float_eq(p[50], 1, 1e-9);
    cr_assert_float_eq(p[10], p[90], 1e-12);
}

Test(diff_steps, ties_and_many_steps) {
    double x[40], y[40];
    for (int i = 0; i < 40; i++)
        x[i] = y[i] = i % 4;
    cr_assert_gt(rank_sum_test(x, 40, y, 40), 0.9);
    for (int i = 0; i < 40; i++)
        y[i] = x[i] + 2;
    cr_assert_lt(rank_sum_test(x, 40, y, 40), 1e-6);
    double same[3] = {1, 1, 1}, other[3] = {1, 1, 1};
    cr_assert_eq(rank_sum_test(same, 3, other, 3), 1);
}

Test(diff_steps, sign) {
    double y[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    cr_assert_float_eq(sign_test(0, y, 10), 2 / 1024.0, 1e-12);
    cr_assert_float_eq(sign_test(1.5, y, 10), 2 * 11 / 1024.0, 1e-12);
    cr_assert_float_eq(sign_test(5.5, y, 10), 1, 1e-12);
    cr_assert_float_eq(sign_test(1, y, 10), 2 / 512.0, 1e-12); /* an equal pair does not count */
    double many[2000];
    for (int i = 0; i < 2000; i++)
        many[i] = i;
    /* enough for 2^n to overflow */
    cr_assert_lt(sign_test(1891.5, many, 2000), 1e-6);
    cr_assert_float_eq(sign_test(955.5, many, 2000), 0.0517, 5e-4); /* 956 of 2000: 1.945 standard deviations */
}

/* ---- steps of a program on known clocks ---- */

struct run {
    struct program *p;
    struct timeline *tl;
    struct timeline_rows *rows;
};

static struct run make(uint64_t seed, int flags) {
    struct spec *sp = draw_spec(seed, flags);
    struct costs *costs = draw_stages(sp);
    struct graph *g = graph_of(sp);
    struct run z = {.p = lower_of(sp, costs, g, sched_of(sp, costs, g))};
    mem_of(sp, z.p);
    lanes_sync(z.p);
    z.tl = sim_of(sp, costs, z.p);
    return z;
}

/* Turns the predicted timeline into measured steps, each `late` after the previous one, on each rank's own clock. */
static struct timeline_rows *measure(const struct run *z, int steps, double late, const double *clock) {
    struct text t = {0};
    emit_tsv(&t, z->p, z->tl, "s");
    struct timeline_rows *one = read_tsv("t.tsv", t.s), *all = NEW(struct timeline_rows, 1);
    all->n = one->n;
    all->nsteps = steps;
    all->step = NEW(int, steps);
    all->row = NEW(struct timeline_row, one->n * steps + 1);
    for (int k = 0; k < steps; k++) {
        all->step[k] = k + 2;
        for (int i = 0; i < one->n; i++) {
            struct timeline_row *x = &all->row[k * one->n + i];
            *x = one->row[i];
            x->start += k * late + (clock ? clock[x->rank] : 0);
            x->end += k * late + (clock ? clock[x->rank] : 0);
        }
    }
    return all;
}

Test(diff_steps, one_clock_is_left_alone) {
    for (uint64_t seed = 1; seed <= 100; seed++, free_all()) {
        struct run z = make(seed, BANDWIDTH);
        struct side *s = side_of_program("p", z.p, NULL);
        side_times(s, "t.tsv", measure(&z, 3, 1000, NULL), "");
        cr_assert_null(s->clocks.offset, "seed %d", (int)seed);
        struct side *again = side_of_program("q", z.p, z.tl);
        for (int i = 0; i < s->n; i++)
            cr_assert(fabs(s->end[i] - again->end[i]) < 1e-9 &&
                      (is_message(s->op[i].op) || fabs(s->start[i] - again->start[i]) < 1e-9));
    }
}

/* Aligns distant clocks so that every end of every operation is right within the reported error. */
Test(diff_steps, clocks_are_set) {
    int set = 0;
    for (uint64_t seed = 1; seed <= 200; seed++, free_all()) {
        struct run z = make(seed, BANDWIDTH);
        double *clock = NEW(double, z.p->workers);
        for (int r = 1; r < z.p->workers; r++)
            clock[r] = ((double)below(2000001) - 1000000) * z.tl->makespan / 1000;
        struct side *s = side_of_program("p", z.p, NULL);
        side_times(s, "t.tsv", measure(&z, 2, 5 * z.tl->makespan, clock), "");
        if (!s->clocks.offset)
            continue;
        set++;
        for (int i = 0; i < s->n; i++) { /* no message arrives before it was sent */
            const struct diff_op *o = &s->op[i];
            bool sends = is_message(o->op) && op_lane[o->op] == LANE_SEND;
            cr_assert(!sends || s->end[o->ring] >= s->start[i] - 1e-6 * z.tl->makespan, "seed %d", (int)seed);
        }
    }
    cr_assert_gt(set, 100, "%d", set);
}

/* If messages between two ranks take equally long both ways, their clocks are found exactly. */
Test(diff_steps, clocks_by_hand) {
    static const char text[] = "step\trank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\n"
                               "5\t0\tsend 1\t100\t101\tSEND_F\t0\t0\t1\t4\n"
                               "5\t0\trecv 1\t104\t106\tRECV_B\t1\t0\t1\t4\n"
                               "5\t1\tsend 0\t54\t55\tSEND_B\t1\t0\t0\t4\n"
                               "5\t1\trecv 0\t51\t52\tRECV_F\t0\t0\t0\t4\n";
    struct side *s = side_of_rows("t", read_tsv("t.tsv", text)); /* there: 52 - 100; back: 106 - 54 */
    cr_assert(s->clocks.offset && s->clocks.offset[0] == 0 && s->clocks.offset[1] == 50, "%g",
              s->clocks.offset ? s->clocks.offset[1] : NAN);
    cr_assert_eq(s->clocks.error, 2);
    cr_assert(s->start[0] == 1 && s->end[0] == 1 && s->end[3] == 2 && s->start[2] == 4);
    cr_assert_str_eq(s->unit, "s");
}

/* Overlapping jobs count as work once: a prediction has the bubble of steps in which the same jobs overlapped more. */
Test(diff_steps, bubble_of_jobs_that_overlap) {
    struct text t = {0};
    put(&t, "step\trank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\n");
    for (int k = 1; k <= 6; k++)
        put(&t, "%d\t0\tcompute\t0\t4\tF\t0\t0\t\t\n%d\t0\tcompute\t0\t4\tB\t0\t0\t\t\n", k, k);
    static const char one[] = "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\n"
                              "0\tcompute\t0\t2\tF\t0\t0\t\t\n"
                              "0\tcompute\t2\t4\tB\t0\t0\t\t\n";
    struct diff *d = diff_make(side_of_rows("a", read_tsv("a", one)), side_of_rows("b", read_tsv("b", t.s)));
    cr_assert_eq(d->p[F_MAKESPAN], 1);
    cr_assert_eq(d->p[F_BUBBLE], 1);
}

/* The median of two ratios lies between them. */
Test(diff_steps, median_ratio) {
    static const char a[] = "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\n"
                            "0\tcompute\t0\t1\tF\t0\t0\t\t\n"
                            "0\tcompute\t1\t2\tF\t0\t1\t\t\n";
    static const char b[] = "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\n"
                            "0\tcompute\t0\t2\tF\t0\t0\t\t\n"
                            "0\tcompute\t2\t6\tF\t0\t1\t\t\n";
    struct diff *d = diff_make(side_of_rows("a", read_tsv("a", a)), side_of_rows("b", read_tsv("b", b)));
    cr_assert(d->kinds.n == 1 && d->kinds.of->bias == 3 && d->kinds.of->low == 2 && d->kinds.of->high == 4);
}
