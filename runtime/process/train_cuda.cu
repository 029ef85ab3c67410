/* All ranks of a program on one device: every lane of every rank a stream, one thread that enqueues, and from the
 * second step on one graph for the whole step of all ranks. */
#include "comm_loopback.cuh"
extern "C" {
#include "store/seconds.h"
#include "train_cuda.h"
}
#include <stdio.h>
#include <stdlib.h>

struct training {
    struct cuda_run *all;
    const struct rt_program *p;
    struct cuda_steps steps;
    struct loopback *link;
    struct rt_stamp **stamp; /* per rank: where those of a step go */
};

static const char *prepare(struct training *t) {
    struct cuda_steps *s = &t->steps;
    int W = s->n = t->p->workers;
    s->graph = t->all->graph;
    s->timing = t->all->run.stamp ? TIME_SOME : TIME_NONE;
    t->stamp = (struct rt_stamp **)calloc((size_t)W, sizeof *t->stamp);
    s->replay = (struct replay *)calloc((size_t)W, sizeof *s->replay);
    s->rank = (struct cuda_rank *)calloc((size_t)W, sizeof *s->rank);
    for (int r = 0; r < W; r++)
        t->all->planned += cuda_rank_bytes(t->p, r, &cuda_loopback);
    if (!s->replay || !s->rank || !t->stamp)
        return "no memory on the host";
    for (int r = 0; r < W; r++) {
        const char *why = cuda_take(&s->replay[r], &s->rank[r], t->p, r, &cuda_loopback, false);
        if (why)
            return why;
        if (t->all->run.stamp && (why = cuda_time(&s->rank[r], &t->p->rank[r])))
            return why;
        cuda_begin(&s->replay[r], t->all->run.seed);
    }
    t->link = loopback_open(t->p, s->rank);
    for (int r = 0; r < W; r++)
        s->rank[r].link = t->link;
    cuda_linear_plan(t->p);
    return steps_open(s) ? NULL : "no memory on the host";
}

/* Is the step one of the last, whose times are kept? */
static bool kept(const struct rt_run *run, int64_t step) {
    return run->stamp && step >= 0 && step >= run->steps - run->kept;
}

static void keep_times(struct training *t, int64_t step) {
    const struct rt_run *run = &t->all->run;
    CUDA(cudaEventSynchronize(t->steps.end[step % 2]));
    for (int r = 0; r < t->p->workers; r++)
        t->stamp[r] = run->stamp[r] + (step - (run->steps - run->kept)) * t->p->rank[r].nins;
    steps_times(&t->steps, step, t->stamp);
}

static void one_step(struct training *t, int64_t step) {
    for (int r = 0; r < t->p->workers; r++)
        cuda_feed(&t->steps.replay[r], step, t->all->run.data, t->steps.origin);
    steps_run(&t->steps, step, kept(&t->all->run, step));
}

/* The losses of a step that has been enqueued, once it has ended. */
static float loss_of(struct training *t, int64_t step) {
    int turn = (int)(step % 2);
    float sum = 0, took;
    for (int r = 0; r < t->p->workers; r++) {
        CUDA(cudaEventSynchronize(t->steps.rank[r].came[turn]));
        for (int b = 0; b < t->p->batches; b++)
            sum += t->steps.rank[r].told[turn][b];
    }
    CUDA(cudaEventElapsedTime(&took, t->steps.begin[turn], t->steps.end[turn]));
    t->all->run.makespan[step] = 1e-3 * took;
    return t->all->run.loss[step] = sum / (float)t->p->batches;
}

static bool train(struct training *t, char *why, size_t nwhy) {
    struct rt_run *run = &t->all->run;
    double begin = seconds();
    for (int64_t s = 0; s <= run->steps; s++) {
        if (kept(run, s - 1)) /* before the next records the events anew */
            keep_times(t, s - 1);
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
    t->all->host = run->steps > 2 ? t->steps.busy / (double)(run->steps - 2) : 0;
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
            CUDA(cudaMemcpy(arena[r] + at.weight, t->steps.rank[r].arena + at.weight, (size_t)at.count * sizeof(float),
                            cudaMemcpyDeviceToHost));
        }
    }
    return arena;
}

static void release(struct training *t) {
    struct cuda_steps *s = &t->steps;
    steps_close(s);
    cuda_linear_forget();
    cuda_attention_forget();
    loopback_close(t->link);
    for (int r = 0; r < t->p->workers; r++)
        cuda_release(&s->replay[r], &s->rank[r]);
    free(s->replay);
    free(s->rank);
    free(t->stamp);
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
    cuda_attention_plan(t.p);
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
