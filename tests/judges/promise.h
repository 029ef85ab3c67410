/* The required result of one step, from the job graph alone: promise.c. */
#ifndef PIANOLA_PROMISE_H
#define PIANOLA_PROMISE_H
#include "compiler.h"

struct promise {
    const struct program *program; /* program whose buffers are meant; set by judge and execute */
    const struct spec *sp;
    const struct costs *costs;
    const struct graph *g;
    uint64_t (*in)[NROLES]; /* per job: what it reads, by role (symbols.h) */
    uint64_t *sum;          /* per set of weights: the sum of all microbatches' contributions */
    int *parts;             /* per set of weights: number of contributions */
    bool *home;             /* [rank * sets + set]: whether it owns that set, or a shard of it */
    struct homes *homes;    /* per set */
    bool repeats;           /* whether the text names a job twice in one line of needs */
    /* If updates are jobs, once promise_for knows what the program declares: */
    int32_t *version;      /* per job: version of the weights that it must read; NULL: not known yet */
    uint64_t **update_sum; /* per set and update: the sum of its microbatches' contributions */
};
static inline int sets_of(const struct promise *w) { return w->sp->stages + w->sp->names.sets; }
static inline bool owns(const struct promise *w, int rank, int set) { return w->home[rank * sets_of(w) + set]; }

/* Returns the set that a job's operand in this role belongs to, or -1 if it has no such operand (sets.c). */
int set_used(const struct promise *want, int op, int s, int role);
bool is_without_weights(const struct promise *want, int set);
/* Returns whether w() decides, for the jobs of stage s, where the set is at home. */
bool is_home_of(const struct promise *want, int set, int s);

/* Returns whether job `to` gets this kind of tensor from job `from`, which it needs; K_token: no other kind. */
bool gets(const struct costs *costs, int32_t from, int32_t to, int kind);
struct promise promise_of(const struct costs *costs, const struct graph *g);
/* Computes the promise from a program's text. Jobs run on the rank that lists them, and need what the default
 * dependencies (schedules/language.md) or their `needs` lines say. A rank with weight(s) that is not a fetched copy is
 * a home of s. Returns false if nothing the text promises can be kept, with the reason in *why. */
bool promise_of_text(const struct program *p, struct promise *out, const char **why);
/* Returns the promise with the versions of weights that jobs read, if updates are jobs. The schedule's rules give them;
 * the program declares what these leave open, and everything in a text. A job that reads the latest weights at its home
 * reads the result of the updates issued there before it. */
struct promise promise_for(const struct promise *want, const struct program *p);
/* Reports a false statement about what a job reads, on which no run depends, or NULL. */
const char *false_version(const struct promise *want, const struct instr *x);
#endif
