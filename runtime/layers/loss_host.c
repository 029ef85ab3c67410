/* The losses. A forward reports the microbatch's mean over rows and leaves the gradient in aux, which may be where its
 * input lies. So the backward needs no targets and does nothing. Losses are added up in double. */
#include "host.h"
#include <math.h>
#include <string.h>

/* Passes on the gradient of a loss that is alone in its stage. */
static void loss_input(const struct host_call *c) {
    float *dx = host_at(c, c->l->dx), *aux = host_at(c, c->l->aux);
    if (dx != aux)
        memcpy(dx, aux, sizeof *dx * (size_t)c->l->rows * (size_t)c->l->in);
}

/* Returns the rows over which the loss is a mean: the microbatch's, even if a slice or a team's member has only some.
 */
static int32_t rows_of_mean(const struct host_call *c) {
    return c->m->slices > 0 || c->l->part.members > 0 ? c->m->rows : c->l->rows;
}

/* Returns the targets over which a microbatch's loss is a mean: its rows, or a microbatch's share of the step's labels
 * that count, so that the mean over the microbatches is the step's. */
static double targets_of_mean(const struct host_call *c) {
    const int64_t *counted = c->at->batch->counted;
    return counted ? (double)*counted / (c->m->update > 0 ? 1 : c->m->batches) : rows_of_mean(c);
}

/* Returns the divisor of the loss whose gradient this is: the rows of the mean, times the step's microbatches if one
 * update ends the step. Dividing a gradient by it is exact for a power of two, and correctly rounded otherwise. */
static float count(const struct host_call *c) {
    if (c->at->batch->counted)
        return (float)*c->at->batch->counted;
    return (float)rows_of_mean(c) * (float)(c->m->update > 0 ? 1 : c->m->batches);
}

/* Reports the loss: 0 of a microbatch with its own mean and no target that counts. A slice's share is scaled up as if
 * its rows were a microbatch's, so that the mean over a step's slices is the mean over its microbatches. The reports of
 * a team's members are added up. */
static void report(const struct host_call *c, double sum) {
    double targets = targets_of_mean(c);
    if (c->at->loss)
        *c->at->loss = targets == 0 && c->m->update > 0 ? 0 : (float)(sum * pieces_of_batch(c->m) / targets);
}

/* Computes aux = (softmax(x) - onehot(target)) / count, or 0 where a label does not count. */
static LANES_8 void cross_entropy_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c);
    float *p = host_at(c, l->aux), all = count(c);
    double sum = 0;
    if (p != x)
        memcpy(p, x, sizeof *p * (size_t)l->rows * (size_t)l->in);
    for (int r = 0; r < l->rows; r++, p += l->in) {
        int target = c->at->batch->target[r];
        if (target < 0) {
            memset(p, 0, sizeof *p * (size_t)l->in);
            continue;
        }
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

/* ---- for a team that divides the vocabulary: each member has some columns ---- */

/* A member's statistics of a row: its largest logit, the sum of exponentials relative to it, and the target's logit or
 * 0. */
enum { TOP, TOTAL, HIT, STATISTICS };

/* Returns the target's column on this member, or -1 if another member has it. */
static int local_column(const struct rt_layer *l, int target) {
    int column = target - l->share.member * l->in;
    return column >= 0 && column < l->in ? column : -1;
}

static LANES_8 void cross_entropy_give(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c);
    float *all = (float *)(void *)c->at->at[SP_GIVE];
    for (int r = 0; r < l->rows; r++, x += l->in, all += STATISTICS) {
        int target = local_column(l, c->at->batch->target[r]);
        float top = x[0], total = 0;
        for (int j = 1; j < l->in; j++)
            top = x[j] > top ? x[j] : top;
        for (int j = 0; j < l->in; j++)
            total += host_exp(x[j] - top);
        all[TOP] = top;
        all[TOTAL] = total;
        all[HIT] = target >= 0 ? x[target] : 0;
    }
}

/* Computes aux as for the whole vocabulary, for this member's columns. */
static LANES_8 void cross_entropy_get(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *got = (const float *)(const void *)c->at->at[SP_GOT];
    float *p = host_at(c, l->aux), count_of_rows = count(c);
    int64_t apart = statistics_bytes(l) / 4; /* floats from one member's statistics to the next's */
    double sum = 0;
    for (int r = 0; r < l->rows; r++, x += l->in, p += l->in, got += STATISTICS) {
        if (c->at->batch->target[r] < 0) {
            memset(p, 0, sizeof *p * (size_t)l->in);
            continue;
        }
        int target = local_column(l, c->at->batch->target[r]);
        float top = got[TOP], total = 0, hit = 0;
        for (int i = 1; i < l->share.members; i++)
            top = got[i * apart + TOP] > top ? got[i * apart + TOP] : top;
        for (int i = 0; i < l->share.members; i++) {
            total += got[i * apart + TOTAL] * host_exp(got[i * apart + TOP] - top);
            hit += got[i * apart + HIT];
        }
        float norm = 1 / total;
        for (int j = 0; j < l->in; j++)
            p[j] = (host_exp(x[j] - top) * norm - (j == target ? 1.0f : 0.0f)) / count_of_rows;
        sum += log((double)total) - (double)(hit - top);
    }
    report(c, sum);
}

/* Computes aux = (x - target) / count. */
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

/* Computes aux = 1 / count, or 0 where a label does not count. */
static void mean_loss_forward(const struct host_call *c) {
    const float *x = host_x(c);
    float *dx = host_at(c, c->l->aux), share = 1 / count(c);
    double sum = 0;
    for (int r = 0; r < c->l->rows; r++) {
        bool counts = c->at->batch->target[r] >= 0;
        sum += counts ? (double)x[r] : 0;
        dx[r] = counts ? share : 0;
    }
    report(c, sum);
}

const struct host_layer host_cross_entropy = {cross_entropy_forward, loss_input, NULL};
const struct host_halves host_cross_entropy_halves = {cross_entropy_give, cross_entropy_get, NULL, NULL};
const struct host_layer host_mse = {mse_forward, loss_input, NULL};
const struct host_layer host_mean_loss = {mean_loss_forward, loss_input, NULL};
