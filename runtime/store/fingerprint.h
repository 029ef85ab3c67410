/* The fingerprint of a model's weights, to compare runs in one process or in many. It is the sum, modulo 2^64, of a
 * hash of each element of each parameter. The hash covers the layer, the parameter's name, the element's place in the
 * whole parameter, and its bits, so that the sum is the same however stages, shards and teams divide the model. */
#ifndef PIANOLA_FINGERPRINT_H
#define PIANOLA_FINGERPRINT_H
#include "fnv1a.h"
#include "hash.h"
#include "parameter_walk.h"

/* Returns the fingerprint of elements [from, to) of parameter p, whose values begin at w. */
static inline uint64_t fingerprint_elements(const struct rt_layer *l, const struct rt_parameter *p, int64_t from,
                                            int64_t to, const float *w) {
    uint64_t sum = 0, key = host_hash(fnv1a(FNV_START, p->name, strlen(p->name)), (uint64_t)l->index);
    while (from < to) {
        struct rt_stretch run = stretch_of(l, p, from);
        for (int64_t i = 0; i < run.n && from < to; i++, from++, w++) {
            uint32_t bits;
            memcpy(&bits, w, sizeof bits);
            sum += host_hash(host_hash(key, (uint64_t)(run.at + i)), bits);
        }
    }
    return sum;
}

/* Returns the fingerprint of the parameters in a piece. weights: their values, fp32 whatever the precision
 * (rt_learned). With `copies`, includes only parameters that every member of a team has whole; otherwise all parameters
 * that count. A whole model's fingerprint is the sum over all sets and their shards. */
static inline uint64_t fingerprint_stage(struct rt_piece piece, const float *weights, bool copies) {
    uint64_t sum = 0;
    for (struct parameter_walk w = walk_parameters(piece); next_parameter(&w);)
        if (copies ? w.p->split == SPLIT_NONE : counts_here(piece.s, w.p))
            sum += fingerprint_elements(w.l, w.p, w.from - w.begin, w.to - w.begin, weights + (w.from - piece.first));
    return sum;
}
#endif
