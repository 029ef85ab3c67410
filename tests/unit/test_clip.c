/* The exact sum of squares for clipping, against integers of 128 bits and against PyTorch's clip_grad_norm_ in extreme
 * cases: no gradient, a huge one, a tiny one, and NaN. */
#include "layers/clip.h"
#include <criterion/criterion.h>
#include <float.h>
#include <stdlib.h>

enum { LONG = 300000 }; /* more squares than a table has room for */
__extension__ typedef unsigned __int128 wide;

/* Takes the norm of a stage of one layer with n parameters. */
static void norm_of(const float *g, int64_t n, uint64_t *norm, bool writes) {
    struct rt_layer l = {.kind = LAYER_linear, .in = 1, .out = (int32_t)n};
    struct rt_stage s = {.layer = &l, .nlayers = 1, .weight = 4 * n};
    struct rt_model m = {.clip = 1};
    host_norm((struct rt_piece){&m, &s, 0, n}, g, norm, writes);
}

static float scale_of(const float *g, int64_t n, float clip) {
    uint64_t norm[NORM_WORDS];
    norm_of(g, n, norm, true);
    return clip_scale(clip, norm);
}

static float *numbers(int64_t n, unsigned seed) {
    float *g = malloc((size_t)n * sizeof *g);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        uint32_t bits = seed ^ seed >> 15;
        memcpy(&g[i], &bits, sizeof bits);
        g[i] = isfinite(g[i]) ? g[i] : 0;
    }
    return g;
}

/* n equal numbers m * 2^(e - 150) have the sum n m m 2^(2 e - 2), in units of 2^-298. */
static void expect_equal_ones(float x) {
    uint64_t norm[NORM_WORDS];
    float *g = malloc(LONG * sizeof *g);
    for (int i = 0; i < LONG; i++)
        g[i] = i % 2 ? x : -x;
    norm_of(g, LONG, norm, true);
    int e;
    uint64_t m = (uint64_t)ldexp(frexp((double)x, &e), 24); /* x = m 2^(e - 24) */
    wide sum = (wide)(m * m) * LONG;
    int at = 2 * (e - 24) - NORM_LEAST;
    for (; at < 0; at++)
        sum >>= 1;
    for (int i = 0; i < NORM_LIMBS; i++) {
        int from = at - 32 * i; /* the sum's lowest bit, relative to this word */
        wide want = from <= -128 || from >= 32 ? 0 : from >= 0 ? sum << from : sum >> -from;
        cr_assert_eq(norm[i], (uint64_t)want & 0xffffffff, "%g: word %d is %llx", (double)x, i,
                     (unsigned long long)norm[i]);
    }
    cr_assert(fabs(norm_value(norm) - sqrt((double)LONG) * (double)x) <= 1e-15 * sqrt((double)LONG) * (double)x);
    free(g);
}

Test(clip, sums_are_exact) {
    const float x[] = {FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 1e30f, 1e-30f, 1, 0x1.fffffep-1f, 0x1.000002p65f, 3.1415927f};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        expect_equal_ones(x[i]);
}

Test(clip, large_ones_do_not_hide_small_ones) {
    const float g[] = {0x1p127f, FLT_TRUE_MIN, 0x1p-100f};
    uint64_t norm[NORM_WORDS], without[NORM_WORDS];
    norm_of(g, 3, norm, true);
    norm_of(g, 1, without, true);
    cr_assert(norm[0] == without[0] + 1 && norm[98 / 32] == without[98 / 32] + (1u << 98 % 32));
}

Test(clip, order_and_parts_do_not_matter) {
    enum { N = 10007 };
    float *g = numbers(N, 3), *other = malloc(N * sizeof *other);
    uint64_t whole[NORM_WORDS], parts[NORM_WORDS], sum[NORM_WORDS] = {0};
    for (int i = 0; i < N; i++)
        other[i] = g[(int64_t)i * 4211 % N];
    norm_of(g, N, whole, true);
    norm_of(other, 4000, parts, true);
    norm_of(other + 4000, N - 4000, parts, false);
    cr_assert_arr_eq(whole, parts, sizeof whole);
    for (int from = 0; from < N; from += 1000) { /* like the norms of ranks, added word by word */
        norm_of(g + from, N - from < 1000 ? N - from : 1000, parts, true);
        host_add_norm(sum, parts);
    }
    cr_assert(norm_value(sum) == norm_value(whole) && norm_value(whole) > 0);
    cr_assert(clip_scale(0.5f, sum) == clip_scale(0.5f, whole));
    free(g);
    free(other);
}

/* Gaps, and parameters that other members of a team count, do not matter, whatever their values. */
Test(clip, parameters_count_once) {
    struct rt_layer l[] = {
        {.kind = LAYER_linear, .config.linear.bias = true, .in = 3, .out = 5, .share = {SPLIT_ROWS, 1, 2, {0}}},
        {.kind = LAYER_layernorm, .out = 6, .param = 64},
        {.kind = LAYER_linear, .config.linear.bias = true, .in = 1, .out = 1, .param = 128, .set = SET_SHARED}};
    struct rt_stage s = {.layer = l, .nlayers = 3, .weight = 256};
    struct rt_model m = {.clip = 1};
    float g[64];
    uint64_t norm[NORM_WORDS];
    for (int i = 0; i < 64; i++)
        g[i] = i < 15 ? 2 : i >= 16 && i < 28 ? 3 : NAN;
    host_norm((struct rt_piece){&m, &s, 0, 64}, g, norm, true);
    cr_assert(norm_value(norm) == sqrt(15 * 4 + 12 * 9));
    host_norm((struct rt_piece){&m, &s, 8, 12}, g + 8, norm, true); /* a shard */
    cr_assert(norm_value(norm) == sqrt(7 * 4 + 4 * 9));
    s.place = 1; /* the first member counts the norm's parameters */
    host_norm((struct rt_piece){&m, &s, 0, 64}, g, norm, true);
    cr_assert(norm_value(norm) == sqrt(15 * 4));
}

Test(clip, ends) {
    const float zeros[] = {0, -0.0f, 0}, infinite[] = {1, -INFINITY}, nothing[] = {INFINITY, NAN, 1},
                four[] = {4, 0, 3};
    uint64_t norm[NORM_WORDS];
    cr_assert(scale_of(zeros, 3, 1) == 1);
    cr_assert(scale_of(four, 3, 10) == 1);
    cr_assert(scale_of(four, 3, 5) == (float)(5 / (5 + 1e-6)));
    cr_assert(scale_of(four, 3, 0.5f) == (float)(0.5 / (5 + 1e-6)));
    cr_assert(scale_of(infinite, 2, 1) == 0, "what is finite becomes 0, the rest no number");
    cr_assert(isnan(scale_of(nothing, 3, 1)));
    norm_of(infinite, 2, norm, true);
    cr_assert(isinf(norm_value(norm)));
    norm_of(zeros, 3, norm, true);
    cr_assert(norm_value(norm) == 0);
}

/* Adds a 64-bit number, shifted left, to the words. */
static void add_shifted(uint64_t *norm, uint64_t x, int shift) {
    for (int i = 0; i < 64; i++)
        norm[(shift + i) / 32] |= (x >> i & 1) << (shift + i) % 32;
}

/* Half a unit in the last place rounds to the even neighbour, and up if anything is below it. */
Test(clip, the_sum_is_rounded_to_the_nearest_double) {
    int seen = 0; /* cases in which the root differs too */
    for (int i = 0; i < 2000; i++) {
        uint64_t random = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15), top = (random >> 12 | UINT64_C(1) << 52);
        int shift = 40 + i % 400, low = i % 40;
        uint64_t norm[NORM_WORDS] = {0}, even = top + top % 2;
        double least = ldexp(1, shift + NORM_LEAST);
        add_shifted(norm, top, shift);
        cr_assert(norm_value(norm) == sqrt((double)top * least), "%d: exact", i);
        add_shifted(norm, 1, shift - 1);
        cr_assert(norm_value(norm) == sqrt((double)even * least), "%d: half", i);
        add_shifted(norm, 1, low);
        cr_assert(norm_value(norm) == sqrt((double)(top + 1) * least), "%d: more than half", i);
        seen += even == top && sqrt((double)top * least) != sqrt((double)(top + 1) * least);
    }
    cr_assert_gt(seen, 300, "%d", seen);
}
