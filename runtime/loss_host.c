/* The losses. A forward reports the microbatch's mean over rows and keeps the gradient but for its factor,
 * 1 / (rows x batches), in aux: the backward then needs no targets. Losses are added up in double. */
#include "host.h"
#include <math.h>

/* dx = aux / (rows x batches): exact for a power of two, and correctly rounded otherwise */
static void loss_input(const struct host_call *c) {
    const float *kept = host_at(c, c->l->aux);
    float *dx = host_at(c, c->l->dx), count = (float)c->l->rows * (float)c->m->batches;
    for (int64_t i = 0, n = (int64_t)c->l->rows * c->l->in; i < n; i++)
        dx[i] = kept[i] / count;
}

static void report(const struct host_call *c, double sum) {
    if (c->at->loss)
        *c->at->loss = (float)(sum / c->l->rows);
}

/* kept: softmax(x) - onehot(target) */
static void cross_entropy_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c);
    float *p = host_at(c, l->aux);
    double sum = 0;
    for (int r = 0; r < l->rows; r++, x += l->in, p += l->in) {
        int target = c->at->batch->target[r];
        float top = x[0];
        for (int j = 1; j < l->in; j++)
            top = x[j] > top ? x[j] : top;
        for (int j = 0; j < l->in; j++)
            p[j] = host_exp(x[j] - top);
        float total = host_sum(p, l->in), norm = 1 / total;
        for (int j = 0; j < l->in; j++)
            p[j] *= norm;
        p[target] -= 1;
        sum += log((double)total) - (double)(x[target] - top);
    }
    report(c, sum);
}

/* kept: x - target */
static void mse_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *target = c->at->batch->y;
    float *kept = host_at(c, l->aux);
    double sum = 0;
    for (int64_t i = 0, n = (int64_t)l->rows * l->in; i < n; i++) {
        kept[i] = x[i] - target[i];
        sum += 0.5 * (double)kept[i] * (double)kept[i];
    }
    report(c, sum);
}

const struct host_layer host_cross_entropy = {cross_entropy_forward, loss_input, NULL};
const struct host_layer host_mse = {mse_forward, loss_input, NULL};
