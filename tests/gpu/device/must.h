/* Errors that end nccl.cu and ceilings.cu: prints the failed call, and why, on stdout. */
#ifndef TESTS_GPU_MUST_H
#define TESTS_GPU_MUST_H
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(bool fine, const char *call, const char *why) {
    if (fine)
        return;
    printf("%s: %s\n", call, why);
    exit(1);
}
#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = call;                                                                                       \
        must(code == cudaSuccess, #call, cudaGetErrorString(code));                                                    \
    } while (0)
#endif
