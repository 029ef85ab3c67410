/* Local search over orders: moves one job at a time along its rank, and keeps the move if the step gets no longer.
 *
 * An order is judged by compiling it completely and simulating its messages, fetches, collectives and memory plan. So
 * the search accounts for effects that bounds and the dynamic program (search.h) ignore, but proves nothing. */
#ifndef PIANOLA_LOCAL_H
#define PIANOLA_LOCAL_H
#include "order.h"

/* How a step is judged: by its makespan or, with noise, by the p95 of `runs` runs (passes/jitter.c) */
struct judgement {
    double level; /* noise level; 0: no noise and no runs */
    uint64_t seed;
    int64_t runs;
};
/* Returns the value of an order; with noise, the p95, and the results of its runs in *noisy, unless that is NULL. Caps
 * and memory count. INFINITY: it deadlocks or does not fit. */
double judge_order(const struct compile *c, struct lists lists, struct judgement judgement, struct jitter *noisy);

/* Returns the judgement with other random numbers: a search should use other noise than the final comparison. */
struct judgement unseen_noise(struct judgement judgement);

struct local {
    uint64_t seed;
    int64_t orders; /* upper bound on those tried */
    double until;   /* seconds since the epoch; 0: no limit */
    int64_t tried;  /* number tried */
};
/* Improves the lists in place, and returns their value. Leaves lists that do not run unchanged. Each job runs alone:
 * the caller must refuse orders of pairs or of a team's jobs. */
double improve_order(const struct compile *c, struct lists lists, struct judgement judgement, struct local *local);
/* Returns how many orders are worth trying: fewer, the more jobs there are. */
int64_t orders_to_try(const struct spec *sp);
#endif
