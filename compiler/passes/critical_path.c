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

static void find_neighbours(struct walk *w) {
    const struct program *p = w->p;
    int32_t *n = NEW(int32_t, p->nmsgs + 1);
    int total = 0;
    w->before = NEW(int32_t *, p->workers);
    w->at = NEW(struct place, p->nmsgs + 1);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        w->before[r] = NEW(int32_t, k->nins);
        for (int i = 0; i < k->nins; i++) {
            w->before[r][i] = last[k->ins[i].lane] - 1;
            last[k->ins[i].lane] = i + 1;
            if (k->ins[i].msg >= 0)
                n[k->ins[i].msg]++;
        }
    }
    for (int m = 0; m < p->nmsgs; m++) {
        w->at[m].i = total;
        total += n[m];
        n[m] = w->at[m].i;
    }
    w->at[p->nmsgs].i = total;
    w->of = NEW(struct place, total);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            if (p->rank[r].ins[i].msg >= 0)
                w->of[n[p->rank[r].ins[i].msg]++] = (struct place){r, i};
}

/* Takes instruction i of the rank for *last when it ended later. */
static void consider(const struct walk *w, int32_t rank, int32_t i, struct place *last) {
    if (!w->on[rank][i] && (last->i < 0 || w->tl->end[rank][i] > w->tl->end[last->rank][last->i]))
        *last = (struct place){rank, i};
}

/* Among all that this instruction had to wait for, the one that ended last, if that was later than *last. */
static void held_by(const struct walk *w, struct place x, struct place *last) {
    const struct rank *k = &w->p->rank[x.rank];
    const struct instr *in = &k->ins[x.i];
    int32_t b = w->before[x.rank][x.i];
    if (b >= 0 && k->lane[in->lane].kind == LANE_RECV && in->msg >= 0 && k->ins[b].msg >= 0)
        b = -1; /* a message need not wait for the latency of the one before it: the sender's lane decides */
    if (b >= 0)
        consider(w, x.rank, b, last);
    for (uint32_t a = in->wait; a < in->wait + in->nwait; a++)
        consider(w, x.rank, k->wait[a], last);
}

/* The instructions that began with x: the sides of its message, the other job of its pair, or x alone. */
static int companions(const struct walk *w, struct place x, const struct place **all, struct place own[3]) {
    const struct rank *k = &w->p->rank[x.rank];
    int m = k->ins[x.i].msg, n = 0;
    if (m >= 0) {
        *all = &w->of[w->at[m].i];
        return w->at[m + 1].i - w->at[m].i;
    }
    const double *start = w->tl->start[x.rank], *end = w->tl->end[x.rank];
    for (int32_t i = x.i > 0 ? x.i - 1 : 0; i <= x.i + 1 && i < k->nins; i++)
        if (i == x.i || (is_job(k->ins[i].op) && is_job(k->ins[x.i].op) && start[i] == start[x.i] &&
                         end[i] == end[x.i] && end[i] > start[i]))
            own[n++] = (struct place){x.rank, i};
    *all = own;
    return n;
}

static struct place step_back(const struct walk *w, struct place x) {
    struct place own[3], from = {0, -1};
    const struct place *all;
    int n = companions(w, x, &all, own);
    for (int i = 0; i < n; i++)
        w->on[all[i].rank][all[i].i] = true;
    for (int i = 0; i < n; i++)
        held_by(w, all[i], &from);
    return from;
}

bool **critical_path(const struct program *p, const struct timeline *tl) {
    struct walk w = {.p = p, .tl = tl, .on = NEW(bool *, p->workers)};
    struct place x = {0, -1};
    find_neighbours(&w);
    for (int r = 0; r < p->workers; r++) {
        w.on[r] = NEW(bool, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins && x.i < 0; i++)
            if (tl->end[r][i] == tl->makespan)
                x = (struct place){r, i};
    }
    while (x.i >= 0)
        x = step_back(&w, x);
    return w.on;
}
