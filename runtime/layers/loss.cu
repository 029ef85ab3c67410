/* The losses. A forward leaves the gradient in aux, which may be where its input lies, as on the host. So the backward
 * needs no targets. Logits are read once, then again from L2 as far as they fit, and written once. Each row's loss goes
 * to tmp, 8 bytes per row, and one block adds them up. */
#include "cuda.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, TALL = 1024 };

/* A row's largest logit, and the sum of the exponentials relative to it. */
struct sums {
    float top, total;
};

/* Computes a row's sums, by a block. Each thread sums its part of e^x as if its largest x so far were the row's, and
 * the block then corrects the parts, so one read gives both maximum and sum. */
template <typename T, int V> static __device__ sums block_sums(const T *x, int n) {
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
    return {row_top, block_sum(total * __expf(top - row_top))};
}

/* Computes dx = (softmax(x) - onehot(target)) / count; dx may be x. */
template <typename T, int V>
static __device__ void write_gradient(T *dx, const T *x, sums row, int target, float count, int n) {
    float norm = 1 / row.total, share = 1 / count;
    for (int j = threadIdx.x * V; j < n; j += blockDim.x * V) {
        pack<T, V> a = load<V>(x + j);
        for (int k = 0; k < V; k++)
            a.v[k] = narrow<T>((__expf(widen(a.v[k]) - row.top) * norm - (j + k == target ? 1.0f : 0.0f)) * share);
        store(dx + j, a);
    }
}

/* Writes the gradient and the loss of a row whose label does not count: 0. */
template <typename T, int V> static __device__ void write_nothing(T *dx, double *loss, int n) {
    pack<T, V> none;
    for (int k = 0; k < V; k++)
        none.v[k] = narrow<T>(0.0f);
    for (int j = threadIdx.x * V; j < n; j += blockDim.x * V)
        store(dx + j, none);
    if (threadIdx.x == 0)
        *loss = 0;
}

/* The divisor of a gradient: a count, or with labels the number that count, which differs from step to step. */
struct divisor {
    float count;
    const int64_t *counted;
    __device__ float get() const { return counted ? (float)*counted : count; }
};

/* One block per row. */
template <typename T, int V>
static __global__ void cross_entropy(T *dx, double *loss, const T *x, const int32_t *targets, divisor by, int n) {
    int target = targets[blockIdx.x];
    x += (int64_t)blockIdx.x * n;
    dx += (int64_t)blockIdx.x * n;
    if (target < 0)
        return write_nothing<T, V>(dx, loss + blockIdx.x, n);
    float hit = widen(x[target]);
    sums all = block_sums<T, V>(x, n);
    write_gradient<T, V>(dx, x, all, target, by.get(), n);
    if (threadIdx.x == 0)
        loss[blockIdx.x] = (double)logf(all.total) - (double)(hit - all.top);
}

/* ---- for a team that divides the vocabulary, as in loss_host.c ---- */

enum { TOP, TOTAL, HIT, STATISTICS };

/* One block per row. */
template <typename T, int V>
static __global__ void row_statistics(float *all, const T *x, const int32_t *targets, int first, int n) {
    int target = targets[blockIdx.x] - first;
    x += (int64_t)blockIdx.x * n;
    sums row = block_sums<T, V>(x, n);
    if (threadIdx.x > 0)
        return;
    all += (int64_t)blockIdx.x * STATISTICS;
    all[TOP] = row.top;
    all[TOTAL] = row.total;
    all[HIT] = target >= 0 && target < n ? widen(x[target]) : 0;
}

/* One block per row. apart: floats from one member's statistics to the next's. */
template <typename T, int V>
static __global__ void part_cross_entropy(T *dx, double *loss, const T *x, const float *got, int64_t apart, int members,
                                          const int32_t *targets, int first, divisor by, int n) {
    int target = targets[blockIdx.x] - first;
    x += (int64_t)blockIdx.x * n;
    dx += (int64_t)blockIdx.x * n;
    if (targets[blockIdx.x] < 0)
        return write_nothing<T, V>(dx, loss + blockIdx.x, n);
    got += (int64_t)blockIdx.x * STATISTICS;
    float top = got[TOP], total = 0, hit = 0;
    for (int i = 1; i < members; i++)
        top = fmaxf(top, got[i * apart + TOP]);
    for (int i = 0; i < members; i++) {
        total += got[i * apart + TOTAL] * __expf(got[i * apart + TOP] - top);
        hit += got[i * apart + HIT];
    }
    write_gradient<T, V>(dx, x, {top, total}, target, by.get(), n);
    if (threadIdx.x == 0)
        loss[blockIdx.x] = (double)logf(total) - (double)(hit - top);
}

/* One warp per row. Computes dx = (x - target) / count; dx may be x. */
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

/* Writes each row's loss, and its gradient 1 / count; dx may be x. */
template <typename T>
static __global__ void row_losses(T *dx, double *loss, const T *x, const int32_t *targets, divisor by, int rows) {
    int r = blockIdx.x * THREADS + threadIdx.x;
    if (r >= rows)
        return;
    bool counts = targets[r] >= 0;
    loss[r] = counts ? (double)widen(x[r]) : 0;
    dx[r] = narrow<T>(counts ? 1 / by.get() : 0.0f);
}

/* counted: divides by that number, too; NULL: does not. zero: of no numbers, the mean is 0. */
static __global__ void mean(float *to, const double *loss, int rows, double by, const int64_t *counted, bool zero) {
    double sum = 0;
    for (int r = threadIdx.x; r < rows; r += TALL)
        sum += loss[r];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *to = zero && *counted == 0 ? 0 : (float)(sum / (counted ? (double)*counted * by : by));
}

/* Passes on the gradient of a loss that is alone in its stage. */
template <typename T> static __global__ void copy_gradient(T *dx, const T *aux, int64_t n) {
    constexpr int V = WIDE<T>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i + V <= n)
        store(dx + i, load<V>(aux + i));
    else
        for (; i < n; i++)
            dx[i] = aux[i];
}

/* Returns the rows over which the loss is a mean: the microbatch's, even if a slice or a team's member has only some.
 */
static int32_t rows_of_mean(const struct cuda_call *c) {
    return c->m->slices > 0 || c->l->part.members > 0 ? c->m->rows : c->l->rows;
}

/* Returns the divisor of the loss whose gradient this is: the rows of the mean, times the step's microbatches if one
 * update ends the step. Dividing a gradient by it is exact for a power of two, and correctly rounded otherwise. */
static float count(const struct cuda_call *c) {
    return (float)rows_of_mean(c) * (float)(c->m->update > 0 ? 1 : c->m->batches);
}

static divisor divisor_of(const struct cuda_call *c) { return {count(c), c->at->batch->counted}; }

/* Reports the loss; a slice's share, and a mean over labels, is reported as in loss_host.c. */
static void report(const struct cuda_call *c) {
    const int64_t *counted = c->at->batch->counted;
    double rows = !counted ? rows_of_mean(c) : c->m->update > 0 ? 1 : 1.0 / c->m->batches;
    if (c->at->loss)
        LAUNCH(mean, 1, TALL, 0, c->stream, c->at->loss, cuda_at<double>(c, c->l->tmp), c->l->rows,
               rows / pieces_of_batch(c->m), counted, counted && c->m->update > 0);
}

static int threads_of_row(int packs) {
    int threads = packs < TALL ? (packs + 31) / 32 * 32 : TALL;
    return threads < 32 ? 32 : threads;
}

template <typename T> static void cross_entropy_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH_ROWS(cross_entropy, T, l->in, l->rows, threads_of_row(l->in / WIDE<T>), c->stream, cuda_at<T>(c, l->aux),
                cuda_at<double>(c, l->tmp), cuda_x<T>(c), c->at->batch->target, divisor_of(c), l->in);
    report(c);
}

template <typename T> static void cross_entropy_give(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH_ROWS(row_statistics, T, l->in, l->rows, threads_of_row(l->in / WIDE<T>), c->stream,
                (float *)(void *)c->at->at[SP_GIVE], cuda_x<T>(c), c->at->batch->target, l->share.member * l->in,
                l->in);
}

template <typename T> static void cross_entropy_get(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH_ROWS(part_cross_entropy, T, l->in, l->rows, threads_of_row(l->in / WIDE<T>), c->stream,
                cuda_at<T>(c, l->aux), cuda_at<double>(c, l->tmp), cuda_x<T>(c),
                (const float *)(const void *)c->at->at[SP_GOT], statistics_bytes(l) / 4, l->share.members,
                c->at->batch->target, l->share.member * l->in, divisor_of(c), l->in);
    report(c);
}

template <typename T> static void mse_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH((mse<T>), blocks_for(l->rows, WARPS), THREADS, 0, c->stream, cuda_at<T>(c, l->aux),
           cuda_at<double>(c, l->tmp), cuda_x<T>(c), c->at->batch->y, count(c), l->rows, l->in);
    report(c);
}

template <typename T> static void mean_of_rows(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    LAUNCH((row_losses<T>), blocks_for(l->rows, THREADS), THREADS, 0, c->stream, cuda_at<T>(c, l->aux),
           cuda_at<double>(c, l->tmp), cuda_x<T>(c), c->at->batch->target, divisor_of(c), l->rows);
    report(c);
}

template <typename T> static void loss_input(const struct cuda_call *c) {
    int64_t n = (int64_t)c->l->rows * c->l->in;
    T *dx = cuda_at<T>(c, c->l->dx), *aux = cuda_at<T>(c, c->l->aux);
    if (dx != aux)
        LAUNCH((copy_gradient<T>), blocks_for(n, THREADS * WIDE<T>), THREADS, 0, c->stream, dx, aux, n);
}

const struct cuda_layer cuda_cross_entropy = {EITHER(cross_entropy_forward), EITHER(loss_input), NULL};
const struct cuda_halves cuda_cross_entropy_halves = {EITHER(cross_entropy_give), EITHER(cross_entropy_get), NULL,
                                                      NULL};
const struct cuda_layer cuda_mse = {EITHER(mse_forward), EITHER(loss_input), NULL};
const struct cuda_layer cuda_mean_loss = {EITHER(mean_of_rows), EITHER(loss_input), NULL};
