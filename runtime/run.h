/* A training of a program. */
#ifndef PIANOLA_RUN_H
#define PIANOLA_RUN_H
#include "data.h"
#include "rt_program.h"

/* The start of a training. */
struct start {
    uint64_t seed;
    struct named_file *weights; /* store/import.h; NULL: random weights from the seed */
};

struct rt_stamp { /* seconds of the monotonic clock */
    double start, end;
    double cpu; /* CPU seconds that the rank's thread spent on it: its time on a core of its own. NAN: not known */
};
/* Returns the mean of a step's losses over all its microbatches, added up in order. */
static inline double mean_loss(const float *loss, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)loss[i];
    return sum / (double)n;
}
/* Returns how often a step of `batches` microbatches updates a stage. */
static inline int32_t updates_per_step(int32_t batches, const struct rt_stage *s) {
    return s->update > 0 ? batches / s->update : 1;
}
#endif
