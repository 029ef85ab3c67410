/* Why each side takes as long as it does, and why the two differ.
 *
 * An operation waits for several others: the one before it in its lane, the instructions that its stream names and, for
 * a message or a reduction, what all its ends wait for. Its cause is the one that ended last. A wait is for data if the
 * two share a buffer that one of them writes, otherwise for memory: the bytes were another buffer's. For a timeline
 * alone, the critical path goes back along the causes from the last operation; for a program, critical_path.c finds it.
 */
#include "diff.h"
#include <stdlib.h>
#include <string.h>

/* ---- what an operation waited for ---- */

/* Considers p, which ended before o could begin, as o's cause. The last to end is the cause; on a tie, the plainest
 * reason wins. */
static void consider_cause(struct side *side, int o, int p, int why) {
    struct diff_op *op = &side->op[o];
    if (op->ring == p) /* they start and end together */
        return;
    int64_t end = side->op[p].end, best = op->bind >= 0 ? side->op[op->bind].end : -1;
    if (end > best || (end == best && why < op->why)) {
        op->bind = p;
        op->why = (uint8_t)why;
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

/* Returns whether o waits for p if p is the operation before it in its lane. Messages of an edge follow each other at
 * once: the SEND waits for the SEND before it, and a RECV waits for no RECV. */
bool diff_follows(const struct side *side, int p, int o) {
    const struct diff_lane *lane = &side->lane[side->op[o].lane];
    bool edge = lane->kind == LANE_SEND || lane->kind == LANE_RECV;
    bool follows = edge && is_message(side->op[o].op) && is_message(side->op[p].op);
    return !(follows && is_recv(side->op[o].op) && side->op[p].ring != p);
}

bool diff_waits_in_lane(const struct side *side, int o) {
    return o > side->lane[side->op[o].lane].first && diff_follows(side, o - 1, o);
}

/* Considers what all lanes of a rank wait for where a period begins or ends: the last of them. joined: that
 * instruction, from one such place to the next. */
static void consider_join(struct side *side, const struct rank *k, const int32_t *at, const int32_t *last, int i,
                          int32_t *joined) {
    if (k->period.begin < k->period.end && (i == k->period.begin || i == k->period.end)) {
        *joined = -1;
        for (int l = 0; l < k->nlanes; l++)
            if (last[l] >= 0 && (*joined < 0 || side->op[at[last[l]]].end > side->op[at[*joined]].end))
                *joined = last[l];
    }
    int32_t own = last[k->ins[i].lane];
    int32_t passed = i >= k->period.end ? k->period.end : k->period.begin;
    if (*joined >= 0 && own < passed && *joined != own)
        consider_cause(side, at[i], at[*joined], BY_LANE);
}

/* Waits for memory are the program's own: another tool's run does not reuse bytes as it does. */
static void bind_program(struct side *side) {
    bool recorded = side->steps && side->steps->recorded;
    for (int r = 0; r < side->workers; r++) {
        const struct rank *k = &side->waits->rank[r];
        int32_t *at = side_ops(side, r), *last = NEW(int32_t, k->nlanes);
        const int *sibling = sibling_lanes(k);
        int32_t joined = -1;
        memset(last, -1, sizeof *last * (size_t)k->nlanes);
        for (int i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            for (uint32_t w = x->wait; w < x->wait + x->nwait; w++) {
                bool data = shares(k, &k->ins[k->wait[w]], x);
                if (data || !recorded)
                    consider_cause(side, at[i], at[k->wait[w]], data ? BY_DATA : BY_MEMORY);
            }
            if (diff_waits_in_lane(side, at[i]))
                consider_cause(side, at[i], at[last[x->lane]],
                               shares(k, &k->ins[last[x->lane]], x) ? BY_DATA : BY_LANE);
            consider_join(side, k, at, last, i, &joined);
            int beside = sibling[x->lane] < 0 ? -1 : last[sibling[x->lane]];
            if (beside >= 0) /* a group's two lanes share its links */
                consider_cause(side, at[i], at[beside], BY_LANE);
            last[x->lane] = i;
        }
    }
}

/* ---- causes for a timeline alone ---- */

static const struct side *sorted; /* sort has no context argument */

/* Sorts by end. At equal ends, zero-length operations come last; among these, a reduction precedes the update that
 * needs it, which is in the first lane. */
static int by_end(const void *x, const void *y) {
    int32_t i = *(const int32_t *)x, j = *(const int32_t *)y;
    const struct diff_op *a = &sorted->op[i], *b = &sorted->op[j];
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->lane != b->lane ? b->lane - a->lane : i - j;
}

/* Returns whether p's kind could produce what x needs. Jobs make what is sent; weight gradients end in the update. */
static bool feeds(const struct diff_op *p, const struct diff_op *x) {
    bool same = p->batch >= 0 && x->batch >= 0 ? p->batch == x->batch : p->stage == x->stage;
    bool sum = !is_job(p->op) && op_access(p->op, ROLE_dw) == (ACC_READ | ACC_WRITE);
    return same && !is_send(p->op) && op_lane[x->op] != LANE_RECV && !(is_recv(p->op) && is_send(x->op)) &&
           !(sum && x->batch >= 0);
}

/* Returns the rank's lane that shares its links with lane l: a group has one for gathers and one for reductions. -1:
 * none. */
static int lane_beside(const struct side *side, int l) {
    int wanted = side->lane[l].kind == LANE_GATHER ? LANE_GROUP : side->lane[l].kind == LANE_GROUP ? LANE_GATHER : -1;
    const char *own = strchr(side->lane[l].name, ' ');
    for (int m = side->lane_at[side->lane[l].rank]; own && m < side->lane_at[side->lane[l].rank + 1]; m++) {
        const char *other = strchr(side->lane[m].name, ' ');
        if (side->lane[m].kind == wanted && other && strcmp(own, other) == 0)
            return m;
    }
    return -1;
}

/* Finds the causes of a rank's operations without streams: the rank's last operation on the same microbatch that ended
 * before this one began. Examines only a limited number. All precede it in the order of ends, so none waits for
 * itself. */
static void bind_rank(struct side *side, int first, int n) {
    enum { LOOK_BACK = 64 };
    int32_t *order = NEW(int32_t, n);
    for (int i = 0; i < n; i++)
        order[i] = first + i;
    sorted = side;
    sort(order, (size_t)n, sizeof *order, by_end);
    for (int at = 0; at < n; at++) {
        int o = order[at], low = 0, high = at;
        const struct diff_op *op = &side->op[o];
        int beside = lane_beside(side, op->lane);
        if (diff_waits_in_lane(side, o))
            consider_cause(side, o, o - 1,
                           side->op[o - 1].stage == op->stage && side->op[o - 1].batch == op->batch ? BY_DATA
                                                                                                    : BY_LANE);
        while (low < high) { /* finds how many of them had ended when op began */
            int mid = (low + high) / 2;
            if (side->op[order[mid]].end <= op->start)
                low = mid + 1;
            else
                high = mid;
        }
        for (int i = low - 1; beside >= 0 && i >= 0 && i >= low - LOOK_BACK; i--)
            if (side->op[order[i]].lane == beside) {
                consider_cause(side, o, order[i], BY_LANE);
                break;
            }
        for (int i = low - 1; i >= 0 && i >= low - LOOK_BACK; i--)
            if (feeds(&side->op[order[i]], op)) {
                consider_cause(side, o, order[i], BY_DATA);
                break;
            }
    }
}

static void bind_rows(struct side *side) {
    for (int r = 0; r < side->workers; r++) {
        if (side->lane_at[r] == side->lane_at[r + 1])
            continue;
        const struct diff_lane *last = &side->lane[side->lane_at[r + 1] - 1];
        int first = side->lane[side->lane_at[r]].first;
        bind_rank(side, first, last->first + last->n - first);
    }
}

/* ---- operations that start or end together ---- */

/* Lets all ends of a message wait for the last of their causes; a RECV waits for its SEND. */
static void join_waits(struct side *side) {
    for (int o = 0; o < side->n; o++) {
        if (!side_leads(side, o))
            continue;
        struct diff_op latest = side->op[o];
        for (int i = side->op[o].ring; i != o; i = side->op[i].ring) {
            const struct diff_op *op = &side->op[i];
            if (latest.bind < 0 || (op->bind >= 0 && side->op[op->bind].end > side->op[latest.bind].end))
                latest = *op;
        }
        int i = o;
        do {
            struct diff_op *op = &side->op[i];
            bool receives = is_recv(op->op);
            op->bind = receives ? op->ring : latest.bind;
            op->why = receives ? BY_DATA : latest.why;
            i = op->ring;
        } while (i != o);
    }
}

static int last_of(const struct side *side) {
    int last = -1;
    for (int i = 0; i < side->n; i++)
        if (last < 0 || side->op[i].end > side->op[last].end)
            last = i;
    return last;
}

/* Marks the critical path of a program, as `show` does. */
static void mark_path(struct side *side) {
    const struct program *p = side->waits;
    struct timeline tl = {NEW(double *, p->workers), NEW(double *, p->workers), (double)side->op[last_of(side)].end,
                          .launch = side->launch};
    for (int r = 0; r < p->workers; r++) {
        const int32_t *at = side_ops(side, r);
        tl.start[r] = NEW(double, p->rank[r].nins);
        tl.end[r] = NEW(double, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins; i++) {
            tl.start[r][i] = (double)side->op[at[i]].start;
            tl.end[r][i] = (double)side->op[at[i]].end;
        }
    }
    bool **on = critical_path(p, &tl);
    for (int r = 0; r < p->workers; r++) {
        const int32_t *at = side_ops(side, r);
        for (int i = 0; i < p->rank[r].nins; i++)
            side->op[at[i]].critical = on[r][i];
    }
}

static void find_waits(struct side *side) {
    if (side->waits)
        bind_program(side);
    else
        bind_rows(side);
    join_waits(side);
    if (side->waits && side->n)
        mark_path(side);
    else
        for (int i = last_of(side); i >= 0 && !side->op[i].critical; i = side->op[i].bind)
            side->op[i].critical = true;
}

/* ---- roots ---- */

/* Returns the node of an operation. One that both sides have is one node, with A's number; B's numbers follow A's. */
static int node_of(const struct diff *diff, int side, int op) {
    int a = side == 0 ? op : diff->side[1]->op[op].match;
    return a >= 0 ? a : diff->side[0]->n + op;
}

bool diff_changed(const struct diff_op *op) {
    return op->match < 0 || op->split || op->moved || op->reordered || op->overlaps || op->longer;
}

/* Returns how much later a node ends in B; 0 if only one side has it. */
static int64_t shift_of(const struct diff *diff, int node) {
    int b = node < diff->side[0]->n ? diff->side[0]->op[node].match : -1;
    int64_t shift = b >= 0 ? diff->side[1]->op[b].end - diff->side[0]->op[node].end : 0;
    if (b >= 0 && diff->side[1]->op[b].steady)
        return 0;
    return llabs(shift) > diff->least ? shift : 0;
}

/* Returns the node that pushed this one: its cause on the side where it ends later. -1: it is a root. */
static int pusher_of(const struct diff *diff, int node) {
    int64_t shift = shift_of(diff, node);
    if (shift == 0 || diff_changed(&diff->side[0]->op[node]))
        return -1;
    int side = shift > 0, op = side ? diff->side[0]->op[node].match : node;
    int by = diff->side[side]->op[op].bind;
    if (by < 0)
        return -1;
    int64_t its = shift_of(diff, node_of(diff, side, by));
    bool pushes = diff_changed(&diff->side[side]->op[by]) || (shift > 0 ? its > 0 : its < 0);
    return pushes ? node_of(diff, side, by) : -1;
}

/* Sets root[] to the root of every node, walking each chain of pushers once. */
static void find_roots(const struct diff *diff, int32_t *root, int n) {
    enum { UNKNOWN = -1, WALKING = -2 };
    int32_t *path = NEW(int32_t, n);
    memset(root, 0xff, sizeof *root * (size_t)n);
    for (int i = 0; i < n; i++) {
        int len = 0, at = i;
        while (root[at] == UNKNOWN) {
            root[at] = WALKING;
            path[len++] = at;
            int by = pusher_of(diff, at);
            if (by < 0)
                break;
            at = by;
        }
        int top = root[at] == WALKING ? at : root[at]; /* any of them, in a cycle of contradictory times */
        while (len > 0)
            root[path[--len]] = top;
    }
}

int diff_by_weight(const void *x, const void *y) {
    const struct root *p = x, *q = y;
    if (p->pushed != q->pushed)
        return p->pushed > q->pushed ? -1 : 1;
    if (llabs(p->shift) != llabs(q->shift))
        return llabs(p->shift) > llabs(q->shift) ? -1 : 1;
    return p->a != q->a ? (p->a > q->a) - (p->a < q->a) : (p->b > q->b) - (p->b < q->b);
}

/* Sets root_of, once the list of roots has its order. */
static void number_roots(struct diff *diff) {
    int a = diff->side[0]->n, n = a + diff->side[1]->n;
    int32_t *place = NEW(int32_t, n); /* per root node: its index in the list, from 1 on */
    for (int k = 0; k < diff->nroots; k++)
        place[diff->root[k].a >= 0 ? diff->root[k].a : a + diff->root[k].b] = k + 1;
    for (int i = 0; i < n; i++)
        diff->root_of[i] = place[diff->root_of[i]] - 1;
}

static void list_roots(struct diff *diff) {
    const struct side *a = diff->side[0], *b = diff->side[1];
    int n = a->n + b->n;
    int32_t *root = NEW(int32_t, n);
    struct root *of = NEW(struct root, n);
    find_roots(diff, root, n);
    for (int i = 0; i < n; i++) {
        int64_t shift = shift_of(diff, i);
        struct root *r = &of[root[i]];
        r->pushed += root[i] != i && shift != 0;
        if (root[i] == i ? shift != 0
                         : r->shift == 0 || (shift_of(diff, root[i]) == 0 && llabs(shift) > llabs(r->shift)))
            r->shift = shift;
    }
    diff->root = NEW(struct root, n);
    for (int i = 0; i < n; i++) {
        struct root *r = &of[i];
        r->a = i < a->n ? i : -1;
        r->b = i < a->n ? a->op[i].match : i - a->n;
        if (root[i] != i || r->shift == 0)
            continue;
        r->critical = (r->a >= 0 && a->op[r->a].critical) || (r->b >= 0 && b->op[r->b].critical);
        diff->root[diff->nroots++] = *r;
    }
    diff->root_of = root;
}

int64_t diff_shift(const struct diff *diff, int side, int op) { return shift_of(diff, node_of(diff, side, op)); }

const struct root *diff_root(const struct diff *diff, int side, int op) {
    int k = diff->root_of[node_of(diff, side, op)];
    return k >= 0 ? &diff->root[k] : NULL;
}

void diff_causes(struct diff *diff) {
    for (int k = 0; k < 2; k++) {
        find_waits(diff->side[k]);
        diff->ends[k] = diff_account(diff->side[k], last_of(diff->side[k]), diff->tick, diff->account[k]);
    }
    list_roots(diff);
    diff_undo(diff);
    number_roots(diff);
}
