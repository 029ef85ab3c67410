/* Error bounds. A test computes its reference as a `num`. That is the exact value, in double, of what the layer
 * computes from the device's inputs, with a bound on the error of the device's arithmetic. Operators propagate the
 * bound, so a test writes the layer's formula once, and says where the device rounds to bf16.
 *
 * Every fp32 operation errs by at most u = 2^-24 of its result (Higham 2002, "Accuracy and Stability of Numerical
 * Algorithms", section 2.2); an FMA is more exact. The errors of approximated functions come from the CUDA C++
 * Programming Guide's appendix "Mathematical Functions": __expf 2 + floor(1.173 |x|) ulp, __fdividef 2, exp2f 2, logf
 * 1, tanhf 2. sqrtf and division are rounded correctly. An ulp is at most 2u of a value.
 *
 * A sum of n terms, in any order, is off by the sum of u |s_k| over its partial sums s_k. Higham's bound puts each of
 * them at the sum of |terms|: n u sum |t|. With n in the thousands, that exceeds a missing term. The bound here is
 * depth(n) u (|s| + 2 |t|), where |t| is the root of the sum of the squares of the terms:
 *  - If the order of the terms does not depend on their signs, the partial sums are a bridge from 0 to s. Their root
 *    mean square is below |s| + |t| / sqrt(6); 2 |t| leaves five times that.
 *  - Roundings to nearest are independent with mean 0, so they add up to sqrt(n) u lambda (Higham & Mary 2019, "A New
 *    Approach to Probabilistic Rounding Error Analysis", theorem 3.1), with probability 1 - 2 exp(-lambda^2/2) if each
 *    rounding is as bad as possible. They are uniform, at u / sqrt(3): lambda = 4 is 6.9 standard deviations. Fewer
 *    than 16 terms have Higham's n.
 *  - Tensor cores truncate (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7:e330), so their
 *    errors have one sign. They add 4 to 16 terms at once: 2u for each block of 8 is n u / 4.
 *
 * If the device rounds intermediate values to bf16 (2^-8 each), these are independent errors and are kept separately.
 * Their sum grows as their largest possible sum, or as lambda times the root of the sum of their squares, whichever is
 * less. An error that many terms share must first be made a single one with shared(). */
#ifndef TESTS_BOUND_H
#define TESTS_BOUND_H
#include "layers/cuda.cuh"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

static const double UNIT = 0x1p-24, UNIT_BF16 = 0x1p-8, LAMBDA = 4;
static const double LEAST = 0x1p-126; /* smaller values may become 0 */

struct num {
    double v, e;     /* v: the exact value; e: a bound on errors of any kind */
    double own, rms; /* own: sum of the bounds of independent errors; rms: root of the sum of their squares */
    num(double exact = 0) : v(exact), e(0), own(0), rms(0) {}
    num(double value, double error, double sum, double root) : v(value), e(error), own(sum), rms(root) {}
};

static inline double limit(const num &x) { return x.e + fmin(x.own, LAMBDA * x.rms); }
static inline double largest(const num &x) { return fabs(x.v) + limit(x); }

/* Turns x's errors into a single one that all later uses of x share. */
static inline num shared(const num &x) { return {x.v, limit(x), 0, 0}; }

/* Adds an error of `ulps` units in the last place of fp32; a rounding is half of one. */
static inline num with_ulps(const num &x, double ulps) {
    return {x.v, x.e + 2 * UNIT * ulps * largest(x) + LEAST, x.own, x.rms};
}

/* Adds the rounding of x to T, for a value that the device stores or multiplies as T. */
template <typename T> static inline num as(const num &x) {
    double error = sizeof(T) == 2 ? UNIT_BF16 * largest(x) : 0;
    return {x.v, x.e, x.own + error, hypot(x.rms, error)};
}

static inline num operator-(const num &x) { return {-x.v, x.e, x.own, x.rms}; }
static inline num operator+(const num &a, const num &b) {
    return with_ulps({a.v + b.v, a.e + b.e, a.own + b.own, a.rms + b.rms}, 0.5);
}
static inline num operator-(const num &a, const num &b) { return a + -b; }
static inline num operator*(const num &a, const num &b) {
    double x = fabs(a.v), y = fabs(b.v);
    return with_ulps({a.v * b.v, x * b.e + y * a.e + limit(a) * limit(b), x * b.own + y * a.own, x * b.rms + y * a.rms},
                     0.5);
}
static inline num operator/(const num &a, const num &b) {
    double least = fabs(b.v) - limit(b), v = a.v / b.v;
    if (!(least > 0))
        return {v, INFINITY, 0, 0};
    return with_ulps({v, (a.e + fabs(v) * limit(b)) / least, a.own / least, a.rms / least}, 0.5);
}
static inline num root(const num &x) { return with_ulps({sqrt(x.v), limit(x) / sqrt(x.v), 0, 0}, 0.5); }

/* Returns e^x by a function that errs by `ulps`. */
static inline num exponential(const num &x, double ulps) {
    double v = exp(fmin(x.v, 700)), error = limit(x);
    return with_ulps({v, v * expm1(error), 0, 0}, ulps);
}
static inline num fast_exp(const num &x) { return exponential(x, 2 + floor(1.173 * largest(x))); }
static inline num fast_divide(const num &a, const num &b) { return with_ulps(a / b, 2); }
static inline num logarithm(const num &x) {
    double least = x.v - limit(x), v = log(x.v);
    return with_ulps({v, least > 0 ? limit(x) / least : INFINITY, 0, 0}, 1);
}

/* ---- sums ---- */

/* Returns the units of roundoff that n additions may lose; tensor: on tensor cores. */
static inline double depth(double n, bool tensor) {
    double nearest = fmin(n, LAMBDA * sqrt(n));
    return tensor ? fmin(2 * n, nearest + n / 4) : nearest;
}

struct sum {
    double n = 0, v = 0, e = 0, own = 0, squares = 0,
           terms = 0; /* squares: of the terms' rms; terms: of the terms themselves */
    /* Adds the term w times an exact x. */
    void add(const num &w, double x) {
        double by = fabs(x);
        n++;
        v += w.v * x;
        e += w.e * by;
        own += w.own * by;
        squares += w.rms * w.rms * x * x;
        terms += w.v * w.v * x * x;
    }
    void add(const num &term) { add(term, 1); }
    /* Returns the sum of all terms, `times` over, like a gradient that is added to itself `times - 1` times. */
    num total(bool tensor, int times = 1) const {
        double partial = times * fabs(v) + 2 * sqrt(times * terms);
        return {times * v, times * e + depth(times * n, tensor) * UNIT * partial + LEAST, times * own,
                times * sqrt(squares)};
    }
};

static inline num dot(const float *a, const float *b, int n, bool tensor) {
    double v = 0, terms = 0;
    for (int i = 0; i < n; i++) {
        double t = (double)a[i] * (double)b[i];
        v += t;
        terms += t * t;
    }
    return {v, depth(n, tensor) * UNIT * (fabs(v) + 2 * sqrt(terms)) + LEAST, 0, 0};
}

/* ---- matrix products: `value`, m x n, is a b, and `terms` holds the sums of squares; all are stored by rows, a is m x
 * k or, if turned, k x m; b likewise ---- */

extern "C" void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
                       const double *, const int *, const double *, const int *, const double *, double *, const int *);

struct factor {
    const float *at;
    bool turned;
};
struct matrix_product {
    int n, k;
    std::vector<double> value, terms;
    num at(int64_t i, bool tensor, int times = 1) const {
        sum s;
        s.n = k, s.v = value[(size_t)i], s.terms = fmax(terms[(size_t)i], 0);
        return s.total(tensor, times);
    }
};

static inline matrix_product multiply(factor a, factor b, int m, int n, int k) {
    matrix_product p = {n, k, std::vector<double>((size_t)m * (size_t)n), std::vector<double>((size_t)m * (size_t)n)};
    std::vector<double> x(a.at, a.at + (int64_t)m * k), y(b.at, b.at + (int64_t)k * n);
    const double one = 1, zero = 0;
    const int lda = a.turned ? m : k, ldb = b.turned ? k : n;
    for (std::vector<double> *to : {&p.value, &p.terms}) {
        /* stored by columns, as in BLAS, these are the transposes: cT = bT aT */
        dgemm_(b.turned ? "T" : "N", a.turned ? "T" : "N", &n, &m, &k, &one, y.data(), &ldb, x.data(), &lda, &zero,
               to->data(), &n);
        for (double &e : x)
            e *= e;
        for (double &e : y)
            e *= e;
    }
    return p;
}

/* ---- verdicts ---- */

/* Returns half the distance between y and its neighbours in bf16. */
static inline double half_ulp(double y) {
    int exponent;
    frexp(y, &exponent);
    return ldexp(1, (y == 0 || exponent < -125 ? -125 : exponent) - 9);
}

/* The element whose error takes the largest share of its limit. A value stored as bf16 may also be off by that
 * rounding, which does not count here: the error is the distance to the nearest number that rounds to it. */
struct verdict {
    double share = 0, got = 0;
    int64_t at = 0, seen = 0;
    num want;
    template <typename T> void see(T result, const num &exact, int64_t index) {
        double y = (double)widen(result), off = fabs(y - exact.v), most = limit(exact), part;
        if (sizeof(T) == 2 && off == off) /* fmax would drop NaN */
            off = fmax(off - half_ulp(y), 0);
        part = !(off <= 1e300) || !(most <= 1e300) ? INFINITY : off == 0 ? 0 : off / most;
        if (part > share || seen == 0)
            share = part, got = y, at = index, want = exact;
        seen++;
    }
};

struct reached {
    const char *layer, *what;
    double share[2]; /* with fp32 and bf16; negative: never seen */
};
static std::vector<reached> shares;

/* Returns whether all errors are within their limits, and prints the worst if not. Keeps the share under the names of
 * the layer's kind and its tensor, for print_shares(). */
static inline bool within(const verdict &d, const char *layer, const char *what, bool bf16) {
    size_t i = 0, end = 0; /* end: after the layer's last entry */
    while (i < shares.size() && (strcmp(shares[i].layer, layer) != 0 || strcmp(shares[i].what, what) != 0))
        end = strcmp(shares[i++].layer, layer) == 0 ? i : end;
    if (i == shares.size())
        shares.insert(shares.begin() + (std::ptrdiff_t)(i = end > 0 ? end : i), {layer, what, {-1, -1}});
    shares[i].share[bf16] = fmax(shares[i].share[bf16], d.share);
    if (!(d.share <= 1))
        printf("    element %lld: %.9g instead of %.9g, which may be off by %.3g: %.3g of the limit\n", (long long)d.at,
               d.got, d.want.v, limit(d.want), d.share);
    return d.share <= 1;
}

static inline double most_reached(bool bf16) {
    double most = 0;
    for (const reached &s : shares)
        most = fmax(most, s.share[bf16]);
    return most;
}

static inline void print_shares(void) {
    for (size_t i = 0; i < shares.size(); i++) {
        const reached &s = shares[i];
        if (i == 0 || strcmp(s.layer, shares[i - 1].layer) != 0)
            printf("%s\n", s.layer);
        printf("    %-24s", s.what);
        for (int bf16 = 0; bf16 < 2; bf16++)
            if (s.share[bf16] >= 0)
                printf(" %s %.3f of limit", bf16 ? "bf16" : "fp32", s.share[bf16]);
        printf("\n");
    }
}
#endif
