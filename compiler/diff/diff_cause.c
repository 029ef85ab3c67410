/* Why each side takes as long as it does, and why the other takes another time.
 *
 * What an operation waited for is what ended last of all it had to wait for: the operation before it in its lane, the
 * instructions that its stream names, and of a message or a reduction those of all its ends. A wait is for data when
 * the two share a buffer that one of them writes, otherwise for memory: the bytes were another buffer's. Of a timeline
 * alone, the critical path is from the last operation back along these; of a program it is the one of critical_path.c.
 *
 * The account of a side is taken on the rank that ends last. Its jobs are work. Where it waits, the path back from the
 * job that ends the wait says what for, piece by piece until the wait's beginning: other ranks computing what was
 * needed, messages on their way, lanes busy with something else, memory. All pieces together are the makespan. */
#include "diff.h"
#include <stdlib.h>
#include <string.h>

const char *const account_name[NACCOUNTS] = {"work", "dependency", "link", "lane", "memory", "other"};

/* ---- what an operation waited for ---- */

/* p ended before o could begin; the later one, and of equals the one with the plainest reason, is what o waited for. */
static void consider(struct side *s, int o, int p, int why) {
    struct diff_op *x = &s->op[o];
    if (x->ring == p) /* they go together */
        return;
    int64_t end = s->op[p].end, best = x->bind >= 0 ? s->op[x->bind].end : -1;
    if (end > best || (end == best && why < x->why)) {
        x->bind = p;
        x->why = (uint8_t)why;
    }
}

static bool shares(const struct rank *k, const struct instr *x, const struct instr *y) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        for (uint32_t b = y->arg; b < y->arg + y->narg; b++)
            if (k->arg[a].buf == k->arg[b].buf &&
                ((op_access(x->op, k->arg[a].role) | op_access(y->op, k->arg[b].role)) & ACC_WRITE))
                return true;
    return false;
}

/* Whether the operation before o in its lane is one to wait for. Messages of an edge follow each other at once: there
 * the SEND waits for the SEND. */
static bool waits_in_lane(const struct side *s, int o) {
    const struct diff_lane *l = &s->lane[s->op[o].lane];
    bool edge = l->kind == LANE_SEND || l->kind == LANE_RECV;
    bool follows = edge && is_message(s->op[o].op) && o > l->first && is_message(s->op[o - 1].op);
    return o > l->first && !(follows && is_recv(s->op[o].op) && s->op[o - 1].ring != o - 1);
}

static void bind_program(struct side *s) {
    for (int r = 0; r < s->workers; r++) {
        const struct rank *k = &s->waits->rank[r];
        int32_t *at = side_ops(s, r), *last = NEW(int32_t, k->nlanes);
        for (int i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
                consider(s, at[i], at[k->wait[w]], shares(k, &k->ins[k->wait[w]], x) ? BY_DATA : BY_MEMORY);
            if (waits_in_lane(s, at[i]))
                consider(s, at[i], at[last[x->lane]], shares(k, &k->ins[last[x->lane]], x) ? BY_DATA : BY_LANE);
            last[x->lane] = i;
        }
    }
}

/* ---- the same, of a timeline alone ---- */

static const struct side *sorted; /* qsort has no context argument */

/* By their ends. At one end those without length come last; of these a reduction before the update that needs it, which
 * stands in the first lane. */
static int by_end(const void *x, const void *y) {
    int32_t i = *(const int32_t *)x, j = *(const int32_t *)y;
    const struct diff_op *a = &sorted->op[i], *b = &sorted->op[j];
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->lane != b->lane ? b->lane - a->lane : i - j;
}

/* By what they are: whether p's result could be what x needs. Jobs make what is sent, and gradients of weights end in
 * the update. */
static bool feeds(const struct diff_op *p, const struct diff_op *x) {
    bool same = p->batch >= 0 && x->batch >= 0 ? p->batch == x->batch : p->stage == x->stage;
    bool sum = !is_job(p->op) && op_access(p->op, ROLE_dw) == (ACC_READ | ACC_WRITE);
    return same && !is_send(p->op) && op_lane[x->op] != LANE_RECV && !(is_recv(p->op) && is_send(x->op)) &&
           !(sum && x->batch >= 0);
}

/* Without streams: the last of the rank's operations on the same microbatch that ended before this one began. Only so
 * many are looked at. All stand before it in the order of ends, so that none waits for itself. */
static void bind_rank(struct side *s, int first, int n) {
    enum { LOOK_BACK = 64 };
    int32_t *order = NEW(int32_t, n);
    for (int i = 0; i < n; i++)
        order[i] = first + i;
    sorted = s;
    qsort(order, (size_t)n, sizeof *order, by_end);
    for (int at = 0; at < n; at++) {
        int o = order[at], low = 0, high = at;
        const struct diff_op *x = &s->op[o];
        if (waits_in_lane(s, o))
            consider(s, o, o - 1, s->op[o - 1].stage == x->stage && s->op[o - 1].batch == x->batch ? BY_DATA : BY_LANE);
        while (low < high) { /* how many of them ended by the time x began */
            int mid = (low + high) / 2;
            if (s->op[order[mid]].end <= x->start)
                low = mid + 1;
            else
                high = mid;
        }
        for (int i = low - 1; i >= 0 && i >= low - LOOK_BACK; i--)
            if (feeds(&s->op[order[i]], x)) {
                consider(s, o, order[i], BY_DATA);
                break;
            }
    }
}

static void bind_rows(struct side *s) {
    for (int r = 0; r < s->workers; r++) {
        if (s->lane_at[r] == s->lane_at[r + 1])
            continue;
        const struct diff_lane *last = &s->lane[s->lane_at[r + 1] - 1];
        int first = s->lane[s->lane_at[r]].first;
        bind_rank(s, first, last->first + last->n - first);
    }
}

/* ---- what goes together ---- */

/* Two jobs that overlap start and end together: one waits for what the other does. */
static void join_pairs(struct side *s) {
    for (int i = 1; i < s->n; i++) {
        struct diff_op *x = &s->op[i - 1], *y = &s->op[i];
        if (x->lane == y->lane && is_job(x->op) && is_job(y->op) && x->start == y->start && x->end == y->end &&
            x->end > x->start && x->ring == i - 1) {
            x->ring = i;
            y->ring = i - 1;
        }
    }
}

/* All ends of a message begin when the last has come; a RECV waits for its SEND. */
static void join_waits(struct side *s) {
    for (int o = 0; o < s->n; o++) {
        if (!side_leads(s, o))
            continue;
        struct diff_op latest = s->op[o];
        for (int i = s->op[o].ring; i != o; i = s->op[i].ring) {
            const struct diff_op *x = &s->op[i];
            if (latest.bind < 0 || (x->bind >= 0 && s->op[x->bind].end > s->op[latest.bind].end))
                latest = *x;
        }
        int i = o;
        do {
            struct diff_op *x = &s->op[i];
            bool receives = is_recv(x->op);
            x->bind = receives ? x->ring : latest.bind;
            x->why = receives ? BY_DATA : latest.why;
            i = x->ring;
        } while (i != o);
    }
}

static int last_of(const struct side *s) {
    int last = -1;
    for (int i = 0; i < s->n; i++)
        if (last < 0 || s->op[i].end > s->op[last].end)
            last = i;
    return last;
}

/* Of a program, the path that `show` marks. */
static void mark_path(struct side *s) {
    const struct program *p = s->waits;
    struct timeline tl = {NEW(double *, p->workers), NEW(double *, p->workers), (double)s->op[last_of(s)].end};
    for (int r = 0; r < p->workers; r++) {
        const int32_t *at = side_ops(s, r);
        tl.start[r] = NEW(double, p->rank[r].nins);
        tl.end[r] = NEW(double, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins; i++) {
            tl.start[r][i] = (double)s->op[at[i]].start;
            tl.end[r][i] = (double)s->op[at[i]].end;
        }
    }
    bool **on = critical_path(p, &tl);
    for (int r = 0; r < p->workers; r++) {
        const int32_t *at = side_ops(s, r);
        for (int i = 0; i < p->rank[r].nins; i++)
            s->op[at[i]].critical = on[r][i];
    }
}

static void find_waits(struct side *s) {
    join_pairs(s);
    if (s->waits)
        bind_program(s);
    else
        bind_rows(s);
    join_waits(s);
    if (s->waits && s->n)
        mark_path(s);
    else
        for (int i = last_of(s); i >= 0 && !s->op[i].critical; i = s->op[i].bind)
            s->op[i].critical = true;
}

/* ---- the account ---- */

static enum account account_of(const struct diff_op *p, const struct diff_op *x, int why) {
    if (why == BY_MEMORY)
        return ACC_MEMORY;
    if (why == BY_LANE && is_message(p->op) <= is_message(x->op))
        return ACC_LANE;
    return is_message(p->op) ? ACC_LINK : ACC_DEPENDENCY;
}

/* Divides the time from low to high, which x waited for p, along the path back from p. */
static void account_wait(const struct side *s, int64_t *acc, int x, int p, int why, int64_t low, int64_t high) {
    int64_t t = high;
    for (int steps = 0; p >= 0 && t > low && steps < s->n; steps++) {
        const struct diff_op *o = &s->op[p];
        int64_t end = o->end > low ? o->end : low, begin = diff_begin(s, o) > low ? diff_begin(s, o) : low;
        if (end < t) {
            acc[ACC_OTHER] += t - end;
            t = end;
        }
        if (begin < t) {
            acc[account_of(o, &s->op[x], why)] += t - begin;
            t = begin;
        }
        x = p;
        why = o->why;
        p = o->bind;
    }
    acc[ACC_OTHER] += t > low ? t - low : 0;
}

static int account_side(const struct side *s, int64_t *acc) {
    int x = last_of(s), p = x, why = BY_DATA;
    int64_t t = s->makespan;
    if (x < 0)
        return -1;
    int rank = s->op[x].rank;
    const struct diff_lane *l = &s->lane[s->lane_at[rank]];
    bool computes = l->kind == LANE_COMPUTE; /* it is a rank's first lane */
    for (int i = l->first + l->n - 1; computes && i >= l->first; i--) {
        const struct diff_op *o = &s->op[i];
        int64_t end = o->end < t ? o->end : t, begin = o->start < t ? o->start : t;
        if (end < t)
            account_wait(s, acc, x, p, why, end, t);
        acc[ACC_WORK] += end - begin;
        t = begin;
        x = i;
        p = o->bind;
        why = o->why;
    }
    account_wait(s, acc, x, p, why, 0, t);
    return rank;
}

/* ---- roots ---- */

/* One node for an operation of both sides: A's number; behind those, B's that A lacks. */
static int node_of(const struct diff *d, int side, int op) {
    int a = side == 0 ? op : d->side[1]->op[op].match;
    return a >= 0 ? a : d->side[0]->n + op;
}

bool diff_changed(const struct diff_op *o) { return o->match < 0 || o->split || o->moved || o->reordered || o->longer; }

/* How much later it ends in B; 0 when it is in one only. */
static int64_t shift_of(const struct diff *d, int node) {
    int b = node < d->side[0]->n ? d->side[0]->op[node].match : -1;
    int64_t shift = b >= 0 ? d->side[1]->op[b].end - d->side[0]->op[node].end : 0;
    if (b >= 0 && d->side[1]->op[b].steady)
        return 0;
    return llabs(shift) > d->least ? shift : 0;
}

/* The node that pushed this one: what it waited for on the side where it ends later. -1: it is a root. */
static int pusher_of(const struct diff *d, int node) {
    int64_t shift = shift_of(d, node);
    if (shift == 0 || diff_changed(&d->side[0]->op[node]))
        return -1;
    int side = shift > 0, op = side ? d->side[0]->op[node].match : node;
    int by = d->side[side]->op[op].bind;
    if (by < 0)
        return -1;
    int64_t its = shift_of(d, node_of(d, side, by));
    bool pushes = diff_changed(&d->side[side]->op[by]) || (shift > 0 ? its > 0 : its < 0);
    return pushes ? node_of(d, side, by) : -1;
}

/* The root behind every node, in root[]: each chain of pushers is walked once. */
static void find_roots(const struct diff *d, int32_t *root, int n) {
    enum { UNKNOWN = -1, WALKING = -2 };
    int32_t *path = NEW(int32_t, n);
    memset(root, 0xff, sizeof *root * (size_t)n);
    for (int i = 0; i < n; i++) {
        int len = 0, at = i;
        while (root[at] == UNKNOWN) {
            root[at] = WALKING;
            path[len++] = at;
            int by = pusher_of(d, at);
            if (by < 0)
                break;
            at = by;
        }
        int top = root[at] == WALKING ? at : root[at]; /* of a circle, in times that contradict each other: any */
        while (len > 0)
            root[path[--len]] = top;
    }
}

static int by_weight(const void *x, const void *y) {
    const struct root *p = x, *q = y;
    if (p->pushed != q->pushed)
        return p->pushed > q->pushed ? -1 : 1;
    if (llabs(p->shift) != llabs(q->shift))
        return llabs(p->shift) > llabs(q->shift) ? -1 : 1;
    return p->a != q->a ? (p->a > q->a) - (p->a < q->a) : (p->b > q->b) - (p->b < q->b);
}

static void list_roots(struct diff *d) {
    const struct side *a = d->side[0], *b = d->side[1];
    int n = a->n + b->n;
    int32_t *root = NEW(int32_t, n);
    struct root *of = NEW(struct root, n);
    find_roots(d, root, n);
    for (int i = 0; i < n; i++) {
        int64_t shift = shift_of(d, i);
        struct root *r = &of[root[i]];
        r->pushed += root[i] != i && shift != 0;
        if (root[i] == i ? shift != 0 : r->shift == 0 || (shift_of(d, root[i]) == 0 && llabs(shift) > llabs(r->shift)))
            r->shift = shift;
    }
    d->root = NEW(struct root, n);
    for (int i = 0; i < n; i++) {
        struct root *r = &of[i];
        r->a = i < a->n ? i : -1;
        r->b = i < a->n ? a->op[i].match : i - a->n;
        if (root[i] != i || r->shift == 0)
            continue;
        r->critical = (r->a >= 0 && a->op[r->a].critical) || (r->b >= 0 && b->op[r->b].critical);
        d->root[d->nroots++] = *r;
    }
    qsort(d->root, (size_t)d->nroots, sizeof *d->root, by_weight);
    int32_t *place = NEW(int32_t, n); /* in the list, from 1 on, of the nodes that are roots */
    for (int k = 0; k < d->nroots; k++)
        place[d->root[k].a >= 0 ? d->root[k].a : a->n + d->root[k].b] = k + 1;
    for (int i = 0; i < n; i++)
        root[i] = place[root[i]] - 1;
    d->root_of = root;
}

int64_t diff_shift(const struct diff *d, int side, int op) { return shift_of(d, node_of(d, side, op)); }

const struct root *diff_root(const struct diff *d, int side, int op) {
    int k = d->root_of[node_of(d, side, op)];
    return k >= 0 ? &d->root[k] : NULL;
}

void diff_causes(struct diff *d) {
    for (int k = 0; k < 2; k++) {
        find_waits(d->side[k]);
        d->ends[k] = account_side(d->side[k], d->account[k]);
    }
    list_roots(d);
}
