/* train_cuda.cu, in the library libpianola-cuda.so: all ranks of a program on one CUDA device, in this process. */
#ifndef PIANOLA_TRAIN_CUDA_H
#define PIANOLA_TRAIN_CUDA_H
#include "rank/rank_whole.h"

struct cuda_run {
    struct rt_run run; /* stamp: timing slows these steps down */
    /* results */
    char device[256];
    /* Bytes of device memory: planned; as the device counts them, before the first step; and at the end, with the
     * graphs and the code that were loaded meanwhile. */
    int64_t planned, taken, at_end;
    int64_t host_planned, host_taken; /* bytes of pinned host memory: planned and allocated */
    double host; /* seconds of host time per step, without waiting; the mean over all but the first two steps */
};
/* Trains like host_train, on the GPU. Returns copies of the arenas in host memory, with only the homes' weights, fp32,
 * filled in; or NULL with why. */
typedef char **cuda_train_function(struct cuda_run *run, char *why, size_t nwhy);
#endif
