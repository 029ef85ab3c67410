/* Updates of a whole stage in one launch. Gaps between the layers' parameters are zero in weights, gradients and state,
 * and an update keeps them so. Products are rounded on their own (__fmul_rn), as they are on the host, so that fp32
 * weights equal the host's bit for bit.
 *
 * State, fp32 throughout: with bf16 the master weights, from which the weights are rounded; then AdamW's first moments,
 * then the second, each laid out as the weights are. Step 1 takes the moments as zero. */
#include "cuda.cuh"

enum { THREADS = 256, BLOCKS = 132 * 8 };

struct rates {
    float lr, beta1, beta2, eps, decay, unbias, unbias2;
};

static __device__ double power(double x, int64_t n) {
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}

static __device__ void sgd(float lr, float *w, float dw) { *w -= __fmul_rn(lr, dw); }

/* Loshchilov & Hutter 2019, algorithm 2, with the decay decoupled and scaled by the learning rate. */
static __device__ void adamw(const struct rates &p, float *w, float dw, float *mean, float *square) {
    *mean = __fmul_rn(p.beta1, *mean) + __fmul_rn(1 - p.beta1, dw);
    *square = __fmul_rn(p.beta2, *square) + __fmul_rn(__fmul_rn(1 - p.beta2, dw), dw);
    float move = __fmul_rn(*mean, p.unbias) / (sqrtf(__fmul_rn(*square, p.unbias2)) + p.eps);
    *w -= __fmul_rn(p.lr, move + __fmul_rn(p.decay, *w));
}

/* n is a multiple of 4: a stage's weights are whole lines of memory. */
template <typename T, bool ADAMW>
static __global__ void update(T *w, const float *dw, float *opt, int64_t n, struct rates rates, const int64_t *step,
                              const float *lr) {
    constexpr bool MASTER = sizeof(T) < sizeof(float);
    float *master = MASTER ? opt : (float *)w, *mean = opt + (MASTER ? n : 0), *square = mean + n;
    bool begin = *step == 1;
    __shared__ struct rates p;
    if (threadIdx.x == 0) {
        p = rates;
        p.lr = *lr;
        if (ADAMW) {
            p.unbias = (float)(1 / (1 - power((double)rates.beta1, *step)));
            p.unbias2 = (float)(1 / (1 - power((double)rates.beta2, *step)));
        }
    }
    __syncthreads();
    const pack<float, 4> zero = {};
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4; i < n; i += (int64_t)gridDim.x * THREADS * 4) {
        pack<T, 4> rounded;
        pack<float, 4> x = load<4>(master + i), g = load<4>(dw + i), a = zero, b = zero;
        if (ADAMW && !begin) {
            a = load<4>(mean + i);
            b = load<4>(square + i);
        }
        for (int k = 0; k < 4; k++) {
            if (ADAMW)
                adamw(p, &x.v[k], g.v[k], &a.v[k], &b.v[k]);
            else
                sgd(p.lr, &x.v[k], g.v[k]);
            rounded.v[k] = narrow<T>(x.v[k]);
        }
        store(master + i, x);
        if (MASTER)
            store(w + i, rounded);
        if (ADAMW) {
            store(mean + i, a);
            store(square + i, b);
        }
    }
}

template <typename T>
static void update_stage(const struct rt_model *m, int64_t n, T *w, const float *dw, float *opt, const int64_t *step,
                         const float *lr, cudaStream_t stream) {
    struct rates rates = {0, m->beta1, m->beta2, m->eps, m->decay, 1, 1};
    unsigned blocks = blocks_for(n, THREADS * 4);
    blocks = min(blocks, (unsigned)BLOCKS);
    if (m->optimizer == OPT_ADAMW)
        LAUNCH((update<T, true>), blocks, THREADS, 0, stream, w, dw, opt, n, rates, step, lr);
    else if (m->optimizer == OPT_SGD)
        LAUNCH((update<T, false>), blocks, THREADS, 0, stream, w, dw, opt, n, rates, step, lr);
}

void cuda_update(const struct rt_model *m, const struct rt_stage *s, void *w, const float *dw, float *opt,
                 const int64_t *step, const float *lr, cudaStream_t stream) {
    if (s->weight == 0)
        return;
    if (m->precision == BF16)
        update_stage(m, s->weight / 2, (__nv_bfloat16 *)w, dw, opt, step, lr, stream);
    else
        update_stage(m, s->weight / 4, (float *)w, dw, opt, step, lr, stream);
}

static __global__ void count(int64_t *step) { ++*step; }

void cuda_count(int64_t *step, cudaStream_t stream) { LAUNCH(count, 1, 1, 0, stream, step); }
