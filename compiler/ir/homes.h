/* The owners of a set of weights. */
#ifndef PIANOLA_HOMES_H
#define PIANOLA_HOMES_H
#include <stdint.h>

/* Owners of one set. The lists are replicas, ordered by their first ranks; each shards the set evenly, in the list's
 * order. If zero is 1 or 2, the replicas of a shard divide its optimizer state evenly, in the lists' order; if it is 2,
 * its reduced gradient too. So rank[l * size + i] holds shard i, and updates piece l of it. */
struct homes {
    int lists, size, zero;
    int32_t *rank; /* [lists * size] */
};

/* Returns the number of pieces of a shard, each updated on one rank. */
static inline int shares_of(const struct homes *homes) { return homes->zero ? homes->lists : 1; }

/* Returns the rank's index in homes.rank, or -1. */
static inline int place_in(const struct homes *homes, int rank) {
    for (int i = 0; i < homes->lists * homes->size; i++)
        if (homes->rank[i] == rank)
            return i;
    return -1;
}
#endif
