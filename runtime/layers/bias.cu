/* The bias layer, y = x + bias, and a linear layer's bias and bias gradient, dbias += the sum of dy's rows, where no
 * product computes them. */
#include "cuda.cuh"

enum { THREADS = 256 };

template <typename T, int V> static __global__ void add_bias(T *y, const T *x, const T *bias, int rows, int n) {
    unsigned across = n / V, i = blockIdx.x * THREADS + threadIdx.x, row = i / across, j = i % across * V;
    if (row >= (unsigned)rows)
        return;
    pack<T, V> sum = load<V>(x + (int64_t)row * n + j), b = load<V>(bias + j);
    for (int v = 0; v < V; v++)
        sum.v[v] = narrow<T>(widen(sum.v[v]) + widen(b.v[v]));
    store(y + (int64_t)row * n + j, sum);
}

template <typename T> void cuda_add_bias(T *y, const T *x, const T *bias, int rows, int out, cudaStream_t stream) {
    int64_t packs = (int64_t)rows * (out % WIDE<T> == 0 ? out / WIDE<T> : out);
    LAUNCH_ROWS(add_bias, T, out, blocks_for(packs, THREADS), THREADS, stream, y, x, bias, rows, out);
}
template void cuda_add_bias<float>(float *, const float *, const float *, int, int, cudaStream_t);
template void cuda_add_bias<__nv_bfloat16>(__nv_bfloat16 *, const __nv_bfloat16 *, const __nv_bfloat16 *, int, int,
                                           cudaStream_t);

template <typename T, int V>
static __global__ void __launch_bounds__(ACROSS *DOWN) bias_gradient(float *parts, const T *dy, int rows, int out) {
    int j = ((int)blockIdx.x * ACROSS + (int)threadIdx.x) * V;
    float sum[V] = {};
    for (int r = (int)(blockIdx.y * DOWN + threadIdx.y); j < out && r < rows; r += (int)gridDim.y * DOWN) {
        pack<T, V> d = load<V>(dy + (int64_t)r * out + j);
        for (int v = 0; v < V; v++)
            sum[v] += widen(d.v[v]);
    }
    give_part<V>(parts + (int64_t)blockIdx.y * out, sum, out);
}

template <typename T>
void cuda_sum_rows(float *dbias, float *parts, const T *dy, int rows, int out, bool first, cudaStream_t stream) {
    dim3 grid = row_grid<T>(rows, out);
    LAUNCH_ROWS(bias_gradient, T, out, grid, dim3(ACROSS, DOWN), stream, parts, dy, rows, out);
    cuda_sum_parts(dbias, parts, out, (int)grid.y, first, stream);
}
template void cuda_sum_rows<float>(float *, float *, const float *, int, int, bool, cudaStream_t);
template void cuda_sum_rows<__nv_bfloat16>(float *, float *, const __nv_bfloat16 *, int, int, bool, cudaStream_t);

template <typename T> static void add_bias_rows(const struct cuda_call *c) {
    cuda_add_bias(cuda_at<T>(c, c->l->y), cuda_x<T>(c), cuda_w<T>(c), c->l->rows, c->l->out, c->stream);
}

template <typename T> static void sum_bias_rows(const struct cuda_call *c) {
    cuda_sum_rows(cuda_dw<T>(c), (float *)c->workspace, cuda_at<T>(c, c->l->dy), c->l->rows, c->l->out, cuda_first(c),
                  c->stream);
}

const struct cuda_layer cuda_bias = {EITHER(add_bias_rows), NULL, EITHER(sum_bias_rows)};
