/* Causal multi-head self-attention (Vaswani et al. 2017, section 3.2), one sequence and head at a time.
 *
 * x holds q, k and v side by side, each C columns, a head being C / heads of them. The forward keeps the
 * probabilities, heads x context x context per sequence, in aux; tmp is one context x context matrix.
 * The products take the whole square, the softmax only the half below the diagonal. */
#include "host.h"
#include <cblas.h>
#include <math.h>
#include <string.h>

/* One sequence and head: where its rows and columns begin. */
struct head {
    int context, dim, c3, c; /* rows; columns of the head; row strides of x and of y */
    float scale;
    int64_t x, y, p; /* offsets in floats: its q in x (k and v lie c and 2c further), its y, its probabilities */
};

static struct head head_of(const struct rt_layer *l, int sequence, int head) {
    int dim = l->out / l->heads;
    int64_t row = (int64_t)sequence * l->context, square = (int64_t)l->context * l->context;
    struct head h = {.context = l->context, .dim = dim, .c3 = l->in, .c = l->out, .scale = 1 / sqrtf((float)dim)};
    h.x = row * l->in + (int64_t)head * dim;
    h.y = row * l->out + (int64_t)head * dim;
    h.p = ((int64_t)sequence * l->heads + head) * square;
    return h;
}

static void softmax_causal(float *p, int n) {
    for (int i = 0; i < n; i++, p += n) {
        float top = p[0];
        for (int j = 1; j <= i; j++)
            top = p[j] > top ? p[j] : top;
        for (int j = 0; j <= i; j++)
            p[j] = host_exp(p[j] - top);
        float norm = 1 / host_sum(p, i + 1);
        for (int j = 0; j <= i; j++)
            p[j] *= norm;
        memset(p + i + 1, 0, (size_t)(n - 1 - i) * sizeof *p);
    }
}

static void head_forward(struct head h, const float *x, float *p, float *y) {
    const float *q = x, *k = x + h.c, *v = x + 2 * h.c;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, h.context, h.context, h.dim, h.scale, q, h.c3, k, h.c3, 0, p,
                h.context);
    softmax_causal(p, h.context);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, h.context, h.dim, h.context, 1, p, h.context, v, h.c3, 0, y,
                h.c);
}

/* ds = scale · p (dp - sum_j p dp), in place of dp */
static void softmax_backward(const float *p, float *dp, int n, float scale) {
    for (int i = 0; i < n; i++, p += n, dp += n) {
        float mean = host_dot(p, dp, i + 1);
        for (int j = 0; j <= i; j++)
            dp[j] = scale * p[j] * (dp[j] - mean);
        memset(dp + i + 1, 0, (size_t)(n - 1 - i) * sizeof *dp);
    }
}

static void head_backward(struct head h, const float *x, const float *p, const float *dy, float *ds, float *dx) {
    const float *q = x, *k = x + h.c, *v = x + 2 * h.c;
    float *dq = dx, *dk = dx + h.c, *dv = dx + 2 * h.c;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, h.context, h.dim, h.context, 1, p, h.context, dy, h.c, 0, dv,
                h.c3);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, h.context, h.context, h.dim, 1, dy, h.c, v, h.c3, 0, ds,
                h.context);
    softmax_backward(p, ds, h.context, h.scale);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, h.context, h.dim, h.context, 1, ds, h.context, k, h.c3, 0,
                dq, h.c3);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, h.context, h.dim, h.context, 1, ds, h.context, q, h.c3, 0, dk,
                h.c3);
}

static void attention_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    for (int s = 0; s < l->rows / l->context; s++)
        for (int i = 0; i < l->heads; i++) {
            struct head h = head_of(l, s, i);
            head_forward(h, host_x(c) + h.x, host_at(c, l->aux) + h.p, host_at(c, l->y) + h.y);
        }
}

static void attention_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    for (int s = 0; s < l->rows / l->context; s++)
        for (int i = 0; i < l->heads; i++) {
            struct head h = head_of(l, s, i);
            head_backward(h, host_x(c) + h.x, host_at(c, l->aux) + h.p, host_at(c, l->dy) + h.y, host_at(c, l->tmp),
                          host_at(c, l->dx) + h.x);
        }
}

const struct host_layer host_attention = {attention_forward, attention_input, NULL};
