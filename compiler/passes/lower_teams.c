/* Exchanges of a team's members between the parts of their jobs.
 *
 * A part gives a tensor of its own, mid, to a collective on the team's lane, and a later part receives the result. All
 * members' collectives take one place in the global order: the moment at which the last member has reached it. */
#include "lower.h"
#include <math.h>

/* Returns the number of the tensor that an exchange is given. The exchanges of a stage are numbered consecutively,
 * direction by direction. The given tensor has twice the exchange's number; the received one, unless it is the same in
 * place, one more. */
static int mid_number(const struct build *build, const struct job *job, int exchange) {
    int n = exchange;
    for (int d = 0; d < job->d; d++)
        n += build->costs->stage[job->s].nstops[d];
    return 2 * n;
}

/* Returns the tensor that part p of a job gives, or receives in return. At most two exist at a time. */
static int32_t *mid_of(struct build *build, int32_t j, int p) { return &build->teams.mid[2 * j + p % 2]; }

static int32_t open_mid(struct build *build, const struct job *job, int number, int64_t bytes, int uses) {
    int32_t buf = new_buf(build, job->rank, (struct buf){K_mid, job->s, job->b, number, .bytes = bytes}, uses);
    push_event(build, job->rank, buf);
    return buf;
}

void give_and_get(struct build *build, int32_t j, int p) {
    const struct job *job = &build->costs->job[j];
    const struct stage *st = stage_at(build->costs, job->s, job->b);
    if (is_second(build->costs, j))
        add_operand(build, job->rank, ROLE_work, build->teams.second_work[job->rank]);
    int got = stop_got(st->stop[job->d], p);
    if (got >= 0) {
        add_operand(build, job->rank, ROLE_got, *mid_of(build, j, got));
        use_up(build, job->rank, *mid_of(build, j, got));
    }
    if (p == st->nstops[job->d] || st->stop[job->d][p].exchange.op == OP_none)
        return;
    const struct stop *stop = &st->stop[job->d][p];
    int op = stop->exchange.op;
    int64_t bytes = op == OP_ALL_GATHER_A ? stop->bytes / team_size(build->sp, job->s) : stop->bytes;
    *mid_of(build, j, p) = open_mid(build, job, mid_number(build, job, p), bytes, op == OP_ALL_REDUCE_A ? 2 : 1);
    add_operand(build, job->rank, ROLE_give, *mid_of(build, j, p));
}

/* Adds the operands of an exchange whose result goes into a new buffer. */
static void move_mid(struct build *build, int32_t j, int p, const struct stop *stop, double t) {
    const struct job *job = &build->costs->job[j];
    struct rank *k = &build->p->rank[job->rank];
    int32_t from = *mid_of(build, j, p);
    bool share = stop->exchange.op == OP_REDUCE_SCATTER_A;
    int64_t bytes = share ? stop->bytes / team_size(build->sp, job->s) : stop->bytes;
    *mid_of(build, j, p) = open_mid(build, job, k->buf[from].inst + 1, bytes, 1);
    add_operand(build, job->rank, ROLE_src, from);
    add_operand(build, job->rank, ROLE_t, *mid_of(build, j, p));
    end_use(build, t, job->rank, from);
}

/* Issues the exchange after part p of job j, once all members have reached it. */
static void meet_team(struct build *build, int32_t j, int p, double t) {
    const struct spec *sp = build->sp;
    const struct job *job = &build->costs->job[j];
    int32_t first = gang_of(sp, j), *came = &build->teams.came[2 * first + p % 2];
    if (++*came < team_size(sp, job->s))
        return;
    *came = 0;
    struct group team = team_of(sp, j);
    int g = intern_group(build, team.rank, team.n);
    GROW(build->teams.free, build->teams.cap, (size_t)g + 1);
    const struct stop *stop = &stage_at(build->costs, job->s, job->b)->stop[job->d][p];
    double end = fmax(t, build->teams.free[g]) + stop_time(sp, stop, &team);
    build->teams.free[g] = end;
    for (int i = 0; i < team.n; i++) {
        int32_t member = gang_job(sp, first, i);
        const struct job *other = &build->costs->job[member];
        int op = stop->exchange.op;
        struct instr *x = issue_collective(build, other->rank, op, other->s, mid_number(build, other, p), -1, g);
        x->batch = other->b;
        if (op == OP_ALL_REDUCE_A) {
            add_operand(build, other->rank, ROLE_t, *mid_of(build, member, p));
            use_up(build, other->rank, *mid_of(build, member, p));
        } else
            move_mid(build, member, p, stop, t);
        set_algorithm(build, other->rank);
        partials_push(&build->clock.partials, (struct partial){fmin(end, build->sc->end[member]), member, p, true});
    }
}

/* Notes that part p of job j has ended, or that the result of the exchange after it has arrived. Returns the part that
 * can run now, or -1. */
int next_of_team(struct build *build, int32_t j, int p, bool exchanged, double t) {
    const struct job *job = &build->costs->job[j];
    const struct stop *stop = stage_at(build->costs, job->s, job->b)->stop[job->d];
    struct reached *reached = &build->teams.reached[j];
    if (exchanged)
        reached->exchange = (int16_t)(p + 1);
    else
        reached->part = (int16_t)(p + 1);
    if (!exchanged && stop[p].exchange.op != OP_none)
        meet_team(build, j, p, t);
    int got = stop_got(stop, reached->part);
    return exchanged ? (got == p ? reached->part : -1) : got < reached->exchange ? reached->part : -1;
}

void order_operands(struct rank *k) {
    const struct instr *x = &k->ins[k->nins - 1];
    const uint8_t *roles;
    int n = op_roles(x->op, &roles), place[NROLES] = {0};
    for (int i = 0; i < n; i++)
        place[roles[i]] = i;
    for (uint32_t a = x->arg + 1; a < x->arg + x->narg; a++)
        for (uint32_t b = a; b > x->arg && place[k->arg[b].role] < place[k->arg[b - 1].role]; b--) {
            struct arg swap = k->arg[b];
            k->arg[b] = k->arg[b - 1];
            k->arg[b - 1] = swap;
        }
}
