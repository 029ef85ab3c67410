/* The best order of a schedule script's jobs, its proof, and the script that states it. */
#ifndef PIANOLA_OPTIMAL_H
#define PIANOLA_OPTIMAL_H
#include "base/text.h"
#include "search.h"

enum proof { PROOF_WORK, PROOF_COVER };
struct optimum {
    int64_t makespan, lower; /* ticks; makespan: of the best known order */
    enum proof proof;        /* proof of lower */
    struct visited cover;    /* the states, for PROOF_COVER */
    int64_t *start;          /* per job, in ticks; NULL: the schedule's own order is as good as any found */
    bool gave_up;            /* the search was not exhaustive */
};

/* Returns how many states a search may visit: with a time limit, all that can be numbered; else some minutes' worth. */
static inline int64_t states_within(double seconds) { return seconds > 0 ? INT32_MAX - 1 : 4000000; }

/* Returns when that order ends, by the script's own times, which ticks may round. */
double time_of_order(const struct compile *c, const int64_t *start);

/* own: when the script's own order ends, in ticks; INT64_MAX if it does not run. states: how many each search may
 * visit; until: seconds since the epoch, 0: no limit. */
struct optimum find_optimum(const struct instance *in, const struct graph *graph, int64_t own, int64_t states,
                            double until);

/* certify.c: writes the certificate, for `pianola check-bound` (compiler/certificates.md). command: the command that
 * the certificate is for. */
void emit_certificate(struct text *t, const struct instance *in, const struct optimum *optimum, const char *command);
int covering_states(const struct optimum *optimum); /* number of states in its cover; 0: none */
#endif
