/* Definitions of layers, for a row or an element, in double and with the bounds of bound.h. Inputs are exact: they are
 * what the device read, including its own statistics. */
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H
#include "bound.h"

/* ---- gates: the formulas and functions of elementwise.cu ---- */

struct gated {
    num value, slope; /* x times its gate, and the derivative */
};

static inline num logistic(const num &x) { return fast_divide(1, 1 + fast_exp(-x)); }
static inline gated silu_of(const num &x) {
    num s = logistic(x);
    return {x * s, s + x * s * (1 - s)};
}

static const double GELU = 0.7978845608f, CUBE = 0.044715f; /* floats, as in the kernels */

static inline gated gelu_of(const num &x) {
    num s = logistic(2 * GELU * x * (1 + CUBE * x * x));
    return {x * s, s + x * s * (1 - s) * (2 * GELU * (1 + 3 * CUBE * x * x))};
}

/* Returns the gelu of cuBLASLt's epilogues, for which its header gives no formula and no error. The stand-in's is
 * 0.5 x (1 + tanh u), with tanhf. A GPU's may be erf's, and its tanh may be tanh.approx.f32, which errs by 2^-11 of the
 * value (PTX ISA, "tanh"). */
static inline gated gelu_of_cublaslt(const num &x) {
    num u = GELU * (x + CUBE * x * x * x), t = {tanh(u.v), limit(u), 0, 0};
    t.e = fmin(t.e, 2);
    t = with_ulps(t, 2);
#ifdef __CUDACC__
    t.e += 0x1p-11 * fabs(t.v);
#endif
    gated g = {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU * (1 + 3 * CUBE * x * x)};
#ifdef __CUDACC__
    double cdf = 0.5 * (1 + erf(x.v / sqrt(2.0)));
    g.value.e += fabs(x.v * cdf - g.value.v);
    g.slope.e += fabs(cdf + x.v * exp(-x.v * x.v / 2) / sqrt(2 * M_PI) - g.slope.v);
#endif
    return g;
}

/* ---- norms: a layernorm, or an rmsnorm, which is not centred and has mean and beta 0 ---- */

struct norm_shape {
    int n;
    bool centred;
    double eps;
};
struct norm_statistics {
    num mean, scale;
};

static inline norm_statistics statistics_of(const norm_shape &f, const float *x) {
    sum all, squares;
    for (int j = 0; j < f.n && f.centred; j++)
        all.add((double)x[j]);
    num mean = f.centred ? all.total(false) / num(f.n) : num();
    for (int j = 0; j < f.n; j++) {
        num apart = (double)x[j] - mean;
        squares.add(apart * apart);
    }
    return {mean, 1 / root(squares.total(false) / num(f.n) + f.eps)};
}

static inline num normalized(const norm_statistics &s, float x, float gamma, float beta) {
    return (double)gamma * (((double)x - s.mean) * s.scale) + (double)beta;
}

/* Returns dx of a row from the forward's stored statistics: (g - mean(g) - xhat mean(g xhat)) scale, g = gamma dy. */
static inline std::vector<num> norm_gradient(const norm_shape &f, const norm_statistics &s, const float *x,
                                             const float *gamma, const num *dy) {
    std::vector<num> dx((size_t)f.n), xhat((size_t)f.n);
    sum all, products;
    for (int j = 0; j < f.n; j++) {
        dx[(size_t)j] = (double)gamma[j] * dy[j];
        xhat[(size_t)j] = ((double)x[j] - s.mean) * s.scale;
        all.add(dx[(size_t)j]);
        products.add(dx[(size_t)j] * xhat[(size_t)j]);
    }
    num mean = f.centred ? all.total(false) / num(f.n) : num(), along = products.total(false) / num(f.n);
    for (int j = 0; j < f.n; j++)
        dx[(size_t)j] = (dx[(size_t)j] - mean - xhat[(size_t)j] * along) * s.scale;
    return dx;
}
#endif
