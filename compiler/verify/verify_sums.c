/* The claim on gradients: what a home's update adds is the sum over all microbatches, each exactly once.
 *
 * A sum is a leaf, one job's contribution, or the join of two sums; none is ever changed, so a part that is received,
 * or reduced on many ranks, is known by its number. An update walks down from its sum: a sum that is met twice, and so
 * every leaf below it, would count twice. What has once been found to be everything is not walked again: all members
 * of a reduction hold the same sum. */
#include "check.h"

struct sum {
    int32_t a, b; /* of a join: the two sums, > 0; of a leaf: ~stage and the microbatch */
    int32_t n;    /* leaves, each as often as it is met */
    uint32_t met; /* by which walk */
};

struct sums {
    struct sum *sum;
    size_t n, cap;
    int32_t *todo;
    size_t todo_cap;
    uint32_t *leaf; /* per microbatch, of one stage and then of the other of a table: by which walk it was met */
    uint32_t walks; /* so far */
    int32_t *whole; /* per set: the sum that was found to be everything */
    int32_t most;   /* contributions that a set can have */
};

static int32_t new_sum(struct sums *y, int32_t a, int32_t b, int32_t n) {
    GROW(y->sum, y->cap, y->n + 1);
    y->sum[y->n] = (struct sum){a, b, n, 0};
    return (int32_t)y->n++;
}

void sums_begin(struct check *z) {
    struct sums *y = z->values->sums = NEW(struct sums, 1);
    y->most = z->sp->batches * (1 + z->sp->tied);
    y->leaf = NEW(uint32_t, 2 * (int64_t)z->sp->batches);
    y->whole = NEW(int32_t, z->values->sets);
    new_sum(y, 0, 0, 0); /* NO_SUM */
}

int64_t contributions(const struct check *z, int32_t sum) { return z->values->sums->sum[sum].n; }

bool join(struct check *z, int32_t *a, int32_t b) {
    struct sums *y = z->values->sums;
    if (*a == NO_SUM || b == NO_SUM) {
        *a = *a == NO_SUM ? b : *a;
        return true;
    }
    int64_t n = contributions(z, *a) + contributions(z, b);
    if (n > y->most)
        return false;
    *a = new_sum(y, *a, b, (int32_t)n);
    return true;
}

/* ---- what instructions add ---- */

static bool refute_count(struct check *z, int r, int32_t i, int set, int64_t n) {
    return refute(z, CLAIM_GRADIENTS, r, i,
                  "wgrad(%d) would have %lld contributions, and there are %d: some come twice", set, (long long)n,
                  z->values->sums->most);
}

/* The gradient operand: written by the first contribution, of the same set when added to. */
static bool add_to(struct check *z, int r, int32_t i, int role, int set, int32_t sum) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t dw = operand(k, x, role, 0);
    if (dw < 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "its gradient goes nowhere: no operand %s", role_name[role]);
    struct value *v = &z->values->val[r][dw];
    if (is_first(x, role)) {
        if (!named(z, r, i, dw, K_wgrad, set, -1, -1))
            return false;
        *v = (struct value){.stage = set, .batch = -1, .sum = NO_SUM, .part = -1, .kind = K_wgrad, .live = v->live};
        v->set = true;
    } else if (v->kind != K_wgrad || v->stage != set)
        return refute(z, CLAIM_GRADIENTS, r, i, "adds to %s, which holds %s", buf_text(z, r, dw), value_text(z, v));
    int64_t n = contributions(z, v->sum) + contributions(z, sum);
    return join(z, &v->sum, sum) || refute_count(z, r, i, set, n);
}

bool adds_to_table(const struct spec *sp, const struct instr *x) {
    return sp->tied && (x->op == OP_B || x->op == OP_W) && (x->stage == 0 || x->stage == sp->unembedding);
}

bool accumulate(struct check *z, int r, int32_t i, int role, int set) {
    const struct instr *x = &z->p->rank[r].ins[i];
    return add_to(z, r, i, role, set, new_sum(z->values->sums, ~x->stage, x->batch, 1));
}

bool run_add(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t src = operand(k, x, ROLE_src, 0);
    struct value from = src >= 0 ? z->values->val[r][src] : (struct value){0};
    if (!from.set || from.kind != K_wgrad || from.stage != x->stage || from.part != x->peer)
        return refute(z, CLAIM_GRADIENTS, r, i, "its source holds %s, not rank %d's part of wgrad(%d)",
                      value_text(z, &from), x->peer, x->stage);
    return add_to(z, r, i, ROLE_dw, x->stage, from.sum);
}

bool values_reduce(struct check *z, const struct group *g, const int32_t *i) {
    int set = z->p->rank[g->rank[0]].ins[i[0]].stage;
    struct value all = {.stage = set, .batch = -1, .sum = NO_SUM, .part = -1, .kind = K_wgrad, .live = true};
    all.set = true;
    for (int m = 0; m < g->n; m++) {
        int r = g->rank[m];
        const struct rank *k = &z->p->rank[r];
        int32_t dw = operand(k, &k->ins[i[m]], ROLE_dw, 0);
        if (dw < 0)
            return refute(z, CLAIM_GRADIENTS, r, i[m], "no operand dw");
        if (!check_reads(z, r, i[m]))
            return false;
        const struct value *v = &z->values->val[r][dw];
        if (v->kind != K_wgrad || v->stage != set || v->part >= 0)
            return refute(z, CLAIM_GRADIENTS, r, i[m], "its operand holds %s, not this rank's wgrad(%d)",
                          value_text(z, v), set);
        int64_t n = contributions(z, all.sum) + contributions(z, v->sum);
        if (!join(z, &all.sum, v->sum))
            return refute_count(z, r, i[m], set, n);
    }
    for (int m = 0; m < g->n; m++) {
        int r = g->rank[m];
        const struct rank *k = &z->p->rank[r];
        z->values->val[r][operand(k, &k->ins[i[m]], ROLE_dw, 0)] = all;
        if (!free_buffers(z, r, i[m], false))
            return false;
    }
    return true;
}

/* ---- updates ---- */

/* What is wrong with a sum as the gradient of a set; NULL: it has every microbatch of its stages once. */
static const char *what_is_wrong(struct check *z, int32_t sum, int set) {
    struct sums *y = z->values->sums;
    bool table = set == z->sp->stages, twice = table && z->sp->unembedding > 0;
    int32_t want = z->sp->batches * (1 + twice);
    if (contributions(z, sum) != want)
        return format("has %lld of %d contributions", (long long)contributions(z, sum), want);
    if (y->whole[set] == sum)
        return NULL;
    uint32_t walk = ++y->walks;
    size_t n = 0;
    GROW(y->todo, y->todo_cap, (size_t)want + 1);
    for (y->todo[n++] = sum; n > 0;) {
        struct sum *x = &y->sum[y->todo[--n]];
        bool leaf = x->a < 0;
        int s = ~x->a;
        if (leaf && s != (table ? 0 : set) && !(twice && s == z->sp->unembedding))
            return format("has a contribution of stage %d", s);
        uint32_t *met = leaf ? &y->leaf[x->b + (twice && s ? z->sp->batches : 0)] : &x->met;
        if (*met == walk)
            return leaf ? format("has microbatch %d of stage %d twice", x->b, s) : "has a part twice";
        *met = walk;
        if (leaf)
            continue;
        y->todo[n++] = x->a;
        y->todo[n++] = x->b;
    }
    y->whole[set] = sum;
    return NULL;
}

bool run_update(struct check *z, int r, int32_t i) {
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = &k->ins[i];
    int set = x->stage;
    int32_t dw = operand(k, x, ROLE_dw, 0), w = operand(k, x, ROLE_w, 0), opt = operand(k, x, ROLE_opt, 0);
    const struct value *v = dw >= 0 ? &z->values->val[r][dw] : &(struct value){0};
    if (!v->set || v->kind != K_wgrad || v->stage != set || v->part >= 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "its gradient is %s, not wgrad(%d)", value_text(z, v), set);
    const char *wrong = what_is_wrong(z, v->sum, set);
    if (wrong)
        return refute(z, CLAIM_GRADIENTS, r, i,
                      "its gradient %s; it must be the sum over all %d microbatches%s, each once", wrong,
                      z->sp->batches, set == z->sp->stages && z->sp->unembedding > 0 ? " of both stages" : "");
    struct value *weights = w >= 0 ? &z->values->val[r][w] : NULL;
    if (!weights || !is_tensor(weights, K_weight, set, -1, 0) || k->buf[w].inst >= 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "weight(%d) is not at home here", set);
    if (weights->count)
        return refute(z, CLAIM_GRADIENTS, r, i, "it has been updated before");
    bool has_state = opt >= 0 && is_tensor(&z->values->val[r][opt], K_opt, set, -1, 0);
    bool needs_state = z->sp->stage ? z->values->bytes[K_opt][set] > 0
                                    : z->values->bytes[K_opt][set] >= 0 ||
                                          (z->values->has_state && z->values->bytes[K_weight][set] > 0);
    if (needs_state ? !has_state : opt >= 0)
        return refute(z, CLAIM_GRADIENTS, r, i, "needs opt(%d), and nothing else, as optimizer state", set);
    weights->count++;
    return true;
}
