/* Finds the effect of each change: how long both sides would take if it were undone.
 *
 * Both sides are simulated as they ran (diff_replay.c). Undoing a change removes the operation from a side. A longer
 * operation takes as long as in A instead, and reordered operations get A's order. Otherwise the effect of a change is
 * the time saved by removing it from B, minus the time saved by removing it from A. So the effects of single changes
 * need not add up to the difference of the makespans; but if there is only one cause, undoing it makes A of B.
 *
 * Equal changes are undone together, and each root alone. Changes of duration are equal if they have one factor, or
 * else one rank. If the order of one kind of job alone would deadlock, all reorderings are one cause. If there are many
 * roots, only the longest operations are undone, so that all simulations together visit at most MOST_VISITS operations.
 */
#include "diff_replay.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_UNDONE = 256, MOST_VISITS = 40000000 };

/* ---- changes ---- */

static enum diff_class class_of(const struct diff *diff, int32_t a, int32_t b) {
    const struct diff_op *op = a >= 0 ? &diff->side[0]->op[a] : &diff->side[1]->op[b];
    if (op->split)
        return SPLIT;
    if (a < 0 || b < 0)
        return a < 0 ? ONLY_B : ONLY_A;
    if (op->moved || op->reordered)
        return op->moved ? MOVED : REORDERED;
    return op->overlaps ? OVERLAPPED : op->longer ? LONGER : NCLASSES;
}

struct undoing {
    struct diff *diff;
    struct replayed re[2];
    int64_t *alone[2];           /* per side: as times_alone returns it */
    bool *back;                  /* per operation of B: whether it has A's place in its lane */
    bool alike[NOPS];            /* the kinds whose durations changed by one factor, on several ranks */
    bool reorders[NOPS], merged; /* the kinds of jobs that are reordered; whether all reorderings are one cause */
};

/* Gives B's operation A's duration, or its own again, with the job that overlaps it on both sides. A message also gets
 * A's latency and delay. */
static void retime(struct undoing *undoing, int32_t b, bool undone) {
    struct replayed *re = undoing->re;
    const struct diff_op *op = &re[1].side->op[b];
    for (int32_t o = b, first = true; first || o != b; o = re[1].side->op[o].ring, first = false) {
        int32_t a = re[1].side->op[o].match;
        if (o != b && !is_message(op->op) && op->overlaps)
            continue;
        const struct diff_op *from = undone && a >= 0 ? &re[0].side->op[a] : &re[1].side->op[o];
        re[1].took[o] = from->end - from->start;
        if (is_message(op->op))
            re[1].gap[o] = undone && a >= 0 ? re[0].gap[a] : re[1].delay[o];
    }
}

/* Gives B's operation, with all of its message, A's place in its lane, or its own again. */
static void set_back(struct undoing *undoing, int32_t b, bool undone) {
    const struct side *side = undoing->re[1].side;
    int32_t o = b;
    do {
        undoing->back[o] = undone && side->op[o].match >= 0 && !side->op[o].moved;
        o = is_message(side->op[b].op) ? side->op[o].ring : b;
    } while (o != b);
    retime(undoing, b, undone);
}

/* Returns how long an overlapping job takes alone: as on the other side, if it is alone there, or as another job of its
 * kind and stage. -1: unknown. */
static int64_t time_alone(const struct undoing *undoing, int side, int32_t o) {
    const struct side *own = undoing->re[side].side, *other = undoing->re[!side].side;
    const struct diff_op *op = &own->op[o];
    if (diff_compares(op) && diff_partner(other, op->match) < 0)
        return other->op[op->match].end - other->op[op->match].start;
    return undoing->alone[side] ? undoing->alone[side][op->stage * NOPS + op->op] - 1 : -1;
}

/* Lists, by stage and kind, 1 + the time of a job that overlaps no other. */
static int64_t *times_alone(const struct side *side) {
    int64_t stages = side->size.of[SIZE_STAGES], *alone = stages <= side->n ? NEW(int64_t, stages * NOPS) : NULL;
    for (int i = 0; alone && i < side->n; i++) {
        const struct diff_op *op = &side->op[i];
        if (is_job(op->op) && diff_partner(side, i) < 0)
            alone[op->stage * NOPS + op->op] = 1 + op->end - op->start;
    }
    return alone;
}

/* Separates the jobs of a pair on each side that overlaps them, or joins them again. */
static void part_pair(struct undoing *undoing, int32_t a, int32_t b, bool undone) {
    int32_t op[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        struct replayed *re = &undoing->re[k];
        int32_t pair[2] = {op[k], diff_partner(re->side, op[k])};
        if (pair[1] < 0 || re->apart[op[k]] == undone)
            continue;
        re->apart[op[k]] = undone;
        re->nparted += undone ? 1 : -1;
        for (int i = 0; i < 2; i++) {
            const struct diff_op *own = &re->side->op[pair[i]];
            int64_t alone = undone ? time_alone(undoing, k, pair[i]) : -1;
            re->took[pair[i]] = alone >= 0 ? alone : own->end - own->start;
        }
    }
}

/* Removes an operation, with all of its message, or puts it in again. */
static void take_out(struct replayed *re, int32_t op, bool undone) {
    int32_t o = op;
    if (o < 0 || re->out[o] == undone) /* with another operation of its message */
        return;
    do {
        re->out[o] = undone;
        o = re->side->op[o].ring;
    } while (o != op);
}

/* Undoes a change, or reapplies it. */
static void undo(struct undoing *undoing, int32_t a, int32_t b, bool undone) {
    struct replayed *re = undoing->re;
    enum diff_class class = class_of(undoing->diff, a, b);
    if (class == REORDERED) {
        set_back(undoing, b, undone);
    } else if (class == LONGER) {
        retime(undoing, b, undone);
    } else if (class == OVERLAPPED) {
        part_pair(undoing, a, b, undone);
    } else if (class == SPLIT && a >= 0 && b >= 0) {
        int32_t op[2] = {a, b};
        int to = re[1].side->op[b].op == OP_B ? 0 : 1; /* the side with the split backward */
        const struct diff_op *own = &re[to].side->op[op[to]], *other = &re[!to].side->op[op[!to]];
        bool pair = diff_partner(re[!to].side, op[!to]) >= 0; /* its duration is then the pair's */
        int64_t alone = pair ? time_alone(undoing, !to, op[!to]) : -1;
        int64_t whole = alone >= 0 ? alone : other->end - other->start;
        re[to].took[op[to]] = undone ? whole : own->end - own->start;
    } else {
        take_out(&re[0], a, undone);
        take_out(&re[1], b, undone);
    }
}

/* Finds the part of the makespan's difference that is due to the undone changes of one class. Returns false if it is
 * not known, because A's order would deadlock in B. */
static bool find_effect(struct undoing *undoing, enum diff_class class, int64_t *effect) {
    struct replayed *re = undoing->re;
    if (class == REORDERED)
        return replay_reordered(&re[1], undoing->diff, undoing->back, effect);
    *effect = re[1].makespan - replay(&re[1]) - (re[0].makespan - replay(&re[0]));
    return true;
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
static const struct undoing *compared; /* sort has no context argument */

/* Returns the kind of jobs whose order decides when a message is sent: if they are reordered, it follows them. */
static int ordering_kind(const bool *reorders, int op) {
    bool forward = op == OP_SEND_F || op == OP_RECV_F, backward = op == OP_SEND_B || op == OP_RECV_B;
    if (forward && reorders[OP_F])
        return OP_F;
    return backward && reorders[OP_B] ? OP_B : backward && reorders[OP_I] ? OP_I : op;
}

static struct diff_cause cause_of(const struct undoing *undoing, const struct change *x) {
    const struct diff *diff = undoing->diff;
    const struct diff_op *op = x->a >= 0 ? &diff->side[0]->op[x->a] : &diff->side[1]->op[x->b];
    struct diff_cause key = {.class = class_of(diff, x->a, x->b), .op = op->op, .rank = op->rank, .a = x->a};
    key.b = x->b;
    if (key.class == SPLIT)
        key.op = OP_B;
    if (key.class == REORDERED)
        key.op = undoing->merged ? -1 : ordering_kind(undoing->reorders, op->op);
    if (key.class == OVERLAPPED)
        key.op = -1;
    if (key.class != LONGER || undoing->alike[op->op])
        key.rank = -1;
    return key;
}

static int op_of(const struct diff *diff, const struct change *x) {
    return x->a >= 0 ? diff->side[0]->op[x->a].op : diff->side[1]->op[x->b].op;
}

static int by_cause(const void *x, const void *y) {
    struct diff_cause a = cause_of(compared, x), b = cause_of(compared, y);
    const struct change *p = x, *q = y;
    bool sends = is_message(op_of(compared->diff, p)), also = is_message(op_of(compared->diff, q));
    if (a.class != b.class)
        return a.class < b.class ? -1 : 1;
    if (a.op != b.op)
        return a.op - b.op;
    if (a.rank != b.rank)
        return a.rank - b.rank;
    if (sends != also)
        return sends ? 1 : -1;
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
static struct change *list_changes(const struct undoing *undoing, int *count) {
    const struct diff *diff = undoing->diff;
    const struct side *a = diff->side[0], *b = diff->side[1];
    struct change *change = NEW(struct change, a->n + b->n);
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (class_of(diff, i, a->op[i].match) != NCLASSES && !counts_elsewhere(diff, 0, i))
            change[n++] = (struct change){i, a->op[i].match};
    for (int i = 0; i < b->n; i++)
        if (b->op[i].match < 0 && !counts_elsewhere(diff, 1, i))
            change[n++] = (struct change){-1, i};
    compared = undoing;
    sort(change, (size_t)n, sizeof *change, by_cause);
    *count = n;
    return change;
}

static int by_effect(const void *x, const void *y) {
    const struct diff_cause *a = x, *b = y;
    if (llabs(a->effect) != llabs(b->effect))
        return llabs(a->effect) > llabs(b->effect) ? -1 : 1;
    bool moves = a->op >= 0 && is_message(a->op), also = b->op >= 0 && is_message(b->op); /* op -1: of all kinds */
    if (moves != also)
        return moves ? 1 : -1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return a->op != b->op ? a->op - b->op : a->rank - b->rank;
}

/* Returns whether the change's job is the second of a pair of which both count. */
static bool counted_already(const struct undoing *undoing, const struct change *x) {
    const struct side *a = undoing->re[0].side, *b = undoing->re[1].side;
    int pb = diff_partner(b, x->b), pa = pb < 0 ? diff_partner(a, x->a) : b->op[pb].match;
    pb = pb < 0 && pa >= 0 ? a->op[pa].match : pb;
    return pa >= 0 && pb >= 0 && pa < x->a && class_of(undoing->diff, pa, pb) == OVERLAPPED;
}

/* Returns the end of the changes that have the same cause as the one at `from`, and sets the cause. It counts messages
 * that follow reordered jobs with these, and a split backward once. */
static int collect_cause(const struct undoing *undoing, const struct change *change, int n, int from,
                         struct diff_cause *cause) {
    *cause = cause_of(undoing, &change[from]);
    int to = from, messages = 0;
    for (; to < n; to++) {
        struct diff_cause key = cause_of(undoing, &change[to]);
        if (key.class != cause->class || key.op != cause->op || key.rank != cause->rank)
            break;
        int op = op_of(undoing->diff, &change[to]);
        bool follows = cause->class == REORDERED && cause->op != op && is_message(op);
        messages += follows;
        bool second = cause->class == OVERLAPPED && counted_already(undoing, &change[to]);
        cause->n += !follows && !second && (cause->class != SPLIT || op != OP_W);
    }
    cause->n = cause->n ? cause->n : messages;
    return to;
}

/* Fills the list of causes and their effects. Returns false if a reordering deadlocks that might not do so if all
 * reorderings were one cause. */
static bool try_groups(struct undoing *undoing, const struct change *change, int n, int most) {
    struct diff_causes *causes = &undoing->diff->causes;
    causes->n = 0;
    for (int from = 0, to; from < n; from = to) {
        struct diff_cause *cause = &causes->of[causes->n++];
        to = collect_cause(undoing, change, n, from, cause);
        if (causes->n > most)
            continue;
        for (int i = from; i < to; i++)
            undo(undoing, change[i].a, change[i].b, true);
        cause->unknown = !find_effect(undoing, cause->class, &cause->effect);
        for (int i = from; i < to; i++)
            undo(undoing, change[i].a, change[i].b, false);
        if (cause->unknown && !undoing->merged)
            return false;
    }
    return true;
}

static void undo_groups(struct undoing *undoing, int most) {
    struct diff *diff = undoing->diff;
    int n;
    struct change *change = list_changes(undoing, &n);
    diff->causes.of = NEW(struct diff_cause, n + 1);
    if (!try_groups(undoing, change, n, most)) {
        undoing->merged = true;
        change = list_changes(undoing, &n);
        try_groups(undoing, change, n, most);
    }
    if (diff->causes.n == 1 && !diff->side[0]->steps && !diff->side[1]->steps) {
        diff->causes.of->effect = diff->side[1]->makespan - diff->side[0]->makespan;
        diff->causes.of->unknown = false;
    }
    sort(diff->causes.of, (size_t)diff->causes.n, sizeof *diff->causes.of, by_effect);
}

/* Lists the other cut of the model as the only cause. Stages of one number are then different parts of the model. */
static void blame_stages(struct diff *diff) {
    diff->causes = (struct diff_causes){NEW(struct diff_cause, 1), 1};
    *diff->causes.of = (struct diff_cause){.class = RECUT, .op = -1, .rank = -1, .a = -1, .b = -1};
    diff->causes.of->n = (int)diff->side[1]->size.of[SIZE_STAGES];
    diff->causes.of->effect = diff->side[1]->makespan - diff->side[0]->makespan;
}

static int by_length(const void *x, const void *y) {
    const struct root *a = x, *b = y;
    int64_t p = longest_of(compared->diff, a->a, a->b), q = longest_of(compared->diff, b->a, b->b);
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

static void undo_roots(struct undoing *undoing, int most) {
    struct diff *diff = undoing->diff;
    compared = undoing;
    sort(diff->root, (size_t)diff->nroots, sizeof *diff->root, by_length);
    for (int i = 0; i < diff->nroots && i < most; i++) {
        struct root *root = &diff->root[i];
        undo(undoing, root->a, root->b, true);
        find_effect(undoing, class_of(diff, root->a, root->b), &root->effect);
        undo(undoing, root->a, root->b, false);
    }
    sort(diff->root, (size_t)diff->nroots, sizeof *diff->root, by_gain);
}

/* Finds the kinds whose durations changed by one factor, on several ranks. */
static void find_alike(struct undoing *undoing) {
    const struct side *a = undoing->re[0].side, *b = undoing->re[1].side;
    double ratio[NOPS] = {0};
    int rank[NOPS];
    bool differs[NOPS] = {0};
    for (int i = 0; i < a->n; i++) {
        const struct diff_op *op = &a->op[i];
        if (class_of(undoing->diff, i, op->match) != LONGER)
            continue;
        double own = (double)diff_took(b, &b->op[op->match]) / (double)diff_took(a, op);
        if (ratio[op->op] == 0)
            rank[op->op] = op->rank;
        else if (!(fabs(own - ratio[op->op]) <= 1e-6 * own))
            differs[op->op] = true;
        else if (rank[op->op] != op->rank)
            undoing->alike[op->op] = true;
        ratio[op->op] = own;
    }
    for (int k = 0; k < NOPS; k++)
        undoing->alike[k] &= !differs[k] && isfinite(ratio[k]);
}

void diff_undo(struct diff *diff) {
    const struct side *a = diff->side[0], *b = diff->side[1];
    int64_t n = a->n + b->n, most = n > 0 ? MOST_VISITS / n : 0;
    struct undoing undoing = {.diff = diff, .re = {replay_side(diff, 0), replay_side(diff, 1)}};
    undoing.back = NEW(bool, b->n);
    undoing.alone[0] = times_alone(a);
    undoing.alone[1] = times_alone(b);
    for (int i = 0; i < b->n; i++)
        undoing.reorders[b->op[i].op] |= b->op[i].match >= 0 && class_of(diff, b->op[i].match, i) == REORDERED;
    find_alike(&undoing);
    most = most < MOST_UNDONE ? most : MOST_UNDONE;
    if (diff_resized(diff, SIZE_STAGES))
        blame_stages(diff);
    else
        undo_groups(&undoing, (int)(most > 32 ? most : 32));
    undo_roots(&undoing, (int)most);
}
