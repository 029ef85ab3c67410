/* Rules of NCCL between processes, with calls that do not block. */
#include "rules.h"
#include <csignal>
#include <cstdlib>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void settled(const seat *s) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress)
        OK(ncclCommGetAsyncError(s->comm, &state));
    OK(state);
}
static void ended(const seat *s) {
    while (cudaStreamQuery(s->stream) == cudaErrorNotReady)
        usleep(100);
}
static ncclComm_t begin(int ranks, int rank, ncclUniqueId id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    config.blocking = 0;
    MUST(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress);
    return comm;
}

static ncclUniqueId other; /* for tests that need a second communicator */
static int device_of_all = -1;

/* Runs ranks as processes. If one breaks a rule, so does the test. */
static void with_processes(int n, void (*run)(seat *)) {
    ncclUniqueId id;
    bool failed = false;
    OK(ncclGetUniqueId(&id));
    OK(ncclGetUniqueId(&other));
    for (int r = 0; r < n; r++)
        if (fork() == 0) {
            seat s = {r, n, nullptr, nullptr, nullptr};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            OK(cudaSetDevice(device_of_all < 0 ? r : device_of_all));
            s.comm = begin(n, r, id);
            settled(&s);
            s.stream = new_stream();
            s.x = floats(1024);
            fill_on(s.stream, s.x, 1024, (float)r);
            OK(cudaStreamSynchronize(s.stream));
            run(&s);
            exit(0);
        }
    for (int status; wait(&status) > 0; failed |= status != 0)
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
            abort(); /* kills the others */
    if (failed)
        exit(1);
}

static void give(const seat *s, int peer, size_t n = 64) {
    MUST(ncclSend(s->x, n, ncclFloat, peer, s->comm, s->stream) == ncclInProgress);
    settled(s);
}
static void take(const seat *s, int peer, size_t n = 64) {
    MUST(ncclRecv(s->x + 512, n, ncclFloat, peer, s->comm, s->stream) == ncclInProgress);
    settled(s);
}
static void turn(seat *s) {
    OK(ncclGroupStart());
    OK(ncclSend(s->x, 64, ncclFloat, (s->rank + 1) % s->ranks, s->comm, s->stream));
    OK(ncclRecv(s->x + 512, 64, ncclFloat, (s->rank + s->ranks - 1) % s->ranks, s->comm, s->stream));
    MUST(ncclGroupEnd() == ncclInProgress);
    settled(s);
}
static cudaGraphExec_t captured(seat *s, void (*issue)(seat *)) {
    cudaGraph_t g;
    cudaGraphExec_t e;
    OK(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    issue(s);
    OK(cudaStreamEndCapture(s->stream, &g));
    OK(cudaGraphInstantiate(&e, g, 0));
    OK(cudaGraphDestroy(g));
    return e;
}
static void finish(const seat *s) {
    MUST(ncclCommFinalize(s->comm) == ncclInProgress);
    settled(s);
    OK(ncclCommDestroy(s->comm));
}

/* ---- kept rules ---- */

static void ring(seat *s) {
    int before = (s->rank + s->ranks - 1) % s->ranks;
    turn(s);
    ended(s);
    MUST(read(s->x + 512) == (float)before);
    cudaGraphExec_t e = captured(s, turn);
    fill_on(s->stream, s->x, 64, (float)(10 * s->rank));
    OK(cudaGraphLaunch(e, s->stream));
    OK(cudaGraphLaunch(e, s->stream));
    ended(s);
    MUST(read(s->x + 512 + 63) == (float)(10 * before));
    OK(cudaGraphExecDestroy(e));
    finish(s);
}
static void done(const seat *s, ncclResult_t code) {
    MUST(code == ncclInProgress);
    settled(s);
}
/* Runs each collective twice, and in place if possible. */
static void collect(seat *s) {
    float *x = s->x, *mine = x + 16 * s->rank;
    done(s, ncclAllGather(mine, x, 16, ncclFloat, s->comm, s->stream));
    done(s, ncclAllGather(x + 64, x + 128, 16, ncclFloat, s->comm, s->stream));
    done(s, ncclReduceScatter(x, mine, 16, ncclFloat, ncclSum, s->comm, s->stream));
    done(s, ncclReduceScatter(x + 128, x + 256, 16, ncclFloat, ncclMax, s->comm, s->stream));
    done(s, ncclAllReduce(x + 512, x + 512, 8, ncclFloat, ncclSum, s->comm, s->stream));
    done(s, ncclAllReduce(x + 520, x + 528, 8, ncclFloat, ncclSum, s->comm, s->stream));
    done(s, ncclBroadcast(x + 536, x + 536, 8, ncclFloat, 2, s->comm, s->stream));
    done(s, ncclBroadcast(x + 544, x + 552, 8, ncclFloat, 2, s->comm, s->stream));
    OK(ncclGroupStart()); /* with several roots in one group */
    for (int root = 0; root < s->ranks; root++)
        OK(ncclReduce(x + 560 + root, s->rank == root ? x + 580 : nullptr, 1, ncclFloat, ncclSum, root, s->comm,
                      s->stream));
    done(s, ncclGroupEnd());
}
static void collectives(seat *s) {
    const float *x = s->x;
    collect(s);
    ended(s);
    MUST(read(x + 16 * s->rank) == (float)(4 * s->rank) && read(x + 128 + 63) == 3);
    MUST(read(x + 256 + 15) == (float)s->rank && read(x + 519) == 6 && read(x + 528) == 6);
    MUST(read(x + 536) == 2 && read(x + 559) == 2 && read(x + 580) == 6);
    fill_on(s->stream, s->x, 1024, (float)(10 * s->rank));
    cudaGraphExec_t e = captured(s, collect);
    OK(cudaGraphLaunch(e, s->stream));
    ended(s);
    MUST(read(x + 16 * s->rank) == (float)(40 * s->rank) && read(x + 519) == 60 && read(x + 580) == 60);
    OK(cudaGraphExecDestroy(e));
    finish(s);
}
/* Sums of floats are not in rank order: 0 + 2^24 + 1 - 2^24 would be 0. */
static void unordered(seat *s) {
    const float part[] = {0, 16777216, 1, -16777216};
    fill_on(s->stream, s->x, 4, part[s->rank]);
    done(s, ncclAllReduce(s->x, s->x + 8, 1, ncclFloat, ncclSum, s->comm, s->stream));
    ended(s);
    MUST(read(s->x + 8) == 1);
    finish(s);
}
static void waits_for_memory(seat *s) { /* a send lasts until its receive, so its data may not change */
    if (s->rank == 0) {
        give(s, 1);
        fill_on(s->stream, s->x, 64, 7);
        ended(s);
    } else {
        MUST(ncclRecv(s->x + 512, 64, ncclFloat, 0, s->comm, s->stream) == ncclInProgress);
        usleep(50000);
        settled(s);
        ended(s);
        MUST(read(s->x + 512) == 0);
    }
    finish(s);
}
static ncclResult_t error_of(const seat *s) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress || state == ncclSuccess) {
        (void)cudaStreamQuery(s->stream);
        OK(ncclCommGetAsyncError(s->comm, &state));
        usleep(1000);
    }
    return state;
}
static void peer_dies(seat *s) {
    turn(s);
    ended(s);
    if (s->rank == 0) {
        usleep(300000); /* long enough for the other rank to end its part, even on a loaded machine */
        _exit(0);
    }
    take(s, 0);
    MUST(error_of(s) == ncclRemoteError);
    OK(ncclCommAbort(s->comm));
    ended(s);
}
static void peer_aborts(seat *s) {
    turn(s);
    ended(s);
    if (s->rank == 1)
        MUST(ncclRecv(s->x + 512, 64, ncclFloat, 0, s->comm, s->stream) == ncclInProgress);
    else
        usleep(20000);
    if (s->rank == 1)
        MUST(error_of(s) == ncclRemoteError);
    OK(ncclCommAbort(s->comm));
}

static size_t taken(void) {
    size_t left, all;
    OK(cudaMemGetInfo(&left, &all));
    return all - left;
}
static void ring_buffers(seat *s) { /* a collective has two: from the previous rank and to the next one */
    size_t before = taken();
    done(s, ncclAllReduce(s->x, s->x + 512, 8, ncclFloat, ncclSum, s->comm, s->stream));
    done(s, ncclBroadcast(s->x, s->x, 8, ncclFloat, 0, s->comm, s->stream));
    ended(s);
    MUST(taken() - before == (size_t)32 * (12 << 20));
    finish(s);
}
static void buffers(seat *s) { /* 32 channels by default, each with 2 MiB to send and 10 MiB to receive */
    size_t before = taken();
    s->rank == 0 ? give(s, 1) : take(s, 0);
    ended(s);
    MUST(taken() - before == (size_t)32 * (s->rank == 0 ? 2 << 20 : 10 << 20));
    s->rank == 0 ? give(s, 1) : take(s, 0);
    ended(s);
    MUST(taken() - before == (size_t)32 * (s->rank == 0 ? 2 << 20 : 10 << 20));
    finish(s);
    MUST(taken() == before);
}

/* ---- broken rules ---- */

static void counts(seat *s) {
    s->rank == 0 ? give(s, 1, 4) : take(s, 0, 8);
    ended(s);
}
static void types(seat *s) {
    if (s->rank == 0)
        give(s, 1);
    else
        MUST(ncclRecv(s->x, 64, ncclInt32, 0, s->comm, s->stream) == ncclInProgress), settled(s);
    ended(s);
}
static void both_give(seat *s) {
    give(s, 1 - s->rank);
    take(s, 1 - s->rank);
    ended(s);
}
static void gathered_counts(seat *s) {
    done(s, ncclAllGather(s->x, s->x + 512, s->rank == 0 ? 8 : 16, ncclFloat, s->comm, s->stream));
    ended(s);
}
static void summed_otherwise(seat *s) {
    done(s, ncclAllReduce(s->x, s->x, 4, ncclFloat, s->rank == 0 ? ncclSum : ncclMax, s->comm, s->stream));
    ended(s);
}
static void kinds(seat *s) {
    done(s, s->rank == 0 ? ncclAllGather(s->x, s->x + 512, 8, ncclFloat, s->comm, s->stream)
                         : ncclReduce(s->x, s->x + 512, 8, ncclFloat, ncclSum, 0, s->comm, s->stream));
    ended(s);
}
static void nobody_gathers(seat *s) {
    turn(s);
    if (s->rank == 1)
        done(s, ncclAllGather(s->x, s->x + 512, 8, ncclFloat, s->comm, s->stream));
    ended(s);
    sleep(3); /* alive, but issues nothing */
}
static void nobody_gives(seat *s) {
    turn(s);
    if (s->rank == 1)
        take(s, 0);
    ended(s);
    sleep(3); /* alive, but issues nothing */
}
static void one_captured(seat *s) {
    turn(s);
    ended(s);
    if (s->rank == 0) {
        give(s, 1);
    } else {
        cudaGraphExec_t e = captured(s, [](seat *s) { take(s, 0); });
        OK(cudaGraphLaunch(e, s->stream));
    }
    ended(s);
}
static void unsettled(seat *s) {
    (void)ncclSend(s->x, 4, ncclFloat, 1 - s->rank, s->comm, s->stream);
    (void)ncclRecv(s->x + 8, 4, ncclFloat, 1 - s->rank, s->comm, s->stream);
}
static void unsettled_stream(seat *s) {
    (void)ncclSend(s->x, 4, ncclFloat, 1 - s->rank, s->comm, s->stream);
    fill_on(s->stream, s->x, 64, 7);
}
static void unsettled_capture(seat *s) {
    captured(s, [](seat *s) { (void)ncclSend(s->x, 4, ncclFloat, 1 - s->rank, s->comm, s->stream); });
}
static void unsettled_init(seat *s) {
    begin(2, s->rank, other);
    (void)ncclSend(s->x, 4, ncclFloat, 1, s->comm, s->stream);
}
static void unready(seat *s) {
    void *handle;
    if (s->rank == 0)
        OK(ncclCommRegister(begin(2, 0, other), s->x, 4096, &handle));
    sleep(1);
}
static void overlapping(seat *s) {
    OK(ncclGroupStart());
    OK(ncclRecv(s->x, 64, ncclFloat, 1 - s->rank, s->comm, s->stream));
    OK(ncclRecv(s->x, 64, ncclFloat, 1 - s->rank, s->comm, s->stream));
    (void)ncclGroupEnd();
}
static void nothing(seat *) {}
static void configured(const seat *s, int ncclConfig_t::*field, int value) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    config.blocking = 0;
    config.*field = value;
    (void)ncclCommInitRankConfig(&comm, 2, other, s->rank, &config);
}
static void no_channels(seat *s) { configured(s, &ncclConfig_t::maxCTAs, 0); }
static void shares(seat *s) { configured(s, &ncclConfig_t::splitShare, 1); }

#define TWO(f, wanted)                                                                                                 \
    {                                                                                                                  \
#f "_p", wanted, [] { with_processes(2, f); }                                                                  \
    }
const rule process_rules[] = {
    {"rings_p", nullptr, [] { with_processes(4, ring); }},
    {"collectives_p", nullptr, [] { with_processes(4, collectives); }},
    {"unordered_p", nullptr, [] { with_processes(4, unordered); }},
    {"ring_buffers_p", nullptr, [] { with_processes(3, ring_buffers); }},
    TWO(waits_for_memory, nullptr),
    TWO(buffers, nullptr),
    TWO(peer_dies, nullptr),
    TWO(peer_aborts, nullptr),
    TWO(counts, "rank 0's ncclSend of 4 float32 to rank 1 meets rank 1's ncclRecv of 8 float32 from rank 0"),
    TWO(types, "64 int32 from rank 0: they differ"),
    {"both_give_p", "but there rank", [] { setenv("STANDIN_STUCK", "1", 1), with_processes(2, both_give); }},
    {"nobody_gives_p", "but rank 0 has nothing issued there",
     [] { setenv("STANDIN_STUCK", "1", 1), with_processes(2, nobody_gives); }},
    TWO(gathered_counts, "ncclAllGather of 16 float32"),
    TWO(summed_otherwise, "(ncclSum)"),
    TWO(kinds, "they differ"),
    {"nobody_gathers_p", "but rank 0 has not come to it",
     [] { setenv("STANDIN_STUCK", "1", 1), with_processes(2, nobody_gathers); }},
    TWO(one_captured, "was captured"),
    TWO(unsettled, "before the call made earlier has returned ncclSuccess"),
    TWO(unsettled_stream, "while a call of NCCL there is in progress"),
    TWO(unsettled_capture, "while a call of NCCL there is in progress"),
    TWO(unsettled_init, "their order would be left open"),
    TWO(unready, "before the call made earlier has returned ncclSuccess"),
    TWO(overlapping, "RACE: in one group"),
    TWO(no_channels, "maxCTAs 0"),
    TWO(shares, "aborting one communicator may make others unusable"),
    {"one_device_p", "both have device 0", [] { device_of_all = 0, with_processes(2, nothing); }},
    {nullptr, nullptr, nullptr},
};
