/* Matrix products of the host layers, all by one function: c = a b, m x k by k x n, on rows of floats.
 *
 * Each element is a chain of fused multiply-adds from 0 in the order of k, to which a bias, or what c holds, is added:
 * so a microbatch's gradient is that of this microbatch alone until it joins the sum of the others. (Where k is above
 * 768, it joins in equal parts.) The bits depend on its row of a and its column of b alone: not on the shape, on how
 * rows are divided, or on the width of the processor's registers. Where processors lack what that takes
 * (product_host.c), BLAS's order holds. */
#ifndef PIANOLA_PRODUCT_H
#define PIANOLA_PRODUCT_H
#include <stdbool.h>

struct matrix {
    const float *at;
    int stride;  /* floats from one stored row to the next */
    bool turned; /* stored as its transpose */
};

static inline struct matrix plain(const float *at, int stride) { return (struct matrix){at, stride, false}; }
static inline struct matrix turned(const float *at, int stride) { return (struct matrix){at, stride, true}; }

struct product {
    int m, n, k;
    struct matrix a, b;
    float *c;
    int stride;        /* of c */
    const float *bias; /* a row, n floats, for each row of c; or NULL */
    bool add;          /* to what c holds; then no bias */
};
void host_product(struct product p);
/* The kernels that products take, such as "skx"; NULL: BLAS's. */
const char *product_kernels(void);
#endif
