/* Matrix products, bit for bit: each element is a chain of fused multiply-adds along k, as with C's fmaf. */
#include "layers/product.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 3 }; /* floats after each row that belong to others */

static uint64_t state;
static float draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) * 0x1p-31f;
}

static float *filled(size_t n) {
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = draw();
    return x;
}

static float at(struct matrix x, int i, int j) {
    return x.turned ? x.at[(size_t)j * (size_t)x.stride + (size_t)i] : x.at[(size_t)i * (size_t)x.stride + (size_t)j];
}

static struct matrix drawn(int rows, int columns, bool turned) {
    int stride = (turned ? rows : columns) + MARGIN;
    return (struct matrix){filled((size_t)stride * (size_t)(turned ? columns : rows)), stride, turned};
}

/* Returns the part of k that is added to the sum at once: equal parts of at most 768, in steps of 16. */
static int part_of(int k) {
    int parts = (k + 767) / 768, least = (k + parts - 1) / parts;
    return (least + 15) / 16 * 16;
}

static float sum_of(const struct product *p, int i, int j, int from, int to) {
    float sum = 0;
    for (int x = from; x < to; x++)
        sum = fmaf(at(p->a, i, x), at(p->b, x, j), sum);
    return sum;
}

/* Checks a product. begin: 0: starts at nothing; 1: the same, and a bias is added last; 2: starts with what c holds */
static void check(int m, int n, int k, bool turn_a, bool turn_b, int begin) {
    struct product p = {m, n, k, drawn(m, k, turn_a), drawn(k, n, turn_b), .stride = n + MARGIN, .add = begin == 2};
    size_t cells = (size_t)m * (size_t)p.stride;
    float *bias = filled((size_t)n), *before = filled(cells), *c = malloc((cells + 1) * sizeof *c);
    memcpy(c, before, cells * sizeof *c);
    p.c = c;
    p.bias = begin == 1 ? bias : NULL;
    host_product(p);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < p.stride; j++) {
            size_t cell = (size_t)i * (size_t)p.stride + (size_t)j;
            float sum = begin == 2 || j >= n ? before[cell] : sum_of(&p, i, j, 0, k);
            for (int from = 0; begin == 2 && j < n && from < k; from += part_of(k))
                sum += sum_of(&p, i, j, from, from + part_of(k) < k ? from + part_of(k) : k);
            sum += j < n && begin == 1 ? bias[j] : 0;
            cr_assert(memcmp(&sum, &c[cell], sizeof sum) == 0 ||
                          (product_kernels() == NULL && fabsf(sum - c[cell]) < 1e-3f),
                      "%d x %d x %d, turned %d %d, begin %d: %d, %d is %a, not %a", m, n, k, turn_a, turn_b, begin, i,
                      j, (double)c[cell], (double)sum);
        }
    free((void *)(uintptr_t)p.a.at);
    free((void *)(uintptr_t)p.b.at);
    free(bias);
    free(before);
    free(c);
}

static void check_all(int m, int n, int k) {
    for (int way = 0; way < 12; way++)
        check(m, n, k, way & 1, way >> 1 & 1, way / 4);
}

/* Sizes around the sizes of blocks and panels (64, 256, 768), with one row, one column, and none. */
Test(product, chains_of_fused_multiply_adds) {
    static const int shapes[][3] = {{1, 1, 1},      {1, 64, 64},   {64, 1, 64},  {64, 64, 1},   {64, 64, 64},
                                    {65, 63, 17},   {16, 80, 96},  {128, 64, 9}, {129, 65, 33}, {40, 130, 9},
                                    {7, 66, 768},   {5, 65, 769},  {70, 20, 97}, {769, 66, 5},  {260, 30, 20},
                                    {18, 17, 1537}, {1537, 3, 18}, {257, 257, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_all(shapes[i][0], shapes[i][1], shapes[i][2]);
    for (int m = 1; m < 18; m++)
        for (int n = 1; n < 18; n++)
            check(m, n, 21, m & 1, n & 1, (m + n) % 3);
    for (int i = 0; i < 40; i++)
        check(1 + (int)(fabsf(draw()) * 150), 1 + (int)(fabsf(draw()) * 150), 1 + (int)(fabsf(draw()) * 150), i & 1,
              i >> 1 & 1, i % 3);
}

Test(product, of_nothing) {
    check_all(0, 5, 5);
    check_all(5, 0, 5);
    check_all(5, 70, 0);
}

/* A row's bits do not depend on which rows are multiplied with it. */
Test(product, rows_apart) {
    int m = 200, n = 100, k = 900;
    struct matrix a = drawn(m, k, false), b = drawn(k, n, false);
    float *whole = filled((size_t)m * (size_t)n), *apart = filled((size_t)m * (size_t)n);
    host_product((struct product){m, n, k, a, b, .c = whole, .stride = n});
    for (int i = 0, rows; i < m; i += rows) {
        rows = i % 37 + 1 < m - i ? i % 37 + 1 : m - i;
        host_product((struct product){rows,
                                      n,
                                      k,
                                      {a.at + (size_t)i * (size_t)a.stride, a.stride, false},
                                      b,
                                      .c = apart + (size_t)i * (size_t)n,
                                      .stride = n});
    }
    if (product_kernels())
        cr_assert_arr_eq(whole, apart, (size_t)m * (size_t)n * sizeof *whole);
    free((void *)(uintptr_t)a.at);
    free((void *)(uintptr_t)b.at);
    free(whole);
    free(apart);
}
