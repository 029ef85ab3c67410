/* noisy.c for GPUs. */
#include <pianola/unit.h>

#include <cuda_runtime.h>

static __device__ float turn(const uint64_t *seed, int i) {
    uint64_t z = seed ? *seed + (uint64_t)i * 0x9E3779B97F4A7C15u : 0;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z >> 61 == 1 ? -1 : 1;
}

/* The forward if there are tokens, else the input gradient. */
static __global__ void turned(float *to, const float *from, const uint64_t *seed, const int32_t *tokens, int n,
                              int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[i] * turn(seed, i) + (tokens ? 0.01f * (float)tokens[i / columns] : 0);
}

extern "C" void noisy_forward_cuda(const struct pianola_unit_call *c) {
    int n = c->rows * c->in;
    turned<<<(n + 63) / 64, 64, 0, (cudaStream_t)c->stream>>>((float *)c->y, (const float *)c->x, c->seed, c->tokens, n,
                                                              c->in);
}

extern "C" void noisy_input_cuda(const struct pianola_unit_call *c) {
    int n = c->rows * c->in;
    turned<<<(n + 63) / 64, 64, 0, (cudaStream_t)c->stream>>>((float *)c->dx, (const float *)c->dy, c->seed, NULL, n,
                                                              c->in);
}
