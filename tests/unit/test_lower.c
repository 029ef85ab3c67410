/* The lowered program: executed serially on symbolic tensors, and counted. */
#include "passes/lower.h"
#include "random_spec.h"
#include <criterion/criterion.h>

struct lowered {
    struct spec *sp;
    struct stage *st;
    struct graph *g;
    struct sched *sc;
    struct program *p;
};

static struct lowered lower_spec(struct spec *sp) {
    struct lowered x = {.sp = sp, .st = draw_stages(sp), .g = graph_build(sp)};
    x.sc = sched_run(sp, x.st, x.g);
    x.p = lower(sp, x.st, x.g, x.sc);
    return x;
}

/* ---- execution: one instruction at a time, every send blocking until its receive ---- */

/* So both ends of a message stand at it at once, and run as one. What lanes and eager sends may do, judge.h knows. */

struct kept { /* what a buffer holds */
    bool set, freed;
    int kind, s, b, inst;
    uint64_t sum; /* wgrad: the microbatches in it */
};

struct machine {
    struct lowered x;
    struct kept **at;   /* per rank and buffer */
    int *next, *issued; /* per rank: next instruction. Per job: how often it ran */
    bool **updated;     /* per rank and stage */
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

static struct kept *operand_of(struct machine *m, int r, const struct instr *i, int role) {
    int32_t b = find_operand(&m->x.p->rank[r], i, role);
    cr_assert_geq(b, 0, "%s has no %s", op_name[i->op], role_name[role]);
    return &m->at[r][b];
}

/* Among its operands of this role, exactly one is the tensor. */
static void expect_reads(struct machine *m, int r, const struct instr *i, int role, int kind, int s, int b, int inst) {
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

static void add_to(struct kept *dw, const struct instr *i, uint64_t sum) {
    if (i->first)
        *dw = (struct kept){.set = true, .kind = K_wgrad, .s = i->stage, .b = -1, .inst = -1};
    cr_assert(dw->set && dw->kind == K_wgrad && dw->s == i->stage && !(dw->sum & sum), "wgrad(%d)", i->stage);
    dw->sum |= sum;
}

static void run_job(struct machine *m, int r, const struct instr *i) {
    static const int role_of[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                        [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};
    const struct spec *sp = m->x.sp;
    const struct rank *k = &m->x.p->rank[r];
    int32_t j = job_at(sp, i->stage, i->batch, i->op);
    cr_assert(j >= 0 && sp->job[j].rank == r && m->issued[j]++ == 0);
    int want[NROLES] = {0};
    for (int e = m->x.g->pred_at[j]; e < m->x.g->pred_at[j + 1]; e++) {
        const struct job *from = &sp->job[m->x.g->pred[e]];
        int kind = carried(sp, from, &sp->job[j]);
        cr_assert(m->issued[m->x.g->pred[e]]);
        if (kind == K_token && from->rank == r) /* one lane runs both, in this order */
            continue;
        want[role_of[kind]]++;
        expect_reads(m, r, i, role_of[kind], kind, from->s, from->b, kind == K_token ? from->d : -1);
    }
    cr_assert_eq(count_operands(k, i, ROLE_x), want[ROLE_x]);
    cr_assert_eq(count_operands(k, i, ROLE_dy), want[ROLE_dy]);
    if (i->op != OP_W) {
        struct kept *w = operand_of(m, r, i, ROLE_w);
        cr_assert(w->set && w->kind == K_weight && w->s == i->stage && !m->updated[r][i->stage]);
    }
    for (uint32_t a = i->arg; a < i->arg + i->narg; a++)
        if (op_access(i->op, k->arg[a].role) == ACC_WRITE) {
            struct kept *h = &m->at[r][k->arg[a].buf];
            const struct buf *b = &k->buf[k->arg[a].buf];
            cr_assert(!h->set && !h->freed);
            *h = (struct kept){.set = true, .kind = b->kind, .s = i->stage, .b = i->batch};
            h->inst = b->kind == K_token ? i->op : -1;
        }
    if (i->op == OP_B || i->op == OP_W)
        add_to(operand_of(m, r, i, ROLE_dw), i, (uint64_t)1 << i->batch);
}

static void run_local(struct machine *m, int r, const struct instr *i) {
    if (i->op <= OP_W)
        run_job(m, r, i);
    else if (i->op == OP_ZERO)
        *operand_of(m, r, i, ROLE_dw) = (struct kept){.set = true, .kind = K_wgrad, .s = i->stage};
    else if (i->op == OP_ADD) {
        cr_assert(operand_of(m, r, i, ROLE_src)->set && operand_of(m, r, i, ROLE_src)->s == i->stage);
        for (int j = 0; j < m->x.sp->njobs; j++) { /* a home's own jobs must not wait for others' parts */
            const struct job *job = &m->x.sp->job[j];
            bool own = job->rank == r && job->s == i->stage && (job->d == OP_B || job->d == OP_W);
            cr_assert(!own || m->issued[j]);
        }
        add_to(operand_of(m, r, i, ROLE_dw), i, operand_of(m, r, i, ROLE_src)->sum);
    } else {
        cr_assert_eq(i->op, OP_U);
        cr_assert_eq(operand_of(m, r, i, ROLE_dw)->sum, ((uint64_t)1 << m->x.sp->batches) - 1);
        cr_assert(!m->updated[r][i->stage] && operand_of(m, r, i, ROLE_w)->s == i->stage);
        m->updated[r][i->stage] = true;
    }
}

static void finish(struct machine *m, int r) {
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

/* All members stand at the message: the tensor moves, or is summed. */
static bool meet(struct machine *m, int r, const struct instr *i) {
    struct kept sum = {0};
    int n = 0, at[8];
    for (int q = 0; q < m->x.sp->workers; q++) {
        const struct rank *k = &m->x.p->rank[q];
        if (m->next[q] < k->nins && k->ins[m->next[q]].msg == i->msg)
            at[n++] = q;
    }
    const struct rank *k = &m->x.p->rank[r];
    if (n < (i->op == OP_ALL_REDUCE ? m->x.p->group[k->lane[i->lane].group].n : 2))
        return false;
    for (int a = 0; a < n; a++) {
        const struct instr *y = &m->x.p->rank[at[a]].ins[m->next[at[a]]];
        struct kept *h = operand_of(m, at[a], y, y->op == OP_ALL_REDUCE ? ROLE_dw : ROLE_t);
        if (op_lane[y->op] == LANE_RECV)
            continue;
        cr_assert(h->set && !(sum.sum & h->sum) && h->s == y->stage, "%s %d of nothing", op_name[y->op], y->stage);
        h->sum |= sum.sum;
        sum = *h;
    }
    for (int a = 0; a < n; a++) {
        const struct instr *y = &m->x.p->rank[at[a]].ins[m->next[at[a]]];
        if (op_lane[y->op] != LANE_SEND)
            *operand_of(m, at[a], y, y->op == OP_ALL_REDUCE ? ROLE_dw : ROLE_t) = sum;
    }
    for (int a = 0; a < n; a++)
        finish(m, at[a]);
    return true;
}

/* Home weights, their optimizer state and gradients, and workspaces stay for the step. */
static bool permanent(const struct owners *h, int r, const struct buf *b) {
    bool stays = b->kind == K_weight || b->kind == K_wgrad || b->kind == K_opt;
    return b->kind == K_work || (stays && b->inst < 0 && is_home(h, b->stage, r));
}

static void execute(struct lowered x, const struct owners *h) {
    int W = x.sp->workers;
    struct machine m = {.x = x, .at = NEW(struct kept *, W), .next = NEW(int, W), .issued = NEW(int, x.sp->njobs)};
    m.updated = NEW(bool *, W);
    for (int r = 0; r < W; r++) {
        m.at[r] = NEW(struct kept, x.p->rank[r].nbufs);
        m.updated[r] = NEW(bool, x.sp->stages);
        for (int b = 0; b < x.p->rank[r].nbufs; b++)
            if (x.p->rank[r].buf[b].kind == K_weight && x.p->rank[r].buf[b].inst < 0)
                m.at[r][b] = (struct kept){.set = true, .kind = K_weight, .s = x.p->rank[r].buf[b].stage};
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
        for (int s = 0; s < x.sp->stages; s++)
            cr_assert_eq(m.updated[r][s], is_home(h, s, r));
        for (int b = 0; b < x.p->rank[r].nbufs; b++)
            cr_assert_neq(m.at[r][b].freed, permanent(h, r, &x.p->rank[r].buf[b]));
    }
    for (int j = 0; j < x.sp->njobs; j++)
        cr_assert_eq(m.issued[j], 1);
}

static struct owners naive_homes(const struct spec *sp) {
    struct owners h = {NEW(int32_t, sp->stages + 1), NEW(int32_t, sp->stages * sp->workers)};
    for (int s = 0, n = 0; s < sp->stages; h.at[++s] = n)
        for (int r = 0; r < sp->workers; r++) {
            bool is = false;
            for (int j = 0; j < sp->njobs; j++)
                is |= sp->job[j].s == s && sp->job[j].home == r;
            if (is)
                h.rank[n++] = r;
        }
    return h;
}

static void draw_and_execute(int first, int n, int flags) {
    for (int seed = first; seed < first + n; seed++) {
        struct lowered x = lower_spec(draw_spec((uint64_t)seed, flags));
        struct owners h = naive_homes(x.sp);
        execute(x, &h);
        for (int r = 0; r < x.sp->workers; r++) { /* jobs stay in the order of the schedule */
            const struct rank *k = &x.p->rank[r];
            for (int i = 0, at = 0; i < k->nins; i++)
                if (k->ins[i].op <= OP_W) {
                    const struct job *j = &x.sp->job[x.sc->order[r][at++]];
                    cr_assert(j->s == k->ins[i].stage && j->b == k->ins[i].batch && j->d == k->ins[i].op);
                }
        }
        free_all();
    }
}

Test(lower, never_blocks_even_serially) {
    draw_and_execute(0, 100, 0);
    draw_and_execute(1000, 100, ORDERS);
    draw_and_execute(2000, 100, ORDERS | BANDWIDTH);
}

/* ---- how many instructions of each kind there are ---- */

/* Messages that carry job j's outputs: one per kind and other rank. */
static void count_outputs(const struct lowered *x, int j, int *sends) {
    static const int op_of[NKINDS] = {[K_act] = OP_SEND_F,   [K_grad] = OP_SEND_B,   [K_stash] = OP_SEND_S,
                                      [K_input] = OP_SEND_S, [K_wstash] = OP_SEND_W, [K_token] = OP_SEND_T};
    const struct job *job = &x->sp->job[j];
    bool *sent = NEW(bool, NKINDS * x->sp->workers);
    for (int e = x->g->succ_at[j]; e < x->g->succ_at[j + 1]; e++) {
        const struct job *to = &x->sp->job[x->g->succ[e]];
        int kind = carried(x->sp, job, to);
        bool *done = &sent[kind * x->sp->workers + to->rank];
        sends[op_of[kind]] += to->rank != job->rank && !*done;
        *done = true;
    }
}

static void count_expected(const struct lowered *x, const struct owners *h, int *n) {
    for (int j = 0; j < x->sp->njobs; j++) {
        n[x->sp->job[j].d]++;
        count_outputs(x, j, n);
    }
    for (int s = 0; s < x->sp->stages; s++) {
        int homes = h->at[s + 1] - h->at[s];
        n[OP_U] += homes;
        n[OP_ALL_REDUCE] += homes > 1 ? homes : 0;
        bool *works = NEW(bool, x->sp->workers), *sent_to = NEW(bool, x->sp->workers);
        for (int j = 0; j < x->sp->njobs; j++) {
            const struct job *job = &x->sp->job[j];
            if (job->s != s || (job->d != OP_B && job->d != OP_W) || works[job->rank])
                continue;
            works[job->rank] = true;
            if (is_home(h, s, job->rank))
                continue;
            n[OP_SEND_G]++;
            n[OP_ADD]++;
            sent_to[job->home] = true; /* a rank's whole part goes where w() sends its first one */
        }
        for (int i = h->at[s]; i < h->at[s + 1]; i++)
            n[OP_ZERO] += !works[h->rank[i]] && !sent_to[h->rank[i]];
    }
    n[OP_SERVE] = fetch_plan(x->sp, x->sc, h).n;
    for (int op = OP_SEND_F; op <= OP_FETCH; op += 2)
        n[op + 1] = n[op];
}

/* An instruction's lane is its own kind's, to its own peer. */
static void expect_lane(const struct program *p, int r, const struct instr *i) {
    const struct lane *l = &p->rank[r].lane[i->lane];
    cr_assert(lane_takes(l->kind, i->op));
    cr_assert(l->peer == (op_lane[i->op] == LANE_COMPUTE || l->kind == LANE_ALL ? -1 : i->peer));
    bool member = l->kind != LANE_GROUP;
    for (int m = 0; !member && m < p->group[l->group].n; m++)
        member = p->group[l->group].rank[m] == r;
    cr_assert(member);
}

Test(lower, counts_and_lanes) {
    int total[NOPS] = {0};
    for (int seed = 0; seed < 150; seed++) {
        struct lowered x = lower_spec(draw_spec((uint64_t)seed, ORDERS | COARSE));
        struct owners h = naive_homes(x.sp);
        int want[NOPS] = {0}, got[NOPS] = {0}, reductions = 0, messages = 0;
        count_expected(&x, &h, want);
        for (int r = 0; r < x.sp->workers; r++) {
            const struct rank *k = &x.p->rank[r];
            for (int i = 0; i < k->nins; i++) {
                got[k->ins[i].op]++;
                messages += op_lane[k->ins[i].op] == LANE_SEND;
                expect_lane(x.p, r, &k->ins[i]);
            }
            cr_assert(k->lane[0].kind == LANE_COMPUTE);
            for (int l = 1; l < k->nlanes; l++) {
                const struct lane *a = &k->lane[l - 1], *b = &k->lane[l];
                cr_assert(a->kind < b->kind || (a->kind == b->kind && (a->peer < b->peer || a->group < b->group)));
            }
        }
        for (int s = 0; s < x.sp->stages; s++)
            reductions += h.at[s + 1] - h.at[s] > 1;
        for (int op = 0; op < NOPS; op++) {
            cr_assert_eq(got[op], want[op], "seed %d: %d %s, not %d", seed, got[op], op_name[op], want[op]);
            total[op] += got[op];
        }
        cr_assert_eq(x.p->nmsgs, messages + reductions);
        free_all();
    }
    for (int op = 0; op < NOPS; op++)
        cr_assert(total[op] > 50 || op == OP_TAKE || op == OP_COPY || (is_group(op) && op != OP_ALL_REDUCE), "%s is hardly tested",
                  op_name[op]);
}

/* ---- by hand ---- */

/* A job of rank 1 waits for 299 of rank 0, which send it nothing but that they have ended. */
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
    struct owners h = naive_homes(sp);
    execute(x, &h);
}

/* Stages of a model form a chain: an edge from further away, or past a recompute, is an order and carries nothing. */
Test(lower, a_model_reads_its_neighbours_only) {
    struct spec *sp = empty_spec(1, 3, 1);
    sp->model = NEW(struct model, 1);
    for (int s = 0; s < 3; s++) {
        add_job(sp, s, 0, OP_F, 0, 0);
        add_job(sp, s, 0, OP_R, 0, 0);
        add_job(sp, s, 0, OP_B, 0, 0);
    }
    /* F(s) needs all F before, B(s) its R, its F and all B behind */
    sp->pred = (int32_t[]){0, 1, 0, 5, 8, 0, 3, 4, 3, 8, 3, 0, 6, 7, 6};
    sp->pred_at = (int32_t[]){0, 0, 1, 5, 6, 7, 10, 12, 13, 15};
    struct lowered x = lower_spec(sp);
    struct text t = {0};
    emit_text(&t, x.p);
    static const char want[] = "F 2 0 w=weight(2) x=act(1,0) input=input(2,0) free(act(1,0))\n";
    cr_assert(strstr(t.s, want), "%s", t.s);
    cr_assert(strstr(t.s, "B 0 0 w=weight(0) stash=stash(0,0) dy=grad(1,0) dw=wgrad(0) free(stash(0,0) grad(1,0))\n"));
}
