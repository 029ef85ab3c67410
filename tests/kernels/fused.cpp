/* Layers that run as one kernel where they stand side by side, against the same layers one by one, and against the
 * host.
 *
 * A sweep over stages of one layer each can join nothing: that is the way one by one. Every tensor has a place of its
 * own, NaN at first, so what a joined kernel leaves out stays NaN, and shows that there was one. With fp32 the sums of
 * residual blocks and norms must agree bit for bit.
 *
 * What cuBLASLt joins is its own affair. Its header promises an algorithm for no type and epilogue
 * (cublasLtMatmulAlgoGetHeuristic may find none), no order of sums, and of CUBLASLT_EPILOGUE_GELU and DGELU only "apply
 * GELU point-wise transform to the results (x:=GELU(x))": neither whether that is tanh's gelu, which ours is, or erf's,
 * nor its error. So on a GPU we print what was joined, and where a gelu was, results may differ by as much as the two
 * formulas do. The stand-in joins all of it, with our gelu. */
#include "check.h"
#include "layers/cuda_math.cuh"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a stage: two residual blocks and a norm behind them ---- */

enum { N = 14, LINE = 64 };
static const int kinds[N] = {LAYER_fork,   LAYER_layernorm, LAYER_linear,    LAYER_gelu,   LAYER_linear,
                             LAYER_join,   LAYER_fork,      LAYER_layernorm, LAYER_linear, LAYER_relu,
                             LAYER_linear, LAYER_join,      LAYER_layernorm, LAYER_linear};
/* With rmsnorms in the layernorms' place, and a gelu in that of the relu: at its kink rounding decides, by which bf16
 * may be off by more than is tolerated, depending on the numbers. */
static bool rms;
static const int partner[N] = {5, -1, -1, -1, -1, 0, 11, -1, -1, -1, -1, 6, -1, -1};

struct side {
    struct rt_model m;
    struct rt_stage s;
    struct rt_layer l[N];
    int64_t value[N + 1], gradient[N + 1], aux[N], bytes; /* offsets of tensors in their space */
    struct rt_bind at;
    int element;
    int cut; /* the backward's parts: 0: it has one; -1: one for each layer; else two, cut in front of this layer */
};

static int64_t take(struct side *k, int64_t n) {
    int64_t off = k->bytes;
    k->bytes += (n + LINE - 1) / LINE * LINE;
    return off;
}

/* Values lie in EXT, gradients and statistics in STASH: spaces that no sweep copies operands to. */
static void lay_out(struct side *k, int rows, int width, int wide, int element) {
    int in = width, element_of_weights = element;
    memset(k, 0, sizeof *k);
    k->element = element;
    k->m.precision = element == 2 ? BF16 : FP32;
    k->m.batches = 1;
    k->value[0] = take(k, (int64_t)rows * in * element);
    for (int i = 0; i < N; i++) {
        struct rt_layer *l = &k->l[i];
        l->kind = rms && kinds[i] == LAYER_layernorm ? LAYER_rmsnorm
                  : rms && kinds[i] == LAYER_relu    ? LAYER_gelu
                                                     : kinds[i];
        l->rows = rows;
        l->in = in;
        l->out = l->kind == LAYER_linear ? (i == 2 || i == 8 ? wide : width) : in;
        l->nparam = l->kind == LAYER_linear      ? (int64_t)l->in * l->out + (i == 10 ? 0 : l->out)
                    : l->kind == LAYER_layernorm ? 2 * l->out
                    : l->kind == LAYER_rmsnorm   ? l->out
                                                 : 0;
        l->param = k->s.weight;
        k->s.weight += (l->nparam * element_of_weights + LINE - 1) / LINE * LINE;
        k->value[i + 1] = l->kind == LAYER_fork ? k->value[i] : take(k, (int64_t)rows * l->out * element);
        k->aux[i] = take(k, 8 * rows);
        in = l->out;
    }
    for (int i = N; i >= 0; i--) {
        int columns = i == N ? k->l[N - 1].out : k->l[i].in;
        bool same = i < N && kinds[i] == LAYER_join;
        k->gradient[i] = same ? k->gradient[i + 1] : take(k, (int64_t)rows * columns * element);
    }
    for (int i = 0; i < N; i++) {
        struct rt_layer *l = &k->l[i];
        l->x = {SP_EXT, k->value[i]};
        l->y = {SP_EXT, k->value[i + 1]};
        l->dx = {SP_STASH, k->gradient[i]};
        l->dy = {SP_STASH, k->gradient[i + 1]};
        if (l->kind != LAYER_linear) /* its aux would be another input */
            l->aux = {SP_STASH, k->aux[i]};
        if (l->kind == LAYER_join)
            l->aux = {SP_EXT, k->value[partner[i]]};
        if (l->kind == LAYER_fork) /* in the backward; the join has its own by now */
            l->aux = {SP_STASH, k->gradient[partner[i] + 1]};
    }
    k->s.layer = k->l;
    k->s.nlayers = N;
}

/* ---- data ---- */

static uint64_t state;
static float number(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (1 << 23) - 1;
}
static float rounded(float x, int element) { return element == 2 ? widen(narrow<__nv_bfloat16>(x)) : x; }
static void put(char *to, int64_t i, float x, int element) {
    if (element == 2)
        ((__nv_bfloat16 *)(void *)to)[i] = narrow<__nv_bfloat16>(x);
    else
        ((float *)(void *)to)[i] = x;
}
static float get(const char *from, int64_t i, int element) {
    return element == 2 ? widen(((const __nv_bfloat16 *)(const void *)from)[i])
                        : ((const float *)(const void *)from)[i];
}

/* Weights, input and gradient, the same on all sides: host memory, NaN elsewhere. */
static void fill(struct side *k, const float *x, const float *dy, const float *w) {
    int64_t nx = (int64_t)k->l[0].rows * k->l[0].in, ny = (int64_t)k->l[0].rows * k->l[N - 1].out;
    char *tensors = (char *)malloc((size_t)k->bytes * 2), *weights = (char *)calloc(1, (size_t)k->s.weight);
    memset(tensors, 0xff, (size_t)k->bytes * 2);
    k->at.at[SP_EXT] = tensors;
    k->at.at[SP_STASH] = tensors + k->bytes;
    k->at.w = (float *)(void *)weights;
    k->at.dw = (float *)calloc(1, (size_t)k->s.weight * 2);
    for (int64_t i = 0; i < nx; i++)
        put(tensors + k->value[0], i, x[i], k->element);
    for (int64_t i = 0; i < ny; i++)
        put(tensors + k->bytes + k->gradient[N], i, dy[i], k->element);
    for (int i = 0; i < N; i++)
        for (int64_t j = 0; j < k->l[i].nparam; j++)
            put(weights + k->l[i].param, j, *w++, k->element);
    k->at.first = true;
}

/* ---- the three ways ---- */

static void *workspace;

static void sweep(struct side *k, const struct rt_stage *s, bool forward, bool input, bool weight) {
    if (forward)
        cuda_forward(&k->m, s, &k->at, workspace, 0);
    else
        for (int to = s->nlayers, from, ahead = 0; to > 0; to = from) {
            from = k->cut < 0 ? to - 1 : to > k->cut ? k->cut : 0;
            cuda_backward_part(&k->m, s, &k->at, input, weight, SWEEP_ALL, from, to, &ahead, workspace, 0);
        }
}

static void run_cuda(struct side *k, bool joined, bool split) {
    struct rt_stage alone[N];
    for (int i = 0; i < N; i++) {
        alone[i] = k->s;
        alone[i].layer = &k->l[i];
        alone[i].nlayers = 1;
    }
    for (int pass = 0; pass < (split ? 3 : 2); pass++)
        for (int i = 0; i < (joined ? 1 : N); i++)
            sweep(k, joined ? &k->s : &alone[pass == 0 ? i : N - 1 - i], pass == 0, !split || pass == 1,
                  !split || pass == 2);
}

/* The same on the device: its memory is not ours to touch. */
static void on_device(struct side *k, bool joined, bool split) {
    char *host = k->at.at[SP_EXT], *device, *weights;
    float *w = k->at.w, *dw = k->at.dw, *gradient;
    cuda_must(cudaMalloc(&device, (size_t)k->bytes * 2), "cudaMalloc");
    cuda_must(cudaMalloc(&weights, (size_t)k->s.weight), "cudaMalloc");
    cuda_must(cudaMalloc(&gradient, (size_t)k->s.weight * 2), "cudaMalloc");
    CUDA(cudaMemcpy(device, host, (size_t)k->bytes * 2, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(weights, w, (size_t)k->s.weight, cudaMemcpyHostToDevice));
    k->at.at[SP_EXT] = device;
    k->at.at[SP_STASH] = device + k->bytes;
    k->at.w = (float *)(void *)weights;
    k->at.dw = gradient;
    run_cuda(k, joined, split);
    k->at.first = false; /* once more: what adds up */
    sweep(k, &k->s, false, false, true);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(host, device, (size_t)k->bytes * 2, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(dw, gradient, (size_t)k->s.weight * 4 / (size_t)k->element, cudaMemcpyDeviceToHost));
    cudaFree(device);
    cudaFree(weights);
    cudaFree(gradient);
    k->at.at[SP_EXT] = host;
    k->at.at[SP_STASH] = host + k->bytes;
    k->at.w = w;
    k->at.dw = dw;
}

static void run_host(struct side *k) {
    host_forward(&k->m, &k->s, &k->at);
    host_backward(&k->m, &k->s, &k->at, true, true);
    k->at.first = false;
    host_backward(&k->m, &k->s, &k->at, false, true);
}

/* ---- comparing ---- */

static double worst[2]; /* seen, of what is tolerated, with fp32 and bf16 */

/* By how much fp32 may be off. SUMS: up to 300 terms in any order, each rounded to 2^-24, and a dozen layers of that.
 * GELUS: erf's gelu is up to 2.0e-4 of the root mean square away from tanh's, its slope up to 5.5e-4, over normal x of
 * standard deviations from 0.3 to 4. */
#define SUMS  2e-5
#define GELUS 1e-3

/* The root mean square of n errors, against that of the elements: a relu near 0 may fall to either side with bf16. */
static bool near(const char *a, int ea, const char *b, int eb, int64_t n, double tolerance) {
    double errors = 0, squares = 1e-12;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)get(a, i, ea), y = (double)get(b, i, eb);
        errors += (x - y) * (x - y);
        squares += y * y;
    }
    worst[tolerance > GELUS] = fmax(worst[tolerance > GELUS], tolerance > 0 ? sqrt(errors / squares) / tolerance : 0);
    if (!(sqrt(errors / squares) <= tolerance))
        printf("    error %.3g of the size\n", sqrt(errors / squares));
    return sqrt(errors / squares) <= tolerance;
}

/* The tensors that others read, and all weight gradients. */
static void compare(const struct side *a, const struct side *b, double tolerance, const char *where) {
    static const int values[] = {2, 4, 5, 6, 8, 10, 11, 12, 13, 14}, gradients[] = {0, 2, 3, 5, 6, 9, 11, 12, 13};
    char what[40];
    for (int v : values) {
        int64_t n = (int64_t)a->l[v - 1].rows * a->l[v - 1].out;
        snprintf(what, sizeof what, "value %d", v);
        check(
            near(a->at.at[SP_EXT] + a->value[v], a->element, b->at.at[SP_EXT] + b->value[v], b->element, n, tolerance),
            what, where);
    }
    for (int g : gradients) {
        int64_t n = (int64_t)a->l[g].rows * a->l[g].in;
        snprintf(what, sizeof what, "gradient %d", g);
        check(near(a->at.at[SP_STASH] + a->gradient[g], a->element, b->at.at[SP_STASH] + b->gradient[g], b->element, n,
                   tolerance),
              what, where);
    }
    for (int i = 0; i < N; i++) {
        snprintf(what, sizeof what, "weight gradient of layer %d", i);
        check(near((char *)(a->at.dw + a->l[i].param / a->element), 4, (char *)(b->at.dw + b->l[i].param / b->element),
                   4, a->l[i].nparam, tolerance),
              what, where);
    }
}

static bool untouched(const char *p) { return (unsigned char)p[0] == 0xff && (unsigned char)p[1] == 0xff; }

/* One of cuBLASLt's: a GPU's may leave any of them, and none runs where it cannot. */
static const char *const epilogues[] = {"relu", "gelu's slope"};
static int joins[2][2]; /* times that it did, with fp32 and bf16 */
static void check_epilogue(int which, bool one, bool can, int element, const char *where) {
    char what[60];
    joins[which][element == 2] += one;
    snprintf(what, sizeof what, "linear and %s %s one", epilogues[which], can ? "were" : "were not");
#ifdef __CUDACC__
    check(can || !one, what, where);
#else
    check(one == can, what, where);
#endif
}

static bool same_bits(const struct side *a, const struct side *b) {
    return !memcmp(a->at.at[SP_EXT], b->at.at[SP_EXT], (size_t)a->bytes * 2) &&
           !memcmp(a->at.dw, b->at.dw, (size_t)a->s.weight * 4 / (size_t)a->element);
}

/* The backward in parts, of B, and of I and W: also where layers that run as one kernel are in two parts. */
static void compare_parts(const struct side *whole, const float *x, const float *dy, const float *w,
                          const char *where) {
    char what[60];
    for (int cut = -1; cut < N; cut++)
        for (int split = 0; split < 2 && cut; split++) {
            struct side parts;
            lay_out(&parts, whole->l[0].rows, whole->l[0].in, whole->l[2].out, whole->element);
            fill(&parts, x, dy, w);
            parts.cut = cut;
            on_device(&parts, true, split);
            snprintf(what, sizeof what, "%s, cut at %d, gives the bits of the whole", split ? "I and W" : "B", cut);
            check(same_bits(whole, &parts), what, where);
            free(parts.at.at[SP_EXT]);
            free(parts.at.w);
            free(parts.at.dw);
        }
}

static void compare_all(int rows, int width, int wide, int element) {
    struct side host, joined, alone, split;
    struct rt_stage stages[1];
    struct rt_program program = {};
    char where[80];
    lay_out(&host, rows, width, wide, 4);
    lay_out(&joined, rows, width, wide, element);
    lay_out(&alone, rows, width, wide, element);
    lay_out(&split, rows, width, wide, element);
    int64_t nx = (int64_t)rows * width, nw = 0;
    for (int i = 0; i < N; i++)
        nw += host.l[i].nparam;
    float *x = (float *)malloc((size_t)nx * 4), *dy = (float *)malloc((size_t)nx * 4),
          *w = (float *)malloc((size_t)nw * 4);
    for (int64_t i = 0; i < nx; i++) {
        x[i] = rounded(2 * number(), element);
        dy[i] = rounded(number(), element);
    }
    for (int64_t i = 0; i < nw; i++)
        w[i] = rounded(number(), element);
    for (struct side *k : {&host, &joined, &alone, &split})
        fill(k, x, dy, w);
    stages[0] = joined.s;
    program.stages = 1;
    program.stage = stages;
    program.model = &joined.m;
    cuda_linear_plan(&program);
    run_host(&host);
    on_device(&joined, true, false);
    on_device(&alone, false, false);
    on_device(&split, true, true);
    snprintf(where, sizeof where, "%d x %d and %d, %s, in parts", rows, width, wide, element == 2 ? "bf16" : "fp32");
    if (rows < 100)
        compare_parts(&joined, x, dy, w, where);
    cuda_linear_forget();

    const char *gradients = joined.at.at[SP_STASH], *values = joined.at.at[SP_EXT];
    bool eights = wide % 8 == 0;                   /* else cuBLASLt has no gelu */
    double tolerance = element == 2 ? 0.05 : SUMS; /* bf16: a dozen roundings, 2^-9 each */
#ifdef __CUDACC__
    if (eights)
        tolerance = fmax(tolerance, GELUS);
#endif
    const char *precision = element == 2 ? "bf16" : "fp32", *with = rms ? ", rmsnorm" : "";
    snprintf(where, sizeof where, "%d x %d and %d, %s%s, joined and the host", rows, width, wide, precision, with);
    compare(&joined, &host, tolerance, where);
    snprintf(where, sizeof where, "%d x %d and %d, %s%s, joined and one by one", rows, width, wide, precision, with);
    compare(&joined, &alone, tolerance, where);
    check(same_bits(&joined, &split), "I, then W gives the bits of B", where);
    check(untouched(gradients + joined.gradient[1]), "the norm and the fork were one", where);
    if (!rms)
        check_epilogue(0, untouched(values + joined.value[9]), true, element, where);
    check_epilogue(1, untouched(gradients + joined.gradient[4]), eights, element, where);
    check(!untouched(gradients + alone.gradient[1] - joined.at.at[SP_STASH] + alone.at.at[SP_STASH]),
          "one by one they were two", where);
    /* up to the first gelu, all is the same arithmetic */
    check(near(values + joined.value[2], element, alone.at.at[SP_EXT] + alone.value[2], element, nx, 0),
          "the norm has the same bits", where);
    for (struct side *k : {&host, &joined, &alone, &split}) {
        free(k->at.at[SP_EXT]);
        free(k->at.w);
        free(k->at.dw);
    }
    free(x);
    free(dy);
    free(w);
}

int main(void) {
    static const int size[][3] = {{1, 8, 8}, {5, 8, 32}, {33, 24, 96}, {7, 5, 16}, {9, 6, 13}, {300, 16, 24}};
    cuda_must(cudaMalloc((void **)&workspace, CUDA_WORKSPACE), "cudaMalloc");
    for (int i = 0; i < 2; i++) {
        rms = i == 1;
        state = 1; /* the same numbers for both */
        for (const int *s : size)
            for (int element : {4, 2})
                compare_all(s[0], s[1], s[2], element);
    }
    for (int i = 0; i < 2; i++)
        printf("linear and %s were one in %d stages with fp32, %d with bf16\n", epilogues[i], joins[i][0], joins[i][1]);
    printf("layers that run as one: %d passed, %d failed; errors to %.0f %% of what fp32 may have, %.0f %% of bf16's\n",
           passed, failed, 100 * worst[0], 100 * worst[1]);
    return failed > 0;
}
