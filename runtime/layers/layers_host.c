/* The layers on the host, fp32: the sweeps over a stage, and the layers that are a loop or two.
 *
 * A stage's job is a sweep over its layers. Compilation fixes where each layer's tensors lie (rt_layer's slots), so a
 * sweep only adds base addresses and calls. The full backward makes the same calls as the input sweep and the weight
 * sweep: dX = dY·Wᵀ and dW = Xᵀ·dY share only dY, which the input sweep leaves in SP_EXT wherever a layer has
 * parameters. So B gives bit for bit what I followed by W gives. */
#include "host.h"
#include "keys.h"
#include <string.h>

/* ---- embedding: w is tokens x out (absent if the tokens are a shared table v), followed by context x out for
 * positions (absent if there are none; context is then 0). The tokens are the vocabulary, or a member's part of it: a
 * member ignores other tokens, and only the first one adds positions, so that the members' sum is the whole ---- */

struct tokens {
    int64_t first, n;
};
static struct tokens tokens_of(const struct host_call *c) {
    int64_t n = share_of(c->l, SPLIT_ROWS, c->m->vocab);
    return (struct tokens){c->l->share.split == SPLIT_ROWS ? c->l->share.member * n : 0, n};
}
static bool has_token(struct tokens mine, int32_t token) { return token >= mine.first && token < mine.first + mine.n; }

/* Returns a row's place in its sequence. */
static int32_t place_in_sequence(const struct host_call *c, int r) {
    return c->l->first + row_of_batch(c->l, c->m->rows, r) % sequence_length(c->l);
}

static void embedding_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct tokens mine = tokens_of(c);
    bool own = shared_table(c->m, l) == 0;
    const float *w = host_w(c), *token = own ? w : c->at->v;
    const float *position = own ? w + mine.n * l->out : w;
    const float scale = l->config.embedding.scale;
    float *y = host_at(c, l->y);
    for (int r = 0; r < l->rows; r++, y += l->out) {
        int32_t which = c->at->batch->token[r];
        const float *t = token + (which - mine.first) * l->out;
        if (!has_token(mine, which))
            memset(y, 0, (size_t)l->out * sizeof *y);
        for (int j = 0; j < l->out && has_token(mine, which); j++)
            y[j] = scale * t[j];
        if (l->context == 0 || mine.first > 0)
            continue;
        const float *p = position + (int64_t)place_in_sequence(c, r) * l->out;
        for (int j = 0; j < l->out; j++)
            y[j] += p[j];
    }
}

static void embedding_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct tokens mine = tokens_of(c);
    int64_t tokens = mine.n * l->out;
    bool own = shared_table(c->m, l) == 0;
    float *dw = host_dw(c), *token = own ? dw : c->at->dv, *position = own ? dw + tokens : dw;
    const float *dy = host_at(c, l->dy), scale = l->config.embedding.scale;
    if (host_first(c))
        memset(dw, 0, (size_t)l->nparam * sizeof *dw);
    if (!own && c->at->vfirst)
        memset(token, 0, (size_t)tokens * sizeof *token);
    for (int r = 0; r < l->rows; r++, dy += l->out) {
        int32_t which = c->at->batch->token[r];
        float *t = token + (which - mine.first) * l->out;
        for (int j = 0; j < l->out && has_token(mine, which); j++)
            t[j] += scale * dy[j];
        if (l->context == 0)
            continue;
        float *p = position + (int64_t)place_in_sequence(c, r) * l->out;
        for (int j = 0; j < l->out; j++)
            p[j] += dy[j];
    }
}

/* ---- relu: keeps y: the gradient needs only its sign, and a following linear layer keeps y anyway ---- */

static WIDE void relu_forward(const struct host_call *c) {
    const float *x = host_x(c);
    float *y = host_at(c, c->l->y);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
}

static WIDE void relu_input(const struct host_call *c) {
    const float *y = host_at(c, c->l->y), *dy = host_at(c, c->l->dy);
    float *dx = host_at(c, c->l->dx);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

/* ---- gelu: (1 + tanh u) / 2 is the logistic function of 2u ---- */

static inline float gate(float x) {
    float u2 = 2 * 0.7978845608f * x * (1 + 0.044715f * x * x);
    return 1 / (1 + host_exp(-u2));
}

/* Returns the slope of x s(x), where s is gelu's gate. */
static inline float gelu_slope(float x, float s) {
    float slope = 2 * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
    return s + x * s * (1 - s) * slope;
}

static WIDE void gelu_forward(const struct host_call *c) {
    const float *x = host_x(c);
    float *y = host_at(c, c->l->y);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        y[i] = x[i] * gate(x[i]);
}

static WIDE void gelu_input(const struct host_call *c) {
    const float *x = host_x(c), *dy = host_at(c, c->l->dy);
    float *dx = host_at(c, c->l->dx);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        dx[i] = dy[i] * gelu_slope(x[i], gate(x[i]));
}

/* ---- silu: x times the logistic function of x; and swiglu and geglu, silu or gelu of a row's left half times its
 * right half ---- */

static inline float logistic(float x) { return 1 / (1 + host_exp(-x)); }

static WIDE void silu_forward(const struct host_call *c) {
    const float *x = host_x(c);
    float *y = host_at(c, c->l->y);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        y[i] = x[i] * logistic(x[i]);
}

/* Returns the slope of x s(x), where s is the logistic function; s has slope s (1 - s). */
static inline float silu_slope(float x, float s) { return s + x * s * (1 - s); }

static WIDE void silu_input(const struct host_call *c) {
    const float *x = host_x(c), *dy = host_at(c, c->l->dy);
    float *dx = host_at(c, c->l->dx);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        dx[i] = dy[i] * silu_slope(x[i], logistic(x[i]));
}

/* A gate's value and slope. */
struct gated {
    float value, slope;
};
static inline struct gated silu_gate(float x) {
    float s = logistic(x);
    return (struct gated){x * s, silu_slope(x, s)};
}
static inline struct gated gelu_gate(float x) {
    float s = gate(x);
    return (struct gated){x * s, gelu_slope(x, s)};
}

/* Returns the layer's limit, or infinity, which clamps no number and keeps NaNs. */
static float limit_of(const struct rt_layer *l) { return l->config.gated.limit > 0 ? l->config.gated.limit : INFINITY; }
static inline float at_most(float x, float limit) { return x > limit ? limit : x; }
static inline float within(float x, float limit) { return x < -limit ? -limit : at_most(x, limit); }
static inline void gated_forward(const struct host_call *c, struct gated (*gate)(float)) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c);
    float *y = host_at(c, l->y), limit = limit_of(l);
    for (int r = 0; r < l->rows; r++, x += l->in, y += l->out)
        for (int j = 0; j < l->out; j++)
            y[j] = gate(at_most(x[j], limit)).value * within(x[l->out + j], limit);
}

static inline void gated_input(const struct host_call *c, struct gated (*gate)(float)) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *dy = host_at(c, l->dy);
    float *dx = host_at(c, l->dx), limit = limit_of(l);
    for (int r = 0; r < l->rows; r++, x += l->in, dy += l->out, dx += l->in)
        for (int j = 0; j < l->out; j++) {
            float up = x[l->out + j];
            struct gated g = gate(at_most(x[j], limit));
            dx[j] = x[j] > limit ? 0 : dy[j] * within(up, limit) * g.slope;
            dx[l->out + j] = fabsf(up) > limit ? 0 : dy[j] * g.value;
        }
}

static WIDE void swiglu_forward(const struct host_call *c) { gated_forward(c, silu_gate); }
static WIDE void swiglu_input(const struct host_call *c) { gated_input(c, silu_gate); }
static WIDE void geglu_forward(const struct host_call *c) { gated_forward(c, gelu_gate); }
static WIDE void geglu_input(const struct host_call *c) { gated_input(c, gelu_gate); }

/* ---- residual blocks: fork's y is its x and join's dx is its dy; only the sums are work. aux is the other summand:
 * the fork's input for the join, the gradient of the join's output for the fork ---- */

static WIDE void join_forward(const struct host_call *c) {
    const float *x = host_x(c);
    const float *kept = c->l->aux.space == SP_NONE ? c->at->batch->x : host_at(c, c->l->aux);
    float *y = host_at(c, c->l->y);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        y[i] = x[i] + kept[i];
}

static WIDE void fork_input(const struct host_call *c) {
    const float *branch = host_at(c, c->l->dy), *around = host_at(c, c->l->aux);
    float *dx = host_at(c, c->l->dx);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        dx[i] = branch[i] + around[i];
}

/* ---- bias ---- */

static WIDE void bias_forward(const struct host_call *c) {
    const float *x = host_x(c), *b = host_w(c);
    float *y = host_at(c, c->l->y);
    for (int r = 0; r < c->l->rows; r++, x += c->l->out, y += c->l->out)
        for (int j = 0; j < c->l->out; j++)
            y[j] = x[j] + b[j];
}

static void bias_weight(const struct host_call *c) {
    float *dw = host_dw(c);
    if (host_first(c))
        memset(dw, 0, (size_t)c->l->nparam * sizeof *dw);
    host_add_rows(host_at(c, c->l->dy), c->l->out, c->l->rows, c->l->out, dw, 0);
}

const struct host_layer host_embedding = {embedding_forward, NULL, embedding_weight};
const struct host_layer host_relu = {relu_forward, relu_input, NULL};
const struct host_layer host_gelu = {gelu_forward, gelu_input, NULL};
const struct host_layer host_silu = {silu_forward, silu_input, NULL};
const struct host_layer host_swiglu = {swiglu_forward, swiglu_input, NULL};
const struct host_layer host_geglu = {geglu_forward, geglu_input, NULL};
const struct host_layer host_fork = {NULL, fork_input, NULL};
const struct host_layer host_join = {join_forward, NULL, NULL};
const struct host_layer host_bias = {bias_forward, NULL, bias_weight};
const struct host_layer host_spread = {NULL, NULL, NULL};
const struct host_layer host_reduce = {NULL, NULL, NULL};
const struct host_layer host_gather = {NULL, NULL, NULL};
const struct host_layer host_scatter = {NULL, NULL, NULL};
const struct host_layer host_again = {NULL, NULL, NULL};

/* ---- sweeps ---- */

#define X(name, ...) &host_##name,
static const struct host_layer *const kinds[NLAYERS] = {LAYERS(X)};
#undef X
static const struct host_halves *const halves[NLAYERS] = {
    [LAYER_cross_entropy] = &host_cross_entropy_halves,
    [LAYER_gather_kv] = &host_gather_kv_halves,
    [LAYER_again_kv] = &host_again_kv_halves,
    [LAYER_to_heads] = &host_to_heads_halves,
    [LAYER_to_rows] = &host_to_rows_halves,
    [LAYER_to_experts] = &host_to_experts_halves,
    [LAYER_to_tokens] = &host_to_tokens_halves,
};

static void do_half(void (*half)(const struct host_call *c), const struct host_call *c) {
    if (half)
        half(c);
}

static size_t bytes_in(const struct rt_layer *l) { return sizeof(float) * (size_t)l->rows * (size_t)l->in; }
static size_t bytes_out(const struct rt_layer *l) { return sizeof(float) * (size_t)rows_out(l) * (size_t)l->out; }

/* Copies the part of the stage's input that the backward needs to the stash, since the operand is freed. An output that
 * the stage itself needs again is computed in the stash, and then copied to the operand. */
static void take_input(const struct rt_bind *at, const struct rt_layer *first) {
    if (first->x.space == SP_STASH)
        memcpy(at->at[SP_STASH] + first->x.off, at->at[SP_X], bytes_in(first));
    if (at->more) /* layout.c has put the input into the stash */
        host_add_more(at, at->at[SP_STASH] + first->x.off, (int64_t)first->rows * first->in);
}

/* Copy, in the middle of a layer, the data that it gives to its team, and the data that it gets. */
static void give(const struct rt_bind *at, const float *x, size_t bytes) {
    if ((const char *)x != at->at[SP_GIVE])
        memcpy(at->at[SP_GIVE], x, bytes);
}
static void get(const struct rt_bind *at, struct slot to, size_t bytes) {
    if (to.space != SP_GOT && to.space != SP_NONE)
        memcpy(at->at[to.space] + to.off, at->at[SP_GOT], bytes);
}

/* Do the same in a backward. The data that `again` gathers stays where the layer before it reads it. */
static void give_back(const struct host_call *c) {
    if (c->l->kind == LAYER_again)
        give(c->at, c->l->aux.space == SP_NONE ? c->at->batch->x : host_at(c, c->l->aux), bytes_in(c->l));
    else
        give(c->at, host_at(c, c->l->dy), bytes_out(c->l));
}
static void get_back(const struct host_call *c) {
    if (c->l->kind != LAYER_again)
        get(c->at, c->l->dx, bytes_in(c->l));
}

void host_forward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, int from, int to) {
    const struct rt_layer *first = s->layer + from, *last = s->layer + to - 1;
    bool gets = at->at[SP_GOT], gives = at->at[SP_GIVE];
    if (gets && halves[first->kind])
        do_half(halves[first->kind]->get, &(struct host_call){m, first, at});
    else if (gets)
        get(at, first->y, bytes_out(first));
    else if (from == 0)
        take_input(at, first);
    for (const struct rt_layer *l = first + gets; l <= last - gives; l++)
        if (kinds[l->kind]->forward)
            kinds[l->kind]->forward(&(struct host_call){m, l, at});
    if (gives && halves[last->kind])
        do_half(halves[last->kind]->give, &(struct host_call){m, last, at});
    else if (gives)
        give(at, host_x(&(struct host_call){m, last, at}), bytes_in(last));
    else if (to == s->nlayers && last->y.space == SP_STASH)
        memcpy(at->at[SP_Y], at->at[SP_STASH] + last->y.off, bytes_out(last));
}

/* Clears the gap after a layer's parameters in a gradient, so that sums and copies of it are defined. dw: the gradient
 * of n parameters, just written as the first. */
static void clear_gap(float *dw, int64_t n) {
    size_t used = (size_t)n * sizeof *dw;
    memset((char *)dw + used, 0, (PARAM_ALIGN - used % PARAM_ALIGN) % PARAM_ALIGN);
}

static void weight_gradient(const struct host_call *c, struct rt_bind *at) {
    int64_t table = shared_table(c->m, c->l);
    kinds[c->l->kind]->weight(c);
    if (host_first(c))
        clear_gap(host_dw(c), c->l->nparam);
    if (table > 0 && at->vfirst) {
        clear_gap(at->dv, table);
        at->vfirst = false; /* if both layers are in this stage, the other one adds */
    }
}

/* Reads the inputs of a backward: the output's gradient and, on slice s, the gradients from later slices for the keys
 * and values of earlier ones. */
static void take_gradient(const struct rt_bind *at, const struct rt_stage *s, bool input) {
    const struct rt_layer *last = s->layer + s->nlayers - 1;
    if (input && at->dkv && at->dpast)
        memcpy(at->dpast, at->dkv, (size_t)past_bytes(at->slice, (int32_t)(s - at->slice), sizeof(float)));
    if (input && last->dy.space == SP_EXT)
        memcpy(at->at[SP_EXT] + last->dy.off, at->at[SP_DY], bytes_out(last));
    if (at->more)
        host_add_more(at, at->at[SP_EXT] + last->dy.off, (int64_t)rows_out(last) * last->out);
}

void host_backward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                        struct rt_sweep sweep) {
    const struct rt_layer *first = s->layer + sweep.from, *last = s->layer + sweep.to - 1;
    bool gets = at->at[SP_GOT], gives = at->at[SP_GIVE];
    if (gets && halves[last->kind])
        do_half(halves[last->kind]->get_back, &(struct host_call){m, last, at});
    else if (gets)
        get_back(&(struct host_call){m, last, at});
    else if (sweep.to == s->nlayers && sweep.kind != SWEEP_WEIGHTS)
        take_gradient(at, s, sweep.input);
    struct rt_bind mine = *at;
    mine.vfirst = at->vfirst && !uses_table(m, s, sweep.to);
    for (const struct rt_layer *l = last - gets; l >= first + gives; l--) {
        struct host_call c = {m, l, &mine};
        if (sweep.input && sweep.kind != SWEEP_WEIGHTS && kinds[l->kind]->input && has_input_gradient(l))
            kinds[l->kind]->input(&c);
        bool put_off = sweep.kind == SWEEP_PUT_OFF && l == first + 1;
        if (sweep.weight && !put_off && kinds[l->kind]->weight && has_weight_gradient(l))
            weight_gradient(&c, &mine);
    }
    if (gives && halves[first->kind])
        do_half(halves[first->kind]->give_back, &(struct host_call){m, first, at});
    else if (gives)
        give_back(&(struct host_call){m, first, at});
}
