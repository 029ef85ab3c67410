/* A state of the search as a row of words: see search.h. */
#ifndef PIANOLA_STATE_H
#define PIANOLA_STATE_H
#include "search.h"

/* Returns the number of words before the recent starts. The last of them is the number of recent starts, of two words
 * each. */
static inline int state_width(const struct instance *in) { return in->n + in->ranks + (in->span ? in->ranks : 0) + 1; }
static inline int32_t recent_starts(const struct instance *in, const int32_t *row) { return row[state_width(in) - 1]; }

/* Returns whether state a, at the same moment as b, is at least as far in every respect. Each item started in b has
 * started in a, as early as still matters. No rank is busy for longer. No other class can need the room that a has
 * taken ahead of b. */
bool state_dominates(const struct instance *in, const int32_t *a, const int32_t *b);
/* Returns a hash of all that dominating states must have in common. */
uint64_t state_key(const struct instance *in, const int32_t *row);
#endif
