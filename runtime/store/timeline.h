/* Measured timelines: the time of each instruction. A row has the step's number, the columns of timeline.tsv, the CPU
 * seconds of the instruction, the number of cores that the ranks shared, and the mean seconds until a rank that got a
 * core ran. The last three are empty if not known. */
#ifndef PIANOLA_TIMELINE_H
#define PIANOLA_TIMELINE_H
#include "rt.h"
#include <stdio.h>

enum { TIMELINE_STEPS = 10 }; /* maximum number of steps kept, the run's last */
/* Returns the first step to keep of steps [from, to). Their first, a warm-up, is kept only if there is no other. */
static inline int64_t timeline_first(int64_t from, int64_t to) {
    int64_t first = to - from > TIMELINE_STEPS ? to - TIMELINE_STEPS : from + 1;
    return first < to ? first : from;
}

/* Returns how many of `steps` steps are kept. */
static inline int64_t timeline_kept(int64_t steps) { return steps < TIMELINE_STEPS ? steps : TIMELINE_STEPS; }

void timeline_head(FILE *f);
struct timeline_on {
    double cores;   /* cores that the ranks shared; 0: not known */
    double handoff; /* mean seconds until a rank that got a core ran */
};
/* Writes a rank's rows of one step, counted from 0. slices: slices of a microbatch, or 0. Times are relative to origin,
 * which is no later than the first time. */
void timeline_rows(FILE *f, int64_t step, const struct rt_rank *k, int32_t slices, const struct rt_stamp *stamp,
                   double origin, struct timeline_on on);
#endif
