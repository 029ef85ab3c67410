/* The predicted timeline: the program's lanes with the schedule's costs and the cluster's links.
 *
 * An instruction starts when its lane is free and what it waits for has ended. A group's two lanes share its links: a
 * collective waits for those issued before it on either. A message is a rendezvous: it starts when both sides have
 * reached it, occupies its lanes for bytes / bandwidth and arrives a latency later. Everything that an instruction
 * depends on comes earlier in one global order (lower.c), so one walk over that order gives all times, without a queue
 * and in linear time.
 *
 * NCCL launches a rank's communications in the order of issue, across communicators (NCCL_LAUNCH_ORDER_IMPLICIT: its
 * user guide, env.rst and usage/communicators.rst). LAUNCH_ISSUE follows that rule: each waits until the previous one
 * has been launched, even if the other side of the previous one has not come. LAUNCH_SERIAL follows the rule of older
 * drivers, where the previous one has to end.
 *
 * Where a period repeats, and from step to step, a rank continues when all its lanes have reached the end. So the next
 * repetition depends only on the times of these joins, rank by rank. Once a repetition delays all of them equally, all
 * later ones do. With noise no two repetitions are alike, and all of them are run.
 *
 * If the cluster has fewer cores than its ranks use, or each rank is one thread, sim_cores.c takes over. */
#include "sim.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Returns the multiple at a random quantile, part in [-1, 1). */
static double draw_spread(const struct spread *spread, double part) {
    double place = (part + 1) / 2 * (spread->n - 1);
    int i = (int)fmin(place, spread->n - 2);
    return spread->at[i] + (place - i) * (spread->at[i + 1] - spread->at[i]);
}

double sim_noise(const struct sim *sim, int r, int32_t i) {
    const struct instr *x = &sim->p->rank[r].ins[i];
    uint64_t which = x->msg >= 0 ? (uint64_t)x->msg << 1 | 1 : ((uint64_t)r << 32 | (uint64_t)i) << 1;
    if (!(sim->noise > 0))
        return 1;
    double part = random_part(random_bits(sim->draw, which));
    if (sim->noise < AS_MEASURED)
        return 1 + sim->noise * part;
    const struct spread *spread = has_cost(x->op) ? &sim->sp->machine.spread[x->stage * NOPS + x->op] : NULL;
    return spread && spread->n > 0 ? draw_spread(spread, part) : 1;
}

double sim_duration(const struct sim *sim, int r, const struct instr *x) {
    double speed = sim->sp->machine.speed ? sim->sp->machine.speed[r] : 1; /* a job's cost includes it already */
    switch (op_cost[x->op]) {
    case COST_JOB: {
        int32_t j = job_at(sim->sp, x->stage, x->batch, x->op);
        const struct pair_costs *pair = pair_costs_of(sim->costs, j);
        double whole = x->last || (pair && pair->braided) ? sim->costs->computes[j] : computing_time(sim->costs, j);
        return whole * (x->last ? cost_part(&sim->costs->stage[x->stage], x->op, x->part, x->last + 1) : 1);
    }
    case COST_HOST: return host_time(sim->sp, r, moved_bytes(&sim->p->rank[r], x));
    case COST_UPDATE:
        if (sim->sp->updates.every)
            return sim->costs
                ->computes[update_at(sim->costs, x->stage, x->batch, place_in(&sim->costs->homes[x->stage], r))];
        return cost_update(sim->costs, x->stage) / speed;
    default: break;
    }
    const struct rank *k = &sim->p->rank[r];
    int64_t bytes = x->op == OP_NORM ? whole_bytes(k, x) : moved_bytes(k, x); /* a NORM reads more than it writes */
    return cost_add(sim->sp, bytes) / speed;
}

bool sim_leads_pair(const struct sim *sim, const struct instr *x) {
    int32_t j = is_job(x->op) ? job_at(sim->sp, x->stage, x->batch, x->op) : -1;
    return j >= 0 && partner_of(sim->sp, j) >= 0 && !pair_costs_of(sim->costs, j)->braided;
}

bool sim_follows_edge(const struct rank *k, const struct instr *x) {
    int kind = k->lane[x->lane].kind;
    return op_cost[x->op] == COST_LINK && (kind == LANE_SEND || kind == LANE_RECV);
}

static double ready_time(const struct sim *sim, int r, const struct instr *x) {
    const struct rank *k = &sim->p->rank[r];
    double t = sim_follows_edge(k, x) ? sim->free[r][x->lane] : sim->done[r][x->lane];
    if (sim->sibling[r][x->lane] >= 0) /* a concurrent gather and reduction would each get half of the links'
                                        * bandwidth */
        t = fmax(t, sim->done[r][sim->sibling[r][x->lane]]);
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        t = fmax(t, sim->tl->end[r][k->wait[w]]);
    return t;
}

static double launch_time(struct sim *sim, int r, const struct instr *x) {
    double t = ready_time(sim, r, x);
    if (sim->order != LAUNCH_LANE)
        t = fmax(t, sim->launch[r]);
    return sim->launch[r] = t;
}

static void set_times(struct sim *sim, int r, int32_t i, double start, double end, double free) {
    int lane = sim->p->rank[r].ins[i].lane;
    sim->tl->start[r][i] = start;
    sim->tl->end[r][i] = end;
    sim->free[r][lane] = free;
    sim->done[r][lane] = end;
    sim->tl->makespan = fmax(sim->tl->makespan, end);
    if (sim->order == LAUNCH_SERIAL && sim->p->rank[r].ins[i].msg >= 0)
        sim->launch[r] = end;
}

struct message_times sim_message(const struct sim *sim, int r, int32_t i) {
    const struct rank *k = &sim->p->rank[r];
    const struct instr *x = &k->ins[i];
    struct link link = is_send(x->op) ? link_of(sim->sp, r, x->peer) : link_of(sim->sp, x->peer, r);
    double noise = sim_noise(sim, r, i);
    bool free = isinf(link.bandwidth);
    return (struct message_times){noise * link.latency,
                                  free ? 0 : noise * ((double)moved_bytes(k, x) / link.bandwidth)};
}

/* Sets the times of a message. The other side is at its own instruction of it. */
static void complete_message(struct sim *sim, int r, int32_t i, double start) {
    const struct instr *x = &sim->p->rank[r].ins[i];
    bool sends = is_send(x->op);
    int src = sends ? r : x->peer, dst = sends ? x->peer : r;
    struct message_times m = sim_message(sim, r, i);
    set_times(sim, src, sim->at[src]++, start, start + m.took, start + m.took);
    set_times(sim, dst, sim->at[dst]++, start + m.late, start + m.late + m.took, start + m.took);
    sim->todo[sim->ntodo++] = x->peer;
}

double reduction_tail(const struct rank *k, const struct instr *x, double took) {
    int64_t bytes = whole_bytes(k, x), pieces = bytes / REDUCE_PIECE + (bytes % REDUCE_PIECE > 0);
    return took / 2 / (double)(pieces > 0 ? pieces : 1);
}

double sim_collective(const struct sim *sim, int r, int32_t i) {
    const struct rank *k = &sim->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct group *g = &sim->p->group[k->lane[x->lane].group];
    return sim_noise(sim, r, i) * collective_time(sim->sp, x->op, x->algorithm, g, whole_bytes(k, x));
}

static void complete_collective(struct sim *sim, int r, int32_t at, double start) {
    const struct rank *k = &sim->p->rank[r];
    const struct instr *x = &k->ins[at];
    const struct group *g = &sim->p->group[k->lane[x->lane].group];
    double took = sim_collective(sim, r, at), end = start + took;
    for (int i = 0; i < g->n; i++) {
        int other = g->rank[i];
        if (x->op == OP_ALL_REDUCE)
            sim->launch[other] = end - reduction_tail(k, x, took);
        set_times(sim, other, sim->at[other]++, start, end, end);
        if (other != r)
            sim->todo[sim->ntodo++] = other;
    }
}

/* Runs an instruction that meets no other rank; of an overlapped pair, both, which lower.c issued one after the
 * other. */
static void run_alone(struct sim *sim, int r) {
    const struct rank *k = &sim->p->rank[r];
    int32_t i = sim->at[r], n = 1;
    double t = ready_time(sim, r, &k->ins[i]), took = sim_noise(sim, r, i) * sim_duration(sim, r, &k->ins[i]);
    if (sim_leads_pair(sim, &k->ins[i])) {
        t = fmax(t, ready_time(sim, r, &k->ins[i + 1]));
        n = 2;
    }
    for (; n > 0; n--, sim->at[r]++)
        set_times(sim, r, sim->at[r], t, t + took, t + took);
}

/* Lets all of a rank's lanes go on when the last of them has come to this point. */
static void join_rank_lanes(struct sim *sim, int r) {
    double t = sim->launch[r];
    for (int l = 0; l < sim->p->rank[r].nlanes; l++)
        t = fmax(t, sim->done[r][l]);
    for (int l = 0; l < sim->p->rank[r].nlanes; l++)
        sim->done[r][l] = sim->free[r][l] = t;
}

/* Advances a rank until it reaches a message whose other side has not arrived there. */
static void advance(struct sim *sim, int r) {
    const struct rank *k = &sim->p->rank[r];
    while (sim->at[r] < sim->stop[r]) {
        int32_t i = sim->at[r];
        const struct instr *x = &k->ins[i];
        if (sim->p->period && (i == k->period.begin || i == k->period.end))
            join_rank_lanes(sim, r);
        if (x->msg < 0) {
            run_alone(sim, r);
            continue;
        }
        double t = launch_time(sim, r, x);
        struct meeting *meeting = &sim->meet[x->msg];
        meeting->ready = fmax(meeting->ready, t);
        int need = is_group(x->op) ? sim->p->group[k->lane[x->lane].group].n : 2;
        if (++meeting->came < need)
            return;
        if (is_group(x->op))
            complete_collective(sim, r, i, meeting->ready);
        else
            complete_message(sim, r, i, meeting->ready);
    }
}

struct sim sim_begin(const struct compile *c, struct timeline *tl) {
    const struct program *p = c->program;
    struct sim sim = {.sp = c->spec, .costs = c->costs, .p = p, .tl = tl, .order = c->choices.launch};
    int W = p->workers;
    sim.free = NEW(double *, W);
    sim.done = NEW(double *, W);
    sim.sibling = NEW(int *, W);
    sim.launch = NEW(double, W);
    sim.at = NEW(int32_t, W);
    sim.stop = NEW(int32_t, W);
    sim.meet = NEW(struct meeting, p->nmsgs);
    sim.todo = NEW(int32_t, 2 * W + 2);
    for (int r = 0; r < W; r++) {
        sim.free[r] = NEW(double, p->rank[r].nlanes);
        sim.done[r] = NEW(double, p->rank[r].nlanes);
        sim.sibling[r] = sibling_lanes(&p->rank[r]);
    }
    return sim;
}

/* Runs all ranks up to sim->stop. */
static void run_ranks(struct sim *sim) {
    for (int r = 0; r < sim->p->workers; r++) {
        sim->todo[sim->ntodo++] = r;
        while (sim->ntodo > 0)
            advance(sim, sim->todo[--sim->ntodo]);
    }
    for (int r = 0; r < sim->p->workers; r++)
        assert(sim->at[r] == sim->stop[r]); /* verify has proved it */
}

struct timeline *sim_timeline(const struct compile *c, const struct program *p) {
    struct timeline *tl = NEW(struct timeline, 1);
    tl->launch = c->choices.launch;
    tl->start = NEW(double *, p->workers);
    tl->end = NEW(double *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        tl->start[r] = NEW(double, p->rank[r].nins);
        tl->end[r] = NEW(double, p->rank[r].nins);
    }
    return tl;
}

struct timeline *sim_run(const struct compile *c) {
    const struct program *p = c->program;
    assert(p->workers == c->spec->workers);
    struct timeline *tl = sim_timeline(c, p);
    struct scratch scratch = scratch_begin();
    if (cores_are_shared(c->spec))
        run_shared(&(struct shared_run){.c = c, .tl = tl, .copies = 1});
    else {
        struct sim sim = sim_begin(c, tl);
        for (int r = 0; r < p->workers; r++)
            sim.stop[r] = p->rank[r].nins;
        run_ranks(&sim);
    }
    scratch_end(scratch);
    tl->step = tl->makespan;
    return tl;
}

/* ---- repetition ---- */

/* Runs one more repetition of [begin, end). joined: the times at which each rank's lanes have joined after it. */
static void repeat(struct sim *sim, bool whole, double *joined) {
    memset(sim->meet, 0, sizeof *sim->meet * (size_t)sim->p->nmsgs);
    for (int r = 0; r < sim->p->workers; r++) {
        sim->at[r] = whole ? 0 : sim->p->rank[r].period.begin;
        sim->stop[r] = whole ? sim->p->rank[r].nins : sim->p->rank[r].period.end;
    }
    run_ranks(sim);
    for (int r = 0; r < sim->p->workers; r++) {
        join_rank_lanes(sim, r);
        joined[r] = sim->launch[r] > sim->done[r][0] ? sim->launch[r] : sim->done[r][0];
    }
}

/* Returns the total lateness if all ranks are equally much later than n repetitions before, else -1. */
static double settled_lateness(double *const *joined, int i, int n, int workers) {
    double later = joined[i][0] - joined[i - n][0];
    for (int r = 0; r < workers; r++)
        if (fabs(joined[i][r] - joined[i - n][r] - later) > 1e-9 * later)
            return -1;
    return later;
}

bool sim_settles(struct followed *all, int workers) {
    for (int back = 1; back <= 8 && back < all->n && !all->cycle; back++)
        if ((all->later = settled_lateness(all->at, all->n, back, workers)) >= 0)
            all->cycle = back;
    return all->cycle > 0;
}

void sim_take_mean(struct followed *all, int workers) {
    int half = all->n / 2;
    all->cycle = all->n - half;
    all->later = 0;
    for (int r = 0; r < workers; r++)
        all->later = fmax(all->later, all->at[all->n][r] - all->at[half][r]);
}

/* Delays all ranks by `time`. */
static void let_pass(struct sim *sim, double time) {
    for (int r = 0; r < sim->p->workers; r++) {
        sim->launch[r] += time;
        for (int l = 0; l < sim->p->rank[r].nlanes; l++) {
            sim->free[r][l] += time;
            sim->done[r][l] += time;
        }
    }
}

/* Sets the state at the end of the first step, whose timeline is known. Returns when the ranks' lanes have joined after
 * it. */
static double *first_step(struct sim *sim, const struct timeline *tl) {
    double *joined = NEW(double, sim->p->workers);
    for (int r = 0; r < sim->p->workers; r++) {
        for (int i = 0; i < sim->p->rank[r].nins; i++)
            joined[r] = fmax(joined[r], tl->end[r][i]);
        sim->launch[r] = sim->order == LAUNCH_LANE ? 0 : joined[r];
        for (int l = 0; l < sim->p->rank[r].nlanes; l++)
            sim->free[r][l] = sim->done[r][l] = joined[r];
    }
    return joined;
}

/* Follows repetitions until they settle, or `most` of them. Ranks need not be in step before the first. */
static void follow(struct sim *sim, bool whole, int most, struct followed *all) {
    int W = sim->p->workers;
    while (!all->cycle && all->n < most) {
        all->at[++all->n] = NEW(double, W);
        repeat(sim, whole, all->at[all->n]);
        sim_settles(all, W);
    }
    if (!all->cycle)
        sim_take_mean(all, W);
}

/* Runs the repetitions that were not followed, and what comes after the last one. Returns the end of the step. */
static double finish_step(struct sim *sim, struct followed *all) {
    const struct program *p = sim->p;
    int64_t left = p->repeats - all->n;
    for (int64_t rest = left % all->cycle; rest > 0; rest--)
        repeat(sim, false, all->at[0]);
    let_pass(sim, (double)(left / all->cycle) * all->later);
    double end = 0;
    for (int r = 0; r < p->workers; r++)
        sim->stop[r] = p->rank[r].nins;
    run_ranks(sim);
    for (int r = 0; r < p->workers; r++)
        for (int l = 0; l < p->rank[r].nlanes; l++)
            end = fmax(end, sim->done[r][l]);
    return end;
}

void sim_steady(const struct compile *c) {
    const struct program *p = c->program;
    struct timeline *tl = c->timeline;
    struct scratch scratch = scratch_begin();
    if (cores_are_shared(c->spec)) {
        shared_steady(c);
        scratch_end(scratch);
        return;
    }
    struct sim sim = sim_begin(c, sim_timeline(c, p));
    bool whole = p->period == 0; /* the whole step repeats */
    struct followed all = {.at = {NEW(double, p->workers)}};
    int64_t nins = 0;
    for (int r = 0; r < p->workers; r++) {
        sim.stop[r] = whole ? 0 : p->rank[r].period.begin;
        nins += p->rank[r].nins;
    }
    run_ranks(&sim);
    for (int r = 0; r < p->workers; r++) {
        join_rank_lanes(&sim, r);
        all.at[0][r] = sim.done[r][0];
    }
    if (whole)
        all.at[++all.n] = first_step(&sim, tl);
    int most = nins > LARGE ? 2 : MOST_REPETITIONS;
    follow(&sim, whole, !whole && p->repeats < most ? (int)p->repeats : most, &all);
    tl->period = all.later / all.cycle;
    if (!whole)
        tl->step = finish_step(&sim, &all);
    scratch_end(scratch);
}

/* ---- unrolled timelines ---- */

/* Runs what comes before the period, one repetition of it, or what comes after it, and appends the times to `all`. */
static void run_section(struct sim *sim, int section, struct timeline *all, int32_t *n) {
    const struct program *p = sim->p;
    memset(sim->meet, 0, sizeof *sim->meet * (size_t)p->nmsgs);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        int32_t begin = p->period ? k->period.begin : 0, end = p->period ? k->period.end : k->nins;
        sim->at[r] = section == 0 ? 0 : section == 1 ? begin : end;
        sim->stop[r] = section == 0 ? begin : section == 1 ? end : k->nins;
    }
    int32_t *from = NEW(int32_t, p->workers);
    memcpy(from, sim->at, sizeof *from * (size_t)p->workers);
    run_ranks(sim);
    for (int r = 0; r < p->workers; r++) {
        size_t count = (size_t)(sim->stop[r] - from[r]);
        memcpy(all->start[r] + n[r], sim->tl->start[r] + from[r], sizeof(double) * count);
        memcpy(all->end[r] + n[r], sim->tl->end[r] + from[r], sizeof(double) * count);
        n[r] += (int32_t)count;
        join_rank_lanes(sim, r);
    }
}

struct timeline *sim_unrolled(const struct compile *c, int copies) {
    const struct program *p = c->program;
    struct program longer = *p;
    longer.rank = NEW(struct rank, p->workers);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        longer.rank[r].nins = k->nins + (copies - 1) * (p->period ? k->period.end - k->period.begin : k->nins);
    }
    struct timeline *all = sim_timeline(c, &longer);
    struct scratch scratch = scratch_begin();
    if (cores_are_shared(c->spec)) {
        run_shared(&(struct shared_run){.c = c, .tl = all, .copies = copies, .appends = true});
        scratch_end(scratch);
        return all;
    }
    struct sim sim = sim_begin(c, sim_timeline(c, p));
    int32_t *n = NEW(int32_t, p->workers);
    run_section(&sim, 0, all, n);
    for (int i = 0; i < copies; i++)
        run_section(&sim, 1, all, n);
    run_section(&sim, 2, all, n);
    all->makespan = sim.tl->makespan;
    scratch_end(scratch);
    return all;
}

/* ---- with noise ---- */

/* Runs one step, with all repetitions, from the start. */
static double noisy_step(struct sim *sim, uint64_t draw) {
    const struct program *p = sim->p;
    double unused[p->workers];
    memset(sim->launch, 0, sizeof *sim->launch * (size_t)p->workers);
    memset(sim->at, 0, sizeof *sim->at * (size_t)p->workers);
    memset(sim->meet, 0, sizeof *sim->meet * (size_t)p->nmsgs);
    for (int r = 0; r < p->workers; r++) {
        memset(sim->free[r], 0, sizeof *sim->free[r] * (size_t)p->rank[r].nlanes);
        memset(sim->done[r], 0, sizeof *sim->done[r] * (size_t)p->rank[r].nlanes);
        sim->stop[r] = p->period ? p->rank[r].period.begin : p->rank[r].nins;
    }
    sim->tl->makespan = 0;
    sim->draw = random_bits(draw, 0);
    run_ranks(sim);
    if (!p->period)
        return sim->tl->makespan;
    for (int r = 0; r < p->workers; r++)
        join_rank_lanes(sim, r);
    for (int64_t i = 0; i < p->repeats; i++) {
        sim->draw = random_bits(draw, (uint64_t)i + 1);
        repeat(sim, false, unused);
    }
    for (int r = 0; r < p->workers; r++)
        sim->stop[r] = p->rank[r].nins;
    run_ranks(sim);
    return sim->tl->makespan;
}

void sim_noisy(const struct compile *c, double level, uint64_t seed, int64_t runs, double *makespan) {
    struct scratch scratch = scratch_begin();
    struct sim sim = sim_begin(c, sim_timeline(c, c->program));
    sim.noise = level;
    bool shared = cores_are_shared(c->spec);
    for (int64_t i = 0; i < runs; i++)
        makespan[i] = shared ? shared_noisy(&sim, c, random_bits(seed, (uint64_t)i))
                             : noisy_step(&sim, random_bits(seed, (uint64_t)i));
    scratch_end(scratch);
}
