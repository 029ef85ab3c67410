/* Updates of a whole stage in one launch. Gaps between the layers' parameters are zero in weights, gradients and state,
 * and an update keeps them zero. fp32 weights equal the host's bit for bit: optim.h.
 *
 * The state is all fp32: with bf16, the master weights, from which the weights are rounded; then the moments that
 * OPTIMIZERS names, each laid out like the weights. Step 1 takes the moments as zero. */
#include "optim.cuh"

enum { THREADS = 256, BLOCKS = 132 * 8 };

/* Steps one weight, given its scaled gradient and its moments. */
template <int OPTIMIZER>
static __device__ void step(const struct rt_model *m, const struct update_rates *r, float decay, float g, float *w,
                            float *moment) {
#define X(NAME, name, ...)                                                                                             \
    if constexpr (OPTIMIZER == OPT_##NAME)                                                                             \
        name##_step(m, r, decay, g, w, moment);
    OPTIMIZERS(X)
#undef X
}

/* The optimizer that steps a launch's elements. */
#define X(NAME, ...) || OPTIMIZER == OPT_##NAME
template <int OPTIMIZER> constexpr int ELEMENTWISE = false MATRIX_OPTIMIZERS(X) ? OPT_ADAMW : OPTIMIZER;
#undef X

/* A launch's elements, [from, to), and the turns among them: where weights that decay begin and end, alternately. */
enum { MOST_TURNS = 192 };
struct range {
    int64_t from, to;
    int32_t turns;
    int64_t turn[MOST_TURNS];
};

/* Updates a range of n elements. n and to are multiples of 4, since a layer's parameters are whole lines of memory.
 * from need not be, if it follows a matrix that was stepped whole; elements before it stay as they are. */
template <typename T, int OPTIMIZER, int MOMENTS>
static __global__ void update(T *w, const float *dw, float scale, const uint64_t *norm, float *opt, int64_t n,
                              struct rt_model m, struct cuda_number number, struct range range) {
    constexpr bool MASTER = sizeof(T) < sizeof(float);
    float *master = MASTER ? opt : (float *)w, *moments = opt + (MASTER ? n : 0);
    const int64_t count = update_count(number);
    bool begin = count == 1;
    const int64_t from = range.from;
    int turn = 0;
    __shared__ struct update_rates r;
    if (stands(number))
        return;
    if (threadIdx.x == 0)
        r = rates_of_update(&m, gradient_scale(m, scale, norm, number), count, number.of);
    __syncthreads();
    for (int64_t i = from / 4 * 4 + ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4; i < range.to;
         i += (int64_t)gridDim.x * THREADS * 4) {
        pack<T, 4> rounded;
        pack<float, 4> x = load<4>(master + i), g = load<4>(dw + i), moment[MOMENTS + 1] = {};
        for (int j = 0; j < MOMENTS && (!begin || i < from); j++)
            moment[j] = load<4>(moments + j * n + i);
        for (int k = 0; k < 4; k++) {
            float mine[MOMENTS + 1];
            while (turn < range.turns && range.turn[turn] <= i + k)
                turn++;
            for (int j = 0; j < MOMENTS; j++)
                mine[j] = begin ? 0 : moment[j].v[k];
            if (i + k >= from)
                step<OPTIMIZER>(&m, &r, turn % 2 ? m.decay : 0, times(r.scale, g.v[k]), &x.v[k], mine);
            for (int j = 0; j < MOMENTS && i + k >= from; j++)
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

struct launch {
    const struct rt_update *u;
    const struct cuda_number *number;
    cudaStream_t stream;
    struct range range;
};

template <typename T> static void update_range(const struct launch *a) {
    const struct rt_update *u = a->u;
    const struct rt_model *m = u->piece.m;
    const float scale = update_scale(m, u->piece.s);
    unsigned blocks = min(blocks_for(a->range.to - a->range.from / 4 * 4, THREADS * 4), (unsigned)BLOCKS);
    switch (m->optimizer) {
#define X(NAME, name, moments, ...)                                                                                    \
    case OPT_##NAME:                                                                                                   \
        LAUNCH((update<T, ELEMENTWISE<OPT_##NAME>, (int)sizeof moments - 1>), blocks, THREADS, 0, a->stream,           \
               (T *)u->w, u->dw, scale, u->norm, u->opt, u->piece.n, *m, *a->number, a->range);                        \
        break;
        OPTIMIZERS(X)
#undef X
    }
}

static void flush_launch(struct launch *a, int64_t to) {
    a->range.to = to;
    if (to > a->range.from && a->u->piece.m->precision == BF16)
        update_range<__nv_bfloat16>(a);
    else if (to > a->range.from)
        update_range<float>(a);
    a->range.from = to;
    a->range.turns = 0;
}

static void turn(struct range *range, int64_t at) {
    if (range->turns > 0 && range->turn[range->turns - 1] == at)
        range->turns--; /* decay continues where one parameter ends and the next begins */
    else
        range->turn[range->turns++] = at;
}

/* A launch has room for a limited number of turns; if nothing decays, there is only one launch. */
void cuda_update_part(const struct rt_update *u, int64_t from, int64_t to, const struct cuda_number *number,
                      cudaStream_t stream) {
    const struct rt_model *m = u->piece.m;
    const struct rt_stage *s = u->piece.s;
    struct launch a = {u, number, stream, {from, 0, 0, {0}}};
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers && m->decay > 0; l++) {
        const struct rt_parameters all = parameters_of(m, l, shared_table(m, l) > 0);
        int64_t end = l->param / precision_bytes(m->precision) - u->piece.first;
        if (l->set != SET_OWN || end >= to)
            continue;
        if (a.range.turns > MOST_TURNS - 2 * MOST_PARAMETERS && end > a.range.from)
            flush_launch(&a, end);
        for (int i = 0; i < all.n; i++) {
            int64_t begin = end;
            end += all.at[i].count;
            if (!decays(&all.at[i]) || end <= from)
                continue;
            turn(&a.range, begin);
            turn(&a.range, end);
        }
    }
    flush_launch(&a, to);
}

/* Counts a pass. At a step's beginning the period has not run: its first repetition sets counted[1] to 0. */
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
