/* Versions of weights, for sched.c, if updates are jobs: which version a job reads, and which updates it waits for. */
#ifndef PIANOLA_VERSIONS_H
#define PIANOLA_VERSIONS_H
#include "passes.h"

/* Number of sets with versions that a job reads: its stage's own weights, and its team's shared weights. It reads the
 * same version of both. */
enum { VERSIONED = 2 };
/* Returns the n-th of these sets; -1: the stage has no such weights. */
static inline int versioned_set(const struct costs *costs, int s, int n) {
    return n > 0 ? shared_by(costs, s) : is_bare(costs, s) ? -1 : s;
}

struct versions {
    const struct spec *sp;
    const struct costs *costs;
    int32_t *version; /* per job; -1: not known yet */
    int32_t *newest;  /* per set and home, [at[set] + place]: number of versions that it has, besides the first */
    int32_t *at;
    int32_t *missing; /* see versions_begin */
    double *ready_at;
    double *ended; /* per update: its end; NAN: it has not ended */
    /* Lists of entries job * VERSIONED + n: the job waits for the update of its n-th set. waiting: per update, the
     * first entry; next: per entry, the next; -1: none. */
    int32_t *waiting, *next;
};

/* Begins. The arrays are per job. Fills in version as jobs start. Adds to missing the updates that a job waits for,
 * once known, and what an update waits for. Delays ready_at by versions still on their way. */
struct versions versions_begin(const struct costs *costs, int32_t *version, int32_t *missing, double *ready_at);
/* Starts job j at t, or the team whose first member's job is j: sets its version and the versions that depend on it. */
void versions_read(struct versions *v, int32_t j, double t);
/* Ends update j at t. Returns the first entry of the list that waited for it. */
int32_t versions_update(struct versions *v, int32_t j, double t);
/* Returns the update of job j's n-th set that makes the version that j reads, or -1 if it is unknown or the initial
 * one. */
int32_t versions_awaited(const struct versions *v, int32_t j, int n);
#endif
