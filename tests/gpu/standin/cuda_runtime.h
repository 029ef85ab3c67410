/* The part of CUDA used by the kernels of runtime/, on the CPU, for tests only. grid.h explains how kernels run. */
#ifndef STANDIN_CUDA_RUNTIME_H
#define STANDIN_CUDA_RUNTIME_H
#include "grid.h"
#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __grid_constant__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __shared__ static thread_local /* see grid.cpp */

/* Vectors; any memory may be read through them. */
#define VECTOR(type, name, element, n, ...)                                                                            \
    struct __attribute__((aligned(n), may_alias)) name {                                                               \
        element __VA_ARGS__;                                                                                           \
    };
VECTOR(float, float2, float, 8, x, y)
VECTOR(float, float4, float, 16, x, y, z, w)
VECTOR(int, int2, int, 8, x, y)
VECTOR(int, int4, int, 16, x, y, z, w)
VECTOR(unsigned, uint2, unsigned, 8, x, y)
VECTOR(unsigned, uint4, unsigned, 16, x, y, z, w)
#undef VECTOR
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* Warps: threads that wait for each other. */
static const int warpSize = 32;
static inline void __syncthreads(GRID_HERE) { grid_sync({file, line}); }
static inline void __syncwarp(unsigned mask = ~0u, GRID_HERE) { grid_exchange(mask, GRID_SYNC, 0, 0, {file, line}); }
static inline unsigned __ballot_sync(unsigned mask, int predicate, GRID_HERE) {
    return (unsigned)grid_exchange(mask, GRID_BALLOT, predicate != 0, 0, {file, line});
}
static inline int __any_sync(unsigned mask, int predicate, GRID_HERE) {
    return grid_exchange(mask, GRID_BALLOT, predicate != 0, 0, {file, line}) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, GRID_HERE) {
    return grid_exchange(mask, GRID_BALLOT, predicate == 0, 0, {file, line}) == 0;
}

template <typename T> T grid_shuffle(unsigned mask, T value, unsigned source, grid_place at) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves at most eight bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = grid_exchange(mask, GRID_SHUFFLE, word, source, at);
    memcpy(&value, &word, sizeof value);
    return value;
}
template <typename T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, GRID_HERE) {
    unsigned lane = grid_lane(), group = lane & ~(unsigned)(width - 1);
    return grid_shuffle(mask, value, group | ((unsigned)source & (unsigned)(width - 1)), {file, line});
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32, GRID_HERE) {
    unsigned lane = grid_lane(), source = lane ^ (unsigned)other, end = (lane | (unsigned)(width - 1)) + 1;
    return grid_shuffle(mask, value, source < end ? source : lane, {file, line});
}
template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, GRID_HERE) {
    unsigned lane = grid_lane(), end = (lane | (unsigned)(width - 1)) + 1;
    return grid_shuffle(mask, value, lane + by < end ? lane + by : lane, {file, line});
}
template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, GRID_HERE) {
    unsigned lane = grid_lane(), begin = lane & ~(unsigned)(width - 1);
    return grid_shuffle(mask, value, lane >= begin + by ? lane - by : lane, {file, line});
}

/* Arithmetic. Operations that are approximate on a GPU are exact here. */
template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }
#define __expf expf /* libm has functions of these names */
#define __logf logf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline int __popc(unsigned x) { /* not the builtin, which is a call without -mpopcnt */
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}
static inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline float __int_as_float(int i) {
    float f;
    memcpy(&f, &i, 4);
    return f;
}
static inline int __float_as_int(float f) {
    int i;
    memcpy(&i, &f, 4);
    return i;
}
#endif
