/* The partitioner against all partitions: every way to give the layers of a small graph to stages, and the stages to
 * machines. The papers' times are implemented again here, without cuts: a layer has a stage, and no edge leads to an
 * earlier one. */
#include "search/partition/partition.h"
#include "../support/random.h"
#include "script/scripts.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 6, MACHINES = 5 };

static struct profile *random_graph(uint64_t *seed, int n, bool chain) {
    struct profile *p = NEW(struct profile, 1);
    *p = (struct profile){"random", n, 0, NEW(struct profiled, n), NEW(struct edge, n * n)};
    for (int i = 0; i < n; i++) {
        double bytes = random_below(seed, 3) ? random_below(seed, 50) : 0;
        p->layer[i] = (struct profiled){
            format("l%d", i),       "layer", random_below(seed, 20), random_below(seed, 40), random_below(seed, 30),
            random_below(seed, 30), bytes};
        for (int k = 0; k < i; k++)
            if (chain ? k == i - 1 : random_below(seed, 3) == 0)
                p->edge[p->nedges++] = (struct edge){k, i};
    }
    return p;
}

/* A partition in the making: the stage of each layer, and the machines of each stage. */
struct trial {
    const struct profile *p;
    const struct machines *m;
    int nstages, stage[LAYERS], machines[MACHINES];
    double best;
};

static double time_of(const struct trial *t) {
    const struct machines *m = t->m;
    int all = m->level[0].machines, first = 0;
    double bandwidth = m->level[0].bandwidth, slowest = 0;
    for (int s = 0; s < t->nstages; first += t->machines[s++]) {
        double compute = 0, weights = 0, kept = 0, crossing = 0, speed = INFINITY, n = t->machines[s];
        for (int l = 0; l < t->p->nlayers; l++) {
            bool goes_on = false;
            for (int e = 0; e < t->p->nedges; e++)
                goes_on |= t->p->edge[e].from == l && t->stage[t->p->edge[e].to] > s;
            if (t->stage[l] <= s && goes_on)
                crossing += t->p->layer[l].output;
            if (t->stage[l] != s)
                continue;
            compute += t->p->layer[l].forward + t->p->layer[l].backward;
            weights += t->p->layer[l].weights;
            kept += t->p->layer[l].kept;
        }
        for (int k = 0; k < t->machines[s]; k++)
            speed = fmin(speed, m->speed ? m->speed[first + k] : 1);
        compute = compute / speed / n;
        double sync = (m->ring ? 2 : 4) * (n - 1) / n * weights / bandwidth / n;
        double stage = m->sum ? compute + sync : fmax(compute, sync);
        if ((ceil((all - first - n) / n) + 1) * (weights + kept) > m->memory)
            return INFINITY;
        slowest = fmax(slowest, fmax(stage, m->transfers ? 2 * crossing / bandwidth : 0));
    }
    return slowest;
}

static void try_machines(struct trial *t, int s, int left) {
    if (s == t->nstages) {
        if (left == 0)
            t->best = fmin(t->best, time_of(t));
        return;
    }
    for (t->machines[s] = 1; t->machines[s] <= left; t->machines[s]++)
        try_machines(t, s + 1, left - t->machines[s]);
}

static void try_layers(struct trial *t, int l) {
    if (l < t->p->nlayers) {
        for (t->stage[l] = 0; t->stage[l] < t->nstages; t->stage[l]++)
            try_layers(t, l + 1);
        return;
    }
    int used = 0;
    for (int i = 0; i < t->p->nlayers; i++)
        used |= 1 << t->stage[i];
    for (int e = 0; e < t->p->nedges; e++)
        if (t->stage[t->p->edge[e].from] > t->stage[t->p->edge[e].to])
            return;
    if (used == (1 << t->nstages) - 1)
        try_machines(t, 0, t->m->level[0].machines);
}

static double brute_force(const struct profile *p, const struct machines *m) {
    struct trial t = {.p = p, .m = m, .best = INFINITY};
    for (t.nstages = 1; t.nstages <= m->level[0].machines && t.nstages <= p->nlayers; t.nstages++)
        try_layers(&t, 0);
    return t.best;
}

static struct machines random_machines(uint64_t *seed) {
    struct machines m = {.nlevels = 1, .memory = INFINITY};
    m.level[0] = (struct level){1 + random_below(seed, MACHINES), 1 + random_below(seed, 8)};
    m.sum = random_below(seed, 2);
    m.ring = random_below(seed, 2);
    m.transfers = random_below(seed, 2);
    if (random_below(seed, 3) == 0) {
        double *speed = NEW(double, MACHINES);
        for (int i = 0; i < MACHINES; i++)
            speed[i] = 1 + random_below(seed, 4);
        m.speed = speed;
    }
    if (random_below(seed, 3) == 0)
        m.memory = 30 + random_below(seed, 200);
    return m;
}

/* Returns the time of the partition's stages by the brute force's formula, which must equal its own. */
static double time_of_parts(const struct cuts *cuts, const struct partition *found, const struct machines *m) {
    struct trial t = {.p = cuts->profile, .m = m, .nstages = found->nparts};
    for (int s = 0; s < found->nparts; s++) {
        t.machines[s] = found->part[s].replicas;
        for (int l = 0; l < cuts->profile->nlayers; l++)
            if (is_between(cuts, found->part[s].from, found->part[s].to, l))
                t.stage[l] = s;
    }
    return time_of(&t);
}

/* Returns NULL if the memory does not suffice. */
static struct partition *find(const struct cuts *cuts, const struct machines *m) {
    jmp_buf trap;
    struct partition *volatile found = NULL;
    diag_trap = &trap;
    if (setjmp(trap) == 0)
        found = find_partition(cuts, m);
    diag_trap = NULL;
    return found;
}

Test(partition, equals_brute_force) {
    uint64_t seed = 7;
    int fitting = 0, failing = 0, several = 0;
    for (int round = 0; round < 600; round++) {
        struct profile *p = random_graph(&seed, 1 + random_below(&seed, LAYERS), round % 2);
        struct machines m = random_machines(&seed);
        double least = brute_force(p, &m);
        struct cuts *cuts = find_cuts(p);
        struct partition *found = find(cuts, &m);
        if (found) {
            cr_assert_float_eq(found->seconds, least, 1e-9 * (1 + least), "round %d: %g, but there is %g", round,
                               found->seconds, least);
            double said = time_of_parts(cuts, found, &m);
            cr_assert_float_eq(said, least, 1e-9 * (1 + least), "round %d: its stages take %g", round, said);
            fitting++;
            several += found->nparts > 1;
        } else {
            cr_assert(isinf(least), "round %d: %s, but there is one of %g", round, diag_text, least);
            failing++;
        }
        free_all();
    }
    cr_assert(fitting > 400 && failing > 20 && several > 200, "%d, %d, %d", fitting, failing, several);
}

/* With two levels, brute force also finds the lower pipelines: a group's time for layers i .. j is the time of these
 * layers' best partition on its machines. */
Test(partition, levels_equal_nested_brute_force) {
    uint64_t seed = 11;
    for (int round = 0; round < 60; round++) {
        int n = 2 + random_below(&seed, 3);
        struct profile *p = random_graph(&seed, n, true);
        struct machines two = random_machines(&seed);
        two.nlevels = 2;
        two.memory = INFINITY;
        two.speed = NULL;
        two.transfers = false;
        two.level[0].machines = 1 + random_below(&seed, 3);
        two.level[1] = (struct level){1 + random_below(&seed, 3), 1 + random_below(&seed, 8)};
        struct machines low = two, high = two;
        low.nlevels = high.nlevels = 1;
        high.level[0] = two.level[1];
        /* All cuts of the upper level, one bit each: a stage is a chain of one layer, which takes its group's time. */
        double least = INFINITY;
        for (int cuts = 0; cuts < 1 << (n - 1); cuts++) {
            struct profile chain = {"chain", 0, 0, NEW(struct profiled, n), NEW(struct edge, n)};
            for (int from = 0, to; from < n; from = to) {
                for (to = from + 1; to < n && !(cuts >> (to - 1) & 1); to++)
                    ;
                struct profile inside = {"inside", to - from, to - from - 1, p->layer + from, p->edge};
                struct profiled *whole = &chain.layer[chain.nlayers++];
                whole->forward = brute_force(&inside, &low);
                for (int l = from; l < to; l++)
                    whole->weights += p->layer[l].weights;
                if (from > 0)
                    chain.edge[chain.nedges++] = (struct edge){chain.nlayers - 2, chain.nlayers - 1};
            }
            struct trial t = {.p = &chain, .m = &high, .nstages = chain.nlayers, .best = INFINITY};
            for (int s = 0; s < chain.nlayers; s++)
                t.stage[s] = s;
            if (chain.nlayers <= high.level[0].machines)
                try_machines(&t, 0, high.level[0].machines);
            least = fmin(least, t.best);
        }
        struct partition *found = find_partition(find_cuts(p), &two);
        cr_assert_float_eq(found->seconds, least, 1e-9 * (1 + least), "round %d: %g, but there is %g", round,
                           found->seconds, least);
        int workers = 0;
        bool taken[9] = {0};
        for (int s = 0; s < found->nparts; s++)
            for (int k = 0; k < found->part[s].replicas; k++, workers++) {
                cr_assert(!taken[found->part[s].rank[k]], "round %d: rank %d twice", round, found->part[s].rank[k]);
                taken[found->part[s].rank[k]] = true;
            }
        cr_assert_eq(workers, count_machines(&two));
        free_all();
    }
}

/* For any stage, a rank handles the minibatches of its own group: b and b + 1 go to different groups. */
Test(partition, minibatches_stay_in_their_group) {
    struct profile *p = NEW(struct profile, 1);
    *p = (struct profile){"two", 2, 1, NEW(struct profiled, 2), NEW(struct edge, 1)};
    p->layer[0] = (struct profiled){"a", "layer", 3, 0, 1e6, 0, 0};
    p->layer[1] = (struct profiled){"b", "layer", 1, 0, 1, 0, 1e8};
    p->edge[0] = (struct edge){0, 1};
    struct machines m = {.nlevels = 2, .memory = INFINITY, .transfers = true};
    m.level[0] = (struct level){4, 1e7};
    m.level[1] = (struct level){2, 1e9};
    struct partition *found = find_partition(find_cuts(p), &m);
    cr_assert_eq(found->nparts, 2);
    cr_assert_eq(found->part[0].replicas, 6);
    cr_assert_eq(found->part[1].replicas, 2);
    for (int b = 0; b < 12; b++)
        cr_assert_eq(found->part[0].rank[b % 6] / 4, found->part[1].rank[b % 2] / 4, "microbatch %d", b);
}

/* ---- profiles written and read back ---- */

static void check_layer(const struct profiled *want, const struct profiled *got, bool kept) {
    cr_assert(fabs(got->forward - want->forward) <= 0.5001e-9, "%.12g, %.12g", got->forward, want->forward);
    cr_assert(fabs(got->backward - want->backward) <= 0.5001e-9, "%.12g, %.12g", got->backward, want->backward);
    cr_assert(got->output == want->output && got->weights == want->weights);
    cr_assert(!kept || got->kept == want->kept);
}

/* Returns a chain of measured seconds, with sizes beyond those that floats distinguish. */
static struct profile *random_profile(uint64_t *seed) {
    struct profile *p = random_graph(seed, 1 + random_below(seed, LAYERS), true);
    for (int i = 0; i < p->nlayers; i++) {
        struct profiled *layer = &p->layer[i];
        layer->id = format("layers[%d]", i + 1);
        layer->forward = pow(10, -random_below(seed, 9)) * (1 + random_below(seed, 1000)) / 997;
        layer->backward = random_below(seed, 9) ? 1.7 * layer->forward : 0;
        layer->output = 7 + 1e6 * random_below(seed, 1000);
        layer->kept = 3 + layer->output;
        layer->weights = 4e9 + 4 * random_below(seed, 1000);
    }
    return p;
}

Test(partition, a_graph_reads_back) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t rng = seed;
        struct profile *p = random_profile(&rng);
        struct text t = {0};
        emit_graph(&t, p);
        struct profile *got = read_profile("graph", t.s);
        cr_assert(got->nlayers == p->nlayers && got->nedges == p->nedges);
        for (int i = 0; i < p->nlayers; i++) {
            check_layer(&p->layer[i], &got->layer[i], false);
            cr_assert_str_eq(got->layer[i].id, format("node%d", i + 1));
            cr_assert_str_eq(got->layer[i].what, p->layer[i].what);
        }
        for (int i = 0; i < p->nedges; i++)
            cr_assert(got->edge[i].from == p->edge[i].from && got->edge[i].to == p->edge[i].to);
        free_all();
    }
}

Test(partition, a_model_of_costs_reads_back) {
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t rng = seed;
        struct profile *p = random_profile(&rng);
        char name[] = "/tmp/pianola_costs_XXXXXX";
        struct text t = {0};
        int fd = mkstemp(name);
        emit_costs(&t, p, "two\nlines");
        cr_assert(fd >= 0 && write(fd, t.s, t.n) == (ssize_t)t.n);
        close(fd);
        const struct model *m = script_units(&(struct script_args){.model = name}, 2, 1)->model;
        unlink(name);
        cr_assert(m->nitems == p->nlayers && !m->cut);
        for (int i = 0; i < p->nlayers; i++) {
            const struct layer_cost *c = &m->cost[i];
            struct profiled got = {
                NULL, NULL, c->forward, c->backward, (double)c->activation, (double)c->stash, (double)c->weights};
            check_layer(&p->layer[i], &got, true);
            cr_assert_str_eq(c->name, format("layers[%d] layer", i + 1));
        }
        free_all();
    }
}
