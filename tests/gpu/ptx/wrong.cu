/* Kernels with one mistake each, which test_wrong.py expects to be caught. Next to those that compute wrong numbers is
 * the right one. Blocks have 64 threads unless stated otherwise. */
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>
#include <stdint.h>

enum { THREADS = 64 };

extern "C" __global__ void behind_the_end(float *y, int n) { y[n - (int)threadIdx.x] = 1; }

extern "C" __global__ void before_the_begin(float *y, const float *x) { y[threadIdx.x] = x[(int)threadIdx.x - 1]; }

extern "C" __global__ void shared_behind_the_end(float *y, int n) {
    __shared__ float s[THREADS], other[THREADS];
    s[threadIdx.x + n] = 1;
    other[threadIdx.x] = 2;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x ^ 1] + other[threadIdx.x ^ 1];
}

extern "C" __global__ void misaligned(float *y, const float *x) {
    float4 v = *(const float4 *)(x + 1 + 4 * threadIdx.x);
    y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

extern "C" __global__ void shared_misaligned(float *y, int n) {
    __shared__ __align__(16) float s[3 * THREADS];
    for (int i = 0; i < 3; i++)
        s[3 * threadIdx.x + i] = 1;
    __syncthreads();
    float2 v = *(const float2 *)(s + threadIdx.x * n);
    y[threadIdx.x] = v.x + v.y;
}

extern "C" __global__ void no_barrier(float *y, const float *x) {
    __shared__ float s[THREADS];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}

extern "C" __global__ void no_barrier_before_reuse(float *y, const float *x) {
    __shared__ float s[THREADS];
    float sum = 0;
    for (int i = 0; i < 2; i++) {
        s[threadIdx.x] = x[i * THREADS + threadIdx.x];
        __syncthreads();
        sum += s[threadIdx.x ^ 1];
    }
    y[threadIdx.x] = sum;
}

extern "C" __global__ void all_write_one(float *y) {
    __shared__ float s[1];
    s[0] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[0];
}

extern "C" __global__ void global_no_barrier(float *y, float *scratch) {
    scratch[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = scratch[threadIdx.x ^ 32];
}

extern "C" __global__ void blocks_write_one(float *y) { /* a barrier is only for one block */
    if (threadIdx.x == 0)
        y[0] = blockIdx.x;
    __syncthreads();
}

extern "C" __global__ void blocks_read_another(float *y, float *scratch) {
    scratch[blockIdx.x * THREADS + threadIdx.x] = 1;
    __syncthreads();
    y[blockIdx.x * THREADS + threadIdx.x] = scratch[(blockIdx.x ^ 1) * THREADS + threadIdx.x];
}

extern "C" __global__ void blocks_overwrite_read(float *y, float *scratch) {
    float x = scratch[(blockIdx.x ^ 1) * THREADS + threadIdx.x];
    __syncthreads();
    scratch[blockIdx.x * THREADS + threadIdx.x] = x;
}

extern "C" __global__ void uninitialised(float *y) {
    __shared__ float s[2 * THREADS];
    s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[2 * threadIdx.x];
}

extern "C" __global__ void uninitialised_scratch(float *y, const float *scratch) {
    y[threadIdx.x] = scratch[threadIdx.x];
}

extern "C" __global__ void writes_its_input(float *x) { x[threadIdx.x] *= 2; }

extern "C" __global__ void writes_too_little(float *y, int n) {
    if ((int)threadIdx.x < n)
        y[threadIdx.x] = 1;
}

extern "C" __global__ void barrier_for_some(float *y, const float *x) {
    __shared__ float s[THREADS];
    s[threadIdx.x] = x[threadIdx.x];
    if (x[threadIdx.x] > 0)
        __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void barrier_after_return(float *y, int n) {
    __shared__ float s[THREADS];
    if ((int)threadIdx.x >= n)
        return;
    s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[0];
}

extern "C" __global__ void shuffle_of_absent(float *y, const float *x) {
    float v = x[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v += __shfl_xor_sync(0xffffffffu, v, 1);
    y[threadIdx.x] = v;
}

extern "C" __global__ void shuffle_of_returned(float *y, const float *x, int n) {
    if ((int)threadIdx.x >= n)
        return;
    float v = x[threadIdx.x];
    y[threadIdx.x] = v + __shfl_xor_sync(0xffffffffu, v, 1);
}

extern "C" __global__ void shuffle_from_unnamed(float *y, const float *x) {
    float v = x[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v += __shfl_xor_sync(0xffffu, v, 16);
    y[threadIdx.x] = v;
}

extern "C" __global__ void shuffle_of_half(float *y, const float *x) { /* right */
    float v = x[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v += __shfl_xor_sync(0xffffu, v, 8);
    y[threadIdx.x] = v;
}

extern "C" __global__ void ballot_of_absent(unsigned *y, const float *x) {
    unsigned v = 0;
    if (x[threadIdx.x] > 0)
        v = __ballot_sync(0xffffffffu, x[threadIdx.x] > 1);
    y[threadIdx.x] = v;
}

extern "C" __global__ void divides_by_zero(int *y, const int *x, int n) { y[threadIdx.x] = x[threadIdx.x] / n; }

extern "C" __global__ void unknown_instruction(unsigned *y) { y[threadIdx.x] = __brev(threadIdx.x); }

/* Computes c = a b for a warp, 16 x 16 by 16 x 8, as attention.cu does: a and b come from shared memory by ldmatrix. */
template <bool SWAP_A, bool SWAP_B, bool TRANSPOSE, bool ROWS>
static __device__ void multiply(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b) {
    __shared__ __align__(16) __nv_bfloat16 s[16 * 16], t[16 * 16];
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) {
        s[i] = a[i];
        t[i] = i % 16 < 8 ? b[i / 16 * 8 + i % 16] : __nv_bfloat16(0.0f);
    }
    __syncthreads();
    uint32_t x[4], y[4];
    float d[4] = {};
    uint32_t at = (uint32_t)__cvta_generic_to_shared(s + lane % 16 * 16 + lane / 16 * 8);
    uint32_t from = (uint32_t)__cvta_generic_to_shared(t + lane % 16 * 16 + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
    if (TRANSPOSE)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                     : "r"(from)
                     : "memory");
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(x[0]), "r"(x[SWAP_A ? 2 : 1]), "r"(x[SWAP_A ? 1 : 2]), "r"(x[3]), "r"(y[SWAP_B]), "r"(y[!SWAP_B]));
    for (int i = 0; i < 4; i++) {
        int row = ROWS ? lane / 4 * 2 + i / 2 : lane / 4 + i / 2 * 8;
        c[row * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
}
#define PRODUCT(name, ...)                                                                                             \
    extern "C" __global__ void name(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b) {                        \
        multiply<__VA_ARGS__>(c, a, b);                                                                                \
    }
PRODUCT(product, false, false, true, false) /* right */
PRODUCT(product_a_in_wrong_order, true, false, true, false)
PRODUCT(product_b_in_wrong_order, false, true, true, false)
PRODUCT(product_b_not_transposed, false, false, false, false)
PRODUCT(product_c_in_wrong_rows, false, false, true, true)

extern "C" __global__ void product_for_some(float *y, const float *x) { /* .aligned: for whole warps only */
    float d[4] = {};
    uint32_t one = 0x3f803f80;
    if (x[threadIdx.x] > 0)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(one));
    y[threadIdx.x] = d[0];
}

extern "C" __global__ void matrix_without_barrier(float *y, int n) { /* lanes get what other lanes wrote */
    __shared__ __align__(16) __nv_bfloat16 s[THREADS * 8];
    uint32_t x[4], at = (uint32_t)__cvta_generic_to_shared(s + threadIdx.x * 8);
    for (int i = 0; i < 8; i++)
        s[threadIdx.x * 8 + i] = __nv_bfloat16((float)(n + i));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
    y[threadIdx.x] = (float)(x[0] + x[1] + x[2] + x[3]);
}

extern "C" __global__ void matrix_misaligned(float *y, int n) {
    __shared__ __align__(16) uint32_t s[THREADS * 4 + 4];
    for (int i = 0; i < 4; i++)
        s[threadIdx.x * 4 + i] = 0;
    __syncthreads();
    uint32_t x[4], at = (uint32_t)__cvta_generic_to_shared(s + threadIdx.x * 4 + n);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
    y[threadIdx.x] = (float)(x[0] + x[1] + x[2] + x[3]);
}

/* Asynchronous copies to shared memory, with mistakes: reading one's own before awaiting it, or another thread's before
 * a barrier; awaiting the wrong group, or before there is a group; overwriting the destination; beginning a copy where
 * others still read. */
static __device__ void copy(float *to, const float *of) {
    __pipeline_memcpy_async(to + threadIdx.x, of + threadIdx.x, 4);
}

extern "C" __global__ void copy_read_at_once(float *y, const float *x) {
    __shared__ float s[THREADS];
    copy(s, x);
    __pipeline_commit();
    y[threadIdx.x] = s[threadIdx.x];
    __pipeline_wait_prior(0);
}

extern "C" __global__ void copy_of_no_group(float *y, const float *x) {
    __shared__ float s[THREADS];
    copy(s, x);
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void copy_of_later_group(float *y, const float *x) {
    __shared__ float s[2 * THREADS];
    for (int i = 0; i < 2; i++) {
        copy(s + i * THREADS, x);
        __pipeline_commit();
    }
    __pipeline_wait_prior(1);
    y[threadIdx.x] = s[threadIdx.x] + s[THREADS + threadIdx.x];
}

extern "C" __global__ void copy_without_barrier(float *y, const float *x) {
    __shared__ float s[THREADS];
    copy(s, x);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}

extern "C" __global__ void copy_awaited_behind_barrier(float *y, const float *x) {
    __shared__ float s[THREADS];
    copy(s, x);
    __pipeline_commit();
    __syncthreads();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}

extern "C" __global__ void copy_overwritten(float *y, const float *x) {
    __shared__ float s[THREADS];
    copy(s, x);
    s[threadIdx.x] = 1;
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];
}

extern "C" __global__ void copy_over_what_is_read(float *y, const float *x) {
    __shared__ float s[THREADS];
    s[threadIdx.x] = 1;
    __syncthreads();
    float was = s[threadIdx.x ^ 1];
    copy(s, x);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x] + was;
}

extern "C" __global__ void copy_misaligned(float *y, const float *x) {
    __shared__ __align__(16) float s[4 * THREADS];
    __pipeline_memcpy_async(s + 4 * threadIdx.x, x + 4 * threadIdx.x + 1, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[4 * threadIdx.x];
}

extern "C" __global__ void copies(float *y, const float *x) { /* right: two groups, for some threads only */
    __shared__ float s[2 * THREADS];
    if (x[threadIdx.x] > 0) {
        copy(s, x);
        __pipeline_commit();
        copy(s + THREADS, x);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        float first = s[threadIdx.x];
        __pipeline_wait_prior(0);
        y[threadIdx.x] = first + s[THREADS + threadIdx.x];
    } else
        y[threadIdx.x] = 0;
}
