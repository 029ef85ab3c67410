/* Simulates a side of a diff again. Every operation keeps its duration, and its delay after the last operation that it
 * waits for. A removed operation takes no time, its lane continues without it, and whatever needs its result waits for
 * what it needed. A simulation is linear; one with another order first sorts the operations, which is linear too. */
#include "diff_replay.h"
#include <stdlib.h>
#include <string.h>

struct edge {
    int32_t from, to;
};
struct edges {
    struct edge *a;
    size_t n, cap;
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

static void find_leaders(struct replay_order *how, int n) {
    how->leader = NEW(int32_t, n);
    memset(how->leader, -1, sizeof *how->leader * (size_t)n);
    for (int32_t i = 0; i < n; i++)
        for (int32_t o = i; how->leader[o] < 0; o = how->ring[o])
            how->leader[o] = i;
}

/* Sets the rings to the side's, but overlapping jobs start together only if they still follow each other. */
static void find_rings(const struct replayed *re, struct replay_order *how) {
    const struct side *side = re->side;
    how->ring = NEW(int32_t, side->n);
    for (int32_t i = 0; i < side->n; i++) {
        int32_t other = side->op[i].ring;
        bool apart = re->apart[i] || re->apart[other];
        apart |= !is_message(side->op[i].op) && how->before[i] != other && how->before[other] != i;
        how->ring[i] = apart ? i : other;
    }
    find_leaders(how, side->n);
}

/* ---- data ---- */

/* The instructions that wrote a buffer: one, or all that add to a sum */
struct writers {
    int32_t *op;
    size_t n, cap;
};

/* Adds what an instruction reads, then notes what it writes. The order in which a sum's parts are added is free. */
static void add_operands(const struct rank *k, int i, const int32_t *at, struct writers *writers, struct edges *edges) {
    const struct instr *x = &k->ins[i];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        const struct writers *from = &writers[k->arg[a].buf];
        bool reads = op_access(x->op, k->arg[a].role) & ACC_READ && !op_accumulates(x->op, k->arg[a].role);
        for (size_t w = 0; reads && w < from->n; w++)
            add_edge(edges, at[i], at[from->op[w]]);
    }
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        struct writers *to = &writers[k->arg[a].buf];
        if (!(op_access(x->op, k->arg[a].role) & ACC_WRITE))
            continue;
        if (!op_accumulates(x->op, k->arg[a].role) || is_first(x, k->arg[a].role))
            to->n = 0;
        GROW(to->op, to->cap, to->n + 1);
        to->op[to->n++] = i;
    }
}

static void add_data(const struct side *side, struct edges *edges) {
    for (int r = 0; r < side->workers; r++) {
        const struct rank *k = &side->waits->rank[r];
        const int32_t *at = side_ops(side, r);
        struct writers *writers = NEW(struct writers, k->nbufs);
        for (int i = 0; i < k->nins; i++)
            add_operands(k, i, at, writers, edges);
    }
}

/* Adds, for a timeline alone, the data that operations seem to wait for on either side. */
static void add_guesses(const struct diff *diff, int side, struct edges *edges) {
    const struct side *s = diff->side[side], *other = diff->side[!side];
    for (int32_t i = 0; i < s->n; i++) {
        const struct diff_op *op = &s->op[i], *match = op->match >= 0 ? &other->op[op->match] : NULL;
        if (op->bind >= 0 && op->why == BY_DATA)
            add_edge(edges, i, op->bind);
        if (match && match->bind >= 0 && match->why == BY_DATA && other->op[match->bind].match >= 0)
            add_edge(edges, i, other->op[match->bind].match);
    }
}

static struct lists need_edges(const struct diff *diff, int side) {
    struct edges edges = {0};
    if (diff->side[side]->waits)
        add_data(diff->side[side], &edges);
    else
        add_guesses(diff, side, &edges);
    return group_edges(&edges, diff->side[side]->n);
}

/* Adds the order of a group's collectives over the links that its two lanes share, and the joins of a rank's lanes
 * where a period begins or ends. */
static void add_joins(const struct rank *k, const int32_t *at, struct edges *edges) {
    const int *sibling = sibling_lanes(k);
    int32_t *last = NEW(int32_t, k->nlanes), *joined = NEW(int32_t, k->nlanes);
    for (int i = 0; i < k->nins; i++) {
        int lane = k->ins[i].lane, beside = sibling[lane] < 0 ? -1 : last[sibling[lane]] - 1;
        if (k->period.begin < k->period.end && (i == k->period.begin || i == k->period.end))
            memcpy(joined, last, sizeof *last * (size_t)k->nlanes);
        if (beside >= 0)
            add_edge(edges, at[i], at[beside]);
        for (int l = 0; last[lane] == joined[lane] && l < k->nlanes; l++)
            if (joined[l] > 0)
                add_edge(edges, at[i], at[joined[l] - 1]);
        last[lane] = i + 1;
    }
}

/* Lists what operations wait for, except in their lanes: by the streams, or else by their causes. */
static struct lists wait_edges(const struct side *side, const int32_t *leader) {
    struct edges edges = {0};
    for (int i = 0; !side->waits && i < side->n; i++) {
        int bind = side->op[i].bind;
        if (bind >= 0 && (bind != i - 1 || side->op[i].why == BY_DATA) && leader[bind] != leader[i])
            add_edge(&edges, i, bind);
    }
    for (int r = 0; side->waits && r < side->workers; r++) {
        const struct rank *k = &side->waits->rank[r];
        const int32_t *at = side_ops(side, r);
        for (int i = 0; i < k->nins; i++)
            for (uint32_t n = k->ins[i].wait; n < k->ins[i].wait + k->ins[i].nwait; n++)
                add_edge(&edges, at[i], at[k->wait[n]]);
        add_joins(k, at, &edges);
    }
    if (side->waits) /* streams have no waits for what a lane's own order ensures */
        add_data(side, &edges);
    return group_edges(&edges, side->n);
}

/* ---- the order ---- */

static void add_precedence(const int32_t *leader, int32_t from, int32_t to, int32_t *left, struct edges *followers) {
    if (leader[from] == leader[to])
        return;
    add_edge(followers, leader[from], leader[to]);
    left[leader[to]]++;
}

/* Sorts operations topologically, a message's as one. Returns whether there is no cycle; those in a cycle come last. */
static bool sort_ops(const struct replayed *re, struct replay_order *how) {
    const struct side *side = re->side;
    int32_t *left = NEW(int32_t, side->n + 1), *ready = NEW(int32_t, side->n + 1);
    struct edges followers = {0};
    int n = 0, done = 0;
    how->order = NEW(int32_t, side->n + 1);
    for (int32_t i = 0; i < side->n; i++) {
        if (how->before[i] >= 0)
            add_precedence(how->leader, how->before[i], i, left, &followers);
        for (int32_t w = how->waits.at[i]; w < how->waits.at[i + 1]; w++)
            add_precedence(how->leader, how->waits.to[w], i, left, &followers);
    }
    struct lists next = group_edges(&followers, side->n);
    for (int32_t i = 0; i < side->n; i++)
        if (how->leader[i] == i && left[i] == 0)
            ready[n++] = i;
    for (int at = 0; at < n; at++) {
        int32_t o = ready[at];
        do
            how->order[done++] = o;
        while ((o = how->ring[o]) != ready[at]);
        for (int32_t k = next.at[ready[at]]; k < next.at[ready[at] + 1]; k++)
            if (--left[next.to[k]] == 0)
                ready[n++] = next.to[k];
    }
    bool acyclic = done == side->n;
    for (int32_t i = 0; i < side->n; i++)
        if (left[how->leader[i]] > 0)
            how->order[done++] = i;
    return acyclic;
}

/* ---- the simulation ---- */

/* Returns when what operation i waits for has ended: with `data`, what it needs; with `lane`, the operation before it
 * in its lane, unless, with `data`, they start together. */
static int64_t awaited(const struct replayed *re, const struct replay_order *how, int32_t i, bool data, bool lane) {
    int64_t t = 0;
    int32_t before = how->before[i];
    if (lane && before >= 0 && !(data && how->leader[before] == how->leader[i]))
        t = re->lane_end[before];
    for (int32_t w = how->waits.at[i]; data && w < how->waits.at[i + 1]; w++) {
        int32_t from = how->waits.to[w];
        if (how->leader[from] != how->leader[i] && re->end[from] > t)
            t = re->end[from];
    }
    return t;
}

/* Returns when everything that i's message needs has ended and, with `lane`, the operations before it in its lanes. */
static int64_t awaited_by_all(const struct replayed *re, const struct replay_order *how, int32_t i, bool lane) {
    int64_t t = awaited(re, how, i, true, lane);
    for (int32_t o = how->ring[i]; o != i; o = how->ring[o]) {
        int64_t its = awaited(re, how, o, true, lane);
        t = its > t ? its : t;
    }
    return t;
}

/* Returns the same for the operation at a place in the order, without the lanes if it is removed. before: what this
 * returned for the place before; a message's operations share it. */
static int64_t awaited_at(const struct replayed *re, const struct replay_order *how, int at, int64_t before) {
    int32_t i = how->order[at];
    bool shared = at > 0 && how->leader[i] == how->leader[how->order[at - 1]];
    return shared ? before : awaited_by_all(re, how, i, !re->out[i]);
}

static int64_t run_again(struct replayed *re, const struct replay_order *how) {
    int64_t last = 0, awaits = 0;
    for (int at = 0; at < re->side->n; at++) {
        int32_t i = how->order[at];
        awaits = awaited_at(re, how, at, awaits);
        if (re->out[i]) {
            re->end[i] = awaits;
            re->lane_end[i] = awaited(re, how, i, false, true);
            continue;
        }
        re->end[i] = re->lane_end[i] = awaits + re->gap[i] + re->took[i];
        last = re->end[i] > last ? re->end[i] : last;
    }
    return last;
}

int64_t replay(struct replayed *re) {
    if (!re->nparted)
        return run_again(re, &re->as_run);
    struct scratch scratch = scratch_begin();
    struct replay_order how = re->as_run;
    find_rings(re, &how);
    sort_ops(re, &how);
    int64_t makespan = run_again(re, &how);
    scratch_end(scratch);
    return makespan;
}

static int32_t *lane_order(const struct side *side) {
    int32_t *before = NEW(int32_t, side->n + 1);
    for (int i = 0; i < side->n; i++)
        before[i] = diff_waits_in_lane(side, i) ? i - 1 : -1;
    return before;
}

struct replayed replay_side(const struct diff *diff, int which) {
    const struct side *side = diff->side[which];
    struct replayed re = {.side = side, .as_run = {.before = lane_order(side)}};
    int64_t awaits = 0;
    re.apart = NEW(bool, side->n);
    find_rings(&re, &re.as_run);
    re.waits = re.as_run.waits = wait_edges(side, re.as_run.leader);
    re.needs = need_edges(diff, which);
    sort_ops(&re, &re.as_run); /* times that contradict each other can leave cycles */
    re.gap = NEW(int64_t, side->n);
    re.delay = NEW(int64_t, side->n);
    re.took = NEW(int64_t, side->n);
    re.out = NEW(bool, side->n);
    re.end = NEW(int64_t, side->n);
    re.lane_end = NEW(int64_t, side->n);
    for (int i = 0; i < side->n; i++) {
        re.took[i] = side->op[i].end - side->op[i].start;
        re.end[i] = re.lane_end[i] = side->op[i].end;
    }
    for (int at = 0; at < side->n; at++) {
        awaits = awaited_at(&re, &re.as_run, at, awaits);
        re.gap[re.as_run.order[at]] = side->op[re.as_run.order[at]].start - awaits;
    }
    memcpy(re.delay, re.gap, sizeof *re.gap * (size_t)side->n);
    re.makespan = replay(&re);
    struct replay_order unbound = re.as_run;
    unbound.waits = re.needs;
    sort_ops(&re, &unbound);
    re.unbound = run_again(&re, &unbound);
    return re;
}

/* ---- another order ---- */

/* Appends an operation to its lane, and those that follow it on the other side. */
static void append_chain(const struct side *side, int32_t *before, const int32_t *follower, int32_t o, int32_t *last) {
    for (; o >= 0; o = follower[o]) {
        before[o] = *last >= 0 && diff_follows(side, *last, o) ? *last : -1;
        *last = o;
    }
}

/* Returns what precedes each operation in its lane if each marked one follows the operation that it follows on the
 * other side, not counting those that stay where this side's order put them. */
static int32_t *other_order(const struct side *side, const struct side *other, const bool *back) {
    int32_t *before = NEW(int32_t, side->n + 1), *follower = NEW(int32_t, side->n + 1),
            *first = NEW(int32_t, side->nlanes);
    memset(follower, -1, sizeof *follower * (size_t)side->n);
    memset(first, -1, sizeof *first * (size_t)side->nlanes);
    for (int l = 0; l < other->nlanes; l++) {
        int32_t after = -1;
        for (int i = other->lane[l].first; i < other->lane[l].first + other->lane[l].n; i++) {
            int32_t own = other->op[i].moved ? -1 : other->op[i].match;
            if (own < 0 || (other->op[i].reordered && !back[own]))
                continue;
            if (back[own])
                *(after < 0 ? &first[side->op[own].lane] : &follower[after]) = own;
            after = own;
        }
    }
    for (int l = 0; l < side->nlanes; l++) {
        int32_t last = -1;
        append_chain(side, before, follower, first[l], &last);
        for (int i = side->lane[l].first; i < side->lane[l].first + side->lane[l].n; i++)
            if (!back[i])
                append_chain(side, before, follower, i, &last);
    }
    return before;
}

bool replay_reordered(struct replayed *re, const struct diff *diff, const bool *back, int64_t *longer) {
    struct scratch scratch = scratch_begin();
    const struct side *other = diff->side[re->side == diff->side[0]];
    struct replay_order how = {.waits = re->needs, .before = other_order(re->side, other, back)};
    find_rings(re, &how);
    bool runs = sort_ops(re, &how);
    *longer = runs ? re->unbound - run_again(re, &how) : 0;
    scratch_end(scratch);
    return runs;
}
