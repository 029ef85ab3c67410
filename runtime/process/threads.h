/* Ranks that are threads of one process: they meet (comm/world.h) in memory that they share. */
#ifndef PIANOLA_THREADS_H
#define PIANOLA_THREADS_H
#include "comm/world.h"

struct threads;
/* Opens the threads' world. most: largest number of floats in a sum. Returns NULL if there is no memory. */
struct threads *threads_open(int size, int most);
/* Returns a rank's world; the caller adds the transport of messages. */
struct world threads_world(struct threads *threads, int rank, const struct rt_program *self);
void threads_close(struct threads *threads);
#endif
