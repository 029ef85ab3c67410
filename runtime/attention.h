/* Attention's arithmetic: the rows and heads of a layer around it, and the bytes that these take. */
#ifndef PIANOLA_ATTENTION_H
#define PIANOLA_ATTENTION_H
#include "model.h"

/* Returns the columns of a head, for a layer whose input is heads of queries, keys and values side by side. */
static inline int32_t head_columns(const struct rt_layer *l) {
    return l->in / (l->config.attention.heads + 2 * l->config.attention.kv_heads);
}

/* Returns the row of the microbatch, which has `all` rows, that is row `row` of the layer. */
static inline int32_t row_of_batch(const struct rt_layer *l, int32_t all, int32_t row) {
    const struct rt_rows *part = &l->part;
    if (part->members == 0)
        return row;
    if (part->context == 0)
        return part->member * (all / part->members) + row;
    int32_t length = part->context / part->members, chunk = length / 2, sequence = row / length, at = row % length;
    int32_t begin = at < chunk ? part->member * chunk : (2 * part->members - 1 - part->member) * chunk - chunk;
    return sequence * part->context + begin + at;
}

/* The pieces that a team exchanges around attention, one for each member, with their rows, columns and bytes. Each
 * begins at a cache line. element: bytes per value. */
static inline int32_t piece_rows(const struct rt_layer *l) { return l->kind == LAYER_to_rows ? rows_out(l) : l->rows; }
static inline int32_t piece_columns(const struct rt_layer *l) {
    switch (l->kind) {
    case LAYER_to_heads: return l->out;
    case LAYER_to_rows: return l->in;
    case LAYER_again_kv: return l->in / l->config.attention.heads * 2 * l->config.attention.kv_heads;
    default: return head_columns(l) * 2 * l->config.attention.kv_heads; /* gather_kv, and attention itself */
    }
}
static inline int64_t piece_bytes(const struct rt_layer *l, int64_t element) {
    return (element * piece_rows(l) * piece_columns(l) + 63) / 64 * 64;
}
/* The most members of a team that divides attention by rows: a kernel has room for two chunks of each. */
enum { MOST_BY_ROWS = 32 };

/* Returns the bytes of an attention's keys and values, or of their gradients, in a slice's kv or in dkv: all keys, then
 * all values, up to a whole cache line. */
static inline int64_t kv_bytes(const struct rt_layer *l, int64_t element) {
    return (element * l->rows * (l->in - l->out) + 63) / 64 * 64;
}

/* Bytes of an attention's log-sum-exp in aux, and whether its queries follow there. A slice keeps its queries, since
 * its keys and values stay in kv, unless its whole input is in the stash. */
static inline int64_t lse_bytes(const struct rt_layer *l) {
    return (4 * (int64_t)l->rows * l->config.attention.heads + 63) / 64 * 64;
}
static inline bool keeps_queries(const struct rt_layer *l) { return l->length > 0 && l->x.space != SP_STASH; }
#endif
