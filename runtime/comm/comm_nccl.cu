/* Messages and reductions over NCCL, between ranks that are processes with a GPU each.
 *
 * Each edge, and each group, has a communicator (comm_nccl_open.cu). Several communicators on a device are safe if all
 * ranks issue in one order, from one thread, and NCCL is told to keep that order (NCCL_LAUNCH_ORDER_IMPLICIT, since
 * 2.26). The compiler provides that order: a rank's stream is its part of a global one, in which every send could wait
 * for its receive.
 *
 * Communicators do not block: a call returns at once, an NCCL thread carries it out, and it is done when
 * ncclCommGetAsyncError says so. Only then may the next call be made, on any communicator; otherwise the order would be
 * a race. The first exchange of a pair sets up their connection, so it waits here for the other side; capturing a step
 * does not wait, and replaying it calls nothing.
 *
 * Collectives are NCCL's own. The order of its sums depends on size, machine and registration. So --reduce ordered sums
 * here (cuda_nccl_ordered), in the order of ops.h: a member receives its share of the others' parts, adds them up in
 * the members' order, and sends the sum to all who need it. This moves as many bytes as a ring, but needs a scratch
 * buffer. The bits then equal the host's, in a graph or not. */
#include "comm_nccl.cuh"
extern "C" {
#include "device/job.h"
#include "store/seconds.h"
#include "transports.h"
#include "watch.h"
}
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- calls ---- */

static const char *code_name(ncclResult_t code) {
    static const char *const name[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                       "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                       "ncclRemoteError",   "ncclInProgress"};
    return code >= 0 && code < (int)(sizeof name / sizeof *name) ? name[code] : "unknown";
}

void nccl_reason(const char *call, ncclResult_t code, char *why, size_t n) {
    const char *more = ncclGetLastError(NULL);
    snprintf(why, n, "NCCL: %s: %s: %s%s%s", call, code_name(code), ncclGetErrorString(code), *more ? ": " : "", more);
}

const char *nccl_trouble(struct nccl *nccl, const char *call, ncclResult_t code) {
    nccl_reason(call, code, nccl->why, sizeof nccl->why);
    return nccl->why;
}

static bool fine(ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; }

/* Waits until `call`, made on the communicator for instruction x (or NULL), is done. code: the call's return value. */
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
        instr_name(name, sizeof name, nccl->program, x, nccl->groups);
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

/* Describes NCCL and its launch order. Order "issue": each launch follows the start of the one before, on whichever
 * communicator; "serial": it follows the end. NCCL has the first if both the driver and its own build are of CUDA 12.3
 * or newer (env.rst). In graphs it also needs driver 12.9 (src/enqueue.cc: getImplicitOrder) and NCCL 2.27.3. The CUDA
 * runtime here is assumed to be the one NCCL was built with. */
static const char *about_sums(bool captured, const char *sums) {
    static char line[96];
    int version = 0, driver = 0, runtime = 0;
    ncclGetVersion(&version);
    CUDA(cudaDriverGetVersion(&driver));
    CUDA(cudaRuntimeGetVersion(&runtime));
    bool serial = min(driver, runtime) < 12030 || (captured && (driver < 12090 || version < NCCL_VERSION(2, 27, 3)));
    snprintf(line, sizeof line, "NCCL %d.%d.%d (launch order %s%s)", version / 10000, version / 100 % 100,
             version % 100, serial ? "serial" : "issue", sums);
    return line;
}
static const char *about(bool captured) { return about_sums(captured, ""); }
static const char *about_ordered(bool captured) { return about_sums(captured, ", sums in order"); }

/* ---- messages ---- */

/* Bytes sent for an empty message or collective. It still imposes an order, and NCCL orders only operations that move a
 * byte, so one float moves. */
enum { NOTHING = 16 };

/* Enqueues a message. Its times begin when its lane reaches it, and so include NCCL's wait for the other side. */
static bool nccl_message(void *link, struct replay *re, const struct rt_instr *x) {
    struct nccl *nccl = (struct nccl *)link;
    const struct end *end = is_send(x->op) ? &nccl->to[x->peer] : &nccl->from[x->peer];
    const struct communicator *communicator = &nccl->communicator[end->communicator];
    char *tensor = x->bytes > 0 ? job_operand(nccl->rank->arena, x, ROLE_t) : nccl->nothing + x->lane * NOTHING;
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

/* ---- collectives ---- */

enum {
    THREADS = 256,
    BLOCKS = 132 * 4,
    SCRATCH = REDUCE_PIECE, /* maximum bytes per lane; a longer tensor goes in pieces */
    TOGETHER = 64           /* ranks per group of calls: NCCL may split long groups differently on each rank */
};

struct collective { /* this rank's part in a collective */
    struct nccl *nccl;
    const struct rt_instr *x;
    const struct communicator *communicator;
    int ranks, me, root; /* members of the group; the root is -1 where there is none */
    char *src, *dst;     /* NULL: this member has none */
    char *scratch;
    cudaStream_t stream;
    int64_t size; /* bytes of a summand */
    ncclDataType_t type;
    bool first; /* the sum is written, not added to dst */
};

/* Describes x for this rank. The communicator has its ranks in the group's order. */
static struct collective describe_collective(struct nccl *nccl, const struct replay *re, const struct rt_instr *x) {
    const struct rt_group group = group_of(nccl->groups, x->group, re->rank);
    struct collective c = {nccl, x, &nccl->communicator[nccl->of_lane[x->lane]], group.n, group.me, -1};
    for (int i = 0; i < group.n; i++)
        c.root = has_root(x->op) && group.member[i] == x->root ? i : c.root;
    c.src = job_operand(nccl->rank->arena, x, ROLE_src);
    c.dst = result_at(x) < 0 ? NULL : nccl->rank->arena + result_at(x);
    c.scratch = nccl->scratch[x->lane];
    c.stream = nccl->rank->lane[x->lane];
    c.size = summand_bytes(re->program->model, x->op);
    c.type = c.size == 2 ? ncclBfloat16 : c.size == 8 ? ncclUint64 : ncclFloat;
    c.first = writes_sum(x);
    return c;
}

#define COLLECTIVE(c, call) NCCL((c)->nccl, (c)->communicator, (c)->x, call)

/* Sums one float: a rank that finishes knows that all ranks have begun. */
static void only_meet(const struct collective *c) {
    void *nothing = c->nccl->nothing + c->x->lane * NOTHING;
    COLLECTIVE(c, ncclAllReduce(nothing, nothing, 1, ncclFloat, ncclSum, c->communicator->comm, c->stream));
}

static void all_gather(const struct collective *c) {
    COLLECTIVE(c, ncclAllGather(c->src, c->dst, (size_t)c->x->bytes, ncclUint8, c->communicator->comm, c->stream));
}

/* Broadcasts in place: at the root, NCCL then writes nothing. */
static void enqueue_broadcast(const struct collective *c) {
    char *at = c->dst ? c->dst : c->src;
    COLLECTIVE(c, ncclBroadcast(at, at, (size_t)c->x->bytes, ncclUint8, c->root, c->communicator->comm, c->stream));
}

/* ---- groups of calls, complete across all ranks ---- */

struct span {
    char *at;
    size_t bytes;
};
struct exchange { /* data that a member sends to another, and receives */
    struct span (*out)(const struct exchange *e, int to);
    struct span (*in)(const struct exchange *e, int from, int place); /* place: the sender's place among the others */
    const struct collective *c;
    /* Member j's share is at x + j * apart and has `share` bytes; the last shares are shorter or empty. With a root,
     * the root's share is all `bytes`. */
    char *x;
    int64_t bytes, share, apart;
};

/* Exchanges data with every other member: for each k in turn, member r sends to r + k and receives from r - k. */
static void exchange_all(const struct exchange *e) {
    const struct collective *c = e->c;
    for (int from = 1; from < c->ranks; from += TOGETHER) {
        ncclResult_t code = ncclSuccess;
        pthread_mutex_lock(&c->nccl->lock);
        ncclGroupStart();
        for (int k = from; k < min(from + TOGETHER, c->ranks); k++) {
            int to = (c->me + k) % c->ranks, of = (c->me - k + c->ranks) % c->ranks;
            struct span out = e->out(e, to), in = e->in(e, of, k - 1);
            if (out.bytes && fine(code))
                code = ncclSend(out.at, out.bytes, ncclUint8, to, c->communicator->comm, c->stream);
            if (in.bytes && fine(code))
                code = ncclRecv(in.at, in.bytes, ncclUint8, of, c->communicator->comm, c->stream);
        }
        ncclResult_t end = ncclGroupEnd();
        pthread_mutex_unlock(&c->nccl->lock);
        nccl_settle(c->nccl, c->communicator, NULL, c->x, fine(code) ? end : code);
    }
}

static struct span member_span(const struct exchange *e, int member) {
    if (e->c->root >= 0)
        return (struct span){e->x, member == e->c->root ? (size_t)e->bytes : 0};
    int64_t begin = min(member * e->share, e->bytes), end = min(begin + e->share, e->bytes);
    struct span span = {e->x + member * e->apart, (size_t)(end - begin)};
    return span;
}
static struct span own_share(const struct exchange *e, int to) {
    (void)to;
    return member_span(e, e->c->me);
}
static struct span into_share(const struct exchange *e, int from, int place) {
    (void)place;
    return member_span(e, from);
}
static struct span into_scratch(const struct exchange *e, int from, int place) {
    (void)from;
    struct span span = {e->c->scratch + place * e->share, member_span(e, e->c->me).bytes};
    return span;
}
static struct span into_dst(const struct exchange *e, int from, int place) {
    (void)place;
    struct span span = {e->c->dst + from * e->share, (size_t)e->share};
    return span;
}

static void all_to_all(const struct collective *c) {
    int64_t share = c->x->bytes / c->ranks;
    const struct exchange e = {member_span, into_dst, c, c->src, c->x->bytes, share, share};
    CUDA(cudaMemcpyAsync(c->dst + c->me * share, c->src + c->me * share, (size_t)share, cudaMemcpyDeviceToDevice,
                         c->stream));
    exchange_all(&e);
}

/* ---- sums by NCCL ---- */

static void enqueue_all_reduce(const struct collective *c) {
    COLLECTIVE(c, ncclAllReduce(c->dst, c->dst, (size_t)(c->x->bytes / c->size), c->type, ncclSum,
                                c->communicator->comm, c->stream));
}

/* Returns where the sum of a piece that begins at `at` is first written. */
static char *sum_target(const struct collective *c, int64_t at) { return c->first ? c->dst + at : c->scratch; }
static void add_sum(const struct collective *c, int64_t at, int64_t bytes) {
    if (c->dst && !c->first)
        cuda_add((float *)(c->dst + at), (const float *)c->scratch, bytes / 4, false, c->stream);
}

/* Sums a long tensor in pieces that fit the scratch, because some member adds to existing values. Each piece needs one
 * reduction to every member whose dw it belongs to; the members' parts of src are `apart` bytes apart. */
static void reduce_pieces(const struct collective *c, int64_t apart) {
    for (int64_t at = 0, n; at < c->x->bytes; at += n) {
        n = min(c->x->bytes - at, (int64_t)SCRATCH);
        for (int from = 0; from < c->ranks; from += TOGETHER) {
            ncclResult_t code = ncclSuccess;
            pthread_mutex_lock(&c->nccl->lock);
            ncclGroupStart();
            for (int to = from; to < min(from + TOGETHER, c->ranks) && fine(code); to++)
                if (c->root < 0 || c->root == to)
                    code = ncclReduce(c->src + to * apart + at, to == c->me ? sum_target(c, at) : NULL, (size_t)n / 4,
                                      ncclFloat, ncclSum, to, c->communicator->comm, c->stream);
            ncclResult_t end = ncclGroupEnd();
            pthread_mutex_unlock(&c->nccl->lock);
            nccl_settle(c->nccl, c->communicator, NULL, c->x, fine(code) ? end : code);
        }
        add_sum(c, at, n);
    }
}

/* Returns whether x is summed in pieces. Even if only some members add to existing values, all must make the same
 * calls. */
static bool in_pieces(const struct collective *c) { return c->nccl->adds[c->x->msg] && c->x->bytes > SCRATCH; }

static void reduce_scatter(const struct collective *c) {
    if (in_pieces(c)) {
        reduce_pieces(c, c->x->bytes);
        return;
    }
    COLLECTIVE(c, ncclReduceScatter(c->src, sum_target(c, 0), (size_t)(c->x->bytes / c->size), c->type, ncclSum,
                                    c->communicator->comm, c->stream));
    add_sum(c, 0, c->x->bytes);
}

static void enqueue_reduce(const struct collective *c) {
    if (in_pieces(c)) {
        reduce_pieces(c, 0);
        return;
    }
    COLLECTIVE(c, ncclReduce(c->src, c->dst ? sum_target(c, 0) : NULL, (size_t)(c->x->bytes / c->size), c->type,
                             ncclSum, c->root, c->communicator->comm, c->stream));
    add_sum(c, 0, c->x->bytes);
}

/* ---- sums in the members' order ---- */

/* Sets dst to, or increments it by, the sum of mine and the same share of all others, in rank order. Rank r's share is
 * at others + ((me - r) mod ranks - 1) * stride. dst may be mine. */
template <typename T>
static __global__ void add_ranks(T *dst, const T *mine, const T *others, int64_t n, int64_t stride, int ranks, int me,
                                 bool first) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        float sum = widen(me == 0 ? mine[i] : others[(me - 1) * stride + i]);
        for (int r = 1; r < ranks; r++)
            sum += widen(r == me ? mine[i] : others[((me - r + ranks) % ranks - 1) * stride + i]);
        dst[i] = narrow<T>(first ? sum : widen(dst[i]) + sum);
    }
}
template <typename T> static void add_incoming(const struct exchange *e, char *dst, bool first) {
    const struct collective *c = e->c;
    struct span mine = member_span(e, c->me);
    int64_t n = (int64_t)mine.bytes / c->size;
    if (n > 0)
        LAUNCH(add_ranks<T>, min(blocks_for(n, THREADS), (unsigned)BLOCKS), THREADS, 0, c->stream, (T *)dst,
               (const T *)mine.at, (const T *)c->scratch, n, e->share / c->size, c->ranks, c->me, first);
}

/* Receives all members' parts of this one's share into the scratch, and adds them up. */
static void sum_share(const struct exchange *e, char *dst, bool first) {
    exchange_all(e);
    (e->c->size == 2 ? add_incoming<__nv_bfloat16> : add_incoming<float>)(e, dst, first);
}

static void all_reduce_ordered(const struct collective *c) {
    for (int64_t at = 0, n; at < c->x->bytes; at += n) {
        n = min(c->x->bytes - at, (int64_t)SCRATCH);
        int64_t share = (n / c->size + c->ranks - 1) / c->ranks * c->size;
        struct exchange e = {member_span, into_scratch, c, c->dst + at, n, share, share};
        sum_share(&e, member_span(&e, c->me).at, true);
        e.out = own_share;
        e.in = into_share;
        exchange_all(&e);
    }
}

/* Returns how many bytes a member can receive from each other member at a time. */
static int64_t bytes_of_piece(int ranks) { return SCRATCH / ranks / 16 * 16; }

static void reduce_scatter_ordered(const struct collective *c) {
    for (int64_t at = 0, n; at < c->x->bytes; at += n) {
        n = min(c->x->bytes - at, bytes_of_piece(c->ranks));
        const struct exchange e = {member_span, into_scratch, c, c->src + at, n * c->ranks, n, c->x->bytes};
        sum_share(&e, c->dst + at, c->first);
    }
}

static void reduce_ordered(const struct collective *c) {
    for (int64_t at = 0, n; at < c->x->bytes; at += n) {
        n = min(c->x->bytes - at, bytes_of_piece(c->ranks));
        const struct exchange e = {member_span, into_scratch, c, c->src + at, n, n, 0};
        sum_share(&e, c->dst ? c->dst + at : NULL, c->first);
    }
}

/* ---- the choice of algorithm ---- */

/* Returns whether x must be summed in order; sums of integers are the same in any order. */
static bool keeps_order(const struct rt_instr *x) { return x->op != OP_ALL_REDUCE_N; }

static void enqueue_collective(void *link, const struct replay *re, const struct rt_instr *x, bool ordered) {
    struct nccl *nccl = (struct nccl *)link;
    const struct collective c = describe_collective(nccl, re, x);
    int32_t i = (int32_t)(x - re->program->rank[re->rank].ins);
    cuda_mark(nccl->rank, i, false, c.stream);
    switch (x->bytes > 0 ? motion_of(x->op) : (int)OP_none) {
    case OP_ALL_GATHER: all_gather(&c); break;
    case OP_BROADCAST: enqueue_broadcast(&c); break;
    case OP_ALL_TO_ALL_A: all_to_all(&c); break;
    case OP_ALL_REDUCE: (ordered && keeps_order(x) ? all_reduce_ordered : enqueue_all_reduce)(&c); break;
    case OP_REDUCE_SCATTER: (ordered ? reduce_scatter_ordered : reduce_scatter)(&c); break;
    case OP_REDUCE: (ordered ? reduce_ordered : enqueue_reduce)(&c); break;
    default: only_meet(&c);
    }
    cuda_mark(nccl->rank, i, true, c.stream);
}

static bool nccl_collective(void *link, struct replay *re, const struct rt_instr *x) {
    enqueue_collective(link, re, x, false);
    return true;
}
static bool collective_ordered(void *link, struct replay *re, const struct rt_instr *x) {
    enqueue_collective(link, re, x, true);
    return true;
}

/* ---- memory ---- */

/* Returns the bytes of scratch for x, in a group of at most `ranks` ranks. */
static int64_t scratch_for(const struct rt_instr *x, int ranks, bool ordered) {
    bool scatters = motion_of(x->op) == OP_REDUCE_SCATTER || x->op == OP_REDUCE;
    if (ordered && keeps_order(x) && motion_of(x->op) == OP_ALL_REDUCE) /* shares are whole numbers of elements */
        return min(x->bytes, (int64_t)SCRATCH) + ranks * (int64_t)sizeof(float);
    if (ordered && scatters)
        return min(x->bytes * ranks, (int64_t)SCRATCH);
    return scatters && x->at.dw && !x->first ? min(x->bytes, (int64_t)SCRATCH) : 0;
}

static int64_t nccl_scratch_bytes(const struct rt_program *p, int rank, int lane, bool ordered) {
    const struct rt_rank *k = &p->rank[rank];
    int64_t most = 0;
    for (int32_t c = k->lane_at[lane]; c < k->lane_at[lane + 1]; c++) {
        int64_t bytes = scratch_for(&k->ins[k->lane_ins[c]], p->workers, ordered);
        most = bytes > most ? bytes : most;
    }
    return (most + 4095) / 4096 * 4096;
}

static int64_t nothing_bytes(const struct rt_rank *k) { return (k->nlanes * (int64_t)NOTHING + 4095) / 4096 * 4096; }

static int64_t extra_of(const struct rt_program *p, int rank, bool ordered) {
    int64_t bytes = nothing_bytes(&p->rank[rank]);
    for (int l = 0; l < p->rank[rank].nlanes; l++)
        bytes += nccl_scratch_bytes(p, rank, l, ordered);
    return bytes;
}
static int64_t nccl_extra_bytes(const struct rt_program *p, int rank) { return extra_of(p, rank, false); }
static int64_t extra_ordered(const struct rt_program *p, int rank) { return extra_of(p, rank, true); }

void nccl_place_scratch(struct nccl *nccl) {
    const struct rt_program *p = nccl->program;
    const struct rt_rank *k = &p->rank[nccl->world->rank];
    char *at = nccl->nothing = nccl->rank->extra;
    at += nothing_bytes(k);
    for (int l = 0; l < k->nlanes; l++) {
        nccl->scratch[l] = at;
        at += nccl_scratch_bytes(p, nccl->world->rank, l, nccl->rank->transport == &cuda_nccl_ordered);
    }
}

extern const struct cuda_transport cuda_nccl = {
    "NCCL",           about,       false,     nccl_message, nccl_collective, nccl_take, nccl_give,
    nccl_extra_bytes, nccl_beside, nccl_open, progress,     nccl_abort,      nccl_close};
extern const struct cuda_transport cuda_nccl_ordered = {
    "NCCL",        about_ordered,       false,     nccl_message, collective_ordered, nccl_take, nccl_give,
    extra_ordered, nccl_beside_ordered, nccl_open, progress,     nccl_abort,         nccl_close};
