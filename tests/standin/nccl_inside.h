/* The stand-in's NCCL, shared by nccl.cpp (ranks that are threads) and nccl_processes.cpp (ranks that are
 * processes). */
#ifndef STANDIN_NCCL_INSIDE_H
#define STANDIN_NCCL_INSIDE_H
#include "nccl.h"
#include "standin.h"

struct segment; /* nccl_processes.cpp */
struct clique {
    int id;
    std::vector<ncclComm *> ranks; /* null: in another process */
    size_t come = 0;
    bool aborted = false;
};
struct ncclComm {
    std::shared_ptr<clique> all;
    int rank, device, thread;
    bool alive = true, aborted = false;
    struct segment *shared = nullptr;              /* the ranks are processes, and calls do not block */
    std::deque<std::shared_ptr<nccl_group>> queue; /* issued and not over */
};
struct nccl_group {
    ncclComm *comm;
    std::vector<nccl_task> tasks;
    size_t needs, arrived = 0; /* streams */
    bool captured, started = false, done = false;
    int chain = 0;
    clocks start, clock; /* when it started; what it is ordered after so far */
};

extern const size_t nccl_type_bytes[];
extern const char *const nccl_type_names[];
std::vector<std::unique_ptr<ncclComm>> &nccl_comms(void);
string nccl_task_name(const nccl_task &t);
nccl_group *nccl_running(ncclComm *c);
nccl_task *nccl_next(nccl_group *g, int kind, int peer); /* not done; peer -1: a collective */
/* Both must match, and both be captured or neither. */
void nccl_check_alike(bool captured, const nccl_task &a, bool other_captured, const nccl_task &b);
void nccl_touch(const nccl_group *g, const nccl_task &t);
bool nccl_receives(const nccl_task &t); /* does its rank receive anything? */
/* What a rank of a collective receives. send: what each sends; of Broadcast only the root's is looked at. */
std::vector<char> nccl_result(const nccl_task &t, size_t rank, const std::vector<const char *> &send);

bool nccl_hangs(const char *what);

/* nccl_order.cpp */
void nccl_order_issue(const std::shared_ptr<nccl_group> &g);
const nccl_group *
nccl_order_before(const nccl_group &g);       /* the one of its device that keeps it from starting; or null */
string nccl_order_waits(const nccl_group &g); /* what that says; or nothing */

/* nccl_processes.cpp */
ncclResult_t processes_init(ncclComm_t *out, int n, const string &name, int rank, int channels);
void processes_issue(ncclComm *c,
                     const std::vector<nccl_task> &tasks); /* a group was issued: the call is in progress */
void processes_check_ready(ncclComm *c);                   /* a call on c: the one before must be done */
bool processes_progress(ncclComm *c);                      /* of the running group: true when anything moved */
ncclResult_t processes_state(ncclComm *c);
ncclResult_t processes_finalize(ncclComm *c);
void processes_leave(ncclComm *c, bool aborts);
string processes_other_side(ncclComm *c, const nccl_task &t);
#endif
