/* A step of all ranks that share a thread and its device, as one piece of work on a stream: forked to every lane,
 * replayed, joined. The first is enqueued lane by lane, which creates whatever is created on first use; then, if a
 * graph is wanted, a step is captured once and launched from then on. */
#include "device_cuda.cuh"
#include "store/seconds.h"
#include <stdlib.h>

static const struct rt_rank *stream_of(const struct cuda_steps *steps, int r) {
    const struct replay *re = &steps->replay[r];
    return &re->program->rank[re->rank];
}

bool steps_open(struct cuda_steps *steps) {
    for (int r = 0; r < steps->n; r++)
        steps->joins += stream_of(steps, r)->nlanes;
    steps->join = (cudaEvent_t *)calloc((size_t)steps->joins + 1, sizeof *steps->join);
    if (!steps->join)
        return false;
    CUDA(cudaStreamCreateWithFlags(&steps->origin, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&steps->fork, cudaEventDisableTiming));
    for (int i = 0; i < steps->joins; i++)
        CUDA(cudaEventCreateWithFlags(&steps->join[i], cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaEventCreateWithFlags(&steps->begin[i], cudaEventDefault));
        CUDA(cudaEventCreateWithFlags(&steps->end[i], cudaEventDefault));
    }
    return true;
}

static void enqueue(struct cuda_steps *steps, enum cuda_timed timed, bool captured) {
    int left = steps->n, j = 0;
    for (int r = 0; r < steps->n; r++) {
        steps->rank[r].timed = timed;
        steps->rank[r].captured = captured;
        steps->rank[r].turned = false;
    }
    for (int r = 0; r < steps->n; r++)
        cuda_count(steps->rank[r].step, steps->rank[r].reached,
                   steps->rank[r].reached ? stream_of(steps, r)->nlanes + 1 : 0, steps->origin);
    CUDA(cudaEventRecord(steps->fork, steps->origin));
    for (int r = 0; r < steps->n; r++)
        for (int l = 0; l < stream_of(steps, r)->nlanes; l++)
            CUDA(cudaStreamWaitEvent(steps->rank[r].lane[l], steps->fork, 0));
    for (int r = 0; r < steps->n; r++)
        replay_begin(&steps->replay[r]);
    while (left > 0) {
        left = 0;
        for (int r = 0; r < steps->n; r++)
            left += !replay_run(&steps->replay[r]);
    }
    for (int r = 0; r < steps->n; r++)
        for (int l = 0; l < stream_of(steps, r)->nlanes; l++, j++) {
            CUDA(cudaEventRecord(steps->join[j], steps->rank[r].lane[l]));
            CUDA(cudaStreamWaitEvent(steps->origin, steps->join[j], 0));
        }
}

static cudaGraphExec_t capture(struct cuda_steps *steps, int64_t step, enum cuda_timed timed) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int r = 0; r < steps->n; r++)
        steps->replay[r].step = step;
    CUDA(cudaStreamBeginCapture(steps->origin, cudaStreamCaptureModeThreadLocal));
    enqueue(steps, timed, true);
    CUDA(cudaStreamEndCapture(steps->origin, &graph));
    /* Kernels have the priority of the stream they were captured on (cuda_runtime_api.h, on cudaGraphInstantiate),
     * which counts with this flag; without it all have that of the stream they are launched on. */
    CUDA(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

void steps_run(struct cuda_steps *steps, int64_t step, bool timed) {
    int turn = (int)(step % 2);
    double begin = seconds();
    if (steps->graph && steps->run == 1) { /* loopback counts steps by how often they were enqueued */
        steps->exec = steps->timing == TIME_ALL ? NULL : capture(steps, step, UNTIMED);
        steps->timed = steps->timing == TIME_NONE ? NULL : capture(steps, step + (steps->exec != NULL), TIMED_CAPTURE);
    }
    for (int r = 0; r < steps->n; r++)
        steps->replay[r].step = step;
    CUDA(cudaEventRecord(steps->begin[turn], steps->origin));
    if (timed ? steps->timed : steps->exec)
        CUDA(cudaGraphLaunch(timed ? steps->timed : steps->exec, steps->origin));
    else
        enqueue(steps, timed ? TIMED : UNTIMED, false);
    CUDA(cudaEventRecord(steps->end[turn], steps->origin));
    steps->busy += steps->run > 1 ? seconds() - begin : 0;
    steps->run++;
    for (int r = 0; r < steps->n; r++)
        cuda_tell(&steps->replay[r], steps->origin);
}

/* Events give milliseconds as floats, 24 bits: within a step enough to resolve a microsecond in ten seconds. Steps are
 * chained by their begin events, so one clock, the device's, times them all, and a long run makes it no coarser. The
 * cost is two calls of the runtime per instruction between steps, while the device idles, and two events inside a
 * step. */
void steps_times(struct cuda_steps *steps, int64_t step, struct rt_stamp *const *stamp) {
    cudaEvent_t begin = steps->begin[step % 2];
    float since = 0;
    if (steps->asked)
        CUDA(cudaEventElapsedTime(&since, steps->begin[(step + 1) % 2], begin));
    steps->asked = true;
    steps->at += 1e-3 * since;
    for (int r = 0; r < steps->n; r++)
        cuda_stamps(&steps->rank[r], stream_of(steps, r), begin, steps->at, stamp[r]);
}

void steps_close(struct cuda_steps *steps) {
    if (steps->exec)
        cudaGraphExecDestroy(steps->exec);
    if (steps->timed)
        cudaGraphExecDestroy(steps->timed);
    for (int i = 0; i < steps->joins; i++)
        cudaEventDestroy(steps->join[i]);
    for (int i = 0; i < 2; i++) {
        cudaEventDestroy(steps->begin[i]);
        cudaEventDestroy(steps->end[i]);
    }
    cudaEventDestroy(steps->fork);
    cudaStreamDestroy(steps->origin);
    free(steps->join);
}
