/* The replay core: walks a rank's lanes, always continuing with the lane whose next instruction was issued first.
 *
 * If nothing ever blocks (a GPU's streams), that is exactly the compiler's issue order. If a lane has to wait (the
 * host), the others continue in the same thread: lanes need no threads of their own. */
#include "replay.h"

static int next_lane(const struct replay *re, const struct rt_rank *k) {
    int best = -1;
    int32_t first = k->nins;
    for (int l = 0; l < k->nlanes; l++) {
        int32_t c = re->cursor[l];
        if (re->blocked[l] || c == k->lane_at[l + 1] || k->lane_ins[c] >= first)
            continue;
        first = k->lane_ins[c];
        best = l;
    }
    return best;
}

/* False: it would have to wait for another rank. */
static bool run(struct replay *re, const struct rt_rank *k, int32_t i) {
    const struct rt_instr *x = &k->ins[i];
    const struct device *device = re->device;
    for (int32_t w = x->wait; w < x->wait + x->nwait; w++)
        if (!device->wait(re, x, k->wait[w]))
            return false;
    if (x->msg >= 0)
        return device->meet(re, x);
    double start = device->clock(re);
    __atomic_store_n(&re->running, i, __ATOMIC_RELEASE);
    device->launch(re, x);
    __atomic_store_n(&re->running, -1, __ATOMIC_RELEASE);
    device->record(re, i, start, device->clock(re));
    return true;
}

static void unblock(struct replay *re, const struct rt_rank *k) {
    for (int l = 0; l < k->nlanes; l++)
        re->blocked[l] = false;
}

void replay_begin(struct replay *re) {
    const struct rt_rank *k = &re->program->rank[re->rank];
    for (int l = 0; l < k->nlanes; l++)
        __atomic_store_n(&re->cursor[l], k->lane_at[l], __ATOMIC_RELEASE);
    re->left = k->nins;
    unblock(re, k);
}

bool replay_run(struct replay *re) {
    const struct rt_rank *k = &re->program->rank[re->rank];
    while (re->left > 0) {
        int l = next_lane(re, k);
        if (l < 0) {
            unblock(re, k);
            return false;
        }
        int32_t i = k->lane_ins[re->cursor[l]];
        re->blocked[l] = !run(re, k, i);
        if (re->blocked[l])
            continue;
        __atomic_store_n(&re->cursor[l], re->cursor[l] + 1, __ATOMIC_RELEASE);
        re->left--;
        if (k->ins[i].recorded) /* what waits for it, a message say, can go at once */
            unblock(re, k);
    }
    return true;
}

void replay_step(struct replay *re) {
    replay_begin(re);
    while (!replay_run(re))
        re->device->idle(re);
}
