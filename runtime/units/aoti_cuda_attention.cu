/* Attention that PyTorch's graphs import, by the runtime's own kernels (layers/attention.cu): causal, without a mask,
 * of fp32 heads of at most 128 columns. The exporter leaves attention of any other kind to products and a softmax.
 *
 * PyTorch's name says that it is for CPUs, since graphs are traced there. The kernels want rows of heads that lie side
 * by side. A tensor in another layout is copied. */
#include "aoti_cuda.cuh"

/* The shapes of a call. */
struct shapes {
    int32_t batches, heads, key_heads, rows, columns;
};

static struct shapes shapes_of(const struct aoti_tensor *q, const struct aoti_tensor *k, const struct aoti_tensor *v,
                               double dropout, int32_t causal, handle *mask, const double *scale) {
    bool fits = q->dims == 4 && k->dims == 4 && v->dims == 4 && q->dtype == FLOAT32 && k->dtype == FLOAT32 &&
                v->dtype == FLOAT32 && !mask && causal && dropout == 0;
    for (int32_t d = 0; fits && d < 4; d++)
        fits = k->size[d] == v->size[d] && (d == 1 || q->size[d] == k->size[d]);
    fits = fits && k->size[1] > 0 && q->size[1] % k->size[1] == 0 && q->size[3] <= CUDA_HEAD;
    if (!fits || (scale && fabs(*scale * sqrt((double)q->size[3]) - 1) > 1e-6))
        aoti_fail("attention that is not causal, has a mask, dropout or a scale of its own, or is of other things than "
                  "fp32 heads of at most %d columns is not supported on GPUs",
                  CUDA_HEAD);
    return {(int32_t)q->size[0], (int32_t)q->size[1], (int32_t)k->size[1], (int32_t)q->size[2], (int32_t)q->size[3]};
}

/* Returns whether the kernels can read a tensor where it is. */
static bool has_head_rows(const struct aoti_tensor *t) {
    const int64_t heads = t->size[1], rows = t->size[2], columns = t->size[3], row = t->stride[2];
    const bool side_by_side = (t->stride[3] == 1 || columns == 1) && (t->stride[1] == columns || heads == 1);
    const bool in_order = row >= heads * columns && (t->stride[0] == rows * row || t->size[0] == 1);
    const int64_t begin = (t->data - t->owner->data) / (int64_t)sizeof(float), pack = AOTI_AT_ONCE / sizeof(float);
    return side_by_side && in_order && (columns % pack != 0 || (row % pack == 0 && begin % pack == 0));
}

/* A tensor, or its copy in the kernels' layout. */
struct packed {
    handle copy; /* NULL: it is the tensor itself */
    float *at;
    int32_t stride; /* from row to row */
};

static struct packed rows_in_place(const struct aoti_tensor *t) {
    return {NULL, (float *)(void *)t->data, (int32_t)t->stride[2]};
}
static struct packed pack_rows(const struct aoti_tensor *t, bool must) {
    if (!must && has_head_rows(t))
        return rows_in_place(t);
    handle copy = aoti_rows_like(t);
    aoti_copy(copy, t);
    return {copy, (float *)(void *)copy->data, (int32_t)copy->stride[2]};
}
/* Packs two tensors that the kernels want with one stride. */
static void pack_pair(const struct aoti_tensor *a, const struct aoti_tensor *b, struct packed out[2]) {
    const bool must = !has_head_rows(a) || !has_head_rows(b) || a->stride[2] != b->stride[2];
    out[0] = pack_rows(a, must);
    out[1] = pack_rows(b, must);
}
static void unpack_rows(const struct packed *p, int n) {
    for (int i = 0; i < n; i++)
        if (p[i].copy)
            aoti_delete(p[i].copy);
}

static struct attend attend_call(const struct shapes *s, const struct packed *q, const struct packed *y,
                                 const struct segment *keys) {
    struct attend a = {};
    a.q = q->at, a.q_stride = q->stride;
    a.y = y->at, a.y_stride = y->stride;
    a.sequences = s->batches, a.rows = s->rows;
    a.heads = s->heads, a.kv_heads = s->key_heads, a.dim = s->columns;
    a.nsegments = 1;
    a.segment = keys;
    return a;
}

IMPORTED int32_t aoti_torch_cuda__scaled_dot_product_flash_attention_for_cpu(handle q, handle k, handle v,
                                                                             double dropout, int32_t causal,
                                                                             handle *mask, double *scale, handle *out,
                                                                             handle *lse) {
    const struct shapes s = shapes_of(q, k, v, dropout, causal, mask, scale);
    const int64_t size[] = {s.batches, s.heads, s.rows}, stride[] = {(int64_t)s.rows * s.heads, 1, s.heads};
    *out = aoti_tensor_like(q);
    *lse = aoti_allocate(FLOAT32, 3, size, stride);
    struct packed of[4];
    of[0] = pack_rows(q, false);
    pack_pair(k, v, of + 1);
    handle rows = has_head_rows(*out) ? NULL : aoti_rows_like(*out);
    of[3] = rows_in_place(rows ? rows : *out);
    struct segment keys = {};
    keys.k = of[1].at, keys.v = of[2].at;
    keys.stride = of[1].stride, keys.rows = s.rows;
    struct attend a = attend_call(&s, &of[0], &of[3], &keys);
    a.lse = (float *)(void *)(*lse)->data;
    cuda_attend(&a, FP32, aoti_stream());
    if (rows) {
        aoti_copy(*out, rows);
        aoti_delete(rows);
    }
    unpack_rows(of, 3);
    return OK;
}

/* Returns the log-sum-exps as the forward leaves them, or a copy. */
static handle dense_lse(handle lse, const struct shapes *s) {
    const int64_t size[] = {s->batches, s->heads, s->rows}, stride[] = {(int64_t)s->rows * s->heads, 1, s->heads};
    if (memcmp(lse->stride, stride, sizeof stride) == 0)
        return NULL;
    handle copy = aoti_allocate(FLOAT32, 3, size, stride);
    aoti_copy(copy, lse);
    return copy;
}

IMPORTED int32_t aoti_torch_cuda__scaled_dot_product_flash_attention_for_cpu_backward(
    handle dout, handle q, handle k, handle v, handle out, handle lse, double dropout, int32_t causal, handle *mask,
    double *scale, handle *dq, handle *dk, handle *dv) {
    const struct shapes s = shapes_of(q, k, v, dropout, causal, mask, scale);
    const int64_t rows = (int64_t)s.batches * s.rows * s.heads, one = 1;
    *dq = aoti_rows_like(q);
    *dk = aoti_rows_like(k);
    *dv = aoti_rows_like(v);
    struct packed of[5];
    of[0] = pack_rows(q, false);
    pack_pair(k, v, of + 1);
    pack_pair(out, dout, of + 3);
    handle sums = aoti_allocate(FLOAT32, 1, &rows, &one), copy = dense_lse(lse, &s);
    struct segment keys = {};
    keys.k = of[1].at, keys.v = of[2].at;
    keys.dk = (*dk)->data, keys.dv = (*dv)->data;
    keys.stride = of[1].stride, keys.dstride = (int32_t)(*dk)->stride[2], keys.rows = s.rows;
    struct attend a = attend_call(&s, &of[0], &of[3], &keys);
    a.dy = of[4].at;
    a.lse = (float *)(void *)(copy ? copy : lse)->data, a.d = (float *)(void *)sums->data;
    a.dq = (*dq)->data, a.dq_stride = (int32_t)(*dq)->stride[2];
    cuda_attend_backward(&a, FP32, aoti_stream());
    if (copy)
        aoti_delete(copy);
    aoti_delete(sums);
    unpack_rows(of, 5);
    return OK;
}
