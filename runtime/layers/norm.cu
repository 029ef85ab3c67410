/* layernorm and rmsnorm: the layers of norm_host.c, with the same aux. They share one source: rmsnorm is a layernorm
 * that is not CENTRED, whose mean and beta are taken as 0. Between residual blocks, the join before the norm and the
 * fork after it are sums of rows that the norm reads or writes anyway. So they are fused into the norm, and no memory
 * is accessed twice.
 *
 * Along rows, one warp handles a row. It keeps short rows in registers (HELD), and reads longer rows, and rows that are
 * not whole packs, again from L1. Both add in the same order. */
#include "cuda.cuh"

enum { WARPS = 8 };
/* Packs of 16 bytes per lane. 8 packs of x and 8 of dy take 64 registers and leave as many for the rest, for two blocks
 * per multiprocessor with 128 KiB of rows in flight. So rows of up to 2048 in bf16 and 1024 in fp32 are held. */
enum { HELD_PACKS = 8 };

/* Calls f(i, j) for each of the lane's packs: the i-th, which begins in column j. */
template <int V, int HELD, typename F> static __device__ __forceinline__ void each_pack(int n, F f) {
    int packs = HELD ? HELD : (n + 32 * V - 1) / (32 * V);
#pragma unroll(HELD ? HELD : 4)
    for (int i = 0; i < packs; i++)
        if (int j = (32 * i + (int)threadIdx.x % 32) * V; j < n)
            f(i, j);
}

/* Returns V elements of a row, or of its sum after a join, rounded as the join would. */
template <int V, typename T> static __device__ __forceinline__ pack<T, V> entry(const T *x, const T *other, int j) {
    pack<T, V> a = load<V>(x + j);
    if (other) {
        pack<T, V> b = load<V>(other + j);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>(widen(a.v[k]) + widen(b.v[k]));
    }
    return a;
}

/* Returns a row's mean and scale, from aux; an rmsnorm has only the scale. */
template <bool CENTRED> static __device__ __forceinline__ float2 statistics(const float *stat, int row) {
    return CENTRED ? ((const float2 *)stat)[row] : make_float2(0, stat[row]);
}
template <bool CENTRED>
static __device__ __forceinline__ void store_statistics(float *stat, int row, float mean, float scale) {
    if (CENTRED)
        ((float2 *)stat)[row] = make_float2(mean, scale);
    else
        stat[row] = scale;
}

/* other: NULL, or what a join adds to x; the sum then goes to total. */
template <bool CENTRED, typename T, int V, int HELD = 0>
static __global__ void normalize(T *y, float *stat, T *total, const T *x, const T *other, const T *gamma, const T *beta,
                                 int rows, int n, float eps) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    x += (int64_t)row * n;
    y += (int64_t)row * n;
    other += other ? (int64_t)row * n : 0;
    total += other ? (int64_t)row * n : 0;
    pack<T, V> held[HELD ? HELD : 1];
    if (HELD)
        each_pack<V, HELD>(n, [&](int i, int j) { held[i] = entry<V>(x, other, j); });
    auto at = [&](int i, int j) { return HELD ? held[i] : entry<V>(x, other, j); };
    float mean = 0, square = 0;
    if (CENTRED) {
        each_pack<V, HELD>(n, [&](int i, int j) {
            pack<T, V> a = at(i, j);
            for (int k = 0; k < V; k++)
                mean += widen(a.v[k]);
        });
        mean = warp_sum(mean) / (float)n;
    }
    each_pack<V, HELD>(n, [&](int i, int j) {
        pack<T, V> a = at(i, j);
        for (int k = 0; k < V; k++)
            square += (widen(a.v[k]) - mean) * (widen(a.v[k]) - mean);
    });
    float scale = 1 / sqrtf(warp_sum(square) / (float)n + eps);
    each_pack<V, HELD>(n, [&](int i, int j) {
        pack<T, V> a = at(i, j), g = load<V>(gamma + j), b = pack<T, V>();
        if (CENTRED)
            b = load<V>(beta + j);
        if (other)
            store(total + j, a);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>(CENTRED ? widen(g.v[k]) * ((widen(a.v[k]) - mean) * scale) + widen(b.v[k])
                                       : widen(g.v[k]) * (widen(a.v[k]) * scale));
        store(y + j, a);
    });
    if (lane == 0)
        store_statistics<CENTRED>(stat, row, mean, scale);
}

/* Computes, with g = gamma dy, dx = (g - mean(g) - xhat mean(g xhat)) scale; without mean(g) in an rmsnorm. around:
 * what a fork adds, or NULL. */
template <bool CENTRED, typename T, int V, int HELD = 0>
static __global__ void input_gradient(T *dx, const T *dy, const float *stat, const T *x, const T *gamma,
                                      const T *around, int rows, int n) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows)
        return;
    x += (int64_t)row * n;
    dx += (int64_t)row * n;
    dy += (int64_t)row * n;
    around += around ? (int64_t)row * n : 0;
    float2 s = statistics<CENTRED>(stat, row);
    float mean = s.x, scale = s.y, sum = 0, along = 0;
    pack<T, V> held_x[HELD ? HELD : 1], held_dy[HELD ? HELD : 1];
    if (HELD)
        each_pack<V, HELD>(n, [&](int i, int j) {
            held_x[i] = load<V>(x + j);
            held_dy[i] = load<V>(dy + j);
        });
    auto x_at = [&](int i, int j) { return HELD ? held_x[i] : load<V>(x + j); };
    auto dy_at = [&](int i, int j) { return HELD ? held_dy[i] : load<V>(dy + j); };
    each_pack<V, HELD>(n, [&](int i, int j) {
        pack<T, V> a = x_at(i, j), d = dy_at(i, j), g = load<V>(gamma + j);
        for (int k = 0; k < V; k++) {
            float gradient = widen(g.v[k]) * widen(d.v[k]);
            sum += gradient;
            along += gradient * ((widen(a.v[k]) - mean) * scale);
        }
    });
    sum = CENTRED ? warp_sum(sum) / (float)n : 0;
    along = warp_sum(along) / (float)n;
    each_pack<V, HELD>(n, [&](int i, int j) {
        pack<T, V> a = x_at(i, j), d = dy_at(i, j), g = load<V>(gamma + j), b = pack<T, V>();
        if (around)
            b = load<V>(around + j);
        for (int k = 0; k < V; k++) {
            float gradient = widen(g.v[k]) * widen(d.v[k]);
            gradient = (gradient - sum - (widen(a.v[k]) - mean) * scale * along) * scale;
            a.v[k] =
                narrow<T>(around ? __fadd_rn(gradient, widen(b.v[k])) : gradient); /* _rn: as fork would, in fp32 */
        }
        store(dx + j, a);
    });
}

/* parts: for dgamma, then for dbeta if there is one. */
template <bool CENTRED, typename T, int V>
static __global__ void __launch_bounds__(ACROSS *DOWN)
    weight_gradient(float *parts, const T *dy, const float *stat, const T *x, int rows, int n) {
    int j = ((int)blockIdx.x * ACROSS + (int)threadIdx.x) * V;
    float gamma[V] = {}, beta[V] = {};
    for (int r = (int)(blockIdx.y * DOWN + threadIdx.y); j < n && r < rows; r += (int)gridDim.y * DOWN) {
        pack<T, V> a = load<V>(x + (int64_t)r * n + j), d = load<V>(dy + (int64_t)r * n + j);
        float2 s = statistics<CENTRED>(stat, r);
        for (int k = 0; k < V; k++) {
            gamma[k] += widen(d.v[k]) * ((widen(a.v[k]) - s.x) * s.y);
            beta[k] += widen(d.v[k]);
        }
    }
    parts += (CENTRED ? 2 : 1) * (int64_t)blockIdx.y * n;
    give_part<V>(parts, gamma, n);
    if (!CENTRED)
        return;
    __syncthreads(); /* all have read gamma's parts */
    give_part<V>(parts + n, beta, n);
}

/* Launches a kernel with a warp for each row. */
#define LAUNCH_WARPS(kernel, CENTRED, T, rows, n, stream, ...)                                                         \
    do {                                                                                                               \
        unsigned blocks = blocks_for(rows, WARPS);                                                                     \
        if ((n) % WIDE<T> == 0 && (n) <= 32 * HELD_PACKS * WIDE<T>)                                                    \
            LAUNCH((kernel<CENTRED, T, WIDE<T>, HELD_PACKS>), blocks, WARPS * 32, 0, stream, __VA_ARGS__);             \
        else if ((n) % WIDE<T> == 0)                                                                                   \
            LAUNCH((kernel<CENTRED, T, WIDE<T>>), blocks, WARPS * 32, 0, stream, __VA_ARGS__);                         \
        else                                                                                                           \
            LAUNCH((kernel<CENTRED, T, 1>), blocks, WARPS * 32, 0, stream, __VA_ARGS__);                               \
    } while (0)

/* join: the one whose output the layer reads, or NULL. */
template <bool CENTRED, typename T> static void norm_forward(const struct cuda_call *c, const struct rt_layer *join) {
    const struct rt_layer *l = c->l;
    const T *gamma = cuda_w<T>(c), *x = cuda_x<T>(c), *other = NULL;
    T *total = NULL;
    if (join) {
        struct cuda_call j = *c;
        j.l = join;
        x = cuda_x<T>(&j);
        other = cuda_other<T>(&j);
        total = cuda_at<T>(c, join->y);
    }
    LAUNCH_WARPS(normalize, CENTRED, T, l->rows, l->out, c->stream, cuda_at<T>(c, l->y), cuda_at<float>(c, l->aux),
                 total, x, other, gamma, gamma + l->out, l->rows, l->out, l->config.norm.eps);
}

/* fork: the one whose output the layer read, or NULL. */
template <bool CENTRED, typename T> static void input_of(const struct cuda_call *c, const struct rt_layer *fork) {
    const struct rt_layer *l = c->l;
    T *dx = cuda_at<T>(c, fork ? fork->dx : l->dx);
    const T *around = fork ? cuda_at<T>(c, fork->aux) : NULL;
    LAUNCH_WARPS(input_gradient, CENTRED, T, l->rows, l->out, c->stream, dx, cuda_at<T>(c, l->dy),
                 cuda_at<float>(c, l->aux), cuda_x<T>(c), cuda_w<T>(c), around, l->rows, l->out);
}

template <bool CENTRED, typename T> static void weight_of(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    float *parts = (float *)c->workspace, *stat = cuda_at<float>(c, l->aux);
    const T *dy = cuda_at<T>(c, l->dy), *x = cuda_x<T>(c);
    dim3 grid = row_grid<T>(l->rows, l->out), block(ACROSS, DOWN);
    if (l->out % WIDE<T> == 0)
        LAUNCH((weight_gradient<CENTRED, T, WIDE<T>>), grid, block, 0, c->stream, parts, dy, stat, x, l->rows, l->out);
    else
        LAUNCH((weight_gradient<CENTRED, T, 1>), grid, block, 0, c->stream, parts, dy, stat, x, l->rows, l->out);
    cuda_sum_parts(cuda_dw<T>(c), parts, (CENTRED ? 2 : 1) * l->out, (int)grid.y, cuda_first(c), c->stream);
}

template <typename T> static void layernorm_forward(const struct cuda_call *c) { norm_forward<true, T>(c, NULL); }
template <typename T> static void layernorm_input(const struct cuda_call *c) { input_of<true, T>(c, NULL); }
template <typename T> static void layernorm_weight(const struct cuda_call *c) { weight_of<true, T>(c); }
template <typename T> static void rmsnorm_forward(const struct cuda_call *c) { norm_forward<false, T>(c, NULL); }
template <typename T> static void rmsnorm_input(const struct cuda_call *c) { input_of<false, T>(c, NULL); }
template <typename T> static void rmsnorm_weight(const struct cuda_call *c) { weight_of<false, T>(c); }

const struct cuda_layer cuda_layernorm = {EITHER(layernorm_forward), EITHER(layernorm_input), EITHER(layernorm_weight)};
const struct cuda_layer cuda_rmsnorm = {EITHER(rmsnorm_forward), EITHER(rmsnorm_input), EITHER(rmsnorm_weight)};

/* ---- with the sums of residual blocks ---- */

/* Calls a function template for the kind of norm and the precision. */
#define BY_NORM(f, norm, c, other)                                                                                     \
    do {                                                                                                               \
        bool centred = (norm)->kind == LAYER_layernorm, bf16 = (c)->m->precision == BF16;                              \
        if (bf16)                                                                                                      \
            (centred ? f<true, __nv_bfloat16> : f<false, __nv_bfloat16>)(c, other);                                    \
        else                                                                                                           \
            (centred ? f<true, float> : f<false, float>)(c, other);                                                    \
    } while (0)

/* A y in the workspace may overlap the join's x: when the layers run one by one, x is read before y is written. */
bool cuda_join_norm(const struct cuda_call *c, const struct rt_layer *norm) {
    struct cuda_call at = *c;
    at.l = norm;
    if (norm->y.space == SP_WORK)
        return false;
    BY_NORM(norm_forward, norm, &at, c->l);
    return true;
}

bool cuda_norm_fork_input(const struct cuda_call *c, const struct rt_layer *fork) {
    if (fork->dx.space == SP_NONE)
        return false;
    BY_NORM(input_of, c->l, c, fork);
    return true;
}
