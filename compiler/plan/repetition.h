/* repetition.c: the part of a schedule that repeats. */
#ifndef PIANOLA_REPETITION_H
#define PIANOLA_REPETITION_H
#include "ir/graph.h"

/* The schedule's shortest period: its first microbatch, and how many it has. False: there is none to be seen. */
bool find_period(const struct costs *costs, const struct sched *sc, int *first, int *length);
/* A multiple of it that is about as long as a microbatch stays on a stage. */
int least_period(const struct costs *costs, const struct sched *sc, int first, int length);
/* How many of the step's microbatches must be written out with such a period, so that all others are repetitions; -1:
 * more than the schedule has. */
int written_out(const struct costs *costs, const struct sched *sc, int first, int length);
/* Whether `later`, the same microbatches of the same script at another place of the step, has the same jobs from
 * microbatch `first` on, in the same order. */
bool same_jobs(const struct costs *costs, const struct costs *later, int first);
/* Marks the period in a schedule of that many. False: it ends too early. */
bool set_period(const struct costs *costs, struct sched *sc, int first, int length, int shortest);
#endif
