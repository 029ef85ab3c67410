/* What attention_host.c and attention.cu share.
 *
 * Causal attention of rows of a sequence to rows of the same sequence (Vaswani et al. 2017, section 3.2; heads that
 * share keys: Ainslie et al. 2023, section 2).
 *
 * The queries begin anywhere in the sequence, and keys and values lie in any number of places: so this is the attention
 * of a whole sequence, of a slice of it to all slices so far, and of a rank's share to what others have sent. Every
 * query sees the keys whose position is at most its own, and at least one.
 *
 * Tensors have the model's precision, lse and d fp32. A tensor has rows for several sequences: those of sequence s come
 * s times as many rows behind those of sequence 0, unless other rows lie between. Strides are in elements, from row to
 * row. On a device, where heads have a multiple of 16 bytes, addresses and strides must be such multiples too. */
#ifndef PIANOLA_ATTEND_H
#define PIANOLA_ATTEND_H
#include "attention.h"
#include "both.h"
#include <math.h>
#include <stdint.h>

/* Keys and values of consecutive positions: rows x kv_heads x dim. */
struct segment {
    const void *k, *v;
    void *dk, *dv;           /* of a backward, which writes them all, or adds to them */
    int32_t stride, dstride; /* of k and v; of dk and dv */
    int32_t first, rows;     /* position of its first row; rows of each sequence */
    int32_t add;
};

struct attend {
    const void *q, *dy; /* rows x heads x dim; dy has y's stride, and d, dy and dq only a backward */
    void *y, *dq;
    float *lse, *d; /* rows x heads: log-sum-exp of a row's scores; workspace for rowsum(dy y) */
    int32_t q_stride, y_stride, dq_stride;
    int32_t sequences, first, rows; /* position of the first query, and queries of each sequence */
    int32_t heads, kv_heads, dim;   /* query head h reads key head h / (heads / kv_heads) */
    int32_t nsegments;
    int32_t apart; /* rows from one sequence to the next, of all tensors; 0: as many as each has of a sequence */
    const struct segment *segment; /* ascending, apart; the first begins no later than the queries */
};

/* The first row of a sequence, in a tensor that has so many of each. */
ON_BOTH int64_t row_of_sequence(const struct attend *a, int32_t sequence, int32_t rows) {
    return (int64_t)sequence * (a->apart > 0 ? a->apart : rows);
}

/* How many of a segment's rows a query at this position sees. */
ON_BOTH int32_t seen_of(const struct segment *s, int32_t position) {
    int32_t n = position + 1 - s->first;
    return n < 0 ? 0 : n < s->rows ? n : s->rows;
}

/* attention_host.c: y and lse from the rest; dq, d, and all dk and dv from the rest. fp32. */
#ifdef __cplusplus
extern "C" {
#endif
void host_attend(const struct attend *a);
void host_attend_backward(const struct attend *a);
#ifdef __cplusplus
}
#endif

/* ---- rope ----
 *
 * Rotary position embedding (Su et al. 2021, section 3.4.2), in the halves of GPT-NeoX and Llama: of a head of dim
 * columns, columns i and i + dim / 2 of the row at position p are turned as a pair by the angle p base^(-2i / dim).
 * Keys are turned before others attend to them, wherever they go, and their gradients turned back at the end: so attend
 * does not know of it.
 *
 * Angles are counted in turns, whose whole part falls away, in double: at position 10^6 they are still exact to 10^-9.
 * The host and devices use the same arithmetic, of which nothing depends on a library but sqrt, which IEEE 754 fixes.
 */

/* Where a layer's rows are in their sequences: of each it has `length`, the first `chunk` of them from position `first`
 * on, the others from `second` on. Its row 0 is the one numbered `begin` of these. */
struct positions {
    int32_t length, chunk, first, second, begin;
};
static inline struct positions positions_of(const struct rt_layer *l) {
    const struct rt_rows *part = &l->part;
    int32_t length = part->context > 0 ? part->context / part->members : sequence_length(l);
    struct positions p = {length, length, l->first, 0, 0};
    if (part->context > 0) {
        p.chunk = length / 2;
        p.first = row_of_batch(l, 0, 0);
        p.second = row_of_batch(l, 0, p.chunk);
    } else if (part->members > 0 && length > 0)
        p.begin = (int32_t)((int64_t)part->member * l->rows % length);
    return p;
}
ON_BOTH int32_t position_of(const struct positions *p, int32_t row) {
    int32_t at = (p->begin + row) % p->length;
    return at < p->chunk ? p->first + at : p->second + at - p->chunk;
}
/* The first row at a position, from which on every length-th is at it too; -1: there is none. */
ON_BOTH int32_t row_at(const struct positions *p, int32_t position) {
    int32_t early = position - p->first, late = position - p->second;
    int32_t at = early >= 0 && early < p->chunk             ? early
                 : late >= 0 && late < p->length - p->chunk ? p->chunk + late
                                                            : -1;
    return at < 0 ? -1 : (at + p->length - p->begin) % p->length;
}

/* Turns from one position to the next: base^(-2i / dim) / 2 pi, or fewer as the layer's scaling says. The power is a
 * product of square roots of square roots of 1 / base, one for each bit of 2i / dim. */
static inline double rope_turns(const struct rt_layer *l, int i, int dim) {
    const struct attention_config *a = &l->config.attention;
    double power = 1, root = 1.0 / a->rope, bits = 2.0 * i / dim;
    while (bits > 0) {
        root = sqrt(root);
        bits *= 2;
        if (bits >= 1) {
            power *= root;
            bits -= 1;
        }
    }
    double turns = power * 0.15915494309189535, inside = turns * a->rope_context;
    if (a->rope_factor == 0 || (a->rope_context > 0 && inside > (double)a->rope_high))
        return turns;
    double lower = turns / (double)a->rope_factor;
    if (a->rope_context == 0 || inside < (double)a->rope_low)
        return lower;
    double kept = (inside - (double)a->rope_low) / ((double)a->rope_high - (double)a->rope_low);
    return (1 - kept) * lower + kept * turns;
}

struct rotation {
    float cosine, sine;
};

ON_BOTH double rope_nearest(double x) { return x + 6755399441055744.0 - 6755399441055744.0; } /* 1.5 * 2^52 */

/* By so many turns: Cephes' polynomials for an eighth of a turn to either side, from the nearest quarter. */
ON_BOTH struct rotation rope_rotation(double turns) {
    turns -= rope_nearest(turns);
    double quarter = rope_nearest(4 * turns);
    float x = (float)((turns - quarter / 4) * 6.283185307179586), z = x * x;
    float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
    float cosine =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1;
    int which = (int)quarter & 3;
    struct rotation r;
    r.cosine = which & 1 ? -sine : cosine;
    r.sine = which & 1 ? cosine : sine;
    if (which & 2) {
        r.cosine = -r.cosine;
        r.sine = -r.sine;
    }
    return r;
}
#endif
