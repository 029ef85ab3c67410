/* For sched.c, where updates are jobs: which version of the weights a job reads, and which updates it waits for. */
#ifndef PIANOLA_VERSIONS_H
#define PIANOLA_VERSIONS_H
#include "passes.h"

struct versions {
    const struct spec *sp;
    const struct stage *st;
    int32_t *version; /* per job; -1: not known yet */
    int32_t *newest;  /* per stage and home, [at[s] + place]: versions that it has, besides the first */
    int32_t *at;
    int32_t *missing; /* as below */
    double *ready_at;
    double *ended;           /* per update: when; NAN: it has not */
    int32_t *waiting, *next; /* lists of jobs: per update, the first that waits for it; per job, the next; -1: none */
};

/* Per job: version, filled in as jobs start; missing, to which it adds the update that a job waits for, once that is
 * known, and what an update waits for; ready_at, which a version that is still on its way puts off. */
struct versions versions_begin(const struct spec *sp, const struct stage *st, int32_t *version, int32_t *missing,
                               double *ready_at);
/* Job j starts at t: sets its version and those that follow from it. */
void versions_read(struct versions *v, int32_t j, double t);
/* Update j has ended at t. Returns the first of the jobs that waited for it. */
int32_t versions_update(struct versions *v, int32_t j, double t);
/* The update that makes the version that job j reads, if that is known; -1: none. */
int32_t versions_awaited(const struct versions *v, int32_t j);
#endif
