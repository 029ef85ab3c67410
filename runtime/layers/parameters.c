/* Weights: their initial values, and sums of their gradients. No libm function is used except sqrtf, which IEEE 754
 * fixes to the bit, so weights are the same on every machine. BLAS is not used either, so ranks on GPUs share this
 * code. */
#include "attend.h"
#include "host.h"
#include <math.h>
#include <string.h>

/* ---- gradients ---- */

WIDE void host_add(float *dst, const float *src, int64_t n, bool first) {
    if (first)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] += src[i];
}

WIDE void host_add_rows(const float *others, int others_stride, int rows, int n, float *c, int stride) {
    for (int i = 0; i < rows; i++, c += stride, others += others_stride)
        for (int j = 0; j < n; j++)
            c[j] += others[j];
}

void host_add_norm(uint64_t *dst, const uint64_t *src) {
    for (int i = 0; i < NORM_WORDS; i++)
        dst[i] += src[i];
}

void host_add_more(const struct rt_bind *at, char *dst, int64_t n) {
    for (const struct rt_buffer *const *more = at->more; more && *more; more++)
        host_add((float *)(void *)dst, (const float *)(const void *)(at->arena + (*more)->off), n, false);
}

/* ---- initial weights ---- */

/* Returns a nearly normal number with mean 0 and deviation 1: the sum of twelve uniforms of 16 bits. */
static float normal(uint64_t key, int64_t i) {
    int32_t sum = 0;
    for (uint64_t k = 0; k < 3; k++) {
        uint64_t h = host_hash(key, (uint64_t)i * 3 + k);
        sum += (int32_t)(h & 0xffff) + (int32_t)(h >> 16 & 0xffff) + (int32_t)(h >> 32 & 0xffff) + (int32_t)(h >> 48);
    }
    return ((float)sum - 12 * 32767.5f) / 65536;
}

/* A parameter whose elements are at w, or a member's part of it. Its elements are numbered from `from` on in the key's
 * random sequence. */
struct rt_values {
    const struct rt_layer *l;
    const struct rt_parameter *p;
    float *w;
    uint64_t key;
    int64_t from;
};

static void init_normal(const struct rt_values *v, float deviation) {
    for (int64_t at = 0; at < v->p->count;) {
        const struct rt_stretch run = stretch_of(v->l, v->p, at);
        for (int64_t i = 0; i < run.n; i++)
            v->w[at + i] = deviation * normal(v->key, v->from + run.at + i);
        at += run.n;
    }
}

/* Sets a path: 1 or 2 on the diagonal, so that a row with one nonzero column keeps to that column (data.c). */
static void init_paths(const struct rt_values *v) {
    int64_t columns = whole_parameter(v->l, v->p).dim[1];
    for (int64_t at = 0; at < v->p->count;) {
        const struct rt_stretch run = stretch_of(v->l, v->p, at);
        int64_t row = (run.at + columns) / (columns + 1); /* the first with its diagonal at or after run.at */
        for (; row < columns && row * (columns + 1) < run.at + run.n; row++)
            v->w[at + row * (columns + 1) - run.at] = (float)(1 + (host_hash(v->key, (uint64_t)row) & 1));
        at += run.n;
    }
}

/* Draws tokens, then positions. If the tokens are a separate table, shared with the unembedding, the standard deviation
 * is GPT-2's, which is small enough for logits; the embedding then has only positions, and the table only tokens.
 * Tokens without positions get the same deviation, shared or not, as in Llama. */
void init_embedding(const struct rt_model *m, const struct rt_values *v) {
    bool whole = v->l->context > 0 && shared_table(m, v->l) == 0;
    struct rt_values all = *v;
    all.from = strcmp(v->p->name, "position") == 0 ? (int64_t)m->vocab * v->l->out : 0;
    init_normal(&all, whole ? 0.1f : 0.02f);
}

void init_linear(const struct rt_model *m, const struct rt_values *v) {
    if (strcmp(v->p->name, "weight") != 0)
        return;
    if (m->input == INPUT_INTEGERS)
        init_paths(v);
    else
        init_normal(v, 1 / sqrtf((float)whole_parameter(v->l, v->p).dim[0]));
}

/* Draws each expert's weights like a linear layer's. */
void init_experts(const struct rt_model *m, const struct rt_values *v) {
    (void)m;
    init_normal(v, 1 / sqrtf((float)v->l->in));
}

void init_scale(const struct rt_model *m, const struct rt_values *v) {
    (void)m;
    for (int64_t j = 0; j < v->p->count && strncmp(v->p->name, "gamma", 5) == 0; j++)
        v->w[j] = 1;
}

/* Draws all parameters that a script declares from one sequence, one after the other. */
void init_declared(const struct rt_model *m, const struct rt_values *v) {
    const struct rt_parameter *p = v->p;
    struct rt_values own = *v;
    (void)m;
    own.from += p->drawn;
    if (p->init == UNIT_INIT_NORMAL || (p->init == UNIT_INIT_KIND && p->ndims == 2))
        init_normal(&own, 1 / sqrtf((float)p->dim[0]));
    for (int64_t j = 0; p->init == UNIT_INIT_ONES && j < v->p->count; j++)
        v->w[j] = 1;
}

static void init_layer(const struct rt_model *m, const struct rt_layer *l, float *w, uint64_t key) {
    const struct rt_parameters all = parameters_of(m, l, shared_table(m, l) > 0);
    for (int i = 0; i < all.n; w += all.at[i++].count)
        rt_kind_of(l)->init(m, &(struct rt_values){l, &all.at[i], w, key, 0});
}

void host_init(const struct rt_model *m, const struct rt_stage *s, float *w, uint64_t seed) {
    memset(w, 0, (size_t)weight_count(m, s) * sizeof *w);
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++)
        if (rt_kind_of(l)->init && l->set == SET_OWN)
            init_layer(m, l, w + l->param / precision_bytes(m->precision), host_hash(seed, (uint64_t)l->index));
}

double host_rope(const struct rt_layer *l, int i) { return rope_turns(l, i, head_columns(l)); }
