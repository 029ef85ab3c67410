/* For sched.c, where updates are jobs: which version of the weights a job reads, and which updates it waits for. */
#ifndef PIANOLA_VERSIONS_H
#define PIANOLA_VERSIONS_H
#include "passes.h"

/* A job reads its stage's own weights, and those that its team shares: the same version of both. */
enum { VERSIONED = 2 };
/* The n-th of these sets; -1: the stage has no such weights. */
static inline int versioned_set(const struct spec *sp, int s, int n) {
    return n > 0 ? shared_by(sp, s) : is_bare(sp, s) ? -1 : s;
}

struct versions {
    const struct spec *sp;
    const struct stage *st;
    int32_t *version; /* per job; -1: not known yet */
    int32_t *newest;  /* per set and home, [at[set] + place]: versions that it has, besides the first */
    int32_t *at;
    int32_t *missing; /* as below */
    double *ready_at;
    double *ended; /* per update: when; NAN: it has not */
    /* Lists of job * VERSIONED + n, which waits for the update of its n-th set: per update, the first; per entry, the
     * next; -1: none. */
    int32_t *waiting, *next;
};

/* Per job: version, filled in as jobs start; missing, to which it adds the updates that a job waits for, once these are
 * known, and what an update waits for; ready_at, which a version that is still on its way puts off. */
struct versions versions_begin(const struct spec *sp, const struct stage *st, int32_t *version, int32_t *missing,
                               double *ready_at);
/* Job j starts at t, or the team's job of which it is the first member's: sets its version and those that follow. */
void versions_read(struct versions *v, int32_t j, double t);
/* Update j has ended at t. Returns the first of the list that waited for it. */
int32_t versions_update(struct versions *v, int32_t j, double t);
/* The update of its n-th set that makes the version that job j reads, if that is known; -1: none. */
int32_t versions_awaited(const struct versions *v, int32_t j, int n);
#endif
