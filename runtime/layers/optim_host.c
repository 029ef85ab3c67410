/* Updates on the host, fp32: per layer, leaving the gaps between parameters alone. None uses libm beyond sqrtf, which
 * IEEE 754 fixes to the bit, so all give the same weights on every machine. */
#include "rt.h"
#include <math.h>
#include <string.h>

/* An optimizer's step of n weights. moment: the first of their arrays that OPTIMIZERS names, in its order; each next
 * one is `stride` floats after it. */
typedef void optimizer_step(const struct rt_model *m, int64_t n, float *w, const float *dw, float scale, float *moment,
                            int64_t stride, int64_t step);

static void sgd(const struct rt_model *m, int64_t n, float *w, const float *dw, float scale, float *moment,
                int64_t stride, int64_t step) {
    (void)moment, (void)stride, (void)step;
    for (int64_t i = 0; i < n; i++)
        w[i] -= m->lr * (scale * dw[i]);
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
static void adamw(const struct rt_model *m, int64_t n, float *w, const float *dw, float scale, float *moment,
                  int64_t stride, int64_t step) {
    float *mean = moment, *square = moment + stride;
    float unbias = (float)(1 / (1 - power((double)m->beta1, step)));
    float unbias2 = (float)(1 / (1 - power((double)m->beta2, step)));
    for (int64_t i = 0; i < n; i++) {
        float g = scale * dw[i];
        mean[i] = m->beta1 * mean[i] + (1 - m->beta1) * g;
        square[i] = m->beta2 * square[i] + (1 - m->beta2) * g * g;
        float move = mean[i] * unbias / (sqrtf(square[i] * unbias2) + m->eps);
        w[i] -= m->lr * (move + m->decay * w[i]);
    }
}

#define X(NAME, name, ...) name,
static optimizer_step *const steps[NOPTIMIZERS] = {NULL, OPTIMIZERS(X)};
#undef X

/* Each moment is laid out as the weights are. Step 1 starts them at zero. */
void host_update(const struct rt_model *m, const struct rt_stage *s, int64_t first, int64_t n, float *w,
                 const float *dw, float *opt, int64_t step) {
    int moments = count_moments(m->optimizer);
    if (step == 1 && moments * n > 0)
        memset(opt, 0, (size_t)(moments * n) * sizeof *opt);
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++) {
        int64_t from = l->param / 4, to = from + (l->set == SET_OWN ? l->nparam : 0);
        from = from > first ? from : first;
        to = to < first + n ? to : first + n;
        int64_t at = from - first;
        if (steps[m->optimizer] && to > from && l->set == SET_OWN)
            steps[m->optimizer](m, to - from, w + at, dw + at, update_scale(m, s), moments > 0 ? opt + at : NULL, n,
                                step);
    }
}
