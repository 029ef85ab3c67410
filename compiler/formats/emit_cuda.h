/* A rank's own program, in two parts: emit_cuda.c and emit_cuda_model.c. */
#ifndef PIANOLA_EMIT_CUDA_H
#define PIANOLA_EMIT_CUDA_H
#include "../../runtime/rt_program.h"
#include "base/text.h"

/* Writes the model, and the layers and stages of the rank's view. nlayers: of the whole model. */
void emit_trained(struct text *t, const struct rt_program *p, int nlayers);
#endif
