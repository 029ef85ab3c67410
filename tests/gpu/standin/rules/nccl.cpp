/* Rules of NCCL between threads. */
#include "rules.h"
#include <cstdlib>
#include <pthread.h>
#include <unistd.h>

static void sync(const seat *s) { OK(cudaStreamSynchronize(s->stream)); }
static void send(const seat *s, int peer, size_t n = 64) { OK(ncclSend(s->x, n, ncclFloat, peer, s->comm, s->stream)); }
static void recv(const seat *s, int peer, size_t n = 64) {
    OK(ncclRecv(s->x + 512, n, ncclFloat, peer, s->comm, s->stream));
}

/* Passes each rank's number once around the ring. */
static void turn(seat *s) {
    OK(ncclGroupStart());
    send(s, (s->rank + 1) % s->ranks);
    recv(s, (s->rank + s->ranks - 1) % s->ranks);
    OK(ncclGroupEnd());
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
static void ring(seat *s) {
    turn(s);
    sync(s);
    MUST(read(s->x + 512) == (float)((s->rank + s->ranks - 1) % s->ranks));
    cudaGraphExec_t e = captured(s, turn);
    fill_on(s->stream, s->x, 64, (float)(10 * s->rank));
    OK(cudaGraphLaunch(e, s->stream));
    OK(cudaGraphLaunch(e, s->stream));
    sync(s);
    MUST(read(s->x + 512 + 63) == (float)(10 * ((s->rank + s->ranks - 1) % s->ranks)));
    OK(cudaGraphExecDestroy(e));
    OK(ncclCommDestroy(s->comm));
}
static void rings(void) { with_ranks(4, ring); }

static void collective(seat *s) {
    float *y = s->x + 512;
    OK(ncclAllReduce(s->x, y, 64, ncclFloat, ncclSum, s->comm, s->stream));
    sync(s);
    MUST(read(y + 63) == 6);
    OK(ncclReduceScatter(s->x, y, 16, ncclFloat, ncclMax, s->comm, s->stream));
    OK(ncclAllGather(s->x, s->x + 600, 16, ncclFloat, s->comm, s->stream));
    OK(ncclBroadcast(s->x, s->x + 700, 8, ncclFloat, 2, s->comm, s->stream));
    OK(ncclReduce(s->x, s->x + 800, 8, ncclFloat, ncclSum, 1, s->comm, s->stream));
    sync(s);
    MUST(read(y + 15) == 3 && read(s->x + 600 + 3 * 16) == 3 && read(s->x + 700) == 2);
    MUST(s->rank == 1 ? read(s->x + 800) == 6 : read(s->x + 800) == (float)s->rank);
}
static void collectives(void) { with_ranks(4, collective); }

/* The send buffer is the rank's own piece of the receive buffer, or all of it. */
static void in_place(seat *s) {
    float *mine = s->x + 16 * s->rank;
    OK(ncclAllGather(mine, s->x, 16, ncclFloat, s->comm, s->stream));
    sync(s);
    MUST(read(s->x) == 0 && read(s->x + 16) == 1 && read(s->x + 63) == 3);
    OK(ncclReduceScatter(s->x, mine, 16, ncclFloat, ncclSum, s->comm, s->stream));
    OK(ncclAllReduce(s->x + 64, s->x + 64, 8, ncclFloat, ncclSum, s->comm, s->stream));
    OK(ncclReduce(s->x + 72, s->x + 72, 8, ncclFloat, ncclSum, 1, s->comm, s->stream));
    OK(ncclBroadcast(s->x + 80, s->x + 80, 8, ncclFloat, 2, s->comm, s->stream));
    sync(s);
    MUST(read(mine + 15) == (float)(4 * s->rank) && read(s->x + 71) == 6 && read(s->x + 80) == 2);
    MUST(read(s->x + 72) == (s->rank == 1 ? 6 : (float)s->rank));
}
static void all_in_place(void) { with_ranks(4, in_place); }
/* Sums of floats are not in rank order: 0 + 2^24 + 1 - 2^24 would be 0. */
static void unordered(seat *s) {
    const float part[] = {0, 16777216, 1, -16777216};
    fill_on(s->stream, s->x, 4, part[s->rank]);
    OK(ncclAllReduce(s->x, s->x + 8, 1, ncclFloat, ncclSum, s->comm, s->stream));
    OK(ncclReduceScatter(s->x, s->x + 16, 1, ncclFloat, ncclSum, s->comm, s->stream));
    OK(ncclReduce(s->x, s->x + 24, 1, ncclFloat, ncclSum, 0, s->comm, s->stream));
    sync(s);
    MUST(read(s->x + 8) == 1 && read(s->x + 16) == 1 && (s->rank > 0 || read(s->x + 24) == 1));
}
static void other_order(void) { with_ranks(4, unordered); }
/* The root of an in-place broadcast writes nothing, so others may read its buffer meanwhile. */
static void read_while_broadcast(seat *s) {
    cudaStream_t other = new_stream();
    OK(ncclBroadcast(s->x, s->x, 8, ncclFloat, 0, s->comm, s->stream));
    if (s->rank == 0)
        OK(cudaMemcpyAsync(s->x + 512, s->x, 32, cudaMemcpyDeviceToDevice, other));
    sync(s);
    OK(cudaStreamSynchronize(other));
}

static void self(seat *s) {
    OK(ncclGroupStart());
    send(s, 0);
    recv(s, 0);
    OK(ncclGroupEnd());
    sync(s);
    MUST(read(s->x + 512) == 0);
}
static void itself(void) { with_ranks(1, self); }

/* A rank that only polls, with a deadline of its own. */
static void asking(seat *s) {
    ncclResult_t error;
    s->rank == 0 ? send(s, 1) : recv(s, 0);
    while (cudaStreamQuery(s->stream) == cudaErrorNotReady) {
        OK(ncclCommGetAsyncError(s->comm, &error));
        usleep(100);
    }
    MUST(s->rank == 0 || read(s->x + 512) == 0);
}
static void asked(void) { with_ranks(2, asking); }

static void *abort_soon(void *comm) {
    usleep(50000);
    OK(ncclCommAbort((ncclComm_t)comm));
    return nullptr;
}
/* The watch of one rank aborts it, and the other notices. */
static void aborting(seat *s) {
    ncclResult_t error = ncclSuccess;
    pthread_t t;
    recv(s, 1 - s->rank);
    if (s->rank == 0) {
        pthread_create(&t, nullptr, abort_soon, s->comm);
        sync(s);
        pthread_join(t, nullptr);
        return;
    }
    while (error == ncclSuccess) {
        MUST(cudaStreamQuery(s->stream) == cudaErrorNotReady);
        OK(ncclCommGetAsyncError(s->comm, &error));
        usleep(1000);
    }
    MUST(error == ncclRemoteError);
    OK(ncclCommAbort(s->comm));
    sync(s);
}
static void aborts(void) { with_ranks(2, aborting); }

/* ---- broken rules ---- */

static void counts(seat *s) {
    s->rank == 0 ? send(s, 1, 4) : recv(s, 0, 8);
    sync(s);
}
static void types(seat *s) {
    s->rank == 0 ? send(s, 1) : (void)ncclRecv(s->x, 64, ncclInt32, 0, s->comm, s->stream);
    sync(s);
}
static void operators(seat *s) {
    OK(ncclAllReduce(s->x, s->x, 4, ncclFloat, s->rank == 0 ? ncclSum : ncclMax, s->comm, s->stream));
    sync(s);
}
static void overlaps(seat *s) { /* with the other rank's piece */
    OK(ncclAllGather(s->x + 16 * (1 - s->rank), s->x, 16, ncclFloat, s->comm, s->stream));
}
static void overlaps_scattered(seat *s) {
    OK(ncclReduceScatter(s->x, s->x + 16 * s->rank + 1, 16, ncclFloat, ncclSum, s->comm, s->stream));
}
static void roots(seat *s) {
    OK(ncclBroadcast(s->x, s->x, 8, ncclFloat, s->rank, s->comm, s->stream));
    sync(s);
}
static void kinds(seat *s) {
    if (s->rank == 0)
        OK(ncclAllGather(s->x, s->x + 512, 8, ncclFloat, s->comm, s->stream));
    else
        OK(ncclReduceScatter(s->x, s->x + 512, 8, ncclFloat, ncclSum, s->comm, s->stream));
    sync(s);
}
/* One communicator with two streams: each rank begins with another collective. */
static void collectives_crossed(seat *s) {
    cudaStream_t other = new_stream();
    OK(ncclAllGather(s->x, s->x + 512, s->rank == 0 ? 8 : 16, ncclFloat, s->comm, s->stream));
    OK(ncclAllGather(s->x + 32, s->x + 600, s->rank == 0 ? 16 : 8, ncclFloat, s->comm, other));
    sync(s);
}
static void nobody_gathers(seat *s) {
    if (s->rank == 0)
        OK(ncclAllGather(s->x, s->x + 512, 8, ncclFloat, s->comm, s->stream));
    sync(s);
}
static void read_while_gathered(seat *s) {
    cudaStream_t other = new_stream();
    OK(ncclAllGather(s->x + 16 * s->rank, s->x, 16, ncclFloat, s->comm, s->stream));
    OK(cudaMemcpyAsync(s->x + 512, s->x, 256, cudaMemcpyDeviceToDevice, other));
    sync(s);
    OK(cudaStreamSynchronize(other));
}
static void both_send(seat *s) {
    send(s, 1 - s->rank);
    recv(s, 1 - s->rank);
    sync(s);
}
static void both_ask(seat *s) {
    recv(s, 1 - s->rank);
    while (cudaStreamQuery(s->stream) == cudaErrorNotReady)
        usleep(1000);
}
static void crossed(seat *s) { /* two streams of a rank with one communicator run in issue order */
    cudaStream_t other = new_stream();
    OK(ncclSend(s->x, 4, ncclFloat, 1 - s->rank, s->comm, other));
    OK(ncclRecv(s->x + 8, 4, ncclFloat, 1 - s->rank, s->comm, s->stream));
    sync(s);
}

/* Two communicators, a launch order, and the versions that keep it. */
static ncclUniqueId second_id;
static void ordered(void (*run)(seat *), const char *implicit, const char *driver) {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", implicit, 1);
    setenv("STANDIN_DRIVER", driver, 1);
    OK(ncclGetUniqueId(&second_id));
    with_ranks(2, run);
}
static ncclComm_t second(const seat *s) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, 2, second_id, s->rank));
    return comm;
}
/* Each rank sends first, over its own communicator. */
static void exchange(seat *s) {
    ncclComm_t comm[] = {s->comm, second(s)};
    cudaStream_t other = new_stream();
    OK(ncclSend(s->x, 4, ncclFloat, 1 - s->rank, comm[s->rank], s->stream));
    OK(ncclRecv(s->x + 8, 4, ncclFloat, 1 - s->rank, comm[1 - s->rank], other));
    sync(s);
    OK(cudaStreamSynchronize(other));
}
/* Rank 0 issues last what it could send first. */
static void sent_last(seat *s) {
    ncclComm_t comm = second(s);
    cudaStream_t other = new_stream();
    if (s->rank == 0) {
        recv(s, 1);
        send(s, 1);
        OK(ncclSend(s->x, 4, ncclFloat, 1, comm, other));
    } else {
        OK(ncclRecv(s->x + 8, 4, ncclFloat, 0, comm, s->stream));
        send(s, 0);
        recv(s, 0);
    }
    sync(s);
    OK(cudaStreamSynchronize(other));
}
static void gone(seat *s) {
    if (s->rank == 0) {
        send(s, 1);
        sync(s);
    }
}
static void left_open(seat *s) {
    OK(ncclGroupStart());
    send(s, 0);
    sync(s);
}
static void left_open_at_end(seat *s) {
    OK(ncclGroupStart());
    recv(s, 0);
}
static void large(seat *s) {
    OK(ncclGroupStart());
    for (int i = 0; i < 257; i++)
        OK(ncclSend(s->x, 1, ncclFloat, 0, s->comm, s->stream));
    OK(ncclGroupEnd());
}
static void *send_elsewhere(void *p) {
    OK(cudaSetDevice(((seat *)p)->rank));
    send((seat *)p, 0);
    return nullptr;
}
static void two_threads(seat *s) {
    pthread_t t;
    pthread_create(&t, nullptr, send_elsewhere, s);
    pthread_join(t, nullptr);
}
static void after_abort(seat *s) {
    OK(ncclCommAbort(s->comm));
    send(s, 0);
}
static void one_captured(seat *s) {
    if (s->rank == 0) {
        send(s, 1);
    } else {
        cudaGraphExec_t e = captured(s, [](seat *s) { recv(s, 0); });
        OK(cudaGraphLaunch(e, s->stream));
    }
    sync(s);
}
static void destroyed_in_graph(seat *s) {
    captured(s, turn);
    OK(ncclCommDestroy(s->comm));
}
static void overlapping(seat *s) {
    OK(ncclGroupStart());
    recv(s, 0);
    recv(s, 0);
    OK(ncclGroupEnd());
}
static void read_while_received(seat *s) {
    cudaStream_t other = new_stream();
    s->rank == 0 ? send(s, 1) : recv(s, 0);
    OK(cudaMemcpyAsync(s->x, s->x + 512, 256, cudaMemcpyDeviceToDevice, other));
    sync(s);
    OK(cudaStreamSynchronize(other));
}
static void registered(seat *s) {
    void *handle, *p;
    OK(ncclMemAlloc(&p, 4096));
    OK(ncclCommRegister(s->comm, p, 4096, &handle));
    OK(ncclMemFree(p));
}
static void freed_by_nccl(seat *) {
    void *p;
    OK(cudaMalloc(&p, 4096));
    OK(ncclMemFree(p));
}
static void beyond(seat *s) { OK(ncclSend(s->x + 1000, 64, ncclFloat, 0, s->comm, s->stream)); }
static void *second_rank(void *id) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, 2, *(ncclUniqueId *)id, 1));
    return nullptr;
}
static void one_device(void) {
    ncclUniqueId id;
    ncclComm_t comm;
    pthread_t t;
    OK(ncclGetUniqueId(&id));
    pthread_create(&t, nullptr, second_rank, &id);
    OK(ncclCommInitRank(&comm, 2, id, 0));
}

#define TWO(f)   #f, [] { with_ranks(2, f); }
#define ALONE(f) #f, [] { with_ranks(1, f); }
struct named {
    const char *name;
    void (*run)(void);
};
static rule says(named n, const char *wanted) { return {n.name, wanted, n.run}; }

const rule nccl_rules[] = {
    {"rings", nullptr, rings},
    {"collectives", nullptr, collectives},
    {"all_in_place", nullptr, all_in_place},
    {"other_order", nullptr, other_order},
    {"read_while_broadcast", nullptr, [] { with_ranks(2, read_while_broadcast); }},
    {"itself", nullptr, itself},
    {"asked", nullptr, asked},
    {"aborts", nullptr, aborts},
    {"exchange_by_lane", nullptr, [] { ordered(exchange, "0", "12020"); }},
    {"exchange_by_issue", nullptr, [] { ordered(exchange, "1", "12090"); }},
    {"exchange_serial", "which waits for the end of rank 0's ncclSend", [] { ordered(exchange, "1", "12020"); }},
    {"sent_last_by_lane", nullptr, [] { ordered(sent_last, "0", "12090"); }},
    {"sent_last_by_issue", "which waits for the start of rank 0's ncclSend", [] { ordered(sent_last, "1", "12090"); }},
    says({TWO(counts)}, "rank 0's ncclSend of 4 float32 to rank 1 meets rank 1's ncclRecv of 8 float32 from rank 0"),
    says({TWO(types)}, "64 int32 from rank 0: they differ"),
    says({TWO(operators)}, "(ncclSum) meets rank 1's ncclAllReduce of 4 float32 (ncclMax)"),
    says({TWO(overlaps)}, "ncclAllGather of 16 float32: its buffers overlap, and not as in-place operations do"),
    says({TWO(overlaps_scattered)}, "ncclReduceScatter of 16 float32 (ncclSum): its buffers overlap"),
    says({TWO(roots)}, "ncclBroadcast of 8 float32 from rank 0 meets rank 1's ncclBroadcast of 8 float32 from rank 1"),
    says({TWO(kinds)}, "rank 0's ncclAllGather of 8 float32 meets rank 1's ncclReduceScatter of 8 float32 (ncclSum)"),
    says({TWO(collectives_crossed)}, "rank 0's ncclAllGather of 8 float32 meets rank 1's ncclAllGather of 16 float32"),
    says({TWO(nobody_gathers)}, "but rank 1 has nothing issued there"),
    says({TWO(read_while_gathered)}, "RACE: "),
    says({TWO(both_send)}, "is at rank 1's ncclSend of 64 float32 to rank 0"),
    says({TWO(both_ask)}, "is at rank 1's ncclRecv"),
    says({TWO(crossed)}, "waits behind rank"),
    says({TWO(gone)}, "rank 1 has nothing issued there"),
    says({ALONE(left_open)}, "cudaStreamSynchronize with a group open"),
    says({ALONE(left_open_at_end)}, "ends with a group open"),
    says({ALONE(large)}, "a group of 257 operations"),
    says({ALONE(two_threads)}, "issues for rank 0 on device 0"),
    says({ALONE(after_abort)}, "communicator 0, which was aborted"),
    says({TWO(one_captured)}, "was captured"),
    says({ALONE(destroyed_in_graph)}, "is in a graph that lives"),
    says({ALONE(overlapping)}, "RACE: in one group"),
    says({TWO(read_while_received)}, "RACE: "),
    says({ALONE(registered)}, "which is registered"),
    says({ALONE(freed_by_nccl)}, "which ncclMemAlloc did not give"),
    says({ALONE(beyond)}, "at byte 4000 of an allocation of 4096"),
    {"one_device", "both have device 0", one_device},
    {nullptr, nullptr, nullptr},
};
