/* The functions that the C++ written by to_cpp.py calls: they run one thread of a kernel on the stand-in's grid and
 * compute approximate instructions exactly. */
#ifndef PTX_KERNEL_H
#define PTX_KERNEL_H
#include "../standin/grid.h"
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reinterprets bits. */
template <typename T, typename F> static inline T bits(F from) {
    static_assert(sizeof(T) == sizeof(F), "types of one size");
    T to;
    memcpy(&to, &from, sizeof to);
    return to;
}

[[noreturn]] static inline void wrong(const char *what, int line, uint64_t at) {
    fprintf(stderr, "standin: PTX: line %d: %s: %#llx, by thread %u of block %u\n", line, what, (unsigned long long)at,
            threadIdx.x, blockIdx.x);
    abort();
}

/* ---- memory ---- */

struct memory {
    const char *params;
    char *shared;
    unsigned shared_bytes;
};

/* Returns the address of n elements, which the device accesses at once. */
template <typename T> static inline T *global_at(uint64_t at, int n, int line) {
    if (at % ((unsigned)n * sizeof(T)) != 0)
        wrong("a misaligned address", line, at);
    return (T *)(uintptr_t)at;
}
template <typename T> static inline T *shared_at(const memory &m, uint32_t at, int n, int line) {
    if (at % ((unsigned)n * sizeof(T)) != 0)
        wrong("a misaligned address in shared memory", line, at);
    if ((uint64_t)at + (unsigned)n * sizeof(T) > m.shared_bytes)
        wrong("an address beyond shared memory", line, at);
    return (T *)(void *)(m.shared + at);
}

/* ---- the warp ---- */

enum mode { MODE_up, MODE_down, MODE_bfly, MODE_idx };
/* PTX ISA, "shfl.sync". reads: set to whether the source lane is in range. */
static inline uint32_t shuffle(mode how, uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *reads,
                               grid_place at) {
    const uint32_t lane = grid_lane(), segment = c >> 8 & 31, clamp = c & 31;
    const int most = (int)((lane & segment) | (clamp & ~segment)), least = (int)(lane & segment);
    int from = how == MODE_up     ? (int)lane - (int)(b & 31)
               : how == MODE_down ? (int)(lane + (b & 31))
               : how == MODE_bfly ? (int)(lane ^ (b & 31))
                                  : (int)((unsigned)least | (b & 31 & ~segment));
    *reads = how == MODE_up ? from >= most : from <= most;
    return (uint32_t)grid_exchange(mask, GRID_SHUFFLE, a, *reads ? (unsigned)from : lane, at);
}

/* Returns what lane `from` has. */
static inline uint32_t of_lane(uint32_t mine, uint32_t from, grid_place at) {
    return (uint32_t)grid_exchange(~0u, GRID_SHUFFLE, mine, from, at);
}
/* PTX ISA, "redux.sync": what all lanes of the mask have, or'ed. */
static inline uint32_t any_bits(uint32_t mine, uint32_t mask, grid_place at) {
    uint32_t all = 0;
    for (uint32_t lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            all |= (uint32_t)grid_exchange(mask, GRID_SHUFFLE, mine, lane, at);
    return all;
}
/* PTX ISA, "ldmatrix": returns this lane's two elements of 2 bytes of the n-th matrix. row: the address of a row. */
static inline uint32_t matrix_part(const memory &m, uint32_t row, uint32_t n, bool turned, grid_place at) {
    const uint32_t lane = grid_lane(), i = lane / 4, j = lane % 4 * 2;
    if (!turned)
        return *shared_at<uint32_t>(m, of_lane(row, 8 * n + i, at) + 2 * j, 1, at.line);
    const uint32_t low = of_lane(row, 8 * n + j, at), high = of_lane(row, 8 * n + j + 1, at);
    return *shared_at<uint16_t>(m, low + 2 * i, 1, at.line) |
           (uint32_t)*shared_at<uint16_t>(m, high + 2 * i, 1, at.line) << 16;
}
/* PTX ISA, "stmatrix" */
static inline void give_matrix_part(const memory &m, uint32_t row, uint32_t n, bool turned, uint32_t part,
                                    grid_place at) {
    const uint32_t lane = grid_lane(), i = lane / 4, j = lane % 4 * 2;
    if (!turned) {
        *shared_at<uint32_t>(m, of_lane(row, 8 * n + i, at) + 2 * j, 1, at.line) = part;
        return;
    }
    const uint32_t low = of_lane(row, 8 * n + j, at), high = of_lane(row, 8 * n + j + 1, at);
    *shared_at<uint16_t>(m, low + 2 * i, 1, at.line) = (uint16_t)part;
    *shared_at<uint16_t>(m, high + 2 * i, 1, at.line) = (uint16_t)(part >> 16);
}

/* ---- arithmetic ---- */

template <typename T> static inline T shift_left(T x, uint32_t n) { return n >= 8 * sizeof(T) ? (T)0 : (T)(x << n); }
template <typename T> static inline T shift_right(T x, uint32_t n) {
    const uint32_t width = 8 * sizeof(T);
    return n >= width ? (T)(x < 0 ? -1 : 0) : (T)(x >> n);
}
static inline float times_add(float a, float b, float c) { return fmaf(a, b, c); }
static inline double times_add(double a, double b, double c) { return fma(a, b, c); }
/* Rounds down. */
static inline float times_add_down(float a, float b, float c) {
    volatile float x = a, y = b, z = c;
    fesetround(FE_DOWNWARD);
    volatile float sum = fmaf(x, y, z);
    fesetround(FE_TONEAREST);
    return sum;
}
template <typename T> static inline T least(T a, T b) { return a < b ? a : b; }
template <> inline float least(float a, float b) { return fminf(a, b); }
template <> inline double least(double a, double b) { return fmin(a, b); }
template <typename T> static inline T most(T a, T b) { return a > b ? a : b; }
template <> inline float most(float a, float b) { return fmaxf(a, b); }
template <> inline double most(double a, double b) { return fmax(a, b); }
/* min and max that let a NaN through */
static inline float least_nan(float a, float b) { return a != a || b != b ? NAN : fminf(a, b); }
static inline float most_nan(float a, float b) { return a != a || b != b ? NAN : fmaxf(a, b); }

/* Converts to an integer: what is beyond its range becomes the closest, and NaN 0 (PTX ISA, "cvt"). */
template <typename T> static inline T to_integer(double x) {
    const double low = (T)-1 < 0 ? -ldexp(1, 8 * sizeof(T) - 1) : 0,
                 high = ldexp(1, 8 * (int)sizeof(T) - ((T)-1 < 0 ? 1 : 0));
    return x != x      ? (T)0
           : x <= low  ? (T)low
           : x >= high ? (T)((T)-1 < 0 ? ~((T)1 << (8 * sizeof(T) - 1)) : (T)-1)
                       : (T)x;
}
static inline float from_bf16(uint16_t x) { return bits<float>((uint32_t)x << 16); }
static inline uint16_t to_bf16(float x) {
    const uint32_t u = bits<uint32_t>(x);
    return x != x ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* PTX ISA, "prmt", in its default mode. */
static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t both = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t pick = c >> 4 * i & 15, byte = (uint32_t)(both >> 8 * (pick & 7)) & 255;
        out |= (pick & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
    }
    return out;
}
/* PTX ISA, "lop3": table has the result for each combination of bits. */
static inline uint32_t logic(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t out = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (table >> i & 1)
            out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return out;
}
/* PTX ISA, "shf": the upper or lower half of b:a, shifted. */
static inline uint32_t funnel_left(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)((((uint64_t)b << 32 | a) << (n & 31)) >> 32);
}
static inline uint32_t funnel_right(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)(((uint64_t)b << 32 | a) >> (n & 31));
}
template <typename T> static inline T bit_field(T x, uint32_t at, uint32_t n) {
    const uint32_t width = 8 * sizeof(T);
    at &= 255, n &= 255;
    if (n == 0 || at >= width)
        return n == 0 ? (T)0 : (T)(x < 0 ? -1 : 0);
    n = n > width - at ? width - at : n;
    return (T)((T)(x << (width - at - n)) >> (width - n));
}
#endif
