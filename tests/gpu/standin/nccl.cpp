/* NCCL between threads of one process (nccl_processes.cpp: between processes). An operation is part of a group (of its
 * own, if no group is open), and a group belongs to one communicator. The groups of a rank's communicator run one after
 * another, in issue order, each once all of its streams have reached it, as on NCCL's own stream. A send meets the next
 * receive of the other rank's running group, a collective meets all ranks' collectives. Nothing completes alone, since NCCL
 * promises no buffering. */
#include "nccl_inside.h"
#include "bf16.h"
#include <cstdlib>
#include <cstring>
#include <unistd.h>

std::vector<std::unique_ptr<ncclComm>> &nccl_comms(void) {
    static auto *all = new std::vector<std::unique_ptr<ncclComm>>;
    return *all;
}
static std::map<string, std::shared_ptr<clique>> &cliques(void) {
    static auto *all = new std::map<string, std::shared_ptr<clique>>;
    return *all;
}

const char *const nccl_type_names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                       "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
const size_t nccl_type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const char *op_names[] = {"ncclSum", "ncclProd", "ncclMax", "ncclMin", "ncclAvg"};
static const char *kind_names[] = {"ncclSend",      "ncclRecv",          "ncclAllReduce", "ncclReduce",
                                   "ncclBroadcast", "ncclReduceScatter", "ncclAllGather"};

string nccl_task_name(const nccl_task &t) {
    string s = text("rank %d's %s of %zu %s", t.comm->rank, kind_names[t.kind], t.count, nccl_type_names[t.type]);
    switch (t.kind) {
    case NCCL_SEND: return s + text(" to rank %d", t.peer);
    case NCCL_RECV: return s + text(" from rank %d", t.peer);
    case NCCL_ALLREDUCE:
    case NCCL_REDUCESCATTER: return s + " (" + op_names[t.op] + ")";
    case NCCL_REDUCE: return s + text(" (%s) to rank %d", op_names[t.op], t.peer);
    case NCCL_BROADCAST: return s + text(" from rank %d", t.peer);
    default: return s;
    }
}

/* Returns the bytes that a task reads and writes. Reduce's receive buffer and Broadcast's send buffer count only at the
 * root, which writes nothing if they are the same. */
static std::vector<range> task_ranges(const nccl_task &t) {
    size_t one = t.count * nccl_type_bytes[t.type], n = t.comm->all->ranks.size();
    bool root = t.peer == t.comm->rank;
    switch (t.kind) {
    case NCCL_SEND: return {{t.send, one, false}};
    case NCCL_RECV: return {{t.recv, one, true}};
    case NCCL_REDUCE:
        if (!root)
            return {{t.send, one, false}};
        break;
    case NCCL_BROADCAST:
        if (!root)
            return {{t.recv, one, true}};
        if (t.send == t.recv)
            return {{t.send, one, false}};
        break;
    case NCCL_REDUCESCATTER: return {{t.send, one * n, false}, {t.recv, one, true}};
    case NCCL_ALLGATHER: return {{t.send, one, false}, {t.recv, one * n, true}};
    }
    return {{t.send, one, false}, {t.recv, one, true}};
}

bool nccl_receives(const nccl_task &t) {
    bool root = t.peer == t.comm->rank;
    return t.kind == NCCL_REDUCE ? root : t.kind != NCCL_BROADCAST || !root || t.send != t.recv;
}

/* Checks that send and receive buffers overlap only in the way that nccl.h calls "in-place". */
static void check_in_place(const nccl_task &t) {
    size_t piece = (size_t)t.comm->rank * t.count * nccl_type_bytes[t.type];
    const char *send = (const char *)t.send, *recv = (const char *)t.recv;
    auto ranges = task_ranges(t);
    if (ranges.size() < 2 || send + ranges[0].bytes <= recv || recv + ranges[1].bytes <= send)
        return;
    if (t.kind == NCCL_REDUCESCATTER ? recv != send + piece : send != recv + (t.kind == NCCL_ALLGATHER ? piece : 0))
        broken("NCCL", "%s: its buffers overlap, and not as in-place operations do", nccl_task_name(t).c_str());
}

/* ---- the device side ---- */

void nccl_issue(const std::shared_ptr<nccl_group> &g) {
    ncclComm *c = g->comm;
    if (!c->alive || c->aborted)
        broken("NCCL", "%s on a communicator that was %s", nccl_task_name(g->tasks[0]).c_str(),
               c->aborted ? "aborted" : "destroyed");
    c->queue.push_back(g);
    nccl_order_issue(g);
}
std::shared_ptr<nccl_group> nccl_copy(const std::shared_ptr<nccl_group> &g) { return std::make_shared<nccl_group>(*g); }
bool nccl_done(const nccl_group &g) { return g.done; }
const clocks &nccl_clock(const nccl_group &g) { return g.clock; }
bool nccl_owner(int thread) {
    for (auto &c : nccl_comms())
        if (c->alive && !c->aborted && c->thread == thread)
            return true;
    return false;
}
/* Returns whether processes unknown to this one may supply what is missing. */
bool nccl_remote(void) {
    for (auto &c : nccl_comms())
        if (c->alive && c->shared)
            return true;
    return false;
}
bool nccl_aborted(void) {
    for (auto &c : nccl_comms())
        if (c->aborted)
            return true;
    return false;
}
void nccl_arrive(nccl_group &g, const clocks &clock, int chain) {
    if (g.arrived++ == 0)
        g.chain = chain;
    join(g.clock, clock);
}

nccl_group *nccl_running(ncclComm *c) {
    return c && !c->queue.empty() && c->queue.front()->started ? c->queue.front().get() : nullptr;
}
/* Returns a group's next task that is not done: a send or receive with a peer, or a collective (peer -1). */
nccl_task *nccl_next(nccl_group *g, int kind, int peer) {
    for (auto &t : g->tasks)
        if (!t.done && (peer >= 0 ? t.kind == kind && t.peer == peer : t.kind > NCCL_RECV))
            return &t;
    return nullptr;
}
void nccl_check_alike(bool captured, const nccl_task &a, bool other_captured, const nccl_task &b) {
    bool p2p = a.kind == NCCL_SEND;
    if (a.count != b.count || a.type != b.type || (!p2p && (a.kind != b.kind || a.op != b.op || a.peer != b.peer)))
        broken("NCCL", "%s meets %s: they differ", nccl_task_name(a).c_str(), nccl_task_name(b).c_str());
    if (captured != other_captured)
        broken("NCCL", "%s was %s, but %s, which it meets, was %s", nccl_task_name(a).c_str(),
               captured ? "captured into a graph" : "issued eagerly", nccl_task_name(b).c_str(),
               other_captured ? "captured" : "not");
}
void nccl_touch(const nccl_group *g, const nccl_task &t) {
    auto ranges = task_ranges(t);
    for (auto &r : ranges)
        check_range(r, nccl_task_name(t).c_str());
    touch(ranges, nccl_task_name(t), g->start, g->chain);
}

static bool meet(ncclComm *c, nccl_group *g, nccl_task &send) {
    nccl_group *other = nccl_running(c->all->ranks[(size_t)send.peer]);
    nccl_task *recv =
        other && nccl_next(g, NCCL_SEND, send.peer) == &send ? nccl_next(other, NCCL_RECV, c->rank) : nullptr;
    if (!recv)
        return false;
    nccl_check_alike(g->captured, send, other->captured, *recv);
    nccl_touch(g, send);
    nccl_touch(other, *recv);
    size_t bytes = send.count * nccl_type_bytes[send.type];
    opened both({{send.send, bytes, false}, {recv->recv, bytes, true}});
    memmove(recv->recv, send.send, bytes);
    join(other->clock, g->start);
    send.done = recv->done = true;
    return true;
}

static double load(const char *p, int type, size_t i) {
    switch (type) {
    case ncclInt32: return ((const int32_t *)p)[i];
    case ncclUint32: return ((const uint32_t *)p)[i];
    case ncclFloat32: return ((const float *)p)[i];
    case ncclFloat64: return ((const double *)p)[i];
    case ncclBfloat16: return bf16_widen(((const uint16_t *)p)[i]);
    default: broken("NCCL", "the stand-in reduces no %s", nccl_type_names[type]);
    }
}
static void store(char *p, int type, size_t i, double x) {
    switch (type) {
    case ncclInt32: ((int32_t *)p)[i] = (int32_t)x; break;
    case ncclUint32: ((uint32_t *)p)[i] = (uint32_t)x; break;
    case ncclFloat32: ((float *)p)[i] = (float)x; break;
    case ncclFloat64: ((double *)p)[i] = x; break;
    case ncclBfloat16: ((uint16_t *)p)[i] = bf16_narrow((float)x); break;
    }
}
/* Sums from the last rank to the first, rounding each sum to float. NCCL has its own order, so a caller that relies on
 * rank order must fail here. */
static double reduce(const nccl_task &t, const std::vector<const char *> &send, size_t i) {
    double x = load(send.back(), t.type, i);
    for (size_t k = send.size() - 1; k-- > 0;) {
        double y = load(send[k], t.type, i);
        x = t.op == ncclProd ? x * y : t.op == ncclMax ? std::max(x, y) : t.op == ncclMin ? std::min(x, y) : x + y;
        if (t.type == ncclFloat32 || t.type == ncclBfloat16)
            x = (float)x;
    }
    return t.op == ncclAvg ? x / (double)send.size() : x;
}

/* Sums 64-bit integers, which have more digits than a double. */
static uint64_t reduce_integers(const std::vector<const char *> &send, size_t i) {
    uint64_t x = 0;
    for (auto p : send)
        x += ((const uint64_t *)p)[i];
    return x;
}

std::vector<char> nccl_result(const nccl_task &t, size_t rank, const std::vector<const char *> &send) {
    size_t bytes = t.count * nccl_type_bytes[t.type], from = t.kind == NCCL_REDUCESCATTER ? rank * t.count : 0;
    std::vector<char> out(bytes * (t.kind == NCCL_ALLGATHER ? send.size() : 1));
    if (t.kind == NCCL_BROADCAST)
        memcpy(out.data(), send[(size_t)t.peer], bytes);
    else if (t.kind == NCCL_ALLGATHER)
        for (size_t k = 0; k < send.size(); k++)
            memcpy(out.data() + k * bytes, send[k], bytes);
    else if (t.type == ncclUint64 && t.op == ncclSum)
        for (size_t i = 0; i < t.count; i++)
            ((uint64_t *)out.data())[i] = reduce_integers(send, from + i);
    else
        for (size_t i = 0; i < t.count; i++)
            store(out.data(), t.type, i, reduce(t, send, from + i));
    return out;
}

static void collect(const std::vector<nccl_task *> &all) {
    std::vector<range> ranges;
    std::vector<const char *> send;
    for (auto t : all) {
        for (auto &r : task_ranges(*t))
            ranges.push_back(r);
        send.push_back((const char *)t->send);
    }
    opened memory(ranges);
    std::vector<std::vector<char>> out;
    for (size_t k = 0; k < all.size(); k++)
        out.push_back(nccl_result(*all[0], k, send));
    for (size_t k = 0; k < all.size(); k++)
        if (nccl_receives(*all[k]))
            memcpy(all[k]->recv, out[k].data(), out[k].size());
}

/* Returns whether rank `to` is ordered after rank `from`, because data of `from` reach it. */
static bool reaches(const nccl_task &t, size_t from, size_t to) {
    return from == to || (t.kind == NCCL_BROADCAST ? (int)from == t.peer : t.kind != NCCL_REDUCE || (int)to == t.peer);
}

static bool meet_all(ncclComm *c) {
    std::vector<nccl_task *> tasks;
    std::vector<nccl_group *> groups;
    for (auto r : c->all->ranks) {
        nccl_group *g = nccl_running(r);
        nccl_task *t = g ? nccl_next(g, 0, -1) : nullptr;
        if (!t)
            return false;
        tasks.push_back(t);
        groups.push_back(g);
    }
    for (size_t k = 0; k < tasks.size(); k++) {
        nccl_check_alike(groups[0]->captured, *tasks[0], groups[k]->captured, *tasks[k]);
        nccl_touch(groups[k], *tasks[k]);
    }
    collect(tasks);
    for (size_t k = 0; k < tasks.size(); k++) {
        tasks[k]->done = true;
        for (size_t from = 0; from < tasks.size(); from++)
            if (reaches(*tasks[k], from, k))
                join(groups[k]->clock, groups[from]->start);
    }
    return true;
}

static bool progress(ncclComm *c) {
    bool any = false;
    while (!c->queue.empty() && c->queue.front()->done)
        c->queue.pop_front();
    if (!c->queue.empty() && !c->queue.front()->started && c->queue.front()->arrived == c->queue.front()->needs &&
        !nccl_order_before(*c->queue.front())) {
        c->queue.front()->started = any = true;
        c->queue.front()->start = c->queue.front()->clock;
    }
    nccl_group *g = nccl_running(c);
    if (!g)
        return any;
    bool done = true;
    any |= c->shared && processes_progress(c);
    for (auto &t : g->tasks) {
        if (c->shared)
            ;
        else if (!t.done && t.kind == NCCL_SEND)
            any |= meet(c, g, t);
        else if (!t.done && t.kind > NCCL_RECV)
            any |= meet_all(c);
        done &= t.done;
    }
    any |= done && !g->done;
    g->done |= done;
    return any;
}
void nccl_progress(void) {
    for (bool again = true; again;) {
        again = false;
        for (auto &c : nccl_comms())
            if (c->alive)
                again |= progress(c.get());
    }
}

static string other_side(ncclComm *c, const nccl_task &t) {
    if (c->shared)
        return processes_other_side(c, t);
    ncclComm *o = t.kind <= NCCL_RECV ? c->all->ranks[(size_t)t.peer] : nullptr;
    if (!o)
        for (auto r : c->all->ranks)
            if (!nccl_running(r) || !nccl_next(nccl_running(r), 0, -1))
                o = r;
    if (!o)
        return "";
    if (o->queue.empty())
        return text(", but rank %d has nothing issued there", o->rank);
    nccl_group *g = o->queue.front().get();
    for (auto &u : g->tasks)
        if (!u.done)
            return text(", but there rank %d %s ", o->rank, g->started ? "is at" : "has yet to come to") +
                   nccl_task_name(u);
    return "";
}
string nccl_waits(const nccl_group &g) {
    ncclComm *c = g.comm;
    const nccl_task *t = &g.tasks[0];
    for (auto &u : g.tasks)
        if (u.done == false) {
            t = &u;
            break;
        }
    string s = nccl_task_name(*t) + text(" on communicator %d", c->all->id);
    if (!g.started && c->queue.front().get() != &g)
        return s + ", which waits behind " + nccl_task_name(c->queue.front()->tasks[0]);
    if (!g.started && g.arrived == g.needs)
        return s + nccl_order_waits(g);
    if (!g.started)
        return s + ", which waits for its other streams";
    return s + other_side(c, *t);
}

/* ---- the host side ---- */

static ncclComm *comm_of(ncclComm_t comm) {
    for (auto &c : nccl_comms())
        if (c.get() == comm) {
            if (!c->alive || c->aborted)
                broken("NCCL", "%s on rank %d's communicator %d, which was %s", call, c->rank, c->all->id,
                       c->aborted ? "aborted" : "destroyed");
            return comm;
        }
    broken("NCCL", "%s on what is no communicator", call);
}

/* Issues a group's tasks on one communicator. */
static void issue(ncclComm *c, const std::vector<nccl_task> &tasks) {
    std::vector<cudaStream_t> streams;
    for (auto &t : tasks) {
        bool known = false;
        for (auto s : streams)
            known |= s == t.stream;
        if (!known)
            streams.push_back(t.stream);
    }
    auto g = std::make_shared<nccl_group>();
    g->comm = c;
    g->tasks = tasks;
    g->captured = streams[0]->cap != nullptr;
    g->needs = g->captured ? 1 : streams.size();
    work w;
    w.kind = NCCL;
    w.what = nccl_task_name(tasks[0]);
    w.group = g;
    for (auto s : streams)
        if (s->cap != streams[0]->cap)
            broken("NCCL", "a group has streams of different captures, or one that is captured and one that is not");
    if (!g->captured) {
        nccl_issue(g);
        for (auto s : streams)
            enqueue(s, w);
        return;
    }
    std::vector<int> before;
    for (auto s : streams)
        before.insert(before.end(), s->tips.begin(), s->tips.end());
    std::set<int> once(before.begin(), before.end());
    int i = issue_node(streams[0]->cap, w, {once.begin(), once.end()}, streams[0]);
    for (auto s : streams)
        s->tips = {i};
}

static void check_overlaps(const std::vector<nccl_task> &tasks) {
    std::vector<std::pair<range, size_t>> all;
    for (size_t i = 0; i < tasks.size(); i++)
        for (auto &r : task_ranges(tasks[i]))
            all.push_back({r, i});
    for (auto &a : all)
        for (auto &b : all)
            if (a.second != b.second && a.first.write &&
                (const char *)a.first.at < (const char *)b.first.at + b.first.bytes &&
                (const char *)b.first.at < (const char *)a.first.at + a.first.bytes)
                broken("RACE", "in one group, %s and %s overlap", nccl_task_name(tasks[a.second]).c_str(),
                       nccl_task_name(tasks[b.second]).c_str());
}

static void end_group(void) {
    std::vector<nccl_task> tasks;
    tasks.swap(me()->tasks);
    if (tasks.size() > 256)
        broken("NCCL", "a group of %zu operations: more than 256 may be split differently on each rank", tasks.size());
    check_overlaps(tasks);
    std::vector<ncclComm *> order;
    std::map<ncclComm *, std::vector<nccl_task>> by;
    for (auto &t : tasks) {
        if (by[t.comm].empty())
            order.push_back(t.comm);
        by[t.comm].push_back(t);
    }
    for (auto c : order)
        issue(c, by[c]);
    for (auto c : order)
        if (c->shared)
            processes_issue(c, by[c]);
}
/* Returns the status of an NCCL call; without blocking, only that it has begun. */
static ncclResult_t result(ncclComm *c) { return c->shared ? ncclInProgress : ncclSuccess; }

static ncclResult_t add(int kind, const void *send, void *recv, size_t count, ncclDataType_t type, int op, int peer,
                        ncclComm_t comm, cudaStream_t stream) {
    static auto *issuer = new std::map<int, int>; /* per device: the thread that issues */
    ncclComm *c = comm_of(comm);
    stream = stream_of(stream, call);
    if (type < 0 || type >= ncclNumTypes || op < 0 || op >= ncclNumOps || peer < 0 || peer >= (int)c->all->ranks.size())
        broken("NCCL", "%s with type %d, operation %d, rank %d of %zu", call, type, op, peer, c->all->ranks.size());
    int thread = issuer->insert({c->device, me()->id}).first->second;
    if (c->thread != me()->id || thread != me()->id)
        broken("NCCL", "%s by thread %d: thread %d issues for rank %d on device %d", call, me()->id,
               c->thread != me()->id ? c->thread : thread, c->rank, c->device);
    if (stream->device != c->device)
        broken("NCCL", "%s on %s, but the communicator is of device %d", call, stream_name(stream).c_str(), c->device);
    nccl_task t = {kind, peer, type, op, send, recv, count, c, stream, false};
    for (auto &r : task_ranges(t)) {
        check_range(r, nccl_task_name(t).c_str());
        if ((uintptr_t)r.at % nccl_type_bytes[type] != 0)
            broken("MEMORY", "%s at %p, which is not a multiple of its type's size", nccl_task_name(t).c_str(), r.at);
    }
    check_in_place(t);
    if (c->shared)
        processes_check_ready(c);
    me()->tasks.push_back(t);
    if (me()->depth == 0)
        end_group();
    return me()->depth == 0 ? result(c) : ncclSuccess;
}

/* STANDIN_HANGS=init, abort or finalize: that call never returns, as sometimes in NCCL. */
bool nccl_hangs(const char *what) {
    const char *s = getenv("STANDIN_HANGS");
    return s && strcmp(s, what) == 0;
}

extern "C" {

ncclResult_t ncclGroupStart(void) {
    entered here("ncclGroupStart");
    me()->depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
    entered here("ncclGroupEnd");
    if (me()->depth == 0)
        broken("NCCL", "ncclGroupEnd without ncclGroupStart");
    ncclComm *some = me()->tasks.empty() ? nullptr : me()->tasks[0].comm;
    if (--me()->depth > 0 || !some)
        return ncclSuccess;
    end_group();
    return result(some);
}
ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s) {
    entered here("ncclSend");
    return add(NCCL_SEND, p, nullptr, n, type, 0, peer, comm, s);
}
ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s) {
    entered here("ncclRecv");
    return add(NCCL_RECV, nullptr, p, n, type, 0, peer, comm, s);
}
ncclResult_t ncclAllReduce(const void *p, void *q, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t s) {
    entered here("ncclAllReduce");
    return add(NCCL_ALLREDUCE, p, q, n, type, op, 0, comm, s);
}
ncclResult_t ncclReduce(const void *p, void *q, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t s) {
    entered here("ncclReduce");
    return add(NCCL_REDUCE, p, q, n, type, op, root, comm, s);
}
ncclResult_t ncclBroadcast(const void *p, void *q, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t s) {
    entered here("ncclBroadcast");
    return add(NCCL_BROADCAST, p, q, n, type, 0, root, comm, s);
}
ncclResult_t ncclReduceScatter(const void *p, void *q, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t s) {
    entered here("ncclReduceScatter");
    return add(NCCL_REDUCESCATTER, p, q, n, type, op, 0, comm, s);
}
ncclResult_t ncclAllGather(const void *p, void *q, size_t n, ncclDataType_t type, ncclComm_t comm, cudaStream_t s) {
    entered here("ncclAllGather");
    return add(NCCL_ALLGATHER, p, q, n, type, 0, 0, comm, s);
}

/* ---- communicators ---- */

/* STANDIN_NCCL gives the version, for example 22602. */
ncclResult_t ncclGetVersion(int *v) {
    const char *s = getenv("STANDIN_NCCL");
    return *v = s ? atoi(s) : NCCL_VERSION_CODE, ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    entered here("ncclGetUniqueId");
    auto c = std::make_shared<clique>();
    c->id = (int)cliques().size();
    const char *room = getenv("TMPDIR");
    string name = text("%s/standin-%d-%d", room && *room ? room : "/dev/shm", (int)getpid(), c->id);
    if (name.size() >= sizeof id->internal)
        broken("NCCL", "%s: a shorter TMPDIR, please", name.c_str());
    memset(id, 0, sizeof *id);
    memcpy(id->internal, name.c_str(), name.size());
    cliques()[name] = c;
    return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank) {
    entered here("ncclCommInitRank");
    check_creation(call);
    check_not_capturing(call);
    auto found = cliques().find(string(id.internal, strnlen(id.internal, sizeof id.internal)));
    if (me()->depth > 0)
        broken("NCCL", "ncclCommInitRank in a group, which the stand-in lacks: one thread per rank");
    if (found == cliques().end())
        broken("NCCL", "ncclCommInitRank with an id of another process: the stand-in's ranks are threads");
    auto all = found->second;
    all->ranks.resize((size_t)n);
    if (rank < 0 || rank >= n || all->ranks[(size_t)rank])
        broken("NCCL", "ncclCommInitRank of rank %d of %d, which %s", rank, n,
               rank < 0 || rank >= n ? "is none" : "is there already");
    for (auto r : all->ranks)
        if (r && r->device == me()->device)
            broken("NCCL", "ncclCommInitRank: ranks %d and %d both have device %d", r->rank, rank, me()->device);
    nccl_comms().emplace_back(new ncclComm{all, rank, me()->device, me()->id, true, false, nullptr, {}});
    *out = all->ranks[(size_t)rank] = nccl_comms().back().get();
    all->come++;
    wait_until([=] { return all->come == (size_t)n; }, text("ncclCommInitRank of rank %d of %d", rank, n), true);
    return ncclSuccess;
}

/* In this stand-in, ranks are processes if and only if blocking = 0. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank, ncclConfig_t *config) {
    entered here("ncclCommInitRankConfig");
    check_creation(call);
    check_not_capturing(call);
    if (config->size != sizeof *config || config->magic != 0xcafebeef)
        broken("NCCL", "ncclCommInitRankConfig with a configuration that NCCL_CONFIG_INITIALIZER did not set");
    if (config->blocking != 0 || me()->depth > 0)
        broken("NCCL", "ncclCommInitRankConfig in a group, or blocking, which the stand-in lacks");
    bool least = config->minCTAs != NCCL_CONFIG_UNDEF_INT, most = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
    if ((least && config->minCTAs <= 0) || (most && config->maxCTAs <= 0) ||
        (least && most && config->minCTAs > config->maxCTAs))
        broken("NCCL", "ncclCommInitRankConfig with minCTAs %d and maxCTAs %d", config->minCTAs, config->maxCTAs);
    if (config->splitShare == 1)
        broken("NCCL", "ncclCommInitRankConfig with splitShare: aborting one communicator may make others unusable");
    return processes_init(out, n, string(id.internal, strnlen(id.internal, sizeof id.internal)), rank,
                          most ? config->maxCTAs : 32);
}

static void check_unused(ncclComm *c) {
    bool used = !c->queue.empty() && !c->queue.back()->done;
    for (auto &g : the().graphs)
        for (auto &n : g->nodes)
            used |= g->alive && n.w.group && n.w.group->comm == c;
    for (auto &e : the().execs)
        for (auto &n : e->nodes)
            used |= e->alive && n.w.group && n.w.group->comm == c;
    if (used)
        broken("NCCL", "%s of rank %d's communicator %d, which has work left or is in a graph that lives", call,
               c->rank, c->all->id);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    entered here("ncclCommFinalize");
    return comm_of(comm)->shared ? processes_finalize(comm) : ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    entered here("ncclCommDestroy");
    check_not_capturing(call);
    check_unused(comm_of(comm));
    if (comm->shared)
        processes_leave(comm, false);
    comm->alive = false;
    return ncclSuccess;
}
/* May be called from any thread. The rank's work on its streams ends, with arbitrary contents in its buffers. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    entered here("ncclCommAbort");
    comm_of(comm);
    while (nccl_hangs("abort")) {
        here.lock.unlock();
        sleep(1);
        here.lock.lock();
    }
    for (auto &g : comm->queue)
        g->done = true;
    comm->queue.clear();
    if (comm->shared)
        processes_leave(comm, true);
    comm->aborted = comm->all->aborted = true;
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    entered here("ncclCommGetAsyncError", true);
    *error = comm_of(comm)->shared ? processes_state(comm) : comm->all->aborted ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *n) {
    entered here("ncclCommCount");
    *n = (int)comm_of(comm)->all->ranks.size();
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    entered here("ncclCommUserRank");
    *rank = comm_of(comm)->rank;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t e) {
    static const char *names[] = {"no error",
                                  "unhandled cuda error",
                                  "unhandled system error",
                                  "internal error",
                                  "invalid argument",
                                  "invalid usage",
                                  "remote process exited or there was a network error",
                                  "NCCL operation in progress"};
    return e >= 0 && e < ncclNumResults ? names[e] : "unknown result code";
}
static const char *last_error = "";
const char *ncclGetLastError(ncclComm_t) { return last_error; }

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t n, void **handle) {
    entered here("ncclCommRegister");
    check_creation(call);
    if (comm_of(comm)->shared)
        processes_check_ready(comm);
    check_range({p, n, false}, call);
    memory *a = memory_find(p);
    a->registered++;
    *handle = a;
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    entered here("ncclCommDeregister");
    comm_of(comm);
    for (auto &e : the().memories)
        if (&e.second == handle && e.second.registered-- > 0)
            return ncclSuccess;
    broken("NCCL", "ncclCommDeregister of what is not registered");
}
/* STANDIN_NCCL_ALLOC gives the reason for a refusal. */
ncclResult_t ncclMemAlloc(void **p, size_t n) {
    entered here("ncclMemAlloc");
    bool fits = the().allocated + n <= the().total;
    if (const char *reason = fits ? getenv("STANDIN_NCCL_ALLOC") : "Cuda failure 2 'out of memory'")
        return last_error = reason, ncclUnhandledCudaError;
    *p = memory_new(n, DEVICE, call);
    memory_find(*p)->nccl = true;
    return ncclSuccess;
}
ncclResult_t ncclMemFree(void *p) {
    {
        entered here("ncclMemFree");
        memory *a = memory_find(p);
        if (a && !a->nccl)
            broken("NCCL", "ncclMemFree of %p, which ncclMemAlloc did not give", p);
    }
    return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
}
