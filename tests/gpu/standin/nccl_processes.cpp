/* NCCL between processes of one machine: what nccl.cpp does between threads, plus the rules of communicators that do
 * not block.
 *
 * A communicator is a file that its ranks map, named by the unique id. Each rank holds a lock on its byte of the file
 * as long as it lives. The tasks of a rank's running group are in the file. The receiver looks for the sender's task,
 * checks that the two match, copies out of the sender's memory (a memfd, reached through /proc) and marks it done. This
 * is a rendezvous without buffers. In a collective, each rank reads what all send, and writes what it receives when all
 * have read.
 *
 * A call that does not block is in progress until ncclCommGetAsyncError has reported that it is done. That takes a few
 * calls; the first exchange with a rank connects the two, so it also waits for the other's call. Until then NCCL's own
 * thread may or may not have enqueued the work. So nothing else may be called on any communicator, or issued on the
 * stream.
 *
 * The first exchange in a direction, or collective, which has a ring, takes device memory for each channel: 2 MiB to
 * send and 10 MiB to receive, as NCCL 2.28.9 does with its default buffers (src/transport/p2p.cc: p2pSendSetup,
 * p2pRecvSetup).
 *
 * If another rank ends or aborts, the communicator has an error, unless STANDIN_DEAF is set: NCCL does not always
 * notice either. */
#include "nccl_inside.h"
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TASKS = 256 };
enum { FREE, POSTED, DONE };
struct shared_task {
    std::atomic<int> state;
    int kind, peer, type, op, captured, fd;
    uint64_t count, offset; /* the data's size, and its offset in the sender's memfd */
};
struct shared_rank {
    std::atomic<int> pid, device, host, aborted, finalized; /* host: a hash of its name */
    std::atomic<int> come, read; /* number of collectives it has come to, and number whose data it has read */
    shared_task collective;      /* the collective that it has come to */
    shared_task task[TASKS];     /* the running group's tasks, by index */
};
struct segment {
    int fd, n, rank;
    string path;
    std::atomic<int> *come;
    std::atomic<int> *made; /* [from * n + to]: number of calls that exchange something */
    shared_rank *of;        /* [n] */
    char *map;
    size_t bytes;
    bool init = true; /* ncclCommInitRankConfig is in progress */
    bool finalizing = false;
    int asks = 0;                      /* number of times ncclCommGetAsyncError will still say ncclInProgress */
    std::vector<cudaStream_t> streams; /* streams of the call in progress */
    std::set<int> connects;            /* ranks it is connecting to */
    std::vector<bool> connected;
    int channels;
    size_t memory = 0;                     /* bytes of device memory in its buffers */
    std::set<std::pair<int, int>> buffers; /* existing buffers: NCCL_SEND or NCCL_RECV, peer */
    double looked = 0;
    bool lost = false;
    int collectives = 0;        /* number done */
    std::vector<char> received; /* result of the next one */
};

static ncclComm *busy; /* communicator with a call in progress, or null */

static void lay_out(segment *s) {
    size_t n = (size_t)s->n, at = 64;
    s->come = (std::atomic<int> *)s->map;
    s->made = (std::atomic<int> *)(s->map + at);
    at += (n * n * sizeof(int) + 63) / 64 * 64;
    s->of = (shared_rank *)(s->map + at);
}

static struct flock byte_of(int rank) {
    struct flock l = {};
    l.l_type = F_WRLCK;
    l.l_whence = SEEK_SET;
    l.l_start = rank;
    l.l_len = 1;
    return l;
}

static void take_buffers(segment *s, int kind, int peer) {
    if (!s->buffers.insert({kind, peer}).second)
        return;
    size_t bytes = (size_t)s->channels * (kind == NCCL_SEND ? 2 << 20 : 10 << 20);
    if (the().allocated + bytes > the().total)
        broken("MEMORY", "%s has no device memory for its connection with rank %d", call, peer);
    the().allocated += bytes;
    s->memory += bytes;
}

/* Returns a hash of the host's name, by which NCCL tells hosts apart (2.28.9, src/misc/utils.cc: getHostHash, without
 * the kernel's boot id). */
static int host_hash(void) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return (int)std::hash<string>()(name);
}

ncclResult_t processes_init(ncclComm_t *out, int n, const string &name, int rank, int channels) {
    auto s = new segment;
    struct flock own = byte_of(rank);
    if (busy)
        broken("NCCL", "ncclCommInitRankConfig while a call on communicator %d is in progress", busy->all->id);
    s->n = n;
    s->rank = rank;
    s->channels = channels;
    s->path = name;
    s->bytes = 64 + ((size_t)n * (size_t)n * sizeof(int) + 63) / 64 * 64 + (size_t)n * sizeof(shared_rank);
    s->fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes) != 0)
        broken("NCCL", "%s: cannot be made", name.c_str());
    s->map = (char *)mmap(nullptr, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->map == MAP_FAILED || rank < 0 || rank >= n || fcntl(s->fd, F_SETLK, &own) != 0)
        broken("NCCL", "ncclCommInitRankConfig of rank %d of %d, which is none or there already", rank, n);
    lay_out(s);
    s->connected.resize((size_t)n);
    auto all = std::make_shared<clique>();
    static int ids;
    all->id = ids++;
    all->ranks.resize((size_t)n);
    nccl_comms().emplace_back(new ncclComm{all, rank, me()->device, me()->id, true, false, s, {}});
    *out = all->ranks[(size_t)rank] = nccl_comms().back().get();
    s->of[rank].host = host_hash();
    s->of[rank].device = me()->device + 1;
    s->of[rank].pid = getpid();
    busy = *out;
    if (++*s->come == n)
        unlink(name.c_str());
    return ncclInProgress;
}

static void check_devices(const segment *s) {
    for (int r = 0; r < s->n; r++)
        if (r != s->rank && s->of[r].device == s->of[s->rank].device && s->of[r].host == s->of[s->rank].host)
            broken("NCCL", "ranks %d and %d both have device %d", r, s->rank, s->of[r].device - 1);
}

/* ---- calls in progress ---- */

void processes_check_ready(ncclComm *c) {
    if (busy && busy != c)
        broken("NCCL",
               "%s on communicator %d while a call on communicator %d is in progress: their order would be left open",
               call, c->all->id, busy->all->id);
    if (busy)
        broken("NCCL", "%s on communicator %d before the call made earlier has returned ncclSuccess", call, c->all->id);
}

void nccl_check_settled(const CUstream_st *s) {
    if (!busy)
        return;
    for (auto t : busy->shared->streams)
        if (t == s)
            broken("NCCL", "%s on %s while a call of NCCL there is in progress", call, stream_name(s).c_str());
}

static void connect(segment *s, int peer) {
    s->made[s->rank * s->n + peer]++;
    if (!s->connected[(size_t)peer])
        s->connects.insert(peer);
}

void processes_issue(ncclComm *c, const std::vector<nccl_task> &tasks) {
    segment *s = c->shared;
    if (busy)
        broken("NCCL", "a group on more than one communicator, which the stand-in lacks between processes");
    busy = c;
    s->asks = (int)(the().activity * 0x9e3779b97f4a7c15u >> 62);
    for (auto &t : tasks) {
        s->streams.push_back(t.stream);
        if (t.kind <= NCCL_RECV) {
            take_buffers(s, t.kind, t.peer);
            connect(s, t.peer);
            continue;
        }
        for (int r = 0; r < s->n; r++)
            connect(s, r);
        take_buffers(s, NCCL_SEND, (s->rank + 1) % s->n);
        take_buffers(s, NCCL_RECV, (s->rank + s->n - 1) % s->n);
    }
}

/* Returns whether another rank has aborted, or has joined and then lost its lock by ending in any way. */
static bool lost(segment *s) {
    static const bool deaf = getenv("STANDIN_DEAF") != nullptr;
    if (deaf || s->lost || now() < s->looked + 0.01)
        return s->lost;
    s->looked = now();
    for (int r = 0; r < s->n; r++) {
        struct flock l = byte_of(r);
        if (r == s->rank || !s->of[r].pid)
            continue;
        bool gone = fcntl(s->fd, F_GETLK, &l) == 0 && l.l_type == F_UNLCK;
        s->lost |= s->of[r].aborted || (gone && !s->of[r].finalized);
    }
    return s->lost;
}

static bool in_progress(ncclComm *c) {
    segment *s = c->shared;
    if (s->init && (*s->come < s->n || nccl_hangs("init")))
        return true;
    if (s->finalizing) {
        for (int r = 0; r < s->n; r++)
            if (!s->of[r].finalized || nccl_hangs("finalize"))
                return true;
        return !c->queue.empty() && !c->queue.back()->done;
    }
    if (busy != c || s->asks-- > 0)
        return busy == c;
    for (int peer : s->connects)
        if (s->made[peer * s->n + s->rank] == 0)
            return true;
    return false;
}

ncclResult_t processes_state(ncclComm *c) {
    segment *s = c->shared;
    for (int i = 0; i < 4; i++)
        run_one();
    if (lost(s))
        return ncclRemoteError;
    if (in_progress(c)) {
        check_stuck(true);
        return ncclInProgress;
    }
    if (s->init)
        check_devices(s);
    s->init = false;
    for (int peer : s->connects)
        s->connected[(size_t)peer] = true;
    s->connects.clear();
    s->streams.clear();
    busy = busy == c ? nullptr : busy;
    return ncclSuccess;
}

ncclResult_t processes_finalize(ncclComm *c) {
    processes_check_ready(c);
    c->shared->finalizing = true;
    c->shared->of[c->rank].finalized = 1;
    return ncclInProgress;
}

void processes_leave(ncclComm *c, bool aborts) {
    segment *s = c->shared;
    s->of[s->rank].aborted = aborts;
    busy = busy == c ? nullptr : busy;
    if (*s->come < s->n)
        unlink(s->path.c_str());
    close(s->fd); /* releases the lock */
    munmap(s->map, s->bytes);
    the().allocated -= s->memory;
    c->shared = nullptr;
}

/* ---- the running group ---- */

static void describe(shared_task *p, const nccl_group *g, const nccl_task &t) {
    p->kind = t.kind;
    p->peer = t.peer;
    p->type = t.type;
    p->op = t.op;
    p->captured = g->captured;
    p->count = t.count;
    if (t.kind == NCCL_RECV || (t.kind == NCCL_BROADCAST && t.peer != t.comm->rank))
        return;
    memory *m = memory_find(t.send);
    p->fd = m->fd;
    p->offset = (uint64_t)((const char *)t.send - (m->map + 4096)); /* skips the guard page */
}

static void post(const segment *s, const nccl_group *g, size_t i) {
    shared_task &p = s->of[s->rank].task[i];
    if (p.state != FREE)
        return;
    describe(&p, g, g->tasks[i]);
    p.state = POSTED;
}

/* Returns the first task of the peer's running group that sends to this rank. */
static shared_task *sent(const segment *s, int peer) {
    for (auto &p : s->of[peer].task)
        if (p.state == POSTED && p.kind == NCCL_SEND && p.peer == s->rank)
            return &p;
    return nullptr;
}

static void copy_from(const segment *s, int rank, const shared_task &from, char *to, size_t bytes) {
    string path = text("/proc/%d/fd/%d", (int)s->of[rank].pid, from.fd);
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    size_t at = 0;
    for (ssize_t n; fd >= 0 && at < bytes; at += (size_t)n)
        if ((n = pread(fd, to + at, bytes - at, (off_t)(from.offset + at))) <= 0)
            break;
    if (fd >= 0)
        close(fd);
}

static nccl_task task_of(const shared_task &p, ncclComm *comm) {
    return {p.kind, p.peer, p.type, p.op, nullptr, nullptr, p.count, comm, nullptr, false};
}

static bool receive(ncclComm *c, nccl_group *g, nccl_task &t) {
    segment *s = c->shared;
    shared_task *from = nccl_next(g, NCCL_RECV, t.peer) == &t ? sent(s, t.peer) : nullptr;
    if (!from)
        return false;
    ncclComm other = {c->all, t.peer, 0, 0, true, false, nullptr, {}};
    size_t bytes = t.count * nccl_type_bytes[t.type];
    nccl_check_alike(from->captured, task_of(*from, &other), g->captured, t);
    nccl_touch(g, t);
    opened memory({{t.recv, bytes, true}});
    copy_from(s, t.peer, *from, (char *)t.recv, bytes);
    from->state = DONE;
    t.done = true;
    return true;
}

static bool all_have(const segment *s, std::atomic<int> shared_rank::*what, int number) {
    for (int r = 0; r < s->n; r++)
        if (s->of[r].*what < number)
            return false;
    return true;
}

static void read_all(ncclComm *c, const nccl_group *g, const nccl_task &t) {
    segment *s = c->shared;
    size_t bytes = t.count * nccl_type_bytes[t.type] * (t.kind == NCCL_REDUCESCATTER ? (size_t)s->n : 1);
    std::vector<std::vector<char>> sent((size_t)s->n);
    std::vector<const char *> send;
    for (int r = 0; r < s->n; r++) {
        const shared_task &p = s->of[r].collective;
        ncclComm other = {c->all, r, 0, 0, true, false, nullptr, {}};
        nccl_check_alike(g->captured, t, p.captured, task_of(p, &other));
        sent[(size_t)r].resize(bytes);
        if (nccl_receives(t) && (t.kind != NCCL_BROADCAST || r == t.peer))
            copy_from(s, r, p, sent[(size_t)r].data(), bytes);
        send.push_back(sent[(size_t)r].data());
    }
    s->received.clear();
    if (nccl_receives(t))
        s->received = nccl_result(t, (size_t)s->rank, send);
}

/* Runs one collective of a communicator after another: a rank comes to the next only when all have read. */
static void collect(ncclComm *c, nccl_group *g, nccl_task &t) {
    segment *s = c->shared;
    shared_rank &mine = s->of[s->rank];
    int number = s->collectives + 1;
    if (mine.come < number) {
        describe(&mine.collective, g, t);
        mine.come = number;
    }
    if (mine.read < number) {
        if (!all_have(s, &shared_rank::come, number))
            return;
        read_all(c, g, t);
        mine.read = number;
    }
    if (!all_have(s, &shared_rank::read, number))
        return;
    nccl_touch(g, t);
    if (!s->received.empty()) {
        opened memory({{t.recv, s->received.size(), true}});
        memcpy(t.recv, s->received.data(), s->received.size());
    }
    s->collectives = number;
    t.done = true;
}

bool processes_progress(ncclComm *c) {
    segment *s = c->shared;
    nccl_group *g = nccl_running(c);
    bool any = false;
    for (size_t i = 0; i < g->tasks.size(); i++) {
        nccl_task &t = g->tasks[i];
        shared_task &p = s->of[s->rank].task[i];
        if (t.done)
            continue;
        if (t.kind > NCCL_RECV) {
            if (nccl_next(g, 0, -1) == &t)
                collect(c, g, t);
            any |= t.done;
            continue;
        }
        post(s, g, i);
        if (t.kind == NCCL_SEND && p.state == DONE) {
            nccl_touch(g, t);
            t.done = true;
        }
        if (t.kind == NCCL_RECV)
            receive(c, g, t);
        any |= t.done;
    }
    bool done = true;
    for (auto &t : g->tasks)
        done &= t.done;
    for (size_t i = 0; done && i < g->tasks.size(); i++)
        s->of[s->rank].task[i].state = FREE;
    return any;
}

string processes_other_side(ncclComm *c, const nccl_task &t) {
    const segment *s = c->shared;
    for (int r = 0; t.kind > NCCL_RECV && r < s->n; r++)
        if (s->of[r].come <= s->collectives)
            return text(", but rank %d has not come to it", r);
    if (t.kind > NCCL_RECV)
        return ", but not all ranks have read it";
    for (auto &p : c->shared->of[t.peer].task)
        if (p.state == POSTED)
            return text(", but there rank %d is at %s of %zu with rank %d", t.peer,
                        p.kind == NCCL_SEND ? "ncclSend" : "ncclRecv", (size_t)p.count, p.peer);
    return text(", but rank %d has nothing issued there", t.peer);
}
