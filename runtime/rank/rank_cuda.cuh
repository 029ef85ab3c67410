/* The ranks of this process on its GPU: a process's only rank, which rank_cuda_alone.cu prepares, or all ranks of a
 * run, which process/train_cuda.cu prepares. rank_cuda.cu runs their steps. */
#ifndef PIANOLA_RANK_CUDA_CUH
#define PIANOLA_RANK_CUDA_CUH
#include "device/device_cuda.cuh"
extern "C" {
#include "rank_run.h"
}
#include <pthread.h>

/* Ranks that share the device's work. The last rank that requests a step enqueues it for all of them, in its own
 * thread. */
struct cuda_group {
    struct cuda_steps steps; /* steps of the n ranks */
    double since;            /* start of the first step, by the host's clock */
    int64_t ended, enqueued; /* numbers of steps of this run */
    pthread_mutex_t lock;    /* used by groups of n > 1 ranks */
    pthread_cond_t done;
    int asking;    /* number of ranks that wait for a job */
    int64_t turns; /* number of jobs done */
};
struct rank_backend {
    struct cuda_group *group;
    struct cuda_rank *rank;
    cudaEvent_t came; /* event of the losses of the last enqueued step */
    float *mirror;    /* host memory for the learned state of the largest home */
    int64_t free[4];  /* free device memory, as the device counts it: at the start, with the arena, connected, after a
                       * step */
};
/* Allocates the mirror of run->backend. Returns false if there is no memory. */
bool cuda_take_mirror(struct rank_run *run);
int64_t cuda_free_memory(void);
/* Waits for an event of a step. Ends the process if the event will never come. */
void cuda_wait(struct rank_run *run, cudaEvent_t event);
#endif
