/* Layer normalisation over columns (Ba et al. 2016). Parameters are gamma, then beta; aux is mean and
 * 1 / sqrt(var + 1e-5) of each row, fp32. Between residual blocks, the join before it and the fork after it are sums of
 * rows that it reads or writes anyway: so they are done here, and no memory is touched twice.
 *
 * Along rows, one warp handles a row. It keeps rows that are not too long in registers (HELD), and reads longer ones,
 * and those that are not whole packs, again, from L1. Both add in the same order. */
#include "cuda.cuh"

enum { WARPS = 8 };
/* Of a lane: packs of 16 bytes. 8 of x, and 8 of dy, are 64 registers and leave as many for the rest, for two blocks
 * per multiprocessor with 128 KiB of rows under way. So rows of 2048 in bf16 and of 1024 in fp32 are held. */
enum { HELD_PACKS = 8 };

/* Calls f(i, j) for each of the lane's packs: its i-th, which begins in column j. */
template <int V, int HELD, typename F> static __device__ __forceinline__ void each_pack(int n, F f) {
    int packs = HELD ? HELD : (n + 32 * V - 1) / (32 * V);
#pragma unroll(HELD ? HELD : 4)
    for (int i = 0; i < packs; i++)
        if (int j = (32 * i + (int)threadIdx.x % 32) * V; j < n)
            f(i, j);
}

/* V elements of a row, or after a join, of its sum, rounded as the join would. */
template <int V, typename T> static __device__ __forceinline__ pack<T, V> entry(const T *x, const T *other, int j) {
    pack<T, V> a = load<V>(x + j);
    if (other) {
        pack<T, V> b = load<V>(other + j);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>(widen(a.v[k]) + widen(b.v[k]));
    }
    return a;
}

/* other: NULL, or what a join adds to x; the sum then goes to total. */
template <typename T, int V, int HELD = 0>
static __global__ void normalize(T *y, float2 *stat, T *total, const T *x, const T *other, const T *gamma,
                                 const T *beta, int rows, int n) {
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
    float sum = 0, square = 0;
    each_pack<V, HELD>(n, [&](int i, int j) {
        pack<T, V> a = at(i, j);
        for (int k = 0; k < V; k++)
            sum += widen(a.v[k]);
    });
    float mean = warp_sum(sum) / (float)n;
    each_pack<V, HELD>(n, [&](int i, int j) {
        pack<T, V> a = at(i, j);
        for (int k = 0; k < V; k++)
            square += (widen(a.v[k]) - mean) * (widen(a.v[k]) - mean);
    });
    float scale = 1 / sqrtf(warp_sum(square) / (float)n + 1e-5f);
    each_pack<V, HELD>(n, [&](int i, int j) {
        pack<T, V> a = at(i, j), g = load<V>(gamma + j), b = load<V>(beta + j);
        if (other)
            store(total + j, a);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>(widen(g.v[k]) * ((widen(a.v[k]) - mean) * scale) + widen(b.v[k]));
        store(y + j, a);
    });
    if (lane == 0)
        stat[row] = make_float2(mean, scale);
}

/* With g = gamma dy: dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + 1e-5). around: NULL, or what a fork adds. */
template <typename T, int V, int HELD = 0>
static __global__ void input_gradient(T *dx, const T *dy, const float2 *stat, const T *x, const T *gamma,
                                      const T *around, int rows, int n) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows)
        return;
    x += (int64_t)row * n;
    dx += (int64_t)row * n;
    dy += (int64_t)row * n;
    around += around ? (int64_t)row * n : 0;
    float mean = stat[row].x, scale = stat[row].y, sum = 0, along = 0;
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
    sum = warp_sum(sum) / (float)n;
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

/* parts: dgamma, then dbeta. */
template <typename T, int V>
static __global__ void __launch_bounds__(ACROSS *DOWN)
    weight_gradient(float *parts, const T *dy, const float2 *stat, const T *x, int rows, int n) {
    int j = ((int)blockIdx.x * ACROSS + (int)threadIdx.x) * V;
    float gamma[V] = {}, beta[V] = {};
    for (int r = (int)(blockIdx.y * DOWN + threadIdx.y); j < n && r < rows; r += (int)gridDim.y * DOWN) {
        pack<T, V> a = load<V>(x + (int64_t)r * n + j), d = load<V>(dy + (int64_t)r * n + j);
        float2 s = stat[r];
        for (int k = 0; k < V; k++) {
            gamma[k] += widen(d.v[k]) * ((widen(a.v[k]) - s.x) * s.y);
            beta[k] += widen(d.v[k]);
        }
    }
    parts += 2 * (int64_t)blockIdx.y * n;
    give_part<V>(parts, gamma, n);
    __syncthreads(); /* all have read gamma's parts */
    give_part<V>(parts + n, beta, n);
}

/* Launches a kernel with a warp for each row. */
#define LAUNCH_WARPS(kernel, T, rows, n, stream, ...)                                                                  \
    do {                                                                                                               \
        if ((n) % WIDE<T> == 0 && (n) <= 32 * HELD_PACKS * WIDE<T>)                                                    \
            LAUNCH((kernel<T, WIDE<T>, HELD_PACKS>), blocks_for(rows, WARPS), WARPS * 32, 0, stream, __VA_ARGS__);     \
        else                                                                                                           \
            LAUNCH_ROWS(kernel, T, n, blocks_for(rows, WARPS), WARPS * 32, stream, __VA_ARGS__);                       \
    } while (0)

/* join: NULL, or the one whose output the layer reads. */
template <typename T> static void forward_of(const struct cuda_call *c, const struct rt_layer *join) {
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
    LAUNCH_WARPS(normalize, T, l->rows, l->out, c->stream, cuda_at<T>(c, l->y), cuda_at<float2>(c, l->aux), total, x,
                 other, gamma, gamma + l->out, l->rows, l->out);
}

/* fork: NULL, or the one whose output the layer read. */
template <typename T> static void input_of(const struct cuda_call *c, const struct rt_layer *fork) {
    const struct rt_layer *l = c->l;
    T *dx = cuda_at<T>(c, fork ? fork->dx : l->dx);
    const T *around = fork ? cuda_at<T>(c, fork->aux) : NULL;
    LAUNCH_WARPS(input_gradient, T, l->rows, l->out, c->stream, dx, cuda_at<T>(c, l->dy), cuda_at<float2>(c, l->aux),
                 cuda_x<T>(c), cuda_w<T>(c), around, l->rows, l->out);
}

template <typename T> static void layernorm_forward(const struct cuda_call *c) { forward_of<T>(c, NULL); }
template <typename T> static void layernorm_input(const struct cuda_call *c) { input_of<T>(c, NULL); }

template <typename T> static void layernorm_weight(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    float *parts = (float *)c->workspace;
    dim3 grid = row_grid<T>(l->rows, l->out);
    LAUNCH_ROWS(weight_gradient, T, l->out, grid, dim3(ACROSS, DOWN), c->stream, parts, cuda_at<T>(c, l->dy),
                cuda_at<float2>(c, l->aux), cuda_x<T>(c), l->rows, l->out);
    cuda_sum_parts(cuda_dw<T>(c), parts, 2 * l->out, (int)grid.y, c->at->first, c->stream);
}

const struct cuda_layer cuda_layernorm = {EITHER(layernorm_forward), EITHER(layernorm_input), EITHER(layernorm_weight)};

/* ---- with the sums of residual blocks ---- */

/* A y in the workspace may overlie the join's x, which is read before y is written when they run one by one. */
bool cuda_join_layernorm(const struct cuda_call *c, const struct rt_layer *norm) {
    struct cuda_call at = *c;
    at.l = norm;
    if (norm->y.space == SP_WORK)
        return false;
    (c->m->precision == BF16 ? forward_of<__nv_bfloat16> : forward_of<float>)(&at, c->l);
    return true;
}

bool cuda_layernorm_fork_input(const struct cuda_call *c, const struct rt_layer *fork) {
    if (fork->dx.space == SP_NONE)
        return false;
    (c->m->precision == BF16 ? input_of<__nv_bfloat16> : input_of<float>)(c, fork);
    return true;
}
