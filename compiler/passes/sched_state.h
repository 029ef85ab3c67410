/* The state of the list scheduler, shared by sched.c, which runs it, and deadlock.c, which explains why it stopped. */
#ifndef PIANOLA_SCHED_STATE_H
#define PIANOLA_SCHED_STATE_H
#include "base/heap.h"
#include "passes.h"
#include "versions.h"

static inline bool smaller(int32_t x, int32_t y) { return x < y; }
HEAP(ready, int32_t, smaller) /* positions in the order of priority */

struct event {
    double t;
    int32_t job; /* j: job j ends; ~j: the last tensor of job j arrives */
};

/* Orders ends before arrivals, then by job, so that the order does not depend on how the heap was built. */
static inline bool earlier(struct event x, struct event y) {
    if (x.t != y.t)
        return x.t < y.t;
    bool xe = x.job >= 0, ye = y.job >= 0;
    return xe != ye ? xe : xe ? x.job < y.job : x.job > y.job;
}
HEAP(events, struct event, earlier)

struct sched_state {
    const struct compile *c;
    const struct spec *sp;
    struct sched *sc;
    int32_t *pos, *by_pos;            /* a job's place in the order of ranks, then of priority, and its inverse */
    struct ready *fwd, *rest;         /* per rank: ready jobs */
    int32_t *seq, *seq_at, *seq_next; /* for strict orders: each rank's jobs in order, and the index of the next one */
    bool *ready;                      /* for strict orders */
    bool *busy, *dirty;
    int *live;              /* live activations per rank */
    int *touched, ntouched; /* ranks that might start a job now, */
    int *next_touched;      /* and room for the ranks of the next round */
    int *waiting, nwaiting; /* ranks whose best job was a team's that could not start, each once, */
    bool *waits;            /* as this array marks */
    int32_t *missing;       /* predecessors not yet ended */
    int32_t *absent;        /* per team's job: number of members on which it is ready; NULL: there are no teams */
    double *ready_at;
    struct versions versions; /* used if updates are jobs */
    struct events events;
};

/* Returns the number of jobs that start together with j, in a team. */
static inline int job_size(const struct sched_state *state, int32_t j) {
    return state->absent && j < state->sp->njobs ? team_size(state->sp, state->sp->job[j].s) : 1;
}

/* The best job that a rank could start now, and the heap that holds it; -1: none. */
struct choice {
    int32_t j;
    struct ready *from; /* NULL: from its sequence */
};
struct choice sched_choose(const struct sched_state *state, int rank);
/* Dies with a shortest cycle of jobs that wait for each other. */
_Noreturn void sched_deadlock(struct sched_state *state);
#endif
