/* Default meeting point of the ranks of a Slurm job step: the first host of the step's node list, and a port computed
 * from the ids of job and step.
 *
 * Slurm numbers tasks along the node list of the step, so rank 0 runs on its first host. The job's own list is
 * unsuitable: a step may use only some of the job's nodes. SLURM_LAUNCH_NODE_IPADDR and SLURM_SRUN_COMM_HOST are
 * addresses of the machine on which srun itself runs, often a login node. Steps of heterogeneous jobs and steps with
 * --distribution=arbitrary are refused: their list is sorted, but rank 0 may run on any of its hosts. */
#include "launch_slurm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789";
static const char in_names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";

/* ---- the host ---- */

/* Checks brackets, [001-003,7], and finds the digits of their first number. Returns the length of the brackets in
 * bytes, or 0 if they are malformed. */
static size_t read_brackets(const char *list, size_t *first) {
    const char *s = list;
    *first = strspn(list + 1, digits);
    do {
        size_t n = strspn(++s, digits);
        s += n;
        if (n > 0 && *s == '-') {
            n = strspn(++s, digits);
            s += n;
        }
        if (n == 0)
            return 0;
    } while (*s == ',');
    return *s == ']' ? (size_t)(s + 1 - list) : 0;
}

bool slurm_first_host(const char *list, char host[SLURM_HOST]) {
    size_t at = 0;
    while (*list && *list != ',') {
        size_t name = strspn(list, in_names), length = name;
        const char *from = list;
        if (*list == '[') {
            length = read_brackets(list, &name);
            from = list + 1;
        }
        if (length == 0 || at + name >= SLURM_HOST)
            return false;
        memcpy(host + at, from, name);
        at += name;
        list += length;
    }
    host[at] = '\0';
    return at > 0;
}

const char *slurm_address(char *why, size_t nwhy) {
    static char host[SLURM_HOST];
    const char *list = getenv("SLURM_STEP_NODELIST"), *distribution = getenv("SLURM_DISTRIBUTION");
    const char *set = "set MASTER_ADDR to the host of rank 0";
    if (!list || !*list)
        snprintf(why, nwhy,
                 "SLURM_STEP_NODELIST is not set, as in the batch script itself: start ranks with srun, or %s", set);
    else if (distribution && !strcmp(distribution, "arbitrary"))
        snprintf(why, nwhy, "SLURM_DISTRIBUTION is arbitrary, so rank 0 may be on any host: %s", set);
    else if (getenv("SLURM_HET_SIZE"))
        snprintf(why, nwhy, "the job is heterogeneous (SLURM_HET_SIZE), so rank 0 may be on any host: %s", set);
    else if (!slurm_first_host(list, host))
        snprintf(why, nwhy, "SLURM_STEP_NODELIST is '%.32s': expected a list such as n[1-3]: %s", list, set);
    else
        return host;
    return NULL;
}

/* ---- the port ---- */

/* Range of ports: below the usual ephemeral ones (32768 and up), above Slurm's own (6817 and up). */
enum { LOWEST = 20000, COUNT = 12000 };

/* A prime that does not divide COUNT, so that the steps of a job get different ports, and so do jobs with close ids. */
enum { STRIDE = 997 };

static bool read_id(const char *variable, unsigned long long *out, char *why, size_t nwhy) {
    const char *s = getenv(variable);
    char *end = NULL;
    errno = 0;
    if (s && *s >= '0' && *s <= '9')
        *out = strtoull(s, &end, 10);
    if (end && !*end && !errno)
        return true;
    snprintf(why, nwhy, "%s is %s%.32s%s: set MASTER_PORT to a free port on the host of rank 0", variable,
             s ? "'" : "not set", s ? s : "", s ? "', no number" : "");
    return false;
}

const char *slurm_port(char *why, size_t nwhy) {
    static char port[8];
    unsigned long long job, step;
    if (!read_id("SLURM_JOB_ID", &job, why, nwhy) || !read_id("SLURM_STEP_ID", &step, why, nwhy))
        return NULL;
    snprintf(port, sizeof port, "%d", LOWEST + (int)((job % COUNT + step % COUNT * STRIDE) % COUNT));
    return port;
}
