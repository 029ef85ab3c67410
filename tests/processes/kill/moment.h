/* The moment of a fault: chosen at random from the run's events rather than by the clock alone, so that a machine of
 * half the speed meets the same moments. */
#ifndef PIANOLA_FAULTS_MOMENT_H
#define PIANOLA_FAULTS_MOMENT_H
#include "run.h"

struct moment {
    enum { IN_START, IN_STEPS, IN_CHECKPOINT, AT_END } kind;
    int step;     /* the awaited checkpoint's step */
    int event;    /* IN_CHECKPOINT: number of its files created, closed and renamed */
    double delay; /* time after that, in seconds; IN_STEPS: in units of a checkpoint and its preceding steps */
};
enum { NMOMENTS = 4 };
extern const char *const moment_names[NMOMENTS];

/* Watches the folder, which must exist, before the run starts. */
int moment_watch(const char *saved);
/* Waits for the moment and for the victim, and returns its process. Returns 0 if the run has ended, or after a minute.
 * Ends the watch. */
pid_t moment_come(struct run *r, int watch, const char *saved, const struct moment *m, int victim);
#endif
