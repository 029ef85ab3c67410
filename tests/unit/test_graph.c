/* The job graph against the text of schedules/language.md ("Default dependencies"), and the shortest cycle against
 * brute force. */
#include "base/cycle.h"
#include "random_spec.h"
#include <criterion/criterion.h>
#include <stdlib.h>

static int ascending(const void *x, const void *y) { return *(const int32_t *)x - *(const int32_t *)y; }

static void expect_needs(const struct spec *sp, const struct graph *g, int j, int32_t *want, int n) {
    int32_t *got = NEW(int32_t, n + 1);
    const char *name = job_name(NULL, sp->job[j].s, sp->job[j].b, sp->job[j].d);
    int found = 0;
    for (int e = g->pred_at[j]; e < g->pred_at[j + 1]; e++) { /* one of two edges for two tensors */
        bool again = false;
        for (int i = 0; i < found; i++)
            again |= got[i] == g->pred[e];
        cr_assert(again || found < n, "%s", name);
        if (!again)
            got[found++] = g->pred[e];
    }
    cr_assert_eq(found, n, "%s", name);
    qsort(got, (size_t)n, sizeof *got, ascending);
    qsort(want, (size_t)n, sizeof *want, ascending);
    cr_assert(!memcmp(got, want, sizeof *got * (size_t)n), "%s", name);
}

/* Checks that every edge is among its predecessor's successors once, and that both ends name each other. */
static void expect_transposed(const struct spec *sp, const struct graph *g) {
    cr_assert_eq(g->n, sp->njobs);
    cr_assert_eq(g->succ_at[g->n], g->pred_at[g->n]);
    int edges = g->pred_at[g->n];
    bool *seen = NEW(bool, edges);
    for (int j = 0; j < g->n; j++)
        for (int e = g->succ_at[j]; e < g->succ_at[j + 1]; e++) {
            int k = g->succ[e], back = g->succ_edge[e];
            cr_assert(back >= g->pred_at[k] && back < g->pred_at[k + 1] && g->pred[back] == j && !seen[back]);
            seen[back] = true;
            cr_assert(has_edge(g, k, j));
        }
}

/* Checks that each tensor between two jobs has its own edge. */
static void expect_tensors(const struct spec *sp, const struct graph *g, int j) {
    uint32_t *has = NEW(uint32_t, sp->njobs);
    for (int e = g->pred_at[j]; e < g->pred_at[j + 1]; e++) {
        cr_assert(!(has[g->pred[e]] >> g->kind[e] & 1));
        has[g->pred[e]] |= (uint32_t)1 << g->kind[e];
    }
    for (int p = 0; p < sp->njobs; p++) {
        int kind[2];
        uint32_t want = 0;
        for (int n = has[p] ? carried(sp, &sp->job[p], &sp->job[j], kind) : 0; n > 0; n--)
            want |= (uint32_t)1 << kind[n - 1];
        cr_assert_eq(has[p], want, "%s", job_name(&sp->names, sp->job[j].s, sp->job[j].b, sp->job[j].d));
    }
}

Test(graph, default_dependencies) {
    for (int seed = 0; seed < 400; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, seed < 200 ? 0 : SLICES);
        const struct graph *g = graph_of(sp);
        int32_t need[MOST_NEEDS];
        for (int j = 0; j < sp->njobs; j++) {
            expect_needs(sp, g, j, need, needs_by_design(sp, &sp->job[j], need));
            expect_tensors(sp, g, j);
        }
        expect_transposed(sp, g);
        free_all();
    }
}

/* Two stages, one microbatch: stage 0 recomputes and splits its backward, stage 1 does neither. */
Test(graph, each_rule_by_hand) {
    struct spec *sp = empty_spec(1, 2, 1);
    static const uint8_t first[] = {OP_F, OP_R, OP_I, OP_W}, second[] = {OP_F, OP_B};
    for (int i = 0; i < 4; i++)
        add_job(sp, 0, 0, first[i], 0, 0);
    for (int i = 0; i < 2; i++)
        add_job(sp, 1, 0, second[i], 0, 0);
    const struct graph *g = graph_of(sp);
    enum { F0, R0, I0, W0, F1, B1 };
    expect_needs(sp, g, F0, (int32_t[]){-1}, 0);
    expect_needs(sp, g, R0, (int32_t[]){F0}, 1);
    expect_needs(sp, g, I0, (int32_t[]){R0, B1}, 2);
    expect_needs(sp, g, W0, (int32_t[]){I0}, 1);
    expect_needs(sp, g, F1, (int32_t[]){F0}, 1);
    expect_needs(sp, g, B1, (int32_t[]){F1}, 1);
    cr_assert(!has_edge(g, B1, F0) && has_edge(g, F1, F0) && !has_edge(g, F0, F1));
}

Test(graph, custom_dependencies_replace_the_default) {
    int custom = 0;
    for (int seed = 0; seed < 100; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, ORDERS | (seed % 2 ? SLICES : 0));
        const struct graph *g = graph_of(sp);
        for (int j = 0; sp->pred && j < sp->njobs; j++) {
            int n = sp->pred_at[j + 1] - sp->pred_at[j];
            int32_t *want = NEW(int32_t, n + 1);
            memcpy(want, sp->pred + sp->pred_at[j], sizeof *want * (size_t)n);
            expect_needs(sp, g, j, want, n);
        }
        custom += sp->pred != NULL;
        expect_transposed(sp, g);
        free_all();
    }
    cr_assert_gt(custom, 25);
}

/* One stage, two microbatches; jobs are 0F0, 0B0, 0F1, 0B1. */
static struct spec *custom_spec(int32_t *at, int32_t *pred) {
    struct spec *sp = empty_spec(1, 1, 2);
    for (int b = 0; b < 2; b++) {
        add_job(sp, 0, b, OP_F, 0, 0);
        add_job(sp, 0, b, OP_B, 0, 0);
    }
    sp->pred_at = at;
    sp->pred = pred;
    return sp;
}

static void build(void *sp) { graph_of(sp); }

Test(graph, a_cycle_is_named) {
    struct spec *sp = custom_spec((int32_t[]){0, 1, 2, 3, 4}, (int32_t[]){3, 0, 1, 2});
    cr_assert_str_eq(death_of(build, sp), "pianola: error: drawn.lua: the jobs' dependencies form a cycle of 4; "
                                          "remove one of these from pred():\n"
                                          "  0F0 needs 0B1\n  0B1 needs 0F1\n  0F1 needs 0B0\n  0B0 needs 0F0\n");
    sp = custom_spec((int32_t[]){0, 1, 2, 2, 3}, (int32_t[]){0, 0, 2});
    cr_assert_str_eq(death_of(build, sp), "pianola: error: drawn.lua: the jobs' dependencies form a cycle of 1; "
                                          "remove one of these from pred():\n  0F0 needs 0F0\n");
}

Test(graph, what_a_job_reads_must_be_listed) {
    struct spec *sp = custom_spec((int32_t[]){0, 0, 1, 1, 1}, (int32_t[]){0});
    cr_assert_str_eq(death_of(build, sp), "pianola: error: drawn.lua: pred() of 0B1 does not list 0F1, whose stash "
                                          "it reads; add {0, 1, \"F\"} to what it returns\n");
}

/* Returns the length of a shortest cycle, from all shortest paths (Floyd & Warshall 1962). */
static int brute_force(int n, const int32_t *at, const int32_t *to) {
    int far = 1000, d[16][16];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            d[i][j] = far;
    for (int v = 0; v < n; v++)
        for (int e = at[v]; e < at[v + 1]; e++)
            d[v][to[e]] = 1;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                d[i][j] = d[i][k] + d[k][j] < d[i][j] ? d[i][k] + d[k][j] : d[i][j];
    int best = far;
    for (int i = 0; i < n; i++)
        best = d[i][i] < best ? d[i][i] : best;
    return best == far ? 0 : best;
}

static void expect_cycle(int n, const int32_t *at, const int32_t *to, int want) {
    int len;
    const int32_t *cycle = shortest_cycle(n, at, to, &len);
    cr_assert_eq(len, want, "a cycle of %d, but there is one of %d", len, want);
    for (int i = 0; i < len; i++) {
        bool edge = false;
        for (int e = at[cycle[i]]; e < at[cycle[i] + 1]; e++)
            edge |= to[e] == cycle[(i + 1) % len];
        cr_assert(edge, "%d -> %d is no edge", cycle[i], cycle[(i + 1) % len]);
    }
}

Test(graph, shortest_cycle_by_brute_force) {
    int found = 0;
    for (int seed = 0; seed < 3000; seed++) {
        random_state = (uint64_t)seed;
        int n = 2 + below(14), edges = 0, dense = 1 + below(2);
        int32_t at[17] = {0}, to[16 * 16];
        for (int v = 0; v < n; at[++v] = edges)
            for (int u = 0; u < n; u++)
                if (u != v && below(n) < dense)
                    to[edges++] = u;
        int want = brute_force(n, at, to);
        if (want)
            expect_cycle(n, at, to, want);
        found += want > 2;
        free_all();
    }
    cr_assert_gt(found, 200);
}

/* The first cycle that a walk meets, 0 1 2, shares nothing with the shortest one, 3 4. */
Test(graph, a_shorter_cycle_elsewhere) {
    expect_cycle(5, (int32_t[]){0, 1, 2, 3, 4, 5}, (int32_t[]){1, 2, 0, 4, 3}, 2);
}

Test(graph, a_long_cycle_with_a_short_cut) {
    enum { N = 1000 };
    int32_t at[N + 1], to[N + 1];
    for (int v = 0; v <= N; v++)
        at[v] = v < 11 ? v : v + 1;
    for (int v = 0; v < N; v++)
        to[at[v]] = (v + 1) % N;
    to[11] = 400; /* node 10 has two edges */
    expect_cycle(N, at, to, N - (400 - 11));
    to[11] = 11;
    expect_cycle(N, at, to, N);
}
