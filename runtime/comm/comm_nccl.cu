/* Messages and reductions over NCCL, between ranks that are processes with a GPU each.
 *
 * Each edge, and each group, has a communicator (comm_nccl_open.cu). Several communicators on a device are safe if all
 * ranks issue in one order, from one thread, and NCCL is told to keep that order (NCCL_LAUNCH_ORDER_IMPLICIT, since
 * 2.26). The compiler provides that order: a rank's stream is its part of a global one, in which every send could wait
 * for its receive.
 *
 * Communicators do not block: a call returns at once, a thread of NCCL carries it out, and it is done when
 * ncclCommGetAsyncError says so. Only then is the next call made, on any communicator, or the order would be a race.
 * The first exchange of a pair sets up their connection, so it waits here for the other side; capturing a step does not
 * wait, and replaying it calls nothing.
 *
 * A reduction adds in rank order, as everywhere (ops.h). ncclAllReduce does not: its order depends on size, machine and
 * registration. Each rank receives its share of the others' dw, adds them up in rank order, and sends the sum to all:
 * as many bytes as a ring moves, plus a scratch. So the bits are the host's, in a graph or not. */
#include "comm_nccl.cuh"
extern "C" {
#include "store/seconds.h"
#include "watch.h"
}
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- calls ---- */

const char *nccl_trouble(struct nccl *nccl, const char *call, ncclResult_t code) {
    const char *more = ncclGetLastError(NULL);
    snprintf(nccl->why, sizeof nccl->why, "NCCL: %s: %s%s%s", call, ncclGetErrorString(code), *more ? ": " : "", more);
    return nccl->why;
}

static bool fine(ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; }

/* Waits until `call`, made on the communicator for instruction x or none, is done. code: what it returned. */
void nccl_settle(struct nccl *nccl, const struct communicator *communicator, const char *call, const struct rt_instr *x,
                 ncclResult_t code) {
    char name[256];
    double asked = seconds();
    while (fine(code)) {
        ncclResult_t state = ncclSuccess;
        pthread_mutex_lock(&nccl->lock);
        code = ncclCommGetAsyncError(communicator->comm, &state);
        pthread_mutex_unlock(&nccl->lock);
        if (code == ncclSuccess && state == ncclSuccess)
            return;
        code = code == ncclSuccess ? state : code;
        sched_yield();
        if (seconds() > asked + WORLD_PROGRESS) {
            asked = seconds();
            nccl->world->progress(nccl->world->link);
        }
    }
    if (x)
        instr_name(name, sizeof name, x, nccl->groups);
    watch_fail(nccl_trouble(nccl, x ? name : call, code));
}

static const char *progress(void *link) {
    struct nccl *nccl = (struct nccl *)link;
    ncclResult_t state = ncclSuccess, code = ncclSuccess;
    if (nccl->ncommunicators == 0)
        return NULL;
    pthread_mutex_lock(&nccl->lock);
    code = ncclCommGetAsyncError(nccl->communicator[nccl->next].comm, &state);
    pthread_mutex_unlock(&nccl->lock);
    nccl->next = (nccl->next + 1) % nccl->ncommunicators;
    code = code == ncclSuccess ? state : code;
    return fine(code) ? NULL : nccl_trouble(nccl, "a message", code);
}

/* In which order it launches: by issue, each after the start of the one before, on whichever communicator; or serial,
 * after its end. NCCL has the first from CUDA 12.3 on, of the driver and of its own build (env.rst), and in graphs from
 * a driver of 12.9 on (src/enqueue.cc: getImplicitOrder), before 2.27.3 never. The runtime is taken for that of NCCL's
 * build. */
static const char *about(bool captured) {
    static char line[64];
    int version = 0, driver = 0, runtime = 0;
    ncclGetVersion(&version);
    CUDA(cudaDriverGetVersion(&driver));
    CUDA(cudaRuntimeGetVersion(&runtime));
    bool serial = min(driver, runtime) < 12030 || (captured && (driver < 12090 || version < NCCL_VERSION(2, 27, 3)));
    snprintf(line, sizeof line, "NCCL %d.%d.%d (launch order %s)", version / 10000, version / 100 % 100, version % 100,
             serial ? "serial" : "issue");
    return line;
}

/* ---- messages ---- */

/* A message or a sum of no bytes still imposes an order, and NCCL orders only what moves a byte: so one float moves. */
enum { NOTHING = 16 };

/* Its times begin when its lane reaches it, and so include NCCL's wait for the other side. */
static bool message(void *link, struct replay *re, const struct rt_instr *x) {
    struct nccl *nccl = (struct nccl *)link;
    const struct end *end = is_send(x->op) ? &nccl->to[x->peer] : &nccl->from[x->peer];
    const struct communicator *communicator = &nccl->communicator[end->communicator];
    char *tensor = x->bytes > 0 ? nccl->rank->arena + x->at[ROLE_t] : nccl->nothing + x->lane * NOTHING;
    size_t bytes = x->bytes > 0 ? (size_t)x->bytes : 1;
    cudaStream_t stream = nccl->rank->lane[x->lane];
    int32_t i = (int32_t)(x - re->program->rank[re->rank].ins);
    cuda_mark(nccl->rank, i, false, stream);
    if (is_send(x->op))
        NCCL(nccl, communicator, x, ncclSend(tensor, bytes, ncclUint8, end->peer, communicator->comm, stream));
    else
        NCCL(nccl, communicator, x, ncclRecv(tensor, bytes, ncclUint8, end->peer, communicator->comm, stream));
    cuda_mark(nccl->rank, i, true, stream);
    return true;
}

/* ---- reductions ---- */

enum {
    THREADS = 256,
    BLOCKS = 132 * 4,
    SCRATCH = REDUCE_PIECE, /* bytes of a lane, at most: a longer tensor goes in pieces */
    TOGETHER = 64           /* ranks per group of calls: NCCL may split long groups differently on each rank */
};

/* mine += the same share of all others, in rank order. Rank r's lies at others + ((me - r) mod ranks - 1) * stride. */
static __global__ void add_ranks(float *mine, const float *others, int64_t n, int64_t stride, int ranks, int me) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        float sum = me == 0 ? mine[i] : others[(me - 1) * stride + i];
        for (int r = 1; r < ranks; r++)
            sum += r == me ? mine[i] : others[((me - r + ranks) % ranks - 1) * stride + i];
        mine[i] = sum;
    }
}

struct piece { /* of a reduction: share j is x[j * share ..), the last ones shorter or empty */
    float *x;
    int64_t n, share;
    int ranks, me;
};
static float *share_of(const struct piece *piece, int rank, size_t *n) {
    int64_t begin = min(rank * piece->share, piece->n), end = min(begin + piece->share, piece->n);
    *n = (size_t)(end - begin);
    return piece->x + begin;
}

/* Exchanges with every other rank. With scratch: sends it its share of my dw, and receives my share of its dw into
 * scratch. Without: sends it my share and receives its own, in place. For each k in turn, rank r sends to r + k and
 * receives from r - k, so that every group of calls is complete across all ranks. */
static void exchange(struct nccl *nccl, const struct communicator *communicator, const struct piece *piece,
                     float *scratch, cudaStream_t stream) {
    for (int from = 1; from < piece->ranks; from += TOGETHER) {
        ncclResult_t code = ncclSuccess;
        pthread_mutex_lock(&nccl->lock);
        ncclGroupStart();
        for (int k = from; k < min(from + TOGETHER, piece->ranks); k++) {
            int to = (piece->me + k) % piece->ranks, of = (piece->me - k + piece->ranks) % piece->ranks;
            size_t gives, takes;
            float *out = share_of(piece, scratch ? to : piece->me, &gives),
                  *in = share_of(piece, scratch ? piece->me : of, &takes);
            if (scratch)
                in = scratch + (k - 1) * piece->share;
            if (gives && fine(code))
                code = ncclSend(out, gives, ncclFloat, to, communicator->comm, stream);
            if (takes && fine(code))
                code = ncclRecv(in, takes, ncclFloat, of, communicator->comm, stream);
        }
        ncclResult_t end = ncclGroupEnd();
        pthread_mutex_unlock(&nccl->lock);
        nccl_settle(nccl, communicator, "a reduction", NULL, fine(code) ? end : code);
    }
}

static int64_t scratch_bytes(int64_t tensor, int workers) {
    int64_t piece = tensor < SCRATCH ? tensor : SCRATCH;
    return (piece + workers * (int64_t)sizeof(float) + 4095) / 4096 * 4096;
}

static bool reduce(void *link, struct replay *re, const struct rt_instr *x) {
    struct nccl *nccl = (struct nccl *)link;
    const struct communicator *communicator = &nccl->communicator[nccl->of_group[x->peer]];
    const struct rt_group group = group_of(nccl->groups, x->peer, re->rank);
    cudaStream_t stream = nccl->rank->lane[x->lane];
    char *tensor = x->bytes > 0 ? nccl->rank->arena + x->at[ROLE_dw] : nccl->nothing + x->lane * NOTHING;
    float *dw = (float *)tensor, *scratch = (float *)nccl->scratch[x->lane];
    int64_t left = x->bytes > 0 ? x->bytes / (int64_t)sizeof *dw : 1;
    struct piece piece = {dw, 0, 0, group.n, group.me};
    int32_t i = (int32_t)(x - re->program->rank[re->rank].ins);
    cuda_mark(nccl->rank, i, false, stream);
    for (; left > 0; left -= piece.n, piece.x += piece.n) {
        size_t own;
        piece.n = min(left, (int64_t)(SCRATCH / sizeof *dw));
        piece.share = (piece.n + piece.ranks - 1) / piece.ranks;
        float *mine = share_of(&piece, piece.me, &own);
        exchange(nccl, communicator, &piece, scratch, stream);
        if (own)
            LAUNCH(add_ranks, min(blocks_for((int64_t)own, THREADS), (unsigned)BLOCKS), THREADS, 0, stream, mine,
                   scratch, (int64_t)own, piece.share, piece.ranks, piece.me);
        exchange(nccl, communicator, &piece, NULL, stream);
    }
    cuda_mark(nccl->rank, i, true, stream);
    return true;
}

/* ---- memory ---- */

/* The longest reduction of each lane; -1 where it has none. */
static int64_t longest(const struct rt_rank *k, int lane) {
    int64_t most = -1;
    for (int32_t c = k->lane_at[lane]; c < k->lane_at[lane + 1]; c++) {
        const struct rt_instr *x = &k->ins[k->lane_ins[c]];
        most = x->op == OP_ALL_REDUCE && x->bytes > most ? x->bytes : most;
    }
    return most;
}

static int64_t nothing_bytes(const struct rt_rank *k) { return (k->nlanes * (int64_t)NOTHING + 4095) / 4096 * 4096; }

static int64_t extra(const struct rt_program *p, int rank) {
    int64_t bytes = nothing_bytes(&p->rank[rank]);
    for (int l = 0; l < p->rank[rank].nlanes; l++) {
        int64_t most = longest(&p->rank[rank], l);
        bytes += most < 0 ? 0 : scratch_bytes(most, p->workers);
    }
    return bytes;
}

void nccl_place_scratch(struct nccl *nccl) {
    const struct rt_program *p = nccl->program;
    const struct rt_rank *k = &p->rank[nccl->world->rank];
    char *at = nccl->nothing = nccl->rank->extra;
    at += nothing_bytes(k);
    for (int l = 0; l < k->nlanes; l++) {
        int64_t most = longest(k, l);
        nccl->scratch[l] = at;
        at += most < 0 ? 0 : scratch_bytes(most, p->workers);
    }
}

/* NCCL's own allocation, which it can register: it then copies from tensor to tensor without intermediate buffers. */
static char *take(size_t bytes) {
    char *p = NULL;
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* both before NCCL's first call */
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);  /* steps are all captured or all eager, except the first */
    return ncclMemAlloc((void **)&p, bytes) == ncclSuccess ? p : NULL;
}
static void give(char *p) { ncclMemFree(p); }

extern const struct cuda_transport cuda_nccl = {"NCCL", about,       false,     message,  reduce,     take,      give,
                                                extra,  nccl_beside, nccl_open, progress, nccl_abort, nccl_close};
