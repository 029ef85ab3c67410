#include "handmade.h"
#include <criterion/criterion.h>
#include <math.h>

/* ---- without a model ---- */

Test(cost, units_without_a_model) {
    struct spec *sp = spec_of(NULL, 2);
    sp->job = (struct job[]){
        {.s = 1, .d = OP_B, .cost = NAN}, {.s = 0, .d = OP_F, .cost = 5}, {.s = 0, .d = OP_W, .cost = NAN}};
    sp->njobs = 3;
    const struct costs *costs = costs_make(sp);
    const struct stage *st = costs->stage;
    static const double want[NDIRS] = {[OP_F] = 1, [OP_R] = 1, [OP_I] = 1, [OP_B] = 2, [OP_W] = 1};
    for (int s = 0; s < 2; s++) {
        for (int d = 0; d < NDIRS; d++)
            cr_assert_eq(st[s].cost[d], want[d]);
        for (int k = 0; k < NKINDS; k++)
            cr_assert_eq(st[s].bytes[k], k == K_opt || k == K_hopt || k == K_work ? 0 : 1);
        cr_assert_eq(st[s].update, 0);
        cr_assert_eq(st[s].rt.nlayers, 0);
    }
    cr_assert(costs->computes[0] == 2 && costs->computes[1] == 5 && costs->computes[2] == 1,
              "the script's cost is kept");
    cr_assert_eq(cost_add(sp, 400), 0);
}

/* ---- a cost model ---- */

static struct spec *four_costs(int stages) {
    struct model *m = NEW(struct model, 1);
    m->nitems = 4;
    m->cost = NEW(struct layer_cost, 4);
    m->cost[0] = (struct layer_cost){"a", 1, 2, 1.5, 40, 40, 10};
    m->cost[1] = (struct layer_cost){"b", 3, 6, 0, 20, 100, 0};
    m->cost[2] = (struct layer_cost){"c", 2, 2, 1, 0, 7, 5};
    m->cost[3] = (struct layer_cost){"d", 0.5, 0.5, 0.25, 8, 8, 400};
    return spec_of(m, stages);
}

Test(cost, sums_of_a_model_of_costs) {
    struct spec *sp = four_costs(2);
    sp->model->cut = (int[]){2};
    sp->model->ncut = 1;
    sp->machine.flops = 1000; /* costs are already seconds */
    struct stage *st = cost_stages(sp);
    cr_assert(st[0].cost[OP_F] == 4 && st[0].cost[OP_R] == 4 && st[0].cost[OP_B] == 8);
    cr_assert(st[0].cost[OP_W] == 1.5 && st[0].cost[OP_I] == 6.5);
    cr_assert(st[1].cost[OP_F] == 2.5 && st[1].cost[OP_B] == 2.5 && st[1].cost[OP_I] == 1.25);
    cr_assert(st[0].bytes[K_weight] == 12 && st[0].bytes[K_wgrad] == 12, "whole fp32");
    cr_assert(st[1].bytes[K_weight] == 408 && st[1].bytes[K_wgrad] == 408);
    cr_assert(st[0].bytes[K_stash] == 140 && st[0].bytes[K_wstash] == 140 && st[1].bytes[K_stash] == 15);
    cr_assert(st[0].bytes[K_act] == 20 && st[1].bytes[K_grad] == 20 && st[1].bytes[K_input] == 20);
    for (int s = 0; s < 2; s++)
        cr_assert(st[s].bytes[K_opt] == 0 && st[s].bytes[K_work] == 0 && st[s].update == 0 && st[s].rt.nlayers == 0);
    cr_assert_float_eq(cost_add(sp, 400), 0.1, 1e-12);
    sp->machine.flops = 0;
    cr_assert_eq(cost_add(sp, 400), 0);
}

Test(cost, a_tensor_of_no_bytes_has_a_size) {
    struct spec *sp = four_costs(4);
    struct stage *st = cost_stages(sp);
    cr_assert(st[2].bytes[K_act] == 4 && st[3].bytes[K_grad] == 4 && st[3].bytes[K_input] == 4);
}

/* Cuts times of 3, 9, 4 and 1 so that the largest stage is smallest. */
Test(cost, a_model_of_costs_is_cut_evenly) {
    static const double slowest[] = {17, 12, 9, 9};
    for (int stages = 1; stages <= 4; stages++) {
        struct stage *st = cost_stages(four_costs(stages));
        double most = 0, all = 0;
        for (int s = 0; s < stages; s++) {
            most = fmax(most, st[s].cost[OP_F] + st[s].cost[OP_B]);
            all += st[s].cost[OP_F] + st[s].cost[OP_B];
        }
        cr_assert(most == slowest[stages - 1] && all == 17, "%d stages: %g of %g", stages, most, all);
    }
}

/* ---- costs and bytes of a model ---- */

static struct model *two_linears(void) {
    struct model *m = model_tokens(8, 4, 16, 2);
    add(m, LAYER_embedding, 4);
    add(m, LAYER_linear, 6);
    add(m, LAYER_linear, 16);
    add(m, LAYER_cross_entropy, 0);
    m->cut = NEW(int, 1);
    m->cut[0] = 2;
    m->ncut = 1;
    return m;
}

Test(cost, flop_of_the_jobs) {
    struct spec *sp = spec_of(two_linears(), 2);
    struct stage *st = cost_stages(sp);
    double embedding = 8 * 4, product = 2 * 8 * 4 * 6, bias = 8 * 6;
    cr_assert_eq(st[0].flop[OP_F], embedding + product + bias);
    cr_assert_eq(st[0].flop[OP_I], product, "the embedding needs it of the linear layer");
    cr_assert_eq(st[0].flop[OP_W], 2 * embedding + product + bias);
    product = 2 * 8 * 6 * 16, bias = 8 * 16;
    cr_assert_eq(st[1].flop[OP_W], product + bias);
    for (int s = 0; s < 2; s++) {
        cr_assert_eq(st[s].flop[OP_B], st[s].flop[OP_I] + st[s].flop[OP_W]);
        cr_assert_eq(st[s].flop[OP_R], st[s].flop[OP_F]);
        for (int d = 0; d < NDIRS; d++)
            cr_assert_eq(st[s].cost[d], st[s].flop[d]);
    }
    cr_assert_eq(st[0].update, 2 * ((16 + 4) * 4 + 4 * 6 + 6), "sgd multiplies and subtracts");
    cr_assert_eq(cost_add(sp, 400), 100);
    sp->machine.flops = 1000;
    struct stage *seconds = cost_stages(sp);
    cr_assert_float_eq(seconds[1].cost[OP_F], st[1].flop[OP_F] / 1000, 1e-12);
    cr_assert_float_eq(cost_add(sp, 400), 0.1, 1e-12);
}

Test(cost, gradients_nobody_needs_are_not_counted) { /* of the batch, and of tensors made from it without weights */
    struct model *m = model_integers(4, 8, 1);
    add(m, LAYER_relu, 0);
    add(m, LAYER_linear, 8);
    add(m, LAYER_mse, 0);
    struct stage *st = cost_stages(spec_of(m, 1));
    cr_assert_eq(st->flop[OP_I], 1, "the forward of the loss has made its gradient");
    cr_assert_eq(st->rt.layer[0].dx.space, SP_NONE);
    cr_assert_eq(st->rt.layer[1].dx.space, SP_NONE);
}

Test(cost, every_job_takes_time) { /* an embedding alone has no input gradient, a relu no weights, a fork nothing */
    struct model *m = two_linears();
    m->nlayers = m->nitems = 1;
    add(m, LAYER_relu, 0);
    add(m, LAYER_fork, 0);
    add(m, LAYER_join, 0);
    add(m, LAYER_linear, 16);
    add(m, LAYER_cross_entropy, 0);
    m->cut = (int[]){1, 2, 3, 4};
    m->ncut = 4;
    struct stage *st = cost_stages(spec_of(m, 5));
    for (int s = 0; s < 5; s++)
        for (int d = 0; d < NDIRS; d++)
            cr_assert(st[s].cost[d] >= 1, "stage %d, %s", s, op_name[d]);
    cr_assert_eq(st[0].cost[OP_I], 1);
    cr_assert_eq(st[1].cost[OP_W], 1);
}

Test(cost, bytes_of_a_stage) {
    struct model *m = two_linears();
    m->rt.optimizer = OPT_ADAMW;
    struct stage *st = cost_stages(spec_of(m, 2));
    int64_t embedding = 4 * (16 + 4) * 4, linear = 4 * (4 * 6 + 6);
    cr_assert_eq(st[0].bytes[K_weight], embedding + 128); /* 320 is a multiple of 64, and 120 is rounded up to one */
    cr_assert(linear == 120 && st[0].bytes[K_wgrad] == st[0].bytes[K_weight]);
    cr_assert_eq(st[0].bytes[K_opt], 2 * st[0].bytes[K_weight]);
    cr_assert_eq(st[0].bytes[K_act], 4 * 8 * 6);
    cr_assert_eq(st[1].bytes[K_grad], 4 * 8 * 6);
    cr_assert_eq(st[1].bytes[K_input], 4 * 8 * 6);
    cr_assert(st[0].bytes[K_grad] == 0 && st[1].bytes[K_act] == 0 && st[0].rt.input == 0 && st[0].bytes[K_input] == 4);
    int64_t x = 4 * 8 * 4, dx = x, dy = 4 * 8 * 6;
    cr_assert_eq(st[0].bytes[K_stash], x, "the linear's input; its output leaves, and tokens are read again");
    cr_assert_eq(st[0].bytes[K_wstash], x + dx + dy, "gradients of both layers' outputs, for their weights");
    cr_assert_eq(st[0].rt.work, 0);
    cr_assert_eq(st[0].bytes[K_work], x + dy, "F with recompute drops its stash here, R its output; ext is no larger");
    cr_assert_eq(st[1].rt.work, 8 * 8,
                 "a loss per row; the loss's gradient takes the place of the logits in the stash");
    cr_assert_eq(st[1].bytes[K_token], 4);
}

Test(cost, bytes_of_a_stage_in_bf16) {
    struct model *m = two_linears();
    m->rt.optimizer = OPT_ADAMW;
    m->rt.precision = BF16;
    struct stage *st = cost_stages(spec_of(m, 2));
    const int64_t *b = st[0].bytes;
    cr_assert_eq(b[K_weight], 192 + 64); /* 160 bytes of embedding and 60 of linear, each in whole lines */
    cr_assert_eq(st[0].rt.layer[1].param, 192);
    cr_assert_eq(b[K_wgrad], 2 * b[K_weight], "gradients of weights are fp32");
    cr_assert_eq(b[K_opt], 3 * b[K_wgrad], "masters and both moments too");
    cr_assert(b[K_act] == 96 && st[1].bytes[K_grad] == 96 && st[1].bytes[K_input] == 96);
    cr_assert_eq(b[K_stash], 64);
    cr_assert_eq(b[K_wstash], 64 + 64 + 128);
    cr_assert_eq(b[K_work], 64 + 128);
    cr_assert_eq(st[1].bytes[K_stash], 128 + 256, "the linear's input, and the loss's gradient");
    cr_assert_eq(st[1].rt.work, 64, "a loss per row in double");
    double flop = st[0].flop[OP_B];
    m->rt.optimizer = OPT_SGD;
    st = cost_stages(spec_of(m, 2));
    cr_assert_eq(st[0].bytes[K_opt], st[0].bytes[K_wgrad], "masters");
    m->rt.precision = FP32;
    st = cost_stages(spec_of(m, 2));
    cr_assert(st[0].bytes[K_opt] == 0 && st[0].flop[OP_B] == flop, "work is counted, not how fast it goes");
}

/* Checks the whole stash of a transformer block, tensor by tensor: statistics are fp32 in either precision. */
static void transformer_block(int precision, int64_t element) {
    struct model *m = gpt(128, 32, 50, 1, 1, 64, 4);
    m->rt.precision = precision;
    m->cut = (int[]){1, 3};
    m->ncut = 2;
    struct stage *st = cost_stages(spec_of(m, 3)) + 1;
    int64_t c = element * 128 * 64, stat = 4 * 128 * 2, lse = 4 * 128 * 4;
    int64_t attention = c + stat + c + 3 * c + lse + c; /* block's input, normed, q k v, log-sum-exp, heads' output */
    int64_t mlp = c + stat + c + 4 * c + 4 * c;         /* block's input, normed, before and after gelu */
    cr_assert_eq(st->rt.stash, attention + mlp);
    cr_assert_eq(st->rt.ext, 2 * c + 3 * c + c + 4 * c + c, "dy of both norms and of the four linears");
    /* The largest tensor of the backward is the gradient of gelu's output. A join's gradient is already in ext. */
    cr_assert_eq(st->rt.work, 4 * c);
}

Test(cost, a_transformer_block_keeps_what_it_must) {
    transformer_block(FP32, 4);
    transformer_block(BF16, 2);
}

/* ---- layout ---- */

static bool same(struct slot a, struct slot b) { return a.space == b.space && a.off == b.off; }

/* In a last stage, a loss may overwrite its input with the gradient. It may not overwrite a relu's output, which is
 * kept, or a stage's input, which is an operand. Alone in its stage, it owes its gradient to the previous stage. */
Test(cost, a_loss_leaves_its_gradient_where_its_input_was) {
    struct model *m = two_linears();
    struct stage *st = cost_stages(spec_of(m, 2)) + 1;
    const struct rt_layer *l = st->rt.layer;
    int64_t logits = 4 * 8 * 16, x = 4 * 8 * 6;
    cr_assert(same(l[1].x, l[1].aux) && same(l[1].dx, l[1].aux) && l[1].x.space == SP_STASH);
    cr_assert_eq(st->bytes[K_stash], x + logits);
    cr_assert_eq(st->bytes[K_wstash], st->bytes[K_stash], "W needs no copy of it");
    m = two_linears();
    m->nlayers = m->nitems = 3;
    add(m, LAYER_relu, 0);
    add(m, LAYER_cross_entropy, 0);
    m->cut[0] = 2;
    l = cost_stages(spec_of(m, 2))[1].rt.layer;
    cr_assert(l[2].x.space == SP_STASH && l[2].aux.space == SP_STASH && !same(l[2].x, l[2].aux));
    cr_assert(same(l[2].dx, l[2].aux));
    m->cut[0] = 4;
    l = cost_stages(spec_of(m, 2))[1].rt.layer;
    cr_assert(l->x.space == SP_X && l->aux.space == SP_STASH && l->dx.space == SP_DX);
}

static int64_t size_of(const struct rt_stage *t, int space) {
    int64_t size[] = {[SP_X] = t->input,   [SP_Y] = t->act,  [SP_STASH] = t->stash, [SP_EXT] = t->ext,
                      [SP_WORK] = t->work, [SP_DY] = t->act, [SP_DX] = t->grad};
    return size[space];
}

static void inside(const struct rt_stage *t, struct slot s, int64_t bytes) {
    cr_assert_eq(s.off % 64, 0);
    if (s.space != SP_NONE)
        cr_assert(s.off >= 0 && s.off + bytes <= size_of(t, s.space), "space %d offset %d", s.space, (int)s.off);
}

static int64_t aux_of(const struct rt_layer *l, int64_t element) {
    switch (l->kind) {
    case LAYER_layernorm: return 8 * (int64_t)l->rows;
    case LAYER_rmsnorm: return 4 * (int64_t)l->rows;
    case LAYER_attention: return 4 * (int64_t)l->rows * l->config.attention.heads;
    default: return element * l->rows * l->in;
    }
}

/* Checks that two tensors of the stash are the same or do not overlap. */
static void apart(const struct rt_stage *t, int64_t element) {
    struct slot at[300];
    int64_t bytes[300];
    int n = 0;
    for (const struct rt_layer *l = t->layer; l < t->layer + t->nlayers; l++) {
        const struct slot slot[] = {l->x, l->y, l->kind == LAYER_fork ? (struct slot){SP_NONE, 0} : l->aux};
        const int64_t size[] = {element * l->rows * l->in, element * l->rows * l->out, aux_of(l, element)};
        for (int i = 0; i < 3; i++)
            if (slot[i].space == SP_STASH) {
                at[n] = slot[i];
                bytes[n++] = size[i];
            }
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            cr_assert(at[i].off == at[k].off ? bytes[i] == bytes[k]
                                             : at[i].off + bytes[i] <= at[k].off || at[k].off + bytes[k] <= at[i].off);
}

static void fit_together(int precision, int64_t element) {
    for (int stages = 1; stages <= 8; stages++) {
        struct model *m = gpt(24, 8, 17, 1, 3, 12, 3);
        m->rt.precision = precision;
        struct stage *st = cost_stages(spec_of(m, stages));
        int index = 0;
        for (int s = 0; s < stages; s++) {
            const struct rt_stage *t = &st[s].rt;
            int64_t end = 0, depth = 0;
            cr_assert(s == stages - 1 || t->act == st[s + 1].rt.grad);
            cr_assert(t->stash % 64 == 0 && t->ext % 64 == 0 && t->work % 64 == 0 && t->weight % 64 == 0);
            for (const struct rt_layer *l = t->layer; l < t->layer + t->nlayers; l++) {
                cr_assert_eq(l->index, index++);
                cr_assert(l->param >= end && l->param % 64 == 0 && l->param + element * l->nparam <= t->weight);
                end = l->param + element * l->nparam;
                inside(t, l->x, element * l->rows * l->in);
                inside(t, l->y, element * l->rows * l->out);
                inside(t, l->dx, element * l->rows * l->in);
                inside(t, l->dy, element * l->rows * l->out);
                inside(t, l->aux, aux_of(l, element));
                inside(t, l->tmp, l->kind == LAYER_attention ? aux_of(l, element) : 8 * (int64_t)l->rows);
                cr_assert(l->nparam == 0 || l->dy.space == SP_EXT || same(l->dy, l[1].aux));
                depth += (l->kind == LAYER_fork) - (l->kind == LAYER_join);
                cr_assert(depth >= 0);
            }
            cr_assert_eq(depth, 0, "a cut inside a residual block");
            apart(t, element);
        }
        cr_assert_eq(index, m->nlayers);
    }
}

Test(cost, tensors_lie_inside_their_spaces_and_stages_fit_together) {
    fit_together(FP32, 4);
    fit_together(BF16, 2);
}

/* ---- the cut ---- */

static double largest_of(const double *cost, int n, const int *open, int k) {
    double largest = 0;
    for (int s = 0; s < k; s++) {
        double sum = 0;
        for (int u = open[s]; u < (s + 1 < k ? open[s + 1] : n); u++)
            sum += cost[u];
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

static double brute_force(const double *cost, int n, int *open, int s, int k) {
    if (s == k)
        return largest_of(cost, n, open, k);
    double best = INFINITY;
    for (open[s] = s == 0 ? 0 : open[s - 1] + 1; open[s] <= n - (k - s) && (s > 0 || open[s] == 0); open[s]++)
        best = fmin(best, brute_force(cost, n, open, s + 1, k));
    return best;
}

static double weight_of(const struct stage *st) { return st->flop[OP_F] + st->flop[OP_B]; }

Test(cost, cut_makes_the_largest_stage_as_small_as_can_be) {
    uint64_t state = 1;
    for (int round = 0; round < 60; round++) {
        struct model *m = model_tokens(8, 8, 9, 1);
        add(m, LAYER_embedding, 3);
        int linears = 2 + round % 6;
        for (int i = 0; i < linears; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            add(m, LAYER_linear, i < linears - 1 ? 1 + (int)(state >> 59) : 9);
        }
        add(m, LAYER_cross_entropy, 0);
        double cost[10];
        struct stage *each = cost_stages(spec_of(m, m->nitems));
        for (int u = 0; u < m->nitems; u++)
            cost[u] = weight_of(&each[u]);
        for (int k = 1; k <= m->nitems; k++) {
            struct stage *st = cost_stages(spec_of(m, k));
            int open[10];
            double largest = 0, best = brute_force(cost, m->nitems, open, 0, k);
            for (int s = 0; s < k; s++)
                largest = fmax(largest, weight_of(&st[s]));
            /* a job costs at least 1, so a single unit weighs up to 2 more than together with others */
            cr_assert(fabs(largest - best) <= 4, "%d stages of %d units: %g, best %g", k, m->nitems, largest, best);
        }
    }
}

Test(cost, cut_spreads_the_slack) { /* ten equal units in four stages: 3 3 2 2 in some order, not 3 3 3 1 */
    struct model *m = model_integers(4, 16, 1);
    for (int i = 0; i < 10; i++)
        add(m, LAYER_linear, 16);
    add(m, LAYER_mse, 0);
    struct stage *st = cost_stages(spec_of(m, 4));
    for (int s = 0; s < 4; s++) {
        int linears = st[s].rt.nlayers - (s == 3);
        cr_assert(linears == 2 || linears == 3, "stage %d has %d", s, linears);
    }
}

Test(cost, cut_as_told) {
    struct model *m = gpt(16, 8, 10, 1, 2, 8, 2); /* 8 units: embedding, 4 blocks, norm, linear, loss */
    m->cut = (int[]){1, 6};
    m->ncut = 2;
    struct stage *st = cost_stages(spec_of(m, 3));
    cr_assert_eq(st[0].rt.nlayers, 1);
    cr_assert_eq(st[1].rt.layer[0].kind, LAYER_fork);
    cr_assert_eq(st[1].rt.nlayers, 25);
    cr_assert_eq(st[2].rt.nlayers, 2);
}

Test(cost, cutting_is_quick) { /* a thousand units into five hundred stages, fifty times */
    struct model *m = model_integers(4, 16, 1);
    for (int i = 0; i < 998; i++)
        add(m, LAYER_linear, 16);
    add(m, LAYER_mse, 0);
    for (int i = 0; i < 50; i++)
        cr_assert_not_null(cost_stages(spec_of(m, 500)));
}

/* ---- errors ---- */

static const char *error_of(struct model *m, int stages) {
    jmp_buf trap;
    diag_text[0] = 0;
    diag_trap = &trap;
    if (setjmp(trap) == 0)
        cost_stages(spec_of(m, stages));
    diag_trap = NULL;
    return diag_text;
}

#define SAYS(m, stages, text) cr_assert_str_eq(error_of(m, stages), "pianola: error: " text "\n")

Test(cost, errors_name_the_layer) {
    struct model *m = model_tokens(8, 4, 16, 1);
    add(m, LAYER_embedding, 4);
    add(m, LAYER_fork, 0);
    add(m, LAYER_linear, 100);
    add(m, LAYER_attention, 4);
    add(m, LAYER_join, 0);
    add(m, LAYER_cross_entropy, 0);
    SAYS(m, 1,
         "layer 3 (attention): its input has 100 columns, which is not a multiple of 3 x heads; with heads = 4 the "
         "layer "
         "before it needs a width that 12 divides");
    m->layer[3].config.attention.kv_heads = 3;
    SAYS(m, 1,
         "layer 3 (attention): kv_heads = 3 does not divide heads = 4; equally many heads must read each head "
         "of keys and values");
    m->layer[3].config.attention.kv_heads = 2;
    SAYS(
        m, 1,
        "layer 3 (attention): its input has 100 columns, which is not a multiple of heads + 2 kv_heads; with heads = 4 "
        "and kv_heads = 2 the layer before it needs a width that 8 divides");
    m->layer[2].out = 24;
    m->layer[3].config.attention.rope = 10000;
    SAYS(m, 1,
         "layer 3 (attention): rope rotates a head's columns in pairs, and its heads have 3; with heads = 4 and "
         "kv_heads "
         "= 2 the layer before it needs a width that 16 divides");
    m->layer[2].out = 32;
    m->layer[2].kind = LAYER_relu;
    m->layer[0].out = 32;
    SAYS(m, 1,
         "layer 3 (attention): rope rotates queries and keys in place, and the relu before it needs them unrotated; "
         "put a linear layer before it");
    m->layer[2].kind = LAYER_fork;
    SAYS(m, 1,
         "layer 2 (attention): rope rotates queries and keys in place, and the residual block that it opens needs "
         "them unrotated; put a linear layer before it");
    m->layer[2].kind = LAYER_linear;
    m->layer[0].out = 4;
    m->layer[3].config.attention.rope = m->layer[3].config.attention.kv_heads = 0;
    m->layer[2].out = 24;
    SAYS(m, 1,
         "the residual block that ends with layer 3 (attention): its input has 4 columns and its output 8, and the "
         "two are added; give its last layer width = 4");
    m->layer[2].out = 12;
    m->layer[3].config.attention.heads = 2;
    SAYS(m, 1,
         "layer 4 (cross_entropy): its input has 4 columns, but vocab = 16; give the last linear layer that width");
    m = model_tokens(8, 4, 16, 1);
    add(m, LAYER_embedding, 5);
    add(m, LAYER_swiglu, 0);
    add(m, LAYER_cross_entropy, 0);
    SAYS(m, 1,
         "layer 2 (swiglu): its input has 5 columns, but gate and up need equally many; give the layer before it an "
         "even width");
    m = model_integers(8, 4, 1);
    add(m, LAYER_linear, 5);
    add(m, LAYER_mse, 0);
    SAYS(m, 1, "layer 2 (mse): its input has 5 columns, but features = 4; give the last linear layer that width");
}

Test(cost, more_stages_than_blocks) {
    struct model *m = two_linears();
    m->cut = NULL;
    SAYS(m, 5,
         "the model has 4 blocks (a block is a layer or a whole residual), too few for 5 stages; use at most 4 stages, "
         "or more layers");
    cr_assert_str_eq(error_of(m, 4), "");
}
