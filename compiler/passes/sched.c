/* Which job runs when: an event-driven list scheduler, n log n. schedules/README.md, "How jobs are scheduled", states
 * the rules, also those for jobs that end in the instant in which they start.
 *
 * Each rank has two heaps of ready jobs, ordered by n and its ties: forwards, which must wait for room under the cap,
 * and the rest. A strict rank has its sequence, and uses the heaps only for jobs that fill: they run when the next job
 * of the sequence cannot. One heap of events holds the ends of running jobs and the arrivals of tensors. Events of one
 * time are all taken before any rank starts a job; jobs that then end at the same time open another such round. */
#include "base/cycle.h"
#include "base/heap.h"
#include "passes.h"
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline bool smaller(int32_t x, int32_t y) { return x < y; }
HEAP(ready, int32_t, smaller) /* positions in the order of priority */

struct event {
    double t;
    int32_t job; /* j: job j ends; ~j: the last tensor of job j arrives */
};

/* Ends before arrivals, then by job: an order that does not depend on how the heap was built. */
static inline bool earlier(struct event x, struct event y) {
    if (x.t != y.t)
        return x.t < y.t;
    bool xe = x.job >= 0, ye = y.job >= 0;
    return xe != ye ? xe : xe ? x.job < y.job : x.job > y.job;
}
HEAP(events, struct event, earlier)

struct state {
    const struct spec *sp;
    const struct stage *st;
    const struct graph *g;
    struct sched *sc;
    int32_t *pos, *by_pos;            /* a job's place in the order of priority, and back */
    struct ready *fwd, *rest;         /* per rank: ready jobs */
    int32_t *seq, *seq_at, *seq_next; /* strict: each rank's jobs in order, and the next one */
    bool *ready;                      /* strict */
    bool *busy, *dirty;
    int *live;              /* live activations per rank */
    int *touched, ntouched; /* ranks that might start something now */
    int32_t *missing;       /* predecessors not yet ended */
    double *ready_at;
    struct events events;
};

static const struct spec *sorting; /* qsort has no context argument */

static int by_priority(const void *x, const void *y) {
    const struct job *a = &sorting->job[*(const int32_t *)x], *b = &sorting->job[*(const int32_t *)y];
    if (compare_n(a, b))
        return compare_n(a, b);
    if (a->b != b->b)
        return a->b < b->b ? -1 : 1;
    if (a->s != b->s)
        return a->s < b->s ? -1 : 1;
    return (a->d > b->d) - (a->d < b->d);
}

static void touch(struct state *z, int rank) {
    if (!z->dirty[rank]) {
        z->dirty[rank] = true;
        z->touched[z->ntouched++] = rank;
    }
}

static void make_ready(struct state *z, int32_t j) {
    const struct job *job = &z->sp->job[j];
    if (z->sp->strict && !job->fill)
        z->ready[j] = true;
    else
        ready_push(job->d == OP_F ? &z->fwd[job->rank] : &z->rest[job->rank], z->pos[j]);
    touch(z, job->rank);
}

/* The job whose end frees the activation (s,b): B, or W when the backward is split. */
static int32_t last_backward(const struct spec *sp, int s, int b) {
    int32_t whole = job_at(sp, s, b, OP_B);
    return whole >= 0 ? whole : job_at(sp, s, b, OP_W);
}

static void retire(struct state *z, int32_t j, double t) {
    const struct spec *sp = z->sp;
    const struct job *job = &sp->job[j];
    z->sc->moment[z->sc->nmoments++] = ~j;
    z->busy[job->rank] = false;
    touch(z, job->rank);
    if (job->d == OP_F) {
        int there = sp->job[last_backward(sp, job->s, job->b)].rank;
        z->live[job->rank]--;
        z->live[there]++;
    } else if (job->d == OP_B || job->d == OP_W)
        z->live[job->rank]--;
    for (int32_t e = z->g->succ_at[j]; e < z->g->succ_at[j + 1]; e++) {
        int32_t k = z->g->succ[e];
        const struct job *to = &sp->job[k];
        struct link l = link_of(sp, job->rank, to->rank);
        double at = t;
        if (job->rank != to->rank)
            at += l.latency + (isinf(l.bandwidth) ? 0 : (double)edge_bytes(z->st, job, to) / l.bandwidth);
        if (at > z->ready_at[k])
            z->ready_at[k] = at;
        if (--z->missing[k] > 0)
            continue;
        if (z->ready_at[k] > t)
            events_push(&z->events, (struct event){z->ready_at[k], ~k});
        else
            make_ready(z, k);
    }
}

/* Takes the best job that the rank could start now from its heap; -1: none. */
static int32_t choose(struct state *z, int rank) {
    if (z->sp->strict) {
        int32_t i = z->seq_next[rank];
        int32_t j = i < z->seq_at[rank + 1] ? z->seq[i] : -1, with = j < 0 ? -1 : partner_of(z->sp, j);
        int forwards = (j >= 0 && z->sp->job[j].d == OP_F) + (with >= 0 && z->sp->job[with].d == OP_F);
        bool room = forwards == 0 || forwards <= z->sp->cap[rank] - z->live[rank];
        if (j >= 0 && room && z->ready[j] && (with < 0 || z->ready[with])) {
            z->seq_next[rank] += with >= 0 ? 2 : 1;
            return j;
        }
    }
    struct ready *f = &z->fwd[rank], *r = &z->rest[rank];
    bool can_f = f->n > 0 && z->live[rank]<z->sp->cap[rank], can_r = r->n> 0;
    if (can_f && (!can_r || f->a[0] < r->a[0]))
        return z->by_pos[ready_pop(f)];
    return can_r ? z->by_pos[ready_pop(r)] : -1;
}

static int ascending(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

static void start(struct state *z, int32_t j, double t) {
    struct sched *sc = z->sc;
    int rank = z->sp->job[j].rank;
    z->busy[rank] = true;
    z->live[rank] += z->sp->job[j].d == OP_F;
    sc->start[j] = t;
    sc->end[j] = t + job_time(z->sp, j);
    sc->moment[sc->nmoments++] = j;
    sc->nstarts++;
    sc->order[rank][sc->norder[rank]++] = j;
    events_push(&z->events, (struct event){sc->end[j], j});
}

static void start_idle(struct state *z, double t) {
    qsort(z->touched, (size_t)z->ntouched, sizeof *z->touched, ascending);
    for (int i = 0; i < z->ntouched; i++) {
        int rank = z->touched[i];
        z->dirty[rank] = false;
        int32_t j = z->busy[rank] ? -1 : choose(z, rank);
        int32_t with = j >= 0 ? partner_of(z->sp, j) : -1;
        if (j >= 0)
            start(z, j, t);
        if (with >= 0)
            start(z, with, t);
    }
    z->ntouched = 0;
}

/* What each blocked job waits for, as a graph: its predecessors; the job before it in a strict order; or room on its
 * rank, a node of its own (n + rank), which waits for the last backwards of all live activations. */
struct blocked {
    int32_t *at, *to;
    size_t n, cap;
};

static void waits(struct blocked *w, int32_t node) {
    GROW(w->to, w->cap, w->n + 1);
    w->to[w->n++] = node;
}

static void waits_of_job(struct state *z, const bool *ended, int32_t j, struct blocked *w) {
    const struct job *job = &z->sp->job[j];
    size_t before = w->n;
    for (int32_t e = z->g->pred_at[j]; e < z->g->pred_at[j + 1]; e++)
        if (!ended[z->g->pred[e]])
            waits(w, z->g->pred[e]);
    int32_t first = z->sp->strict && !job->fill ? z->seq[z->seq_next[job->rank]] : j, with = partner_of(z->sp, first);
    if (first == j && with >= 0 && !z->ready[with])
        waits(w, with);
    if (first != j && (with != j || w->n == before))
        waits(w, first);
    if (w->n == before)
        waits(w, z->sp->njobs + job->rank);
}

static struct blocked find_waits(struct state *z) {
    const struct spec *sp = z->sp;
    int n = sp->njobs;
    bool *started = NEW(bool, n), *ended = NEW(bool, n);
    int32_t *next = NEW(int32_t, n), *head = NEW(int32_t, sp->workers); /* per rank: who holds room */
    memset(head, -1, sizeof *head * (size_t)sp->workers);
    for (int i = 0; i < z->sc->nmoments; i++) {
        int32_t m = z->sc->moment[i];
        *(m >= 0 ? &started[m] : &ended[~m]) = true;
    }
    for (int i = 0; i < z->sc->nmoments; i++) {
        const struct job *f = z->sc->moment[i] < 0 ? &sp->job[~z->sc->moment[i]] : NULL;
        int32_t back = f && f->d == OP_F ? last_backward(sp, f->s, f->b) : -1;
        if (back >= 0 && !ended[back]) {
            next[back] = head[sp->job[back].rank];
            head[sp->job[back].rank] = back;
        }
    }
    struct blocked w = {.at = NEW(int32_t, n + sp->workers + 1)};
    for (int32_t j = 0; j < n; j++) {
        if (!started[j])
            waits_of_job(z, ended, j, &w);
        w.at[j + 1] = (int32_t)w.n;
    }
    for (int r = 0; r < sp->workers; r++) {
        for (int32_t j = head[r]; j >= 0; j = next[j])
            waits(&w, j);
        w.at[n + r + 1] = (int32_t)w.n;
    }
    return w;
}

static void die_deadlocked(struct state *z) {
    const struct spec *sp = z->sp;
    struct blocked w = find_waits(z);
    int len, n = sp->njobs;
    int32_t *cycle = shortest_cycle(n + sp->workers, w.at, w.to, &len);
    struct text t = {0};
    for (int i = 0, shown = 0; i < len && shown < 12; i++) {
        int32_t from = cycle[i], to = cycle[(i + 1) % len];
        if (from >= n)
            continue;
        const struct job *a = &sp->job[from], *b = &sp->job[to < n ? to : cycle[(i + 2) % len]];
        const char *name = job_name(a->s, a->b, a->d), *other = job_name(b->s, b->b, b->d);
        if (to >= n)
            put(&t, "\n  %s waits for room on rank %d, whose cap of %d is full until %s", name, a->rank,
                sp->cap[a->rank], other);
        else if (a->pair && a->pair == b->pair && !has_edge(z->g, from, to))
            put(&t, "\n  %s waits for %s, to overlap with it", name, other);
        else if (!has_edge(z->g, from, to))
            put(&t, "\n  %s waits for %s, which comes before it in the order of rank %d", name, other, a->rank);
        else
            put(&t, "\n  %s waits for %s", name, other);
        shown++;
    }
    if (len > 12)
        put(&t, "\n  ... and more");
    die("%s: deadlock: %d of %d jobs can never start; raise the cap or change the order, because%s", sp->file,
        n - z->sc->nstarts, n, t.s);
}

static struct state prepare(const struct spec *sp, const struct stage *st, const struct graph *g, struct sched *sc) {
    int n = sp->njobs, W = sp->workers;
    struct state z = {.sp = sp, .st = st, .g = g, .sc = sc};
    z.pos = NEW(int32_t, n);
    z.by_pos = NEW(int32_t, n);
    for (int j = 0; j < n; j++)
        z.by_pos[j] = j;
    sorting = sp;
    qsort(z.by_pos, (size_t)n, sizeof *z.by_pos, by_priority);
    int *nfwd = NEW(int, W), *nall = NEW(int, W + 1), *nseq = NEW(int, W);
    for (int i = 0; i < n; i++) {
        const struct job *job = &sp->job[z.by_pos[i]];
        z.pos[z.by_pos[i]] = i;
        nfwd[job->rank] += job->d == OP_F;
        nall[job->rank]++;
        nseq[job->rank] += !job->fill;
    }
    z.fwd = NEW(struct ready, W);
    z.rest = NEW(struct ready, W);
    z.seq = NEW(int32_t, n);
    z.seq_at = NEW(int32_t, W + 1);
    z.seq_next = NEW(int32_t, W + 1);
    for (int r = 0; r < W; r++) {
        z.fwd[r] = (struct ready){NEW(int32_t, nfwd[r]), 0, (size_t)nfwd[r]};
        z.rest[r] = (struct ready){NEW(int32_t, nall[r] - nfwd[r]), 0, (size_t)(nall[r] - nfwd[r])};
        z.seq_at[r + 1] = z.seq_at[r] + nseq[r];
        z.seq_next[r] = z.seq_at[r];
    }
    for (int i = 0; i < n; i++) /* by rank, in the order of priority */
        if (!sp->job[z.by_pos[i]].fill)
            z.seq[z.seq_next[sp->job[z.by_pos[i]].rank]++] = z.by_pos[i];
    memcpy(z.seq_next, z.seq_at, sizeof *z.seq_at * (size_t)W);
    z.ready = NEW(bool, n);
    z.busy = NEW(bool, W);
    z.dirty = NEW(bool, W);
    z.live = NEW(int, W);
    z.touched = NEW(int, W);
    z.missing = NEW(int32_t, n);
    z.ready_at = NEW(double, n);
    return z;
}

struct sched *sched_run(const struct spec *sp, const struct stage *st, const struct graph *g) {
    int n = sp->njobs;
    struct sched *sc = NEW(struct sched, 1);
    sc->start = NEW(double, n);
    sc->end = NEW(double, n);
    sc->moment = NEW(int32_t, 2 * (int64_t)n);
    sc->order = NEW(int32_t *, sp->workers);
    sc->norder = NEW(int, sp->workers);
    for (int j = 0; j < n; j++)
        sc->norder[sp->job[j].rank]++;
    for (int r = 0; r < sp->workers; r++) {
        sc->order[r] = NEW(int32_t, sc->norder[r]);
        sc->norder[r] = 0;
    }
    struct scratch scratch = scratch_begin();
    struct state z = prepare(sp, st, g, sc);
    for (int j = 0; j < n; j++)
        if (!(z.missing[j] = g->pred_at[j + 1] - g->pred_at[j]))
            make_ready(&z, j);
    start_idle(&z, 0);
    while (z.events.n > 0) {
        double t = z.events.a[0].t;
        while (z.events.n > 0 && z.events.a[0].t == t) {
            int32_t j = events_pop(&z.events).job;
            if (j >= 0)
                retire(&z, j, t);
            else
                make_ready(&z, ~j);
        }
        start_idle(&z, t);
        sc->makespan = t;
    }
    if (sc->nstarts < n)
        die_deadlocked(&z);
    scratch_end(scratch);
    return sc;
}
