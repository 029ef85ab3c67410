/* The losses. A forward leaves the gradient in aux, where its input may lie, as on the host: logits are read once, then
 * again from L2 as far as they fit, and written once, and the backward needs no targets. Each row's loss goes to tmp, 8
 * bytes per row, and one block adds them up. */
#include "cuda.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, TALL = 1024 };

/* One block per row. Each thread sums its part of e^x as if its largest x so far were the row's, and the block corrects
 * the parts: one read gives maximum and sum. dx, which x may be: (softmax(x) - onehot(target)) / count */
template <typename T, int V>
static __global__ void cross_entropy(T *dx, double *loss, const T *x, const int32_t *targets, float count, int n) {
    int target = targets[blockIdx.x];
    x += (int64_t)blockIdx.x * n;
    dx += (int64_t)blockIdx.x * n;
    float top = -INFINITY, total = 0, hit = widen(x[target]);
    for (int j = threadIdx.x * V; j < n; j += blockDim.x * V) {
        pack<T, V> a = load<V>(x + j);
        float before = top;
        for (int k = 0; k < V; k++)
            top = fmaxf(top, widen(a.v[k]));
        total *= __expf(before - top);
        for (int k = 0; k < V; k++)
            total += __expf(widen(a.v[k]) - top);
    }
    float row_top = block_max(top);
    total = block_sum(total * __expf(top - row_top));
    float norm = 1 / total, share = 1 / count;
    for (int j = threadIdx.x * V; j < n; j += blockDim.x * V) {
        pack<T, V> a = load<V>(x + j);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>((__expf(widen(a.v[k]) - row_top) * norm - (j + k == target ? 1.0f : 0.0f)) * share);
        store(dx + j, a);
    }
    if (threadIdx.x == 0)
        loss[blockIdx.x] = (double)logf(total) - (double)(hit - row_top);
}

/* One warp per row. dx, which x may be: (x - target) / count */
template <typename T>
static __global__ void mse(T *dx, double *loss, const T *x, const float *target, float count, int rows, int n) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    double sum = 0;
    for (int64_t i = (int64_t)row * n + lane, end = (int64_t)(row + 1) * n; i < end; i += 32) {
        float d = widen(x[i]) - target[i];
        dx[i] = narrow<T>(d / count);
        sum += 0.5 * (double)d * (double)d;
    }
    sum = warp_sum(sum);
    if (lane == 0)
        loss[row] = sum;
}

static __global__ void mean(float *to, const double *loss, int rows) {
    double sum = 0;
    for (int r = threadIdx.x; r < rows; r += TALL)
        sum += loss[r];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *to = (float)(sum / rows);
}

/* A loss alone in its stage must still pass its gradient to the stage before. */
template <typename T> static __global__ void copy(T *dx, const T *aux, int64_t n) {
    constexpr int V = WIDE<T>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i + V <= n)
        store(dx + i, load<V>(aux + i));
    else
        for (; i < n; i++)
            dx[i] = aux[i];
}

/* The loss whose gradient this is: the mean over so many rows, of all microbatches of the step where one update ends
 * it. Dividing a gradient by it is exact for a power of two, and correctly rounded otherwise. */
static float count(const struct cuda_call *c) {
    return (float)c->l->rows * (float)(c->m->update > 0 ? 1 : c->m->batches);
}

static void report(const struct cuda_call *c) {
    if (c->at->loss)
        LAUNCH(mean, 1, TALL, 0, c->stream, c->at->loss, cuda_at<double>(c, c->l->tmp), c->l->rows);
}

template <typename T> static void cross_entropy_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    int packs = l->in / WIDE<T>, threads = packs < TALL ? (packs + 31) / 32 * 32 : TALL;
    threads = threads < 32 ? 32 : threads;
    LAUNCH_ROWS(cross_entropy, T, l->in, l->rows, threads, c->stream, cuda_at<T>(c, l->aux), cuda_at<double>(c, l->tmp),
                cuda_x<T>(c), c->at->batch->target, count(c), l->in);
    report(c);
}

template <typename T> static void mse_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH((mse<T>), blocks_for(l->rows, WARPS), THREADS, 0, c->stream, cuda_at<T>(c, l->aux),
           cuda_at<double>(c, l->tmp), cuda_x<T>(c), c->at->batch->y, count(c), l->rows, l->in);
    report(c);
}

template <typename T> static void loss_input(const struct cuda_call *c) {
    int64_t n = (int64_t)c->l->rows * c->l->in;
    T *dx = cuda_at<T>(c, c->l->dx), *aux = cuda_at<T>(c, c->l->aux);
    if (dx != aux)
        LAUNCH((copy<T>), blocks_for(n, THREADS * WIDE<T>), THREADS, 0, c->stream, dx, aux, n);
}

const struct cuda_layer cuda_cross_entropy = {EITHER(cross_entropy_forward), EITHER(loss_input), NULL};
const struct cuda_layer cuda_mse = {EITHER(mse_forward), EITHER(loss_input), NULL};
