/* Proves that the norm by which updates are clipped covers the gradient of each set, as its update reads it, exactly
 * once.
 *
 * A norm is a leaf, which covers a part of a set whose gradient was complete when it was added, or the join of two
 * norms. Norms never change and are identified by number, like sums of gradients (verify_sums.c). An update walks down
 * from its norm to the leaves, which must cover every set exactly once. Most updates find a norm that has been walked
 * before. Replicas hold the same complete sum, so it does not matter whose gradient was added.
 *
 * With post-validation, an update reads the norm of the step before: a leaf per rank, each exactly once. At the end of
 * the step, the norms of all ranks together must cover all sets, because the next step reads them. */
#include "check_homes.h"
#include <stdlib.h>

struct norm {
    int32_t a, b; /* join: the two norms, > 0; leaf: ~set, or ~(sets + rank) for that rank's norm of the step before */
    struct span span;
    int32_t n; /* number of leaves, with multiplicity */
};
struct norms {
    struct norm *norm;
    size_t n, cap;
    int32_t whole, most; /* the last norm found to cover all sets; upper bound on the leaves of a norm */
    int32_t *todo;
    struct part *part;
};
struct part {
    int32_t set;
    struct span span;
};

static int32_t new_norm(struct norms *norms, struct norm norm) {
    GROW(norms->norm, norms->cap, norms->n + 1);
    norms->norm[norms->n] = norm;
    return (int32_t)norms->n++;
}

bool norms_begin(struct check *check) {
    struct norms *norms = check->values->norms = NEW(struct norms, 1);
    new_norm(norms, (struct norm){0}); /* NO_SUM */
    for (int set = 0; set < check->values->sets.n; set++)
        norms->most += check->values->homes[set].lists * check->values->homes[set].size;
    norms->most = norms->most > check->p->workers ? norms->most : check->p->workers;
    norms->todo = NEW(int32_t, norms->most + 1);
    norms->part = NEW(struct part, norms->most + 1);
    for (int r = 0; r < check->p->workers && check->costs->post_validation; r++)
        for (int32_t b = 0; b < check->p->rank[r].nbufs; b++)
            if (check->p->rank[r].buf[b].kind == K_norm) {
                struct norm last = {~(check->values->sets.n + r), 0, {0, 1}, 1};
                check->values->val[r][b].sum = new_norm(norms, last);
                check->values->val[r][b].set = true;
            }
    return !check->costs->clip || !check->p->update ||
           refute_all(check, CLAIM_JOBS, "updates that are jobs cannot be proved together with norms");
}

/* Adds norm b to a. Each leaf counts at most once, so there are no more leaves than homes. */
static bool join_norms(struct check *check, int r, int32_t i, int32_t *a, int32_t b) {
    struct norms *norms = check->values->norms;
    int32_t n = norms->norm[*a].n + norms->norm[b].n;
    if (n > norms->most)
        return refute(check, CLAIM_GRADIENTS, r, i,
                      "its norm would have %d parts, but homes update %d: some occur twice", n, norms->most);
    if (*a == NO_SUM || b == NO_SUM)
        *a = *a == NO_SUM ? b : *a;
    else
        *a = new_norm(norms, (struct norm){*a, b, {0, 0}, n});
    return true;
}

static bool is_norm(struct check *check, int r, int32_t i, const struct arg *a) {
    if (!a)
        return refute(check, CLAIM_GRADIENTS, r, i, "no operand norm");
    return check->p->rank[r].buf[a->buf].kind == K_norm ||
           refute(check, CLAIM_JOBS, r, i, "its operand norm is %s", buf_text(check, r, a->buf));
}

bool verify_norm(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    const struct arg *norm = find_arg(k, x, ROLE_norm, 0), *dw = find_arg(k, x, ROLE_dw, 0);
    if (!is_norm(check, r, i, norm) || (dw && !is_own_gradient(check, r, i, dw)))
        return false;
    struct value *value = &check->values->val[r][norm->buf];
    int32_t part = NO_SUM, before = x->first ? NO_SUM : value->sum;
    if (dw)
        part = new_norm(check->values->norms, (struct norm){~x->stage, 0, units_of(check, r, dw), 1});
    if (!join_norms(check, r, i, &before, part))
        return false;
    value->sum = before;
    value->set = true;
    return true;
}

bool add_up_norms(struct check *check, const struct series *series, int32_t nth) {
    int32_t sum = NO_SUM;
    for (int pass = 0; pass < 2; pass++)
        for (int m = 0; m < series->g->n; m++) {
            int r = series->g->rank[m];
            int32_t i = series->ins[m][nth];
            const struct rank *k = &check->p->rank[r];
            const struct arg *norm = find_arg(k, &k->ins[i], ROLE_norm, 0);
            if (pass) {
                check->values->val[r][norm->buf].sum = sum;
                if (!free_buffers(check, r, i, false))
                    return false;
                continue;
            }
            if (k->ins[i].stage != 0)
                return refute(check, CLAIM_JOBS, r, i, "a norm belongs to no stage: its stage must be 0");
            if (!check_reads(check, r, i) || !is_norm(check, r, i, norm) ||
                !join_norms(check, r, i, &sum, check->values->val[r][norm->buf].sum))
                return false;
        }
    return true;
}

/* ---- updates ---- */

static int by_part(const void *x, const void *y) {
    const struct part *a = x, *b = y;
    return a->set != b->set ? (a->set > b->set) - (a->set < b->set)
                            : (a->span.from > b->span.from) - (a->span.from < b->span.from);
}

/* Returns how many units a norm must cover of a set, or, for numbers from `sets` on, of a rank's norm of the step
 * before. */
static int32_t units_normed(const struct check *check, int number, bool before) {
    int sets = check->values->sets.n;
    return (number >= sets) != before      ? 0
           : before                        ? 1
           : has_weights(check->p, number) ? check->values->units[number]
                                           : 0;
}

static const char *normed_text(const struct check *check, int number) {
    int sets = check->values->sets.n;
    return number < sets ? format("set %d", number) : format("rank %d's norm of the step before", number - sets);
}

/* Returns what a norm lacks or covers twice, or NULL if it covers all sets once. before: all ranks' norms of the step
 * before, instead of sets. */
static const char *wrong_norm(struct check *check, int32_t norm, bool before) {
    struct norms *norms = check->values->norms;
    size_t n = 0, parts = 0;
    if (norm == norms->whole && norm != NO_SUM)
        return NULL;
    for (norms->todo[n++] = norm; n > 0;) { /* each pending join has at least one leaf of its own */
        const struct norm *x = &norms->norm[norms->todo[--n]];
        if (x->a < 0)
            norms->part[parts++] = (struct part){~x->a, x->span};
        else if (x->a > 0) {
            norms->todo[n++] = x->a;
            norms->todo[n++] = x->b;
        }
    }
    if (parts > 1)
        sort(norms->part, parts, sizeof *norms->part, by_part);
    size_t next = 0;
    for (int number = 0; number < check->values->sets.n + check->p->workers; number++) {
        int32_t at = 0, end = units_normed(check, number, before);
        for (; next < parts && norms->part[next].set == number; next++) {
            if (end == 0)
                return format("is of %s", normed_text(check, number));
            if (norms->part[next].span.from != at)
                return format(
                    "%s %s %s", norms->part[next].span.from > at ? "is not of" : "is of", normed_text(check, number),
                    norms->part[next].span.from > at ? span_text((struct span){at, norms->part[next].span.from})
                                                     : "twice, at least in part");
            at = norms->part[next].span.to;
        }
        if (at < end)
            return format("is not of %s, %s", normed_text(check, number), span_text((struct span){at, end}));
    }
    norms->whole = norm;
    return NULL;
}

bool is_clipped(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct arg *norm = find_arg(k, &k->ins[i], ROLE_norm, 0);
    if (!norm && !check->costs->clip)
        return true;
    if (!check->costs->clip)
        return refute(check, CLAIM_GRADIENTS, r, i, "takes a norm, but updates are not clipped");
    if (!is_norm(check, r, i, norm))
        return false;
    bool before = check->costs->post_validation;
    const char *wrong = wrong_norm(check, check->values->val[r][norm->buf].sum, before);
    return !wrong || refute(check, CLAIM_GRADIENTS, r, i, "its norm %s; it must cover all %s, each once", wrong,
                            before ? "ranks' norms of the step before" : "sets");
}

/* Refutes unless the norms that the next step reads cover all sets. */
bool norms_end(struct check *check) {
    int32_t all = check->values->norms->whole = NO_SUM;
    for (int r = 0; r < check->p->workers && check->costs->post_validation; r++) {
        const struct rank *k = &check->p->rank[r];
        int32_t b = 0;
        while (b < k->nbufs && k->buf[b].kind != K_norm)
            b++;
        if (b == k->nbufs)
            return refute_all(check, CLAIM_GRADIENTS,
                              "rank %d has no norm, which every rank that validates afterwards needs", r);
        if (!join_norms(check, r, k->nins - 1, &all, check->values->val[r][b].sum))
            return false;
    }
    const char *wrong = check->costs->post_validation ? wrong_norm(check, all, false) : NULL;
    return !wrong ||
           refute_all(check, CLAIM_GRADIENTS,
                      "the norm of all ranks that the next step finds %s; it must cover all sets, each once", wrong);
}
