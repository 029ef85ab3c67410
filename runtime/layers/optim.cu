/* Updates of a whole stage in one launch. Gaps between the layers' parameters are zero in weights, gradients and state,
 * and an update keeps them so. Products are rounded on their own (__fmul_rn), as they are on the host, so that fp32
 * weights equal the host's bit for bit.
 *
 * State, fp32 throughout: with bf16 the master weights, from which the weights are rounded; then the moments that
 * OPTIMIZERS names, each laid out as the weights are. Step 1 takes the moments as zero. */
#include "cuda.cuh"

enum { THREADS = 256, BLOCKS = 132 * 8 };

struct rates {
#define X(name) float name;
    RATES(X)
#undef X
    float unbias, unbias2;
};

static __device__ double power(double x, int64_t n) {
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}

/* An optimizer: what is the same for all weights of a step, and the step of one, given its moments in their order. */
struct sgd {
    static __device__ void prepare(struct rates *, int64_t) {}
    static __device__ void step(const struct rates &p, float *w, float dw, float *) { *w -= __fmul_rn(p.lr, dw); }
};

/* Loshchilov & Hutter 2019, algorithm 2, with the decay decoupled and scaled by the learning rate. */
struct adamw {
    static __device__ void prepare(struct rates *p, int64_t step) {
        p->unbias = (float)(1 / (1 - power((double)p->beta1, step)));
        p->unbias2 = (float)(1 / (1 - power((double)p->beta2, step)));
    }
    static __device__ void step(const struct rates &p, float *w, float dw, float *moment) {
        float *mean = &moment[0], *square = &moment[1];
        *mean = __fmul_rn(p.beta1, *mean) + __fmul_rn(1 - p.beta1, dw);
        *square = __fmul_rn(p.beta2, *square) + __fmul_rn(__fmul_rn(1 - p.beta2, dw), dw);
        float move = __fmul_rn(*mean, p.unbias) / (sqrtf(__fmul_rn(*square, p.unbias2)) + p.eps);
        *w -= __fmul_rn(p.lr, move + __fmul_rn(p.decay, *w));
    }
};

/* n is a multiple of 4: a stage's weights are whole lines of memory. */
template <typename T, typename O, int MOMENTS>
static __global__ void update(T *w, const float *dw, float scale, float *opt, int64_t n, struct rates rates,
                              struct cuda_number number, const float *lr) {
    constexpr bool MASTER = sizeof(T) < sizeof(float);
    float *master = MASTER ? opt : (float *)w, *moments = opt + (MASTER ? n : 0);
    int64_t step = (number.counted[0] - 1) * number.each + number.place + 1;
    step += number.more > 0 ? number.counted[1] * number.more : 0;
    bool begin = step == 1;
    __shared__ struct rates p;
    if (threadIdx.x == 0) {
        p = rates;
        p.lr = *lr;
        O::prepare(&p, step);
    }
    __syncthreads();
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4; i < n; i += (int64_t)gridDim.x * THREADS * 4) {
        pack<T, 4> rounded;
        pack<float, 4> x = load<4>(master + i), g = load<4>(dw + i), moment[MOMENTS + 1] = {};
        for (int j = 0; j < MOMENTS && !begin; j++)
            moment[j] = load<4>(moments + j * n + i);
        for (int k = 0; k < 4; k++) {
            float mine[MOMENTS + 1];
            for (int j = 0; j < MOMENTS; j++)
                mine[j] = moment[j].v[k];
            O::step(p, &x.v[k], __fmul_rn(scale, g.v[k]), mine);
            for (int j = 0; j < MOMENTS; j++)
                moment[j].v[k] = mine[j];
            rounded.v[k] = narrow<T>(x.v[k]);
        }
        store(master + i, x);
        if (MASTER)
            store(w + i, rounded);
        for (int j = 0; j < MOMENTS; j++)
            store(moments + j * n + i, moment[j]);
    }
}

template <typename T>
static void update_stage(const struct rt_model *m, int64_t n, T *w, const float *dw, float scale, float *opt,
                         const struct cuda_number *number, const float *lr, cudaStream_t stream) {
#define X(name) m->name,
    struct rates rates = {RATES(X) 1, 1};
#undef X
    unsigned blocks = blocks_for(n, THREADS * 4);
    blocks = min(blocks, (unsigned)BLOCKS);
    switch (m->optimizer) {
#define X(NAME, name, moments, ...)                                                                                    \
    case OPT_##NAME:                                                                                                   \
        LAUNCH((update<T, name, (int)sizeof moments - 1>), blocks, THREADS, 0, stream, w, dw, scale, opt, n, rates,    \
               *number, lr);                                                                                           \
        break;
        OPTIMIZERS(X)
#undef X
    }
}

void cuda_update(const struct rt_model *m, int64_t n, void *w, const float *dw, float scale, float *opt,
                 const struct cuda_number *number, const float *lr, cudaStream_t stream) {
    if (n == 0)
        return;
    if (m->precision == BF16)
        update_stage(m, n, (__nv_bfloat16 *)w, dw, scale, opt, number, lr, stream);
    else
        update_stage(m, n, (float *)w, dw, scale, opt, number, lr, stream);
}

/* A step that begins has not moved the period on yet: its first repetition makes that 0. */
static __global__ void count(int64_t *counted, int pass, int64_t passes, uint32_t *reached, int n) {
    if (pass == PASS_BEGINS) {
        counted[0]++;
        counted[1] = -1;
    } else if (pass == PASS_REPEATS)
        counted[1]++;
    int64_t in_step = pass == PASS_BEGINS ? 1 : pass == PASS_REPEATS ? 2 + counted[1] : passes;
    for (int i = 0; i < n - 1 && pass == PASS_BEGINS; i++)
        reached[i] = 0;
    if (n > 0)
        reached[n - 1] = (uint32_t)((counted[0] - 1) * passes + in_step);
}

void cuda_count(int64_t *counted, enum cuda_pass pass, int64_t passes, uint32_t *reached, int n, cudaStream_t stream) {
    LAUNCH(count, 1, 1, 0, stream, counted, (int)pass, passes, reached, n);
}
