/* Layers that are one function of each element: relu, gelu, and the two sums of a residual block. A thread handles 16
 * bytes of each tensor, the last one the rest. */
#include "cuda.cuh"

enum { THREADS = 256 };

template <typename T, float (*f)(float)> static __global__ void map(T *out, const T *a, int64_t n) {
    constexpr int V = WIDE<T>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i + V <= n) {
        pack<T, V> x = load<V>(a + i);
        for (int k = 0; k < V; k++)
            x.v[k] = narrow<T>(f(widen(x.v[k])));
        store(out + i, x);
    } else
        for (; i < n; i++)
            out[i] = narrow<T>(f(widen(a[i])));
}

template <typename T, float (*f)(float, float)> static __global__ void map2(T *out, const T *a, const T *b, int64_t n) {
    constexpr int V = WIDE<T>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i + V <= n) {
        pack<T, V> x = load<V>(a + i), y = load<V>(b + i);
        for (int k = 0; k < V; k++)
            x.v[k] = narrow<T>(f(widen(x.v[k]), widen(y.v[k])));
        store(out + i, x);
    } else
        for (; i < n; i++)
            out[i] = narrow<T>(f(widen(a[i]), widen(b[i])));
}

template <typename T, float (*f)(float)> static void launch(const struct cuda_call *c, T *out, const T *a) {
    int64_t n = (int64_t)c->l->rows * c->l->out;
    LAUNCH((map<T, f>), blocks_for(n, THREADS * WIDE<T>), THREADS, 0, c->stream, out, a, n);
}
template <typename T, float (*f)(float, float)>
static void launch2(const struct cuda_call *c, T *out, const T *a, const T *b) {
    int64_t n = (int64_t)c->l->rows * c->l->out;
    LAUNCH((map2<T, f>), blocks_for(n, THREADS * WIDE<T>), THREADS, 0, c->stream, out, a, b, n);
}

/* ---- relu: keeps y ---- */

static __device__ float relu(float x) { return x > 0 ? x : 0; }
static __device__ float relu_slope(float y, float dy) { return y > 0 ? dy : 0; }

template <typename T> static void relu_forward(const struct cuda_call *c) {
    launch<T, relu>(c, cuda_at<T>(c, c->l->y), cuda_x<T>(c));
}
template <typename T> static void relu_input(const struct cuda_call *c) {
    launch2<T, relu_slope>(c, cuda_at<T>(c, c->l->dx), cuda_at<T>(c, c->l->y), cuda_at<T>(c, c->l->dy));
}

/* ---- gelu: (1 + tanh u) / 2 is the logistic function of 2u ---- */

static __device__ float gate(float x) {
    float u2 = 2 * 0.7978845608f * x * (1 + 0.044715f * x * x);
    return __fdividef(1, 1 + __expf(-u2));
}
static __device__ float gelu(float x) { return x * gate(x); }
static __device__ float gelu_slope(float x, float dy) {
    float s = gate(x), slope = 2 * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
    return dy * (s + x * s * (1 - s) * slope);
}

template <typename T> static void gelu_forward(const struct cuda_call *c) {
    launch<T, gelu>(c, cuda_at<T>(c, c->l->y), cuda_x<T>(c));
}
template <typename T> static void gelu_input(const struct cuda_call *c) {
    launch2<T, gelu_slope>(c, cuda_at<T>(c, c->l->dx), cuda_x<T>(c), cuda_at<T>(c, c->l->dy));
}

/* ---- residual blocks: aux is the other summand, the fork's input or the gradient of the join's output ---- */

static __device__ float sum(float a, float b) { return a + b; }

template <typename T> static void join_forward(const struct cuda_call *c) {
    launch2<T, sum>(c, cuda_at<T>(c, c->l->y), cuda_x<T>(c), cuda_other<T>(c));
}
template <typename T> static void fork_input(const struct cuda_call *c) {
    launch2<T, sum>(c, cuda_at<T>(c, c->l->dx), cuda_at<T>(c, c->l->dy), cuda_other<T>(c));
}

/* ---- gradients of other microbatches and ranks ---- */

static __device__ float same(float x) { return x; }

void cuda_add(float *dst, const float *src, int64_t n, bool first, cudaStream_t stream) {
    unsigned blocks = blocks_for(n, THREADS * WIDE<float>);
    if (n == 0) /* a stage without weights of its own; no grid may be empty */
        return;
    if (first)
        LAUNCH((map<float, same>), blocks, THREADS, 0, stream, dst, src, n);
    else
        LAUNCH((map2<float, sum>), blocks, THREADS, 0, stream, dst, dst, src, n);
}

template <typename T> static void add_value(void *dst, const void *src, int64_t n, cudaStream_t stream) {
    LAUNCH((map2<T, sum>), blocks_for(n, THREADS * WIDE<T>), THREADS, 0, stream, (T *)dst, (const T *)dst,
           (const T *)src, n);
}

void cuda_add_more(const struct rt_model *m, const struct rt_bind *at, void *dst, int64_t n, cudaStream_t stream) {
    for (int i = 0; i < at->nmore; i++)
        (m->precision == BF16 ? add_value<__nv_bfloat16> : add_value<float>)(dst, at->arena + at->more[i], n, stream);
}

/* A block's lanes have 32 columns, each of its 8 warps every 8th part. */
static __global__ void sum_parts(float *dst, const float *parts, int n, int splits, bool first) {
    __shared__ float strand[8][32];
    int j = (int)(blockIdx.x * 32 + threadIdx.x);
    float sum = 0;
    for (int i = (int)threadIdx.y; j < n && i < splits; i += 8)
        sum += parts[(int64_t)i * n + j];
    strand[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || j >= n)
        return;
    for (int i = 1; i < 8; i++)
        sum += strand[i][threadIdx.x];
    dst[j] = first ? sum : dst[j] + sum;
}

void cuda_sum_parts(float *dst, const float *parts, int n, int splits, bool first, cudaStream_t stream) {
    LAUNCH(sum_parts, blocks_for(n, 32), dim3(32, 8), 0, stream, dst, parts, n, splits, first);
}

const struct cuda_layer cuda_relu = {EITHER(relu_forward), EITHER(relu_input), NULL};
const struct cuda_layer cuda_gelu = {EITHER(gelu_forward), EITHER(gelu_input), NULL};
const struct cuda_layer cuda_fork = {NULL, EITHER(fork_input), NULL};
const struct cuda_layer cuda_join = {EITHER(join_forward), NULL, NULL};
