/* The interface between cost.c and layout.c. */
#ifndef PIANOLA_COST_H
#define PIANOLA_COST_H
#include "passes.h"

enum { TENSOR_ALIGN = 64 }; /* bytes: alignment of tensors inside their space, and of a layer's parameters */
static inline int64_t aligned(int64_t bytes) { return (bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN; }

/* layout.c: sets the parameter offsets of layers whose nparam is known, and the stage's sizes of weights and of
 * optimizer state, which is `state` floats per weight. */
void layout_weights(struct rt_stage *s, struct rt_layer *layer, int precision, int state);
/* layout.c: also sets the layers' slots, and the stage's other sizes except act, grad and input. reads: the number of
 * stages whose outputs it reads; 0: it reads the batch, which needs no gradient. readers: the number of stages that
 * read its output. */
void layout_stage(struct rt_stage *s, struct rt_layer *layer, int reads, int readers, int precision, int state);
#endif
