/* Training by formula, and the version of the weights that each job reads. */
#ifndef FORMULAS_H
#define FORMULAS_H
#include <stdint.h>

enum { MOST_STAGES = 16, MOST_MEMBERS = 4 }; /* members: of a team */

/* A stage's F, its R if it recomputes, and its backward. */
enum job { FORWARD, RECOMPUTE, BACKWARD, NJOBS };

/* Where the papers have a formula. With n stages, numbered from 0:
 *
 * STASHING  w_s(t+1) = w_s(t) - nu grad_s f(w_0(t-n+1), w_1(t-n+2), .., w_{n-1}(t)): both jobs of stage s read
 *           version max(0, t-(n-1-s)). Harlap 2018, "PipeDream: Fast and Efficient Pipeline Parallel DNN Training",
 *           section 3.3.
 * VERTICAL  vertical sync, all stages as stage 0: w(t+1) = w(t) - nu grad f(w_0(t-n+1), .., w_{n-1}(t-n+1)). As above.
 * NAIVE     no stashing: the forward reads what STASHING reads, the backward what is newest: all updates before it.
 * DOUBLE    two versions of the weights: W(t+1) = W(t) - nu grad f(W(t-1)). Narayanan 2021, "Memory-Efficient
 *           Pipeline-Parallel DNN Training", section 3.1.
 * SYNC      gradient descent: w(t+1) = w(t) - nu grad f(w(t)).
 *
 * If the papers have no formula, the program declares the versions:
 *
 * STASHED   both jobs of a stage read the same version.
 * REPLICAS  the same, where stage s runs on r_s = update[s] ranks in turn, and has as many microbatches in flight on
 *           each as keep busy all l_s ranks from it on: ceil(l_s / r_s). So one rank alone reads version
 *           max(0, t-(l_s-1)). Several wait for each other between two of their updates, and so are behind by one
 *           update less than they have microbatches in flight, or by as many.
 * ANY       any. */
#define RULES(X)                                                                                                       \
    X(STASHING, stashing)                                                                                              \
    X(VERTICAL, vertical)                                                                                              \
    X(NAIVE, naive)                                                                                                    \
    X(DOUBLE, double)                                                                                                  \
    X(SYNC, sync)                                                                                                      \
    X(STASHED, stashed)                                                                                                \
    X(REPLICAS, replicas)                                                                                              \
    X(ANY, any)
#define X(NAME, name) NAME,
enum rule { RULES(X) NRULES };
#undef X

struct training {
    int stages, layers, features, rows,
        seed;                /* layers: linear layers of each stage; features: columns of all of them */
    int batches, steps;      /* batches: of a step, counting all of its repetitions */
    int update[MOST_STAGES]; /* per stage: microbatches of an update */
    int lr;                  /* the learning rate is 2^-lr */
    enum rule rule;
    int adam;     /* the optimizer is Adam, not gradient descent */
    int late;     /* number of updates missed beyond the formula */
    int *version; /* [(stage * batches + b) * NJOBS + job], -1: no such job; NULL: the formula's */
};

_Noreturn void fail(const char *form, ...);

static inline int has_formula(const struct training *t) { return t->rule <= SYNC; }
/* Returns the version that the job reads by the formula. */
int formula(const struct training *t, int s, int b, enum job job);
/* Reads the program's text form: sets batches, update and version, and checks that each job and update occurs once. If
 * updates are not jobs, the program updates once per step, and everything reads version 0. */
void read_streams(struct training *t, const char *path);
/* Checks that each declared version is the formula's, or obeys the rule. */
void check_versions(const struct training *t);
/* Checks that the file's parameters are w, [layer of the model][features][features], bit for bit. */
void check_weights(const struct training *t, const char *path, const float *w);
#endif
