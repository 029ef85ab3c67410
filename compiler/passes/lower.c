/* Turns a schedule into instruction streams.
 *
 * One sweep over scheduled time issues jobs as they start and, at each job's end, the messages that carry its results.
 * It follows the order of sched.c's events, which is causal even where times are equal. Every rank's order is the
 * restriction of this one global order, in which a SEND and its RECV share a place. So there is no deadlock even if
 * every send blocks until its receive (NCCL's safe rule).
 *
 * The sweep also records when each buffer opens and closes (rank.event), for mem. */
#include "cost.h"
#include "lower.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t role_of[NKINDS] = {
    [K_act] = ROLE_x,         [K_grad] = ROLE_dy, [K_stash] = ROLE_stash, [K_input] = ROLE_input,
    [K_wstash] = ROLE_wstash, [K_token] = ROLE_t, [K_kv] = ROLE_kv,       [K_dkv] = ROLE_dkv};

/* A job's output of one kind for another rank: number of its uses there, and its buffer there once it is sent. */
struct delivery {
    int32_t round, buf, uses;
};

static struct delivery *delivery_to(struct build *build, const struct job *reader, int kind) {
    struct delivery *delivery = &build->delivery[(int64_t)reader->rank * NKINDS + kind];
    if (delivery->round != build->round)
        *delivery = (struct delivery){build->round, -1, 0};
    return delivery;
}

/* Counts the uses of each kind of job j's output: one per consumer on this rank, one per other rank. */
static void count_uses(struct build *build, int32_t j, int uses[NKINDS]) {
    const struct job *from = &build->costs->job[j];
    build->round++;
    for (int32_t e = build->g->succ_at[j]; e < build->g->succ_at[j + 1]; e++) {
        const struct job *to = &build->costs->job[build->g->succ[e]];
        int kind = build->g->kind[build->g->succ_edge[e]];
        if (to->rank == from->rank)
            uses[kind] += kind != K_token; /* the compute lane keeps that order */
        else
            uses[kind] += delivery_to(build, to, kind)->uses++ == 0;
    }
}

/* The outputs of the current job, per kind. */
struct outputs {
    int uses[NKINDS];
    int32_t buf[NKINDS];
};

/* Returns whether an act or a grad has no reader. This happens on the extra members of a larger team before a smaller
 * one. */
static bool is_unread(const struct build *build, int32_t j, int kind) {
    const struct graph *g = build->g;
    int32_t first = gang_of(build->sp, j);
    bool used = false, read = false;
    for (int32_t e = g->succ_at[j]; first != j && e < g->succ_at[j + 1]; e++)
        used |= g->kind[g->succ_edge[e]] == kind;
    for (int32_t e = g->succ_at[first]; first != j && e < g->succ_at[first + 1]; e++)
        read |= g->kind[g->succ_edge[e]] == kind;
    return (kind == K_act || kind == K_grad) && read && !used;
}

/* Opens job j's output of a kind, if another job uses it, or only j itself. */
static void output(struct build *build, int32_t j, struct outputs *out, int kind, int role) {
    const struct job *job = &build->costs->job[j];
    out->uses[kind] += is_unread(build, j, kind);
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
        build->edge_buf[build->g->succ_edge[e]] = out->buf[build->g->kind[build->g->succ_edge[e]]];
}

static void inputs(struct build *build, int32_t j, int kind) {
    const struct job *job = &build->costs->job[j];
    for (int32_t e = build->g->pred_at[j]; e < build->g->pred_at[j + 1]; e++) {
        const struct job *from = &build->costs->job[build->g->pred[e]];
        if (build->g->kind[e] == kind && (kind != K_token || from->rank != job->rank))
            add_operand(build, job->rank, role_of[kind], build->edge_buf[e]);
    }
}

/* Adds the keys and values of slices in the order of the slices, whatever the order of the dependencies: an operand's
 * position tells which slice it belongs to. */
static void input_keys(struct build *build, int32_t j) {
    const struct job *job = &build->costs->job[j];
    int slices = build->sp->names.slices;
    for (int b = slices ? job->b - job->b % slices : job->b; slices && b <= job->b; b++)
        for (int32_t e = build->g->pred_at[j]; e < build->g->pred_at[j + 1]; e++)
            if (build->g->kind[e] == K_kv && build->costs->job[build->g->pred[e]].b == b)
                add_operand(build, job->rank, ROLE_kv, build->edge_buf[e]);
}

/* Closes buffers whose last user was the newest part of job j. */
static void close_freed(struct build *build, int32_t j) {
    int r = build->costs->job[j].rank;
    const struct rank *k = &build->p->rank[r];
    struct instr x = k->ins[build->job_ins[j]];
    for (uint32_t f = x.free; f < x.free + x.nfree; f++) {
        int32_t b = k->freed[f];
        bool grown = x.op == OP_I && k->buf[b].grows >= 0; /* its place becomes the wstash */
        if (!grown)
            push_event(build, r, ~b);
    }
}

/* Uses up what job j reads, and outputs without readers. The newest instruction is the job's last part. */
static void use_inputs(struct build *build, int32_t j) {
    int r = build->costs->job[j].rank;
    struct rank *k = &build->p->rank[r];
    const struct instr *x = &k->ins[build->job_ins[j]];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        struct buf *b = &k->buf[k->arg[a].buf];
        bool weights = b->kind == K_weight && b->inst < 0; /* at home */
        bool result = k->arg[a].role == ROLE_y || k->arg[a].role == ROLE_dx;
        if (result && is_unread(build, j, b->kind))
            use_up(build, r, k->arg[a].buf);
        if (op_access(x->op, k->arg[a].role) == ACC_READ && k->arg[a].role != ROLE_got && !weights)
            use_up(build, r, k->arg[a].buf);
    }
}

/* Records what each part of job j contributes to its stage's gradient. */
static void say_ranges(struct build *build, int32_t j, int parts) {
    const struct job *job = &build->costs->job[j];
    const struct byte_range *range = build->costs->stage[job->s].range[job->d];
    if (!range || parts < 2 || is_bare(build->costs, job->s))
        return;
    if (!build->p->contributed)
        build->p->contributed = NEW(struct ranges, (int64_t)build->sp->stages * NDIRS);
    build->p->contributed[(int64_t)job->s * NDIRS + job->d] = (struct ranges){parts, range};
}

/* Starts part p of `parts`, which is the newest instruction. It ends before job j does, unless it is the last. */
static void start_part(struct build *build, int32_t j, int p, int parts, double t) {
    const struct job *job = &build->costs->job[j];
    const struct stage *stage = &build->costs->stage[job->s];
    struct rank *k = &build->p->rank[job->rank];
    struct instr *x = &k->ins[k->nins - 1];
    x->part = (uint8_t)p;
    x->last = (uint8_t)(parts - 1);
    build->job_ins[j] = k->nins - 1;
    if (p == 0)
        say_ranges(build, j, parts);
    bool exchanges = stage->nstops[job->d] > 0;
    if (exchanges) /* else its parts come from cutting the whole gradient */
        stage = stage_at(build->costs, job->s, job->b);
    if (exchanges || is_second(build->costs, j))
        give_and_get(build, j, p);
    if (p + 1 == parts) {
        use_inputs(build, j);
        if (exchanges || job->pair)
            build->clock.lane_free[job->rank] =
                fmax(t, build->clock.lane_free[job->rank]) +
                build->costs->computes[j] * (parts > 1 ? cost_part(stage, job->d, p, parts) : 1);
        return;
    }
    double share = 0, end = build->sc->end[j], all = exchanges ? build->costs->computes[j] : end - build->sc->start[j];
    for (int i = exchanges ? p : 0; i <= p; i++)
        share += cost_part(stage, job->d, i, parts);
    double begin = exchanges ? fmax(t, build->clock.lane_free[job->rank]) : build->sc->start[j];
    build->clock.lane_free[job->rank] = fmin(begin + share * all, end);
    partials_push(&build->clock.partials, (struct partial){build->clock.lane_free[job->rank], j, p, false});
}

/* Issues the next part, with the operands of the part before it, except for other pieces of the gradient. */
static void next_part(struct build *build, int32_t j, int p, double t) {
    const struct job *job = &build->costs->job[j];
    struct rank *k = &build->p->rank[job->rank];
    struct instr before = k->ins[build->job_ins[j]];
    issue(build, job->rank, job->d, job->s, job->b, -1, before.inst);
    k->ins[k->nins - 1].vfirst = before.vfirst;
    k->ins[k->nins - 1].ufirst = before.ufirst;
    for (uint32_t a = before.arg; a < before.arg + before.narg; a++) {
        struct arg arg = k->arg[a];
        if (arg.role != ROLE_dw && arg.role != ROLE_give && arg.role != ROLE_got && arg.role != ROLE_work)
            add_piece(build, job->rank, (int)arg.role, arg.buf, (int)arg.piece, pieces_of(&arg));
    }
    if (part_to(build, j, SET_OWN))
        add_own_gradient(build, j, p);
    start_part(build, j, p, before.last + 1, t);
    order_operands(k);
}

/* Ends, at time t, the parts and exchanges that have ended by `until`. */
static void end_parts(struct build *build, double t, double until) {
    while (build->clock.partials.n > 0 && build->clock.partials.a[0].t <= until) {
        struct partial x = partials_pop(&build->clock.partials);
        close_until(build, fmin(x.t, t));
        if (!x.exchanged) {
            close_freed(build, x.j);
            part_ends(build, x.j, x.p, x.t);
        }
        bool of_team = build->costs->stage[build->costs->job[x.j].s].nstops[build->costs->job[x.j].d] > 0;
        int next = of_team ? next_of_team(build, x.j, x.p, x.exchanged, x.t) : x.p + 1;
        if (next >= 0)
            next_part(build, x.j, next, x.t);
    }
}

/* Starts job j: issues its instruction, or the first of its parts, with operands in the order of ops.h. */
static void start_job(struct build *build, int32_t j) {
    const struct job *job = &build->costs->job[j];
    int r = job->rank, parts = parts_of_job(build, j);
    struct outputs out = {0};
    count_uses(build, j, out.uses);
    build->job_ins[j] = build->p->rank[r].nins;
    issue(build, r, job->d, job->s, job->b, -1, build->sc->version ? build->sc->version[j] : -1);
    read_weights(build, j);
    switch (job->d) {
    case OP_F:
        inputs(build, j, K_act);
        input_keys(build, j);
        output(build, j, &out, K_stash, ROLE_stash);
        output(build, j, &out, K_input, ROLE_input);
        output(build, j, &out, K_kv, ROLE_own);
        output(build, j, &out, K_act, ROLE_y);
        break;
    case OP_R:
        inputs(build, j, K_input);
        input_keys(build, j);
        output(build, j, &out, K_stash, ROLE_stash);
        break;
    case OP_I:
        inputs(build, j, K_stash);
        input_keys(build, j);
        inputs(build, j, K_grad);
        inputs(build, j, K_dkv);
        output(build, j, &out, K_wstash, ROLE_wstash);
        output(build, j, &out, K_grad, ROLE_dx);
        output(build, j, &out, K_dkv, ROLE_dpast);
        break;
    case OP_B:
        inputs(build, j, K_stash);
        input_keys(build, j);
        inputs(build, j, K_grad);
        inputs(build, j, K_dkv);
        output(build, j, &out, K_grad, ROLE_dx);
        output(build, j, &out, K_dkv, ROLE_dpast);
        break;
    case OP_W: inputs(build, j, K_wstash);
    }
    add_gradients(build, j);
    inputs(build, j, K_token);
    output(build, j, &out, K_token, ROLE_done);
    hand_to_consumers(build, j, &out);
    start_part(build, j, 0, parts, build->sc->start[j]);
    if (parts > 1 || is_second(build->costs, j))
        order_operands(&build->p->rank[r]);
}

/* Sends the results of job j, each kind once to each rank that has consumers. */
static void send_results(struct build *build, int32_t j, double t) {
    const struct job *job = &build->costs->job[j];
    int32_t from = build->g->succ_at[j], to = build->g->succ_at[j + 1];
    build->round++;
    for (int32_t e = from; e < to; e++)
        delivery_to(build, &build->costs->job[build->g->succ[e]], build->g->kind[build->g->succ_edge[e]])->uses++;
    for (int32_t e = from; e < to; e++) {
        const struct job *reader = &build->costs->job[build->g->succ[e]];
        int32_t *buf = &build->edge_buf[build->g->succ_edge[e]];
        int kind = build->g->kind[build->g->succ_edge[e]];
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

/* Ends job j at its end time: closes what it freed and sends its results. */
static void end_job(struct build *build, int32_t j) {
    const struct job *job = &build->costs->job[j];
    double t = build->sc->end[j];
    close_freed(build, j);
    build->p->traffic.beside[j] = build->rank[job->rank].most;
    build->rank[job->rank].most = build->rank[job->rank].now;
    if (job->d == OP_U)
        return;
    send_results(build, j, t);
    gradients_end(build, j, t);
}

/* Returns a home's buffer of a kind for its set; -1: it has none. */
static int32_t permanent(struct build *build, const struct owner *owner, int kind) {
    struct buf buf = {.kind = (uint8_t)kind, .stage = owner->set, .batch = -1, .inst = -1};
    buf.bytes = build->costs->stage[owner->set].bytes[kind];
    return (kind == K_opt || kind == K_hopt) && buf.bytes == 0 ? -1 : new_buf(build, owner->rank, buf, 0);
}

/* Adds to each rank's workspace the frozen parameters of the stages that it computes, which stay at its end. */
static void add_frozen(const struct build *build, int64_t *work) {
    const struct spec *sp = build->sp;
    int32_t *last = NEW(int32_t, sp->workers); /* number of the last stage that a rank has counted, from 1 */
    for (int s = 0; s < sp->stages; s++) {
        int64_t frozen = build->costs->stage[s].rt.frozen;
        const int32_t *at = &sp->at[(int64_t)s * sp->batches * NDIRS], *end = at + (int64_t)sp->batches * NDIRS;
        for (; frozen > 0 && at < end; at++) {
            int rank = *at >= 0 ? sp->job[*at].rank : -1;
            if (rank < 0 || last[rank] == s + 1)
                continue;
            last[rank] = s + 1;
            work[2 * rank] = aligned(work[2 * rank]) + frozen;
        }
    }
}

/* Creates the buffers that stay for the whole step: weights, gradients, optimizer state and workspace, in this order.
 * If updates are jobs, gradients come and go; the owners for its first update then represent all of a set's owners. */
static void permanent_buffers(struct build *build) {
    const struct spec *sp = build->sp;
    struct owner *end = build->sums.owner + build->sums.owners_at[build->sums.gradient_at[build->sets]];
    for (struct owner *owner = build->sums.owner; owner < end; owner++)
        if (build->sums.gradient[owner->gradient].update == 0)
            owner->weight = permanent(build, owner, homes_of(build->costs, owner->set)->size > 1 ? K_wshard : K_weight);
    for (struct owner *owner = build->sums.owner; owner < end && !sp->updates.every; owner++)
        if (homes_of(build->costs, owner->set)->zero == 2) {
            owner->gown = permanent(build, owner, K_gown);
            owner->buf = sums_of(build, owner->set)->size > homes_of(build->costs, owner->set)->size ? owner->gown : -1;
        } else
            owner->buf = permanent(build, owner, homes_of(build->costs, owner->set)->size > 1 ? K_gshard : K_wgrad);
    for (struct owner *owner = build->sums.owner; owner < end; owner++)
        if (build->sums.gradient[owner->gradient].update == 0)
            owner->opt = permanent(build, owner, state_leaves(sp, owner->set) ? K_hopt : K_opt);
    int64_t *work = NEW(int64_t, 2 * sp->workers); /* workspace of a rank, and of the second jobs of its braided
                                                    * pairs */
    for (int j = 0; j < sp->njobs; j++) {
        int64_t need = stage_at(build->costs, build->costs->job[j].s, build->costs->job[j].b)->bytes[K_work],
                *most = &work[2 * build->costs->job[j].rank + is_second(build->costs, j)];
        *most = need > *most ? need : *most;
    }
    for (const struct owner *owner = build->sums.owner; owner < end; owner++) {
        int64_t need = build->costs->stage[owner->set].update_work, *most = &work[2 * owner->rank];
        *most = need > *most ? need : *most;
    }
    add_frozen(build, work);
    for (int r = 0; r < sp->workers; r++)
        for (int second = 0; second < 2; second++)
            if (work[2 * r + second] > 0) {
                struct buf buf = {K_work, -1, -1, second ? 1 : -1, .bytes = work[2 * r + second]};
                build->teams.second_work[r] = new_buf(build, r, buf, 0);
            }
}

/* Copies dependencies into the program, unless they form a chain: without them, the streams could not be checked. */
static void copy_needs(const struct spec *sp, const struct graph *graph, struct program *p) {
    p->nneeds = graph->n;
    p->need = NEW(struct need, graph->n + 1);
    p->pred = NEW(struct job_name, graph->pred_at[graph->n] + 1);
    int32_t n = 0;
    for (int j = 0; j < graph->n; j++) {
        const struct job *job = &sp->job[j];
        p->need[j] = (struct need){{job->s, job->b, job->d}, n};
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            const struct job *from = &sp->job[graph->pred[e]];
            bool again = graph->kind[e] == K_kv && from->b == job->b && job_at(sp, job->s, job->b, OP_R) < 0;
            if (!again) /* with the stash, a backward reads its own forward's keys and values */
                p->pred[n++] = (struct job_name){from->s, from->b, from->d};
        }
    }
    p->need[graph->n].pred = n;
}

static struct build *prepare_build(const struct compile *c) {
    const struct spec *sp = c->spec;
    const struct graph *graph = c->graph;
    const struct sched *sc = c->sched;
    struct build *build = NEW(struct build, 1);
    *build = (struct build){.choices = &c->choices, .sp = sp, .costs = c->costs, .g = graph, .sc = sc};
    build->sets = sets_of(sp);
    build->place = home_places(c->costs);
    build->weights.fetches = fetch_plan(c, build->place);
    build->weights.fetched = NEW(int32_t, build->weights.fetches.n);
    build->edge_buf = NEW(int32_t, graph->pred_at[graph->n] + 1);
    build->job_ins = NEW(int32_t, c->costs->njobs);
    build->teams.mid = NEW(int32_t, sp->names.member ? 2 * (int64_t)sp->njobs : 0);
    build->teams.came = NEW(int32_t, sp->names.member ? 2 * (int64_t)sp->njobs : 0);
    build->teams.reached = NEW(struct reached, sp->names.member ? sp->njobs : 0);
    build->clock.busy = NEW(double, sp->workers);
    build->clock.lane_free = NEW(double, sp->workers);
    build->teams.second_work = NEW(int32_t, sp->workers);
    memset(build->norms.buf = NEW(int32_t, sp->workers), -1, sizeof *build->norms.buf * (size_t)sp->workers);
    build->norms.begun = NEW(bool, sp->workers);
    build->delivery = NEW(struct delivery, (int64_t)sp->workers * NKINDS);
    build->rank = NEW(struct caps, sp->workers);
    struct program *p = build->p = NEW(struct program, 1);
    *p = (struct program){.name = sp->name,
                          .names = sp->names,
                          .exchange = c->costs->exchange,
                          .workers = sp->workers,
                          .stages = sp->stages,
                          .batches = sp->batches,
                          .repeats = 1};
    p->names.whole = c->costs->whole;
    p->attends = c->costs->attends;
    p->homes = c->costs->homes;
    p->update = sp->updates.every;
    if (sc->period) {
        p->period = sc->period;
        p->shortest = sc->shortest;
        p->repeats = sc->repeats;
    }
    p->tied = sp->names.tables > 0;
    p->bare = c->costs->bare;
    p->unembedding = c->costs->unembedding;
    if (sp->pred || is_graph(sp))
        copy_needs(sp, graph, p);
    p->traffic.beside = NEW(int64_t, c->costs->njobs);
    p->traffic.least = build->weights.fetches.least;
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

/* Marks the beginning or end of the period. A running job is not split: its remaining parts need only what it and its
 * team have begun with. */
static void mark_period(struct build *build, double t, bool begins) {
    struct program *p = build->p;
    end_parts(build, t, INFINITY);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        *(begins ? &k->period.begin : &k->period.end) = k->nins;
        *(begins ? &k->period.event_begin : &k->period.event_end) = k->nevents;
    }
}

struct program *lower(const struct compile *c) {
    const struct spec *sp = c->spec;
    const struct sched *sc = c->sched;
    assert(c->graph->n == sp->njobs && sc->nmoments == 2 * c->costs->njobs); /* every job starts and ends */
    struct build *build = prepare_build(c);
    plan_transfers(build);
    plan_reloads(build);
    if (c->costs->post_validation)
        add_up_last_norms(build);
    start_empty_sums(build);
    for (int i = 0; i < sc->nmoments; i++) {
        int32_t j = sc->moment[i];
        double t = j >= 0 ? sc->start[j] : sc->end[~j];
        end_parts(build, t, t);
        close_until(build, t);
        if (sc->period && (i == sc->begin || i == sc->finish))
            mark_period(build, t, i == sc->begin);
        issue_transfers(build, i);
        issue_reloads(build, i, t);
        if (j >= 0)
            build->clock.busy[c->costs->job[j].rank] = sc->end[j];
        if (j >= sp->njobs)
            start_update(build, j);
        else if (j >= 0)
            start_job(build, j);
        else
            end_job(build, ~j);
    }
    close_until(build, INFINITY);
    if (!sp->updates.every)
        issue_updates(build);
    for (int r = 0; r < sp->workers; r++)
        order_lanes(&build->p->rank[r]);
    number_messages(build->p, false);
    return build->p;
}
