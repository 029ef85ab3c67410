/* Matrix products that AOTInductor's graphs import: the runtime's own, in whatever layout. */
#include "aoti_state.h"
#include "layers/product.h"
#include <limits.h>
#include <string.h>

static struct matrix matrix_of(struct grid g, int64_t rows, int64_t columns) {
    const int64_t row = rows == 1 ? columns : g.down, column = columns == 1 ? rows : g.right;
    if (aoti_has_rows(g, rows, columns) && row <= INT_MAX)
        return plain(g.at, (int)row);
    if (aoti_has_rows(transposed_grid(g), columns, rows) && column <= INT_MAX)
        return turned(g.at, (int)column);
    return (struct matrix){NULL, 0, false};
}

/* Multiplies one element after the other, for layouts that have no rows. size: rows of c, columns of c, columns of a.
 */
static void slow_product(struct grid c, struct grid a, struct grid b, const int64_t size[3], struct plus plus) {
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++) {
            float sum = 0, *out = &c.at[i * c.down + j * c.right];
            for (int64_t k = 0; k < size[2]; k++)
                sum += a.at[i * a.down + k * a.right] * b.at[k * b.down + j * b.right];
            *out = sum + (plus.old ? *out : plus.bias ? plus.bias[j] : 0);
        }
}

void aoti_multiply(struct grid c, struct grid a, struct grid b, const int64_t size[3], struct plus plus) {
    if (!aoti_has_rows(c, size[0], size[1]) && aoti_has_rows(transposed_grid(c), size[1], size[0]) && !plus.bias) {
        const int64_t swapped[] = {size[1], size[0], size[2]};
        aoti_multiply(transposed_grid(c), transposed_grid(b), transposed_grid(a), swapped, plus);
        return;
    }
    const struct matrix left = matrix_of(a, size[0], size[2]), right = matrix_of(b, size[2], size[1]);
    const struct matrix out = matrix_of(c, size[0], size[1]);
    if (out.at && !out.turned && left.at && right.at && size[2] > 0)
        host_product((struct product){.m = (int)size[0],
                                      .n = (int)size[1],
                                      .k = (int)size[2],
                                      .a = left,
                                      .b = right,
                                      .c = c.at,
                                      .stride = out.stride,
                                      .bias = plus.bias,
                                      .add = plus.old});
    else
        slow_product(c, a, b, size, plus);
}

/* Ends the graph with an error unless c, a and b are fp32 matrices, or batches of them, that fit c = a b. */
static void product_must_fit(const struct aoti_tensor *c, const struct aoti_tensor *a, const struct aoti_tensor *b) {
    aoti_must_have(c);
    aoti_must_have(a);
    aoti_must_have(b);
    const int32_t d = c->dims - 2;
    if (c->dims < 2 || c->dims > 3 || a->dims != c->dims || b->dims != c->dims || c->dtype != FLOAT32 ||
        a->dtype != FLOAT32 || b->dtype != FLOAT32)
        aoti_fail("it multiplies tensors that are not fp32 matrices, which is not supported");
    if ((d > 0 && (a->size[0] != c->size[0] || b->size[0] != c->size[0])) || a->size[d] != c->size[d] ||
        a->size[d + 1] != b->size[d] || b->size[d + 1] != c->size[d + 1] || c->size[d] > INT_MAX ||
        c->size[d + 1] > INT_MAX || b->size[d] > INT_MAX)
        aoti_fail("it multiplies matrices whose sizes do not fit, or are too large");
}

/* Multiplies the matrices of each batch; c has 2 or 3 dimensions. */
static void multiply_all(handle c, handle a, handle b, struct plus plus) {
    product_must_fit(c, a, b);
    const int32_t d = c->dims - 2;
    const int64_t size[] = {c->size[d], c->size[d + 1], a->size[d + 1]};
    for (int64_t i = 0, n = d > 0 ? c->size[0] : 1; i < n; i++)
        aoti_multiply(aoti_grid(c, i), aoti_grid(a, i), aoti_grid(b, i), size, plus);
}

int32_t aoti_torch_cpu_mm_out(handle out, handle a, handle b) {
    aoti_must_have(out);
    multiply_all(out, a, b, (struct plus){aoti_adds(out), NULL});
    return OK;
}
int32_t aoti_torch_cpu_bmm_out(handle out, handle a, handle b) {
    multiply_all(out, a, b, (struct plus){false, NULL});
    return OK;
}

/* Computes out = alpha out + beta c. */
static void scale_and_add(handle out, const struct aoti_tensor *c, float alpha, float beta) {
    int64_t at[AOTI_DIMS] = {0}, n = 1;
    for (int32_t d = 0; d < out->dims; d++)
        n *= out->size[d];
    for (int64_t k = 0; k < n; k++) {
        int64_t i = 0, j = 0;
        for (int32_t d = 0; d < out->dims; d++) {
            i += at[d] * out->stride[d];
            j += at[d] * c->stride[d];
        }
        float *to = (float *)(void *)out->data + i;
        *to = alpha * *to + (beta != 0 ? beta * ((const float *)(const void *)c->data)[j] : 0);
        for (int32_t d = out->dims - 1; d >= 0 && ++at[d] == out->size[d]; d--)
            at[d] = 0;
    }
}

static bool is_same(const struct aoti_tensor *a, const struct aoti_tensor *b) {
    return a->data == b->data && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* Computes out = beta c + alpha a b, where c may be out itself. If alpha and beta are 1, c is copied to out first,
 * unless it is a row: that is added as a bias. */
static int32_t product_plus(handle out, handle c, handle a, handle b, double beta, double alpha) {
    product_must_fit(out, a, b);
    aoti_must_have(c);
    if (c->dtype != FLOAT32)
        aoti_fail("it adds a product to a tensor that is not fp32, which is not supported");
    struct aoti_tensor wide = aoti_broadcast(c, out);
    const bool row = out->dims == 2 && wide.stride[0] == 0 && wide.stride[1] == 1 && out->stride[1] == 1;
    if (alpha == 1 && beta == 1) {
        if (!row && !is_same(&wide, out))
            aoti_copy(out, &wide);
        multiply_all(out, a, b, (struct plus){!row, row ? (const float *)(void *)wide.data : NULL});
        return OK;
    }
    handle old = NULL;
    if (wide.data == out->data) {
        old = aoti_allocate(FLOAT32, out->dims, out->size, out->stride);
        aoti_copy(old, &wide);
        wide = *old;
    }
    multiply_all(out, a, b, (struct plus){false, NULL});
    scale_and_add(out, &wide, (float)alpha, (float)beta);
    if (old)
        aoti_delete(old);
    return OK;
}
int32_t aoti_torch_cpu_addmm_out(handle out, handle c, handle a, handle b, double beta, double alpha) {
    return product_plus(out, c, a, b, beta, alpha);
}
int32_t aoti_torch_cpu_baddbmm_out(handle out, handle c, handle a, handle b, double beta, double alpha) {
    return product_plus(out, c, a, b, beta, alpha);
}
