/* Captures and graphs. A call on a captured stream becomes a node; its edges are the stream's order and the events for
 * which the capture's streams wait. A launch copies all work, and its nodes run by their edges alone. */
#include "standin.h"

extern "C" {

static std::shared_ptr<capture> open_capture(cudaStream_t s) {
    for (auto &c : the().captures)
        if (!c->ended && c == s->cap)
            return c;
    return nullptr;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    entered here("cudaStreamBeginCapture");
    if (!s || s == cudaStreamLegacy)
        broken("CAPTURE", "cudaStreamBeginCapture of the legacy stream");
    s = stream_of(s, call);
    if (s->cap)
        broken("CAPTURE", "cudaStreamBeginCapture of %s, which is captured already", stream_name(s).c_str());
    if (!(s->flags & cudaStreamNonBlocking))
        broken("CAPTURE",
               "cudaStreamBeginCapture of %s, which is ordered with the legacy stream: create it with "
               "cudaStreamNonBlocking",
               stream_name(s).c_str());
    if (me()->depth > 0)
        broken("NCCL", "cudaStreamBeginCapture with a group open (ncclGroupStart without ncclGroupEnd)");
    auto c = std::make_shared<capture>();
    c->id = the().nids++;
    c->thread = me()->id;
    c->origin = s;
    c->mode = mode;
    c->streams = {s};
    s->cap = c;
    s->tips.clear();
    the().captures.push_back(c);
    me()->captures++;
    return cudaSuccess;
}

/* Checks that every node precedes the point that the capture's first stream has reached. */
static void check_joined(const capture &c) {
    std::vector<bool> seen(c.nodes.size());
    std::vector<int> todo = c.origin->tips;
    while (!todo.empty()) {
        int i = todo.back();
        todo.pop_back();
        if (seen[(size_t)i])
            continue;
        seen[(size_t)i] = true;
        todo.insert(todo.end(), c.nodes[(size_t)i].before.begin(), c.nodes[(size_t)i].before.end());
    }
    for (size_t i = 0; i < seen.size(); i++)
        if (!seen[i])
            broken("CAPTURE", "unjoined: %s of %s does not come before the end of the capture on %s",
                   c.nodes[i].w.what.c_str(), stream_name(c.streams[(size_t)c.nodes[i].chain]).c_str(),
                   stream_name(c.origin).c_str());
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
    entered here("cudaStreamEndCapture");
    s = stream_of(s, call);
    auto c = open_capture(s);
    if (!c)
        broken("CAPTURE", "cudaStreamEndCapture of %s, which is not captured", stream_name(s).c_str());
    if (c->origin != s)
        broken("CAPTURE", "unmatched: cudaStreamEndCapture of %s, but the capture began on %s", stream_name(s).c_str(),
               stream_name(c->origin).c_str());
    if (c->thread != me()->id && c->mode != cudaStreamCaptureModeRelaxed)
        broken("CAPTURE", "cudaStreamEndCapture by another thread than the one that began the capture");
    if (me()->depth > 0)
        broken("NCCL", "cudaStreamEndCapture with a group open (ncclGroupStart without ncclGroupEnd)");
    check_joined(*c);
    for (auto o : c->streams)
        nccl_check_settled(o);
    c->ended = true;
    for (auto o : c->streams) {
        o->cap = nullptr;
        o->tips.clear();
    }
    for (auto h : the().hosts)
        if (h->id == c->thread)
            h->captures--;
    the().graphs.emplace_back(new CUgraph_st);
    CUgraph_st *g = the().graphs.back().get();
    g->nodes = std::move(c->nodes);
    g->nchains = c->streams.size();
    for (auto o : c->streams)
        g->priorities |= o->priority != 0;
    *out = g;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out) {
    entered here("cudaStreamIsCapturing", true);
    *out = stream_of(s, call)->cap ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Covers a thread's calls that are unsafe in captures of others. The stand-in follows each capture's own mode. */
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    return *mode = cudaStreamCaptureModeGlobal, cudaSuccess;
}

/* ---- hardware queues ---- */

/* Covers the nodes with the fewest branches, which are paths of edges. A node may continue the branch of a predecessor
 * that no other node continues, so this is a maximum matching, grown one node at a time. */
namespace {
struct branches {
    const std::vector<node> &nodes;
    std::vector<int> next; /* the node that continues its branch */
    std::vector<bool> tried;
    int n;

    bool place(int i) {
        for (int b : nodes[(size_t)i].before) {
            if (tried[(size_t)b])
                continue;
            tried[(size_t)b] = true;
            if (next[(size_t)b] < 0 || place(next[(size_t)b])) {
                next[(size_t)b] = i;
                return true;
            }
        }
        return false;
    }
    explicit branches(const std::vector<node> &all) : nodes(all), next(all.size(), -1), n((int)all.size()) {
        for (size_t i = 0; i < all.size(); i++) {
            tried.assign(all.size(), false);
            n -= place((int)i);
        }
    }
};
} // namespace

/* Returns which nodes are ordered before or after node i. */
static std::vector<bool> ordered_with(const std::vector<node> &nodes, size_t i) {
    std::vector<bool> before(nodes.size()), after(nodes.size());
    before[i] = after[i] = true;
    for (size_t k = i + 1; k-- > 0;)
        for (int b : nodes[k].before)
            before[(size_t)b] = before[(size_t)b] || before[k];
    for (size_t k = i; k < nodes.size(); k++) {
        for (int b : nodes[k].before)
            after[k] = after[k] || after[(size_t)b];
        before[k] = before[k] || after[k];
    }
    return before;
}

/* Branches of a graph may share hardware queues in any way, and a wait for a word blocks its queue. So if a graph has
 * more branches than queues, of which there are few here, every node must be ordered with each wait. */
static void check_queues(const std::vector<node> &nodes) {
    static const int QUEUES = 2;
    bool awaits = false;
    for (auto &n : nodes)
        awaits |= n.w.kind == AWAIT;
    int n = awaits ? branches(nodes).n : 0;
    if (n <= QUEUES)
        return;
    for (size_t i = 0; i < nodes.size(); i++) {
        if (nodes[i].w.kind != AWAIT)
            continue;
        std::vector<bool> ordered = ordered_with(nodes, i);
        for (size_t k = 0; k < nodes.size(); k++)
            if (!ordered[k])
                broken(
                    "QUEUE",
                    "a graph of %d branches: what awaits %s may share a hardware queue with %s and hold it up: nothing "
                    "that CUDA sees orders the two",
                    n, nodes[i].w.what.c_str(), nodes[k].w.what.c_str());
    }
}

/* ---- graphs ---- */

static cudaGraphExec_t exec_of(cudaGraphExec_t e) {
    for (auto &o : the().execs)
        if (o.get() == e && e->alive)
            return e;
    broken("GRAPH", "%s of a graph that was destroyed, or is none", call);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    entered here("cudaGraphInstantiate");
    check_creation(call);
    check_not_capturing(call);
    bool known = false;
    for (auto &o : the().graphs)
        known |= o.get() == graph && graph->alive;
    if (!known)
        broken("GRAPH", "cudaGraphInstantiate of a graph that was destroyed, or is none");
    if (graph->priorities && !(flags & cudaGraphInstantiateFlagUseNodePriority))
        broken("GRAPH", "cudaGraphInstantiate without cudaGraphInstantiateFlagUseNodePriority of a graph captured on "
                        "streams of a priority, which it loses");
    check_queues(graph->nodes);
    the().execs.emplace_back(new CUgraphExec_st);
    CUgraphExec_st *e = the().execs.back().get();
    e->id = the().nids++;
    e->nodes = graph->nodes;
    for (size_t i = 0; i < graph->nchains; i++)
        e->chains.push_back(new_chain());
    the().allocated += the().graph_bytes;
    *out = e;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    entered here("cudaGraphDestroy");
    for (auto &o : the().graphs)
        if (o.get() == g && g->alive) {
            g->alive = false;
            g->nodes.clear();
            return cudaSuccess;
        }
    broken("GRAPH", "cudaGraphDestroy of a graph that was destroyed, or is none");
}
cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t s) {
    entered here("cudaGraphUpload");
    exec_of(e);
    stream_of(s, call);
    return cudaSuccess;
}

static bool in_flight(cudaGraphExec_t e) {
    for (auto &s : the().streams)
        for (auto &w : s->queue)
            if (w.kind == GRAPH && w.graph->exec == e)
                return true;
    return false;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
    entered here("cudaGraphExecDestroy");
    if (in_flight(exec_of(e)))
        broken("GRAPH", "cudaGraphExecDestroy of graph %d, which is running or will be: synchronise first", e->id);
    e->alive = false;
    the().allocated -= the().graph_bytes;
    e->nodes.clear();
    e->last = e->newest = nullptr;
    return cudaSuccess;
}

static std::shared_ptr<launched> copy_graph(cudaGraphExec_t e) {
    auto g = std::make_shared<launched>();
    size_t n = g->left = e->nodes.size();
    g->exec = e;
    g->missing.resize(n);
    g->clock.resize(n);
    g->after.resize(n);
    for (size_t i = 0; i < n; i++) {
        g->works.push_back(e->nodes[i].w);
        work &w = g->works.back();
        w.serial = ++the().serial;
        for (int j : e->nodes[i].before)
            g->after[(size_t)j].push_back((int)i);
        g->missing[i] = (int)e->nodes[i].before.size();
        if (g->missing[i] == 0)
            g->ready.push_back((int)i);
        if (w.external)
            w.at = w.external->at = std::make_shared<mark>();
        if (w.group) {
            w.group = nccl_copy(w.group);
            nccl_issue(w.group);
        }
    }
    return g;
}

/* Returns whether the program has waited for an event that follows the graph. */
static bool known_to_have_ended(const launched &g) {
    clocks seen = the().seen;
    join(seen, g.all);
    return g.left == 0 && seen == the().seen;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    entered here("cudaGraphLaunch");
    exec_of(e);
    s = stream_of(s, call);
    if (me()->depth > 0)
        broken("NCCL", "cudaGraphLaunch with a group open (ncclGroupStart without ncclGroupEnd)");
    if (s->cap)
        broken("CAPTURE", "cudaGraphLaunch on %s, which is being captured: the stand-in has no graphs in graphs",
               stream_name(s).c_str());
    if (the().start_at_launch)
        me()->started = true;
    the().launches++;
    the().ahead += e->newest && !known_to_have_ended(*e->newest);
    work w;
    w.kind = GRAPH;
    w.what = text("graph %d", e->id);
    w.graph = e->newest = copy_graph(e);
    enqueue(s, std::move(w));
    return fault_surfaced() ? cudaErrorIllegalAddress : cudaSuccess;
}
}
