/* Passes of all ranks that share a thread and its device, each as one piece of work on a stream: it forks to every
 * lane, is replayed, and joins. A step has one pass, or one per repetition of its period plus two. The first step is
 * enqueued lane by lane, which creates whatever is created on first use. Then, if a graph is wanted, each section is
 * captured once and launched from then on. */
#include "device_cuda.cuh"
#include "store/seconds.h"
#include <stdlib.h>

static const struct rt_rank *rank_streams(const struct cuda_steps *steps, int r) {
    const struct replay *re = &steps->replay[r];
    return &re->program->rank[re->rank];
}

bool steps_open(struct cuda_steps *steps) {
    for (int r = 0; r < steps->n; r++)
        steps->joins += rank_streams(steps, r)->nlanes;
    steps->join = (cudaEvent_t *)calloc((size_t)steps->joins + 1, sizeof *steps->join);
    for (int i = 0; i < 2; i++)
        steps->ended[i] = (double *)calloc((size_t)passes_of(steps->replay->program), sizeof *steps->ended[i]);
    if (!steps->join || !steps->ended[0] || !steps->ended[1])
        return false;
    CUDA(cudaStreamCreateWithFlags(&steps->origin, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&steps->fork, cudaEventDisableTiming));
    for (int i = 0; i < steps->joins; i++)
        CUDA(cudaEventCreateWithFlags(&steps->join[i], cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaEventCreateWithFlags(&steps->begin[i], cudaEventDefault));
        CUDA(cudaEventCreateWithFlags(&steps->end[i], cudaEventDefault));
        CUDA(cudaEventCreateWithFlags(&steps->passed[i], cudaEventDefault));
    }
    return true;
}

static const struct rt_program *program_of(const struct cuda_steps *steps) { return steps->replay->program; }

/* Counts a pass on the device. When the period repeats, the progress of each lane starts again from 0. */
static void count_in_section(struct cuda_steps *steps, int r, int section) {
    const struct rt_program *p = program_of(steps);
    const struct rt_rank *k = rank_streams(steps, r);
    const struct cuda_rank *rank = &steps->rank[r];
    const struct replay *re = &steps->replay[r];
    if (re->purpose != TRAINS) {
        for (int l = 0; rank->reached && l <= k->nlanes; l++)
            cuda_write_word(steps->origin, &rank->reached[l],
                            (uint32_t)(l < k->nlanes ? re->cursor[l] - k->lane_at[l] : re->passes));
        return;
    }
    enum cuda_pass pass = section == PERIOD                           ? PASS_REPEATS
                          : section == BEHIND_PERIOD && p->period > 0 ? PASS_ENDS
                                                                      : PASS_BEGINS;
    for (int l = 0; rank->reached && pass == PASS_REPEATS && l < k->nlanes; l++)
        cuda_write_word(steps->origin, &rank->reached[l], (uint32_t)(re->cursor[l] - k->lane_at[l]));
    cuda_count(rank->counted, pass, passes_of(p), rank->reached, rank->reached ? k->nlanes + 1 : 0, steps->origin);
}

static void enqueue_pass(struct cuda_steps *steps, int64_t pass, enum cuda_timed timed, bool captured) {
    int left = steps->n, j = 0, section = section_at(program_of(steps), pass);
    for (int r = 0; r < steps->n; r++) {
        steps->rank[r].timed = timed;
        steps->rank[r].captured = captured;
        steps->rank[r].turned = false;
        replay_begin(&steps->replay[r], pass);
        steps->replay[r].turn = steps->turn[section]; /* captures count too */
    }
    steps->turn[section]++;
    for (int r = 0; r < steps->n; r++)
        count_in_section(steps, r, section);
    CUDA(cudaEventRecord(steps->fork, steps->origin));
    for (int r = 0; r < steps->n; r++)
        for (int l = 0; l < rank_streams(steps, r)->nlanes; l++)
            CUDA(cudaStreamWaitEvent(steps->rank[r].lane[l], steps->fork, 0));
    while (left > 0) {
        left = 0;
        for (int r = 0; r < steps->n; r++)
            left += !replay_run(&steps->replay[r]);
    }
    for (int r = 0; r < steps->n; r++)
        for (int l = 0; l < rank_streams(steps, r)->nlanes; l++, j++) {
            CUDA(cudaEventRecord(steps->join[j], steps->rank[r].lane[l]));
            CUDA(cudaStreamWaitEvent(steps->origin, steps->join[j], 0));
        }
}

static cudaGraphExec_t capture(struct cuda_steps *steps, int64_t pass, enum cuda_timed timed) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(steps->origin, cudaStreamCaptureModeThreadLocal));
    enqueue_pass(steps, pass, timed, true);
    CUDA(cudaStreamEndCapture(steps->origin, &graph));
    /* With this flag, kernels have the priority of the stream they were captured on (cuda_runtime_api.h, on
     * cudaGraphInstantiate). Without it, all have the priority of the stream they are launched on. */
    CUDA(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* Captures each section, from one pass of it; for the period, from the first. */
static void capture_all(struct cuda_steps *steps) {
    const struct rt_program *p = program_of(steps);
    int64_t last = passes_of(p) - 1;
    for (int64_t pass = 0; pass <= last; pass = pass == 1 && last > 1 ? last : pass + 1) {
        int section = section_at(p, pass);
        steps->exec[section] = steps->timing == TIME_ALL ? NULL : capture(steps, pass, UNTIMED);
        steps->timed[section] = steps->timing == TIME_NONE ? NULL : capture(steps, pass, TIMED_CAPTURE);
    }
}

/* Reads the ends of passes that are over, before their events are recorded anew. */
static void note_ends(struct cuda_steps *steps, int64_t until) {
    int64_t passes = passes_of(program_of(steps));
    float since;
    for (; steps->noted < until; steps->noted++) {
        int turn = (int)((steps->first + steps->noted / passes) % 2);
        CUDA(cudaEventElapsedTime(&since, steps->begin[turn], steps->passed[steps->noted % 2]));
        steps->ended[turn][steps->noted % passes] = 1e-3 * since;
    }
}

static void await(const struct cuda_steps *steps, cudaEvent_t event) {
    if (steps->wait)
        steps->wait(steps->context, event);
    else
        CUDA(cudaEventSynchronize(event));
}

/* Waits until the pass before the previous one has ended, so that one of the two places for microbatches is free. */
static void keep_pace(struct cuda_steps *steps, int64_t pass) {
    int64_t before = steps->run * passes_of(program_of(steps)) + pass; /* passes so far */
    if (before < 2)
        return;
    double asked = seconds();
    await(steps, steps->passed[before % 2]);
    steps->busy -= steps->run > 1 ? seconds() - asked : 0;
    note_ends(steps, before - 1);
}

static void run_pass(struct cuda_steps *steps, int64_t step, int64_t pass, bool timed) {
    int section = section_at(program_of(steps), pass);
    bool several = program_of(steps)->period > 0;
    if (several)
        keep_pace(steps, pass);
    for (int r = 0; r < steps->n && pass > 0 && steps->data; r++)
        cuda_feed(&steps->replay[r], step, pass, steps->data, steps->origin);
    if (pass == 0)
        CUDA(cudaEventRecord(steps->begin[step % 2], steps->origin));
    cudaGraphExec_t graph = (timed ? steps->timed : steps->exec)[section];
    if (graph)
        CUDA(cudaGraphLaunch(graph, steps->origin));
    else
        enqueue_pass(steps, pass, timed ? TIMED : UNTIMED, false);
    if (several)
        CUDA(cudaEventRecord(steps->passed[(steps->run * passes_of(program_of(steps)) + pass) % 2], steps->origin));
}

/* Saves the routed totals before a step, or restores them: with post-validation, a step may be discarded. */
static void keep_routed(const struct cuda_rank *rank, bool back, cudaStream_t stream) {
    CUDA(cudaMemcpyAsync(rank->routed + !back, rank->routed + back, sizeof *rank->routed, cudaMemcpyDeviceToDevice,
                         stream));
}

void steps_again(struct cuda_steps *steps, int64_t step, bool timed, const struct data *data) {
    for (int r = 0; r < steps->n; r++) {
        cuda_store(steps->rank[r].counted, &step, sizeof step);
        keep_routed(&steps->rank[r], true, steps->origin);
        if (data)
            cuda_feed(&steps->replay[r], step, 0, data, steps->origin);
    }
    steps_run(steps, step, timed);
}

void steps_run(struct cuda_steps *steps, int64_t step, bool timed) {
    double begin = seconds();
    int64_t passes = passes_of(program_of(steps));
    steps->first = steps->run == 0 ? step : steps->first;
    for (int r = 0; r < steps->n; r++) {
        steps->replay[r].step = step;
        if (program_of(steps)->model->post_validation)
            keep_routed(&steps->rank[r], false, steps->origin);
    }
    if (steps->graph && steps->run == 1)
        capture_all(steps);
    for (int64_t pass = 0; pass < passes; pass++) {
        run_pass(steps, step, pass, timed);
        if (pass == passes - 1)
            CUDA(cudaEventRecord(steps->end[step % 2], steps->origin));
        for (int r = 0; r < steps->n; r++)
            cuda_tell(&steps->replay[r], pass, steps->origin);
    }
    steps->busy += steps->run > 1 ? seconds() - begin : 0;
    steps->run++;
}

void steps_beside(struct cuda_steps *steps, enum purpose purpose, int64_t next, int64_t step, const struct data *data) {
    int64_t passes = passes_of(program_of(steps));
    if (passes > 1) /* since the events of passes are about to be recorded anew */
        note_ends(steps, steps->run * passes);
    for (int r = 0; r < steps->n; r++) {
        steps->replay[r].purpose = purpose;
        steps->replay[r].step = next;
    }
    for (int64_t pass = 0; pass < passes; pass++) {
        if (pass >= 2)
            await(steps, steps->passed[pass % 2]);
        for (int r = 0; r < steps->n && data; r++)
            cuda_feed(&steps->replay[r], step, pass, data, steps->origin);
        enqueue_pass(steps, pass, UNTIMED, false);
        CUDA(cudaEventRecord(steps->passed[pass % 2], steps->origin));
        for (int r = 0; r < steps->n; r++)
            cuda_tell(&steps->replay[r], pass, steps->origin);
    }
    for (int r = 0; r < steps->n; r++)
        steps->replay[r].purpose = TRAINS;
}

/* Returns when the step began, in seconds since the first step with times requested. */
static double began(struct cuda_steps *steps, int64_t step) {
    float since = 0;
    if (steps->asked == step + 1)
        return steps->at;
    if (steps->asked)
        CUDA(cudaEventElapsedTime(&since, steps->begin[(step + 1) % 2], steps->begin[step % 2]));
    steps->asked = step + 1;
    return steps->at += 1e-3 * since;
}

/* Reads a step's times. Events give milliseconds as floats with 24 bits, enough to resolve a microsecond in a step of
 * ten seconds. Steps are chained by their begin events, so the device's clock times them all, and times stay precise in
 * long runs. The cost is two calls of the runtime per instruction between steps, while the device idles, and two events
 * inside a step. */
void steps_times(struct cuda_steps *steps, int64_t step, int rank, struct rt_stamp *stamp) {
    double at = began(steps, step);
    cuda_stamps(&steps->rank[rank], rank_streams(steps, rank), steps->begin[step % 2], at, stamp);
}

void steps_when(struct cuda_steps *steps, int64_t step, int rank, double *when) {
    const struct rt_program *p = program_of(steps);
    const struct rt_rank *k = rank_streams(steps, rank);
    double at = began(steps, step), *ended = steps->ended[step % 2];
    int64_t passes = passes_of(p);
    float since;
    if (passes > 1)
        note_ends(steps, (step - steps->first + 1) * passes);
    CUDA(cudaEventElapsedTime(&since, steps->begin[step % 2], steps->end[step % 2]));
    ended[passes - 1] = 1e-3 * since;
    struct replay re = steps->replay[rank];
    for (int64_t pass = 0; pass < passes; pass++) {
        re.repetition = repetition_at(p, pass);
        for (int32_t i = begin_of(k, section_at(p, pass)); i < begin_of(k, section_at(p, pass) + 1); i++)
            if (k->ins[i].op == OP_U && k->ins[i].stage == p->updated)
                when[update_of(&re, &k->ins[i])] = at + ended[pass];
    }
}

void steps_close(struct cuda_steps *steps) {
    for (int s = 0; s < NSECTIONS; s++) {
        if (steps->exec[s])
            cudaGraphExecDestroy(steps->exec[s]);
        if (steps->timed[s])
            cudaGraphExecDestroy(steps->timed[s]);
    }
    for (int i = 0; i < steps->joins; i++)
        cudaEventDestroy(steps->join[i]);
    for (int i = 0; i < 2; i++) {
        cudaEventDestroy(steps->begin[i]);
        cudaEventDestroy(steps->end[i]);
        cudaEventDestroy(steps->passed[i]);
        free(steps->ended[i]);
    }
    cudaEventDestroy(steps->fork);
    cudaStreamDestroy(steps->origin);
    free(steps->join);
}
