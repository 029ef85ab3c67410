/* period.c: the part of a program that repeats. */
#ifndef PIANOLA_PERIOD_H
#define PIANOLA_PERIOD_H
#include "passes.h"

/* opener returns the buffer whose event opened b: b itself, or the stash that grew into it. closer returns the buffer
 * whose event closes b. */
static inline int32_t opener(const struct rank *k, int32_t b) { return b > 0 && k->buf[b - 1].grows == b ? b - 1 : b; }
static inline int32_t closer(const struct rank *k, int32_t b) { return k->buf[b].grows >= 0 ? k->buf[b].grows : b; }
/* Sets, per buffer of the rank that is open where the period ends, the buffer in its place where the period begins; -1:
 * not open there. Returns false if they do not correspond, because some tensor lives longer than the period. */
bool match_period(const struct program *p, int r, int32_t *before);
bool period_fits(const struct program *p); /* returns whether all ranks' buffers correspond */
#endif
