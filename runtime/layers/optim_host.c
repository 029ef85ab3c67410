/* Updates on the host, fp32: per parameter, leaving the gaps between parameters alone. None uses libm beyond sqrtf,
 * which IEEE 754 fixes to the bit, so all give the same weights on every machine. */
#include "host.h"
#include "rate.h"
#include <string.h>

/* What all weights of a parameter's update share. */
struct update {
    const struct rt_model *m;
    float scale, lr, adam_lr, decay;
    int64_t number; /* from 1 */
};

/* An optimizer's step of n weights. moment: the first of their arrays that OPTIMIZERS names, in its order; each next
 * one is `stride` floats after it. */
typedef void optimizer_step(const struct update *u, int64_t n, float *w, const float *dw, float *moment,
                            int64_t stride);

static void sgd(const struct update *u, int64_t n, float *w, const float *dw, float *moment, int64_t stride) {
    (void)moment, (void)stride;
    for (int64_t i = 0; i < n; i++)
        w[i] -= u->lr * (u->scale * dw[i]);
}

/* Sutskever 2013, in PyTorch's form: the velocity is a sum of gradients, and the rate scales it. */
static void momentum(const struct update *u, int64_t n, float *w, const float *dw, float *velocity, int64_t stride) {
    (void)stride;
    for (int64_t i = 0; i < n; i++) {
        float g = u->scale * dw[i];
        velocity[i] = u->m->momentum * velocity[i] + g;
        float move = u->m->nesterov ? g + u->m->momentum * velocity[i] : velocity[i];
        w[i] -= u->lr * move;
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
static void adamw(const struct update *u, int64_t n, float *w, const float *dw, float *moment, int64_t stride) {
    const struct rt_model *m = u->m;
    float *mean = moment, *square = moment + stride;
    float unbias = (float)(1 / (1 - power((double)m->beta1, u->number)));
    float unbias2 = (float)(1 / (1 - power((double)m->beta2, u->number)));
    for (int64_t i = 0; i < n; i++) {
        float g = u->scale * dw[i];
        mean[i] = m->beta1 * mean[i] + (1 - m->beta1) * g;
        square[i] = m->beta2 * square[i] + (1 - m->beta2) * g * g;
        float move = mean[i] * unbias / (sqrtf(square[i] * unbias2) + m->eps);
        w[i] -= u->adam_lr * (move + u->decay * w[i]);
    }
}

/* Of what is no hidden matrix: those have host_muon. */
static void muon(const struct update *u, int64_t n, float *w, const float *dw, float *moment, int64_t stride) {
    adamw(u, n, w, dw, moment, stride);
}

#define X(NAME, name, ...) name,
static optimizer_step *const steps[NOPTIMIZERS] = {NULL, OPTIMIZERS(X)};
#undef X

/* Each moment is laid out as the weights are. Step 1 starts them at zero. */
void host_update(const struct rt_model *m, const struct rt_stage *s, int64_t first, int64_t n, float *w,
                 const float *dw, float *opt, float *work, int64_t number, int64_t of) {
    int moments = count_moments(m->optimizer);
    struct update u = {m, update_scale(m, s), rate_at(m, number, of), 0, 0, number};
    u.adam_lr = m->optimizer == OPT_MUON ? rate_from(m, (double)m->adam_lr, number, of) : u.lr;
    if (number == 1 && moments * n > 0)
        memset(opt, 0, (size_t)(moments * n) * sizeof *opt);
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers && steps[m->optimizer]; l++) {
        const struct rt_parameters all = parameters_of(m, l, shared_table(m, l) > 0);
        int64_t end = l->param / 4;
        for (int i = 0; i < all.n && l->set == SET_OWN; i++) {
            int64_t begin = end;
            end += all.at[i].count;
            int64_t from = begin > first ? begin : first, to = end < first + n ? end : first + n, at = from - first;
            u.decay = decays(&all.at[i]) ? m->decay : 0;
            if (to > from && muon_work(m, l, &all.at[i]) > 0)
                host_muon(m, &all.at[i], u.lr, u.scale, w + at, dw + at, opt + at, work);
            else if (to > from)
                steps[m->optimizer](&u, to - from, w + at, dw + at, moments > 0 ? opt + at : NULL, n);
        }
    }
}
