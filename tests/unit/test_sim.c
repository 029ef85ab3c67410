/* The predicted timeline against a slow reference, and against the schedule where both must agree. */
#include "random_spec.h"
#include <criterion/criterion.h>

struct compiled {
    struct spec *sp;
    struct costs *costs;
    struct sched *sc;
    struct program *p;
};

static struct compiled compile(struct spec *sp, struct costs *costs) {
    struct graph *g = graph_of(sp);
    struct compiled c = {sp, costs, sched_of(sp, costs, g), NULL};
    c.p = lower_of(sp, costs, g, c.sc);
    mem_of(sp, c.p);
    lanes_sync(c.p);
    return c;
}

/* ---- the reference: postpones every instruction until nothing moves ---- */

struct times {
    double start, end, free; /* free: when its lane may begin a message */
    double next;             /* for a communication: when its rank may begin the next one issued */
};

static int64_t bytes_of(const struct rank *k, const struct instr *x) {
    return k->buf[k->arg[x->arg].buf].bytes / pieces_of(&k->arg[x->arg]);
}

static double carry(const struct spec *sp, int src, int dst, double bytes) {
    return sp->machine.link ? bytes / sp->machine.link[src * sp->workers + dst].bandwidth : 0;
}

static double hop(const struct spec *sp, int src, int dst) {
    return sp->machine.link ? sp->machine.link[src * sp->workers + dst].latency : 0;
}

/* Returns the earliest start after everything before it on its own rank. */
static double after_own(const struct rank *k, const struct times *t, int i) {
    double at = 0;
    for (int j = i - 1; j >= 0; j--)
        if (k->ins[j].lane == k->ins[i].lane) {
            int kind = k->lane[k->ins[i].lane].kind; /* an edge's messages follow each other while the latency runs */
            bool edge = op_cost[k->ins[i].op] == COST_LINK && kind != LANE_PEER && kind != LANE_ALL;
            at = edge ? t[j].free : t[j].end;
            break;
        }
    for (int j = 0; j < i; j++) /* gathers and reductions of one group take turns */
        if (is_group(k->ins[j].op) && is_group(k->ins[i].op) &&
            k->lane[k->ins[j].lane].group == k->lane[k->ins[i].lane].group)
            at = fmax(at, t[j].end);
    for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait; w++)
        at = fmax(at, t[k->wait[w]].end);
    return at;
}

/* Returns the earliest start of a communication after those issued before it on its rank. */
static double after_issued(const struct spec *sp, const struct rank *k, const struct times *t, int i) {
    double at = after_own(k, t, i);
    for (int j = 0; j < i && sp->choices.launch != LAUNCH_LANE; j++)
        if (k->ins[j].msg >= 0)
            at = fmax(at, t[j].next);
    return at;
}

/* Returns the pair of an instruction, or NULL. */
static const struct pair *pair_of(const struct spec *sp, const struct instr *x) {
    int32_t j = x->op <= OP_W ? job_at(sp, x->stage, x->batch, x->op) : -1;
    return j >= 0 && sp->job[j].pair ? &sp->pair[sp->job[j].pair - 1] : NULL;
}

/* Returns the start of the first of a pair, when both can start. The second follows it in issue order. */
static double after_both(const struct spec *sp, const struct rank *k, struct times *t, int i) {
    struct times first = t[i];
    t[i].end = 0;
    double at = fmax(after_own(k, t, i), after_own(k, t, i + 1));
    t[i] = first;
    cr_assert_eq(pair_of(sp, &k->ins[i + 1]), pair_of(sp, &k->ins[i]), "neighbours in the order of issue");
    return at;
}

static struct times compute(const struct compiled *c, const struct instr *x, double at) {
    double cost = 0; /* without a model, ADD and ZERO cost nothing */
    if (x->op <= OP_W)
        cost = job_time(c->costs, job_at(c->sp, x->stage, x->batch, x->op));
    if (x->op == OP_U) { /* for its piece */
        const struct homes *h = &costs_of(c->sp)->homes[x->stage];
        cost = c->costs->stage[x->stage].update / (h->size * (h->zero ? h->lists : 1));
    }
    return (struct times){at, at + cost, at + cost, 0};
}

/* Returns the time of a ring or a tree for a whole of `whole` bytes: the table of passes/collective.c. */
static double collective(const struct spec *sp, int op, const struct group *g, double whole, bool tree) {
    double sum = 0, chain = 0;
    int n = g->n;
    bool one = op == OP_BROADCAST || op == OP_REDUCE;
    for (int k = 1; k < n; k = tree ? 2 * k : k + 1) {
        double step = 0, bytes = one ? whole : whole / n;
        if (tree && !one)
            bytes = op == OP_ALL_TO_ALL_A ? whole / 2 : whole / n * (k < n - k ? k : n - k);
        int apart = tree || op == OP_ALL_TO_ALL_A ? k : 1;
        for (int i = 0; i < n; i++) {
            int from = g->rank[i], to = g->rank[(i + apart) % n];
            step = fmax(step, hop(sp, from, to) + carry(sp, from, to, bytes));
            chain = k == 1 ? fmax(chain, hop(sp, from, to)) : chain;
        }
        sum += one && !tree && k > 1 ? chain : step;
    }
    return op == OP_ALL_REDUCE ? 2 * sum : sum;
}

static struct times communicate(const struct compiled *c, int r, const struct instr *x, double at) {
    const struct rank *k = &c->p->rank[r];
    if (is_group(x->op)) {
        const struct group *g = &c->p->group[k->lane[x->lane].group];
        double whole = 0;
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
            whole = fmax(whole, (double)k->buf[k->arg[a].buf].bytes / pieces_of(&k->arg[a]));
        double ring = collective(c->sp, x->op, g, whole, false), tree = collective(c->sp, x->op, g, whole, true);
        double took = x->algorithm == TREE ? tree : ring;
        cr_assert_float_eq(took, fmin(ring, tree), 1e-9, "%s takes the cheaper", op_name[x->op]);
        return (struct times){at, at + took, at + took, 0};
    }
    bool sends = op_lane[x->op] == LANE_SEND;
    int src = sends ? r : x->peer, dst = sends ? x->peer : r;
    double took = carry(c->sp, src, dst, (double)bytes_of(k, x)), late = sends ? 0 : hop(c->sp, src, dst);
    return (struct times){at + late, at + late + took, at + took, 0};
}

static struct times **relax(const struct compiled *c) {
    const struct program *p = c->p;
    struct times **t = NEW(struct times *, p->workers);
    double *meet = NEW(double, p->nmsgs); /* when all sides have come */
    for (int r = 0; r < p->workers; r++)
        t[r] = NEW(struct times, p->rank[r].nins);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->workers; r++)
            for (int i = 0; i < p->rank[r].nins; i++) {
                const struct instr *x = &p->rank[r].ins[i];
                const struct pair *pair = pair_of(c->sp, x);
                bool first = pair && i + 1 < p->rank[r].nins && pair == pair_of(c->sp, x + 1);
                double at = first  ? after_both(c->sp, &p->rank[r], t[r], i)
                            : pair ? t[r][i - 1].start
                                   : after_own(&p->rank[r], t[r], i);
                double came = x->msg >= 0 ? after_issued(c->sp, &p->rank[r], t[r], i) : at;
                if (x->msg >= 0)
                    at = meet[x->msg] = fmax(meet[x->msg], came);
                struct times now = x->msg >= 0 ? communicate(c, r, x, at) : compute(c, x, at);
                now.next = c->sp->choices.launch == LAUNCH_SERIAL ? now.end
                           : x->op == OP_ALL_REDUCE               ? (at + now.end) / 2
                                                                  : came;
                moved |= now.start != t[r][i].start || now.end != t[r][i].end || now.free != t[r][i].free ||
                         now.next != t[r][i].next;
                t[r][i] = now;
            }
    }
    return t;
}

static void compare_all(int first, int n, int flags, enum launch_order launch) {
    for (int seed = first; seed < first + n; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, flags);
        sp->choices.launch = launch;
        struct compiled c = compile(sp, draw_stages(sp));
        struct times **want = relax(&c);
        struct timeline *tl = sim_of(sp, c.costs, c.p);
        double last = 0;
        for (int r = 0; r < sp->workers; r++)
            for (int i = 0; i < c.p->rank[r].nins; i++) {
                const char *op = op_name[c.p->rank[r].ins[i].op];
                cr_assert_float_eq(tl->start[r][i], want[r][i].start, 1e-9, "seed %d: %s %d starts", seed, op, i);
                cr_assert_float_eq(tl->end[r][i], want[r][i].end, 1e-9, "seed %d: %s %d ends", seed, op, i);
                last = fmax(last, tl->end[r][i]);
            }
        cr_assert_eq(tl->makespan, last);
        free_all();
    }
}

static void compare(int first, int n, int flags) {
    compare_all(first, n, flags, LAUNCH_LANE);
    compare_all(first, n, flags, LAUNCH_ISSUE);
    compare_all(first, n, flags, LAUNCH_SERIAL);
}

Test(sim, random_programs) {
    compare(0, 60, 0);
    compare(1000, 60, ORDERS | LATENCY);
    compare(2000, 80, ORDERS | BANDWIDTH);
    compare(3000, 80, ORDERS | BANDWIDTH | COARSE);
    compare(4000, 80, ORDERS | BANDWIDTH | COARSE | PAIRS);
    compare(5000, 80, SHARDED | BANDWIDTH);
    compare(6000, 80, SHARDED | BANDWIDTH | ORDERS | COARSE);
}

/* schedules/language.md: if links are free or have only latency, weights are at home and updates take no time, both are
 * equal. */
Test(sim, equal_to_the_schedule_with_weights_at_home) {
    for (int seed = 0; seed < 120; seed++) {
        struct spec *sp =
            draw_spec((uint64_t)seed, AT_HOME | ORDERS | (seed % 2 ? LATENCY : 0) | (seed % 3 ? 0 : PAIRS));
        struct costs *costs = draw_stages(sp);
        for (int s = 0; s < sp->stages; s++)
            costs->stage[s].update = 0;
        struct compiled c = compile(sp, costs);
        struct timeline *tl = sim_of(sp, costs, c.p);
        cr_assert_eq(tl->makespan, c.sc->makespan, "seed %d", seed);
        for (int r = 0; r < sp->workers; r++)
            for (int i = 0; i < c.p->rank[r].nins; i++) {
                const struct instr *x = &c.p->rank[r].ins[i];
                if (x->op <= OP_W)
                    cr_assert_eq(tl->start[r][i], c.sc->start[job_at(sp, x->stage, x->batch, x->op)], "seed %d", seed);
            }
        free_all();
    }
}

static double makespan(struct spec *sp, double latency, double bandwidth) {
    sp->machine.link = NEW(struct link, sp->workers * sp->workers);
    for (int i = 0; i < sp->workers * sp->workers; i++)
        sp->machine.link[i] = (struct link){latency, bandwidth};
    struct compiled c = compile(sp, unit_stages(sp));
    return sim_of(sp, c.costs, c.p)->makespan;
}

/* Messages of duration c on lanes per directed edge: 1F1B takes 33 + 16c, GPipe 33 + 6c, as with latency. */
Test(sim, lanes_per_edge_reach_the_ideal) {
    static const double c[] = {0, 0.25, 0.5, 1};
    for (int i = 0; i < 4; i++) {
        struct spec *a = pipeline_spec(4, 8, 2), *b = pipeline_spec(4, 8, 0);
        for (int r = 0; r < 4; r++)
            a->limits.cap[r] = 4 - r;
        cr_assert_eq(makespan(a, 0, 1 / c[i]), 33 + 16 * c[i]);
        cr_assert_eq(makespan(b, 0, 1 / c[i]), 33 + 6 * c[i]);
        cr_assert_eq(makespan(b, c[i], INFINITY), 33 + 6 * c[i]);
    }
}

/* Running a rank's communications one after another, each to its end, equals one lane per rank. */
Test(sim, serial_launches_are_a_lane_per_rank) {
    static const double c[] = {0, 0.25, 1};
    static const double known[] = {33, 34.5, 48};
    for (int i = 0; i < 3; i++) {
        struct spec *serial = pipeline_spec(4, 8, 0), *coarse = pipeline_spec(4, 8, 0);
        serial->choices.launch = LAUNCH_SERIAL;
        coarse->choices.lanes = PER_RANK;
        cr_assert_eq(makespan(serial, 0, 1 / c[i]), known[i]);
        cr_assert_eq(makespan(coarse, 0, 1 / c[i]), known[i]);
    }
}

/* Rank 0 computes stage 0 of three microbatches, until 1, 2 and 3. Two of them go to rank 1, the third to rank 2, and a
 * message takes 5. The first leaves at 1, the second when that edge is free, at 6. The third has its own edge and
 * leaves at 3. If it must wait for the start of the one issued before it, it leaves at 6; if for its end, at 16. For
 * rank 2 first fetches stage 1's weights, needed at 8, and rank 1 serves them when it has both messages, at 11. */
Test(sim, launches_in_the_order_of_issue) {
    static const double leaves[] = {[LAUNCH_LANE] = 3, [LAUNCH_ISSUE] = 6, [LAUNCH_SERIAL] = 16};
    for (int launch = LAUNCH_LANE; launch <= LAUNCH_SERIAL; launch++) {
        struct spec *sp = empty_spec(3, 2, 3);
        sp->choices.launch = (enum launch_order)launch;
        for (int s = 0; s < 2; s++)
            for (int b = 0; b < 3; b++) {
                int rank = s == 0 ? 0 : b == 2 ? 2 : 1;
                add_job(sp, s, b, OP_F, s, rank)->prio = b;
                add_job(sp, s, b, OP_B, s, rank)->prio = 3;
            }
        sp->machine.link = NEW(struct link, 9);
        for (int i = 0; i < 9; i++)
            sp->machine.link[i] = (struct link){0, 0.2};
        struct compiled c = compile(sp, unit_stages(sp));
        struct timeline *tl = sim_of(sp, c.costs, c.p);
        for (int i = 0; i < c.p->rank[0].nins; i++) {
            const struct instr *x = &c.p->rank[0].ins[i];
            if (x->op == OP_SEND_F && x->batch == 2)
                cr_assert_eq(tl->start[0][i], leaves[launch], "%d: %g", launch, tl->start[0][i]);
        }
        free_all();
    }
}

/* Stage 0 runs on rank 0, its weights are on rank 1: latency 3, 1 byte at 1/2 byte per unit of time. The weights leave
 * at 0 and arrive at 5; F runs from 5 to 6, B from 6 to 8. The gradient leaves at 8 and arrives at 13; ADD and U take
 * no time. */
Test(sim, weights_and_gradients_travel) {
    struct spec *sp = empty_spec(2, 1, 1);
    add_job(sp, 0, 0, OP_F, 1, 0);
    add_job(sp, 0, 0, OP_B, 1, 0);
    cr_assert_eq(makespan(sp, 3, 0.5), 13);
}

/* Rank 0 is the home and computes microbatches 1 and 2 from 0 to 6. Rank 1 computes 0: it fetches until 10, and its
 * part arrives at 23. Rank 0's own jobs do not wait for it. */
Test(sim, own_gradients_do_not_wait_for_parts) {
    struct spec *sp = empty_spec(2, 1, 3);
    for (int b = 0; b < 3; b++) {
        add_job(sp, 0, b, OP_F, 0, b == 0);
        add_job(sp, 0, b, OP_B, 0, b == 0)->prio = -1;
    }
    sp->machine.link = NEW(struct link, 4);
    for (int i = 0; i < 4; i++)
        sp->machine.link[i] = (struct link){10, INFINITY};
    struct compiled c = compile(sp, unit_stages(sp));
    struct timeline *tl = sim_of(sp, c.costs, c.p);
    cr_assert_eq(tl->makespan, 23);
    double last = 0;
    for (int i = 0; i < c.p->rank[0].nins; i++)
        if (c.p->rank[0].ins[i].op == OP_B)
            last = tl->end[0][i];
    cr_assert_eq(last, 6);
}

/* Two homes of one stage exchange 1 byte: 2 (2 - 1) steps of latency 3 and half a byte at 1/2, after B's end at 3. */
Test(sim, homes_exchange_in_a_ring) {
    struct spec *sp = empty_spec(2, 1, 2);
    for (int b = 0; b < 2; b++) {
        add_job(sp, 0, b, OP_F, b, b);
        add_job(sp, 0, b, OP_B, b, b);
    }
    cr_assert_eq(makespan(sp, 3, 0.5), 3 + 2 * (3 + 1));
}
