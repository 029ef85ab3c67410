/* A step of all ranks that share a thread and its device, as one piece of work on a stream: forked to every lane,
 * replayed, joined. Enqueued lane by lane first, which makes whatever comes into being with its first use; then, where
 * a graph is wanted, captured once and launched. */
#include "device_cuda.cuh"
#include "store/seconds.h"
#include <stdlib.h>

static const struct rt_rank *stream_of(const struct cuda_steps *s, int r) {
    const struct replay *re = &s->replay[r];
    return &re->program->rank[re->rank];
}

bool steps_open(struct cuda_steps *s) {
    for (int r = 0; r < s->n; r++)
        s->joins += stream_of(s, r)->nlanes;
    s->join = (cudaEvent_t *)calloc((size_t)s->joins + 1, sizeof *s->join);
    if (!s->join)
        return false;
    CUDA(cudaStreamCreateWithFlags(&s->origin, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&s->fork, cudaEventDisableTiming));
    for (int i = 0; i < s->joins; i++)
        CUDA(cudaEventCreateWithFlags(&s->join[i], cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaEventCreateWithFlags(&s->begin[i], cudaEventDefault));
        CUDA(cudaEventCreateWithFlags(&s->end[i], cudaEventDefault));
    }
    return true;
}

static void enqueue(struct cuda_steps *s, enum cuda_timed timed) {
    int left = s->n, j = 0;
    for (int r = 0; r < s->n; r++)
        s->rank[r].timed = timed;
    for (int r = 0; r < s->n; r++)
        cuda_count(s->rank[r].step, s->origin);
    CUDA(cudaEventRecord(s->fork, s->origin));
    for (int r = 0; r < s->n; r++)
        for (int l = 0; l < stream_of(s, r)->nlanes; l++)
            CUDA(cudaStreamWaitEvent(s->rank[r].lane[l], s->fork, 0));
    for (int r = 0; r < s->n; r++)
        replay_begin(&s->replay[r]);
    while (left > 0) {
        left = 0;
        for (int r = 0; r < s->n; r++)
            left += !replay_run(&s->replay[r]);
    }
    for (int r = 0; r < s->n; r++)
        for (int l = 0; l < stream_of(s, r)->nlanes; l++, j++) {
            CUDA(cudaEventRecord(s->join[j], s->rank[r].lane[l]));
            CUDA(cudaStreamWaitEvent(s->origin, s->join[j], 0));
        }
}

static cudaGraphExec_t capture(struct cuda_steps *s, int64_t step, enum cuda_timed timed) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int r = 0; r < s->n; r++)
        s->replay[r].step = step;
    CUDA(cudaStreamBeginCapture(s->origin, cudaStreamCaptureModeThreadLocal));
    enqueue(s, timed);
    CUDA(cudaStreamEndCapture(s->origin, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

void steps_run(struct cuda_steps *s, int64_t step, bool timed) {
    int turn = (int)(step % 2);
    double begin = seconds();
    if (s->graph && s->run == 1) { /* loopback counts steps by how often they were enqueued */
        s->exec = s->timing == TIME_ALL ? NULL : capture(s, step, UNTIMED);
        s->timed = s->timing == TIME_NONE ? NULL : capture(s, step + (s->exec != NULL), TIMED_CAPTURE);
    }
    for (int r = 0; r < s->n; r++)
        s->replay[r].step = step;
    CUDA(cudaEventRecord(s->begin[turn], s->origin));
    if (timed ? s->timed : s->exec)
        CUDA(cudaGraphLaunch(timed ? s->timed : s->exec, s->origin));
    else
        enqueue(s, timed ? TIMED : UNTIMED);
    CUDA(cudaEventRecord(s->end[turn], s->origin));
    s->busy += s->run > 1 ? seconds() - begin : 0;
    s->run++;
    for (int r = 0; r < s->n; r++)
        cuda_tell(&s->replay[r], s->origin);
}

/* Events give floats of milliseconds, 24 bits: within a step enough to tell a microsecond in ten seconds. Steps are
 * strung together by their begin events, so one clock, the device's, tells them all, and a long training makes it no
 * coarser. All of it costs two questions to the runtime for every instruction, between steps, while the
 * device idles; inside a step, two events. */
void steps_times(struct cuda_steps *s, int64_t step, struct rt_stamp *const *stamp) {
    cudaEvent_t begin = s->begin[step % 2];
    float since = 0;
    if (s->asked)
        CUDA(cudaEventElapsedTime(&since, s->begin[(step + 1) % 2], begin));
    s->asked = true;
    s->at += 1e-3 * since;
    for (int r = 0; r < s->n; r++)
        cuda_stamps(&s->rank[r], stream_of(s, r), begin, s->at, stamp[r]);
}

void steps_close(struct cuda_steps *s) {
    if (s->exec)
        cudaGraphExecDestroy(s->exec);
    if (s->timed)
        cudaGraphExecDestroy(s->timed);
    for (int i = 0; i < s->joins; i++)
        cudaEventDestroy(s->join[i]);
    for (int i = 0; i < 2; i++) {
        cudaEventDestroy(s->begin[i]);
        cudaEventDestroy(s->end[i]);
    }
    cudaEventDestroy(s->fork);
    cudaStreamDestroy(s->origin);
    free(s->join);
}
