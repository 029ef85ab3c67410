/* All ranks of a program in this process, one thread each, on the host or on one GPU. */
#ifndef PIANOLA_TRAIN_H
#define PIANOLA_TRAIN_H
#include "rank/rank_whole.h"

/* train_host.c: trains on the host, and returns the arenas, [memory * workers + rank]. An entry is NULL if that arena
 * is empty. Free the arenas with host_free. Ends the process on any error. */
char **host_train(const struct rt_run *run);
void host_free(const struct rt_program *p, char **arena);

/* train.c: trains on any device. messages: transport of messages, as in struct world; shared: as in struct rank_run. */
struct world;
char **train_threads(const struct rt_run *run, const struct world *messages, void *shared);
#endif
