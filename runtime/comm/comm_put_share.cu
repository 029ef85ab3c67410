/* Ranks that are processes on one GPU. A stream that waits for a word must not keep the GPU from the process that will
 * write it. CUDA does not promise that, so the ranks test it before training begins. */
#include "comm_put.cuh"
extern "C" {
#include "store/seconds.h"
#include "watch.h"
}
#include <sched.h>
#include <stdio.h>

static const double TOKEN_LIMIT = 10; /* seconds; a GPU switches between processes within milliseconds */
static const char ADVICE[] = "CUDA does not promise that a GPU turns from a process that waits to another: start its "
                             "Multi-Process Service (nvidia-cuda-mps-control -d), give each rank a GPU of its own, or "
                             "train all ranks in one process with pianola run --device cuda";

/* Writes which ranks share the GPU into put->about: "ranks 0, 1 and 3 share GPU 0000:17:00.0 (NVIDIA H100)". */
static void tell_sharers(struct put *put, int sharers, const char *bus, const char *name) {
    size_t at = 0, n = sizeof put->about;
    for (int k = 0, i = 0; k < put->world->size && at < n; k++)
        if (put->place[k].here) {
            const char *before = i == 0 ? "ranks " : i == sharers - 1 ? " and " : ", ";
            at += (size_t)snprintf(put->about + at, n - at, "%s%d", before, k);
            i++;
        }
    if (at < n)
        snprintf(put->about + at, n - at, " share GPU %s (%s)", bus, name);
    snprintf(put->hint, sizeof put->hint, "%s. %s", put->about, ADVICE);
}

int put_find_sharers(struct put *put) {
    struct place me = {};
    struct cudaDeviceProp is;
    int device, sharers = 0;
    char bus[32] = "";
    CUDA(cudaGetDevice(&device));
    CUDA(cudaGetDeviceProperties(&is, device));
    CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    me.gpu = is.uuid;
    me.words = put->rank->extra - put->rank->arena;
    put->world->all(put->world->link, &me, put->place, sizeof me);
    for (int k = 0; k < put->world->size; k++) {
        put->place[k].here = memcmp(&put->place[k].gpu, &me.gpu, sizeof me.gpu) == 0;
        sharers += put->place[k].here;
    }
    tell_sharers(put, sharers, bus, is.name);
    return sharers;
}

int put_next_sharer(const struct put *put) {
    int next = put->world->rank;
    do
        next = (next + 1) % put->world->size;
    while (!put->place[next].here);
    return next;
}

/* Returns whether x waits for a rank on this GPU. */
static bool waits_here(const struct put *put, const struct rt_instr *x) {
    if (!is_message(x->op) || !is_group(x->op))
        return is_message(x->op) && put->place[x->peer].here;
    for (const int32_t *m = group_at(put->groups, x->group); *m >= 0; m++)
        if (*m != put->world->rank && put->place[*m].here)
            return true;
    return false;
}

static void say_stuck(const struct put *put, char *why, size_t n) {
    const struct rt_rank *k = &put->program->rank[put->world->rank];
    int32_t i = 0;
    char name[256] = "every message";
    while (i < k->nins && !waits_here(put, &k->ins[i]))
        i++;
    if (i < k->nins)
        instr_name(name, sizeof name, put->program, &k->ins[i], put->groups);
    snprintf(why, n,
             "%s, and the GPU does not let them take turns: within %g s, rank %d did not get a token that they pass "
             "around, so its %s would wait for ever. %s",
             put->about, TOKEN_LIMIT, put->world->rank, name, ADVICE);
}

void put_work_a_little(const struct put *put) {
    float *scratch = &((struct own_words *)put->rank->extra)->scratch;
    cuda_add(scratch, scratch, 1, true, put->rank->lane[0]);
}

bool put_pass_token(const struct put *put, char *why, size_t n) {
    int me = put->world->rank, next = put_next_sharer(put), first = 0;
    cudaStream_t stream = put->rank->lane[0];
    uint32_t *mine = &put_words(put, me)->token;
    double begun = seconds();
    cudaEvent_t end;
    while (!put->place[first].here)
        first++;
    CUDA(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
    for (int lap = 0; lap < 2; lap++) {
        if (me != first)
            put_await(put, mine, stream);
        put_work_a_little(put);
        put_post(put, &put_words(put, next)->token, stream);
        if (me == first)
            put_await(put, mine, stream);
    }
    CUDA(cudaEventRecord(end, stream));
    cudaError_t code;
    while ((code = cudaEventQuery(end)) == cudaErrorNotReady && seconds() < begun + TOKEN_LIMIT)
        sched_yield();
    cudaGetLastError(); /* clears "not ready", so that the next launch does not report it */
    if (code == cudaErrorNotReady) {
        say_stuck(put, why, n);
        return false;
    }
    cuda_must(code, "a token between ranks on one GPU");
    CUDA(cudaEventDestroy(end));
    return true;
}
