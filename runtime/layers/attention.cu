/* Causal attention (attend.h), fused as in FlashAttention (Dao et al. 2022; Dao 2023), and the layer of
 * attention_host.c, with the same aux and tmp. Only one tile of the matrix of probabilities exists at a time, in
 * registers.
 *
 * A block has 64 rows of one sequence and head, 16 per warp, and loops over tiles of columns in shared memory. The rows
 * are queries in the forward and for dq. For dk and dv they are keys, and the tile is transposed. So one thread sums
 * each gradient, in one order, and no pass adds to another's results.
 *
 * Blocks with the longest rows come first. Heads have up to 128 columns, padded in shared memory to the next size that
 * has a kernel. */
#include "attention_tiles.cuh"
#include "cuda_math.cuh"
#include "keys.h"
#include <assert.h>

static constexpr float LOG2_E = 1.44269504f;

/* ---- segments ---- */

enum { MOST_SEGMENTS = CUDA_SLICES }; /* a kernel has 4 KiB of parameters */

struct attention {
    struct attend a; /* its segments are those below */
    float scale;
    struct segment segment[MOST_SEGMENTS];
};

/* Returns a block's first row in a tensor: the row of its sequence, at its head. */
template <typename T>
static __device__ __forceinline__ T *block_rows(T *tensor, int64_t row, int stride, int head, int dim) {
    return tensor + row * stride + (int64_t)head * dim;
}
template <typename T>
static __device__ __forceinline__ const T *keys_of(const void *k, const attend &a, const segment &s, int sequence,
                                                   int key) {
    return block_rows((const T *)k, row_of_sequence(&a, sequence, s.rows), s.stride, key, a.dim);
}

/* Iterates over the tiles of C columns that queries up to a position see. The tile begins at column j of segment s,
 * whose first `end` columns the queries see. It starts before the first tile, and has ended when s is the number of
 * segments. */
struct tiles {
    int s, j, end;
};
template <int C> static __device__ __forceinline__ void next_tile(tiles &at, const attention &t, int position) {
    at.j += C;
    while (at.j >= at.end && ++at.s < t.a.nsegments) {
        at.j = 0;
        at.end = seen_of(&t.segment[at.s], position);
    }
}

/* Returns the last of a segment's columns that the query at a position sees. */
static __device__ __forceinline__ int last_seen(const segment &s, int position) {
    return min(position - s.first, s.rows - 1);
}

/* ---- forward: v's tile loads while k's is in use, and k's next tile while v's is ---- */

/* Turns scores into exp(s - top); rescales o and sum to the new top, and adds this lane's part to sum. */
template <int N, int K>
static __device__ __forceinline__ void rescale_scores(float (&s)[K][4], float (&o)[N][4], float (&top)[2],
                                                      float (&sum)[2], float scale2) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = top[half];
#pragma unroll
        for (int n = 0; n < K; n++)
            most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        most = quad_max(most);
        float shrink = exp2f((top[half] - most) * scale2);
        top[half] = most;
        sum[half] *= shrink;
#pragma unroll
        for (int n = 0; n < N; n++) {
            o[n][2 * half] *= shrink;
            o[n][2 * half + 1] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < K; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++)
                sum[half] += s[n][i] = exp2f((s[n][i] - most) * scale2);
    }
}

template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, RESIDENT<T>) forward(const __grid_constant__ attention t) {
    constexpr int C = COLUMNS<T, D>, S = STRIDE<T, D>;
    DYNAMIC_SHARED(T, q);
    T *k = q + ROWS * S, *v = k + C * S;
    int head = (int)blockIdx.x % t.a.heads, sequence = (int)blockIdx.x / t.a.heads, dim = t.a.dim;
    int key = head / (t.a.heads / t.a.kv_heads);
    int64_t base = row_of_sequence(&t.a, sequence, t.a.rows);
    int from = (int)(gridDim.y - 1 - blockIdx.y) * ROWS, first = from + (int)threadIdx.x / 32 * 16;
    int end = t.a.first + min(from + ROWS, t.a.rows) - 1;
    float o[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    auto load = [&](T *tile, const void *x, tiles at) {
        const segment &s = t.segment[at.s];
        load_tile<C, D>(tile, keys_of<T>(x, t.a, s, sequence, key), s.stride, at.j, s.rows, dim);
    };
    tiles at = {-1, 0, 0};
    next_tile<C>(at, t, end);
    load_tile<ROWS, D>(q, block_rows((const T *)t.a.q, base, t.a.q_stride, head, dim), t.a.q_stride, from, t.a.rows,
                       dim);
    load(k, t.segment[at.s].k, at);
    while (at.s < t.a.nsegments) {
        tiles next = at;
        int j = at.j;
        next_tile<C>(next, t, end);
        await_tiles(); /* k */
        load(v, t.segment[at.s].v, at);
        float s[C / 8][4] = {};
        tile_scores<D>(s, q + (first - from) * S, k);
        int seen = last_seen(t.segment[at.s], t.a.first + first);
        if (j + C - 1 > seen)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int last = last_seen(t.segment[at.s], t.a.first + first + lane_row(i));
#pragma unroll
                for (int n = 0; n < C / 8; n++)
                    s[n][i] = j + lane_column(n, i) > last ? -INFINITY : s[n][i];
            }
        rescale_scores(s, o, top, sum, t.scale * LOG2_E);
        await_tiles(); /* v */
        at = next;
        if (at.s < t.a.nsegments)
            load(k, t.segment[at.s].k, at);
        combine<D>(o, s, v);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = first + lane_row(2 * half);
        sum[half] = quad_sum(sum[half]);
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            o[n][2 * half] /= sum[half];
            o[n][2 * half + 1] /= sum[half];
        }
        if (threadIdx.x % 4 == 0 && row < t.a.rows)
            t.a.lse[(base + row) * t.a.heads + head] = top[half] * t.scale + logf(sum[half]);
    }
    store_rows(block_rows((T *)t.a.y, base, t.a.y_stride, head, dim), t.a.y_stride, o, first + lane_row(0), t.a.rows,
               dim, false);
}

/* ---- backward: p = exp(s - lse), ds = p (dp - D). First dq, whose kernel also stores D, then dk and dv ----
 *
 * A pair of tiles is in use from the first product to the last, so the next pair needs a place of its own. */

/* Returns the place of the n-th pair. */
template <int C, int D, typename T> static __device__ __forceinline__ T *pair_of(T *tiles, int n) {
    return tiles + n % 2 * 2 * C * STRIDE<T, D>;
}

/* Computes D = rowsum(dy y) for this lane's two rows, from tiles. */
template <int D, typename T> static __device__ __forceinline__ void row_dots(float (&d)[2], const T *dy, const T *y) {
    for (int half = 0; half < 2; half++) {
        int row = lane_row(2 * half) * STRIDE<T, D>;
        d[half] = 0;
        for (int j = threadIdx.x % 4; j < D; j += 4)
            d[half] += widen(dy[row + j]) * widen(y[row + j]);
        d[half] = quad_sum(d[half]);
    }
}

template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, RESIDENT<T>) query_gradient(const __grid_constant__ attention t) {
    constexpr int C = COLUMNS_BACK<T, D>, S = STRIDE<T, D>;
    DYNAMIC_SHARED(T, q);
    T *dy = q + ROWS * S, *pairs = dy + ROWS * S, *y = pairs; /* y only at first */
    int head = (int)blockIdx.x % t.a.heads, sequence = (int)blockIdx.x / t.a.heads, dim = t.a.dim;
    int key = head / (t.a.heads / t.a.kv_heads), rows = t.a.rows;
    int64_t base = row_of_sequence(&t.a, sequence, rows);
    int from = (int)(gridDim.y - 1 - blockIdx.y) * ROWS, first = from + (int)threadIdx.x / 32 * 16;
    int end = t.a.first + min(from + ROWS, rows) - 1;
    float dq[D / 8][4] = {}, d[2], lse2[2];
    load_tile<ROWS, D>(q, block_rows((const T *)t.a.q, base, t.a.q_stride, head, dim), t.a.q_stride, from, rows, dim);
    load_tile<ROWS, D>(dy, block_rows((const T *)t.a.dy, base, t.a.y_stride, head, dim), t.a.y_stride, from, rows, dim);
    load_tile<ROWS, D>(y, block_rows((const T *)t.a.y, base, t.a.y_stride, head, dim), t.a.y_stride, from, rows, dim);
    await_tiles();
    row_dots<D>(d, dy + (first - from) * S, y + (first - from) * S);
    for (int half = 0; half < 2; half++) {
        int row = first + lane_row(2 * half);
        int64_t at = (base + row) * t.a.heads + head;
        lse2[half] = row < rows ? t.a.lse[at] * LOG2_E : 0;
        if (threadIdx.x % 4 == 0 && row < rows)
            t.a.d[at] = d[half];
    }
    __syncthreads(); /* y's place is free */
    auto load = [&](int n, tiles at) {
        const segment &s = t.segment[at.s];
        T *to = pair_of<C, D>(pairs, n);
        load_tile<C, D>(to, keys_of<T>(s.k, t.a, s, sequence, key), s.stride, at.j, s.rows, dim);
        load_tile<C, D>(to + C * S, keys_of<T>(s.v, t.a, s, sequence, key), s.stride, at.j, s.rows, dim);
    };
    tiles at = {-1, 0, 0};
    next_tile<C>(at, t, end);
    load(0, at);
    for (int n = 0; at.s < t.a.nsegments; n++) {
        const T *k = pair_of<C, D>(pairs, n), *v = k + C * S;
        int j = at.j, last[2];
        for (int half = 0; half < 2; half++)
            last[half] = last_seen(t.segment[at.s], t.a.first + first + lane_row(2 * half));
        await_tiles();
        next_tile<C>(at, t, end);
        if (at.s < t.a.nsegments)
            load(n + 1, at);
        float s[C / 8][4] = {}, dp[C / 8][4] = {};
        tile_scores<D>(s, q + (first - from) * S, k);
        tile_scores<D>(dp, dy + (first - from) * S, v);
#pragma unroll
        for (int m = 0; m < C / 8; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float p = exp2f(s[m][i] * (t.scale * LOG2_E) - lse2[i / 2]);
                bool unseen = j + lane_column(m, i) > last[i / 2];
                s[m][i] = unseen ? 0 : t.scale * p * (dp[m][i] - d[i / 2]);
            }
        combine<D>(dq, s, k);
    }
    store_rows(block_rows((T *)t.a.dq, base, t.a.dq_stride, head, dim), t.a.dq_stride, dq, first + lane_row(0), rows,
               dim, false);
}

/* Begins to load lse and D for C queries from row j on; row 0 of the queries lies at `at`. Past the last row they are
 * 0, as dy is, so these rows contribute nothing. */
template <int C> static __device__ __forceinline__ void load_stats(float *stats, const attend &a, int64_t at, int j) {
    const int i = (int)threadIdx.x, row = j + i % C;
    if (i >= 2 * C)
        return;
    if (row < a.rows)
        __pipeline_memcpy_async(stats + i, (i < C ? a.lse : a.d) + (at + (int64_t)row * a.heads), sizeof *stats);
    else
        stats[i] = 0;
}

/* Turns scores of keys, with a tile's queries in columns, into p. Columns from `first` on see key 0, and each further
 * key is seen from one column later. */
template <int K>
static __device__ __forceinline__ void key_probabilities(float (&p)[K][4], const float *lse, float scale, int first) {
#pragma unroll
    for (int m = 0; m < K; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool unseen = lane_column(m, i) < first + lane_row(i);
            float lse2 = __fmul_rn(lse[lane_column(m, i)], LOG2_E); /* _rn: rounded, as query_gradient's */
            p[m][i] = unseen ? 0 : exp2f(p[m][i] * (scale * LOG2_E) - lse2);
        }
}

/* A block has rows of one segment. For each head that reads their key head, in turn, it iterates over the queries that
 * see any of these rows. */
template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, 2) key_gradient(const __grid_constant__ attention t) {
    constexpr int C = COLUMNS_BACK<T, D>, S = STRIDE<T, D>;
    DYNAMIC_SHARED(T, k);
    T *v = k + ROWS * S, *pairs = v + ROWS * S;
    float *stats = (float *)(pairs + 4 * C * S); /* lse and D, also in pairs */
    const segment &s = t.segment[blockIdx.z];
    int key = (int)blockIdx.x % t.a.kv_heads, sequence = (int)blockIdx.x / t.a.kv_heads, dim = t.a.dim;
    int group = t.a.heads / t.a.kv_heads, rows = t.a.rows;
    int64_t base = row_of_sequence(&t.a, sequence, rows), own = row_of_sequence(&t.a, sequence, s.rows);
    int from = (int)blockIdx.y * ROWS, first = from + (int)threadIdx.x / 32 * 16;
    int ahead = s.first - t.a.first; /* position of the segment's row 0, relative to the first query */
    int begin = max(ahead + from, 0) / C * C;
    if (from >= s.rows) /* a longer segment has more blocks */
        return;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    auto fetch = [&](int n, int j, int member) {
        int head = key * group + member;
        T *to = pair_of<C, D>(pairs, n);
        load_tile<C, D>(to, block_rows((const T *)t.a.q, base, t.a.q_stride, head, dim), t.a.q_stride, j, rows, dim);
        load_tile<C, D>(to + C * S, block_rows((const T *)t.a.dy, base, t.a.y_stride, head, dim), t.a.y_stride, j, rows,
                        dim);
        load_stats<C>(stats + n % 2 * 2 * C, t.a, base * t.a.heads + head, j);
    };
    load_tile<ROWS, D>(k, keys_of<T>(s.k, t.a, s, sequence, key), s.stride, from, s.rows, dim);
    load_tile<ROWS, D>(v, keys_of<T>(s.v, t.a, s, sequence, key), s.stride, from, s.rows, dim);
    fetch(0, begin, 0);
    for (int n = 0, member = begin < rows ? 0 : group, next = begin; member < group; n++) {
        const T *q = pair_of<C, D>(pairs, n), *dy = q + C * S;
        const float *lse = stats + n % 2 * 2 * C, *d = lse + C;
        int j = next;
        await_tiles();
        next += C;
        if (next >= rows) {
            next = begin;
            member++;
        }
        if (member < group)
            fetch(n + 1, next, member);
        float p[C / 8][4] = {}, dp[C / 8][4] = {};
        tile_scores<D>(p, k + (first - from) * S, q);
        key_probabilities(p, lse, t.scale, ahead + first - j);
        combine<D>(dv, p, dy);
        tile_scores<D>(dp, v + (first - from) * S, dy);
#pragma unroll
        for (int m = 0; m < C / 8; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[m][i] *= t.scale * (dp[m][i] - d[lane_column(m, i)]);
        combine<D>(dk, p, q);
    }
    store_rows(block_rows((T *)s.dk, own, s.dstride, key, dim), s.dstride, dk, first + lane_row(0), s.rows, dim, s.add);
    store_rows(block_rows((T *)s.dv, own, s.dstride, key, dim), s.dstride, dv, first + lane_row(0), s.rows, dim, s.add);
}

/* ---- launches ---- */

/* A kernel must opt in to more than 48 KiB of shared memory. */
static void launch_attention(void (*kernel)(attention), dim3 grid, size_t shared, const attention &t,
                             cudaStream_t stream) {
    if (shared > 48 << 10)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    LAUNCH(kernel, grid, THREADS, shared, stream, t);
}

static dim3 grid_of_queries(const attention &t) {
    return dim3((unsigned)(t.a.sequences * t.a.heads), blocks_for(t.a.rows, ROWS));
}
static dim3 grid_of_keys(const attention &t) {
    int most = 0;
    for (int i = 0; i < t.a.nsegments; i++)
        most = max(most, t.segment[i].rows);
    return dim3((unsigned)(t.a.sequences * t.a.kv_heads), blocks_for(most, ROWS), (unsigned)t.a.nsegments);
}

template <typename T, int D> static void launch_forward(const attention &t, cudaStream_t stream) {
    launch_attention(forward<T, D>, grid_of_queries(t), STRIDE<T, D> * sizeof(T) * (ROWS + 2 * COLUMNS<T, D>), t,
                     stream);
}
template <typename T, int D> static void launch_backward(const attention &t, cudaStream_t stream) {
    size_t tiles = STRIDE<T, D> * sizeof(T) * (2 * ROWS + 4 * COLUMNS_BACK<T, D>);
    launch_attention(query_gradient<T, D>, grid_of_queries(t), tiles, t, stream);
    launch_attention(key_gradient<T, D>, grid_of_keys(t), tiles + 4 * COLUMNS_BACK<T, D> * sizeof(float), t, stream);
}

#define BY_HEAD(f, T, t, stream)                                                                                       \
    do {                                                                                                               \
        int dim = (t).a.dim;                                                                                           \
        assert(dim <= CUDA_HEAD);                                                                                      \
        (dim <= 16   ? f<T, 16>                                                                                        \
         : dim <= 32 ? f<T, 32>                                                                                        \
         : dim <= 64 ? f<T, 64>                                                                                        \
         : dim <= 80 ? f<T, 80>                                                                                        \
         : dim <= 96 ? f<T, 96>                                                                                        \
                     : f<T, 128>)(t, stream);                                                                          \
    } while (0)

static attention with_segments(const struct attend *a) {
    attention t = {};
    assert(a->nsegments <= MOST_SEGMENTS && a->segment[0].first <= a->first);
    t.a = *a;
    t.scale = 1 / sqrtf((float)a->dim);
    for (int i = 0; i < a->nsegments; i++)
        t.segment[i] = a->segment[i];
    return t;
}

void cuda_attend(const struct attend *a, int precision, cudaStream_t stream) {
    attention t = with_segments(a);
    if (precision == BF16)
        BY_HEAD(launch_forward, __nv_bfloat16, t, stream);
    else
        BY_HEAD(launch_forward, float, t, stream);
}

void cuda_attend_backward(const struct attend *a, int precision, cudaStream_t stream) {
    attention t = with_segments(a);
    if (precision == BF16)
        BY_HEAD(launch_backward, __nv_bfloat16, t, stream);
    else
        BY_HEAD(launch_backward, float, t, stream);
}

/* ---- rope ---- */

struct turns {
    double of[CUDA_HEAD / 2]; /* each pair's turns from one position to the next */
};

/* Rotates the heads that lie side by side in each row of x, or rotates their gradients back. */
template <typename T>
static __global__ void rotate(T *x, int rows, int stride, int heads, int dim, positions at,
                              const __grid_constant__ turns by, bool back) {
    __shared__ rotation of[CUDA_HEAD / 2];
    int half = dim / 2, i = (int)threadIdx.x % half;
    double turn = by.of[i];
    for (int row = (int)blockIdx.x; row < rows; row += (int)gridDim.x) {
        if ((int)threadIdx.x < half)
            of[i] = rope_rotation((back ? -1 : 1) * position_of(&at, row) * turn);
        __syncthreads();
        for (int p = (int)threadIdx.x; p < heads * half; p += THREADS) {
            T *left = x + (int64_t)row * stride + p / half * dim + p % half;
            float a = widen(left[0]), b = widen(left[half]);
            rotation r = of[p % half];
            left[0] = narrow<T>(a * r.cosine - b * r.sine);
            left[half] = narrow<T>(b * r.cosine + a * r.sine);
        }
        __syncthreads(); /* before the next row's */
    }
}

template <typename T> static void rotate_all(const struct cuda_call *c, T *x, bool back) {
    const struct rt_layer *l = c->l;
    const struct attention_config *of = &l->config.attention;
    enum { BLOCKS = 132 * 8 };
    int dim = head_columns(l);
    turns by = {};
    if (of->rope == 0)
        return;
    assert(dim <= CUDA_HEAD);
    for (int i = 0; i < dim / 2; i++)
        by.of[i] = rope_turns(l, i, dim);
    LAUNCH(rotate<T>, (unsigned)min(l->rows, (int)BLOCKS), THREADS, 0, c->stream, x, l->rows, l->in,
           of->heads + of->kv_heads, dim, positions_of(l), by, back);
}
void cuda_rotate(const struct cuda_call *c, struct slot x, bool back) {
    if (c->m->precision == BF16)
        rotate_all(c, cuda_at<__nv_bfloat16>(c, x), back);
    else
        rotate_all(c, cuda_at<float>(c, x), back);
}

/* ---- the layer ---- */

struct strips {
    strip at[3];
};

/* A thread copies V columns of a row; blocks of y copy strip y. */
template <typename T, int V> static __global__ void copy_rows(const __grid_constant__ strips all, int rows) {
    const strip &s = all.at[blockIdx.y];
    unsigned across = s.n / V, i = blockIdx.x * THREADS + threadIdx.x, row = i / across, j = i % across * V;
    if (row >= (unsigned)rows)
        return;
    const T *from = (const T *)s.from + (int64_t)row * s.from_stride + j;
    store((T *)s.to + (int64_t)row * s.to_stride + j, load<V>(from));
}

/* Copies n strips of whole heads. */
template <typename T> static void copy_strips(const struct cuda_call *c, const strips &all, int n) {
    const struct rt_layer *l = c->l;
    int dim = l->out / l->config.attention.heads, each = dim % WIDE<T> == 0 ? WIDE<T> : 1;
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        most = max(most, (int64_t)l->rows * (all.at[i].n / each));
    if (n > 0)
        LAUNCH_ROWS(copy_rows, T, dim, dim3(blocks_for(most, THREADS), (unsigned)n), THREADS, c->stream, all, l->rows);
}

/* With rope, q and k are rotated in place: layers.c makes sure that nothing else reads them. */
template <typename T> static void attention_forward(const struct cuda_call *c) {
    struct segment segment[MOST_SEGMENTS];
    strips kept = {};
    if (c->l->part.members > 0) {
        cuda_attend_to_team(c, false);
        return;
    }
    cuda_rotate(c, c->l->x, false);
    copy_strips<T>(c, kept, kept_strips(c->l, c->at, sizeof(T), kept.at));
    struct attend a = attend_of(c->l, c->at, sizeof(T), false, segment);
    if (!cuda_attention_cudnn(c, true))
        cuda_attend(&a, c->m->precision, c->stream);
}
template <typename T> static void attention_input(const struct cuda_call *c) {
    struct segment segment[MOST_SEGMENTS];
    strips sent = {};
    if (c->l->part.members > 0) {
        cuda_attend_to_team(c, true);
        return;
    }
    if (c->at->dkv) {
        keys_and_values(c->l, slot_at(c->at, c->l->dx), own_gradients(c->l, c->at, sizeof(T)), false, sizeof(T),
                        sent.at);
        copy_strips<T>(c, sent, 2);
    }
    struct attend a = attend_of(c->l, c->at, sizeof(T), true, segment);
    if (!cuda_attention_cudnn(c, false))
        cuda_attend_backward(&a, c->m->precision, c->stream);
    cuda_rotate(c, c->l->dx, true);
}

const struct cuda_layer cuda_attention = {EITHER(attention_forward), EITHER(attention_input), NULL};
