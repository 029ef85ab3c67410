/* Matrix products of the host layers, all through one function: c = a b, m x k by k x n, on rows of floats.
 *
 * Each element is a chain of fused multiply-adds from 0 in the order of k. A bias, or c's old value, is then added. So
 * a microbatch's gradient is summed by itself before it is added to the others' sum. (If k is above 768, it is added in
 * equal parts.) The bits depend only on the element's row of a and column of b: not on the shape, on how rows are
 * divided, or on the width of the processor's registers. On processors that lack the required instructions
 * (product_host.c), BLAS's order applies. */
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
    int stride;        /* c's */
    const float *bias; /* a row of n floats, added to each row of c; or NULL */
    bool add;          /* adds to c's values; then there is no bias */
};
void host_product(struct product p);
/* Returns the kernels that products use, such as "skx", or NULL if BLAS is used. */
const char *product_kernels(void);
#endif
