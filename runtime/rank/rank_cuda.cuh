/* Ranks of this process on its GPU: a process's one rank, which rank_cuda_alone.cu prepares, or all ranks of a run,
 * which process/train_cuda.cu does. rank_cuda.cu runs their steps. */
#ifndef PIANOLA_RANK_CUDA_CUH
#define PIANOLA_RANK_CUDA_CUH
#include "device/device_cuda.cuh"
extern "C" {
#include "rank_run.h"
}
#include <pthread.h>

/* The ranks that share the device's work. It is enqueued once all ranks have asked for it, by the thread of the last.
 */
struct cuda_group {
    struct cuda_steps steps; /* of n ranks */
    double since;            /* when the first step began, by the host */
    int64_t ended, enqueued; /* how many steps of this run */
    pthread_mutex_t lock;    /* of n > 1 ranks */
    pthread_cond_t done;
    int asking;    /* how many ranks wait for it */
    int64_t turns; /* how often it has been done */
};
struct rank_backend {
    struct cuda_group *group;
    struct cuda_rank *rank;
    cudaEvent_t came; /* the losses of the step that was enqueued last */
    float *mirror;    /* host memory: what the largest home has learned */
    int64_t free[4]; /* device memory, as the device counts: before anything, with the arena, connected, after a step */
};
/* Takes the mirror of run->backend. False: no memory. */
bool cuda_take_mirror(struct rank_run *run);
int64_t cuda_free_memory(void);
/* Waits for an event of a step; ends the process if it cannot come. */
void cuda_wait(struct rank_run *run, cudaEvent_t event);
#endif
