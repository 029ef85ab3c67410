/* Layer normalisation over columns (Ba et al. 2016). Parameters are gamma, then beta; aux is mean and
 * 1 / sqrt(var + 1e-5) of each row, fp32.
 *
 * Along rows, a warp has a row, which it reads again from the first cache. Along columns, a block has 32 bytes of every
 * row, a sector of memory, and all rows: so sums over rows need neither scratch nor atomics, and have one order. */
#include "cuda.cuh"

enum { WARPS = 8, TALL = 1024 };

template <typename T, int V>
static __global__ void normalize(T *y, float2 *stat, const T *x, const T *gamma, const T *beta, int rows, int n) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    x += (int64_t)row * n;
    y += (int64_t)row * n;
    float sum = 0, square = 0;
    for (int j = lane * V; j < n; j += 32 * V) {
        pack<T, V> a = load<V>(x + j);
        for (int k = 0; k < V; k++)
            sum += widen(a.v[k]);
    }
    float mean = warp_sum(sum) / (float)n;
    for (int j = lane * V; j < n; j += 32 * V) {
        pack<T, V> a = load<V>(x + j);
        for (int k = 0; k < V; k++)
            square += (widen(a.v[k]) - mean) * (widen(a.v[k]) - mean);
    }
    float scale = 1 / sqrtf(warp_sum(square) / (float)n + 1e-5f);
    for (int j = lane * V; j < n; j += 32 * V) {
        pack<T, V> a = load<V>(x + j), g = load<V>(gamma + j), b = load<V>(beta + j);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>(widen(g.v[k]) * ((widen(a.v[k]) - mean) * scale) + widen(b.v[k]));
        store(y + j, a);
    }
    if (lane == 0)
        stat[row] = make_float2(mean, scale);
}

/* With g = gamma dy: dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + 1e-5) */
template <typename T, int V>
static __global__ void input_gradient(T *dx, const T *dy, const float2 *stat, const T *x, const T *gamma, int rows,
                                      int n) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    x += (int64_t)row * n;
    dx += (int64_t)row * n;
    dy += (int64_t)row * n;
    float mean = stat[row].x, scale = stat[row].y, sum = 0, along = 0;
    for (int j = lane * V; j < n; j += 32 * V) {
        pack<T, V> a = load<V>(x + j), d = load<V>(dy + j), g = load<V>(gamma + j);
        for (int k = 0; k < V; k++) {
            float gradient = widen(g.v[k]) * widen(d.v[k]);
            sum += gradient;
            along += gradient * ((widen(a.v[k]) - mean) * scale);
        }
    }
    sum = warp_sum(sum) / (float)n;
    along = warp_sum(along) / (float)n;
    for (int j = lane * V; j < n; j += 32 * V) {
        pack<T, V> a = load<V>(x + j), d = load<V>(dy + j), g = load<V>(gamma + j);
        for (int k = 0; k < V; k++) {
            float gradient = widen(g.v[k]) * widen(d.v[k]);
            a.v[k] = narrow<T>((gradient - sum - (widen(a.v[k]) - mean) * scale * along) * scale);
        }
        store(dx + j, a);
    }
}

/* Each thread has V columns of every LANES-th row; then lanes, then warps, are added up. */
template <typename T, int V>
static __global__ void __launch_bounds__(TALL)
    weight_gradient(float *dgamma, float *dbeta, const T *dy, const float2 *stat, const T *x, int rows, int n,
                    bool first) {
    constexpr int COLUMNS = 32 / (int)sizeof(T), ACROSS = COLUMNS / V;
    __shared__ float part[2][TALL / 32][COLUMNS];
    int at = threadIdx.x % ACROSS * V, column = blockIdx.x * COLUMNS + at;
    float gamma[V] = {}, beta[V] = {};
    for (int r = threadIdx.x / ACROSS; column < n && r < rows; r += TALL / ACROSS) {
        pack<T, V> a = load<V>(x + (int64_t)r * n + column), d = load<V>(dy + (int64_t)r * n + column);
        float2 s = stat[r];
        for (int k = 0; k < V; k++) {
            gamma[k] += widen(d.v[k]) * ((widen(a.v[k]) - s.x) * s.y);
            beta[k] += widen(d.v[k]);
        }
    }
    for (int k = 0; k < V; k++) {
        for (int i = 16; i >= ACROSS; i /= 2) {
            gamma[k] += __shfl_xor_sync(ALL_LANES, gamma[k], i);
            beta[k] += __shfl_xor_sync(ALL_LANES, beta[k], i);
        }
        if (threadIdx.x % 32 < ACROSS) {
            part[0][threadIdx.x / 32][at + k] = gamma[k];
            part[1][threadIdx.x / 32][at + k] = beta[k];
        }
    }
    __syncthreads();
    int which = threadIdx.x / COLUMNS, j = threadIdx.x % COLUMNS;
    column = blockIdx.x * COLUMNS + j;
    if (which > 1 || column >= n)
        return;
    float *out = (which == 0 ? dgamma : dbeta) + column, sum = 0;
    for (int w = 0; w < TALL / 32; w++)
        sum += part[which][w][j];
    *out = first ? sum : *out + sum;
}

template <typename T> static void layernorm_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const T *gamma = cuda_w<T>(c);
    LAUNCH_ROWS(normalize, T, l->out, blocks_for(l->rows, WARPS), WARPS * 32, c->stream, cuda_at<T>(c, l->y),
                cuda_at<float2>(c, l->aux), cuda_x<T>(c), gamma, gamma + l->out, l->rows, l->out);
}

template <typename T> static void layernorm_input(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH_ROWS(input_gradient, T, l->out, blocks_for(l->rows, WARPS), WARPS * 32, c->stream, cuda_at<T>(c, l->dx),
                cuda_at<T>(c, l->dy), cuda_at<float2>(c, l->aux), cuda_x<T>(c), cuda_w<T>(c), l->rows, l->out);
}

template <typename T> static void layernorm_weight(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    float *dgamma = cuda_dw<T>(c);
    LAUNCH_ROWS(weight_gradient, T, l->out, blocks_for(l->out, 32 / sizeof(T)), TALL, c->stream, dgamma,
                dgamma + l->out, cuda_at<T>(c, l->dy), cuda_at<float2>(c, l->aux), cuda_x<T>(c), l->rows, l->out,
                c->at->first);
}

const struct cuda_layer cuda_layernorm = {EITHER(layernorm_forward), EITHER(layernorm_input), EITHER(layernorm_weight)};
