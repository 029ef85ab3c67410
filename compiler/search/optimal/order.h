/* Orders of jobs, and the schedules that they come to. */
#ifndef PIANOLA_OPTIMAL_ORDER_H
#define PIANOLA_OPTIMAL_ORDER_H
#include "ir/graph.h"

struct lists { /* per rank: its jobs in order */
    int32_t **job;
    int *n;
};
int32_t *jobs_by_start(const struct spec *sp, const int64_t *start); /* of all ranks */
struct lists lists_by_start(const struct spec *sp, const int64_t *start);
/* The same jobs in strict order, without a limit to memory. */
struct spec spec_in_order(const struct spec *sp, struct lists lists);
/* The schedule of ranks that run their jobs in this order, as soon as they can. */
struct sched *sched_in_order(const struct spec *sp, const struct stage *st, const struct graph *graph,
                             struct lists lists);
#endif
