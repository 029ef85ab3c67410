/* Finds a process's rank: launch.h. */
#include "launch.h"
#include "launch_slurm.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sources of the rank, in order of precedence. Flags count as the first source. */
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
    const char *rank, *size, *port; /* name of the flag or variable that gave the value */
    char *why;
    size_t nwhy;
};

/* Returns a variable's value, or NULL if it is unset or empty. */
static const char *said(const char *variable) {
    const char *s = getenv(variable);
    return s && *s ? s : NULL;
}

static bool rank_variable(struct finding *finding, const char *variable, int least, int *out) {
    const char *s = said(variable);
    char *end;
    errno = 0;
    long n = strtol(s, &end, 10);
    if (*s < '0' || *s > '9' || *end || errno || n < least || n > INT_MAX) {
        snprintf(finding->why, finding->nwhy, "%s is '%.32s': expected a whole number of at least %d", variable, s,
                 least);
        return false;
    }
    *out = (int)n;
    return true;
}

/* Takes the values from this source that no earlier source gave. A launcher counts only if it gives both rank and size:
 * in the shell of an allocation, Slurm sets only SLURM_NTASKS. */
static bool listen_to(struct finding *finding, const struct source *source) {
    struct launch *launch = finding->f;
    bool first = source == sources;
    if (!first && !(said(source->rank) && said(source->size)))
        return true;
    bool rank = launch->rank < 0 && said(source->rank), size = launch->size < 0 && said(source->size);
    bool local = launch->local < 0 && said(source->local) &&
                 (rank || (first && launch->rank >= 0)); /* from the source of the rank */
    finding->rank = rank ? source->rank : finding->rank;
    finding->size = size ? source->size : finding->size;
    launch->by = rank ? source->by : launch->by;
    return (!rank || rank_variable(finding, source->rank, 0, &launch->rank)) &&
           (!size || rank_variable(finding, source->size, 1, &launch->size)) &&
           (!local || rank_variable(finding, source->local, 0, &launch->local));
}

/* Checks that ranks that meet over TCP know rank, size, address and port. A single rank needs none of these. */
static bool complete(struct finding *finding) {
    static const char need[] = "without an MPI launcher, all ranks need RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
    const struct launch *launch = finding->f;
    if ((launch->rank < 0 && launch->size < 0) || (launch->rank == 0 && launch->size == 1))
        return true;
    const char *missing = launch->rank < 0   ? "RANK"
                          : launch->size < 0 ? "WORLD_SIZE"
                          : !launch->addr    ? "MASTER_ADDR"
                          : !launch->port    ? "MASTER_PORT"
                                             : NULL;
    if (missing)
        snprintf(finding->why, finding->nwhy, "%s is %d, but %s is not set: %s",
                 launch->rank < 0 ? finding->size : finding->rank, launch->rank < 0 ? launch->size : launch->rank,
                 missing, need);
    return !missing;
}

/* Fills in the missing address and port from Slurm, if it started this rank among others. */
static bool ask_slurm(struct finding *finding) {
    struct launch *launch = finding->f;
    char why[200] = "";
    if (launch->by != sources[SLURM].by || launch->size <= 1)
        return true;
    launch->addr = launch->addr ? launch->addr : slurm_address(why, sizeof why);
    if (!launch->port && launch->addr)
        launch->port = slurm_port(why, sizeof why);
    if (launch->addr && launch->port)
        return true;
    snprintf(finding->why, finding->nwhy, "Slurm started rank %d of %d, but %s", launch->rank, launch->size, why);
    return false;
}

static bool plausible(struct finding *finding) {
    const struct launch *launch = finding->f;
    if (launch->rank < 0 || launch->size < 0 || launch->rank < launch->size)
        return true;
    snprintf(finding->why, finding->nwhy, "%s is %d, but %s is %d: ranks count from 0", finding->rank, launch->rank,
             finding->size, launch->size);
    return false;
}

/* Checks the port. Takes the next one if torchrun's agent listens on MASTER_PORT itself. */
static bool find_port(struct finding *finding) {
    static char next[16];
    const char *agent = said("TORCHELASTIC_USE_AGENT_STORE"), *said_port = finding->f->port;
    int taken = agent && !strcmp(agent, "True") && !strcmp(finding->port, "MASTER_PORT");
    char *end;
    long port = strtol(said_port, &end, 10) + taken;
    if (*said_port < '0' || *said_port > '9' || *end || port < 1 || port > 65535) {
        snprintf(finding->why, finding->nwhy, "%s is '%.32s': expected a port, 1 to %d", finding->port, said_port,
                 65535 - taken);
        return false;
    }
    snprintf(next, sizeof next, "%ld", port);
    finding->f->port = taken ? next : said_port;
    return true;
}

bool launch_find(struct launch *launch, char *why, size_t nwhy) {
    struct finding finding = {launch, "--rank", "--world-size", launch->port ? "--master-port" : "MASTER_PORT",
                              why,    nwhy};
    launch->by = launch->rank >= 0 ? "--rank" : NULL;
    launch->addr = launch->addr ? launch->addr : said("MASTER_ADDR");
    launch->port = launch->port ? launch->port : said("MASTER_PORT");
    if (!listen_to(&finding, &sources[0]))
        return false;
    bool tcp = launch->rank >= 0 && launch->size >= 0 && launch->addr && launch->port;
    bool mpi = !tcp && (said("OMPI_COMM_WORLD_SIZE") || said("PMIX_RANK") || said("PMI_RANK") || said("PMI_SIZE"));
    launch->over = mpi ? HOST_mpi : HOST_tcp;
    for (int i = 1; i < NSOURCES; i++)
        if (!listen_to(&finding, &sources[i]))
            return false;
    if (!plausible(&finding))
        return false;
    if (mpi)
        return true;
    return ask_slurm(&finding) && complete(&finding) && (launch->size <= 1 || find_port(&finding));
}
