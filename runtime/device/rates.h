/* Warnings about the learning rate of a training that is about to start. */
#ifndef PIANOLA_RATES_H
#define PIANOLA_RATES_H
#include "rt.h"

/* Warns, on stderr, of a warm-up that does not end, and of steps whose rate is 0 since the schedule has ended. The
 * training runs from step `from` to `steps`, with `each` updates a step. Its schedule spans `of` steps, unless the
 * model says otherwise. */
void rates_warn(const struct rt_model *m, int64_t from, int64_t steps, int64_t each, int64_t of);
#endif
