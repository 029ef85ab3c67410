/* Programs whose last backwards run in parts, with gradients that travel in pieces as soon as they are complete. They
 * are made here from compiled ones, by the definitions, and train to one rank's bits. Instances are large numbers. */
#include "cli/trained_weights.h"
#include "passes/runtime_program.h"
#include "handmade.h"
#include "random_spec.h"
#include "process/train.h"
#include <criterion/criterion.h>

enum { PIECES = 4, STEPS = 2, SEED = 5 };

/* ---- one rank's rewritten stream ---- */

struct stream {
    const struct stage *st;
    struct rank *k;
    struct rank old;
    int32_t *last;       /* per old instruction: the last new one that replaces it */
    int32_t *backward;   /* per stage: its last backward, old, or -1 */
    int32_t **completes; /* per stage: the new part that completes a piece of the gradient */
};

static bool contributes(const struct instr *x) { return x->op == OP_B || x->op == OP_W; }
static bool travels(int op) { return op == OP_SEND_G || op == OP_RECV_G || op == OP_ADD || op == OP_ALL_REDUCE; }

static void give(struct stream *y, struct arg arg) {
    y->k->arg[y->k->nargs++] = arg;
    y->k->ins[y->k->nins - 1].narg++;
}

static void await(struct stream *y, int32_t i) {
    y->k->wait[y->k->nwaits++] = i;
    y->k->ins[y->k->nins - 1].nwait++;
}

/* Copies x without operands and waits. */
static struct instr *issue_anew(struct stream *y, const struct instr *x) {
    struct instr *z = &y->k->ins[y->k->nins++];
    *z = *x;
    z->arg = (uint32_t)y->k->nargs;
    z->wait = (uint32_t)y->k->nwaits;
    z->narg = z->nwait = z->nfree = 0;
    return z;
}

static bool touches(const struct stage *st, int from, int to, int piece) {
    for (int l = from; l < to; l++) {
        const struct rt_layer *layer = &st->rt.layer[l];
        int64_t size = st->bytes[K_wgrad] / PIECES, begin = layer->param, end = begin + 4 * layer->nparam;
        if (layer->nparam > 0 && begin < (piece + 1) * size && end > piece * size)
            return true;
    }
    return false;
}

static void cut_backward(struct stream *y, const struct instr *x) {
    const struct stage *st = &y->st[x->stage];
    int32_t *completes = y->completes[x->stage] = NEW(int32_t, PIECES), gradient = -1;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        gradient = y->old.arg[a].role == ROLE_dw ? y->old.arg[a].buf : gradient;
    for (int part = 0; part < st->parts; part++) {
        struct instr *z = issue_anew(y, x);
        z->part = (uint8_t)part;
        z->last = (uint8_t)(st->parts - 1);
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
            if (y->old.arg[a].role != ROLE_dw)
                give(y, y->old.arg[a]);
        for (int piece = PIECES - 1; piece >= 0; piece--)
            if (touches(st, st->cut[part + 1], st->cut[part], piece)) {
                give(y, (struct arg){ROLE_dw, (uint32_t)piece, PIECES - 1, gradient});
                completes[piece] = y->k->nins - 1;
            }
        for (uint32_t w = x->wait; w < x->wait + x->nwait && part == 0; w++)
            await(y, y->last[y->old.wait[w]]);
    }
}

static void cut_message(struct stream *y, const struct instr *x) {
    for (int piece = PIECES - 1; piece >= 0; piece--) {
        struct instr *z = issue_anew(y, x);
        z->inst = INT32_MAX - PIECES + piece;
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
            give(y, (struct arg){y->old.arg[a].role, (uint32_t)piece, PIECES - 1, y->old.arg[a].buf});
        for (uint32_t w = x->wait; w < x->wait + x->nwait; w++) {
            int32_t i = y->old.wait[w];
            bool part = i == y->backward[x->stage] && y->completes[x->stage];
            await(y, part ? y->completes[x->stage][piece] : y->last[i]);
        }
    }
}

static void copy(struct stream *y, const struct instr *x) {
    issue_anew(y, x);
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        give(y, y->old.arg[a]);
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        await(y, y->last[y->old.wait[w]]);
}

static int rewrite(const struct stage *st, const struct program *p, int r) {
    struct stream y = {.st = st, .k = &p->rank[r], .old = p->rank[r]};
    int made = 0;
    y.last = NEW(int32_t, y.old.nins);
    y.backward = NEW(int32_t, p->stages);
    y.completes = NEW(int32_t *, p->stages);
    memset(y.backward, -1, sizeof *y.backward * (size_t)p->stages);
    for (int i = 0; i < y.old.nins; i++)
        if (contributes(&y.old.ins[i]))
            y.backward[y.old.ins[i].stage] = i;
    size_t most = PIECES + 8;
    y.k->ins = NEW(struct instr, (size_t)y.old.nins * most);
    y.k->arg = NEW(struct arg, y.old.nargs * most * PIECES);
    y.k->wait = NEW(int32_t, y.old.nwaits * most + 1);
    y.k->nins = 0;
    y.k->nargs = y.k->nwaits = 0;
    for (int i = 0; i < y.old.nins; i++) {
        const struct instr *x = &y.old.ins[i];
        if (i == y.backward[x->stage] && st[x->stage].parts > 1)
            cut_backward(&y, x);
        else if (travels(x->op) && st[x->stage].bytes[K_wgrad] > 0)
            cut_message(&y, x);
        else
            copy(&y, x);
        made += y.k->nins - 1 - (i > 0 ? y.last[i - 1] : -1) > 1;
        y.last[i] = y.k->nins - 1;
    }
    return made;
}

/* Cuts each stage's layers into at most `parts` parts. */
static void cut_stages(struct stage *st, int stages, int parts) {
    for (int s = 0; s < stages; s++) {
        int n = st[s].rt.nlayers, *cut = NEW(int, parts + 1);
        st[s].parts = n < parts ? n : parts;
        for (int i = 0; i <= st[s].parts; i++)
            cut[i] = n - n * i / st[s].parts;
        st[s].cut = cut;
    }
}

/* ---- training ---- */

static struct model *exact_model(int batches) {
    struct model *m = model_integers(2, 8, batches);
    for (int i = 0; i < 24; i++)
        add(m, i == 23 ? LAYER_mse : i % 2 ? LAYER_relu : LAYER_linear, i % 2 ? 0 : 8);
    m->rt.lr = 0.015625f;
    return m;
}

struct trained {
    uint64_t weights;
    float loss[STEPS];
    int made; /* number of instructions that were cut */
};

static struct trained train(struct spec *sp, int parts) {
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    struct trained t = {.made = 0};
    double makespan[STEPS];
    char why[200];
    mem_of(sp, p);
    lanes_sync(p);
    if (parts > 0) {
        cut_stages(costs->stage, sp->stages, parts);
        for (int r = 0; r < sp->workers; r++)
            t.made += rewrite(costs->stage, p, r);
        cr_assert_null(number_messages(p, true));
    }
    struct data *data = data_open(&sp->model->rt, NULL, SEED, why, sizeof why);
    cr_assert_not_null(data, "%s", why);
    struct rt_program *rt = runtime_program(costs, p);
    struct rt_run run = {.program = rt, .data = data, .flags = {.seed = SEED, .steps = STEPS}, .loss = t.loss};
    run.makespan = makespan;
    char **arena = host_train(&run);
    cr_assert_not_null(arena);
    t.weights = hash_trained(rt, arena);
    host_free(rt, arena);
    data_close(data);
    return t;
}

Test(gradient_parts, train_to_the_same_bits) {
    int made = 0;
    host_blas();
    for (uint64_t seed = 0; seed < 25; seed++) {
        struct spec *sp = draw_spec(seed, ORDERS | COARSE);
        sp->model = exact_model(sp->batches);
        struct trained whole = train(sp, 0), parts = train(sp, 2 + (int)seed % 4);
        cr_assert_eq(whole.weights, parts.weights, "seed %d", (int)seed);
        cr_assert(!memcmp(whole.loss, parts.loss, sizeof whole.loss), "seed %d", (int)seed);
        made += parts.made;
        free_all();
    }
    cr_assert(made > 200, "%d", made);
}
