/* Makespan that `run` predicts, from the durations of the jobs in the run itself. */
#ifndef PIANOLA_PREDICTION_H
#define PIANOLA_PREDICTION_H
#include "pipeline.h"
#include "training.h"

struct prediction {
    double makespan;
    double work; /* seconds of a step's work if one rank did it all */
};
/* Predicts from the CPU time of the ranks' own instructions, on the host. It does not grow when ranks share cores. */
struct prediction predict_from_ranks(const struct compile *c, const struct trained *trained);
/* Predicts from the durations of all jobs on one rank. */
struct compile compile_serial(const struct compile *c);
struct prediction predict_from_one(const struct compile *c, const struct compile *serial, const struct trained *alone,
                                   int64_t steps);
#endif
