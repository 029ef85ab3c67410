/* The rows of layers.c and the tables of model.h against independent facts: published sizes, FLOP counted by hand, and
 * what an update writes. test_layers_host.c checks that rows keep all that layers need. */
#include "handmade.h"
#include "passes/layers.h"
#include <criterion/criterion.h>

/* ---- parameters ---- */

/* Returns the parameters of GPT-2 (Radford 2019, table 2), whose table of 50257 tokens is shared. */
static int64_t gpt2(int layers, int width) {
    struct model *m = gpt(1024, 1024, 50257, 1, layers, width, width / 64);
    m->layer[m->nlayers - 2] = (struct model_layer){.kind = LAYER_unembedding, .item = m->nitems - 2};
    struct stage *st = cost_stages(spec_of(m, 2));
    int64_t n = 0;
    for (int s = 0; s < 3; s++) /* the third is the table */
        for (int i = 0; i < st[s].rt.nlayers; i++)
            n += st[s].rt.layer[i].nparam;
    return n;
}

Test(layers, gpt2_has_the_published_number_of_parameters) {
    cr_expect_eq(gpt2(12, 768), 124439808);
    cr_expect_eq(gpt2(24, 1024), 354823168);
    cr_expect_eq(gpt2(36, 1280), 774030080);
    cr_expect_eq(gpt2(48, 1600), 1557611200);
}

static int64_t parameters_without_biases(struct model *m) {
    for (int i = 0; i < m->nlayers; i++)
        m->layer[i].config.linear.bias = false;
    const struct rt_stage *s = &cost_stages(spec_of(m, 1))->rt;
    int64_t n = 0;
    for (int i = 0; i < s->nlayers; i++)
        n += s->layer[i].nparam;
    return n;
}

/* Returns the parameters of Llama 2 7B and 70B (Touvron 2023, table 1; 11008 and 28672 inner columns, from the
 * weights). */
static int64_t llama(int layers, int width, int heads, int kv_heads, int inner) {
    struct model *m = model_tokens(4096, 4096, 32000, 1);
    add(m, LAYER_embedding, width);
    m->layer[0].config.embedding.positions = false;
    for (int i = 0; i < layers; i++) {
        add(m, LAYER_rmsnorm, 0);
        add(m, LAYER_linear, width / heads * (heads + 2 * kv_heads));
        add(m, LAYER_attention, heads);
        m->layer[m->nlayers - 1].config.attention.kv_heads = kv_heads;
        m->layer[m->nlayers - 1].config.attention.rope = 10000;
        add(m, LAYER_linear, width);
        add(m, LAYER_rmsnorm, 0);
        add(m, LAYER_linear, 2 * inner);
        add(m, LAYER_swiglu, 0);
        add(m, LAYER_linear, width);
    }
    add(m, LAYER_rmsnorm, 0);
    add(m, LAYER_linear, 32000);
    add(m, LAYER_cross_entropy, 0);
    return parameters_without_biases(m);
}

Test(layers, llama_has_the_published_number_of_parameters) {
    cr_expect_eq(llama(32, 4096, 32, 32, 11008), 6738415616);
    cr_expect_eq(llama(80, 8192, 64, 8, 28672), 68976648192);
}

/* Mixtral 8x7B (Jiang 2024, table 1: 47B), with the shapes of the published weights. */
Test(layers, mixtral_has_the_published_number_of_parameters) {
    struct model *m = model_tokens(4096, 4096, 32000, 1);
    static const int moe[] = {LAYER_route, LAYER_experts, LAYER_swiglu, LAYER_experts, LAYER_combine};
    add(m, LAYER_embedding, 4096);
    m->layer[0].config.embedding.positions = false;
    for (int i = 0; i < 32; i++) {
        add(m, LAYER_rmsnorm, 0);
        add(m, LAYER_linear, 128 * (32 + 2 * 8));
        add(m, LAYER_attention, 32);
        m->layer[m->nlayers - 1].config.attention.kv_heads = 8;
        add(m, LAYER_linear, 4096);
        add(m, LAYER_rmsnorm, 0);
        for (int k = 0; k < 5; k++) {
            add(m, moe[k], k == 1 ? 2 * 14336 : 0);
            m->layer[m->nlayers - 1].config.moe.experts = 8;
            m->layer[m->nlayers - 1].config.moe.top = 2;
            m->layer[m->nlayers - 1].config.moe.capacity = 1;
        }
    }
    add(m, LAYER_rmsnorm, 0);
    add(m, LAYER_linear, 32000);
    add(m, LAYER_cross_entropy, 0);
    cr_expect_eq(parameters_without_biases(m), 46702792704);
}

static void has(const struct rt_parameter *p, const char *name, int ndims, int64_t rows, int64_t columns) {
    cr_expect_str_eq(p->name, name);
    cr_expect(p->ndims == ndims && p->dim[0] == rows && (ndims == 1 || p->dim[1] == columns), "%s", name);
    cr_expect_eq(p->count, ndims == 1 ? rows : rows * columns);
}

Test(layers, parameters_by_name_and_shape) {
    struct rt_model text = {.input = INPUT_TOKENS, .vocab = 16}, integers = {.input = INPUT_INTEGERS};
    struct rt_layer l = {.kind = LAYER_linear, .config.linear.bias = true, .in = 1, .out = 6};
    struct rt_parameters p = parameters_of(&text, &l, false);
    cr_assert_eq(p.n, 2);
    has(&p.at[0], "weight", 2, 1, 6); /* one row, but not a vector */
    has(&p.at[1], "bias", 1, 6, 0);
    cr_expect_eq(parameters_of(&integers, &l, false).n, 1);
    l.config.linear.bias = false;
    cr_expect_eq(parameters_of(&text, &l, false).n, 1);
    cr_expect_eq(parameters_of(&integers, &l, false).n, 1);
    l.kind = LAYER_layernorm;
    p = parameters_of(&text, &l, false);
    cr_assert_eq(p.n, 2);
    has(&p.at[0], "gamma", 1, 6, 0);
    has(&p.at[1], "beta", 1, 6, 0);
    l.kind = LAYER_rmsnorm;
    p = parameters_of(&text, &l, false);
    cr_assert_eq(p.n, 1);
    has(&p.at[0], "gamma", 1, 6, 0);
    l.kind = LAYER_embedding;
    l.context = 4;
    p = parameters_of(&text, &l, false);
    cr_assert_eq(p.n, 2);
    has(&p.at[0], "token", 2, 16, 6);
    has(&p.at[1], "position", 2, 4, 6);
    cr_expect_str_eq(parameters_of(&text, &l, true).at[0].name, "position");
    cr_expect_eq(parameters_of(&text, &l, true).n, 1);
    l.context = 0;
    cr_expect_str_eq(parameters_of(&text, &l, false).at[0].name, "token");
    cr_expect_eq(parameters_of(&text, &l, false).n, 1);
}

/* ---- FLOP ---- */

static void costs(struct rt_layer l, double f, double i, double w) {
    struct flop is = flop_of(&l);
    cr_expect(is.f == f && is.i == i && is.w == w, "%s: %g %g %g, not %g %g %g", layer_name[l.kind], is.f, is.i, is.w,
              f, i, w);
}

Test(layers, flop_by_hand) {
    double product = 0, bias = 0, pairs = 0, heads = 2, exponentials = 0, values = 8 * 6;
    for (int r = 0; r < 8; r++)
        for (int o = 0; o < 6; o++, bias++)
            for (int i = 0; i < 5; i++)
                product += 2;
    costs((struct rt_layer){.kind = LAYER_linear, .rows = 8, .in = 5, .out = 6, .nparam = 5 * 6 + 6}, product + bias,
          product, product + bias);
    costs((struct rt_layer){.kind = LAYER_linear, .rows = 8, .in = 5, .out = 6, .nparam = 5 * 6}, product, product,
          product);
    costs((struct rt_layer){.kind = LAYER_unembedding, .rows = 8, .in = 5, .out = 6}, product, product, product);
    costs((struct rt_layer){.kind = LAYER_embedding, .rows = 8, .in = 1, .out = 6, .context = 4}, values, 0,
          2 * values);
    costs((struct rt_layer){.kind = LAYER_embedding, .rows = 8, .in = 1, .out = 6}, 0, 0, values);
    costs((struct rt_layer){.kind = LAYER_relu, .rows = 8, .in = 6, .out = 6}, values, values, 0);
    costs((struct rt_layer){.kind = LAYER_fork, .rows = 8, .in = 6, .out = 6}, 0, values, 0);
    costs((struct rt_layer){.kind = LAYER_join, .rows = 8, .in = 6, .out = 6}, values, 0, 0);
    costs((struct rt_layer){.kind = LAYER_mse, .rows = 8, .in = 6, .out = 6}, 5 * values, 0,
          0);                   /* x - t, / count; 0.5 d d, summed */
    for (int r = 0; r < 8; r++) /* two sequences of 4, a tile each */
        for (int k = 0; k < 4; k++, pairs++)
            exponentials += k <= r % 4 ? heads : 0;
    costs((struct rt_layer){.kind = LAYER_attention,
                            .rows = 8,
                            .in = 18,
                            .out = 6,
                            .config.attention = {.heads = 2, .kv_heads = 2},
                            .context = 4},
          2 * 2 * pairs * 6 + 22 * exponentials, 5 * 2 * pairs * 6 + 24 * exponentials + 2 * values, 0);
    /* 8 tokens in 2 sequences, each to 2 of 3 experts with room for 3 of a sequence: 18 rows */
    double logits = 0, choices = 0, multiplied = 0;
    for (int t = 0; t < 8; t++) {
        for (int e = 0; e < 3; e++, logits++)
            multiplied += 2 * 6;
        for (int k = 0; k < 2; k++)
            choices += 6;
    }
    struct rt_layer route = {.kind = LAYER_route, .rows = 8, .in = 6, .out = 6, .context = 4, .out_rows = 18};
    route.config.moe.experts = 3;
    route.config.moe.top = 2;
    costs(route, multiplied + (24 + 2) * logits, multiplied + 6 * logits + choices, multiplied);
    struct rt_layer combine = {.kind = LAYER_combine, .rows = 18, .in = 6, .out = 6, .context = 4, .out_rows = 8};
    combine.config.moe.experts = 3;
    combine.config.moe.top = 2;
    costs(combine, 2 * choices, 2 * choices + 18 * 6, 0);
    product = 2 * 18 * 6 * 5;
    costs((struct rt_layer){.kind = LAYER_experts, .rows = 18, .in = 6, .out = 5, .config.moe.experts = 3}, product,
          product, product);
    double turned = 0;
    for (int r = 0; r < 8; r++)
        for (int pair = 0; pair < 1; pair++, turned += 22) /* an angle, and two columns of each head */
            for (int h = 0; h < 3 + 1; h++)
                turned += 4 + 2;
    exponentials *= 3.0 / 2;
    costs((struct rt_layer){.kind = LAYER_attention,
                            .rows = 8,
                            .in = 10,
                            .out = 6,
                            .config.attention = {.heads = 3, .kv_heads = 1, .rope = 10000},
                            .context = 4},
          2 * 2 * pairs * 6 + 22 * exponentials + turned, 5 * 2 * pairs * 6 + 24 * exponentials + 2 * values + turned,
          0);
}

/* ---- optimizers ---- */

/* Two updates write every moment of every parameter, and nothing after the last one. */
Test(layers, an_update_uses_the_moments_it_names) {
    for (int o = OPT_NONE + 1; o < NOPTIMIZERS; o++) {
        struct model *m = model_tokens(4, 4, 3, 1);
        add(m, LAYER_embedding, 4);
        add(m, LAYER_linear, 3);
        add(m, LAYER_cross_entropy, 0);
        m->rt.optimizer = o;
        m->rt.beta1 = m->rt.beta2 = 0.5f;
        m->rt.eps = 1;
        m->rt.adam_lr = m->rt.lr;
        m->rt.output = 1; /* Muon has no matrices here: these would have one moment */
        const struct rt_stage *s = &cost_stages(spec_of(m, 1))->rt;
        int64_t n = s->weight / 4, all = count_moments(o) * n;
        cr_expect_eq(s->opt, 4 * all, "optimizer %d", o);
        float *w = fresh(s->weight), *dw = fresh(s->weight), *opt = fresh(4 * (all + n));
        for (int64_t i = 0; i < n; i++) {
            w[i] = 1;
            dw[i] = 2;
        }
        host_update(&(struct rt_update){
            .piece = {&m->rt, s, 0, weight_count(&m->rt, s)}, .w = w, .dw = dw, .opt = opt, .number = 1});
        host_update(&(struct rt_update){
            .piece = {&m->rt, s, 0, weight_count(&m->rt, s)}, .w = w, .dw = dw, .opt = opt, .number = 2});
        for (int i = 0; i < s->nlayers; i++)
            for (int64_t at = s->layer[i].param / 4, k = at; k < at + s->layer[i].nparam; k++) {
                cr_expect(w[k] < 1, "optimizer %d", o);
                for (int moment = 0; moment < count_moments(o); moment++)
                    cr_expect(opt[moment * n + k] > 0, "optimizer %d, moment %c", o, moments_of(o)[moment]);
            }
        for (int64_t k = all; k < all + n; k++)
            cr_expect(opt[k] != opt[k], "optimizer %d wrote behind its moments", o);
    }
}

/* The model has every field of every optimizer: otherwise this would not compile. */
Test(layers, a_model_has_the_fields_of_all_optimizers) {
    struct rt_model m = {.rows = 0};
    double sum = 0;
#define FIELD(name, range, otherwise)        sum += (double)m.name;
#define X(NAME, name, moments, flop, fields) fields
    OPTIMIZERS(X)
#undef X
#undef FIELD
    cr_expect_eq(sum, 0);
}
