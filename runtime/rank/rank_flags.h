/* The flags of a rank's own program; many are options of `pianola run` too. */
#ifndef PIANOLA_RANK_FLAGS_H
#define PIANOLA_RANK_FLAGS_H
#include "comm/launch.h"
#include <stdint.h>

struct rank_flags {
    const char **data, **held_out; /* each list ends with NULL; NULL: none is given */
    const char *weights, *checkpoint, *flight, *timeline, *losses, *metrics, *tensorboard, *algorithms;
    int64_t steps, every, val_every, keep, seed;
    double deadline;
    int messages; /* transport between GPUs: CUDA_nccl, CUDA_put */
    bool allow_nonfinite, new_data, resume, json, eager, ordered;
    const char *how; /* how to resume from a checkpoint, appended to errors; NULL: "with --resume" */
    struct launch launch;
};
#endif
