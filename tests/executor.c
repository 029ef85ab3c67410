/* An executor that knows nothing of proofs: it plays a program once, in an order drawn at random, on symbolic memory.
 *
 * Memory: every byte of a rank's arena holds a symbol. Byte i of a tensor with value v holds v + i * STEP, so a reader
 * sees whether all bytes belong to one value; byte i of a gradient holds the sum of its contributions' bytes, in any
 * order. A value is a hash of what it was made from: the job's stage and microbatch and the values it read. Symbols
 * have 63 bits; with the top bit set they are a stamp, which nobody may read.
 *
 * Time: an instruction starts when it is the first of its lane that has not, all it waits for has ended, and nothing of
 * its lane runs; it ends any time later. A SEND and the RECV at the head of the same edge start together, and so do all
 * members of a REDUCE. At its start an instruction reads its inputs and stamps its outputs; at its end the inputs must
 * not have changed and the stamps must still be there, else something else was at those bytes meanwhile: a race.
 *
 * Orders: uniform choice hardly ever lets one lane run far ahead of another. So lanes have random priorities, one for
 * starting and one for ending, and the highest acts, but for some noise and some changes on the way (after Burckhardt
 * 2010, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"). */
#include "symbols.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- a run ---- */

enum state { TO_COME, RUNNING, ENDED };

struct lane_state {
    int32_t head;         /* its first instruction that has not ended; nins when none is left */
    uint64_t *seen;       /* what the running instruction read, operand after operand; for a message, what it writes */
    uint64_t priority[2]; /* to start, to end */
};

struct machine {
    const struct rank *k;
    uint64_t *mem;   /* [arena] */
    uint64_t *stamp; /* per instruction: of its first operand; the others' follow */
    struct lane_state *lane;
    int32_t *next;  /* per instruction: the next of its lane */
    uint8_t *state; /* per instruction */
    int32_t ended;  /* how many have */
};

struct run {
    const struct promise *want;
    const struct program *p;
    enum how how;
    uint64_t random, stamps;
    int noise; /* of 16 choices, so many ignore priorities */
    struct machine *at;
    uint8_t *jobs;            /* enum state */
    int64_t (*bytes)[NKINDS]; /* per stage: of all its tensors of a kind, as the first buffer says; 0: none yet */
    int wrong;
};
static char why[1024];

static bool fail(struct run *z, int r, int32_t i, const char *fmt, ...) {
    if (z->wrong++)
        return false;
    struct text t = {0};
    if (i >= 0)
        put_label(&t, &z->at[r].k->ins[i]);
    int n = snprintf(why, sizeof why, "rank %d, %s: ", r, i >= 0 ? t.s : "at the end");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why + n, sizeof why - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

/* An operand of instruction i, and how it is accessed. */
static const struct buf *operand(const struct machine *m, const struct instr *x, int a) {
    return &m->k->buf[m->k->arg[x->arg + (uint32_t)a].buf];
}
static int access(const struct machine *m, const struct instr *x, int a) {
    int role = m->k->arg[x->arg + (uint32_t)a].role, acc = op_access(x->op, role);
    return op_accumulates(x->op, role) && is_first(x, role) ? acc & ~ACC_READ : acc;
}
/* The part of a lane's seen[] that belongs to operand a. */
static uint64_t *seen_at(const struct machine *m, const struct instr *x, int a) {
    uint64_t *s = m->lane[x->lane].seen;
    for (int o = 0; o < a; o++)
        s += operand(m, x, o)->bytes;
    return s;
}
static int role_operand(const struct machine *m, const struct instr *x, int role) {
    for (int a = 0; a < x->narg; a++)
        if (m->k->arg[x->arg + (uint32_t)a].role == role)
            return a;
    return -1;
}
static const struct buf *workspace(const struct machine *m) {
    for (int b = 0; b < m->k->nbufs; b++)
        if (m->k->buf[b].kind == K_work)
            return &m->k->buf[b];
    return NULL;
}

/* All tensors of a stage and kind have one size. A gradient is no smaller than its weights: it may be wider. */
static bool fits(struct run *z, int r, int32_t i, const struct buf *b) {
    if (b->off < 0 || b->bytes < 0 || b->off > z->at[r].k->arena - b->bytes)
        return fail(z, r, i, "an operand lies outside the arena");
    int64_t *size = b->stage < 0 ? NULL : &z->bytes[b->stage][b->kind];
    if (size && *size && *size != b->bytes)
        return fail(z, r, i, "an operand has %lld bytes instead of %lld", (long long)b->bytes, (long long)*size);
    if (b->kind == K_wgrad && b->bytes < z->bytes[b->stage][K_weight])
        return fail(z, r, i, "a gradient has fewer bytes than its weights");
    if (size)
        *size = b->bytes;
    return true;
}

static bool job_may_start(struct run *z, int r, int32_t i) {
    const struct instr *x = &z->at[r].k->ins[i];
    const struct spec *sp = z->want->sp;
    bool inside = x->stage >= 0 && x->stage < sp->stages && x->batch >= 0 && x->batch < sp->batches;
    int32_t j = inside ? job_at(sp, x->stage, x->batch, x->op) : -1;
    if (j < 0 || sp->job[j].rank != r || z->jobs[j] != TO_COME)
        return fail(z, r, i, "no job of this rank, or it runs twice");
    for (int32_t e = z->want->g->pred_at[j]; e < z->want->g->pred_at[j + 1]; e++)
        if (z->jobs[z->want->g->pred[e]] != ENDED)
            return fail(z, r, i, "a job it depends on has not ended");
    z->jobs[j] = RUNNING;
    return true;
}

static void start(struct run *z, int r, int32_t i) {
    struct machine *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    m->state[i] = RUNNING;
    m->stamp[i] = z->stamps;
    z->stamps += (uint64_t)x->narg + 1;
    if (x->op <= OP_W && !job_may_start(z, r, i))
        return;
    for (int a = 0; a < x->narg; a++) {
        const struct buf *b = operand(m, x, a);
        if (!fits(z, r, i, b))
            return;
        uint64_t *seen = seen_at(m, x, a);
        memcpy(seen, m->mem + b->off, sizeof *seen * (size_t)b->bytes);
        for (int64_t n = 0; access(m, x, a) & ACC_READ && n < b->bytes; n++)
            if (seen[n] & STAMP)
                fail(z, r, i, "reads byte %lld, which holds nothing", (long long)(b->off + n));
    }
    for (int a = 0; a < x->narg; a++)
        for (int64_t n = 0; access(m, x, a) & ACC_WRITE && n < operand(m, x, a)->bytes; n++)
            m->mem[operand(m, x, a)->off + n] = m->stamp[i] + (uint64_t)a;
    const struct buf *work = x->op <= OP_W ? workspace(m) : NULL;
    for (int64_t n = 0; work && n < work->bytes; n++)
        m->mem[work->off + n] = m->stamp[i] + x->narg;
}

/* Nothing else has written what the instruction read or is about to write. */
static void check_alone(struct run *z, int r, int32_t i) {
    struct machine *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    int grown = x->op == OP_I ? role_operand(m, x, ROLE_wstash) : -1;
    for (int a = 0; a < x->narg; a++) {
        const struct buf *b = operand(m, x, a);
        bool writes = access(m, x, a) & ACC_WRITE;
        if (grown >= 0 && m->k->arg[x->arg + (uint32_t)a].role == ROLE_stash) { /* what I adds lies behind the stash */
            if (operand(m, x, grown)->off != b->off)
                fail(z, r, i, "the wstash does not lie where the stash does");
            continue;
        }
        const uint64_t *seen = seen_at(m, x, a);
        for (int64_t n = 0; n < b->bytes && !z->wrong; n++)
            if (m->mem[b->off + n] != (writes ? m->stamp[i] + (uint64_t)a : seen[n]))
                fail(z, r, i, "byte %lld was written meanwhile", (long long)(b->off + n));
    }
    const struct buf *work = x->op <= OP_W ? workspace(m) : NULL;
    for (int64_t n = 0; work && n < work->bytes && !z->wrong; n++)
        if (m->mem[work->off + n] != m->stamp[i] + x->narg)
            fail(z, r, i, "the workspace was written meanwhile");
}

/* What the running instruction read, by role. */
static void values_read(struct run *z, int r, int32_t i, uint64_t in[NROLES]) {
    const struct machine *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    for (int a = 0; a < x->narg; a++) {
        int role = m->k->arg[x->arg + (uint32_t)a].role;
        const uint64_t *seen = seen_at(m, x, a);
        if (!(access(m, x, a) & ACC_READ) || role == ROLE_dw || role == ROLE_dv || (x->op == OP_U && role == ROLE_w))
            continue;
        for (int64_t n = 1; n < operand(m, x, a)->bytes; n++)
            if (seen[n] != byte_of(seen[0], n))
                fail(z, r, i, "%s is made of two tensors", role_name[role]);
        in[role] += mix(seen[0]);
    }
}

/* Byte n of operand a after the instruction. */
static uint64_t result(const struct machine *m, const struct instr *x, int a, int64_t n, const uint64_t in[NROLES],
                       const uint64_t out[NROLES]) {
    int role = m->k->arg[x->arg + (uint32_t)a].role;
    const uint64_t *seen = seen_at(m, x, a);
    uint64_t before = access(m, x, a) & ACC_READ ? seen[n] : 0;
    int src = role_operand(m, x, x->op == OP_ADD ? ROLE_src : ROLE_dw);
    switch (x->op) {
    case OP_ADD: return (before + (src >= 0 ? seen_at(m, x, src)[n] : 0)) & ~STAMP;
    case OP_ZERO: return 0;
    case OP_U:
        if (role == ROLE_opt)
            return byte_of(value(K_opt, x->stage, 0, in[ROLE_opt], src >= 0 ? *seen_at(m, x, src) : 0), n);
        return updated(x->stage, before, src >= 0 ? seen_at(m, x, src)[n] : 0, in[ROLE_opt]);
    default:
        if (x->op > OP_W) /* a message: start_together left there what arrives */
            return seen[n];
        return (byte_of(out[role], n) + (role == ROLE_dw || role == ROLE_dv ? before : 0)) & ~STAMP;
    }
}

/* Freed bytes hold nothing; when the lanes run side by side, others may still be reading them. */
static void run_frees(struct run *z, int r, int32_t i, bool own) {
    struct machine *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    for (uint32_t f = x->free; z->how == SERIALLY && f < x->free + x->nfree; f++) {
        const struct buf *b = &m->k->buf[m->k->freed[f]];
        bool written = false;
        for (int a = 0; a < x->narg; a++)
            written |= operand(m, x, a) == b && access(m, x, a) & ACC_WRITE;
        for (int64_t n = 0; written == own && fits(z, r, i, b) && n < b->bytes; n++)
            m->mem[b->off + n] = z->stamps;
        z->stamps++;
    }
}

static void end(struct run *z, int r, int32_t i) {
    struct machine *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    uint64_t in[NROLES] = {0}, out[NROLES] = {0};
    check_alone(z, r, i);
    if (x->op <= OP_W || x->op == OP_U) {
        values_read(z, r, i, in);
        job_values(x->op, x->stage, x->batch, in, out);
    }
    run_frees(z, r, i, false); /* before the outputs: a wstash takes over its stash's bytes */
    for (int a = 0; a < x->narg; a++)
        for (int64_t n = 0; access(m, x, a) & ACC_WRITE && n < operand(m, x, a)->bytes; n++)
            m->mem[operand(m, x, a)->off + n] = result(m, x, a, n, in, out);
    run_frees(z, r, i, true);
    if (x->op <= OP_W && !z->wrong)
        z->jobs[job_at(z->want->sp, x->stage, x->batch, x->op)] = ENDED;
    m->state[i] = ENDED;
    m->ended++;
    m->lane[x->lane].head = m->next[i];
}

/* ---- who may start ---- */

/* Whether the lane's head stands ready; messages may yet have to wait for others. */
static bool ready(const struct run *z, int r, int lane) {
    const struct machine *m = &z->at[r];
    int32_t i = m->lane[lane].head;
    if (i == m->k->nins || m->state[i] != TO_COME || (z->how == SERIALLY && i != m->ended))
        return false;
    for (uint32_t w = m->k->ins[i].wait; w < m->k->ins[i].wait + m->k->ins[i].nwait; w++)
        if (m->state[m->k->wait[w]] != ENDED)
            return false;
    return true;
}

/* The lane of a group (its number), or the one that takes messages from a peer (group -1). */
static int find_lane(const struct rank *k, int peer, int group) {
    for (int l = 0; l < k->nlanes; l++) {
        const struct lane *at = &k->lane[l];
        if (group >= 0 ? at->group == group
                       : lane_takes(at->kind, OP_RECV_F) && (at->kind == LANE_ALL || at->peer == peer))
            return l;
    }
    return -1;
}

/* The other ends of what lane `l` of rank r is about to open: rank and lane of each. -1: not now. */
static int partners(const struct run *z, int r, int l, int (*other)[2]) {
    const struct rank *k = z->at[r].k;
    const struct instr *x = &k->ins[z->at[r].lane[l].head];
    const struct group *g = x->op == OP_REDUCE ? &z->p->group[k->lane[l].group] : NULL;
    int n = 0, members = g ? g->n : op_cost[x->op] == COST_LINK ? 1 : 0;
    if (op_lane[x->op] == LANE_RECV && members) /* its SEND takes it along */
        return -1;
    for (int i = 0; i < members; i++) {
        int q = g ? g->rank[i] : x->peer;
        if (q == r && i > 0)
            return -1; /* the first member opens a reduction */
        if (q == r)
            continue;
        int m = find_lane(z->at[q].k, r, g ? k->lane[l].group : -1);
        if (m < 0 || !ready(z, q, m))
            return -1;
        const struct instr *y = &z->at[q].k->ins[z->at[q].lane[m].head];
        if (g ? y->op != OP_REDUCE : op_cost[y->op] != COST_LINK || op_lane[y->op] != LANE_RECV || y->peer != r)
            return -1;
        other[n][0] = q;
        other[n++][1] = m;
    }
    return n;
}

/* What a SEND read is what its RECVs write; a REDUCE writes the sum. All have the same name and size. */
static void start_together(struct run *z, int r, int l, int (*other)[2], int n) {
    struct machine *m = &z->at[r];
    int32_t i = m->lane[l].head;
    const struct instr *x = &m->k->ins[i];
    start(z, r, i);
    for (int o = 0; o < n && !z->wrong; o++) {
        struct machine *q = &z->at[other[o][0]];
        int32_t j = q->lane[other[o][1]].head;
        const struct instr *y = &q->k->ins[j];
        start(z, other[o][0], j);
        if (z->wrong)
            return;
        bool same = y->op == (x->op == OP_REDUCE ? x->op : x->op + 1) && x->stage == y->stage && x->batch == y->batch &&
                    x->inst == y->inst && x->narg == 1 && y->narg == 1;
        if (!same || operand(m, x, 0)->bytes != operand(q, y, 0)->bytes) {
            fail(z, r, i, "meets something else on rank %d", other[o][0]);
            return;
        }
        for (int64_t b = 0; b < operand(m, x, 0)->bytes; b++)
            if (x->op == OP_REDUCE)
                m->lane[l].seen[b] = (m->lane[l].seen[b] + q->lane[other[o][1]].seen[b]) & ~STAMP;
            else
                q->lane[other[o][1]].seen[b] = m->lane[l].seen[b];
    }
    for (int o = 0; x->op == OP_REDUCE && o < n; o++)
        memcpy(z->at[other[o][0]].lane[other[o][1]].seen, m->lane[l].seen,
               sizeof(uint64_t) * (size_t)operand(m, x, 0)->bytes);
}

/* ---- the whole ---- */

/* One step: of all lanes that can start or end something, the one drawn. False: none can. */
static bool step(struct run *z) {
    int best_rank = -1, best_lane = 0, best_n = 0, other[64][2], best_other[64][2];
    uint64_t best = 0;
    bool noise = random_below(&z->random, 16) < z->noise;
    for (int r = 0; r < z->p->workers; r++)
        for (int l = 0; l < z->at[r].k->nlanes; l++) {
            struct lane_state *s = &z->at[r].lane[l];
            if (s->head == z->at[r].k->nins)
                continue;
            bool runs = z->at[r].state[s->head] == RUNNING;
            uint64_t priority = noise ? random_next(&z->random) | 1 : s->priority[runs];
            if (priority <= best)
                continue;
            int n = runs ? 0 : ready(z, r, l) ? partners(z, r, l, other) : -1;
            if (n < 0)
                continue;
            best = priority;
            best_rank = r;
            best_lane = l;
            best_n = n;
            memcpy(best_other, other, sizeof *other * (size_t)n);
        }
    if (best_rank < 0)
        return false;
    struct machine *m = &z->at[best_rank];
    struct lane_state *s = &m->lane[best_lane];
    if (m->state[s->head] == RUNNING)
        end(z, best_rank, s->head);
    else
        start_together(z, best_rank, best_lane, best_other, best_n);
    if (random_below(&z->random, 32) == 0)
        s->priority[random_below(&z->random, 2)] = random_next(&z->random) >> random_below(&z->random, 20) | 1;
    return true;
}

static bool is_home(const struct spec *sp, int r, int s) {
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].s == (s == sp->stages ? 0 : s) && sp->job[j].home == r) /* the table is at home with stage 0 */
            return true;
    return false;
}

/* The buffer that a rank is home to; NULL when it has none. */
static const struct buf *home_buffer(const struct rank *k, int kind, int s) {
    for (int b = 0; b < k->nbufs; b++)
        if (k->buf[b].kind == kind && k->buf[b].stage == s && k->buf[b].inst < 0)
            return &k->buf[b];
    return NULL;
}

/* At a home, weights and optimizer state are there from the start. */
static void fill_homes(struct run *z) {
    for (int r = 0; r < z->p->workers && !z->wrong; r++)
        for (int s = 0; s < z->want->sp->stages + z->want->sp->tied && !z->wrong; s++) {
            if (!is_home(z->want->sp, r, s))
                continue;
            const struct buf *w = home_buffer(z->at[r].k, K_weight, s), *o = home_buffer(z->at[r].k, K_opt, s);
            if (!w || !fits(z, r, -1, w) || (o && !fits(z, r, -1, o))) {
                fail(z, r, -1, "weight(%d) has no place", s);
                return;
            }
            for (int64_t n = 0; n < w->bytes; n++)
                z->at[r].mem[w->off + n] = byte_of(weight_value(s), n);
            for (int64_t n = 0; o && n < o->bytes; n++)
                z->at[r].mem[o->off + n] = byte_of(opt_value(s), n);
        }
}

static void check_homes(struct run *z) {
    for (int j = 0; j < z->want->sp->njobs && !z->wrong; j++)
        if (z->jobs[j] != ENDED)
            fail(z, z->want->sp->job[j].rank, -1, "a job has not run");
    for (int r = 0; r < z->p->workers; r++)
        for (int s = 0; s < z->want->sp->stages + z->want->sp->tied && !z->wrong; s++) {
            if (!is_home(z->want->sp, r, s))
                continue;
            const struct buf *w = home_buffer(z->at[r].k, K_weight, s), *o = home_buffer(z->at[r].k, K_opt, s);
            uint64_t opt = o ? mix(opt_value(s)) : 0, slope = (uint64_t)z->want->parts[s] * STEP;
            uint64_t dw = z->want->sum[s];
            for (int64_t n = 0; n < w->bytes && !z->wrong; n++)
                if (z->at[r].mem[w->off + n] !=
                    updated(s, byte_of(weight_value(s), n), (dw + (uint64_t)n * slope) & ~STAMP, opt))
                    fail(z, r, -1, "byte %lld of weight(%d) is wrong", (long long)n, s);
            for (int64_t n = 0; o && n < o->bytes && !z->wrong; n++)
                if (z->at[r].mem[o->off + n] != byte_of(value(K_opt, s, 0, opt, dw & ~STAMP), n))
                    fail(z, r, -1, "byte %lld of opt(%d) is wrong", (long long)n, s);
        }
}

/* A rank at its beginning, all memory in one block. */
static void *prepare(struct run *z, struct machine *m, const struct rank *k) {
    int64_t most = 1;
    for (int i = 0; i < k->nins; i++) {
        int64_t n = 0;
        for (int a = 0; a < k->ins[i].narg; a++)
            n += operand(&(struct machine){.k = k}, &k->ins[i], a)->bytes;
        most = n > most ? n : most;
    }
    size_t words = (size_t)k->arena + (size_t)k->nins + (size_t)(most * k->nlanes);
    uint64_t *block = calloc(1, words * 8 + sizeof *m->lane * (size_t)k->nlanes + 5 * (size_t)k->nins + 8);
    *m = (struct machine){k, block, block + k->arena, NULL, NULL, NULL, 0};
    uint64_t *seen = m->stamp + k->nins;
    m->lane = (struct lane_state *)(void *)(seen + most * k->nlanes);
    m->next = (int32_t *)(void *)(m->lane + k->nlanes);
    m->state = (uint8_t *)(m->next + k->nins);
    for (int l = 0; l < k->nlanes; l++)
        m->lane[l] =
            (struct lane_state){k->nins, seen + l * most, {random_next(&z->random) | 1, random_next(&z->random) | 1}};
    for (int32_t i = k->nins - 1; i >= 0; i--) {
        m->next[i] = m->lane[k->ins[i].lane].head;
        m->lane[k->ins[i].lane].head = i;
    }
    for (int64_t b = 0; b < k->arena; b++)
        m->mem[b] = STAMP;
    return block;
}

const char *execute(const struct promise *want, const struct program *p, enum how how, uint64_t seed) {
    struct run z = {.want = want, .p = p, .how = how, .random = seed, .stamps = STAMP + 1};
    z.noise = random_below(&z.random, 3) * 8;
    z.at = calloc((size_t)p->workers, sizeof *z.at);
    z.jobs = calloc((size_t)want->sp->njobs + 1, 1);
    z.bytes = calloc((size_t)want->sp->stages + 1, sizeof *z.bytes);
    void **block = calloc((size_t)p->workers, sizeof *block);
    for (int r = 0; r < p->workers; r++)
        block[r] = prepare(&z, &z.at[r], &p->rank[r]);
    fill_homes(&z);
    while (!z.wrong && step(&z))
        ;
    for (int r = 0; r < p->workers && !z.wrong; r++)
        if (z.at[r].ended < p->rank[r].nins)
            for (int l = 0; l < p->rank[r].nlanes; l++)
                if (z.at[r].lane[l].head < p->rank[r].nins)
                    fail(&z, r, z.at[r].lane[l].head, "deadlock");
    if (!z.wrong)
        check_homes(&z);
    for (int r = 0; r < p->workers; r++)
        free(block[r]);
    free(block);
    free(z.bytes);
    free(z.jobs);
    free(z.at);
    return z.wrong ? why : NULL;
}
