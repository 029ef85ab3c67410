/* Between cost.c and layout.c. */
#ifndef PIANOLA_COST_H
#define PIANOLA_COST_H
#include "passes.h"

enum { TENSOR_ALIGN = 64 }; /* bytes: of every tensor inside its space, and of a layer's parameters */
static inline int64_t aligned(int64_t bytes) { return (bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN; }

/* layout.c: gives layers whose nparam is known their parameters' offsets, and the stage the sizes of weights and
 * optimizer state, which is `state` floats per weight. */
void layout_weights(struct rt_stage *s, struct rt_layer *layer, int precision, int state);
/* layout.c: the same, and the layers' slots, and the stage's other sizes but for act, grad and input. reads:
 * how many stages' outputs it reads; 0: the batch, of which no gradient is needed. readers: how many stages read its. */
void layout_stage(struct rt_stage *s, struct rt_layer *layer, int reads, int readers, int precision, int state);
#endif
