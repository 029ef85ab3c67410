/* comm_mpi.c: messages between ranks that are processes, over MPI-3. Only comm_mpi.c knows MPI. */
#ifndef PIANOLA_COMM_MPI_H
#define PIANOLA_COMM_MPI_H
#include "device.h"

struct mpi;
extern const struct comm comm_mpi;
struct mpi *mpi_open(int *argc, char ***argv, int *rank, int *size);
/* A persistent request per message, made now: at each step it is only started. False: no memory. */
bool mpi_prepare(struct mpi *c, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena);
void mpi_all(struct mpi *c, const void *mine, void *all, size_t bytes); /* every rank's bytes, in rank order */
void mpi_sum(struct mpi *c, float *x, int64_t n);                       /* in place, over all ranks */
void mpi_spread(struct mpi *c, void *x, size_t bytes, int from);
void mpi_close(struct mpi *c);
_Noreturn void mpi_abort(struct mpi *c, int code);
#endif
