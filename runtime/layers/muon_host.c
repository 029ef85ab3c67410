/* Muon on the host. Everything is fp32, and all matrices of one shape are multiplied in the same way, so the bits do
 * not depend on which rank is a matrix's home. */
#include "muon.h"
#include "host.h"
#include "optim.h"
#include "product.h"
#include <math.h>

/* Computes c = a b, m x k by k x n. */
static void multiply(int m, int n, int k, struct matrix a, struct matrix b, float *c) {
    host_product((struct product){m, n, k, .a = a, .b = b, .c = c, .stride = n});
}

/* Computes c = alpha c + beta a. */
static WIDE void mix(float alpha, float *c, float beta, const float *a, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        c[i] = alpha * c[i] + beta * a[i];
}

/* Sets next to one iteration of x, which is in x out. s, t: squares of the shorter side. */
static void iterate(const float *x, float *next, float *s, float *t, int in, int out) {
    int side = in < out ? in : out;
    bool tall = in > out; /* X X^T would be the larger product; X (B S + C S S) with S = X^T X is the same */
    const struct matrix flat = plain(x, out), square = plain(t, side);
    multiply(side, side, tall ? in : out, tall ? turned(x, out) : flat, tall ? flat : turned(x, out), s);
    multiply(side, side, side, plain(s, side), plain(s, side), t);
    mix(MUON_C, t, MUON_B, s, (int64_t)side * side);
    multiply(in, out, side, tall ? flat : square, tall ? square : flat, next);
    mix(1, next, MUON_A, x, (int64_t)in * out);
}

void muon_host_step(const struct rt_update *u, const struct rt_parameter *p, int64_t at, const struct update_rates *r) {
    const struct rt_model *m = u->piece.m;
    const float *dw = u->dw + at;
    float *w = (float *)u->w + at, *momentum = u->opt + at;
    int in = (int)p->dim[0], out = (int)p->dim[1], side = in < out ? in : out;
    float *x = u->work, *next = x + p->count, *s = next + p->count, *t = s + (int64_t)side * side;
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
