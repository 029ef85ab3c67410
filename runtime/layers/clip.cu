/* The sum of the squares of gradients, on a device. Each thread has words of its own, each block adds up its threads'
 * words in scratch, and one more block adds up the blocks'. Words are integers, so in any order they equal the host's.
 */
#include "cuda.cuh"
#include "clip.h"
#include "store/parameter_walk.h"

enum { THREADS = 128, BLOCKS = 132 * 8, TOGETHER = 32 };

/* The parameters among a launch's elements: only their squares are summed. */
enum { MOST_RUNS = 96 };
struct runs {
    int32_t n;
    int64_t from[MOST_RUNS], to[MOST_RUNS];
};

static __device__ void add_square(uint64_t *word, float x) {
    uint32_t bits = (uint32_t)__float_as_int(x), e = bits >> 23 & 255, m = bits & 0x7fffff;
    if (e == 255)
        word[(m > 0 ? NORM_NAN : NORM_INF) * THREADS]++;
    else if (e > 0)
        norm_add(word, THREADS, (uint64_t)(m | 0x800000) * (m | 0x800000), e);
    else
        norm_add(word, THREADS, (uint64_t)m * m, 1);
}

/* parts: NORM_WORDS words per block. */
static __global__ void add_squares(const float *dw, struct runs runs, uint64_t *parts) {
    __shared__ uint64_t word[NORM_WORDS * THREADS], sum[NORM_WORDS];
    for (int w = 0; w < NORM_WORDS; w++)
        word[w * THREADS + threadIdx.x] = 0;
    for (int r = 0; r < runs.n; r++)
        for (int64_t i = runs.from[r] + (int64_t)blockIdx.x * THREADS + threadIdx.x; i < runs.to[r];
             i += (int64_t)gridDim.x * THREADS)
            add_square(word + threadIdx.x, dw[i]);
    __syncthreads();
    if (threadIdx.x < NORM_WORDS) {
        uint64_t all = 0;
        for (int t = 0; t < THREADS; t++)
            all += word[threadIdx.x * THREADS + t];
        sum[threadIdx.x] = all;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        norm_carry(sum);
    __syncthreads();
    if (threadIdx.x < NORM_WORDS)
        parts[(int64_t)blockIdx.x * NORM_WORDS + threadIdx.x] = sum[threadIdx.x];
}

/* Writes the sum of n parts to norm, or adds it. */
static __global__ void add_parts(uint64_t *norm, const uint64_t *parts, int n, bool first) {
    __shared__ uint64_t word[NORM_WORDS * TOGETHER], sum[NORM_WORDS];
    int w = (int)threadIdx.x / TOGETHER, lane = (int)threadIdx.x % TOGETHER;
    uint64_t all = 0;
    for (int i = lane; i < n; i += TOGETHER)
        all += parts[(int64_t)i * NORM_WORDS + w];
    word[threadIdx.x] = all;
    __syncthreads();
    if (lane == 0) {
        all = first ? 0 : norm[w];
        for (int i = 0; i < TOGETHER; i++)
            all += word[w * TOGETHER + i];
        sum[w] = all;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        norm_carry(sum);
    __syncthreads();
    if (lane == 0)
        norm[w] = sum[w];
}

static __global__ void add_words(uint64_t *dst, const uint64_t *src) { dst[threadIdx.x] += src[threadIdx.x]; }

void cuda_add_norm(uint64_t *dst, const uint64_t *src, cudaStream_t stream) {
    LAUNCH(add_words, 1, NORM_WORDS, 0, stream, dst, src);
}

static void launch_squares(const float *dw, const struct runs *runs, uint64_t *norm, bool first, void *scratch,
                           cudaStream_t stream) {
    int64_t n = 0;
    for (int r = 0; r < runs->n; r++)
        n += runs->to[r] - runs->from[r];
    int blocks = n > 0 ? (int)min(blocks_for(n, THREADS * 4), (unsigned)BLOCKS) : 0;
    if (blocks > 0)
        LAUNCH(add_squares, (unsigned)blocks, THREADS, 0, stream, dw, *runs, (uint64_t *)scratch);
    LAUNCH(add_parts, 1, NORM_WORDS * TOGETHER, 0, stream, norm, (const uint64_t *)scratch, blocks, first);
}

void cuda_norm(struct rt_piece piece, const float *dw, uint64_t *norm, bool writes, void *scratch,
               cudaStream_t stream) {
    struct runs runs = {0, {0}, {0}};
    for (struct parameter_walk w = walk_parameters(piece); next_parameter(&w);) {
        if (!counts_here(piece.s, w.p))
            continue;
        if (runs.n == MOST_RUNS) {
            launch_squares(dw, &runs, norm, writes, scratch, stream);
            runs.n = 0;
            writes = false;
        }
        runs.from[runs.n] = w.from - piece.first;
        runs.to[runs.n++] = w.to - piece.first;
    }
    launch_squares(dw, &runs, norm, writes, scratch, stream);
}
