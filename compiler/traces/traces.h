/* Runs of a program as other tools recorded them. formats.h is the interface for everyone but formats/. */
#ifndef PIANOLA_TRACES_H
#define PIANOLA_TRACES_H
#include "ir/program.h"

/* Nanoseconds by the rank's own clock */
struct span {
    int64_t start, end;
    int64_t
        free; /* of a receive that no job waited for: when its rank became free; it may have ended since. Else end */
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
