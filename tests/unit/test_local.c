/* Local search over orders: its result is an order of the same jobs that takes the reported time, and no less than the
 * proved optimum. */
#include "search/optimal/local.h"
#include "search/optimal/optimal.h"
#include "random_spec.h"
#include <criterion/criterion.h>

static const struct judgement no_noise = {0};

struct drawn {
    struct spec *sp;
    struct costs *costs;
    struct graph *graph;
    struct compile c;
    struct lists lists;
    int64_t least; /* ticks */
    double tick;
};

static void schedule(void *with) {
    struct drawn *x = with;
    x->c = parts_of(x->sp, x->costs, x->graph, NULL);
    struct sched *sched = sched_run(&x->c);
    x->lists = (struct lists){sched->order, sched->norder};
}

static void bound(void *with) {
    struct drawn *x = with;
    const struct instance *in = instance_of(&x->c);
    x->least = find_optimum(in, x->graph, serial_time(in) + 1, 20000, 0).lower;
    x->tick = in->tick;
}

static void check_lists(const struct drawn *x) {
    bool *there = NEW(bool, x->sp->njobs);
    int n = 0;
    for (int r = 0; r < x->sp->workers; r++)
        for (int i = 0; i < x->lists.n[r]; i++) {
            int32_t j = x->lists.job[r][i];
            cr_assert(!there[j] && x->sp->job[j].rank == r);
            there[j] = true;
            n++;
        }
    cr_assert_eq(n, x->sp->njobs);
}

Test(local, no_better_than_the_best, .timeout = 300) {
    int better = 0, bounded = 0, tried = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct drawn x = {.sp = draw_spec(seed, CAPS | LATENCY)};
        x.costs = unit_stages(x.sp);
        x.graph = graph_of(x.sp);
        if (x.sp->njobs <= 60 && !death_of(schedule, &x)) {
            double before = judge_order(&x.c, x.lists, no_noise, NULL);
            double after = improve_order(&x.c, x.lists, no_noise, &(struct local){seed, 100, 0, 0});
            check_lists(&x);
            cr_assert(after <= before && after == judge_order(&x.c, x.lists, no_noise, NULL),
                      "seed %d: %g before, %g after", (int)seed, before, after);
            tried++;
            better += after < before;
            if (!death_of(bound, &x)) {
                cr_assert(after >= (double)x.least * x.tick * (1 - 1e-9), "seed %d: %g, and %g is proved", (int)seed,
                          after, (double)x.least * x.tick);
                bounded++;
            }
        }
        free_all();
    }
    cr_assert(better > tried / 10 && bounded > tried / 10, "%d of %d became better, %d had bounds", better, tried,
              bounded);
}

/* Running one microbatch after another takes 96; running all forwards first takes 33, the optimum. */
static struct drawn one_by_one(void) {
    struct drawn x = {.sp = pipeline_spec(4, 8, 0)};
    x.costs = unit_stages(x.sp);
    x.graph = graph_of(x.sp);
    int64_t *start = NEW(int64_t, x.sp->njobs);
    for (int32_t j = 0; j < x.sp->njobs; j++)
        start[j] = 2 * x.sp->job[j].b + (x.sp->job[j].d != OP_F);
    x.lists = lists_by_start(x.sp, start);
    x.c = parts_of(x.sp, x.costs, x.graph, NULL);
    return x;
}

Test(local, from_far_away, .timeout = 300) {
    struct drawn x = one_by_one();
    cr_assert_eq(judge_order(&x.c, x.lists, no_noise, NULL), 96);
    double after = improve_order(&x.c, x.lists, no_noise, &(struct local){1, 4000, 0, 0});
    cr_assert(after >= 33 && after <= 39, "%g", after);
    struct drawn again = one_by_one();
    improve_order(&again.c, again.lists, no_noise, &(struct local){1, 4000, 0, 0});
    for (int r = 0; r < 4; r++)
        cr_assert_arr_eq(again.lists.job[r], x.lists.job[r], sizeof(int32_t) * 16);
    free_all();
}

/* With its own runs of noise, the order only improves; a list that does not run stays unchanged. */
Test(local, noise, .timeout = 300) {
    const struct judgement noise = {0.2, 7, 50};
    struct drawn x = one_by_one();
    struct jitter before, after;
    judge_order(&x.c, x.lists, noise, &before);
    double p95 = improve_order(&x.c, x.lists, noise, &(struct local){1, 500, 0, 0});
    cr_assert_eq(judge_order(&x.c, x.lists, noise, &after), p95);
    cr_assert(after.p95 == p95 && p95 < before.p95 && after.mean <= after.p95);
    struct drawn stuck = one_by_one();
    int32_t first = stuck.lists.job[3][0];
    stuck.lists.job[3][0] = stuck.lists.job[3][1];
    stuck.lists.job[3][1] = first;
    cr_assert(isinf(improve_order(&stuck.c, stuck.lists, no_noise, &(struct local){1, 10, 0, 0})));
    cr_assert_eq(stuck.lists.job[3][1], first);
    free_all();
}
