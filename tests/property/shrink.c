/* Shrinking by deletion: take something away, keep what is left if it still fails in the same way, until nothing can be
 * taken away. First whole microbatches, stages and ranks, then whole features, then one cell, link, order or job. */
#include "property.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a copy of a spec leaves out; -1: nothing. A rank's work goes to rank 0. */
struct without {
    int stage, batch, rank;
    int split, recompute; /* a cell, s * batches + b; ALL: every one */
    int order;            /* the order added to the default ones that has this number; ALL: every one */
};
enum { NONE = -1, ALL = INT_MAX };

static bool hit(int what, int at) { return what == ALL || what == at; }

/* The job as it is in the copy; false: it is gone. */
static bool keep_job(const struct spec *sp, const struct without *o, struct job *j) {
    int cell = j->s * sp->batches + j->b;
    if (j->s == o->stage || j->b == o->batch || (j->d == OP_R && hit(o->recompute, cell)) ||
        (j->d == OP_W && hit(o->split, cell)))
        return false;
    if (j->d == OP_I && hit(o->split, cell))
        j->d = OP_B;
    j->s -= o->stage >= 0 && j->s > o->stage;
    j->b -= o->batch >= 0 && j->b > o->batch;
    if (o->rank >= 0) {
        j->rank = j->rank == o->rank ? 0 : j->rank - (j->rank > o->rank);
        j->home = j->home == o->rank ? 0 : j->home - (j->home > o->rank);
    }
    return true;
}

static struct graph *default_graph(const struct spec *sp) {
    struct spec plain = *sp;
    plain.pred = plain.pred_at = NULL;
    return graph_build(&plain);
}

/* The default dependencies, and those orders of the original whose jobs are both still there. */
static void copy_orders(const struct spec *from, struct spec *to, const int32_t *image, int left_out) {
    const struct graph *was = default_graph(from), *is = default_graph(to);
    int orders = 0, n = 0, kept = 0;
    int32_t *pred = NEW(int32_t, from->pred_at[from->njobs] + is->pred_at[is->n] + 1),
            *pred_at = NEW(int32_t, is->n + 1);
    for (int old = 0, j = 0; old < from->njobs; old++) {
        int begin = n;
        bool here = image[old] == j && j < to->njobs;
        for (int32_t e = is->pred_at[j]; here && e < is->pred_at[j + 1]; e++)
            pred[n++] = is->pred[e];
        for (int32_t e = from->pred_at[old]; e < from->pred_at[old + 1]; e++) {
            int32_t p = from->pred[e];
            bool added = !has_edge(was, old, p);
            if (added && here && image[p] >= 0 && !has_edge(is, j, image[p]) && !hit(left_out, orders)) {
                pred[n++] = image[p];
                kept++;
            }
            orders += added;
        }
        if (here)
            pred_at[++j] = n;
        else
            n = begin;
    }
    if (kept > 0) {
        to->pred = pred;
        to->pred_at = pred_at;
    }
}

static int count_orders(const struct spec *sp) {
    return sp->pred ? sp->pred_at[sp->njobs] - default_graph(sp)->pred_at[sp->njobs] : 0;
}

static struct spec *copy_without(const struct spec *o, const struct without *out) {
    struct spec *sp = NEW(struct spec, 1);
    *sp = *o;
    sp->stages -= out->stage >= 0;
    sp->batches -= out->batch >= 0;
    sp->workers -= out->rank >= 0;
    if (!sp->stages || !sp->batches || !sp->workers)
        return NULL;
    size_t cells = (size_t)sp->stages * (size_t)sp->batches * NDIRS;
    int32_t *image = NEW(int32_t, o->njobs);
    sp->job = NEW(struct job, o->njobs);
    sp->at = NEW(int32_t, cells);
    memset(sp->at, -1, cells * sizeof *sp->at);
    sp->njobs = 0;
    for (int i = 0; i < o->njobs; i++) {
        struct job j = o->job[i];
        image[i] = -1;
        if (!keep_job(o, out, &j))
            continue;
        sp->at[(j.s * sp->batches + j.b) * NDIRS + j.d] = image[i] = sp->njobs;
        sp->job[sp->njobs++] = j;
    }
    sp->pred = sp->pred_at = NULL;
    if (o->pred)
        copy_orders(o, sp, image, out->order);
    sp->cap = NEW(int, sp->workers);
    sp->slots = NEW(int, sp->workers);
    sp->link = o->link ? NEW(struct link, sp->workers * sp->workers) : NULL;
    for (int r = 0; r < sp->workers; r++) {
        int was = r + (out->rank >= 0 && r >= out->rank);
        sp->cap[r] = o->cap[was];
        sp->slots[r] = o->slots[was];
        for (int q = 0; sp->link && q < sp->workers; q++)
            sp->link[r * sp->workers + q] = o->link[was * o->workers + q + (out->rank >= 0 && q >= out->rank)];
    }
    sp->model = NEW(struct model, 1);
    *sp->model = *o->model;
    sp->model->rt.batches = sp->batches;
    return sp;
}

/* ---- fields ---- */

static void plain_job(struct spec *sp, int j, int what) {
    struct job *job = &sp->job[j], *again = j > 0 && job[-1].d == OP_R ? job - 1 : job;
    if (what == 0)
        job->rank = again->rank = 0;
    else if (what == 1)
        job->home = again->home = job->rank;
    else
        job->prio = 0;
}

enum { CAPS, SLOTS, STRICT, COSTS, LINKS, ORDERS, SPLITS, RECOMPUTES, HOMES, PRIORITIES, FEATURES };

static void drop_feature(struct spec *sp, int feature) {
    for (int r = 0; r < sp->workers; r++) {
        sp->cap[r] = feature == CAPS ? INT_MAX : sp->cap[r];
        sp->slots[r] = feature == SLOTS ? 2 : sp->slots[r];
    }
    sp->strict &= feature != STRICT;
    sp->link = feature == LINKS ? NULL : sp->link;
    for (int j = 0; j < sp->njobs; j++) {
        sp->job[j].cost = feature == COSTS ? NAN : sp->job[j].cost;
        if (feature == HOMES || feature == PRIORITIES)
            plain_job(sp, j, feature == HOMES ? 1 : 2);
    }
}

/* The spec with the k-th thing taken away. NULL: it has no such thing. *beyond: nor has it any after that. */
static struct spec *smaller(const struct spec *o, int k, bool *beyond) {
    struct without out = {NONE, NONE, NONE, NONE, NONE, NONE};
    int cells = o->stages * o->batches, links = o->link ? o->workers * o->workers : 0;
    *beyond = false;
    if (k < o->batches)
        out.batch = o->batches - 1 - k;
    else if ((k -= o->batches) < o->stages)
        out.stage = o->stages - 1 - k;
    else if ((k -= o->stages) < o->workers)
        out.rank = o->workers - 1 - k;
    else if ((k -= o->workers) < FEATURES) {
        out.order = k == ORDERS ? ALL : NONE;
        out.split = k == SPLITS ? ALL : NONE;
        out.recompute = k == RECOMPUTES ? ALL : NONE;
        struct spec *sp = copy_without(o, &out);
        drop_feature(sp, k);
        return sp;
    } else if ((k -= FEATURES) < cells)
        out.split = k;
    else if ((k -= cells) < cells)
        out.recompute = k;
    else if ((k -= cells) < count_orders(o))
        out.order = k;
    else if ((k -= count_orders(o)) < links) {
        struct spec *sp = copy_without(o, &out);
        sp->link[k] = (struct link){0, INFINITY};
        return sp;
    } else if ((k -= links) < 3 * o->njobs) {
        if (o->job[k / 3].d == OP_R)
            return NULL;
        struct spec *sp = copy_without(o, &out);
        plain_job(sp, k / 3, k % 3);
        return sp;
    } else {
        *beyond = true;
        return NULL;
    }
    return copy_without(o, &out);
}

static bool same_cost(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static bool same(const struct spec *a, const struct spec *b) {
    size_t links = sizeof *a->link * (size_t)a->workers * (size_t)a->workers, ranks = sizeof(int) * (size_t)a->workers;
    if (a->workers != b->workers || a->stages != b->stages || a->batches != b->batches || a->njobs != b->njobs ||
        a->strict != b->strict || !a->link != !b->link || count_orders(a) != count_orders(b))
        return false;
    for (int j = 0; j < a->njobs; j++) {
        const struct job *x = &a->job[j], *y = &b->job[j];
        if (x->rank != y->rank || x->home != y->home || x->prio != y->prio || !same_cost(x->cost, y->cost) ||
            x->d != y->d)
            return false;
    }
    return !memcmp(a->cap, b->cap, ranks) && !memcmp(a->slots, b->slots, ranks) &&
           !(a->link && memcmp(a->link, b->link, links));
}

const struct spec *shrink(const struct spec *sp, enum verdict how, int *tried) {
    char why[4096];
    bool changed = true, beyond;
    for (*tried = 0; changed && *tried < 5000;) {
        changed = false;
        for (int k = 0;; k++) {
            struct spec *next = smaller(sp, k, &beyond);
            if (beyond)
                break;
            if (!next || same(next, sp))
                continue;
            ++*tried;
            if (try_apart(next, why, 5) != how)
                continue;
            sp = next;
            changed = true;
            k--;
        }
    }
    return sp;
}
