/* Which rank a process is, of how many, and where they meet: its own flags say it, then RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR and MASTER_PORT, then Open MPI's variables, then Slurm's. */
#ifndef PIANOLA_LAUNCH_H
#define PIANOLA_LAUNCH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct launch {
    int rank, size, local; /* -1: not said */
    const char *addr, *port;
    bool mpi;         /* an MPI launcher started this process: MPI is how ranks meet */
    const char *by;   /* who said the rank, for messages: "--rank", "RANK", "Open MPI", "Slurm"; NULL: nobody */
    uint64_t program; /* the hash of its compile: not looked for here */
};

/* flags: what the command line said; what it left open (-1, NULL) is filled in. False with why: what is said is no
 * rank, contradicts itself, or leaves out what ranks need to meet.
 *
 * Rank and size are each taken from the first that says them: a flag; RANK, WORLD_SIZE; Open MPI's; Slurm's. The last
 * two are heard only where they say both. The local rank is of whoever said the rank. A variable set to nothing says
 * nothing. How the ranks meet:
 *
 *   rank, size, address and port all said by flags or RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: over TCP;
 *   else an MPI launcher's variables (OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK, PMI_SIZE) are there: over MPI;
 *   else rank, size, address and port are said, if by Slurm: over TCP;
 *   else rank 0 of 1: it meets nobody;
 *   else neither rank nor size is said: they stay -1, and whoever runs more than one rank has to refuse;
 *   else: an error that names what is missing.
 *
 * Where torchrun's agent listens at MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE says so), port is the next. */
bool launch_find(struct launch *flags, char *why, size_t nwhy);
#endif
