/* The least largest span at whole ticks, against all orders of tiny pipelines. For each order, it is the least span for
 * which difference constraints on the jobs' starts have a solution (Bellman 1958); ranks may begin at any time. */
#include "search/optimal/optimal.h"
#include "passes/passes.h"
#include "script/scripts.h"
#include "passes_of.h"
#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 2, MOST_JOBS = 12, LONGEST = 96 };

struct tiny {
    const struct spec *sp;
    const struct graph *graph;
    int cap, best;
    bool alike;
    bool used[RANKS * MOST_JOBS];
    int32_t order[RANKS][MOST_JOBS];
    int n[RANKS];
};

static int length(const struct tiny *z, int32_t j) { return (int)z->sp->job[j].cost; }

/* Returns whether all ranks can keep this span: longest paths, with an edge back from each rank's last job to its
 * first, converge unless a cycle has positive length. */
static bool can_start(const struct tiny *z, int span) {
    int start[RANKS * MOST_JOBS] = {0};
    for (int round = 0; round <= z->sp->njobs; round++) {
        bool moved = false;
        for (int32_t j = 0; j < z->sp->njobs; j++)
            for (int32_t e = z->graph->pred_at[j]; e < z->graph->pred_at[j + 1]; e++) {
                int32_t i = z->graph->pred[e];
                moved |= start[j] < start[i] + length(z, i);
                start[j] = start[j] < start[i] + length(z, i) ? start[i] + length(z, i) : start[j];
            }
        for (int r = 0; r < RANKS; r++) {
            for (int k = 1; k < z->n[r]; k++) {
                int32_t i = z->order[r][k - 1], j = z->order[r][k];
                moved |= start[j] < start[i] + length(z, i);
                start[j] = start[j] < start[i] + length(z, i) ? start[i] + length(z, i) : start[j];
            }
            if (!z->n[r])
                continue; /* the rank runs nothing */
            int32_t first = z->order[r][0], last = z->order[r][z->n[r] - 1];
            int begin = start[last] + length(z, last) - span;
            moved |= start[first] < begin;
            start[first] = start[first] < begin ? begin : start[first];
        }
        if (!moved)
            return true;
    }
    return false;
}

static void enumerate(struct tiny *z, int r, int k, int live);

static bool may_come(const struct tiny *z, int32_t j, int r, int live) {
    const struct job *job = &z->sp->job[j];
    if (job->rank != r || z->used[j] || (job->d == OP_F && z->cap && live == z->cap))
        return false;
    for (int32_t e = z->graph->pred_at[j]; e < z->graph->pred_at[j + 1]; e++)
        if (z->sp->job[z->graph->pred[e]].rank == r && !z->used[z->graph->pred[e]])
            return false;
    int32_t before = job->b > 0 ? job_at(z->sp, job->s, job->b - 1, job->d) : -1;
    return !z->alike || before < 0 || z->used[before];
}

/* Tries all orders of rank r from its k-th job on. Equal microbatches keep ascending order in each direction. */
static void enumerate_rank(struct tiny *z, int r, int k, int live) {
    if (k == z->n[r]) {
        enumerate(z, r + 1, 0, 0);
        return;
    }
    for (int32_t j = 0; j < z->sp->njobs; j++) {
        if (!may_come(z, j, r, live))
            continue;
        int d = z->sp->job[j].d;
        z->order[r][k] = j;
        z->used[j] = true;
        enumerate_rank(z, r, k + 1, live + (d == OP_F) - (d == OP_B || d == OP_W));
        z->used[j] = false;
    }
}

static void enumerate(struct tiny *z, int r, int k, int live) {
    if (r < RANKS) {
        enumerate_rank(z, r, k, live);
        return;
    }
    while (z->best > 1 && can_start(z, z->best - 1))
        z->best--;
}

static void check(const char *src, int cap) {
    struct script_args args = {.schedule = "test.lua", .text = NEW(struct script_text, 3)};
    args.text[0] = (struct script_text){copy_string(src), strlen(src)};
    struct spec *sp = script_load(&args);
    struct costs *costs = costs_make(sp);
    struct graph *graph = graph_build(costs);
    struct tiny z = {.sp = sp, .graph = graph, .cap = cap, .best = LONGEST, .alike = cap > 0};
    for (int32_t j = 0; j < sp->njobs; j++)
        z.n[sp->job[j].rank]++;
    enumerate(&z, 0, 0, 0);
    struct compile c = parts_of(sp, costs, graph, NULL);
    struct instance *in = instance_of(&c);
    minimise_span(in);
    struct optimum best = find_optimum(in, graph, serial_time(in) + 1, 1000000, 0);
    cr_assert_eq(best.lower, best.makespan);
    cr_assert_lt(z.best, LONGEST);
    double span = (double)best.makespan * in->tick;
    cr_assert_float_eq(span, z.best, 1e-9, "%g by the search, %d by all orders:\n%s", span, z.best, src);
}

static uint32_t random_below(uint32_t *state, uint32_t n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % n;
}

static void check_pipelines(int batches, bool split, int times) {
    uint32_t state = (uint32_t)batches;
    for (int i = 0; i < times; i++) {
        int cost[6], cap = 1 + (int)random_below(&state, 3);
        for (int k = 0; k < 6; k++)
            cost[k] = 1 + (int)random_below(&state, 3);
        check(format("return schedule { workers = 2, stages = 2, batches = %d, cap = %d, split_backward = %s,\n"
                     "w = function(s) return s, s end,\n"
                     "cost = function(s, b, d) return ({ F = { %d, %d }, B = { %d, %d }, I = { %d, %d },\n"
                     "W = { %d, %d } })[d][s + 1] end }",
                     batches, cap, split ? "true" : "false", cost[0], cost[1], cost[2], cost[3], cost[2], cost[3],
                     cost[4], cost[5]),
              cap);
    }
}

/* Microbatches take different ways through the ranks, so a late start may pay. */
static void check_ways(int stages, int batches, int times) {
    uint32_t state = (uint32_t)(stages + batches);
    for (int i = 0; i < times; i++) {
        struct text rank = {0}, cost = {0};
        for (int s = 0; s < stages; s++) {
            put_word(&rank, " {");
            for (int b = 0; b < batches; b++) {
                put(&rank, " %u,", (unsigned)random_below(&state, RANKS));
                put(&cost, " %u, %u,", 1 + (unsigned)random_below(&state, 5), 1 + (unsigned)random_below(&state, 5));
            }
            put_word(&rank, " },");
        }
        check(format("local rank = {%s }\nlocal cost = {%s }\n"
                     "return schedule { workers = %d, stages = %d, batches = %d,\n"
                     "w = function(s, b) return 0, rank[s + 1][b + 1] end,\n"
                     "cost = function(s, b, d) return cost[2 * (s * %d + b) + (d == 'F' and 1 or 2)] end }",
                     rank.s, cost.s, RANKS, stages, batches, batches),
              0);
    }
}

Test(span, whole_backwards) {
    check_pipelines(2, false, 100);
    check_pipelines(3, false, 40);
}
Test(span, split_backwards) { check_pipelines(2, true, 40); }

Test(span, ways) {
    check_ways(1, 3, 40);
    check_ways(2, 2, 200);
    check_ways(3, 2, 40);
}

/* Returns the span of ZB-H1 or ZB-H2 (Qi 2023, section 2.3), whose bubbles are (P - 1)(F + I - W) and 0. */
static int64_t span_with(int cap) {
    const char *src =
        format("return schedule { workers = 4, stages = 4, batches = 8, cap = %d, split_backward = true,\n"
               "w = function(s) return s, s end }",
               cap);
    struct script_args args = {.schedule = "test.lua", .text = NEW(struct script_text, 3)};
    args.text[0] = (struct script_text){copy_string(src), strlen(src)};
    struct spec *sp = script_load(&args);
    struct costs *costs = costs_make(sp);
    struct graph *graph = graph_build(costs);
    struct compile c = parts_of(sp, costs, graph, NULL);
    struct instance *in = instance_of(&c);
    minimise_span(in);
    struct optimum best = find_optimum(in, graph, serial_time(in) + 1, 1000000, 0);
    cr_assert_eq(best.lower, best.makespan);
    return best.makespan;
}
Test(span, zero_bubble) {
    cr_assert_eq(span_with(4), 27);
    cr_assert_eq(span_with(7), 24);
}
