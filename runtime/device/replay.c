/* The replay core: walks a rank's lanes, always continuing with the lane whose next instruction was issued first.
 *
 * If nothing ever blocks (a GPU's streams), this is exactly the compiler's issue order. If a lane has to wait (the
 * host), the others continue in the same thread, so lanes need no threads of their own. */
#include "replay.h"
#include <assert.h>

static int next_lane(const struct replay *re, const struct rt_rank *k) {
    int best = -1;
    int32_t first = re->end;
    for (int l = 0; l < k->nlanes; l++) {
        int32_t c = re->cursor[l];
        if (re->blocked[l] || c == k->lane_at[l + 1] || k->lane_ins[c] >= first)
            continue;
        first = k->lane_ins[c];
        best = l;
    }
    return best;
}

/* Runs an instruction. Returns false if it would have to wait for another rank. */
static bool run(struct replay *re, const struct rt_rank *k, int32_t i) {
    const struct rt_instr *x = &k->ins[i];
    const struct device *device = re->device;
    for (int32_t n = 0, before; (before = wait_of(k, x, n)) >= 0; n++)
        if (!device->wait(re, x, before))
            return false;
    if (is_message(x->op))
        return device->meet(re, x);
    double start = device->clock(re);
    if (!is_for(re->purpose, x->op)) {
        device->record(re, i, start, start);
        return true;
    }
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

/* Returns the position of lane l's first instruction from number `begin` on. */
static int32_t cursor_at(const struct rt_rank *k, int l, int32_t begin) {
    int32_t from = k->lane_at[l], to = k->lane_at[l + 1];
    while (begin > 0 && from < to) {
        int32_t middle = from + (to - from) / 2;
        if (k->lane_ins[middle] < begin)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

void replay_begin(struct replay *re, int64_t pass) {
    const struct rt_program *p = re->program;
    const struct rt_rank *k = &p->rank[re->rank];
    assert(re->left == 0); /* the pass before has ended: all lanes join between passes */
    assert(pass >= 0 && pass < passes_of(p) && re->step >= 0);
    re->section = section_at(p, pass);
    re->repetition = repetition_at(p, pass);
    re->turn = re->section == PERIOD ? re->runs * p->repeats + re->repetition : re->runs;
    int32_t begin = begin_of(k, re->section);
    re->end = begin_of(k, re->section + 1);
    for (int l = 0; l < k->nlanes; l++)
        __atomic_store_n(&re->cursor[l], cursor_at(k, l, begin), __ATOMIC_RELEASE);
    __atomic_store_n(&re->passes, re->step * passes_of(p) + pass + 1, __ATOMIC_RELEASE);
    re->left = re->end - begin;
    assert(re->left >= 0 && re->repetition >= 0 && (p->period == 0 || re->repetition < p->repeats));
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
        assert(i < re->end && i >= begin_of(k, re->section));
        re->blocked[l] = !run(re, k, i);
        if (re->blocked[l])
            continue;
        __atomic_store_n(&re->cursor[l], re->cursor[l] + 1, __ATOMIC_RELEASE);
        re->left--;
        assert(re->left >= 0 && re->cursor[l] <= k->lane_at[l + 1]);
        if (k->ins[i].name) /* lanes that wait for it may continue at once */
            unblock(re, k);
    }
    return true;
}

void replay_step(struct replay *re) {
    if (re->device->begin)
        re->device->begin(re);
    for (int64_t pass = 0; pass < passes_of(re->program); pass++) {
        replay_begin(re, pass);
        while (!replay_run(re))
            re->device->idle(re);
    }
    if (re->device->end)
        re->device->end(re);
    re->runs++;
}
