/* NCCL's launch order across the communicators of a device, with NCCL_LAUNCH_ORDER_IMPLICIT, as in runtime/GPU.md: a
 * group starts only after earlier groups have started, or, with older versions, have ended. Without the variable, only
 * each communicator has an order. */
#include "nccl_inside.h"
#include <cstdlib>

enum order { LANE, ISSUE, SERIAL };

static order find_order(bool captured) {
    const char *s = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    int nccl, driver, runtime;
    ncclGetVersion(&nccl);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!s || atoi(s) == 0 || nccl < NCCL_VERSION(2, 26, 0))
        return LANE;
    bool old = driver < 12030 || runtime < 12030;
    bool old_for_graphs = driver < 12090 || nccl < NCCL_VERSION(2, 27, 3);
    return old || (captured && old_for_graphs) ? SERIAL : ISSUE;
}
static order order_of(const nccl_group &g) {
    static const order eager = find_order(false), captured = find_order(true);
    return g.captured ? captured : eager;
}

/* Returns a device's groups in issue order; ended ones leave from the front. */
static std::deque<std::shared_ptr<nccl_group>> &issued_on(int device) {
    static auto *all = new std::map<int, std::deque<std::shared_ptr<nccl_group>>>;
    return (*all)[device];
}
void nccl_order_issue(const std::shared_ptr<nccl_group> &g) { issued_on(g->comm->device).push_back(g); }

const nccl_group *nccl_order_before(const nccl_group &g) {
    order order = order_of(g);
    auto &all = issued_on(g.comm->device);
    while (!all.empty() && all.front()->done)
        all.pop_front();
    for (auto &o : all) {
        if (o.get() == &g || order == LANE)
            return nullptr;
        if (!o->done && (order == SERIAL || !o->started))
            return o.get();
    }
    return nullptr;
}
string nccl_order_waits(const nccl_group &g) {
    const nccl_group *before = nccl_order_before(g);
    return before ? text(", which waits for the %s of ", order_of(g) == SERIAL ? "end" : "start") +
                        nccl_task_name(before->tasks[0]) + ", issued before"
                  : "";
}
