/* Orders of jobs, and the schedules that they give. */
#ifndef PIANOLA_OPTIMAL_ORDER_H
#define PIANOLA_OPTIMAL_ORDER_H
#include "plan/plan.h"

struct lists { /* per rank: its jobs in order */
    int32_t **job;
    int *n;
};
int32_t *jobs_by_start(const struct spec *sp, const int64_t *start); /* returns the jobs of all ranks */
struct lists lists_by_start(const struct spec *sp, const int64_t *start);
/* Gives the compile another spec with the same jobs, which take as long. */
void take_spec(struct compile *c, const struct spec *sp);
/* Returns a variation with the same jobs in strict order, to compile from the schedule on; limited: with the machine's
   memory limits. */
struct compile vary_order(const struct compile *c, struct lists lists, bool limited);
/* Returns the schedule of ranks that run their jobs in this order, as soon as they can. */
struct sched *sched_in_order(const struct compile *c, struct lists lists);
#endif
