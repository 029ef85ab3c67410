/* Durations on both sides of all operations of a kind, and of all that goes over a link: how far a prediction is from a
 * measurement, say. Each operation gives one ratio, its duration in B over that in A; a group's bias is their median,
 * its spread the quartiles. Whether its change is more than chance is asked of its sum in each step. */
#include "base/map.h"
#include "diff.h"
#include <string.h>

/* Which group each of A's operations belongs to. */
struct grouping {
    int32_t *of; /* -1: none */
    int n;
    const char **name;
};

/* Of n sorted numbers, the one that `share` of them do not exceed. */
static double quantile(const double *x, int n, double share) { return x[(int)(share * (n - 1) + 0.5)]; }

/* Adds each step's durations of the groups: sum[g * steps + k]. */
static double *sums(const struct diff *d, int side, const struct grouping *z) {
    const struct side *a = d->side[0], *s = d->side[side];
    int steps = side_nsteps(s);
    double *sum = NEW(double, z->n *steps), *one = NEW(double, steps);
    for (int i = 0; i < a->n; i++) {
        if (z->of[i] < 0 || !diff_compares(&a->op[i]))
            continue;
        diff_sample(s, side ? a->op[i].match : i, false, one);
        for (int k = 0; k < steps; k++)
            sum[z->of[i] * steps + k] += one[k];
    }
    return sum;
}

static void add_all(const struct diff *d, const struct grouping *z, struct diff_group *group, double *ratio) {
    const struct side *a = d->side[0], *b = d->side[1];
    int32_t *at = NEW(int32_t, z->n + 1); /* the ratios of group g go to ratio[at[g] ..) */
    for (int i = 0; i < a->n; i++)
        if (z->of[i] >= 0)
            at[z->of[i] + 1]++;
    for (int g = 0; g < z->n; g++)
        at[g + 1] += at[g];
    for (int i = 0; i < a->n; i++) {
        const struct diff_op *x = &a->op[i];
        if (z->of[i] < 0 || !diff_compares(x))
            continue;
        struct diff_group *g = &group[z->of[i]];
        double in_a = (double)diff_took(a, x) * d->tick, in_b = (double)diff_took(b, &b->op[x->match]) * d->tick;
        g->longer += x->longer;
        g->a += in_a;
        g->b += in_b;
        if (in_a > 0)
            ratio[at[z->of[i]] + g->n++] = in_b / in_a;
    }
    for (int g = 0; g < z->n; g++) {
        struct diff_group *k = &group[g];
        if (!k->n)
            continue;
        k->bias = median_of(&ratio[at[g]], k->n);
        k->low = quantile(&ratio[at[g]], k->n, 0.25);
        k->high = quantile(&ratio[at[g]], k->n, 0.75);
    }
}

/* The groups of which something changed, at *out. */
static int make_groups(const struct diff *d, const struct grouping *z, struct diff_group **out) {
    struct diff_group *group = *out = NEW(struct diff_group, z->n);
    int n[2] = {side_nsteps(d->side[0]), side_nsteps(d->side[1])}, kept = 0;
    double *sum[2] = {sums(d, 0, z), sums(d, 1, z)};
    add_all(d, z, group, NEW(double, d->side[0]->n));
    for (int g = 0; g < z->n; g++) {
        group[g].name = z->name[g];
        group[g].p = diff_p(sum[0] + g * n[0], n[0], sum[1] + g * n[1], n[1]);
        if (group[g].longer)
            group[kept++] = group[g];
    }
    return kept;
}

static struct grouping by_kind(const struct side *s) {
    struct grouping z = {NEW(int32_t, s->n), NOPS, NEW(const char *, NOPS)};
    for (int op = 0; op < NOPS; op++)
        z.name[op] = op_name[op];
    for (int i = 0; i < s->n; i++)
        z.of[i] = s->op[i].op;
    return z;
}

/* A message belongs to the link it comes over, by its RECV, which lasts from its SEND's begin; a reduction to its
 * group's lane. */
static struct grouping by_link(const struct side *s) {
    struct grouping z = {NEW(int32_t, s->n), 0, NEW(const char *, s->n)};
    struct map map = map_new((size_t)s->n);
    int32_t *first = NEW(int32_t, s->n); /* of each link */
    for (int i = 0; i < s->n; i++) {
        const struct diff_op *o = &s->op[i];
        bool reduces = is_group(o->op);
        z.of[i] = -1;
        if (!reduces && !is_recv(o->op))
            continue;
        uint64_t hash = hash_add(1, o->peer);
        for (const char *c = reduces ? s->lane[o->lane].name : ""; *c; c++)
            hash = hash_add(hash, *c);
        hash = reduces ? hash : hash_add(hash, o->rank);
        uint32_t at = map_start(&map, hash);
        for (int k; (k = map.slot[at] - 1) >= 0 && z.of[i] < 0;) {
            const struct diff_op *f = &s->op[first[k]];
            if (reduces ? is_group(f->op) && !strcmp(s->lane[f->lane].name, s->lane[o->lane].name)
                        : !is_group(f->op) && f->rank == o->rank && f->peer == o->peer)
                z.of[i] = k;
            else
                at = map_next(&map, at);
        }
        if (z.of[i] >= 0)
            continue;
        z.name[z.n] = reduces ? s->lane[o->lane].name : format("%d to %d", o->peer, o->rank);
        first[z.n] = i;
        z.of[i] = z.n++;
        map.slot[at] = z.n;
    }
    return z;
}

void diff_groups(struct diff *d) {
    struct grouping kinds = by_kind(d->side[0]), links = by_link(d->side[0]);
    d->nkinds = make_groups(d, &kinds, &d->kind);
    d->nlinks = make_groups(d, &links, &d->link);
}
