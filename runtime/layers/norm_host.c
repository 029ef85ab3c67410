/* Normalisation over columns.
 *
 * layernorm (Ba et al. 2016): y = gamma xhat + beta, xhat = (x - mean) / sqrt(var + eps). Parameters are gamma, then
 * beta; aux is mean and 1 / sqrt(var + eps) of each row.
 * rmsnorm (Zhang & Sennrich 2019, equation 4): y = gamma xhat, xhat = x / sqrt(mean(x^2) + eps). The parameter is
 * gamma; aux is 1 / sqrt(mean(x^2) + eps) of each row. */
#include "host.h"
#include <math.h>
#include <string.h>

/* ---- layernorm ---- */

static LANES_8 void layernorm_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *gamma = host_w(c), *beta = gamma + l->out;
    float *y = host_at(c, l->y), *stat = host_at(c, l->aux), eps = eps_of(l);
    for (int r = 0; r < l->rows; r++, x += l->out, y += l->out, stat += 2) {
        float mean = host_sum(x, l->out) / (float)l->out;
        for (int j = 0; j < l->out; j++)
            y[j] = x[j] - mean;
        float scale = 1 / sqrtf(host_dot(y, y, l->out) / (float)l->out + eps);
        for (int j = 0; j < l->out; j++)
            y[j] = gamma[j] * (y[j] * scale) + beta[j];
        stat[0] = mean;
        stat[1] = scale;
    }
}

/* With g = gamma dy: dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps) */
static LANES_8 void layernorm_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *gamma = host_w(c), *dy = host_at(c, l->dy), *stat = host_at(c, l->aux);
    float *dx = host_at(c, l->dx);
    for (int r = 0; r < l->rows; r++, x += l->out, dy += l->out, dx += l->out, stat += 2) {
        float mean = stat[0], scale = stat[1], n = (float)l->out;
        for (int j = 0; j < l->out; j++)
            dx[j] = gamma[j] * dy[j];
        float g = host_sum(dx, l->out) / n;
        float along = (host_dot(dx, x, l->out) / n - g * mean) * scale; /* mean of g xhat */
        for (int j = 0; j < l->out; j++)
            dx[j] = (dx[j] - g - (x[j] - mean) * scale * along) * scale;
    }
}

static WIDE void layernorm_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *dy = host_at(c, l->dy), *stat = host_at(c, l->aux);
    float *dgamma = host_dw(c), *dbeta = dgamma + l->out;
    if (host_first(c))
        memset(dgamma, 0, (size_t)l->nparam * sizeof *dgamma);
    for (int r = 0; r < l->rows; r++, x += l->out, dy += l->out, stat += 2)
        for (int j = 0; j < l->out; j++) {
            dgamma[j] += dy[j] * ((x[j] - stat[0]) * stat[1]);
            dbeta[j] += dy[j];
        }
}

/* ---- rmsnorm ---- */

static LANES_8 void rmsnorm_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *gamma = host_w(c);
    float *y = host_at(c, l->y), *stat = host_at(c, l->aux), eps = eps_of(l);
    for (int r = 0; r < l->rows; r++, x += l->out, y += l->out) {
        float scale = 1 / sqrtf(host_dot(x, x, l->out) / (float)l->out + eps);
        for (int j = 0; j < l->out; j++)
            y[j] = gamma[j] * (x[j] * scale);
        stat[r] = scale;
    }
}

/* With g = gamma dy: dx = (g - xhat mean(g xhat)) / sqrt(mean(x^2) + eps) */
static LANES_8 void rmsnorm_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *gamma = host_w(c), *dy = host_at(c, l->dy), *stat = host_at(c, l->aux);
    float *dx = host_at(c, l->dx);
    for (int r = 0; r < l->rows; r++, x += l->out, dy += l->out, dx += l->out) {
        float scale = stat[r];
        for (int j = 0; j < l->out; j++)
            dx[j] = gamma[j] * dy[j];
        float along = host_dot(dx, x, l->out) / (float)l->out * scale; /* mean of g xhat */
        for (int j = 0; j < l->out; j++)
            dx[j] = (dx[j] - x[j] * scale * along) * scale;
    }
}

static WIDE void rmsnorm_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *dy = host_at(c, l->dy), *stat = host_at(c, l->aux);
    float *dgamma = host_dw(c);
    if (host_first(c))
        memset(dgamma, 0, (size_t)l->nparam * sizeof *dgamma);
    for (int r = 0; r < l->rows; r++, x += l->out, dy += l->out)
        for (int j = 0; j < l->out; j++)
            dgamma[j] += dy[j] * (x[j] * stat[r]);
}

const struct host_layer host_layernorm = {layernorm_forward, layernorm_input, layernorm_weight};
const struct host_layer host_rmsnorm = {rmsnorm_forward, rmsnorm_input, rmsnorm_weight};
