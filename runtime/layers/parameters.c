/* Weights: their first values, their gradients' sums and their updates. None uses libm beyond sqrtf, which IEEE 754
 * fixes to the bit, so all give the same weights on every machine; none uses BLAS, so ranks on GPUs share them. */
#include "host.h"
#include <math.h>
#include <string.h>

/* ---- gradients ---- */

void host_add(float *dst, const float *src, int64_t n, bool first) {
    if (first)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] += src[i];
}

void host_add_more(const struct rt_bind *at, char *dst, int64_t n) {
    for (int i = 0; i < at->nmore; i++)
        host_add((float *)(void *)dst, (const float *)(const void *)(at->arena + at->more[i]), n, false);
}

/* ---- updates: per layer, leaving the gaps between parameters alone ---- */

static void sgd(const struct rt_model *m, float *w, const float *dw, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        w[i] -= m->lr * dw[i];
}

static double power(double x, int64_t n) {
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}

/* Loshchilov & Hutter 2019, algorithm 2, with the decay decoupled and scaled by the learning rate: v is the moment of
 * second order, m of first. */
static void adamw(const struct rt_model *m, float *w, const float *dw, float *mean, float *square, int64_t n,
                  int64_t step) {
    float unbias = (float)(1 / (1 - power((double)m->beta1, step)));
    float unbias2 = (float)(1 / (1 - power((double)m->beta2, step)));
    for (int64_t i = 0; i < n; i++) {
        mean[i] = m->beta1 * mean[i] + (1 - m->beta1) * dw[i];
        square[i] = m->beta2 * square[i] + (1 - m->beta2) * dw[i] * dw[i];
        float move = mean[i] * unbias / (sqrtf(square[i] * unbias2) + m->eps);
        w[i] -= m->lr * (move + m->decay * w[i]);
    }
}

/* AdamW's state is the first moments, laid out as the weights are, then the second. Step 1 starts it at zero. */
void host_update(const struct rt_model *m, const struct rt_stage *s, float *w, const float *dw, float *opt,
                 int64_t step) {
    if (step == 1 && s->opt > 0)
        memset(opt, 0, (size_t)s->opt);
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++) {
        int64_t at = l->param / 4, half = s->weight / 4;
        if (m->optimizer == OPT_SGD)
            sgd(m, w + at, dw + at, l->nparam);
        else if (m->optimizer == OPT_ADAMW && l->nparam > 0)
            adamw(m, w + at, dw + at, opt + at, opt + half + at, l->nparam, step);
    }
}

/* ---- initial weights ---- */

/* Nearly normal, mean 0 and deviation 1: the sum of twelve uniforms of 16 bits. */
static float normal(uint64_t key, int64_t i) {
    int32_t sum = 0;
    for (uint64_t k = 0; k < 3; k++) {
        uint64_t h = host_hash(key, (uint64_t)i * 3 + k);
        sum += (int32_t)(h & 0xffff) + (int32_t)(h >> 16 & 0xffff) + (int32_t)(h >> 32 & 0xffff) + (int32_t)(h >> 48);
    }
    return ((float)sum - 12 * 32767.5f) / 65536;
}

/* Numbers from, from + 1, ... of the key's. */
static void init_normal(float *w, int64_t n, float deviation, uint64_t key, int64_t from) {
    for (int64_t i = 0; i < n; i++)
        w[i] = deviation * normal(key, from + i);
}

/* Tokens, then positions. Where the tokens are a table of their own, which the unembedding shares, the deviation is
 * GPT-2's, small enough for logits; the embedding keeps the positions, the table has none. */
static void init_embedding(const struct rt_model *m, const struct rt_layer *l, float *w, uint64_t key) {
    int64_t tokens = (int64_t)m->vocab * l->out, positions = (int64_t)l->context * l->out;
    bool whole = l->context > 0 && l->nparam == tokens + positions;
    init_normal(w, l->nparam, whole ? 0.1f : 0.02f, key, l->context > 0 && !whole ? tokens : 0);
}

/* Paths: 1 or 2 on the diagonal, so that a row with one nonzero column keeps to that column (data.c). */
static void init_paths(const struct rt_layer *l, float *w, uint64_t key) {
    memset(w, 0, (size_t)l->nparam * sizeof *w);
    for (int64_t i = 0; i < l->in && i < l->out; i++)
        w[i * l->out + i] = (float)(1 + (host_hash(key, (uint64_t)i) & 1));
}

static void init_linear(const struct rt_layer *l, float *w, uint64_t key) {
    int64_t n = (int64_t)l->in * l->out;
    init_normal(w, n, 1 / sqrtf((float)l->in), key, 0);
    memset(w + n, 0, (size_t)(l->nparam - n) * sizeof *w);
}

static void init_layernorm(const struct rt_layer *l, float *w) {
    for (int j = 0; j < l->out; j++) {
        w[j] = 1;
        w[l->out + j] = 0;
    }
}

void host_init(const struct rt_model *m, const struct rt_stage *s, float *w, uint64_t seed) {
    memset(w, 0, (size_t)weight_count(m, s) * sizeof *w);
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++) {
        uint64_t key = host_hash(seed, (uint64_t)l->index);
        float *at = w + l->param / precision_bytes(m->precision);
        if (l->kind == LAYER_embedding)
            init_embedding(m, l, at, key);
        else if (l->kind == LAYER_linear && m->input == INPUT_INTEGERS)
            init_paths(l, at, key);
        else if (l->kind == LAYER_linear)
            init_linear(l, at, key);
        else if (l->kind == LAYER_layernorm)
            init_layernorm(l, at);
    }
}
