/* From a schedule to instruction streams.
 *
 * One sweep over scheduled time: jobs as they start, and at each job's end the messages that carry its results, in the
 * order in which sched.c had them happen, which is that of causes where times are equal. What is issued first in the
 * sweep comes first in every rank's order, so all orders are restrictions of one global order, with a SEND and its RECV
 * at the same place: no deadlock even if every send blocked until its receive (NCCL's safe rule).
 *
 * The sweep also writes down when each buffer opens and closes (rank.event); mem plans by that. */
#include "lower.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A rank's part of the gradient of a stage, or of the table. */
struct part {
    int32_t rank, stage, buf;
    int32_t jobs;           /* contributions of its own yet to end */
    int32_t home;           /* where it goes: itself when it is a home */
    int32_t arrivals;       /* at a home: parts of other ranks yet to be added */
    int32_t waiting;        /* at a home: received parts that wait for its own jobs; a list through next */
    int32_t next, received; /* as a member of that list: the received buffer, at the home */
    bool written;           /* something has been accumulated */
};

struct closing {
    double t;
    int32_t rank, buf;
};

struct build {
    const struct spec *sp;
    const struct stage *st;
    const struct graph *g;
    const struct sched *sc;
    struct program *p;
    struct homes homes;
    struct fetches fetches;
    int32_t *fetched;  /* per fetch: its buffer */
    int32_t *edge_buf; /* per edge: the tensor, as a buffer of the consumer's rank */
    int32_t *job_ins;  /* per job: its instruction */
    int sets;          /* of weights: the stages', and the table */
    int32_t **weight;  /* per rank and set: home buffers, or -1; likewise: */
    int32_t *part_at;  /* rank * sets + set -> index in part, or -1 */
    struct part *part;
    int nparts;
    int *homes_left; /* per set: homes whose gradient is not complete */
    struct closing *closing;
    size_t nclosing, closing_cap;
    struct caps {
        size_t ins, buf, arg, freed, event, uses, lanes;
        int32_t *left; /* per buffer: uses yet to be issued */
        int16_t *lane; /* by what it is for, see lane_of; -1: none yet */
        int32_t *update;
        int nupdates;
    } * rank;
};

static int32_t new_buf(struct build *L, int r, int kind, int s, int b, int inst, int64_t bytes, int uses) {
    struct rank *k = &L->p->rank[r];
    struct caps *c = &L->rank[r];
    GROW(k->buf, c->buf, (size_t)k->nbufs + 1);
    GROW(c->left, c->uses, (size_t)k->nbufs + 1);
    k->buf[k->nbufs] = (struct buf){(uint8_t)kind, s, b, inst, -1, bytes, -1};
    c->left[k->nbufs] = uses;
    return k->nbufs++;
}

static void push_event(struct build *L, int r, int32_t e) {
    struct rank *k = &L->p->rank[r];
    GROW(k->event, L->rank[r].event, k->nevents + 1);
    k->event[k->nevents++] = e;
}

/* A buffer that lives from here to its last use. A stash whose I runs here makes room for what I adds. */
static int32_t open_buf(struct build *L, int r, int kind, int s, int b, int inst, int uses) {
    int32_t x = new_buf(L, r, kind, s, b, inst, L->st[s].bytes[kind], uses);
    int32_t split = kind == K_stash ? job_at(L->sp, s, b, OP_I) : -1;
    if (split >= 0 && L->sp->job[split].rank == r) {
        int32_t w = new_buf(L, r, K_wstash, s, b, -1, L->st[s].bytes[K_wstash], 1);
        L->p->rank[r].buf[x].grows = w;
    }
    push_event(L, r, x);
    return x;
}

static void close_later(struct build *L, double t, int32_t r, int32_t buf) {
    GROW(L->closing, L->closing_cap, L->nclosing + 1);
    size_t i = L->nclosing++;
    for (; i > 0 && L->closing[(i - 1) / 2].t > t; i = (i - 1) / 2)
        L->closing[i] = L->closing[(i - 1) / 2];
    L->closing[i] = (struct closing){t, r, buf};
}

static void close_until(struct build *L, double t) {
    struct closing *a = L->closing;
    while (L->nclosing > 0 && a[0].t <= t) {
        push_event(L, a[0].rank, ~a[0].buf);
        struct closing x = a[--L->nclosing];
        size_t i = 0;
        for (size_t c; (c = 2 * i + 1) < L->nclosing; i = c) {
            if (c + 1 < L->nclosing && a[c + 1].t < a[c].t)
                c++;
            if (a[c].t >= x.t)
                break;
            a[i] = a[c];
        }
        a[i] = x;
    }
}

static void add_lane(struct build *L, int r, struct lane lane) {
    struct rank *k = &L->p->rank[r];
    GROW(k->lane, L->rank[r].lanes, (size_t)k->nlanes + 1);
    k->lane[k->nlanes++] = lane;
}

static int lane_of(struct build *L, int r, int op, int peer) {
    if (op_lane[op] == LANE_COMPUTE)
        return 0;
    enum lanes_per per = L->sp->lanes;
    int place = per == PER_RANK ? 0 : per == PER_PEER || op_lane[op] == LANE_SEND ? peer : L->sp->workers + peer;
    int16_t *at = &L->rank[r].lane[place];
    if (*at < 0) {
        static const uint8_t coarse[] = {[PER_PEER] = LANE_PEER, [PER_RANK] = LANE_ALL};
        *at = (int16_t)L->p->rank[r].nlanes;
        add_lane(L, r, (struct lane){per == PER_EDGE ? op_lane[op] : coarse[per], per == PER_RANK ? -1 : peer, -1});
    }
    return *at;
}

static struct instr *issue(struct build *L, int r, int op, int s, int b, int peer, int inst) {
    struct rank *k = &L->p->rank[r];
    GROW(k->ins, L->rank[r].ins, (size_t)k->nins + 1);
    struct instr *i = &k->ins[k->nins++];
    *i = (struct instr){.op = (uint8_t)op, .stage = s, .batch = b, .peer = peer, .inst = inst, .msg = -1};
    i->arg = (uint32_t)k->nargs;
    i->free = (uint32_t)k->nfrees;
    i->lane = op == OP_REDUCE ? 0 : (uint16_t)lane_of(L, r, op, peer);
    return i;
}

static void operand(struct build *L, int r, int role, int32_t buf) {
    struct rank *k = &L->p->rank[r];
    GROW(k->arg, L->rank[r].arg, k->nargs + 1);
    k->arg[k->nargs++] = (struct arg){(uint8_t)role, buf};
    k->ins[k->nins - 1].narg++;
}

/* The newest instruction uses buf once; when that is the last use, it frees it. Returns whether it does. */
static bool used(struct build *L, int r, int32_t buf) {
    struct rank *k = &L->p->rank[r];
    struct caps *c = &L->rank[r];
    if (--c->left[buf] > 0)
        return false;
    GROW(k->freed, c->freed, k->nfrees + 1);
    k->freed[k->nfrees++] = buf;
    k->ins[k->nins - 1].nfree++;
    return true;
}

/* A SEND of buf and its RECV; returns the received buffer, used `uses` times. Frees buf at its last use. */
static int32_t message(struct build *L, double t, int send, int from, int to, int32_t buf, int inst, int uses) {
    struct buf x = L->p->rank[from].buf[buf];
    bool weights = send == OP_SERVE, part = send == OP_SEND_G;
    int name = part ? -1 : inst;
    issue(L, from, send, x.stage, x.batch, to, name);
    operand(L, from, ROLE_t, buf);
    if (!weights && used(L, from, buf)) {
        struct link l = link_of(L->sp, from, to);
        if (isinf(l.bandwidth))
            push_event(L, from, ~buf);
        else
            close_later(L, t + (double)x.bytes / l.bandwidth, from, buf);
    }
    int32_t y = open_buf(L, to, x.kind, x.stage, x.batch, part ? from : inst, uses);
    issue(L, to, send + 1, x.stage, x.batch, from, name); /* ORDER OPS: each RECV follows its SEND in ops.h */
    operand(L, to, ROLE_t, y);
    return y;
}

static void fetch(struct build *L, double t, int32_t i) {
    const struct fetch *f = &L->fetches.a[i];
    int32_t w = L->weight[f->home][f->stage];
    L->fetched[i] = message(L, t, OP_SERVE, f->home, f->rank, w, f->inst, f->uses);
}

static const uint8_t send_of[NKINDS] = {[K_act] = OP_SEND_F,   [K_grad] = OP_SEND_B,   [K_stash] = OP_SEND_S,
                                        [K_input] = OP_SEND_S, [K_wstash] = OP_SEND_W, [K_token] = OP_SEND_T};
static const uint8_t role_of[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                        [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

/* How often job j's output of this kind is used: once per consumer here, once per other rank. */
static int count_uses(const struct build *L, int32_t j, int kind, int only_rank) {
    const struct job *from = &L->sp->job[j];
    int n = 0;
    for (int32_t e = L->g->succ_at[j]; e < L->g->succ_at[j + 1]; e++) {
        const struct job *to = &L->sp->job[L->g->succ[e]];
        if (edge_kind(from, to) != kind || (only_rank >= 0 && to->rank != only_rank))
            continue;
        if (kind == K_token && to->rank == from->rank) /* the compute lane keeps that order */
            continue;
        bool again = false;
        for (int32_t k = L->g->succ_at[j]; only_rank < 0 && to->rank != from->rank && k < e; k++) {
            const struct job *other = &L->sp->job[L->g->succ[k]];
            again |= other->rank == to->rank && edge_kind(from, other) == kind;
        }
        n += !again;
    }
    return n;
}

/* Opens job j's output of a kind, if anyone uses it, and hands it to the consumers. */
static void output(struct build *L, int32_t j, int kind, int role) {
    const struct job *job = &L->sp->job[j];
    int uses = count_uses(L, j, kind, -1);
    if (!uses)
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
        x = open_buf(L, job->rank, kind, job->s, job->b, kind == K_token ? job->d : -1, uses);
    operand(L, job->rank, role, x);
    for (int32_t e = L->g->succ_at[j]; e < L->g->succ_at[j + 1]; e++)
        if (edge_kind(job, &L->sp->job[L->g->succ[e]]) == kind)
            L->edge_buf[L->g->succ_edge[e]] = x;
}

static void inputs(struct build *L, int32_t j, int kind) {
    const struct job *job = &L->sp->job[j];
    for (int32_t e = L->g->pred_at[j]; e < L->g->pred_at[j + 1]; e++) {
        const struct job *from = &L->sp->job[L->g->pred[e]];
        if (edge_kind(from, job) == kind && (kind != K_token || from->rank != job->rank))
            operand(L, job->rank, role_of[kind], L->edge_buf[e]);
    }
}

static struct part *part_of(struct build *L, int rank, int set) {
    return &L->part[L->part_at[(int64_t)rank * L->sets + set]];
}

static void accumulate(struct build *L, struct part *p, int role) {
    if (p->buf < 0) /* away from home: it lives until it is sent */
        p->buf = open_buf(L, p->rank, K_wgrad, p->stage, -1, -1, 1);
    operand(L, p->rank, role, p->buf);
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
            operand(L, job->rank, role[which], f >= 0 ? L->fetched[f] : L->weight[job->rank][set]);
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
    L->job_ins[j] = L->p->rank[r].nins;
    issue(L, r, job->d, job->s, job->b, -1, -1);
    read_weights(L, j);
    switch (job->d) {
    case OP_F:
        inputs(L, j, K_act);
        output(L, j, K_stash, ROLE_stash);
        output(L, j, K_input, ROLE_input);
        output(L, j, K_act, ROLE_y);
        break;
    case OP_R:
        inputs(L, j, K_input);
        output(L, j, K_stash, ROLE_stash);
        break;
    case OP_I:
        inputs(L, j, K_stash);
        inputs(L, j, K_grad);
        output(L, j, K_wstash, ROLE_wstash);
        output(L, j, K_grad, ROLE_dx);
        break;
    case OP_B:
        inputs(L, j, K_stash);
        inputs(L, j, K_grad);
        output(L, j, K_grad, ROLE_dx);
        break;
    case OP_W: inputs(L, j, K_wstash);
    }
    add_gradients(L, j);
    inputs(L, j, K_token);
    output(L, j, K_token, ROLE_done);
    struct rank *k = &L->p->rank[r];
    const struct instr *i = &k->ins[L->job_ins[j]];
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++) {
        struct buf *b = &k->buf[k->arg[a].buf];
        bool weights = b->kind == K_weight && b->inst < 0;
        if (op_access(i->op, k->arg[a].role) == ACC_READ && !weights)
            used(L, r, k->arg[a].buf);
    }
}

/* At a home: adds a received part. */
static void add_part(struct build *L, struct part *home, struct part *p) {
    issue(L, home->rank, OP_ADD, p->stage, -1, p->rank, -1);
    operand(L, home->rank, ROLE_src, p->received);
    accumulate(L, home, ROLE_dw);
    used(L, home->rank, p->received);
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
        struct rank *k = &L->p->rank[r];
        int lane = 0;
        while (lane < k->nlanes && !(k->lane[lane].kind == LANE_GROUP && k->lane[lane].group == g))
            lane++;
        if (lane == k->nlanes)
            add_lane(L, r, (struct lane){LANE_GROUP, -1, g});
        issue(L, r, OP_REDUCE, s, -1, -1, -1)->lane = (uint16_t)lane;
        operand(L, r, ROLE_dw, part_of(L, r, s)->buf);
    }
}

/* The last contribution of this rank has ended. */
static void part_done(struct build *L, double t, struct part *p) {
    struct part *home = part_of(L, p->home, p->stage);
    if (p != home) {
        p->received = message(L, t, OP_SEND_G, p->rank, p->home, p->buf, -1, 1);
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
    for (int32_t e = L->g->succ_at[j]; e < L->g->succ_at[j + 1]; e++) {
        const struct job *to = &L->sp->job[L->g->succ[e]];
        int kind = edge_kind(job, to);
        if (to->rank == job->rank)
            continue;
        bool sent = false; /* to that rank already, for another consumer there */
        for (int32_t k2 = L->g->succ_at[j]; k2 < e && !sent; k2++) {
            const struct job *other = &L->sp->job[L->g->succ[k2]];
            sent = other->rank == to->rank && edge_kind(job, other) == kind;
            if (sent)
                L->edge_buf[L->g->succ_edge[e]] = L->edge_buf[L->g->succ_edge[k2]];
        }
        if (sent)
            continue;
        int32_t x = L->edge_buf[L->g->succ_edge[e]];
        L->edge_buf[L->g->succ_edge[e]] = message(L, t, send_of[kind], job->rank, to->rank, x,
                                                  kind == K_token ? job->d : -1, count_uses(L, j, kind, to->rank));
    }
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
            operand(L, r, ROLE_dw, part_of(L, r, s)->buf);
            for (int b = 0; b < k->nbufs && L->st[s].bytes[K_opt]; b++)
                if (k->buf[b].kind == K_opt && k->buf[b].stage == s) {
                    operand(L, r, ROLE_opt, b);
                    break;
                }
            operand(L, r, ROLE_w, L->weight[r][s]);
        }
    }
}

static int by_lane(const void *x, const void *y) {
    const struct lane *a = x, *b = y;
    if (a->kind != b->kind)
        return a->kind - b->kind;
    return a->peer != b->peer ? a->peer - b->peer : a->group - b->group;
}

/* Lanes were numbered as they came up; in the program they go by kind, peer and group. */
static void order_lanes(struct rank *k) {
    struct lane *old = NEW(struct lane, k->nlanes);
    uint16_t *now = NEW(uint16_t, k->nlanes);
    memcpy(old, k->lane, sizeof *old * (size_t)k->nlanes);
    qsort(k->lane, (size_t)k->nlanes, sizeof *k->lane, by_lane);
    for (int i = 0; i < k->nlanes; i++) {
        struct lane *at = bsearch(&old[i], k->lane, (size_t)k->nlanes, sizeof *k->lane, by_lane);
        now[i] = (uint16_t)(at - k->lane);
    }
    for (int i = 0; i < k->nins; i++)
        k->ins[i].lane = now[k->ins[i].lane];
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
            operand(L, p->rank, ROLE_dw, p->buf);
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
