/* Launch parameters: a process's rank, the number of ranks, and where they meet. Flags take precedence over RANK,
 * WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, these over Open MPI's variables, and Open MPI's over Slurm's. */
#ifndef PIANOLA_LAUNCH_H
#define PIANOLA_LAUNCH_H
#include "transports.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct launch {
    int rank, size, local; /* -1: not given */
    const char *addr, *port;
    int over;         /* transport that ranks meet over: HOST_mpi if an MPI launcher started this process, else
                       * HOST_tcp */
    const char *by;   /* the source of rank, for messages: "--rank", "RANK", "Open MPI", "Slurm"; NULL: none */
    uint64_t program; /* hash of the rank's compile; set by the caller */
};

/* Fills in the fields that the command line left open (-1, NULL). Returns false and sets why if the values are not a
 * valid rank, contradict each other, or omit something that ranks need to meet.
 *
 * Rank and size each come from the first source that gives them: a flag; RANK, WORLD_SIZE; Open MPI; Slurm. The last
 * two count only if they give both. The local rank comes from the source of the rank. An empty variable counts as
 * unset. How the ranks meet:
 *
 *   flags or RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT give rank, size, address and port: over TCP;
 *   else an MPI launcher's variables (OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK, PMI_SIZE) are set: over MPI;
 *   else rank, size, address and port are given: over TCP. Slurm, if it gave the rank, gives address and port too
 *   (launch_slurm.h);
 *   else rank 0 of 1: it meets no other rank;
 *   else neither rank nor size is given: they stay -1, and a caller that runs more than one rank must refuse;
 *   else: an error that names what is missing.
 *
 * If torchrun's agent itself listens on MASTER_PORT (as TORCHELASTIC_USE_AGENT_STORE says), port is the next one. */
bool launch_find(struct launch *flags, char *why, size_t nwhy);
#endif
