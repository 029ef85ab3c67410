/* The world: the ranks of a run, how they meet, and what they exchange outside the streams.
 *
 * transports.h has a row for each way to meet. comm_mpi.c serves ranks that an MPI launcher started. comm_tcp.c serves
 * ranks started by anything else; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say where to meet. process/threads.c
 * serves ranks that are threads. Once the ranks have met, no function here returns an error: trouble with another rank
 * ends the process through watch_fail. */
#ifndef PIANOLA_WORLD_H
#define PIANOLA_WORLD_H
#include "device/replay.h"
#include "launch.h"

struct host_transport;

#define WORLD_PROGRESS 1e-3
struct world {
    const struct rt_program *self; /* the rank's program; set by the caller of open */
    int rank, size;
    const struct host_transport *transport; /* transport of the replay's messages on CPUs */
    void *messages;                         /* first argument of its functions, and of `prepare` below */
    void *link;                             /* first argument of every other function here */
    /* Gathers every rank's bytes into all, in rank order. Blocks until every rank has called it. */
    void (*all)(void *link, const void *mine, void *all, size_t bytes);
    /* Sums x[0 .. n) over all ranks, in place, between begin and end; messages continue meanwhile. One at a time. */
    void (*sum_begin)(void *link, float *x, int n);
    void (*sum_end)(void *link);
    /* Makes progress without waiting. Ends the process if it finds another rank gone. Returns true if no sum is under
     * way. Ranks whose messages travel another way call it every WORLD_PROGRESS seconds. */
    bool (*progress)(void *link);
    /* Sets up what this rank's messages and collectives need, before the first step. Returns false if there is no
     * memory. groups: as in rt_program. */
    bool (*prepare)(void *messages, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena);
    /* Leaves the world; called when all ranks have finished. */
    void (*close)(void *link);
};

/* tcp_open, mpi_open: return false and set why if the ranks cannot meet. */
#define X(name, ...) bool name##_open(struct world *w, const struct launch *how, char *why, size_t nwhy);
HOST_TRANSPORTS(X)
#undef X

/* Prints an error from before the ranks have met, or from this rank alone, and exits with 2. self: one rank's view of
 * its program. If it has all ranks or is NULL, the ranks are threads of this process. */
__attribute__((noreturn)) void rank_error(const struct rt_program *self, const char *why);
/* Blocks until all ranks have called it. If ok is false on any of them, rank 0 prints the first failing rank's why, and
 * all exit with 2. */
void world_verdict(const struct world *world, bool ok, const char *why);
#endif
