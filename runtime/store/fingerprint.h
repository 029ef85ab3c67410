/* The fingerprint of what a model has learned, to compare runs in one process or in many: FNV-1a over all parameters in
 * the order of the model, stage by stage, without the gaps between them. */
#ifndef PIANOLA_FINGERPRINT_H
#define PIANOLA_FINGERPRINT_H
#include "fnv1a.h"
#include "rt.h"

/* Continues hash with the parameters of a stage that are among its elements [first, first + count), of which weights
 * are the values, fp32 whatever the precision (rt_learned); begin with FNV_START. Shard after shard gives what the
 * whole stage gives. */
static inline uint64_t fingerprint_stage(uint64_t hash, const struct rt_model *m, const struct rt_stage *s,
                                         int64_t first, int64_t count, const float *weights) {
    for (int l = 0; l < s->nlayers; l++) {
        int64_t from = s->layer[l].param / precision_bytes(m->precision), to = from + s->layer[l].nparam;
        from = from > first ? from : first;
        to = to < first + count ? to : first + count;
        if (from < to)
            hash = fnv1a(hash, weights + (from - first), (size_t)(to - from) * sizeof *weights);
    }
    return hash;
}
#endif
