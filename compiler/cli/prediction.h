/* Predictions from what a run has measured of itself. */
#ifndef PIANOLA_PREDICTION_H
#define PIANOLA_PREDICTION_H
#include "pipeline.h"
#include "training.h"

struct prediction {
    double makespan;
    double work; /* seconds of a step's work if one rank did it all */
};

/* The work of a run on the host. */
struct work {
    double **cpu;   /* [rank][instruction]: CPU seconds, the mean of the measured steps */
    double cores;   /* cores that all ranks share */
    double handoff; /* seconds until a rank that gets a core runs */
};
/* Predicts the timeline from the work of each job, update and message. */
struct timeline *predict_from_work(const struct compile *c, const struct work *work);
double work_flops(const struct compile *c, const struct work *work); /* FLOP per CPU second of all jobs */
double all_work(const struct program *p, const struct work *work);   /* CPU seconds of a step, all ranks together */
/* Predicts from the durations of all jobs on one rank. */
struct compile compile_serial(const struct compile *c);
struct prediction predict_from_one(const struct compile *c, const struct compile *serial, const struct trained *alone,
                                   int64_t steps);
#endif
