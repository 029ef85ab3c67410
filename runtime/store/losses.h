/* --losses FILE: a line for every update of the last stage, or for every step where one update ends it. Columns:
 *
 *     update         its number, from 1, those of earlier runs included
 *     microbatches   whose gradients it sums
 *     loss           their mean
 *     predicted      seconds since the training began, by the cluster; empty: nobody has predicted it
 *     measured       likewise; empty: not known */
#ifndef PIANOLA_LOSSES_H
#define PIANOLA_LOSSES_H
#include "journal.h"
#include "rt.h"

/* As journal_open; kept: updates. */
bool losses_open(struct journal *losses, const char *path, int64_t kept, char *why, size_t nwhy);
/* Appends the lines of a step, from 0, which are then on the disk. last: the last stage. loss[batches]: of each
 * microbatch; predicted[updates_per_step], or NULL; when[updates_per_step]: measured, 0: not known. False with why. */
bool losses_step(struct journal *losses, int64_t step, int32_t batches, int32_t slices, const struct rt_stage *last,
                 const float *loss, const double *predicted, const double *when, char *why, size_t nwhy);
#endif
