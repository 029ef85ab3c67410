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

static void fetch(struct build *L, double t, int32_t i) {
    const struct fetch *f = &L->fetches.a[i];
    int32_t w = L->weight[f->home][f->stage];
    L->fetched[i] = send_message(L, t, f->home, f->rank, w, f->inst, f->uses);
}

static const uint8_t role_of[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                        [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

/* What a job sends of a kind to another rank: used so often there, as buffer buf once it is sent. */
struct delivery {
    int32_t round, buf, uses;
};

static struct delivery *delivery_to(struct build *L, const struct job *reader, int kind) {
    struct delivery *d = &L->delivery[(int64_t)reader->rank * NKINDS + kind];
    if (d->round != L->round)
        *d = (struct delivery){L->round, -1, 0};
    return d;
}

/* How often each kind of job j's output is used: once per consumer here, once per other rank. */
static void count_uses(struct build *L, int32_t j, int uses[NKINDS]) {
    const struct job *from = &L->sp->job[j];
    L->round++;
    for (int32_t e = L->g->succ_at[j]; e < L->g->succ_at[j + 1]; e++) {
        const struct job *to = &L->sp->job[L->g->succ[e]];
        int kind = edge_kind(from, to);
        if (to->rank == from->rank)
            uses[kind] += kind != K_token; /* the compute lane keeps that order */
        else
            uses[kind] += delivery_to(L, to, kind)->uses++ == 0;
    }
}

/* The outputs of the job at hand, per kind. */
struct outputs {
    int uses[NKINDS];
    int32_t buf[NKINDS];
};

/* Opens job j's output of a kind, if anyone uses it. */
static void output(struct build *L, int32_t j, struct outputs *out, int kind, int role) {
    const struct job *job = &L->sp->job[j];
    if (!out->uses[kind])
        return;
    int32_t x;
    if (kind == K_wstash) { /* it grows in place of the stash that I reads */
        const struct instr *i = &L->p->rank[job->rank].ins[L->job_ins[j]];
        const struct rank *k = &L->p->rank[job->rank];
        uint32_t a = i->arg;
        while (k->arg[a].role != ROLE_stash)
            a++;
        x = k->buf[k->arg[a].buf].grows;
    } else
        x = open_buf(L, job->rank, kind, job->s, job->b, kind == K_token ? job->d : -1, out->uses[kind]);
    add_operand(L, job->rank, role, x);
    out->buf[kind] = x;
}

static void hand_to_consumers(struct build *L, int32_t j, const struct outputs *out) {
    for (int32_t e = L->g->succ_at[j]; e < L->g->succ_at[j + 1]; e++)
        L->edge_buf[L->g->succ_edge[e]] = out->buf[edge_kind(&L->sp->job[j], &L->sp->job[L->g->succ[e]])];
}

static void inputs(struct build *L, int32_t j, int kind) {
    const struct job *job = &L->sp->job[j];
    for (int32_t e = L->g->pred_at[j]; e < L->g->pred_at[j + 1]; e++) {
        const struct job *from = &L->sp->job[L->g->pred[e]];
        if (edge_kind(from, job) == kind && (kind != K_token || from->rank != job->rank))
            add_operand(L, job->rank, role_of[kind], L->edge_buf[e]);
    }
}

static struct part *part_of(struct build *L, int rank, int set) {
    return &L->part[L->part_at[(int64_t)rank * L->sets + set]];
}

static void accumulate(struct build *L, struct part *p, int role) {
    if (p->buf < 0) /* away from home: it lives until it is sent */
        p->buf = open_buf(L, p->rank, K_wgrad, p->stage, -1, -1, 1);
    add_operand(L, p->rank, role, p->buf);
    struct rank *k = &L->p->rank[p->rank];
    *(role == ROLE_dv ? &k->ins[k->nins - 1].vfirst : &k->ins[k->nins - 1].first) = !p->written;
    p->written = true;
}

static void read_weights(struct build *L, int32_t j) {
    static const uint8_t role[NSETS] = {[OWN] = ROLE_w, [TABLE] = ROLE_v};
    const struct job *job = &L->sp->job[j];
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_read(L->sp, job, which), f = L->fetches.of_job[(int64_t)j * NSETS + which];
        if (set >= 0)
            add_operand(L, job->rank, role[which], f >= 0 ? L->fetched[f] : L->weight[job->rank][set]);
    }
}

static void add_gradients(struct build *L, int32_t j) {
    static const uint8_t role[NSETS] = {[OWN] = ROLE_dw, [TABLE] = ROLE_dv};
    const struct job *job = &L->sp->job[j];
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_added(L->sp, job, which);
        if (set >= 0)
            accumulate(L, part_of(L, job->rank, set), role[which]);
    }
}

/* Job j starts: its instruction with operands in the order of ops.h. */
static void start_job(struct build *L, int32_t j) {
    const struct job *job = &L->sp->job[j];
    int r = job->rank;
    struct outputs out = {0};
    count_uses(L, j, out.uses);
    L->job_ins[j] = L->p->rank[r].nins;
    issue(L, r, job->d, job->s, job->b, -1, -1);
    read_weights(L, j);
    switch (job->d) {
    case OP_F:
        inputs(L, j, K_act);
        output(L, j, &out, K_stash, ROLE_stash);
        output(L, j, &out, K_input, ROLE_input);
        output(L, j, &out, K_act, ROLE_y);
        break;
    case OP_R:
        inputs(L, j, K_input);
        output(L, j, &out, K_stash, ROLE_stash);
        break;
    case OP_I:
        inputs(L, j, K_stash);
        inputs(L, j, K_grad);
        output(L, j, &out, K_wstash, ROLE_wstash);
        output(L, j, &out, K_grad, ROLE_dx);
        break;
    case OP_B:
        inputs(L, j, K_stash);
        inputs(L, j, K_grad);
        output(L, j, &out, K_grad, ROLE_dx);
        break;
    case OP_W: inputs(L, j, K_wstash);
    }
    add_gradients(L, j);
    inputs(L, j, K_token);
    output(L, j, &out, K_token, ROLE_done);
    hand_to_consumers(L, j, &out);
    struct rank *k = &L->p->rank[r];
    const struct instr *i = &k->ins[L->job_ins[j]];
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++) {
        struct buf *b = &k->buf[k->arg[a].buf];
        bool weights = b->kind == K_weight && b->inst < 0;
        if (op_access(i->op, k->arg[a].role) == ACC_READ && !weights)
            use_up(L, r, k->arg[a].buf);
    }
}

/* At a home: adds a received part. */
static void add_part(struct build *L, struct part *home, struct part *p) {
    issue(L, home->rank, OP_ADD, p->stage, -1, p->rank, -1);
    add_operand(L, home->rank, ROLE_src, p->received);
    accumulate(L, home, ROLE_dw);
    use_up(L, home->rank, p->received);
    push_event(L, home->rank, ~p->received);
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
static void home_done(struct build *L, struct part *p) {
    int s = p->stage, first = L->homes.at[s], n = L->homes.at[s + 1] - first;
    if (--L->homes_left[s] > 0)
        return;
    int g = n > 1 ? intern_group(L->p, &L->homes.rank[first], n) : -1;
    for (int i = 0; i < n; i++) {
        int r = L->homes.rank[first + i];
        L->rank[r].update[L->rank[r].nupdates++] = s;
        if (n == 1)
            break;
        issue_collective(L, r, OP_REDUCE, s, g);
        add_operand(L, r, ROLE_dw, part_of(L, r, s)->buf);
    }
}

/* The last contribution of this rank has ended. */
static void part_done(struct build *L, double t, struct part *p) {
    struct part *home = part_of(L, p->home, p->stage);
    if (p != home) {
        p->received = send_message(L, t, p->rank, p->home, p->buf, -1, 1);
        if (home->jobs > 0) { /* its own jobs must not wait for a message: the part waits for them */
            p->next = home->waiting;
            home->waiting = (int32_t)(p - L->part);
            return;
        }
        add_part(L, home, p);
    } else
        for (int32_t i = p->waiting; i >= 0; i = L->part[i].next)
            add_part(L, p, &L->part[i]);
    if (home->jobs == 0 && home->arrivals == 0)
        home_done(L, home);
}

/* The results of job j travel, of each kind once to each rank that has consumers. */
static void send_results(struct build *L, int32_t j, double t) {
    const struct job *job = &L->sp->job[j];
    int32_t from = L->g->succ_at[j], to = L->g->succ_at[j + 1];
    L->round++;
    for (int32_t e = from; e < to; e++)
        delivery_to(L, &L->sp->job[L->g->succ[e]], edge_kind(job, &L->sp->job[L->g->succ[e]]))->uses++;
    for (int32_t e = from; e < to; e++) {
        const struct job *reader = &L->sp->job[L->g->succ[e]];
        int32_t *buf = &L->edge_buf[L->g->succ_edge[e]];
        int kind = edge_kind(job, reader);
        struct delivery *d = delivery_to(L, reader, kind);
        if (reader->rank == job->rank)
            continue;
        if (d->buf < 0)
            d->buf = send_message(L, t, job->rank, reader->rank, *buf, kind == K_token ? job->d : -1, d->uses);
        *buf = d->buf;
    }
}

/* Job j has ended at t: what it freed closes, its results travel, its slot is fetched into again. */
static void end_job(struct build *L, int32_t j) {
    const struct job *job = &L->sp->job[j];
    double t = L->sc->end[j];
    const struct rank *k = &L->p->rank[job->rank];
    struct instr i = k->ins[L->job_ins[j]];
    for (uint32_t f = i.free; f < i.free + i.nfree; f++) {
        int32_t b = k->freed[f];
        bool grown = i.op == OP_I && k->buf[b].kind == K_stash; /* its place goes on as the wstash */
        if (!grown)
            push_event(L, job->rank, ~b);
    }
    send_results(L, j, t);
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_added(L->sp, job, which);
        if (set >= 0 && --part_of(L, job->rank, set)->jobs == 0)
            part_done(L, t, part_of(L, job->rank, set));
    }
    for (int32_t f = L->fetches.n ? L->fetches.after[j] : -1; f >= 0; f = L->fetches.next[f])
        fetch(L, t, f);
}

/* Weights, gradients, optimizer state and workspace stay for the whole step, in this order. */
static void permanent_buffers(struct build *L) {
    const struct spec *sp = L->sp;
    int64_t *work = NEW(int64_t, sp->workers);
    for (int j = 0; j < sp->njobs; j++) {
        int64_t need = L->st[sp->job[j].s].bytes[K_work];
        if (need > work[sp->job[j].rank])
            work[sp->job[j].rank] = need;
    }
    for (int kind = K_weight; kind <= K_opt; kind++)
        for (int s = 0; s < L->sets; s++)
            for (int i = L->homes.at[s]; i < L->homes.at[s + 1]; i++) {
                int r = L->homes.rank[i];
                if (kind == K_opt && !L->st[s].bytes[kind])
                    continue;
                int32_t x = new_buf(L, r, kind, s, -1, -1, L->st[s].bytes[kind], 0);
                if (kind == K_weight)
                    L->weight[r][s] = x;
                if (kind == K_wgrad)
                    part_of(L, r, s)->buf = x;
            }
    for (int r = 0; r < sp->workers; r++)
        if (work[r] > 0)
            new_buf(L, r, K_work, -1, -1, -1, work[r], 0);
}

static struct part *find_part(struct build *L, int r, int s) {
    int32_t *at = &L->part_at[(int64_t)r * L->sets + s];
    if (*at < 0) {
        L->part[L->nparts] = (struct part){.rank = r, .stage = s, .buf = -1, .home = -1, .waiting = -1, .next = -1};
        *at = L->nparts++;
    }
    return &L->part[*at];
}

/* Every rank that computes part of a gradient, or is its home. */
static void find_parts(struct build *L) {
    const struct spec *sp = L->sp;
    int64_t cells = (int64_t)sp->workers * L->sets, most = L->homes.at[L->sets] + (int64_t)(1 + sp->tied) * sp->njobs;
    L->part_at = NEW(int32_t, cells);
    memset(L->part_at, -1, sizeof *L->part_at * (size_t)cells);
    L->part = NEW(struct part, most < cells ? most : cells);
    L->homes_left = NEW(int, L->sets);
    for (int s = 0; s < L->sets; s++)
        for (int i = L->homes.at[s]; i < L->homes.at[s + 1]; i++, L->homes_left[s]++)
            find_part(L, L->homes.rank[i], s)->home = L->homes.rank[i];
    for (int j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        for (int which = 0; which < NSETS; which++) {
            int32_t set = set_added(sp, job, which);
            if (set < 0)
                continue;
            struct part *p = find_part(L, job->rank, set);
            p->jobs++;
            if (p->home < 0) {
                p->home = home_of_set(sp, job, which);
                part_of(L, p->home, set)->arrivals++;
            }
        }
    }
}

static void updates(struct build *L) {
    for (int r = 0; r < L->sp->workers; r++) {
        struct rank *k = &L->p->rank[r];
        for (int i = 0; i < L->rank[r].nupdates; i++) {
            int s = L->rank[r].update[i];
            issue(L, r, OP_U, s, -1, -1, -1);
            add_operand(L, r, ROLE_dw, part_of(L, r, s)->buf);
            for (int b = 0; b < k->nbufs && L->st[s].bytes[K_opt]; b++)
                if (k->buf[b].kind == K_opt && k->buf[b].stage == s) {
                    add_operand(L, r, ROLE_opt, b);
                    break;
                }
            add_operand(L, r, ROLE_w, L->weight[r][s]);
        }
    }
}

/* Dependencies other than a chain's are part of the program: without them, nobody could check the streams. */
static void copy_needs(const struct spec *sp, const struct graph *g, struct program *p) {
    p->nneeds = g->n;
    p->need = NEW(struct need, g->n + 1);
    p->pred = NEW(struct job_name, g->pred_at[g->n] + 1);
    for (int j = 0; j <= g->n; j++) {
        if (j < g->n)
            p->need[j].job = (struct job_name){sp->job[j].s, sp->job[j].b, sp->job[j].d};
        p->need[j].pred = g->pred_at[j];
    }
    for (int32_t e = 0; e < g->pred_at[g->n]; e++) {
        const struct job *from = &sp->job[g->pred[e]];
        p->pred[e] = (struct job_name){from->s, from->b, from->d};
    }
}

static struct build *prepare(const struct spec *sp, const struct stage *st, const struct graph *g,
                             const struct sched *sc) {
    struct build *L = NEW(struct build, 1);
    *L = (struct build){.sp = sp, .st = st, .g = g, .sc = sc};
    L->sets = sets_of(sp);
    L->homes = homes_of(sp);
    L->fetches = fetch_plan(sp, sc, &L->homes);
    L->fetched = NEW(int32_t, L->fetches.n);
    L->edge_buf = NEW(int32_t, g->pred_at[g->n] + 1);
    L->job_ins = NEW(int32_t, sp->njobs);
    L->delivery = NEW(struct delivery, (int64_t)sp->workers * NKINDS);
    L->rank = NEW(struct caps, sp->workers);
    L->weight = NEW(int32_t *, sp->workers);
    struct program *p = L->p = NEW(struct program, 1);
    *p = (struct program){.name = sp->name, .workers = sp->workers, .stages = sp->stages, .batches = sp->batches};
    p->tied = sp->tied;
    p->unembedding = sp->unembedding;
    if (sp->pred || is_graph(sp))
        copy_needs(sp, g, p);
    p->rank = NEW(struct rank, sp->workers);
    p->group = NEW(struct group, L->sets);
    for (int r = 0; r < sp->workers; r++) {
        L->weight[r] = NEW(int32_t, L->sets);
        L->rank[r].update = NEW(int32_t, L->sets);
        L->rank[r].lane = NEW(int16_t, 2 * sp->workers);
        memset(L->rank[r].lane, -1, sizeof(int16_t) * 2 * (size_t)sp->workers);
        add_lane(L, r, (struct lane){LANE_COMPUTE, -1, -1});
    }
    find_parts(L);
    permanent_buffers(L);
    return L;
}

struct program *lower(const struct spec *sp, const struct stage *st, const struct graph *g, const struct sched *sc) {
    struct build *L = prepare(sp, st, g, sc);
    for (int i = 0; i < L->nparts; i++) { /* a home that computes nothing of its stage starts from zero */
        struct part *p = &L->part[i];
        if (p->home == p->rank && p->jobs == 0 && p->arrivals == 0) {
            issue(L, p->rank, OP_ZERO, p->stage, -1, -1, -1);
            add_operand(L, p->rank, ROLE_dw, p->buf);
            home_done(L, p);
        }
    }
    for (int32_t f = L->fetches.n ? L->fetches.after[sp->njobs] : -1; f >= 0; f = L->fetches.next[f])
        fetch(L, 0, f);
    for (int i = 0; i < sc->nmoments; i++) {
        int32_t j = sc->moment[i];
        close_until(L, j >= 0 ? sc->start[j] : sc->end[~j]);
        if (j >= 0)
            start_job(L, j);
        else
            end_job(L, ~j);
    }
    close_until(L, INFINITY);
    updates(L);
    for (int r = 0; r < sp->workers; r++)
        order_lanes(&L->p->rank[r]);
    number_messages(L->p, false);
    return L->p;
}
