/* An independent check of a program against the job graph. It shares no code with lower, lanes or mem.
 *
 * All ranks are executed together, each one instruction at a time in its issue order, every send blocking until its
 * receive, on symbolic tensors: a buffer holds which tensor it is, a gradient which microbatches it sums. What is
 * checked: every job once, on its rank, on the right tensors; gradients complete before their update; nothing read
 * before it is written or after it is freed; no two live buffers overlap; all within the arena; no deadlock. */
#include "pass.h"
#include <assert.h>
#include <string.h>

struct value { /* what a buffer holds */
    bool live, set;
    uint8_t kind;
    int32_t stage, batch;
    int32_t version; /* weights: updates so far. wgrad: how many microbatches are summed */
    uint64_t sum;    /* wgrad: the sum of their fingerprints */
};

/* The set of live offsets of a rank, to find a neighbour: a bitmap with a summary bitmap above it, and so on. */
struct bits {
    uint64_t *level[6];
    int n[6], depth;
};

struct check {
    const struct spec *sp;
    const struct graph *g;
    const struct program *p;
    struct value **val;
    int32_t **slot;     /* per buffer: the place of its offset among the rank's sorted offsets */
    int32_t **occupant; /* per slot: the live buffer */
    struct bits *live;
    int32_t *at;        /* per rank: next instruction */
    bool *done;         /* per job */
    uint8_t **updated;  /* per rank and stage */
    int32_t *todo;     /* ranks that may go on, each at most once */
    bool *queued;
    int ntodo;
    struct text why;
};

/* A fingerprint of a microbatch's contribution (the finalizer of splitmix64). */
static uint64_t fingerprint(int s, int b) {
    uint64_t x = ((uint64_t)(uint32_t)s << 32 | (uint32_t)b) + 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void bits_init(struct bits *b, int n) {
    b->depth = 0;
    do {
        n = (n + 63) / 64;
        b->n[b->depth] = n;
        b->level[b->depth++] = NEW(uint64_t, n + 1);
    } while (n > 1);
}

static void bits_set(struct bits *b, int i, bool on) {
    for (int d = 0; d < b->depth; d++, i /= 64) {
        uint64_t *w = &b->level[d][i / 64], m = (uint64_t)1 << i % 64;
        *w = on ? *w | m : *w & ~m;
        if (!on && *w)
            return;
    }
}

/* The nearest set bit below i, or above it, or -1. */
static int bits_near(const struct bits *b, int i, bool above) {
    for (int d = 0; d < b->depth; d++, i /= 64) {
        uint64_t w = b->level[d][i / 64];
        uint64_t part = above ? w & ~(uint64_t)0 << i % 64 << 1 : w & (((uint64_t)1 << i % 64) - 1);
        if (above && i % 64 == 63)
            part = 0;
        if (!part)
            continue;
        i = i / 64 * 64 + (above ? __builtin_ctzll(part) : 63 - __builtin_clzll(part));
        while (d-- > 0)
            i = i * 64 + (above ? __builtin_ctzll(b->level[d][i]) : 63 - __builtin_clzll(b->level[d][i]));
        return i;
    }
    return -1;
}

static void put_instr(struct text *t, const struct program *p, int r, int32_t i) {
    const struct instr *x = &p->rank[r].ins[i];
    put(t, "rank %d, instruction %d: %s %d", r, i, op_name[x->op], x->stage);
    if (x->batch >= 0)
        put(t, " %d", x->batch);
    if (x->inst >= 0)
        put(t, "#%d", x->inst);
    if (x->peer >= 0)
        put(t, " %s %d", op_lane[x->op] == LANE_SEND ? "to" : "from", x->peer);
}

#define FAIL(z, r, i, ...)                                                                                             \
    return put_instr(&(z)->why, (z)->p, r, i), put(&(z)->why, ": "), put(&(z)->why, __VA_ARGS__), false

static const char *buf_text(const struct program *p, int r, int32_t b) {
    struct text t = {0};
    put_buf(&t, &p->rank[r].buf[b]);
    return t.s;
}

/* Makes a buffer live; its bytes must be free and inside the arena. */
static bool open_buffer(struct check *z, int r, int32_t i, int32_t b) {
    const struct rank *k = &z->p->rank[r];
    const struct buf *x = &k->buf[b];
    if (x->off < 0 || x->off + x->bytes > k->arena)
        FAIL(z, r, i, "%s lies outside the arena of %lld bytes", buf_text(z->p, r, b), (long long)k->arena);
    int s = z->slot[r][b], below = bits_near(&z->live[r], s, false), above = bits_near(&z->live[r], s, true);
    int32_t other = z->occupant[r][s];
    if (other < 0 && below >= 0) {
        const struct buf *y = &k->buf[z->occupant[r][below]];
        other = y->off + y->bytes > x->off ? z->occupant[r][below] : -1;
    }
    if (other < 0 && above >= 0 && k->buf[z->occupant[r][above]].off < x->off + x->bytes)
        other = z->occupant[r][above];
    if (other >= 0)
        FAIL(z, r, i, "%s overlaps %s, which is still in use", buf_text(z->p, r, b), buf_text(z->p, r, other));
    z->occupant[r][s] = b;
    bits_set(&z->live[r], s, true);
    z->val[r][b].live = true;
    return true;
}

static void close_buffer(struct check *z, int r, int32_t b) {
    z->occupant[r][z->slot[r][b]] = -1;
    bits_set(&z->live[r], z->slot[r][b], false);
    z->val[r][b] = (struct value){0};
}

static int32_t operand(const struct rank *k, const struct instr *x, int role, int nth) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (k->arg[a].role == role && nth-- == 0)
            return k->arg[a].buf;
    return -1;
}

/* The operand must hold tensor kind(s,b). */
static bool holds(struct check *z, int r, int32_t i, int role, int kind, int s, int b) {
    const struct rank *k = &z->p->rank[r];
    for (int n = 0;; n++) {
        int32_t x = operand(k, &k->ins[i], role, n);
        if (x < 0)
            FAIL(z, r, i, "no operand %s holds %s(%d,%d)", role_name[role], kind_name[kind], s, b);
        const struct value *v = &z->val[r][x];
        if (v->set && v->kind == kind && v->stage == s && (!kind_has_batch[kind] || v->batch == b))
            return true;
    }
}

static const uint8_t role_of[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                        [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

static bool check_job(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    bool inside = x->stage >= 0 && x->stage < z->sp->stages && x->batch >= 0 && x->batch < z->sp->batches;
    int32_t j = inside ? job_at(z->sp, x->stage, x->batch, x->op) : -1;
    if (j < 0)
        FAIL(z, r, i, "the schedule has no such job");
    const struct job *job = &z->sp->job[j];
    if (job->rank != r)
        FAIL(z, r, i, "the schedule runs it on rank %d", job->rank);
    if (z->done[j])
        FAIL(z, r, i, "it has run before");
    for (int32_t e = z->g->pred_at[j]; e < z->g->pred_at[j + 1]; e++) {
        const struct job *from = &z->sp->job[z->g->pred[e]];
        int kind = edge_kind(from, job);
        if (!z->done[z->g->pred[e]])
            FAIL(z, r, i, "%s, which it needs, has not run", job_name(from->s, from->b, from->d));
        bool carried = kind != K_token || from->rank != r;
        if (carried && !holds(z, r, i, role_of[kind], kind, from->s, from->b))
            return false;
    }
    if (x->op != OP_W) {
        int32_t w = operand(k, x, ROLE_w, 0);
        if (w < 0 || !holds(z, r, i, ROLE_w, K_weight, x->stage, -1))
            return z->why.n ? false : (put(&z->why, "no weights"), false);
        if (z->val[r][w].version != 0)
            FAIL(z, r, i, "its weights have already been updated in this step");
    }
    z->done[j] = true;
    return true;
}

/* What the written operand of a job becomes. */
static void set_output(struct check *z, int r, const struct instr *x, int role, int32_t b) {
    static const uint8_t kind_of[NROLES] = {
        [ROLE_y] = K_act, [ROLE_dx] = K_grad, [ROLE_stash] = K_stash, [ROLE_input] = K_input, [ROLE_wstash] = K_wstash};
    struct value *v = &z->val[r][b];
    v->set = true;
    if (role == ROLE_dw) {
        if (x->first || x->op == OP_ZERO)
            *v = (struct value){.live = true, .set = true, .kind = K_wgrad, .stage = x->stage, .batch = -1};
        if (x->op == OP_B || x->op == OP_W) {
            v->version++;
            v->sum += fingerprint(x->stage, x->batch);
        }
        return;
    }
    v->kind = kind_of[role];
    v->stage = x->stage;
    v->batch = x->batch;
}

static bool check_update(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t dw = operand(k, x, ROLE_dw, 0), w = operand(k, x, ROLE_w, 0);
    uint64_t want = 0;
    for (int b = 0; b < z->sp->batches; b++)
        want += fingerprint(x->stage, b);
    const struct value *v = dw >= 0 ? &z->val[r][dw] : NULL;
    if (!v || !v->set || v->kind != K_wgrad || v->stage != x->stage || v->version != z->sp->batches || v->sum != want)
        FAIL(z, r, i, "its gradient is not the sum over all %d microbatches, each once", z->sp->batches);
    if (w < 0 || z->val[r][w].stage != x->stage || z->updated[r][x->stage]++)
        FAIL(z, r, i, "the stage's weights are not here, or have been updated before");
    z->val[r][w].version++;
    return true;
}

static bool run_local(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    if (x->op == OP_U)
        return check_update(z, r, i);
    if (x->op <= OP_W)
        return check_job(z, r, i);
    if (x->op == OP_ADD) {
        int32_t src = operand(k, x, ROLE_src, 0), dw = operand(k, x, ROLE_dw, 0);
        if (src < 0 || dw < 0 || z->val[r][src].kind != K_wgrad || z->val[r][src].stage != x->stage)
            FAIL(z, r, i, "its source is not a part of wgrad(%d)", x->stage);
        struct value from = z->val[r][src], *to = &z->val[r][dw];
        if (x->first)
            *to = (struct value){.live = true, .set = true, .kind = K_wgrad, .stage = x->stage, .batch = -1};
        to->version += from.version;
        to->sum += from.sum;
    }
    return true;
}

/* Reads must find live, written buffers; writes open theirs. I's wstash takes the place of its stash. */
static bool before(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int acc = op_access(x->op, k->arg[a].role);
        bool reads = (acc & ACC_READ) && !(op_accumulates(x->op, k->arg[a].role) && x->first);
        const struct value *v = &z->val[r][k->arg[a].buf];
        if (reads && !v->set)
            FAIL(z, r, i, "reads %s, which holds nothing", buf_text(z->p, r, k->arg[a].buf));
    }
    if (x->op <= OP_W || x->op == OP_U || x->op == OP_ADD)
        if (!run_local(z, r, i))
            return false;
    for (uint32_t f = x->free; x->op == OP_I && f < x->free + x->nfree; f++)
        if (k->buf[k->freed[f]].kind == K_stash)
            close_buffer(z, r, k->freed[f]);
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (op_access(x->op, k->arg[a].role) & ACC_WRITE) {
            int32_t b = k->arg[a].buf;
            if (!z->val[r][b].live && !open_buffer(z, r, i, b))
                return false;
            if (x->op <= OP_W || x->op == OP_ZERO)
                set_output(z, r, x, k->arg[a].role, b);
        }
    return true;
}

static bool after(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (uint32_t f = x->free; f < x->free + x->nfree; f++) {
        int32_t b = k->freed[f];
        if (x->op == OP_I && k->buf[b].kind == K_stash)
            continue;
        if (!z->val[r][b].live)
            FAIL(z, r, i, "frees %s, which is not in use", buf_text(z->p, r, b));
        close_buffer(z, r, b);
    }
    z->at[r]++;
    return true;
}

static bool same_message(const struct instr *a, const struct instr *b) {
    return op_lane[a->op] == LANE_SEND && b->op == a->op + 1 && a->stage == b->stage && a->batch == b->batch &&
           a->inst == b->inst;
}

/* Both sides stand at the message: the tensor arrives. */
static bool exchange(struct check *z, int src, int dst) {
    const struct rank *ks = &z->p->rank[src], *kd = &z->p->rank[dst];
    int32_t i = z->at[src], j = z->at[dst];
    if (!before(z, src, i) || !before(z, dst, j))
        return false;
    int32_t from = operand(ks, &ks->ins[i], ROLE_t, 0), to = operand(kd, &kd->ins[j], ROLE_t, 0);
    if (from < 0 || to < 0)
        FAIL(z, src, i, "a message without a tensor");
    int op = ks->ins[i].op;
    int64_t bytes = ks->buf[from].bytes;
    if (bytes != kd->buf[to].bytes)
        FAIL(z, src, i, "sends %lld bytes where %lld are received", (long long)bytes, (long long)kd->buf[to].bytes);
    struct value v = z->val[src][from];
    if (op == OP_SEND_T)
        v = (struct value){.set = true, .kind = K_token, .stage = ks->ins[i].stage, .batch = ks->ins[i].batch};
    v.live = true;
    z->val[dst][to] = v;
    return after(z, src, i) && after(z, dst, j);
}

static void queue(struct check *z, int r) {
    if (!z->queued[r])
        z->todo[z->ntodo++] = r;
    z->queued[r] = true;
}

static bool reduce(struct check *z, const struct group *g) {
    struct value sum = {.live = true, .set = true, .kind = K_wgrad, .batch = -1};
    for (int n = 0; n < g->n; n++) {
        int r = g->rank[n];
        const struct rank *k = &z->p->rank[r];
        if (!before(z, r, z->at[r]))
            return false;
        const struct value *v = &z->val[r][operand(k, &k->ins[z->at[r]], ROLE_dw, 0)];
        sum.stage = k->ins[z->at[r]].stage;
        if (v->kind != K_wgrad || v->stage != sum.stage)
            FAIL(z, r, z->at[r], "its operand is not wgrad(%d)", sum.stage);
        sum.version += v->version;
        sum.sum += v->sum;
    }
    for (int n = 0; n < g->n; n++) {
        int r = g->rank[n];
        const struct rank *k = &z->p->rank[r];
        z->val[r][operand(k, &k->ins[z->at[r]], ROLE_dw, 0)] = sum;
        if (!after(z, r, z->at[r]))
            return false;
        queue(z, r);
    }
    return true;
}

static bool all_at_reduction(const struct check *z, const struct group *g, const struct instr *x) {
    for (int n = 0; n < g->n; n++) {
        const struct rank *k = &z->p->rank[g->rank[n]];
        int32_t i = z->at[g->rank[n]];
        if (i == k->nins || k->ins[i].op != OP_REDUCE || k->ins[i].stage != x->stage)
            return false;
    }
    return true;
}

/* Goes on with one rank as far as it can. */
static bool advance(struct check *z, int r) {
    const struct rank *k = &z->p->rank[r];
    z->queued[r] = false;
    while (z->at[r] < k->nins) {
        const struct instr *x = &k->ins[z->at[r]];
        if (x->op == OP_REDUCE) {
            const struct group *g = &z->p->group[k->lane[x->lane].group];
            if (!all_at_reduction(z, g, x))
                return true;
            if (!reduce(z, g))
                return false;
        } else if (op_cost[x->op] == COST_LINK) {
            int o = x->peer;
            const struct rank *ko = &z->p->rank[o];
            if (z->at[o] == ko->nins || ko->ins[z->at[o]].peer != r)
                return true;
            const struct instr *y = &ko->ins[z->at[o]];
            if (same_message(x, y) ? !exchange(z, r, o) : same_message(y, x) ? !exchange(z, o, r) : true)
                return !z->why.n;
            queue(z, o);
        } else if (!before(z, r, z->at[r]) || !after(z, r, z->at[r]))
            return false;
    }
    return true;
}

static bool check_end(struct check *z) {
    for (int r = 0; r < z->p->workers; r++)
        if (z->at[r] < z->p->rank[r].nins) {
            put(&z->why, "deadlock when every send waits for its receive:");
            for (int q = 0, shown = 0; q < z->p->workers && shown < 8; q++)
                if (z->at[q] < z->p->rank[q].nins) {
                    put(&z->why, "\n  ");
                    put_instr(&z->why, z->p, q, z->at[q]);
                    shown++;
                }
            return false;
        }
    for (int j = 0; j < z->sp->njobs; j++)
        if (!z->done[j]) {
            const struct job *job = &z->sp->job[j];
            put(&z->why, "job %s never runs", job_name(job->s, job->b, job->d));
            return false;
        }
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t b = 0; b < z->p->rank[r].nbufs; b++) {
            const struct buf *x = &z->p->rank[r].buf[b];
            bool weights = x->kind == K_weight && x->inst < 0;
            if (weights && !z->updated[r][x->stage]) {
                put(&z->why, "rank %d never updates weight(%d)", r, x->stage);
                return false;
            }
        }
    return true;
}

static void sort_offsets(struct check *z, int r) {
    const struct rank *k = &z->p->rank[r];
    int n = k->nbufs;
    int32_t *order = NEW(int32_t, n), *tmp = NEW(int32_t, n);
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int shift = 0; shift < 48; shift += 12) { /* radix sort by offset */
        int32_t count[4097] = {0};
        for (int i = 0; i < n; i++)
            count[(k->buf[i].off >> shift & 4095) + 1]++;
        for (int d = 0; d < 4096; d++)
            count[d + 1] += count[d];
        for (int i = 0; i < n; i++)
            tmp[count[k->buf[order[i]].off >> shift & 4095]++] = order[i];
        memcpy(order, tmp, sizeof *order * (size_t)n);
    }
    int slots = 0;
    z->slot[r] = NEW(int32_t, n);
    for (int i = 0; i < n; i++) {
        slots += i > 0 && k->buf[order[i]].off != k->buf[order[i - 1]].off;
        z->slot[r][order[i]] = slots;
    }
    z->occupant[r] = NEW(int32_t, slots + 1);
    memset(z->occupant[r], -1, sizeof(int32_t) * (size_t)(slots + 1));
    bits_init(&z->live[r], slots + 1);
}

/* Weights, optimizer state, workspace and the homes' gradients are there from the start. */
static bool open_permanent(struct check *z, int r) {
    const struct rank *k = &z->p->rank[r];
    bool *home = NEW(bool, z->sp->stages);
    for (int32_t b = 0; b < k->nbufs; b++)
        if (k->buf[b].kind == K_weight && k->buf[b].inst < 0)
            home[k->buf[b].stage] = true;
    for (int32_t b = 0; b < k->nbufs; b++) {
        const struct buf *x = &k->buf[b];
        bool stays = x->kind == K_opt || x->kind == K_work || (x->kind == K_weight && x->inst < 0) ||
                     (x->kind == K_wgrad && x->inst < 0 && home[x->stage]);
        if (!stays)
            continue;
        if (!open_buffer(z, r, 0, b))
            return false;
        struct value *v = &z->val[r][b];
        v->kind = x->kind;
        v->stage = x->stage;
        v->batch = -1;
        v->set = x->kind != K_wgrad;
    }
    return true;
}

static char *check(const struct spec *sp, const struct graph *g, const struct program *p) {
    struct check z = {.sp = sp, .g = g, .p = p};
    int W = p->workers;
    z.val = NEW(struct value *, W);
    z.slot = NEW(int32_t *, W);
    z.occupant = NEW(int32_t *, W);
    z.live = NEW(struct bits, W);
    z.at = NEW(int32_t, W);
    z.done = NEW(bool, sp->njobs);
    z.updated = NEW(uint8_t *, W);
    z.todo = NEW(int32_t, W);
    z.queued = NEW(bool, W);
    for (int r = 0; r < W; r++) {
        z.val[r] = NEW(struct value, p->rank[r].nbufs);
        z.updated[r] = NEW(uint8_t, sp->stages);
        sort_offsets(&z, r);
        if (!open_permanent(&z, r))
            return z.why.s;
        if (p->rank[r].arena > sp->memory)
            return format("rank %d plans %lld bytes, but the cluster's memory is %.0f", r, (long long)p->rank[r].arena,
                          sp->memory);
    }
    for (int r = 0; r < W; r++) {
        queue(&z, r);
        while (z.ntodo > 0)
            if (!advance(&z, z.todo[--z.ntodo]))
                return z.why.s;
    }
    return check_end(&z) ? NULL : z.why.s;
}

struct refutation *verify(const struct spec *sp, const struct graph *g, const struct program *p, int claims) {
    char *why = check(sp, g, p);
    if (!why)
        return NULL;
    struct refutation *x = NEW(struct refutation, 1);
    *x = (struct refutation){claims, why};
    return x;
}
