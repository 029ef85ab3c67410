/* Everything is fp32, and a matrix of a shape is multiplied in one way, so its bits are those of one rank wherever its
 * home is. W is in x out, PyTorch's is out x in: so the scale, which gives all shapes steps of one size, is
 * sqrt(max(1, out / in)). */
#include "muon.h"
#include "host.h"
#include <cblas.h>
#include <math.h>
#include <string.h>

/* c = alpha a b + beta c; a is m x k or, turned, k x m, and b likewise. */
static void multiply(bool turn_a, bool turn_b, int m, int n, int k, float alpha, const float *a, const float *b,
                     float beta, float *c) {
    cblas_sgemm(CblasRowMajor, turn_a ? CblasTrans : CblasNoTrans, turn_b ? CblasTrans : CblasNoTrans, m, n, k, alpha,
                a, turn_a ? m : k, b, turn_b ? k : n, beta, c, n);
}

/* next = the iteration of x, which is in x out; s, t: of the shorter side squared. */
static void iterate(const float *x, float *next, float *s, float *t, int in, int out) {
    int side = in < out ? in : out;
    bool tall = in > out; /* then X X^T would be the larger product: X (B S + C S S) with S = X^T X is the same */
    multiply(tall, !tall, side, side, tall ? in : out, 1, x, x, 0, s);
    memcpy(t, s, sizeof *t * (size_t)side * (size_t)side);
    multiply(false, false, side, side, side, MUON_C, s, s, MUON_B, t);
    memcpy(next, x, sizeof *next * (size_t)in * (size_t)out);
    multiply(false, false, in, out, side, 1, tall ? x : t, tall ? t : x, MUON_A, next);
}

void host_muon(const struct rt_model *m, const struct rt_parameter *p, float lr, float scale, float *w, const float *dw,
               float *momentum, float *work) {
    int in = (int)p->dim[0], out = (int)p->dim[1], side = in < out ? in : out;
    float *x = work, *next = x + p->count, *s = next + p->count, *t = s + (int64_t)side * side;
    float keep = m->momentum, take = 1 - m->momentum;
    double square = 0;
    for (int64_t i = 0; i < p->count; i++) {
        float g = scale * dw[i];
        momentum[i] = keep * momentum[i] + take * g;
        x[i] = keep * momentum[i] + take * g; /* Nesterov's */
        square += (double)x[i] * (double)x[i];
    }
    float unit = (float)(1 / (sqrt(square) + MUON_EPS));
    for (int64_t i = 0; i < p->count; i++)
        x[i] *= unit;
    for (int k = 0; k < MUON_STEPS; k++) {
        iterate(x, next, s, t, in, out);
        float *before = x;
        x = next;
        next = before;
    }
    float move = lr * (out > in ? sqrtf((float)out / (float)in) : 1);
    for (int64_t i = 0; i < p->count; i++)
        w[i] -= lr * (m->decay * w[i]) + move * x[i];
}
