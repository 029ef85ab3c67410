/* Between verify.c, verify_values.c and verify_races.c. They share no code with lower, mem and lanes. */
#ifndef PIANOLA_VERIFY_H
#define PIANOLA_VERIFY_H
#include "pass.h"

struct check {
    const struct spec *sp;
    const struct graph *g;
    const struct program *p;
    int claims;
    int32_t **mate;        /* per rank and instruction: SEND and RECV name each other, as the edge's order pairs them;
                              a REDUCE, how many of its lane came before it. -1: neither */
    int32_t ***reductions; /* per group and member: its REDUCEs in order */
    int32_t *at;           /* per rank: the next instruction of the serial walk */
    struct values *values;
    int failed; /* the claim, once one is refuted */
    struct text why;
};

/* Refutes a claim at an instruction; for `return refute(…)`: always false. */
bool refute(struct check *z, int claim, int rank, int32_t i, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* "rank 1 lane compute, line 12: F 1 3" */
void put_place(struct check *z, int rank, int32_t i);

/* verify_values.c: what every buffer holds, as the serial walk goes. Each returns false once something is refuted. */
bool values_begin(struct check *z);
bool values_run(struct check *z, int rank, int32_t i); /* an instruction without a partner */
bool values_message(struct check *z, int src, int32_t i, int dst, int32_t j);
bool values_reduce(struct check *z, const struct group *g, const int32_t *i); /* i: per member */
bool values_end(struct check *z);

/* verify_races.c */
bool races(struct check *z);
/* The place of each key among the sorted distinct keys; returns how many places there are, at least 1. Keys are >= 0.
 * scratch: 2 n numbers. */
int places_of(const int64_t *key, int n, int32_t *place, int64_t *sorted, int32_t *scratch);
#endif
