/* Warnings about the learning rate of a training that is about to start. */
#ifndef PIANOLA_RATES_H
#define PIANOLA_RATES_H
#include "rt.h"

/* Warns on stderr if the warm-up does not end within the run, and if steps have a rate of 0 because the schedule has
 * ended. The training runs from step `from` to `steps`, with `each` updates a step. Its schedule spans `of` steps,
 * unless the model says otherwise. */
void rates_warn(const struct rt_model *m, int64_t from, int64_t steps, int64_t each, int64_t of);
#endif
