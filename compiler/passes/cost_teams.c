/* What the members of a team exchange within their jobs: where, for how long, and what two jobs take whose parts
 * alternate. */
#include "cost.h"
#include "layers.h"
#include <assert.h>
#include <math.h>

/* ---- parts ---- */

/* By FLOP. */
static double flop_between(const struct stage *st, int op, int from, int to) {
    double sum = 0;
    for (int i = from; i < to; i++) {
        const struct rt_layer *l = &st->rt.layer[i];
        struct flop flop = flop_of(l);
        sum += op == OP_F || op == OP_R ? flop.f : 0;
        sum += (op == OP_B || op == OP_I) && l->dx.space != SP_NONE ? flop.i : 0;
        sum += op == OP_B || op == OP_W ? flop.w : 0;
    }
    return sum;
}

static double share_of_part(const struct stage *st, int op, int part, int parts) {
    struct instr x = {.op = (uint8_t)op, .part = (uint8_t)part, .last = (uint8_t)(parts - 1)};
    int32_t from, to;
    layers_of(st, &x, &from, &to);
    double all = flop_between(st, op, 0, st->rt.nlayers), sum = flop_between(st, op, from, to);
    for (int p = part - 1; p <= part && parts == st->nstops[op] + 1;
         p++) /* half of a layer with a stop in its middle */
        if (p >= 0 && p < st->nstops[op])
            sum -= flop_between(st, op, st->stop[op][p].layer, st->stop[op][p].layer + 1) / 2;
    return all > 0 ? sum / all : 1.0 / parts;
}

double cost_part(const struct stage *st, int op, int part, int parts) {
    return parts == st->nstops[op] + 1 ? st->share[op][part] : share_of_part(st, op, part, parts);
}

/* In the middle of layer i. Of a tensor of which each member has rows, the whole's bytes are so many times a member's.
 */
static void stop_at(struct stage *st, int d, int i, int exchange, int64_t element) {
    const struct rt_layer *l = &st->rt.layer[i];
    const struct layer_row *row = row_of(l->kind);
    int64_t x = (int64_t)l->rows * l->in, y = (int64_t)rows_out(l) * l->out, bytes = element * (x > y ? x : y);
    if (exchange == OP_ALL_REDUCE_A)
        bytes = aligned(bytes);
    if (row->exchanged)
        bytes = row->exchanged(l, element);
    if (l->kind == LAYER_again)
        bytes = element * rows_out(l) * l->in;
    if (exchange)
        st->stop[d][st->nstops[d]++] = (struct stop){i, (uint8_t)exchange, bytes};
}

static void check_stops(const struct stage *st, const struct spec *sp) {
    for (int d = 0; d < NDIRS; d++)
        if (st->nstops[d] >= MOST_PARTS)
            die("%s: the %d layers of a stage exchange something %d times within a job; at most %d times are possible: "
                "cut the model into more stages",
                sp->file, st->rt.nlayers, st->nstops[d], MOST_PARTS - 1);
}

void find_stops(struct stage *st, const struct spec *sp) {
    int64_t element = precision_bytes(sp->model->rt.precision);
    int n = st->rt.nlayers;
    for (int d = 0; d < NDIRS; d++)
        st->stop[d] = NEW(struct stop, n);
    for (int i = 0; i < n; i++) {
        stop_at(st, OP_F, i, forward_exchange(&st->rt.layer[i]), element);
        stop_at(st, OP_R, i, forward_exchange(&st->rt.layer[i]), element);
    }
    for (int i = n - 1; i >= 0; i--) {
        const struct rt_layer *l = &st->rt.layer[i];
        int input = l->dx.space != SP_NONE ? input_exchange(l) : 0, weight = weight_exchange(l);
        assert(!input || !weight);
        stop_at(st, OP_I, i, input, element);
        stop_at(st, OP_W, i, weight, element);
        stop_at(st, OP_B, i, input ? input : weight, element);
    }
    check_stops(st, sp);
    for (int d = 0; d < NDIRS; d++) {
        int parts = st->nstops[d] + 1;
        st->share[d] = parts > 1 ? NEW(double, parts) : NULL;
        for (int p = 0; p < parts && parts > 1; p++)
            st->share[d][p] = share_of_part(st, d, p, parts);
    }
}

/* ---- times ---- */

void list_exchanges(struct spec *sp, const struct stage *st) {
    sp->exchange = sp->names.member ? NEW(struct exchanges, (int64_t)sp->stages * NDIRS) : NULL;
    for (int s = 0; sp->exchange && s < sp->stages; s++)
        for (int d = 0; d < NDIRS; d++) {
            uint8_t *op = NEW(uint8_t, st[s].nstops[d]);
            for (int i = 0; i < st[s].nstops[d]; i++)
                op[i] = st[s].stop[d][i].op;
            sp->exchange[s * NDIRS + d] = (struct exchanges){st[s].nstops[d], op};
        }
}

double stop_time(const struct spec *sp, const struct stop *stop, const struct group *team) {
    return collective_time(sp, stop->op, cheaper_algorithm(sp, stop->op, team, stop->bytes), team, stop->bytes);
}

/* How long the exchanges within a job take. */
static double exchange_time(const struct spec *sp, const struct stage *st, int32_t j) {
    const struct job *job = &sp->job[j];
    const struct stage *stage = stage_at(sp, st, job->s, job->b);
    double sum = 0;
    if (job->d >= NDIRS || !stage->nstops[job->d])
        return 0;
    struct scratch scratch = scratch_begin();
    struct group team = team_of(sp, j);
    for (int i = 0; i < stage->nstops[job->d]; i++)
        sum += stop_time(sp, &stage->stop[job->d][i], &team);
    scratch_end(scratch);
    return sum;
}

void wait_for_team(const struct spec *sp, const struct stage *st) {
    for (int32_t j = 0; sp->names.member && j < sp->njobs; j++) {
        int size = gang_of(sp, j) == j ? team_size(sp, sp->job[j].s) : 1;
        double most = 0, exchange = size > 1 ? exchange_time(sp, st, j) : 0;
        for (int i = 0; i < size; i++)
            most = fmax(most, sp->job[gang_job(sp, j, i)].cost);
        for (int i = 0; i < size && size > 1; i++) {
            struct job *job = &sp->job[gang_job(sp, j, i)];
            job->exchange = exchange + (most - job->cost);
        }
    }
}

static int stops_of(const struct spec *sp, const struct stage *st, int32_t j) {
    return st[sp->job[j].s].nstops[sp->job[j].d];
}

/* Two jobs part by part on one lane, in the order in which the parts are ready, the first job's before the other's;
 * what they exchange takes its turns on the team's lane. lower.c issues them so. */
static double braid_time(const struct spec *sp, const struct stage *st, const struct pair *pair) {
    const int32_t job[2] = {pair->first, pair->second};
    double ready[2] = {0, 0}, busy = 0, lane = 0;
    int next[2] = {0, 0};
    for (;;) {
        bool left[2] = {next[0] <= stops_of(sp, st, job[0]), next[1] <= stops_of(sp, st, job[1])};
        if (!left[0] && !left[1])
            return busy;
        int i = !left[0] || (left[1] && ready[1] < ready[0]);
        const struct job *j = &sp->job[job[i]];
        const struct stage *stage = stage_at(sp, st, j->s, j->b);
        int stops = stops_of(sp, st, job[i]);
        busy = fmax(busy, ready[i]) + j->cost * (stops ? cost_part(stage, j->d, next[i], stops + 1) : 1);
        if (next[i] < stops) {
            struct scratch scratch = scratch_begin();
            struct group team = team_of(sp, job[i]);
            ready[i] = lane = fmax(busy, lane) + stop_time(sp, &stage->stop[j->d][next[i]], &team);
            scratch_end(scratch);
        }
        next[i]++;
    }
}

/* Jobs whose parts alternate would each add to a gradient that the other has not completed. */
static void refuse_sum_of_two(const struct spec *sp, const struct pair *pair) {
    const struct job *a = &sp->job[pair->first], *b = &sp->job[pair->second];
    bool both = (a->d == OP_B || a->d == OP_W) && (b->d == OP_B || b->d == OP_W);
    if (pair->braided && both && a->s == b->s) {
        struct names plain = {0};
        int s = sp->names.member ? sp->names.member[a->s].stage : a->s;
        die("%s: %s+%s is a pair of jobs that both add to the gradient of stage %d, and their team exchanges something "
            "meanwhile: let one follow the other in the sequence",
            sp->file, job_name(&plain, s, a->b, a->d), job_name(&plain, s, b->b, b->d), s);
    }
}

void cost_pairs(const struct spec *sp, const struct stage *st) {
    for (int i = 0; i < sp->npairs; i++) {
        struct pair *pair = &sp->pair[i];
        double a = sp->job[pair->first].cost, b = sp->job[pair->second].cost;
        pair->braided = stops_of(sp, st, pair->first) + stops_of(sp, st, pair->second) > 0;
        refuse_sum_of_two(sp, pair);
        pair->cost = pair->braided ? braid_time(sp, st, pair) : a + b - sp->overlap * fmin(a, b);
    }
    for (int p = 0; p < sp->npairs; p++) {
        struct pair *pair = &sp->pair[p];
        int size = gang_of(sp, pair->first) == pair->first ? team_size(sp, sp->job[pair->first].s) : 1;
        double most = pair->cost;
        for (int i = 1; i < size; i++)
            most = fmax(most, sp->pair[sp->job[gang_job(sp, pair->first, i)].pair - 1].cost);
        for (int i = 0; i < size && size > 1; i++)
            sp->pair[sp->job[gang_job(sp, pair->first, i)].pair - 1].cost = most;
    }
}
