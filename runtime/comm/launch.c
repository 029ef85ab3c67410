/* Where a process learns its rank. */
#include "launch.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order in which they are believed. A flag stands for the variable of the first that says the same. */
static const struct source {
    const char *by, *rank, *size, *local;
} sources[] = {
    {"RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};
enum { SLURM = 2, NSOURCES };

struct finding {
    struct launch *f;
    const char *rank, *size, *port; /* the flag or variable that said it */
    char *why;
    size_t nwhy;
};

/* A variable's value; NULL: not set, or to nothing. */
static const char *said(const char *variable) {
    const char *s = getenv(variable);
    return s && *s ? s : NULL;
}

static bool number(struct finding *z, const char *variable, int least, int *out) {
    const char *s = said(variable);
    char *end;
    errno = 0;
    long n = strtol(s, &end, 10);
    if (*s < '0' || *s > '9' || *end || errno || n < least || n > INT_MAX) {
        snprintf(z->why, z->nwhy, "%s is '%.32s': expected a whole number of at least %d", variable, s, least);
        return false;
    }
    *out = (int)n;
    return true;
}

/* What this source says and no earlier one said. A launcher that started the process says both rank and size: Slurm
 * leaves SLURM_NTASKS alone in an allocation's shell. */
static bool listen_to(struct finding *z, const struct source *s) {
    struct launch *f = z->f;
    bool first = s == sources;
    if (!first && !(said(s->rank) && said(s->size)))
        return true;
    bool rank = f->rank < 0 && said(s->rank), size = f->size < 0 && said(s->size);
    bool local = f->local < 0 && said(s->local) && (rank || (first && f->rank >= 0)); /* of whoever said the rank */
    z->rank = rank ? s->rank : z->rank;
    z->size = size ? s->size : z->size;
    f->by = rank ? s->by : f->by;
    return (!rank || number(z, s->rank, 0, &f->rank)) && (!size || number(z, s->size, 1, &f->size)) &&
           (!local || number(z, s->local, 0, &f->local));
}

/* Ranks that meet over TCP must all know rank, size and place. One alone meets nobody, and need not know that it is. */
static bool complete(struct finding *z) {
    static const char need[] = "without an MPI launcher, all ranks need RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
    const struct launch *f = z->f;
    if ((f->rank < 0 && f->size < 0) || (f->rank == 0 && f->size == 1))
        return true;
    const char *missing = f->rank < 0   ? "RANK"
                          : f->size < 0 ? "WORLD_SIZE"
                          : !f->addr    ? "MASTER_ADDR"
                          : !f->port    ? "MASTER_PORT"
                                        : NULL;
    if (missing && f->by == sources[SLURM].by)
        snprintf(
            z->why, z->nwhy,
            "Slurm started rank %d of %d without MPI, and %s is not set: set MASTER_ADDR to the host of rank 0 and "
            "MASTER_PORT to a free port there, or use srun --mpi=pmix",
            f->rank, f->size, missing);
    else if (missing)
        snprintf(z->why, z->nwhy, "%s is %d, but %s is not set: %s", f->rank < 0 ? z->size : z->rank,
                 f->rank < 0 ? f->size : f->rank, missing, need);
    return !missing;
}

static bool plausible(struct finding *z) {
    const struct launch *f = z->f;
    if (f->rank < 0 || f->size < 0 || f->rank < f->size)
        return true;
    snprintf(z->why, z->nwhy, "%s is %d, but %s is %d: ranks count from 0", z->rank, f->rank, z->size, f->size);
    return false;
}

/* At MASTER_PORT itself torchrun's agent listens, where it says so: then ranks meet at the next one. */
static bool find_port(struct finding *z) {
    static char next[16];
    const char *agent = said("TORCHELASTIC_USE_AGENT_STORE"), *said_port = z->f->port;
    int taken = agent && !strcmp(agent, "True") && !strcmp(z->port, "MASTER_PORT");
    char *end;
    long port = strtol(said_port, &end, 10) + taken;
    if (*said_port < '0' || *said_port > '9' || *end || port < 1 || port > 65535) {
        snprintf(z->why, z->nwhy, "%s is '%.32s': expected a port, 1 to %d", z->port, said_port, 65535 - taken);
        return false;
    }
    snprintf(next, sizeof next, "%ld", port);
    z->f->port = taken ? next : said_port;
    return true;
}

bool launch_find(struct launch *f, char *why, size_t nwhy) {
    struct finding z = {f, "--rank", "--world-size", f->port ? "--master-port" : "MASTER_PORT", why, nwhy};
    f->by = f->rank >= 0 ? "--rank" : NULL;
    f->addr = f->addr ? f->addr : said("MASTER_ADDR");
    f->port = f->port ? f->port : said("MASTER_PORT");
    if (!listen_to(&z, &sources[0]))
        return false;
    bool tcp = f->rank >= 0 && f->size >= 0 && f->addr && f->port;
    bool mpi = !tcp && (said("OMPI_COMM_WORLD_SIZE") || said("PMIX_RANK") || said("PMI_RANK") || said("PMI_SIZE"));
    f->over = mpi ? HOST_mpi : HOST_tcp;
    for (int i = 1; i < NSOURCES; i++)
        if (!listen_to(&z, &sources[i]))
            return false;
    return plausible(&z) && (mpi || (complete(&z) && (f->size <= 1 || find_port(&z))));
}
