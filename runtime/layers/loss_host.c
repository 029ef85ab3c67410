/* The losses. A forward reports the microbatch's mean over rows and leaves the gradient in aux, which may be where its
 * input lies: the backward then needs no targets, and has nothing to do. Losses are added up in double. */
#include "host.h"
#include <math.h>
#include <string.h>

/* A loss alone in its stage must still pass its gradient to the stage before. */
static void loss_input(const struct host_call *c) {
    float *dx = host_at(c, c->l->dx), *aux = host_at(c, c->l->aux);
    if (dx != aux)
        memcpy(dx, aux, sizeof *dx * (size_t)c->l->rows * (size_t)c->l->in);
}

/* The loss whose gradient this is: the mean over so many rows, of all microbatches of the step where one update ends
 * it. Dividing a gradient by it is exact for a power of two, and correctly rounded otherwise. */
static float count(const struct host_call *c) {
    return (float)c->l->rows * (float)(c->m->update > 0 ? 1 : c->m->batches);
}

static void report(const struct host_call *c, double sum) {
    if (c->at->loss)
        *c->at->loss = (float)(sum / c->l->rows);
}

/* aux: (softmax(x) - onehot(target)) / count */
static void cross_entropy_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c);
    float *p = host_at(c, l->aux), all = count(c);
    double sum = 0;
    if (p != x)
        memcpy(p, x, sizeof *p * (size_t)l->rows * (size_t)l->in);
    for (int r = 0; r < l->rows; r++, p += l->in) {
        int target = c->at->batch->target[r];
        float top = p[0], hit = p[target];
        for (int j = 1; j < l->in; j++)
            top = p[j] > top ? p[j] : top;
        for (int j = 0; j < l->in; j++)
            p[j] = host_exp(p[j] - top);
        float total = host_sum(p, l->in), norm = 1 / total, right = p[target] * norm - 1;
        for (int j = 0; j < l->in; j++)
            p[j] = p[j] * norm / all;
        p[target] = right / all;
        sum += log((double)total) - (double)(hit - top);
    }
    report(c, sum);
}

/* aux: (x - target) / count */
static void mse_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *target = c->at->batch->y;
    float *dx = host_at(c, l->aux), all = count(c);
    double sum = 0;
    for (int64_t i = 0, n = (int64_t)l->rows * l->in; i < n; i++) {
        float d = x[i] - target[i];
        dx[i] = d / all;
        sum += 0.5 * (double)d * (double)d;
    }
    report(c, sum);
}

const struct host_layer host_cross_entropy = {cross_entropy_forward, loss_input, NULL};
const struct host_layer host_mse = {mse_forward, loss_input, NULL};
