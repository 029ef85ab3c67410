/* Where and when ranks run that are threads of one process.
 *
 * If there are more ranks than cores, ranks take turns: at most one runs on each core, until it has to wait for another
 * rank. Its core then goes to the rank that has been ready for the longest time. So no rank is interrupted within a
 * job, and when a job runs depends on the program and not on the system's scheduler; compiler/passes/sim_cores.c
 * predicts it by the same rule. If every rank has a core, ranks run freely. */
#ifndef PIANOLA_TURNS_H
#define PIANOLA_TURNS_H
#include <stdbool.h>

struct turns;
double usable_cores(void); /* number of cores that this process may use at once; a control group's may be a fraction */
/* Opens turns for ranks 0 .. ranks-1 on that number of cores. Returns NULL if there is no memory. */
struct turns *turns_open(int ranks, double cores);
void turns_close(struct turns *turns);
/* Begins or ends a stretch in which the rank, the calling thread, runs only in its turns. */
void turns_begin(struct turns *turns, int rank);
void turns_end(struct turns *turns, int rank);
/* Gives the rank's core to others until turns_wake has been called for the rank. Returns at once if it has been called
 * since the last turns_wait returned. */
void turns_wait(struct turns *turns, int rank);
void turns_wake(struct turns *turns, int rank);  /* any thread may call it */
/* Returns the mean seconds until a rank that gets its turn runs, if no other program has its core; 0: not known. */
double turns_handoff(const struct turns *turns);
#endif
