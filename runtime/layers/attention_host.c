/* Causal attention (attend.h), one sequence and head at a time, in tiles, and the attention layer, which is its special
 * case of whole sequences.
 *
 * The probabilities, rows x rows for each head, are never stored (Dao et al. 2022, FlashAttention). The forward goes
 * over tiles with a running maximum and sum for each row, and keeps only the row's log-sum-exp, in aux. The backward
 * recomputes the probabilities from q, k and aux, p = exp(s - lse), one tile at a time. Tiles above the diagonal are
 * skipped.
 *
 * With D = rowsum(dy y), which equals rowsum(dp p), the gradient of a score is ds = p (dp - D); tmp holds D. */
#include "host.h"
#include "keys.h"
#include "product.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { TILE = 64 }; /* two tiles of floats, 32 KiB, are on the stack and in the first-level cache; cost.c counts them */

/* One sequence and head of queries. */
struct head {
    const struct attend *a;
    int sequence, key; /* key: the head of keys and values that it reads */
    bool leads;        /* the first of the heads that read this key head */
    const float *q, *dy;
    float *y, *dq;
    float *lse, *d; /* one for each row, heads floats apart */
    float scale;
};

static struct head head_of(const struct attend *a, int sequence, int head) {
    int64_t row = row_of_sequence(a, sequence, a->rows), column = (int64_t)head * a->dim;
    struct head h = {.a = a, .sequence = sequence, .scale = 1 / sqrtf((float)a->dim)};
    int group = a->heads / a->kv_heads;
    h.key = head / group;
    h.leads = head % group == 0;
    h.q = (const float *)a->q + row * a->q_stride + column;
    h.y = (float *)a->y + row * a->y_stride + column;
    h.lse = a->lse + row * a->heads + head;
    if (!a->dq) /* a forward */
        return h;
    h.dy = (const float *)a->dy + row * a->y_stride + column;
    h.dq = (float *)a->dq + row * a->dq_stride + column;
    h.d = a->d + row * a->heads + head;
    return h;
}

/* The columns of a tile: up to TILE rows of a segment, for the head's sequence and key head. */
struct tile {
    const float *k, *v;
    float *dk, *dv;
    int stride, dstride;
    int first, columns; /* position of the first column, and their number */
    bool add;
};

static struct tile tile_of(const struct head *h, const struct segment *s, int j, int end) {
    int64_t row = row_of_sequence(h->a, h->sequence, s->rows) + j, column = (int64_t)h->key * h->a->dim;
    struct tile t = {.stride = s->stride, .dstride = s->dstride, .add = s->add};
    t.first = s->first + j;
    t.columns = host_least(TILE, end - j);
    t.k = (const float *)s->k + row * s->stride + column;
    t.v = (const float *)s->v + row * s->stride + column;
    if (!h->a->dq) /* a forward */
        return t;
    t.dk = (float *)s->dk + row * s->dstride + column;
    t.dv = (float *)s->dv + row * s->dstride + column;
    return t;
}

/* Returns how many of the tile's columns a row of queries sees. */
static int columns_seen(const struct head *h, int row, const struct tile *t) {
    int n = h->a->first + row + 1 - t->first;
    return n < 0 ? 0 : host_least(n, t->columns);
}

/* Returns the columns for which exponentials are computed: whole vectors. Those right of the diagonal are then cleared.
 */
static int whole_vectors(int n, int columns) { return host_least((n + 15) & ~15, columns); }

/* Computes a tile of s = q k^T, not yet scaled, for rows i .. iend of the queries. */
static void scores(const struct head *h, int i, int iend, const struct tile *t, float *s) {
    host_product((struct product){iend - i, t->columns, h->a->dim,
                                  .a = plain(h->q + (int64_t)i * h->a->q_stride, h->a->q_stride),
                                  .b = turned(t->k, t->stride), .c = s, .stride = TILE});
}

/* Returns log x for x >= 1, by Newton's method on host_exp, starting from a linear function of exponent and mantissa:
 * the errors are 0.06, 2e-3, 2e-6. The library's log may differ between machines, and this value affects gradients. */
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

static LANES_8 float row_max(const float *a, int n) { /* in eight strands, like host_sum */
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

static LANES_8 float row_sum(const float *a, int n) { return host_sum(a, n); }

static WIDE void exponentials(float *s, int n, float scale, float top) {
    for (int j = 0; j < n; j++)
        s[j] = host_exp(scale * s[j] - top);
}

static WIDE void scale_row(float *y, int n, float by) {
    for (int j = 0; j < n; j++)
        y[j] *= by;
}

/* The running maximum of scores and sum of exponentials, for up to TILE rows. */
struct running {
    float top[TILE], sum[TILE];
};

/* Raises the running maxima to the tile's; by[r] rescales row r's earlier sums. */
static WIDE void raise_tops(struct running *at, const float *most, float *by) {
    for (int r = 0; r < TILE; r++) {
        float new = most[r] > at->top[r] ? most[r] : at->top[r];
        by[r] = host_exp(at->top[r] - new);
        at->sum[r] *= by[r];
        at->top[r] = new;
    }
}

static WIDE void log_sums(struct running *at) {
    for (int r = 0; r < TILE; r++)
        at->top[r] += host_log(at->sum[r]);
}

/* Turns a tile's scores into exp(scale s - top). sums: the rows' earlier sums, which are rescaled; NULL: none. */
static void softmax_tile(const struct head *h, int i, int rows, const struct tile *t, float *s, struct running *at,
                         float *sums) {
    float most[TILE] = {0}, by[TILE];
    for (int r = 0; r < rows; r++)
        most[r] = h->scale * row_max(s + r * TILE, columns_seen(h, i + r, t));
    raise_tops(at, most, by);
    for (int r = 0; r < rows; r++, s += TILE) {
        int n = columns_seen(h, i + r, t);
        exponentials(s, whole_vectors(n, t->columns), h->scale, at->top[r]);
        memset(s + n, 0, (size_t)(t->columns - n) * sizeof *s);
        at->sum[r] += row_sum(s, n);
        if (sums)
            scale_row(sums + (int64_t)r * h->a->y_stride, h->a->dim, by[r]);
    }
}

static void rows_forward(const struct head *h, int i, int iend) {
    float s[TILE * TILE];
    struct running at = {.sum = {0}};
    int rows = iend - i, stride = h->a->y_stride, dim = h->a->dim;
    float *y = h->y + (int64_t)i * stride;
    bool more = false;
    for (int r = 0; r < TILE; r++)
        at.top[r] = -FLT_MAX;
    for (const struct segment *of = h->a->segment; of < h->a->segment + h->a->nsegments; of++)
        for (int j = 0, end = seen_of(of, h->a->first + iend - 1); j < end; j += TILE, more = true) {
            struct tile t = tile_of(h, of, j, end);
            scores(h, i, iend, &t, s);
            softmax_tile(h, i, rows, &t, s, &at, more ? y : NULL);
            host_product((struct product){rows, dim, t.columns, .a = plain(s, TILE), .b = plain(t.v, t.stride), .c = y,
                                          .stride = stride, .add = more});
        }
    log_sums(&at);
    for (int r = 0; r < rows; r++, y += stride) {
        scale_row(y, dim, 1 / at.sum[r]);
        h->lse[(int64_t)(i + r) * h->a->heads] = at.top[r];
    }
}

/* Turns scores into p, in place, and dp into ds times the scale, in place. */
static WIDE void softmax_backward(const struct head *h, int i, int iend, const struct tile *t, float *p, float *ds) {
    for (int r = 0; r < iend - i; r++, p += TILE, ds += TILE) {
        int n = columns_seen(h, i + r, t);
        int64_t row = (int64_t)(i + r) * h->a->heads;
        float lse = h->lse[row], d = h->d[row], scale = h->scale;
        for (int k = 0, end = whole_vectors(n, t->columns); k < end; k++) {
            p[k] = host_exp(scale * p[k] - lse);
            ds[k] = scale * p[k] * (ds[k] - d);
        }
        memset(p + n, 0, (size_t)(t->columns - n) * sizeof *p);
        memset(ds + n, 0, (size_t)(t->columns - n) * sizeof *ds);
    }
}

/* more: an earlier tile of these rows has written dq. The last rows come first, because they see every column that any
 * row sees. The first of the heads that read these keys writes dk and dv, unless they are to be added to; the other
 * heads add. */
static void tile_backward(const struct head *h, int i, int iend, const struct tile *t, bool more) {
    float p[TILE * TILE], ds[TILE * TILE];
    bool below = iend < h->a->rows || !h->leads || t->add;
    int rows = iend - i, dim = h->a->dim, q_stride = h->a->q_stride, y_stride = h->a->y_stride;
    const float *q = h->q + (int64_t)i * q_stride, *dy = h->dy + (int64_t)i * y_stride;
    scores(h, i, iend, t, p);
    host_product((struct product){rows, t->columns, dim, .a = plain(dy, y_stride), .b = turned(t->v, t->stride),
                                  .c = ds, .stride = TILE});
    softmax_backward(h, i, iend, t, p, ds);
    host_product((struct product){t->columns, dim, rows, .a = turned(p, TILE), .b = plain(dy, y_stride), .c = t->dv,
                                  .stride = t->dstride, .add = below});
    host_product((struct product){t->columns, dim, rows, .a = turned(ds, TILE), .b = plain(q, q_stride), .c = t->dk,
                                  .stride = t->dstride, .add = below});
    host_product((struct product){rows, dim, t->columns, .a = plain(ds, TILE), .b = plain(t->k, t->stride),
                                  .c = h->dq + (int64_t)i * h->a->dq_stride, .stride = h->a->dq_stride, .add = more});
}

/* Clears the gradients of keys after the last query. */
static void clear_unseen(const struct head *h) {
    for (const struct segment *of = h->a->segment; of < h->a->segment + h->a->nsegments; of++)
        for (int j = seen_of(of, h->a->first + h->a->rows - 1); h->leads && !of->add && j < of->rows; j++) {
            struct tile t = tile_of(h, of, j, of->rows);
            memset(t.dk, 0, (size_t)h->a->dim * sizeof *t.dk);
            memset(t.dv, 0, (size_t)h->a->dim * sizeof *t.dv);
        }
}

static void head_backward(const struct head *h) {
    const struct attend *a = h->a;
    for (int r = 0; r < a->rows; r++)
        h->d[(int64_t)r * a->heads] =
            host_dot(h->dy + (int64_t)r * a->y_stride, h->y + (int64_t)r * a->y_stride, a->dim);
    clear_unseen(h);
    for (int i = (a->rows - 1) / TILE * TILE; i >= 0; i -= TILE) {
        int iend = host_least(i + TILE, a->rows);
        bool more = false;
        for (const struct segment *of = a->segment; of < a->segment + a->nsegments; of++)
            for (int j = 0, end = seen_of(of, a->first + iend - 1); j < end; j += TILE, more = true) {
                struct tile t = tile_of(h, of, j, end);
                tile_backward(h, i, iend, &t, more);
            }
    }
}

void host_attend(const struct attend *a) {
    for (int s = 0; s < a->sequences; s++)
        for (int i = 0; i < a->heads; i++) {
            struct head h = head_of(a, s, i);
            for (int r = 0; r < a->rows; r += TILE)
                rows_forward(&h, r, host_least(r + TILE, a->rows));
        }
}

void host_attend_backward(const struct attend *a) {
    for (int s = 0; s < a->sequences; s++)
        for (int i = 0; i < a->heads; i++) {
            struct head h = head_of(a, s, i);
            head_backward(&h);
        }
}

/* ---- rope ---- */

void host_rotate(const struct rt_layer *l, float *x, bool back) {
    const struct attention_config *of = &l->config.attention;
    enum { MOST = 64 };
    double turns[MOST];
    int dim = head_columns(l), half = dim / 2;
    struct positions positions = positions_of(l);
    for (int from = 0, n; from < half && of->rope > 0; from += n) {
        n = host_least(MOST, half - from);
        for (int i = 0; i < n; i++)
            turns[i] = rope_turns(l, from + i, dim);
        for (int r = 0; r < l->rows; r++)
            for (int i = 0; i < n; i++) {
                struct rotation by = rope_rotation((back ? -1 : 1) * position_of(&positions, r) * turns[i]);
                float *left = x + (int64_t)r * l->in + from + i;
                for (int h = 0; h < of->heads + of->kv_heads; h++, left += dim) {
                    float a = left[0], b = left[half];
                    left[0] = a * by.cosine - b * by.sine;
                    left[half] = b * by.cosine + a * by.sine;
                }
            }
    }
}

/* ---- the layer ---- */

static void copy_strip_rows(int rows, const struct strip *strip, int n) {
    for (; n > 0; n--, strip++)
        for (int64_t r = 0; r < rows; r++)
            memcpy((float *)(void *)strip->to + r * strip->to_stride,
                   (const float *)(const void *)strip->from + r * strip->from_stride, (size_t)strip->n * sizeof(float));
}

/* With rope, q and k are rotated in place: layers.c makes sure that nothing else reads them. */
static void attention_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    struct segment segment[MOST_SLICES];
    struct strip strip[3];
    if (l->part.members > 0) {
        host_attend_to_team(c, false);
        return;
    }
    host_rotate(l, host_at(c, l->x), false);
    copy_strip_rows(l->rows, strip, kept_strips(l, c->at, sizeof(float), strip));
    struct attend a = attend_of(l, c->at, sizeof(float), false, segment);
    host_attend(&a);
}

static void attention_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    struct segment segment[MOST_SLICES];
    struct strip strip[2];
    if (l->part.members > 0) {
        host_attend_to_team(c, true);
        return;
    }
    if (c->at->dkv) {
        keys_and_values(l, slot_at(c->at, l->dx), own_gradients(l, c->at, sizeof(float)), false, sizeof(float), strip);
        copy_strip_rows(l->rows, strip, 2);
    }
    struct attend a = attend_of(l, c->at, sizeof(float), true, segment);
    host_attend_backward(&a);
    host_rotate(l, host_at(c, l->dx), true);
}

const struct host_layer host_attention = {attention_forward, attention_input, NULL};
