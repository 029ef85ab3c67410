/* The stand-in's device, for tests only: declarations that the files of this folder share.
 *
 * Work waits in queues, as on a GPU: a stream's in order, a launched graph's by its edges. It runs when a thread
 * synchronises, and sometimes when one issues. A scheduler picks among runnable work by STANDIN_SEED, so that an order
 * which nothing enforces is not kept. One lock covers everything, kernels too. Work is atomic: it never runs half.
 *
 * Vector clocks find races. Each stream, and each captured stream of a graph, is a chain; work is numbered along its
 * chain and knows how far along every other chain it is ordered. Two accesses break rule RACE if they overlap, one of
 * them is a write, and neither is ordered after the other, even in a run whose data came out right.
 *
 * A broken rule prints one line, `standin: RULE: what and where`, and aborts. Nothing here may be thread_local: at each
 * block, the thread grid poisons the program's thread-local storage, which holds the __shared__ variables. */
#ifndef STANDIN_H
#define STANDIN_H
#include "cuda_runtime_api.h"
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

using std::string;
using clocks = std::vector<uint32_t>; /* per chain; missing entries are 0 */
void join(clocks &into, const clocks &from);

struct range {
    const void *at;
    size_t bytes;
    bool write;
};
/* One recording of an event. */
struct mark {
    bool done = false;
    clocks clock;
    double when = 0;
};

struct nccl_group;
struct launched;
struct capture;

enum work_kind { RUN, RECORD, WAIT, AWAIT, NCCL, GRAPH };
struct work {
    work_kind kind = RUN;
    string what;
    std::function<void()> run;        /* RUN */
    double delay = 0;                 /* RUN: seconds that it takes by the clock of later events on its stream */
    std::vector<range> touches;       /* RUN */
    std::vector<const void *> inside; /* RUN: a kernel's pointers, of unknown extent */
    std::shared_ptr<mark> at;         /* RECORD, WAIT */
    cudaEvent_t external = nullptr;   /* RECORD in a graph: the event, which gets a new mark at each launch */
    uint32_t *word = nullptr;         /* AWAIT, and RUN that writes it: orders the wait after the write */
    uint32_t value = 0;
    unsigned flags = 0;
    std::shared_ptr<nccl_group> group; /* NCCL */
    bool arrived = false;
    std::shared_ptr<launched> graph; /* GRAPH */
    clocks issued;                   /* everything the program had seen when it issued this */
    uint64_t serial = 0;
};

struct CUstream_st {
    int id, device, chain;
    unsigned flags;
    CUstream_st(int id, int device, int chain, unsigned flags) : id(id), device(device), chain(chain), flags(flags) {}
    bool legacy = false, alive = true;
    int priority = 0;
    std::deque<work> queue;
    clocks clock;
    std::shared_ptr<capture> cap; /* while it is being captured */
    std::vector<int> tips;        /* captured nodes that precede its next one */
};
struct CUevent_st {
    int id, device;
    unsigned flags;
    bool alive = true;
    std::shared_ptr<mark> at;     /* the last recording; null: never, or captured */
    std::shared_ptr<capture> cap; /* capture of the last recording */
    std::vector<int> tips;
};

struct node {
    work w;
    std::vector<int> before; /* nodes that come first */
    int chain;               /* index of one of the graph's captured streams */
};
struct capture {
    int id, thread;
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    bool ended = false;
    std::vector<node> nodes;
    std::vector<cudaStream_t> streams; /* captured streams, each a chain */
};
struct CUgraph_st {
    bool alive = true, priorities = false; /* priorities: some stream had one other than 0 */
    std::vector<node> nodes;
    size_t nchains;
};
struct CUgraphExec_st {
    int id;
    bool alive = true;
    std::vector<node> nodes;
    std::vector<int> chains;
    std::shared_ptr<launched> last;   /* last launch that has begun */
    std::shared_ptr<launched> newest; /* last launch that was issued */
};
/* One launch of a graph. */
struct launched {
    cudaGraphExec_t exec;
    std::vector<work> works;
    std::vector<int> missing; /* per node: number of predecessors that are not done */
    std::vector<clocks> clock;
    std::vector<std::vector<int>> after;
    std::vector<int> ready;
    size_t left;
    bool begun = false;
    clocks all; /* everything up to its ended work */
};

struct ncclComm;
enum { NCCL_SEND, NCCL_RECV, NCCL_ALLREDUCE, NCCL_REDUCE, NCCL_BROADCAST, NCCL_REDUCESCATTER, NCCL_ALLGATHER };
struct nccl_task {
    int kind, peer, type, op; /* peer: or root */
    const void *send;
    void *recv;
    size_t count;
    struct ncclComm *comm;
    cudaStream_t stream;
    bool done;
};

/* A thread of the program. */
struct host {
    int id = 0, device = 0;
    bool issuing = false, started = false, polling = false;
    string waiting;                               /* description of the thing it waits for */
    const std::function<bool()> *until = nullptr; /* whether that has happened */
    int depth = 0;                                /* nesting of ncclGroupStart */
    std::vector<nccl_task> tasks;                 /* tasks of the open group */
    int captures = 0;
    cudaError_t last = cudaSuccess;
    bool altstack = false;
};

enum memory_kind { DEVICE, PINNED, IMPORTED };
struct memory {
    char *at;
    size_t bytes;
    memory_kind kind;
    bool alive = true;
    int device, fd = -1, id;
    int *opens = nullptr; /* device memory only: shared count of processes that have it open */
    char *map;            /* includes a guard page on each side */
    size_t mapped;
    bool nccl = false, exported = false;
    int registered = 0;
};

struct machine {
    std::mutex lock;
    std::condition_variable changed;
    uint64_t seed, random, serial = 0, activity = 0;
    uint64_t last = 0; /* activity when a thread last looked */
    double since = 0;  /* time since which there was none */
    int nchains = 0, nids = 0, devices, capability;
    int launches = 0, ahead = 0; /* graph launches; those before the program knew that the last one had ended */
    string refused;              /* a kernel that cannot be launched */
    string faulty;               /* a kernel that faults in its launch number fault_at: nothing runs any more */
    int fault_at, fault_later;   /* fault_later: number of calls after it until calls report the fault */
    int unreported = -1;         /* how many of these calls remain; -1: no fault so far */
    bool blocking;               /* a launch returns only when the kernel has ended */
    bool switches,
        turn = false;   /* switches: a device may change between processes; turn: if not, whether this one has it */
    size_t graph_bytes; /* device memory that a graph takes */
    double stuck;
    bool pages, start_at_launch, ipc, peers, flush, peer_words; /* the last four: capabilities of devices */
    clocks seen;                                                /* by all of the program's threads */
    std::vector<host *> hosts;
    std::vector<std::unique_ptr<CUstream_st>> streams;
    std::vector<std::unique_ptr<CUevent_st>> events;
    std::vector<std::unique_ptr<CUgraph_st>> graphs;
    std::vector<std::unique_ptr<CUgraphExec_st>> execs;
    std::vector<std::shared_ptr<capture>> captures;
    std::vector<std::shared_ptr<launched>> running;
    std::map<int, cudaStream_t> legacy;
    std::map<uintptr_t, memory> memories; /* by address; freed ones stay, so that they can be named */
    size_t allocated = 0, total;
    std::map<int, double> delay;        /* by chain: sum of its works' */
    std::map<uint32_t *, clocks> words; /* everything that precedes a word's last write */
    bool remote = false;                /* another process may write here */
    clocks told;                        /* everything that precedes what other processes have been told */
};
machine &the(void);
/* Holds the lock while a call runs. name: for messages. */
struct entered {
    explicit entered(const char *name, bool query = false);
    ~entered();
    std::unique_lock<std::mutex> lock;
};
host *me(void);

[[noreturn]] void broken(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* schedule.cpp */
cudaStream_t stream_of(cudaStream_t s, const char *what);
void enqueue(cudaStream_t s, work w);
int issue_node(const std::shared_ptr<capture> &c, work w, std::vector<int> before, cudaStream_t s);
bool run_one(void);
bool fault_surfaced(void); /* called once per call */
void run_some(void);
void check_stuck(bool waits);
void wait_until(const std::function<bool()> &done, const string &what, bool slow = false);
double now(void);
int new_chain(void);
string stream_name(const CUstream_st *s);
void check_creation(const char *what);
void check_not_capturing(const char *what);
extern const char *call; /* the running call's name */

/* memory.cpp */
void *memory_new(size_t bytes, memory_kind kind, const char *what);
void memory_free(void *p, memory_kind kind, const char *what);
memory *memory_find(const void *p);
void check_range(const range &r, const char *what, bool pinned_too = false);
void check_inside(const void *p, const char *what);
/* Runs work. Names a kernel that touches memory outside any allocation; with STANDIN_PAGES=1, finds which pages it
 * touches. */
void run_work(const work &w, std::vector<range> &touched);
/* Makes device memory accessible while it is alive; a program that touches it at other times breaks rule MEMORY. */
struct opened {
    explicit opened(std::vector<range> ranges);
    ~opened();
    std::vector<range> ranges;
};

/* race.cpp */
void touch(const std::vector<range> &ranges, const string &what, const clocks &clock, int chain);
void forget_memory(const void *at);

/* nccl.cpp, nccl_processes.cpp */
void nccl_issue(const std::shared_ptr<nccl_group> &g);                       /* begins its turn on its communicator */
std::shared_ptr<nccl_group> nccl_copy(const std::shared_ptr<nccl_group> &g); /* copies a graph's group for a launch */
void nccl_arrive(nccl_group &g, const clocks &clock, int chain);
bool nccl_done(const nccl_group &g);
const clocks &nccl_clock(const nccl_group &g);
void nccl_progress(void);
string nccl_waits(const nccl_group &g);
bool nccl_owner(int thread); /* whether it has a communicator */
bool nccl_aborted(void);
bool nccl_remote(void);                        /* whether some of its ranks are processes */
void nccl_check_settled(const CUstream_st *s); /* before more is issued on s, NCCL's calls there must be done */
/* Hook of the thread grid: a kernel waits in its stream as a closure that holds its arguments. */
void standin_enqueue(cudaStream_t stream, const char *what, std::function<void()> run,
                     std::vector<const void *> pointers);
#endif
