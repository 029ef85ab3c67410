/* The predicted timeline: the program's lanes with the schedule's costs and the cluster's links.
 *
 * An instruction starts when its lane is free and what it waits for has ended. A group's two lanes share its links: a
 * collective waits for those issued before it on either. A message is a rendezvous: it starts
 * when both sides have reached it, occupies its lanes for bytes / bandwidth and arrives a latency later. Everything
 * that an instruction depends on comes earlier in one global order (lower.c), so one walk over that order gives all
 * times, without a queue and in linear time.
 *
 * NCCL launches a rank's communications in the order of issue, across communicators (NCCL_LAUNCH_ORDER_IMPLICIT: its
 * user guide, env.rst and usage/communicators.rst). LAUNCH_ISSUE has that rule: each waits until the one before has
 * been launched, even if the other side of that one has not come; LAUNCH_SERIAL that of older drivers, where it has to
 * end.
 */
#include "passes.h"
#include <assert.h>
#include <math.h>

struct meeting { /* of the ranks that a message or a reduction joins */
    double ready;
    int32_t came;
};

struct sim {
    const struct spec *sp;
    const struct stage *st;
    const struct program *p;
    struct timeline *tl;
    double **free, **done; /* per rank and lane: when it can start another message, another anything */
    int **sibling;         /* per rank and lane: sibling_lanes */
    double *launch;        /* per rank: when another communication may be launched */
    int32_t *at;           /* per rank: the next instruction */
    struct meeting *meet;
    int32_t *todo; /* ranks that can go on */
    int ntodo;
};

static double duration(const struct sim *sim, int r, const struct instr *x) {
    double speed = sim->sp->speed ? sim->sp->speed[r] : 1; /* a job's cost has it already */
    switch (op_cost[x->op]) {
    case COST_JOB:
        return job_time(sim->sp, job_at(sim->sp, x->stage, x->batch, x->op)) *
               (x->last ? cost_part(&sim->st[x->stage], x->op, x->part) : 1);
    case COST_HOST: return host_time(sim->sp, r, moved_bytes(&sim->p->rank[r], x));
    case COST_UPDATE:
        if (sim->sp->update)
            return sim->sp->job[update_at(sim->sp, x->stage, x->batch, place_in(&sim->sp->homes[x->stage], r))].cost;
        return cost_update(sim->sp, sim->st, x->stage) / speed;
    default: return cost_add(sim->sp, moved_bytes(&sim->p->rank[r], x)) / speed;
    }
}

static double ready_time(const struct sim *sim, int r, const struct instr *x) {
    const struct rank *k = &sim->p->rank[r];
    int kind = k->lane[x->lane].kind;
    /* The next message of an edge need not wait for this one's latency. On a lane of several edges it does. */
    bool edge = op_cost[x->op] == COST_LINK && (kind == LANE_SEND || kind == LANE_RECV);
    double t = edge ? sim->free[r][x->lane] : sim->done[r][x->lane];
    if (sim->sibling[r][x->lane] >= 0) /* a gather and a reduction at once would halve the links' bandwidth */
        t = fmax(t, sim->done[r][sim->sibling[r][x->lane]]);
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        t = fmax(t, sim->tl->end[r][k->wait[w]]);
    return t;
}

static double launch_time(struct sim *sim, int r, const struct instr *x) {
    double t = ready_time(sim, r, x);
    if (sim->sp->launch != LAUNCH_LANE)
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
    if (sim->sp->launch == LAUNCH_SERIAL && sim->p->rank[r].ins[i].msg >= 0)
        sim->launch[r] = end;
}

/* The other side of a message stands at its own instruction of it. */
static void complete_message(struct sim *sim, int r, int32_t i, double start) {
    const struct rank *k = &sim->p->rank[r];
    const struct instr *x = &k->ins[i];
    bool sends = is_send(x->op);
    int src = sends ? r : x->peer, dst = sends ? x->peer : r;
    struct link link = link_of(sim->sp, src, dst);
    double took = isinf(link.bandwidth) ? 0 : (double)moved_bytes(k, x) / link.bandwidth;
    set_times(sim, src, sim->at[src]++, start, start + took, start + took);
    set_times(sim, dst, sim->at[dst]++, start + link.latency, start + link.latency + took, start + took);
    sim->todo[sim->ntodo++] = x->peer;
}

double reduction_tail(const struct rank *k, const struct instr *x, double took) {
    int64_t bytes = whole_bytes(k, x), pieces = bytes / REDUCE_PIECE + (bytes % REDUCE_PIECE > 0);
    return took / 2 / (double)(pieces > 0 ? pieces : 1);
}

static void complete_collective(struct sim *sim, int r, const struct instr *x, double start) {
    const struct rank *k = &sim->p->rank[r];
    const struct group *g = &sim->p->group[k->lane[x->lane].group];
    double took = collective_time(sim->sp, x->op, x->algorithm, g, whole_bytes(k, x)), end = start + took;
    for (int i = 0; i < g->n; i++) {
        int other = g->rank[i];
        if (x->op == OP_ALL_REDUCE)
            sim->launch[other] = end - reduction_tail(k, x, took);
        set_times(sim, other, sim->at[other]++, start, end, end);
        if (other != r)
            sim->todo[sim->ntodo++] = other;
    }
}

/* A rank's instruction that meets no other rank; of an overlapped pair both, which lower.c issued one after the other.
 */
static void run_alone(struct sim *sim, int r) {
    const struct rank *k = &sim->p->rank[r];
    int32_t i = sim->at[r], n = 1;
    double t = ready_time(sim, r, &k->ins[i]), took = duration(sim, r, &k->ins[i]);
    bool job = is_job(k->ins[i].op);
    if (job && partner_of(sim->sp, job_at(sim->sp, k->ins[i].stage, k->ins[i].batch, k->ins[i].op)) >= 0) {
        t = fmax(t, ready_time(sim, r, &k->ins[i + 1]));
        n = 2;
    }
    for (; n > 0; n--, sim->at[r]++)
        set_times(sim, r, sim->at[r], t, t + took, t + took);
}

/* All of a rank's lanes go on when the last of them has come here. */
static void join(struct sim *sim, int r) {
    double t = sim->launch[r];
    for (int l = 0; l < sim->p->rank[r].nlanes; l++)
        t = fmax(t, sim->done[r][l]);
    for (int l = 0; l < sim->p->rank[r].nlanes; l++)
        sim->done[r][l] = sim->free[r][l] = t;
}

/* Advances a rank until it reaches a message whose other side has not arrived there. */
static void advance(struct sim *sim, int r) {
    const struct rank *k = &sim->p->rank[r];
    while (sim->at[r] < k->nins) {
        int32_t i = sim->at[r];
        const struct instr *x = &k->ins[i];
        if (sim->p->period && (i == k->begin || i == k->end))
            join(sim, r);
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
            complete_collective(sim, r, x, meeting->ready);
        else
            complete_message(sim, r, i, meeting->ready);
    }
}

struct timeline *sim_run(const struct spec *sp, const struct stage *st, const struct program *p) {
    struct timeline *tl = NEW(struct timeline, 1);
    tl->launch = sp->launch;
    struct sim sim = {.sp = sp, .st = st, .p = p, .tl = tl};
    int W = p->workers;
    tl->start = NEW(double *, W);
    tl->end = NEW(double *, W);
    for (int r = 0; r < W; r++) {
        tl->start[r] = NEW(double, p->rank[r].nins);
        tl->end[r] = NEW(double, p->rank[r].nins);
    }
    struct scratch scratch = scratch_begin();
    sim.free = NEW(double *, W);
    sim.done = NEW(double *, W);
    sim.sibling = NEW(int *, W);
    sim.launch = NEW(double, W);
    sim.at = NEW(int32_t, W);
    sim.meet = NEW(struct meeting, p->nmsgs);
    sim.todo = NEW(int32_t, 2 * W + 2);
    for (int r = 0; r < W; r++) {
        sim.free[r] = NEW(double, p->rank[r].nlanes);
        sim.done[r] = NEW(double, p->rank[r].nlanes);
        sim.sibling[r] = sibling_lanes(&p->rank[r]);
    }
    for (int r = 0; r < W; r++) {
        sim.todo[sim.ntodo++] = r;
        while (sim.ntodo > 0)
            advance(&sim, sim.todo[--sim.ntodo]);
    }
    for (int r = 0; r < W; r++)
        assert(sim.at[r] == p->rank[r].nins); /* verify has proved it */
    scratch_end(scratch);
    return tl;
}
