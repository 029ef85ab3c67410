/* --losses FILE: a line for every update of the last stage; with one update per step, a line for every step. Columns:
 *
 *     update         its number, from 1, counting earlier runs
 *     microbatches   number of microbatches whose gradients it sums
 *     loss           their mean loss
 *     predicted      seconds since the training began, predicted for the cluster; empty: no prediction
 *     measured       seconds since the training began; empty: not known */
#ifndef PIANOLA_LOSSES_H
#define PIANOLA_LOSSES_H
#include "journal.h"
#include "rt.h"

/* Opens the file like journal_open. kept: number of updates. */
bool losses_open(struct journal *losses, const char *path, int64_t kept, char *why, size_t nwhy);
struct losses_step {
    int64_t step;            /* counted from 0 */
    const float *loss;       /* one per microbatch */
    const double *predicted; /* one per update; NULL: no prediction */
    const double *when;      /* measured, one per update; 0: not known */
};
/* Appends the lines of a step and puts them on the disk. Returns false with why. */
bool losses_step(struct journal *losses, const struct rt_program *p, const struct losses_step *of, char *why,
                 size_t nwhy);
#endif
