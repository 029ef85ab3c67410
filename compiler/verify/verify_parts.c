/* Backwards in parts: the layers of a stage from the last to the first, in several instructions.
 *
 * All parts name what the job reads and makes, and of the gradient the pieces that their layers have weights in, from
 * the last piece to the first. A piece belongs to neighbouring parts where a boundary falls inside. What the job makes
 * is complete with the last part that names it; until then nobody else may read or write it. No job may run between
 * the parts, which share the workspace. So when the first part comes, the others are found ahead of it, as the rank's
 * next jobs, and checked as one; the walk then finds them as they are. Where the model is known, the pieces that a part
 * names are compared with its layers'; a text says nothing of layers. */
#include "check.h"

struct pieces { /* that a part names: from the highest to the lowest; -1: none */
    int32_t high, low;
};
struct backward {
    int32_t first, last; /* its instructions; last 0: no backward is under way */
    struct pieces *part; /* per part */
    size_t cap;
    int32_t sum, table_sum; /* its contributions, to dw and to dv */
};

void parts_begin(struct check *check) { check->values->backward = NEW(struct backward, check->p->workers); }

static bool same_job(const struct instr *x, const struct instr *y) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->last == y->last;
}

/* The rank's next job after instruction i, or -1. */
static int32_t next_job(const struct rank *k, int32_t i) {
    while (++i < k->nins)
        if (is_job(k->ins[i].op))
            return i;
    return -1;
}

static const struct arg *next_other(const struct rank *k, const struct instr *x, const struct arg *a) {
    const struct arg *end = k->arg + x->arg + x->narg;
    while (a < end && a->role == ROLE_dw)
        a++;
    return a < end ? a : NULL;
}

static const char one_way[] = "one part writes its gradient where another adds to it";

/* A part names what part 0 names, apart from pieces of the gradient. */
static bool same_operands(struct check *check, int r, int32_t i, const struct instr *first) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct arg *a = next_other(k, first, k->arg + first->arg), *b = next_other(k, x, k->arg + x->arg);
    for (; a && b; a = next_other(k, first, a + 1), b = next_other(k, x, b + 1))
        if (a->role != b->role || a->buf != b->buf || a->piece != b->piece || a->last != b->last)
            break;
    if (a || b)
        return refute(check, CLAIM_JOBS, r, i, "%s, and part 0 has %s", b ? arg_text(check, r, b) : "lacks an operand",
                      a ? arg_text(check, r, a) : "no such operand");
    return x->vfirst == first->vfirst || refute(check, CLAIM_JOBS, r, i, one_way);
}

struct named_pieces {
    const struct arg *first; /* NULL: none so far */
    bool writes;
    int32_t low; /* the lowest so far; how many there are, before the first */
};

/* The pieces that a part names follow those of the part before, whose lowest one it may name again. */
static bool follows(struct check *check, int r, int32_t i, struct named_pieces *named, struct pieces *pieces) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    *pieces = (struct pieces){-1, -1};
    for (const struct arg *a = k->arg + x->arg; a < k->arg + x->arg + x->narg; a++) {
        if (a->role != ROLE_dw)
            continue;
        if (!named->first)
            *named = (struct named_pieces){a, x->first, pieces_of(a)};
        if (a->buf != named->first->buf || a->last != named->first->last)
            return refute(check, CLAIM_GRADIENTS, r, i, "%s is no piece of those that %s is of", arg_text(check, r, a),
                          arg_text(check, r, named->first));
        if (x->first != named->writes)
            return refute(check, CLAIM_JOBS, r, i, one_way);
        bool again = pieces->high < 0 && (int32_t)a->piece == named->low;
        if (!again && (int32_t)a->piece != named->low - 1)
            return refute(check, CLAIM_GRADIENTS, r, i,
                          "%s is out of order: parts name all pieces, from the last to the first",
                          arg_text(check, r, a));
        named->low = pieces->low = (int32_t)a->piece;
        pieces->high = pieces->high < 0 ? pieces->low : pieces->high;
    }
    return true;
}

/* Where the layers are known: a part names every piece in which its layers have parameters. */
static bool names_its_layers(struct check *check, int r, int32_t i, int pieces, struct pieces named) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct stage *st = check->sp->stage ? &check->sp->stage[x->stage] : NULL;
    if (!st || !st->rt.nlayers)
        return true;
    if (st->parts != x->last + 1)
        return refute(check, CLAIM_JOBS, r, i, "the backward of its stage runs in %d part%s", st->parts,
                      st->parts == 1 ? "" : "s");
    for (int layer = st->cut[x->part + 1]; layer < st->cut[x->part]; layer++) {
        const struct rt_layer *l = &st->rt.layer[layer];
        int64_t all = st->bytes[K_weight], end = l->param + l->nparam * precision_bytes(check->sp->model->rt.precision);
        if (l->nparam && (l->param * pieces / all < named.low || (end - 1) * pieces / all > named.high))
            return refute(check, CLAIM_GRADIENTS, r, i, "its layer %d has parameters in pieces that it does not name",
                          layer);
    }
    return true;
}

static bool find_parts(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    struct backward *backward = &check->values->backward[r];
    struct named_pieces named = {0};
    int32_t at = i;
    if (x->op != OP_B && x->op != OP_W)
        return refute(check, CLAIM_JOBS, r, i, "only B and W run in parts");
    GROW(backward->part, backward->cap, (size_t)x->last + 1);
    for (int part = 0; part <= x->last; part++) {
        int32_t next = part ? next_job(k, at) : i;
        if (next < 0 || !same_job(x, &k->ins[next]) || k->ins[next].part != part)
            return refute(check, CLAIM_JOBS, r, at, "part %d of it is not the rank's next job", part);
        at = next;
        if (!same_operands(check, r, at, x) || !follows(check, r, at, &named, &backward->part[part]))
            return false;
    }
    if (!named.first || named.low > 0)
        return refute(check, CLAIM_GRADIENTS, r, at, "no part names %s of its gradient",
                      named.first ? format("piece %d", named.low - 1) : "anything");
    for (int part = 0, next = i; part <= x->last; part++, next = next_job(k, next))
        if (!names_its_layers(check, r, next, pieces_of(named.first), backward->part[part]))
            return false;
    backward->first = i;
    backward->last = at;
    backward->sum = new_contribution(check, x);
    backward->table_sum = new_contribution(check, x);
    return true;
}

bool begin_part(struct check *check, int r, int32_t i) {
    const struct instr *x = &check->p->rank[r].ins[i];
    struct backward *backward = &check->values->backward[r];
    if (!x->last)
        return true;
    if (x->part == 0)
        return find_parts(check, r, i);
    if (!backward->last || i <= backward->first || i > backward->last)
        return refute(check, CLAIM_JOBS, r, i, "no part 0 has come before it");
    return true;
}

bool in_parts(const struct check *check, int r, int32_t i) {
    const struct backward *backward = &check->values->backward[r];
    return backward->last && backward->first < i && i <= backward->last;
}

/* The part next to x, before it or after it, that names pieces; -1: none. */
static int neighbour(const struct backward *backward, const struct instr *x, int step) {
    int part = x->part + step;
    while (part >= 0 && part <= x->last && backward->part[part].high < 0)
        part += step;
    return part <= x->last ? part : -1;
}

bool written_before(const struct check *check, int r, const struct instr *x, const struct arg *a) {
    const struct backward *backward = &check->values->backward[r];
    if (!x->part || a->role != ROLE_dw)
        return x->part && a->role == ROLE_dv;
    int before = neighbour(backward, x, -1);
    return before >= 0 && backward->part[before].low == (int32_t)a->piece;
}

bool written_again(const struct check *check, int r, const struct instr *x, const struct arg *a) {
    const struct backward *backward = &check->values->backward[r];
    if (is_last_part(x) || a->role != ROLE_dw)
        return !is_last_part(x) && a->role == ROLE_dv;
    int after = neighbour(backward, x, 1);
    return after >= 0 && backward->part[after].high == (int32_t)a->piece;
}

int32_t contribution_of(struct check *check, int r, int32_t i, int role) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct backward *backward = &check->values->backward[r];
    return !x->last ? new_contribution(check, x) : role == ROLE_dv ? backward->table_sum : backward->sum;
}

bool write_part(struct check *check, int r, int32_t i, int32_t b) {
    struct value *value = &check->values->val[r][b];
    if (!value->live || !value->half)
        return refute(check, CLAIM_MEMORY, r, i, "%s has been freed or overwritten since the part before",
                      buf_text(check, r, b));
    value->set = is_last_part(&check->p->rank[r].ins[i]);
    value->half = !value->set;
    return true;
}
