/* Weights that come from the rank that source() names: which rank's copy a fetch gets, and proofs of the programs. */
#include "passes/lower.h"
#include "random_spec.h"
#include "verify/verify.h"
#include <criterion/criterion.h>

struct relayed {
    struct spec *sp;
    struct program *p;
    const int *start; /* per job: its place in the schedule */
};

/* Returns the job that reads buffer b first, or -1. */
static int first_reader(const struct relayed *x, int r, int b) {
    const struct rank *k = &x->p->rank[r];
    for (int i = 0; i < k->nins; i++)
        for (uint32_t a = k->ins[i].arg; k->ins[i].op <= OP_W && a < k->ins[i].arg + k->ins[i].narg; a++)
            if (k->arg[a].buf == b)
                return job_at(x->sp, k->ins[i].stage, k->ins[i].batch, k->ins[i].op);
    return -1;
}

static bool has_whole(const struct relayed *x, int r, int set) {
    return costs_of(x->sp)->homes[set].size == 1 && place_in(&costs_of(x->sp)->homes[set], r) >= 0;
}

/* Returns the copy that rank r must send for job j: the last one that is read before j starts, or its own weights. */
static int copy_for(const struct relayed *x, int r, int set, int j) {
    int last = -1, at = -1;
    for (int b = 0; b < x->p->rank[r].nbufs; b++) {
        const struct buf *buf = &x->p->rank[r].buf[b];
        if (buf->kind != K_weight || buf->stage != set)
            continue;
        if (buf->inst < 0)
            return b;
        int start = x->start[first_reader(x, r, b)];
        if (start < x->start[j] && start > last) {
            last = start;
            at = b;
        }
    }
    return at;
}

static int sent_by(const struct relayed *x, int from, int to, const struct instr *fetch) {
    const struct rank *k = &x->p->rank[from];
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].op == OP_SERVE && k->ins[i].stage == fetch->stage && k->ins[i].inst == fetch->inst &&
            k->ins[i].peer == to)
            return k->arg[k->ins[i].arg].buf;
    return -1;
}

/* Returns how many copies come from ranks that fetched them themselves. */
static int expect_sources(const struct relayed *x) {
    int relays = 0;
    for (int r = 0; r < x->sp->workers; r++) {
        const struct rank *k = &x->p->rank[r];
        for (int i = 0; i < k->nins; i++) {
            const struct instr *in = &k->ins[i];
            bool weights = in->op == OP_FETCH || in->op == OP_COPY || in->op == OP_ALL_GATHER || in->op == OP_BROADCAST;
            int b = weights && in->narg ? (int)k->arg[in->arg + in->narg - 1].buf : -1;
            if (b < 0 || k->buf[b].inst < 0 || k->buf[b].stage == x->sp->stages) /* the token table has other rules */
                continue;
            int j = first_reader(x, r, b), source = x->sp->owners.source[j];
            int copy = source < 0 ? -1 : copy_for(x, source, in->stage, j);
            if (copy < 0) {
                cr_assert(in->op != OP_FETCH || place_in(&costs_of(x->sp)->homes[in->stage], in->peer) >= 0);
                continue;
            }
            cr_assert(in->op == OP_FETCH && in->peer == source);
            cr_assert_eq(sent_by(x, source, r, in), copy);
            relays += !has_whole(x, source, in->stage);
        }
    }
    return relays;
}

static int draw_relays(int first, int n, int flags) {
    int relays = 0;
    for (int seed = first; seed < first + n; seed++) {
        struct relayed x = {.sp = draw_spec((uint64_t)seed, flags)};
        struct costs *costs = draw_stages(x.sp);
        struct graph *graph = graph_of(x.sp);
        struct sched *sc = sched_of(x.sp, costs, graph);
        int *start = NEW(int, x.sp->njobs);
        for (int i = 0; i < sc->nmoments; i++)
            if (sc->moment[i] >= 0)
                start[sc->moment[i]] = i;
        x.start = start;
        draw_sources(x.sp);
        x.sp->choices.prefetch = (enum prefetch)below(4);
        x.p = lower_of(x.sp, costs, graph, sc);
        relays += expect_sources(&x);
        if (seed % 2)
            mem_of(x.sp, x.p);
        else
            spare_of(x.sp, costs, x.p);
        lanes_sync(x.p);
        struct refutation *no = verify(costs_of(x.sp), graph, x.p, CLAIM_ALL);
        cr_assert_null(no, "seed %d: %s", seed, no ? no->why : "");
        free_all();
    }
    return relays;
}

Test(relays, the_copy_that_is_there) {
    cr_expect_gt(draw_relays(0, 400, 0), 100);
    cr_expect_gt(draw_relays(1000, 800, ORDERS | BANDWIDTH | COARSE), 100);
    cr_expect_gt(draw_relays(2000, 400, SHARDED | BANDWIDTH), 100);
    cr_expect_gt(draw_relays(3000, 800, TIED | PAIRS | BANDWIDTH), 100);
}
