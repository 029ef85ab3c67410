/* NCCL between processes of one machine: what nccl.cpp does between threads, for sends and receives, and what is
 * different about communicators that do not block.
 *
 * A communicator is a file that its ranks map, named by the unique id; each holds a lock on its byte of it as long as
 * it lives. The tasks of a rank's running group are in the file. The receiver looks for the sender's task, checks that
 * the two match, copies out of the sender's memory (a memfd, reached through /proc) and marks it done: a rendezvous,
 * nothing is buffered.
 *
 * A call that does not block is in progress until ncclCommGetAsyncError has said that it is done: it says so after a
 * few calls, and for the first exchange with a rank, which connects the two, not before the other has made its call.
 * Until then NCCL's own thread may or may not have enqueued the work: so nothing else may be called on any
 * communicator, or issued on the stream.
 *
 * The first exchange in a direction takes device memory for each channel: 2 MiB where it sends, 10 MiB where it
 * receives, as NCCL 2.28.9 does with its buffers as they are (src/transport/p2p.cc: p2pSendSetup, p2pRecvSetup).
 *
 * Another rank that ended or aborted is an error of the communicator, unless STANDIN_DEAF is set: NCCL does not always
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
    int kind, peer, type, captured, fd;
    uint64_t count, offset; /* of a send: where in the sender's memfd */
};
struct shared_rank {
    std::atomic<int> pid, device, aborted, finalized;
    shared_task task[TASKS]; /* of the running group, by index */
};
struct segment {
    int fd, n, rank;
    string path;
    std::atomic<int> *come;
    std::atomic<int> *made; /* [from * n + to]: calls that exchange something */
    shared_rank *of;        /* [n] */
    char *map;
    size_t bytes;
    bool init = true; /* ncclCommInitRankConfig is in progress */
    bool finalizing = false;
    int asks = 0;                      /* how often ncclCommGetAsyncError will still say ncclInProgress */
    std::vector<cudaStream_t> streams; /* of the call in progress */
    std::set<int> connects;            /* ranks it is connecting to */
    std::vector<bool> connected;
    int channels;
    size_t memory = 0;                     /* device memory that its buffers take */
    std::set<std::pair<int, int>> buffers; /* which there are: NCCL_SEND or NCCL_RECV, peer */
    double looked = 0;
    bool lost = false;
};

static ncclComm *busy; /* a call on it is in progress; null: on none */

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
    s->of[rank].device = me()->device + 1;
    s->of[rank].pid = getpid();
    busy = *out;
    if (++*s->come == n)
        unlink(name.c_str());
    return ncclInProgress;
}

static void check_devices(const segment *s) {
    for (int r = 0; r < s->n; r++)
        if (r != s->rank && s->of[r].device == s->of[s->rank].device)
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

void processes_issue(ncclComm *c, const std::vector<nccl_task> &tasks) {
    segment *s = c->shared;
    if (busy)
        broken("NCCL", "a group on more than one communicator, which the stand-in lacks between processes");
    busy = c;
    s->asks = (int)(the().activity * 0x9e3779b97f4a7c15u >> 62);
    for (auto &t : tasks) {
        s->streams.push_back(t.stream);
        s->made[s->rank * s->n + t.peer]++;
        take_buffers(s, t.kind, t.peer);
        if (!s->connected[(size_t)t.peer])
            s->connects.insert(t.peer);
    }
}

/* Whether another rank has aborted, or joined and then released its lock by ending in any way. */
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
    close(s->fd); /* and with it the lock */
    munmap(s->map, s->bytes);
    the().allocated -= s->memory;
    c->shared = nullptr;
}

/* ---- the running group ---- */

static void post(const segment *s, const nccl_group *g, size_t i) {
    const nccl_task &t = g->tasks[i];
    shared_task &p = s->of[s->rank].task[i];
    if (t.kind > NCCL_RECV)
        broken("NCCL", "%s: the stand-in has no collectives between processes", nccl_task_name(t).c_str());
    if (p.state != FREE)
        return;
    p.kind = t.kind;
    p.peer = t.peer;
    p.type = t.type;
    p.captured = g->captured;
    p.count = t.count;
    if (t.kind == NCCL_SEND) {
        memory *m = memory_find(t.send);
        p.fd = m->fd;
        p.offset = (uint64_t)((const char *)t.send - (m->map + 4096)); /* after the guard page */
    }
    p.state = POSTED;
}

/* The first task of the peer's running group that sends to this rank. */
static shared_task *sent(const segment *s, int peer) {
    for (auto &p : s->of[peer].task)
        if (p.state == POSTED && p.kind == NCCL_SEND && p.peer == s->rank)
            return &p;
    return nullptr;
}

static void copy(const segment *s, const nccl_task &t, const shared_task &from) {
    size_t bytes = t.count * nccl_type_bytes[t.type], at = 0;
    string path = text("/proc/%d/fd/%d", (int)s->of[t.peer].pid, from.fd);
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    opened memory({{t.recv, bytes, true}});
    for (ssize_t n; fd >= 0 && at < bytes; at += (size_t)n)
        if ((n = pread(fd, (char *)t.recv + at, bytes - at, (off_t)(from.offset + at))) <= 0)
            break;
    if (fd >= 0)
        close(fd);
}

static bool receive(ncclComm *c, nccl_group *g, nccl_task &t) {
    segment *s = c->shared;
    shared_task *from = nccl_next(g, NCCL_RECV, t.peer) == &t ? sent(s, t.peer) : nullptr;
    if (!from)
        return false;
    nccl_task send = t;
    ncclComm other = {c->all, t.peer, 0, 0, true, false, nullptr, {}};
    send.comm = &other;
    send.kind = NCCL_SEND;
    send.peer = s->rank;
    send.count = from->count;
    send.type = from->type;
    nccl_check_alike(from->captured, send, g->captured, t);
    nccl_touch(g, t);
    copy(s, t, *from);
    from->state = DONE;
    t.done = true;
    return true;
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
    for (auto &p : c->shared->of[t.peer].task)
        if (p.state == POSTED)
            return text(", but there rank %d is at %s of %zu with rank %d", t.peer,
                        p.kind == NCCL_SEND ? "ncclSend" : "ncclRecv", (size_t)p.count, p.peer);
    return text(", but rank %d has nothing issued there", t.peer);
}
