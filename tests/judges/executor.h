/* Runs a program by brute force, one interleaving at a time, and checks every value: executor.c says how. */
#ifndef PIANOLA_EXECUTOR_H
#define PIANOLA_EXECUTOR_H
#include "promise.h"
#include "random.h"

enum how {
    BY_LANES, /* lanes run side by side, in an order drawn from the seed; each SEND blocks or does not, as drawn */
    SERIALLY, /* a rank runs one instruction at a time, in issue order; every SEND blocks; frees take effect */
};
/* NULL when the run came to its end with every value right; else what went wrong, until the next call. */
const char *execute(const struct promise *want, const struct program *p, enum how how, uint64_t seed);
#endif
