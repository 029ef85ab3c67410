/* The fingerprint of what a model has learned, to compare runs in one process or in many: FNV-1a over all parameters in
 * the order of the model, stage by stage, without the gaps between them. */
#ifndef PIANOLA_FINGERPRINT_H
#define PIANOLA_FINGERPRINT_H
#include "fnv1a.h"
#include "rt.h"

/* Continues hash with a stage's parameters; begin with FNV_START. weights: fp32 whatever the precision (rt_learned). */
static inline uint64_t fingerprint_stage(uint64_t hash, const struct rt_model *m, const struct rt_stage *s,
                                         const float *weights) {
    for (int l = 0; l < s->nlayers; l++)
        hash = fnv1a(hash, weights + s->layer[l].param / precision_bytes(m->precision),
                     (size_t)s->layer[l].nparam * sizeof *weights);
    return hash;
}
#endif
