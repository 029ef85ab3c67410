/* Cycles of directed graphs, to explain deadlocks. */
#ifndef PIANOLA_CYCLE_H
#define PIANOLA_CYCLE_H
#include <stdint.h>

/* Returns the shortest cycle of a directed graph in compressed rows (to[at[v]..at[v+1])). The graph must have a
 * cycle. */
int32_t *shortest_cycle(int n, const int32_t *at, const int32_t *to, int *len);
#endif
