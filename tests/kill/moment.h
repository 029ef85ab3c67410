/* The moment of a fault: chosen at random, told by what the run does rather than by the clock alone, so that a machine
 * twice as slow meets the same moments. */
#ifndef PIANOLA_FAULTS_MOMENT_H
#define PIANOLA_FAULTS_MOMENT_H
#include "run.h"

struct moment {
    enum { IN_START, IN_STEPS, IN_CHECKPOINT, AT_END } kind;
    int step;     /* of the checkpoint that is waited for */
    int event;    /* IN_CHECKPOINT: files of it made, closed and renamed */
    double delay; /* after that, seconds; IN_STEPS: in times that a checkpoint and the steps before it take */
};
enum { NMOMENTS = 4 };
extern const char *const moment_names[NMOMENTS];

/* Watches the folder, which must be there, before the run starts. */
int moment_watch(const char *saved);
/* Waits for it, and for the victim to be there: its process. 0: the run has ended, or a minute passed. Ends the watch.
 */
pid_t moment_come(struct run *r, int watch, const char *saved, const struct moment *m, int victim);
#endif
