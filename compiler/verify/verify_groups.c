/* Applies a collective to the buffers of its members, once all of them have arrived.
 *
 * Each member's operands are parts of the collective's set of weights. Its source and destination must be exactly the
 * parts that the operation reads and writes there. If each member's source holds one value throughout, as usual, a
 * collective costs a few steps per member; each further run of differing pieces adds a step. */
#include "check_homes.h"

struct party {
    int r;
    int32_t i;
    const struct arg *src, *to;
    struct span from, into;
};

/* The members' pieces, concatenated in order */
struct made {
    struct span span;
    struct content held;
};
struct list {
    struct made *made;
    size_t n, cap;
};

struct meeting {
    struct check *check;
    const struct instr *x; /* the first member's */
    int claim, n;
    struct party *member;
    size_t cap;
    struct span all; /* the units that are gathered, reduced or scattered */
    struct list list;
};

static bool no(const struct meeting *meeting, int m, const char *what) {
    return refute(meeting->check, meeting->claim, meeting->member[m].r, meeting->member[m].i, "%s", what);
}

static bool is_of_set(const struct meeting *meeting, const struct party *m, const struct arg *a) {
    const struct buf *b = &meeting->check->p->rank[m->r].buf[a->buf];
    bool kind = meeting->claim == CLAIM_JOBS ? holds_weights(b->kind)
                                             : holds_gradient(b->kind) && names_own_part(meeting->check, m->r, b);
    return kind && b->stage == meeting->x->stage;
}

/* Refutes unless a member has the operands it needs; a root needs different ones. */
static bool has_operands(const struct meeting *meeting, int m) {
    const struct party *member = &meeting->member[m];
    bool root = meeting->x->peer == member->r, src = true, to = true;
    switch (meeting->x->op) {
    case OP_ALL_REDUCE: src = false; break;
    case OP_BROADCAST: src = root, to = !root; break;
    case OP_REDUCE: to = root; break;
    default: break;
    }
    if (src == (member->src != NULL) && to == (member->to != NULL))
        return true;
    return no(meeting, m, format("needs %s source and %s destination here", src ? "a" : "no", to ? "a" : "no"));
}

/* Refutes unless an operand is exactly this part of the set, in a buffer of the right kind. */
static bool is_part(const struct meeting *meeting, int m, const struct arg *a, struct span is, struct span must) {
    const struct party *member = &meeting->member[m];
    if (!is_of_set(meeting, member, a))
        return no(meeting, m,
                  format("%s is not a part of %s(%d)", arg_text(meeting->check, member->r, a),
                         kind_name[op_row(meeting->x->op)->tensor], meeting->x->stage));
    if (must.to < 0)
        return no(meeting, m, format("%s is not %d equal pieces", arg_text(meeting->check, member->r, a), meeting->n));
    if (meeting->claim == CLAIM_GRADIENTS && !is_of_its_update(meeting->check, member->r, member->i, a->buf))
        return false;
    return same_span(is, must) ||
           no(meeting, m,
              format("%s is %s of set %d, but must be %s", arg_text(meeting->check, member->r, a), span_text(is),
                     meeting->x->stage, span_text(must)));
}

/* ---- weights: ALL_GATHER, BROADCAST ---- */

/* Prepares a destination: a home's own weights, or an empty buffer named as the label says. In place, the source
 * stays. */
static bool ready_for_weights(const struct meeting *meeting, int m) {
    struct check *check = meeting->check;
    const struct party *member = &meeting->member[m];
    const struct buf *b = &check->p->rank[member->r].buf[member->to->buf];
    const struct value *value = &check->values->val[member->r][member->to->buf];
    bool in_place = member->src && member->src->buf == member->to->buf;
    if (at_home(b))
        return meeting->x->inst < 0 || no(meeting, m, "has an instance, but gathers into a home's weights");
    if (!in_place || !value->live)
        return ready(check, member->r, member->i, member->to,
                     (struct tensor_name){K_weight, meeting->x->stage, -1, meeting->x->inst});
    struct span before = {member->into.from, member->from.from}, after = {member->from.to, member->into.to};
    if (first_set(check, member->r, member->to->buf, before) >= 0 ||
        first_set(check, member->r, member->to->buf, after) >= 0)
        return refute(check, CLAIM_MEMORY, member->r, member->i, "overwrites %s, which is still in use",
                      arg_text(check, member->r, member->to));
    return named(check, member->r, member->i, member->to->buf,
                 (struct tensor_name){K_weight, meeting->x->stage, -1, meeting->x->inst});
}

static void add_made(struct list *list, struct span span, struct content held) {
    struct made *last = list->n ? &list->made[list->n - 1] : NULL;
    if (last && last->held.set == held.set && last->held.count == held.count && last->held.sum == held.sum) {
        last->span.to = span.to;
        return;
    }
    GROW(list->made, list->cap, list->n + 1);
    list->made[list->n++] = (struct made){span, held};
}

static void put_made(struct check *check, int r, int32_t b, const struct list *list) {
    for (size_t n = 0; n < list->n; n++)
        hold(check, r, b, list->made[n].span, list->made[n].held);
}

static bool gather(struct meeting *meeting) {
    struct check *check = meeting->check;
    bool one = meeting->x->op == OP_BROADCAST;
    const struct party *any = &meeting->member[0];
    meeting->all = one && any->src ? any->from : any->into;
    for (int m = 0; m < meeting->n; m++) {
        const struct party *member = &meeting->member[m];
        struct span part = one ? meeting->all : part_of(meeting->all, m, meeting->n);
        if ((member->src && !is_part(meeting, m, member->src, member->from, part)) ||
            (member->to && !is_part(meeting, m, member->to, member->into, meeting->all)))
            return false;
        for (int32_t at = member->from.from, to; member->src && at < member->from.to; at = to) {
            struct content held = held_at(check, member->r, member->src->buf, at, &to);
            to = to < member->from.to ? to : member->from.to;
            add_made(&meeting->list, (struct span){at, to}, held);
        }
    }
    for (int m = 0; m < meeting->n; m++) {
        const struct party *member = &meeting->member[m];
        if (!member->to)
            continue;
        if (!ready_for_weights(meeting, m))
            return false;
        put_made(check, member->r, member->to->buf, &meeting->list);
    }
    return true;
}

/* ---- gradients: ALL_REDUCE, REDUCE_SCATTER, REDUCE ---- */

/* Sums all members' sources, unit by unit, in the order of the members. */
static bool sum_members(struct meeting *meeting) {
    struct check *check = meeting->check;
    for (int32_t at = meeting->all.from, to; at < meeting->all.to; at = to) {
        struct content sum = {.sum = NO_SUM, .set = true};
        to = meeting->all.to;
        for (int m = 0; m < meeting->n; m++) {
            const struct party *member = &meeting->member[m];
            int32_t end, more = held_at(check, member->r, (member->src ? member->src : member->to)->buf, at, &end).sum;
            to = end < to ? end : to;
            int64_t n = contributions(check, sum.sum) + contributions(check, more);
            if (!join(check, &sum.sum, more))
                return refute_count(check, member->r, member->i, meeting->x->stage, n);
        }
        add_made(&meeting->list, (struct span){at, to}, sum);
    }
    return true;
}

/* Refutes unless a member's source and destination are the parts that the operation prescribes. */
static bool is_reduced(const struct meeting *meeting, int m) {
    const struct party *member = &meeting->member[m];
    int op = meeting->x->op;
    struct span part = op == OP_REDUCE_SCATTER ? part_of(meeting->all, m, meeting->n) : meeting->all;
    if ((member->src && !is_part(meeting, m, member->src, member->from, meeting->all)) ||
        (member->to && !is_part(meeting, m, member->to, member->into, part)))
        return false;
    bool in_place = member->src && member->to && member->src->buf == member->to->buf;
    bool first = meeting->check->p->rank[member->r].ins[member->i].first;
    return !in_place || (op != OP_ALL_REDUCE && first) ||
           no(meeting, m, "in its source it may only write its piece, not add to it");
}

/* Writes a member's result. In place, the rest of its source becomes undefined. */
static bool take_reduced(const struct meeting *meeting, int m) {
    struct check *check = meeting->check;
    const struct list *list = &meeting->list;
    const struct party *member = &meeting->member[m];
    int r = member->r;
    const struct instr *x = &check->p->rank[r].ins[member->i];
    struct value *value = &check->values->val[r][member->to->buf];
    bool adds = meeting->x->op != OP_ALL_REDUCE && !x->first;
    if (!value->live && !open_buffer(check, r, member->i, member->to->buf))
        return false;
    if (member->src && member->src->buf == member->to->buf)
        hold(check, r, member->src->buf, member->from, (struct content){0});
    size_t low = 0, high = list->n - 1; /* finds the first run that ends after the part begins */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->made[middle].span.to > member->into.from)
            high = middle;
        else
            low = middle + 1;
    }
    for (int32_t at = member->into.from, to; at < member->into.to; at = to) {
        while (list->made[low].span.to <= at)
            low++;
        to = list->made[low].span.to < member->into.to ? list->made[low].span.to : member->into.to;
        struct content held = {.sum = NO_SUM, .set = true};
        if (adds) {
            int32_t end;
            held = held_at(check, r, member->to->buf, at, &end);
            to = end < to ? end : to;
        }
        int64_t n = contributions(check, held.sum) + contributions(check, list->made[low].held.sum);
        if (!join(check, &held.sum, list->made[low].held.sum))
            return refute_count(check, r, member->i, meeting->x->stage, n);
        hold(check, r, member->to->buf, (struct span){at, to}, held);
    }
    return true;
}

static bool reduce(struct meeting *meeting) {
    const struct party *any = &meeting->member[0];
    meeting->all = any->src ? any->from : any->into;
    for (int m = 0; m < meeting->n; m++)
        if (!is_reduced(meeting, m))
            return false;
    if (!sum_members(meeting))
        return false;
    for (int m = 0; m < meeting->n; m++)
        if (meeting->member[m].to && !take_reduced(meeting, m))
            return false;
    return true;
}

bool values_collective(struct check *check, const struct series *series, int32_t nth) {
    const struct instr *x = &check->p->rank[series->g->rank[0]].ins[series->ins[0][nth]];
    if (op_lane[x->op] == LANE_TEAM)
        return verify_exchange(check, series, nth);
    if (x->op == OP_ALL_REDUCE_N)
        return add_up_norms(check, series, nth);
    struct meeting *meeting = check->values->meeting;
    meeting = check->values->meeting = meeting ? meeting : NEW(struct meeting, 1);
    meeting->check = check;
    meeting->x = x;
    meeting->n = series->g->n;
    meeting->claim = op_row(x->op)->tensor == K_wgrad ? CLAIM_GRADIENTS : CLAIM_JOBS;
    meeting->list.n = 0;
    GROW(meeting->member, meeting->cap, (size_t)meeting->n);
    verify_work += meeting->n;
    int role = meeting->claim == CLAIM_JOBS ? ROLE_w : ROLE_dw;
    for (int m = 0; m < meeting->n; m++) {
        struct party *member = &meeting->member[m];
        *member = (struct party){.r = series->g->rank[m], .i = series->ins[m][nth]};
        const struct rank *k = &check->p->rank[member->r];
        const struct instr *mine = &k->ins[member->i];
        if (mine->stage < 0 || mine->stage >= check->values->sets.n)
            return refute(check, CLAIM_JOBS, member->r, member->i, "there are %d stages", check->sp->stages);
        if (!check_reads(check, member->r, member->i))
            return false;
        member->src = find_arg(k, mine, ROLE_src, 0);
        member->to = find_arg(k, mine, role, 0);
        if (!has_operands(meeting, m))
            return false;
        if (member->src)
            member->from = units_of(check, member->r, member->src);
        if (member->to)
            member->into = units_of(check, member->r, member->to);
    }
    bool ok = meeting->claim == CLAIM_JOBS ? gather(meeting) : reduce(meeting);
    for (int m = 0; m < meeting->n && ok; m++)
        ok = free_buffers(check, meeting->member[m].r, meeting->member[m].i, false);
    return ok;
}
