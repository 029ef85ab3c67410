/* Rules of captures, graphs, streams and events. */
#include "rules.h"
#include <pthread.h>

/* x is filled on one stream, and added to y on another and back; events fork and join the streams. */
struct diamond {
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    float *x, *y;
};
static diamond make(void) { return {new_stream(), new_stream(), new_event(), new_event(), floats(64), floats(64)}; }
static void issue(const diamond &d) {
    fill_on(d.a, d.x, 64, 3);
    OK(cudaEventRecord(d.fork, d.a));
    OK(cudaStreamWaitEvent(d.b, d.fork, 0));
    add_on(d.b, d.y, d.x, 64);
    OK(cudaEventRecord(d.join, d.b));
    OK(cudaStreamWaitEvent(d.a, d.join, 0));
    add_on(d.a, d.y, d.y, 64);
}
static cudaGraphExec_t graph_of(const diamond &d) {
    cudaGraph_t g;
    cudaGraphExec_t e;
    OK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal));
    issue(d);
    OK(cudaStreamEndCapture(d.a, &g));
    OK(cudaGraphInstantiate(&e, g, 0));
    OK(cudaGraphDestroy(g));
    return e;
}

static void eager(void) {
    diamond d = make();
    issue(d);
    OK(cudaStreamSynchronize(d.a));
    MUST(read(d.y + 63) == 6);
}
static void graphs(void) {
    diamond d = make();
    cudaGraphExec_t e = graph_of(d);
    MUST(read(d.y) == 0);
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(e, d.a));
    OK(cudaStreamSynchronize(d.a));
    MUST(read(d.y) == 42);
    OK(cudaGraphExecDestroy(e));
    OK(cudaFree(d.x));
    OK(cudaStreamDestroy(d.b));
}
static void queried(void) {
    diamond d = make();
    int asked = 0;
    issue(d);
    OK(cudaEventRecord(d.join, d.a));
    while (cudaEventQuery(d.join) == cudaErrorNotReady)
        asked++;
    MUST(asked < 10 && read(d.y) == 6);
}
static void external(void) {
    diamond d = make();
    cudaEvent_t t[2];
    cudaGraph_t g;
    cudaGraphExec_t e;
    float ms;
    OK(cudaEventCreate(&t[0]));
    OK(cudaEventCreate(&t[1]));
    OK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecordWithFlags(t[0], d.a, cudaEventRecordExternal));
    issue(d);
    OK(cudaEventRecordWithFlags(t[1], d.a, cudaEventRecordExternal));
    OK(cudaStreamEndCapture(d.a, &g));
    OK(cudaGraphInstantiate(&e, g, 0));
    OK(cudaGraphLaunch(e, d.a));
    OK(cudaEventSynchronize(t[1]));
    OK(cudaEventElapsedTime(&ms, t[0], t[1]));
    MUST(ms > 0);
}

static diamond begun(void) {
    diamond d = make();
    OK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal));
    return d;
}
static void end(const diamond &d) {
    cudaGraph_t g;
    OK(cudaStreamEndCapture(d.a, &g));
}

/* A graph awaits a word on one of three streams, each a branch; chained: another graph follows. */
static void awaits(int streams, bool chained) {
    diamond d = make();
    cudaStream_t side[3] = {d.a, d.b, new_stream()};
    cudaGraph_t g;
    cudaGraphExec_t e;
    CUdeviceptr word = (CUdeviceptr)floats(1);
    float *p[3] = {d.x, d.y, floats(64)};
    OK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(d.fork, d.a));
    for (int i = 0; i < streams; i++) {
        OK(cudaStreamWaitEvent(side[i], d.fork, 0));
        if (i == 1)
            OK(cuStreamWaitValue32(side[i], word, 0, CU_STREAM_WAIT_VALUE_EQ));
        if (i == 2 && chained)
            OK(cudaStreamWaitEvent(side[i], d.join, 0));
        fill_on(side[i], p[i], 64, 1);
        OK(cudaEventRecord(d.join, side[i]));
        OK(cudaStreamWaitEvent(d.a, d.join, 0));
    }
    fill_on(d.a, d.x, 64, 2);
    OK(cudaStreamEndCapture(d.a, &g));
    OK(cudaGraphInstantiate(&e, g, 0));
    OK(cudaGraphLaunch(e, d.a));
    OK(cudaStreamSynchronize(d.a));
}
static void awaits_on_two(void) { awaits(2, false); }
static void awaits_chained(void) { awaits(3, true); }
static void awaits_on_three(void) { awaits(3, false); }
static void priority_lost(void) {
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t e;
    float *p = floats(64);
    OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -5));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    fill_on(s, p, 64, 1);
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&e, g, cudaGraphInstantiateFlagUseNodePriority));
    OK(cudaGraphInstantiate(&e, g, 0));
}
static void outside_waits_inside(void) {
    diamond d = begun();
    OK(cudaEventRecord(d.fork, d.a));
    end(d);
    OK(cudaStreamWaitEvent(d.b, d.fork, 0));
}
static void inside_waits_outside(void) {
    diamond d = make();
    OK(cudaEventRecord(d.fork, d.b));
    OK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamWaitEvent(d.a, d.fork, 0));
}
static void unjoined(void) {
    diamond d = begun();
    OK(cudaEventRecord(d.fork, d.a));
    OK(cudaStreamWaitEvent(d.b, d.fork, 0));
    fill_on(d.b, d.x, 64, 1);
    end(d);
}
static void merge(void) {
    diamond d = begun();
    OK(cudaStreamBeginCapture(d.b, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(d.fork, d.b));
    OK(cudaStreamWaitEvent(d.a, d.fork, 0));
}
static void synchronises(void) { OK((begun(), cudaDeviceSynchronize())); }
static void synchronises_stream(void) { OK(cudaStreamSynchronize(begun().b)); }
static void queries(void) { OK(cudaStreamQuery(begun().b)); }
static void queries_event(void) { OK(cudaEventQuery(begun().fork)); }
static void allocates(void) { begun(), floats(1); }
static void frees(void) { OK(cudaFree(begun().x)); }
static void copies(void) {
    float x = 0;
    OK(cudaMemcpy(begun().x, &x, 4, cudaMemcpyHostToDevice));
}
static void legacy(void) { fill_on(nullptr, begun().x, 64, 1); }
static void *ask(void *s) { return (void)cudaStreamQuery((cudaStream_t)s), nullptr; }
static void watched(bool global) {
    diamond d = make();
    pthread_t t;
    OK(cudaStreamBeginCapture(d.a, global ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeThreadLocal));
    pthread_create(&t, nullptr, ask, d.b);
    pthread_join(t, nullptr);
    end(d);
}
static void watched_global(void) { watched(true); }
static void watched_local(void) { watched(false); }
static void *finish(void *d) { return end(*(diamond *)d), nullptr; }
static void other_thread_ends(void) {
    diamond d = begun();
    pthread_t t;
    pthread_create(&t, nullptr, finish, &d);
    pthread_join(t, nullptr);
}
static void other_stream_ends(void) {
    diamond d = begun();
    cudaGraph_t g;
    OK(cudaEventRecord(d.fork, d.a));
    OK(cudaStreamWaitEvent(d.b, d.fork, 0));
    OK(cudaStreamEndCapture(d.b, &g));
}
static void overlaps_itself(void) {
    diamond d = make();
    cudaGraphExec_t e = graph_of(d);
    OK(cudaGraphLaunch(e, d.a));
    OK(cudaGraphLaunch(e, d.b));
    OK(cudaDeviceSynchronize());
}
static void graph_destroyed_in_flight(void) {
    diamond d = make();
    cudaGraphExec_t e = graph_of(d);
    uint32_t *word = (uint32_t *)floats(1);
    OK(cuStreamWaitValue32(d.a, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cudaGraphLaunch(e, d.a));
    OK(cudaGraphExecDestroy(e));
}
static void destroyed_with_work(void) {
    diamond d = make();
    uint32_t *word = (uint32_t *)floats(1);
    OK(cuStreamWaitValue32(d.a, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cudaStreamDestroy(d.a));
}
static void elapsed(bool captured) {
    diamond d = make();
    cudaEvent_t t;
    float ms;
    OK(cudaEventCreate(&t));
    OK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecordWithFlags(t, d.a, captured ? cudaEventRecordDefault : cudaEventRecordExternal));
    end(d);
    OK(cudaEventElapsedTime(&ms, t, t));
}
static void elapsed_of_captured(void) { elapsed(true); }
static void elapsed_before_launch(void) { elapsed(false); }
static void external_outside(void) {
    diamond d = make();
    OK(cudaEventRecordWithFlags(d.fork, d.a, cudaEventRecordExternal));
}

const rule capture_rules[] = {
    {"eager", nullptr, eager},
    {"graphs", nullptr, graphs},
    {"queried", nullptr, queried},
    {"external", nullptr, external},
    {"watched_local", nullptr, watched_local},
    {"awaits_on_two", nullptr, awaits_on_two},
    {"awaits_chained", nullptr, awaits_chained},
    {"awaits_on_three", "QUEUE: a graph of 3 branches: what awaits the word at", awaits_on_three},
    {"priority_lost", "GRAPH: cudaGraphInstantiate without", priority_lost},
    {"outside_waits_inside", "CAPTURE: stream 1 of device 0 waits for event", outside_waits_inside},
    {"inside_waits_outside", "which was not recorded in the capture: isolation", inside_waits_outside},
    {"unjoined", "CAPTURE: unjoined: kernel fill", unjoined},
    {"merge", "they would merge", merge},
    {"synchronises", "CAPTURE: cudaDeviceSynchronize while", synchronises},
    {"synchronises_stream", "CAPTURE: cudaStreamSynchronize while", synchronises_stream},
    {"queries", "CAPTURE: cudaStreamQuery while", queries},
    {"queries_event", "CAPTURE: cudaEventQuery while", queries_event},
    {"allocates", "CAPTURE: cudaMalloc while", allocates},
    {"frees", "CAPTURE: cudaFree while", frees},
    {"copies", "CAPTURE: cudaMemcpy while", copies},
    {"legacy", "CAPTURE: kernel fill on the legacy stream", legacy},
    {"watched_global", "by another thread, in the global mode", watched_global},
    {"other_thread_ends", "by another thread than the one that began", other_thread_ends},
    {"other_stream_ends", "CAPTURE: unmatched", other_stream_ends},
    {"overlaps_itself", "it would overlap itself", overlaps_itself},
    {"graph_destroyed_in_flight", "GRAPH: cudaGraphExecDestroy", graph_destroyed_in_flight},
    {"destroyed_with_work", "which still has work", destroyed_with_work},
    {"elapsed_of_captured", "which was recorded in a capture", elapsed_of_captured},
    {"elapsed_before_launch", "of an event that was never recorded", elapsed_before_launch},
    {"external_outside", "CAPTURE: cudaEventRecordExternal", external_outside},
    {nullptr, nullptr, nullptr},
};
