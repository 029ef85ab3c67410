/* All ranks of a program on one device. Every lane of every rank is a stream, and from the second step on the whole
 * step of all ranks is one graph. The last thread to request a step enqueues it for all ranks: rank/rank_cuda.cu. */
#include "comm_loopback.cuh"
#include "rank/rank_cuda.cuh"
extern "C" {
#include "train.h"
#include "train_cuda.h"
#include "units/unit_check.h"
}
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the parts of a rank's backend that differ from rank_cuda.cu's ---- */

extern "C" void backend_choose(struct rank_run *) {}
extern "C" void backend_connect(struct rank_run *) {}
extern "C" void backend_report(struct rank_run *) {}
extern "C" void backend_look(struct rank_run *) { sched_yield(); }
void cuda_wait(struct rank_run *, cudaEvent_t event) { CUDA(cudaEventSynchronize(event)); }

extern "C" bool backend_take(struct rank_run *run, char *why, size_t nwhy) {
    struct cuda_group *group = (struct cuda_group *)run->shared;
    snprintf(why, nwhy, "no memory on the host");
    if (!(run->backend = (struct rank_backend *)calloc(1, sizeof *run->backend)))
        return false;
    run->backend->group = group;
    run->backend->rank = &group->steps.rank[run->world.rank];
    run->replay = &group->steps.replay[run->world.rank];
    run->replay->purpose = rank_evaluates(run) ? VALIDATES : TRAINS;
    return cuda_take_mirror(run);
}

/* Copies the arenas, with all that homes have learned; with bf16, that is their master weights. */
extern "C" void backend_release(struct rank_run *run, char **arena) {
    const struct rt_program *p = &run->program;
    const struct rt_rank *k = &p->rank[run->world.rank];
    arena[MEMORY_DEVICE] = (char *)calloc(1, (size_t)k->arena + 1);
    arena[MEMORY_HOST] = (char *)calloc(1, (size_t)k->host + 1);
    for (int h = 0; arena[MEMORY_DEVICE] && arena[MEMORY_HOST] && h < k->nhomes; h++) {
        const struct rt_home *home = &k->home[h];
        struct rt_learned at = learned_at(p->model, &p->stage[home->stage], home);
        struct checkpoint_shard shard = backend_pull(run, home);
        if (shard.count > 0)
            memcpy(arena[at.weight_in] + at.weight, shard.weight, (size_t)shard.count * sizeof(float));
    }
    free(run->backend->mirror);
    free(run->backend);
}

/* ---- all ranks ---- */

static const char *prepare_training(struct cuda_run *run, struct cuda_group *group) {
    const struct rt_program *p = run->run.program;
    struct cuda_steps *steps = &group->steps;
    int W = steps->n = p->workers;
    steps->graph = !run->run.flags.eager;
    steps->timing = run->run.stamp ? TIME_SOME : TIME_NONE;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->done, NULL);
    steps->replay = (struct replay *)calloc((size_t)W, sizeof *steps->replay);
    steps->rank = (struct cuda_rank *)calloc((size_t)W, sizeof *steps->rank);
    for (int r = 0; r < W; r++) {
        run->planned += cuda_rank_bytes(p, r, &cuda_loopback);
        run->host_planned += p->rank[r].host;
    }
    if (!steps->replay || !steps->rank)
        return "no memory on the host";
    for (int r = 0; r < W; r++) {
        const char *why =
            cuda_take(&steps->replay[r], &steps->rank[r], p, r, &cuda_loopback, run->run.flags.deadline > 0);
        if (why || (run->run.stamp && (why = cuda_time(&steps->rank[r], &p->rank[r]))))
            return why;
        run->host_taken += steps->rank[r].host_bytes;
    }
    struct loopback *link = loopback_open(p, steps->rank);
    for (int r = 0; r < W; r++)
        steps->rank[r].link = link;
    return steps_open(steps) ? NULL : "no memory on the host";
}

static void release(struct cuda_group *group) {
    struct cuda_steps *steps = &group->steps;
    struct loopback *link = (struct loopback *)steps->rank->link;
    steps_close(steps);
    cuda_linear_forget();
    cuda_update_forget();
    cuda_attention_forget();
    loopback_close(link);
    for (int r = 0; r < steps->n; r++)
        cuda_release(&steps->replay[r], &steps->rank[r]);
    free(steps->replay);
    free(steps->rank);
}

static bool find_device(struct cuda_run *run, char *why, size_t nwhy) {
    int n = 0;
    struct cudaDeviceProp device;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess || n == 0) {
        snprintf(why, nwhy, "no CUDA device: %s", code == cudaSuccess ? "none is there" : cudaGetErrorString(code));
        return false;
    }
    CUDA(cudaSetDevice(0));
    CUDA(cudaGetDeviceProperties(&device, 0));
    snprintf(run->device, sizeof run->device, "%s", device.name);
    return cuda_fits(&device, why, nwhy);
}

extern "C" __attribute__((visibility("default"))) char **cuda_train(struct cuda_run *run, char *why, size_t nwhy) {
    const struct rt_program *p = run->run.program;
    const char *algorithms = run->run.flags.algorithms;
    struct cuda_group group;
    memset(&group, 0, sizeof group);
    if (!find_device(run, why, nwhy))
        return NULL;
    if (!units_check(p, &unit_memory_cuda, why, nwhy))
        return NULL;
    cuda_attention_plan(p);
    cuda_linear_plan(p);
    cuda_update_plan(p);
    if (algorithms && !cuda_linear_algorithms(algorithms, why, nwhy))
        return NULL;
    int64_t before = cuda_free_memory();
    const char *trouble = prepare_training(run, &group);
    if (trouble) {
        snprintf(why, nwhy, "%s: the ranks take %lld bytes of %s, which has %lld free, and %lld of pinned host memory",
                 trouble, (long long)run->planned, run->device, (long long)before, (long long)run->host_planned);
        return NULL; /* the process is about to end, which frees all memory */
    }
    run->taken = before - cuda_free_memory();
    struct world none;
    memset(&none, 0, sizeof none);
    char **arena = train_threads(&run->run, &none, &group);
    CUDA(cudaDeviceSynchronize());
    run->at_end = before - cuda_free_memory();
    int64_t steps = run->run.flags.steps;
    run->host = steps > 2 ? group.steps.busy / (double)(steps - 2) : 0;
    release(&group);
    return arena;
}
