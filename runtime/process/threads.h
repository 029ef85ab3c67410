/* Ranks that are threads of one process: how they meet (comm/world.h), in memory that they share. */
#ifndef PIANOLA_THREADS_H
#define PIANOLA_THREADS_H
#include "comm/world.h"

struct threads;
/* most: numbers of a sum. NULL: no memory. */
struct threads *threads_open(int size, int most);
/* A rank's world; the caller adds how messages travel. */
struct world threads_world(struct threads *threads, int rank, const struct rt_program *self);
void threads_close(struct threads *threads);
#endif
