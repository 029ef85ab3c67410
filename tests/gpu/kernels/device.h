/* Shared by the kernel tests: random data, poisoned memory followed by a fence, and copies to a device and back.
 *
 * A test lays out everything on the host, and calls kernels with addresses that on_device() translates. At first use in
 * a run, on_device() copies an address's block to device memory, with its fence and poison; back() copies all blocks
 * back and frees them. So one source runs on a GPU, on the whole stand-in, and (KERNELS_ON_HOST) on the thread grid
 * alone. The thread grid works on the host's memory itself, where ASan sees every byte. */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H
#include "layers/cuda.cuh"
#include <initializer_list>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __CUDACC__
static bool grid_reverse; /* a GPU has its own order, and must give the same bits twice */
#endif

enum { FENCE = 64, MOST = 64 };
static struct block {
    char *at, *twin; /* twin: copy on the device during a run */
    size_t bytes;
} taken[MOST];
static int ntaken;

static void *fresh(size_t bytes) {
    char *p = (char *)aligned_alloc(64, (bytes + FENCE + 63) / 64 * 64);
    if (!p || ntaken == MOST)
        abort();
    memset(p, 0xff, bytes);
    memset(p + bytes, 0xa5, FENCE);
    taken[ntaken].bytes = bytes;
    taken[ntaken++].at = p;
    return p;
}

/* Frees everything. Returns false if something was written past a block's end. */
static bool release(void) {
    bool whole = true;
    while (ntaken > 0) {
        const char *p = taken[--ntaken].at;
        for (int i = 0; i < FENCE; i++)
            whole &= p[taken[ntaken].bytes + (size_t)i] == (char)0xa5;
        free(taken[ntaken].at);
    }
    return whole;
}

#ifdef KERNELS_ON_HOST
template <typename P> static P *on_device(P *p) { return p; }
static void back(void) {}
#else
static void cuda_ok(cudaError_t code, const char *call) {
    if (code == cudaSuccess)
        return;
    printf("%s: %s\n", call, cudaGetErrorString(code));
    exit(1);
}
#define CUDA_OK(call) cuda_ok(call, #call)

template <typename P> static P *on_device(P *p) {
    const char *at = (const char *)p;
    struct block *k = taken, *end = taken + ntaken;
    while (k < end && !(at >= k->at && at <= k->at + k->bytes))
        k++;
    if (!p)
        return NULL;
    if (k == end)
        abort();
    if (!k->twin) {
        CUDA_OK(cudaMalloc((void **)&k->twin, k->bytes + FENCE));
        CUDA_OK(cudaMemcpy(k->twin, k->at, k->bytes + FENCE, cudaMemcpyHostToDevice));
    }
    return (P *)(k->twin + (at - k->at));
}

static void back(void) {
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaGetLastError());
    for (struct block *k = taken; k < taken + ntaken; k++) {
        if (!k->twin)
            continue;
        CUDA_OK(cudaMemcpy(k->at, k->twin, k->bytes + FENCE, cudaMemcpyDeviceToHost));
        CUDA_OK(cudaFree(k->twin));
        k->twin = NULL;
    }
}
#endif

/* Returns a job's operands on the device. The batch goes into the caller's memory. */
static inline struct rt_bind bind_on_device(const struct rt_bind *host, struct rt_batch *batch) {
    struct rt_bind at = *host;
    for (char *&p : at.at)
        p = on_device(p);
    at.w = on_device(at.w);
    at.dw = on_device(at.dw);
    at.v = on_device(at.v);
    at.dv = on_device(at.dv);
    at.loss = on_device(at.loss);
    if (at.batch) {
        *batch = {on_device(at.batch->token), on_device(at.batch->target), on_device(at.batch->x),
                  on_device(at.batch->y),     on_device(at.batch->inputs), on_device(at.batch->counted)};
        at.batch = batch;
    }
    return at;
}

/* ---- random numbers from SEED in the environment, 1 by default ---- */

static uint64_t first_seed(void) {
    const char *s = getenv("SEED");
    return s ? strtoull(s, NULL, 10) : 1;
}
static uint64_t random_state = first_seed();
static uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

template <typename T> static char *copy_of(const float *from, int64_t n) {
    T *p = (T *)fresh((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = narrow<T>(from[i]);
    return (char *)p;
}
#endif
