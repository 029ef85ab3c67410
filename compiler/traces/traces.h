/* Runs of a program as other tools recorded them. Only formats/ includes this header; other folders use formats.h. */
#ifndef PIANOLA_TRACES_H
#define PIANOLA_TRACES_H
#include "ir/program.h"

/* Nanoseconds by the rank's own clock. free: end, except for a receive that no job waited for. Such a receive ended at
 * an unknown time up to `end`, and its rank was free from `free` on. */
struct span {
    int64_t start, end, free;
};

struct run {
    int nsteps, *step; /* numbers of the steps that are whole on every rank, ascending */
    struct span **at;  /* [step * workers + rank][instruction] */
};

/* Returns whether the path is another tool's recording of one rank, or a folder of such files. */
bool is_trace(const char *path);
/* Reads a recorded run of p. Dies if it is a run of another program. */
struct run read_trace(const char *path, const struct program *p);
#endif
