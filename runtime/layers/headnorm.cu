/* headnorm: the layer of norm_host.c, with the same aux. A row of x is heads of n columns side by side: q heads of
 * queries and k of keys, which are normalized, and k of values, which are copied. A warp works on a head, and reads it
 * again from L1, since heads are short. */
#include "cuda.cuh"

enum { WARPS = 8 };

/* Calls f(j) for the column in which each of the lane's packs begins. */
template <int V, typename F> static __device__ __forceinline__ void each_head_pack(int n, F f) {
    for (int j = (int)(threadIdx.x % 32) * V; j < n; j += 32 * V)
        f(j);
}

/* Returns the number of the warp's head, among all rows' heads. */
static __device__ __forceinline__ int64_t head_of_warp() { return (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; }

template <typename T, int V>
static __global__ void normalize_heads(T *y, float *stat, const T *x, const T *gamma, int rows, int q, int k, int n,
                                       float eps) {
    int64_t head = head_of_warp(), all = q + 2 * k;
    int h = (int)(head % all);
    if (head >= rows * all)
        return;
    x += head * n;
    y += head * n;
    if (h >= q + k) {
        each_head_pack<V>(n, [&](int j) { store(y + j, load<V>(x + j)); });
        return;
    }
    gamma += h < q ? 0 : n;
    float square = 0;
    each_head_pack<V>(n, [&](int j) {
        pack<T, V> a = load<V>(x + j);
        for (int i = 0; i < V; i++)
            square += widen(a.v[i]) * widen(a.v[i]);
    });
    float scale = 1 / sqrtf(warp_sum(square) / (float)n + eps);
    each_head_pack<V>(n, [&](int j) {
        pack<T, V> a = load<V>(x + j), g = load<V>(gamma + j);
        for (int i = 0; i < V; i++)
            a.v[i] = narrow<T>(widen(g.v[i]) * (widen(a.v[i]) * scale));
        store(y + j, a);
    });
    if (threadIdx.x % 32 == 0)
        stat[head / all * (q + k) + h] = scale;
}

/* Computes, with g = gamma dy, dx = (g - xhat mean(g xhat)) scale. */
template <typename T, int V>
static __global__ void heads_input_gradient(T *dx, const T *dy, const float *stat, const T *x, const T *gamma, int rows,
                                            int q, int k, int n) {
    int64_t head = head_of_warp(), all = q + 2 * k;
    int h = (int)(head % all);
    if (head >= rows * all)
        return;
    x += head * n;
    dx += head * n;
    dy += head * n;
    if (h >= q + k) {
        each_head_pack<V>(n, [&](int j) { store(dx + j, load<V>(dy + j)); });
        return;
    }
    gamma += h < q ? 0 : n;
    float scale = stat[head / all * (q + k) + h], along = 0;
    each_head_pack<V>(n, [&](int j) {
        pack<T, V> a = load<V>(x + j), d = load<V>(dy + j), g = load<V>(gamma + j);
        for (int i = 0; i < V; i++)
            along += widen(g.v[i]) * widen(d.v[i]) * (widen(a.v[i]) * scale);
    });
    along = warp_sum(along) / (float)n;
    each_head_pack<V>(n, [&](int j) {
        pack<T, V> a = load<V>(x + j), d = load<V>(dy + j), g = load<V>(gamma + j);
        for (int i = 0; i < V; i++)
            a.v[i] = narrow<T>((widen(g.v[i]) * widen(d.v[i]) - widen(a.v[i]) * scale * along) * scale);
        store(dx + j, a);
    });
}

/* parts: for queries' gamma, then for keys'; blockIdx.z selects which. */
template <typename T, int V>
static __global__ void __launch_bounds__(ACROSS *DOWN)
    heads_weight_gradient(float *parts, const T *dy, const float *stat, const T *x, int rows, int q, int k, int n) {
    int j = ((int)blockIdx.x * ACROSS + (int)threadIdx.x) * V;
    int first = blockIdx.z ? q : 0, end = blockIdx.z ? q + k : q;
    float gamma[V] = {};
    for (int r = (int)(blockIdx.y * DOWN + threadIdx.y); j < n && r < rows; r += (int)gridDim.y * DOWN)
        for (int h = first; h < end; h++) {
            int64_t at = ((int64_t)r * (q + 2 * k) + h) * n + j;
            pack<T, V> a = load<V>(x + at), d = load<V>(dy + at);
            float scale = stat[(int64_t)r * (q + k) + h];
            for (int i = 0; i < V; i++)
                gamma[i] += widen(d.v[i]) * (widen(a.v[i]) * scale);
        }
    give_part<V>(parts + (2 * (int64_t)blockIdx.y + blockIdx.z) * n, gamma, n);
}

static unsigned head_blocks(const struct rt_layer *l) {
    return blocks_for((int64_t)l->rows * (l->config.attention.heads + 2 * l->config.attention.kv_heads), WARPS);
}

template <typename T> static void headnorm_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    int n = head_columns(l);
    LAUNCH_ROWS(normalize_heads, T, n, head_blocks(l), WARPS * 32, c->stream, cuda_at<T>(c, l->y),
                cuda_at<float>(c, l->aux), cuda_x<T>(c), cuda_w<T>(c), l->rows, l->config.attention.heads,
                l->config.attention.kv_heads, n, l->config.norm.eps);
}

template <typename T> static void headnorm_input(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    int n = head_columns(l);
    LAUNCH_ROWS(heads_input_gradient, T, n, head_blocks(l), WARPS * 32, c->stream, cuda_at<T>(c, l->dx),
                cuda_at<T>(c, l->dy), cuda_at<float>(c, l->aux), cuda_x<T>(c), cuda_w<T>(c), l->rows,
                l->config.attention.heads, l->config.attention.kv_heads, n);
}

template <typename T> static void headnorm_weight(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    float *parts = (float *)c->workspace;
    int n = head_columns(l);
    dim3 grid = row_grid<T>(l->rows, n), block(ACROSS, DOWN);
    grid.z = 2;
    LAUNCH_ROWS(heads_weight_gradient, T, n, grid, block, c->stream, parts, cuda_at<T>(c, l->dy),
                cuda_at<float>(c, l->aux), cuda_x<T>(c), l->rows, l->config.attention.heads,
                l->config.attention.kv_heads, n);
    cuda_sum_parts(cuda_dw<T>(c), parts, 2 * n, (int)grid.y, cuda_first(c), c->stream);
}

const struct cuda_layer cuda_headnorm = {EITHER(headnorm_forward), EITHER(headnorm_input), EITHER(headnorm_weight)};
