/* The gradient claim: a home's update adds the sum over all microbatches, each exactly once.
 *
 * A sum is a leaf (one job's contribution) or the join of two sums. Sums never change, so a part that is received, or
 * reduced on many ranks, is identified by its number. An update walks down from its sum: a sum reached twice, and so
 * every leaf below it, would count twice. A sum found complete is not walked again: all members of a reduction hold the
 * same one. */
#include "check.h"

struct sum {
    int32_t a, b; /* join: the two sums, > 0; leaf: ~stage and the microbatch */
    int32_t n;    /* leaves, with multiplicity */
    uint32_t met; /* the last walk that reached it */
};

struct sums {
    struct sum *sum;
    size_t n, cap;
    int32_t *todo;
    size_t todo_cap;
    uint32_t *leaf; /* per microbatch, of a table's first and then second stage: the last walk that reached it */
    uint32_t walks; /* so far */
    int32_t *whole; /* per set: the sum found complete */
    int32_t most;   /* the most contributions a set can have */
};

static int32_t new_sum(struct sums *sums, int32_t a, int32_t b, int32_t n) {
    GROW(sums->sum, sums->cap, sums->n + 1);
    sums->sum[sums->n] = (struct sum){a, b, n, 0};
    return (int32_t)sums->n++;
}

void sums_begin(struct check *check) {
    struct sums *sums = check->values->sums = NEW(struct sums, 1);
    sums->most = check->sp->batches * (1 + check->sp->tied);
    sums->leaf = NEW(uint32_t, 2 * (int64_t)check->sp->batches);
    sums->whole = NEW(int32_t, check->values->sets);
    new_sum(sums, 0, 0, 0); /* NO_SUM */
}

int64_t contributions(const struct check *check, int32_t sum) { return check->values->sums->sum[sum].n; }

bool join(struct check *check, int32_t *a, int32_t b) {
    struct sums *sums = check->values->sums;
    if (*a == NO_SUM || b == NO_SUM) {
        *a = *a == NO_SUM ? b : *a;
        return true;
    }
    int64_t n = contributions(check, *a) + contributions(check, b);
    if (n > sums->most)
        return false;
    *a = new_sum(sums, *a, b, (int32_t)n);
    return true;
}

/* ---- what instructions add ---- */

static bool refute_count(struct check *check, int r, int32_t i, int set, int64_t n) {
    return refute(check, CLAIM_GRADIENTS, r, i,
                  "wgrad(%d) would have %lld contributions, and there are %d: some come twice", set, (long long)n,
                  check->values->sums->most);
}

/* The gradient operand: the first contribution writes it; later ones add to it, and must be of the same set. */
static bool add_to(struct check *check, int r, int32_t i, int role, int set, int32_t sum) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t dw = operand(k, x, role, 0);
    if (dw < 0)
        return refute(check, CLAIM_GRADIENTS, r, i, "its gradient goes nowhere: no operand %s", role_name[role]);
    struct value *value = &check->values->val[r][dw];
    if (is_first(x, role)) {
        if (!named(check, r, i, dw, K_wgrad, set, -1, -1))
            return false;
        *value =
            (struct value){.stage = set, .batch = -1, .sum = NO_SUM, .part = -1, .kind = K_wgrad, .live = value->live};
        value->set = true;
    } else if (value->kind != K_wgrad || value->stage != set)
        return refute(check, CLAIM_GRADIENTS, r, i, "adds to %s, which holds %s", buf_text(check, r, dw),
                      value_text(check, value));
    int64_t n = contributions(check, value->sum) + contributions(check, sum);
    return join(check, &value->sum, sum) || refute_count(check, r, i, set, n);
}

bool adds_to_table(const struct spec *sp, const struct instr *x) {
    return sp->tied && (x->op == OP_B || x->op == OP_W) && (x->stage == 0 || x->stage == sp->unembedding);
}

bool accumulate(struct check *check, int r, int32_t i, int role, int set) {
    const struct instr *x = &check->p->rank[r].ins[i];
    return add_to(check, r, i, role, set, new_sum(check->values->sums, ~x->stage, x->batch, 1));
}

bool run_add(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t src = operand(k, x, ROLE_src, 0);
    struct value from = src >= 0 ? check->values->val[r][src] : (struct value){0};
    if (!from.set || from.kind != K_wgrad || from.stage != x->stage || from.part != x->peer)
        return refute(check, CLAIM_GRADIENTS, r, i, "its source holds %s, not rank %d's part of wgrad(%d)",
                      value_text(check, &from), x->peer, x->stage);
    return add_to(check, r, i, ROLE_dw, x->stage, from.sum);
}

bool values_reduce(struct check *check, const struct group *g, const int32_t *i) {
    int set = check->p->rank[g->rank[0]].ins[i[0]].stage;
    struct value all = {.stage = set, .batch = -1, .sum = NO_SUM, .part = -1, .kind = K_wgrad, .live = true};
    all.set = true;
    for (int m = 0; m < g->n; m++) {
        int r = g->rank[m];
        const struct rank *k = &check->p->rank[r];
        int32_t dw = operand(k, &k->ins[i[m]], ROLE_dw, 0);
        if (dw < 0)
            return refute(check, CLAIM_GRADIENTS, r, i[m], "no operand dw");
        if (!check_reads(check, r, i[m]))
            return false;
        const struct value *value = &check->values->val[r][dw];
        if (value->kind != K_wgrad || value->stage != set || value->part >= 0)
            return refute(check, CLAIM_GRADIENTS, r, i[m], "its operand holds %s, not this rank's wgrad(%d)",
                          value_text(check, value), set);
        int64_t n = contributions(check, all.sum) + contributions(check, value->sum);
        if (!join(check, &all.sum, value->sum))
            return refute_count(check, r, i[m], set, n);
    }
    for (int m = 0; m < g->n; m++) {
        int r = g->rank[m];
        const struct rank *k = &check->p->rank[r];
        check->values->val[r][operand(k, &k->ins[i[m]], ROLE_dw, 0)] = all;
        if (!free_buffers(check, r, i[m], false))
            return false;
    }
    return true;
}

/* ---- updates ---- */

/* Why a sum is not the gradient of a set; NULL: it has every microbatch of its stages exactly once. */
static const char *what_is_wrong(struct check *check, int32_t sum, int set) {
    struct sums *sums = check->values->sums;
    bool table = set == check->sp->stages, twice = table && check->sp->unembedding > 0;
    int32_t want = check->sp->batches * (1 + twice);
    if (contributions(check, sum) != want)
        return format("has %lld of %d contributions", (long long)contributions(check, sum), want);
    if (sums->whole[set] == sum)
        return NULL;
    uint32_t walk = ++sums->walks;
    size_t n = 0;
    GROW(sums->todo, sums->todo_cap, (size_t)want + 1);
    for (sums->todo[n++] = sum; n > 0;) {
        struct sum *x = &sums->sum[sums->todo[--n]];
        bool leaf = x->a < 0;
        int s = ~x->a;
        if (leaf && s != (table ? 0 : set) && !(twice && s == check->sp->unembedding))
            return format("has a contribution of stage %d", s);
        uint32_t *met = leaf ? &sums->leaf[x->b + (twice && s ? check->sp->batches : 0)] : &x->met;
        if (*met == walk)
            return leaf ? format("has microbatch %d of stage %d twice", x->b, s) : "has a part twice";
        *met = walk;
        if (leaf)
            continue;
        sums->todo[n++] = x->a;
        sums->todo[n++] = x->b;
    }
    sums->whole[set] = sum;
    return NULL;
}

bool run_update(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int set = x->stage;
    int32_t dw = operand(k, x, ROLE_dw, 0), w = operand(k, x, ROLE_w, 0), opt = operand(k, x, ROLE_opt, 0);
    const struct value *value = dw >= 0 ? &check->values->val[r][dw] : &(struct value){0};
    if (!value->set || value->kind != K_wgrad || value->stage != set || value->part >= 0)
        return refute(check, CLAIM_GRADIENTS, r, i, "its gradient is %s, not wgrad(%d)", value_text(check, value), set);
    const char *wrong = what_is_wrong(check, value->sum, set);
    if (wrong)
        return refute(
            check, CLAIM_GRADIENTS, r, i, "its gradient %s; it must be the sum over all %d microbatches%s, each once",
            wrong, check->sp->batches, set == check->sp->stages && check->sp->unembedding > 0 ? " of both stages" : "");
    struct value *weights = w >= 0 ? &check->values->val[r][w] : NULL;
    if (!weights || !is_tensor(weights, K_weight, set, -1, 0) || k->buf[w].inst >= 0)
        return refute(check, CLAIM_GRADIENTS, r, i, "weight(%d) is not at home here", set);
    if (weights->count)
        return refute(check, CLAIM_GRADIENTS, r, i, "it has been updated before");
    bool has_state = opt >= 0 && is_tensor(&check->values->val[r][opt], K_opt, set, -1, 0);
    bool needs_state = check->sp->stage ? check->values->bytes[K_opt][set] > 0
                                        : check->values->bytes[K_opt][set] >= 0 ||
                                              (check->values->has_state && check->values->bytes[K_weight][set] > 0);
    if (needs_state ? !has_state : opt >= 0)
        return refute(check, CLAIM_GRADIENTS, r, i, "needs opt(%d), and nothing else, as optimizer state", set);
    weights->count++;
    return true;
}
