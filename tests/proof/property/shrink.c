/* Shrinks by deletion: removes a thing and keeps the rest if it still fails in the same way, until nothing can be
 * removed. First whole microbatches, stages and ranks, then whole features, then one cell, link, order or job. */
#include "property.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The parts that a copy of a spec leaves out; -1: none. A rank's work goes to rank 0. */
struct without {
    int stage, batch, rank;
    int split, recompute; /* a cell, s * batches + b; ALL: every one */
    int order;            /* number of an order added to the default ones; ALL: every one */
};
enum { NONE = -1, ALL = INT_MAX };

static bool hit(int what, int at) { return what == ALL || what == at; }

static int rank_without(int r, int out) { return out < 0 ? r : r == out ? 0 : r - (r > out); }

/* Turns the job into the copy's; returns false if it is gone. Its home is still the original's. */
static bool keep_job(const struct spec *sp, const struct without *o, struct job *j) {
    int cell = j->s * sp->batches + j->b;
    if (j->s == o->stage || j->b == o->batch || (j->d == OP_R && hit(o->recompute, cell)) ||
        (j->d == OP_W && hit(o->split, cell)))
        return false;
    if (j->d == OP_I && hit(o->split, cell))
        j->d = OP_B;
    j->s -= o->stage >= 0 && j->s > o->stage;
    j->b -= o->batch >= 0 && j->b > o->batch;
    if (o->rank >= 0)
        j->rank = rank_without(j->rank, o->rank);
    return true;
}

/* Returns the same list of ranks, or single rank, as a home of the copy. */
static int32_t copy_home(struct spec *sp, struct home list) {
    int32_t *rank = NEW(int32_t, list.n);
    memcpy(rank, list.rank, sizeof *rank * (size_t)list.n);
    if (list.n == 1)
        return rank[0];
    for (int l = 0; l < sp->owners.nlists; l++)
        if (sp->owners.list[l].n == list.n && !memcmp(sp->owners.list[l].rank, rank, sizeof *rank * (size_t)list.n))
            return sp->workers + l;
    sp->owners.list[sp->owners.nlists] = (struct home){list.n, rank};
    return sp->workers + sp->owners.nlists++;
}

/* Copies the homes of all jobs. If lists name the deleted rank, each list of the stage loses the member there. */
static void copy_homes(const struct spec *from, struct spec *to, const int32_t *image, int rank) {
    to->owners.list = NEW(struct home, from->njobs);
    to->owners.nlists = 0;
    for (int i = 0; i < from->njobs; i++) {
        if (image[i] < 0)
            continue;
        struct home was = home_of(from, &from->job[i].home), is = {0, NEW(int32_t, was.n)};
        int lost = -1;
        for (int k = 0; rank >= 0 && was.n > 1 && k < from->njobs; k++)
            for (int m = 0; from->job[k].s == from->job[i].s && m < was.n; m++)
                lost = home_of(from, &from->job[k].home).rank[m] == rank ? m : lost;
        int32_t *member = NEW(int32_t, was.n);
        for (int m = 0; m < was.n; m++)
            if (m != lost)
                member[is.n++] = rank_without(was.rank[m], rank);
        is.rank = member;
        to->job[image[i]].home = copy_home(to, is);
    }
}

/* Returns whether a stage's homes are equally long, and disjoint unless they are the same. */
static bool homes_agree(const struct spec *sp) {
    for (int i = 0; i < sp->njobs; i++)
        for (int k = 0; k < i; k++) {
            struct home a = home_of(sp, &sp->job[i].home), b = home_of(sp, &sp->job[k].home);
            if (sp->job[i].s != sp->job[k].s || sp->job[i].home == sp->job[k].home)
                continue;
            for (int m = 0; m < a.n * b.n; m++)
                if (a.n != b.n || a.rank[m / b.n] == b.rank[m % b.n])
                    return false;
        }
    return true;
}

/* Repairs relays: one must be another rank that has the weights at some time, as their home or for a job that reads
 * them. */
static void mend_sources(struct spec *sp) {
    for (int j = 0; sp->owners.source && j < sp->njobs; j++) {
        bool has = false;
        for (int k = 0; k < sp->njobs; k++)
            has |= sp->job[k].s == sp->job[j].s && ((sp->job[k].d != OP_W && sp->job[k].rank == sp->owners.source[j]) ||
                                                    sp->job[k].home == sp->owners.source[j]);
        if (!has || sp->owners.source[j] == sp->job[j].rank)
            sp->owners.source[j] = -1;
    }
}

static struct graph *default_graph(const struct spec *sp) {
    struct spec plain = *sp;
    plain.pred = plain.pred_at = NULL;
    return graph_build(&(struct costs){.spec = &plain});
}

/* Copies the default dependencies, and the original's orders whose jobs both still exist. */
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

/* Copies the n values of a field without the one at `out`; returns NULL for a missing field. */
static void *copy_values(const void *from, size_t size, int n, int out) {
    char *to = from ? NEW(char, size *(size_t)n + 1) : NULL;
    for (int i = 0; to && i < n; i++)
        if (i != out)
            memcpy(to + size * (size_t)(i - (out >= 0 && i > out)), (const char *)from + size * (size_t)i, size);
    return to;
}

/* Copies the fields of stages, cells, jobs, and ranks, except for caps and slots. */
static void copy_fields(const struct spec *o, struct spec *sp, const struct without *out, const int32_t *image) {
    sp->owners.zero = copy_values(o->owners.zero, sizeof *o->owners.zero, o->stages, out->stage);
    sp->limits.bucket = copy_values(o->limits.bucket, sizeof *o->limits.bucket, o->stages, out->stage);
    sp->limits.offload_state =
        copy_values(o->limits.offload_state, sizeof *o->limits.offload_state, o->stages + 1, out->stage);
    sp->limits.grad_slots = copy_values(o->limits.grad_slots, sizeof *o->limits.grad_slots, o->workers, out->rank);
    sp->machine.host_link = copy_values(o->machine.host_link, sizeof *o->machine.host_link, o->workers, out->rank);
    sp->choices.offload = o->choices.offload ? NEW(uint8_t, o->stages * o->batches) : NULL;
    for (int i = 0, n = 0; o->choices.offload && i < o->stages * o->batches; i++)
        if (i / o->batches != out->stage && i % o->batches != out->batch)
            sp->choices.offload[n++] = o->choices.offload[i];
    sp->owners.source = o->owners.source ? NEW(int32_t, o->njobs) : NULL;
    for (int i = 0; o->owners.source && i < o->njobs; i++)
        if (image[i] >= 0)
            sp->owners.source[image[i]] = o->owners.source[i] < 0 ? -1 : rank_without(o->owners.source[i], out->rank);
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
    copy_homes(o, sp, image, out->rank);
    copy_fields(o, sp, out, image);
    sp->pred = sp->pred_at = NULL;
    if (o->pred)
        copy_orders(o, sp, image, out->order);
    sp->limits.cap = NEW(int, sp->workers);
    sp->choices.slots = NEW(int, sp->workers);
    sp->machine.link = o->machine.link ? NEW(struct link, sp->workers * sp->workers) : NULL;
    for (int r = 0; r < sp->workers; r++) {
        int was = r + (out->rank >= 0 && r >= out->rank);
        sp->limits.cap[r] = o->limits.cap[was];
        sp->choices.slots[r] = o->choices.slots[was];
        for (int q = 0; sp->machine.link && q < sp->workers; q++)
            sp->machine.link[r * sp->workers + q] =
                o->machine.link[was * o->workers + q + (out->rank >= 0 && q >= out->rank)];
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
    else if (what == 2)
        job->prio = 0;
    else if (sp->owners.source)
        sp->owners.source[j] = sp->owners.source[again - sp->job] = -1;
}

static void plain_stage(struct spec *sp, int s, int what) {
    if (what == 0 && sp->owners.zero)
        sp->owners.zero[s] = 0;
    else if (what == 1)
        sp->limits.bucket[s] = 0;
    else if (what == 2 && sp->limits.offload_state)
        sp->limits.offload_state[s] = false;
}

enum {
    CAPS,
    SLOTS,
    STRICT,
    JOB_COSTS,
    LINKS,
    ORDERS,
    SPLITS,
    RECOMPUTES,
    HOMES,
    PRIORITIES,
    LISTS,
    ZERO,
    ROUNDS,
    BUCKETS,
    OFFLOADS,
    STATES,
    RELAYS,
    HOST_LINKS,
    FEATURES
};

static void drop_feature(struct spec *sp, int feature) {
    for (int r = 0; r < sp->workers; r++) {
        sp->limits.cap[r] = feature == CAPS ? INT_MAX : sp->limits.cap[r];
        sp->choices.slots[r] = feature == SLOTS ? 2 : sp->choices.slots[r];
    }
    sp->strict &= feature != STRICT;
    sp->machine.link = feature == LINKS ? NULL : sp->machine.link;
    sp->owners.zero = feature == ZERO ? NULL : sp->owners.zero;
    sp->limits.grad_slots = feature == ROUNDS ? NULL : sp->limits.grad_slots;
    sp->choices.offload = feature == OFFLOADS ? NULL : sp->choices.offload;
    sp->limits.offload_state = feature == STATES ? NULL : sp->limits.offload_state;
    sp->owners.source = feature == RELAYS ? NULL : sp->owners.source;
    sp->machine.host_link = feature == HOST_LINKS ? NULL : sp->machine.host_link;
    for (int s = 0; s < sp->stages; s++)
        sp->limits.bucket[s] = feature == BUCKETS ? 0 : sp->limits.bucket[s];
    for (int j = 0; j < sp->njobs; j++) {
        sp->job[j].cost = feature == JOB_COSTS ? NAN : sp->job[j].cost;
        if (feature == LISTS)
            sp->job[j].home = home_of(sp, &sp->job[j].home).rank[0];
        if (feature == HOMES || feature == PRIORITIES)
            plain_job(sp, j, feature == HOMES ? 1 : 2);
    }
}

/* Returns the spec without its k-th thing, or NULL if it has none. *beyond: nor has it any later one. */
static struct spec *smaller(const struct spec *o, int k, bool *beyond) {
    struct without out = {NONE, NONE, NONE, NONE, NONE, NONE};
    int cells = o->stages * o->batches, links = o->machine.link ? o->workers * o->workers : 0;
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
        sp->machine.link[k] = (struct link){0, INFINITY};
        return sp;
    } else if ((k -= links) < 4 * o->njobs) {
        if (o->job[k / 4].d == OP_R)
            return NULL;
        struct spec *sp = copy_without(o, &out);
        plain_job(sp, k / 4, k % 4);
        return sp;
    } else if ((k -= 4 * o->njobs) < 3 * o->stages) {
        struct spec *sp = copy_without(o, &out);
        plain_stage(sp, k / 3, k % 3);
        return sp;
    } else if ((k -= 3 * o->stages) < cells && o->choices.offload) {
        struct spec *sp = copy_without(o, &out);
        sp->choices.offload[k] = 0;
        return sp;
    } else {
        *beyond = true;
        return NULL;
    }
    return copy_without(o, &out);
}

/* Returns whether a field of n values is the same in both. */
static bool same_values(const void *a, const void *b, size_t size, int n) {
    return !a == !b && (!a || !memcmp(a, b, size * (size_t)n));
}

static bool same_home(const struct spec *a, const struct spec *b, int j) {
    struct home x = home_of(a, &a->job[j].home), y = home_of(b, &b->job[j].home);
    return x.n == y.n && same_values(x.rank, y.rank, sizeof *x.rank, x.n);
}

static bool same_cost(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static bool same(const struct spec *a, const struct spec *b) {
    if (a->workers != b->workers || a->stages != b->stages || a->batches != b->batches || a->njobs != b->njobs ||
        a->strict != b->strict || !a->machine.link != !b->machine.link || count_orders(a) != count_orders(b))
        return false;
    for (int j = 0; j < a->njobs; j++) {
        const struct job *x = &a->job[j], *y = &b->job[j];
        if (x->rank != y->rank || !same_home(a, b, j) || x->prio != y->prio || !same_cost(x->cost, y->cost) ||
            x->d != y->d)
            return false;
    }
    return same_values(a->limits.cap, b->limits.cap, sizeof *a->limits.cap, a->workers) &&
           same_values(a->choices.slots, b->choices.slots, sizeof *a->choices.slots, a->workers) &&
           same_values(a->machine.link, b->machine.link, sizeof *a->machine.link, a->workers * a->workers) &&
           same_values(a->machine.host_link, b->machine.host_link, sizeof *a->machine.host_link, a->workers) &&
           same_values(a->limits.grad_slots, b->limits.grad_slots, sizeof *a->limits.grad_slots, a->workers) &&
           same_values(a->owners.zero, b->owners.zero, sizeof *a->owners.zero, a->stages) &&
           same_values(a->limits.bucket, b->limits.bucket, sizeof *a->limits.bucket, a->stages) &&
           same_values(a->limits.offload_state, b->limits.offload_state, sizeof *a->limits.offload_state, a->stages) &&
           same_values(a->choices.offload, b->choices.offload, sizeof *a->choices.offload, a->stages * a->batches) &&
           same_values(a->owners.source, b->owners.source, sizeof *a->owners.source, a->njobs);
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
            if (!next || !homes_agree(next))
                continue;
            mend_sources(next);
            if (same(next, sp))
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
