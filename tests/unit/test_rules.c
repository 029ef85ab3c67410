/* Rules and patterns for best orders: the written script runs again, also with more microbatches, and what ranks hold
 * is counted here. */
#include "search/optimal/closed.h"
#include "search/optimal/optimal.h"
#include "passes/passes.h"
#include "script/scripts.h"
#include "passes_of.h"
#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <string.h>

struct result {
    struct closed closed;
    const struct spec *sp;
    double optimum;
    struct steady steady;
};

static struct script_args args_of(const char *src, int batches) {
    struct script_args args = {.schedule = "test.lua", .text = NEW(struct script_text, 3), .set = NEW(const char *, 1)};
    args.text[0] = (struct script_text){copy_string(src), strlen(src)};
    args.set[args.nset++] = format("batches=%d", batches);
    return args;
}

/* Closes a search. src: a script with the parameter batches. */
static struct result close_with(const char *src, int batches, enum aim aim) {
    struct script_args args = args_of(src, batches);
    struct compile c = {.args = args};
    compile_until(&c, GRAPH);
    const struct spec *sp = c.spec;
    struct instance *in = instance_of(&c);
    struct optimum best = find_optimum(in, c.graph, serial_time(in) + 1, 1000000, 0);
    cr_assert_eq(best.makespan, best.lower);
    struct closed closed = find_closed(&c, lists_by_start(sp, best.start), best.start, in, aim, 100000, 0);
    return (struct result){closed, sp, (double)best.makespan * in->tick, steady_bound(in, batches)};
}

static struct result close_best(const char *src, int batches) { return close_with(src, batches, AIM_MAKESPAN); }

static const char *straight(const char *more) {
    return format("local p = params { batches = 8 }\n"
                  "return schedule { workers = 4, stages = 4, batches = p.batches,\n"
                  "w = function(s) return s, s end, %s }",
                  more);
}
static const char *in_a_v(const char *more) {
    return format("local p = params { batches = 8 }\n"
                  "local function r(s) return s < 4 and s or 7 - s end\n"
                  "return schedule { workers = 4, stages = 8, batches = p.batches,\n"
                  "w = function(s) return r(s), r(s) end, %s }",
                  more);
}

/* Runs the written script and returns its time. No rank may ever hold more than the cap; all jobs are there. */
static double run_closed(const struct closed *closed, int batches, int jobs, int cap) {
    struct script_args args = args_of(closed->body.s, batches);
    args.nset = closed->kind ? 1 : 0; /* a sequence lists its microbatches */
    struct spec *sp = script_load(&args);
    const struct costs *costs = costs_make(sp);
    struct sched *sc = sched_of(sp, costs, graph_build(costs));
    cr_assert_eq(sp->njobs, jobs);
    for (int r = 0; r < sp->workers; r++)
        for (int i = 0, live = 0; i < sc->norder[r]; i++) {
            const struct job *job = &sp->job[sc->order[r][i]];
            live += job->d == OP_F;
            cr_assert_leq(live, cap, "rank %d holds %d activations, and may hold %d\n%s", r, live, cap, closed->body.s);
            live -= job->d == OP_W || job->d == OP_B;
        }
    return sc->makespan;
}

/* Checks that it takes the optimum, and with more microbatches the reported time, which is proved least for `proved` of
 * these numbers. */
static void check_closed(const char *src, const char *kind, double optimum, int cap, int proved) {
    struct result result = close_best(src, 8);
    const struct closed *closed = &result.closed;
    cr_assert_float_eq(result.optimum, optimum, 1e-9);
    cr_assert(closed->kind && !strcmp(closed->kind, kind), "%s: %s\n%s", kind, closed->kind ? closed->kind : "none",
              closed->body.s);
    cr_assert_float_eq(run_closed(closed, 8, result.sp->njobs, cap), optimum, 1e-9);
    cr_assert_eq(closed->nholds, HOLDS);
    for (int i = 0; i < HOLDS; i++) {
        const struct hold *hold = &closed->hold[i];
        int times = 2 << i;
        cr_assert_eq(hold->batches, 8 * times);
        cr_assert_float_eq(run_closed(closed, 8 * times, result.sp->njobs * times, cap * (cap == 8 ? times : 1)),
                           hold->makespan, 1e-9);
        cr_assert_leq(hold->lower, hold->best);
        cr_assert_leq(hold->best, hold->makespan);
        cr_assert(i >= proved || hold->lower >= hold->makespan - 1e-9, "%d: %g %g %g", hold->batches, hold->lower,
                  hold->best, hold->makespan);
    }
}

Test(rules, one_forward_one_backward) {
    check_closed(straight("cap = 4"), "n", 33, 4, HOLDS);
    struct result result = close_best(straight("cap = 4"), 8);
    cr_assert(strstr(result.closed.body.s, "n = backward_first,"));
}
/* An order that is faster because ranks hold more does not count. */
Test(rules, caps) { check_closed(straight("cap = 3"), "n", 39, 3, HOLDS); }

Test(rules, gpipe) { check_closed(straight("n = forward_first"), "n", 33, 8, HOLDS); }
Test(rules, zero_bubble) { check_closed(straight("split_backward = true, cap = 4"), "n", 27, 4, HOLDS); }

/* The V of 1F1B, and V-Min (Qi 2024). */
Test(rules, pattern) {
    check_closed(in_a_v("cap = 6"), "pattern", 63, 6, 1);
    check_closed(in_a_v("cap = 4, split_backward = true"), "pattern", 59, 4, 1);
}

/* A repeating part must have each job of a microbatch: GPipe's forwards alone do not. */
Test(rules, no_pattern) {
    struct script_args args = args_of(straight("n = forward_first"), 8);
    struct spec *sp = script_load(&args);
    const struct costs *costs = costs_make(sp);
    struct sched *sc = sched_of(sp, costs, graph_build(costs));
    struct text t = {0};
    for (int period = 1; period <= 4; period++)
        cr_assert_not(emit_pattern(&t, costs, (struct lists){sc->order, sc->norder}, period, 8));
}

/* If a period found with 8 microbatches is slower than the best with more, the result says so. */
Test(rules, falls_behind) {
    struct result result = close_best(in_a_v("cap = 6, split_backward = true"), 8);
    cr_assert_str_eq(result.closed.kind, "pattern");
    cr_assert_lt(result.closed.hold[0].best, result.closed.hold[0].makespan);
}

/* Microbatches of a stage take turns on the ranks: no n of stage and microbatch, and no pattern, expresses that. */
Test(rules, none) {
    struct result result = close_best("local p = params { batches = 4 }\n"
                                      "return schedule { workers = 2, stages = 2, batches = p.batches,\n"
                                      "w = function(s, b) return s, (s + b) % 2 end }",
                                      4);
    cr_assert_null(result.closed.kind);
    cr_assert_eq(result.closed.nholds, 0);
    cr_assert_float_eq(run_closed(&result.closed, 4, 16, INT_MAX), result.optimum, 1e-9);
}

/* Times and recompute come from the script. */
Test(rules, costs) {
    const char *src = straight("cap = 3, recompute = function(s, b) return s > 0 end,\n"
                               "cost = function(s, b, d) return d == 'F' and 1 + s or d == 'B' and 3 or 1 end");
    struct result result = close_best(src, 8);
    cr_assert_not_null(result.closed.kind);
    cr_assert_float_eq(run_closed(&result.closed, 8, result.sp->njobs, 3), result.optimum, 1e-9);
}

/* ---- steady states ---- */

static void check_period(const char *src, double work, double memory, double period, int cap) {
    struct result result = close_with(src, 8, AIM_PERIOD);
    cr_assert_float_eq(result.steady.work, work, 1e-9);
    cr_assert_float_eq(result.steady.memory, memory, 1e-9, "%g", result.steady.memory);
    cr_assert_float_eq(result.closed.period, period, 1e-9, "%g", result.closed.period);
    double growth = run_closed(&result.closed, 300, result.sp->njobs / 8 * 300, cap) -
                    run_closed(&result.closed, 240, result.sp->njobs / 8 * 240, cap);
    cr_assert_float_eq(growth / 60, period, 1e-9);
}

/* Rank 0 holds an activation for 4 forwards and 4 backwards of 2: 12, with that much room. */
Test(rules, period) {
    check_period(straight("cap = 1"), 3, 12, 12, 1);
    check_period(straight("cap = 2"), 3, 6, 6, 2);
    check_period(straight("cap = 3"), 3, 4, 4, 3);
    check_period(straight("cap = 4"), 3, 3, 3, 4);
}

/* A W follows its own I: 4 F, 4 I and a W on rank 0. In a V, rank 0 holds the first stage's for 17, the last's for
 * 3. */
Test(rules, period_of_split_backwards) {
    check_period(straight("cap = 4, split_backward = true"), 3, 9. / 4, 3, 4);
    check_period(in_a_v("cap = 4, split_backward = true"), 6, 20. / 4, 6, 4);
}
