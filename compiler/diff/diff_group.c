/* Compares durations on both sides by kind of operation and by link, for example to see how far off a prediction is.
 * Each operation gives one ratio, its duration in B over its duration in A. A group's bias is the median of the ratios,
 * its spread the quartiles. The test of whether a change is more than chance uses the group's sum in each step. */
#include "base/map.h"
#include "diff.h"
#include <string.h>

/* The group of each of A's operations */
struct grouping {
    int32_t *of; /* -1: none */
    int n;
    const char **name;
};

/* Returns the quantile of n sorted numbers that `share` of them do not exceed. */
static double quantile(const double *x, int n, double share) { return x[(int)(share * (n - 1) + 0.5)]; }

/* Returns each group's durations added up per step: sum[g * steps + k]. */
static double *sum_groups(const struct diff *diff, int side, const struct grouping *grouping) {
    const struct side *a = diff->side[0], *s = diff->side[side];
    int steps = side_nsteps(s);
    double *sum = NEW(double, grouping->n *steps), *one = NEW(double, steps);
    for (int i = 0; i < a->n; i++) {
        if (grouping->of[i] < 0 || !diff_compares(&a->op[i]))
            continue;
        diff_sample(s, side ? a->op[i].match : i, false, one);
        for (int k = 0; k < steps; k++)
            sum[grouping->of[i] * steps + k] += one[k];
    }
    return sum;
}

static void add_all(const struct diff *diff, const struct grouping *grouping, struct diff_group *group, double *ratio) {
    const struct side *a = diff->side[0], *b = diff->side[1];
    int32_t *at = NEW(int32_t, grouping->n + 1); /* the ratios of group g go to ratio[at[g] ..) */
    for (int i = 0; i < a->n; i++)
        if (grouping->of[i] >= 0)
            at[grouping->of[i] + 1]++;
    for (int g = 0; g < grouping->n; g++)
        at[g + 1] += at[g];
    for (int i = 0; i < a->n; i++) {
        const struct diff_op *op = &a->op[i];
        if (grouping->of[i] < 0 || !diff_compares(op))
            continue;
        struct diff_group *g = &group[grouping->of[i]];
        double in_a = (double)diff_took(a, op) * diff->tick,
               in_b = (double)diff_took(b, &b->op[op->match]) * diff->tick;
        g->longer += op->longer;
        g->a += in_a;
        g->b += in_b;
        if (in_a > 0)
            ratio[at[grouping->of[i]] + g->n++] = in_b / in_a;
    }
    for (int g = 0; g < grouping->n; g++) {
        struct diff_group *k = &group[g];
        if (!k->n)
            continue;
        k->bias = median_of(&ratio[at[g]], k->n);
        k->low = quantile(&ratio[at[g]], k->n, 0.25);
        k->high = quantile(&ratio[at[g]], k->n, 0.75);
    }
}

/* Stores the groups in which something changed in *out. Returns their number. */
static int make_groups(const struct diff *diff, const struct grouping *grouping, struct diff_group **out) {
    struct diff_group *group = *out = NEW(struct diff_group, grouping->n);
    int n[2] = {side_nsteps(diff->side[0]), side_nsteps(diff->side[1])}, kept = 0;
    double *sum[2] = {sum_groups(diff, 0, grouping), sum_groups(diff, 1, grouping)};
    add_all(diff, grouping, group, NEW(double, diff->side[0]->n));
    for (int g = 0; g < grouping->n; g++) {
        group[g].name = grouping->name[g];
        group[g].p = diff_p(sum[0] + g * n[0], n[0], sum[1] + g * n[1], n[1]);
        if (group[g].longer)
            group[kept++] = group[g];
    }
    return kept;
}

static struct grouping by_kind(const struct side *side) {
    struct grouping grouping = {NEW(int32_t, side->n), NOPS, NEW(const char *, NOPS)};
    for (int op = 0; op < NOPS; op++)
        grouping.name[op] = op_name[op];
    for (int i = 0; i < side->n; i++)
        grouping.of[i] = side->op[i].op;
    return grouping;
}

/* Groups by link. A message belongs to the link it arrives over, and counts with its RECV's duration from the SEND's
 * start. A reduction belongs to its group's lane. */
static struct grouping by_link(const struct side *side) {
    struct grouping grouping = {NEW(int32_t, side->n), 0, NEW(const char *, side->n)};
    struct map map = map_new((size_t)side->n);
    int32_t *first = NEW(int32_t, side->n); /* per link: its first operation */
    for (int i = 0; i < side->n; i++) {
        const struct diff_op *o = &side->op[i];
        bool reduces = is_group(o->op);
        grouping.of[i] = -1;
        if (!reduces && !is_recv(o->op))
            continue;
        uint64_t hash = hash_add(1, o->peer);
        for (const char *c = reduces ? side->lane[o->lane].name : ""; *c; c++)
            hash = hash_add(hash, *c);
        hash = reduces ? hash : hash_add(hash, o->rank);
        uint32_t at = map_start(&map, hash);
        for (int k; (k = map.slot[at] - 1) >= 0 && grouping.of[i] < 0;) {
            const struct diff_op *f = &side->op[first[k]];
            if (reduces ? is_group(f->op) && !strcmp(side->lane[f->lane].name, side->lane[o->lane].name)
                        : !is_group(f->op) && f->rank == o->rank && f->peer == o->peer)
                grouping.of[i] = k;
            else
                at = map_next(&map, at);
        }
        if (grouping.of[i] >= 0)
            continue;
        grouping.name[grouping.n] = reduces ? side->lane[o->lane].name : format("%d to %d", o->peer, o->rank);
        first[grouping.n] = i;
        grouping.of[i] = grouping.n++;
        map.slot[at] = grouping.n;
    }
    return grouping;
}

void diff_groups(struct diff *diff) {
    struct grouping kinds = by_kind(diff->side[0]), links = by_link(diff->side[0]);
    diff->kinds.n = make_groups(diff, &kinds, &diff->kinds.of);
    diff->links.n = make_groups(diff, &links, &diff->links.of);
}
