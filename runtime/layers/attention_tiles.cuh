/* Tiles of attention.cu: their sizes, their loads and stores, and products of two of them, in registers and shared
 * memory. Scores are a b^T with a and b in shared memory; results are p b with p in registers. The tensor cores produce
 * scores in the layout that the second product needs; fp32 keeps that layout and multiplies in fp32. */
#ifndef PIANOLA_ATTENTION_TILES_CUH
#define PIANOLA_ATTENTION_TILES_CUH
#include "cuda.cuh"
#include <cuda_pipeline_primitives.h> /* cp.async */

enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS };

/* Columns of a tile, and its row stride in shared memory, in elements. Padding rows by 16 bytes spreads the 8 rows that
 * a warp reads at once over all banks. The backward holds two pairs of tiles. For heads of more than 64 columns, fp32
 * tiles are narrower, so that no kernel needs more than 100 KiB. */
template <typename T, int D> constexpr int COLUMNS = (int)sizeof(T) * D <= 128 ? 64 : 32;
template <typename T, int D> constexpr int COLUMNS_BACK = (int)sizeof(T) * D <= 256 ? COLUMNS<T, D> : 16;
template <typename T, int D> constexpr int STRIDE = D + WIDE<T>;
/* Minimum blocks per multiprocessor: more blocks hide each other's latencies, fewer have more registers. Shared memory
 * has room for that many. The exceptions are on sm_80 (164 KiB, minus 1 KiB per block), where one block fewer fits:
 * bf16's query_gradient for heads of 64 and of 128, and fp32's backward for heads of 128. */
template <typename T> constexpr int RESIDENT = sizeof(T) == 2 ? 3 : 2;

/* ---- a warp's part of a product, 16 rows x 8N columns ----
 *
 * In each group of 8 columns, a thread has c[n][0] and c[n][1] in row lane / 4, in column 2 (lane % 4) and the next. It
 * has c[n][2] and c[n][3] in the same columns, 8 rows below. Its quad, four neighbouring lanes, has all of these two
 * rows. */

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

/* Loads a 16 x 16 part of a tile: its upper left, lower left, upper right and lower right quarter, each as a thread's
 * part of a product's operand. BY_COLUMN transposes each quarter. */
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

static __device__ __forceinline__ uint32_t tile_pair(const float *two) {
    return __bfloat16_as_ushort(narrow<__nv_bfloat16>(two[0])) |
           (uint32_t)__bfloat16_as_ushort(narrow<__nv_bfloat16>(two[1])) << 16;
}

/* Computes c += a b^T: 16 rows of a and 8N rows of b, of D columns. */
template <int D, int N>
static __device__ __forceinline__ void tile_scores(float (&c)[N][4], const __nv_bfloat16 *a, const __nv_bfloat16 *b) {
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

/* Computes c += p b: p has 8K columns, b has as many rows and 8N columns. */
template <int D, int N, int K>
static __device__ __forceinline__ void combine(float (&c)[N][4], const float (&p)[K][4], const __nv_bfloat16 *b) {
    constexpr int S = STRIDE<__nv_bfloat16, D>;
#pragma unroll
    for (int k = 0; k < K; k += 2) {
        uint32_t y[4], x[4] = {tile_pair(p[k]), tile_pair(p[k] + 2), tile_pair(p[k + 1]), tile_pair(p[k + 1] + 2)};
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
static __device__ __forceinline__ void tile_scores(float (&c)[N][4], const float *a, const float *b) {
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

/* ---- loads and stores ---- */

/* Starts loading rows from .. from + N - 1 of a head of dim columns, with zeros past the last row and the head's last
 * column. Copies of 16 bytes are asynchronous until await_tiles(). */
template <int N, int D, typename T>
static __device__ __forceinline__ void load_tile(T *tile, const T *x, int64_t stride, int from, int rows, int dim) {
    constexpr int W = WIDE<T>, PACKS = D / W;
    for (int i = threadIdx.x; i < N * PACKS; i += THREADS) {
        int row = from + i / PACKS, column = i % PACKS * W;
        const T *at = x + row * stride + column;
        T *to = tile + i / PACKS * STRIDE<T, D> + column;
        if (row < rows && dim % W == 0 && column < dim) {
            __pipeline_memcpy_async(to, at, sizeof(pack<T, W>));
        } else {
            pack<T, W> e;
            for (int k = 0; k < W; k++)
                e.v[k] = row < rows && column + k < dim ? at[k] : narrow<T>(0);
            store(to, e);
        }
    }
}

/* Waits until all threads see everything that the block has started to load. All threads have also finished their
 * earlier reads, so the tiles that they read may be overwritten. */
static __device__ __forceinline__ void await_tiles(void) {
    __pipeline_commit();
    __pipeline_wait_prior(0); /* for this thread alone (PTX ISA, "cp.async.wait_group"); the barrier is for all */
    __syncthreads();
}

/* Writes rows of a result, or adds them to the existing values. */
template <int N, typename T>
static __device__ __forceinline__ void store_rows(T *to, int64_t stride, const float (&c)[N][4], int row, int rows,
                                                  int dim, bool add) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        T *at = to + (row + i / 2 * 8) * stride;
        if (row + i / 2 * 8 >= rows)
            continue;
#pragma unroll
        for (int n = 0; n < N; n++) {
            int column = lane_column(n, 0);
            pack<T, 2> e = {{narrow<T>(c[n][i]), narrow<T>(c[n][i + 1])}};
            for (int k = 0; k < 2 && add; k++)
                if (column + k < dim)
                    e.v[k] = narrow<T>(widen(at[column + k]) + c[n][i + k]);
            if (dim % 2 == 0 && column < dim)
                store(at + column, e);
            else
                for (int k = 0; k < 2 && column + k < dim; k++)
                    at[column + k] = e.v[k];
        }
    }
}
#endif
