/* Events and their order, by a plain transitive closure over starts and ends. */
#include "judge.h"
#include "symbols.h"
#include <string.h>

const char *told(const struct order *z, int number, const char *fmt, ...) {
    char what[512];
    struct text t = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    put(&t, "rank %d, ", z->rank[number]);
    put_label(&t, NULL, instr_of(z, number));
    put(&t, ": %s", what);
    return t.s;
}

struct order order_of(const struct program *p) {
    struct order z = {.p = p, .base = NEW(int32_t, p->workers + 1)};
    for (int r = 0; r < p->workers; r++)
        z.base[r + 1] = z.base[r] + p->rank[r].nins;
    z.n = z.base[p->workers];
    z.rank = NEW(int32_t, z.n);
    z.meets = NEW(int32_t, z.n);
    z.event = NEW(int32_t, 2 * z.n);
    for (int r = 0; r < p->workers; r++)
        for (int i = z.base[r]; i < z.base[r + 1]; i++) {
            z.rank[i] = r;
            z.meets[i] = i;
        }
    return z;
}

/* ---- matching ---- */

static bool sends(int op) { return op_cost[op] == COST_LINK && op_lane[op] == LANE_SEND; }
static bool receives(int op) { return op_cost[op] == COST_LINK && op_lane[op] == LANE_RECV; }

/* Returns whether the data of `from` reach `to`, so that `to` cannot end before `from` has started. */
static bool reaches(const struct order *z, int from, int to) {
    int op = instr_of(z, from)->op;
    if (is_collective(op))
        return gives_to(instr_of(z, from), z->rank[from], z->rank[to]);
    return sends(op) && receives(instr_of(z, to)->op);
}

static bool is_member(const struct group *g, int r) {
    for (int i = 0; i < g->n; i++)
        if (g->rank[i] == r)
            return true;
    return false;
}

static const char *check_shape(const struct order *z, int number) {
    int r = z->rank[number];
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = instr_of(z, number);
    const struct lane *l = &k->lane[x->lane];
    bool message = sends(x->op) || receives(x->op);
    if (!lane_takes(l->kind, x->op))
        return told(z, number, "on a lane that does not take it");
    if (message && (x->peer < 0 || x->peer >= z->p->workers || x->peer == r))
        return told(z, number, "there is no such peer");
    if (message && l->kind != LANE_ALL && l->peer != x->peer)
        return told(z, number, "on the lane of another peer");
    if (is_collective(x->op) && !is_member(&z->p->group[l->group], r))
        return told(z, number, "its rank is not in the group");
    for (int a = 0; a < x->narg; a++) {
        struct arg o = operand(k, x, a);
        int role = o.role;
        if (k->buf[o.buf].bytes % pieces_of(&o))
            return told(z, number, "has a piece that is not a whole number of bytes");
        bool repeats = x->op <= OP_W && (role == ROLE_x || role == ROLE_dy || role == ROLE_t || role == ROLE_kv ||
                                         (role == ROLE_dw && (x->op == OP_B || x->op == OP_W)));
        if (o.last && !k->buf[o.buf].bytes && is_gradient(k->buf[o.buf].kind) && (x->op <= OP_W || x->inst >= 0))
            return told(z, number, "counts in pieces what has no bytes");
        if (!op_access(x->op, role) || (operand_of(k, x, role) != a && !repeats))
            return told(z, number, "takes no operand %s, or one", role_name[role]);
    }
    return NULL;
}

/* Returns the next instruction of rank r after number `at` that sends to (receives from) that peer, or -1. */
static int next_message(const struct order *z, int r, bool send, int peer, int at) {
    for (int i = at < 0 ? z->base[r] : at + 1; i < z->base[r + 1]; i++)
        if ((send ? sends(instr_of(z, i)->op) : receives(instr_of(z, i)->op)) && instr_of(z, i)->peer == peer)
            return i;
    return -1;
}

/* Returns whether another lane of the rank carries the same messages. */
static bool has_twin(const struct rank *k, int lane) {
    const struct lane *a = &k->lane[lane];
    for (const struct lane *b = k->lane; b < k->lane + k->nlanes; b++) {
        bool apart = (a->kind == LANE_SEND && b->kind == LANE_RECV) || (a->kind == LANE_RECV && b->kind == LANE_SEND);
        bool alone =
            a->kind == LANE_OFFLOAD || a->kind == LANE_RELOAD || b->kind == LANE_OFFLOAD || b->kind == LANE_RELOAD;
        bool group = alone || a->group >= 0 || b->group >= 0 || !a->kind || !b->kind;
        if (a != b && (group ? a->kind == b->kind && a->group == b->group
                             : !apart && (a->peer == b->peer || a->kind == LANE_ALL || b->kind == LANE_ALL)))
            return true;
    }
    return false;
}

const char *check_form(const struct order *z) {
    const char *why = NULL;
    for (int i = 0; i < z->n && !why; i++)
        why = check_shape(z, i);
    for (int r = 0; r < z->p->workers && !why; r++)
        for (int l = 0; l < z->p->rank[r].nlanes && !why; l++)
            why = has_twin(&z->p->rank[r], l) ? format("rank %d has two lanes for the same messages", r) : NULL;
    for (int g = 0; g < z->p->ngroups && !why; g++)
        why = z->p->group[g].n < 2 ? "a group of one" : NULL;
    return why;
}

static int64_t bytes_carried(const struct order *z, int number) {
    const struct rank *k = &z->p->rank[z->rank[number]];
    return arg_bytes(k, &k->arg[instr_of(z, number)->arg]);
}

/* Matches the k-th SEND of an edge with the k-th RECV; each end has one lane, or k would be undefined. */
static const char *match_edge(struct order *z, int from, int to) {
    int s = -1, v = -1;
    for (;;) {
        s = next_message(z, from, true, to, s);
        v = next_message(z, to, false, from, v);
        if (s < 0 && v < 0)
            return NULL;
        if (s < 0 || v < 0)
            return told(z, s < 0 ? v : s, "meets nobody");
        if (bytes_carried(z, s) != bytes_carried(z, v))
            return told(z, s, "its two ends have different bytes");
        z->meets[s] = v;
        z->meets[v] = s;
    }
}

/* Returns the next collective of rank r on a lane of that group and kind. */
static int next_collective(const struct order *z, int r, int group, int kind, int at) {
    for (int i = at < 0 ? z->base[r] : at + 1; i < z->base[r + 1]; i++) {
        const struct lane *l = &z->p->rank[r].lane[instr_of(z, i)->lane];
        if (is_collective(instr_of(z, i)->op) && l->group == group && l->kind == kind)
            return i;
    }
    return -1;
}

static const char *match_group(struct order *z, int group, int kind) {
    const struct group *g = &z->p->group[group];
    int32_t *at = NEW(int32_t, g->n);
    memset(at, -1, sizeof *at * (size_t)g->n);
    for (;;) {
        int here = 0, one = -1;
        for (int m = 0; m < g->n; m++)
            if ((at[m] = next_collective(z, g->rank[m], group, kind, at[m])) >= 0) {
                one = at[m];
                here++;
            }
        if (here < g->n)
            return here ? told(z, one, "meets too few") : NULL;
        for (int m = 0; m < g->n; m++) {
            int other = at[(m + 1) % g->n];
            const struct instr *x = instr_of(z, at[m]), *y = instr_of(z, other);
            if (x->op != y->op || x->peer != y->peer || bytes_carried(z, at[m]) != bytes_carried(z, other))
                return told(z, at[m], "meets another collective, or other bytes");
            const char *why = collective_error(&z->p->rank[g->rank[m]], x, g->rank[m], m, g->n);
            if (why)
                return told(z, at[m], "%s", why);
            z->meets[at[m]] = other;
        }
    }
}

const char *match(struct order *z) {
    const char *why = NULL;
    for (int i = 0; i < z->n && !why; i++)
        if (is_message(instr_of(z, i)->op) &&
            (instr_of(z, i)->narg < 1 || (instr_of(z, i)->narg > 1 && !is_collective(instr_of(z, i)->op))))
            why = told(z, i, "carries nothing");
    for (int a = 0; a < z->p->workers; a++)
        for (int b = 0; b < z->p->workers && !why; b++)
            why = a == b ? NULL : match_edge(z, a, b);
    for (int kind = LANE_GATHER; kind <= LANE_TEAM; kind++)
        for (int g = 0; g < z->p->ngroups && !why; g++)
            why = match_group(z, g, kind);
    return why;
}

/* ---- playing ---- */

enum state { TO_COME, RUNNING, ENDED };

static bool may_start(const struct order *z, const uint8_t *state, int number, bool serially) {
    const struct rank *k = &z->p->rank[z->rank[number]];
    const struct instr *x = instr_of(z, number);
    int base = z->base[z->rank[number]];
    for (int i = base; i < number; i++)
        if (state[i] != ENDED && (serially || instr_of(z, i)->lane == x->lane))
            return false;
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        if (state[base + k->wait[w]] != ENDED)
            return false;
    return true;
}

/* Returns whether it may end: a SEND waits for its RECV, a member of a collective for all, even if no data reach it. */
static bool may_end(const struct order *z, const uint8_t *state, int number) {
    int op = instr_of(z, number)->op;
    for (int i = z->meets[number]; i != number; i = z->meets[i])
        if (state[i] == TO_COME && (reaches(z, i, number) || sends(op) || is_collective(op)))
            return false;
    return true;
}

const char *play(struct order *z, bool serially) {
    uint8_t *state = NEW(uint8_t, z->n);
    int32_t *first = NEW(int32_t, z->p->workers); /* per rank: the first instruction that has not ended */
    memcpy(first, z->base, sizeof *first * (size_t)z->p->workers);
    z->nevents = 0;
    for (int before = -1; before != z->nevents;) {
        before = z->nevents;
        for (int r = 0; r < z->p->workers; r++) {
            for (int i = first[r]; i < z->base[r + 1]; i++) {
                if (state[i] == TO_COME && may_start(z, state, i, serially)) {
                    state[i] = RUNNING;
                    z->event[z->nevents++] = start_of(i);
                }
                if (state[i] == RUNNING && may_end(z, state, i)) {
                    state[i] = ENDED;
                    z->event[z->nevents++] = end_of(i);
                }
                if (serially && state[i] != ENDED)
                    break;
            }
            while (first[r] < z->base[r + 1] && state[first[r]] == ENDED)
                first[r]++;
        }
    }
    for (int i = 0; i < z->n; i++)
        if (state[i] != ENDED)
            return told(z, i, serially ? "deadlock, one by one" : "deadlock of lanes");
    return NULL;
}

/* ---- precedence ---- */

static void add_before(struct order *z, int event, int earlier) {
    uint64_t *to = z->before + (size_t)event * (size_t)z->words;
    const uint64_t *from = z->before + (size_t)earlier * (size_t)z->words;
    for (int w = 0; w < z->words; w++)
        to[w] |= from[w];
    to[earlier / 64] |= (uint64_t)1 << (earlier % 64);
}

/* Closes the order. Play order agrees with it, so an event's predecessors are complete when it is reached. */
void close_order(struct order *z) {
    int32_t *last = NEW(int32_t, z->n),
            *lane = NEW(int32_t, UINT16_MAX + 1); /* last: the previous one in the lane, or -1 */
    for (int r = 0; r < z->p->workers; r++) {
        memset(lane, -1, sizeof *lane * (size_t)z->p->rank[r].nlanes);
        for (int i = z->base[r]; i < z->base[r + 1]; i++) {
            last[i] = lane[instr_of(z, i)->lane];
            lane[instr_of(z, i)->lane] = i;
        }
    }
    z->words = (2 * z->n + 63) / 64;
    z->before = NEW(uint64_t, 2 * z->n * z->words);
    for (int e = 0; e < z->nevents; e++) {
        int event = z->event[e], i = event / 2, r = z->rank[i];
        const struct instr *x = instr_of(z, i);
        if (event == end_of(i)) {
            add_before(z, event, start_of(i));
            for (int m = z->meets[i]; m != i; m = z->meets[m])
                if (reaches(z, m, i))
                    add_before(z, event, start_of(m));
            continue;
        }
        if (last[i] >= 0)
            add_before(z, event, end_of(last[i]));
        for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
            add_before(z, event, end_of(z->base[r] + z->p->rank[r].wait[w]));
    }
}

struct use {
    int number;
    bool writes;
    struct span at;
};

static int accesses_of(const struct order *z, int r, struct use *out) {
    const struct rank *k = &z->p->rank[r];
    int n = 0;
    for (int i = z->base[r]; i < z->base[r + 1]; i++) {
        const struct instr *x = instr_of(z, i);
        int32_t work = workspace_of(k, x);
        for (int a = 0; a < x->narg; a++)
            out[n++] = (struct use){i, access_of(k, x, a) & ACC_WRITE || spoils(k, x, a), span_at(k, x, a)};
        if (work >= 0)
            out[n++] = (struct use){i, true, span_of(k, work)};
    }
    return n;
}

const char *find_race(const struct order *z) {
    for (int r = 0; r < z->p->workers; r++) {
        struct use *a = NEW(struct use, z->p->rank[r].nargs + (size_t)z->p->rank[r].nins);
        int n = accesses_of(z, r, a);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++) {
                if (!(a[i].writes | a[j].writes) || a[i].at.at >= a[j].at.at + a[j].at.n ||
                    a[j].at.at >= a[i].at.at + a[i].at.n || a[i].number == a[j].number)
                    continue;
                if (!comes_before(z, end_of(a[j].number), start_of(a[i].number)) &&
                    !comes_before(z, end_of(a[i].number), start_of(a[j].number)))
                    return told(z, a[i].number, "races with %s",
                                told(z, a[j].number, "byte %lld",
                                     (long long)(a[i].at.at > a[j].at.at ? a[i].at.at : a[j].at.at)));
            }
    }
    return NULL;
}
