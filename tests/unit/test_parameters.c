#include "handmade.h"
#include "layers/rate.h"
#include <criterion/criterion.h>
#include <math.h>

static struct stage *linear_stage(struct model **m, int optimizer) {
    *m = model_tokens(4, 4, 3, 1);
    add(*m, LAYER_embedding, 2);
    add(*m, LAYER_linear, 3);
    add(*m, LAYER_cross_entropy, 0);
    (*m)->rt.optimizer = optimizer;
    (*m)->cut = (int[]){1};
    (*m)->ncut = 1;
    return cost_stages(spec_of(*m, 2)) + 1;
}

Test(parameters, sgd) {
    struct model *m;
    struct stage *st = linear_stage(&m, OPT_SGD);
    float w[16], dw[16];
    for (int i = 0; i < 16; i++) {
        w[i] = (float)i;
        dw[i] = (float)(2 * i - 7);
    }
    m->rt.lr = 0.25f;
    host_update(&(struct rt_update){
        .piece = {&m->rt, &st->rt, 0, weight_count(&m->rt, &st->rt)}, .w = w, .dw = dw, .number = 1});
    cr_assert_eq(st->rt.layer[0].nparam, 9);
    for (int i = 0; i < 16; i++) /* the gap after the parameters is left alone */
        cr_assert_eq(w[i], i < 9 ? (float)i - 0.25f * (float)(2 * i - 7) : (float)i);
}

/* Two steps of the algorithm in double, by hand: state from the first must persist, garbage from before must not. */
Test(parameters, adamw) {
    struct model *m;
    struct stage *st = linear_stage(&m, OPT_ADAMW);
    cr_assert_eq(st->rt.opt, 2 * st->rt.weight);
    m->rt.lr = 0.1f;
    m->rt.beta1 = 0.9f;
    m->rt.beta2 = 0.99f;
    m->rt.eps = 1e-3f;
    m->rt.decay = 0.5f;
    float w[16] = {0}, dw[16] = {0}, *opt = fresh(st->rt.opt);
    w[2] = 4;
    dw[2] = -0.5f;
    host_update(&(struct rt_update){
        .piece = {&m->rt, &st->rt, 0, weight_count(&m->rt, &st->rt)}, .w = w, .dw = dw, .opt = opt, .number = 1});
    double want = 4 - 0.1 * (-0.5 / (0.5 + 1e-3) + 0.5 * 4);
    cr_assert_float_eq(w[2], want, 1e-5);
    dw[2] = 2;
    host_update(&(struct rt_update){
        .piece = {&m->rt, &st->rt, 0, weight_count(&m->rt, &st->rt)}, .w = w, .dw = dw, .opt = opt, .number = 2});
    double mean = 0.9 * (0.1 * -0.5) + 0.1 * 2, square = 0.99 * (0.01 * 0.25) + 0.01 * 4;
    want -= 0.1 * (mean / (1 - 0.81) / (sqrt(square / (1 - 0.9801)) + 1e-3) + 0.5 * want);
    cr_assert_float_eq(w[2], want, 1e-5);
    cr_assert_eq(w[3], 0);
}

/* The update's numbers by hand: velocity 0.5 v + g, or g + 0.5 v with Nesterov's look-ahead. */
Test(parameters, momentum) {
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        struct model *m;
        struct stage *st = linear_stage(&m, OPT_MOMENTUM);
        cr_assert_eq(st->rt.opt, st->rt.weight);
        m->rt.lr = 0.25f;
        m->rt.momentum = 0.5f;
        m->rt.nesterov = nesterov;
        float w[16] = {0}, dw[16] = {0}, *opt = fresh(st->rt.opt);
        w[2] = 4;
        dw[2] = 1;
        host_update(&(struct rt_update){
            .piece = {&m->rt, &st->rt, 0, weight_count(&m->rt, &st->rt)}, .w = w, .dw = dw, .opt = opt, .number = 1});
        cr_assert_eq(w[2], 4 - 0.25f * (nesterov ? 1.5f : 1));
        dw[2] = 2; /* velocity 2.5 */
        host_update(&(struct rt_update){
            .piece = {&m->rt, &st->rt, 0, weight_count(&m->rt, &st->rt)}, .w = w, .dw = dw, .opt = opt, .number = 2});
        cr_assert_eq(w[2], 4 - 0.25f * (nesterov ? 1.5f + 3.25f : 1 + 2.5f));
    }
}

/* With a gradient of 0, only decay moves a weight: the matrix's, not the following bias's, whichever elements a home
 * updates. */
Test(parameters, matrices_decay) {
    struct model *m;
    struct stage *st = linear_stage(&m, OPT_ADAMW);
    m->rt.lr = 0.5f;
    m->rt.beta1 = m->rt.beta2 = 0.5f;
    m->rt.eps = 1;
    m->rt.decay = 0.5f;
    for (int64_t first = 0; first < 8; first += 4) {
        float w[16], dw[16] = {0}, *opt = fresh(st->rt.opt);
        for (int i = 0; i < 16; i++)
            w[i] = 4;
        host_update(&(struct rt_update){
            .piece = {&m->rt, &st->rt, first, 16 - first}, .w = w, .dw = dw, .opt = opt, .number = 1});
        for (int i = 0; i < 16 - first; i++)
            cr_expect_eq(w[i], first + i < 6 ? 3 : 4, "element %d from %d on", i, (int)first);
    }
}

/* Compares rate_cosine with libm in long double. */
Test(parameters, cosine) {
    double worst = 0;
    for (int i = 0; i <= 100000; i++) {
        double x = i / 100000.0,
               error = (double)fabsl(cosl(3.14159265358979323846264L * (long double)x) - (long double)rate_cosine(x));
        worst = fmax(worst, error);
    }
    cr_expect(worst < 0x1p-52, "%g", worst);
    cr_expect(rate_cosine(0) == 1 && rate_cosine(0.5) == 0 && rate_cosine(1) == -1);
}

/* Rates at the corners, where formulas are easily off by one. */
Test(parameters, rates) {
    struct rt_model m = {.lr = 0.5f, .final = 0.25f, .warmup = 4, .cooldown = 0.25f};
    const float end = 0.5f * 0.25f;
    for (m.schedule = 0; m.schedule < NSCHEDULES; m.schedule++) {
        cr_expect(rate_at(&m, 1, 20) == 0.125f && rate_at(&m, 4, 20) == 0.5f && rate_at(&m, 5, 20) == 0.5f);
        cr_expect_eq(rate_at(&m, 21, 20), m.schedule == SCHEDULE_constant ? 0.5f : end);
        cr_expect_eq(rate_at(&m, 1000, 20), m.schedule == SCHEDULE_constant ? 0.5f : end);
    }
    m.schedule = SCHEDULE_linear;
    cr_expect_eq(rate_at(&m, 13, 20), (0.5f + end) / 2); /* half way between updates 5 and 21 */
    m.schedule = SCHEDULE_cosine;
    cr_expect_eq(rate_at(&m, 13, 20), (0.5f + end) / 2);
    m.schedule = SCHEDULE_wsd;
    cr_expect(rate_at(&m, 16, 20) == 0.5f && rate_at(&m, 17, 20) < 0.5f);
    m.steps = 40; /* overrides the run's */
    cr_expect(rate_at(&m, 31, 20) == 0.5f && rate_at(&m, 32, 20) < 0.5f);
    m.steps = 0;
    m.warmup = 0;
    cr_expect_eq(rate_at(&m, 1, 20), 0.5f);
}

Test(parameters, initial_weights) {
    struct model *m = gpt(64, 64, 256, 1, 1, 64, 4);
    struct stage *st = cost_stages(spec_of(m, 1));
    float *w = fresh(st->rt.weight), *other = fresh(st->rt.weight);
    host_init(&m->rt, &st->rt, w, 1);
    host_init(&m->rt, &st->rt, other, 2);
    cr_assert(memcmp(w, other, (size_t)st->rt.weight) != 0);
    for (int k = 0; k < st->rt.nlayers; k++) {
        const struct rt_layer *l = &st->rt.layer[k];
        const float *at = w + l->param / 4;
        double square = 0, sum = 0;
        int64_t n = (int64_t)l->in * l->out;
        for (int64_t i = 0; l->kind == LAYER_linear && i < n; i++) {
            sum += (double)at[i];
            square += (double)at[i] * (double)at[i];
        }
        if (l->kind == LAYER_linear) { /* 4096 draws or more: deviation within 5 %, mean within 4 of its own */
            cr_assert_float_eq(sqrt(square / (double)n) * sqrt(l->in), 1, 0.05);
            cr_assert(fabs(sum) < 4 * sqrt((double)n / l->in));
            cr_assert_eq(at[n], 0);
        }
        if (l->kind == LAYER_layernorm)
            cr_assert(at[0] == 1 && at[l->out - 1] == 1 && at[l->out] == 0);
    }
    for (int i = 0; i < m->nlayers; i++)
        m->layer[i].kind = m->layer[i].kind == LAYER_layernorm ? LAYER_rmsnorm : m->layer[i].kind;
    st = cost_stages(spec_of(m, 1));
    host_init(&m->rt, &st->rt, w, 1);
    for (const struct rt_layer *l = st->rt.layer; l < st->rt.layer + st->rt.nlayers; l++)
        for (int j = 0; l->kind == LAYER_rmsnorm && j < l->out; j++)
            cr_assert_eq(w[l->param / 4 + j], 1);
}

/* A shared table starts like an embedding's tokens, but small enough for logits; the positions are other numbers. */
Test(parameters, initial_table) {
    struct model *m = gpt(64, 64, 256, 1, 1, 64, 4), *tied = gpt(64, 64, 256, 1, 1, 64, 4);
    tied->layer[tied->nlayers - 2] = (struct model_layer){.kind = LAYER_unembedding, .item = tied->nitems - 2};
    struct stage *st = cost_stages(spec_of(m, 1)), *one = cost_stages(spec_of(tied, 1)),
                 *three = cost_stages(spec_of(tied, 3));
    int64_t tokens = 256 * 64, positions = 64 * 64;
    cr_assert(one[0].rt.layer[0].nparam == positions && one[1].rt.layer[0].nparam == tokens);
    cr_assert(one[0].rt.weight + one[1].rt.weight ==
              three[0].rt.weight + three[1].rt.weight + three[2].rt.weight + three[3].rt.weight);
    float *own = fresh(st->rt.weight), *w = fresh(one[0].rt.weight), *v = fresh(one[1].rt.weight),
          *w3 = fresh(three[0].rt.weight), *v3 = fresh(three[3].rt.weight);
    host_init(&m->rt, &st->rt, own, 1);
    host_init(&tied->rt, &one[0].rt, w, 1);
    host_init(&tied->rt, &one[1].rt, v, 1);
    host_init(&tied->rt, &three[0].rt, w3, 1);
    host_init(&tied->rt, &three[3].rt, v3, 1);
    cr_assert(!memcmp(v, v3, (size_t)tokens * 4) && !memcmp(w, w3, (size_t)positions * 4));
    for (int64_t i = 0; i < tokens + positions; i++)
        cr_assert_float_eq((i < tokens ? v[i] : w[i - tokens]) * 5, own[i], 1e-6, "%d", (int)i);
}
