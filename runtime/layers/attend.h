/* Causal attention, shared by attention_host.c and attention.cu: rows of a sequence attend to rows of the same sequence
 * (Vaswani et al. 2017, section 3.2; heads that share keys: Ainslie et al. 2023, section 2).
 *
 * The queries may begin anywhere in the sequence, and keys and values may lie in any number of segments. So the same
 * code serves a whole sequence, a slice of it that attends to all slices so far, and a rank's rows that attend to what
 * others have sent. Every query sees the keys whose position is at most its own; there is at least one.
 *
 * Tensors have the model's precision; lse and d are fp32. A tensor may have rows for several sequences: sequence s
 * begins s times the rows of one sequence after sequence 0, unless `apart` says otherwise. Strides are in elements,
 * from row to row. On a device, if a head is a multiple of 16 bytes, addresses and strides must be too. */
#ifndef PIANOLA_ATTEND_H
#define PIANOLA_ATTEND_H
#include "attention.h"
#include "both.h"
#include <math.h>
#include <stdint.h>

/* Keys and values of consecutive positions: rows x kv_heads x dim. */
struct segment {
    const void *k, *v;
    void *dk, *dv;           /* gradients: a backward writes all rows of them, or adds to them */
    int32_t stride, dstride; /* strides of k and v; of dk and dv */
    int32_t first, rows;     /* position of its first row; rows of each sequence */
    int32_t add;
};

struct attend {
    const void *q, *dy; /* rows x heads x dim; dy has y's stride; only a backward has d, dy and dq */
    void *y, *dq;
    float *lse, *d; /* rows x heads: log-sum-exp of a row's scores; workspace for rowsum(dy y) */
    int32_t q_stride, y_stride, dq_stride;
    int32_t sequences, first, rows; /* position of the first query, and queries of each sequence */
    int32_t heads, kv_heads, dim;   /* query head h reads key head h / (heads / kv_heads) */
    int32_t nsegments;
    int32_t apart; /* rows from one sequence to the next, in every tensor; 0: the tensor's rows of one sequence */
    const struct segment *segment; /* ascending and disjoint; the first begins no later than the queries */
};

/* Returns the first row of a sequence in a tensor that has `rows` rows of each. */
ON_BOTH int64_t row_of_sequence(const struct attend *a, int32_t sequence, int32_t rows) {
    return (int64_t)sequence * (a->apart > 0 ? a->apart : rows);
}

/* Returns how many of a segment's rows a query at this position sees. */
ON_BOTH int32_t seen_of(const struct segment *s, int32_t position) {
    int32_t n = position + 1 - s->first;
    return n < 0 ? 0 : n < s->rows ? n : s->rows;
}

/* attention_host.c, in fp32: computes y and lse; the backward computes dq, d, and every dk and dv. */
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
 * Rotary position embedding (Su et al. 2021, section 3.4.2), in the halves of GPT-NeoX and Llama. In a head of dim
 * columns, columns i and i + dim / 2 of the row at position p are rotated as a pair, by the angle p base^(-2i / dim).
 * Keys are rotated before any query attends to them, and their gradients are rotated back at the end, so attention
 * itself does not depend on rope.
 *
 * Angles are counted in turns, in double, and their integer part is dropped: at position 10^6 they are still exact to
 * 10^-9. The host and devices use the same arithmetic. Its only library function is sqrt, which IEEE 754 fixes. */

/* Positions of a layer's rows. The layer has `length` rows of each sequence: the first `chunk` of them from position
 * `first` on, the others from `second` on. Its row 0 is number `begin` among them. */
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
/* Returns the first row at a position, or -1 if there is none. Every length-th row after it is at that position too. */
ON_BOTH int32_t row_at(const struct positions *p, int32_t position) {
    int32_t early = position - p->first, late = position - p->second;
    int32_t at = early >= 0 && early < p->chunk             ? early
                 : late >= 0 && late < p->length - p->chunk ? p->chunk + late
                                                            : -1;
    return at < 0 ? -1 : (at + p->length - p->begin) % p->length;
}

/* Returns the turns from one position to the next: base^(-2i / dim) / 2 pi, or fewer if the layer scales its rope. The
 * power is a product of repeated square roots of 1 / base, one for each bit of 2i / dim. */
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

/* Returns the rotation by a number of turns, with Cephes' polynomials for up to an eighth of a turn from the nearest
 * quarter.
 */
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
