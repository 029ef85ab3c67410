/* Checks what the stand-in must detect: each kernel makes one mistake, and ends its process with a line that names it;
 * the last ones make none. Also checks bound.h: it must reject sums with one mistake, and accept any right order. */
#include "bound.h"
#include <cuda_pipeline_primitives.h>
#include <initializer_list>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static __global__ void barrier_missed(float *) {
    if (threadIdx.x != 5)
        __syncthreads();
}
static __global__ void barrier_after_return(float *) {
    if (threadIdx.x == 63)
        return;
    __syncthreads();
}
static __global__ void barriers_differ(float *out) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    *out = 0;
}
static __global__ void lane_gone(float *out) {
    if (threadIdx.x == 7)
        return;
    *out = __shfl_xor_sync(ALL_LANES, 1.0f, 1);
}
static __global__ void lane_never(float *out) { *out = __shfl_xor_sync(ALL_LANES, 1.0f, 1); }
static __global__ void lane_elsewhere(float *out) {
    if (threadIdx.x % 32 == 3)
        __syncthreads();
    else
        *out = __shfl_xor_sync(ALL_LANES, 1.0f, 1);
    __syncthreads();
}
static __global__ void mask_without_me(float *out) { *out = __shfl_sync(0xffff, 1.0f, 1); }
static __global__ void mask_without_source(float *out) {
    if (threadIdx.x % 32 < 16)
        *out = __shfl_sync(0xffff, 1.0f, 20);
}
static __global__ void masks_differ(float *out) {
    *out = __shfl_sync(threadIdx.x % 32 < 8 ? 0xff : ALL_LANES, 1.0f, 1);
}
static __global__ void operations_differ(float *out) {
    if (threadIdx.x % 32 == 0)
        __syncwarp();
    else
        *out = warp_sum(1.0f);
}

static __align__(16) float source[64];
static __global__ void copy_never_awaited(float *) {
    DYNAMIC_SHARED(float, x);
    __pipeline_memcpy_async(x + threadIdx.x, source, 4);
    __pipeline_commit();
}
static __global__ void copy_never_committed(float *) {
    DYNAMIC_SHARED(float, x);
    __pipeline_memcpy_async(x + threadIdx.x, source, 4);
    __pipeline_wait_prior(0);
}
static __global__ void copy_misaligned(float *) {
    DYNAMIC_SHARED(float, x);
    __pipeline_memcpy_async(x, source + 1, 8);
}

/* Right kernels: half a warp acts alone; shared memory begins as NaN in every block. */
static __global__ void halves(float *out) {
    unsigned half = threadIdx.x % 32 < 16 ? 0xffff : 0xffff0000;
    float sum = 1;
    for (int i = 8; i > 0; i /= 2)
        sum += __shfl_xor_sync(half, sum, i);
    *out += sum == 16 ? 1 : NAN;
}
template <typename T> static __global__ void poisoned(float *out) {
    __shared__ T fixed[64];
    DYNAMIC_SHARED(float, dynamic);
    *out += fixed[threadIdx.x] != fixed[threadIdx.x] && dynamic[threadIdx.x] != dynamic[threadIdx.x] ? 1 : NAN;
    __syncthreads();
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 1;
}

static __global__ void copies(float *out) { /* copies land when awaited, the earlier group first */
    DYNAMIC_SHARED(float, all);
    float *x = all + threadIdx.x;
    *x = 1;
    __pipeline_memcpy_async(x, source, 4);
    __pipeline_commit();
    __pipeline_memcpy_async(x + 64, source, 4);
    __pipeline_commit();
    bool fine = *x != *x;
    __pipeline_wait_prior(1);
    fine &= *x == 0 && x[64] != x[64];
    __pipeline_wait_prior(0);
    *out += fine && x[64] == 0 ? 1 : NAN;
}

static int passed, failed;

/* Runs two blocks of the kernel in their own process. wanted: the expected output, or NULL. */
template <typename F> static void expect(const char *name, const char *wanted, F run) {
    int ends[2], status;
    char said[4096] = "";
    if (pipe(ends) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        float out = 0;
        dup2(ends[1], 2);
        run(&out);
        _exit(out == out ? 0 : 1);
    }
    close(ends[1]);
    ssize_t n = 0, more;
    while ((more = read(ends[0], said + n, sizeof said - 1 - (size_t)n)) > 0)
        n += more;
    close(ends[0]);
    waitpid(child, &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    bool fine = wanted ? n > 0 && code == 3 && strstr(said, wanted) : n == 0 && code == 0;
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("%s: expected %s, got exit %d, %s\n", name, wanted ? wanted : "nothing", code, said);
}
#define EXPECT(kernel, threads, wanted)                                                                                \
    for (bool reverse : {false, true})                                                                                 \
    expect(#kernel, wanted, [=](float *out) {                                                                          \
        grid_reverse = reverse;                                                                                        \
        LAUNCH((kernel), 2, threads, 128 * sizeof(float), (cudaStream_t)0, out);                                       \
    })

/* ---- bound.h ---- */

/* Ways to add up n products: first those that a device may use, then mistakes. */
enum way { IN_ORDER, BACKWARDS, BY_LANES, BY_BLOCKS, RIGHT, TERM_MISSING = RIGHT, WRONG_INDEX, IN_BF16, WAYS };
static const char *const ways[] = {"in order",       "backwards",       "by lanes",   "by truncated blocks",
                                   "a term missing", "a wrong operand", "bf16's sums"};

/* Rounds toward 0, as tensor cores do when they add to an accumulator. */
static float truncated(double x) {
    float y = (float)x;
    return fabs((double)y) > fabs(x) ? nextafterf(y, 0) : y;
}

static float add_up(const float *a, const float *b, int n, enum way way) {
    float total = 0, lane[32] = {};
    for (int i = 0; i < n; i++) {
        int k = way == BACKWARDS ? n - 1 - i : i;
        float other = way == WRONG_INDEX && k == n / 2 ? b[0] : b[k];
        float term = way == TERM_MISSING && k == n / 2 ? 0 : a[k] * other;
        if (way == BY_LANES)
            lane[i % 32] += term;
        else
            total = way == IN_BF16 ? widen(narrow<__nv_bfloat16>(total + term)) : total + term;
    }
    for (float of : lane)
        total += of;
    double block = 0, blocks = 0;
    for (int i = 0; i < n && way == BY_BLOCKS; i++) {
        block += (double)a[i] * (double)b[i];
        if (i % 16 == 15 || i == n - 1)
            blocks = (double)truncated(blocks + block), block = 0;
    }
    return way == BY_BLOCKS ? (float)blocks : total;
}

/* Tests bf16 operands, whose products are exact, with y as fp32 and as bf16. */
static void expect_bounds(int n, bool positive) {
    enum { ELEMENTS = 64 };
    std::vector<float> a((size_t)n), b((size_t)n);
    verdict fp32[WAYS], bf16[WAYS];
    uint32_t state = 1;
    for (int i = 0; i < ELEMENTS; i++) {
        for (int k = 0; k < 2 * n; k++) {
            state = state * 1664525 + 1013904223;
            float x = (float)(state >> 8) / (1 << 23) - 1;
            (k < n ? a : b)[(size_t)(k % n)] = widen(narrow<__nv_bfloat16>(positive ? fabsf(x) : x));
        }
        num exact = dot(a.data(), b.data(), n, true);
        for (int w = 0; w < WAYS; w++) {
            float y = add_up(a.data(), b.data(), n, (enum way)w);
            fp32[w].see(y, exact, i);
            bf16[w].see(narrow<__nv_bfloat16>(y), exact, i);
        }
    }
    for (int w = 0; w < WAYS; w++) {
        bool fine = w < RIGHT ? fp32[w].share < 0.5 && bf16[w].share < 0.5 : fp32[w].share > 1 && bf16[w].share > 1;
        passed += fine;
        failed += !fine;
        if (!fine)
            printf("bound.h: %d%s terms, %s: %.3g of the limit, with bf16 %.3g\n", n, positive ? " positive" : "",
                   ways[w], fp32[w].share, bf16[w].share);
    }
}

/* Expects NaN for a value that was not written. */
static void expect_no_number(float y) {
    verdict fp32, bf16;
    fp32.see(y, num(1, 0.5, 0, 0), 0);
    bf16.see(narrow<__nv_bfloat16>(y), num(1, 0.5, 0, 0), 0);
    bool fine = fp32.share > 1 && bf16.share > 1;
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("bound.h: %g is within the limit\n", (double)y);
}

int main(void) {
    for (int n : {16, 64, 768, 3072, 50304})
        expect_bounds(n, false);
    for (int n : {16, 64, 768})
        expect_bounds(n, true);
    expect_no_number(NAN);
    expect_no_number(INFINITY);
    EXPECT(barrier_missed, 64, "waits at a __syncthreads that will never be reached by thread (5,0,0)");
    EXPECT(barrier_after_return, 64, "waits at a __syncthreads that will never be reached by thread (63,0,0)");
    EXPECT(barriers_differ, 64, "is at another __syncthreads than");
    EXPECT(lane_gone, 64, "thread (7,0,0)");
    EXPECT(lane_never, 40, "has a mask with a thread that is not there: thread (0,0,1)");
    EXPECT(lane_elsewhere, 64, "waits in its warp in vain for thread");
    EXPECT(mask_without_me, 64, "is not in its own mask: thread");
    EXPECT(mask_without_source, 64, "takes from a thread that is not in its mask: thread (");
    EXPECT(masks_differ, 64, "(masks_differ): thread ("); /* the order decides which of the mistakes it is */
    EXPECT(operations_differ, 64, "meets another warp operation, or another mask, of");
    EXPECT(copy_never_awaited, 64, "ends before a copy has landed, begun by thread (");
    EXPECT(copy_never_committed, 64, "ends before a copy has landed, begun by thread (");
    EXPECT(copy_misaligned, 64, "copies from or to what is not aligned, or not 4, 8 or 16 bytes: thread (");
    EXPECT(copies, 64, NULL);
    EXPECT(halves, 64, NULL);
    EXPECT(poisoned<float>, 64, NULL);
    EXPECT(poisoned<double>, 64, NULL);
    printf("stand-in and bounds: %d passed, %d failed\n", passed, failed);
    return failed > 0;
}
