/* Exchanges of a team's members within their jobs: their places and times, and the cost of two jobs whose parts
 * alternate. */
#include "cost.h"
#include "layers.h"
#include <assert.h>
#include <math.h>

/* ---- parts ---- */

/* Returns the FLOP of a part. A layer in whose middle the part begins or ends counts half. */
static double flop_of_part(const struct stage *st, int op, int part, int parts) {
    struct instr x = {.op = (uint8_t)op, .part = (uint8_t)part, .last = (uint8_t)(parts - 1)};
    struct layer_span span = layers_of(st, &x);
    const struct stop *stop = st->stop[op];
    bool forward = op == OP_F || op == OP_R, input = op == OP_B || op == OP_I, stops = parts == st->nstops[op] + 1;
    int begins = stops && part > 0 && stop_got(stop, part) >= 0 ? (forward ? span.from : span.to - 1) : -1;
    int ends = stops && part + 1 < parts && stop[part].exchange.op != OP_none ? stop[part].layer : -1;
    double sum = 0;
    for (int i = span.from; i < span.to && (forward || input) && span.sweep != SWEEP_WEIGHTS; i++) {
        const struct rt_layer *l = &st->rt.layer[i];
        double flop = forward ? flop_of(l).f : has_input_gradient(l) ? flop_of(l).i : 0;
        sum += flop / (i == begins || i == ends ? 2 : 1);
    }
    for (int i = span.weights_from; i < span.weights_to && (op == OP_B || op == OP_W); i++)
        sum += flop_of(&st->rt.layer[i]).w;
    return sum;
}

static double share_of_part(const struct stage *st, int op, int part, int parts) {
    double all = flop_of_part(st, op, 0, 1);
    return all > 0 ? flop_of_part(st, op, part, parts) / all : 1.0 / parts;
}

double cost_part(const struct stage *st, int op, int part, int parts) {
    return parts == st->nstops[op] + 1 ? st->share[op][part] : share_of_part(st, op, part, parts);
}

/* Returns the bytes of the whole exchanged tensor; each member has some of its rows. */
static int64_t exchanged_bytes(const struct rt_layer *l, int op, int64_t element) {
    int64_t x = (int64_t)l->rows * l->in, y = (int64_t)rows_out(l) * l->out, bytes = element * (x > y ? x : y);
    if (row_of(l->kind)->team.exchanged)
        return row_of(l->kind)->team.exchanged(l, element);
    if (l->kind == LAYER_again)
        return element * rows_out(l) * l->in;
    return op == OP_ALL_REDUCE_A ? aligned(bytes) : bytes;
}

static void add_stop(struct stage *st, int d, struct stop stop) { st->stop[d][st->nstops[d]++] = stop; }

/* Adds a stop in the middle of layer i, if the layer exchanges something there. */
static void stop_at(struct stage *st, int d, int i, int op, int64_t element) {
    if (op)
        add_stop(st, d, (struct stop){{(uint8_t)op, false}, i, i, exchanged_bytes(&st->rt.layer[i], op, element)});
}

static int gradient_exchange(const struct rt_layer *l) { return l->dx.space != SP_NONE ? input_exchange(l) : 0; }

/* Returns whether a whole backward exchanges the gradient of the input of layer i + 1 while it makes its weight
 * gradient, as Megatron-LM does (Korthikanti 2022, section 4.2.2, and its
 * LinearWithGradAccumulationAndAsyncCommunication). */
static bool hides(const struct stage *st, int i) {
    const struct rt_layer *l = &st->rt.layer[i];
    bool between = l->kind == LAYER_spread || l->kind == LAYER_gather;
    return between && gradient_exchange(l) && i + 1 < st->rt.nlayers && flop_of(l + 1).w > 0;
}

/* Returns whether the input that `again` gathers for that weight gradient arrives while the input gradient is made. */
static bool hides_again(const struct stage *st, int i) {
    return st->rt.layer[i].kind == LAYER_again && i > 1 && hides(st, i - 2);
}

static void stop_backward(struct stage *st, int i, bool hide, int64_t element) {
    const struct rt_layer *l = &st->rt.layer[i];
    int input = gradient_exchange(l), weight = weight_exchange(l), n = st->nstops[OP_B];
    assert(!input || !weight);
    stop_at(st, OP_B, i, input ? input : weight, element);
    if (hide && (hides(st, i) || hides_again(st, i)))
        st->stop[OP_B][n].exchange.late = true;
    if (!hide || !hides(st, i))
        return;
    st->stop[OP_B][n].weights = i + 2;
    add_stop(st, OP_B, (struct stop){{OP_none, false}, i, i + 1, 0});
}

static void find_backward_stops(struct stage *st, int64_t element) {
    for (int hide = 1; hide >= 0; hide--) { /* hides exchanges only if that does not make too many parts */
        st->nstops[OP_B] = 0;
        for (int i = st->rt.nlayers - 1; i >= 0; i--)
            stop_backward(st, i, hide, element);
        if (st->nstops[OP_B] < MOST_PARTS)
            return;
    }
}

static void check_stops(const struct stage *st, const struct spec *sp) {
    for (int d = 0; d < NDIRS; d++)
        if (st->nstops[d] >= MOST_PARTS)
            die("%s: the %d layers of a stage exchange data %d times within a job; at most %d times are possible: cut "
                "the model into more stages",
                sp->file, st->rt.nlayers, st->nstops[d], MOST_PARTS - 1);
}

void find_stops(struct stage *st, const struct spec *sp) {
    int64_t element = precision_bytes(sp->model->rt.precision);
    int n = st->rt.nlayers;
    for (int d = 0; d < NDIRS; d++)
        st->stop[d] = NEW(struct stop, 2 * n);
    for (int i = 0; i < n; i++) {
        stop_at(st, OP_F, i, forward_exchange(&st->rt.layer[i]), element);
        stop_at(st, OP_R, i, forward_exchange(&st->rt.layer[i]), element);
    }
    find_backward_stops(st, element);
    for (int i = n - 1; i >= 0; i--) {
        const struct rt_layer *l = &st->rt.layer[i];
        stop_at(st, OP_I, i, gradient_exchange(l), element);
        stop_at(st, OP_W, i, weight_exchange(l), element);
        if (i > 0 && gradient_exchange(l)) /* so that parts of another job fit between its parts */
            add_stop(st, OP_W, (struct stop){{OP_none, false}, i, i, 0});
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

/* Returns whether the members of a team have some parameters of a stage whole, such as norms. */
static bool has_whole_parameters(const struct model *m, const struct stage *st) {
    for (const struct rt_layer *l = st->rt.layer; l < st->rt.layer + st->rt.nlayers; l++) {
        struct rt_parameters all = parameters_of(&m->rt, l, false);
        for (int i = 0; i < all.n && l->set == SET_OWN; i++)
            if (all.at[i].split == SPLIT_NONE)
                return true;
    }
    return false;
}

void find_whole(struct costs *costs) {
    const struct spec *sp = costs->spec;
    bool *whole = NEW(bool, sp->stages), any = false;
    for (int s = 0; sp->names.member && sp->model && s < sp->stages; s++)
        any |= whole[s] = sp->names.member[s].place >= 0 && has_whole_parameters(sp->model, &costs->stage[s]);
    costs->whole = any ? whole : NULL;
}

void list_exchanges(struct costs *costs) {
    const struct spec *sp = costs->spec;
    const struct stage *st = costs->stage;
    costs->exchange = sp->names.member ? NEW(struct exchanges, (int64_t)sp->stages * NDIRS) : NULL;
    for (int s = 0; costs->exchange && s < sp->stages; s++)
        for (int d = 0; d < NDIRS; d++) {
            struct exchange *at = NEW(struct exchange, st[s].nstops[d]);
            for (int i = 0; i < st[s].nstops[d]; i++)
                at[i] = st[s].stop[d][i].exchange;
            costs->exchange[s * NDIRS + d] = (struct exchanges){st[s].nstops[d], at};
        }
}

double stop_time(const struct spec *sp, const struct stop *stop, const struct group *team) {
    int op = stop->exchange.op;
    return collective_time(sp, op, cheaper_algorithm(sp, op, team, stop->bytes), team, stop->bytes);
}

/* Exchanges on their way to the next parts of a job, with times from now; at most two are on their way. */
struct on_its_way {
    double lane, in[2]; /* time until the team's lane is free, and until exchanges of even and odd number have
                         * arrived */
};
static void pass(struct on_its_way *way, double time) {
    way->lane = fmax(0, way->lane - time);
    for (int i = 0; i < 2; i++)
        way->in[i] = fmax(0, way->in[i] - time);
}

/* Returns how long a job waits for exchanges within it, if only its own parts run meanwhile. */
static double exchange_time(const struct costs *costs, int32_t j) {
    const struct spec *sp = costs->spec;
    const struct job *job = &sp->job[j];
    const struct stage *stage = stage_at(costs, job->s, job->b);
    double sum = 0;
    if (job->d >= NDIRS || !stage->nstops[job->d])
        return 0;
    struct scratch scratch = scratch_begin();
    struct group team = team_of(sp, j);
    struct on_its_way way = {0};
    const struct stop *stop = stage->stop[job->d];
    for (int p = 0; p <= stage->nstops[job->d]; p++) {
        int got = stop_got(stop, p);
        double wait = got >= 0 ? way.in[got % 2] : 0;
        sum += wait;
        pass(&way, wait);
        pass(&way, costs->computes[j] * stage->share[job->d][p]);
        if (p < stage->nstops[job->d] && stop[p].exchange.op != OP_none)
            way.in[p % 2] = way.lane += stop_time(sp, &stop[p], &team);
    }
    scratch_end(scratch);
    return sum;
}

void wait_for_team(struct costs *costs) {
    const struct spec *sp = costs->spec;
    costs->exchanges = sp->names.member ? NEW(double, sp->njobs) : NULL;
    for (int32_t j = 0; costs->exchanges && j < sp->njobs; j++) {
        int size = gang_of(sp, j) == j ? team_size(sp, sp->job[j].s) : 1;
        double most = 0, exchange = size > 1 ? exchange_time(costs, j) : 0;
        for (int i = 0; i < size; i++)
            most = fmax(most, costs->computes[gang_job(sp, j, i)]);
        for (int i = 0; i < size && size > 1; i++) {
            int32_t k = gang_job(sp, j, i);
            costs->exchanges[k] = exchange + (most - costs->computes[k]);
        }
    }
}

static int stops_of(const struct costs *costs, int32_t j) {
    return costs->stage[costs->job[j].s].nstops[costs->job[j].d];
}

/* One of two jobs whose parts alternate. */
struct braid {
    int d;
    double cost;
    const struct stage *stage;
    struct group team;
    int next, stops;       /* number of the next part, and of stops */
    double ready, came[2]; /* time at which it may run, and at which exchanges of even and odd number arrive */
};

static struct braid braid_of(const struct costs *costs, int32_t j) {
    const struct job *job = &costs->job[j];
    int stops = stops_of(costs, j);
    return (struct braid){.d = job->d,
                          .cost = costs->computes[j],
                          .stage = stage_at(costs, job->s, job->b),
                          .team = stops ? team_of(costs->spec, j) : (struct group){0},
                          .stops = stops};
}

static void braid_part(const struct spec *sp, struct braid *braid, double *busy, double *lane) {
    const struct stop *stop = braid->stage->stop[braid->d];
    int p = braid->next++, got = braid->next <= braid->stops ? stop_got(stop, p + 1) : -1;
    *busy = fmax(*busy, braid->ready) +
            braid->cost * (braid->stops ? cost_part(braid->stage, braid->d, p, braid->stops + 1) : 1);
    if (p < braid->stops && stop[p].exchange.op != OP_none)
        braid->came[p % 2] = *lane = fmax(*busy, *lane) + stop_time(sp, &stop[p], &braid->team);
    braid->ready = got >= 0 ? fmax(*busy, braid->came[got % 2]) : *busy;
}

/* Returns the time of two jobs whose parts run on one lane in the order in which they become ready; of two ready parts,
 * the first job's goes first. Their exchanges take turns on the team's lane. lower.c issues them in the same order. */
static double braid_time(const struct costs *costs, const struct pair *pair) {
    struct scratch scratch = scratch_begin();
    struct braid braid[2] = {braid_of(costs, pair->first), braid_of(costs, pair->second)};
    double busy = 0, lane = 0;
    while (braid[0].next <= braid[0].stops || braid[1].next <= braid[1].stops) {
        bool first = braid[0].next <= braid[0].stops, second = braid[1].next <= braid[1].stops;
        braid_part(costs->spec, &braid[!first || (second && braid[1].ready < braid[0].ready)], &busy, &lane);
    }
    scratch_end(scratch);
    return busy;
}

/* Dies if jobs whose parts alternate both add to one gradient, since neither would complete it before the other
 * adds. */
static void refuse_sum_of_two(const struct spec *sp, const struct pair *pair) {
    const struct job *a = &sp->job[pair->first], *b = &sp->job[pair->second];
    bool both = (a->d == OP_B || a->d == OP_W) && (b->d == OP_B || b->d == OP_W);
    if (both && a->s == b->s) {
        struct names plain = {0};
        int s = sp->names.member ? sp->names.member[a->s].stage : a->s;
        die("%s: %s+%s is a pair of jobs that both add to the gradient of stage %d while their team exchanges data: "
            "put one after the other in the sequence",
            sp->file, job_name(&plain, s, a->b, a->d), job_name(&plain, s, b->b, b->d), s);
    }
}

void cost_pairs(struct costs *costs) {
    const struct spec *sp = costs->spec;
    costs->pair = NEW(struct pair_costs, sp->npairs);
    for (int i = 0; i < sp->npairs; i++) {
        const struct pair *pair = &sp->pair[i];
        double a = costs->computes[pair->first], b = costs->computes[pair->second];
        bool braided = stops_of(costs, pair->first) + stops_of(costs, pair->second) > 0;
        if (braided)
            refuse_sum_of_two(sp, pair);
        costs->pair[i] =
            (struct pair_costs){braided ? braid_time(costs, pair) : a + b - sp->overlap * fmin(a, b), braided};
    }
    for (int p = 0; p < sp->npairs; p++) {
        int32_t first = sp->pair[p].first;
        int size = gang_of(sp, first) == first ? team_size(sp, sp->job[first].s) : 1;
        double most = costs->pair[p].time;
        for (int i = 1; i < size; i++)
            most = fmax(most, pair_costs_of(costs, gang_job(sp, first, i))->time);
        for (int i = 0; i < size && size > 1; i++)
            costs->pair[sp->job[gang_job(sp, first, i)].pair - 1].time = most;
    }
}
