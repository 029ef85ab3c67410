/* --metrics FILE: JSON lines, one for every step and one for every validation. What is not known, or no number, is
 * null.
 *
 *     step               from 1, those of earlier runs included
 *     loss               mean over the step's microbatches, of the weights before its update
 *     rate               the learning rate of its last update
 *     gradient_norm      of all parameters, before it is clipped; where it is not, null
 *     seconds            from the step's first instruction to its last, of all ranks
 *     tokens_per_second  rows of a step, by these
 *     memory_bytes       of the rank that needs most: its arena on the device
 *     waited_seconds     how long a compute lane waited for other lanes, between its first instruction and its last;
 * mean over the ranks
 *
 *     step               after which
 *     validation_loss    mean over all microbatches of the file of held-out text */
#ifndef PIANOLA_METRICS_H
#define PIANOLA_METRICS_H
#include "journal.h"

struct metrics_step {
    int64_t step;
    double loss, rate, norm, seconds, tokens, waited; /* tokens: of a step; NAN: not known */
    int64_t memory;
};
/* As journal_open. */
bool metrics_open(struct journal *metrics, const char *path, int64_t kept, char *why, size_t nwhy);
bool metrics_step(struct journal *metrics, const struct metrics_step *step, char *why, size_t nwhy);
bool metrics_validation(struct journal *metrics, int64_t step, double loss, char *why, size_t nwhy);
#endif
