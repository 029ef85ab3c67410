/* The proof that a program does what its job graph says, on every machine that keeps the orders of the model
 * "start-end" (verify_orders.c).
 *
 * 1. Messages pair in the order of their edge, as NCCL pairs them, and agree in name and size.
 * 2. All ranks are walked together, each one instruction at a time in issue order, with every send blocking until its
 *    receive. If the walk completes, it is a total order of all instructions; along the way, values are tracked
 *    symbolically (verify_values.c, verify_sums.c, verify_memory.c).
 * 3. Lanes and non-blocking sends only remove orders. All remaining orders agree with the walk's, so nothing can
 *    deadlock that the walk does not; and conflicting accesses are still ordered (verify_races.c), so every buffer
 *    holds what it held in the walk, however the lanes run. */
#include "base/cycle.h"
#include "check.h"
#include <assert.h>
#include <string.h>

void put_place(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    if (i >= k->nins) {
        put(&check->why, "rank %d", r);
        return;
    }
    put(&check->why, "rank %d lane ", r);
    put_lane(&check->why, check->p, &k->lane[k->ins[i].lane]);
    if (k->line)
        put(&check->why, ", line %d: ", k->line[i]);
    else
        put(&check->why, ", instruction %d: ", i);
    put_label(&check->why, &k->ins[i]);
}

#define X(name, word, what) word,
const char *const claim_word[NCLAIMS] = {CLAIMS(X)};
#undef X
#define X(name, word, what) what,
const char *const claim_what[NCLAIMS] = {CLAIMS(X)};
#undef X

int32_t operand(const struct rank *k, const struct instr *x, int role, int nth) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (k->arg[a].role == role && nth-- == 0)
            return k->arg[a].buf;
    return -1;
}

bool refute_all(struct check *check, int claim, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    check->failed = claim;
    put(&check->why, "%s", text);
    return false;
}

bool refute(struct check *check, int claim, int r, int32_t i, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    check->failed = claim;
    put_place(check, r, i);
    put(&check->why, ": %s", text);
    return false;
}

/* ---- messages: the k-th SEND along an edge pairs with the k-th RECV ---- */

static bool same_name(const struct instr *send, const struct instr *recv) {
    return recv->op == op_row(send->op)->partner && recv->stage == send->stage && recv->batch == send->batch &&
           recv->inst == send->inst;
}

static int64_t tensor_bytes(const struct rank *k, const struct instr *x) {
    return x->narg ? k->buf[k->arg[x->arg].buf].bytes : -1;
}

static const char *label_of(const struct instr *x) {
    struct text t = {0};
    put_label(&t, x);
    return t.s;
}

static bool pair(struct check *check, int src, int32_t i, int dst, int32_t j) {
    const struct rank *ks = &check->p->rank[src], *kd = &check->p->rank[dst];
    const struct instr *s = &ks->ins[i], *d = &kd->ins[j];
    check->mate[src][i] = j;
    check->mate[dst][j] = i;
    if (!same_name(s, d))
        return refute(check, CLAIM_SERIAL, src, i, "its place in the order of the edge meets %s on rank %d",
                      label_of(d), dst);
    if (s->narg != 1 || d->narg != 1)
        return refute(check, CLAIM_JOBS, src, i, "a message carries one tensor");
    if (tensor_bytes(ks, s) != tensor_bytes(kd, d))
        return refute(check, CLAIM_SERIAL, src, i, "sends %lld bytes, but %s on rank %d takes %lld",
                      (long long)tensor_bytes(ks, s), label_of(d), dst, (long long)tensor_bytes(kd, d));
    return true;
}

struct end {
    int32_t r, i;
};

/* All SENDs by destination, in compressed rows; within a row, by rank and issue order. */
static struct end *sends_by_destination(const struct program *p, int32_t *at) {
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++)
            if (is_send(p->rank[r].ins[i].op))
                at[p->rank[r].ins[i].peer + 2]++;
    for (int r = 0; r < p->workers; r++)
        at[r + 2] += at[r + 1];
    struct end *send = NEW(struct end, at[p->workers + 1] + 1);
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++)
            if (is_send(p->rank[r].ins[i].op))
                send[at[p->rank[r].ins[i].peer + 1]++] = (struct end){r, i};
    return send;
}

static bool pair_messages(struct check *check) {
    const struct program *p = check->p;
    int W = p->workers;
    int32_t *at = NEW(int32_t, W + 2), *first = NEW(int32_t, W), *last = NEW(int32_t, W); /* RECVs, by source */
    const struct end *send = sends_by_destination(p, at);
    memset(first, -1, sizeof *first * (size_t)W);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &p->rank[r];
        int32_t *next = check->mate[r]; /* next RECV from the same source, until it has its SEND */
        for (int32_t i = 0; i < k->nins; i++)
            if (is_recv(k->ins[i].op)) {
                int from = k->ins[i].peer;
                *(first[from] < 0 ? &first[from] : &next[last[from]]) = i;
                last[from] = i;
            }
        for (int32_t n = at[r]; n < at[r + 1]; n++) {
            int32_t j = first[send[n].r];
            if (j < 0)
                return refute(check, CLAIM_SERIAL, send[n].r, send[n].i, "rank %d has no receive for it", r);
            first[send[n].r] = next[j];
            if (!pair(check, send[n].r, send[n].i, r, j))
                return false;
        }
        for (int32_t i = 0; i < k->nins; i++)
            if (is_recv(k->ins[i].op) && first[k->ins[i].peer] >= 0)
                return refute(check, CLAIM_SERIAL, r, first[k->ins[i].peer], "rank %d has no send for it",
                              k->ins[i].peer);
    }
    return true;
}

/* The k-th REDUCE of a group on one member pairs with the k-th on every other. */
static bool pair_reductions(struct check *check) {
    const struct program *p = check->p;
    check->reductions = NEW(int32_t **, p->ngroups + 1);
    int32_t **n = NEW(int32_t *, p->ngroups + 1);
    for (int g = 0; g < p->ngroups; g++) {
        check->reductions[g] = NEW(int32_t *, p->group[g].n);
        n[g] = NEW(int32_t, p->group[g].n);
        for (int m = 0; m < p->group[g].n; m++) {
            int r = p->group[g].rank[m];
            const struct rank *k = &p->rank[r];
            size_t cap = 0;
            for (int32_t i = 0; i < k->nins; i++) {
                if (!is_group(k->ins[i].op) || k->lane[k->ins[i].lane].group != g)
                    continue;
                check->mate[r][i] = n[g][m];
                GROW(check->reductions[g][m], cap, (size_t)n[g][m] + 1);
                check->reductions[g][m][n[g][m]++] = i;
            }
        }
        for (int m = 1; m < p->group[g].n; m++)
            for (int32_t j = 0; j < n[g][0] || j < n[g][m]; j++) {
                int a = p->group[g].rank[0], b = p->group[g].rank[m];
                if (j >= n[g][m])
                    return refute(check, CLAIM_SERIAL, a, check->reductions[g][0][j], "rank %d never comes to it", b);
                int32_t i = check->reductions[g][m][j];
                if (j >= n[g][0])
                    return refute(check, CLAIM_SERIAL, b, i, "rank %d never comes to it", a);
                const struct instr *x = &p->rank[a].ins[check->reductions[g][0][j]], *y = &p->rank[b].ins[i];
                if (y->op != op_row(x->op)->partner || x->stage != y->stage ||
                    tensor_bytes(&p->rank[a], x) != tensor_bytes(&p->rank[b], y))
                    return refute(check, CLAIM_SERIAL, b, i, "on rank %d this place in the group's order is stage %d's",
                                  a, x->stage);
            }
    }
    return true;
}

/* ---- the serial walk ---- */

static bool refute_deadlock(struct check *check); /* below, after the lane graph */

struct walk {
    int32_t *todo; /* ranks that may proceed, each at most once */
    bool *queued;
    int n;
    int32_t *came; /* per group: how many members have arrived at its next reduction */
    bool *stands;  /* per rank: whether it has arrived at a reduction and waits */
};

static void queue(struct walk *walk, int r) {
    if (!walk->queued[r])
        walk->todo[walk->n++] = r;
    walk->queued[r] = true;
}

/* A member that has not arrived at this reduction, or -1. */
static int absent(const struct check *check, int r, int32_t i) {
    const struct group *g = group_of(check, r, &check->p->rank[r].ins[i]);
    for (int m = 0; m < g->n; m++)
        if (check->at[g->rank[m]] != check->reductions[g - check->p->group][m][check->mate[r][i]])
            return g->rank[m];
    return -1;
}

/* The rank that r's next instruction waits for, or -1 if it can proceed. */
static int waits_for(const struct check *check, int r) {
    int32_t i = check->at[r];
    const struct instr *x = &check->p->rank[r].ins[i];
    if (is_group(x->op))
        return absent(check, r, i);
    if (is_message(x->op))
        return check->at[x->peer] == check->mate[r][i] ? -1 : x->peer;
    return -1;
}

/* A member arrives at a reduction; the last to arrive runs it for all. */
static bool run_reduction(struct check *check, struct walk *walk, int r) {
    const struct group *g = group_of(check, r, &check->p->rank[r].ins[check->at[r]]);
    int32_t *came = &walk->came[g - check->p->group];
    *came += !walk->stands[r];
    walk->stands[r] = true;
    if (*came < g->n)
        return true;
    *came = 0;
    int32_t *i = NEW(int32_t, g->n);
    for (int m = 0; m < g->n; m++)
        i[m] = check->at[g->rank[m]];
    if (check->values && !values_reduce(check, g, i))
        return false;
    for (int m = 0; m < g->n; m++) {
        check->at[g->rank[m]]++;
        walk->stands[g->rank[m]] = false;
        queue(walk, g->rank[m]);
    }
    return true;
}

static bool go_on(struct check *check, struct walk *walk, int r) {
    const struct rank *k = &check->p->rank[r];
    walk->queued[r] = false;
    while (check->at[r] < k->nins) {
        int32_t i = check->at[r];
        const struct instr *x = &k->ins[i];
        if (is_group(x->op)) {
            if (!run_reduction(check, walk, r))
                return false;
            if (walk->stands[r])
                return true;
            continue;
        }
        if (waits_for(check, r) >= 0)
            return true;
        bool link = is_message(x->op), sends = is_send(x->op);
        if (check->values) {
            bool ok = !link   ? values_run(check, r, i)
                      : sends ? values_message(check, r, i, x->peer, check->mate[r][i])
                              : values_message(check, x->peer, check->mate[r][i], r, i);
            if (!ok)
                return false;
        }
        check->at[r]++;
        if (link) {
            check->at[x->peer]++;
            queue(walk, x->peer);
        }
    }
    return true;
}

/* In issue order, an instruction that waits for a later one of its own rank waits forever. */
static bool waits_point_back(struct check *check) {
    for (int r = 0; r < check->p->workers; r++) {
        const struct rank *k = &check->p->rank[r];
        for (int32_t i = 0; i < k->nins; i++)
            for (uint32_t a = k->ins[i].wait; a < k->ins[i].wait + k->ins[i].nwait; a++)
                if (k->wait[a] >= i)
                    return refute(check, CLAIM_SERIAL, r, i, "waits for an instruction that is issued after it");
    }
    return true;
}

static bool walk(struct check *check) {
    int W = check->p->workers;
    if (!waits_point_back(check))
        return false;
    struct walk w = {NEW(int32_t, W), NEW(bool, W), 0, NEW(int32_t, check->p->ngroups + 1), NEW(bool, W)};
    memset(check->at, 0, sizeof *check->at * (size_t)W);
    for (int r = 0; r < W; r++) {
        queue(&w, r);
        while (w.n > 0)
            if (!go_on(check, &w, w.todo[--w.n]))
                return false;
    }
    for (int r = 0; r < W; r++)
        if (check->at[r] < check->p->rank[r].nins)
            return refute_deadlock(check);
    return true;
}

/* ---- lanes: a graph of what each instruction must come after; it must have no cycle ---- */

struct lanes {
    int32_t *base; /* per rank: its first node */
    int32_t *at, *to;
    size_t n, cap;
    int32_t **before; /* per rank and instruction: the one before it in its lane, or -1 */
};

static void edge(struct lanes *lanes, int32_t to) {
    GROW(lanes->to, lanes->cap, lanes->n + 1);
    lanes->to[lanes->n++] = to;
}

static void edges_of(struct check *check, struct lanes *lanes, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    if (lanes->before[r][i] >= 0)
        edge(lanes, lanes->base[r] + lanes->before[r][i]);
    for (uint32_t a = x->wait; a < x->wait + x->nwait; a++)
        edge(lanes, lanes->base[r] + k->wait[a]);
}

/* Each reduction is a node of its own, numbered after all instructions: its first member's node number plus their
 * count. */
static int32_t meeting_of(const struct check *check, const struct lanes *lanes, int r, int32_t i) {
    const struct group *g = group_of(check, r, &check->p->rank[r].ins[i]);
    int32_t first = check->reductions[g - check->p->group][0][check->mate[r][i]];
    return lanes->base[check->p->workers] + lanes->base[g->rank[0]] + first;
}

static void edges_of_members(struct check *check, struct lanes *lanes, int r, int32_t i) {
    const struct group *g = group_of(check, r, &check->p->rank[r].ins[i]);
    for (int m = 0; m < g->n; m++)
        edges_of(check, lanes, g->rank[m], check->reductions[g - check->p->group][m][check->mate[r][i]]);
}

/* An instruction starts after its lane's previous one and its waits; if it meets other ranks, after those of its
 * partners too. */
static struct lanes lane_graph(struct check *check) {
    int W = check->p->workers;
    struct lanes lanes = {.base = NEW(int32_t, W + 1), .before = NEW(int32_t *, W)};
    for (int r = 0; r < W; r++) {
        const struct rank *k = &check->p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        memset(last, -1, sizeof *last * (size_t)k->nlanes);
        lanes.base[r + 1] = lanes.base[r] + k->nins;
        lanes.before[r] = NEW(int32_t, k->nins);
        for (int32_t i = 0; i < k->nins; i++) {
            lanes.before[r][i] = last[k->ins[i].lane];
            last[k->ins[i].lane] = i;
        }
    }
    lanes.at = NEW(int32_t, 2 * (int64_t)lanes.base[W] + 1);
    for (int r = 0; r < W; r++)
        for (int32_t i = 0; i < check->p->rank[r].nins; i++) {
            const struct instr *x = &check->p->rank[r].ins[i];
            edges_of(check, &lanes, r, i);
            if (is_group(x->op))
                edge(&lanes, meeting_of(check, &lanes, r, i));
            else if (is_message(x->op))
                edges_of(check, &lanes, x->peer, check->mate[r][i]);
            lanes.at[lanes.base[r] + i + 1] = (int32_t)lanes.n;
        }
    for (int r = 0; r < W; r++)
        for (int32_t i = 0; i < check->p->rank[r].nins; i++) {
            if (is_group(check->p->rank[r].ins[i].op) &&
                meeting_of(check, &lanes, r, i) == lanes.base[W] + lanes.base[r] + i)
                edges_of_members(check, &lanes, r, i);
            lanes.at[lanes.base[W] + lanes.base[r] + i + 1] = (int32_t)lanes.n;
        }
    return lanes;
}

static bool acyclic(const struct lanes *lanes, int n) {
    int32_t *left = NEW(int32_t, n), *from_at = NEW(int32_t, n + 2), *from = NEW(int32_t, lanes->n + 1);
    int32_t *queue = NEW(int32_t, n);
    for (size_t e = 0; e < lanes->n; e++)
        from_at[lanes->to[e] + 2]++;
    for (int v = 0; v < n; v++)
        from_at[v + 2] += from_at[v + 1];
    for (int v = 0; v < n; v++)
        for (int32_t e = lanes->at[v]; e < lanes->at[v + 1]; e++)
            from[from_at[lanes->to[e] + 1]++] = v;
    int head = 0, tail = 0;
    for (int v = 0; v < n; v++)
        if (!(left[v] = lanes->at[v + 1] - lanes->at[v]))
            queue[tail++] = v;
    while (head < tail) {
        int v = queue[head++];
        for (int32_t e = from_at[v]; e < from_at[v + 1]; e++)
            if (--left[from[e]] == 0)
                queue[tail++] = from[e];
    }
    return tail == n;
}

static bool lanes_finish(struct check *check) {
    struct lanes lanes = lane_graph(check);
    int W = check->p->workers, n = 2 * lanes.base[W], len;
    if (acyclic(&lanes, n))
        return true;
    int32_t *cycle = shortest_cycle(n, lanes.at, lanes.to, &len);
    check->failed = CLAIM_LANES;
    put(&check->why, "deadlock of lanes:");
    for (int c = 0; c < len && c < 12; c++) {
        int r = 0;
        if (cycle[c] >= lanes.base[W])
            continue; /* a reduction: its members are printed instead */
        while (cycle[c] >= lanes.base[r + 1])
            r++;
        put(&check->why, "\n  ");
        put_place(check, r, cycle[c] - lanes.base[r]);
        put(&check->why, " cannot start before the next ends");
    }
    return false;
}

/* Every unfinished rank waits for another: prints the shortest cycle of these waits. */
static bool refute_deadlock(struct check *check) {
    int W = check->p->workers, len;
    int32_t *at = NEW(int32_t, W + 1), *to = NEW(int32_t, W + 1);
    for (int r = 0, n = 0; r < W; at[++r] = n)
        if (check->at[r] < check->p->rank[r].nins)
            to[n++] = waits_for(check, r);
    int32_t *cycle = shortest_cycle(W, at, to, &len);
    check->failed = CLAIM_SERIAL;
    put(&check->why, "deadlock when every send waits for its receive:");
    for (int c = 0; c < len; c++) {
        put(&check->why, "\n  ");
        put_place(check, cycle[c], check->at[cycle[c]]);
        put(&check->why, " waits for rank %d", cycle[(c + 1) % len]);
    }
    struct lanes l = lane_graph(check);
    bool lanes = acyclic(&l, 2 * l.base[W]);
    put(&check->why, lanes ? "\nlanes alone would not hang" : "\nlanes hang as well");
    check->holds = lanes ? CLAIM_LANES : 0;
    return false;
}

/* ---- all of it ---- */

static bool prove(struct check *check) {
    if (!pair_messages(check) || !pair_reductions(check))
        return false;
    bool follow = check->claims & (CLAIM_JOBS | CLAIM_GRADIENTS | CLAIM_MEMORY);
    struct scratch values = scratch_begin();
    if ((follow && !values_begin(check)))
        return false;
    /* If the walk completes, the lanes complete too: every order they keep, the walk kept. */
    if (check->claims & CLAIM_SERIAL || follow) {
        if (!walk(check)) {
            if (check->failed != CLAIM_SERIAL || check->claims & CLAIM_SERIAL)
                return false;
            check->failed = 0;
            check->why.n = 0;
        } else if (follow && !values_end(check))
            return false;
        else {
            check->holds = CLAIM_SERIAL | CLAIM_LANES | (follow ? CLAIM_JOBS | CLAIM_GRADIENTS | CLAIM_MEMORY : 0);
            check->values = NULL;
            scratch_end(values);
        }
    } else if (check->claims & CLAIM_LANES && !lanes_finish(check))
        return false;
    return !(check->claims & CLAIM_RACES) || races(check);
}

struct refutation *verify(const struct spec *sp, const struct graph *graph, const struct program *p, int claims) {
    struct check check = {.sp = sp, .g = graph, .p = p, .claims = claims};
    struct scratch all = scratch_begin();
    check.at = NEW(int32_t, p->workers);
    check.mate = NEW(int32_t *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        check.mate[r] = NEW(int32_t, p->rank[r].nins);
        memset(check.mate[r], -1, sizeof **check.mate * (size_t)p->rank[r].nins);
    }
    if (prove(&check)) {
        scratch_end(all);
        return NULL;
    }
    struct refutation *no = NEW(struct refutation, 1);
    *no = (struct refutation){check.failed, check.holds, check.why.s};
    return no;
}
