/* Parts shared by a diff's pictures, static and interactive: which operations are drawn, and why they changed. */
#include "diff_draw.h"
#include <math.h>
#include <string.h>

enum { A, B };

struct instr diff_instr(const struct diff_op *op) {
    return (struct instr){
        .op = op->op, .stage = op->stage, .batch = op->batch, .peer = op->peer, .inst = -1, .msg = -1};
}

double diff_time(const struct diff *diff, int64_t ticks) { return (double)ticks * diff->tick; }

bool diff_draws(const struct side *side, int i) {
    const struct diff_op *op = &side->op[i];
    struct instr x = diff_instr(op);
    return op->end > op->start && paint_of(&x, BY_OP).name && side->lane[op->lane].kind == LANE_COMPUTE;
}

const struct diff_lane *diff_job_lane(const struct side *side, int r) {
    const struct diff_lane *lane = &side->lane[side->lane_at[r]];
    return side->lane_at[r] < side->lane_at[r + 1] && lane->kind == LANE_COMPUTE ? lane : NULL;
}

/* Returns whether two operations overlap by more than half of the shorter; medians of steps may overlap slightly. */
static bool overlap_in_time(const struct diff_op *x, const struct diff_op *y) {
    int64_t start = x->start > y->start ? x->start : y->start, end = x->end < y->end ? x->end : y->end;
    int64_t least = x->end - x->start < y->end - y->start ? x->end - x->start : y->end - y->start;
    return 2 * (end - start) > least;
}

int diff_half(const struct side *side, int i) {
    const struct diff_op *op = &side->op[i];
    const struct diff_lane *lane = &side->lane[op->lane];
    if (i + 1 < lane->first + lane->n && diff_draws(side, i + 1) && overlap_in_time(op, op + 1))
        return 1;
    return i > lane->first && diff_draws(side, i - 1) && overlap_in_time(op - 1, op) ? 2 : 0;
}

bool diff_several_stages(const struct side *side) {
    for (int r = 0; r < side->workers; r++) {
        const struct diff_lane *lane = diff_job_lane(side, r);
        for (int i = lane ? lane->first : 0, first = -1; lane && i < lane->first + lane->n; i++) {
            if (!is_job(side->op[i].op))
                continue;
            if (first >= 0 && side->op[i].stage != first)
                return true;
            first = side->op[i].stage;
        }
    }
    return false;
}

int diff_waited_for(const struct side *side, int i) {
    int by = side->op[i].bind;
    for (int steps = 0; by >= 0 && !diff_draws(side, by) && steps < side->n; steps++)
        by = side->op[by].bind;
    return by;
}

void diff_number_ops(const struct side *s, int32_t ***op_at, int32_t **ins_of, struct producers *producers) {
    *op_at = NEW(int32_t *, s->workers);
    *ins_of = NEW(int32_t, s->n);
    for (int r = 0; r < s->workers; r++) {
        (*op_at)[r] = side_ops(s, r);
        for (int i = 0; i < s->waits->rank[r].nins; i++)
            (*ins_of)[(*op_at)[r][i]] = i;
    }
    *producers = producers_of(s->waits);
}

void diff_rank_times(const struct diff *diff, int side, int r, double **start, double **end) {
    const struct side *s = diff->side[side];
    const int32_t *op_of = side_ops(s, r);
    int n = s->p->rank[r].nins;
    *start = NEW(double, n);
    *end = NEW(double, n);
    for (int i = 0; i < n; i++) {
        (*start)[i] = diff_time(diff, s->op[op_of[i]].start);
        (*end)[i] = diff_time(diff, s->op[op_of[i]].end);
    }
}

double diff_limit(const struct diff *diff) {
    double limit = INFINITY;
    for (int k = 0; k < 2; k++)
        limit = fmin(limit, diff->side[k]->on.memory > 0 ? diff->side[k]->on.memory : INFINITY);
    return limit;
}

/* ---- why an operation changed ---- */

bool diff_is_root(const struct root *root, int side, int i) { return root && (side == A ? root->a : root->b) == i; }

/* Returns an operation's name, with a job's microbatch counted from own's; if own is NULL, as it is. */
static const char *name_from(const struct diff_op *op, const struct diff_op *own) {
    const char *name = diff_op_name(op);
    if (!own || !is_job(op->op) || op->slices || own->slices || op->batch < 0 || own->batch < 0)
        return name;
    const char *at = strstr(name, op_name[op->op]) + strlen(op_name[op->op]);
    return format("%.*s{%+d}%s", (int)(at - name), name, op->batch - own->batch, at + strspn(at, "0123456789"));
}

static void put_cause(struct text *t, const struct diff *diff, const struct root *root, const struct diff_op *own) {
    const struct diff_op *op = root->a >= 0 ? &diff->side[A]->op[root->a] : &diff->side[B]->op[root->b];
    put(t, "; pushed by %s of rank %d", name_from(op, own), op->rank);
}

void diff_put_note(struct text *t, const struct diff *diff, int side, int i, bool relative) {
    static const char *const letter[] = {"A", "B"};
    const struct side *s = diff->side[side], *other = diff->side[!side];
    const struct diff_op *op = &s->op[i], *twin = op->match >= 0 ? &other->op[op->match] : NULL, *in[2];
    const struct diff_op *own = relative ? op : NULL;
    const struct measure measure = diff_measure(diff, false);
    const struct root *root = diff_root(diff, side, i);
    in[side] = op;
    in[!side] = twin;
    if (op->split)
        put(t, "; a backward that is split in %s", letter[op->op == OP_B ? !side : side]);
    else if (!twin)
        put(t, "; only in %s", letter[side]);
    if (diff_shift(diff, side, i))
        put(t, "; ends %s", relative ? "{}" : diff_signed_time(diff, diff_shift(diff, side, i), &measure));
    if (op->longer)
        put(t, "; takes %s",
            diff_signed_time(diff, diff_took(diff->side[B], in[B]) - diff_took(diff->side[A], in[A]), &measure));
    if (op->reread)
        put(t, "; reads v%d instead of v%d", in[B]->version, in[A]->version);
    if (op->moved)
        put(t, "; moved");
    if (op->reordered) {
        int a = side == A ? i : op->match, b = side == A ? op->match : i;
        const struct diff_op *is = diff_before(diff->side[B], b), *was = diff_before(diff->side[A], a);
        put(t, "; reordered: after %s, was after %s", is ? name_from(is, own) : "nothing",
            was ? name_from(was, own) : "nothing");
    }
    if (root && !diff_is_root(root, side, i))
        put_cause(t, diff, root, own);
    else if (root && root->pushed)
        put(t, "; a root: pushed %d", root->pushed);
    if (op->critical || (twin && twin->critical))
        put(t, "; on the critical path of %s",
            !twin || op->critical != twin->critical ? (op->critical == (side == A) ? "A" : "B") : "A and B");
}
