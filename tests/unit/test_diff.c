/* A diff's figures on random pairs of schedules: exact sums, the fewest reordered jobs, a root for every shift, and the
 * effects of other orders. */
#include "diff/diff_replay.h"
#include "random_spec.h"
#include <criterion/criterion.h>
#include <stdlib.h>

enum {
    ALONE = 1 << 20, /* the timeline without the program */
    CORES = 1 << 21, /* ranks are threads that share two cores */
};

/* Compiles a spec to a side. */
static struct side *compiled(const char *name, struct spec *sp, struct costs *costs) {
    struct graph *g = graph_of(sp);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    return side_of_program(name, p, sim_of(sp, costs, p));
}

static struct side *drawn(const char *name, uint64_t seed, int flags, double scale) {
    struct spec *sp = draw_spec(seed, flags & ~(ALONE | CORES));
    sp->machine.cores = flags & CORES ? 2 : 0;
    sp->machine.threads = 1;
    sp->machine.serial = flags & CORES;
    struct costs *costs = draw_stages(sp);
    for (int j = 0; j < sp->njobs; j++)
        costs->computes[j] *= scale;
    for (int p = 0; p < sp->npairs; p++)
        costs->pair[p].time *= scale;
    struct graph *g = graph_of(sp);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    struct timeline *tl = sim_of(sp, costs, p);
    if (!(flags & ALONE)) {
        struct side *side = side_of_program(name, p, tl);
        side->on.cores = sp->machine.cores;
        side->on.serial = sp->machine.serial;
        return side;
    }
    struct text t = {0};
    emit_tsv(&t, p, tl, "F");
    return side_of_rows(name, read_tsv("t.tsv", t.s));
}

/* Reads a key's three numbers from the JSON. */
static void read_pair(const char *json, const char *key, double x[3]) {
    const char *at = strstr(json, format("\"%s\": { \"a\": ", key));
    cr_assert_not_null(at, "%s", key);
    cr_assert_eq(sscanf(strchr(at, '{'), "{ \"a\": %lf, \"b\": %lf, \"delta\": %lf", &x[0], &x[1], &x[2]), 3);
}

static int64_t seen[NACCOUNTS]; /* shows that the pairs cover each account */

static void check_account(const struct diff *d, int seed) {
    double sum[3] = {0}, whole[3], part[3];
    struct text t = {0};
    for (int k = 0; k < 2; k++) {
        int64_t ticks = 0;
        for (int i = 0; i < NACCOUNTS; i++) {
            cr_assert_geq(d->account[k][i], 0, "seed %d", seed);
            ticks += d->account[k][i];
            seen[i] += d->account[k][i] > 0;
        }
        cr_assert_eq(ticks, d->side[k]->makespan, "seed %d: side %d", seed, k);
        cr_assert_eq(d->account[k][ACC_OTHER], 0, "seed %d: a predicted timeline explains every wait", seed);
    }
    emit_diff_json(&t, d);
    read_pair(t.s, "makespan", whole);
    const char *account = strstr(t.s, "\"account\"");
    for (int i = 0; i < NACCOUNTS; i++) {
        read_pair(account, account_name[i], part);
        for (int c = 0; c < 3; c++)
            sum[c] += part[c];
    }
    for (int c = 0; c < 3; c++)
        cr_assert_eq(sum[c], whole[c], "seed %d: %.17g is not %.17g", seed, sum[c], whole[c]);
}

/* Returns the fewest of a lane's matched operations that must move, by a quadratic reference. */
static int fewest(const struct side *a, const struct diff_lane *l) {
    int *best = NEW(int, l->n), n = 0, longest = 0;
    for (int i = l->first; i < l->first + l->n; i++) {
        const struct diff_op *x = &a->op[i];
        if (x->match < 0 || x->moved)
            continue;
        best[i - l->first] = 1;
        for (int k = l->first; k < i; k++)
            if (best[k - l->first] >= best[i - l->first] && a->op[k].match < x->match)
                best[i - l->first] = best[k - l->first] + 1;
        longest = best[i - l->first] > longest ? best[i - l->first] : longest;
        n++;
    }
    return n - longest;
}

static void check_classes(const struct diff *d, int seed) {
    const struct side *a = d->side[0], *b = d->side[1];
    int reordered = 0, shifts = 0, explained = 0;
    for (int l = 0; l < a->nlanes; l++)
        reordered += fewest(a, &a->lane[l]);
    cr_assert_eq(d->reordered, reordered, "seed %d", seed);
    for (int i = 0; i < a->n; i++) {
        const struct diff_op *x = &a->op[i], *y = x->match >= 0 ? &b->op[x->match] : NULL;
        if (!y)
            continue;
        cr_assert_eq(y->match, i);
        bool split = x->split && y->split && x->op + y->op == OP_B + OP_I && x->op != y->op;
        cr_assert((x->op == y->op || split) && x->stage == y->stage && x->batch == y->batch && x->peer == y->peer);
        shifts += llabs(y->end - x->end) > d->least;
    }
    for (int i = 0; i < d->nroots; i++) {
        const struct root *r = &d->root[i];
        explained += r->pushed;
        if (r->a >= 0 && r->b >= 0)
            explained += llabs(b->op[r->b].end - a->op[r->a].end) > d->least;
    }
    cr_assert_eq(explained, shifts, "seed %d: every later or earlier end has one root", seed);
}

/* The only cause explains everything. */
static void check_causes(const struct diff *d, int seed) {
    if (d->causes.n == 1)
        cr_assert_eq(d->causes.of->effect, d->side[1]->makespan - d->side[0]->makespan, "seed %d", seed);
}

static void compare(int first, int seeds, int flags, double scale) {
    for (int seed = first; seed < first + seeds; seed++) {
        struct side *a = drawn("a", (uint64_t)seed, flags, scale);
        int other = seed % 2 ? seed : seed + 100000;
        struct side *b = drawn("b", (uint64_t)other, flags, seed % 4 == 1 ? scale : 1);
        while (seed % 4 == 2 && b->size.of[SIZE_STAGES] != a->size.of[SIZE_STAGES]) /* another cut is the only cause */
            b = drawn("b", (uint64_t)(other += 100000), flags, 1);
        struct diff *d = diff_make(a, b);
        check_account(d, seed);
        check_classes(d, seed);
        check_causes(d, seed);
        if (seed % 4 == 1)
            cr_assert(diff_same(d), "seed %d: a schedule and itself", seed);
        free_all();
    }
}

/* Tries 1,600 pairs; a scale of 1/3 makes times that are no binary fractions. */
Test(diff, random_pairs) {
    compare(0, 200, 0, 1);
    compare(1000, 200, ORDERS | LATENCY, 1.0 / 3);
    compare(2000, 200, ORDERS | BANDWIDTH, 0.1);
    compare(3000, 200, ORDERS | BANDWIDTH | COARSE, 1.0 / 3);
    compare(4000, 200, ORDERS | BANDWIDTH | COARSE | PAIRS, 1.0 / 3);
    compare(5000, 200, BANDWIDTH | CORES, 0.1);
    compare(6000, 200, BANDWIDTH | SHARDED, 0.1);
    compare(7000, 200, BANDWIDTH | HOST, 0.1);
    for (int i = 0; i < NACCOUNTS; i++)
        cr_assert(i == ACC_OTHER || seen[i] > 20, "%s: %d", account_name[i], (int)seen[i]);
}

/* In timelines without streams, the waits of operations form no cycle, even if some take no time. */
Test(diff, timelines_alone) {
    static const int flags[] = {0, ORDERS, LATENCY, BANDWIDTH | COARSE};
    int waits = 0, free = 0;
    for (int seed = 0; seed < 400; seed++, free_all()) {
        int how = flags[seed % 4] | ALONE;
        struct side *side[2] = {drawn("a", (uint64_t)seed, how, 1), drawn("b", (uint64_t)seed + 100000, how, 1)};
        struct diff *d = diff_make(side[0], side[1]);
        for (int k = 0; k < 2; k++) {
            const struct side *s = side[k];
            for (int i = 0; i < s->n; i++) {
                int steps = 0;
                for (int at = i; at >= 0 && steps <= s->n; at = s->op[at].bind)
                    steps++;
                cr_assert_leq(steps, s->n, "seed %d: side %d: %s", seed, k, diff_op_name(&s->op[i]));
                waits += s->op[i].bind >= 0;
                free += s->op[i].end == s->op[i].start;
            }
        }
        int64_t sum = 0;
        for (int i = 0; i < NACCOUNTS; i++)
            sum += d->account[0][i];
        cr_assert_eq(sum, side[0]->makespan, "seed %d", seed);
    }
    cr_assert(waits > 10000 && free > 10000, "%d %d", waits, free);
}

/* Draws one spec twice, with two strict orders of its jobs. */
static struct side *ordered(const char *name, int seed, int flags, int order) {
    struct spec *sp = draw_spec((uint64_t)seed, flags | AT_HOME);
    struct costs *costs = draw_stages(sp);
    random_state = (uint64_t)seed + (uint64_t)order * 1000000;
    int32_t *at = draw_order(sp);
    sp->strict = true;
    for (int i = 0; i < sp->njobs; i++)
        sp->job[at[i]].prio = i;
    return compiled(name, sp, costs);
}

/* Returns a time that no order of the side's jobs beats: the work of a rank, or of a microbatch on all stages. */
static int64_t least_time(const struct side *s) {
    int64_t *rank = NEW(int64_t, s->workers), *batch = NEW(int64_t, s->n), most = 0;
    for (int i = 0; i < s->n; i++) {
        const struct diff_op *op = &s->op[i];
        int64_t took = op->end - op->start, *sum = &rank[op->rank];
        if (!is_job(op->op))
            continue;
        *sum += took;
        batch[op->batch] += op->op == OP_F || op->op == OP_B || op->op == OP_I ? took : 0;
        most = *sum > most ? *sum : most;
        most = batch[op->batch] > most ? batch[op->batch] : most;
    }
    return most;
}

/* With all reordered operations put back, B is simulated exactly as A, if nothing waits for memory. Returns whether
 * their simulations differ. */
static bool check_put_back(const struct diff *d, int seed) {
    struct replayed a = replay_side(d, 0), b = replay_side(d, 1);
    bool *back = NEW(bool, d->side[1]->n);
    int64_t longer = 0;
    for (int i = 0; i < d->side[1]->n; i++)
        back[i] = d->side[1]->op[i].reordered;
    cr_assert(replay_reordered(&b, d, back, &longer), "seed %d: A's order cannot deadlock", seed);
    cr_assert_eq(b.unbound - longer, a.unbound, "seed %d: B in A's order", seed);
    return longer != 0;
}

/* Tries 1,200 pairs that differ in their order alone. */
Test(diff, orders) {
    static const int flags[] = {0, LATENCY, BANDWIDTH, BANDWIDTH | COARSE};
    int single = 0, several = 0, differ = 0;
    for (int seed = 0; seed < 1200; seed++, free_all()) {
        struct side *a = ordered("a", seed, flags[seed % 4], 1), *b = ordered("b", seed, flags[seed % 4], 2);
        struct diff *d = diff_make(a, b);
        check_causes(d, seed);
        if (d->only[0] || d->only[1] || d->split || d->moved || d->longer)
            continue;
        differ += check_put_back(d, seed);
        single += d->causes.n == 1;
        several += d->causes.n > 1;
        for (int i = 0; i < d->causes.n; i++) {
            const struct diff_cause *cause = &d->causes.of[i];
            cr_assert(!cause->unknown, "seed %d: all reorderings together cannot deadlock", seed);
            cr_assert_geq(b->makespan - cause->effect, least_time(b), "seed %d: faster than any order", seed);
        }
    }
    cr_assert(single > 500 && several > 30 && differ > 300, "%d %d %d", single, several, differ);
}
