/* From a schedule to instruction streams.
 *
 * One sweep over scheduled time issues jobs as they start and, at each job's end, the messages that carry its results.
 * It follows the order of sched.c's events, which is causal where times are equal. Every rank's order is the
 * restriction of this one global order, in which a SEND and its RECV share a place: so there is no deadlock even if
 * every send blocks until its receive (NCCL's safe rule).
 *
 * The sweep also records when each buffer opens and closes (rank.event), for mem. */
#include "lower.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t role_of[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                        [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

/* What a job sends of a kind to another rank: used so often there, as buffer buf once it is sent. */
struct delivery {
    int32_t round, buf, uses;
};

static struct delivery *delivery_to(struct build *build, const struct job *reader, int kind) {
    struct delivery *delivery = &build->delivery[(int64_t)reader->rank * NKINDS + kind];
    if (delivery->round != build->round)
        *delivery = (struct delivery){build->round, -1, 0};
    return delivery;
}

/* How often each kind of job j's output is used: once per consumer here, once per other rank. */
static void count_uses(struct build *build, int32_t j, int uses[NKINDS]) {
    const struct job *from = &build->sp->job[j];
    build->round++;
    for (int32_t e = build->g->succ_at[j]; e < build->g->succ_at[j + 1]; e++) {
        const struct job *to = &build->sp->job[build->g->succ[e]];
        int kind = edge_kind(from, to);
        if (to->rank == from->rank)
            uses[kind] += kind != K_token; /* the compute lane keeps that order */
        else
            uses[kind] += delivery_to(build, to, kind)->uses++ == 0;
    }
}

/* The outputs of the job at hand, per kind. */
struct outputs {
    int uses[NKINDS];
    int32_t buf[NKINDS];
};

/* Opens job j's output of a kind, if anyone uses it. */
static void output(struct build *build, int32_t j, struct outputs *out, int kind, int role) {
    const struct job *job = &build->sp->job[j];
    if (!out->uses[kind])
        return;
    int32_t x;
    if (kind == K_wstash) { /* it grows in place of the stash that I reads */
        const struct instr *i = &build->p->rank[job->rank].ins[build->job_ins[j]];
        const struct rank *k = &build->p->rank[job->rank];
        uint32_t a = i->arg;
        while (k->arg[a].role != ROLE_stash)
            a++;
        x = k->buf[k->arg[a].buf].grows;
    } else
        x = open_buf(build, job->rank, kind, job->s, job->b, kind == K_token ? job->d : -1, out->uses[kind]);
    add_operand(build, job->rank, role, x);
    out->buf[kind] = x;
}

static void hand_to_consumers(struct build *build, int32_t j, const struct outputs *out) {
    for (int32_t e = build->g->succ_at[j]; e < build->g->succ_at[j + 1]; e++)
        build->edge_buf[build->g->succ_edge[e]] =
            out->buf[edge_kind(&build->sp->job[j], &build->sp->job[build->g->succ[e]])];
}

static void inputs(struct build *build, int32_t j, int kind) {
    const struct job *job = &build->sp->job[j];
    for (int32_t e = build->g->pred_at[j]; e < build->g->pred_at[j + 1]; e++) {
        const struct job *from = &build->sp->job[build->g->pred[e]];
        if (edge_kind(from, job) == kind && (kind != K_token || from->rank != job->rank))
            add_operand(build, job->rank, role_of[kind], build->edge_buf[e]);
    }
}

/* The newest instruction is the last of job j: it uses up what the job reads. */
static void use_inputs(struct build *build, int32_t j) {
    int r = build->sp->job[j].rank;
    struct rank *k = &build->p->rank[r];
    const struct instr *x = &k->ins[build->job_ins[j]];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        struct buf *b = &k->buf[k->arg[a].buf];
        bool weights = b->kind == K_weight && b->inst < 0; /* at home */
        if (op_access(x->op, k->arg[a].role) == ACC_READ && !weights)
            use_up(build, r, k->arg[a].buf);
    }
}

/* The newest instruction is part p of parts, and ends before job j does. */
static void begin_part(struct build *build, int32_t j, int p, int parts) {
    const struct job *job = &build->sp->job[j];
    struct rank *k = &build->p->rank[job->rank];
    struct instr *x = &k->ins[k->nins - 1];
    x->part = (uint8_t)p;
    x->last = (uint8_t)(parts - 1);
    build->job_ins[j] = k->nins - 1;
    if (p + 1 == parts) {
        use_inputs(build, j);
        return;
    }
    double share = 0;
    for (int i = 0; i <= p; i++)
        share += cost_part(&build->st[job->s], job->d, i);
    double start = build->sc->start[j], end = build->sc->end[j];
    partials_push(&build->partials, (struct partial){fmin(start + share * (end - start), end), j, p});
}

/* The next part, with the operands of the one before it, except for other pieces of the gradient. */
static void next_part(struct build *build, int32_t j, int p) {
    const struct job *job = &build->sp->job[j];
    struct rank *k = &build->p->rank[job->rank];
    struct instr before = k->ins[build->job_ins[j]];
    bool added = false;
    issue(build, job->rank, job->d, job->s, job->b, -1, before.inst);
    k->ins[k->nins - 1].vfirst = before.vfirst;
    for (uint32_t a = before.arg; a < before.arg + before.narg; a++) {
        struct arg arg = k->arg[a];
        if (arg.role != ROLE_dw)
            add_piece(build, job->rank, (int)arg.role, arg.buf, (int)arg.piece, pieces_of(&arg));
        else if (!added)
            add_own_gradient(build, j, p);
        added |= arg.role == ROLE_dw;
    }
    begin_part(build, j, p, before.last + 1);
}

/* Parts of jobs that have ended by time t. */
static void end_parts(struct build *build, double t) {
    while (build->partials.n > 0 && build->partials.a[0].t <= t) {
        struct partial x = partials_pop(&build->partials);
        close_until(build, x.t);
        part_ends(build, x.j, x.p, x.t);
        next_part(build, x.j, x.p + 1);
    }
}

/* Job j starts: its instruction, or the first of its parts, with operands in the order of ops.h. */
static void start_job(struct build *build, int32_t j) {
    const struct job *job = &build->sp->job[j];
    int r = job->rank, parts = parts_of_job(build, j);
    struct outputs out = {0};
    count_uses(build, j, out.uses);
    build->job_ins[j] = build->p->rank[r].nins;
    issue(build, r, job->d, job->s, job->b, -1, build->sc->version ? build->sc->version[j] : -1);
    read_weights(build, j);
    switch (job->d) {
    case OP_F:
        inputs(build, j, K_act);
        output(build, j, &out, K_stash, ROLE_stash);
        output(build, j, &out, K_input, ROLE_input);
        output(build, j, &out, K_act, ROLE_y);
        break;
    case OP_R:
        inputs(build, j, K_input);
        output(build, j, &out, K_stash, ROLE_stash);
        break;
    case OP_I:
        inputs(build, j, K_stash);
        inputs(build, j, K_grad);
        output(build, j, &out, K_wstash, ROLE_wstash);
        output(build, j, &out, K_grad, ROLE_dx);
        break;
    case OP_B:
        inputs(build, j, K_stash);
        inputs(build, j, K_grad);
        output(build, j, &out, K_grad, ROLE_dx);
        break;
    case OP_W: inputs(build, j, K_wstash);
    }
    add_gradients(build, j);
    inputs(build, j, K_token);
    output(build, j, &out, K_token, ROLE_done);
    hand_to_consumers(build, j, &out);
    begin_part(build, j, 0, parts);
}

/* The results of job j travel, of each kind once to each rank that has consumers. */
static void send_results(struct build *build, int32_t j, double t) {
    const struct job *job = &build->sp->job[j];
    int32_t from = build->g->succ_at[j], to = build->g->succ_at[j + 1];
    build->round++;
    for (int32_t e = from; e < to; e++)
        delivery_to(build, &build->sp->job[build->g->succ[e]], edge_kind(job, &build->sp->job[build->g->succ[e]]))
            ->uses++;
    for (int32_t e = from; e < to; e++) {
        const struct job *reader = &build->sp->job[build->g->succ[e]];
        int32_t *buf = &build->edge_buf[build->g->succ_edge[e]];
        int kind = edge_kind(job, reader);
        struct delivery *delivery = delivery_to(build, reader, kind);
        if (reader->rank != job->rank) {
            if (delivery->buf < 0)
                delivery->buf = send_message(build, t, job->rank, reader->rank, *buf, kind == K_token ? job->d : -1,
                                             delivery->uses);
            *buf = delivery->buf;
        }
        offload(build, build->g->succ_edge[e], reader, t);
    }
}

/* Job j has ended at t: what it freed closes, its results travel. */
static void end_job(struct build *build, int32_t j) {
    const struct job *job = &build->sp->job[j];
    double t = build->sc->end[j];
    const struct rank *k = &build->p->rank[job->rank];
    struct instr x = k->ins[build->job_ins[j]];
    for (uint32_t f = x.free; f < x.free + x.nfree; f++) {
        int32_t b = k->freed[f];
        bool grown = x.op == OP_I && k->buf[b].grows >= 0; /* its place goes on as the wstash */
        if (!grown)
            push_event(build, job->rank, ~b);
    }
    build->p->beside[j] = build->beside[job->rank].most;
    build->beside[job->rank].most = build->beside[job->rank].now;
    if (job->d == OP_U)
        return;
    send_results(build, j, t);
    gradients_end(build, j, t);
}

/* A home's buffer of a kind for its set; -1: it has none. */
static int32_t permanent(struct build *build, const struct owner *owner, int kind) {
    int64_t bytes = build->st[owner->set].bytes[kind];
    return (kind == K_opt || kind == K_hopt) && bytes == 0
               ? -1
               : new_buf(build, owner->rank, kind, owner->set, -1, -1, bytes, 0);
}

/* Weights, gradients, optimizer state and workspace stay for the whole step, in this order. Where updates are jobs,
 * their gradients come and go; of a set's owners, those of its first update stand for all. */
static void permanent_buffers(struct build *build) {
    const struct spec *sp = build->sp;
    struct owner *end = build->owner + build->owners_at[build->gradient_at[build->sets]];
    for (struct owner *owner = build->owner; owner < end; owner++)
        if (build->gradient[owner->gradient].update == 0)
            owner->weight = permanent(build, owner, homes_of(sp, owner->set)->size > 1 ? K_wshard : K_weight);
    for (struct owner *owner = build->owner; owner < end && !sp->update; owner++)
        if (homes_of(sp, owner->set)->zero == 2) {
            owner->gown = permanent(build, owner, K_gown);
            owner->buf = sums_of(build, owner->set)->size > homes_of(sp, owner->set)->size ? owner->gown : -1;
        } else
            owner->buf = permanent(build, owner, homes_of(sp, owner->set)->size > 1 ? K_gshard : K_wgrad);
    for (struct owner *owner = build->owner; owner < end; owner++)
        if (build->gradient[owner->gradient].update == 0)
            owner->opt = permanent(build, owner, state_leaves(sp, owner->set) ? K_hopt : K_opt);
    int64_t *work = NEW(int64_t, sp->workers);
    for (int j = 0; j < sp->njobs; j++) {
        int64_t need = build->st[sp->job[j].s].bytes[K_work];
        if (need > work[sp->job[j].rank])
            work[sp->job[j].rank] = need;
    }
    for (int r = 0; r < sp->workers; r++)
        if (work[r] > 0)
            new_buf(build, r, K_work, -1, -1, -1, work[r], 0);
}

/* Dependencies other than a chain's are part of the program: without them, nobody could check the streams. */
static void copy_needs(const struct spec *sp, const struct graph *graph, struct program *p) {
    p->nneeds = graph->n;
    p->need = NEW(struct need, graph->n + 1);
    p->pred = NEW(struct job_name, graph->pred_at[graph->n] + 1);
    for (int j = 0; j <= graph->n; j++) {
        if (j < graph->n)
            p->need[j].job = (struct job_name){sp->job[j].s, sp->job[j].b, sp->job[j].d};
        p->need[j].pred = graph->pred_at[j];
    }
    for (int32_t e = 0; e < graph->pred_at[graph->n]; e++) {
        const struct job *from = &sp->job[graph->pred[e]];
        p->pred[e] = (struct job_name){from->s, from->b, from->d};
    }
}

static struct build *prepare(const struct spec *sp, const struct stage *st, const struct graph *graph,
                             const struct sched *sc) {
    struct build *build = NEW(struct build, 1);
    *build = (struct build){.sp = sp, .st = st, .g = graph, .sc = sc};
    build->sets = sets_of(sp);
    build->place = home_places(sp);
    build->fetches = fetch_plan(sp, sc, build->place);
    build->fetched = NEW(int32_t, build->fetches.n);
    build->edge_buf = NEW(int32_t, graph->pred_at[graph->n] + 1);
    build->job_ins = NEW(int32_t, all_jobs(sp));
    build->busy = NEW(double, sp->workers);
    build->delivery = NEW(struct delivery, (int64_t)sp->workers * NKINDS);
    build->beside = NEW(struct beside, sp->workers);
    build->rank = NEW(struct caps, sp->workers);
    struct program *p = build->p = NEW(struct program, 1);
    *p = (struct program){
        .name = sp->name, .workers = sp->workers, .stages = sp->stages, .batches = sp->batches, .repeats = 1};
    p->homes = sp->homes;
    p->update = sp->update;
    if (sc->period) {
        p->period = sc->period;
        p->shortest = sc->shortest;
        p->repeats = sc->repeats;
    }
    p->tied = sp->tied;
    p->unembedding = sp->unembedding;
    if (sp->pred || is_graph(sp))
        copy_needs(sp, graph, p);
    p->beside = NEW(int64_t, all_jobs(sp));
    p->least_received = build->fetches.least;
    p->rank = NEW(struct rank, sp->workers);
    for (int r = 0; r < sp->workers; r++) {
        build->rank[r].lane = NEW(int16_t, 2 * sp->workers + 2);
        memset(build->rank[r].lane, -1, sizeof(int16_t) * (2 * (size_t)sp->workers + 2));
        add_lane(build, r, (struct lane){LANE_COMPUTE, -1, -1});
    }
    find_parts(build);
    find_readers(build);
    permanent_buffers(build);
    return build;
}

/* The period begins, or ends, here. */
static void mark_period(struct program *p, bool begins) {
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        *(begins ? &k->begin : &k->end) = k->nins;
        *(begins ? &k->event_begin : &k->event_end) = k->nevents;
    }
}

struct program *lower(const struct spec *sp, const struct stage *st, const struct graph *graph,
                      const struct sched *sc) {
    struct build *build = prepare(sp, st, graph, sc);
    plan_transfers(build);
    plan_reloads(build);
    start_empty_sums(build);
    for (int i = 0; i < sc->nmoments; i++) {
        int32_t j = sc->moment[i];
        double t = j >= 0 ? sc->start[j] : sc->end[~j];
        end_parts(build, t);
        close_until(build, t);
        if (sc->period && (i == sc->begin || i == sc->finish))
            mark_period(build->p, i == sc->begin);
        issue_transfers(build, i);
        issue_reloads(build, i, t);
        if (j >= 0)
            build->busy[sp->job[j].rank] = sc->end[j];
        if (j >= sp->njobs)
            start_update(build, j);
        else if (j >= 0)
            start_job(build, j);
        else
            end_job(build, ~j);
    }
    close_until(build, INFINITY);
    if (!sp->update)
        issue_updates(build);
    for (int r = 0; r < sp->workers; r++)
        order_lanes(&build->p->rank[r]);
    number_messages(build->p, false);
    return build->p;
}
