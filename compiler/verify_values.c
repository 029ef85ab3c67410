/* What every buffer holds, followed symbolically along the serial walk.
 *
 * A buffer holds a tensor: which kind, stage and microbatch; weights, how often updated; a gradient, which microbatches
 * are summed in it, and a token table's for which of its two uses. As live buffers never overlap (checked as they open)
 * and sizes agree with what is put into them, a value of a buffer is a value of each of its bytes. */
#include "verify.h"
#include <string.h>

struct value {
    uint64_t sum; /* wgrad: the sum of its contributions' fingerprints */
    int32_t stage, batch;
    int32_t count; /* wgrad: contributions; weight: updates; token: which job of (s,b), as an op */
    uint8_t kind;
    bool live, set;
};

/* The set of live offsets of a rank, to find a neighbour: a bitmap with a summary above it, and so on. */
struct bits {
    uint64_t *level[6];
    int depth;
};

struct values {
    struct value **val;
    int32_t **slot;     /* per buffer: the place of its offset among the rank's sorted offsets */
    int32_t **occupant; /* per slot: the live buffer, or -1 */
    struct bits *live;
    bool *done;             /* per job */
    bool **stays;           /* per buffer: weights, gradient and optimizer state of a home, workspace */
    uint8_t **updated;      /* per rank and set of weights */
    int sets;               /* a stage's weights are a set, and behind them so is a token table that two stages share */
    int64_t *bytes[NKINDS]; /* per set: what the tensor takes, as all its buffers must agree; 0: none seen */
};

/* The finalizer of splitmix64: the contribution of a stage's microbatch, as a number whose sums do not collide. */
static uint64_t fingerprint(int s, int b) {
    uint64_t x = ((uint64_t)(uint32_t)s << 32 | (uint32_t)b) + 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void bits_init(struct bits *b, int n) {
    do {
        n = (n + 63) / 64;
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
        uint64_t w = b->level[d][i / 64], low = ((uint64_t)1 << i % 64) - 1;
        uint64_t part = above ? w & ~(low << 1 | 1) : w & low;
        if (!part)
            continue;
        i = i / 64 * 64 + (above ? __builtin_ctzll(part) : 63 - __builtin_clzll(part));
        while (d-- > 0)
            i = i * 64 + (above ? __builtin_ctzll(b->level[d][i]) : 63 - __builtin_clzll(b->level[d][i]));
        return i;
    }
    return -1;
}

static const char *buf_text(const struct check *z, int r, int32_t b) {
    struct text t = {0};
    put_buf(&t, &z->p->rank[r].buf[b]);
    return t.s;
}

static const char *value_text(const struct value *v) {
    if (!v->set)
        return "nothing";
    struct buf b = {.kind = v->kind, .stage = v->stage, .batch = kind_has_batch[v->kind] ? v->batch : -1, .inst = -1};
    struct text t = {0};
    put_buf(&t, &b);
    if (v->kind == K_wgrad)
        put(&t, " of %d contribution%s", v->count, v->count == 1 ? "" : "s");
    return t.s;
}

/* Makes a buffer live; its bytes must be free and inside the arena. */
static bool open_buffer(struct check *z, int r, int32_t i, int32_t b) {
    struct values *y = z->values;
    const struct rank *k = &z->p->rank[r];
    const struct buf *x = &k->buf[b];
    if (x->off < 0 || x->bytes > k->arena || x->off > k->arena - x->bytes)
        return refute(z, CLAIM_MEMORY, r, i, "%s lies outside the plan of %lld bytes", buf_text(z, r, b),
                      (long long)k->arena);
    int s = y->slot[r][b], below = bits_near(&y->live[r], s, false), above = bits_near(&y->live[r], s, true);
    int32_t other = y->occupant[r][s];
    if (other < 0 && below >= 0) {
        const struct buf *low = &k->buf[y->occupant[r][below]];
        other = low->off + low->bytes > x->off ? y->occupant[r][below] : -1;
    }
    if (other < 0 && above >= 0 && k->buf[y->occupant[r][above]].off < x->off + x->bytes)
        other = y->occupant[r][above];
    if (other >= 0)
        return refute(z, CLAIM_MEMORY, r, i, "%s at %lld overlaps %s at %lld, which is still in use", buf_text(z, r, b),
                      (long long)x->off, buf_text(z, r, other), (long long)k->buf[other].off);
    y->occupant[r][s] = b;
    bits_set(&y->live[r], s, true);
    y->val[r][b].live = true;
    return true;
}

static void close_buffer(struct values *y, int r, int32_t b) {
    y->occupant[r][y->slot[r][b]] = -1;
    bits_set(&y->live[r], y->slot[r][b], false);
    y->val[r][b] = (struct value){0};
}

static int32_t operand(const struct rank *k, const struct instr *x, int role, int nth) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (k->arg[a].role == role && nth-- == 0)
            return k->arg[a].buf;
    return -1;
}

static const uint8_t role_of[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                        [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

static bool is_tensor(const struct value *v, int kind, int s, int b, int d) {
    return v->set && v->kind == kind && v->stage == s && (!kind_has_batch[kind] || v->batch == b) &&
           (kind != K_token || v->count == d);
}

/* One of the operands of this role must hold the tensor; d: the job that a token stands for. */
static bool holds(struct check *z, int r, int32_t i, int role, int kind, int s, int b, int d) {
    const struct rank *k = &z->p->rank[r];
    int32_t first = operand(k, &k->ins[i], role, 0);
    for (int n = 0; operand(k, &k->ins[i], role, n) >= 0; n++)
        if (is_tensor(&z->values->val[r][operand(k, &k->ins[i], role, n)], kind, s, b, d))
            return true;
    struct buf want = {.kind = (uint8_t)kind, .stage = s, .batch = kind_has_batch[kind] ? b : -1, .inst = -1};
    struct text t = {0};
    put_buf(&t, &want);
    if (first < 0)
        return refute(z, CLAIM_JOBS, r, i, "needs %s as %s, but has no such operand", t.s, role_name[role]);
    return refute(z, CLAIM_JOBS, r, i, "needs %s as %s, but %s holds %s", t.s, role_name[role], buf_text(z, r, first),
                  value_text(&z->values->val[r][first]));
}

/* As many operands as tensors that come along edges: no more, of each kind. */
static bool counts(struct check *z, int r, int32_t i, const int *want) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int have[NROLES] = {0};
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        have[k->arg[a].role]++;
    for (int role = 0; role < NROLES; role++) {
        bool reads = op_access(x->op, role) == ACC_READ && role != ROLE_w;
        if ((reads && have[role] != want[role]) || (!reads && have[role] > 1))
            return refute(z, CLAIM_JOBS, r, i, "has %d operands %s; the job graph says %d", have[role], role_name[role],
                          reads ? want[role] : 1);
    }
    return true;
}

/* Of a tied model: stage 0's forward looks tokens up; the unembedding multiplies by the table both ways, and nothing
 * else reads it. Weight gradients of both stages are added to the table's. */
static bool reads_table(const struct spec *sp, const struct instr *x) {
    bool forward = x->op == OP_F || x->op == OP_R, back = x->op == OP_B || x->op == OP_I;
    return sp->tied && ((forward && x->stage == 0) || ((forward || back) && x->stage == sp->unembedding));
}

static bool adds_to_table(const struct spec *sp, const struct instr *x) {
    return sp->tied && (x->op == OP_B || x->op == OP_W) && (x->stage == 0 || x->stage == sp->unembedding);
}

/* The operand holds a set of weights, not updated yet. */
static bool reads_weights(struct check *z, int r, int32_t i, int role, int set) {
    const struct rank *k = &z->p->rank[r];
    if (!holds(z, r, i, role, K_weight, set, -1, 0))
        return false;
    return !z->values->val[r][operand(k, &k->ins[i], role, 0)].count ||
           refute(z, CLAIM_JOBS, r, i, "its weights have already been updated in this step");
}

static bool run_job(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    bool inside = x->stage >= 0 && x->stage < z->sp->stages && x->batch >= 0 && x->batch < z->sp->batches;
    int32_t j = inside ? job_at(z->sp, x->stage, x->batch, x->op) : -1;
    if (j < 0)
        return refute(z, CLAIM_JOBS, r, i, "the job graph has no such job");
    const struct job *job = &z->sp->job[j];
    if (job->rank != r)
        return refute(z, CLAIM_JOBS, r, i, "the schedule runs it on rank %d", job->rank);
    if (z->values->done[j])
        return refute(z, CLAIM_JOBS, r, i, "it has run before");
    int want[NROLES] = {[ROLE_v] = reads_table(z->sp, x)};
    for (int32_t e = z->g->pred_at[j]; e < z->g->pred_at[j + 1]; e++) {
        const struct job *from = &z->sp->job[z->g->pred[e]];
        int kind = edge_kind(from, job);
        if (!z->values->done[z->g->pred[e]])
            return refute(z, CLAIM_JOBS, r, i, "%s, which it needs, has not run", job_name(from->s, from->b, from->d));
        if (kind == K_token && from->rank == r)
            continue; /* an order only, and the walk kept it */
        want[role_of[kind]]++;
        if (!holds(z, r, i, role_of[kind], kind, from->s, from->b, from->d))
            return false;
    }
    if (!counts(z, r, i, want))
        return false;
    if ((x->op != OP_W && !reads_weights(z, r, i, ROLE_w, x->stage)) ||
        (want[ROLE_v] && !reads_weights(z, r, i, ROLE_v, z->sp->stages)))
        return false;
    if (!adds_to_table(z->sp, x) && operand(k, x, ROLE_dv, 0) >= 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "has an operand dv, but adds to no table");
    z->values->done[j] = true;
    return true;
}

/* The gradient operand: written by the first contribution, of the same set when added to. */
static bool accumulate(struct check *z, int r, int32_t i, int role, int set, uint64_t sum, int count) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t dw = operand(k, x, role, 0);
    if (dw < 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "its gradient goes nowhere: no operand %s", role_name[role]);
    struct value *v = &z->values->val[r][dw];
    if (is_first(x, role))
        *v = (struct value){.live = v->live, .set = true, .kind = K_wgrad, .stage = set, .batch = -1};
    else if (v->kind != K_wgrad || v->stage != set)
        return refute(z, CLAIM_GRADIENTS, r, i, "adds to %s, which holds %s", buf_text(z, r, dw), value_text(v));
    v->sum += sum;
    v->count += count;
    return true;
}

static bool run_update(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t dw = operand(k, x, ROLE_dw, 0), w = operand(k, x, ROLE_w, 0), opt = operand(k, x, ROLE_opt, 0);
    bool table = x->stage == z->sp->stages, twice = table && z->sp->unembedding > 0; /* of two stages */
    uint64_t want = 0;
    for (int b = 0; b < z->sp->batches; b++)
        want += fingerprint(table ? 0 : x->stage, b) + (twice ? fingerprint(z->sp->unembedding, b) : 0);
    const struct value *v = dw >= 0 ? &z->values->val[r][dw] : &(struct value){0};
    if (v->kind != K_wgrad || v->stage != x->stage || v->count != z->sp->batches * (1 + twice) || v->sum != want)
        return refute(z, CLAIM_GRADIENTS, r, i,
                      "its gradient is %s, not the sum over all %d microbatches of %s%d, each once", value_text(v),
                      z->sp->batches, twice ? "stages 0 and " : "stage ", table ? z->sp->unembedding : x->stage);
    struct value *weights = w >= 0 ? &z->values->val[r][w] : NULL;
    if (!weights || !is_tensor(weights, K_weight, x->stage, -1, 0) || k->buf[w].inst >= 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "weight(%d) is not at home here", x->stage);
    if (z->values->updated[r][x->stage]++)
        return refute(z, CLAIM_GRADIENTS, r, i, "it has been updated before");
    bool has_state = opt >= 0 && is_tensor(&z->values->val[r][opt], K_opt, x->stage, -1, 0);
    if (z->values->bytes[K_opt][x->stage] ? !has_state : opt >= 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "needs opt(%d), and nothing else, as optimizer state", x->stage);
    weights->count++;
    return true;
}

static bool run_add(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t src = operand(k, x, ROLE_src, 0);
    struct value from = src >= 0 ? z->values->val[r][src] : (struct value){0};
    if (!from.set || from.kind != K_wgrad || from.stage != x->stage)
        return refute(z, CLAIM_GRADIENTS, r, i, "its source holds %s, not a part of wgrad(%d)", value_text(&from),
                      x->stage);
    return accumulate(z, r, i, ROLE_dw, x->stage, from.sum, from.count);
}

/* Reads must find something; then the instruction acts; then what it writes is opened and holds its output. */
static bool check_reads(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int32_t b = k->arg[a].buf;
        bool reads = op_access(x->op, k->arg[a].role) & ACC_READ;
        if (op_accumulates(x->op, k->arg[a].role) && is_first(x, k->arg[a].role))
            reads = false;
        if (reads && !z->values->val[r][b].set)
            return refute(z, CLAIM_MEMORY, r, i, "reads %s, which holds nothing: not yet written, or freed",
                          buf_text(z, r, b));
    }
    return true;
}

/* The tensor must fit the buffer exactly: all buffers of a kind and stage have one size. */
static bool fits(struct check *z, int r, int32_t i, int kind, int stage, int32_t b) {
    int64_t want = z->values->bytes[kind][stage], have = z->p->rank[r].buf[b].bytes;
    return want == have || refute(z, CLAIM_MEMORY, r, i, "puts a tensor of %lld bytes into %s of %lld bytes",
                                  (long long)want, buf_text(z, r, b), (long long)have);
}

static bool write_outputs(struct check *z, int r, int32_t i) {
    static const uint8_t kind_of[NROLES] = {
        [ROLE_y] = K_act,      [ROLE_dx] = K_grad, [ROLE_stash] = K_stash,   [ROLE_input] = K_input,
        [ROLE_dw] = K_wgrad,   [ROLE_opt] = K_opt, [ROLE_wstash] = K_wstash, [ROLE_w] = K_weight,
        [ROLE_done] = K_token, [ROLE_dv] = K_wgrad};
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        int32_t b = k->arg[a].buf;
        if (!(op_access(x->op, role) & ACC_WRITE))
            continue;
        if (role != ROLE_t && !fits(z, r, i, kind_of[role], role == ROLE_dv ? z->sp->stages : x->stage, b))
            return false;
        struct value *v = &z->values->val[r][b];
        bool again = role == ROLE_dw || role == ROLE_dv || role == ROLE_opt || role == ROLE_w; /* these go on living */
        if (v->live && !again)
            return refute(z, CLAIM_MEMORY, r, i, "overwrites %s, which is still in use", buf_text(z, r, b));
        if (!v->live && !open_buffer(z, r, i, b))
            return false;
        if (x->op == OP_ZERO)
            *v = (struct value){.live = true, .kind = K_wgrad, .stage = x->stage, .batch = -1};
        else if (!again)
            *v = (struct value){.live = true,
                                .kind = kind_of[role],
                                .stage = x->stage,
                                .batch = x->batch,
                                .count = role == ROLE_done ? x->op : 0};
        v->set = true;
    }
    return true;
}

static bool free_buffers(struct check *z, int r, int32_t i, bool stashes) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (uint32_t f = x->free; f < x->free + x->nfree; f++) {
        int32_t b = k->freed[f];
        if ((x->op == OP_I && k->buf[b].kind == K_stash) != stashes)
            continue;
        if (!z->values->val[r][b].live || z->values->stays[r][b])
            return refute(z, CLAIM_MEMORY, r, i, "frees %s, which %s", buf_text(z, r, b),
                          z->values->stays[r][b] ? "stays for the whole step" : "is not in use");
        close_buffer(z->values, r, b);
    }
    return true;
}

bool values_run(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    bool job = x->op < NDIRS;
    if (x->stage < 0 || x->stage >= (job ? z->sp->stages : z->values->sets))
        return refute(z, CLAIM_JOBS, r, i, "there are %d stages", z->sp->stages);
    if (!check_reads(z, r, i) || (job && !run_job(z, r, i)) || (x->op == OP_U && !run_update(z, r, i)))
        return false;
    /* I's wstash takes the place of the stash it frees: what W needs of the stash is not copied. */
    if (x->op == OP_I) {
        int32_t stash = operand(k, x, ROLE_stash, 0), wstash = operand(k, x, ROLE_wstash, 0);
        if (wstash >= 0 && k->buf[wstash].off != k->buf[stash].off)
            return refute(z, CLAIM_MEMORY, r, i, "%s does not lie where %s does", buf_text(z, r, wstash),
                          buf_text(z, r, stash));
    }
    if (!free_buffers(z, r, i, true) || !write_outputs(z, r, i))
        return false;
    if (x->op == OP_ADD && !run_add(z, r, i))
        return false;
    uint64_t part = fingerprint(x->stage, x->batch);
    if ((x->op == OP_B || x->op == OP_W) && !accumulate(z, r, i, ROLE_dw, x->stage, part, 1))
        return false;
    if (adds_to_table(z->sp, x) && !accumulate(z, r, i, ROLE_dv, z->sp->stages, part, 1))
        return false;
    return free_buffers(z, r, i, false);
}

bool values_message(struct check *z, int src, int32_t i, int dst, int32_t j) {
    const struct rank *ks = &z->p->rank[src], *kd = &z->p->rank[dst];
    int32_t from = ks->arg[ks->ins[i].arg].buf, to = kd->arg[kd->ins[j].arg].buf;
    struct value v = z->values->val[src][from];
    if (!check_reads(z, src, i))
        return false;
    struct value *at = &z->values->val[dst][to];
    if (at->live)
        return refute(z, CLAIM_MEMORY, dst, j, "overwrites %s, which is still in use", buf_text(z, dst, to));
    if (!open_buffer(z, dst, j, to))
        return false;
    v.live = true;
    *at = v;
    return free_buffers(z, src, i, false) && free_buffers(z, dst, j, false);
}

bool values_reduce(struct check *z, const struct group *g, const int32_t *i) {
    struct value sum = {.live = true, .set = true, .kind = K_wgrad, .batch = -1};
    for (int pass = 0; pass < 2; pass++)
        for (int m = 0; m < g->n; m++) {
            int r = g->rank[m];
            const struct rank *k = &z->p->rank[r];
            int32_t dw = operand(k, &k->ins[i[m]], ROLE_dw, 0);
            sum.stage = k->ins[i[m]].stage;
            if (dw < 0)
                return refute(z, CLAIM_GRADIENTS, r, i[m], "no operand dw");
            struct value *v = &z->values->val[r][dw];
            if (pass == 1) {
                *v = sum;
                if (!free_buffers(z, r, i[m], false))
                    return false;
                continue;
            }
            if (!check_reads(z, r, i[m]))
                return false;
            if (v->kind != K_wgrad || v->stage != sum.stage)
                return refute(z, CLAIM_GRADIENTS, r, i[m], "its operand holds %s, not wgrad(%d)", value_text(v),
                              sum.stage);
            sum.count += v->count;
            sum.sum += v->sum;
        }
    return true;
}

/* ---- the beginning and the end of a step ---- */

struct offsets { /* of the largest rank, to sort every rank's with */
    int64_t *off, *sorted;
    int32_t *scratch;
};

static struct offsets take_offsets(const struct program *p) {
    int n = 0;
    for (int r = 0; r < p->workers; r++)
        n = p->rank[r].nbufs > n ? p->rank[r].nbufs : n;
    return (struct offsets){NEW(int64_t, n + 1), NEW(int64_t, n + 1), NEW(int32_t, 2 * (int64_t)n + 1)};
}

static void sort_offsets(struct values *y, const struct rank *k, int r, const struct offsets *o) {
    for (int b = 0; b < k->nbufs; b++)
        o->off[b] = k->buf[b].off < 0 ? 0 : k->buf[b].off;
    y->slot[r] = NEW(int32_t, k->nbufs + 1);
    int slots = places_of(o->off, k->nbufs, y->slot[r], o->sorted, o->scratch);
    y->occupant[r] = NEW(int32_t, slots);
    memset(y->occupant[r], -1, sizeof(int32_t) * (size_t)slots);
    bits_init(&y->live[r], slots);
}

/* Weights, optimizer state, workspace and the homes' gradients are there from the start. */
static bool open_permanent(struct check *z, int r) {
    const struct rank *k = &z->p->rank[r];
    bool *home = NEW(bool, z->values->sets);
    for (int32_t b = 0; b < k->nbufs; b++)
        if (k->buf[b].kind == K_weight && k->buf[b].inst < 0)
            home[k->buf[b].stage] = true;
    z->values->stays[r] = NEW(bool, k->nbufs);
    for (int32_t b = 0; b < k->nbufs; b++) {
        const struct buf *x = &k->buf[b];
        bool stays = x->kind == K_opt || x->kind == K_work || (x->kind == K_weight && x->inst < 0) ||
                     (x->kind == K_wgrad && x->inst < 0 && home[x->stage]);
        if (!stays)
            continue;
        z->values->stays[r][b] = true;
        if (!open_buffer(z, r, 0, b))
            return false;
        z->values->val[r][b] = (struct value){.live = true, .kind = x->kind, .stage = x->stage, .batch = -1};
        z->values->val[r][b].set = x->kind != K_wgrad;
    }
    return true;
}

/* One size for all buffers of a kind and set: the model's where it is known, else what they say themselves. */
static bool check_sizes(struct check *z) {
    for (int kind = 0; kind < NKINDS; kind++) {
        z->values->bytes[kind] = NEW(int64_t, z->values->sets);
        for (int s = 0; z->sp->stage && s < z->values->sets; s++)
            z->values->bytes[kind][s] = z->sp->stage[s].bytes[kind];
    }
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t b = 0; b < z->p->rank[r].nbufs; b++) {
            const struct buf *x = &z->p->rank[r].buf[b];
            bool work = x->kind == K_work;
            if (!work && (x->stage < 0 || x->stage >= (kind_has_batch[x->kind] ? z->sp->stages : z->values->sets))) {
                put(&z->why, "rank %d has %s, but there are %d stages", r, buf_text(z, r, b), z->sp->stages);
                z->failed = CLAIM_JOBS;
                return false;
            }
            int64_t *want = work ? NULL : &z->values->bytes[x->kind][x->stage];
            if (want && !*want && !z->sp->stage)
                *want = x->bytes;
            if (want && *want != x->bytes) {
                put(&z->why, "rank %d plans %lld bytes for %s, where others take %lld", r, (long long)x->bytes,
                    buf_text(z, r, b), (long long)*want);
                z->failed = CLAIM_MEMORY;
                return false;
            }
        }
    return true;
}

/* The workspace of a rank must do for every job it runs. */
static bool check_workspace(struct check *z) {
    if (!z->sp->stage)
        return true;
    int64_t *have = NEW(int64_t, z->p->workers);
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t b = 0; b < z->p->rank[r].nbufs; b++)
            if (z->p->rank[r].buf[b].kind == K_work)
                have[r] = z->p->rank[r].buf[b].bytes;
    for (int j = 0; j < z->sp->njobs; j++) {
        const struct job *job = &z->sp->job[j];
        int64_t need = z->sp->stage[job->s].bytes[K_work];
        if (need > have[job->rank]) {
            put(&z->why, "%s needs %lld bytes of workspace; rank %d has %lld", job_name(job->s, job->b, job->d),
                (long long)need, job->rank, (long long)have[job->rank]);
            z->failed = CLAIM_MEMORY;
            return false;
        }
    }
    return true;
}

bool values_begin(struct check *z) {
    int W = z->p->workers;
    struct values *y = z->values = NEW(struct values, 1);
    y->val = NEW(struct value *, W);
    y->slot = NEW(int32_t *, W);
    y->occupant = NEW(int32_t *, W);
    y->live = NEW(struct bits, W);
    y->sets = z->sp->stages + z->sp->tied;
    y->done = NEW(bool, z->sp->njobs);
    y->stays = NEW(bool *, W);
    y->updated = NEW(uint8_t *, W);
    if (!check_sizes(z) || !check_workspace(z))
        return false;
    struct offsets offsets = take_offsets(z->p);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &z->p->rank[r];
        if ((double)k->arena > z->sp->memory) {
            put(&z->why, "rank %d plans %lld bytes, but the cluster's memory is %.0f", r, (long long)k->arena,
                z->sp->memory);
            z->failed = CLAIM_MEMORY;
            return false;
        }
        y->val[r] = NEW(struct value, k->nbufs);
        y->updated[r] = NEW(uint8_t, z->values->sets);
        sort_offsets(y, k, r, &offsets);
        if (!open_permanent(z, r))
            return false;
    }
    return true;
}

bool values_end(struct check *z) {
    for (int j = 0; j < z->sp->njobs; j++)
        if (!z->values->done[j]) {
            const struct job *job = &z->sp->job[j];
            put(&z->why, "job %s never runs", job_name(job->s, job->b, job->d));
            z->failed = CLAIM_JOBS;
            return false;
        }
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t b = 0; b < z->p->rank[r].nbufs; b++) {
            const struct buf *x = &z->p->rank[r].buf[b];
            bool home = x->kind == K_weight && x->inst < 0;
            if (home && !z->values->updated[r][x->stage]) {
                put(&z->why, "rank %d never updates weight(%d)", r, x->stage);
                z->failed = CLAIM_GRADIENTS;
                return false;
            }
            if (z->values->val[r][b].live && !z->values->stays[r][b]) {
                put(&z->why, "rank %d never frees %s", r, buf_text(z, r, b));
                z->failed = CLAIM_MEMORY;
                return false;
            }
        }
    return true;
}
