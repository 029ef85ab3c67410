/* Every layer against itself in double precision, differentiated numerically; and the promises of the sweeps. */
#include "layers/host.h"
#include "handmade.h"
#include "layer_reference.h"

/* ---- the comparison ---- */

Test(layers_host, exp) { /* within 2 ulp, and never so small or large that it spoils a product */
    for (int i = -600000; i <= 600000; i++) {
        float x = (float)i * 1e-4f;
        double want = exp((double)x);
        cr_assert(fabs((double)host_exp(x) - want) <= 2 * 1.2e-7 * want, "exp(%g) = %g", (double)x,
                  (double)host_exp(x));
    }
    cr_assert(host_exp(-1e30f) == host_exp(-60) && host_exp(1e30f) == host_exp(60));
}

static uint64_t state = 7;
static float uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 8388608 - 1; /* [-1, 1) */
}

static struct rt_batch *random_batch(const struct rt_model *m) {
    struct rt_batch *b = NEW(struct rt_batch, 1);
    int32_t *token = NEW(int32_t, m->rows), *target = NEW(int32_t, m->rows);
    float *x = NEW(float, m->rows * m->features + 1), *y = NEW(float, m->rows * m->features + 1);
    for (int r = 0; r < m->rows && m->vocab > 0; r++) {
        token[r] = (int)(state % (uint64_t)m->vocab);
        uniform();
        target[r] = (int)((state >> 33) % (uint64_t)m->vocab);
        uniform();
    }
    for (int i = 0; i < m->rows * m->features; i++) {
        x[i] = uniform();
        y[i] = uniform();
    }
    *b = (struct rt_batch){.token = token, .target = target, .x = x, .y = y};
    return b;
}

/* Fills in n floats, and returns the same values in double. */
static double *twice(char *at, int64_t n) {
    double *d = NEW(double, 4096);
    cr_assert(n <= 4096);
    for (int64_t i = 0; i < n; i++)
        d[i] = (double)(((float *)(void *)at)[i] = uniform());
    return d;
}

/* Tolerance of fp32 results relative to the largest value: some hundred roundings of 6e-8. The numeric derivative
 * itself, central with steps of 1e-5 in double, is good to about 1e-9. */
static const double tolerance = 2e-5;

static void compare(const char *what, const float *got, const double *want, int64_t n) {
    double largest = 1e-3;
    for (int64_t i = 0; i < n; i++)
        largest = fabs(want[i]) > largest ? fabs(want[i]) : largest;
    for (int64_t i = 0; i < n; i++)
        cr_assert(fabs((double)got[i] - want[i]) <= tolerance * largest, "%s[%d]: %g, should be %g", what, (int)i,
                  (double)got[i], want[i]);
}

static double *derivative(struct reference *f, double *at, int64_t n) {
    double *d = NEW(double, n + 1);
    for (int64_t i = 0; i < n; i++) {
        double was = at[i];
        at[i] = was + 1e-5;
        double up = objective(f);
        at[i] = was - 1e-5;
        d[i] = (up - objective(f)) / 2e-5;
        at[i] = was;
    }
    return d;
}

/* Runs stage s of the cut model on random weights, inputs and output gradients. Compares y, the loss, dx and every
 * parameter's gradient with the reference, also a shared table's, written first and then added to. */
static void check_stage(struct model *m, int stages, int s) {
    struct spec *sp = spec_of(m, stages);
    struct stage *all = cost_stages(sp), *st = all + s;
    const struct rt_stage *t = &st->rt, *table = sp->names.tables > 0 ? &all[stages].rt : NULL;
    struct reference f = {.m = &m->rt, .s = t, .batch = random_batch(&m->rt)};
    struct rt_bind *at = bench_tied(st, 1, table, f.batch).at;
    float loss = NAN;
    at->loss = &loss;
    at->at[SP_X] = fresh(t->input);
    at->at[SP_DY] = fresh(t->act);
    f.w = twice((char *)at->w, t->weight / 4);
    f.v = table ? twice((char *)at->v, table->weight / 4) : NULL;
    f.x = twice(at->at[SP_X], t->input / 4);
    f.dy = twice(at->at[SP_DY], t->act / 4);
    for (int i = 0; s == 0 && i < m->rt.rows * m->rt.features; i++)
        f.x[i] = (double)f.batch->x[i];
    host_forward(&m->rt, t, at);
    memset(at->at[SP_X], 0xff, (size_t)t->input); /* x and y are gone by the time of the backward */
    double want = objective(&f);
    if (t->act == 0)
        cr_assert_float_eq(loss / (float)m->rt.batches, want, 1e-5 * fabs(want));
    else
        compare("y", (float *)(void *)at->at[SP_Y], f.y, t->act / 4);
    memset(at->at[SP_Y], 0xff, (size_t)t->act);
    host_backward(&m->rt, t, at, true, true);
    if (s > 0)
        compare("dx", (float *)(void *)at->at[SP_DX], derivative(&f, f.x, t->grad / 4), t->grad / 4);
    compare("dw", at->dw, derivative(&f, f.w, t->weight / 4), t->weight / 4); /* the gaps' derivatives are 0 */
    if (!table)
        return;
    int64_t n = table->weight / 4;
    double *dv = derivative(&f, f.v, n);
    compare("dv", at->dv, dv, n);
    at->vfirst = false;
    host_backward(&m->rt, t, at, false, true);
    for (int64_t i = 0; i < n; i++)
        dv[i] *= 2;
    compare("dv twice", at->dv, dv, n);
}

/* A layer of a model embedding | the layers under test, from out columns | linear, cross_entropy; a kind with its x. */
struct item {
    int kind, x;
};
static void check_layers(int columns, int n, const struct item *layer) {
    for (int rows = 6; rows <= 12; rows += 6) { /* one sequence, and two */
        struct model *m = model_tokens(rows, 6, 11, 3);
        add(m, LAYER_embedding, columns);
        for (int i = 0; i < n; i++)
            add(m, layer[i].kind, layer[i].x);
        m->cut = NEW(int, 2);
        m->cut[0] = 1;
        m->cut[1] = m->nitems;
        m->ncut = 2;
        add(m, LAYER_linear, 11);
        add(m, LAYER_cross_entropy, 0);
        check_stage(m, 3, 1);
    }
}
#define ITEMS(...)          ((const struct item[]){__VA_ARGS__})
#define CHECK(columns, ...) check_layers(columns, sizeof ITEMS(__VA_ARGS__) / sizeof(struct item), ITEMS(__VA_ARGS__))

Test(layers_host, linear) { CHECK(5, {LAYER_linear, 7}); }
Test(layers_host, relu) { CHECK(9, {LAYER_relu, 0}); }
Test(layers_host, gelu) { CHECK(9, {LAYER_gelu, 0}); }
Test(layers_host, silu) { CHECK(9, {LAYER_silu, 0}); }
Test(layers_host, swiglu) {
    CHECK(2, {LAYER_swiglu, 0});
    CHECK(26, {LAYER_swiglu, 0});
}
Test(layers_host, geglu) {
    CHECK(2, {LAYER_geglu, 0});
    CHECK(26, {LAYER_geglu, 0});
}
static void check_limit(int kind, float limit) {
    struct model *m = model_tokens(12, 6, 11, 3);
    add(m, LAYER_embedding, 26);
    m->layer[0].config.embedding.scale = 40;
    add(m, kind, 0);
    m->layer[1].config.gated.limit = limit;
    add(m, LAYER_linear, 11);
    add(m, LAYER_cross_entropy, 0);
    m->cut = (int[]){1, 2};
    m->ncut = 2;
    check_stage(m, 3, 1);
}
Test(layers_host, limit_of_what_is_gated) { /* within it are half, most or all of the values */
    const float limit[] = {0.25f, 0.5f, 1.5f, 100};
    for (int i = 0; i < 4; i++) {
        check_limit(LAYER_swiglu, limit[i]);
        check_limit(LAYER_geglu, limit[i]);
    }
}
Test(layers_host, layernorm) { CHECK(13, {LAYER_layernorm, 0}); }
Test(layers_host, rmsnorm) { CHECK(13, {LAYER_rmsnorm, 0}); }
Test(layers_host, attention) {
    CHECK(12, {LAYER_attention, 1});
    CHECK(36, {LAYER_attention, 4});
}
static void check_headnorm(int columns, int heads, int kv_heads, int rope,
                           int cut) { /* cut: number of layers before it */
    struct model *m = model_tokens(12, 6, 11, 3);
    add(m, LAYER_embedding, 8);
    add(m, LAYER_linear, columns);
    add(m, LAYER_headnorm, 0);
    add(m, LAYER_attention, heads);
    m->layer[3].config.attention.kv_heads = kv_heads;
    m->layer[3].config.attention.rope = rope;
    add(m, LAYER_linear, 11);
    add(m, LAYER_cross_entropy, 0);
    m->cut = (int[]){1, cut};
    m->ncut = 2;
    check_stage(m, 3, 1);
    check_stage(m, 3, 2);
}
Test(layers_host, headnorm) { /* with attention, which applies rope to its result; and each in its own stage */
    check_headnorm(36, 2, 0, 0, 5);
    check_headnorm(40, 6, 2, 100, 5);
    check_headnorm(70, 3, 1, 10000, 5);
    check_headnorm(40, 6, 2, 100, 3);
    check_headnorm(40, 6, 2, 100, 2);
}
static void check_attention(int context, int sequences, int columns, int heads, int kv_heads, int rope) {
    struct model *m = model_tokens(context * sequences, context, 11, 3);
    add(m, LAYER_embedding, columns);
    add(m, LAYER_attention, heads);
    m->layer[1].config.attention.kv_heads = kv_heads;
    m->layer[1].config.attention.rope = rope;
    add(m, LAYER_linear, 11);
    add(m, LAYER_cross_entropy, 0);
    m->cut = (int[]){1, 2};
    m->ncut = 2;
    check_stage(m, 3, 1);
}
Test(layers_host, attention_in_tiles) { /* three tiles, the last of a few rows; the output goes to the next stage */
    check_attention(130, 1, 12, 2, 0, 0);
}
Test(layers_host, attention_with_grouped_queries) {
    check_attention(6, 2, 18, 4, 1, 0);
    check_attention(6, 2, 40, 6, 2, 0);
    check_attention(70, 1, 12, 2, 1, 0);
}
Test(layers_host, attention_with_rope) {
    check_attention(6, 2, 36, 2, 0, 10000);
    check_attention(6, 2, 40, 6, 2, 100);
    check_attention(70, 1, 16, 2, 1, 500000);
    check_attention(6, 1, 3 * 132, 1, 0, 10000); /* more pairs than rope rotates at a time */
}
Test(layers_host, stack) { CHECK(5, {LAYER_linear, 6}, {LAYER_relu, 0}, {LAYER_linear, 5}, {LAYER_gelu, 0}); }
Test(layers_host, residual) {
    CHECK(5, {LAYER_fork, 0}, {LAYER_linear, 5}, {LAYER_join, 0});
    CHECK(5, {LAYER_fork, 0}, {LAYER_relu, 0}, {LAYER_join, 0}, {LAYER_relu, 0});
    CHECK(5, {LAYER_linear, 8}, {LAYER_fork, 0}, {LAYER_gelu, 0}, {LAYER_linear, 8}, {LAYER_join, 0}, {LAYER_gelu, 0});
}
Test(layers_host,
     residual_in_the_workspace) { /* only the workspace keeps the block's input and its output's gradient */
    CHECK(5, {LAYER_linear, 6}, {LAYER_fork, 0}, {LAYER_relu, 0}, {LAYER_linear, 6}, {LAYER_join, 0}, {LAYER_relu, 0});
    CHECK(5, {LAYER_fork, 0}, {LAYER_linear, 5}, {LAYER_gelu, 0}, {LAYER_join, 0}, {LAYER_gelu, 0});
}
Test(layers_host, residual_nested) {
    CHECK(6, {LAYER_fork, 0}, {LAYER_layernorm, 0}, {LAYER_fork, 0}, {LAYER_linear, 9}, {LAYER_relu, 0},
          {LAYER_linear, 6}, {LAYER_join, 0}, {LAYER_join, 0}, {LAYER_fork, 0}, {LAYER_relu, 0}, {LAYER_join, 0});
}
Test(layers_host, transformer_block) {
    CHECK(8, {LAYER_fork, 0}, {LAYER_layernorm, 0}, {LAYER_linear, 24}, {LAYER_attention, 2}, {LAYER_linear, 8},
          {LAYER_join, 0}, {LAYER_fork, 0}, {LAYER_layernorm, 0}, {LAYER_linear, 16}, {LAYER_gelu, 0},
          {LAYER_linear, 8}, {LAYER_join, 0});
}
Test(layers_host, embedding) {
    struct model *m = model_tokens(12, 6, 11, 3);
    add(m, LAYER_embedding, 5);
    add(m, LAYER_linear, 11);
    add(m, LAYER_cross_entropy, 0);
    check_stage(m, 3, 0);
    check_stage(m, 1, 0);
}
Test(layers_host, embedding_without_positions) {
    for (int vocab = 6; vocab <= 11; vocab += 5) { /* as many tokens as the context, or more */
        struct model *m = model_tokens(12, 6, vocab, 3);
        add(m, LAYER_embedding, 5);
        m->layer[0].config.embedding.positions = false;
        add(m, LAYER_linear, vocab);
        add(m, LAYER_cross_entropy, 0);
        cr_assert_eq(cost_stages(spec_of(m, 3))->rt.layer->nparam, vocab * 5);
        check_stage(m, 3, 0);
        check_stage(m, 1, 0);
    }
}
Test(layers_host, linear_without_bias) {
    struct model *m = model_tokens(12, 6, 11, 3);
    add(m, LAYER_embedding, 5);
    add(m, LAYER_linear, 7);
    add(m, LAYER_linear, 11);
    add(m, LAYER_cross_entropy, 0);
    m->layer[1].config.linear.bias = m->layer[2].config.linear.bias = false;
    cr_assert_eq(cost_stages(spec_of(m, 4))[1].rt.layer->nparam, 5 * 7);
    check_stage(m, 4, 1);
    check_stage(m, 4, 2);
}
/* Checks the table's gradient: of the embedding alone, of the unembedding alone, and of both in one stage. */
static void check_tied(bool unplaced) {
    for (int width = 4; width <= 5; width++) { /* 11 x 4 and 11 x 5 floats: both leave a gap */
        struct model *m = model_tokens(12, 6, 11, 3);
        add(m, LAYER_embedding, width);
        m->layer[0].config.embedding.positions = !unplaced;
        add(m, LAYER_layernorm, 0);
        add(m, LAYER_gelu, 0);
        add(m, LAYER_unembedding, 0);
        add(m, LAYER_cross_entropy, 0);
        m->cut = (int[]){1, 3};
        m->ncut = 2;
        check_stage(m, 3, 0);
        check_stage(m, 3, 2);
        m->cut = NULL;
        check_stage(m, 1, 0);
    }
}
Test(layers_host, tied) {
    check_tied(false);
    check_tied(true);
}
Test(layers_host, unembedding_inside) { /* other layers follow it, in the same stage and in the next */
    struct model *m = model_tokens(6, 6, 11, 3);
    add(m, LAYER_embedding, 4);
    add(m, LAYER_unembedding, 0);
    add(m, LAYER_relu, 0);
    add(m, LAYER_linear, 11);
    add(m, LAYER_cross_entropy, 0);
    m->cut = (int[]){1, 2};
    m->ncut = 2;
    check_stage(m, 3, 1);
    m->cut = NULL;
    check_stage(m, 1, 0);
}
Test(layers_host, cross_entropy) {
    struct model *m = model_tokens(12, 6, 11, 3);
    add(m, LAYER_embedding, 5);
    add(m, LAYER_linear, 11);
    add(m, LAYER_cross_entropy, 0);
    check_stage(m, 3, 2);
}
Test(layers_host, mse) {
    struct model *m = model_integers(6, 5, 4);
    add(m, LAYER_linear, 5);
    add(m, LAYER_relu, 0);
    add(m, LAYER_mse, 0);
    check_stage(m, 3, 0); /* a linear layer without bias, reading the batch */
    check_stage(m, 3, 2);
    check_stage(m, 1, 0);
}
Test(layers_host, parameters_behind_layers_without) { /* the gradient must reach back to the linear, and no further */
    struct model *m = model_integers(6, 5, 4);
    add(m, LAYER_fork, 0);
    add(m, LAYER_relu, 0);
    add(m, LAYER_linear, 5);
    add(m, LAYER_join, 0);
    add(m, LAYER_gelu, 0);
    add(m, LAYER_mse, 0);
    check_stage(m, 1, 0);
}

/* ---- split and whole, chained and whole ---- */

static void run_forward(const struct rt_model *m, struct bench *r) {
    for (int s = 0; s < r->n; s++) {
        r->at[s].loss = &r->loss;
        host_forward(m, &r->st[s].rt, &r->at[s]);
    }
}

static void same_bytes(const char *what, const void *a, const void *b, int64_t n) {
    cr_assert(memcmp(a, b, (size_t)n) == 0, "%s differs", what);
}

/* W reads only the stash and ext: everything else is wiped between the two. */
Test(layers_host, input_then_weight_is_the_full_backward_bit_for_bit) {
    struct model *m = gpt(12, 6, 11, 2, 2, 8, 2);
    struct stage *st = cost_stages(spec_of(m, 4));
    struct rt_batch *batch = random_batch(&m->rt);
    struct bench whole = bench_of(st, 4, batch), split = bench_of(st, 4, batch);
    for (int s = 0; s < 4; s++) {
        host_init(&m->rt, &st[s].rt, whole.at[s].w, 1);
        host_init(&m->rt, &st[s].rt, split.at[s].w, 1);
    }
    run_forward(&m->rt, &whole);
    run_forward(&m->rt, &split);
    for (int s = 3; s >= 0; s--) {
        const struct rt_stage *t = &st[s].rt;
        host_backward(&m->rt, t, &whole.at[s], true, true);
        host_backward(&m->rt, t, &split.at[s], true, false);
        same_bytes("dx", whole.at[s].at[SP_DX], split.at[s].at[SP_DX], t->grad);
    }
    for (int s = 0; s < 4; s++) {
        const struct rt_stage *t = &st[s].rt;
        struct rt_bind at = {.w = split.at[s].w, .dw = split.at[s].dw, .first = true, .batch = batch};
        at.at[SP_STASH] = split.at[s].at[SP_STASH];
        at.at[SP_EXT] = split.at[s].at[SP_EXT];
        at.at[SP_WORK] = fresh(t->work);
        host_backward(&m->rt, t, &at, false, true);
        same_bytes("dw", whole.at[s].dw, at.dw, t->weight);
    }
}

static const float *layer_params(const struct stage *st, int n, struct rt_bind *at, int index, bool gradient,
                                 int64_t *count) {
    for (int s = 0; s < n; s++)
        for (int k = 0; k < st[s].rt.nlayers; k++)
            if (st[s].rt.layer[k].index == index) {
                *count = st[s].rt.layer[k].nparam;
                return (gradient ? at[s].dw : at[s].w) + st[s].rt.layer[k].param / 4;
            }
    cr_assert_fail("layer %d is in no stage", index);
    return NULL;
}

Test(layers_host, stages_chained_are_the_whole_model_bit_for_bit) {
    struct model *m = gpt(12, 6, 11, 2, 2, 10, 2); /* 10 columns: parameters end between cache lines */
    struct rt_batch *batch = random_batch(&m->rt);
    struct bench run[4] = {{0}};
    for (int n = 1; n <= 3; n++) {
        struct stage *st = cost_stages(spec_of(m, n));
        run[n] = bench_of(st, n, batch);
        for (int s = 0; s < n; s++)
            host_init(&m->rt, &st[s].rt, run[n].at[s].w, 42);
        run_forward(&m->rt, &run[n]);
        for (int s = n - 1; s >= 0; s--)
            host_backward(&m->rt, &st[s].rt, &run[n].at[s], true, true);
        cr_assert_eq(run[n].loss, run[1].loss);
        for (int i = 0; i < m->nlayers; i++) {
            int64_t count;
            const float *w = layer_params(run[1].st, 1, run[1].at, i, false, &count);
            const float *dw = layer_params(run[1].st, 1, run[1].at, i, true, &count);
            same_bytes("w", w, layer_params(st, n, run[n].at, i, false, &count), 4 * count);
            same_bytes("dw", dw, layer_params(st, n, run[n].at, i, true, &count), 4 * count);
        }
    }
    cr_assert(run[1].loss > 1.5f && run[1].loss < 4, "loss %g of 11 tokens", (double)run[1].loss);
}

/* The second microbatch adds exactly what it would have written: dyadic values make the sums exact. */
Test(layers_host, first_writes_and_later_adds) {
    struct model *m = model_tokens(8, 4, 4, 1);
    add(m, LAYER_embedding, 4);
    add(m, LAYER_linear, 4);
    add(m, LAYER_layernorm, 0);
    add(m, LAYER_cross_entropy, 0);
    m->cut = (int[]){1, 2};
    m->ncut = 2;
    struct stage *st = cost_stages(spec_of(m, 3));
    for (int s = 0; s < 2; s++) {
        const struct rt_stage *t = &st[s].rt;
        struct rt_bind *at = bench_of(&st[s], 1, random_batch(&m->rt)).at;
        at->at[SP_X] = fresh(t->input);
        at->at[SP_DY] = fresh(t->act);
        memset(at->w, 0, (size_t)t->weight);
        for (int64_t i = 0; i < t->input / 4; i++)
            ((float *)(void *)at->at[SP_X])[i] = (float)(i % 3);
        for (int64_t i = 0; i < t->act / 4; i++)
            ((float *)(void *)at->at[SP_DY])[i] = (float)(i % 5) / 4;
        host_forward(&m->rt, t, at);
        host_backward(&m->rt, t, at, true, true);
        float once[4096], sum = 0;
        memcpy(once, at->dw, (size_t)t->weight);
        at->first = false;
        host_backward(&m->rt, t, at, false, true);
        for (int64_t i = 0; i < t->weight / 4; i++) {
            cr_assert_eq(at->dw[i], 2 * once[i], "stage %d, %d: %g then %g", s, (int)i, (double)once[i],
                         (double)at->dw[i]);
            sum += once[i];
        }
        cr_assert(sum > 1);
    }
}

static void adds_to_its_gradient(int kind, int64_t n) { /* the same for values that are not dyadic */
    struct model *m = model_tokens(8, 4, 4, 1);
    add(m, LAYER_embedding, 4);
    add(m, kind, 0);
    add(m, LAYER_cross_entropy, 0);
    struct stage *st = cost_stages(spec_of(m, 1));
    struct bench r = bench_of(st, 1, random_batch(&m->rt));
    const struct rt_layer *l = &st->rt.layer[1];
    float *dw = r.at->dw + l->param / 4, once[8];
    host_init(&m->rt, &st->rt, r.at->w, 3);
    run_forward(&m->rt, &r);
    host_backward(&m->rt, &st->rt, r.at, true, true);
    cr_assert_eq(l->nparam, n);
    memcpy(once, dw, (size_t)n * sizeof *once);
    r.at->first = false;
    host_backward(&m->rt, &st->rt, r.at, false, true);
    for (int i = 0; i < n; i++)
        cr_assert_float_eq(dw[i], 2 * once[i], 1e-6f);
    cr_assert(fabsf(once[0]) > 1e-4f);
}
/* Two heads of queries and one of keys: one head's gradient is added to the other's. */
static void heads_add_to_one_gradient(void) {
    struct model *m = model_tokens(8, 4, 8, 1);
    add(m, LAYER_embedding, 16);
    add(m, LAYER_headnorm, 0);
    add(m, LAYER_attention, 2);
    m->layer[2].config.attention.kv_heads = 1;
    add(m, LAYER_cross_entropy, 0);
    struct stage *st = cost_stages(spec_of(m, 1));
    const struct rt_layer *l = &st->rt.layer[1];
    cr_assert(l->nparam == 8 && l->config.attention.heads == 2 && l->config.attention.kv_heads == 1);
    struct bench r = bench_of(st, 1, random_batch(&m->rt));
    float *dw = r.at->dw + l->param / 4, once[8];
    host_init(&m->rt, &st->rt, r.at->w, 3);
    for (int i = 0; i < 8; i++)
        cr_assert(r.at->w[l->param / 4 + i] == 1);
    run_forward(&m->rt, &r);
    host_backward(&m->rt, &st->rt, r.at, true, true);
    memcpy(once, dw, sizeof once);
    r.at->first = false;
    host_backward(&m->rt, &st->rt, r.at, false, true);
    for (int i = 0; i < 8; i++)
        cr_assert_float_eq(dw[i], 2 * once[i], 1e-6f);
}
Test(layers_host, norms_add_to_their_gradient) {
    heads_add_to_one_gradient();
    adds_to_its_gradient(LAYER_layernorm, 8);
    adds_to_its_gradient(LAYER_rmsnorm, 4);
}
