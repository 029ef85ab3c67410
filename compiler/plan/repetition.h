/* repetition.c: the repeating part of a schedule. */
#ifndef PIANOLA_REPETITION_H
#define PIANOLA_REPETITION_H
#include "ir/graph.h"

/* Finds the schedule's shortest period: its first microbatch and its length. Returns false if none is visible. */
bool find_period(const struct costs *costs, const struct sched *sc, int *first, int *length);
/* Returns a multiple of the length, about as long as a microbatch stays on a stage. */
int least_period(const struct costs *costs, const struct sched *sc, int first, int length);
/* Returns how many of the step's microbatches must be written out with such a period, so that all others are
 * repetitions; -1 if the schedule has fewer. */
int written_out(const struct costs *costs, const struct sched *sc, int first, int length);
/* Returns whether `later` has the same jobs from microbatch `first` on, in the same order. `later` is the same script,
 * called for microbatches later in the step. */
bool same_jobs(const struct costs *costs, const struct costs *later, int first);
/* Marks the period in a schedule. Returns false if the schedule ends too early. */
bool set_period(const struct costs *costs, struct sched *sc, int first, int length, int shortest);
#endif
