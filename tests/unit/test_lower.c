/* Executes the lowered program serially on symbolic tensors; test_lower_counts.c counts its instructions. */
#include "lowered.h"
#include <criterion/criterion.h>

/* ---- execution: one instruction at a time, every send blocking until its receive ---- */

/* Both ends of a message are then reached at the same time, and run as one. judge.h covers lanes and eager sends. */

enum { MOST = 32 }; /* units of a set: pieces that one rank updates, or that travel */

struct kept { /* the contents of a buffer */
    bool set, freed;
    int kind, s, b, inst;
    /* For weights and gradients, per piece of the set: the number of updates plus one, or 0 without weights; and the
     * microbatches in the sum, plus the bit UNKNOWN if nothing is defined any more. */
    int version[MOST];
    uint64_t sum[MOST];
};
static const uint64_t UNKNOWN = (uint64_t)1 << 63;

/* An operand that is a part of a set: n pieces from the first one. */
struct range {
    struct kept *of;
    int from, n;
};

struct runner {
    struct lowered x;
    struct kept **at;           /* per rank and buffer */
    int *next, *issued, *parts; /* per rank: next instruction; per job: whether it has run, and in how many parts */
};

static int32_t find_operand(const struct rank *k, const struct instr *i, int role) {
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++)
        if (k->arg[a].role == role)
            return k->arg[a].buf;
    return -1;
}

static int count_operands(const struct rank *k, const struct instr *i, int role) {
    int n = 0;
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++)
        n += k->arg[a].role == role;
    return n;
}

static struct kept *operand_of(struct runner *m, int r, const struct instr *i, int role) {
    int32_t b = find_operand(&m->x.p->rank[r], i, role);
    cr_assert_geq(b, 0, "%s has no %s", op_name[i->op], role_name[role]);
    return &m->at[r][b];
}

static int units_in(const struct runner *m, int set) {
    const struct homes *h = &costs_of(m->x.sp)->homes[set];
    return m->x.costs->stage[set].pieces > 1 ? m->x.costs->stage[set].pieces : h->size * shares_of(h);
}

/* Returns the units of its set that an operand covers, from the buffer's kind and the rank's place among the homes. */
static struct range range_at(struct runner *m, int r, const struct instr *i, const struct arg *a) {
    const struct rank *k = &m->x.p->rank[r];
    const struct buf *b = &k->buf[a->buf];
    const struct homes *h = &costs_of(m->x.sp)->homes[b->stage];
    int shares = shares_of(h), me = place_in(h, r), from = 0, n = units_in(m, b->stage), own = n / h->size / shares;
    if (b->kind == K_wshard || b->kind == K_gshard) {
        n = shares * own;
        from = me % h->size * n;
    }
    if (b->kind == K_gown) {
        from = (me % h->size * shares + me / h->size) * own;
        n = own;
    }
    cr_assert_eq(b->stage, i->stage);
    cr_assert_eq(n % pieces_of(a), 0);
    n /= pieces_of(a);
    return (struct range){&m->at[r][a->buf], from + (int)a->piece * n, n};
}
static struct range range_of(struct runner *m, int r, const struct instr *i, int role) {
    const struct rank *k = &m->x.p->rank[r];
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++)
        if (k->arg[a].role == role)
            return range_at(m, r, i, &k->arg[a]);
    return (struct range){NULL, 0, 0};
}

/* Returns whether a later part of the job also adds to this piece of the gradient. */
static bool added_later(struct runner *m, int r, const struct instr *i, struct range piece) {
    const struct rank *k = &m->x.p->rank[r];
    for (const struct instr *x = i + 1; x < k->ins + k->nins && i->part < i->last; x++)
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
            if (x->op != i->op || x->stage != i->stage || x->batch != i->batch || k->arg[a].role != ROLE_dw)
                continue;
            struct range other = range_at(m, r, x, &k->arg[a]);
            if (other.from == piece.from)
                return true;
        }
    return false;
}

/* Checks that exactly one operand of this role is the tensor. */
static void expect_reads(struct runner *m, int r, const struct instr *i, int role, int kind, int s, int b, int inst) {
    const struct rank *k = &m->x.p->rank[r];
    int found = 0;
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++) {
        const struct kept *h = &m->at[r][k->arg[a].buf];
        found += k->arg[a].role == role && h->set && h->kind == kind && h->s == s && h->b == b &&
                 (inst < 0 || h->inst == inst);
    }
    cr_assert_eq(found, 1, "%s %d %d reads %s(%d,%d) %d times", op_name[i->op], i->stage, i->batch, kind_name[kind], s,
                 b, found);
}

/* Computes dw += sums, one per piece of dw. */
static void add_to(struct range dw, bool first, const uint64_t *sum) {
    dw.of->set = true;
    for (int k = 0; k < dw.n; k++) {
        uint64_t *at = &dw.of->sum[dw.from + k];
        *at = first ? 0 : *at;
        cr_assert(!((*at | sum[k]) & UNKNOWN) && !(*at & sum[k]), "a microbatch comes twice, or garbage does");
        *at |= sum[k];
    }
}

static void run_job(struct runner *m, int r, const struct instr *i) {
    static const int role_of[NKINDS] = {
        [K_act] = ROLE_x,         [K_grad] = ROLE_dy, [K_stash] = ROLE_stash, [K_input] = ROLE_input,
        [K_wstash] = ROLE_wstash, [K_token] = ROLE_t, [K_kv] = ROLE_kv,       [K_dkv] = ROLE_dkv};
    const struct spec *sp = m->x.sp;
    const struct rank *k = &m->x.p->rank[r];
    int32_t j = job_at(sp, i->stage, i->batch, i->op);
    cr_assert(j >= 0 && sp->job[j].rank == r && !m->issued[j] && i->part == m->parts[j]++);
    m->issued[j] = i->part == i->last;
    int want[NROLES] = {0};
    int32_t need[MOST_NEEDS], *pred = sp->pred ? sp->pred + sp->pred_at[j] : need;
    int n = sp->pred ? sp->pred_at[j + 1] - sp->pred_at[j] : needs_by_design(sp, &sp->job[j], need);
    for (int p = 0; p < n; p++) {
        const struct job *from = &sp->job[pred[p]];
        int kinds[2];
        cr_assert(m->issued[pred[p]]);
        for (int c = carried(sp, from, &sp->job[j], kinds); c > 0; c--) {
            int kind = kinds[c - 1];
            if (kind == K_token && from->rank == r) /* one lane runs both, in this order */
                continue;
            want[role_of[kind]]++;
            expect_reads(m, r, i, role_of[kind], kind, from->s, from->b, kind == K_token ? from->d : -1);
        }
    }
    cr_assert_eq(count_operands(k, i, ROLE_x), want[ROLE_x]);
    cr_assert_eq(count_operands(k, i, ROLE_dy), want[ROLE_dy]);
    cr_assert_eq(count_operands(k, i, ROLE_kv), want[ROLE_kv]);
    cr_assert_eq(count_operands(k, i, ROLE_dkv), want[ROLE_dkv]);
    if (i->op != OP_W) {
        struct range w = range_of(m, r, i, ROLE_w);
        cr_assert(w.from == 0 && w.n == units_in(m, i->stage));
        for (int piece = 0; piece < w.n; piece++)
            cr_assert_eq(w.of->version[piece], 1, "%d%s%d reads piece %d", i->stage, op_name[i->op], i->batch, piece);
    }
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++)
        if (op_access(i->op, k->arg[a].role) == ACC_WRITE && i->part == i->last) {
            struct kept *h = &m->at[r][k->arg[a].buf];
            const struct buf *b = &k->buf[k->arg[a].buf];
            cr_assert(!h->set && !h->freed);
            *h = (struct kept){.set = true, .kind = b->kind, .s = i->stage, .b = i->batch};
            h->inst = b->kind == K_token ? i->op : -1;
        }
    if (i->op == OP_B || i->op == OP_W) {
        uint64_t all[MOST];
        for (int piece = 0; piece < MOST; piece++)
            all[piece] = (uint64_t)1 << i->batch;
        for (uint32_t a = i->arg; a < i->arg + i->narg; a++) {
            if (k->arg[a].role != ROLE_dw)
                continue;
            struct range piece = range_at(m, r, i, &k->arg[a]);
            if (!added_later(m, r, i, piece))
                add_to(piece, i->first, all);
        }
    }
}

static void update(struct runner *m, int r, const struct instr *i) {
    const struct homes *h = &costs_of(m->x.sp)->homes[i->stage];
    struct range dw = range_of(m, r, i, ROLE_dw), w = range_of(m, r, i, ROLE_w);
    int me = place_in(h, r), n = units_in(m, i->stage) / h->size, one = n / shares_of(h);
    cr_assert(w.from == me % h->size * n + (h->zero ? me / h->size * one : 0) && w.n == (h->zero ? one : n));
    cr_assert(dw.from == w.from && dw.n == w.n);
    bool away = m->x.sp->limits.offload_state && m->x.sp->limits.offload_state[i->stage];
    struct kept *opt = range_of(m, r, i, ROLE_opt).of;
    cr_assert(!away || !opt || (opt->set && opt->inst == 0), "it must be there, and not updated yet");
    if (opt)
        opt->inst = 1;
    for (int piece = w.from; piece < w.from + w.n; piece++) {
        cr_assert_eq(dw.of->sum[piece], ((uint64_t)1 << m->x.sp->batches) - 1);
        cr_assert_eq(w.of->version[piece]++, 1);
    }
}

/* Checks that a home's own jobs do not wait for others' parts. */
static void expect_own_done(const struct runner *m, int r, int s) {
    for (int j = 0; j < m->x.sp->njobs; j++) {
        const struct job *job = &m->x.sp->job[j];
        bool own = job->rank == r && job->s == s && (job->d == OP_B || job->d == OP_W);
        cr_assert(!own || m->issued[j]);
    }
}

static void run_local(struct runner *m, int r, const struct instr *i) {
    struct range src = is_copy(i->op) ? (struct range){NULL, 0, 0} : range_of(m, r, i, ROLE_src);
    if (i->op <= OP_W)
        run_job(m, r, i);
    else if (i->op == OP_ZERO) {
        static const uint64_t none[MOST];
        add_to(range_of(m, r, i, ROLE_dw), true, none);
    } else if (i->op == OP_COPY) {
        struct range w = range_of(m, r, i, ROLE_w);
        cr_assert(w.from == src.from && w.n == src.n);
        memcpy(&w.of->version[w.from], &src.of->version[src.from], sizeof(int) * (size_t)w.n);
        w.of->set = true;
    } else if (is_copy(i->op)) {
        struct kept *to = operand_of(m, r, i, ROLE_t);
        cr_assert(operand_of(m, r, i, ROLE_src)->set && (!to->set || i->op == OP_OFFLOAD_O));
        *to = *operand_of(m, r, i, ROLE_src);
    } else if (i->op == OP_ADD || i->op == OP_TAKE) {
        struct range dw = range_of(m, r, i, ROLE_dw);
        cr_assert(src.of->set && src.from == dw.from && src.n == dw.n);
        if (!m->x.sp->limits.grad_slots)
            expect_own_done(m, r, i->stage);
        add_to(dw, i->first, &src.of->sum[src.from]);
    } else {
        cr_assert_eq(i->op, OP_U);
        update(m, r, i);
    }
}

static void finish(struct runner *m, int r) {
    const struct rank *k = &m->x.p->rank[r];
    const struct instr *i = &k->ins[m->next[r]++];
    for (uint32_t f = i->free; f < i->free + i->nfree; f++) {
        bool uses = false;
        for (uint32_t a = i->arg; a < i->arg + i->narg; a++)
            uses |= k->arg[a].buf == k->freed[f];
        cr_assert(uses && m->at[r][k->freed[f]].set && !m->at[r][k->freed[f]].freed);
        m->at[r][k->freed[f]] = (struct kept){.freed = true};
    }
}

static void send(struct runner *m, int from, const struct instr *x, int to, const struct instr *y) {
    struct kept *a = operand_of(m, from, x, ROLE_t), *b = operand_of(m, to, y, ROLE_t);
    cr_assert(a->set && x->op + 1 == y->op && x->stage == y->stage && x->batch == y->batch);
    if (x->op != OP_SERVE && x->op != OP_SEND_G) {
        cr_assert_eq(a->s, x->stage);
        *b = *a;
        return;
    }
    struct range s = range_of(m, from, x, ROLE_t), d = range_of(m, to, y, ROLE_t);
    cr_assert(s.from == d.from && s.n == d.n);
    b->set = true;
    b->s = a->s;
    b->kind = m->x.p->rank[to].buf[find_operand(&m->x.p->rank[to], y, ROLE_t)].kind;
    memcpy(&b->version[d.from], &a->version[s.from], sizeof *b->version * (size_t)s.n);
    memcpy(&b->sum[d.from], &a->sum[s.from], sizeof *b->sum * (size_t)s.n);
}

/* Runs a collective that all members of the group have reached; i: one per member. */
static void collect(struct runner *m, const struct group *g, const struct instr **i) {
    uint64_t sum[MOST] = {0};
    int version[MOST] = {0};
    for (int k = 0; k < g->n; k++) {
        struct range in = range_of(m, g->rank[k], i[k], i[k]->op == OP_ALL_REDUCE ? ROLE_dw : ROLE_src);
        cr_assert(i[k]->op == i[0]->op && i[k]->stage == i[0]->stage && i[k]->inst == i[0]->inst);
        for (int piece = in.from; in.of && piece < in.from + in.n; piece++) {
            if (i[0]->op == OP_ALL_GATHER || i[0]->op == OP_BROADCAST)
                version[piece] = in.of->version[piece];
            else {
                cr_assert(!(sum[piece] & in.of->sum[piece]) && !(in.of->sum[piece] & UNKNOWN));
                sum[piece] |= in.of->sum[piece];
            }
        }
    }
    for (int k = 0; k < g->n; k++) {
        bool weights = i[0]->op == OP_ALL_GATHER || i[0]->op == OP_BROADCAST;
        struct range in = range_of(m, g->rank[k], i[k], ROLE_src);
        struct range out = range_of(m, g->rank[k], i[k], weights ? ROLE_w : ROLE_dw);
        bool root = i[k]->peer == g->rank[k];
        cr_assert(out.of ? !has_root(i[0]->op) || root == (i[0]->op == OP_REDUCE) : root == (i[0]->op == OP_BROADCAST));
        for (int piece = in.from; in.of == out.of && piece < in.from + in.n; piece++) /* if in place */
            out.of->sum[piece] = UNKNOWN;
        if (out.of && weights)
            memcpy(&out.of->version[out.from], &version[out.from], sizeof *version * (size_t)out.n);
        else if (out.of)
            add_to(out, i[0]->op == OP_ALL_REDUCE || i[k]->first, &sum[out.from]);
        if (out.of)
            out.of->set = true;
    }
}

/* Runs a message if all its members have reached it. */
static bool meet(struct runner *m, int r, const struct instr *i) {
    const struct instr *at[MOST];
    int rank[MOST], n = 0;
    const struct group *g = is_group(i->op) ? &m->x.p->group[m->x.p->rank[r].lane[i->lane].group] : NULL;
    for (int k = 0; k < (g ? g->n : 2); k++) {
        int q = g ? g->rank[k] : (k == 0) == is_send(i->op) ? r : i->peer;
        const struct rank *other = &m->x.p->rank[q];
        if (m->next[q] == other->nins || other->ins[m->next[q]].msg != i->msg)
            return false;
        at[n] = &other->ins[m->next[q]];
        rank[n++] = q;
    }
    if (g)
        collect(m, g, at);
    else
        send(m, rank[0], at[0], rank[1], at[1]);
    for (int k = 0; k < n; k++)
        finish(m, rank[k]);
    return true;
}

/* Returns whether the buffer stays for the step: home weights, their optimizer state and gradients, and workspaces. */
static bool permanent(const struct spec *sp, int r, const struct buf *b) {
    if (b->kind == K_opt && sp->limits.offload_state && sp->limits.offload_state[b->stage])
        return false;
    if (b->kind == K_work || b->kind == K_opt || b->kind == K_hopt || b->kind == K_wshard || b->kind == K_gown)
        return true;
    const struct homes *h = b->stage >= 0 ? &costs_of(sp)->homes[b->stage] : NULL;
    bool home = place_in(h, r) >= 0 && b->inst < 0;
    return home &&
           ((b->kind == K_weight && h->size == 1) || (h->zero < 2 && b->kind == (h->size > 1 ? K_gshard : K_wgrad)));
}

/* Checks that every home has the updated weights of all pieces that it holds. */
static void expect_updated(const struct runner *m) {
    for (int s = 0; s < m->x.sp->stages; s++) {
        const struct homes *h = &costs_of(m->x.sp)->homes[s];
        for (int i = 0; i < h->lists * h->size; i++) {
            const struct rank *k = &m->x.p->rank[h->rank[i]];
            int held = 0, shares = units_in(m, s) / h->size, from = h->size > 1 ? i % h->size * shares : 0;
            for (int b = 0; b < k->nbufs; b++) {
                if (k->buf[b].stage != s || k->buf[b].inst >= 0 ||
                    k->buf[b].kind != (h->size > 1 ? K_wshard : K_weight))
                    continue;
                held++;
                for (int piece = from; piece < from + shares; piece++)
                    cr_assert_eq(m->at[h->rank[i]][b].version[piece], 2);
            }
            cr_assert_eq(held, 1);
        }
    }
}

static void execute(struct lowered x) {
    int W = x.sp->workers;
    struct runner m = {.x = x, .at = NEW(struct kept *, W), .next = NEW(int, W), .issued = NEW(int, x.sp->njobs)};
    m.parts = NEW(int, x.sp->njobs);
    for (int r = 0; r < W; r++) {
        m.at[r] = NEW(struct kept, x.p->rank[r].nbufs);
        for (int b = 0; b < x.p->rank[r].nbufs; b++) {
            const struct buf *buf = &x.p->rank[r].buf[b];
            if (buf->kind == K_hopt)
                m.at[r][b] = (struct kept){.set = true, .kind = K_opt, .s = buf->stage};
            if (buf->kind != K_wshard && (buf->kind != K_weight || buf->inst >= 0))
                continue;
            m.at[r][b] = (struct kept){.set = true, .kind = buf->kind, .s = buf->stage};
            for (int piece = 0; piece < MOST; piece++)
                m.at[r][b].version[piece] = 1;
        }
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < W; r++)
            while (m.next[r] < x.p->rank[r].nins) {
                const struct instr *i = &x.p->rank[r].ins[m.next[r]];
                if (i->msg < 0) {
                    run_local(&m, r, i);
                    finish(&m, r);
                } else if (!meet(&m, r, i))
                    break;
                moved = true;
            }
    }
    for (int r = 0; r < W; r++) {
        cr_assert_eq(m.next[r], x.p->rank[r].nins, "rank %d blocks", r);
        for (int b = 0; b < x.p->rank[r].nbufs; b++)
            cr_assert_neq(m.at[r][b].freed, permanent(x.sp, r, &x.p->rank[r].buf[b]));
    }
    expect_updated(&m);
    for (int j = 0; j < x.sp->njobs; j++)
        cr_assert_eq(m.issued[j], 1);
}

/* Lowers the same jobs in the same order, with weights that may come from any rank. */
static void lower_relayed(struct lowered *x) {
    draw_sources(x->sp);
    x->sp->choices.prefetch = (enum prefetch)below(4);
    x->p = lower_of(x->sp, x->costs, x->g, x->sc);
}

static void draw_and_execute(int first, int n, int flags, bool relayed) {
    for (int seed = first; seed < first + n; seed++) {
        struct lowered x = lower_spec(draw_spec((uint64_t)seed, flags));
        if (relayed)
            lower_relayed(&x);
        execute(x);
        for (int r = 0; r < x.sp->workers; r++) { /* jobs keep the schedule's order */
            const struct rank *k = &x.p->rank[r];
            for (int i = 0, at = 0; i < k->nins; i++)
                if (k->ins[i].op <= OP_W && k->ins[i].part == k->ins[i].last) {
                    const struct job *j = &x.sp->job[x.sc->order[r][at++]];
                    cr_assert(j->s == k->ins[i].stage && j->b == k->ins[i].batch && j->d == k->ins[i].op);
                }
        }
        free_all();
    }
}

Test(lower, never_blocks_even_serially) {
    draw_and_execute(0, 100, 0, false);
    draw_and_execute(1000, 100, ORDERS, false);
    draw_and_execute(2000, 100, ORDERS | BANDWIDTH, false);
    draw_and_execute(3000, 400, SHARDED, false);
    draw_and_execute(4000, 400, SHARDED | BANDWIDTH, false);
    draw_and_execute(5000, 200, 0, true);
    draw_and_execute(6000, 200, ORDERS | BANDWIDTH, true);
    draw_and_execute(7000, 400, SHARDED | BANDWIDTH, true);
    draw_and_execute(8000, 400, SHARDED | BANDWIDTH | ROUNDS, false);
    draw_and_execute(9000, 200, SHARDED | BANDWIDTH | ROUNDS | HOST, false);
    draw_and_execute(10000, 200, SHARDED | BANDWIDTH | ROUNDS | HOST, true);
    draw_and_execute(11000, 200, SLICES | BANDWIDTH | ORDERS, false);
    draw_and_execute(12000, 200, SLICES | SHARDED | HOST, false);
}

/* ---- by hand ---- */

/* A job of rank 1 waits for 299 jobs of rank 0, which send it nothing but tokens. */
Test(lower, a_job_that_waits_for_hundreds) {
    enum { B = 60, S = 5 };
    struct spec *sp = empty_spec(2, S, B);
    for (int s = 0; s < S; s++)
        for (int b = 0; b < B; b++) {
            add_job(sp, s, b, OP_F, 0, 0);
            add_job(sp, s, b, OP_B, 0, s == S - 1 && b == 0);
        }
    sp->pred = NEW(int32_t, 4 * sp->njobs);
    sp->pred_at = NEW(int32_t, sp->njobs + 1);
    for (int j = 0, n = 0; j < sp->njobs; sp->pred_at[++j] = n) {
        n += needs_by_design(sp, &sp->job[j], sp->pred + n);
        for (int f = 0; sp->job[j].rank == 1 && f < sp->njobs; f++)
            if (sp->job[f].d == OP_F && !(sp->job[f].s == S - 1 && sp->job[f].b == 0))
                sp->pred[n++] = f;
    }
    struct lowered x = lower_spec(sp);
    execute(x);
}

/* A model's stages form a chain: an edge from further away, or past a recompute, is an order and carries nothing. */
Test(lower, a_model_reads_its_neighbours_only) {
    struct spec *sp = empty_spec(1, 3, 1);
    sp->model = NEW(struct model, 1);
    for (int s = 0; s < 3; s++) {
        add_job(sp, s, 0, OP_F, 0, 0);
        add_job(sp, s, 0, OP_R, 0, 0);
        add_job(sp, s, 0, OP_B, 0, 0);
    }
    /* F(s) needs all F before it, B(s) its R, its F and all B after it */
    sp->pred = (int32_t[]){0, 1, 0, 5, 8, 0, 3, 4, 3, 8, 3, 0, 6, 7, 6};
    sp->pred_at = (int32_t[]){0, 0, 1, 5, 6, 7, 10, 12, 13, 15};
    struct lowered x = lower_spec(sp);
    struct text t = {0};
    emit_text(&t, x.p);
    static const char want[] = "F 2 0 w=weight(2) x=act(1,0) input=input(2,0) free(act(1,0))\n";
    cr_assert(strstr(t.s, want), "%s", t.s);
    cr_assert(strstr(t.s, "B 0 0 w=weight(0) stash=stash(0,0) dy=grad(1,0) dw=wgrad(0) free(stash(0,0) grad(1,0))\n"));
}
