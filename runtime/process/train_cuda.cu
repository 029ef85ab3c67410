/* All ranks of a program on one device: every lane of every rank a stream, one thread that enqueues, and from the
 * second step on one graph for the whole step of all ranks. */
#include "comm_loopback.cuh"
#include "device/ahead.h"
extern "C" {
#include "saving.h"
#include "store/seconds.h"
#include "train_cuda.h"
}
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct training {
    struct cuda_run *all;
    const struct rt_program *p;
    struct cuda_steps steps;
    struct loopback *link;
    struct ahead ahead;
    struct rt_stamp **stamp; /* per rank: where a step's stamps go */
    float *loss;             /* for run.ended: of each microbatch of a step, */
    float *mirror;           /* of what the largest home has learned, for checkpoints */
    double *when;            /* and of each update of the last stage when it ended */
    char why[1000];
};

static struct checkpoint_shard pull(void *context, int rank, const struct rt_home *home) {
    struct training *training = (struct training *)context;
    return cuda_pull(&training->steps.replay[rank], home, training->mirror);
}
static void push(void *context, int rank, const struct rt_home *home, const float *weight, const float *moments) {
    cuda_push(&((struct training *)context)->steps.replay[rank], home, weight, moments);
}
static struct saving_memory memory_of(struct training *training) {
    struct saving_memory memory = {training, pull, push};
    return memory;
}

/* Prepares checkpoints and, if the run resumes, reads its state. */
static const char *load(struct training *training) {
    const struct rt_program *p = training->p;
    const struct saving *saving = training->all->run.saving;
    int64_t most = 0, from = training->all->run.from;
    const struct saving_memory memory = memory_of(training);
    for (int r = 0; saving && r < p->workers; r++) {
        cuda_store(training->steps.rank[r].counted, &from, sizeof from);
        for (int h = 0; h < p->rank[r].nhomes; h++)
            most = p->rank[r].home[h].owned > most ? p->rank[r].home[h].owned : most;
    }
    size_t copies = 1 + (size_t)count_moments(p->model->optimizer);
    if (saving && !(training->mirror = (float *)malloc(copies * (size_t)most * sizeof(float) + 1)))
        return "no memory on the host";
    if (saving && saving->loads && !saving_load(saving, p, &memory, training->why, sizeof training->why))
        return training->why;
    return NULL;
}

static const char *prepare(struct training *training) {
    struct cuda_steps *steps = &training->steps;
    int W = steps->n = training->p->workers;
    steps->graph = training->all->graph;
    steps->data = training->all->run.data;
    steps->timing = training->all->run.stamp ? TIME_SOME : TIME_NONE;
    training->stamp = (struct rt_stamp **)calloc((size_t)W, sizeof *training->stamp);
    steps->replay = (struct replay *)calloc((size_t)W, sizeof *steps->replay);
    steps->rank = (struct cuda_rank *)calloc((size_t)W, sizeof *steps->rank);
    for (int r = 0; r < W; r++)
        training->all->planned += cuda_rank_bytes(training->p, r, &cuda_loopback);
    for (int r = 0; r < W; r++)
        training->all->host_planned += training->p->rank[r].host;
    training->loss = (float *)calloc((size_t)training->p->batches, sizeof *training->loss);
    training->when = (double *)calloc((size_t)training->p->batches, sizeof *training->when);
    if (!steps->replay || !steps->rank || !training->stamp || !training->loss || !training->when)
        return "no memory on the host";
    const struct start start = {training->all->run.seed, training->all->run.weights};
    for (int r = 0; r < W; r++) {
        const char *why = cuda_take(&steps->replay[r], &steps->rank[r], training->p, r, &cuda_loopback, false);
        if (why)
            return why;
        if (training->all->run.stamp && (why = cuda_time(&steps->rank[r], &training->p->rank[r])))
            return why;
        steps->replay[r].steps = training->all->run.of > 0 ? training->all->run.of : training->all->run.steps;
        steps->replay[r].purpose = training->all->run.evaluates ? VALIDATES : TRAINS;
        training->all->host_taken += steps->rank[r].host_bytes;
        if (!cuda_begin(&steps->replay[r], &start, training->why, sizeof training->why))
            return training->why;
    }
    const char *lacks = load(training);
    if (lacks)
        return lacks;
    training->link = loopback_open(training->p, steps->rank);
    for (int r = 0; r < W; r++)
        steps->rank[r].link = training->link;
    return steps_open(steps) ? NULL : "no memory on the host";
}

/* Is the step one of the last, whose times are kept? */
static bool kept(const struct rt_run *run, int64_t step) {
    return run->stamp && step >= 0 && step >= run->steps - run->kept;
}

static void keep_times(struct training *training, int64_t step) {
    const struct rt_run *run = &training->all->run;
    CUDA(cudaEventSynchronize(training->steps.end[step % 2]));
    for (int r = 0; r < training->p->workers; r++)
        training->stamp[r] = run->stamp[r] + (step - (run->steps - run->kept)) * training->p->rank[r].nins;
    steps_times(&training->steps, step, training->stamp);
}

static void one_step(struct training *training, int64_t step) {
    for (int r = 0; r < training->p->workers; r++)
        cuda_feed(&training->steps.replay[r], step, 0, training->all->run.data, training->steps.origin);
    steps_run(&training->steps, step, kept(&training->all->run, step));
}

static void await_step(struct training *training, int64_t step) {
    for (int r = 0; r < training->p->workers; r++)
        CUDA(cudaEventSynchronize(training->steps.rank[r].came[step % 2]));
}

/* With post-validation, once the step has ended. All ranks have the same norm. */
static void post_validate(struct training *training, int64_t step) {
    const struct rt_run *run = &training->all->run;
    const struct rt_model *m = training->p->model;
    struct cuda_rank *rank = training->steps.rank;
    int64_t done = step + 1;
    bool open = training->ahead.open;
    await_step(training, step);
    if (open && run->norm)
        run->norm[step - 1] = norm_value(rank->found);
    if (runs_again(&training->ahead, m, rank->found)) {
        steps_again(&training->steps, step, kept(run, step), run->data);
        await_step(training, step);
    }
    if (!must_settle(&training->ahead, is_asked_for(run, step) || saving_is_due(run, done)))
        return;
    steps_beside(&training->steps, SETTLES, done, 0, NULL);
    await_step(training, done);
    settled(&training->ahead, m, rank->norm[done % 2]);
    memcpy(rank->norm[step % 2], rank->norm[done % 2], NORM_BYTES); /* it is this step's */
}

/* A rank that is home of the last stage. */
static int last_home(const struct rt_program *p) {
    for (int r = 0; r < p->workers; r++)
        for (int h = 0; h < p->rank[r].nhomes; h++)
            if (p->rank[r].home[h].stage == p->updated)
                return r;
    return 0;
}

static void keep_when(struct training *training, int64_t step) {
    CUDA(cudaEventSynchronize(training->steps.end[step % 2]));
    steps_when(&training->steps, step, last_home(training->p), training->when);
}

/* Of each microbatch of a step that has ended. */
static const float *losses_of(struct training *training, int64_t step) {
    for (int b = 0; b < training->p->batches; b++) {
        training->loss[b] = 0;
        for (int r = 0; r < training->p->workers; r++)
            training->loss[b] += training->steps.rank[r].told[step % 2][b];
    }
    return training->loss;
}

static void tell(struct training *training, int64_t step, double validation) {
    const struct rt_run *run = &training->all->run;
    struct rt_ended ended = {step, losses_of(training, step), training->when, run->makespan[step], NAN, validation,
                             NAN};
    ended.norm = run->norm ? run->norm[step] : NAN;
    run->ended(run->context, &ended);
}

/* The loss on held-out text before step `next`, where one is due. */
static double validate(struct training *training, int64_t next) {
    const struct rt_run *run = &training->all->run;
    struct held_sum sum = {0, 0};
    if (!run->held_out || next % run->every != 0 || (next > 0 && next == run->from))
        return NAN;
    if (next > run->from)
        CUDA(cudaEventSynchronize(training->steps.end[(next - 1) % 2]));
    for (int64_t k = 0; k < data_steps(run->held_out); k++) {
        steps_beside(&training->steps, VALIDATES, next, k, run->held_out);
        for (int r = 0; r < training->p->workers; r++)
            CUDA(cudaEventSynchronize(training->steps.rank[r].came[next % 2]));
        data_sum(run->held_out, k, losses_of(training, next), training->p->batches, &sum);
    }
    return sum.loss / (double)sum.sequences;
}

/* The losses of a step that has been enqueued, once it has ended. */
static float loss_of(struct training *training, int64_t step) {
    int turn = (int)(step % 2);
    float sum = 0, took;
    for (int r = 0; r < training->p->workers; r++) {
        CUDA(cudaEventSynchronize(training->steps.rank[r].came[turn]));
        for (int b = 0; b < training->p->batches; b++)
            sum += training->steps.rank[r].told[turn][b];
    }
    double none = NAN, *norm = training->all->run.norm ? &training->all->run.norm[step] : &none;
    *norm = NAN;
    for (int r = training->p->workers - 1; r >= 0; r--)
        if (training->steps.rank[r].norm_at >= 0)
            *norm = norm_value(training->steps.rank[r].norm[turn]);
    CUDA(cudaEventElapsedTime(&took, training->steps.begin[turn], training->steps.end[turn]));
    training->all->run.makespan[step] = 1e-3 * took;
    return training->all->run.loss[step] = sum / (float)training->p->batches;
}

/* What a step that has been enqueued has given, once it has ended. False: with why. */
static bool finish(struct training *training, int64_t step, double validation, double seconds, char *why, size_t nwhy) {
    struct rt_run *run = &training->all->run;
    float loss = loss_of(training, step);
    if (run->progress)
        run->progress(run->context, step + 1, loss, seconds);
    if (run->ended)
        tell(training, step, validation);
    return data_same(run->data, why, nwhy) && (!run->held_out || data_same(run->held_out, why, nwhy));
}

/* Looks at the losses of a step that has ended. True: the run is to stop. */
static bool finds_nonfinite(struct training *training, int64_t step) {
    struct rt_run *run = &training->all->run;
    for (int r = 0; r < training->p->workers && run->bad; r++)
        nonfinite_look(run->bad, step + 1, r, training->steps.rank[r].told[step % 2], training->p->batches);
    return run->stops && run->bad->step > 0;
}

/* Writes the checkpoint that is due before step `next`, unless the run is to stop. */
static bool save(struct training *training, int64_t next, char *why, size_t nwhy) {
    const struct rt_run *run = &training->all->run;
    const struct saving_memory memory = memory_of(training);
    if (!saving_is_due(run, next))
        return true;
    await_step(training, next - 1);
    CUDA(cudaEventSynchronize(training->steps.end[(next - 1) % 2]));
    bool stops = finds_nonfinite(training, next - 1);
    for (int r = 0; r < training->p->workers; r++)
        for (int h = 0; h < training->p->rank[r].nhomes && run->bad && run->bad->step == 0; h++) {
            const struct rt_home *home = &training->p->rank[r].home[h];
            const struct nonfinite_at where = {next, r, NONFINITE_STATE, 0};
            struct checkpoint_shard shard = pull(training, r, home);
            stops |= !nonfinite_scan(run->bad, &where, training->p->model, &training->p->stage[home->stage],
                                     shard.first, shard.count, shard.weight) &&
                     run->stops;
        }
    return stops || saving_write(run->saving, training->p, next, run->bad && run->bad->step > 0, &memory, why, nwhy);
}

static bool train(struct training *training, char *why, size_t nwhy) {
    struct rt_run *run = &training->all->run;
    double begin = seconds();
    for (int64_t s = run->from; s <= run->steps; s++) {
        if (kept(run, s - 1)) /* before the next records the events anew */
            keep_times(training, s - 1);
        if (run->ended && s > run->from)
            keep_when(training, s - 1);
        double validation = validate(training, s);
        if (s == 0 && run->held_out && run->ended) {
            struct rt_ended before = {-1, NULL, NULL, NAN, NAN, validation, NAN};
            run->ended(run->context, &before);
        }
        if (!save(training, s, why, nwhy))
            return false;
        if (s < run->steps)
            one_step(training, s);
        if (s > run->from && !finish(training, s - 1, validation, seconds() - begin, why, nwhy))
            return false;
        if (s > run->from && finds_nonfinite(training, s - 1))
            break;
        if (s < run->steps && training->p->model->post_validation)
            post_validate(training, s);
    }
    training->all->host = run->steps > 2 ? training->steps.busy / (double)(run->steps - 2) : 0;
    return true;
}

/* What home h of rank r has learned, to its place in a copy of the arena that has it. */
static void copy_learned(const struct training *training, int r, int h, char **arena) {
    struct rt_run *run = &training->all->run;
    const struct rt_program *p = training->p;
    const struct rt_home *home = &p->rank[r].home[h];
    const struct cuda_rank *rank = &training->steps.rank[r];
    struct rt_learned at = learned_at(p->model, &p->stage[home->stage], home);
    char *to = arena[at.weight_in * p->workers + r] + at.weight;
    if (at.weight_in == MEMORY_HOST)
        memcpy(to, rank->host + at.weight, (size_t)at.count * sizeof(float));
    else
        CUDA(cudaMemcpy(to, rank->arena + at.weight, (size_t)at.count * sizeof(float), cudaMemcpyDeviceToHost));
    const struct nonfinite_at where = {run->steps, r, NONFINITE_STATE, 0};
    if (run->bad && run->bad->step == 0)
        nonfinite_scan(run->bad, &where, p->model, &p->stage[home->stage], at.first, at.count,
                       (const float *)(void *)to);
}

static void count_routed(const struct training *training) {
    struct rt_routed one, *all = training->all->run.routed;
    for (int r = 0; r < training->p->workers && all; r++) {
        CUDA(cudaMemcpy(&one, training->steps.rank[r].routed, sizeof one, cudaMemcpyDeviceToHost));
        all->pairs += one.pairs;
        all->dropped += one.dropped;
    }
}

/* Copies of the arenas with the homes' weights: their masters, with bf16. */
static char **weights(struct training *training) {
    const struct rt_program *p = training->p;
    char **arena = (char **)calloc((size_t)p->workers * NMEMORIES, sizeof *arena);
    for (int r = 0; arena && r < p->workers; r++) {
        char **device = &arena[MEMORY_DEVICE * p->workers + r], **host = &arena[MEMORY_HOST * p->workers + r];
        *device = (char *)calloc(1, (size_t)p->rank[r].arena + 1);
        *host = (char *)calloc(1, (size_t)p->rank[r].host + 1);
        for (int h = 0; *device && *host && h < p->rank[r].nhomes; h++)
            copy_learned(training, r, h, arena);
    }
    return arena;
}

static void release(struct training *training) {
    struct cuda_steps *steps = &training->steps;
    steps_close(steps);
    cuda_linear_forget();
    cuda_muon_forget();
    cuda_attention_forget();
    loopback_close(training->link);
    for (int r = 0; r < training->p->workers; r++)
        cuda_release(&steps->replay[r], &steps->rank[r]);
    free(steps->replay);
    free(steps->rank);
    free(training->stamp);
    free(training->loss);
    free(training->when);
    free(training->mirror);
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
    struct training training;
    size_t before, after, all;
    memset(&training, 0, sizeof training);
    training.all = run;
    training.p = run->run.program;
    if (!find_device(run, why, nwhy))
        return NULL;
    cuda_attention_plan(training.p);
    cuda_linear_plan(training.p);
    cuda_muon_plan(training.p);
    if (run->algorithms && !cuda_linear_algorithms(run->algorithms, why, nwhy))
        return NULL;
    CUDA(cudaMemGetInfo(&before, &all));
    const char *trouble = prepare(&training);
    if (trouble) {
        snprintf(why, nwhy, "%s: the ranks take %lld bytes of %s, which has %lld free, and %lld of pinned host memory",
                 trouble, (long long)run->planned, run->device, (long long)before, (long long)run->host_planned);
        return NULL; /* the process is about to end; what was taken goes with it */
    }
    CUDA(cudaMemGetInfo(&after, &all));
    run->taken = (int64_t)before - (int64_t)after;
    char **arena = train(&training, why, nwhy) ? weights(&training) : NULL;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemGetInfo(&after, &all));
    run->at_end = (int64_t)before - (int64_t)after;
    count_routed(&training);
    if (run->run.twice)
        *run->run.twice = training.ahead.twice;
    release(&training);
    return arena;
}
