/* A rank's own program, in three parts: emit_cuda.c, emit_cuda_model.c and emit_cuda_units.c. */
#ifndef PIANOLA_EMIT_CUDA_H
#define PIANOLA_EMIT_CUDA_H
#include "../../runtime/rt_program.h"
#include "base/text.h"

/* Writes the model, and the layers and stages of the rank's view. nlayers: of the whole model. */
void emit_trained(struct text *t, const struct rt_program *p, int nlayers);
/* emit_cuda_units.c: lists the units of a rank's view, each once, and returns their number; and writes them, as unit_0
 * and so on. */
int list_units(const struct rt_program *p, const struct rt_unit **unit);
void emit_units(struct text *t, const struct rt_unit *const *unit, int n);
/* emit_cuda_units.c: writes which of n units a layer is, or nothing */
void put_unit_of(struct text *t, const struct rt_layer *l, const struct rt_unit *const *unit, int n);
#endif
