/* Messages by NCCL, between ranks that are processes with a GPU each.
 *
 * NCCL runs what one communicator has to do one after another. So every directed edge that carries messages has a
 * communicator of two, and every group that reduces one of its own: then lanes run side by side. Edges that the program
 * gave a lane in common (--lanes) cannot, and share a communicator. Several communicators
 * on a device are safe where all ranks issue in one order, from one thread, and NCCL is told to keep that order
 * (NCCL_LAUNCH_ORDER_IMPLICIT, since 2.26). The compiler gives that order: a rank's stream is its part of a global one,
 * in which every send could wait for its receive. The communicators themselves are made in one order of all, too.
 *
 * They do not block: a call returns at once, is carried out by a thread of NCCL's, and is done when
 * ncclCommGetAsyncError says so. Only then comes the next, on whichever communicator, or the order would be a race. The
 * first exchange of a pair makes their connection, so that waits here for the other side; not so when the step is
 * captured, and nothing at all is called when it is replayed.
 *
 * A reduction adds in rank order, as everywhere (ops.h), which ncclAllReduce does not: its order depends on size,
 * machine and registration. Each rank gets its share of the others' dw, adds them up in rank order, and sends the sum
 * to all: as many bytes as a ring moves, and a scratch. So the bits are those of the host, in a graph or not. */
#include "device/device_cuda.cuh"
extern "C" {
#include "store/seconds.h"
#include "watch.h"
#include "world.h"
}
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct communicator {
    ncclComm_t comm;
    void *arena; /* registered with it */
};
struct end { /* of an edge: its communicator, and the other rank's rank there */
    int communicator, peer;
};
struct nccl {
    const struct world *world;
    const struct rt_program *program;
    const int32_t *groups;
    struct cuda_rank *rank;
    struct communicator *communicator;
    int ncommunicators;
    struct end *to, *from; /* per rank that it exchanges messages with */
    int *of_group;         /* per group that it is in: its communicator */
    char **scratch;        /* per lane that reduces */
    char *nothing;         /* NOTHING bytes per lane: what is sent and summed of a tensor that has none */
    int next;              /* the communicator that progress asks next */
    char why[512];
    pthread_mutex_t lock; /* around every call of NCCL: while one is made, nothing may be aborted */
};

/* ---- calls ---- */

static const char *trouble(struct nccl *n, const char *call, ncclResult_t code) {
    const char *more = ncclGetLastError(NULL);
    snprintf(n->why, sizeof n->why, "NCCL: %s: %s%s%s", call, ncclGetErrorString(code), *more ? ": " : "", more);
    return n->why;
}

static bool fine(ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; }

/* A call has been made on w, for instruction x or none, and gave code: goes on when it is done. */
static void settle(struct nccl *n, const struct communicator *w, const char *call, const struct rt_instr *x,
                   ncclResult_t code) {
    char name[256];
    double asked = seconds();
    while (fine(code)) {
        ncclResult_t state = ncclSuccess;
        pthread_mutex_lock(&n->lock);
        code = ncclCommGetAsyncError(w->comm, &state);
        pthread_mutex_unlock(&n->lock);
        if (code == ncclSuccess && state == ncclSuccess)
            return;
        code = code == ncclSuccess ? state : code;
        sched_yield();
        if (seconds() > asked + WORLD_PROGRESS) {
            asked = seconds();
            n->world->progress(n->world->link);
        }
    }
    if (x)
        instr_name(name, sizeof name, x, n->groups);
    watch_fail(trouble(n, x ? name : call, code));
}
#define NCCL(n, w, x, call)                                                                                            \
    do {                                                                                                               \
        pthread_mutex_lock(&(n)->lock);                                                                                \
        ncclResult_t code = call;                                                                                      \
        pthread_mutex_unlock(&(n)->lock);                                                                              \
        settle(n, w, #call, x, code);                                                                                  \
    } while (0)

static const char *progress(void *link) {
    struct nccl *n = (struct nccl *)link;
    ncclResult_t state = ncclSuccess, code = ncclSuccess;
    if (n->ncommunicators == 0)
        return NULL;
    pthread_mutex_lock(&n->lock);
    code = ncclCommGetAsyncError(n->communicator[n->next].comm, &state);
    pthread_mutex_unlock(&n->lock);
    n->next = (n->next + 1) % n->ncommunicators;
    code = code == ncclSuccess ? state : code;
    return fine(code) ? NULL : trouble(n, "a message", code);
}

/* ---- messages ---- */

/* A message or a sum of no bytes is an order all the same, and NCCL orders only what moves a byte: one float moves. */
enum { NOTHING = 16 };

/* Its times begin when its lane comes to it: what NCCL waits for the other side is part of them. */
static bool message(void *link, struct replay *re, const struct rt_instr *x) {
    struct nccl *n = (struct nccl *)link;
    const struct end *e = is_send(x->op) ? &n->to[x->peer] : &n->from[x->peer];
    const struct communicator *w = &n->communicator[e->communicator];
    char *tensor = x->bytes > 0 ? n->rank->arena + x->at[ROLE_t] : n->nothing + x->lane * NOTHING;
    size_t bytes = x->bytes > 0 ? (size_t)x->bytes : 1;
    cudaStream_t stream = n->rank->lane[x->lane];
    int32_t i = (int32_t)(x - re->program->rank[re->rank].ins);
    cuda_mark(n->rank, i, false, stream);
    if (is_send(x->op))
        NCCL(n, w, x, ncclSend(tensor, bytes, ncclUint8, e->peer, w->comm, stream));
    else
        NCCL(n, w, x, ncclRecv(tensor, bytes, ncclUint8, e->peer, w->comm, stream));
    cuda_mark(n->rank, i, true, stream);
    return true;
}

/* ---- reductions ---- */

enum {
    THREADS = 256,
    BLOCKS = 132 * 4,
    SCRATCH = 32 << 20, /* bytes of a lane, at most: a longer tensor goes in pieces */
    TOGETHER = 64 /* ranks that one group of calls exchanges with: NCCL may split long groups unlike on each rank */
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
static float *share_of(const struct piece *p, int rank, size_t *n) {
    int64_t begin = min(rank * p->share, p->n), end = min(begin + p->share, p->n);
    *n = (size_t)(end - begin);
    return p->x + begin;
}

/* With every other rank: scatter gives it its own share of mine, for mine of its, into scratch; otherwise my share for
 * its, in place. Rank r gives to r + k what r - k takes, for one k after another: so all groups are closed in all
 * ranks.
 */
static void exchange(struct nccl *n, const struct communicator *w, const struct piece *p, float *scratch,
                     cudaStream_t stream) {
    for (int from = 1; from < p->ranks; from += TOGETHER) {
        ncclResult_t code = ncclSuccess;
        pthread_mutex_lock(&n->lock);
        ncclGroupStart();
        for (int k = from; k < min(from + TOGETHER, p->ranks); k++) {
            int to = (p->me + k) % p->ranks, of = (p->me - k + p->ranks) % p->ranks;
            size_t gives, takes;
            float *out = share_of(p, scratch ? to : p->me, &gives), *in = share_of(p, scratch ? p->me : of, &takes);
            if (scratch)
                in = scratch + (k - 1) * p->share;
            if (gives && fine(code))
                code = ncclSend(out, gives, ncclFloat, to, w->comm, stream);
            if (takes && fine(code))
                code = ncclRecv(in, takes, ncclFloat, of, w->comm, stream);
        }
        ncclResult_t end = ncclGroupEnd();
        pthread_mutex_unlock(&n->lock);
        settle(n, w, "a reduction", NULL, fine(code) ? end : code);
    }
}

static int64_t scratch_bytes(int64_t tensor, int workers) {
    int64_t piece = tensor < SCRATCH ? tensor : SCRATCH;
    return (piece + workers * (int64_t)sizeof(float) + 4095) / 4096 * 4096;
}

static bool reduce(void *link, struct replay *re, const struct rt_instr *x) {
    struct nccl *n = (struct nccl *)link;
    const struct communicator *w = &n->communicator[n->of_group[x->peer]];
    const struct rt_group g = group_of(n->groups, x->peer, re->rank);
    cudaStream_t stream = n->rank->lane[x->lane];
    char *tensor = x->bytes > 0 ? n->rank->arena + x->at[ROLE_dw] : n->nothing + x->lane * NOTHING;
    float *dw = (float *)tensor, *scratch = (float *)n->scratch[x->lane];
    int64_t left = x->bytes > 0 ? x->bytes / (int64_t)sizeof *dw : 1;
    struct piece p = {dw, 0, 0, g.n, g.me};
    int32_t i = (int32_t)(x - re->program->rank[re->rank].ins);
    cuda_mark(n->rank, i, false, stream);
    for (; left > 0; left -= p.n, p.x += p.n) {
        size_t own;
        p.n = min(left, (int64_t)(SCRATCH / sizeof *dw));
        p.share = (p.n + p.ranks - 1) / p.ranks;
        float *mine = share_of(&p, p.me, &own);
        exchange(n, w, &p, scratch, stream);
        if (own)
            LAUNCH(add_ranks, min(blocks_for((int64_t)own, THREADS), (unsigned)BLOCKS), THREADS, 0, stream, mine,
                   scratch, (int64_t)own, p.share, p.ranks, p.me);
        exchange(n, w, &p, NULL, stream);
    }
    cuda_mark(n->rank, i, true, stream);
    return true;
}

/* ---- memory ---- */

/* The longest reduction of each lane; -1 where it has none. */
static int64_t longest(const struct rt_rank *k, int lane) {
    int64_t most = -1;
    for (int32_t c = k->lane_at[lane]; c < k->lane_at[lane + 1]; c++) {
        const struct rt_instr *x = &k->ins[k->lane_ins[c]];
        most = x->op == OP_REDUCE && x->bytes > most ? x->bytes : most;
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

/* Of NCCL's own kind, which it can register: then it copies from tensor to tensor, without buffers between. */
static char *take(size_t bytes) {
    char *p = NULL;
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* both before NCCL's first call */
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);  /* steps are all captured or all eager, but for the first */
    return ncclMemAlloc((void **)&p, bytes) == ncclSuccess ? p : NULL;
}
static void give(char *p) { ncclMemFree(p); }

/* ---- at the start ---- */

/* What all ranks know of all: who sends to whom on which lane, and so who shares a communicator, in one order of all. A
 * circle is the ranks of a communicator: of the edges that share a lane, at either end or by way of others; then of
 * each group. Its first rank makes its id. */
struct known {
    int size, ngroups, ncircles;
    int32_t *lane;       /* [rank][sends, receives][peer]: 1 + its lane there; 0: no such edge */
    int *of_edge;        /* [from * size + to]: its circle; -1: no such edge */
    int *rank, *rank_at; /* circle c: rank[rank_at[c] .. rank_at[c + 1]), ascending */
    ncclUniqueId *id;    /* per circle */
};

static int32_t lane_of(const struct known *k, int rank, bool receives, int peer) {
    return k->lane[((size_t)rank * 2 + receives) * (size_t)k->size + (size_t)peer];
}

/* False: a rank sends where another does not receive. */
static bool know_edges(struct nccl *n, struct known *k) {
    const struct world *w = n->world;
    const struct rt_rank *own = &n->program->rank[w->rank];
    size_t size = (size_t)w->size;
    int32_t *mine = (int32_t *)calloc(2 * size, sizeof *mine);
    if (!mine)
        rank_error(n->world->self, "no memory");
    for (int32_t i = 0; i < own->nins; i++) {
        const struct rt_instr *x = &own->ins[i];
        if (is_send(x->op) || is_recv(x->op))
            mine[(is_send(x->op) ? 0 : size) + (size_t)x->peer] = 1 + x->lane;
    }
    w->all(w->link, mine, k->lane, 2 * size * sizeof *mine);
    free(mine);
    for (int a = 0; a < k->size; a++)
        for (int b = 0; b < k->size; b++)
            if ((lane_of(k, a, false, b) > 0) != (lane_of(k, b, true, a) > 0))
                return false;
    return true;
}

/* Edge from -> to, and all that share a lane with it. todo has room for all edges. */
static void spread(struct known *k, int from, int to, int circle, int *todo) {
    int n = 0;
    k->of_edge[from * k->size + to] = circle;
    todo[n++] = from * k->size + to;
    while (n > 0) {
        int end[2] = {todo[n - 1] / k->size, todo[n - 1] % k->size}; /* who sends, who receives */
        n--;
        for (int i = 0; i < 2; i++)
            for (int receives = 0; receives < 2; receives++)
                for (int peer = 0; peer < k->size; peer++) {
                    int edge = receives ? peer * k->size + end[i] : end[i] * k->size + peer;
                    if (lane_of(k, end[i], receives, peer) != lane_of(k, end[i], i, end[!i]) || k->of_edge[edge] >= 0)
                        continue;
                    k->of_edge[edge] = circle;
                    todo[n++] = edge;
                }
    }
}

static void add_member(struct known *k, int rank) { k->rank[k->rank_at[k->ncircles + 1]++] = rank; }

static void begin_circle(struct known *k) { k->rank_at[k->ncircles + 1] = k->rank_at[k->ncircles]; }

/* In the order of their first edges, by sender, then receiver. */
static void circles_of_edges(struct known *k, int *todo) {
    for (int e = 0; e < k->size * k->size; e++)
        k->of_edge[e] = -1;
    for (int a = 0; a < k->size; a++)
        for (int b = 0; b < k->size; b++) {
            if (lane_of(k, a, false, b) == 0 || k->of_edge[a * k->size + b] >= 0)
                continue;
            spread(k, a, b, k->ncircles, todo);
            begin_circle(k);
            for (int r = 0; r < k->size; r++) {
                bool member = false;
                for (int p = 0; p < k->size && !member; p++)
                    member = k->of_edge[r * k->size + p] == k->ncircles || k->of_edge[p * k->size + r] == k->ncircles;
                if (member)
                    add_member(k, r);
            }
            k->ncircles++;
        }
}

static void circles_of_groups(struct known *k, const int32_t *groups) {
    for (int g = 0; g < k->ngroups; g++) {
        begin_circle(k);
        for (const int32_t *member = group_at(groups, g); *member >= 0; member++)
            add_member(k, *member);
        k->ncircles++;
    }
}

/* Of those before circle c, how many have the same first rank. */
static int ids_before(const struct known *k, int c, int rank) {
    int n = 0;
    for (int i = 0; i < c; i++)
        n += k->rank[k->rank_at[i]] == rank;
    return n;
}

static void know_ids(struct nccl *n, struct known *k) {
    const struct world *w = n->world;
    int most = 0;
    for (int r = 0; r < k->size; r++)
        most = max(most, ids_before(k, k->ncircles, r));
    ncclUniqueId *mine = (ncclUniqueId *)calloc((size_t)most + 1, sizeof *mine);
    ncclUniqueId *all = (ncclUniqueId *)calloc((size_t)most * (size_t)k->size + 1, sizeof *all);
    if (!mine || !all)
        rank_error(n->world->self, "no memory");
    for (int i = 0; i < ids_before(k, k->ncircles, w->rank); i++) {
        ncclResult_t code = ncclGetUniqueId(&mine[i]);
        if (code != ncclSuccess)
            watch_fail(trouble(n, "ncclGetUniqueId", code));
    }
    if (most > 0)
        w->all(w->link, mine, all, (size_t)most * sizeof *mine);
    for (int c = 0; c < k->ncircles; c++) {
        int first = k->rank[k->rank_at[c]];
        k->id[c] = all[first * most + ids_before(k, c, first)];
    }
    free(mine);
    free(all);
}

static int add_communicator(struct nccl *n, int ranks, int me, const ncclUniqueId *id) {
    struct communicator *w = &n->communicator[n->ncommunicators++];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    NCCL(n, w, NULL, ncclCommInitRankConfig(&w->comm, ranks, *id, me, &config));
    NCCL(n, w, NULL,
         ncclCommRegister(w->comm, n->rank->arena,
                          (size_t)cuda_rank_bytes(n->program, n->world->rank, n->rank->transport), &w->arena));
    return n->ncommunicators - 1;
}

static int rank_in(const struct known *k, int circle, int rank) {
    for (int i = k->rank_at[circle]; i < k->rank_at[circle + 1]; i++)
        if (k->rank[i] == rank)
            return i - k->rank_at[circle];
    return -1;
}

static void connect(struct nccl *n, const struct known *k) {
    int me = n->world->rank;
    for (int c = 0; c < k->ncircles; c++) {
        int own = rank_in(k, c, me);
        if (own < 0)
            continue;
        int communicator = add_communicator(n, k->rank_at[c + 1] - k->rank_at[c], own, &k->id[c]);
        if (c >= k->ncircles - k->ngroups)
            n->of_group[c - (k->ncircles - k->ngroups)] = communicator;
        for (int p = 0; p < k->size; p++) {
            if (k->of_edge[me * k->size + p] == c)
                n->to[p] = (struct end){communicator, rank_in(k, c, p)};
            if (k->of_edge[p * k->size + me] == c)
                n->from[p] = (struct end){communicator, rank_in(k, c, p)};
        }
    }
}

/* False: no memory. */
static bool know_room(struct known *k, const int32_t *groups) {
    size_t edges = (size_t)k->size * (size_t)k->size, members = 2 * edges;
    k->ngroups = group_count(groups);
    members += (size_t)(group_at(groups, k->ngroups) - groups);
    k->lane = (int32_t *)calloc(2 * edges, sizeof *k->lane);
    k->of_edge = (int *)calloc(edges, sizeof *k->of_edge);
    k->rank = (int *)calloc(members, sizeof *k->rank);
    k->rank_at = (int *)calloc(edges + (size_t)k->ngroups + 2, sizeof *k->rank_at);
    k->id = (ncclUniqueId *)calloc(edges + (size_t)k->ngroups + 1, sizeof *k->id);
    return k->lane && k->of_edge && k->rank && k->rank_at && k->id;
}

static void know_all(struct nccl *n, struct known *k) {
    int *todo = (int *)calloc((size_t)k->size * (size_t)k->size, sizeof *todo);
    if (!todo)
        rank_error(n->world->self, "no memory");
    circles_of_edges(k, todo);
    circles_of_groups(k, n->groups);
    know_ids(n, k);
    free(todo);
}

static void place_scratch(struct nccl *n) {
    const struct rt_program *p = n->program;
    const struct rt_rank *k = &p->rank[n->world->rank];
    char *at = n->nothing = n->rank->extra;
    at += nothing_bytes(k);
    for (int l = 0; l < k->nlanes; l++) {
        int64_t most = longest(k, l);
        n->scratch[l] = at;
        at += most < 0 ? 0 : scratch_bytes(most, p->workers);
    }
}

static void nccl_open(const struct world *w, const struct rt_program *p, const int32_t *groups, struct cuda_rank *c) {
    char why[128];
    struct nccl *n = (struct nccl *)calloc(1, sizeof *n);
    struct known k = {};
    int version = 0, nlanes = p->rank[w->rank].nlanes;
    k.size = w->size;
    size_t size = (size_t)k.size;
    ncclGetVersion(&version);
    bool ok = n && know_room(&k, groups);
    ok = ok && (n->communicator = (struct communicator *)calloc(2 * size + (size_t)k.ngroups, sizeof *n->communicator));
    ok = ok && (n->to = (struct end *)calloc(size, sizeof *n->to)) &&
         (n->from = (struct end *)calloc(size, sizeof *n->from));
    ok = ok && (n->of_group = (int *)calloc((size_t)k.ngroups + 1, sizeof *n->of_group));
    ok = ok && (n->scratch = (char **)calloc((size_t)nlanes + 1, sizeof *n->scratch));
    snprintf(why, sizeof why, "rank %d: no memory for its messages", w->rank);
    world_verdict(w, ok, why);
    snprintf(why, sizeof why, "rank %d: NCCL is of version %d, and 2.26 or newer is needed", w->rank, version);
    world_verdict(w, version >= NCCL_VERSION(2, 26, 0), why);
    n->world = w;
    n->program = p;
    n->groups = groups;
    n->rank = c;
    pthread_mutex_init(&n->lock, NULL);
    place_scratch(n);
    __atomic_store_n(&c->link, n, __ATOMIC_RELEASE);
    bool alike = know_edges(n, &k);
    snprintf(why, sizeof why, "rank %d: not all messages have two sides; compile again", w->rank);
    world_verdict(w, alike, why);
    know_all(n, &k);
    connect(n, &k);
    free(k.lane);
    free(k.of_edge);
    free(k.rank);
    free(k.rank_at);
    free(k.id);
}

/* ---- at the end ---- */

static void abort_all(void *link) {
    struct nccl *n = (struct nccl *)link;
    pthread_mutex_lock(&n->lock); /* for good: no call may follow */
    for (int i = 0; i < n->ncommunicators; i++)
        if (n->communicator[i].comm)
            ncclCommAbort(n->communicator[i].comm);
}

/* Every rank has come to its end. NCCL is known to hang here at times, when nothing is at stake any more: it gets two
 * seconds. */
static void nccl_close(void *link) {
    static const double PATIENCE = 2;
    struct nccl *n = (struct nccl *)link;
    double until = seconds() + PATIENCE;
    for (int i = 0; i < n->ncommunicators; i++) {
        ncclCommDeregister(n->communicator[i].comm, n->communicator[i].arena);
        ncclCommFinalize(n->communicator[i].comm);
    }
    for (int i = 0; i < n->ncommunicators; i++) {
        ncclResult_t state = ncclInProgress;
        while (ncclCommGetAsyncError(n->communicator[i].comm, &state) == ncclSuccess && state == ncclInProgress &&
               seconds() < until)
            sched_yield();
        (state == ncclSuccess ? ncclCommDestroy : ncclCommAbort)(n->communicator[i].comm);
    }
    free(n->communicator);
    free(n->to);
    free(n->from);
    free(n->of_group);
    free(n->scratch);
    free(n);
}

extern const struct cuda_transport cuda_nccl = {"NCCL", false,     message,  reduce,    take,      give,
                                                extra,  nccl_open, progress, abort_all, nccl_close};
