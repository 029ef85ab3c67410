/* Attention that AOTInductor's graphs import: softmax(scale q k' + mask) v, block by block of queries, so that memory
 * is linear in the context. A backward computes the probabilities again from the log-sum-exp of each row (Dao 2022,
 * "FlashAttention"). Layouts are what PyTorch's functions return, since graphs rely on them. */
#include "aoti_state.h"
#include "layers/host.h"
#include <limits.h>
#include <math.h>
#include <string.h>

enum { QUERIES = 64 }; /* per block */

/* The shapes of a call. A key's head serves `group` heads of queries. */
struct attention {
    int64_t batches, heads, queries, keys, columns, group;
    bool causal;
    float scale;
    struct aoti_tensor mask; /* dims 0: none */
};

static bool is_heads(const struct aoti_tensor *t) {
    aoti_must_have(t);
    return t->dims == 4 && t->dtype == FLOAT32 && t->size[2] <= INT_MAX && t->size[3] <= INT_MAX;
}

static bool same_sizes(const struct aoti_tensor *a, const struct aoti_tensor *b) {
    return a->dims == b->dims && memcmp(a->size, b->size, (size_t)a->dims * sizeof *a->size) == 0;
}

static struct attention attention_of(const struct aoti_tensor *q, const struct aoti_tensor *k,
                                     const struct aoti_tensor *v, double dropout, int32_t causal, handle *mask,
                                     const double *scale) {
    const bool heads = is_heads(q) && is_heads(k) && is_heads(v) && same_sizes(k, v) && k->size[1] > 0 &&
                       k->size[2] > 0 && q->size[1] % k->size[1] == 0 && q->size[0] == k->size[0] &&
                       q->size[3] == k->size[3];
    if (mask)
        aoti_must_have(*mask);
    if (!heads || dropout != 0 || (mask && (*mask)->dtype != FLOAT32))
        aoti_fail("it calls attention with dropout, or with heads that are not in fp32 or not of equal width; none of "
                  "this is supported");
    struct attention a = {.batches = q->size[0],
                          .heads = q->size[1],
                          .queries = q->size[2],
                          .keys = k->size[2],
                          .columns = q->size[3],
                          .group = q->size[1] / k->size[1],
                          .causal = causal != 0,
                          .scale = scale ? (float)*scale : 1 / sqrtf((float)q->size[3])};
    const struct aoti_tensor scores = {.dims = 4, .size = {a.batches, a.heads, a.queries, a.keys}};
    if (mask)
        a.mask = aoti_broadcast(*mask, &scores);
    return a;
}

/* A block of queries of one head. keys: as many as any of its rows may read. */
struct block {
    int64_t batch, head, first, rows, keys;
};

static float *head_row(const struct aoti_tensor *t, int64_t batch, int64_t head, int64_t row) {
    return (float *)(void *)t->data + batch * t->stride[0] + head * t->stride[1] + row * t->stride[2];
}

/* Returns the rows of a head from row `first` on. */
static struct grid head_rows(const struct aoti_tensor *t, int64_t batch, int64_t head, int64_t first) {
    return (struct grid){head_row(t, batch, head, first), t->stride[2], t->stride[3]};
}

static WIDE void scale_scores(float *row, int64_t n, float scale) {
    for (int64_t j = 0; j < n; j++)
        row[j] *= scale;
}
static WIDE void scale_and_mask(float *row, int64_t n, float scale, const float *mask) {
    for (int64_t j = 0; j < n; j++)
        row[j] = row[j] * scale + mask[j];
}

/* Scales the scores that a row may read, which are the first ones, and adds the mask. Returns their number. */
static int64_t mask_row(const struct attention *a, const struct block *b, int64_t r, float *row) {
    const int64_t i = b->first + r, n = a->causal && i + 1 < b->keys ? i + 1 : b->keys;
    const float *mask = a->mask.dims > 0 ? head_row(&a->mask, b->batch, b->head, i) : NULL;
    if (mask && a->mask.stride[3] == 1) {
        scale_and_mask(row, n, a->scale, mask);
        return n;
    }
    scale_scores(row, n, a->scale);
    for (int64_t j = 0; j < n && mask; j++)
        row[j] += mask[j * a->mask.stride[3]];
    return n;
}

/* Replaces each of n scores by exp(score - top). */
static WIDE void relative_exponentials(float *row, int64_t n, float top) {
    for (int64_t j = 0; j < n; j++)
        row[j] = host_exp(row[j] - top);
}

static LANES_8 float largest_of(const float *row, int64_t n) {
    float top[8] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    int64_t j = 0;
    for (; j + 8 <= n; j += 8)
        for (int k = 0; k < 8; k++)
            top[k] = row[j + k] > top[k] ? row[j + k] : top[k];
    for (; j < n; j++)
        top[0] = row[j] > top[0] ? row[j] : top[0];
    for (int k = 1; k < 8; k++)
        top[0] = top[k] > top[0] ? top[k] : top[0];
    return top[0];
}
static LANES_8 float sum_of_row(const float *row, int64_t n) { return host_sum(row, (int)n); }

/* Turns a row of n scores into probabilities. Returns its log-sum-exp. A row that may read nothing is all 0. */
static float softmax_row(float *row, int64_t n) {
    const float top = largest_of(row, n);
    if (top == -INFINITY) {
        memset(row, 0, sizeof *row * (size_t)n);
        return INFINITY;
    }
    relative_exponentials(row, n, top);
    const float sum = sum_of_row(row, n);
    scale_scores(row, n, 1 / sum);
    return top + logf(sum);
}

/* A number below this in a mask hides a key from a row: -infinity, or the least number of a type. */
static const float HIDDEN = -1e30f;

/* Returns the number of keys, at most n, up to the last one that the mask shows to a row of the block. If it hides all
 * from a row, and not by -infinity, that row reads all keys alike. */
static int64_t shown_keys(const struct attention *a, const struct block *b, int64_t n) {
    const int64_t step = a->mask.stride[3];
    int64_t most = 1;
    for (int64_t r = 0; r < b->rows && most < n; r++) {
        const float *mask = head_row(&a->mask, b->batch, b->head, b->first + r);
        int64_t shown = 0, end = n;
        while (shown < n && mask[shown * step] < HIDDEN)
            shown++;
        if (shown == n && mask[0] != -INFINITY)
            return n;
        while (end > most && mask[(end - 1) * step] < HIDDEN)
            end--;
        most = end;
    }
    return most;
}

static struct block block_of(const struct attention *a, int64_t batch, int64_t head, int64_t first) {
    const int64_t left = a->queries - first, rows = left < QUERIES ? left : QUERIES, end = first + rows;
    struct block b = {batch, head, first, rows, a->causal && end < a->keys ? end : a->keys};
    b.keys = a->mask.dims > 0 ? shown_keys(a, &b, b.keys) : b.keys;
    return b;
}

/* Returns memory for a block's scores. */
static handle scores_of(const struct attention *a) {
    const int64_t size[] = {QUERIES, a->keys}, stride[] = {a->keys, 1};
    return aoti_allocate(FLOAT32, 2, size, stride);
}

/* Fills a block's scores with q k'. */
static void multiply_keys(const struct attention *a, const struct block *b, const struct aoti_tensor *q,
                          const struct aoti_tensor *k, float *scores) {
    const struct grid keys = head_rows(k, b->batch, b->head / a->group, 0);
    const int64_t size[] = {b->rows, b->keys, a->columns};
    aoti_multiply((struct grid){scores, a->keys, 1}, head_rows(q, b->batch, b->head, b->first), transposed_grid(keys),
                  size, (struct plus){false, NULL});
}

#define EACH_BLOCK(a, b)                                                                                               \
    for (int64_t batch_ = 0; batch_ < (a).batches; batch_++)                                                           \
        for (int64_t head_ = 0; head_ < (a).heads; head_++)                                                            \
            for (int64_t first_ = 0, once_; first_ < (a).queries; first_ += QUERIES)                                   \
                for (struct block b = (once_ = 1, block_of(&(a), batch_, head_, first_)); once_; once_ = 0)

int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(handle q, handle k, handle v, double dropout,
                                                                   int32_t causal, handle *mask, double *scale,
                                                                   handle *out, handle *lse) {
    const struct attention a = attention_of(q, k, v, dropout, causal, mask, scale);
    const int64_t size[] = {a.batches, a.heads, a.queries}, stride[] = {a.queries * a.heads, 1, a.heads};
    *out = aoti_tensor_like(q);
    *lse = aoti_allocate(FLOAT32, 3, size, stride);
    handle scratch = scores_of(&a);
    float *scores = (float *)(void *)scratch->data, *sums = (float *)(void *)(*lse)->data;
    EACH_BLOCK(a, b) {
        const int64_t product[] = {b.rows, a.columns, b.keys};
        multiply_keys(&a, &b, q, k, scores);
        for (int64_t r = 0; r < b.rows; r++) {
            float *row = scores + r * a.keys;
            const int64_t n = mask_row(&a, &b, r, row);
            sums[b.batch * stride[0] + b.head * stride[1] + (b.first + r) * stride[2]] = softmax_row(row, n);
            memset(row + n, 0, sizeof *row * (size_t)(b.keys - n));
        }
        aoti_multiply(head_rows(*out, b.batch, b.head, b.first), (struct grid){scores, a.keys, 1},
                      head_rows(v, b.batch, b.head / a.group, 0), product, (struct plus){false, NULL});
    }
    aoti_delete(scratch);
    return OK;
}

/* ---- backward ---- */

/* Ends the graph with an error unless an output, or its gradient, and the log-sum-exps fit the queries. */
static void check_results(const struct aoti_tensor *q, const struct aoti_tensor *out, const struct aoti_tensor *lse) {
    aoti_must_have(lse);
    if (!is_heads(out) || !same_sizes(out, q) || lse->dtype != FLOAT32 || lse->dims != 3 ||
        memcmp(lse->size, q->size, 3 * sizeof *q->size) != 0)
        aoti_fail("it calls attention's backward with outputs that do not fit its queries");
}

/* Turns a row of scores (p) into probabilities, and the gradient of the probabilities (dp) into the gradient of the
 * scores before they were scaled. */
static WIDE void backward_row(float *p, float *dp, int64_t n, float lse, float delta, float scale) {
    for (int64_t j = 0; j < n; j++) {
        p[j] = host_exp(p[j] - lse);
        dp[j] = p[j] * (dp[j] - delta) * scale;
    }
}

static LANES_8 float dot_of_rows(const float *a, const float *b, int64_t n) { return host_dot(a, b, (int)n); }

/* Sums a row of the output, times its gradient. */
static float delta_of(const struct attention *a, const struct block *b, int64_t r, const struct aoti_tensor *out,
                      const struct aoti_tensor *dout) {
    const float *o = head_row(out, b->batch, b->head, b->first + r),
                *d = head_row(dout, b->batch, b->head, b->first + r);
    float sum = 0;
    if (out->stride[3] == 1 && dout->stride[3] == 1)
        return dot_of_rows(o, d, a->columns);
    for (int64_t j = 0; j < a->columns; j++)
        sum += o[j * out->stride[3]] * d[j * dout->stride[3]];
    return sum;
}

int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(handle dout, handle q, handle k, handle v,
                                                                            handle out, handle lse, double dropout,
                                                                            int32_t causal, handle *mask, double *scale,
                                                                            handle *dq, handle *dk, handle *dv) {
    const struct attention a = attention_of(q, k, v, dropout, causal, mask, scale);
    check_results(q, out, lse);
    check_results(q, dout, lse);
    *dq = aoti_rows_like(q);
    *dk = aoti_rows_like(k);
    *dv = aoti_rows_like(v);
    memset((*dk)->data, 0, (size_t)(*dk)->bytes);
    memset((*dv)->data, 0, (size_t)(*dv)->bytes);
    handle scratch[] = {scores_of(&a), scores_of(&a)};
    float *p = (float *)(void *)scratch[0]->data, *dp = (float *)(void *)scratch[1]->data;
    EACH_BLOCK(a, b) {
        const int64_t key_head = b.head / a.group, down[] = {b.keys, a.columns, b.rows};
        const int64_t across[] = {b.rows, b.keys, a.columns}, back[] = {b.rows, a.columns, b.keys};
        const struct grid d = head_rows(dout, b.batch, b.head, b.first), ps = {p, a.keys, 1}, dps = {dp, a.keys, 1};
        multiply_keys(&a, &b, q, k, p);
        aoti_multiply(dps, d, transposed_grid(head_rows(v, b.batch, key_head, 0)), across, (struct plus){false, NULL});
        for (int64_t r = 0; r < b.rows; r++) {
            float *row = p + r * a.keys, *drow = dp + r * a.keys;
            const float sum =
                ((float *)(void *)
                     lse->data)[b.batch * lse->stride[0] + b.head * lse->stride[1] + (b.first + r) * lse->stride[2]];
            const int64_t n = mask_row(&a, &b, r, row);
            backward_row(row, drow, n, sum, delta_of(&a, &b, r, out, dout), a.scale);
            memset(row + n, 0, sizeof *row * (size_t)(b.keys - n));
            memset(drow + n, 0, sizeof *drow * (size_t)(b.keys - n));
        }
        aoti_multiply(head_rows(*dv, b.batch, key_head, 0), transposed_grid(ps), d, down, (struct plus){true, NULL});
        aoti_multiply(head_rows(*dq, b.batch, b.head, b.first), dps, head_rows(k, b.batch, key_head, 0), back,
                      (struct plus){false, NULL});
        aoti_multiply(head_rows(*dk, b.batch, key_head, 0), transposed_grid(dps),
                      head_rows(q, b.batch, b.head, b.first), down, (struct plus){true, NULL});
    }
    aoti_delete(scratch[0]);
    aoti_delete(scratch[1]);
    return OK;
}
