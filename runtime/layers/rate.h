/* The learning rate of an update, on hosts and devices. The bits are the same everywhere, since the only libm function
 * is sqrt, and each product is rounded on its own. Updates count from 1, as optimizers count. The schedule spans
 * `steps` updates, by default all updates of the run.
 *
 * The first `warmup` updates have lr / warmup, 2 lr / warmup, … lr. Then x goes from 0 to 1 while the rate goes from lr
 * to final * lr, where it stays after the last update:
 *
 *     constant  lr
 *     linear    lr (1 - (1 - final) x)
 *     cosine    with (1 - cos pi x) / 2 instead of x  (Loshchilov & Hutter 2017)
 *     wsd       lr up to the last `cooldown` of all updates; over these with sqrt x instead of x  (Hägele 2024)
 *
 * These formulas are llm.c's. PyTorch's LinearLR followed by CosineAnnealingLR gives the same rates. */
#ifndef PIANOLA_RATE_H
#define PIANOLA_RATE_H
#include "both.h"
#include "model.h"
#include <math.h>

/* Returns cos(pi x) for x from 0 to 1, to 2^-52: Taylor's series up to pi / 4, for sine or cosine, whichever is nearer.
 */
ON_BOTH double rate_cosine(double x) {
    const double pi = 3.14159265358979323846;
    double half = x > 0.5 ? 1 - x : x, y = times_double(pi, half > 0.25 ? 0.5 - half : half);
    double square = times_double(y, y), sum = 1;
    int odd = half > 0.25;
    for (int n = 18 + odd; n > odd; n -= 2)
        sum = 1 - times_double(square, sum) / (n * (n - 1));
    sum = odd ? times_double(y, sum) : sum;
    return x > 0.5 ? -sum : sum;
}

/* Returns the rate with another lr than the model's. of: the updates of the whole run. */
ON_BOTH float rate_from(const struct rt_model *m, double lr, int64_t update, int64_t of) {
    double done = (double)(update - 1), end = (double)(m->steps > 0 ? m->steps : of), from = m->warmup;
    if (update <= m->warmup)
        return (float)(times_double(lr, (double)update) / from);
    if (m->schedule == SCHEDULE_constant)
        return (float)lr;
    if (m->schedule == SCHEDULE_wsd) {
        double stable = end - (double)(int64_t)(times_double(end, (double)m->cooldown) + 0.5);
        from = stable > from ? stable : from;
    }
    double x = done >= end ? 1 : done > from ? (done - from) / (end - from) : 0;
    x = m->schedule == SCHEDULE_cosine ? (1 - rate_cosine(x)) / 2 : m->schedule == SCHEDULE_wsd ? sqrt(x) : x;
    return (float)times_double(lr, 1 - times_double(1 - (double)m->final, x));
}
ON_BOTH float rate_at(const struct rt_model *m, int64_t update, int64_t of) {
    return rate_from(m, (double)m->lr, update, of);
}
#endif
