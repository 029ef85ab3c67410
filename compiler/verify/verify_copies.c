/* Copies of activations and optimizer state to host memory and back.
 *
 * A copy holds what the original held, so a backward that reads one reads the right tensor. Optimizer state that lives
 * in host memory is updated on the device. Values count its updates, so a stale copy can neither be updated nor remain
 * at the end of the step. */
#include "check_homes.h"

bool in_its_memory(struct check *check, int r, int32_t i, const struct arg *a) {
    const struct rank *k = &check->p->rank[r];
    const struct buf *b = &k->buf[a->buf];
    int lane = op_row(k->ins[i].op)->lane;
    bool host = (lane == LANE_OFFLOAD && a->role == ROLE_t) || (lane == LANE_RELOAD && a->role == ROLE_src);
    if (host == in_host(b))
        return true;
    return refute(check, CLAIM_JOBS, r, i, "its operand %s, %s, must be in %s memory", role_name[a->role],
                  buf_text(check, r, a->buf), host ? "host" : "the device's");
}

/* Returns the kind of buffer that a copy of a tensor goes to. */
static int copied_to(int kind, bool leaves) {
    switch (kind) {
    case K_stash: return leaves ? K_hstash : K_rstash;
    case K_input: return leaves ? K_hinput : K_rinput;
    default: return leaves ? K_hopt : K_opt;
    }
}

bool run_copy_over(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct arg *src = find_arg(k, x, ROLE_src, 0), *t = find_arg(k, x, ROLE_t, 0);
    if (!src || !t)
        return refute(check, CLAIM_JOBS, r, i, "has no operand %s", src ? "t" : "src");
    const struct value *value = &check->values->val[r][src->buf];
    bool leaves = op_row(x->op)->lane == LANE_OFFLOAD, state = op_row(x->op)->tensor == K_opt;
    int kind = state ? K_opt : value->kind == K_input ? K_input : K_stash;
    if (!is_tensor(value, kind, x->stage, x->batch, 0))
        return refute(check, CLAIM_JOBS, r, i, "%s holds %s, which does not match the copy's name",
                      buf_text(check, r, src->buf), value_text(check, value));
    if (arg_bytes(k, src) != arg_bytes(k, t))
        return refute(check, CLAIM_MEMORY, r, i, "copies %lld bytes into %s of %lld bytes",
                      (long long)arg_bytes(k, src), buf_text(check, r, t->buf), (long long)arg_bytes(k, t));
    int32_t count = value->count;
    int to = copied_to(kind, leaves);
    bool again = to == K_hopt && check->values->stays[r][t->buf]; /* it replaces the old state */
    if (again ? !named(check, r, i, t->buf, (struct tensor_name){to, x->stage, -1, -1})
              : !ready(check, r, i, t, (struct tensor_name){to, x->stage, x->batch, -1}))
        return false;
    hold(check, r, t->buf, units_of(check, r, t), (struct content){.count = count, .set = true});
    return true;
}

bool state_has_come_back(struct check *check, int r, int32_t b) {
    return check->values->val[r][b].count ||
           refute_all(check, CLAIM_GRADIENTS, "rank %d ends with %s as it was before the update", r,
                      buf_text(check, r, b));
}
