/* Jobs in parts: the layers of a stage one after the other, in several instructions; a backward runs them from the last
 * to the first.
 *
 * All parts name what the job reads and writes, apart from what they exchange with their team and their pieces of the
 * gradient. A part names the pieces that contain its layers' weights, from the last piece to the first. If a boundary
 * falls inside a piece, both neighbouring parts name it. An output is complete with the last part that names it; until
 * then nobody else may read or write it.
 *
 * The parts share a workspace, so no other job that uses it may run between them. A rank has one workspace, and may
 * have a second one. So when the first part arrives, the others must be the rank's next jobs there. They are looked up
 * and checked together at that point; the walk then reaches them without further checks. verify_ranges.c checks that
 * each part names the pieces that it contributes to. */
#include "check_homes.h"

struct divided {
    int32_t first, last; /* its instructions; last 0: no job is in progress */
    struct pieces *part; /* per part */
    size_t cap;
    int32_t sum, table_sum, shared_sum; /* its contributions, to dw, dv and du */
};

void parts_begin(struct check *check) { check->values->divided = NEW(struct divided, 2 * (int64_t)check->p->workers); }

/* Returns whether a job works in its rank's second workspace. */
static bool uses_second_workspace(const struct rank *k, const struct instr *x) {
    int32_t work = operand(k, x, ROLE_work, 0);
    return work >= 0 && k->buf[work].inst >= 0;
}

bool is_workspace(struct check *check, int r, int32_t i, int32_t b) {
    return check->p->rank[r].buf[b].kind == K_work ||
           refute(check, CLAIM_JOBS, r, i, "its workspace is %s", buf_text(check, r, b));
}

/* Returns the job in progress in the workspace of x. */
static struct divided *divided_of(const struct check *check, int r, const struct instr *x) {
    return &check->values->divided[2 * r + uses_second_workspace(&check->p->rank[r], x)];
}

static bool is_same_job(const struct instr *x, const struct instr *y) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->last == y->last;
}

/* Returns the rank's next job after instruction i in the same workspace, or -1. */
static int32_t next_job(const struct rank *k, int32_t i) {
    bool second = uses_second_workspace(k, &k->ins[i]);
    while (++i < k->nins)
        if (is_job(k->ins[i].op) && uses_second_workspace(k, &k->ins[i]) == second)
            return i;
    return -1;
}

static const struct arg *next_other(const struct rank *k, const struct instr *x, const struct arg *a) {
    const struct arg *end = k->arg + x->arg + x->narg;
    while (a < end && (a->role == ROLE_dw || a->role == ROLE_give || a->role == ROLE_got))
        a++;
    return a < end ? a : NULL;
}

static const char one_way[] = "one part writes its gradient where another adds to it";

/* Refutes unless a part names what part 0 names, apart from pieces of the gradient and what its team exchanges. */
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
    return (x->vfirst == first->vfirst && x->ufirst == first->ufirst) || refute(check, CLAIM_JOBS, r, i, one_way);
}

struct named_pieces {
    const struct arg *first; /* first operand; NULL: none so far */
    bool writes;
    int32_t low; /* lowest piece so far; before the first, the number of pieces */
};

/* Refutes unless a part's pieces follow the pieces of the part before, whose lowest one it may name again. */
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
            return refute(check, CLAIM_GRADIENTS, r, i, "%s is not one of the pieces that %s belongs to",
                          arg_text(check, r, a), arg_text(check, r, named->first));
        if (x->first != named->writes)
            return refute(check, CLAIM_JOBS, r, i, one_way);
        bool again = pieces->high < 0 && (int32_t)a->piece == named->low;
        if (!again && (int32_t)a->piece != named->low - 1)
            return refute(check, CLAIM_GRADIENTS, r, i,
                          "%s is out of order: parts must name all pieces, from the last to the first",
                          arg_text(check, r, a));
        named->low = pieces->low = (int32_t)a->piece;
        pieces->high = pieces->high < 0 ? pieces->low : pieces->high;
    }
    return true;
}

static bool find_job_parts(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    struct divided *divided = divided_of(check, r, x);
    struct named_pieces named = {0};
    int32_t at = i;
    bool makes_gradient = x->op == OP_B || x->op == OP_W;
    if (!makes_gradient && !exchanges_in(check, x))
        return refute(check, CLAIM_JOBS, r, i, "only B, W and jobs that exchange data with a team run in parts");
    GROW(divided->part, divided->cap, (size_t)x->last + 1);
    for (int part = 0; part <= x->last; part++) {
        int32_t next = part ? next_job(k, at) : i;
        if (next < 0 || !is_same_job(x, &k->ins[next]) || k->ins[next].part != part)
            return refute(check, CLAIM_JOBS, r, at, "part %d of it is not the rank's next job", part);
        at = next;
        if (!same_operands(check, r, at, x) || !follows(check, r, at, &named, &divided->part[part]))
            return false;
    }
    bool pieces = makes_gradient && has_weights(check->p, x->stage);
    if (pieces && (!named.first || named.low > 0))
        return refute(check, CLAIM_GRADIENTS, r, at, "no part names %s of its gradient",
                      named.first ? format("piece %d", named.low - 1) : "anything");
    int64_t left = pieces ? k->buf[named.first->buf].bytes : 0;
    for (int part = 0, next = i; part <= x->last && pieces; part++, next = next_job(k, next))
        if (!contributes(check, r, next, named.first, divided->part[part], &left))
            return false;
    divided->first = i;
    divided->last = at;
    divided->sum = new_contribution(check, x);
    divided->table_sum = new_contribution(check, x);
    divided->shared_sum = new_contribution(check, x);
    return true;
}

bool begin_part(struct check *check, int r, int32_t i) {
    const struct instr *x = &check->p->rank[r].ins[i];
    struct divided *divided = divided_of(check, r, x);
    int exchanges = exchanges_in(check, x);
    if (exchanges && x->last != exchanges)
        return refute(check, CLAIM_JOBS, r, i,
                      "runs in %d part%s; with its team's exchanges in between, it must have %d", x->last + 1,
                      x->last ? "s" : "", exchanges + 1);
    if (!x->last)
        return true;
    if (x->part == 0)
        return find_job_parts(check, r, i);
    if (!divided->last || i <= divided->first || i > divided->last)
        return refute(check, CLAIM_JOBS, r, i, "no part 0 comes before it");
    return true;
}

bool in_parts(const struct check *check, int r, int32_t i) {
    const struct divided *divided = &check->values->divided[2 * r], *second = divided + 1;
    return (divided->last && divided->first < i && i <= divided->last) ||
           (second->last && second->first < i && i <= second->last);
}

/* Returns the nearest part before x (step -1) or after it (step 1) that names pieces; -1: none. */
static int neighbour(const struct divided *divided, const struct instr *x, int step) {
    int part = x->part + step;
    while (part >= 0 && part <= x->last && divided->part[part].high < 0)
        part += step;
    return part <= x->last ? part : -1;
}

bool written_before(const struct check *check, int r, const struct instr *x, const struct arg *a) {
    const struct divided *divided = divided_of(check, r, x);
    if (!x->part || a->role != ROLE_dw)
        return x->part && (a->role == ROLE_dv || a->role == ROLE_du);
    int before = neighbour(divided, x, -1);
    return before >= 0 && divided->part[before].low == (int32_t)a->piece;
}

bool written_again(const struct check *check, int r, const struct instr *x, const struct arg *a) {
    const struct divided *divided = divided_of(check, r, x);
    if (is_last_part(x) || a->role != ROLE_dw)
        return !is_last_part(x) && (a->role == ROLE_dv || a->role == ROLE_du);
    int after = neighbour(divided, x, 1);
    return after >= 0 && divided->part[after].high == (int32_t)a->piece;
}

int32_t contribution_of(struct check *check, int r, int32_t i, int role) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct divided *divided = divided_of(check, r, x);
    return !x->last          ? new_contribution(check, x)
           : role == ROLE_dv ? divided->table_sum
           : role == ROLE_du ? divided->shared_sum
                             : divided->sum;
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
