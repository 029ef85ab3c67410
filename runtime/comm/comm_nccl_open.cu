/* The communicators of a run over NCCL: who shares one, how they are made and ended, and what memory they take.
 *
 * NCCL runs the operations of one communicator one after another. So every directed edge that carries messages has a
 * communicator of two, and every group that reduces has its own: lanes then run concurrently. Edges that the program
 * puts on a common lane (--lanes) cannot, and share a communicator. All are created in one global order. */
#include "comm_nccl.cuh"
extern "C" {
#include "store/seconds.h"
#include "watch.h"
}
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* The channels that a communicator may have: its config's maxCTAs, 32 where nothing is said (NCCL's user guide,
 * api/types.rst; NCCL_MAX_CTAS takes precedence, env.rst). Each is a block of up to 640 threads, most of an SM, on
 * which a receive spins until its send comes. Between two ranks NCCL gives a message half of the channels, and all of
 * them above 16 MiB for each (2.28.9, src/enqueue.cc: scheduleP2pTasksToPlan, addP2pToPlan): here 4, 8 above 64 MiB,
 * where 32 channels would give it 16. A reduction, for which all its ranks wait, exchanges with many at once and has
 * more. minCTAs stays 1, so that NCCL may take fewer. */
enum { EDGE_CHANNELS = 8, GROUP_CHANNELS = 16 };

/* ---- memory ---- */

static int64_t setting(const char *name, int64_t otherwise) {
    const char *s = getenv(name);
    long long n = s ? atoll(s) : 0;
    return n > 0 ? n : otherwise;
}

/* An upper estimate of the buffers that NCCL 2.28.9 makes, in allocations of 2 MiB's multiples (CUDA_IPC_MIN):
 * For each channel between two ranks, and each direction that is used (src/enqueue.cc: p2pTaskAppend), these are at the
 * receiver LL's 512 KiB, LL128's 4.7 MiB (src/init.cc: DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE) and NCCL_BUFFSIZE
 * (4 MiB; env.rst), and a header at both ends; on A100s that last buffer is the sender's (src/transport/p2p.cc:
 * p2pSendSetup, p2pRecvSetup; src/graph/paths.cc: ncclTopoCheckP2p). Between hosts it is less: 2 MiB
 * (src/transport/net.cc: sharedNetBuffersInit, of NCCL_P2P_NET_CHUNKSIZE). For each communicator there are a queue of
 * 1 MiB (NCCL_WORK_FIFO_BYTES) and small things.
 * NCCL's code is not counted. Where it is kept from connecting late (NCCL_CUMEM_ENABLE=0, NCCL_RUNTIME_CONNECT=0), it
 * makes buffers for rings and trees too. */
int64_t nccl_beside(const struct rt_program *p, int rank, const int32_t *groups) {
    const int64_t page = 2 << 20, of_communicator = 4 * page;
    const int64_t simple = setting("NCCL_BUFFSIZE", 4 << 20), most = setting("NCCL_MAX_CTAS", 0);
    const int64_t sends = (simple + 2 * page - 1) / page * page,
                  receives = ((512 << 10) + 120 * 640 * 8 * 8 + simple + page) / page * page;
    const struct rt_rank *k = &p->rank[rank];
    bool *seen = (bool *)calloc(2 * (size_t)p->workers + (size_t)k->nlanes + 1, sizeof *seen);
    int64_t bytes = 0;
    for (int32_t i = 0; seen && i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        bool message = is_send(x->op) || is_recv(x->op), *lane = &seen[2 * p->workers + x->lane];
        if (message) {
            bool *edge = &seen[is_recv(x->op) ? p->workers + x->peer : x->peer];
            bytes += *edge ? 0 : (most ? most : EDGE_CHANNELS) * (is_send(x->op) ? sends : receives);
            *edge = true;
        } else if (x->op == OP_ALL_REDUCE && !*lane)
            bytes += (most ? most : GROUP_CHANNELS) * (group_of(groups, x->peer, rank).n - 1) * (sends + receives);
        if ((message || x->op == OP_ALL_REDUCE) && !*lane)
            bytes += of_communicator, *lane = true;
    }
    free(seen);
    return bytes;
}

/* ---- at the start ---- */

/* What every rank knows of all: who sends to whom on which lane, and so who shares a communicator, in one global order.
 * A circle is the ranks of one communicator: first those of edges that share a lane, at either end or through other
 * edges; then each group. Its first rank makes its id. */
struct known {
    int size, ngroups, ncircles;
    int32_t *lane;       /* [rank][sends, receives][peer]: 1 + its lane there; 0: no such edge */
    int *of_edge;        /* [from * size + to]: its circle; -1: no such edge */
    int *rank, *rank_at; /* circle c: rank[rank_at[c] .. rank_at[c + 1]), ascending */
    ncclUniqueId *id;    /* per circle */
};

static int32_t lane_of(const struct known *known, int rank, bool receives, int peer) {
    return known->lane[((size_t)rank * 2 + receives) * (size_t)known->size + (size_t)peer];
}

/* False: a rank sends where another does not receive. */
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
            if ((lane_of(known, a, false, b) > 0) != (lane_of(known, b, true, a) > 0))
                return false;
    return true;
}

/* Puts edge from -> to, and all edges that share a lane with it, into the circle. todo has room for all edges. */
static void spread(struct known *known, int from, int to, int circle, int *todo) {
    int n = 0;
    known->of_edge[from * known->size + to] = circle;
    todo[n++] = from * known->size + to;
    while (n > 0) {
        int end[2] = {todo[n - 1] / known->size, todo[n - 1] % known->size}; /* who sends, who receives */
        n--;
        for (int i = 0; i < 2; i++)
            for (int receives = 0; receives < 2; receives++)
                for (int peer = 0; peer < known->size; peer++) {
                    int edge = receives ? peer * known->size + end[i] : end[i] * known->size + peer;
                    if (lane_of(known, end[i], receives, peer) != lane_of(known, end[i], i, end[!i]) ||
                        known->of_edge[edge] >= 0)
                        continue;
                    known->of_edge[edge] = circle;
                    todo[n++] = edge;
                }
    }
}

static void add_member(struct known *known, int rank) { known->rank[known->rank_at[known->ncircles + 1]++] = rank; }

static void begin_circle(struct known *known) { known->rank_at[known->ncircles + 1] = known->rank_at[known->ncircles]; }

/* In the order of their first edges, by sender, then receiver. */
static void circles_of_edges(struct known *known, int *todo) {
    for (int e = 0; e < known->size * known->size; e++)
        known->of_edge[e] = -1;
    for (int a = 0; a < known->size; a++)
        for (int b = 0; b < known->size; b++) {
            if (lane_of(known, a, false, b) == 0 || known->of_edge[a * known->size + b] >= 0)
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
    for (int g = 0; g < known->ngroups; g++) {
        begin_circle(known);
        for (const int32_t *member = group_at(groups, g); *member >= 0; member++)
            add_member(known, *member);
        known->ncircles++;
    }
}

/* How many circles before c have the same first rank. */
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

/* splitShare stays off: with it, aborting one communicator may make others unusable (api/types.rst). */
static int add_communicator(struct nccl *nccl, int ranks, int me, const ncclUniqueId *id, int channels) {
    struct communicator *communicator = &nccl->communicator[nccl->ncommunicators++];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = channels;
    NCCL(nccl, communicator, NULL, ncclCommInitRankConfig(&communicator->comm, ranks, *id, me, &config));
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
    for (int c = 0; c < known->ncircles; c++) {
        int own = rank_in(known, c, me);
        if (own < 0)
            continue;
        bool group = c >= known->ncircles - known->ngroups;
        int communicator = add_communicator(nccl, known->rank_at[c + 1] - known->rank_at[c], own, &known->id[c],
                                            group ? GROUP_CHANNELS : EDGE_CHANNELS);
        if (group)
            nccl->of_group[c - (known->ncircles - known->ngroups)] = communicator;
        for (int p = 0; p < known->size; p++) {
            if (known->of_edge[me * known->size + p] == c)
                nccl->to[p] = (struct end){communicator, rank_in(known, c, p)};
            if (known->of_edge[p * known->size + me] == c)
                nccl->from[p] = (struct end){communicator, rank_in(known, c, p)};
        }
    }
}

/* False: no memory. */
static bool know_room(struct known *known, const int32_t *groups) {
    size_t edges = (size_t)known->size * (size_t)known->size, members = 2 * edges;
    known->ngroups = group_count(groups);
    members += (size_t)(group_at(groups, known->ngroups) - groups);
    known->lane = (int32_t *)calloc(2 * edges, sizeof *known->lane);
    known->of_edge = (int *)calloc(edges, sizeof *known->of_edge);
    known->rank = (int *)calloc(members, sizeof *known->rank);
    known->rank_at = (int *)calloc(edges + (size_t)known->ngroups + 2, sizeof *known->rank_at);
    known->id = (ncclUniqueId *)calloc(edges + (size_t)known->ngroups + 1, sizeof *known->id);
    return known->lane && known->of_edge && known->rank && known->rank_at && known->id;
}

static void know_all(struct nccl *nccl, struct known *known) {
    int *todo = (int *)calloc((size_t)known->size * (size_t)known->size, sizeof *todo);
    if (!todo)
        rank_error(nccl->world->self, "no memory");
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
    ok = ok && (nccl->communicator =
                    (struct communicator *)calloc(2 * size + (size_t)known.ngroups, sizeof *nccl->communicator));
    ok = ok && (nccl->to = (struct end *)calloc(size, sizeof *nccl->to)) &&
         (nccl->from = (struct end *)calloc(size, sizeof *nccl->from));
    ok = ok && (nccl->of_group = (int *)calloc((size_t)known.ngroups + 1, sizeof *nccl->of_group));
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
}

/* ---- at the end ---- */

void nccl_abort(void *link) {
    struct nccl *nccl = (struct nccl *)link;
    pthread_mutex_lock(&nccl->lock); /* for good: no call may follow */
    for (int i = 0; i < nccl->ncommunicators; i++)
        if (nccl->communicator[i].comm)
            ncclCommAbort(nccl->communicator[i].comm);
}

/* All ranks have finished. NCCL sometimes hangs here, when nothing is at stake any more: it gets two seconds. */
void nccl_close(void *link) {
    static const double PATIENCE = 2;
    struct nccl *nccl = (struct nccl *)link;
    double until = seconds() + PATIENCE;
    for (int i = 0; i < nccl->ncommunicators; i++) {
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
    free(nccl->of_group);
    free(nccl->scratch);
    free(nccl);
}
