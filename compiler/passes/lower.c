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

static void fetch(struct build *build, double t, int32_t i) {
    const struct fetch *f = &build->fetches.a[i];
    int32_t w = build->weight[f->home][f->stage];
    build->fetched[i] = send_message(build, t, f->home, f->rank, w, f->inst, f->uses);
}

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

static struct part *part_of(struct build *build, int rank, int set) {
    return &build->part[build->part_at[(int64_t)rank * build->sets + set]];
}

static void accumulate(struct build *build, struct part *part, int role) {
    if (part->buf < 0) /* away from home: it lives until it is sent */
        part->buf = open_buf(build, part->rank, K_wgrad, part->stage, -1, -1, 1);
    add_operand(build, part->rank, role, part->buf);
    struct rank *k = &build->p->rank[part->rank];
    *(role == ROLE_dv ? &k->ins[k->nins - 1].vfirst : &k->ins[k->nins - 1].first) = !part->written;
    part->written = true;
}

static void read_weights(struct build *build, int32_t j) {
    static const uint8_t role[NSETS] = {[OWN] = ROLE_w, [TABLE] = ROLE_v};
    const struct job *job = &build->sp->job[j];
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_read(build->sp, job, which), f = build->fetches.of_job[(int64_t)j * NSETS + which];
        if (set >= 0)
            add_operand(build, job->rank, role[which], f >= 0 ? build->fetched[f] : build->weight[job->rank][set]);
    }
}

static void add_gradients(struct build *build, int32_t j) {
    static const uint8_t role[NSETS] = {[OWN] = ROLE_dw, [TABLE] = ROLE_dv};
    const struct job *job = &build->sp->job[j];
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_added(build->sp, job, which);
        if (set >= 0)
            accumulate(build, part_of(build, job->rank, set), role[which]);
    }
}

/* Job j starts: its instruction with operands in the order of ops.h. */
static void start_job(struct build *build, int32_t j) {
    const struct job *job = &build->sp->job[j];
    int r = job->rank;
    struct outputs out = {0};
    count_uses(build, j, out.uses);
    build->job_ins[j] = build->p->rank[r].nins;
    issue(build, r, job->d, job->s, job->b, -1, -1);
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
    struct rank *k = &build->p->rank[r];
    const struct instr *x = &k->ins[build->job_ins[j]];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        struct buf *b = &k->buf[k->arg[a].buf];
        bool weights = b->kind == K_weight && b->inst < 0;
        if (op_access(x->op, k->arg[a].role) == ACC_READ && !weights)
            use_up(build, r, k->arg[a].buf);
    }
}

/* At a home: adds a received part. */
static void add_part(struct build *build, struct part *home, struct part *part) {
    issue(build, home->rank, OP_ADD, part->stage, -1, part->rank, -1);
    add_operand(build, home->rank, ROLE_src, part->received);
    accumulate(build, home, ROLE_dw);
    use_up(build, home->rank, part->received);
    push_event(build, home->rank, ~part->received);
    home->arrivals--;
}

static int intern_group(struct program *p, const int32_t *rank, int n) {
    for (int g = 0; g < p->ngroups; g++)
        if (p->group[g].n == n && !memcmp(p->group[g].rank, rank, sizeof *rank * (size_t)n))
            return g;
    p->group[p->ngroups].n = n;
    p->group[p->ngroups].rank = NEW(int32_t, n);
    memcpy(p->group[p->ngroups].rank, rank, sizeof *rank * (size_t)n);
    return p->ngroups++;
}

/* A home has its sum. When all have, they exchange theirs; then each may update. */
static void home_done(struct build *build, struct part *part) {
    int s = part->stage, first = build->homes.at[s], n = build->homes.at[s + 1] - first;
    if (--build->homes_left[s] > 0)
        return;
    int g = n > 1 ? intern_group(build->p, &build->homes.rank[first], n) : -1;
    for (int i = 0; i < n; i++) {
        int r = build->homes.rank[first + i];
        build->rank[r].update[build->rank[r].nupdates++] = s;
        if (n == 1)
            break;
        issue_collective(build, r, OP_ALL_REDUCE, s, g);
        add_operand(build, r, ROLE_dw, part_of(build, r, s)->buf);
    }
}

/* The last contribution of this rank has ended. */
static void part_done(struct build *build, double t, struct part *part) {
    struct part *home = part_of(build, part->home, part->stage);
    if (part != home) {
        part->received = send_message(build, t, part->rank, part->home, part->buf, -1, 1);
        if (home->jobs > 0) { /* its own jobs must not wait for a message: the part waits for them */
            part->next = home->waiting;
            home->waiting = (int32_t)(part - build->part);
            return;
        }
        add_part(build, home, part);
    } else
        for (int32_t i = part->waiting; i >= 0; i = build->part[i].next)
            add_part(build, part, &build->part[i]);
    if (home->jobs == 0 && home->arrivals == 0)
        home_done(build, home);
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
        if (reader->rank == job->rank)
            continue;
        if (delivery->buf < 0)
            delivery->buf =
                send_message(build, t, job->rank, reader->rank, *buf, kind == K_token ? job->d : -1, delivery->uses);
        *buf = delivery->buf;
    }
}

/* Job j has ended at t: what it freed closes, its results travel, its slot is fetched into again. */
static void end_job(struct build *build, int32_t j) {
    const struct job *job = &build->sp->job[j];
    double t = build->sc->end[j];
    const struct rank *k = &build->p->rank[job->rank];
    struct instr x = k->ins[build->job_ins[j]];
    for (uint32_t f = x.free; f < x.free + x.nfree; f++) {
        int32_t b = k->freed[f];
        bool grown = x.op == OP_I && k->buf[b].kind == K_stash; /* its place goes on as the wstash */
        if (!grown)
            push_event(build, job->rank, ~b);
    }
    send_results(build, j, t);
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_added(build->sp, job, which);
        if (set >= 0 && --part_of(build, job->rank, set)->jobs == 0)
            part_done(build, t, part_of(build, job->rank, set));
    }
    for (int32_t f = build->fetches.n ? build->fetches.after[j] : -1; f >= 0; f = build->fetches.next[f])
        fetch(build, t, f);
}

/* Weights, gradients, optimizer state and workspace stay for the whole step, in this order. */
static void permanent_buffers(struct build *build) {
    const struct spec *sp = build->sp;
    int64_t *work = NEW(int64_t, sp->workers);
    for (int j = 0; j < sp->njobs; j++) {
        int64_t need = build->st[sp->job[j].s].bytes[K_work];
        if (need > work[sp->job[j].rank])
            work[sp->job[j].rank] = need;
    }
    static const uint8_t kinds[] = {K_weight, K_wgrad, K_opt};
    for (int n = 0; n < 3; n++)
        for (int s = 0, kind = kinds[n]; s < build->sets; s++)
            for (int i = build->homes.at[s]; i < build->homes.at[s + 1]; i++) {
                int r = build->homes.rank[i];
                if (kind == K_opt && !build->st[s].bytes[kind])
                    continue;
                int32_t x = new_buf(build, r, kind, s, -1, -1, build->st[s].bytes[kind], 0);
                if (kind == K_weight)
                    build->weight[r][s] = x;
                if (kind == K_wgrad)
                    part_of(build, r, s)->buf = x;
            }
    for (int r = 0; r < sp->workers; r++)
        if (work[r] > 0)
            new_buf(build, r, K_work, -1, -1, -1, work[r], 0);
}

static struct part *find_part(struct build *build, int r, int s) {
    int32_t *at = &build->part_at[(int64_t)r * build->sets + s];
    if (*at < 0) {
        build->part[build->nparts] =
            (struct part){.rank = r, .stage = s, .buf = -1, .home = -1, .waiting = -1, .next = -1};
        *at = build->nparts++;
    }
    return &build->part[*at];
}

/* Every rank that computes part of a gradient, or is its home. */
static void find_parts(struct build *build) {
    const struct spec *sp = build->sp;
    int64_t cells = (int64_t)sp->workers * build->sets,
            most = build->homes.at[build->sets] + (int64_t)(1 + sp->tied) * sp->njobs;
    build->part_at = NEW(int32_t, cells);
    memset(build->part_at, -1, sizeof *build->part_at * (size_t)cells);
    build->part = NEW(struct part, most < cells ? most : cells);
    build->homes_left = NEW(int, build->sets);
    for (int s = 0; s < build->sets; s++)
        for (int i = build->homes.at[s]; i < build->homes.at[s + 1]; i++, build->homes_left[s]++)
            find_part(build, build->homes.rank[i], s)->home = build->homes.rank[i];
    for (int j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        for (int which = 0; which < NSETS; which++) {
            int32_t set = set_added(sp, job, which);
            if (set < 0)
                continue;
            struct part *part = find_part(build, job->rank, set);
            part->jobs++;
            if (part->home < 0) {
                part->home = home_of_set(sp, job, which);
                part_of(build, part->home, set)->arrivals++;
            }
        }
    }
}

static void updates(struct build *build) {
    for (int r = 0; r < build->sp->workers; r++) {
        struct rank *k = &build->p->rank[r];
        for (int i = 0; i < build->rank[r].nupdates; i++) {
            int s = build->rank[r].update[i];
            issue(build, r, OP_U, s, -1, -1, -1);
            add_operand(build, r, ROLE_dw, part_of(build, r, s)->buf);
            for (int b = 0; b < k->nbufs && build->st[s].bytes[K_opt]; b++)
                if (k->buf[b].kind == K_opt && k->buf[b].stage == s) {
                    add_operand(build, r, ROLE_opt, b);
                    break;
                }
            add_operand(build, r, ROLE_w, build->weight[r][s]);
        }
    }
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
    build->homes = homes_of(sp);
    build->fetches = fetch_plan(sp, sc, &build->homes);
    build->fetched = NEW(int32_t, build->fetches.n);
    build->edge_buf = NEW(int32_t, graph->pred_at[graph->n] + 1);
    build->job_ins = NEW(int32_t, sp->njobs);
    build->delivery = NEW(struct delivery, (int64_t)sp->workers * NKINDS);
    build->rank = NEW(struct caps, sp->workers);
    build->weight = NEW(int32_t *, sp->workers);
    struct program *p = build->p = NEW(struct program, 1);
    *p = (struct program){.name = sp->name, .workers = sp->workers, .stages = sp->stages, .batches = sp->batches};
    p->homes = sp->homes;
    p->tied = sp->tied;
    p->unembedding = sp->unembedding;
    if (sp->pred || is_graph(sp))
        copy_needs(sp, graph, p);
    p->rank = NEW(struct rank, sp->workers);
    p->group = NEW(struct group, build->sets);
    for (int r = 0; r < sp->workers; r++) {
        build->weight[r] = NEW(int32_t, build->sets);
        build->rank[r].update = NEW(int32_t, build->sets);
        build->rank[r].lane = NEW(int16_t, 2 * sp->workers);
        memset(build->rank[r].lane, -1, sizeof(int16_t) * 2 * (size_t)sp->workers);
        add_lane(build, r, (struct lane){LANE_COMPUTE, -1, -1});
    }
    find_parts(build);
    permanent_buffers(build);
    return build;
}

struct program *lower(const struct spec *sp, const struct stage *st, const struct graph *graph,
                      const struct sched *sc) {
    for (int s = 0; s < sp->stages; s++)
        if (sp->homes[s].size > 1 || sp->homes[s].zero)
            die("%s: sharded homes and zero are not lowered yet", sp->file);
    struct build *build = prepare(sp, st, graph, sc);
    for (int i = 0; i < build->nparts; i++) { /* a home that computes nothing of its stage starts from zero */
        struct part *part = &build->part[i];
        if (part->home == part->rank && part->jobs == 0 && part->arrivals == 0) {
            issue(build, part->rank, OP_ZERO, part->stage, -1, -1, -1);
            add_operand(build, part->rank, ROLE_dw, part->buf);
            home_done(build, part);
        }
    }
    for (int32_t f = build->fetches.n ? build->fetches.after[sp->njobs] : -1; f >= 0; f = build->fetches.next[f])
        fetch(build, 0, f);
    for (int i = 0; i < sc->nmoments; i++) {
        int32_t j = sc->moment[i];
        close_until(build, j >= 0 ? sc->start[j] : sc->end[~j]);
        if (j >= 0)
            start_job(build, j);
        else
            end_job(build, ~j);
    }
    close_until(build, INFINITY);
    updates(build);
    for (int r = 0; r < sp->workers; r++)
        order_lanes(&build->p->rank[r]);
    number_messages(build->p, false);
    return build->p;
}
