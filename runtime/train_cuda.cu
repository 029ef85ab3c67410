/* All ranks of a program on one device: every lane of every rank a stream, one thread that enqueues, and from the
 * second step on one graph for the whole step of all ranks. */
#include "device_cuda.cuh"
extern "C" {
#include "train_cuda.h"
}
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct training {
    struct cuda_run *all;
    const struct rt_program *p;
    struct replay *replay;
    struct cuda_rank *rank;
    struct loopback *link;
    cudaStream_t origin;     /* where a step begins and ends */
    cudaEvent_t fork, *join; /* join: per rank and lane */
    int joins;
    cudaEvent_t begin[2], end[2]; /* of a step, in turns */
    cudaGraphExec_t step, timed;  /* timed: with events around every instruction */
    double busy;                  /* seconds this thread has worked */
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *prepare(struct training *t) {
    int W = t->p->workers;
    t->replay = (struct replay *)calloc((size_t)W, sizeof *t->replay);
    t->rank = (struct cuda_rank *)calloc((size_t)W, sizeof *t->rank);
    for (int r = 0; r < W; r++) {
        t->joins += t->p->rank[r].nlanes;
        t->all->planned += cuda_rank_bytes(t->p, r);
    }
    t->join = (cudaEvent_t *)calloc((size_t)t->joins + 1, sizeof *t->join);
    if (!t->replay || !t->rank || !t->join)
        return "no memory on the host";
    CUDA(cudaStreamCreateWithFlags(&t->origin, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&t->fork, cudaEventDisableTiming));
    for (int i = 0; i < t->joins; i++)
        CUDA(cudaEventCreateWithFlags(&t->join[i], cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaEventCreateWithFlags(&t->begin[i], cudaEventDefault));
        CUDA(cudaEventCreateWithFlags(&t->end[i], cudaEventDefault));
    }
    for (int r = 0; r < W; r++) {
        const char *why = cuda_take(&t->replay[r], &t->rank[r], t->p, r);
        if (why)
            return why;
        if (t->all->run.stamp && (why = cuda_time(&t->rank[r], &t->p->rank[r])))
            return why;
        t->rank[r].comm = &cuda_loopback;
        cuda_begin(&t->replay[r], t->all->run.seed);
    }
    t->link = loopback_open(t->p, t->rank);
    for (int r = 0; r < W; r++)
        t->rank[r].link = t->link;
    cuda_linear_plan(t->p);
    return NULL;
}

/* Every rank's streams, one step: forked from origin, joined there. */
static void enqueue(struct training *t, bool timed, bool captured) {
    int W = t->p->workers, left = W, j = 0;
    for (int r = 0; r < W; r++)
        t->rank[r].timed = !timed ? UNTIMED : captured ? TIMED_CAPTURE : TIMED;
    for (int r = 0; r < W; r++)
        cuda_count(t->rank[r].step, t->origin);
    CUDA(cudaEventRecord(t->fork, t->origin));
    for (int r = 0; r < W; r++)
        for (int l = 0; l < t->p->rank[r].nlanes; l++)
            CUDA(cudaStreamWaitEvent(t->rank[r].lane[l], t->fork, 0));
    for (int r = 0; r < W; r++)
        replay_begin(&t->replay[r]);
    while (left > 0) {
        left = 0;
        for (int r = 0; r < W; r++)
            left += !replay_run(&t->replay[r]);
    }
    for (int r = 0; r < W; r++)
        for (int l = 0; l < t->p->rank[r].nlanes; l++, j++) {
            CUDA(cudaEventRecord(t->join[j], t->rank[r].lane[l]));
            CUDA(cudaStreamWaitEvent(t->origin, t->join[j], 0));
        }
}

/* nth: how many steps have been enqueued before, here or on streams. */
static cudaGraphExec_t capture(struct training *t, int64_t nth, bool timed) {
    cudaGraph_t graph;
    cudaGraphExec_t step;
    for (int r = 0; r < t->p->workers; r++)
        t->replay[r].step = nth;
    CUDA(cudaStreamBeginCapture(t->origin, cudaStreamCaptureModeThreadLocal));
    enqueue(t, timed, true);
    CUDA(cudaStreamEndCapture(t->origin, &graph));
    CUDA(cudaGraphInstantiate(&step, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return step;
}

static void one_step(struct training *t, int64_t step) {
    int turn = (int)(step % 2);
    bool timed = t->all->run.stamp && step == t->all->run.steps - 1;
    if (t->all->graph && step == 1) {
        t->step = capture(t, 1, false);
        t->timed = t->all->run.stamp ? capture(t, 2, true) : NULL;
    }
    for (int r = 0; r < t->p->workers; r++) {
        t->replay[r].step = step;
        cuda_feed(&t->replay[r], t->all->run.data, t->origin);
    }
    double begin = seconds();
    CUDA(cudaEventRecord(t->begin[turn], t->origin));
    if (t->step)
        CUDA(cudaGraphLaunch(timed ? t->timed : t->step, t->origin));
    else
        enqueue(t, timed, false);
    CUDA(cudaEventRecord(t->end[turn], t->origin));
    t->busy += step > 1 ? seconds() - begin : 0;
    for (int r = 0; r < t->p->workers; r++)
        cuda_tell(&t->replay[r], t->origin);
}

/* The losses of a step that has been enqueued, once it has ended. */
static float loss_of(struct training *t, int64_t step) {
    int turn = (int)(step % 2);
    float sum = 0, took;
    for (int r = 0; r < t->p->workers; r++) {
        CUDA(cudaEventSynchronize(t->rank[r].came[turn]));
        for (int b = 0; b < t->p->batches; b++)
            sum += t->rank[r].told[turn][b];
    }
    CUDA(cudaEventElapsedTime(&took, t->begin[turn], t->end[turn]));
    t->all->run.makespan[step] = 1e-3 * took;
    return t->all->run.loss[step] = sum / (float)t->p->batches;
}

static bool train(struct training *t, char *why, size_t nwhy) {
    struct rt_run *run = &t->all->run;
    double begin = seconds();
    for (int64_t s = 0; s <= run->steps; s++) {
        if (s < run->steps)
            one_step(t, s);
        if (s == 0)
            continue;
        float loss = loss_of(t, s - 1);
        if (run->progress)
            run->progress(run->context, s, loss, seconds() - begin);
        if (!data_same(run->data, why, nwhy))
            return false;
    }
    for (int r = 0; run->stamp && r < t->p->workers; r++)
        cuda_stamps(&t->rank[r], &t->p->rank[r], t->begin[(run->steps - 1) % 2], run->stamp[r]);
    t->all->host = run->steps > 2 ? t->busy / (double)(run->steps - 2) : 0;
    return true;
}

/* Copies of the arenas with the homes' weights: their masters, with bf16. */
static char **weights(struct training *t) {
    const struct rt_program *p = t->p;
    char **arena = (char **)calloc((size_t)p->workers, sizeof *arena);
    for (int r = 0; arena && r < p->workers; r++) {
        arena[r] = (char *)calloc(1, (size_t)p->rank[r].arena + 1);
        for (int h = 0; arena[r] && h < p->rank[r].nhomes; h++) {
            const struct rt_home *y = &p->rank[r].home[h];
            struct rt_learned at = learned_at(p->model, &p->stage[y->stage], y);
            CUDA(cudaMemcpy(arena[r] + at.weight, t->rank[r].arena + at.weight, (size_t)at.count * sizeof(float),
                            cudaMemcpyDeviceToHost));
        }
    }
    return arena;
}

static void release(struct training *t) {
    if (t->step)
        cudaGraphExecDestroy(t->step);
    if (t->timed)
        cudaGraphExecDestroy(t->timed);
    cuda_linear_forget();
    loopback_close(t->link);
    for (int r = 0; r < t->p->workers; r++)
        cuda_release(&t->replay[r], &t->rank[r]);
    for (int i = 0; i < t->joins; i++)
        cudaEventDestroy(t->join[i]);
    for (int i = 0; i < 2; i++) {
        cudaEventDestroy(t->begin[i]);
        cudaEventDestroy(t->end[i]);
    }
    cudaEventDestroy(t->fork);
    cudaStreamDestroy(t->origin);
    free(t->join);
    free(t->replay);
    free(t->rank);
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
    return true;
}

extern "C" __attribute__((visibility("default"))) char **cuda_train(struct cuda_run *run, char *why, size_t nwhy) {
    struct training t;
    size_t before, after, all;
    memset(&t, 0, sizeof t);
    t.all = run;
    t.p = run->run.program;
    if (!find_device(run, why, nwhy))
        return NULL;
    CUDA(cudaMemGetInfo(&before, &all));
    const char *trouble = prepare(&t);
    if (trouble) {
        snprintf(why, nwhy, "%s: the ranks take %lld bytes of %s, which has %lld free", trouble,
                 (long long)run->planned, run->device, (long long)before);
        return NULL; /* the process is about to end; what was taken goes with it */
    }
    CUDA(cudaMemGetInfo(&after, &all));
    run->taken = (int64_t)(before - after);
    char **arena = train(&t, why, nwhy) ? weights(&t) : NULL;
    CUDA(cudaDeviceSynchronize());
    release(&t);
    return arena;
}
