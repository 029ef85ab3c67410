/* Weights: their initial values and their gradients' sums. None of this uses libm beyond sqrtf, which IEEE 754 fixes to
 * the bit, so weights are the same on every machine; nor BLAS, so ranks on GPUs share it. */
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

/* Numbers from, from + 1, ... of the key's sequence. */
static void init_normal(float *w, int64_t n, float deviation, uint64_t key, int64_t from) {
    for (int64_t i = 0; i < n; i++)
        w[i] = deviation * normal(key, from + i);
}

/* Tokens, then positions. If the tokens are a separate table, shared with the unembedding, the deviation is GPT-2's,
 * small enough for logits; then the embedding has only positions, and the table none. */
static void init_embedding(const struct rt_model *m, const struct rt_layer *l, float *w, uint64_t key) {
    int64_t tokens = (int64_t)m->vocab * l->out, positions = (int64_t)l->context * l->out;
    bool whole = l->context > 0 && l->nparam == tokens + positions;
    init_normal(w, l->nparam, whole ? 0.1f : 0.02f, key, l->context > 0 && !whole ? tokens : 0);
}

/* Paths: 1 or 2 on the diagonal, so that a row with one nonzero column keeps to that column (data.c). */
static void init_paths(const struct rt_layer *l, float *w, uint64_t key) {
    for (int64_t i = 0; i < l->in && i < l->out; i++)
        w[i * l->out + i] = (float)(1 + (host_hash(key, (uint64_t)i) & 1));
}

static void init_linear(const struct rt_model *m, const struct rt_layer *l, float *w, uint64_t key) {
    if (m->input == INPUT_INTEGERS)
        init_paths(l, w, key);
    else
        init_normal(w, (int64_t)l->in * l->out, 1 / sqrtf((float)l->in), key, 0);
}

static void init_scale(const struct rt_model *m, const struct rt_layer *l, float *w, uint64_t key) {
    (void)m, (void)key;
    for (int j = 0; j < l->out; j++)
        w[j] = 1;
}

/* By kind of layer. Parameters are 0 before; those of the other kinds stay 0. */
static void (*const init[NLAYERS])(const struct rt_model *m, const struct rt_layer *l, float *w, uint64_t key) = {
    [LAYER_embedding] = init_embedding,
    [LAYER_linear] = init_linear,
    [LAYER_layernorm] = init_scale,
};

void host_init(const struct rt_model *m, const struct rt_stage *s, float *w, uint64_t seed) {
    memset(w, 0, (size_t)weight_count(m, s) * sizeof *w);
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++)
        if (init[l->kind])
            init[l->kind](m, l, w + l->param / precision_bytes(m->precision), host_hash(seed, (uint64_t)l->index));
}
