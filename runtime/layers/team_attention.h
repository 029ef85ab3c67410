/* Attention whose rows or heads are divided among a team, for team_attention_host.c and team_attention.cu.
 *
 * Pieces. A collective moves equal pieces, one for each member, which lie one after the other and begin at cache lines.
 * They are copied to or from a tensor, in which piece i has some of the rows, some of the columns, or both. Its rows
 * are member i's rows of the microbatch, or all rows. Its columns are member i's part of up to three groups (such as
 * heads of queries, of keys and of values), or all columns. */
#ifndef PIANOLA_TEAM_ATTENTION_H
#define PIANOLA_TEAM_ATTENTION_H
#include "keys.h"

struct pieces {
    int32_t members, rows, columns; /* of each piece, whose rows are contiguous */
    int64_t apart;                  /* elements from one piece to the next */
    int32_t stride;                 /* of the tensor's rows, in elements */
    bool by_rows;                   /* piece i has member i's rows, given by `part` */
    struct rt_rows part;
    int32_t group[3]; /* the tensor's column groups, each divided among the pieces; 0: no more. group[0] 0: a piece has
                         all columns */
};

/* Returns the row of a microbatch that is row `row` of a member with `rows` rows: row_of_batch of attention.h, for any
 * member and on devices too. */
ON_BOTH int32_t row_of_member(const struct rt_rows *part, int32_t member, int32_t rows, int32_t row) {
    if (part->context == 0)
        return member * rows + row;
    int32_t length = part->context / part->members, chunk = length / 2, at = row % length;
    int32_t begin = at < chunk ? member * chunk : (2 * part->members - 2 - member) * chunk;
    return row / length * part->context + begin + at;
}

/* The place of a piece's element in the tensor, in elements, and the number of columns that are contiguous in both from
 * there on. */
struct place {
    int64_t at;
    int32_t n;
};
ON_BOTH struct place piece_place(const struct pieces *p, int32_t piece, int32_t row, int32_t column) {
    int64_t at = p->by_rows ? row_of_member(&p->part, piece, p->rows, row) : row;
    int32_t begin = 0, width = p->columns;
    for (int g = 0; g < 3 && p->group[g] > 0; g++) {
        width = p->group[g] / p->members;
        if (column < width) {
            begin += piece * width;
            break;
        }
        begin += p->group[g];
        column -= width;
    }
    struct place place = {at * p->stride + begin + column, width - column};
    return place;
}

/* ---- pieces that the layers exchange; element: bytes per value ---- */

/* Returns the single piece with all of a member's keys and values, which follow the queries in attention's x. */
static inline struct pieces keys_of_member(const struct rt_layer *l, int32_t stride) {
    struct pieces p = {1, l->rows, piece_columns(l), 0, stride, false, {0, 0, 0}, {0, 0, 0}};
    return p;
}
/* Return the pieces of to_heads and to_rows: in the tensor with whole rows, n x C, and in the one with a member's
 * heads, N x C / members. */
static inline struct pieces pieces_of_rows(const struct rt_layer *l, int64_t element) {
    const struct attention_config *of = &l->config.attention;
    struct pieces p = {l->part.members,
                       piece_rows(l),
                       piece_columns(l),
                       piece_bytes(l, element) / element,
                       l->part.members * piece_columns(l),
                       false,
                       {0, 0, 0},
                       {0, 0, 0}};
    int32_t dim = p.stride / (of->heads + 2 * of->kv_heads);
    p.group[0] = of->heads * dim;
    p.group[1] = p.group[2] = of->kv_heads * dim;
    return p;
}
static inline struct pieces pieces_of_heads(const struct rt_layer *l, int64_t element) {
    struct pieces p = {l->part.members,  piece_rows(l), piece_columns(l), piece_bytes(l, element) / element,
                       piece_columns(l), true,          l->part,          {0, 0, 0}};
    return p;
}

/* ---- attention of a member's rows to the keys and values of all: context parallelism (Llama Team 2024, "The Llama 3
 * Herd of Models", section 3.3.2) ----
 *
 * Each sequence is cut into 2 * members chunks. A member has one chunk and the one equally far from the end, so that
 * all members have the same work. The members gather a piece from each, whose rows are keys and then values. The
 * gradients to be summed have the same form. */

/* Returns the segment of a chunk: its keys and values, and in a backward their gradients. */
static inline struct segment chunk_of_team(const struct rt_layer *l, const struct rt_bind *at, int64_t element,
                                           bool backward, int32_t number) {
    int32_t members = l->part.members, chunk = l->part.context / members / 2, columns = piece_columns(l);
    int32_t late = number >= members, member = late ? 2 * members - 1 - number : number;
    int64_t off = member * piece_bytes(l, element) + (late ? chunk * columns * element : 0);
    int64_t values = off + columns / 2 * element;
    struct segment s;
    s.k = at->at[SP_GOT] + off, s.v = at->at[SP_GOT] + values;
    s.dk = backward ? at->at[SP_GIVE] + off : NULL, s.dv = backward ? at->at[SP_GIVE] + values : NULL;
    s.stride = s.dstride = columns;
    s.first = number * chunk, s.rows = chunk;
    s.add = 0;
    return s;
}

/* Returns the queries of the member's first chunk, or of its second one, which comes last. The second chunk reads the
 * keys of all chunks, so its backward writes all their gradients, and the first chunk's backward adds to them. segment:
 * room for 2 members. */
static inline struct attend attend_to_team(const struct rt_layer *l, const struct rt_bind *at, int64_t element,
                                           bool backward, bool second, struct segment *segment) {
    const struct attention_config *of = &l->config.attention;
    const struct rt_rows *part = &l->part;
    int32_t chunk = part->context / part->members / 2;
    int64_t row = second ? chunk : 0;
    struct attend a;
    a.q = slot_at(at, l->x) + row * l->in * element;
    a.y = slot_at(at, l->y) + row * l->out * element;
    a.dy = backward ? slot_at(at, l->dy) + row * l->out * element : NULL;
    a.dq = backward ? slot_at(at, l->dx) + row * l->in * element : NULL;
    a.lse = (float *)(void *)(slot_at(at, l->aux) + row * of->heads * 4);
    a.d = backward ? (float *)(void *)(slot_at(at, l->tmp) + row * of->heads * 4) : NULL;
    a.q_stride = a.dq_stride = l->in, a.y_stride = l->out;
    a.sequences = l->rows / (2 * chunk), a.first = row_of_batch(l, 0, (int32_t)row), a.rows = chunk;
    a.heads = of->heads, a.kv_heads = of->kv_heads, a.dim = l->out / of->heads;
    a.apart = 2 * chunk;
    a.nsegments = second ? 2 * part->members : part->member + 1;
    a.segment = segment;
    for (int32_t i = 0; i < a.nsegments; i++) {
        segment[i] = chunk_of_team(l, at, element, backward, i);
        segment[i].add = backward && !second;
    }
    return a;
}
#endif
