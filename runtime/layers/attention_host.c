/* Causal multi-head self-attention (Vaswani et al. 2017, section 3.2), one sequence and head at a time, in tiles.
 *
 * x holds q, k and v side by side, each C columns, a head being C / heads of them. The probabilities, context x context
 * for each head, are never stored (Dao et al. 2022, FlashAttention). The forward goes over tiles of them with a running
 * maximum and sum of each row, and keeps only the row's log-sum-exp, in aux. From q, k and aux, the backward recomputes
 * the probabilities, p = exp(s - lse), a tile at a time. Tiles above the diagonal are skipped.
 *
 * With D = rowsum(dy y), which is rowsum(dp p), the gradient of a score is ds = p (dp - D); tmp holds D. */
#include "host.h"
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { TILE = 64 }; /* two tiles of floats, 32 KiB, are on the stack and in the first-level cache; cost.c counts them */

/* One sequence and head. */
struct head {
    const float *q, *k, *v, *dy;
    float *y, *dq, *dk, *dv;
    float *lse, *d;                 /* one for each row, heads floats apart */
    int context, dim, c3, c, heads; /* rows; columns of the head; row strides of x, of y and of lse */
    float scale;
};

static struct head head_of(const struct host_call *c, int sequence, int head) {
    const struct rt_layer *l = c->l;
    int dim = l->out / l->heads;
    int64_t row = (int64_t)sequence * l->context, column = (int64_t)head * dim;
    const float *x = host_x(c) + row * l->in + column;
    struct head h = {.q = x, .k = x + l->out, .v = x + 2 * l->out, .scale = 1 / sqrtf((float)dim)};
    h.y = host_at(c, l->y) + row * l->out + column;
    h.lse = host_at(c, l->aux) + row * l->heads + head;
    h.context = l->context, h.dim = dim, h.c3 = l->in, h.c = l->out, h.heads = l->heads;
    return h;
}

static int least(int a, int b) { return a < b ? a : b; }

/* A row's exponentials are computed in whole vectors, then those right of the diagonal are cleared. */
static int whole(int n, int columns) { return least((n + 7) & ~7, columns); }

static int tile_end(int from, int context) { return least(from + TILE, context); }

/* s = scale q k^T of a tile: rows i .. iend, columns j .. jend. */
static void scores(const struct head *head, int i, int iend, int j, int jend, float *s) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, iend - i, jend - j, head->dim, head->scale,
                head->q + (int64_t)i * head->c3, head->c3, head->k + (int64_t)j * head->c3, head->c3, 0, s, TILE);
}

/* log x, x >= 1, by Newton's method on host_exp, from a line through the exponent and mantissa: errors of 0.06, 2e-3,
 * 2e-6. The library's log may differ between machines, and this value reaches gradients. */
static float host_log(float x) {
    union {
        float f;
        int32_t i;
    } bits = {x};
    float y = (float)(bits.i - (127 << 23)) * (0.69314718f / (1 << 23));
    for (int i = 0; i < 3; i++)
        y += x * host_exp(-y) - 1;
    return y;
}

static float row_max(const float *a, int n) { /* in eight strands, as host_sum */
    float s[8];
    int i = 0;
    for (int k = 0; k < 8; k++)
        s[k] = -FLT_MAX;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] = a[i + k] > s[k] ? a[i + k] : s[k];
    for (int k = 0; i < n; i++, k++)
        s[k] = a[i] > s[k] ? a[i] : s[k];
    for (int k = 1; k < 8; k++)
        s[0] = s[k] > s[0] ? s[k] : s[0];
    return s[0];
}

/* Turns a row of scores into exp(s - top), and rescales its sum and y to the new top. */
static void softmax_row(float *s, int n, int columns, float *top, float *sum, float *y, int dim) {
    float most = row_max(s, n), new = most > *top ? most : *top;
    for (int j = 0, end = whole(n, columns); j < end; j++)
        s[j] = host_exp(s[j] - new);
    memset(s + n, 0, (size_t)(columns - n) * sizeof *s);
    if (*sum > 0) {
        float shrink = host_exp(*top - new);
        *sum *= shrink;
        for (int j = 0; j < dim; j++)
            y[j] *= shrink;
    }
    *sum += host_sum(s, n);
    *top = new;
}

static void rows_forward(const struct head *head, int i, int iend) {
    float s[TILE * TILE], top[TILE], sum[TILE] = {0};
    float *y = head->y + (int64_t)i * head->c;
    for (int r = 0; r < TILE; r++)
        top[r] = -FLT_MAX;
    for (int j = 0; j < iend; j += TILE) {
        int jend = tile_end(j, head->context);
        scores(head, i, iend, j, jend, s);
        for (int r = 0; r < iend - i; r++)
            softmax_row(s + r * TILE, least(i + r + 1, jend) - j, jend - j, &top[r], &sum[r], y + (int64_t)r * head->c,
                        head->dim);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, iend - i, head->dim, jend - j, 1, s, TILE,
                    head->v + (int64_t)j * head->c3, head->c3, j > 0 ? 1 : 0, y, head->c);
    }
    for (int r = 0; r < iend - i; r++, y += head->c) {
        float norm = 1 / sum[r];
        for (int j = 0; j < head->dim; j++)
            y[j] *= norm;
    }
    for (int r = 0; r < iend - i; r++)
        head->lse[(int64_t)(i + r) * head->heads] = top[r] + host_log(sum[r]);
}

/* From scores and dp: p, in place of the scores, and ds times the scale, in place of dp. */
static void softmax_backward(const struct head *head, int i, int iend, int j, int jend, float *p, float *ds) {
    for (int r = 0; r < iend - i; r++, p += TILE, ds += TILE) {
        int n = least(i + r + 1, jend) - j;
        float lse = head->lse[(int64_t)(i + r) * head->heads], d = head->d[(int64_t)(i + r) * head->heads],
              scale = head->scale;
        for (int k = 0, end = whole(n, jend - j); k < end; k++) {
            p[k] = host_exp(p[k] - lse);
            ds[k] = scale * p[k] * (ds[k] - d);
        }
        memset(p + n, 0, (size_t)(jend - j - n) * sizeof *p);
        memset(ds + n, 0, (size_t)(jend - j - n) * sizeof *ds);
    }
}

/* The last rows, which see every column, come first and write dk and dv; the others add to them. */
static void tile_backward(const struct head *head, int i, int iend, int j, int jend) {
    float p[TILE * TILE], ds[TILE * TILE], below = iend < head->context ? 1 : 0;
    const float *q = head->q + (int64_t)i * head->c3, *dy = head->dy + (int64_t)i * head->c;
    int64_t column = (int64_t)j * head->c3;
    int rows = iend - i, columns = jend - j;
    scores(head, i, iend, j, jend, p);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, columns, head->dim, 1, dy, head->c, head->v + column,
                head->c3, 0, ds, TILE);
    softmax_backward(head, i, iend, j, jend, p, ds);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, columns, head->dim, rows, 1, p, TILE, dy, head->c, below,
                head->dv + column, head->c3);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, columns, head->dim, rows, 1, ds, TILE, q, head->c3, below,
                head->dk + column, head->c3);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, head->dim, columns, 1, ds, TILE, head->k + column,
                head->c3, j > 0 ? 1 : 0, head->dq + (int64_t)i * head->c3, head->c3);
}

static void head_backward(const struct head *head) {
    for (int r = 0; r < head->context; r++)
        head->d[(int64_t)r * head->heads] =
            host_dot(head->dy + (int64_t)r * head->c, head->y + (int64_t)r * head->c, head->dim);
    for (int i = (head->context - 1) / TILE * TILE; i >= 0; i -= TILE)
        for (int j = 0; j <= i; j += TILE)
            tile_backward(head, i, tile_end(i, head->context), j, tile_end(j, head->context));
}

static void attention_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    for (int s = 0; s < l->rows / l->context; s++)
        for (int i = 0; i < l->heads; i++) {
            struct head head = head_of(c, s, i);
            for (int r = 0; r < l->context; r += TILE)
                rows_forward(&head, r, tile_end(r, l->context));
        }
}

static void attention_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    for (int s = 0; s < l->rows / l->context; s++)
        for (int i = 0; i < l->heads; i++) {
            struct head head = head_of(c, s, i);
            head.dy = host_at(c, l->dy) + (head.y - host_at(c, l->y));
            head.d = host_at(c, l->tmp) + (head.lse - host_at(c, l->aux));
            head.dq = host_at(c, l->dx) + (head.q - host_x(c));
            head.dk = head.dq + l->out;
            head.dv = head.dk + l->out;
            head_backward(&head);
        }
}

const struct host_layer host_attention = {attention_forward, attention_input, NULL};
