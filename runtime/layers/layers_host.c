/* The layers on the host, fp32: the sweeps over a stage, and the layers that are a loop or two.
 *
 * A stage's job is a sweep over its layers. Each layer knows from compile time where its tensors lie (rt_layer's
 * slots), so a sweep only adds base addresses and calls. The full backward is the same calls as the input sweep and
 * the weight sweep: dX = dY·Wᵀ and dW = Xᵀ·dY share nothing but dY, which the input sweep leaves in SP_EXT wherever a
 * layer has parameters. So B gives bit for bit what I followed by W gives. */
#include "host.h"
#include <string.h>

/* ---- embedding: w is vocab x out for tokens, unless they are a table v that it shares, then context x out for
 * positions ---- */

static void embedding_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    bool own = shared_table(c->m, l) == 0;
    const float *w = host_w(c), *token = own ? w : c->at->v;
    const float *position = own ? w + (int64_t)c->m->vocab * l->out : w;
    float *y = host_at(c, l->y);
    for (int r = 0; r < l->rows; r++) {
        const float *t = token + (int64_t)c->at->batch->token[r] * l->out;
        const float *p = position + (int64_t)(r % l->context) * l->out;
        for (int j = 0; j < l->out; j++)
            y[(int64_t)r * l->out + j] = t[j] + p[j];
    }
}

static void embedding_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    int64_t tokens = (int64_t)c->m->vocab * l->out;
    bool own = shared_table(c->m, l) == 0;
    float *dw = host_dw(c), *token = own ? dw : c->at->dv, *position = own ? dw + tokens : dw;
    const float *dy = host_at(c, l->dy);
    if (c->at->first)
        memset(dw, 0, (size_t)l->nparam * sizeof *dw);
    if (!own && c->at->vfirst)
        memset(token, 0, (size_t)tokens * sizeof *token);
    for (int r = 0; r < l->rows; r++, dy += l->out) {
        float *t = token + (int64_t)c->at->batch->token[r] * l->out;
        float *p = position + (int64_t)(r % l->context) * l->out;
        for (int j = 0; j < l->out; j++) {
            t[j] += dy[j];
            p[j] += dy[j];
        }
    }
}

/* ---- relu: keeps y, whose sign is all that the gradient needs and which a following linear keeps anyway ---- */

static void relu_forward(const struct host_call *c) {
    const float *x = host_x(c);
    float *y = host_at(c, c->l->y);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
}

static void relu_input(const struct host_call *c) {
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

static void gelu_forward(const struct host_call *c) {
    const float *x = host_x(c);
    float *y = host_at(c, c->l->y);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        y[i] = x[i] * gate(x[i]);
}

static void gelu_input(const struct host_call *c) {
    const float *x = host_x(c), *dy = host_at(c, c->l->dy);
    float *dx = host_at(c, c->l->dx);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++) {
        float s = gate(x[i]), slope = 2 * 0.7978845608f * (1 + 3 * 0.044715f * x[i] * x[i]);
        dx[i] = dy[i] * (s + x[i] * s * (1 - s) * slope);
    }
}

/* ---- residual blocks: fork's y is its x and join's dx is its dy; only the sums are work. aux is the other summand:
 * the fork's input for the join, the gradient of the join's output for the fork ---- */

static void join_forward(const struct host_call *c) {
    const float *x = host_x(c);
    const float *kept = c->l->aux.space == SP_NONE ? c->at->batch->x : host_at(c, c->l->aux);
    float *y = host_at(c, c->l->y);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        y[i] = x[i] + kept[i];
}

static void fork_input(const struct host_call *c) {
    const float *branch = host_at(c, c->l->dy), *around = host_at(c, c->l->aux);
    float *dx = host_at(c, c->l->dx);
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->out; i < n; i++)
        dx[i] = branch[i] + around[i];
}

const struct host_layer host_embedding = {embedding_forward, NULL, embedding_weight};
const struct host_layer host_relu = {relu_forward, relu_input, NULL};
const struct host_layer host_gelu = {gelu_forward, gelu_input, NULL};
const struct host_layer host_fork = {NULL, fork_input, NULL};
const struct host_layer host_join = {join_forward, NULL, NULL};

/* ---- sweeps ---- */

#define X(name, ...) &host_##name,
static const struct host_layer *const kinds[NLAYERS] = {LAYERS(X)};
#undef X

/* The stage's input dies with its operand: what the backward needs of it is copied to the stash. An output that the
 * stage itself needs again is made in the stash, and copied to the operand. */
void host_forward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at) {
    const struct rt_layer *first = s->layer, *last = first + s->nlayers - 1;
    if (first->x.space == SP_STASH)
        memcpy(at->at[SP_STASH] + first->x.off, at->at[SP_X], sizeof(float) * (size_t)first->rows * (size_t)first->in);
    if (at->nmore) /* layout.c has put the input into the stash */
        host_add_more(at, at->at[SP_STASH] + first->x.off, (int64_t)first->rows * first->in);
    for (const struct rt_layer *l = first; l <= last; l++)
        if (kinds[l->kind]->forward)
            kinds[l->kind]->forward(&(struct host_call){m, l, at});
    if (last->y.space == SP_STASH)
        memcpy(at->at[SP_Y], at->at[SP_STASH] + last->y.off, sizeof(float) * (size_t)last->rows * (size_t)last->out);
}

/* Gaps between the layers' parameters are zero in a gradient, so that sums and copies of it are defined. dw: the
 * gradient of n parameters that has just been written first. */
static void clear_gap(float *dw, int64_t n) {
    size_t used = (size_t)n * sizeof *dw;
    memset((char *)dw + used, 0, (PARAM_ALIGN - used % PARAM_ALIGN) % PARAM_ALIGN);
}

static void weight_gradient(const struct host_call *c, struct rt_bind *at) {
    int64_t table = shared_table(c->m, c->l);
    kinds[c->l->kind]->weight(c);
    if (at->first)
        clear_gap(host_dw(c), c->l->nparam);
    if (table > 0 && at->vfirst) {
        clear_gap(at->dv, table);
        at->vfirst = false; /* if both layers are in this stage, the other one adds */
    }
}

void host_backward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, bool input,
                        bool weight, int from, int to) {
    const struct rt_layer *last = s->layer + s->nlayers - 1;
    if (to == s->nlayers && input && last->dy.space == SP_EXT)
        memcpy(at->at[SP_EXT] + last->dy.off, at->at[SP_DY], sizeof(float) * (size_t)last->rows * (size_t)last->out);
    if (to == s->nlayers && at->nmore)
        host_add_more(at, at->at[SP_EXT] + last->dy.off, (int64_t)last->rows * last->out);
    struct rt_bind mine = *at;
    mine.vfirst = at->vfirst && !uses_table(m, s, to);
    for (const struct rt_layer *l = s->layer + to - 1; l >= s->layer + from; l--) {
        struct host_call c = {m, l, &mine};
        if (input && kinds[l->kind]->input && l->dx.space != SP_NONE)
            kinds[l->kind]->input(&c);
        if (weight && kinds[l->kind]->weight)
            weight_gradient(&c, &mine);
    }
}
