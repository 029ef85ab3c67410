/* The required result of one step, from the job graph alone: promise.c. */
#ifndef PIANOLA_PROMISE_H
#define PIANOLA_PROMISE_H
#include "compiler.h"

struct promise {
    const struct program *program; /* whose buffers are meant: set by judge and execute */
    const struct spec *sp;
    const struct graph *g;
    uint64_t (*in)[NROLES]; /* per job: what it reads, by role (symbols.h) */
    uint64_t *sum; /* per set of weights, the stages' and the table's: the sum of all microbatches' contributions */
    int *parts;    /* the same: how many */
    bool *home;    /* [rank * sets + set]: it owns that set, or a shard of it */
    struct homes *homes; /* per set */
    bool repeats;        /* its text names a job twice in one line of needs */
};
static inline int sets_of(const struct promise *w) { return w->sp->stages + w->sp->tied; }
static inline bool owns(const struct promise *w, int rank, int set) { return w->home[rank * sets_of(w) + set]; }

struct promise promise_of(const struct spec *sp, const struct graph *g);
/* The same from a program's text: jobs run on the rank that lists them, need what the default dependencies
 * (schedules/README.md) or its `needs` lines say, and a rank with weight(s) that is not a fetched copy is a home of s.
 * False: the text promises nothing that could be kept; *why tells the reason. */
bool promise_of_text(const struct program *p, struct promise *out, const char **why);
#endif
