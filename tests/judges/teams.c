/* Teams: what their members exchange between the parts of a job.
 *
 * Each part gives a value of its own, so the values of all members determine what an exchange must bring, byte by byte:
 * a sum contains each member's once, a gather or an exchange has each member's piece in its place. A part must get
 * exactly that. */
#include "symbols.h"

static const struct exchanges *exchange_list(const struct promise *want, int s, int d) {
    return want->costs->exchange ? &want->costs->exchange[(int64_t)s * NDIRS + d] : NULL;
}

int exchanges_of(const struct promise *want, int s, int d) {
    return want->costs->exchange ? exchange_list(want, s, d)->n : 0;
}

int first_member(const struct promise *want, int s) {
    const struct member *member = want->sp->names.member;
    return member && member[s].place > 0 ? s - member[s].place : s;
}

uint64_t given_by(const struct promise *want, int32_t j, int p) {
    const struct job *job = &want->sp->job[j];
    uint64_t read = 0;
    for (int role = 0; role < NROLES; role++)
        read += mix(want->in[j][role] + (uint64_t)role);
    return value(K_mid, job->s, job->b, (uint64_t)(job->d * 256 + p), read);
}

/* Returns byte n, of `bytes`, of the result of the exchange after part p of job j. */
static uint64_t exchanged(const struct promise *want, int32_t j, int p, int64_t n, int64_t bytes) {
    const struct job *job = &want->sp->job[j];
    const struct member *me = &want->sp->names.member[job->s];
    int op = exchange_list(want, job->s, job->d)->at[p].op;
    int64_t share = bytes / me->size;
    uint64_t sum = 0;
    for (int m = 0; m < me->size; m++) {
        int32_t other = job_at(want->sp, first_member(want, job->s) + m, job->b, job->d);
        uint64_t v = other >= 0 ? given_by(want, other, p) : 0;
        if (op == OP_ALL_REDUCE_A)
            sum += byte_of(v, n);
        else if (op == OP_REDUCE_SCATTER_A)
            sum += byte_of(v, me->place * bytes + n);
        else if (op == OP_ALL_GATHER_A && (share ? n / share : 0) == m)
            return byte_of(v, share ? n % share : 0);
        else if (op == OP_ALL_TO_ALL_A && (share ? n / share : me->size - 1) == m)
            return byte_of(v, share ? me->place * share + n % share : 0);
    }
    return sum & ~STAMP;
}

/* Returns the exchange that part p gets: the one after the previous part, or a late one after the part before that. */
static int got_from(const struct promise *want, int s, int d, int p) {
    const struct exchange *at = exchange_list(want, s, d)->at;
    int n = exchanges_of(want, s, d), from = -1;
    for (int e = 0; e < n; e++)
        if (at[e].op != OP_none && p == (at[e].late ? e + 2 : e + 1))
            from = e;
    return from;
}

const char *exchange_error(const struct promise *want, const struct rank *k, const struct instr *x, uint64_t **seen) {
    int32_t j = job_at(want->sp, x->stage, x->batch, x->op);
    int n = exchanges_of(want, x->stage, x->op), got = operand_of(k, x, ROLE_got);
    if (!n)
        return NULL;
    if (x->last != n)
        return "has other parts than its exchanges make";
    if ((operand_of(k, x, ROLE_give) >= 0) != (mid_given(want, x) >= 0))
        return "gives nothing to its team, or what no exchange takes";
    int from = got_from(want, x->stage, x->op, x->part);
    if ((got >= 0) != (from >= 0))
        return "gets nothing from its team, or what no exchange brings";
    if (from < 0)
        return NULL;
    struct span s = span_at(k, x, got);
    for (int64_t b = 0; b < s.n; b++)
        if (seen[got][b] != exchanged(want, j, from, b, k->buf[operand(k, x, got).buf].bytes))
            return format("byte %lld of what it gets is not what its team exchanges", (long long)b);
    return NULL;
}

/* ---- numbers and sizes ---- */

/* Returns the index of direction d's first exchange among all exchanges of the stage. */
static int exchanges_before(const struct promise *want, int s, int d) {
    int n = 0;
    for (int e = 0; e < d; e++)
        n += exchanges_of(want, s, e);
    return n;
}

int32_t mid_given(const struct promise *want, const struct instr *x) {
    bool gives = x->part < exchanges_of(want, x->stage, x->op) &&
                 exchange_list(want, x->stage, x->op)->at[x->part].op != OP_none;
    return gives ? 2 * (exchanges_before(want, x->stage, x->op) + x->part) : -1;
}

int32_t mid_got(const struct promise *want, const struct instr *x) {
    if (x->part < 1 || x->part > exchanges_of(want, x->stage, x->op))
        return -1;
    int from = got_from(want, x->stage, x->op, x->part);
    if (from < 0)
        return -1;
    bool in_place = exchange_list(want, x->stage, x->op)->at[from].op == OP_ALL_REDUCE_A;
    return 2 * (exchanges_before(want, x->stage, x->op) + from) + !in_place;
}

/* Returns the bytes of a mid with that number, if the model gives them, or -1. */
static int64_t known_bytes(const struct promise *want, int s, int32_t number) {
    const struct stage *st = want->costs->stage ? &want->costs->stage[s] : NULL;
    int n = number / 2, d = 0;
    while (st && d < NDIRS && n >= exchanges_of(want, s, d))
        n -= exchanges_of(want, s, d++);
    if (!st || d == NDIRS || n >= st->nstops[d])
        return -1;
    int op = exchange_list(want, s, d)->at[n].op, shared = number % 2 ? OP_REDUCE_SCATTER_A : OP_ALL_GATHER_A;
    return op == shared ? st->stop[d][n].bytes / want->sp->names.member[s].size : st->stop[d][n].bytes;
}

const char *mid_error(const struct promise *want, const struct program *p) {
    for (int r = 0; r < p->workers; r++)
        for (const struct buf *b = p->rank[r].buf; b < p->rank[r].buf + p->rank[r].nbufs; b++) {
            if (b->kind != K_mid || b->inst < 0 || b->stage < 0 || b->stage >= want->sp->stages)
                continue;
            int64_t must = known_bytes(want, b->stage, b->inst);
            if (must >= 0 && b->bytes != must)
                return format("a mid has %lld bytes, not %lld", (long long)b->bytes, (long long)must);
            for (int q = 0; q <= r; q++)
                for (const struct buf *o = p->rank[q].buf; o < p->rank[q].buf + p->rank[q].nbufs; o++)
                    if (o->kind == K_mid && o->inst == b->inst && o->stage >= 0 && o->stage < want->sp->stages &&
                        first_member(want, o->stage) == first_member(want, b->stage) && o->bytes != b->bytes)
                        return format("mids of one number have %lld and %lld bytes", (long long)o->bytes,
                                      (long long)b->bytes);
        }
    return NULL;
}

/* ---- statements ---- */

const char *false_exchange(const struct promise *want, const struct instr *x, int me, int n) {
    const struct member *member = want->sp->names.member;
    int number = x->inst / 2, d = 0;
    if (!member || x->stage >= want->sp->stages || member[x->stage].place != me || member[x->stage].size != n)
        return "its ranks are not the members of its stage in their order";
    while (d < NDIRS && number >= exchanges_of(want, x->stage, d))
        number -= exchanges_of(want, x->stage, d++);
    if (x->inst < 0 || x->inst % 2 || d == NDIRS || exchange_list(want, x->stage, d)->at[number].op != x->op)
        return "its stage has no such exchange";
    return NULL;
}

const char *team_error(const struct spec *sp) {
    const struct member *member = sp->names.member;
    for (int32_t j = 0; j < sp->njobs && member; j++) {
        const struct job *job = &sp->job[j];
        const struct member *me = &member[job->s];
        for (int m = 0; m < me->size && me->place >= 0; m++)
            if (job_at(sp, job->s - me->place + m, job->b, job->d) < 0)
                return "a job is not of all members of its team";
        for (int32_t i = 0; i < j; i++)
            if (sp->job[i].rank == job->rank && sp->job[i].s != job->s && member[sp->job[i].s].stage == me->stage)
                return "a rank is two members of a team";
    }
    return NULL;
}
