/* The layers in double precision, for test_layers_host.c: a stage's forward, directly from the formulas. */
#ifndef LAYER_REFERENCE_H
#define LAYER_REFERENCE_H
#include "layers/host.h"
#include <criterion/criterion.h>
#include <math.h>

struct reference {
    const struct rt_model *m;
    const struct rt_stage *s;
    const struct rt_batch *batch;
    double *w, *x; /* parameters as the stage lays them out, and the stage's input */
    double *v;     /* the shared token table, if there is one */
    double *dy;    /* the objective is sum(dy * y), or the loss / batches */
    double *y;     /* the stage's output, after objective() */
};

static void ref_linear(const struct rt_layer *l, const double *w, const double *x, double *y) {
    bool bias = l->nparam > (int64_t)l->in * l->out;
    for (int r = 0; r < l->rows; r++)
        for (int j = 0; j < l->out; j++) {
            double sum = bias ? w[l->in * l->out + j] : 0;
            for (int i = 0; i < l->in; i++)
                sum += x[r * l->in + i] * w[i * l->out + j];
            y[r * l->out + j] = sum;
        }
}

static void ref_unembedding(const struct rt_layer *l, const double *v, const double *x, double *y) {
    for (int r = 0; r < l->rows; r++)
        for (int j = 0; j < l->out; j++) {
            y[r * l->out + j] = 0;
            for (int i = 0; i < l->in; i++)
                y[r * l->out + j] += x[r * l->in + i] * v[j * l->in + i];
        }
}

static void ref_layernorm(const struct rt_layer *l, const double *w, const double *x, double *y) {
    for (int r = 0; r < l->rows; r++, x += l->in, y += l->in) {
        double mean = 0, var = 0;
        for (int j = 0; j < l->in; j++)
            mean += x[j] / l->in;
        for (int j = 0; j < l->in; j++)
            var += (x[j] - mean) * (x[j] - mean) / l->in;
        for (int j = 0; j < l->in; j++)
            y[j] = w[j] * (x[j] - mean) / sqrt(var + 1e-5) + w[l->in + j];
    }
}

static void ref_rmsnorm(const struct rt_layer *l, const double *w, const double *x, double *y) {
    for (int r = 0; r < l->rows; r++, x += l->in, y += l->in) {
        double square = 0;
        for (int j = 0; j < l->in; j++)
            square += x[j] * x[j] / l->in;
        for (int j = 0; j < l->in; j++)
            y[j] = w[j] * x[j] / sqrt(square + 1e-5);
    }
}

static void ref_headnorm(const struct rt_layer *l, const double *w, const double *x, double *y) {
    int all = l->config.attention.heads + 2 * l->config.attention.kv_heads, n = l->in / all;
    for (int i = 0; i < l->rows * all; i++, x += n, y += n) {
        double square = 0;
        for (int j = 0; j < n; j++)
            square += x[j] * x[j] / n;
        for (int j = 0; j < n; j++)
            y[j] = i % all < l->config.attention.heads ? w[j] * x[j] / sqrt(square + 1e-5)
                   : i % all < l->config.attention.heads + l->config.attention.kv_heads
                       ? w[n + j] * x[j] / sqrt(square + 1e-5)
                       : x[j];
    }
}

/* Returns column i of head h, rotated by rope. Heads of queries and keys are counted together. */
static double ref_turned(const struct rt_layer *l, const double *x, int r, int h, int i) {
    int dim = l->out / l->config.attention.heads, half = dim / 2;
    const double *at = x + r * l->in + h * dim;
    if (l->config.attention.rope == 0)
        return at[i];
    double angle = r % l->context * pow(l->config.attention.rope, -2.0 * (i % half) / dim);
    return i < half ? at[i] * cos(angle) - at[i + half] * sin(angle) : at[i] * cos(angle) + at[i - half] * sin(angle);
}

static void ref_attention(const struct rt_layer *l, const double *x, double *y) {
    int dim = l->out / l->config.attention.heads;
    static double turned[4096];
    int heads = l->config.attention.heads + l->config.attention.kv_heads;
    for (int i = 0; i < l->rows * heads * dim; i++)
        turned[i] = ref_turned(l, x, i / (heads * dim), i / dim % heads, i % dim);
    for (int r = 0; r < l->rows; r++)
        for (int h = 0; h < l->config.attention.heads; h++) {
            int first = r / l->context * l->context,
                kv = h / (l->config.attention.heads / l->config.attention.kv_heads);
            double p[130], total = 0, *to = y + r * l->out + h * dim;
            for (int k = first; k <= r; k++) {
                double dot = 0;
                for (int i = 0; i < dim; i++)
                    dot += turned[(r * heads + h) * dim + i] *
                           turned[(k * heads + l->config.attention.heads + kv) * dim + i];
                total += p[k - first] = exp(dot / sqrt(dim));
            }
            for (int i = 0; i < dim; i++) {
                to[i] = 0;
                for (int k = first; k <= r; k++)
                    to[i] += p[k - first] / total * x[k * l->in + (heads + kv) * dim + i];
            }
        }
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

static void ref_elements(const struct reference *f, const struct rt_layer *l, const double *w, const double *x,
                         double *y) {
    for (int i = 0; i < l->rows * l->out; i++)
        switch (l->kind) {
        case LAYER_embedding:
            y[i] = (f->v ? f->v : w)[f->batch->token[i / l->out] * l->out + i % l->out];
            y[i] *= (double)l->config.embedding.scale;
            if (l->context > 0)
                y[i] += w[((f->v ? 0 : f->m->vocab) + i / l->out % l->context) * l->out + i % l->out];
            break;
        case LAYER_relu: y[i] = x[i] > 0 ? x[i] : 0; break;
        case LAYER_gelu: y[i] = gelu(x[i]); break;
        case LAYER_silu: y[i] = x[i] / (1 + exp(-x[i])); break;
        default: y[i] = x[i];
        }
}

static void ref_gated(const struct rt_layer *l, const double *x, double *y) {
    for (int r = 0; r < l->rows; r++, x += l->in, y += l->in / 2)
        for (int j = 0; j < l->in / 2; j++) {
            double limit = l->config.gated.limit > 0 ? (double)l->config.gated.limit : HUGE_VAL, g = fmin(x[j], limit);
            double up = fmax(fmin(x[l->in / 2 + j], limit), -limit);
            y[j] = (l->kind == LAYER_geglu ? gelu(g) : g / (1 + exp(-g))) * up;
        }
}

static double ref_loss(const struct reference *f, const struct rt_layer *l, const double *x) {
    double loss = 0;
    for (int r = 0; r < l->rows; r++, x += l->in) {
        double total = 0;
        for (int j = 0; j < l->in; j++)
            total += l->kind == LAYER_mse ? pow(x[j] - (double)f->batch->y[r * l->in + j], 2) / 2 : exp(x[j]);
        loss += (l->kind == LAYER_mse ? total : log(total) - x[f->batch->target[r]]) / l->rows;
    }
    return loss / f->m->batches;
}

static double objective(struct reference *f) {
    const struct rt_stage *s = f->s;
    static double value[40][4096];
    int open[8], depth = 0;
    memcpy(value[0], f->x, sizeof value[0]);
    for (int k = 0; k < s->nlayers; k++) {
        const struct rt_layer *l = &s->layer[k];
        const double *w = f->w + l->param / 4, *x = value[k];
        double *y = value[k + 1];
        cr_assert(k < 39 && l->rows * (l->in > l->out ? l->in : l->out) <= 4096);
        if (l->kind == LAYER_linear)
            ref_linear(l, w, x, y);
        else if (l->kind == LAYER_unembedding)
            ref_unembedding(l, f->v, x, y);
        else if (l->kind == LAYER_layernorm)
            ref_layernorm(l, w, x, y);
        else if (l->kind == LAYER_rmsnorm)
            ref_rmsnorm(l, w, x, y);
        else if (l->kind == LAYER_headnorm)
            ref_headnorm(l, w, x, y);
        else if (l->kind == LAYER_swiglu || l->kind == LAYER_geglu)
            ref_gated(l, x, y);
        else if (l->kind == LAYER_attention)
            ref_attention(l, x, y);
        else if (l->kind == LAYER_cross_entropy || l->kind == LAYER_mse)
            return ref_loss(f, l, x);
        else
            ref_elements(f, l, w, x, y);
        if (l->kind == LAYER_fork)
            open[depth++] = k;
        if (l->kind == LAYER_join)
            for (int i = 0, from = open[--depth]; i < l->rows * l->out; i++)
                y[i] += value[from][i];
    }
    f->y = value[s->nlayers];
    double sum = 0;
    for (int i = 0; i < s->layer->rows * s->layer[s->nlayers - 1].out; i++)
        sum += f->dy[i] * f->y[i];
    return sum;
}
#endif
