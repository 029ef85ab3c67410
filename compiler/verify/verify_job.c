/* Checks what a job reads: the tensors that the job graph requires, each once, and the weights and versions of its
 * sets. */
#include "check_homes.h"
#include <string.h>

static const uint8_t role_of[NKINDS] = {
    [K_act] = ROLE_x,         [K_grad] = ROLE_dy, [K_stash] = ROLE_stash, [K_input] = ROLE_input,
    [K_wstash] = ROLE_wstash, [K_token] = ROLE_t, [K_kv] = ROLE_kv,       [K_dkv] = ROLE_dkv};

/* A tensor as an operand of some role. d: for a token, the job it stands for */
struct tensor {
    int32_t role, kind, s, b, d;
};
struct tensors { /* the tensors that the job graph requires, and those that the operands hold */
    struct tensor *want, *have;
    size_t nwant, nhave, want_cap, have_cap;
};

static int by_tensor(const void *x, const void *y) {
    verify_work++;
    return memcmp(x, y, sizeof(struct tensor));
}

static void want(struct tensors *tensors, struct tensor tensor) {
    GROW(tensors->want, tensors->want_cap, tensors->nwant + 1);
    tensors->want[tensors->nwant++] = tensor;
}

/* Collects the operands that hold tensors passed along edges: all that are read, except weights and what a part
 * gets. */
static void take_operands(struct check *check, int r, const struct instr *x, struct tensors *tensors) {
    const struct rank *k = &check->p->rank[r];
    GROW(tensors->have, tensors->have_cap, (size_t)x->narg + 1);
    tensors->nhave = 0;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        const struct value *value = &check->values->val[r][k->arg[a].buf];
        if (op_access(x->op, role) == ACC_READ && role != ROLE_w && role != ROLE_v && role != ROLE_u &&
            role != ROLE_got)
            tensors->have[tensors->nhave++] = (struct tensor){role, value->kind, value->stage, value->batch,
                                                              value->kind == K_token ? value->count : 0};
    }
}

/* Reports how the operands differ from the required tensors. */
static bool refute_operands(struct check *check, int r, int32_t i, const struct tensors *tensors) {
    for (size_t w = 0, h = 0; w < tensors->nwant; w++) {
        const struct tensor *x = &tensors->want[w];
        while (h < tensors->nhave && by_tensor(&tensors->have[h], x) < 0)
            h++;
        if (h < tensors->nhave && by_tensor(&tensors->have[h], x) == 0) {
            h++;
            continue;
        }
        struct value tensor = {.set = true, .kind = (uint8_t)x->kind, .stage = x->s, .batch = x->b, .count = x->d};
        int32_t first = operand(&check->p->rank[r], &check->p->rank[r].ins[i], x->role, 0);
        if (first < 0)
            return refute(check, CLAIM_JOBS, r, i, "needs %s as %s, but has no such operand",
                          value_text(check, &tensor), role_name[x->role]);
        return refute(check, CLAIM_JOBS, r, i, "needs %s as %s, but %s holds %s", value_text(check, &tensor),
                      role_name[x->role], buf_text(check, r, first), value_text(check, &check->values->val[r][first]));
    }
    return refute(check, CLAIM_JOBS, r, i, "has %zu operands that hold tensors; the job graph says %zu", tensors->nhave,
                  tensors->nwant);
}

static bool are_same(const struct tensors *tensors) {
    return tensors->nwant == tensors->nhave &&
           (!tensors->nwant || !memcmp(tensors->want, tensors->have, sizeof *tensors->want * tensors->nwant));
}

/* Refutes unless keys and values come in the order of their slices: an operand's position tells which slice's it
 * holds. */
static bool keys_in_order(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    int32_t before = operand(k, &k->ins[i], ROLE_kv, 0), b;
    for (int n = 1; before >= 0 && (b = operand(k, &k->ins[i], ROLE_kv, n)) >= 0; n++, before = b)
        if (check->values->val[r][b].batch <= check->values->val[r][before].batch)
            return refute(check, CLAIM_JOBS, r, i, "reads keys and values out of order: %s after %s",
                          buf_text(check, r, b), buf_text(check, r, before));
    return true;
}

/* Refutes unless the tensors passed along edges and the operands match one to one. */
static bool reads_edges(struct check *check, int r, int32_t i, int32_t j) {
    struct tensors *tensors = check->values->scratch;
    tensors->nwant = 0;
    for (int32_t e = check->g->pred_at[j]; e < check->g->pred_at[j + 1]; e++) {
        const struct job *from = &check->sp->job[check->g->pred[e]];
        if (from->d == OP_U)
            continue; /* declared versions give this order */
        int kind = check->g->kind[e];
        if (!check->values->done[check->g->pred[e]])
            return refute(check, CLAIM_JOBS, r, i, "%s, which it needs, has not run",
                          job_name(&check->p->names, from->s, from->b, from->d));
        if (kind != K_token || from->rank != r) /* on one rank a token is only an order, which the walk kept */
            want(tensors, (struct tensor){role_of[kind], kind, from->s, from->b, kind == K_token ? from->d : 0});
    }
    if (!keys_in_order(check, r, i))
        return false;
    take_operands(check, r, &check->p->rank[r].ins[i], tensors);
    verify_work += (int64_t)(tensors->nwant + tensors->nhave);
    if (are_same(tensors)) /* usually already in the same order */
        return true;
    if (tensors->nwant > 1)
        sort(tensors->want, tensors->nwant, sizeof *tensors->want, by_tensor);
    if (tensors->nhave > 1)
        sort(tensors->have, tensors->nhave, sizeof *tensors->have, by_tensor);
    return are_same(tensors) || refute_operands(check, r, i, tensors);
}

/* Refutes unless the operand holds this set of weights, not updated yet. */
static bool reads_weights(struct check *check, int r, int32_t i, int role, int set) {
    const struct rank *k = &check->p->rank[r];
    int32_t b = operand(k, &k->ins[i], role, 0);
    if (b < 0)
        return refute(check, CLAIM_JOBS, r, i, "needs weight(%d) as %s, but has no such operand", set, role_name[role]);
    const struct value *value = &check->values->val[r][b];
    if (value->pieces && value->stage == set)
        return refute(check, CLAIM_JOBS, r, i, "needs weight(%d) as %s, but only some of %s has been updated", set,
                      role_name[role], buf_text(check, r, b));
    if (!is_tensor(value, K_weight, set, -1, 0) || k->buf[b].kind != K_weight)
        return refute(check, CLAIM_JOBS, r, i, "needs weight(%d) as %s, but %s holds %s", set, role_name[role],
                      buf_text(check, r, b), value_text(check, value));
    return check->p->update || !value->count ||
           refute(check, CLAIM_JOBS, r, i, "its weights have already been updated in this step");
}

/* Refutes unless all weights that a job reads have the version that it declares. */
static bool reads_version(struct check *check, int r, int32_t i, int32_t j) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t own = set_of_operand(check, x, ROLE_w), shared = set_of_operand(check, x, ROLE_u);
    if (own < 0 && shared < 0)
        return x->inst < 0 ||
               refute(check, CLAIM_JOBS, r, i, "declares version %d of weights, but reads none", x->inst);
    return (own < 0 || has_its_version(check, r, i, own, operand(k, x, ROLE_w, 0))) &&
           (shared < 0 || has_its_version(check, r, i, shared, operand(k, x, ROLE_u, 0))) &&
           declares_version(check, r, i, j);
}

/* Refutes unless a job reads the sets that it uses (its stage's, the table, its team's), and names the right
 * gradients. */
static bool uses_sets(struct check *check, int r, int32_t i, int32_t j) {
    static const uint8_t reads[] = {ROLE_w, ROLE_v, ROLE_u}, adds[] = {ROLE_dw, ROLE_dv, ROLE_du};
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (int n = 0; n < 3; n++) {
        int32_t set = set_of_operand(check, x, reads[n]);
        if (set >= 0 && !reads_weights(check, r, i, reads[n], set))
            return false;
        if (set < 0 && operand(k, x, reads[n], 0) >= 0)
            return refute(check, CLAIM_JOBS, r, i, "has an operand %s, but %s", role_name[reads[n]],
                          n == 0   ? "its stage has no weights"
                          : n == 1 ? "reads no table"
                                   : "its team shares no weights");
        if (set_of_operand(check, x, adds[n]) < 0 && operand(k, x, adds[n], 0) >= 0)
            return refute(check, CLAIM_GRADIENTS, r, i, "has an operand %s, but %s", role_name[adds[n]],
                          n == 0   ? "its stage has no weights"
                          : n == 1 ? "adds to no table"
                                   : "its team shares no weights");
    }
    return !check->p->update || x->op == OP_W || reads_version(check, r, i, j);
}

static bool may_repeat(int role) { return role == ROLE_x || role == ROLE_dy || role == ROLE_kv || role == ROLE_t; }

/* Refutes if a role occurs more often than its row in ops.h allows. */
static bool roles_once(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    uint32_t seen = 0;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        bool piece = role == ROLE_dw && x->last;
        if (k->arg[a].last && !piece)
            return refute(check, CLAIM_JOBS, r, i, "a job must not take a piece: %s", arg_text(check, r, &k->arg[a]));
        if (seen >> role & 1 && !may_repeat(role) && !piece)
            return refute(check, CLAIM_JOBS, r, i, "has several operands %s", role_name[role]);
        seen |= (uint32_t)1 << role;
    }
    return true;
}

/* Checks sizes without a model: a stage's kept input and its gradient must be at least as large as what the stage
 * reads. */
static bool as_large_as_read(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int64_t *read = &check->values->bytes_read[entry_of(check, x->stage, x->batch)];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        int64_t bytes = k->buf[k->arg[a].buf].bytes;
        if (x->op == OP_F && role == ROLE_x && bytes > *read)
            *read = bytes;
        if (bytes < *read && ((x->op == OP_F && role == ROLE_input) || role == ROLE_dx))
            return refute(check, CLAIM_MEMORY, r, i, "%s has %lld bytes, fewer than what stage %d reads, %lld",
                          buf_text(check, r, k->arg[a].buf), (long long)bytes, x->stage, (long long)*read);
    }
    return true;
}

bool verify_job(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    bool inside = x->stage >= 0 && x->stage < check->sp->stages && x->batch >= 0 && x->batch < check->sp->batches;
    int32_t j = inside ? job_at(check->sp, x->stage, x->batch, x->op) : -1;
    if (j < 0)
        return refute(check, CLAIM_JOBS, r, i, "the job graph has no such job");
    const struct job *job = &check->sp->job[j];
    if (job->rank != r)
        return refute(check, CLAIM_JOBS, r, i, "the schedule runs it on rank %d", job->rank);
    if (check->values->done[j])
        return refute(check, CLAIM_JOBS, r, i, "it has run before");
    bool again = job_at(check->sp, x->stage, x->batch, OP_R) >= 0;
    if (x->op == OP_F && operand(k, x, again ? ROLE_stash : ROLE_input, 0) >= 0)
        return refute(check, CLAIM_JOBS, r, i,
                      again ? "keeps a stash, although R makes one" : "keeps its input, but no R reads it");
    if (!roles_once(check, r, i) || !gives_and_gets(check, r, i) || !reads_edges(check, r, i, j) ||
        !uses_sets(check, r, i, j))
        return false;
    check->values->done[j] = is_last_part(x);
    if (check->values->section)
        check->values->section[j] = (uint8_t)section_of(k, i);
    return check->costs->stage || as_large_as_read(check, r, i);
}

void jobs_begin(struct check *check) { check->values->scratch = NEW(struct tensors, 1); }
