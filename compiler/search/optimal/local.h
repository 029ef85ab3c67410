/* Local search over orders: one job at a time is moved along its rank, and stays there if the step gets no longer.
 *
 * An order is judged by what the whole compiler makes of it: its messages, fetches, collectives and memory plan, in the
 * simulator. So the search knows what bounds and the dynamic programme (search.h) do not, and proves nothing. */
#ifndef PIANOLA_LOCAL_H
#define PIANOLA_LOCAL_H
#include "order.h"

/* How the step is judged: by its makespan, or, with noise, by the p95 of so many runs (passes/jitter.c). */
struct judgement {
    double level; /* of the noise; 0: none, nor runs */
    uint64_t seed;
    int64_t runs;
};
/* What the order takes; with noise, of which this is the p95, also what its runs come to, unless noisy is NULL. Caps
 * and memory count. INFINITY: it comes to a deadlock or does not fit. */
double judge_order(const struct compile *c, struct lists lists, struct judgement judgement, struct jitter *noisy);

/* The same with other random numbers: a search that is to be judged by the one should see the other. */
struct judgement unseen_noise(struct judgement judgement);

struct local {
    uint64_t seed;
    int64_t orders; /* to be tried at most */
    double until;   /* seconds since the epoch; 0: for ever */
    int64_t tried;  /* is counted */
};
/* Changes the lists, and returns how long they take then. Does nothing to lists that do not run. Jobs each run alone:
 * an order of pairs or of a team's jobs is the caller's to refuse. */
double improve_order(const struct compile *c, struct lists lists, struct judgement judgement, struct local *local);
/* How many orders are worth trying: less, the more jobs there are. */
int64_t orders_to_try(const struct spec *sp);
#endif
