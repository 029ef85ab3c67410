/* The communicators of a run over NCCL: which ranks share one, how they are made and ended, and the memory they need.
 *
 * NCCL runs the operations of one communicator one after another. So every directed edge that carries messages has a
 * communicator of two ranks. Every group has one communicator for its lane of weights and one for the rest. Lanes then
 * run concurrently. Edges that the program puts on one lane (--lanes) cannot run concurrently, so they share a
 * communicator. All communicators are created in one global order. */
#include "comm_nccl.cuh"
extern "C" {
#include "store/seconds.h"
#include "watch.h"
}
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* Channels that a communicator may have: its config's maxCTAs, by default 32 (NCCL's user guide, api/types.rst;
 * NCCL_MAX_CTAS takes precedence, env.rst). Each is a block of up to 640 threads, most of an SM, on which a receive
 * spins until its send comes. Between two ranks NCCL gives a message half of the channels, or all of them if it has
 * more than 16 MiB per channel (2.28.9, src/enqueue.cc: scheduleP2pTasksToPlan, addP2pToPlan): here 4, and 8 above 64
 * MiB, where 32 channels would give it 16. A collective exchanges with many ranks at once, and all its ranks wait for
 * it, so it has more channels. minCTAs stays 1, so that NCCL may use fewer. */
enum { EDGE_CHANNELS = 8, GROUP_CHANNELS = 16 };

/* ---- memory ---- */

static int64_t setting(const char *name, int64_t otherwise) {
    const char *s = getenv(name);
    long long n = s ? atoll(s) : 0;
    return n > 0 ? n : otherwise;
}

/* An upper estimate of the buffers that NCCL 2.28.9 makes, in allocations of multiples of 2 MiB (CUDA_IPC_MIN).
 *
 * For each channel between two ranks, and each direction that is used (src/enqueue.cc: p2pTaskAppend), the receiver has
 * LL's 512 KiB, LL128's 4.7 MiB (src/init.cc: DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE) and NCCL_BUFFSIZE (4 MiB;
 * env.rst), and both ends have a header; on A100s that last buffer is the sender's (src/transport/p2p.cc: p2pSendSetup,
 * p2pRecvSetup; src/graph/paths.cc: ncclTopoCheckP2p). Between hosts it is less: 2 MiB (src/transport/net.cc:
 * sharedNetBuffersInit, of NCCL_P2P_NET_CHUNKSIZE). Each communicator has a queue of 1 MiB (NCCL_WORK_FIFO_BYTES) and
 * small items.
 *
 * The estimate does not include NCCL's code. If NCCL cannot connect lazily (NCCL_CUMEM_ENABLE=0,
 * NCCL_RUNTIME_CONNECT=0), it also makes buffers for rings and trees.
 *
 * A collective of NCCL's needs a ring: one rank in each direction. ALL_REDUCE also needs a tree of up to 4 ranks
 * (src/include/device.h: NCCL_MAX_TREE_ARITY). NVLink's multicast needs 8 steps of 128 KiB in both directions for each
 * member (src/transport/nvls.cc: ncclNvlsBufferSetup). Our own collectives exchange with every other member. */
enum { RING = 1, TREE = 4 };
static int peers_of(const struct rt_instr *x, int ranks, bool ordered) {
    int peers = motion_of(x->op) == OP_ALL_TO_ALL_A || (sums(x->op) && ordered) ? ranks
                : motion_of(x->op) == OP_ALL_REDUCE                             ? RING + TREE
                                                                                : RING;
    return min(peers, ranks - 1);
}

static int64_t bytes_beside_plan(const struct rt_program *p, int rank, const int32_t *groups, bool ordered) {
    const int64_t page = 2 << 20, of_communicator = 4 * page, multicast = 2 * 8 * (128 << 10);
    const int64_t simple = setting("NCCL_BUFFSIZE", 4 << 20), most = setting("NCCL_MAX_CTAS", 0);
    const int64_t sends = (simple + 2 * page - 1) / page * page,
                  receives = ((512 << 10) + 120 * 640 * 8 * 8 + simple + page) / page * page;
    const struct rt_rank *k = &p->rank[rank];
    bool *edge = (bool *)calloc(2 * (size_t)p->workers + 1, sizeof *edge);
    int64_t *lane = (int64_t *)calloc((size_t)k->nlanes + 1, sizeof *lane), bytes = 0; /* lane: bytes per lane */
    for (int32_t i = 0; edge && lane && i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        if (is_send(x->op) || is_recv(x->op)) {
            bool *known = &edge[is_recv(x->op) ? p->workers + x->peer : x->peer];
            bytes += *known ? 0 : (most ? most : EDGE_CHANNELS) * (is_send(x->op) ? sends : receives);
            *known = true;
            lane[x->lane] = of_communicator;
        } else if (is_group(x->op)) {
            int ranks = group_of(groups, x->group, rank).n;
            int64_t channel = peers_of(x, ranks, ordered) * (sends + receives) + ranks * multicast;
            lane[x->lane] = max(lane[x->lane], of_communicator + (most ? most : GROUP_CHANNELS) * channel);
        }
    }
    for (int l = 0; lane && l < k->nlanes; l++)
        bytes += lane[l];
    free(edge);
    free(lane);
    return bytes;
}
int64_t nccl_beside(const struct rt_program *p, int rank, const int32_t *groups) {
    return bytes_beside_plan(p, rank, groups, false);
}
int64_t nccl_beside_ordered(const struct rt_program *p, int rank, const int32_t *groups) {
    return bytes_beside_plan(p, rank, groups, true);
}

static bool by_cuda; /* cudaMalloc gave the rank's memory */

/* Allocates with NCCL, which can then register the memory and copy from tensor to tensor without intermediate buffers.
 * NCCL asks for memory with handles, by which others can map it (cuMemCreate). A virtual machine or a container may
 * refuse that; 2.28.9 then continues without handles only after CUDA_ERROR_NOT_PERMITTED and CUDA_ERROR_NOT_SUPPORTED
 * for a fabric's handle (src/allocator.cc). So cudaMalloc is the fallback: NCCL sends from any other memory too. */
char *nccl_take(int rank, size_t bytes, char *why, size_t n) {
    char *p = NULL, reason[1024], lack[1024];
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* both set before NCCL's first call */
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);  /* steps are all captured or all eager, except the first */
    ncclResult_t code = ncclMemAlloc((void **)&p, bytes);
    by_cuda = code != ncclSuccess;
    if (!by_cuda)
        return p;
    nccl_reason("ncclMemAlloc", code, reason, sizeof reason);
    cudaGetLastError(); /* clears the error, so that the next call does not report it */
    p = cuda_allocate(bytes, lack, sizeof lack);
    if (p)
        fprintf(stderr,
                "pianola: rank %d: %s; cudaMalloc gives the memory instead, unregistered, so NCCL copies through "
                "buffers of its own. If its connections fail too, set NCCL_CUMEM_ENABLE=0 for all ranks\n",
                rank, reason);
    else
        snprintf(why, n, "%s (%s)", lack, reason);
    return p;
}

void nccl_give(char *p) {
    if (by_cuda)
        cudaFree(p);
    else
        ncclMemFree(p);
}

/* ---- at the start ---- */

/* The edges and groups of all ranks, which every rank knows in one global order, and the resulting communicators. A
 * circle is the ranks of one communicator. Circles of edges come first: the ranks of edges that share a lane, at either
 * end or through other edges, ascending. Then come the circles of groups' lanes, each in the group's order. A circle's
 * first rank makes its id. */
struct known {
    int size, ngroups, ncircles, nedges; /* nedges: number of circles of edges */
    int32_t *lane;                       /* [rank][sends, receives][peer]: 1 + lane of the edge; 0: no such edge */
    int *of_edge;                        /* circle of edge [from * size + to]; -1: no such edge */
    bool *used;                          /* [group][its lanes]: whether the group has the lane */
    int *rank, *rank_at;                 /* circle c: rank[rank_at[c] .. rank_at[c + 1]) */
    int *of_group;                       /* circle of [group][its lanes] */
    ncclUniqueId *id;                    /* one per circle */
};

static int32_t lane_between(const struct known *known, int rank, bool receives, int peer) {
    return known->lane[((size_t)rank * 2 + receives) * (size_t)known->size + (size_t)peer];
}

/* Exchanges the edges of all ranks. Returns false if a rank sends where another does not receive. */
static bool know_edges(struct nccl *nccl, struct known *known) {
    const struct world *world = nccl->world;
    const struct rt_rank *own = &nccl->program->rank[world->rank];
    size_t size = (size_t)world->size;
    int32_t *mine = (int32_t *)calloc(2 * size, sizeof *mine);
    if (!mine)
        rank_error(nccl->world->self, "no memory");
    for (int32_t i = 0; i < own->nins; i++) {
        const struct rt_instr *x = &own->ins[i];
        if (is_send(x->op) || is_recv(x->op))
            mine[(is_send(x->op) ? 0 : size) + (size_t)x->peer] = 1 + x->lane;
    }
    world->all(world->link, mine, known->lane, 2 * size * sizeof *mine);
    free(mine);
    for (int a = 0; a < known->size; a++)
        for (int b = 0; b < known->size; b++)
            if ((lane_between(known, a, false, b) > 0) != (lane_between(known, b, true, a) > 0))
                return false;
    return true;
}

static int lane_of_group(const struct rt_instr *x) {
    return x->group * GROUP_LANES + op_row(x->op)->lane - LANE_GATHER;
}

/* Finds which lanes the groups have, and which sums are added to existing values. */
static void know_groups(struct nccl *nccl, struct known *known) {
    const struct world *world = nccl->world;
    const struct rt_rank *own = &nccl->program->rank[world->rank];
    size_t lanes = (size_t)known->ngroups * GROUP_LANES, n = lanes + (size_t)nccl->program->nmsgs;
    char *mine = (char *)calloc(n + 1, 1), *all = (char *)calloc((size_t)world->size, n + 1);
    if (!mine || !all)
        rank_error(world->self, "no memory");
    for (int32_t i = 0; i < own->nins; i++) {
        const struct rt_instr *x = &own->ins[i];
        if (!is_group(x->op))
            continue;
        mine[lane_of_group(x)] = 1;
        mine[lanes + (size_t)x->msg] = x->at.dw && !x->first;
    }
    world->all(world->link, mine, all, n + 1);
    for (size_t r = 0; r < (size_t)world->size; r++) {
        for (size_t l = 0; l < lanes; l++)
            known->used[l] |= all[r * (n + 1) + l];
        for (size_t m = 0; m < (size_t)nccl->program->nmsgs; m++)
            nccl->adds[m] |= all[r * (n + 1) + lanes + m];
    }
    free(mine);
    free(all);
}

/* Puts the edge from -> to, and all edges that share a lane with it, into the circle. todo has room for all edges. */
static void spread(struct known *known, int from, int to, int circle, int *todo) {
    int n = 0;
    known->of_edge[from * known->size + to] = circle;
    todo[n++] = from * known->size + to;
    while (n > 0) {
        int end[2] = {todo[n - 1] / known->size, todo[n - 1] % known->size}; /* the sender and the receiver */
        n--;
        for (int i = 0; i < 2; i++)
            for (int receives = 0; receives < 2; receives++)
                for (int peer = 0; peer < known->size; peer++) {
                    int edge = receives ? peer * known->size + end[i] : end[i] * known->size + peer;
                    if (lane_between(known, end[i], receives, peer) != lane_between(known, end[i], i, end[!i]) ||
                        known->of_edge[edge] >= 0)
                        continue;
                    known->of_edge[edge] = circle;
                    todo[n++] = edge;
                }
    }
}

static void add_member(struct known *known, int rank) { known->rank[known->rank_at[known->ncircles + 1]++] = rank; }

static void begin_circle(struct known *known) { known->rank_at[known->ncircles + 1] = known->rank_at[known->ncircles]; }

/* Forms the circles of edges in the order of their first edges, by sender, then receiver. */
static void circles_of_edges(struct known *known, int *todo) {
    for (int e = 0; e < known->size * known->size; e++)
        known->of_edge[e] = -1;
    for (int a = 0; a < known->size; a++)
        for (int b = 0; b < known->size; b++) {
            if (lane_between(known, a, false, b) == 0 || known->of_edge[a * known->size + b] >= 0)
                continue;
            spread(known, a, b, known->ncircles, todo);
            begin_circle(known);
            for (int r = 0; r < known->size; r++) {
                bool member = false;
                for (int p = 0; p < known->size && !member; p++)
                    member = known->of_edge[r * known->size + p] == known->ncircles ||
                             known->of_edge[p * known->size + r] == known->ncircles;
                if (member)
                    add_member(known, r);
            }
            known->ncircles++;
        }
}

static void circles_of_groups(struct known *known, const int32_t *groups) {
    known->nedges = known->ncircles;
    for (int l = 0; l < known->ngroups * GROUP_LANES; l++) {
        if (!known->used[l])
            continue;
        begin_circle(known);
        for (const int32_t *member = group_at(groups, l / GROUP_LANES); *member >= 0; member++)
            add_member(known, *member);
        known->of_group[l] = known->ncircles++;
    }
}

/* Returns how many circles before c have the same first rank. */
static int ids_before(const struct known *known, int c, int rank) {
    int n = 0;
    for (int i = 0; i < c; i++)
        n += known->rank[known->rank_at[i]] == rank;
    return n;
}

static void know_ids(struct nccl *nccl, struct known *known) {
    const struct world *world = nccl->world;
    int most = 0;
    for (int r = 0; r < known->size; r++)
        most = max(most, ids_before(known, known->ncircles, r));
    ncclUniqueId *mine = (ncclUniqueId *)calloc((size_t)most + 1, sizeof *mine);
    ncclUniqueId *all = (ncclUniqueId *)calloc((size_t)most * (size_t)known->size + 1, sizeof *all);
    if (!mine || !all)
        rank_error(nccl->world->self, "no memory");
    for (int i = 0; i < ids_before(known, known->ncircles, world->rank); i++) {
        ncclResult_t code = ncclGetUniqueId(&mine[i]);
        if (code != ncclSuccess)
            watch_fail(nccl_trouble(nccl, "ncclGetUniqueId", code));
    }
    if (most > 0)
        world->all(world->link, mine, all, (size_t)most * sizeof *mine);
    for (int c = 0; c < known->ncircles; c++) {
        int first = known->rank[known->rank_at[c]];
        known->id[c] = all[first * most + ids_before(known, c, first)];
    }
    free(mine);
    free(all);
}

/* Makes a communicator. splitShare stays off: with it, aborting one communicator may make others unusable
 * (api/types.rst). */
static int add_communicator(struct nccl *nccl, int ranks, int me, const ncclUniqueId *id, int channels) {
    struct communicator *communicator = &nccl->communicator[nccl->ncommunicators++];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = channels;
    NCCL(nccl, communicator, NULL, ncclCommInitRankConfig(&communicator->comm, ranks, *id, me, &config));
    if (!by_cuda)
        NCCL(nccl, communicator, NULL,
             ncclCommRegister(communicator->comm, nccl->rank->arena,
                              (size_t)cuda_rank_bytes(nccl->program, nccl->world->rank, nccl->rank->transport),
                              &communicator->arena));
    return nccl->ncommunicators - 1;
}

static int rank_in(const struct known *known, int circle, int rank) {
    for (int i = known->rank_at[circle]; i < known->rank_at[circle + 1]; i++)
        if (known->rank[i] == rank)
            return i - known->rank_at[circle];
    return -1;
}

static void connect(struct nccl *nccl, const struct known *known) {
    int me = nccl->world->rank;
    const struct rt_rank *k = &nccl->program->rank[me];
    for (int c = 0; c < known->ncircles; c++) {
        int own = rank_in(known, c, me);
        if (own < 0)
            continue;
        int communicator = add_communicator(nccl, known->rank_at[c + 1] - known->rank_at[c], own, &known->id[c],
                                            c < known->nedges ? EDGE_CHANNELS : GROUP_CHANNELS);
        for (int32_t i = 0; i < k->nins; i++)
            if (is_group(k->ins[i].op) && known->of_group[lane_of_group(&k->ins[i])] == c)
                nccl->of_lane[k->ins[i].lane] = communicator;
        for (int p = 0; p < known->size; p++) {
            if (known->of_edge[me * known->size + p] == c)
                nccl->to[p] = (struct end){communicator, rank_in(known, c, p)};
            if (known->of_edge[p * known->size + me] == c)
                nccl->from[p] = (struct end){communicator, rank_in(known, c, p)};
        }
    }
}

/* Allocates the tables; returns false if there is no memory. */
static bool know_room(struct known *known, const int32_t *groups) {
    size_t edges = (size_t)known->size * (size_t)known->size, members = 2 * edges, lanes;
    known->ngroups = group_count(groups);
    lanes = (size_t)known->ngroups * GROUP_LANES;
    members += GROUP_LANES * (size_t)(group_at(groups, known->ngroups) - groups);
    known->lane = (int32_t *)calloc(2 * edges, sizeof *known->lane);
    known->of_edge = (int *)calloc(edges, sizeof *known->of_edge);
    known->rank = (int *)calloc(members, sizeof *known->rank);
    known->rank_at = (int *)calloc(edges + lanes + 2, sizeof *known->rank_at);
    known->id = (ncclUniqueId *)calloc(edges + lanes + 1, sizeof *known->id);
    known->used = (bool *)calloc(lanes + 1, sizeof *known->used);
    known->of_group = (int *)calloc(lanes + 1, sizeof *known->of_group);
    return known->lane && known->of_edge && known->rank && known->rank_at && known->id && known->used &&
           known->of_group;
}

static void know_all(struct nccl *nccl, struct known *known) {
    int *todo = (int *)calloc((size_t)known->size * (size_t)known->size, sizeof *todo);
    if (!todo)
        rank_error(nccl->world->self, "no memory");
    know_groups(nccl, known);
    circles_of_edges(known, todo);
    circles_of_groups(known, nccl->groups);
    know_ids(nccl, known);
    free(todo);
}

void nccl_open(const struct world *world, const struct rt_program *p, const int32_t *groups, struct cuda_rank *own) {
    char why[128];
    struct nccl *nccl = (struct nccl *)calloc(1, sizeof *nccl);
    struct known known = {};
    int version = 0, nlanes = p->rank[world->rank].nlanes;
    known.size = world->size;
    size_t size = (size_t)known.size;
    ncclGetVersion(&version);
    bool ok = nccl && know_room(&known, groups);
    ok = ok && (nccl->communicator = (struct communicator *)calloc(2 * size + GROUP_LANES * (size_t)known.ngroups,
                                                                   sizeof *nccl->communicator));
    ok = ok && (nccl->to = (struct end *)calloc(size, sizeof *nccl->to)) &&
         (nccl->from = (struct end *)calloc(size, sizeof *nccl->from));
    ok = ok && (nccl->of_lane = (int *)calloc((size_t)nlanes + 1, sizeof *nccl->of_lane));
    ok = ok && (nccl->adds = (bool *)calloc((size_t)p->nmsgs + 1, sizeof *nccl->adds));
    ok = ok && (nccl->scratch = (char **)calloc((size_t)nlanes + 1, sizeof *nccl->scratch));
    snprintf(why, sizeof why, "rank %d: no memory for its messages", world->rank);
    world_verdict(world, ok, why);
    snprintf(why, sizeof why, "rank %d: NCCL is of version %d, and 2.26 or newer is needed", world->rank, version);
    world_verdict(world, version >= NCCL_VERSION(2, 26, 0), why);
    const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    snprintf(why, sizeof why,
             "rank %d: NCCL_LAUNCH_ORDER_IMPLICIT is %s: ranks could wait for each other forever; unset it",
             world->rank, order);
    world_verdict(world, order && atoi(order) != 0, why);
    nccl->world = world;
    nccl->program = p;
    nccl->groups = groups;
    nccl->rank = own;
    pthread_mutex_init(&nccl->lock, NULL);
    nccl_place_scratch(nccl);
    __atomic_store_n(&own->link, nccl, __ATOMIC_RELEASE);
    bool alike = know_edges(nccl, &known);
    snprintf(why, sizeof why, "rank %d: not all messages have two sides; compile again", world->rank);
    world_verdict(world, alike, why);
    know_all(nccl, &known);
    connect(nccl, &known);
    free(known.lane);
    free(known.of_edge);
    free(known.rank);
    free(known.rank_at);
    free(known.id);
    free(known.used);
    free(known.of_group);
}

/* ---- at the end ---- */

void nccl_abort(void *link) {
    struct nccl *nccl = (struct nccl *)link;
    pthread_mutex_lock(&nccl->lock); /* never unlocked: no call may follow */
    for (int i = 0; i < nccl->ncommunicators; i++)
        if (nccl->communicator[i].comm)
            ncclCommAbort(nccl->communicator[i].comm);
}

/* Ends the communicators after all ranks have finished. NCCL sometimes hangs here, but no work can be lost any more, so
 * it gets two seconds. */
void nccl_close(void *link) {
    static const double PATIENCE = 2;
    struct nccl *nccl = (struct nccl *)link;
    double until = seconds() + PATIENCE;
    for (int i = 0; i < nccl->ncommunicators; i++) {
        if (nccl->communicator[i].arena)
            ncclCommDeregister(nccl->communicator[i].comm, nccl->communicator[i].arena);
        ncclCommFinalize(nccl->communicator[i].comm);
    }
    for (int i = 0; i < nccl->ncommunicators; i++) {
        ncclResult_t state = ncclInProgress;
        while (ncclCommGetAsyncError(nccl->communicator[i].comm, &state) == ncclSuccess && state == ncclInProgress &&
               seconds() < until)
            sched_yield();
        (state == ncclSuccess ? ncclCommDestroy : ncclCommAbort)(nccl->communicator[i].comm);
    }
    free(nccl->communicator);
    free(nccl->to);
    free(nccl->from);
    free(nccl->of_lane);
    free(nccl->adds);
    free(nccl->scratch);
    free(nccl);
}
