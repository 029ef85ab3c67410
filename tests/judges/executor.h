/* Runs a program by brute force, one interleaving at a time, and checks every value (see executor.c). */
#ifndef PIANOLA_EXECUTOR_H
#define PIANOLA_EXECUTOR_H
#include "promise.h"
#include "random.h"

enum how {
    BY_LANES, /* lanes run concurrently; the seed decides their order and which SENDs block */
    SERIALLY, /* a rank runs one instruction at a time, in issue order; every SEND blocks; frees take effect */
};
/* Returns NULL if the run finished with every value right; otherwise an error, valid until the next call. */
const char *execute(const struct promise *want, const struct program *p, enum how how, uint64_t seed);
#endif
