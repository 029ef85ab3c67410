/* The proof that a program does what its job graph says, on every machine that keeps the orders of the model
 * "start-end", which verify_orders.c describes.
 *
 * 1. Messages pair by the order of their edge, as NCCL pairs them, and agree in name and bytes.
 * 2. All ranks are walked together, each one instruction at a time in its issue order, every send blocking until its
 *    receive. If the walk comes to its end, that is a total order in which everything happens one after the other; on
 *    the way, values are followed symbolically (verify_values.c, verify_sums.c, verify_memory.c).
 * 3. Lanes, and sends that do not block, only take orders away. Those that remain all agree with the walk's order, so
 *    nothing can deadlock where the walk does not; and accesses that conflict are still ordered (verify_races.c), so
 *    every buffer holds what it held in the walk, however the lanes run. */
#include "base/cycle.h"
#include "check.h"
#include <assert.h>
#include <string.h>

void put_place(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    if (i >= k->nins) {
        put(&z->why, "rank %d", r);
        return;
    }
    put(&z->why, "rank %d lane ", r);
    put_lane(&z->why, z->p, &k->lane[k->ins[i].lane]);
    if (k->line)
        put(&z->why, ", line %d: ", k->line[i]);
    else
        put(&z->why, ", instruction %d: ", i);
    put_label(&z->why, &k->ins[i]);
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

bool refute_all(struct check *z, int claim, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    z->failed = claim;
    put(&z->why, "%s", text);
    return false;
}

bool refute(struct check *z, int claim, int r, int32_t i, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    z->failed = claim;
    put_place(z, r, i);
    put(&z->why, ": %s", text);
    return false;
}

/* ---- messages: the k-th SEND along an edge meets the k-th RECV ---- */

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

static bool pair(struct check *z, int src, int32_t i, int dst, int32_t j) {
    const struct rank *ks = &z->p->rank[src], *kd = &z->p->rank[dst];
    const struct instr *s = &ks->ins[i], *d = &kd->ins[j];
    z->mate[src][i] = j;
    z->mate[dst][j] = i;
    if (!same_name(s, d))
        return refute(z, CLAIM_SERIAL, src, i, "its place in the order of the edge meets %s on rank %d", label_of(d),
                      dst);
    if (s->narg != 1 || d->narg != 1)
        return refute(z, CLAIM_JOBS, src, i, "a message carries one tensor");
    if (tensor_bytes(ks, s) != tensor_bytes(kd, d))
        return refute(z, CLAIM_SERIAL, src, i, "sends %lld bytes, but %s on rank %d takes %lld",
                      (long long)tensor_bytes(ks, s), label_of(d), dst, (long long)tensor_bytes(kd, d));
    return true;
}

struct end {
    int32_t r, i;
};

/* All SENDs, by destination in compressed rows: of a row, by rank and in issue order. */
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

static bool pair_messages(struct check *z) {
    const struct program *p = z->p;
    int W = p->workers;
    int32_t *at = NEW(int32_t, W + 2), *first = NEW(int32_t, W), *last = NEW(int32_t, W); /* RECVs, by source */
    const struct end *send = sends_by_destination(p, at);
    memset(first, -1, sizeof *first * (size_t)W);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &p->rank[r];
        int32_t *next = z->mate[r]; /* of the same source, until it has its SEND */
        for (int32_t i = 0; i < k->nins; i++)
            if (is_recv(k->ins[i].op)) {
                int from = k->ins[i].peer;
                *(first[from] < 0 ? &first[from] : &next[last[from]]) = i;
                last[from] = i;
            }
        for (int32_t n = at[r]; n < at[r + 1]; n++) {
            int32_t j = first[send[n].r];
            if (j < 0)
                return refute(z, CLAIM_SERIAL, send[n].r, send[n].i, "rank %d has no receive for it", r);
            first[send[n].r] = next[j];
            if (!pair(z, send[n].r, send[n].i, r, j))
                return false;
        }
        for (int32_t i = 0; i < k->nins; i++)
            if (is_recv(k->ins[i].op) && first[k->ins[i].peer] >= 0)
                return refute(z, CLAIM_SERIAL, r, first[k->ins[i].peer], "rank %d has no send for it", k->ins[i].peer);
    }
    return true;
}

/* The k-th REDUCE of a group on one member meets the k-th on every other. */
static bool pair_reductions(struct check *z) {
    const struct program *p = z->p;
    z->reductions = NEW(int32_t **, p->ngroups + 1);
    int32_t **n = NEW(int32_t *, p->ngroups + 1);
    for (int g = 0; g < p->ngroups; g++) {
        z->reductions[g] = NEW(int32_t *, p->group[g].n);
        n[g] = NEW(int32_t, p->group[g].n);
        for (int m = 0; m < p->group[g].n; m++) {
            int r = p->group[g].rank[m];
            const struct rank *k = &p->rank[r];
            size_t cap = 0;
            for (int32_t i = 0; i < k->nins; i++) {
                if (!is_group(k->ins[i].op) || k->lane[k->ins[i].lane].group != g)
                    continue;
                z->mate[r][i] = n[g][m];
                GROW(z->reductions[g][m], cap, (size_t)n[g][m] + 1);
                z->reductions[g][m][n[g][m]++] = i;
            }
        }
        for (int m = 1; m < p->group[g].n; m++)
            for (int32_t j = 0; j < n[g][0] || j < n[g][m]; j++) {
                int a = p->group[g].rank[0], b = p->group[g].rank[m];
                if (j >= n[g][m])
                    return refute(z, CLAIM_SERIAL, a, z->reductions[g][0][j], "rank %d never comes to it", b);
                int32_t i = z->reductions[g][m][j];
                if (j >= n[g][0])
                    return refute(z, CLAIM_SERIAL, b, i, "rank %d never comes to it", a);
                const struct instr *x = &p->rank[a].ins[z->reductions[g][0][j]], *y = &p->rank[b].ins[i];
                if (y->op != op_row(x->op)->partner || x->stage != y->stage ||
                    tensor_bytes(&p->rank[a], x) != tensor_bytes(&p->rank[b], y))
                    return refute(z, CLAIM_SERIAL, b, i, "on rank %d this place in the group's order is stage %d's", a,
                                  x->stage);
            }
    }
    return true;
}

/* ---- the serial walk ---- */

static bool refute_deadlock(struct check *z); /* below, where lanes are known */

struct walk {
    int32_t *todo; /* ranks that may go on, each at most once */
    bool *queued;
    int n;
    int32_t *came; /* per group: members that have come to its next reduction */
    bool *stands;  /* per rank: it is one of them */
};

static void queue(struct walk *w, int r) {
    if (!w->queued[r])
        w->todo[w->n++] = r;
    w->queued[r] = true;
}

/* The member of a reduction that has not come to it, or -1. */
static int absent(const struct check *z, int r, int32_t i) {
    const struct group *g = group_of(z, r, &z->p->rank[r].ins[i]);
    for (int m = 0; m < g->n; m++)
        if (z->at[g->rank[m]] != z->reductions[g - z->p->group][m][z->mate[r][i]])
            return g->rank[m];
    return -1;
}

/* The rank that r waits for at its next instruction, or -1 when it can go on. */
static int waits_for(const struct check *z, int r) {
    int32_t i = z->at[r];
    const struct instr *x = &z->p->rank[r].ins[i];
    if (is_group(x->op))
        return absent(z, r, i);
    if (is_message(x->op))
        return z->at[x->peer] == z->mate[r][i] ? -1 : x->peer;
    return -1;
}

/* A member comes to a reduction; the last of them runs it for all. */
static bool run_reduction(struct check *z, struct walk *w, int r) {
    const struct group *g = group_of(z, r, &z->p->rank[r].ins[z->at[r]]);
    int32_t *came = &w->came[g - z->p->group];
    *came += !w->stands[r];
    w->stands[r] = true;
    if (*came < g->n)
        return true;
    *came = 0;
    int32_t *i = NEW(int32_t, g->n);
    for (int m = 0; m < g->n; m++)
        i[m] = z->at[g->rank[m]];
    if (z->values && !values_reduce(z, g, i))
        return false;
    for (int m = 0; m < g->n; m++) {
        z->at[g->rank[m]]++;
        w->stands[g->rank[m]] = false;
        queue(w, g->rank[m]);
    }
    return true;
}

static bool go_on(struct check *z, struct walk *w, int r) {
    const struct rank *k = &z->p->rank[r];
    w->queued[r] = false;
    while (z->at[r] < k->nins) {
        int32_t i = z->at[r];
        const struct instr *x = &k->ins[i];
        if (is_group(x->op)) {
            if (!run_reduction(z, w, r))
                return false;
            if (w->stands[r])
                return true;
            continue;
        }
        if (waits_for(z, r) >= 0)
            return true;
        bool link = is_message(x->op), sends = is_send(x->op);
        if (z->values) {
            bool ok = !link   ? values_run(z, r, i)
                      : sends ? values_message(z, r, i, x->peer, z->mate[r][i])
                              : values_message(z, x->peer, z->mate[r][i], r, i);
            if (!ok)
                return false;
        }
        z->at[r]++;
        if (link) {
            z->at[x->peer]++;
            queue(w, x->peer);
        }
    }
    return true;
}

/* In issue order, whoever waits for a later instruction of its own rank waits for ever. */
static bool waits_point_back(struct check *z) {
    for (int r = 0; r < z->p->workers; r++) {
        const struct rank *k = &z->p->rank[r];
        for (int32_t i = 0; i < k->nins; i++)
            for (uint32_t a = k->ins[i].wait; a < k->ins[i].wait + k->ins[i].nwait; a++)
                if (k->wait[a] >= i)
                    return refute(z, CLAIM_SERIAL, r, i, "waits for an instruction that is issued after it");
    }
    return true;
}

static bool walk(struct check *z) {
    int W = z->p->workers;
    if (!waits_point_back(z))
        return false;
    struct walk w = {NEW(int32_t, W), NEW(bool, W), 0, NEW(int32_t, z->p->ngroups + 1), NEW(bool, W)};
    memset(z->at, 0, sizeof *z->at * (size_t)W);
    for (int r = 0; r < W; r++) {
        queue(&w, r);
        while (w.n > 0)
            if (!go_on(z, &w, w.todo[--w.n]))
                return false;
    }
    for (int r = 0; r < W; r++)
        if (z->at[r] < z->p->rank[r].nins)
            return refute_deadlock(z);
    return true;
}

/* ---- lanes: what each instruction must come after, as a graph over all instructions; it must have no cycle ---- */

struct lanes {
    int32_t *base; /* per rank: its first node */
    int32_t *at, *to;
    size_t n, cap;
    int32_t **before; /* per rank and instruction: the one before it in its lane, or -1 */
};

static void edge(struct lanes *l, int32_t to) {
    GROW(l->to, l->cap, l->n + 1);
    l->to[l->n++] = to;
}

static void edges_of(struct check *z, struct lanes *l, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    if (l->before[r][i] >= 0)
        edge(l, l->base[r] + l->before[r][i]);
    for (uint32_t a = x->wait; a < x->wait + x->nwait; a++)
        edge(l, l->base[r] + k->wait[a]);
}

/* A reduction is a node of its own, behind all instructions: that of its first member, once more. */
static int32_t meeting_of(const struct check *z, const struct lanes *l, int r, int32_t i) {
    const struct group *g = group_of(z, r, &z->p->rank[r].ins[i]);
    int32_t first = z->reductions[g - z->p->group][0][z->mate[r][i]];
    return l->base[z->p->workers] + l->base[g->rank[0]] + first;
}

static void edges_of_members(struct check *z, struct lanes *l, int r, int32_t i) {
    const struct group *g = group_of(z, r, &z->p->rank[r].ins[i]);
    for (int m = 0; m < g->n; m++)
        edges_of(z, l, g->rank[m], z->reductions[g - z->p->group][m][z->mate[r][i]]);
}

/* An instruction starts after its lane's last and its waits; one that meets others, after theirs too. */
static struct lanes lane_graph(struct check *z) {
    int W = z->p->workers;
    struct lanes l = {.base = NEW(int32_t, W + 1), .before = NEW(int32_t *, W)};
    for (int r = 0; r < W; r++) {
        const struct rank *k = &z->p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        memset(last, -1, sizeof *last * (size_t)k->nlanes);
        l.base[r + 1] = l.base[r] + k->nins;
        l.before[r] = NEW(int32_t, k->nins);
        for (int32_t i = 0; i < k->nins; i++) {
            l.before[r][i] = last[k->ins[i].lane];
            last[k->ins[i].lane] = i;
        }
    }
    l.at = NEW(int32_t, 2 * (int64_t)l.base[W] + 1);
    for (int r = 0; r < W; r++)
        for (int32_t i = 0; i < z->p->rank[r].nins; i++) {
            const struct instr *x = &z->p->rank[r].ins[i];
            edges_of(z, &l, r, i);
            if (is_group(x->op))
                edge(&l, meeting_of(z, &l, r, i));
            else if (is_message(x->op))
                edges_of(z, &l, x->peer, z->mate[r][i]);
            l.at[l.base[r] + i + 1] = (int32_t)l.n;
        }
    for (int r = 0; r < W; r++)
        for (int32_t i = 0; i < z->p->rank[r].nins; i++) {
            if (is_group(z->p->rank[r].ins[i].op) && meeting_of(z, &l, r, i) == l.base[W] + l.base[r] + i)
                edges_of_members(z, &l, r, i);
            l.at[l.base[W] + l.base[r] + i + 1] = (int32_t)l.n;
        }
    return l;
}

static bool acyclic(const struct lanes *l, int n) {
    int32_t *left = NEW(int32_t, n), *from_at = NEW(int32_t, n + 2), *from = NEW(int32_t, l->n + 1);
    int32_t *queue = NEW(int32_t, n);
    for (size_t e = 0; e < l->n; e++)
        from_at[l->to[e] + 2]++;
    for (int v = 0; v < n; v++)
        from_at[v + 2] += from_at[v + 1];
    for (int v = 0; v < n; v++)
        for (int32_t e = l->at[v]; e < l->at[v + 1]; e++)
            from[from_at[l->to[e] + 1]++] = v;
    int head = 0, tail = 0;
    for (int v = 0; v < n; v++)
        if (!(left[v] = l->at[v + 1] - l->at[v]))
            queue[tail++] = v;
    while (head < tail) {
        int v = queue[head++];
        for (int32_t e = from_at[v]; e < from_at[v + 1]; e++)
            if (--left[from[e]] == 0)
                queue[tail++] = from[e];
    }
    return tail == n;
}

static bool lanes_finish(struct check *z) {
    struct lanes l = lane_graph(z);
    int W = z->p->workers, n = 2 * l.base[W], len;
    if (acyclic(&l, n))
        return true;
    int32_t *cycle = shortest_cycle(n, l.at, l.to, &len);
    z->failed = CLAIM_LANES;
    put(&z->why, "deadlock of lanes:");
    for (int c = 0; c < len && c < 12; c++) {
        int r = 0;
        if (cycle[c] >= l.base[W])
            continue; /* a reduction: its members say it */
        while (cycle[c] >= l.base[r + 1])
            r++;
        put(&z->why, "\n  ");
        put_place(z, r, cycle[c] - l.base[r]);
        put(&z->why, " cannot start before the next ends");
    }
    return false;
}

/* Every rank that is not at its end waits for another: the shortest cycle of these. */
static bool refute_deadlock(struct check *z) {
    int W = z->p->workers, len;
    int32_t *at = NEW(int32_t, W + 1), *to = NEW(int32_t, W + 1);
    for (int r = 0, n = 0; r < W; at[++r] = n)
        if (z->at[r] < z->p->rank[r].nins)
            to[n++] = waits_for(z, r);
    int32_t *cycle = shortest_cycle(W, at, to, &len);
    z->failed = CLAIM_SERIAL;
    put(&z->why, "deadlock when every send waits for its receive:");
    for (int c = 0; c < len; c++) {
        put(&z->why, "\n  ");
        put_place(z, cycle[c], z->at[cycle[c]]);
        put(&z->why, " waits for rank %d", cycle[(c + 1) % len]);
    }
    struct lanes l = lane_graph(z);
    bool lanes = acyclic(&l, 2 * l.base[W]);
    put(&z->why, lanes ? "\nlanes alone would not hang" : "\nlanes hang as well");
    z->holds = lanes ? CLAIM_LANES : 0;
    return false;
}

/* ---- all of it ---- */

static bool prove(struct check *z) {
    if (!pair_messages(z) || !pair_reductions(z))
        return false;
    bool follow = z->claims & (CLAIM_JOBS | CLAIM_GRADIENTS | CLAIM_MEMORY);
    struct scratch values = scratch_begin();
    if ((follow && !values_begin(z)))
        return false;
    /* Where the walk ends, lanes do too: every order they keep is one that the walk has kept. */
    if (z->claims & CLAIM_SERIAL || follow) {
        if (!walk(z)) {
            if (z->failed != CLAIM_SERIAL || z->claims & CLAIM_SERIAL)
                return false;
            z->failed = 0;
            z->why.n = 0;
        } else if (follow && !values_end(z))
            return false;
        else {
            z->holds = CLAIM_SERIAL | CLAIM_LANES | (follow ? CLAIM_JOBS | CLAIM_GRADIENTS | CLAIM_MEMORY : 0);
            z->values = NULL;
            scratch_end(values);
        }
    } else if (z->claims & CLAIM_LANES && !lanes_finish(z))
        return false;
    return !(z->claims & CLAIM_RACES) || races(z);
}

struct refutation *verify(const struct spec *sp, const struct graph *g, const struct program *p, int claims) {
    struct check z = {.sp = sp, .g = g, .p = p, .claims = claims};
    struct scratch all = scratch_begin();
    z.at = NEW(int32_t, p->workers);
    z.mate = NEW(int32_t *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        z.mate[r] = NEW(int32_t, p->rank[r].nins);
        memset(z.mate[r], -1, sizeof **z.mate * (size_t)p->rank[r].nins);
    }
    if (prove(&z)) {
        scratch_end(all);
        return NULL;
    }
    struct refutation *x = NEW(struct refutation, 1);
    *x = (struct refutation){z.failed, z.holds, z.why.s};
    return x;
}
