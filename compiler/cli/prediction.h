/* The makespan that `run` predicts, by what each job took in the run itself. */
#ifndef PIANOLA_PREDICTION_H
#define PIANOLA_PREDICTION_H
#include "pipeline.h"
#include "training.h"

struct prediction {
    double makespan;
    double work; /* seconds of a step's work, were all of it one rank's */
};
/* On the host: by the CPU time of the ranks' own instructions, which does not grow where ranks share cores. */
struct prediction predict_from_ranks(const struct compile *c, const struct trained *trained);
/* By the times of all jobs on one rank. */
struct compile compile_serial(const struct compile *c);
struct prediction predict_from_one(const struct compile *c, const struct compile *serial, const struct trained *alone,
                                   int64_t steps);
#endif
