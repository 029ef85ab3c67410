/* The progress line of a training run. */
#ifndef PIANOLA_PROGRESS_H
#define PIANOLA_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;
    int64_t from, steps, tokens; /* steps done before this run; steps in all; rows per step */
    bool tty;                    /* rewrite one line; otherwise print a line every five seconds, and a last one */
    double told;
};
/* Prints progress to stderr, at most ten times a second. step: number of steps done. rate: the last step's learning
 * rate. seconds: time since this run began. */
void progress_tell(struct progress *progress, int64_t step, float loss, double rate, double seconds);
#endif
