/* Causal multi-head self-attention, fused as in FlashAttention (Dao et al. 2022; Dao 2023): the layer of
 * attention_host.c, whose aux and tmp it shares. The square of probabilities exists a tile at a time, in registers.
 *
 * A block has 64 rows of one sequence and head, 16 per warp, and loops over tiles of columns in shared memory. The rows
 * are queries in the forward and for dq, keys for dk and dv, where the tile is the transposed one: so every gradient is
 * summed by one thread, in one order, and no pass writes what another adds to. Scores are a b^T with a and b in shared
 * memory, results p b with p in registers: the tensor cores produce scores in the layout that the second product needs.
 * fp32 keeps that layout and multiplies in fp32; bf16 uses the tensor cores.
 *
 * Blocks with the longest rows come first. Heads of up to 128 columns, padded in shared memory to the next size there
 * is a kernel for. */
#include "cuda_math.cuh"
#include <assert.h>
#include <cuda_pipeline_primitives.h> /* cp.async */

enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS };
static constexpr float LOG2_E = 1.44269504f;

/* Columns of a tile, and its row stride in shared memory, in elements: 16 bytes more than a head spread the 8 rows that
 * a warp reads at once over all banks. The backward holds two pairs of tiles. In fp32 they are narrower for heads of
 * more than 64 columns, so that no kernel needs more than 100 KiB. */
template <typename T, int D> constexpr int COLUMNS = (int)sizeof(T) * D <= 128 ? 64 : 32;
template <typename T, int D> constexpr int COLUMNS_BACK = (int)sizeof(T) * D <= 256 ? COLUMNS<T, D> : 16;
template <typename T, int D> constexpr int STRIDE = D + WIDE<T>;
/* Minimum blocks per multiprocessor: more hide each other's latencies, fewer have more registers. Shared memory holds
 * as many, but on sm_80 (164 KiB, 1 of it per block) a block less of bf16's query_gradient for heads of 64 and of 128,
 * and of fp32's backward for heads of 128. */
template <typename T> constexpr int RESIDENT = sizeof(T) == 2 ? 3 : 2;

/* ---- a warp's part of a product, 16 rows x 8N columns ----
 *
 * Of each 8 columns a thread has c[n][0] and c[n][1] in row lane / 4, columns 2 (lane % 4) and the next, and c[n][2]
 * and c[n][3] in the same columns 8 rows below. Its quad, the four lanes around it, has the whole of its two rows. */

static __device__ __forceinline__ int lane_row(int i) { return threadIdx.x % 32 / 4 + i / 2 * 8; }
static __device__ __forceinline__ int lane_column(int n, int i) { return 8 * n + threadIdx.x % 4 * 2 + i % 2; }

static __device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
static __device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* ---- bf16: two to a register, the lower one first ---- */

#ifdef __CUDACC__
/* c += a b, with a 16 x 16 and b 16 x 8. */
static __device__ __forceinline__ void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* A 16 x 16 part of a tile: its upper left, lower left, upper right and lower right quarter, each as a thread's part of
 * a product's operand. With BY_COLUMN each quarter is transposed. */
template <bool BY_COLUMN>
static __device__ __forceinline__ void load_16x16(uint32_t (&r)[4], const __nv_bfloat16 *part, int stride) {
    int lane = threadIdx.x % 32;
    uint32_t at = (uint32_t)__cvta_generic_to_shared(part + lane % 16 * stride + lane / 16 * 8);
    if (BY_COLUMN)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
}
#else /* the same in plain C++, for the stand-in */
static void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    __shared__ uint32_t all[WARPS][32][6];
    uint32_t(*of)[6] = all[threadIdx.x / 32], mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(of[threadIdx.x % 32], mine, sizeof mine);
    __syncwarp();
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) {
            uint32_t x = of[lane_row(0) * 4 + k % 8 / 2][i / 2 + k / 8 * 2];
            uint32_t y = of[lane_column(0, i) * 4 + k % 8 / 2][4 + k / 8];
            c[i] += widen(__ushort_as_bfloat16((unsigned short)(x >> k % 2 * 16))) *
                    widen(__ushort_as_bfloat16((unsigned short)(y >> k % 2 * 16)));
        }
    __syncwarp();
}

template <bool BY_COLUMN> static void load_16x16(uint32_t (&r)[4], const __nv_bfloat16 *part, int stride) {
    for (int m = 0; m < 4; m++) {
        int along = lane_column(0, 0), across = lane_row(0);
        int row = m % 2 * 8 + (BY_COLUMN ? along : across), column = m / 2 * 8 + (BY_COLUMN ? across : along);
        const __nv_bfloat16 *low = part + row * stride + column, *high = low + (BY_COLUMN ? stride : 1);
        r[m] = __bfloat16_as_ushort(*low) | (uint32_t)__bfloat16_as_ushort(*high) << 16;
    }
}
#endif

static __device__ __forceinline__ uint32_t pair(const float *two) {
    return __bfloat16_as_ushort(narrow<__nv_bfloat16>(two[0])) |
           (uint32_t)__bfloat16_as_ushort(narrow<__nv_bfloat16>(two[1])) << 16;
}

/* c += a b^T: 16 rows of a, 8N of b, of D columns. */
template <int D, int N>
static __device__ __forceinline__ void scores(float (&c)[N][4], const __nv_bfloat16 *a, const __nv_bfloat16 *b) {
    constexpr int S = STRIDE<__nv_bfloat16, D>;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t x[4], y[4];
        load_16x16<false>(x, a + k, S);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_16x16<false>(y, b + 8 * n * S + k, S);
            mma_16x8x16(c[n], x, y[0], y[2]);
            mma_16x8x16(c[n + 1], x, y[1], y[3]);
        }
    }
}

/* c += p b: p of 8K columns, b of as many rows and 8N columns. */
template <int D, int N, int K>
static __device__ __forceinline__ void combine(float (&c)[N][4], const float (&p)[K][4], const __nv_bfloat16 *b) {
    constexpr int S = STRIDE<__nv_bfloat16, D>;
#pragma unroll
    for (int k = 0; k < K; k += 2) {
        uint32_t y[4], x[4] = {pair(p[k]), pair(p[k] + 2), pair(p[k + 1]), pair(p[k + 1] + 2)};
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_16x16<true>(y, b + 8 * k * S + 8 * n, S);
            mma_16x8x16(c[n], x, y[0], y[1]);
            mma_16x8x16(c[n + 1], x, y[2], y[3]);
        }
    }
}

/* ---- fp32: the same two products ---- */

static __device__ __forceinline__ float dot4(float sum, float4 a, float4 b) {
    return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

template <int D, int N>
static __device__ __forceinline__ void scores(float (&c)[N][4], const float *a, const float *b) {
    constexpr int S = STRIDE<float, D>;
    a += lane_row(0) * S;
    b += lane_column(0, 0) * S;
#pragma unroll 2
    for (int k = 0; k < D; k += 4) {
        float4 upper = *(const float4 *)(a + k), lower = *(const float4 *)(a + 8 * S + k);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float4 left = *(const float4 *)(b + 8 * n * S + k), right = *(const float4 *)(b + (8 * n + 1) * S + k);
            c[n][0] = dot4(c[n][0], upper, left);
            c[n][1] = dot4(c[n][1], upper, right);
            c[n][2] = dot4(c[n][2], lower, left);
            c[n][3] = dot4(c[n][3], lower, right);
        }
    }
}

template <int D, int N, int K>
static __device__ __forceinline__ void combine(float (&c)[N][4], const float (&p)[K][4], const float *b) {
    constexpr int S = STRIDE<float, D>;
    b += lane_column(0, 0);
#pragma unroll
    for (int k = 0; k < 8 * K; k++) {
        int owner = (int)(threadIdx.x % 32 & ~3u) + k % 8 / 2; /* the lane of the quad that has column k */
        float upper = __shfl_sync(ALL_LANES, p[k / 8][k % 2], owner);
        float lower = __shfl_sync(ALL_LANES, p[k / 8][2 + k % 2], owner);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float2 at = *(const float2 *)(b + k * S + 8 * n);
            c[n][0] += upper * at.x;
            c[n][1] += upper * at.y;
            c[n][2] += lower * at.x;
            c[n][3] += lower * at.y;
        }
    }
}

/* ---- tiles ---- */

/* The tensors of the layer; after own(), of the block's sequence and head. */
template <typename T> struct attention {
    const T *x, *dy; /* q, then k, then v */
    T *y, *dx;
    float *lse, *d; /* one for each row, heads floats apart */
    int context, heads, dim;
    float scale;
};

template <typename T> static __device__ __forceinline__ int64_t width(const attention<T> &t) {
    return (int64_t)t.heads * t.dim;
}

template <typename T> static __device__ __forceinline__ attention<T> own(attention<T> t) {
    int head = (int)blockIdx.x % t.heads;
    int64_t row = (int64_t)((int)blockIdx.x / t.heads) * t.context, column = head * t.dim;
    t.x += 3 * row * width(t) + column;
    t.y += row * width(t) + column;
    t.lse += row * t.heads + head;
    if (!t.dx) /* a forward */
        return t;
    t.dx += 3 * row * width(t) + column;
    t.dy += row * width(t) + column;
    t.d += row * t.heads + head;
    return t;
}

/* Begins to load rows from .. from + N - 1 of the head, zeros beyond the sequence's last row and the head's last
 * column. A copy of 16 bytes goes on by itself until await_tiles(). */
template <int N, int D, typename T>
static __device__ __forceinline__ void load_tile(T *tile, const T *x, int64_t stride, int from, const attention<T> &t) {
    constexpr int W = WIDE<T>, PACKS = D / W;
    for (int i = threadIdx.x; i < N * PACKS; i += THREADS) {
        int row = from + i / PACKS, column = i % PACKS * W;
        const T *at = x + row * stride + column;
        T *to = tile + i / PACKS * STRIDE<T, D> + column;
        if (row < t.context && t.dim % W == 0 && column < t.dim) {
            __pipeline_memcpy_async(to, at, sizeof(pack<T, W>));
        } else {
            pack<T, W> e;
            for (int k = 0; k < W; k++)
                e.v[k] = row < t.context && column + k < t.dim ? at[k] : narrow<T>(0);
            store(to, e);
        }
    }
}

/* All that the block has begun to load is there for all its threads, and they are done with what they read before: its
 * place is free. */
static __device__ __forceinline__ void await_tiles(void) {
    __pipeline_commit();
    __pipeline_wait_prior(0); /* of this thread alone (PTX ISA, "cp.async.wait_group"); the barrier is for all */
    __syncthreads();
}

template <int N, typename T>
static __device__ __forceinline__ void store_rows(T *to, int64_t stride, const float (&c)[N][4], int row,
                                                  const attention<T> &t) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        T *at = to + (row + i / 2 * 8) * stride;
        if (row + i / 2 * 8 >= t.context)
            continue;
#pragma unroll
        for (int n = 0; n < N; n++) {
            int column = lane_column(n, 0);
            pack<T, 2> e = {{narrow<T>(c[n][i]), narrow<T>(c[n][i + 1])}};
            if (t.dim % 2 == 0 && column < t.dim)
                store(at + column, e);
            else
                for (int k = 0; k < 2 && column + k < t.dim; k++)
                    at[column + k] = e.v[k];
        }
    }
}

/* ---- forward: while k's tile is in use v's is on its way, and while v's is, k's next one ---- */

/* Scores become exp(s - top); rescales o and sum to the new top, and adds this lane's part to sum. */
template <int N, int K>
static __device__ __forceinline__ void softmax(float (&s)[K][4], float (&o)[N][4], float (&top)[2], float (&sum)[2],
                                               float scale2) {
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

template <typename T, int D> static __global__ void __launch_bounds__(THREADS, RESIDENT<T>) forward(attention<T> t) {
    constexpr int C = COLUMNS<T, D>, S = STRIDE<T, D>;
    DYNAMIC_SHARED(T, q);
    T *k = q + ROWS * S, *v = k + C * S;
    t = own(t);
    int from = (int)(gridDim.y - 1 - blockIdx.y) * ROWS, first = from + (int)threadIdx.x / 32 * 16;
    int end = min(from + ROWS, t.context);
    float o[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    load_tile<ROWS, D>(q, t.x, 3 * width(t), from, t);
    load_tile<C, D>(k, t.x + width(t), 3 * width(t), 0, t);
    for (int j = 0; j < end; j += C) {
        await_tiles(); /* k */
        load_tile<C, D>(v, t.x + 2 * width(t), 3 * width(t), j, t);
        float s[C / 8][4] = {};
        scores<D>(s, q + (first - from) * S, k);
        if (j + C - 1 > first)
#pragma unroll
            for (int n = 0; n < C / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[n][i] = j + lane_column(n, i) > first + lane_row(i) ? -INFINITY : s[n][i];
        softmax(s, o, top, sum, t.scale * LOG2_E);
        await_tiles(); /* v */
        if (j + C < end)
            load_tile<C, D>(k, t.x + width(t), 3 * width(t), j + C, t);
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
        if (threadIdx.x % 4 == 0 && row < t.context)
            t.lse[(int64_t)row * t.heads] = top[half] * t.scale + logf(sum[half]);
    }
    store_rows(t.y, width(t), o, first + lane_row(0), t);
}

/* ---- backward: p = exp(s - lse), ds = p (dp - D); first dq, which leaves D behind, then dk and dv ----
 *
 * A pair of tiles is in use from the first product to the last one: the next pair goes to a place of its own. */

/* The pair for the columns from j on. */
template <int C, int D, typename T> static __device__ __forceinline__ T *pair_of(T *tiles, int j) {
    return tiles + j / C % 2 * 2 * C * STRIDE<T, D>;
}
template <int C, int D, typename T>
static __device__ __forceinline__ void load_pair(T *tiles, const T *a, int64_t a_stride, const T *b, int64_t b_stride,
                                                 int j, const attention<T> &t) {
    T *to = pair_of<C, D>(tiles, j);
    load_tile<C, D>(to, a, a_stride, j, t);
    load_tile<C, D>(to + C * STRIDE<T, D>, b, b_stride, j, t);
}

/* D = rowsum(dy y) of this lane's two rows, from tiles. */
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
static __global__ void __launch_bounds__(THREADS, RESIDENT<T>) query_gradient(attention<T> t) {
    constexpr int C = COLUMNS_BACK<T, D>, S = STRIDE<T, D>;
    DYNAMIC_SHARED(T, q);
    T *dy = q + ROWS * S, *tiles = dy + ROWS * S, *y = tiles; /* y only at first */
    t = own(t);
    const T *keys = t.x + width(t), *values = keys + width(t);
    int from = (int)(gridDim.y - 1 - blockIdx.y) * ROWS, first = from + (int)threadIdx.x / 32 * 16;
    int end = min(from + ROWS, t.context);
    float dq[D / 8][4] = {}, d[2], lse2[2];
    load_tile<ROWS, D>(q, t.x, 3 * width(t), from, t);
    load_tile<ROWS, D>(dy, t.dy, width(t), from, t);
    load_tile<ROWS, D>(y, (const T *)t.y, width(t), from, t);
    await_tiles();
    row_dots<D>(d, dy + (first - from) * S, y + (first - from) * S);
    for (int half = 0; half < 2; half++) {
        int row = first + lane_row(2 * half);
        lse2[half] = row < t.context ? t.lse[(int64_t)row * t.heads] * LOG2_E : 0;
        if (threadIdx.x % 4 == 0 && row < t.context)
            t.d[(int64_t)row * t.heads] = d[half];
    }
    __syncthreads(); /* y's place is free */
    load_pair<C, D>(tiles, keys, 3 * width(t), values, 3 * width(t), 0, t);
    for (int j = 0; j < end; j += C) {
        const T *k = pair_of<C, D>(tiles, j), *v = k + C * S;
        await_tiles();
        if (j + C < end)
            load_pair<C, D>(tiles, keys, 3 * width(t), values, 3 * width(t), j + C, t);
        float s[C / 8][4] = {}, dp[C / 8][4] = {};
        scores<D>(s, q + (first - from) * S, k);
        scores<D>(dp, dy + (first - from) * S, v);
#pragma unroll
        for (int n = 0; n < C / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float p = exp2f(s[n][i] * (t.scale * LOG2_E) - lse2[i / 2]);
                bool above = j + lane_column(n, i) > first + lane_row(i);
                s[n][i] = above ? 0 : t.scale * p * (dp[n][i] - d[i / 2]);
            }
        combine<D>(dq, s, k);
    }
    store_rows(t.dx, 3 * width(t), dq, first + lane_row(0), t);
}

template <typename T, int D> static __global__ void __launch_bounds__(THREADS, 2) key_gradient(attention<T> t) {
    constexpr int C = COLUMNS_BACK<T, D>, S = STRIDE<T, D>;
    DYNAMIC_SHARED(T, k);
    T *v = k + ROWS * S, *tiles = v + ROWS * S;
    float *stats = (float *)(tiles + 4 * C * S); /* lse and D, also in pairs */
    t = own(t);
    int from = (int)blockIdx.y * ROWS, first = from + (int)threadIdx.x / 32 * 16;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    auto fetch = [&](int j) {
        load_pair<C, D>(tiles, t.x, 3 * width(t), t.dy, width(t), j, t);
        if (int i = (int)threadIdx.x;
            i < 2 * C) { /* beyond the last row dy and D are 0, and so is all that p leads to */
            float *to = stats + j / C % 2 * 2 * C + i;
            const float *of = i < C ? t.lse : t.d;
            int row = j + i % C;
            if (row < t.context)
                __pipeline_memcpy_async(to, of + (int64_t)row * t.heads, sizeof *to);
            else
                *to = 0;
        }
    };
    load_tile<ROWS, D>(k, t.x + width(t), 3 * width(t), from, t);
    load_tile<ROWS, D>(v, t.x + 2 * width(t), 3 * width(t), from, t);
    fetch(from);
    for (int j = from; j < t.context; j += C) {
        const T *q = pair_of<C, D>(tiles, j), *dy = q + C * S;
        const float *lse = stats + j / C % 2 * 2 * C, *d = lse + C;
        await_tiles();
        if (j + C < t.context)
            fetch(j + C);
        float p[C / 8][4] = {}, dp[C / 8][4] = {};
        scores<D>(p, k + (first - from) * S, q);
#pragma unroll
        for (int n = 0; n < C / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool above = j + lane_column(n, i) < first + lane_row(i);
                float lse2 = __fmul_rn(lse[lane_column(n, i)], LOG2_E); /* _rn: rounded, as query_gradient's */
                p[n][i] = above ? 0 : exp2f(p[n][i] * (t.scale * LOG2_E) - lse2);
            }
        combine<D>(dv, p, dy);
        scores<D>(dp, v + (first - from) * S, dy);
#pragma unroll
        for (int n = 0; n < C / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[n][i] *= t.scale * (dp[n][i] - d[lane_column(n, i)]);
        combine<D>(dk, p, q);
    }
    store_rows(t.dx + width(t), 3 * width(t), dk, first + lane_row(0), t);
    store_rows(t.dx + 2 * width(t), 3 * width(t), dv, first + lane_row(0), t);
}

/* ---- launches ---- */

template <typename T> static attention<T> tensors(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    int dim = l->out / l->heads;
    return {cuda_x<T>(c),
            cuda_at<T>(c, l->dy),
            cuda_at<T>(c, l->y),
            cuda_at<T>(c, l->dx),
            cuda_at<float>(c, l->aux),
            cuda_at<float>(c, l->tmp),
            l->context,
            l->heads,
            dim,
            1 / sqrtf((float)dim)};
}

/* A kernel must opt in to more than 48 KiB of shared memory. */
template <typename T, typename K> static void launch(K kernel, size_t shared, const struct cuda_call *c) {
    dim3 grid((unsigned)(c->l->rows / c->l->context * c->l->heads), blocks_for(c->l->context, ROWS));
    attention<T> t = tensors<T>(c);
    if (shared > 48 << 10)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    LAUNCH(kernel, grid, THREADS, shared, c->stream, t);
}

template <typename T, int D> static void launch_forward(const struct cuda_call *c) {
    launch<T>(forward<T, D>, STRIDE<T, D> * sizeof(T) * (ROWS + 2 * COLUMNS<T, D>), c);
}
template <typename T, int D> static void launch_backward(const struct cuda_call *c) {
    size_t tiles = STRIDE<T, D> * sizeof(T) * (2 * ROWS + 4 * COLUMNS_BACK<T, D>);
    launch<T>(query_gradient<T, D>, tiles, c);
    launch<T>(key_gradient<T, D>, tiles + 4 * COLUMNS_BACK<T, D> * sizeof(float), c);
}

#define BY_HEAD(f, T, c)                                                                                               \
    do {                                                                                                               \
        int dim = (c)->l->out / (c)->l->heads;                                                                         \
        assert(dim <= CUDA_HEAD);                                                                                      \
        (dim <= 16   ? f<T, 16>                                                                                        \
         : dim <= 32 ? f<T, 32>                                                                                        \
         : dim <= 64 ? f<T, 64>                                                                                        \
         : dim <= 80 ? f<T, 80>                                                                                        \
         : dim <= 96 ? f<T, 96>                                                                                        \
                     : f<T, 128>)(c);                                                                                  \
    } while (0)

template <typename T> static void attention_forward(const struct cuda_call *c) {
    if (!cuda_attention_cudnn(c, true))
        BY_HEAD(launch_forward, T, c);
}
template <typename T> static void attention_input(const struct cuda_call *c) {
    if (!cuda_attention_cudnn(c, false))
        BY_HEAD(launch_backward, T, c);
}

const struct cuda_layer cuda_attention = {EITHER(attention_forward), EITHER(attention_input), NULL};
