/* The required result of one step, from the job graph alone: promise.c. */
#ifndef PIANOLA_PROMISE_H
#define PIANOLA_PROMISE_H
#include "compiler.h"

struct promise {
    const struct program *program; /* whose buffers are meant: set by judge and execute */
    const struct spec *sp;
    const struct graph *g;
    uint64_t (*in)[NROLES]; /* per job: what it reads, by role (symbols.h) */
    uint64_t *sum;          /* per set of weights: the sum of all microbatches' contributions */
    int *parts;             /* the same: how many */
    bool *home;             /* [rank * sets + set]: it owns that set, or a shard of it */
    struct homes *homes;    /* per set */
    bool repeats;           /* its text names a job twice in one line of needs */
    /* Where updates are jobs, once promise_for knows what the program declares: */
    int32_t *version;      /* per job: of the weights that it must read; NULL: not known yet */
    uint64_t **update_sum; /* per set and update: the sum of its microbatches' contributions */
};
static inline int sets_of(const struct promise *w) { return w->sp->stages + w->sp->names.sets; }
static inline bool owns(const struct promise *w, int rank, int set) { return w->home[rank * sets_of(w) + set]; }

/* sets.c: the set that a job's operand in this role is of; -1: it has no such operand. */
int set_used(const struct promise *want, int op, int s, int role);
bool is_without_weights(const struct promise *want, int set);
/* Whether w() says for the jobs of stage s where the set is at home. */
bool is_home_of(const struct promise *want, int set, int s);

/* Whether job `to` gets this kind of tensor of job `from`, which it needs; K_token: none. */
bool gets(const struct spec *sp, int32_t from, int32_t to, int kind);
struct promise promise_of(const struct spec *sp, const struct graph *g);
/* The same from a program's text: jobs run on the rank that lists them, need what the default dependencies
 * (schedules/language.md) or its `needs` lines say, and a rank with weight(s) that is not a fetched copy is a home of
 * s. False: the text promises nothing that could be kept; *why tells the reason. */
bool promise_of_text(const struct program *p, struct promise *out, const char **why);
/* Where updates are jobs: the promise, with the versions of the weights that jobs read. The schedule's rules say them,
 * but what they leave open, and everything in a text, the program declares. What a rank's job reads as the latest of
 * weights that are at home there is what the updates issued before it have made. */
struct promise promise_for(const struct promise *want, const struct program *p);
/* What is false in what a job says that it reads, though no run depends on it; or NULL. */
const char *false_version(const struct promise *want, const struct instr *x);
#endif
