/* Queues, the scheduler, clocks and deadlocks. */
#include "standin.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>

const char *call = "";

machine &the(void) {
    static machine *m = [] {
        auto env = [](const char *name, double otherwise) {
            const char *s = getenv(name);
            return s && *s ? atof(s) : otherwise;
        };
        machine *m = new machine;
        m->seed = (uint64_t)env("STANDIN_SEED", 1);
        m->random = m->seed * 0x9e3779b97f4a7c15u + 1;
        m->devices = (int)env("STANDIN_DEVICES", 64);
        m->total = (size_t)env("STANDIN_MEMORY", 4e9);
        m->stuck = env("STANDIN_STUCK", 20);
        m->pages = env("STANDIN_PAGES", 0) != 0;
        m->ipc = env("STANDIN_IPC", 1) != 0;
        m->peers = env("STANDIN_PEERS", 1) != 0;
        m->capability = (int)env("STANDIN_CAPABILITY", 90);
        m->peer_words = env("STANDIN_PEER_WORDS", 1) != 0;
        m->refused = getenv("STANDIN_REFUSED") ? getenv("STANDIN_REFUSED") : "";
        m->flush = env("STANDIN_FLUSH", 1) != 0;
        m->faulty = getenv("STANDIN_FAULT") ? getenv("STANDIN_FAULT") : "";
        m->fault_at = (int)env("STANDIN_FAULT_AT", 1);
        m->blocking = env("CUDA_LAUNCH_BLOCKING", 0) != 0;
        m->fault_later = (int)env("STANDIN_FAULT_LATER", 0);
        m->switches = env("STANDIN_SWITCHES", 1) != 0;
        m->graph_bytes = (size_t)env("STANDIN_GRAPH_BYTES", 0);
        m->start_at_launch = getenv("STANDIN_START") && strcmp(getenv("STANDIN_START"), "launch") == 0;
        return m;
    }();
    return *m;
}

string text(const char *format, ...) {
    char s[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(s, sizeof s, format, ap);
    va_end(ap);
    return s;
}

void broken(const char *rule, const char *format, ...) {
    char s[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(s, sizeof s, format, ap);
    va_end(ap);
    fflush(stdout);
    fprintf(stderr, "standin: %s: %s\n", rule, s);
    abort();
}

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t dice(uint64_t n) {
    uint64_t &x = the().random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x % n;
}

void join(clocks &into, const clocks &from) {
    if (into.size() < from.size())
        into.resize(from.size());
    for (size_t i = 0; i < from.size(); i++)
        into[i] = std::max(into[i], from[i]);
}
int new_chain(void) { return the().nchains++; }

/* ---- threads and calls ---- */

static pthread_key_t host_key;
static void host_end(void *p) {
    host *h = (host *)p;
    machine &m = the();
    std::unique_lock<std::mutex> lock(m.lock);
    if (h->depth > 0)
        broken("NCCL", "thread %d ends with a group open (ncclGroupStart without ncclGroupEnd)", h->id);
    if (h->captures > 0)
        broken("CAPTURE", "thread %d ends with a capture open", h->id);
    for (size_t i = 0; i < m.hosts.size(); i++)
        if (m.hosts[i] == h)
            m.hosts.erase(m.hosts.begin() + (long)i);
    delete h;
    m.changed.notify_all();
}
/* Reports at the end, because the first thread's key is not destroyed at exit(). STANDIN_AHEAD=1 prints how many graphs
 * were launched before the program knew that their last launch had ended. */
static void program_end(void) {
    if (getenv("STANDIN_AHEAD"))
        fprintf(stderr, "standin: %d of %d graphs launched ahead\n", the().ahead, the().launches);
    if (void *h = pthread_getspecific(host_key)) {
        pthread_setspecific(host_key, nullptr);
        host_end(h);
    }
}

host *me(void) {
    static bool made = (pthread_key_create(&host_key, host_end), atexit(program_end), true);
    (void)made;
    host *h = (host *)pthread_getspecific(host_key);
    if (!h) {
        static int ids;
        h = new host;
        h->id = ids++;
        the().hosts.push_back(h);
        pthread_setspecific(host_key, h);
    }
    return h;
}

entered::entered(const char *name, bool query) : lock(the().lock) {
    call = name;
    if (!query) {
        me()->polling = false;
        the().activity++;
    }
}
entered::~entered() { the().changed.notify_all(); }

void check_creation(const char *what) {
    if (me()->started)
        broken("START", "%s after the start: everything is taken before", what);
}

/* Breaks a rule if a capture forbids the call: to its own thread, or in the global mode to every thread. */
void check_not_capturing(const char *what) {
    for (auto &c : the().captures) {
        bool own = c->thread == me()->id;
        if (c->ended || c->mode == cudaStreamCaptureModeRelaxed)
            continue;
        if (own || c->mode == cudaStreamCaptureModeGlobal)
            broken("CAPTURE", "%s while %s is being captured%s", what, stream_name(c->origin).c_str(),
                   own ? "" : " by another thread, in the global mode");
    }
}

/* ---- issuing ---- */

string stream_name(const CUstream_st *s) {
    return s->legacy ? text("the legacy stream of device %d", s->device)
                     : text("stream %d of device %d", s->id, s->device);
}

cudaStream_t stream_of(cudaStream_t s, const char *what) {
    machine &m = the();
    if (s == cudaStreamPerThread)
        broken("STREAM", "%s on the per-thread stream, which the stand-in lacks", what);
    if (s && s != cudaStreamLegacy) {
        bool known = false;
        for (auto &o : m.streams)
            known |= o.get() == s;
        if (!known || !s->alive)
            broken("STREAM", "%s on a stream that %s", what, known ? "was destroyed" : "is none");
        if (s->device != me()->device)
            broken("STREAM", "%s on %s, but the thread's device is %d", what, stream_name(s).c_str(), me()->device);
        return s;
    }
    for (auto &c : m.captures)
        if (!c->ended && (c->thread == me()->id || c->mode == cudaStreamCaptureModeGlobal))
            broken("CAPTURE", "%s on the legacy stream during a capture", what);
    cudaStream_t &l = m.legacy[me()->device];
    if (!l) {
        m.streams.emplace_back(new CUstream_st(m.nids++, me()->device, new_chain(), 0));
        l = m.streams.back().get();
        l->legacy = true;
    }
    return l;
}

static void push(cudaStream_t s, work w) {
    w.issued = the().seen;
    w.serial = ++the().serial;
    s->queue.push_back(std::move(w));
}

static void order_after(cudaStream_t later, cudaStream_t earlier) {
    work r, w;
    r.kind = RECORD, w.kind = WAIT;
    r.at = w.at = std::make_shared<mark>();
    r.what = w.what = "the legacy stream's order";
    push(earlier, r);
    push(later, w);
}

/* Orders the legacy stream and every blocking stream of its device, which wait for each other. */
static void order_legacy(cudaStream_t s) {
    for (auto &o : the().streams)
        if (o->device == s->device && o.get() != s && (s->legacy ? !(o->flags & cudaStreamNonBlocking) : o->legacy) &&
            o->alive && !o->cap)
            order_after(s, o.get());
}

int issue_node(const std::shared_ptr<capture> &c, work w, std::vector<int> before, cudaStream_t s) {
    int chain = 0;
    while (c->streams[(size_t)chain] != s)
        chain++;
    c->nodes.push_back({std::move(w), std::move(before), chain});
    return (int)c->nodes.size() - 1;
}

void enqueue(cudaStream_t s, work w) {
    s = stream_of(s, w.what.c_str());
    nccl_check_settled(s);
    me()->issuing = true;
    for (auto &r : w.touches)
        check_range(r, w.what.c_str(), true);
    for (auto p : w.inside)
        check_inside(p, w.what.c_str());
    if (s->cap) {
        s->tips = {issue_node(s->cap, std::move(w), s->tips, s)};
        return;
    }
    if (s->legacy || !(s->flags & cudaStreamNonBlocking))
        order_legacy(s);
    push(s, std::move(w));
    run_some();
}

void standin_enqueue(cudaStream_t stream, const char *what, std::function<void()> run,
                     std::vector<const void *> pointers) {
    entered here("a kernel launch");
    if (me()->depth > 0)
        broken("NCCL", "kernel %s is launched inside an NCCL group", what);
    if (what == the().refused) {
        me()->last = cudaErrorNoKernelImageForDevice;
        return;
    }
    work w;
    w.what = string("kernel ") + what;
    w.run = std::move(run);
    w.inside = std::move(pointers);
    w.delay = getenv("STANDIN_FASTEST") ? 1 : 0; /* an epilogue is faster than a kernel, unless it is slow on purpose */
    enqueue(stream, std::move(w));
    cudaStream_t s = stream_of(stream, what);
    if (the().blocking && !s->cap)
        wait_until([=] { return s->queue.empty(); }, string("the launch of ") + what);
}

/* ---- running ---- */

static bool satisfied(const work &w) {
    opened word({{w.word, 4, false}});
    uint32_t v = __atomic_load_n(w.word, __ATOMIC_ACQUIRE);
    switch (w.flags & 3) {
    case 0: return (int32_t)(v - w.value) >= 0;
    case 1: return v == w.value;
    case 2: return (v & w.value) != 0;
    default: return ~(v | w.value) != 0;
    }
}

static bool may_run(const work &w) {
    switch (w.kind) {
    case WAIT: return w.at->done;
    case AWAIT: return satisfied(w);
    case NCCL: return !w.arrived || nccl_done(*w.group);
    case GRAPH: return !w.graph->begun || w.graph->left == 0;
    default: return true;
    }
}

static void begin_graph(launched &g, const clocks &clock) {
    auto &before = g.exec->last;
    if (before && before.get() != &g)
        for (size_t i = 0; i < before->all.size(); i++)
            if (before->left > 0 || (i < clock.size() ? clock[i] : 0) < before->all[i])
                broken("GRAPH",
                       "graph %d is launched again without an order after its last launch: it would overlap itself",
                       g.exec->id);
    g.begun = true;
    join(g.all, clock);
    for (auto &c : g.clock)
        c = clock;
}

/* Returns whether it writes a word, or possibly one, that another process awaits. */
static bool tells(const work &w) {
    auto foreign = [](const void *p) { return memory_find(p) && memory_find(p)->kind == IMPORTED; };
    for (auto &r : w.touches)
        if (r.write && r.bytes == sizeof *w.word && foreign(r.at))
            return true;
    return w.word && foreign(w.word);
}

static void maybe_fault(const work &w) {
    machine &m = the();
    if (!m.faulty.empty() && w.what == "kernel " + m.faulty && --m.fault_at == 0)
        m.unreported = m.blocking ? 0 : m.fault_later;
}
bool fault_surfaced(void) {
    machine &m = the();
    if (m.unreported > 0)
        return m.unreported--, false;
    return m.unreported == 0;
}

/* Continues w at the head of its stream or graph. Returns false if it is not done. */
static bool advance(work &w, clocks &clock, int chain) {
    join(clock, w.issued);
    if (clock.size() <= (size_t)chain)
        clock.resize((size_t)chain + 1);
    if (w.kind != WAIT && w.kind != AWAIT && !(w.kind == NCCL && w.arrived))
        clock[(size_t)chain]++;
    switch (w.kind) {
    case RUN: {
        std::vector<range> touched = w.touches;
        for (auto &r : w.touches)
            check_range(r, w.what.c_str(), true);
        for (auto p : w.inside)
            check_inside(p, w.what.c_str());
        if (w.word)
            join(the().words[w.word], clock);
        if (tells(w))
            join(the().told, clock);
        run_work(w, touched);
        the().delay[chain] += w.delay;
        maybe_fault(w);
        touch(touched, w.what, clock, chain);
        return true;
    }
    case RECORD:
        w.at->done = true;
        w.at->clock = clock;
        w.at->when = now() + the().delay[chain];
        return true;
    case WAIT: join(clock, w.at->clock); return true;
    case AWAIT:
        join(clock, the().words[w.word]);
        if (the().remote) /* the writer may have waited for anything posted to it */
            join(clock, the().told);
        return true;
    case NCCL:
        if (!w.arrived) {
            w.arrived = true;
            nccl_arrive(*w.group, clock, chain);
            nccl_progress();
        }
        if (!nccl_done(*w.group))
            return false;
        join(clock, nccl_clock(*w.group));
        return true;
    case GRAPH:
        if (!w.graph->begun) {
            begin_graph(*w.graph, clock);
            w.graph->exec->last = w.graph;
            the().running.push_back(w.graph);
        }
        if (w.graph->left > 0)
            return false;
        join(clock, w.graph->all);
        return true;
    }
    return true;
}

static void run_node(const std::shared_ptr<launched> &g, size_t place) {
    int i = g->ready[place];
    const node &n = g->exec->nodes[(size_t)i];
    clocks &clock = g->clock[(size_t)i];
    if (!advance(g->works[(size_t)i], clock, g->exec->chains[(size_t)n.chain]))
        return;
    g->ready.erase(g->ready.begin() + (long)place);
    for (int j : g->after[(size_t)i]) {
        join(g->clock[(size_t)j], clock);
        if (--g->missing[(size_t)j] == 0)
            g->ready.push_back(j);
    }
    join(g->all, clock);
    g->left--;
}

/* Work that could run next: the head of a stream, or a ready node of a graph. */
struct candidate {
    cudaStream_t stream;
    std::shared_ptr<launched> graph;
    size_t place;
    uint64_t key;
};

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Returns a sort key in one of three ways, by the seed: issue order; random; or changing priorities, which starve some
 * streams. */
static uint64_t key_of(int chain, uint64_t serial) {
    machine &m = the();
    switch (m.seed % 3) {
    case 0: return serial;
    case 1: return dice(1u << 30);
    default: return mix(m.seed ^ mix((uint64_t)chain << 32 | m.activity / 64));
    }
}

/* With STANDIN_SWITCHES=0, a device stays with a process that has work, even if that only waits. The processes of a run
 * share a TMPDIR, which has a file for each device. */
static bool has_turn(void) {
    static int fd = -1;
    machine &m = the();
    bool busy = false;
    if (m.switches)
        return true;
    for (auto &s : m.streams)
        busy |= !s->queue.empty();
    if (fd < 0) {
        const char *room = getenv("TMPDIR");
        fd = open(text("%s/gpu-%d", room ? room : "/tmp", me()->device).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    }
    if (busy != m.turn)
        m.turn = flock(fd, busy ? LOCK_EX | LOCK_NB : LOCK_UN) == 0 && busy;
    return m.turn;
}

static bool run_any(void) {
    machine &m = the();
    if (nccl_remote())
        nccl_progress();
    candidate best = {nullptr, nullptr, 0, 0};
    bool any = false;
    auto offer = [&](candidate c) {
        if (!any || c.key < best.key)
            best = std::move(c);
        any = true;
    };
    for (auto &s : m.streams)
        if (!s->queue.empty() && may_run(s->queue.front()))
            offer({s.get(), nullptr, 0, key_of(s->chain, s->queue.front().serial)});
    for (size_t k = 0; k < m.running.size();) {
        auto &g = m.running[k];
        if (g->left == 0) {
            m.running.erase(m.running.begin() + (long)k);
            continue;
        }
        for (size_t i = 0; i < g->ready.size(); i++) {
            work &w = g->works[(size_t)g->ready[i]];
            if (may_run(w))
                offer({nullptr, g, i,
                       key_of(g->exec->chains[(size_t)g->exec->nodes[(size_t)g->ready[i]].chain], w.serial)});
        }
        k++;
    }
    if (!any)
        return false;
    m.activity++;
    if (best.graph)
        run_node(best.graph, best.place);
    else if (advance(best.stream->queue.front(), best.stream->clock, best.stream->chain))
        best.stream->queue.pop_front();
    return true;
}
bool run_one(void) {
    bool ran = the().unreported < 0 && has_turn() && run_any();
    has_turn();
    return ran;
}

void run_some(void) {
    uint64_t n = the().seed % 3 == 0 ? 1 << 20 : the().seed % 3 == 1 ? dice(3) : 0;
    while (n-- > 0 && run_one())
        ;
}

/* ---- waiting ---- */

static string why(const work &w) {
    switch (w.kind) {
    case WAIT: return w.what + ", which is not recorded";
    case AWAIT: {
        opened word({{w.word, 4, false}});
        return text("%s, where there is %u", w.what.c_str(), *w.word);
    }
    case NCCL: return nccl_waits(*w.group);
    case GRAPH: return text("graph %d, in which nothing can go on", w.graph->exec->id);
    default: return w.what;
    }
}

/* Reports a deadlock: nothing runs, and no thread is left that could issue what is missing. */
[[noreturn]] static void deadlock(const char *how) {
    string all;
    for (auto h : the().hosts)
        if (!h->waiting.empty())
            all += text("\n  thread %d: %s", h->id, h->waiting.c_str());
    for (auto &s : the().streams)
        if (!s->queue.empty())
            all += "\n  " + stream_name(s.get()) + " waits for " + why(s->queue.front());
    for (auto &g : the().running)
        for (int i : g->ready)
            all += text("\n  graph %d waits for ", g->exec->id) + why(g->works[(size_t)i]);
    fprintf(stderr, "standin: DEADLOCK: %s%s\n", how, all.c_str());
    abort();
}

/* Returns 1 if all threads that could help are waiting themselves, 2 if some of them only poll, else 0. */
static int all_wait(void) {
    machine &m = the();
    bool words = false, polls = false;
    auto awaits = [&](const work &w) { words |= w.kind == AWAIT; };
    for (auto &s : m.streams)
        if (!s->queue.empty())
            awaits(s->queue.front());
    for (auto &g : m.running)
        for (int i : g->ready)
            awaits(g->works[(size_t)i]);
    if (nccl_aborted() || nccl_remote() || (words && m.remote) || !has_turn())
        return 0;
    for (auto h : m.hosts) {
        if (h->until && !(*h->until)())
            continue;
        if (h->polling)
            polls = true;
        else if (nccl_owner(h->id) || (words && h->issuing))
            return 0;
    }
    return polls ? 2 : 1;
}

/* Checks for a deadlock when nothing could run. Gives a thread that only polls one second to do something else. waits:
 * false if the awaited thing is not on a stream. */
void check_stuck(bool waits) {
    machine &m = the();
    if (m.activity != m.last) {
        m.last = m.activity;
        m.since = now();
    }
    double idle = now() - m.since;
    int all = waits ? all_wait() : 0;
    if (all == 1 || (all == 2 && idle > 1))
        deadlock("nothing can go on, and every thread waits");
    if (m.stuck > 0 && idle > m.stuck)
        deadlock(text("nothing has gone on for %g seconds", m.stuck).c_str());
}

void wait_until(const std::function<bool()> &done, const string &what, bool slow) {
    machine &m = the();
    std::unique_lock<std::mutex> held(m.lock, std::adopt_lock);
    me()->waiting = what;
    me()->until = &done;
    while (!done()) {
        if (m.unreported >= 0) { /* it will never happen */
            m.unreported = 0;
            break;
        }
        if (run_one()) {
            m.changed.notify_all();
            continue;
        }
        check_stuck(!slow);
        m.changed.wait_for(held, std::chrono::microseconds(m.remote ? 200 : 5000));
    }
    me()->waiting.clear();
    me()->until = nullptr;
    held.release();
}
