/* period.c: the part of a schedule, and of a program, that repeats. */
#ifndef PIANOLA_PERIOD_H
#define PIANOLA_PERIOD_H
#include "passes.h"

/* The schedule's shortest period: its first microbatch, and how many it has. False: there is none to be seen. */
bool find_period(const struct spec *sp, const struct sched *sc, int *first, int *length);
/* A multiple of it that is about as long as a microbatch stays on a stage. */
int least_period(const struct spec *sp, const struct sched *sc, int first, int length);
/* How many of the step's microbatches must be written out with such a period, so that all others are repetitions; -1:
 * more than the schedule has. */
int written_out(const struct spec *sp, const struct sched *sc, int first, int length);
/* Whether `later`, the same microbatches of the same script at another place of the step, has the same jobs from
 * microbatch `first` on, in the same order. */
bool same_jobs(const struct spec *sp, const struct spec *later, int first);
/* Marks the period in a schedule of that many. False: it ends too early. */
bool set_period(const struct spec *sp, struct sched *sc, int first, int length, int shortest);
/* The buffer whose event opened b, itself or the stash that grew into it; and that whose event closes b. */
static inline int32_t opener(const struct rank *k, int32_t b) { return b > 0 && k->buf[b - 1].grows == b ? b - 1 : b; }
static inline int32_t closer(const struct rank *k, int32_t b) { return k->buf[b].grows >= 0 ? k->buf[b].grows : b; }
/* Per buffer of the rank that is open where the period ends: the one that is in its place where it begins; -1: it is
 * not open there. False: they do not correspond, since some tensor lives longer than the period. */
bool match_period(const struct program *p, int r, int32_t *before);
bool period_fits(const struct program *p); /* on all ranks */
#endif
