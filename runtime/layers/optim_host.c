/* Updates on the host, fp32: per parameter, leaving the gaps between parameters alone. None uses libm beyond sqrtf,
 * which IEEE 754 fixes to the bit, so all give the same weights on every machine. Weights, gradients and moments do not
 * overlap, and what a loop reads besides is read before it: so loops are vectorised. */
#include "clip.h"
#include "host.h"
#include "rate.h"
#include "store/parameter_walk.h"
#include <string.h>

/* What all weights of a parameter's update share. */
struct update {
    const struct rt_model *m;
    float scale, lr, adam_lr, decay, unbias, unbias2;
};

/* An optimizer's step of n weights. moment: the first of their arrays that OPTIMIZERS names, in its order; each next
 * one is `stride` floats after it. */
typedef void optimizer_step(const struct update *u, int64_t n, float *restrict w, const float *restrict dw,
                            float *moment, int64_t stride);

static WIDE void sgd(const struct update *u, int64_t n, float *restrict w, const float *restrict dw, float *moment,
                     int64_t stride) {
    const float lr = u->lr, scale = u->scale;
    (void)moment, (void)stride;
    for (int64_t i = 0; i < n; i++)
        w[i] -= lr * (scale * dw[i]);
}

/* Sutskever 2013, in PyTorch's form: the velocity is a sum of gradients, and the rate scales it. */
static WIDE void momentum(const struct update *u, int64_t n, float *restrict w, const float *restrict dw, float *moment,
                          int64_t stride) {
    const float lr = u->lr, scale = u->scale, keep = u->m->momentum;
    const bool nesterov = u->m->nesterov != 0;
    float *restrict velocity = moment;
    (void)stride;
    for (int64_t i = 0; i < n; i++) {
        float g = scale * dw[i], v = keep * velocity[i] + g;
        velocity[i] = v;
        w[i] -= lr * (nesterov ? g + keep * v : v);
    }
}

static double power(double x, int64_t n) {
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}

/* Loshchilov & Hutter 2019, algorithm 2, with the decay decoupled and scaled by the learning rate: m is the first
 * moment, v the second. */
static WIDE void adamw(const struct update *u, int64_t n, float *restrict w, const float *restrict dw, float *moment,
                       int64_t stride) {
    const float lr = u->adam_lr, scale = u->scale, decay = u->decay;
    const float beta1 = u->m->beta1, beta2 = u->m->beta2, eps = u->m->eps;
    const float unbias = u->unbias, unbias2 = u->unbias2;
    float *restrict mean = moment, *restrict square = moment + stride;
    for (int64_t i = 0; i < n; i++) {
        float g = scale * dw[i];
        mean[i] = beta1 * mean[i] + (1 - beta1) * g;
        square[i] = beta2 * square[i] + (1 - beta2) * g * g;
        float move = mean[i] * unbias / (sqrtf(square[i] * unbias2) + eps);
        w[i] -= lr * (move + decay * w[i]);
    }
}

/* Of what is no hidden matrix: those have host_muon. */
static void muon(const struct update *u, int64_t n, float *w, const float *dw, float *moment, int64_t stride) {
    adamw(u, n, w, dw, moment, stride);
}

#define X(NAME, name, ...) name,
static optimizer_step *const steps[NOPTIMIZERS] = {NULL, OPTIMIZERS(X)};
#undef X

/* Returns the bits of the largest magnitude; infinity's or more if a value is not finite. */
static WIDE uint32_t largest(const float *w, int64_t n) {
    uint32_t most = 0, bits;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &w[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Works in pieces that stay in the first-level cache, so that the check costs nothing measurable. */
static uint32_t step_pieces(const struct update *u, int64_t n, float *w, const float *dw, float *moment,
                            int64_t stride) {
    enum { PIECE = 1024 };
    uint32_t most = 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t size = at + PIECE < n ? PIECE : n - at;
        steps[u->m->optimizer](u, size, w + at, dw + at, moment ? moment + at : NULL, stride);
        uint32_t here = largest(w + at, size);
        most = here > most ? here : most;
    }
    return most;
}

/* Each moment is laid out as the weights are. Step 1 starts them at zero. */
bool host_update(const struct rt_model *m, const struct rt_stage *s, int64_t first, int64_t n, float *w,
                 const float *dw, float *opt, float *work, const uint64_t *norm, int64_t number, int64_t of) {
    const uint32_t infinite = 0x7f800000;
    uint32_t most = 0, here = 0;
    int moments = count_moments(m->optimizer);
    struct update u = {.m = m, .scale = update_scale(m, s) * (norm ? clip_scale(m->clip, norm) : 1)};
    u.lr = rate_at(m, number, of);
    u.unbias = (float)(1 / (1 - power((double)m->beta1, number)));
    u.unbias2 = (float)(1 / (1 - power((double)m->beta2, number)));
    u.adam_lr = m->optimizer == OPT_MUON ? rate_from(m, (double)m->adam_lr, number, of) : u.lr;
    if (number == 1 && moments * n > 0)
        memset(opt, 0, (size_t)(moments * n) * sizeof *opt);
    for (struct parameter_walk walk = walk_parameters(m, s, first, n); steps[m->optimizer] && next_parameter(&walk);) {
        int64_t at = walk.from - first, count = walk.to - walk.from;
        u.decay = decays(walk.p) ? m->decay : 0;
        if (muon_work(m, walk.l, walk.p) > 0) {
            host_muon(m, walk.p, u.lr, u.scale, w + at, dw + at, opt + at, work);
            here = largest(w + at, count);
        } else
            here = step_pieces(&u, count, w + at, dw + at, moments > 0 ? opt + at : NULL, n);
        most = here > most ? here : most;
    }
    return most < infinite;
}
