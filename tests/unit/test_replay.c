/* The replay core on devices that only record, and training on the host against one rank's. */
#include "passes/runtime_program.h"
#include "device/replay.h"
#include "handmade.h"
#include "random_spec.h"
#include "process/train.h"
#include <criterion/criterion.h>

/* ---- a device that records, and refuses messages at random ---- */

struct recorder {
    bool *done, *refused; /* per instruction: done in this step; refused since the core was last idle */
    int32_t *log;
    int nlog, idles;
    int one_in; /* refuses one message in this many; 0: none */
};

static struct recorder *self(const struct replay *re) { return re->self; }
static const struct rt_rank *rank_of(const struct replay *re) { return &re->program->rank[re->rank]; }
static int32_t number_of(const struct replay *re, const struct rt_instr *x) { return (int32_t)(x - rank_of(re)->ins); }

static void expect_may_run(const struct replay *re, int32_t i) {
    const struct rt_rank *k = rank_of(re);
    cr_assert(!self(re)->done[i], "instruction %d runs twice", i);
    for (int32_t n = 0, w; (w = wait_of(k, &k->ins[i], n)) >= 0; n++)
        cr_assert(self(re)->done[w], "instruction %d runs before %d, which it waits for", i, w);
    for (int32_t j = 0; j < i; j++)
        cr_assert(k->ins[j].lane != k->ins[i].lane || self(re)->done[j], "instruction %d overtakes %d", i, j);
}

static void note(struct replay *re, int32_t i) {
    expect_may_run(re, i);
    self(re)->log[self(re)->nlog++] = i;
    self(re)->done[i] = true;
}

static bool fake_wait(struct replay *re, const struct rt_instr *x, int32_t i) {
    (void)x;
    return self(re)->done[i];
}
static void fake_launch(struct replay *re, const struct rt_instr *x) {
    cr_assert(!is_message(x->op));
    expect_may_run(re, number_of(re, x));
}
static void fake_record(struct replay *re, int32_t i, double start, double end) {
    cr_assert_lt(start, end);
    note(re, i);
}
static double fake_clock(struct replay *re) {
    (void)re;
    static double t;
    return ++t;
}

static bool fake_meet(struct replay *re, const struct rt_instr *x) {
    int32_t i = number_of(re, x);
    cr_assert(is_message(x->op));
    expect_may_run(re, i);
    if (self(re)->one_in && below(self(re)->one_in) == 0) {
        self(re)->refused[i] = true;
        return false;
    }
    note(re, i);
    return true;
}

/* The core may idle only if no lane can continue: each has ended, was refused, or waits for another. */
static void fake_idle(struct replay *re) {
    const struct rt_rank *k = rank_of(re);
    bool waits = false;
    for (int l = 0; l < k->nlanes; l++) {
        int32_t at = k->lane_at[l];
        while (at < k->lane_at[l + 1] && self(re)->done[k->lane_ins[at]])
            at++;
        if (at == k->lane_at[l + 1])
            continue;
        const struct rt_instr *x = &k->ins[k->lane_ins[at]];
        bool stuck = self(re)->refused[k->lane_ins[at]];
        waits |= stuck;
        for (int32_t n = 0, w; (w = wait_of(k, x, n)) >= 0; n++)
            stuck |= !self(re)->done[w];
        cr_assert(stuck, "idle, but instruction %d could run", k->lane_ins[at]);
    }
    cr_assert(waits, "idle with nobody to wait for");
    memset(self(re)->refused, 0, (size_t)k->nins);
    self(re)->idles++;
}

static const struct device fake = {.wait = fake_wait,
                                   .launch = fake_launch,
                                   .meet = fake_meet,
                                   .record = fake_record,
                                   .clock = fake_clock,
                                   .idle = fake_idle};

enum { MOST_WAITS = 9 };

/* Draws instructions on random lanes that wait for earlier ones of other lanes, some for more than fit into `after`. */
static struct rt_rank draw_rank(void) {
    int nins = below(80), nlanes = 1 + below(6);
    struct rt_instr *ins = NEW(struct rt_instr, nins);
    for (int i = 0; i < nins; i++) {
        static const uint8_t ops[] = {OP_F, OP_U, OP_ADD, OP_SEND_F, OP_RECV_F, OP_ALL_REDUCE};
        ins[i] = (struct rt_instr){.op = ops[below(6)], .lane = below(nlanes), .name = nins - i};
        int32_t *also = NEW(int32_t, MOST_WAITS), n = 0;
        ins[i].also = also;
        for (int w = below(4) ? below(4) : below(MOST_WAITS); i > 0 && w > 0; w--) {
            int on = below(i);
            if (ins[on].lane == ins[i].lane)
                continue;
            *(n < RT_AFTER ? &ins[i].after[n] : &also[n - RT_AFTER]) = ins[on].name;
            n++;
        }
    }
    struct rt_rank k = {.ins = ins, .nins = nins, .nlanes = nlanes};
    rank_index(&k, NEW(int32_t, rank_index_size(&k)));
    return k;
}

/* Replays three steps; returns how often the core was idle. */
static int replay_drawn(uint64_t seed, int one_in, bool *in_order) {
    random_state = seed;
    struct rt_rank k = draw_rank();
    struct rt_program p = {.workers = 1, .rank = &k};
    struct recorder r = {NEW(bool, k.nins), NEW(bool, k.nins), NEW(int32_t, k.nins), 0, 0, one_in};
    struct replay re = {.device = &fake, .program = &p, .self = &r};
    re.cursor = NEW(int32_t, k.nlanes);
    re.blocked = NEW(bool, k.nlanes);
    *in_order = true;
    for (re.step = 0; re.step < 3; re.step++) {
        r.nlog = 0;
        memset(r.done, 0, (size_t)k.nins);
        replay_step(&re);
        cr_assert_eq(r.nlog, k.nins);
        for (int i = 0; i < k.nins; i++)
            *in_order &= r.log[i] == i;
    }
    return r.idles;
}

Test(replay, issue_order_where_nothing_blocks) {
    for (uint64_t seed = 0; seed < 300; seed++) {
        bool in_order;
        cr_assert_eq(replay_drawn(seed, 0, &in_order), 0);
        cr_assert(in_order);
        free_all();
    }
}

Test(replay, other_lanes_go_on_where_one_blocks) {
    int idles = 0, overtaken = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        bool in_order;
        idles += replay_drawn(seed, 2 + (int)(seed % 3), &in_order);
        overtaken += !in_order;
        free_all();
    }
    cr_assert(idles > 1000 && overtaken > 200, "%d, %d", idles, overtaken);
}

/* ---- training on the host ---- */

enum { STEPS = 3, SEED = 7 };

/* Integer-valued data through linear and relu layers: every sum is exact, so any order of addition gives the same bits.
 */
static struct model *exact_model(int batches) {
    struct model *m = model_integers(2, 8, batches);
    for (int i = 0; i < 6; i++)
        add(m, i == 5 ? LAYER_mse : i % 2 ? LAYER_relu : LAYER_linear, i % 2 ? 0 : 8);
    m->rt.lr = 0.015625f;
    return m;
}

struct trained {
    struct rt_program *p;
    char **arena;
    float loss[STEPS];
    double makespan[STEPS];
};

static struct trained *train(struct spec *sp) {
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    struct trained *t = NEW(struct trained, 1);
    char why[200];
    struct data *data = data_open(&sp->model->rt, NULL, SEED, why, sizeof why);
    cr_assert_not_null(data, "%s", why);
    t->p = runtime_program(costs, p);
    struct rt_run run = {.program = t->p, .data = data, .flags = {.seed = SEED, .steps = STEPS}, .loss = t->loss};
    run.makespan = t->makespan;
    t->arena = host_train(&run);
    cr_assert_not_null(t->arena);
    data_close(data);
    return t;
}

/* Returns the same stages and microbatches on one rank, with default dependencies, nothing split or recomputed. */
static struct spec *serial_of(const struct spec *sp) {
    struct spec *one = empty_spec(1, sp->stages, sp->batches);
    for (int s = 0; s < sp->stages; s++)
        for (int b = 0; b < sp->batches; b++) {
            add_job(one, s, b, OP_F, 0, 0)->prio = b;
            add_job(one, s, b, OP_B, 0, 0)->prio = b;
        }
    one->model = sp->model;
    return one;
}

static const char *weights_of(const struct trained *t, int rank, int stage) {
    const struct rt_rank *k = &t->p->rank[rank];
    for (int h = 0; h < k->nhomes; h++)
        if (k->home[h].stage == stage)
            return t->arena[rank] + k->home[h].weight;
    return NULL;
}

static void expect_equal(const struct trained *t, const struct trained *one, uint64_t seed) {
    for (int s = 0; s < t->p->stages; s++) {
        int homes = 0;
        for (int r = 0; r < t->p->workers; r++) {
            const char *w = weights_of(t, r, s);
            homes += w != NULL;
            cr_assert(!w || !memcmp(w, weights_of(one, 0, s), (size_t)t->p->stage[s].weight),
                      "seed %d: weights of stage %d on rank %d differ", (int)seed, s, r);
        }
        cr_assert_eq(homes > 0, t->p->stage[s].weight > 0);
    }
    cr_assert(!memcmp(t->loss, one->loss, sizeof t->loss), "seed %d", (int)seed);
}

Test(replay, trains_to_the_same_bits_as_one_rank) {
    host_blas();
    for (uint64_t seed = 0; seed < 25; seed++) {
        struct spec *sp = draw_spec(seed, ORDERS | COARSE);
        sp->model = exact_model(sp->batches);
        struct trained *t = train(sp), *one = train(serial_of(sp));
        expect_equal(t, one, seed);
        cr_assert(one->loss[STEPS - 1] != one->loss[0] && t->makespan[0] > 0);
        host_free(t->p, t->arena);
        host_free(one->p, one->arena);
        free_all();
    }
}
