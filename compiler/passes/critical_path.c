/* The critical path. It leads from the instruction that ends last back to the beginning, each time to an instruction
 * that the later one had to wait for. If an instruction on the path takes longer, so does the whole step. If several
 * instructions ended at the moment that let one start, any of them will do; the walk takes the lane's previous
 * instruction, so that it stays on a busy rank. Where a rank's lanes join, every later instruction has waited for all
 * earlier ones. Measured instructions begin some time after that moment; the walk then takes the one that ended last.
 *
 * With a launch order (sim.c), a communication also waits for earlier communications of its rank: for their ends, or
 * for whatever delayed their own launch. */
#include "passes.h"
#include <math.h>

struct place {
    int32_t rank, i;
};
struct hold { /* an instruction, and the time at which it lets another one start */
    struct place place;
    double until;
};
struct walk {
    const struct program *p;
    const struct timeline *tl;
    int32_t **before;      /* per instruction: the previous one on its lane, or -1 */
    int32_t **beside;      /* per collective: the previous one on its group's other lane, or -1 */
    struct place *of, *at; /* of[at[m].i .. at[m+1].i): the instructions of message m */
    struct hold **launch;  /* per communication: the hold of its rank's earlier communications */
    int32_t **joined;      /* per instruction: the last to end before its rank's lanes joined, or -1 */
    bool **on;
};

static void find_neighbours(struct walk *walk) {
    const struct program *p = walk->p;
    int32_t *n = NEW(int32_t, p->nmsgs + 1);
    int total = 0;
    walk->before = NEW(int32_t *, p->workers);
    walk->beside = NEW(int32_t *, p->workers);
    walk->at = NEW(struct place, p->nmsgs + 1);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        const int *sibling = sibling_lanes(k);
        walk->before[r] = NEW(int32_t, k->nins);
        walk->beside[r] = NEW(int32_t, k->nins);
        for (int i = 0; i < k->nins; i++) {
            walk->before[r][i] = last[k->ins[i].lane] - 1;
            walk->beside[r][i] = sibling[k->ins[i].lane] < 0 ? -1 : last[sibling[k->ins[i].lane]] - 1;
            last[k->ins[i].lane] = i + 1;
            if (k->ins[i].msg >= 0)
                n[k->ins[i].msg]++;
        }
    }
    for (int m = 0; m < p->nmsgs; m++) {
        walk->at[m].i = total;
        total += n[m];
        n[m] = walk->at[m].i;
    }
    walk->at[p->nmsgs].i = total;
    walk->of = NEW(struct place, total);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            if (p->rank[r].ins[i].msg >= 0)
                walk->of[n[p->rank[r].ins[i].msg]++] = (struct place){r, i};
}

static void find_joins(struct walk *walk) {
    const struct program *p = walk->p;
    walk->joined = NEW(int32_t *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        int32_t last = -1, join = -1;
        walk->joined[r] = NEW(int32_t, k->nins);
        for (int32_t i = 0, n = 0; i < k->nins; i++) {
            for (; n < joins_of(p) && join_at(p, k, n) == i; n++)
                join = last;
            walk->joined[r][i] = join;
            if (last < 0 || walk->tl->end[r][i] > walk->tl->end[r][last])
                last = i;
        }
    }
}

/* Replaces *last if `hold` lasts longer and is not on the path already. */
static void consider_hold(const struct walk *walk, struct hold hold, struct hold *last) {
    bool any = hold.place.i >= 0 && !walk->on[hold.place.rank][hold.place.i];
    if (any && (last->place.i < 0 || hold.until > last->until))
        *last = hold;
}

static struct hold end_of(const struct walk *walk, int32_t rank, int32_t i) {
    return (struct hold){{rank, i}, walk->tl->end[rank][i]};
}

/* Returns when a message's lanes are free again; a receiver's end is a latency later. */
static struct hold freed(const struct walk *walk, int32_t rank, int32_t i) {
    int m = walk->p->rank[rank].ins[i].msg;
    struct hold hold = end_of(walk, rank, i);
    for (const struct place *x = &walk->of[walk->at[m].i]; x < &walk->of[walk->at[m + 1].i]; x++)
        hold.until = fmin(hold.until, walk->tl->end[x->rank][x->i]);
    return hold;
}

/* Returns what held an instruction longest, among all that it had to wait for on its lane and on other lanes of its
 * rank. */
static struct hold held_longest(const struct walk *walk, struct place place) {
    const struct rank *k = &walk->p->rank[place.rank];
    const struct instr *in = &k->ins[place.i];
    struct hold last = {{0, -1}, 0};
    int32_t b = walk->before[place.rank][place.i];
    if (b >= 0 && k->lane[in->lane].kind == LANE_RECV && in->msg >= 0 && k->ins[b].msg >= 0)
        consider_hold(walk, freed(walk, place.rank, b), &last);
    else if (b >= 0)
        consider_hold(walk, end_of(walk, place.rank, b), &last);
    if (walk->beside[place.rank][place.i] >= 0)
        consider_hold(walk, end_of(walk, place.rank, walk->beside[place.rank][place.i]), &last);
    for (uint32_t a = in->wait; a < in->wait + in->nwait; a++)
        consider_hold(walk, end_of(walk, place.rank, k->wait[a]), &last);
    if (walk->joined && walk->joined[place.rank][place.i] >= 0)
        consider_hold(walk, end_of(walk, place.rank, walk->joined[place.rank][place.i]), &last);
    return last;
}

/* Returns what lets the communication after this one be launched, by the rules of sim.c. */
static struct hold launched(const struct walk *walk, struct place place) {
    const struct rank *k = &walk->p->rank[place.rank];
    const struct instr *in = &k->ins[place.i];
    struct hold own = end_of(walk, place.rank, place.i), last = held_longest(walk, place);
    if (walk->tl->launch == LAUNCH_SERIAL)
        return own;
    if (in->op == OP_ALL_REDUCE) {
        own.until -= reduction_tail(k, in, own.until - walk->tl->start[place.rank][place.i]);
        return own;
    }
    consider_hold(walk, walk->launch[place.rank][place.i], &last);
    return last;
}

static void find_launches(struct walk *walk, int32_t rank) {
    const struct rank *k = &walk->p->rank[rank];
    struct hold last = {{0, -1}, 0};
    walk->launch[rank] = NEW(struct hold, k->nins);
    for (int32_t i = 0; i < k->nins; i++) {
        walk->launch[rank][i] = (struct hold){{0, -1}, 0};
        if (k->ins[i].msg < 0)
            continue;
        walk->launch[rank][i] = last;
        last = launched(walk, (struct place){rank, i});
    }
}

/* Lists the instructions that began together with this one: the sides of its message, the other job of its pair, or
 * only itself. */
static int companions(const struct walk *walk, struct place place, const struct place **all, struct place own[3]) {
    const struct rank *k = &walk->p->rank[place.rank];
    int m = k->ins[place.i].msg, n = 0;
    if (m >= 0) {
        *all = &walk->of[walk->at[m].i];
        return walk->at[m + 1].i - walk->at[m].i;
    }
    const double *start = walk->tl->start[place.rank], *end = walk->tl->end[place.rank];
    for (int32_t i = place.i > 0 ? place.i - 1 : 0; i <= place.i + 1 && i < k->nins; i++)
        if (i == place.i || (is_job(k->ins[i].op) && is_job(k->ins[place.i].op) && start[i] == start[place.i] &&
                             end[i] == end[place.i] && end[i] > start[i]))
            own[n++] = (struct place){place.rank, i};
    *all = own;
    return n;
}

static struct place step_back(const struct walk *walk, struct place place) {
    struct place own[3];
    struct hold from = {{0, -1}, 0};
    const struct place *all;
    int n = companions(walk, place, &all, own);
    for (int i = 0; i < n; i++)
        walk->on[all[i].rank][all[i].i] = true;
    for (int i = 0; i < n; i++) {
        consider_hold(walk, held_longest(walk, all[i]), &from);
        if (walk->launch)
            consider_hold(walk, walk->launch[all[i].rank][all[i].i], &from);
    }
    return from.place;
}

bool **critical_path(const struct program *p, const struct timeline *tl) {
    struct walk walk = {.p = p, .tl = tl, .on = NEW(bool *, p->workers)};
    struct place place = {0, -1};
    find_neighbours(&walk);
    if (joins_of(p) > 0)
        find_joins(&walk);
    for (int r = 0; r < p->workers; r++) {
        walk.on[r] = NEW(bool, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins && place.i < 0; i++)
            if (tl->end[r][i] == tl->makespan)
                place = (struct place){r, i};
    }
    if (tl->launch != LAUNCH_LANE) {
        walk.launch = NEW(struct hold *, p->workers);
        for (int r = 0; r < p->workers; r++)
            find_launches(&walk, r);
    }
    while (place.i >= 0)
        place = step_back(&walk, place);
    return walk.on;
}
