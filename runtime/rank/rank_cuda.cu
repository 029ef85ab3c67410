/* The steps of ranks on a GPU. Each step is one graph for all ranks of the group.
 *
 * A step is enqueued, and the next one after it, so that the GPU does not idle between them. Then the process polls
 * until the first has ended. A process with one rank never blocks in a call, so that an error, a dead rank or the
 * watch's deadline can always end it. The watch itself makes no CUDA calls, which would break a capture: it reads the
 * device's progress from words that the device writes to host memory. */
#include "rank_cuda.cuh"
#include "layers/clip.h"
extern "C" {
#include "rank_train.h"
#include "store/seconds.h"
}
#include <assert.h>
#include <math.h>
#include <stdlib.h>

extern "C" const char backend_kind[] = "GPU";

/* ---- the group ---- */

typedef void job(struct rank_run *run, int64_t step, const void *more);

/* Runs a job once, when all ranks of the group have called it with the same job. */
static void for_group(struct rank_run *run, job *job, int64_t step, const void *more) {
    struct cuda_group *group = run->backend->group;
    if (group->steps.n == 1) {
        job(run, step, more);
        return;
    }
    pthread_mutex_lock(&group->lock);
    int64_t turn = group->turns;
    if (++group->asking == group->steps.n) {
        job(run, step, more);
        group->asking = 0;
        group->turns++;
        pthread_cond_broadcast(&group->done);
    }
    while (group->turns == turn)
        pthread_cond_wait(&group->done, &group->lock);
    pthread_mutex_unlock(&group->lock);
}

/* Locks the group while one rank works, so that no other rank does. */
static void lock(const struct rank_run *run) {
    if (run->backend->group->steps.n > 1)
        pthread_mutex_lock(&run->backend->group->lock);
}
static void unlock(const struct rank_run *run) {
    if (run->backend->group->steps.n > 1)
        pthread_mutex_unlock(&run->backend->group->lock);
}

static struct cuda_steps *steps_of(const struct rank_run *run) { return &run->backend->group->steps; }

/* Returns the rank's place in its group. */
static int place_of(const struct rank_run *run) { return steps_of(run)->n > 1 ? run->world.rank : 0; }

/* Returns the data to read. A rank that is the group's only one may not have opened data that it does not read. */
static const struct data *read_of(struct rank_run *run, const struct data *data) {
    return steps_of(run)->n > 1 || rank_reads(run) ? data : NULL;
}

static void feed(struct rank_run *run, int64_t step) {
    struct cuda_steps *steps = steps_of(run);
    for (int r = 0; r < steps->n && read_of(run, run->data); r++)
        cuda_feed(&steps->replay[r], step, 0, run->data, steps->origin);
}

static void await_ranks(struct rank_run *run, int64_t step) {
    for (int r = 0; r < steps_of(run)->n; r++)
        cuda_wait(run, steps_of(run)->rank[r].result.came[step % 2]);
}

/* ---- at the start ---- */

extern "C" void backend_begin(struct rank_run *run) {
    char why[1000];
    lock(run);
    bool ok = cuda_begin(run->replay, &run->start, why, sizeof why);
    unlock(run);
    if (!ok)
        rank_error(run->self, why);
}

bool cuda_take_mirror(struct rank_run *run) {
    const struct rt_rank *k = &run->program.rank[run->world.rank];
    int copies = 1 + count_moments(run->program.model->optimizer); /* copies of a weight: itself and its moments */
    int64_t most = 0;
    for (int h = 0; h < k->nhomes; h++)
        most = k->home[h].owned > most ? k->home[h].owned : most;
    return (run->backend->mirror = (float *)malloc((size_t)copies * (size_t)most * sizeof(float) + 1));
}

int64_t cuda_free_memory(void) {
    size_t now, all;
    CUDA(cudaMemGetInfo(&now, &all));
    return (int64_t)now;
}

/* ---- steps ---- */

/* Enqueues a step. One stream carries all steps: a step's microbatches, the step, and the copy of its losses, then the
 * next step's. So the device's only buffer for microbatches is overwritten only after the previous step has ended. Two
 * buffers each on the host, for microbatches and losses, are enough: a step is enqueued when the one two before it has
 * ended. */
static void launch(struct rank_run *run, int64_t step, const void *) {
    struct cuda_group *group = run->backend->group;
    struct cuda_steps *steps = &group->steps;
    assert(group->enqueued - group->ended < (group->ended > 0 ? 2 : 1));
    if (group->enqueued == 0) {
        for (int r = 0; r < steps->n; r++)
            cuda_store(steps->rank[r].counted, &step, sizeof step); /* steps of earlier runs count */
        feed(run, step);
        steps->data = read_of(run, run->data);
        group->since = seconds();
    }
    steps_run(steps, step, rank_keeps(run, step));
    group->enqueued++;
    feed(run, step + 1); /* prepared while this step runs */
}

extern const bool backend_leads = true;
extern "C" void backend_enqueue(struct rank_run *run, int64_t step) {
    for_group(run, launch, step, NULL);
    run->backend->came = run->backend->rank->result.came[step % 2];
}

static void await_step(struct rank_run *run, int64_t step, const void *) {
    struct cuda_group *group = run->backend->group;
    await_ranks(run, step);
    if (group->ended++ == 0)
        run->backend->free[3] = cuda_free_memory();
}

static void take_losses(const struct rank_run *run, int64_t step, float *loss) {
    memcpy(loss, run->backend->rank->result.told[step % 2], sizeof *loss * (size_t)run->program.batches);
}

extern "C" void backend_wait(struct rank_run *run, int64_t step, float *loss, double *when) {
    for_group(run, await_step, step, NULL);
    take_losses(run, step, loss);
    if (!when)
        return;
    lock(run);
    steps_when(steps_of(run), step, place_of(run), when);
    unlock(run);
    for (int32_t k = 0; k < rank_updates(run); k++)
        when[k] += run->backend->group->since;
}

extern "C" const uint64_t *backend_found(struct rank_run *run) { return run->backend->rank->result.found; }

static void launch_again(struct rank_run *run, int64_t step, const void *) {
    steps_again(steps_of(run), step, rank_keeps(run, step), read_of(run, run->data));
    feed(run, step + 1); /* launch had sent them before */
    run->backend->group->ended--;
}

extern "C" void backend_again(struct rank_run *run, int64_t step, float *loss, double *when) {
    for_group(run, launch_again, step, NULL);
    backend_wait(run, step, loss, when);
}

static int64_t next_of(const struct rank_run *run) { return run->from + run->backend->group->enqueued; }

static void settle(struct rank_run *run, int64_t next, const void *) {
    struct cuda_steps *steps = steps_of(run);
    steps_beside(steps, SETTLES, next, 0, NULL);
    await_ranks(run, next);
    for (int r = 0; r < steps->n; r++) /* this is the last step's norm */
        memcpy(steps->rank[r].result.norm[(next + 1) % 2], steps->rank[r].result.norm[next % 2], NORM_BYTES);
}

extern "C" const uint64_t *backend_settle(struct rank_run *run) {
    int64_t next = next_of(run);
    for_group(run, settle, next, NULL);
    return run->backend->rank->result.norm[next % 2];
}

static void validate(struct rank_run *run, int64_t step, const void *) {
    int64_t next = next_of(run);
    steps_beside(steps_of(run), VALIDATES, next, step, read_of(run, run->held_out));
    if (step == run->held_steps - 1)
        feed(run, next); /* launch had sent them before */
    await_ranks(run, next);
}

extern "C" void backend_validate(struct rank_run *run, int64_t step, float *loss) {
    for_group(run, validate, step, NULL);
    take_losses(run, next_of(run), loss);
}

extern "C" double backend_waited(struct rank_run *run) {
    (void)run;
    return NAN;
}

extern "C" double backend_norm(struct rank_run *run, int64_t step) {
    const struct cuda_rank *own = run->backend->rank;
    return own->result.norm_at < 0 ? NAN : norm_value(own->result.norm[step % 2]);
}

extern "C" struct rt_stamp backend_span(struct rank_run *run, int64_t step) {
    const struct cuda_steps *steps = steps_of(run);
    float took;
    CUDA(cudaEventElapsedTime(&took, steps->begin[step % 2], steps->end[step % 2]));
    struct rt_stamp span = {0, 1e-3 * (double)took, NAN};
    return span;
}

extern "C" struct rt_routed backend_routed(struct rank_run *run) {
    struct rt_routed routed;
    lock(run);
    CUDA(cudaMemcpy(&routed, run->backend->rank->routed, sizeof routed, cudaMemcpyDeviceToHost));
    unlock(run);
    return routed;
}

/* Returns times in seconds of the device's clock, which is set to the host's clock when the first step begins. At that
 * time the device still has to copy that step's microbatches. So all times are too early by the same amount, that copy
 * and a launch. Later the two clocks drift apart. */
extern "C" void backend_times(struct rank_run *run, int64_t step, struct rt_stamp *stamp) {
    struct cuda_steps *steps = steps_of(run);
    lock(run);
    steps_times(steps, step, place_of(run), stamp);
    unlock(run);
    for (int32_t i = 0; i < run->program.rank[run->world.rank].nins; i++) {
        stamp[i].start += run->backend->group->since;
        stamp[i].end += run->backend->group->since;
        stamp[i].cpu = NAN;
    }
}

/* ---- state ---- */

extern "C" struct checkpoint_shard backend_pull(struct rank_run *run, const struct rt_home *home) {
    lock(run);
    struct checkpoint_shard shard = cuda_pull(run->replay, home, run->backend->mirror);
    unlock(run);
    return shard;
}

extern "C" void backend_push(struct rank_run *run, const struct rt_home *home, const float *weight,
                             const float *moments) {
    lock(run);
    cuda_push(run->replay, home, weight, moments);
    unlock(run);
}
