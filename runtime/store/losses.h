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
struct losses_step {
    int64_t step;            /* from 0 */
    const float *loss;       /* of each microbatch */
    const double *predicted; /* of each update; NULL: nobody has */
    const double *when;      /* of each update: measured, 0: not known */
};
/* Appends the lines of a step, which are then on the disk. False with why. */
bool losses_step(struct journal *losses, const struct rt_program *p, const struct losses_step *of, char *why,
                 size_t nwhy);
#endif
