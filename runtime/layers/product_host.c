/* Products by libxsmm, where the processor has AVX2 and FMA; elsewhere by BLAS. libxsmm makes a kernel for each shape
 * on its first use.
 *
 * A kernel needs its block of b contiguous, with columns as wide as four registers, and the rows of a contiguous along
 * k. So blocks are copied, or transposed, into a thread's scratch: b's for all rows of a panel, and if a is stored
 * transposed, the panel itself (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication",
 * section 4). Blocks are sized for caches and change no bits, since a kernel continues the sums in c. The exception is
 * DEPTH, which determines the parts in which a product is added to c. */
#include "product.h"
#include "host.h"
#include <cblas.h>
#include <stdint.h>
#include <string.h>

static void blas(const struct product *p) {
    for (int i = 0; p->bias && i < p->m; i++)
        memcpy(p->c + (int64_t)i * p->stride, p->bias, (size_t)p->n * sizeof(float));
    cblas_sgemm(CblasRowMajor, p->a.turned ? CblasTrans : CblasNoTrans, p->b.turned ? CblasTrans : CblasNoTrans, p->m,
                p->n, p->k, 1, p->a.at, p->a.stride, p->b.at, p->b.stride, p->add || p->bias ? 1 : 0, p->c, p->stride);
}

#ifdef __x86_64__
#include <libxsmm.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    COLUMNS = 64,       /* per block of b */
    DEPTH = 768,        /* per block, along k */
    ROWS = 768,         /* per panel of a */
    LANES = 16,         /* blocks are transposed in squares of this size */
    AT_ONCE = 48,       /* rows of c that are added to at a time */
    FEW = 2 * COLUMNS,  /* rows: with at most this many, copying a block of b does not pay off */
    NEAR = 4 * COLUMNS, /* floats between the rows of a transposed a: up to this distance, a is read in place */
    PAST = LANES        /* keeps a panel's rows from falling into the same lines of a cache */
};
struct scratch {
    float b[COLUMNS * DEPTH], c[AT_ONCE * COLUMNS], a[ROWS * (DEPTH + PAST)];
};

/* Makes a kernel, in libxsmm's terms, which are Fortran's: c' = b' a', where all are stored transposed. */
static libxsmm_smmfunction kernel_of(int m, int n, int k, int a_stride, int b_stride, int stride, bool adds,
                                     int flags) {
    const float one = 1, sum = adds;
    return libxsmm_smmdispatch(n, m, k, &b_stride, &a_stride, &stride, &one, &sum, &flags, NULL);
}

static pthread_key_t key;
static bool works; /* the processor has the instructions, and the system lets a program make code */

static void find_kernels(void) {
    works = libxsmm_get_target_archid() >= LIBXSMM_X86_AVX2 && kernel_of(1, 1, 1, 1, 1, 1, false, 0) &&
            pthread_key_create(&key, free) == 0;
}

static struct scratch *scratch_of_thread(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_kernels);
    struct scratch *s = works ? pthread_getspecific(key) : NULL;
    if (works && !s && (s = aligned_alloc(4096, (sizeof *s + 4095) / 4096 * 4096)))
        pthread_setspecific(key, s);
    return s;
}

typedef float strip __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* One of the four rounds that transpose a square: rows a distance apart exchange halves, quarters, ... */
#define LOW_8  0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW_4  0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_2  0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_1  0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define EXCHANGE(to, from, distance)                                                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (!(i & (distance))) {                                  \
        (to)[i] = __builtin_shufflevector((from)[i], (from)[i + (distance)], LOW_##distance);                          \
        (to)[i + (distance)] = __builtin_shufflevector((from)[i], (from)[i + (distance)], HIGH_##distance);            \
    }

static inline __attribute__((always_inline)) void turn_square(const float *from, int64_t stride, float *to,
                                                              int64_t to_stride) {
    strip x[LANES], y[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        x[i] = *(const strip *)(from + i * stride);
    EXCHANGE(y, x, 8)
    EXCHANGE(x, y, 4)
    EXCHANGE(y, x, 2)
    EXCHANGE(x, y, 1)
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        *(strip *)(to + i * to_stride) = x[i];
}

/* Transposes a block: n rows of k become k rows of n. */
static WIDE void transpose_block(const float *from, int stride, int n, int k, float *to, int to_stride) {
    int n_whole = n - n % LANES, k_whole = k - k % LANES;
    for (int j = 0; j < n_whole; j += LANES)
        for (int i = 0; i < k_whole; i += LANES)
            turn_square(from + (int64_t)j * stride + i, stride, to + (int64_t)i * to_stride + j, to_stride);
    for (int j = 0; j < n; j++)
        for (int i = j < n_whole ? k_whole : 0; i < k; i++)
            to[(int64_t)i * to_stride + j] = from[(int64_t)j * stride + i];
}

static WIDE void pack_block(const float *from, int stride, int n, int k, float *to) {
    if (n == COLUMNS)
        for (int i = 0; i < k; i++, from += stride, to += COLUMNS)
            for (int j = 0; j < COLUMNS; j += LANES)
                *(strip *)(to + j) = *(const strip *)(from + j);
    else
        for (int i = 0; i < k; i++, from += stride, to += n)
            memcpy(to, from, (size_t)n * sizeof *to);
}

/* A block of a product: its first row, column and depth, and its extents. */
struct block {
    int row, rows, column, columns, deep, depth;
};

/* Returns the part of a matrix that begins at row i and column j. */
static struct matrix block_of_matrix(struct matrix x, int i, int j) {
    x.at += x.turned ? (int64_t)j * x.stride + i : (int64_t)i * x.stride + j;
    return x;
}

static struct matrix panel(const struct product *p, const struct block *at, float *room) {
    struct matrix a = block_of_matrix(p->a, at->row, at->deep);
    if (!a.turned || a.stride <= NEAR)
        return a;
    transpose_block(a.at, a.stride, at->depth, at->rows, room, at->depth + PAST);
    return (struct matrix){room, at->depth + PAST, false};
}

static struct matrix columns(const struct product *p, const struct block *at, float *room) {
    struct matrix b = block_of_matrix(p->b, at->deep, at->column);
    if (b.turned)
        transpose_block(b.at, b.stride, at->columns, at->depth, room, at->columns);
    else if (at->rows > FEW)
        pack_block(b.at, b.stride, at->columns, at->depth, room);
    else
        return b;
    return (struct matrix){room, at->columns, false};
}

/* Returns whether a block has so few rows and columns that libxsmm's wide kernels would split each element into several
 * chains, to keep the processor busy. */
static bool few(const struct block *at) { return at->columns <= LANES && at->rows < LANES; }

static WIDE void multiply_few(const struct block *at, struct matrix a, struct matrix b, bool adds, float *c,
                              int stride) {
    for (int i = 0; i < at->rows; i++, c += stride) {
        float sum[LANES] = {0};
        memcpy(sum, c, adds ? (size_t)at->columns * sizeof *c : 0);
        for (int64_t x = 0; x < at->depth; x++)
            for (int j = 0; j < at->columns; j++)
                sum[j] =
                    fmaf(a.at[a.turned ? x * a.stride + i : (int64_t)i * a.stride + x], b.at[x * b.stride + j], sum[j]);
        memcpy(c, sum, (size_t)at->columns * sizeof *c);
    }
}

static void multiply_block(const struct block *at, struct matrix a, struct matrix b, bool adds, float *c, int stride) {
    if (few(at)) {
        multiply_few(at, a, b, adds, c, stride);
        return;
    }
    libxsmm_smmfunction kernel = kernel_of(at->rows, at->columns, at->depth, a.stride, b.stride, stride, adds,
                                           a.turned ? LIBXSMM_GEMM_FLAG_TRANS_B : 0);
    if (!kernel) { /* the first kernel could be made: see begin */
        fprintf(stderr, "pianola: no memory for the kernel of a matrix product\n");
        abort();
    }
    kernel(b.at, a.at, c);
}

/* Multiplies a few rows at a time, so that the product is still in the nearest cache when it is added to c, or a bias
 * to it. */
static void multiply_and_add(const struct product *p, struct block at, struct matrix a, struct matrix b, float *room) {
    for (int end = at.row + at.rows, begin = at.row; at.row < end; at.row += at.rows) {
        at.rows = host_least(AT_ONCE, end - at.row);
        struct matrix rows = block_of_matrix(a, at.row - begin, 0);
        float *c = p->c + (int64_t)at.row * p->stride + at.column;
        if (p->add) {
            multiply_block(&at, rows, b, false, room, at.columns);
            host_add_rows(room, at.columns, at.rows, at.columns, c, p->stride);
        } else {
            multiply_block(&at, rows, b, at.deep > 0, c, p->stride);
            host_add_rows(p->bias + at.column, 0, at.rows, at.columns, c, p->stride);
        }
    }
}

/* Returns the length of equal steps, in whole squares, none longer than most. */
static int equal_step(int n, int most) {
    int steps = (n + most - 1) / most;
    return ((n + steps - 1) / steps + LANES - 1) / LANES * LANES;
}

static void by_kernels(const struct product *p, struct scratch *s) {
    int depth = equal_step(p->k, DEPTH), rows = equal_step(p->m, ROWS);
    struct block at;
    for (at.deep = 0; at.deep < p->k; at.deep += depth)
        for (at.row = 0; at.row < p->m; at.row += rows) {
            at.depth = host_least(depth, p->k - at.deep);
            at.rows = host_least(rows, p->m - at.row);
            struct matrix a = panel(p, &at, s->a);
            for (at.column = 0; at.column < p->n; at.column += COLUMNS) {
                at.columns = host_least(COLUMNS, p->n - at.column);
                struct matrix b = columns(p, &at, s->b);
                if (p->add || (p->bias && at.deep + at.depth == p->k))
                    multiply_and_add(p, at, a, b, s->c);
                else
                    multiply_block(&at, a, b, at.deep > 0, p->c + (int64_t)at.row * p->stride + at.column, p->stride);
            }
        }
}

const char *product_kernels(void) { return scratch_of_thread() ? libxsmm_get_target_arch() : NULL; }

void host_product(struct product p) {
    if (p.m <= 0 || p.n <= 0)
        return;
    struct scratch *s = p.k > 0 ? scratch_of_thread() : NULL;
    if (s)
        by_kernels(&p, s);
    else
        blas(&p);
}
#else
const char *product_kernels(void) { return NULL; }
void host_product(struct product p) { blas(&p); }
#endif
