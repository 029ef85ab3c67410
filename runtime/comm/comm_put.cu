/* Messages by one-sided copies, between ranks that are processes of one host. Each rank maps the memory of the ranks
 * that it communicates with (CUDA IPC), and copies straight to the planned place in it. Between GPUs, copy engines do
 * this. No kernel waits, nothing is queued, and no library makes decisions: a message is just a copy and two words.
 *
 * A word is 4 bytes after the arena of the rank that awaits it: a stream of that rank waits until it is 1, then resets
 * it to 0. A stream of another rank posts it: writes the 1. A message has a word on each side,
 *
 *     SEND                          RECV
 *     await(credit)   <-----------  post(credit)      its waits are over: the buffer is free
 *     copy            ----------->
 *     post(arrival)   ----------->  await(arrival)
 *
 * and a collective has two for every other member. Where members copy to others (ALL_GATHER, BROADCAST, ALL_TO_ALL_A),
 * they do it as in messages:
 *
 *     post(ready) to each who copies to me
 *     await(ready), copy, post(done)       to each whom I copy to, once it says that I may
 *     await(done)                          from each who copies to me
 *
 * Where they sum (ALL_REDUCE, REDUCE_SCATTER, REDUCE), they read the summands in place, without a scratch buffer:
 *
 *     post(ready) to each who reads mine
 *     await(ready)                         from each whom I read: all parts are whole
 *     add                                  in the members' order
 *     post(done)                           to each whom I read: it may change what I have read
 *     await(done)                          from each who reads mine
 *
 * ALL_REDUCE does this with the i-th share of dw for member i, who copies the sum to all before done. So collectives
 * move as many bytes as a ring, and add as ops.h says: the bits are the host's.
 *
 * A graph repeats constants, so words cannot count steps. They need not, because each is posted only after its reset.
 * The next step's credit is posted after this step's RECV, whose arrival was posted after the await that reset the
 * credit; the next step's arrival is posted after its credit, which was posted after this step's arrival was reset. In
 * a collective, one member posts the next step's ready after the other's done of this step, which came after the reset
 * of ready. The other posts its done after that ready, which came after the reset of done. A rank's device finishes
 * each step before it starts the next: both are on one stream (step_cuda.cu), where the next one may already be
 * waiting. Nothing here depends on how far the other ranks are. So captured and enqueued steps can be mixed, and every
 * run begins with zeros, whichever step it resumes at.
 *
 * What a stream did before posting a word is visible to the stream that awaited it: cuStreamWriteValue32 puts a
 * system-wide fence before its write, and every wait flushes remote writes if the device can
 * (CU_STREAM_WAIT_VALUE_FLUSH).
 *
 * CUDA does not know this order between streams, and its documentation warns of streams that share a hardware queue: a
 * waiting stream holds up the work queued after it. The compiler's issue order is safe even then: a rank could run it
 * one instruction after another, with every SEND waiting for its RECV. Enqueued steps keep that order. In a graph
 * device_cuda.cu makes one branch of all messages, and rank_cuda.cu asks for as many queues as possible.
 *
 * Ranks may share a GPU, which then switches between their processes. Waits occupy no multiprocessor, so they should
 * not prevent a switch; but CUDA does not promise this. So before training, ranks that share a GPU pass a token around,
 * each waiting while the others run (comm_put_share.cu). If the token does not return, the run ends. A rank that ends
 * early makes no calls: its context, with its streams' waits, goes with the process. */
#include "comm_put.cuh"
extern "C" {
#include "watch.h"
}
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static bool can(enum cudaDeviceAttr what) {
    int device, yes = 0;
    CUDA(cudaGetDevice(&device));
    return cudaDeviceGetAttribute(&yes, what, device) == cudaSuccess && yes;
}

/* ---- words ---- */

static const struct part *own_part(const struct put *put, int rank, int32_t msg) {
    const struct part *part = &put->part[(size_t)rank * (size_t)put->program->nmsgs + (size_t)msg];
    assert(part->words >= 0 && put->memory[rank]);
    return part;
}
static char *peer_tensor(const struct put *put, int rank, int32_t msg) {
    return put->memory[rank] + own_part(put, rank, msg)->tensor;
}
static char *peer_result(const struct put *put, int rank, int32_t msg) {
    return put->memory[rank] + own_part(put, rank, msg)->result;
}
static uint32_t *word(const struct put *put, int rank, int32_t msg, int number) {
    return (uint32_t *)(put->memory[rank] + own_part(put, rank, msg)->words) + number;
}

/* Posts a word. Uses a copy if streams cannot write words of another device; cuda.h does not say whether they can. */
void put_post(const struct put *put, uint32_t *word, cudaStream_t stream) {
    if (put->one)
        CUDA(cudaMemcpyAsync(word, put->one, sizeof *word, cudaMemcpyDeviceToDevice, stream));
    else
        cuda_write_word(stream, word, 1);
}
void put_await(const struct put *put, uint32_t *word, cudaStream_t stream) {
    cuda_take_word(stream, word, 1, put->flush);
}

/* ---- messages ---- */

/* Enqueues a message. A SEND's times are the copy's. A RECV's end with the copy, but begin when it could start: only
 * the sender knows when the copy does. */
static bool put_message(void *link, struct replay *re, const struct rt_instr *x) {
    struct put *put = (struct put *)link;
    cudaStream_t stream = put->rank->lane[x->lane];
    uint32_t *mine = word(put, re->rank, x->msg, 0), *its = word(put, x->peer, x->msg, 0);
    int32_t i = (int32_t)(x - re->program->rank[re->rank].ins);
    if (is_send(x->op)) {
        put_await(put, mine, stream);
        cuda_mark(put->rank, i, false, stream);
        if (x->bytes > 0)
            CUDA(cudaMemcpyAsync(peer_tensor(put, x->peer, x->msg), peer_tensor(put, re->rank, x->msg),
                                 (size_t)x->bytes, cudaMemcpyDeviceToDevice, stream));
        put_post(put, its, stream);
    } else {
        cuda_mark(put->rank, i, false, stream);
        put_post(put, its, stream);
        put_await(put, mine, stream);
    }
    cuda_mark(put->rank, i, true, stream);
    return true;
}

/* ---- collectives ---- */

enum { READY, DONE, PHASES }; /* the words of a collective, one of each per rank */

struct collective { /* this rank's part in a collective */
    const struct put *put;
    const struct rt_instr *x;
    struct rt_group group;
    cudaStream_t stream;
};

/* Returns whether data of member `from` reach another member, `to`. */
static bool flows(const struct collective *c, int from, int to) {
    if (c->x->op == OP_BROADCAST)
        return c->group.member[from] == c->x->root;
    return c->x->op != OP_REDUCE || c->group.member[to] == c->x->root;
}

/* Returns the k-th other member, counting from the one after me, so that not all members use the same one at once. */
static int other(const struct collective *c, int k) { return (c->group.me + k) % c->group.n; }
static bool sends_to(const struct collective *c, int member) { return flows(c, c->group.me, member); }
static bool has_of(const struct collective *c, int member) { return flows(c, member, c->group.me); }

static void post_to(const struct collective *c, int member, int phase) {
    int workers = c->put->world->size, self = c->put->world->rank;
    put_post(c->put, word(c->put, c->group.member[member], c->x->msg, phase * workers + self), c->stream);
}
static void await_from(const struct collective *c, int member, int phase) {
    int workers = c->put->world->size, self = c->put->world->rank;
    put_await(c->put, word(c->put, self, c->x->msg, phase * workers + c->group.member[member]), c->stream);
}

/* Posts to each other member for which `with` is true. */
static void post_all(const struct collective *c, bool (*with)(const struct collective *c, int member), int phase) {
    for (int k = 1; k < c->group.n; k++)
        if (with(c, other(c, k)))
            post_to(c, other(c, k), phase);
}
static void await_all(const struct collective *c, bool (*with)(const struct collective *c, int member), int phase) {
    for (int k = 1; k < c->group.n; k++)
        if (with(c, other(c, k)))
            await_from(c, other(c, k), phase);
}

static void enqueue_copy(char *to, const char *from, int64_t bytes, cudaStream_t stream) {
    if (bytes > 0 && to != from)
        CUDA(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, stream));
}

/* ---- collectives that copy to others ---- */

static void copy_piece(const struct collective *c, int to) {
    int64_t bytes = motion_of(c->x->op) == OP_ALL_TO_ALL_A ? c->x->bytes / c->group.n : c->x->bytes;
    char *from = peer_tensor(c->put, c->put->world->rank, c->x->msg),
         *at = peer_result(c->put, c->group.member[to], c->x->msg);
    from += motion_of(c->x->op) == OP_ALL_TO_ALL_A ? to * bytes : 0;
    at += c->x->op == OP_BROADCAST ? 0 : c->group.me * bytes;
    enqueue_copy(at, from, bytes, c->stream);
}

static void distribute(const struct collective *c) {
    post_all(c, has_of, READY);
    if (c->x->op != OP_BROADCAST)
        copy_piece(c, c->group.me);
    for (int k = 1; k < c->group.n; k++) {
        int to = other(c, k);
        if (!sends_to(c, to))
            continue;
        await_from(c, to, READY);
        copy_piece(c, to);
        post_to(c, to, DONE);
    }
    await_all(c, has_of, DONE);
}

/* ---- collectives that sum ---- */

enum {
    THREADS = 256,
    BLOCKS = 132 * 4,
    PAGE = 1024, /* elements: shares begin on a page, so that members never write the same one */
    MEMBERS = 64 /* maximum members of a group: a kernel's arguments hold their addresses */
};
template <typename T> struct members { const T *share[MEMBERS]; /* each member's data, in the members' order */ };

template <typename T, int V>
static __device__ void add_at(T *mine, const members<T> &from, int ranks, bool first, int64_t i) {
    float sum[V];
    pack<T, V> x = load<V>(from.share[0] + i);
    for (int k = 0; k < V; k++)
        sum[k] = widen(x.v[k]);
    for (int r = 1; r < ranks; r++) {
        x = load<V>(from.share[r] + i);
        for (int k = 0; k < V; k++)
            sum[k] += widen(x.v[k]);
    }
    if (!first)
        x = load<V>(mine + i);
    for (int k = 0; k < V; k++)
        x.v[k] = narrow<T>(first ? sum[k] : sum[k] + widen(x.v[k]));
    store(mine + i, x);
}

/* Sets mine to, or increments it by, the sum of the shares, one of which may be mine. */
template <typename T> static __global__ void add_shares(T *mine, members<T> from, int ranks, bool first, int64_t n) {
    constexpr int V = WIDE<T>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V, stride = (int64_t)gridDim.x * THREADS * V;
    for (; i + V <= n; i += stride)
        add_at<T, V>(mine, from, ranks, first, i);
    for (; i < n && i + V > n; i++)
        add_at<T, 1>(mine, from, ranks, first, i);
}

/* Sets mine to, or increments it by, the sum of n elements from byte `at` of all members' first operands. */
template <typename T> static void add_as(const struct collective *c, char *mine, int64_t at, int64_t n) {
    members<T> from;
    bool first = writes_sum(c->x) || c->x->op == OP_ALL_REDUCE;
    for (int r = 0; r < c->group.n; r++)
        from.share[r] = (const T *)(peer_tensor(c->put, c->group.member[r], c->x->msg) + at);
    if (n > 0)
        LAUNCH(add_shares<T>, min(blocks_for(n, THREADS * WIDE<T>), (unsigned)BLOCKS), THREADS, 0, c->stream, (T *)mine,
               from, c->group.n, first, n);
}
static int64_t number_bytes(const struct collective *c) { return summand_bytes(c->put->program->model, c->x->op); }
/* Adds the others' norms, which are integers, so any order gives the same sum. */
static void add_norms(const struct collective *c, char *mine) {
    for (int k = 1; k < c->group.n; k++)
        cuda_add_norm((uint64_t *)mine, (const uint64_t *)peer_tensor(c->put, c->group.member[other(c, k)], c->x->msg),
                      c->stream);
}
static void add_peers(const struct collective *c, char *mine, int64_t at, int64_t n) {
    (number_bytes(c) == 2 ? add_as<__nv_bfloat16> : add_as<float>)(c, mine, at, n);
}

static void sum_to_all(const struct collective *c) {
    int64_t size = number_bytes(c), n = c->x->bytes / size, share = (n + c->group.n - 1) / c->group.n;
    share = (share + PAGE - 1) / PAGE * PAGE;
    int64_t begin = min(c->group.me * share, n), own = min(begin + share, n) - begin, at = begin * size;
    char *mine = peer_tensor(c->put, c->put->world->rank, c->x->msg) + at;
    if (c->x->op != OP_ALL_REDUCE_N)
        add_peers(c, mine, at, own);
    else if (own > 0) /* the first member's share is the whole tensor */
        add_norms(c, mine);
    for (int k = 1; k < c->group.n; k++)
        enqueue_copy(peer_tensor(c->put, c->group.member[other(c, k)], c->x->msg) + at, mine, own * size, c->stream);
}

static void sum_to_root(const struct collective *c) {
    int64_t n = c->x->bytes / number_bytes(c);
    char *sum = peer_result(c->put, c->put->world->rank, c->x->msg);
    post_all(c, sends_to, READY);
    await_all(c, has_of, READY);
    if (motion_of(c->x->op) == OP_ALL_REDUCE)
        sum_to_all(c);
    else if (motion_of(c->x->op) == OP_REDUCE_SCATTER)
        add_peers(c, sum, c->group.me * c->x->bytes, n);
    else if (c->x->root == c->put->world->rank)
        add_peers(c, sum, 0, n);
    post_all(c, has_of, DONE);
    await_all(c, sends_to, DONE);
}

static bool put_collective(void *link, struct replay *re, const struct rt_instr *x) {
    struct put *put = (struct put *)link;
    struct collective c = {put, x, group_of(put->groups, x->group, re->rank), put->rank->lane[x->lane]};
    int32_t i = (int32_t)(x - re->program->rank[re->rank].ins);
    cuda_mark(put->rank, i, false, c.stream);
    (sums(x->op) ? sum_to_root : distribute)(&c);
    cuda_mark(put->rank, i, true, c.stream);
    return true;
}

/* ---- memory ---- */

static int64_t words_bytes(const struct rt_instr *x, int workers) {
    return (int64_t)sizeof(uint32_t) * (!is_message(x->op) ? 0 : is_group(x->op) ? PHASES * workers : 1);
}

static int64_t put_extra_bytes(const struct rt_program *p, int rank) {
    int64_t bytes = sizeof(struct own_words);
    for (int32_t i = 0; i < p->rank[rank].nins; i++)
        bytes += words_bytes(&p->rank[rank].ins[i], p->workers);
    return bytes;
}

/* Allocates whole blocks of CUDA's allocator: a smaller allocation would share its block with other memory, which other
 * processes would then map too. */
static char *put_allocate(int, size_t bytes, char *why, size_t n) {
    static const size_t BLOCK = 2 << 20;
    return cuda_allocate((bytes + BLOCK - 1) / BLOCK * BLOCK, why, n);
}
static void put_free(char *p) { cudaFree(p); }

/* ---- at the start ---- */

/* Sets the rank's parts in messages, in the order of its instructions. */
static void own_parts(const struct put *put, struct part *part) {
    const struct rt_program *all = put->program;
    const struct rt_rank *k = &all->rank[put->world->rank];
    int64_t words = put->rank->extra - put->rank->arena + (int64_t)sizeof(struct own_words);
    for (int32_t m = 0; m < all->nmsgs; m++)
        part[m].tensor = part[m].result = part[m].words = -1;
    for (int32_t i = 0; i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        bool has_src = is_group(x->op) && motion_of(x->op) != OP_ALL_REDUCE;
        if (is_message(x->op))
            part[x->msg] = {has_src ? operand_at(x, ROLE_src) : result_at(x), result_at(x), words};
        words += words_bytes(x, all->workers);
    }
}

/* Marks the ranks that this one exchanges anything with. Returns false and sets why if a group is too large. */
static bool find_peers(const struct put *put, bool *peer, char *why, size_t n) {
    const struct rt_rank *k = &put->program->rank[put->world->rank];
    for (int32_t i = 0; i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        int ranks = 0;
        if (is_group(x->op))
            for (const int32_t *m = group_at(put->groups, x->group); *m >= 0; m++, ranks++)
                peer[*m] = true;
        else if (is_message(x->op))
            peer[x->peer] = true;
        if (sums(x->op) && ranks > MEMBERS) {
            snprintf(why, n, "rank %d reduces with %d ranks, and --messages put with %d at most; use --messages nccl",
                     put->world->rank, ranks - 1, MEMBERS - 1);
            return false;
        }
    }
    return true;
}

static bool map_peer(struct put *put, const cudaIpcMemHandle_t *handle, const bool *peer, char *why, size_t n) {
    int me = put->world->rank;
    put->memory[me] = put->rank->arena;
    for (int k = 0; k < put->world->size; k++) {
        if (!peer[k] || k == me)
            continue;
        cudaError_t code = cudaIpcOpenMemHandle((void **)&put->memory[k], handle[k], cudaIpcMemLazyEnablePeerAccess);
        if (code != cudaSuccess) {
            cudaGetLastError();
            snprintf(why, n, "rank %d cannot reach the GPU memory of rank %d: %s; use --messages nccl", me, k,
                     cudaGetErrorString(code));
            return false;
        }
    }
    return true;
}

/* Returns whether this rank's streams can write the words of all peers. All words are still 0, and the other ranks wait
 * for this one. */
static bool writes_words(const struct put *put) {
    const struct rt_rank *k = &put->program->rank[put->world->rank];
    bool writes = cuda_writes_word(put->rank->lane[0], &put_words(put, put_next_sharer(put))->token);
    for (int32_t i = 0; i < k->nins && writes; i++) {
        const struct rt_instr *x = &k->ins[i];
        const int32_t *member = is_group(x->op) ? group_at(put->groups, x->group) : &x->peer;
        for (int n = 0; is_message(x->op) && writes && (is_group(x->op) ? member[n] >= 0 : n < 1); n++)
            writes = cuda_writes_word(put->rank->lane[x->lane], word(put, member[n], x->msg, 0));
    }
    CUDA(cudaDeviceSynchronize());
    return writes;
}

static void put_open(const struct world *world, const struct rt_program *program, const int32_t *groups,
                     struct cuda_rank *c) {
    char why[1000];
    size_t size = (size_t)world->size, nmsgs = (size_t)program->nmsgs;
    struct put *put = (struct put *)calloc(1, sizeof *put);
    struct part *mine = (struct part *)calloc(nmsgs + 1, sizeof *mine);
    cudaIpcMemHandle_t own, *handle = (cudaIpcMemHandle_t *)calloc(size, sizeof *handle);
    bool *peer = (bool *)calloc(size, sizeof *peer);
    bool ok = put && mine && handle && peer;
    ok = ok && (put->memory = (char **)calloc(size, sizeof *put->memory));
    ok = ok && (put->part = (struct part *)calloc(size * nmsgs + 1, sizeof *put->part));
    ok = ok && (put->place = (struct place *)calloc(size, sizeof *put->place));
    snprintf(why, sizeof why, "rank %d: no memory for its messages", world->rank);
    world_verdict(world, ok, why);
    put->world = world;
    put->program = program;
    put->groups = groups;
    put->rank = c;
    put->flush = can(cudaDevAttrCanFlushRemoteWrites);
    cudaError_t code = can(cudaDevAttrIpcEventSupport) ? cudaIpcGetMemHandle(&own, c->arena) : cudaErrorNotSupported;
    cudaGetLastError();
    snprintf(why, sizeof why, "rank %d: its GPU cannot share memory with other processes: %s; use --messages nccl",
             world->rank, cudaGetErrorString(code));
    world_verdict(world, code == cudaSuccess, why);
    own_parts(put, mine);
    CUDA(cudaDeviceSynchronize()); /* this rank's words are 0 before others learn of them */
    put_work_a_little(put);
    CUDA(cudaDeviceSynchronize());
    world->all(world->link, &own, handle, sizeof own);
    if (nmsgs > 0)
        world->all(world->link, mine, put->part, nmsgs * sizeof *mine);
    bool shares = put_find_sharers(put) > 1;
    peer[put_next_sharer(put)] = true;
    ok = find_peers(put, peer, why, sizeof why) && map_peer(put, handle, peer, why, sizeof why);
    if (ok && !writes_words(put)) {
        const uint32_t one = 1;
        put->one = &((struct own_words *)c->extra)->one;
        cuda_store(put->one, &one, sizeof one);
    }
    world_verdict(world, ok, why);
    world_verdict(world, !shares || put_pass_token(put, why, sizeof why), why);
    if (shares)
        watch_hint(put->hint);
    c->link = put;
    free(mine);
    free(handle);
    free(peer);
}

/* ---- at the end ---- */

/* Frees memory only when no other rank has it mapped any more. */
static void put_close(void *link) {
    struct put *put = (struct put *)link;
    const struct world *world = put->world;
    char here = 0, *all = (char *)malloc((size_t)world->size);
    for (int k = 0; k < world->size; k++)
        if (put->memory[k] && k != world->rank)
            CUDA(cudaIpcCloseMemHandle(put->memory[k]));
    if (all)
        world->all(world->link, &here, all, sizeof here);
    free(all);
    watch_hint(NULL);
    free(put->memory);
    free(put->part);
    free(put->place);
    free(put);
}

extern const struct cuda_transport cuda_put = {
    "put",           NULL, true,     put_message, put_collective, put_allocate, put_free,
    put_extra_bytes, NULL, put_open, NULL,        NULL,           put_close,    true};
