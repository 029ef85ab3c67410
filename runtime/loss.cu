/* The losses. A forward keeps the gradient but for its factor, 1 / (rows x batches), in aux, as the host does: the
 * backward then needs no targets. Each row's loss goes to tmp, 8 bytes per row, and one block adds them up. */
#include "cuda.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, TALL = 1024 };

/* A block has a row. Each thread takes its part of the sum of e^x as if its largest x so far were the row's, and the
 * block corrects the parts: one reading for both. kept: softmax(x) - onehot(target) */
template <typename T, int V>
static __global__ void cross_entropy(T *kept, double *loss, const T *x, const int32_t *targets, int n) {
    int target = targets[blockIdx.x];
    x += (int64_t)blockIdx.x * n;
    kept += (int64_t)blockIdx.x * n;
    float top = -INFINITY, total = 0;
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
    float norm = 1 / total;
    for (int j = threadIdx.x * V; j < n; j += blockDim.x * V) {
        pack<T, V> a = load<V>(x + j);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>(__expf(widen(a.v[k]) - row_top) * norm - (j + k == target ? 1.0f : 0.0f));
        store(kept + j, a);
    }
    if (threadIdx.x == 0)
        loss[blockIdx.x] = (double)logf(total) - (double)(widen(x[target]) - row_top);
}

/* A warp has a row. kept: x - target */
template <typename T>
static __global__ void mse(T *kept, double *loss, const T *x, const float *target, int rows, int n) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    double sum = 0;
    for (int64_t i = (int64_t)row * n + lane, end = (int64_t)(row + 1) * n; i < end; i += 32) {
        float d = widen(x[i]) - target[i];
        kept[i] = narrow<T>(d);
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

/* dx = kept / (rows x batches): exact for a power of two, and correctly rounded otherwise */
template <typename T> static __global__ void divide(T *dx, const T *kept, float count, int64_t n) {
    constexpr int V = WIDE<T>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i + V <= n) {
        pack<T, V> a = load<V>(kept + i);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>(widen(a.v[k]) / count);
        store(dx + i, a);
    } else
        for (; i < n; i++)
            dx[i] = narrow<T>(widen(kept[i]) / count);
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
                cuda_x<T>(c), c->at->batch->target, l->in);
    report(c);
}

template <typename T> static void mse_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH((mse<T>), blocks_for(l->rows, WARPS), THREADS, 0, c->stream, cuda_at<T>(c, l->aux),
           cuda_at<double>(c, l->tmp), cuda_x<T>(c), c->at->batch->y, l->rows, l->in);
    report(c);
}

template <typename T> static void loss_input(const struct cuda_call *c) {
    int64_t n = (int64_t)c->l->rows * c->l->in;
    float count = (float)c->l->rows * (float)c->m->batches;
    LAUNCH((divide<T>), blocks_for(n, THREADS * WIDE<T>), THREADS, 0, c->stream, cuda_at<T>(c, c->l->dx),
           cuda_at<T>(c, c->l->aux), count, n);
}

const struct cuda_layer cuda_cross_entropy = {EITHER(cross_entropy_forward), EITHER(loss_input), NULL};
const struct cuda_layer cuda_mse = {EITHER(mse_forward), EITHER(loss_input), NULL};
