/* Teams: all members run each of the team's jobs, and exchange tensors between its parts.
 *
 * The program's `names` lists the stages that are members of a team, and `exchange` what each direction of a stage
 * exchanges. A stage's exchanges are numbered across its directions, F's first. The n-th moves each member's buffer
 * mid#2n, which a part has given. It leaves a sum in place, any other result in mid#(2n + 1). The next part gets the
 * result; a late result goes to the part after that.
 *
 * So a mid is given, then exchanged, or moved if the result has a buffer of its own. A part gets only what has been
 * exchanged. The collective runs once all members have arrived, each with what its part gave, so all of them have given
 * by then. */
#include "check.h"
#include <string.h>

enum { GIVEN, EXCHANGED, MOVED }; /* states of a mid, in its value's count */

static const struct exchanges *exchanges_of(const struct check *check, int s, int d) {
    static const struct exchanges none = {0};
    return check->p->exchange ? &check->p->exchange[(int64_t)s * NDIRS + d] : &none;
}

int exchanges_in(const struct check *check, const struct instr *x) { return exchanges_of(check, x->stage, x->op)->n; }

/* Returns the number of the stage's first exchange of direction d; for NDIRS, the number of all its exchanges. */
static int first_exchange(const struct check *check, int s, int d) {
    int n = 0;
    for (int e = 0; e < d; e++)
        n += exchanges_of(check, s, e)->n;
    return n;
}

/* Returns the operation of a stage's n-th exchange, and sets *d to its direction. */
static int operation_of(const struct check *check, int s, int n, int *d) {
    for (*d = 0; n >= exchanges_of(check, s, *d)->n; ++*d)
        n -= exchanges_of(check, s, *d)->n;
    return exchanges_of(check, s, *d)->at[n].op;
}

static const char *mid_text(const struct check *check, int s, int b, int number) {
    struct text t = {0};
    put_buf(&t, &check->p->names, &(struct buf){.kind = K_mid, .stage = s, .batch = b, .inst = number});
    return t.s;
}

static bool is_mid(const struct check *check, int r, int32_t b, int s, int batch, int number) {
    const struct buf *x = &check->p->rank[r].buf[b];
    return x->kind == K_mid && x->stage == s && x->batch == batch && x->inst == number;
}

/* ---- the teams ---- */

static bool same_exchanges(const struct exchanges *a, const struct exchanges *b) {
    bool same = a->n == b->n;
    for (int n = 0; n < a->n && same; n++)
        same = a->at[n].op == b->at[n].op && a->at[n].late == b->at[n].late;
    return same;
}

/* Returns whether each late exchange has an operation and a part that gets it and nothing else. */
static bool are_got(const struct exchanges *exchange) {
    for (int n = 0; n < exchange->n; n++)
        if (exchange->at[n].late && (exchange->at[n].op == OP_none || n + 1 == exchange->n ||
                                     (exchange->at[n + 1].op != OP_none && !exchange->at[n + 1].late)))
            return false;
    return true;
}

/* Refutes unless the program's teams are the script's, and all members of a team exchange the same. */
static bool are_those_of_script(struct check *check) {
    const struct names *has = &check->p->names, *want = &check->sp->names;
    if (!has->member != !want->member)
        return refute_all(check, CLAIM_JOBS, "the script says that %s stage has a team; the program's %s",
                          want->member ? "some" : "no", has->member ? "do" : "do not");
    for (int s = 0; s < check->p->stages && has->member; s++) {
        const struct member *a = &has->member[s], *b = &want->member[s];
        if (a->stage != b->stage || a->place != b->place || a->size != b->size)
            return refute_all(check, CLAIM_JOBS, "stage %s is member %d of %d; the script says %d of %d",
                              stage_text(check, s), a->place, a->size, b->place, b->size);
        bool whole = check->costs->whole && check->costs->whole[s];
        if ((has->whole && has->whole[s]) != whole)
            return refute_all(check, CLAIM_JOBS, "stage %s has %s parameters that its team's members hold whole",
                              stage_text(check, s), whole ? "some" : "no");
    }
    for (int s = 0; s < check->p->stages && (check->p->exchange || check->costs->exchange); s++)
        for (int d = 0; d < NDIRS; d++) {
            static const struct exchanges none = {0};
            const struct exchanges *must =
                check->costs->exchange ? &check->costs->exchange[(int64_t)s * NDIRS + d] : &none;
            const struct member *member = has->member ? &has->member[s] : NULL;
            int first = member && member->place > 0 ? s - member->place : s;
            if (!same_exchanges(exchanges_of(check, s, d), must))
                return refute_all(check, CLAIM_JOBS, "%s of stage %s exchanges something other than the script says",
                                  op_name[d], stage_text(check, s));
            if (!same_exchanges(exchanges_of(check, first, d), exchanges_of(check, s, d)))
                return refute_all(check, CLAIM_JOBS, "%s of stage %s does not exchange what stage %s exchanges",
                                  op_name[d], stage_text(check, s), stage_text(check, first));
            if (!are_got(exchanges_of(check, s, d)))
                return refute_all(check, CLAIM_JOBS, "a late exchange of %s of stage %s has no separate part",
                                  op_name[d], stage_text(check, s));
            if (exchanges_of(check, s, d)->n && (!member || member->place < 0))
                return refute_all(check, CLAIM_JOBS, "%s of stage %s exchanges something, but has no team", op_name[d],
                                  stage_text(check, s));
        }
    return true;
}

/* Refutes unless all members of a team have the same jobs. */
static bool have_same_jobs(struct check *check) {
    const struct spec *sp = check->sp;
    for (int s = 0; s < sp->stages; s++)
        for (int b = 0; b < sp->batches && sp->names.member[s].place > 0; b++)
            for (int d = 0; d < NDIRS; d++) {
                int first = s - sp->names.member[s].place;
                bool here = job_at(sp, s, b, d) >= 0, there = job_at(sp, first, b, d) >= 0;
                if (here != there)
                    return refute_all(check, CLAIM_JOBS, "there is %s, but no %s, of the same team's job",
                                      job_name(&sp->names, here ? s : first, b, d),
                                      job_name(&sp->names, here ? first : s, b, d));
            }
    return true;
}

/* Refutes unless a rank is always the same member of a team. */
static bool keep_their_places(struct check *check) {
    const struct names *names = &check->sp->names;
    int32_t *seen = NEW(int32_t, names->stages), *by = NEW(int32_t, names->stages); /* by: 1 + the rank that set it */
    for (int r = 0; r < check->p->workers; r++)
        for (int32_t i = 0; i < check->p->rank[r].nins; i++) {
            const struct instr *x = &check->p->rank[r].ins[i];
            if (!is_job(x->op) || x->stage < 0 || x->stage >= check->sp->stages)
                continue;
            int s = names->member[x->stage].stage;
            if (by[s] == r + 1 && seen[s] != x->stage)
                return refute(check, CLAIM_JOBS, r, i, "its rank is another member of that team, %s",
                              stage_text(check, seen[s]));
            by[s] = r + 1;
            seen[s] = x->stage;
        }
    return true;
}

/* Sets the sizes of a stage's mids from the script's costs. A member may give or get only its share of the whole
 * tensor. q: the slice, if there are slices. */
static void know_sizes(struct check *check, int s, int q, int64_t *bytes) {
    const struct stage *st = check->costs->stage ? stage_at(check->costs, s, q) : NULL;
    int size = check->p->names.member[s].size;
    for (int d = 0; d < NDIRS; d++)
        for (int n = 0; n < exchanges_of(check, s, d)->n; n++, bytes += 2) {
            int64_t whole = st && n < st->nstops[d] ? st->stop[d][n].bytes : -1;
            int op = exchanges_of(check, s, d)->at[n].op;
            bytes[0] = op == OP_ALL_GATHER_A && whole >= 0 ? whole / size : whole;
            bytes[1] = op == OP_REDUCE_SCATTER_A && whole >= 0 ? whole / size : whole;
        }
}

/* Returns where the size of a mid is kept: per stage, exchange and slice. */
static int64_t *mid_size(struct check *check, int s, int32_t b, int32_t inst) {
    int q = b % slices_of(&check->p->names);
    return &check->values->mid_bytes[check->values->mid_at[s] + 2 * first_exchange(check, s, NDIRS) * q + inst];
}

bool teams_begin(struct check *check) {
    int64_t n = 0;
    if (!are_those_of_script(check))
        return false;
    if (!check->p->names.member)
        return true;
    if (!have_same_jobs(check) || !keep_their_places(check))
        return false;
    struct values *values = check->values;
    values->mid_at = NEW(int32_t, check->p->stages + 1);
    for (int s = 0; s < check->p->stages; s++) {
        bool first = check->p->names.member[s].place <= 0; /* other members' mids have the same sizes */
        values->mid_at[s] = first ? (int32_t)n : values->mid_at[s - 1];
        n += first ? 2 * first_exchange(check, s, NDIRS) * slices_of(&check->p->names) : 0;
    }
    values->mid_bytes = NEW(int64_t, n + 1);
    for (int s = 0; s < check->p->stages; s++)
        for (int q = 0; q < slices_of(&check->p->names); q++)
            know_sizes(check, s, q, mid_size(check, s, q, 0));
    return true;
}

bool check_mid(struct check *check, int r, int32_t b) {
    const struct buf *x = &check->p->rank[r].buf[b];
    if (x->inst < 0 || x->inst >= 2 * first_exchange(check, x->stage, NDIRS))
        return refute_all(check, CLAIM_JOBS, "rank %d has %s, but stage %s exchanges %d tensors, two numbers each", r,
                          buf_text(check, r, b), stage_text(check, x->stage), first_exchange(check, x->stage, NDIRS));
    int64_t *want = mid_size(check, x->stage, x->batch, x->inst);
    if (*want < 0)
        *want = x->bytes;
    return *want == x->bytes || refute_all(check, CLAIM_MEMORY, "rank %d plans %lld bytes for %s, but others take %lld",
                                           r, (long long)x->bytes, buf_text(check, r, b), (long long)*want);
}

/* ---- parts ---- */

static bool names_mid(struct check *check, int r, int32_t i, int role, int number) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t b = operand(k, x, role, 0);
    if (number < 0)
        return b < 0 || refute(check, CLAIM_JOBS, r, i, "has an operand %s, but %s", role_name[role],
                               role == ROLE_give ? "no exchange follows it" : "it follows no exchange");
    if (b < 0)
        return refute(check, CLAIM_JOBS, r, i, "needs %s as %s, but has no such operand",
                      mid_text(check, x->stage, x->batch, number), role_name[role]);
    return is_mid(check, r, b, x->stage, x->batch, number) ||
           refute(check, CLAIM_JOBS, r, i, "its operand %s is %s, not %s", role_name[role], buf_text(check, r, b),
                  mid_text(check, x->stage, x->batch, number));
}

/* Returns the exchange whose result part p of a job gets; -1: none. */
static int got_by(const struct exchanges *exchange, int p) {
    for (int n = p - 1; n >= 0 && n >= p - 2 && n < exchange->n; n--)
        if (exchange->at[n].op != OP_none && n + 1 + exchange->at[n].late == p)
            return n;
    return -1;
}

bool gives_and_gets(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct exchanges *exchange = exchanges_of(check, x->stage, x->op);
    int first = exchange->n ? first_exchange(check, x->stage, x->op) : 0, gives = -1, gets = -1;
    int got = exchange->n ? got_by(exchange, x->part) : -1;
    if (x->part < exchange->n && exchange->at[x->part].op != OP_none)
        gives = 2 * (first + x->part);
    if (got >= 0)
        gets = 2 * (first + got) + (exchange->at[got].op != OP_ALL_REDUCE_A);
    if (!names_mid(check, r, i, ROLE_give, gives) || !names_mid(check, r, i, ROLE_got, gets))
        return false;
    int32_t b = operand(k, x, ROLE_got, 0);
    return b < 0 || check->values->val[r][b].count == EXCHANGED ||
           refute(check, CLAIM_JOBS, r, i, "gets %s, which its team has not exchanged", buf_text(check, r, b));
}

bool give_buffer(struct check *check, int r, int32_t i, int32_t b) {
    if (check->values->val[r][b].live)
        return refute(check, CLAIM_MEMORY, r, i, "overwrites %s, which is still in use", buf_text(check, r, b));
    if (!open_buffer(check, r, i, b))
        return false;
    check->values->val[r][b].set = true;
    check->values->val[r][b].count = GIVEN;
    return true;
}

/* ---- collectives ---- */

static const char *name_of_exchange(int op) { return exchange_name[op - OP_ALL_REDUCE_A]; }

/* Refutes unless the instruction belongs to the member at its place in the team, and to an exchange that the stage
 * has. */
static bool is_of_member(struct check *check, int r, int32_t i, int m, int n) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct member *member = check->p->names.member;
    int d;
    if (x->stage < 0 || x->stage >= check->sp->stages || x->batch < 0 || x->batch >= check->sp->batches)
        return refute(check, CLAIM_JOBS, r, i, "there is no such stage or microbatch");
    if (!member || member[x->stage].place != m || member[x->stage].size != n)
        return refute(check, CLAIM_JOBS, r, i, "its rank is number %d of %d, but stage %s is not that member", m, n,
                      stage_text(check, x->stage));
    if (x->inst < 0 || x->inst % 2 || x->inst >= 2 * first_exchange(check, x->stage, NDIRS))
        return refute(check, CLAIM_JOBS, r, i, "stage %s has no exchange of that number", stage_text(check, x->stage));
    int op = operation_of(check, x->stage, x->inst / 2, &d);
    return op == x->op ||
           refute(check, CLAIM_JOBS, r, i, "is a %s, but %s of stage %s has a %s", name_of_exchange(x->op), op_name[d],
                  stage_text(check, x->stage), name_of_exchange(op));
}

/* Refutes unless the operands are a buffer that a part has given and, except for a sum, an empty one for the result. */
static bool has_given(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    bool sum = x->op == OP_ALL_REDUCE_A;
    const struct arg *t = find_arg(k, x, ROLE_t, 0), *src = sum ? t : find_arg(k, x, ROLE_src, 0);
    if (!t || !src || x->narg != 2 - sum || t->last || src->last)
        return refute(check, CLAIM_JOBS, r, i, "needs %s, whole", sum ? "an operand t" : "operands src and t");
    for (int second = 0; second <= !sum; second++) {
        int32_t b = second ? t->buf : src->buf;
        if (!is_mid(check, r, b, x->stage, x->batch, x->inst + second))
            return refute(check, CLAIM_JOBS, r, i, "its operand %s is %s, not %s",
                          role_name[second || sum ? ROLE_t : ROLE_src], buf_text(check, r, b),
                          mid_text(check, x->stage, x->batch, x->inst + second));
    }
    return check_reads(check, r, i) &&
           (check->values->val[r][src->buf].count == GIVEN ||
            refute(check, CLAIM_JOBS, r, i, "%s has already been exchanged", buf_text(check, r, src->buf)));
}

/* Refutes unless what a member gives and gets have sizes that fit n shares. */
static bool has_share_sizes(struct check *check, int r, int32_t i, int n) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t src = operand(k, x, ROLE_src, 0), t = operand(k, x, ROLE_t, 0);
    if (x->op == OP_ALL_REDUCE_A)
        return true;
    int64_t from = k->buf[src].bytes, to = k->buf[t].bytes;
    bool equal = x->op == OP_ALL_GATHER_A       ? to % n == 0 && to / n == from
                 : x->op == OP_REDUCE_SCATTER_A ? from % n == 0 && from / n == to
                                                : from == to && from % n == 0;
    return equal ||
           refute(check, CLAIM_MEMORY, r, i, "%s has %lld bytes and %s has %lld, which does not match %d members",
                  buf_text(check, r, src), (long long)from, buf_text(check, r, t), (long long)to, n);
}

static bool takes(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct arg *t = find_arg(k, x, ROLE_t, 0);
    if (x->op != OP_ALL_REDUCE_A) {
        if (!ready(check, r, i, t, (struct tensor_name){K_mid, x->stage, x->batch, x->inst + 1}))
            return false;
        check->values->val[r][operand(k, x, ROLE_src, 0)].count = MOVED;
    }
    check->values->val[r][t->buf].set = true;
    check->values->val[r][t->buf].count = EXCHANGED;
    return free_buffers(check, r, i, false);
}

bool verify_exchange(struct check *check, const struct series *series, int32_t nth) {
    int n = series->g->n;
    verify_work += n;
    for (int m = 0; m < n; m++) {
        int r = series->g->rank[m];
        int32_t i = series->ins[m][nth];
        if (!is_of_member(check, r, i, m, n) || !has_given(check, r, i) || !has_share_sizes(check, r, i, n))
            return false;
    }
    for (int m = 0; m < n; m++)
        if (!takes(check, series->g->rank[m], series->ins[m][nth]))
            return false;
    return true;
}
