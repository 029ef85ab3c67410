/* Runs a program by brute force, one interleaving at a time, and checks every value: executor.c says how. */
#ifndef PIANOLA_EXECUTOR_H
#define PIANOLA_EXECUTOR_H
#include "../compiler/pass.h"

/* What the job graph promises, worked out from it alone: per stage the weights at first, and what the update must add.
 */
struct promise {
    const struct spec *sp;
    const struct graph *g;
    uint64_t *sum; /* per stage, and for the table behind them: the sum of all microbatches' contributions */
    int *parts;    /* likewise: how many */
};
struct promise promise_of(const struct spec *sp, const struct graph *g);

enum how {
    BY_LANES, /* lanes run side by side, in an order drawn from the seed */
    SERIALLY, /* a rank runs one instruction at a time, in issue order; frees take effect */
};
/* NULL when the run came to its end with every value right; else what went wrong, until the next call. */
const char *execute(const struct promise *want, const struct program *p, enum how how, uint64_t seed);

/* 0 .. n-1 from a state that goes on (SplitMix64, Steele, Lea & Flood 2014). */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static inline int random_below(uint64_t *state, int n) { return (int)(random_next(state) % (uint64_t)n); }
#endif
