/* What every buffer holds, followed symbolically along the serial walk.
 *
 * A buffer holds a tensor, the one it is named for: which kind, stage and microbatch; weights, how often updated; a
 * gradient, which contributions are summed in it (verify_sums.c). As live buffers never overlap and sizes agree with
 * what is put into them (verify_memory.c), a value of a buffer is a value of each of its bytes. */
#include "check.h"
#include <stdlib.h>
#include <string.h>

int64_t verify_work;

const char *buf_text(const struct check *z, int r, int32_t b) {
    struct text t = {0};
    put_buf(&t, &z->p->rank[r].buf[b]);
    return t.s;
}

const char *value_text(const struct check *z, const struct value *v) {
    if (!v->set)
        return "nothing";
    struct buf b = {.kind = v->kind, .stage = v->stage, .batch = kind_has_batch[v->kind] ? v->batch : -1, .inst = -1};
    if (v->kind == K_token)
        b.inst = v->count;
    if (v->kind == K_wgrad)
        b.inst = v->part;
    struct text t = {0};
    put_buf(&t, &b);
    long long n = contributions(z, v->sum);
    if (v->kind == K_wgrad)
        put(&t, " of %lld contribution%s", n, n == 1 ? "" : "s");
    return t.s;
}

bool named(struct check *z, int r, int32_t i, int32_t b, int kind, int stage, int batch, int inst) {
    const struct buf *x = &z->p->rank[r].buf[b];
    struct buf tensor = {.kind = (uint8_t)kind, .stage = stage, .batch = kind_has_batch[kind] ? batch : -1};
    tensor.inst = inst;
    if (x->kind == tensor.kind && x->stage == tensor.stage && x->batch == tensor.batch && x->inst == tensor.inst)
        return true;
    struct text t = {0};
    put_buf(&t, &tensor);
    return refute(z, CLAIM_JOBS, r, i, "puts %s into the buffer of %s", t.s, buf_text(z, r, b));
}

bool is_tensor(const struct value *v, int kind, int s, int b, int d) {
    return v->set && v->kind == kind && v->stage == s && (!kind_has_batch[kind] || v->batch == b) &&
           (kind != K_token || v->count == d);
}

/* ---- what a job reads ---- */

static const uint8_t role_of[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                        [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

/* A tensor as an operand of some role; d: the job that a token stands for. */
struct tensor {
    int32_t role, kind, s, b, d;
};
struct tensors { /* that the job graph wants, and that the operands hold */
    struct tensor *want, *have;
    size_t nwant, nhave, want_cap, have_cap;
};

static int by_tensor(const void *x, const void *y) {
    verify_work++;
    return memcmp(x, y, sizeof(struct tensor));
}

static void want(struct tensors *t, struct tensor x) {
    GROW(t->want, t->want_cap, t->nwant + 1);
    t->want[t->nwant++] = x;
}

/* Operands that hold tensors which come along edges: all that are read but weights. */
static void take_operands(struct check *z, int r, const struct instr *x, struct tensors *t) {
    const struct rank *k = &z->p->rank[r];
    GROW(t->have, t->have_cap, (size_t)x->narg + 1);
    t->nhave = 0;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        const struct value *v = &z->values->val[r][k->arg[a].buf];
        if (op_access(x->op, role) == ACC_READ && role != ROLE_w && role != ROLE_v)
            t->have[t->nhave++] = (struct tensor){role, v->kind, v->stage, v->batch, v->kind == K_token ? v->count : 0};
    }
}

/* The operands are not the tensors that are wanted: which? */
static bool refute_operands(struct check *z, int r, int32_t i, const struct tensors *t) {
    for (size_t w = 0, h = 0; w < t->nwant; w++) {
        const struct tensor *x = &t->want[w];
        while (h < t->nhave && by_tensor(&t->have[h], x) < 0)
            h++;
        if (h < t->nhave && by_tensor(&t->have[h], x) == 0) {
            h++;
            continue;
        }
        struct value tensor = {.set = true, .kind = (uint8_t)x->kind, .stage = x->s, .batch = x->b, .count = x->d};
        int32_t first = operand(&z->p->rank[r], &z->p->rank[r].ins[i], x->role, 0);
        if (first < 0)
            return refute(z, CLAIM_JOBS, r, i, "needs %s as %s, but has no such operand", value_text(z, &tensor),
                          role_name[x->role]);
        return refute(z, CLAIM_JOBS, r, i, "needs %s as %s, but %s holds %s", value_text(z, &tensor),
                      role_name[x->role], buf_text(z, r, first), value_text(z, &z->values->val[r][first]));
    }
    return refute(z, CLAIM_JOBS, r, i, "has %zu operands that hold tensors; the job graph says %zu", t->nhave,
                  t->nwant);
}

static bool are_same(const struct tensors *t) {
    return t->nwant == t->nhave && (!t->nwant || !memcmp(t->want, t->have, sizeof *t->want * t->nwant));
}

/* Each tensor that comes along an edge is one operand, and each operand is one of these. */
static bool reads_edges(struct check *z, int r, int32_t i, int32_t j) {
    struct tensors *t = z->values->scratch;
    const struct job *job = &z->sp->job[j];
    t->nwant = 0;
    for (int32_t e = z->g->pred_at[j]; e < z->g->pred_at[j + 1]; e++) {
        const struct job *from = &z->sp->job[z->g->pred[e]];
        int kind = edge_kind(from, job);
        if (!z->values->done[z->g->pred[e]])
            return refute(z, CLAIM_JOBS, r, i, "%s, which it needs, has not run", job_name(from->s, from->b, from->d));
        if (kind != K_token || from->rank != r) /* here it is an order only, and the walk kept it */
            want(t, (struct tensor){role_of[kind], kind, from->s, from->b, kind == K_token ? from->d : 0});
    }
    take_operands(z, r, &z->p->rank[r].ins[i], t);
    verify_work += (int64_t)(t->nwant + t->nhave);
    if (are_same(t)) /* in the same order, as mostly */
        return true;
    if (t->nwant > 1)
        qsort(t->want, t->nwant, sizeof *t->want, by_tensor);
    if (t->nhave > 1)
        qsort(t->have, t->nhave, sizeof *t->have, by_tensor);
    return are_same(t) || refute_operands(z, r, i, t);
}

/* Of a tied model: stage 0's forward looks tokens up; the unembedding multiplies by the table both ways, and nothing
 * else reads it. Weight gradients of both stages are added to the table's. */
static bool reads_table(const struct spec *sp, const struct instr *x) {
    bool forward = x->op == OP_F || x->op == OP_R, back = x->op == OP_B || x->op == OP_I;
    return sp->tied && ((forward && x->stage == 0) || ((forward || back) && x->stage == sp->unembedding));
}

/* The operand holds a set of weights, not updated yet. */
static bool reads_weights(struct check *z, int r, int32_t i, int role, int set) {
    const struct rank *k = &z->p->rank[r];
    int32_t b = operand(k, &k->ins[i], role, 0);
    if (b < 0)
        return refute(z, CLAIM_JOBS, r, i, "needs weight(%d) as %s, but has no such operand", set, role_name[role]);
    const struct value *v = &z->values->val[r][b];
    if (!is_tensor(v, K_weight, set, -1, 0))
        return refute(z, CLAIM_JOBS, r, i, "needs weight(%d) as %s, but %s holds %s", set, role_name[role],
                      buf_text(z, r, b), value_text(z, v));
    return !v->count || refute(z, CLAIM_JOBS, r, i, "its weights have already been updated in this step");
}

/* No role comes more often than its row in ops.h says. */
static bool roles_once(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    uint32_t seen = 0;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        if (seen >> role & 1 && role != ROLE_x && role != ROLE_dy && role != ROLE_t)
            return refute(z, CLAIM_JOBS, r, i, "has several operands %s", role_name[role]);
        seen |= (uint32_t)1 << role;
    }
    return true;
}

/* Where no model says the sizes: what a stage reads, its input can keep, and its gradient is as large. */
static bool as_large_as_read(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int64_t *read = &z->values->bytes_read[x->stage];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        int64_t bytes = k->buf[k->arg[a].buf].bytes;
        if (x->op == OP_F && role == ROLE_x && bytes > *read)
            *read = bytes;
        if (bytes < *read && ((x->op == OP_F && role == ROLE_input) || role == ROLE_dx))
            return refute(z, CLAIM_MEMORY, r, i, "%s has %lld bytes, fewer than what stage %d reads, %lld",
                          buf_text(z, r, k->arg[a].buf), (long long)bytes, x->stage, (long long)*read);
    }
    return true;
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
    bool again = job_at(z->sp, x->stage, x->batch, OP_R) >= 0;
    if (x->op == OP_F && operand(k, x, again ? ROLE_stash : ROLE_input, 0) >= 0)
        return refute(z, CLAIM_JOBS, r, i,
                      again ? "keeps a stash, which R makes" : "keeps its input, and no R reads it");
    if (!roles_once(z, r, i) || !reads_edges(z, r, i, j) ||
        (x->op != OP_W && !reads_weights(z, r, i, ROLE_w, x->stage)))
        return false;
    bool table = reads_table(z->sp, x);
    if (table ? !reads_weights(z, r, i, ROLE_v, z->sp->stages) : operand(k, x, ROLE_v, 0) >= 0)
        return !table && refute(z, CLAIM_JOBS, r, i, "has an operand v, but reads no table");
    if (!adds_to_table(z->sp, x) && operand(k, x, ROLE_dv, 0) >= 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "has an operand dv, but adds to no table");
    z->values->done[j] = true;
    return z->sp->stage || as_large_as_read(z, r, i);
}

/* ---- what instructions read and write ---- */

/* Reads must find something; then the instruction acts; then what it writes is opened and holds its output. */
bool check_reads(struct check *z, int r, int32_t i) {
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

static const uint8_t kind_written[NROLES] = {
    [ROLE_y] = K_act,   [ROLE_dx] = K_grad,       [ROLE_stash] = K_stash, [ROLE_input] = K_input, [ROLE_dw] = K_wgrad,
    [ROLE_opt] = K_opt, [ROLE_wstash] = K_wstash, [ROLE_w] = K_weight,    [ROLE_done] = K_token,  [ROLE_dv] = K_wgrad};

static bool write_output(struct check *z, int r, int32_t i, int role, int32_t b) {
    const struct instr *x = &z->p->rank[r].ins[i];
    int kind = kind_written[role], set = role == ROLE_dv ? z->sp->stages : x->stage;
    struct value *v = &z->values->val[r][b];
    bool again = role == ROLE_dw || role == ROLE_dv || role == ROLE_opt || role == ROLE_w; /* these go on living */
    if (z->p->rank[r].buf[b].kind != kind)
        return refute(z, CLAIM_JOBS, r, i, "its operand %s is %s", role_name[role], buf_text(z, r, b));
    if (!fits(z, r, i, kind, set, b) ||
        (!again && !named(z, r, i, b, kind, x->stage, x->batch, kind == K_token ? x->op : -1)))
        return false;
    if (v->live && !again)
        return refute(z, CLAIM_MEMORY, r, i, "overwrites %s, which is still in use", buf_text(z, r, b));
    if (!v->live && !open_buffer(z, r, i, b))
        return false;
    if (!again)
        *v = (struct value){.stage = x->stage,
                            .batch = x->batch,
                            .count = kind == K_token ? x->op : 0,
                            .sum = NO_SUM,
                            .part = -1,
                            .kind = (uint8_t)kind,
                            .live = true};
    v->set = true;
    return true;
}

/* ZERO begins a sum of nothing. */
static bool run_zero(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    int set = k->ins[i].stage;
    int32_t b = operand(k, &k->ins[i], ROLE_dw, 0);
    if (b < 0 || !named(z, r, i, b, K_wgrad, set, -1, -1))
        return b >= 0 || refute(z, CLAIM_GRADIENTS, r, i, "no operand dw");
    z->values->val[r][b] = (struct value){
        .stage = set, .batch = -1, .sum = NO_SUM, .part = -1, .kind = K_wgrad, .live = true, .set = true};
    return true;
}

static bool write_outputs(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (op_access(x->op, k->arg[a].role) & ACC_WRITE && !write_output(z, r, i, k->arg[a].role, k->arg[a].buf))
            return false;
    switch (x->op) {
    case OP_ZERO: return run_zero(z, r, i);
    case OP_ADD: return run_add(z, r, i);
    case OP_B:
    case OP_W:
        return accumulate(z, r, i, ROLE_dw, x->stage) &&
               (!adds_to_table(z->sp, x) || accumulate(z, r, i, ROLE_dv, z->sp->stages));
    default: return true;
    }
}

/* I's wstash takes the place of the stash it frees: what W needs of the stash is not copied. */
static bool takes_over(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    int32_t stash = operand(k, &k->ins[i], ROLE_stash, 0), wstash = operand(k, &k->ins[i], ROLE_wstash, 0);
    return wstash < 0 || k->buf[wstash].off == k->buf[stash].off ||
           refute(z, CLAIM_MEMORY, r, i, "%s does not lie where %s does", buf_text(z, r, wstash),
                  buf_text(z, r, stash));
}

/* Reads must find something; then the instruction acts; then what it writes is opened and holds its output. */
bool values_run(struct check *z, int r, int32_t i) {
    const struct instr *x = &z->p->rank[r].ins[i];
    bool job = is_job(x->op);
    if (x->stage < 0 || x->stage >= (job ? z->sp->stages : z->values->sets))
        return refute(z, CLAIM_JOBS, r, i, "there are %d stages", z->sp->stages);
    if (!check_reads(z, r, i) || (job && !run_job(z, r, i)) || (x->op == OP_U && !run_update(z, r, i)))
        return false;
    if (x->op == OP_I && (!takes_over(z, r, i) || !free_buffers(z, r, i, true)))
        return false;
    return write_outputs(z, r, i) && free_buffers(z, r, i, false);
}

/* ---- messages ---- */

/* The buffer holds the tensor that the message is named for. */
static bool sends_its_tensor(struct check *z, int r, int32_t i, int32_t b) {
    const struct instr *x = &z->p->rank[r].ins[i];
    const struct value *v = &z->values->val[r][b];
    int kind = x->op == OP_SEND_S && v->kind == K_input ? K_input : op_row(x->op)->tensor;
    bool own = kind != K_wgrad || v->part < 0,
         instance = kind_row(kind)->number == NUMBER_INSTANCE ? x->inst >= 0 : x->inst < 0;
    return (is_tensor(v, kind, x->stage, x->batch, x->inst) && own && instance) ||
           refute(z, CLAIM_JOBS, r, i, "%s holds %s, which is not what the message is named for", buf_text(z, r, b),
                  value_text(z, v));
}

bool values_message(struct check *z, int src, int32_t i, int dst, int32_t j) {
    const struct rank *ks = &z->p->rank[src], *kd = &z->p->rank[dst];
    const struct instr *x = &ks->ins[i];
    int32_t from = ks->arg[x->arg].buf, to = kd->arg[kd->ins[j].arg].buf;
    if (!check_reads(z, src, i) || !sends_its_tensor(z, src, i, from))
        return false;
    struct value v = z->values->val[src][from];
    v.part = v.kind == K_wgrad ? src : -1;
    if (z->values->val[dst][to].live)
        return refute(z, CLAIM_MEMORY, dst, j, "overwrites %s, which is still in use", buf_text(z, dst, to));
    if (!named(z, dst, j, to, v.kind, v.stage, v.batch, v.kind == K_wgrad ? src : x->inst) ||
        !open_buffer(z, dst, j, to))
        return false;
    z->values->val[dst][to] = v;
    return free_buffers(z, src, i, false) && free_buffers(z, dst, j, false);
}

/* ---- the beginning and the end of a step ---- */

/* The homes of each set, in compressed rows: of a row, ascending. */
static int32_t *homes_of_sets(const struct check *z, int32_t *at) {
    int sets = z->values->sets;
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t b = 0; b < z->p->rank[r].nbufs; b++)
            if (at_home(&z->p->rank[r].buf[b]))
                at[z->p->rank[r].buf[b].stage + 2]++;
    for (int s = 0; s < sets; s++)
        at[s + 2] += at[s + 1];
    int32_t *home = NEW(int32_t, at[sets + 1] + 1);
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t b = 0; b < z->p->rank[r].nbufs; b++)
            if (at_home(&z->p->rank[r].buf[b]))
                home[at[z->p->rank[r].buf[b].stage + 1]++] = r;
    return home;
}

/* The homes that w() named for each set of weights hold it, and no others do. The table is at home with stage 0. A
 * program's text doesn't say what w() named: job.home is -1 then. */
static bool check_homes(struct check *z) {
    const struct spec *sp = z->sp;
    int32_t *at = NEW(int32_t, z->values->sets + 2), *home = homes_of_sets(z, at);
    int32_t *named = NEW(int32_t, z->p->workers); /* 1 + the set that the rank was last named for */
    if (!sp->njobs || sp->job[0].home < 0)
        return true;
    for (int set = 0, j = 0; set < z->values->sets; set++) {
        int stage = set < sp->stages ? set : 0, left = at[set + 1] - at[set];
        if (stage != set)
            j = 0;
        for (; j < sp->njobs && sp->job[j].s == stage; j++) { /* jobs are in the order of their stages */
            left -= named[sp->job[j].home] != set + 1;
            named[sp->job[j].home] = set + 1;
        }
        for (int32_t h = at[set]; h < at[set + 1]; h++)
            if (named[home[h]] != set + 1)
                return refute_all(z, CLAIM_GRADIENTS, "rank %d holds weight(%d), but is no home of it", home[h], set);
        if (left < 0)
            return refute_all(z, CLAIM_GRADIENTS, "a home of weight(%d) does not hold it", set);
    }
    return true;
}

bool values_begin(struct check *z) {
    int W = z->p->workers;
    struct values *y = z->values = NEW(struct values, 1);
    y->val = NEW(struct value *, W);
    y->sets = z->sp->stages + z->sp->tied;
    y->done = NEW(bool, z->sp->njobs);
    y->bytes_read = NEW(int64_t, y->sets);
    y->stays = NEW(bool *, W);
    y->scratch = NEW(struct tensors, 1);
    for (int r = 0; r < W; r++) {
        y->val[r] = NEW(struct value, z->p->rank[r].nbufs);
        y->stays[r] = NEW(bool, z->p->rank[r].nbufs);
    }
    sums_begin(z);
    return memory_begin(z) && check_homes(z);
}

bool values_end(struct check *z) {
    for (int j = 0; j < z->sp->njobs; j++)
        if (!z->values->done[j]) {
            const struct job *job = &z->sp->job[j];
            return refute_all(z, CLAIM_JOBS, "job %s never runs", job_name(job->s, job->b, job->d));
        }
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t b = 0; b < z->p->rank[r].nbufs; b++)
            if (at_home(&z->p->rank[r].buf[b]) && !z->values->val[r][b].count)
                return refute_all(z, CLAIM_GRADIENTS, "rank %d never updates weight(%d)", r,
                                  z->p->rank[r].buf[b].stage);
    return memory_end(z);
}
