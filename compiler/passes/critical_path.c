/* The critical path: from the instruction that ends last back to the beginning, each time to one that it had to wait
 * for. If an instruction on the path takes longer, so does the whole step. Where several instructions ended at the
 * moment that let one start, any of them will do; the walk takes the previous one of its lane, so that it stays on a
 * busy rank. Measured instructions begin some time after that moment: there, the walk takes the one that ended last. */
#include "passes.h"

struct place {
    int32_t rank, i;
};
struct walk {
    const struct program *p;
    const struct timeline *tl;
    int32_t **before;      /* per instruction: the one before it on its lane, or -1 */
    struct place *of, *at; /* of[at[m].i .. at[m+1].i): the instructions of message m */
    bool **on;
};

static void find_neighbours(struct walk *walk) {
    const struct program *p = walk->p;
    int32_t *n = NEW(int32_t, p->nmsgs + 1);
    int total = 0;
    walk->before = NEW(int32_t *, p->workers);
    walk->at = NEW(struct place, p->nmsgs + 1);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        walk->before[r] = NEW(int32_t, k->nins);
        for (int i = 0; i < k->nins; i++) {
            walk->before[r][i] = last[k->ins[i].lane] - 1;
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

/* Takes instruction i of the rank for *last when it ended later. */
static void consider(const struct walk *walk, int32_t rank, int32_t i, struct place *last) {
    if (!walk->on[rank][i] && (last->i < 0 || walk->tl->end[rank][i] > walk->tl->end[last->rank][last->i]))
        *last = (struct place){rank, i};
}

/* Among all that this instruction had to wait for, the one that ended last, if that was later than *last. */
static void held_by(const struct walk *walk, struct place place, struct place *last) {
    const struct rank *k = &walk->p->rank[place.rank];
    const struct instr *in = &k->ins[place.i];
    int32_t b = walk->before[place.rank][place.i];
    if (b >= 0 && k->lane[in->lane].kind == LANE_RECV && in->msg >= 0 && k->ins[b].msg >= 0)
        b = -1; /* a message need not wait for the latency of the one before it: the sender's lane decides */
    if (b >= 0)
        consider(walk, place.rank, b, last);
    for (uint32_t a = in->wait; a < in->wait + in->nwait; a++)
        consider(walk, place.rank, k->wait[a], last);
}

/* The instructions that began with x: the sides of its message, the other job of its pair, or x alone. */
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
    struct place own[3], from = {0, -1};
    const struct place *all;
    int n = companions(walk, place, &all, own);
    for (int i = 0; i < n; i++)
        walk->on[all[i].rank][all[i].i] = true;
    for (int i = 0; i < n; i++)
        held_by(walk, all[i], &from);
    return from;
}

bool **critical_path(const struct program *p, const struct timeline *tl) {
    struct walk walk = {.p = p, .tl = tl, .on = NEW(bool *, p->workers)};
    struct place place = {0, -1};
    find_neighbours(&walk);
    for (int r = 0; r < p->workers; r++) {
        walk.on[r] = NEW(bool, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins && place.i < 0; i++)
            if (tl->end[r][i] == tl->makespan)
                place = (struct place){r, i};
    }
    while (place.i >= 0)
        place = step_back(&walk, place);
    return walk.on;
}
