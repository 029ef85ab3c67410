/* Tracks what every buffer holds, symbolically, along the serial walk.
 *
 * A buffer holds the tensor it is named for: its kind, stage and microbatch. For weights, the value also counts
 * updates; for a gradient, it records which contributions are summed (verify_sums.c). For shards and pieces of weights
 * and gradients, it does so per unit of their set (verify_homes.c, verify_pieces.c). Live buffers never overlap, and
 * sizes match their tensors (verify_memory.c), so a buffer's value is the value of each of its bytes. */
#include "check_homes.h"

int64_t verify_work;

const char *buf_text(const struct check *check, int r, int32_t b) {
    struct text t = {0};
    put_buf(&t, &check->p->names, &check->p->rank[r].buf[b]);
    return t.s;
}

const char *value_text(const struct check *check, const struct value *value) {
    if (value->pieces)
        return format("%s(%d) in pieces that differ", kind_name[value->kind], value->stage);
    if (!value->set)
        return "nothing";
    struct buf b = {.kind = value->kind,
                    .stage = value->stage,
                    .batch = kind_has_batch[value->kind] ? value->batch : -1,
                    .inst = -1};
    if (value->kind == K_token)
        b.inst = value->count;
    if (value->kind == K_wgrad || value->kind == K_mid)
        b.inst = value->inst;
    struct text t = {0};
    put_buf(&t, &check->p->names, &b);
    long long n = contributions(check, value->sum);
    if (value->kind == K_wgrad)
        put(&t, " of %lld contribution%s", n, n == 1 ? "" : "s");
    return t.s;
}

bool named(struct check *check, int r, int32_t i, int32_t b, struct tensor_name name) {
    const struct buf *x = &check->p->rank[r].buf[b];
    struct buf tensor = {.kind = (uint8_t)name.kind, .stage = name.stage, .batch = -1, .inst = name.inst};
    if (kind_has_batch[name.kind])
        tensor.batch = name.batch;
    if (x->kind == tensor.kind && x->stage == tensor.stage && x->batch == tensor.batch && x->inst == tensor.inst)
        return true;
    struct text t = {0};
    put_buf(&t, &check->p->names, &tensor);
    return refute(check, CLAIM_JOBS, r, i, "puts %s into the buffer of %s", t.s, buf_text(check, r, b));
}

bool is_tensor(const struct value *value, int kind, int s, int b, int d) {
    return value->set && value->kind == kind && value->stage == s && (!kind_has_batch[kind] || value->batch == b) &&
           (kind != K_token || value->count == d);
}

/* ---- what instructions read and write ---- */

static const char *no_piece(struct span span) {
    return span.to < 0 ? "only weights and gradients have pieces" : "not a whole number of bytes";
}

/* Refutes unless everything that the instruction reads holds something. */
bool check_reads(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (const struct arg *a = k->arg + x->arg; a < k->arg + x->arg + x->narg; a++) {
        bool reads = op_access(x->op, a->role) & ACC_READ, pieces = check->values->val[r][a->buf].pieces != 0;
        struct span span = units_of(check, r, a);
        if (span.to < 0 || k->buf[a->buf].bytes % pieces_of(a))
            return refute(check, CLAIM_JOBS, r, i, "%s: %s", arg_text(check, r, a), no_piece(span));
        if (!in_its_memory(check, r, i, a))
            return false;
        if (op_accumulates(x->op, a->role) && (is_first(x, a->role) || written_before(check, r, x, a)))
            reads = false;
        if (!reads || (!pieces && check->values->val[r][a->buf].set))
            continue;
        int32_t unset = pieces ? first_unset(check, r, a->buf, span) : span.from, to;
        if (unset >= 0 && held_at(check, r, a->buf, unset, &to).half)
            return refute(check, CLAIM_MEMORY, r, i, "reads %s, which a job in parts has not completed",
                          arg_text(check, r, a));
        if (unset >= 0 && pieces)
            return refute(check, CLAIM_MEMORY, r, i,
                          "reads %s, of which unit %d holds nothing: not yet written, or freed", arg_text(check, r, a),
                          unset);
        if (unset >= 0)
            return refute(check, CLAIM_MEMORY, r, i, "reads %s, which holds nothing: not yet written, or freed",
                          arg_text(check, r, a));
    }
    return true;
}

bool ready(struct check *check, int r, int32_t i, const struct arg *a, struct tensor_name name) {
    struct value *value = &check->values->val[r][a->buf];
    struct span span = units_of(check, r, a);
    if (span.to < 0)
        return refute(check, CLAIM_JOBS, r, i, "%s: %s", arg_text(check, r, a), no_piece(span));
    if (value->live &&
        (first_set(check, r, a->buf, span) >= 0 || same_span(span, units_of(check, r, &(struct arg){.buf = a->buf}))))
        return refute(check, CLAIM_MEMORY, r, i, "overwrites %s, which is still in use", arg_text(check, r, a));
    return named(check, r, i, a->buf, name) && (value->live || open_buffer(check, r, i, a->buf));
}

/* Refutes unless the tensor fits the buffer exactly: all buffers of a kind and stage, or slice of it, have one size. */
static bool fits_buffer(struct check *check, int r, int32_t i, int kind, int stage, int32_t b) {
    int64_t want =
                check->values
                    ->bytes[kind][entry_of(check, stage, kind_has_batch[kind] ? check->p->rank[r].ins[i].batch : -1)],
            have = check->p->rank[r].buf[b].bytes;
    return want == have || refute(check, CLAIM_MEMORY, r, i, "puts a tensor of %lld bytes into %s of %lld bytes",
                                  (long long)want, buf_text(check, r, b), (long long)have);
}

static const uint8_t kind_written[NROLES] = {
    [ROLE_y] = K_act,   [ROLE_dx] = K_grad,       [ROLE_stash] = K_stash, [ROLE_input] = K_input, [ROLE_dw] = K_wgrad,
    [ROLE_opt] = K_opt, [ROLE_wstash] = K_wstash, [ROLE_w] = K_weight,    [ROLE_done] = K_token,  [ROLE_dv] = K_wgrad,
    [ROLE_own] = K_kv,  [ROLE_dpast] = K_dkv,     [ROLE_du] = K_wgrad};

/* Writes weights, a gradient or optimizer state. They may be live; the caller checks what they hold then. */
static bool write_again(struct check *check, int r, int32_t i, int role, int32_t b) {
    const struct buf *x = &check->p->rank[r].buf[b];
    const struct instr *in = &check->p->rank[r].ins[i];
    int set = is_job(in->op) ? set_of_operand(check, in, role) : in->stage;
    bool right = role == ROLE_w     ? holds_weights(x->kind)
                 : role == ROLE_opt ? x->kind == K_opt
                                    : holds_gradient(x->kind);
    if (!right)
        return refute(check, CLAIM_JOBS, r, i, "its operand %s is %s", role_name[role], buf_text(check, r, b));
    if (!fits_buffer(check, r, i, x->kind, set, b))
        return false;
    if (!check->values->val[r][b].live && !open_buffer(check, r, i, b))
        return false;
    check->values->val[r][b].set |= role == ROLE_opt;
    return true;
}

static bool write_output(struct check *check, int r, int32_t i, int role, int32_t b) {
    const struct instr *x = &check->p->rank[r].ins[i];
    int kind = kind_written[role];
    struct value *value = &check->values->val[r][b];
    if (role == ROLE_give || role == ROLE_work)
        return role == ROLE_give ? give_buffer(check, r, i, b) : is_workspace(check, r, i, b);
    if (role == ROLE_norm)
        return true; /* verify_norm does it */
    if (role == ROLE_dw || role == ROLE_dv || role == ROLE_du || role == ROLE_opt || role == ROLE_w)
        return write_again(check, r, i, role, b);
    if (check->p->rank[r].buf[b].kind != kind)
        return refute(check, CLAIM_JOBS, r, i, "its operand %s is %s", role_name[role], buf_text(check, r, b));
    if (!named(check, r, i, b, (struct tensor_name){kind, x->stage, x->batch, kind == K_token ? x->op : -1}) ||
        !fits_buffer(check, r, i, kind, x->stage, b))
        return false;
    if (x->part > 0)
        return write_part(check, r, i, b);
    if (value->live)
        return refute(check, CLAIM_MEMORY, r, i, "overwrites %s, which is still in use", buf_text(check, r, b));
    if (!open_buffer(check, r, i, b))
        return false;
    value->set = x->last == 0;
    value->half = !value->set;
    return true;
}

/* Runs a ZERO, which starts an empty sum. */
static bool run_zero(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    int set = k->ins[i].stage;
    const struct arg *dw = find_arg(k, &k->ins[i], ROLE_dw, 0);
    if (!dw)
        return refute(check, CLAIM_GRADIENTS, r, i, "no operand dw");
    const struct buf *b = &k->buf[dw->buf];
    bool numbered = check->p->update && names_own_part(check, r, b);
    if (!named(check, r, i, dw->buf,
               (struct tensor_name){holds_gradient(b->kind) ? b->kind : K_wgrad, set, -1, numbered ? b->inst : -1}) ||
        !is_of_its_update(check, r, i, dw->buf))
        return false;
    hold(check, r, dw->buf, units_of(check, r, dw), (struct content){.sum = NO_SUM, .set = true});
    return true;
}

/* Copies a rank's own shard into weights whose other shards it fetches. */
static bool run_copy(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct arg *src = find_arg(k, x, ROLE_src, 0), *w = find_arg(k, x, ROLE_w, 0);
    if (!src || !w)
        return refute(check, CLAIM_JOBS, r, i, "has no operand %s", src ? "w" : "src");
    const struct value *value = &check->values->val[r][src->buf];
    if (value->kind != K_weight || value->stage != x->stage)
        return refute(check, CLAIM_JOBS, r, i, "its source holds %s, not weight(%d)", value_text(check, value),
                      x->stage);
    if (!ready(check, r, i, w, (struct tensor_name){K_weight, x->stage, -1, x->inst}))
        return false;
    if (!same_span(units_of(check, r, src), units_of(check, r, w)))
        return refute(check, CLAIM_JOBS, r, i, "%s is a different part of the weights than %s", arg_text(check, r, src),
                      arg_text(check, r, w));
    copy_span(check, r, src->buf, r, w->buf, units_of(check, r, w));
    return true;
}

static bool write_outputs(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    if (x->op == OP_COPY)
        return run_copy(check, r, i);
    if (is_copy(x->op))
        return run_copy_over(check, r, i);
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (op_access(x->op, k->arg[a].role) & ACC_WRITE && !write_output(check, r, i, k->arg[a].role, k->arg[a].buf))
            return false;
    switch (x->op) {
    case OP_ZERO: return run_zero(check, r, i);
    case OP_NORM: return verify_norm(check, r, i);
    case OP_ADD:
    case OP_TAKE: return run_add(check, r, i);
    case OP_B:
    case OP_W:
        return accumulate(check, r, i, ROLE_dw) && accumulate(check, r, i, ROLE_dv) && accumulate(check, r, i, ROLE_du);
    default: return true;
    }
}

/* Refutes unless I's wstash lies where the stash that it frees lies, since what W needs from the stash is not copied.
 * If I runs in parts, the wstash takes over at the first part, although later parts still read the stash. */
static bool takes_over(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t stash = operand(k, x, ROLE_stash, 0), wstash = operand(k, x, ROLE_wstash, 0);
    if (wstash >= 0 && k->buf[wstash].off != k->buf[stash].off)
        return refute(check, CLAIM_MEMORY, r, i, "%s is not at the address of %s", buf_text(check, r, wstash),
                      buf_text(check, r, stash));
    if (wstash >= 0 && x->last && x->part == 0)
        give_way(check, r, stash);
    return true;
}

static bool has_given_way(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    int32_t stash = operand(k, &k->ins[i], ROLE_stash, 0);
    return !is_last_part(&k->ins[i]) || !check->values->val[r][stash].gave_way ||
           refute(check, CLAIM_MEMORY, r, i, "does not free %s, which became its wstash", buf_text(check, r, stash));
}

/* Checks what an instruction reads, then opens the buffers it writes and records its output. */
bool values_run(struct check *check, int r, int32_t i) {
    const struct instr *x = &check->p->rank[r].ins[i];
    bool job = is_job(x->op);
    if (x->stage < 0 || x->stage >= (job ? check->sp->stages : check->values->sets.n))
        return refute(check, CLAIM_JOBS, r, i, "there are %d stages", check->sp->stages);
    if ((job && !begin_part(check, r, i)) || !check_reads(check, r, i) || (job && !verify_job(check, r, i)) ||
        (x->op == OP_U && !verify_update(check, r, i)))
        return false;
    if (x->op == OP_I && (!takes_over(check, r, i) || !free_buffers(check, r, i, true) || !has_given_way(check, r, i)))
        return false;
    return write_outputs(check, r, i) && free_buffers(check, r, i, false);
}

/* ---- messages ---- */

/* Refutes unless the buffer holds the tensor that the message is named for. */
static bool sends_its_tensor(struct check *check, int r, int32_t i, int32_t b) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct value *value = &check->values->val[r][b];
    int kind = x->op == OP_SEND_S && value->kind == K_input ? K_input : op_row(x->op)->tensor;
    bool own = kind != K_wgrad || value->part < 0, some = kind_row(kind)->number == NUMBER_INSTANCE;
    bool instance = kind == K_wgrad || some == (x->inst >= 0);
    bool pieces = value->pieces && value->kind == kind && value->stage == x->stage;
    return ((pieces || is_tensor(value, kind, x->stage, x->batch, x->inst)) && own && instance) ||
           refute(check, CLAIM_JOBS, r, i, "%s holds %s, which does not match the message's name",
                  buf_text(check, r, b), value_text(check, value));
}

bool values_message(struct check *check, int src, int32_t i, int dst, int32_t j) {
    const struct rank *ks = &check->p->rank[src], *kd = &check->p->rank[dst];
    const struct instr *x = &ks->ins[i];
    const struct arg *from = &ks->arg[x->arg], *to = &kd->arg[kd->ins[j].arg];
    if (!check_reads(check, src, i) || !sends_its_tensor(check, src, i, from->buf) || !check_reads(check, dst, j))
        return false;
    bool gradient = check->values->val[src][from->buf].kind == K_wgrad;
    int kind = gradient && kd->buf[to->buf].kind == K_gshard ? K_gshard : check->values->val[src][from->buf].kind;
    int round = gradient ? round_of(check, &ks->buf[from->buf]) : 0;
    if (!ready(check, dst, j, to,
               (struct tensor_name){kind, x->stage, x->batch, gradient ? src + check->p->workers * round : x->inst}))
        return false;
    struct span span = units_of(check, src, from);
    if (!same_span(span, units_of(check, dst, to)))
        return refute(check, CLAIM_JOBS, dst, j, "%s is a different part of %s(%d) than %s, which rank %d sends",
                      arg_text(check, dst, to), kind_name[op_row(x->op)->tensor], x->stage, arg_text(check, src, from),
                      src);
    if (gradient && !is_of_its_update(check, src, i, from->buf))
        return false;
    copy_span(check, src, from->buf, dst, to->buf, span);
    return free_buffers(check, src, i, false) && free_buffers(check, dst, j, false);
}

/* ---- the beginning and the end of a step ---- */

bool values_begin(struct check *check) {
    int W = check->p->workers;
    struct values *values = check->values = NEW(struct values, 1);
    values->val = NEW(struct value *, W);
    values->sets.n = check->sp->stages + check->sp->names.sets;
    values->done = NEW(bool, check->sp->njobs);
    values->sets.seen = NEW(uint32_t, values->sets.n);
    values->bytes_read = NEW(int64_t, entries(check));
    values->stays = NEW(bool *, W);
    parts_begin(check);
    period_begin(check);
    jobs_begin(check);
    for (int r = 0; r < W; r++) {
        values->val[r] = NEW(struct value, check->p->rank[r].nbufs);
        values->stays[r] = NEW(bool, check->p->rank[r].nbufs);
    }
    if (!teams_begin(check) || !ranges_begin(check) || !sets_begin(check))
        return false;
    sums_begin(check);
    members_begin(check);
    return updates_begin(check) && memory_begin(check) && norms_begin(check);
}

/* Refutes unless a home ends the step with all updates of all of its weights. */
static bool has_updated(struct check *check, int r, int32_t b) {
    const struct value *value = &check->values->val[r][b];
    struct span all = units_of(check, r, &(struct arg){.buf = b});
    int32_t updates = updates_of(check, value->stage), has;
    for (int32_t at = all.from, to; at < all.to; at = to) {
        if ((has = held_at(check, r, b, at, &to).count) == updates)
            continue;
        if (check->p->update)
            return refute_all(check, CLAIM_GRADIENTS, "rank %d ends with version %d of %s, but there are %d updates", r,
                              has, buf_text(check, r, b), updates);
        if (value->pieces)
            return refute_all(check, CLAIM_GRADIENTS, "rank %d ends with %s, although %s has not been updated", r,
                              buf_text(check, r, b), span_text((struct span){at, to}));
        return refute_all(check, CLAIM_GRADIENTS, "rank %d never updates %s", r, buf_text(check, r, b));
    }
    return true;
}

bool values_end(struct check *check) {
    for (int j = 0; j < check->sp->njobs; j++)
        if (!check->values->done[j]) {
            const struct job *job = &check->sp->job[j];
            return refute_all(check, CLAIM_JOBS, "job %s never runs",
                              job_name(&check->p->names, job->s, job->b, job->d));
        }
    for (int r = 0; r < check->p->workers; r++)
        for (int32_t b = 0; b < check->p->rank[r].nbufs; b++) {
            const struct buf *x = &check->p->rank[r].buf[b];
            bool ok = at_home(x)          ? has_updated(check, r, b)
                      : x->kind == K_hopt ? state_has_come_back(check, r, b)
                                          : true;
            if (!ok)
                return false;
        }
    return memory_end(check) && norms_end(check) && teams_agree(check) && jobs_repeat(check);
}
