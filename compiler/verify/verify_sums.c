/* The gradient claim: a home updates with the sum over all microbatches, each counted exactly once.
 *
 * A sum is a leaf (one job's contribution) or the join of two sums. Sums never change, so a part that is received, or
 * reduced on several ranks, is identified by its number. An update walks down from its sum. If the walk reaches a sum
 * twice, every leaf below it would count twice. A sum found complete is not walked again, since all members of a
 * reduction hold the same one. */
#include "check_homes.h"
#include <stdlib.h>
#include <string.h>

struct sum {
    int32_t a, b; /* join: the two sums, > 0; leaf: ~stage and the microbatch */
    int32_t n;    /* number of leaves, with multiplicity */
    uint32_t met; /* the last walk that reached it */
};

enum { JOINED = 4096 };
struct joined {
    int32_t a, b, sum;
};

struct sums {
    struct joined joined[JOINED]; /* a cache of recent joins */
    struct sum *sum;
    size_t n, cap;
    int32_t *todo;
    size_t todo_cap;
    uint32_t *leaf; /* per microbatch of each of a set's stages in turn: the last walk that reached it */
    uint32_t walks; /* number of walks so far */
    int32_t *whole; /* per set: the last sum found complete */
    int32_t *of;    /* per set: the update that the complete sum is for */
    int64_t most;   /* upper bound on the contributions to a set */
};

static int32_t new_sum(struct sums *sums, int32_t a, int32_t b, int32_t n) {
    GROW(sums->sum, sums->cap, sums->n + 1);
    sums->sum[sums->n] = (struct sum){a, b, n, 0};
    return (int32_t)sums->n++;
}

void sums_begin(struct check *check) {
    struct sums *sums = check->values->sums = NEW(struct sums, 1);
    int most = 1;
    for (int set = check->p->stages; set < check->values->sets.n; set++)
        most = check->values->sets.slots[set] > most ? check->values->sets.slots[set] : most;
    sums->most = (int64_t)check->sp->batches * most;
    sums->leaf = NEW(uint32_t, sums->most);
    sums->whole = NEW(int32_t, check->values->sets.n);
    sums->of = NEW(int32_t, check->values->sets.n);
    new_sum(sums, 0, 0, 0); /* NO_SUM */
}

int64_t contributions(const struct check *check, int32_t sum) { return check->values->sums->sum[sum].n; }

struct addends addends_of(const struct check *check, int32_t sum) {
    const struct sum *x = &check->values->sums->sum[sum];
    return (struct addends){x->a, x->b};
}

bool join(struct check *check, int32_t *a, int32_t b) {
    struct sums *sums = check->values->sums;
    if (*a == NO_SUM || b == NO_SUM) {
        *a = *a == NO_SUM ? b : *a;
        return true;
    }
    int64_t n = contributions(check, *a) + contributions(check, b);
    if (n > sums->most)
        return false;
    /* Reductions of many pieces join the same sums again and again. */
    struct joined *joined = &sums->joined[((uint32_t)*a * 2654435761u ^ (uint32_t)b * 2246822519u) % JOINED];
    if (joined->a != *a || joined->b != b || !joined->sum)
        *joined = (struct joined){*a, b, new_sum(sums, *a, b, (int32_t)n)};
    *a = joined->sum;
    return true;
}

/* ---- what instructions add ---- */

bool refute_count(struct check *check, int r, int32_t i, int set, int64_t n) {
    return refute(check, CLAIM_GRADIENTS, r, i,
                  "wgrad(%d) would have %lld contributions, but there are %lld: some occur twice", set, (long long)n,
                  (long long)check->values->sums->most);
}

/* An addend: one sum for all units, or what a buffer of the rank holds in each */
struct addend {
    int32_t sum, buf; /* buf -1: use sum */
};

/* Adds to a gradient operand. The first contribution writes it; later ones must find the same set there. */
static bool add_to(struct check *check, int r, int32_t i, const struct arg *dw, int set, struct addend from) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct value *value = &check->values->val[r][dw->buf];
    bool first = is_first(x, (int)dw->role), job = is_job(x->op);
    const struct buf *b = &k->buf[dw->buf];
    int kind = job || !holds_gradient(b->kind) ? K_wgrad : b->kind;
    bool numbered = (job || check->p->update) && names_own_part(check, r, b);
    if ((first && !named(check, r, i, dw->buf, (struct tensor_name){kind, set, -1, numbered ? b->inst : -1})) ||
        !is_of_its_update(check, r, i, dw->buf))
        return false;
    if (!first && (value->kind != K_wgrad || value->stage != set || (job && k->buf[dw->buf].kind != K_wgrad)))
        return refute(check, CLAIM_GRADIENTS, r, i, "adds to %s, which holds %s", buf_text(check, r, dw->buf),
                      value_text(check, value));
    struct span span = units_of(check, r, dw);
    for (int32_t at = span.from, to; at < span.to; at = to) {
        struct content here = held_at(check, r, dw->buf, at, &to);
        int32_t sum = from.sum, end = to;
        if (from.buf >= 0)
            sum = held_at(check, r, from.buf, at, &end).sum;
        to = end < to ? end : to;
        to = to < span.to ? to : span.to;
        bool again = written_again(check, r, x, dw), before = written_before(check, r, x, dw);
        if (here.half != before)
            return refute(check, CLAIM_GRADIENTS, r, i,
                          before ? "%s has been written since the part before"
                                 : "writes %s, which a job in parts has not completed",
                          arg_text(check, r, dw));
        here.sum = first ? NO_SUM : here.sum;
        sum = again ? NO_SUM : sum; /* a part's contribution counts once all of it has come */
        int64_t n = contributions(check, here.sum) + contributions(check, sum);
        if (!join(check, &here.sum, sum))
            return refute_count(check, r, i, set, n);
        hold(check, r, dw->buf, (struct span){at, to}, (struct content){.sum = here.sum, .set = !again, .half = again});
    }
    return true;
}

int32_t new_contribution(struct check *check, const struct instr *x) {
    return new_sum(check->values->sums, ~x->stage, x->batch, 1);
}

bool accumulate(struct check *check, int r, int32_t i, int role) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t set = set_of_operand(check, x, role);
    if (set < 0)
        return true;
    int32_t sum = contribution_of(check, r, i, role);
    if (!x->last && !find_arg(k, x, role, 0)) /* a part may have no weights */
        return refute(check, CLAIM_GRADIENTS, r, i, "its gradient goes nowhere: no operand %s", role_name[role]);
    for (const struct arg *a = k->arg + x->arg; a < k->arg + x->arg + x->narg; a++)
        if (a->role == (uint32_t)role && !add_to(check, r, i, a, set, (struct addend){sum, -1}))
            return false;
    return true;
}

/* Adds another rank's part (ADD) or this rank's own (TAKE). */
bool run_add(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct arg *src = find_arg(k, x, ROLE_src, 0), *dw = find_arg(k, x, ROLE_dw, 0);
    const struct value *from = src ? &check->values->val[r][src->buf] : &(struct value){0};
    if (from->kind != K_wgrad || from->stage != x->stage || from->part != x->peer || !src) {
        const char *has = value_text(check, from);
        return x->op == OP_TAKE
                   ? refute(check, CLAIM_GRADIENTS, r, i, "its source holds %s, not this rank's wgrad(%d)", has,
                            x->stage)
                   : refute(check, CLAIM_GRADIENTS, r, i, "its source holds %s, not rank %d's part of wgrad(%d)", has,
                            x->peer, x->stage);
    }
    if (!is_of_its_update(check, r, i, src->buf))
        return false;
    if (dw && dw->buf == src->buf)
        return refute(check, CLAIM_GRADIENTS, r, i, "adds %s to itself", buf_text(check, r, src->buf));
    if (dw && !same_span(units_of(check, r, src), units_of(check, r, dw)))
        return refute(check, CLAIM_GRADIENTS, r, i, "%s is a different part of wgrad(%d) than %s",
                      arg_text(check, r, src), x->stage, arg_text(check, r, dw));
    if (!dw)
        return refute(check, CLAIM_GRADIENTS, r, i, "what it adds goes nowhere: no operand dw");
    return add_to(check, r, i, dw, x->stage, (struct addend){NO_SUM, src->buf});
}

/* ---- sums one period later ---- */

struct leaf {
    int32_t s, b;
};
struct leaves {
    struct leaf *leaf;
    size_t n, cap;
};

static int by_leaf(const void *x, const void *y) {
    const struct leaf *a = x, *b = y;
    return a->s != b->s ? (a->s > b->s) - (a->s < b->s) : (a->b > b->b) - (a->b < b->b);
}

/* Returns the leaves of a sum, with microbatches `later` later. There is one leaf per contribution, and `join` bounds
 * their number. */
static struct leaves leaves_of(struct check *check, int32_t sum, int32_t later) {
    struct sums *sums = check->values->sums;
    struct leaves leaves = {0};
    size_t n = 0;
    GROW(sums->todo, sums->todo_cap, 1);
    for (sums->todo[n++] = sum; n > 0;) {
        const struct sum *x = &sums->sum[sums->todo[--n]];
        if (x->a < 0) {
            GROW(leaves.leaf, leaves.cap, leaves.n + 1);
            leaves.leaf[leaves.n++] = (struct leaf){~x->a, x->b + later};
        } else if (x->a > 0) {
            GROW(sums->todo, sums->todo_cap, n + 2);
            sums->todo[n++] = x->a;
            sums->todo[n++] = x->b;
        }
    }
    if (leaves.n > 1)
        sort(leaves.leaf, leaves.n, sizeof *leaves.leaf, by_leaf);
    return leaves;
}

bool is_moved_on(struct check *check, int32_t sum, int32_t later) {
    if (contributions(check, sum) != contributions(check, later))
        return false;
    struct leaves a = leaves_of(check, sum, check->p->period), b = leaves_of(check, later, 0);
    return a.n == b.n && (!a.n || !memcmp(a.leaf, b.leaf, sizeof *a.leaf * a.n));
}

/* ---- updates ---- */

/* Returns why a sum is not a set's gradient for its update k; NULL: it has every microbatch of its stages exactly
 * once. */
static const char *wrong_sum(struct check *check, int32_t sum, int set, int32_t k) {
    struct sums *sums = check->values->sums;
    struct batches batches = batches_of(check, set, k);
    int64_t want = (int64_t)(batches.to - batches.from) * check->values->sets.slots[set];
    if (contributions(check, sum) != want)
        return format("has %lld of %lld contributions", (long long)contributions(check, sum), (long long)want);
    if (sums->whole[set] == sum && sums->of[set] == k)
        return NULL;
    uint32_t walk = ++sums->walks;
    size_t n = 0;
    GROW(sums->todo, sums->todo_cap, (size_t)want + 1);
    for (sums->todo[n++] = sum; n > 0;) {
        struct sum *x = &sums->sum[sums->todo[--n]];
        bool leaf = x->a < 0;
        int s = ~x->a, slot = leaf ? slot_of(check, set, s) : 0;
        if (slot < 0)
            return format("has a contribution of stage %d", s);
        if (leaf && (x->b < batches.from || x->b >= batches.to))
            return format("has microbatch %d", x->b);
        uint32_t *met = leaf ? &sums->leaf[x->b + (int64_t)slot * check->sp->batches] : &x->met;
        if (*met == walk)
            return leaf ? format("has microbatch %d of stage %d twice", x->b, s) : "has a part twice";
        *met = walk;
        if (leaf)
            continue;
        sums->todo[n++] = x->a;
        sums->todo[n++] = x->b;
    }
    sums->whole[set] = sum;
    sums->of[set] = k;
    return NULL;
}

static bool refute_gradient(struct check *check, int r, int32_t i, int set, const char *wrong) {
    const struct instr *x = &check->p->rank[r].ins[i];
    struct batches batches = batches_of(check, set, x->batch);
    if (check->p->update)
        return refute(check, CLAIM_GRADIENTS, r, i,
                      "its gradient %s; it must be the sum over microbatches %d to %d, each once", wrong, batches.from,
                      batches.to - 1);
    return refute(check, CLAIM_GRADIENTS, r, i,
                  "its gradient %s; it must be the sum over all %d microbatches%s, each once", wrong,
                  check->sp->batches,
                  set >= check->p->stages + check->p->names.tables ? " of all members"
                  : check->values->sets.slots[set] > 1             ? " of both stages"
                                                                   : "");
}

/* Refutes unless each unit of a gradient has all that an update needs. */
static bool is_gradient(struct check *check, int r, int32_t i, const struct arg *dw, int set) {
    struct span span = units_of(check, r, dw);
    for (int32_t at = span.from, to; at < span.to; at = to) {
        const char *wrong =
            wrong_sum(check, held_at(check, r, dw->buf, at, &to).sum, set, check->p->rank[r].ins[i].batch);
        if (wrong)
            return refute_gradient(check, r, i, set, wrong);
    }
    return true;
}

/* Refutes unless an operand is exactly what this rank updates of the set. */
static bool is_own(struct check *check, int r, int32_t i, const struct arg *a, int set) {
    struct span own = own_span(check, r, set), has = units_of(check, r, a);
    return same_span(own, has) ||
           refute(check, CLAIM_GRADIENTS, r, i, "%s is %s of set %d; this rank updates %s", arg_text(check, r, a),
                  span_text(has), set, own.to < 0 ? "none" : span_text(own));
}

/* Returns the version that an update turns into the next one. */
static int32_t version_before(const struct check *check, const struct instr *x) {
    return check->p->update ? x->batch : 0;
}

/* Returns the number in the name of the gradient that rank r's update reads. */
static int32_t named_gradient(const struct check *check, int r, const struct instr *x) {
    return check->p->update ? own_name(check, r, x->batch) : -1;
}

bool is_own_gradient(struct check *check, int r, int32_t i, const struct arg *dw) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct value *value = dw ? &check->values->val[r][dw->buf] : &(struct value){0};
    if (dw && value->kind == K_wgrad && value->stage == x->stage && value->inst == named_gradient(check, r, x))
        return is_own(check, r, i, dw, x->stage) && is_gradient(check, r, i, dw, x->stage);
    struct text t = {0};
    put_buf(&t, &check->p->names,
            &(struct buf){.kind = K_wgrad, .stage = x->stage, .batch = -1, .inst = named_gradient(check, r, x)});
    return refute(check, CLAIM_GRADIENTS, r, i, "its gradient is %s, not %s", value_text(check, value), t.s);
}

bool verify_update(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int set = x->stage;
    const struct arg *w = find_arg(k, x, ROLE_w, 0), *opt = find_arg(k, x, ROLE_opt, 0);
    int32_t before = version_before(check, x);
    if (x->batch >= updates_of(check, set) || (check->p->update && x->batch < 0))
        return refute(check, CLAIM_JOBS, r, i, "stage %d has %d updates", set, updates_of(check, set));
    const struct arg *dw = find_arg(k, x, ROLE_dw, 0);
    if (!is_own_gradient(check, r, i, dw) || !adds_in_order(check, r, i, dw) || !is_clipped(check, r, i))
        return false;
    if (!w || !at_home(&k->buf[w->buf]) || k->buf[w->buf].stage != set)
        return refute(check, CLAIM_GRADIENTS, r, i, "weight(%d) is not at home here", set);
    if (!is_own(check, r, i, w, set))
        return false;
    struct span own = own_span(check, r, set);
    int32_t has;
    for (int32_t at = own.from, to; at < own.to; at = to)
        if ((has = held_at(check, r, w->buf, at, &to).count) != before)
            return check->p->update
                       ? refute(check, CLAIM_GRADIENTS, r, i, "its weights have version %d, not %d", has, before)
                       : refute(check, CLAIM_GRADIENTS, r, i, "it has already been updated");
    bool has_state = opt && !opt->last && is_tensor(&check->values->val[r][opt->buf], K_opt, set, -1, 0);
    bool needs_state = check->costs->stage ? check->values->bytes[K_opt][set] > 0
                                           : check->values->bytes[K_opt][set] >= 0 ||
                                                 (check->values->has_state && check->values->bytes[K_weight][set] > 0);
    if (needs_state ? !has_state : opt != NULL)
        return refute(check, CLAIM_GRADIENTS, r, i, "needs exactly opt(%d) as optimizer state", set);
    if (has_state && check->values->val[r][opt->buf].count != before)
        return refute(check, CLAIM_GRADIENTS, r, i, "its optimizer state has already been updated");
    if (has_state)
        check->values->val[r][opt->buf].count = before + 1;
    hold(check, r, w->buf, own, (struct content){.count = before + 1, .set = true});
    return true;
}
