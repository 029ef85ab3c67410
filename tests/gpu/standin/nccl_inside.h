/* The stand-in's NCCL, shared by nccl.cpp (ranks as threads) and nccl_processes.cpp (ranks as processes). */
#ifndef STANDIN_NCCL_INSIDE_H
#define STANDIN_NCCL_INSIDE_H
#include "nccl.h"
#include "standin.h"

struct segment; /* nccl_processes.cpp */
struct clique {
    int id;
    std::vector<ncclComm *> ranks; /* null for a rank of another process */
    size_t come = 0;
    bool aborted = false;
};
struct ncclComm {
    std::shared_ptr<clique> all;
    int rank, device, thread;
    bool alive = true, aborted = false;
    struct segment *shared = nullptr;              /* set if ranks are processes and calls do not block */
    std::deque<std::shared_ptr<nccl_group>> queue; /* issued and not yet done */
};
struct nccl_group {
    ncclComm *comm;
    std::vector<nccl_task> tasks;
    size_t needs, arrived = 0; /* numbers of streams */
    bool captured, started = false, done = false;
    int chain = 0;
    clocks start, clock; /* start: when it started; clock: what precedes it so far */
};

extern const size_t nccl_type_bytes[];
extern const char *const nccl_type_names[];
std::vector<std::unique_ptr<ncclComm>> &nccl_comms(void);
string nccl_task_name(const nccl_task &t);
nccl_group *nccl_running(ncclComm *c);
nccl_task *nccl_next(nccl_group *g, int kind, int peer); /* next that is not done; peer -1: a collective */
/* Checks that two tasks match, and that both are captured or neither is. */
void nccl_check_alike(bool captured, const nccl_task &a, bool other_captured, const nccl_task &b);
void nccl_touch(const nccl_group *g, const nccl_task &t);
bool nccl_receives(const nccl_task &t); /* whether its rank receives anything */
/* Returns what a rank of a collective receives. send: what each sends; a Broadcast reads only the root's. */
std::vector<char> nccl_result(const nccl_task &t, size_t rank, const std::vector<const char *> &send);

bool nccl_hangs(const char *what);

/* nccl_order.cpp */
void nccl_order_issue(const std::shared_ptr<nccl_group> &g);
const nccl_group *
nccl_order_before(const nccl_group &g);       /* an earlier group of its device that keeps it from starting, or null */
string nccl_order_waits(const nccl_group &g); /* a description of that group, or nothing */

/* nccl_processes.cpp */
ncclResult_t processes_init(ncclComm_t *out, int n, const string &name, int rank, int channels);
void processes_issue(ncclComm *c, const std::vector<nccl_task> &tasks); /* the previous call on c must be done */
void processes_check_ready(ncclComm *c);                                /* a call on c: the one before must be done */
bool processes_progress(ncclComm *c); /* advances the running group; true if anything moved */
ncclResult_t processes_state(ncclComm *c);
ncclResult_t processes_finalize(ncclComm *c);
void processes_leave(ncclComm *c, bool aborts);
string processes_other_side(ncclComm *c, const nccl_task &t);
#endif
