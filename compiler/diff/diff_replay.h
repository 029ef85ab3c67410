/* A side of a diff as a graph that can be simulated again, with some of its operations removed, with other durations,
 * or in another order. */
#ifndef PIANOLA_DIFF_REPLAY_H
#define PIANOLA_DIFF_REPLAY_H
#include "diff.h"

/* Edges grouped by their first end: i's are to[at[i] .. at[i + 1]). */
struct lists {
    int32_t *at, *to;
};

/* The order in which operations are simulated, and what precedes each in its lane */
struct replay_order {
    struct lists waits;     /* what each operation waits for, in other lanes or as data */
    int32_t *before;        /* per operation: the operation before it in its lane that it waits for; -1: none */
    int32_t *ring, *leader; /* per operation: the next, and the first, of those that start together */
    int32_t *order;         /* operations, each after all that it waits for, with a message's operations together */
};

struct replayed {
    const struct side *side;
    struct lists waits; /* what the streams make each operation wait for, including memory */
    struct lists needs; /* the operations whose results each operation reads, whatever their order */
    struct replay_order as_run;
    int64_t *delay; /* per operation: time from the end of everything that its message waits for to its start */
    int64_t *gap;   /* per operation: its delay, or what replaces it */
    int64_t *took;  /* per operation: its duration, or what replaces it */
    bool *out;      /* per operation: whether it is removed */
    bool *apart;    /* per operation: whether it overlaps no other job any more; nparted: how many do not */
    int nparted;
    int64_t *end;      /* per operation: when operations that need it can start */
    int64_t *lane_end; /* per operation: when its lane can continue */
    int64_t makespan;  /* with nothing undone */
    int64_t unbound;   /* with nothing undone, if nothing waits for memory */
};

struct replayed replay_side(const struct diff *diff, int side);
/* Simulates the side as it ran, without what is removed, and returns its makespan. */
int64_t replay(struct replayed *re);
/* Simulates the side as if the marked operations still had the order that they have on the other side. They need their
 * data, but wait for no memory: its use depends on the order. Returns by how much the side is longer in its own order.
 * Returns false if the order deadlocks. */
bool replay_reordered(struct replayed *re, const struct diff *diff, const bool *back, int64_t *longer);
#endif
