/* Everything is fp32, and a matrix of a shape is multiplied in one way, so its bits are those of one rank wherever its
 * home is. */
#include "muon.h"
#include "host.h"
#include "optim.h"
#include "product.h"
#include <math.h>

/* c = a b; a is m x k or, turned, k x m, and b likewise. */
static void multiply(bool turn_a, bool turn_b, int m, int n, int k, const float *a, const float *b, float *c) {
    host_product((struct product){m, n, k, .a = {a, turn_a ? m : k, turn_a}, .b = {b, turn_b ? k : n, turn_b}, .c = c,
                                  .stride = n});
}

/* c = alpha c + beta a */
static WIDE void mix(float alpha, float *c, float beta, const float *a, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        c[i] = alpha * c[i] + beta * a[i];
}

/* next = the iteration of x, which is in x out; s, t: of the shorter side squared. */
static void iterate(const float *x, float *next, float *s, float *t, int in, int out) {
    int side = in < out ? in : out;
    bool tall = in > out; /* then X X^T would be the larger product: X (B S + C S S) with S = X^T X is the same */
    multiply(tall, !tall, side, side, tall ? in : out, x, x, s);
    multiply(false, false, side, side, side, s, s, t);
    mix(MUON_C, t, MUON_B, s, (int64_t)side * side);
    multiply(false, false, in, out, side, tall ? x : t, tall ? t : x, next);
    mix(1, next, MUON_A, x, (int64_t)in * out);
}

void host_muon(const struct rt_model *m, const struct rt_parameter *p, const struct update_rates *r, float *w,
               const float *dw, float *momentum, float *work) {
    int in = (int)p->dim[0], out = (int)p->dim[1], side = in < out ? in : out;
    float *x = work, *next = x + p->count, *s = next + p->count, *t = s + (int64_t)side * side;
    double square = 0;
    for (int64_t i = 0; i < p->count; i++) {
        x[i] = muon_direction(m, r->scale * dw[i], &momentum[i]);
        square += (double)x[i] * (double)x[i];
    }
    float unit = muon_unit(square), size = muon_size(p);
    for (int64_t i = 0; i < p->count; i++)
        x[i] *= unit;
    for (int k = 0; k < MUON_STEPS; k++) {
        iterate(x, next, s, t, in, out);
        float *before = x;
        x = next;
        next = before;
    }
    for (int64_t i = 0; i < p->count; i++)
        muon_move(m, r->lr, size, x[i], &w[i]);
}
