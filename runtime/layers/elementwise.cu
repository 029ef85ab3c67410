/* Layers that are a function of each element, or of a pair of elements in a row's two halves: relu, gelu, silu, swiglu,
 * geglu, and the two sums of a residual block. A thread handles 16 bytes of each tensor, the last one the rest. */
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

template <typename T, float (*f)(float)> static void launch_map(const struct cuda_call *c, T *out, const T *a) {
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
    launch_map<T, relu>(c, cuda_at<T>(c, c->l->y), cuda_x<T>(c));
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
    launch_map<T, gelu>(c, cuda_at<T>(c, c->l->y), cuda_x<T>(c));
}
template <typename T> static void gelu_input(const struct cuda_call *c) {
    launch2<T, gelu_slope>(c, cuda_at<T>(c, c->l->dx), cuda_x<T>(c), cuda_at<T>(c, c->l->dy));
}

/* ---- silu: x times the logistic function of x; and swiglu and geglu, silu or gelu of a row's left half times its
 * right half ---- */

static __device__ float logistic(float x) { return __fdividef(1, 1 + __expf(-x)); }
static __device__ float silu(float x) { return x * logistic(x); }
static __device__ float silu_slope(float x, float dy) {
    float s = logistic(x);
    return dy * (s + x * s * (1 - s));
}

template <typename T> static void silu_forward(const struct cuda_call *c) {
    launch_map<T, silu>(c, cuda_at<T>(c, c->l->y), cuda_x<T>(c));
}
template <typename T> static void silu_input(const struct cuda_call *c) {
    launch2<T, silu_slope>(c, cuda_at<T>(c, c->l->dx), cuda_x<T>(c), cuda_at<T>(c, c->l->dy));
}

static __device__ float at_most(float x, float limit) { return x > limit ? limit : x; }
static __device__ float within(float x, float limit) { return x < -limit ? -limit : at_most(x, limit); }

/* n: columns of y; a thread has V of them. f: applied to the left half; slope: f's, times dy. limit: the layer's, or
 * infinity. */
template <typename T, int V, float (*f)(float)>
static __device__ void gate_row(T *y, const T *x, int rows, int n, float limit) {
    unsigned across = n / V, i = blockIdx.x * THREADS + threadIdx.x, row = i / across, j = i % across * V;
    if (row >= (unsigned)rows)
        return;
    x += (int64_t)row * 2 * n + j;
    pack<T, V> gate = load<V>(x), up = load<V>(x + n);
    for (int k = 0; k < V; k++)
        gate.v[k] = narrow<T>(f(at_most(widen(gate.v[k]), limit)) * within(widen(up.v[k]), limit));
    store(y + (int64_t)row * n + j, gate);
}
template <typename T, int V, float (*f)(float), float (*slope)(float, float)>
static __device__ void gate_row_back(T *dx, const T *x, const T *dy, int rows, int n, float limit) {
    unsigned across = n / V, i = blockIdx.x * THREADS + threadIdx.x, row = i / across, j = i % across * V;
    if (row >= (unsigned)rows)
        return;
    x += (int64_t)row * 2 * n + j;
    pack<T, V> gate = load<V>(x), up = load<V>(x + n), d = load<V>(dy + (int64_t)row * n + j);
    for (int k = 0; k < V; k++) {
        float g = widen(gate.v[k]), u = widen(up.v[k]), dy = widen(d.v[k]);
        gate.v[k] = narrow<T>(g > limit ? 0 : slope(g, dy * within(u, limit)));
        up.v[k] = narrow<T>(fabsf(u) > limit ? 0 : dy * f(at_most(g, limit)));
    }
    dx += (int64_t)row * 2 * n + j;
    store(dx, gate);
    store(dx + n, up);
}
template <typename T, int V> static __global__ void swiglu(T *y, const T *x, int rows, int n, float limit) {
    gate_row<T, V, silu>(y, x, rows, n, limit);
}
template <typename T, int V>
static __global__ void swiglu_gradient(T *dx, const T *x, const T *dy, int rows, int n, float limit) {
    gate_row_back<T, V, silu, silu_slope>(dx, x, dy, rows, n, limit);
}
template <typename T, int V> static __global__ void geglu(T *y, const T *x, int rows, int n, float limit) {
    gate_row<T, V, gelu>(y, x, rows, n, limit);
}
template <typename T, int V>
static __global__ void geglu_gradient(T *dx, const T *x, const T *dy, int rows, int n, float limit) {
    gate_row_back<T, V, gelu, gelu_slope>(dx, x, dy, rows, n, limit);
}

static float limit_of(const struct rt_layer *l) { return l->config.gated.limit > 0 ? l->config.gated.limit : INFINITY; }
#define GATED(name)                                                                                                    \
    template <typename T> static void name##_forward(const struct cuda_call *c) {                                      \
        const struct rt_layer *l = c->l;                                                                               \
        LAUNCH_ROWS(name, T, l->out, row_blocks<T>(l->rows, l->out, THREADS), THREADS, c->stream, cuda_at<T>(c, l->y), \
                    cuda_x<T>(c), l->rows, l->out, limit_of(l));                                                       \
    }                                                                                                                  \
    template <typename T> static void name##_input(const struct cuda_call *c) {                                        \
        const struct rt_layer *l = c->l;                                                                               \
        LAUNCH_ROWS(name##_gradient, T, l->out, row_blocks<T>(l->rows, l->out, THREADS), THREADS, c->stream,           \
                    cuda_at<T>(c, l->dx), cuda_x<T>(c), cuda_at<T>(c, l->dy), l->rows, l->out, limit_of(l));           \
    }
GATED(swiglu)
GATED(geglu)

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
    if (n == 0) /* a stage without weights of its own; a grid may not be empty */
        return;
    if (first)
        LAUNCH((map<float, same>), blocks, THREADS, 0, stream, dst, src, n);
    else
        LAUNCH((map2<float, sum>), blocks, THREADS, 0, stream, dst, dst, src, n);
}

/* dst = or += src, of bf16. */
static __global__ void widen_to(float *dst, const __nv_bfloat16 *src, int64_t n, bool first) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        dst[i] = (first ? 0 : dst[i]) + widen(src[i]);
}
void cuda_widen(float *dst, const void *src, int64_t size, int64_t n, bool first, cudaStream_t stream) {
    if (size == (int64_t)sizeof(float))
        cuda_add(dst, (const float *)src, n, first, stream);
    else if (n > 0)
        LAUNCH(widen_to, blocks_for(n, THREADS), THREADS, 0, stream, dst, (const __nv_bfloat16 *)src, n, first);
}

static __global__ void narrow_to(__nv_bfloat16 *dst, const float *src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        dst[i] = narrow<__nv_bfloat16>(src[i]);
}
void cuda_narrow(void *dst, const float *src, int64_t n, cudaStream_t stream) {
    if (n > 0)
        LAUNCH(narrow_to, blocks_for(n, THREADS), THREADS, 0, stream, (__nv_bfloat16 *)dst, src, n);
}

template <typename T> static void add_value(void *dst, const void *src, int64_t n, cudaStream_t stream) {
    LAUNCH((map2<T, sum>), blocks_for(n, THREADS * WIDE<T>), THREADS, 0, stream, (T *)dst, (const T *)dst,
           (const T *)src, n);
}

void cuda_add_more(const struct rt_model *m, const struct rt_bind *at, void *dst, int64_t n, cudaStream_t stream) {
    for (const struct rt_buffer *const *more = at->more; more && *more; more++)
        (m->precision == BF16 ? add_value<__nv_bfloat16> : add_value<float>)(dst, at->arena + (*more)->off, n, stream);
}

/* A block covers 32 columns, one per lane; each of its 8 warps adds every 8th part. */
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
const struct cuda_layer cuda_silu = {EITHER(silu_forward), EITHER(silu_input), NULL};
const struct cuda_layer cuda_swiglu = {EITHER(swiglu_forward), EITHER(swiglu_input), NULL};
const struct cuda_layer cuda_geglu = {EITHER(geglu_forward), EITHER(geglu_input), NULL};
const struct cuda_layer cuda_fork = {NULL, EITHER(fork_input), NULL};
const struct cuda_layer cuda_join = {EITHER(join_forward), NULL, NULL};
const struct cuda_layer cuda_spread = {NULL, NULL, NULL};
const struct cuda_layer cuda_reduce = {NULL, NULL, NULL};
const struct cuda_layer cuda_gather = {NULL, NULL, NULL};
const struct cuda_layer cuda_scatter = {NULL, NULL, NULL};
const struct cuda_layer cuda_again = {NULL, NULL, NULL};
