/* The optimizers: what an update does to one weight, on hosts and devices alike. A row of OPTIMIZERS and its step here
 * define an optimizer; optim_host.c and optim.cu loop over it. The only libm function used is sqrt, which IEEE 754
 * fixes to the bit, so every machine gets the same weights. */
#ifndef PIANOLA_OPTIM_H
#define PIANOLA_OPTIM_H
#include "both.h"
#include "rate.h"
#include <math.h>

enum { MOST_MOMENTS = 2 };

/* An update's values that are the same for all weights, besides the model's settings. */
struct update_rates {
    float lr, scale;       /* scale: factor of the gradient, including clipping */
    float unbias, unbias2; /* corrections of moments that begin at 0: 1 / (1 - beta^number) */
};

ON_BOTH double power(double x, int64_t n) {
    double y = 1;
    for (; n > 0; n >>= 1, x = times_double(x, x))
        if (n & 1)
            y = times_double(y, x);
    return y;
}

/* of: updates in the whole run. An optimizer of matrices uses lr for them, and adam_lr for everything else. */
ON_BOTH struct update_rates rates_of_update(const struct rt_model *m, float scale, int64_t number, int64_t of) {
    struct update_rates r;
    r.lr = rate_from(m, (double)(m->adam_lr > 0 ? m->adam_lr : m->lr), number, of);
    r.scale = scale;
    r.unbias = (float)(1 / (1 - power((double)m->beta1, number)));
    r.unbias2 = (float)(1 / (1 - power((double)m->beta2, number)));
    return r;
}

/* Step a weight w, given its scaled gradient g and its moments in the order of OPTIMIZERS. decay: 0 for weights that do
 * not decay. */
ON_BOTH void sgd_step(const struct rt_model *m, const struct update_rates *r, float decay, float g, float *w,
                      float *moment) {
    (void)m, (void)decay, (void)moment;
    *w -= times(r->lr, g);
}

/* Sutskever 2013, in PyTorch's form: the velocity is a sum of gradients, and the rate scales it. */
ON_BOTH void momentum_step(const struct rt_model *m, const struct update_rates *r, float decay, float g, float *w,
                           float *moment) {
    float velocity = times(m->momentum, moment[0]) + g;
    (void)decay;
    moment[0] = velocity;
    *w -= times(r->lr, m->nesterov ? g + times(m->momentum, velocity) : velocity);
}

/* Loshchilov & Hutter 2019, algorithm 2, with the decay decoupled and scaled by the learning rate. */
ON_BOTH void adamw_step(const struct rt_model *m, const struct update_rates *r, float decay, float g, float *w,
                        float *moment) {
    float mean = times(m->beta1, moment[0]) + times(1 - m->beta1, g);
    float square = times(m->beta2, moment[1]) + times(times(1 - m->beta2, g), g);
    float move = times(mean, r->unbias) / (sqrtf(times(square, r->unbias2)) + m->eps);
    moment[0] = mean;
    moment[1] = square;
    *w -= times(r->lr, move + times(decay, *w));
}

/* Optimizers of matrices step everything else as AdamW does. */
#define X(NAME, name, ...)                                                                                             \
    ON_BOTH void name##_step(const struct rt_model *m, const struct update_rates *r, float decay, float g, float *w,   \
                             float *moment) {                                                                          \
        adamw_step(m, r, decay, g, w, moment);                                                                         \
    }
MATRIX_OPTIMIZERS(X)
#undef X
#endif
