/* Normalisation over columns.
 *
 * layernorm (Ba et al. 2016): y = gamma xhat + beta, xhat = (x - mean) / sqrt(var + eps). Parameters are gamma, then
 * beta; aux is mean and 1 / sqrt(var + eps) of each row.
 * rmsnorm (Zhang & Sennrich 2019, equation 4): y = gamma xhat, xhat = x / sqrt(mean(x^2) + eps). The parameter is
 * gamma; aux is 1 / sqrt(mean(x^2) + eps) of each row.
 * headnorm: an rmsnorm of each head of queries and keys, with gamma_q or gamma_k; aux is rmsnorm's, for each head of
 * each row. Values are copied. */
#include "host.h"
#include <math.h>
#include <string.h>

/* ---- layernorm ---- */

static LANES_8 void layernorm_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *gamma = host_w(c), *beta = gamma + l->out;
    float *y = host_at(c, l->y), *stat = host_at(c, l->aux), eps = l->config.norm.eps;
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

/* Computes, with g = gamma dy, dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps). */
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

/* Normalizes n columns and returns their scale. */
static inline float normalize_row(float *y, const float *x, const float *gamma, int n, float eps) {
    float scale = 1 / sqrtf(host_dot(x, x, n) / (float)n + eps);
    for (int j = 0; j < n; j++)
        y[j] = gamma[j] * (x[j] * scale);
    return scale;
}

/* Computes, with g = gamma dy, dx = (g - xhat mean(g xhat)) / sqrt(mean(x^2) + eps). */
static inline void normalize_back(float *dx, const float *dy, const float *x, const float *gamma, int n, float scale) {
    for (int j = 0; j < n; j++)
        dx[j] = gamma[j] * dy[j];
    float along = host_dot(dx, x, n) / (float)n * scale; /* mean of g xhat */
    for (int j = 0; j < n; j++)
        dx[j] = (dx[j] - x[j] * scale * along) * scale;
}

static LANES_8 void rmsnorm_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *gamma = host_w(c);
    float *y = host_at(c, l->y), *stat = host_at(c, l->aux), eps = l->config.norm.eps;
    for (int r = 0; r < l->rows; r++, x += l->out, y += l->out)
        stat[r] = normalize_row(y, x, gamma, l->out, eps);
}

static LANES_8 void rmsnorm_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *x = host_x(c), *gamma = host_w(c), *dy = host_at(c, l->dy), *stat = host_at(c, l->aux);
    float *dx = host_at(c, l->dx);
    for (int r = 0; r < l->rows; r++, x += l->out, dy += l->out, dx += l->out)
        normalize_back(dx, dy, x, gamma, l->out, stat[r]);
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

/* ---- headnorm ---- */

static LANES_8 void headnorm_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct attention_config *of = &l->config.attention;
    const float *x = host_x(c), *gamma = host_w(c);
    float *y = host_at(c, l->y), *stat = host_at(c, l->aux), eps = l->config.norm.eps;
    int n = head_columns(l), normed = of->heads + of->kv_heads, values = n * of->kv_heads;
    for (int r = 0; r < l->rows; r++, x += values, y += values) {
        for (int h = 0; h < normed; h++, x += n, y += n)
            *stat++ = normalize_row(y, x, gamma + (h < of->heads ? 0 : n), n, eps);
        memcpy(y, x, (size_t)values * sizeof *y);
    }
}

static LANES_8 void headnorm_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct attention_config *of = &l->config.attention;
    const float *x = host_x(c), *gamma = host_w(c), *dy = host_at(c, l->dy), *stat = host_at(c, l->aux);
    float *dx = host_at(c, l->dx);
    int n = head_columns(l), normed = of->heads + of->kv_heads, values = n * of->kv_heads;
    for (int r = 0; r < l->rows; r++, x += values, dy += values, dx += values) {
        for (int h = 0; h < normed; h++, x += n, dy += n, dx += n)
            normalize_back(dx, dy, x, gamma + (h < of->heads ? 0 : n), n, *stat++);
        memcpy(dx, dy, (size_t)values * sizeof *dx);
    }
}

static WIDE void headnorm_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct attention_config *of = &l->config.attention;
    const float *x = host_x(c), *dy = host_at(c, l->dy), *stat = host_at(c, l->aux);
    float *dgamma = host_dw(c);
    int n = head_columns(l), normed = of->heads + of->kv_heads, values = n * of->kv_heads;
    if (host_first(c))
        memset(dgamma, 0, (size_t)l->nparam * sizeof *dgamma);
    for (int r = 0; r < l->rows; r++, x += values, dy += values)
        for (int h = 0; h < normed; h++, x += n, dy += n, stat++) {
            float *of_head = dgamma + (h < of->heads ? 0 : n);
            for (int j = 0; j < n; j++)
                of_head[j] += dy[j] * (x[j] * *stat);
        }
}

const struct host_layer host_layernorm = {layernorm_forward, layernorm_input, layernorm_weight};
const struct host_layer host_rmsnorm = {rmsnorm_forward, rmsnorm_input, rmsnorm_weight};
const struct host_layer host_headnorm = {headnorm_forward, headnorm_input, headnorm_weight};
