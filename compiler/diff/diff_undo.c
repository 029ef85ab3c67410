/* Finds the effect of each change: how long both sides would take if it were undone.
 *
 * Both sides are simulated as they ran: every operation keeps its duration, and its delay after the last operation that
 * it waits for. Undoing a change removes the operation from a side: it takes no time, its lane continues without it,
 * and whatever needs its result waits for what it needed. An operation that only takes longer takes as long as in A
 * instead. The effect of a change is the time saved by removing it from B, minus the time saved by removing it from A.
 * So the effects of single changes need not add up to the difference of the makespans.
 *
 * A simulation is linear. Equal changes are undone together, and each root alone. If there are many roots, only the
 * longest operations are undone, so that all simulations together visit at most MOST_VISITS operations. */
#include "diff.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_UNDONE = 256, MOST_VISITS = 40000000 };

struct edge {
    int32_t from, to;
};
struct edges {
    struct edge *a;
    size_t n, cap;
};
/* Edges grouped by their first end: i's are to[at[i] .. at[i + 1]). */
struct lists {
    int32_t *at, *to;
};

/* A side as a graph. */
struct replayed {
    const struct side *side;
    struct lists waits; /* what each operation waits for; ~op: the one before it in its lane */
    int32_t *leader;    /* per operation: the first of those that start together */
    int32_t *order;     /* operations, each after everything that it waits for, with a message's operations together */
    int64_t *gap;       /* per operation: time from the end of everything that its message waits for to its start */
    int64_t *took;      /* per operation: its duration, or what replaces it */
    bool *out;          /* per operation: whether it is removed */
    int64_t *end;       /* per operation: when operations that need it can start */
    int64_t *lane_end;  /* per operation: when its lane can continue */
    int64_t makespan;   /* with nothing undone */
};

/* ---- the graph ---- */

static void add_edge(struct edges *edges, int32_t from, int32_t to) {
    GROW(edges->a, edges->cap, edges->n + 1);
    edges->a[edges->n++] = (struct edge){from, to};
}

static struct lists group_edges(const struct edges *edges, int n) {
    struct lists lists = {NEW(int32_t, n + 1), NEW(int32_t, edges->n + 1)};
    int32_t *next = NEW(int32_t, n + 1);
    for (size_t i = 0; i < edges->n; i++)
        lists.at[edges->a[i].from + 1]++;
    for (int i = 0; i < n; i++)
        next[i + 1] = lists.at[i + 1] += lists.at[i];
    for (size_t i = 0; i < edges->n; i++)
        lists.to[next[edges->a[i].from]++] = edges->a[i].to;
    return lists;
}

static int32_t *find_leaders(const struct side *side) {
    int32_t *leader = NEW(int32_t, side->n);
    memset(leader, -1, sizeof *leader * (size_t)side->n);
    for (int32_t i = 0; i < side->n; i++)
        for (int32_t o = i; leader[o] < 0; o = side->op[o].ring)
            leader[o] = i;
    return leader;
}

/* Adds needs within a lane: what a program's instructions need from earlier ones of their own lane, for which the
 * streams have no waits. */
static void add_needs(const struct side *side, struct edges *edges) {
    struct producers producers = producers_of(side->waits);
    for (int r = 0; r < side->workers; r++) {
        const struct rank *k = &side->waits->rank[r];
        const int32_t *at = side_ops(side, r);
        for (int i = 0; i < k->nins; i++)
            for (int32_t a = producers.at[r][i]; a < producers.at[r][i + 1]; a++) {
                const struct producer *from = &producers.a[a];
                if (from->i >= 0 && from->i < i && from->rank == r && from->msg < 0 &&
                    k->ins[from->i].lane == k->ins[i].lane)
                    add_edge(edges, at[i], at[from->i]);
            }
    }
}

/* Lists what operations wait for: by the streams, or else by their causes. */
static struct lists find_edges(const struct side *side, const int32_t *leader) {
    struct edges edges = {0};
    for (int i = 0; i < side->n; i++) {
        if (diff_waits_in_lane(side, i))
            add_edge(&edges, i, ~(i - 1));
        int bind = side->op[i].bind;
        if (!side->waits && bind >= 0 && (bind != i - 1 || side->op[i].why == BY_DATA) && leader[bind] != leader[i])
            add_edge(&edges, i, bind);
    }
    for (int r = 0; side->waits && r < side->workers; r++) {
        const struct rank *k = &side->waits->rank[r];
        const int32_t *at = side_ops(side, r);
        for (int i = 0; i < k->nins; i++)
            for (uint32_t n = k->ins[i].wait; n < k->ins[i].wait + k->ins[i].nwait; n++)
                add_edge(&edges, at[i], at[k->wait[n]]);
    }
    if (side->waits)
        add_needs(side, &edges);
    return group_edges(&edges, side->n);
}

static int32_t awaited_op(int32_t listed) { return listed < 0 ? ~listed : listed; }

/* Sorts operations topologically, a message's as one. Times that contradict each other can leave cycles: these
 * come last. */
static int32_t *sort_ops(const struct side *side, const struct lists *waits, const int32_t *leader) {
    int32_t *left = NEW(int32_t, side->n + 1), *ready = NEW(int32_t, side->n + 1), *order = NEW(int32_t, side->n + 1);
    struct edges followers = {0};
    int n = 0, done = 0;
    for (int32_t i = 0; i < side->n; i++)
        for (int32_t w = waits->at[i]; w < waits->at[i + 1]; w++) {
            int32_t from = leader[awaited_op(waits->to[w])];
            if (from == leader[i])
                continue;
            add_edge(&followers, from, leader[i]);
            left[leader[i]]++;
        }
    struct lists next = group_edges(&followers, side->n);
    for (int32_t i = 0; i < side->n; i++)
        if (leader[i] == i && left[i] == 0)
            ready[n++] = i;
    for (int at = 0; at < n; at++) {
        int32_t o = ready[at];
        do
            order[done++] = o;
        while ((o = side->op[o].ring) != ready[at]);
        for (int32_t k = next.at[ready[at]]; k < next.at[ready[at] + 1]; k++)
            if (--left[next.to[k]] == 0)
                ready[n++] = next.to[k];
    }
    for (int32_t i = 0; i < side->n; i++)
        if (left[leader[i]] > 0)
            order[done++] = i;
    return order;
}

/* ---- the simulation ---- */

/* Returns when what operation i waits for has ended: with `data`, what it needs; with `lane`, the operation before it
 * in its lane, unless, with `data`, they start together. */
static int64_t awaited(const struct replayed *re, int32_t i, bool data, bool lane) {
    int64_t t = 0;
    for (int32_t w = re->waits.at[i]; w < re->waits.at[i + 1]; w++) {
        int32_t listed = re->waits.to[w];
        int64_t end = listed < 0 ? re->lane_end[~listed] : re->end[listed];
        bool together = re->leader[awaited_op(listed)] == re->leader[i];
        if (end > t && (listed < 0 ? lane : data) && !(data && together))
            t = end;
    }
    return t;
}

/* Returns when everything that i's message needs has ended and, with `lane`, the operations before it in its lanes. */
static int64_t awaited_by_all(const struct replayed *re, int32_t i, bool lane) {
    int64_t t = awaited(re, i, true, lane);
    for (int32_t o = re->side->op[i].ring; o != i; o = re->side->op[o].ring) {
        int64_t its = awaited(re, o, true, lane);
        t = its > t ? its : t;
    }
    return t;
}

/* Returns the same for the operation at a place in the order, without the lanes if it is removed. before: what this
 * returned for the place before; a message's operations share it. */
static int64_t awaited_at(const struct replayed *re, int at, int64_t before) {
    int32_t i = re->order[at];
    bool shared = at > 0 && re->leader[i] == re->leader[re->order[at - 1]];
    return shared ? before : awaited_by_all(re, i, !re->out[i]);
}

/* Simulates the side, and returns its makespan. */
static int64_t run_again(struct replayed *re) {
    int64_t last = 0, awaits = 0;
    for (int at = 0; at < re->side->n; at++) {
        int32_t i = re->order[at];
        awaits = awaited_at(re, at, awaits);
        if (re->out[i]) {
            re->end[i] = awaits;
            re->lane_end[i] = awaited(re, i, false, true);
            continue;
        }
        re->end[i] = re->lane_end[i] = awaits + re->gap[i] + re->took[i];
        last = re->end[i] > last ? re->end[i] : last;
    }
    return last;
}

static struct replayed replay_side(const struct side *side) {
    struct replayed re = {.side = side, .leader = find_leaders(side)};
    int64_t awaits = 0;
    re.waits = find_edges(side, re.leader);
    re.order = sort_ops(side, &re.waits, re.leader);
    re.gap = NEW(int64_t, side->n);
    re.took = NEW(int64_t, side->n);
    re.out = NEW(bool, side->n);
    re.end = NEW(int64_t, side->n);
    re.lane_end = NEW(int64_t, side->n);
    for (int i = 0; i < side->n; i++) {
        re.took[i] = side->op[i].end - side->op[i].start;
        re.end[i] = re.lane_end[i] = side->op[i].end;
    }
    for (int at = 0; at < side->n; at++) {
        awaits = awaited_at(&re, at, awaits);
        re.gap[re.order[at]] = side->op[re.order[at]].start - awaits;
    }
    re.makespan = run_again(&re);
    return re;
}

/* ---- changes ---- */

static enum diff_class class_of(const struct diff *diff, int32_t a, int32_t b) {
    const struct diff_op *op = a >= 0 ? &diff->side[0]->op[a] : &diff->side[1]->op[b];
    if (op->split)
        return SPLIT;
    if (a < 0 || b < 0)
        return a < 0 ? ONLY_B : ONLY_A;
    return op->moved ? MOVED : op->reordered ? REORDERED : op->longer ? LONGER : NCLASSES;
}

/* Undoes a change, or reapplies it. */
static void undo(struct replayed re[2], const struct diff *diff, int32_t a, int32_t b, bool undone) {
    enum diff_class class = class_of(diff, a, b);
    int32_t op[2] = {a, b};
    const struct side *side[2] = {diff->side[0], diff->side[1]};
    bool replaces = a >= 0 && b >= 0 && (class == LONGER || class == SPLIT);
    int to = class == SPLIT && b >= 0 && side[1]->op[b].op == OP_B ? 0 : 1; /* the side with the split backward */
    if (replaces && !is_message(side[to]->op[op[to]].op)) {
        const struct diff_op *own = &side[to]->op[op[to]], *other = &side[!to]->op[op[!to]];
        re[to].took[op[to]] = undone ? other->end - other->start : own->end - own->start;
        return;
    }
    for (int k = 0; k < 2; k++) {
        int32_t o = op[k];
        if (o < 0 || re[k].out[o] == undone) /* with another operation of its message */
            continue;
        do { /* a message is removed as a whole */
            re[k].out[o] = undone;
            o = side[k]->op[o].ring;
        } while (o != op[k]);
    }
}

/* Returns the part of the makespan's difference that is due to the undone changes. */
static int64_t effect_of(struct replayed re[2]) {
    return (re[1].makespan - run_again(&re[1])) - (re[0].makespan - run_again(&re[0]));
}

/* Returns the longer of an operation's durations on the two sides. If there are too many roots, the longest are
 * chosen. */
static int64_t longest_of(const struct diff *diff, int32_t a, int32_t b) {
    int64_t in_a = a >= 0 ? diff->side[0]->op[a].end - diff->side[0]->op[a].start : 0;
    int64_t in_b = b >= 0 ? diff->side[1]->op[b].end - diff->side[1]->op[b].start : 0;
    return in_a > in_b ? in_a : in_b;
}

struct change {
    int32_t a, b; /* the operation in A and in B, -1: absent */
};
static struct diff_cause cause_of(const struct diff *diff, const struct change *x) {
    const struct diff_op *op = x->a >= 0 ? &diff->side[0]->op[x->a] : &diff->side[1]->op[x->b];
    struct diff_cause key = {.class = class_of(diff, x->a, x->b), .op = op->op, .rank = op->rank, .a = x->a};
    key.b = x->b;
    if (key.class == SPLIT)
        key.op = OP_B;
    if (key.class != LONGER)
        key.rank = -1;
    return key;
}

static const struct diff *compared; /* sort has no context argument */

static int by_cause(const void *x, const void *y) {
    struct diff_cause a = cause_of(compared, x), b = cause_of(compared, y);
    const struct change *p = x, *q = y;
    if (a.class != b.class)
        return a.class < b.class ? -1 : 1;
    if (a.op != b.op)
        return a.op - b.op;
    if (a.rank != b.rank)
        return a.rank - b.rank;
    return p->a != q->a ? (p->a > q->a) - (p->a < q->a) : (p->b > q->b) - (p->b < q->b);
}

/* Returns whether the operation is a RECV whose SEND counts for both: it has changed in the same way. */
static bool counts_elsewhere(const struct diff *diff, int side, int32_t i) {
    const struct side *s = diff->side[side];
    if (!is_recv(s->op[i].op) || s->op[i].ring == i)
        return false;
    int32_t send = s->op[i].ring, other = s->op[send].match, own = s->op[i].match;
    return class_of(diff, side ? other : send, side ? send : other) == class_of(diff, side ? own : i, side ? i : own);
}

/* Lists all changed operations, equal changes together. */
static struct change *list_changes(const struct diff *diff, int *count) {
    const struct side *a = diff->side[0], *b = diff->side[1];
    struct change *change = NEW(struct change, a->n + b->n);
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (class_of(diff, i, a->op[i].match) < NCLASSES && !counts_elsewhere(diff, 0, i))
            change[n++] = (struct change){i, a->op[i].match};
    for (int i = 0; i < b->n; i++)
        if (b->op[i].match < 0 && !counts_elsewhere(diff, 1, i))
            change[n++] = (struct change){-1, i};
    compared = diff;
    sort(change, (size_t)n, sizeof *change, by_cause);
    *count = n;
    return change;
}

static int by_effect(const void *x, const void *y) {
    const struct diff_cause *a = x, *b = y;
    if (llabs(a->effect) != llabs(b->effect))
        return llabs(a->effect) > llabs(b->effect) ? -1 : 1;
    if (is_message(a->op) != is_message(b->op))
        return is_message(a->op) ? 1 : -1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return a->op != b->op ? a->op - b->op : a->rank - b->rank;
}

static void undo_groups(struct diff *diff, struct replayed re[2], int most) {
    int n;
    struct change *change = list_changes(diff, &n);
    diff->causes.of = NEW(struct diff_cause, n + 1);
    for (int from = 0, to; from < n; from = to) {
        struct diff_cause *cause = &diff->causes.of[diff->causes.n++];
        *cause = cause_of(diff, &change[from]);
        for (to = from; to < n; to++) {
            struct diff_cause key = cause_of(diff, &change[to]);
            if (key.class != cause->class || key.op != cause->op || key.rank != cause->rank)
                break;
            const struct diff_op *op =
                change[to].a >= 0 ? &diff->side[0]->op[change[to].a] : &diff->side[1]->op[change[to].b];
            cause->n += cause->class != SPLIT || op->op != OP_W;
        }
        if (diff->causes.n > most)
            continue;
        for (int i = from; i < to; i++)
            undo(re, diff, change[i].a, change[i].b, true);
        cause->effect = effect_of(re);
        for (int i = from; i < to; i++)
            undo(re, diff, change[i].a, change[i].b, false);
    }
    sort(diff->causes.of, (size_t)diff->causes.n, sizeof *diff->causes.of, by_effect);
}

static int by_length(const void *x, const void *y) {
    const struct root *a = x, *b = y;
    int64_t p = longest_of(compared, a->a, a->b), q = longest_of(compared, b->a, b->b);
    if (a->critical != b->critical)
        return a->critical ? -1 : 1;
    if (p != q)
        return p > q ? -1 : 1;
    return diff_by_weight(x, y);
}

static int by_gain(const void *x, const void *y) {
    const struct root *a = x, *b = y;
    if (llabs(a->effect) != llabs(b->effect))
        return llabs(a->effect) > llabs(b->effect) ? -1 : 1;
    return by_length(x, y);
}

static void undo_roots(struct diff *diff, struct replayed re[2], int most) {
    compared = diff;
    sort(diff->root, (size_t)diff->nroots, sizeof *diff->root, by_length);
    for (int i = 0; i < diff->nroots && i < most; i++) {
        struct root *root = &diff->root[i];
        undo(re, diff, root->a, root->b, true);
        root->effect = effect_of(re);
        undo(re, diff, root->a, root->b, false);
    }
    sort(diff->root, (size_t)diff->nroots, sizeof *diff->root, by_gain);
}

void diff_undo(struct diff *diff) {
    int64_t n = diff->side[0]->n + diff->side[1]->n, most = n > 0 ? MOST_VISITS / n : 0;
    struct replayed re[2] = {replay_side(diff->side[0]), replay_side(diff->side[1])};
    most = most < MOST_UNDONE ? most : MOST_UNDONE;
    undo_groups(diff, re, (int)(most > 32 ? most : 32));
    undo_roots(diff, re, (int)most);
}
