/* The replay core: walks a rank's lanes, always going on with the lane whose next instruction was issued first.
 *
 * Where nothing ever blocks (a GPU's streams) that is exactly the compiler's issue order. Where a lane has to wait (the
 * host), the others go on meanwhile, in one thread: lanes need no thread of their own. */
#include "device.h"

static int next_lane(const struct replay *z, const struct rt_rank *k) {
    int best = -1;
    int32_t first = k->nins;
    for (int l = 0; l < k->nlanes; l++) {
        int32_t c = z->cursor[l];
        if (z->blocked[l] || c == k->lane_at[l + 1] || k->lane_ins[c] >= first)
            continue;
        first = k->lane_ins[c];
        best = l;
    }
    return best;
}

/* False: it would have to wait for another rank. */
static bool run(struct replay *z, const struct rt_rank *k, int32_t i) {
    const struct rt_instr *x = &k->ins[i];
    const struct device *d = z->device;
    for (int32_t w = x->wait; w < x->wait + x->nwait; w++)
        if (!d->wait(z, x, k->wait[w]))
            return false;
    if (x->op == OP_REDUCE)
        return d->reduce(z, x);
    if (x->msg >= 0)
        return op_lane_of(x->op) == LANE_SEND ? d->send(z, x) : d->recv(z, x);
    double start = d->clock(z);
    __atomic_store_n(&z->running, i, __ATOMIC_RELEASE);
    d->launch(z, x);
    __atomic_store_n(&z->running, -1, __ATOMIC_RELEASE);
    d->record(z, i, start, d->clock(z));
    return true;
}

static void unblock(struct replay *z, const struct rt_rank *k) {
    for (int l = 0; l < k->nlanes; l++)
        z->blocked[l] = false;
}

void replay_begin(struct replay *z) {
    const struct rt_rank *k = &z->program->rank[z->rank];
    for (int l = 0; l < k->nlanes; l++)
        __atomic_store_n(&z->cursor[l], k->lane_at[l], __ATOMIC_RELEASE);
    z->left = k->nins;
    unblock(z, k);
}

bool replay_run(struct replay *z) {
    const struct rt_rank *k = &z->program->rank[z->rank];
    while (z->left > 0) {
        int l = next_lane(z, k);
        if (l < 0) {
            unblock(z, k);
            return false;
        }
        int32_t i = k->lane_ins[z->cursor[l]];
        z->blocked[l] = !run(z, k, i);
        if (z->blocked[l])
            continue;
        __atomic_store_n(&z->cursor[l], z->cursor[l] + 1, __ATOMIC_RELEASE);
        z->left--;
        if (k->ins[i].recorded) /* what waits for it, a message say, can go at once */
            unblock(z, k);
    }
    return true;
}

void replay_step(struct replay *z) {
    replay_begin(z);
    while (!replay_run(z))
        z->device->idle(z);
}
