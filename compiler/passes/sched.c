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
#include "versions.h"
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
    struct versions versions; /* where updates are jobs */
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

static void touch(struct state *state, int rank) {
    if (!state->dirty[rank]) {
        state->dirty[rank] = true;
        state->touched[state->ntouched++] = rank;
    }
}

static void make_ready(struct state *state, int32_t j) {
    const struct job *job = &state->sp->job[j];
    if (state->sp->strict && !job->fill)
        state->ready[j] = true;
    else
        ready_push(job->d == OP_F ? &state->fwd[job->rank] : &state->rest[job->rank], state->pos[j]);
    touch(state, job->rank);
}

/* The job whose end frees the activation (s,b): B, or W when the backward is split. */
static int32_t last_backward(const struct spec *sp, int s, int b) {
    int32_t whole = job_at(sp, s, b, OP_B);
    return whole >= 0 ? whole : job_at(sp, s, b, OP_W);
}

/* One of the things that job j waits for has ended at t, and is there at `at`. */
static void arrive(struct state *state, int32_t j, double t, double at) {
    if (at > state->ready_at[j])
        state->ready_at[j] = at;
    if (--state->missing[j] > 0)
        return;
    if (state->ready_at[j] > t)
        events_push(&state->events, (struct event){state->ready_at[j], ~j});
    else
        make_ready(state, j);
}

/* A backward's gradient goes to the updates of its microbatch; an update's weights go to the jobs that wait for it. */
static void retire_versions(struct state *state, int32_t j, double t) {
    const struct spec *sp = state->sp;
    const struct job *job = &sp->job[j];
    const struct homes *homes = &sp->homes[job->s];
    if (job->d == OP_B || job->d == OP_W)
        for (int l = 0; l < homes->lists; l++)
            arrive(
                state, update_at(sp, job->s, job->b / sp->update[job->s], l), t,
                t + on_grain(sp, link_time(sp, job->rank, homes->rank[l], (double)state->st[job->s].bytes[K_wgrad])));
    if (job->d != OP_U)
        return;
    int32_t waiting = versions_update(&state->versions, j, t), next = j + homes->lists;
    for (; waiting >= 0; waiting = state->versions.next[waiting])
        arrive(state, waiting, t,
               t + on_grain(
                       sp, link_time(sp, job->rank, sp->job[waiting].rank, (double)state->st[job->s].bytes[K_weight])));
    if (next < sp->update_at[job->s + 1])
        arrive(state, next, t, t);
}

static void retire(struct state *state, int32_t j, double t) {
    const struct spec *sp = state->sp;
    const struct job *job = &sp->job[j];
    state->sc->moment[state->sc->nmoments++] = ~j;
    state->busy[job->rank] = false;
    touch(state, job->rank);
    if (job->d == OP_F) {
        int there = sp->job[last_backward(sp, job->s, job->b)].rank;
        state->live[job->rank]--;
        state->live[there]++;
    } else if (job->d == OP_B || job->d == OP_W)
        state->live[job->rank]--;
    if (sp->update)
        retire_versions(state, j, t);
    for (int32_t e = j < sp->njobs ? state->g->succ_at[j] : 0; j < sp->njobs && e < state->g->succ_at[j + 1]; e++) {
        const struct job *to = &sp->job[state->g->succ[e]];
        struct link link = link_of(sp, job->rank, to->rank);
        double at = t;
        if (job->rank != to->rank)
            at +=
                on_grain(sp, link.latency +
                                 (isinf(link.bandwidth) ? 0 : (double)edge_bytes(state->st, job, to) / link.bandwidth));
        arrive(state, state->g->succ[e], t, at);
    }
}

/* Takes the best job that the rank could start now from its heap; -1: none. */
static int32_t choose(struct state *state, int rank) {
    struct ready *f = &state->fwd[rank], *r = &state->rest[rank];
    if (r->n > 0 && state->sp->job[state->by_pos[r->a[0]]].prio == -INFINITY) /* an update that n says nothing of */
        return state->by_pos[ready_pop(r)];
    if (state->sp->strict) {
        int32_t i = state->seq_next[rank];
        int32_t j = i < state->seq_at[rank + 1] ? state->seq[i] : -1, with = j < 0 ? -1 : partner_of(state->sp, j);
        int forwards = (j >= 0 && state->sp->job[j].d == OP_F) + (with >= 0 && state->sp->job[with].d == OP_F);
        bool room = forwards == 0 || forwards <= state->sp->cap[rank] - state->live[rank];
        if (j >= 0 && room && state->ready[j] && (with < 0 || state->ready[with])) {
            state->seq_next[rank] += with >= 0 ? 2 : 1;
            return j;
        }
    }
    bool can_f = f->n > 0 && state->live[rank]<state->sp->cap[rank], can_r = r->n> 0;
    if (can_f && (!can_r || f->a[0] < r->a[0]))
        return state->by_pos[ready_pop(f)];
    return can_r ? state->by_pos[ready_pop(r)] : -1;
}

static int ascending(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

static void start(struct state *state, int32_t j, double t) {
    struct sched *sc = state->sc;
    int rank = state->sp->job[j].rank;
    state->busy[rank] = true;
    state->live[rank] += state->sp->job[j].d == OP_F;
    sc->start[j] = t;
    sc->end[j] = t + on_grain(state->sp, job_time(state->sp, j));
    sc->moment[sc->nmoments++] = j;
    sc->nstarts++;
    sc->order[rank][sc->norder[rank]++] = j;
    if (state->sp->update)
        versions_read(&state->versions, j, t);
    events_push(&state->events, (struct event){sc->end[j], j});
}

static void start_idle(struct state *state, double t) {
    qsort(state->touched, (size_t)state->ntouched, sizeof *state->touched, ascending);
    for (int i = 0; i < state->ntouched; i++) {
        int rank = state->touched[i];
        state->dirty[rank] = false;
        int32_t j = state->busy[rank] ? -1 : choose(state, rank);
        int32_t with = j >= 0 ? partner_of(state->sp, j) : -1;
        if (j >= 0)
            start(state, j, t);
        if (with >= 0)
            start(state, with, t);
    }
    state->ntouched = 0;
}

/* What each blocked job waits for, as a graph: its predecessors; the job before it in a strict order; or room on its
 * rank, a node of its own (n + rank), which waits for the last backwards of all live activations. */
struct blocked {
    int32_t *at, *to;
    size_t n, cap;
};

static void waits(struct blocked *blocked, int32_t node) {
    GROW(blocked->to, blocked->cap, blocked->n + 1);
    blocked->to[blocked->n++] = node;
}

/* An update waits for backwards and the update before it; a job may wait for an update. */
static void waits_of_version(struct state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct spec *sp = state->sp;
    const struct job *job = &sp->job[j];
    int32_t update = job->d == OP_U ? j - sp->homes[job->s].lists : versions_awaited(&state->versions, j);
    if (update >= sp->update_at[job->s] && !ended[update])
        waits(blocked, update);
    for (int b = 0; job->d == OP_U && b < sp->update[job->s]; b++) {
        int32_t back = last_backward(sp, job->s, job->b * sp->update[job->s] + b);
        if (!ended[back])
            waits(blocked, back);
    }
}

static void waits_of_job(struct state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct job *job = &state->sp->job[j];
    size_t before = blocked->n;
    if (state->sp->update)
        waits_of_version(state, ended, j, blocked);
    for (int32_t e = job->d == OP_U ? 0 : state->g->pred_at[j]; job->d != OP_U && e < state->g->pred_at[j + 1]; e++)
        if (!ended[state->g->pred[e]])
            waits(blocked, state->g->pred[e]);
    int32_t first = state->sp->strict && !job->fill ? state->seq[state->seq_next[job->rank]] : j,
            with = partner_of(state->sp, first);
    if (first == j && with >= 0 && !state->ready[with])
        waits(blocked, with);
    if (first != j && (with != j || blocked->n == before))
        waits(blocked, first);
    if (blocked->n == before)
        waits(blocked, all_jobs(state->sp) + job->rank);
}

static struct blocked find_waits(struct state *state) {
    const struct spec *sp = state->sp;
    int n = all_jobs(sp);
    bool *started = NEW(bool, n), *ended = NEW(bool, n);
    int32_t *next = NEW(int32_t, n), *head = NEW(int32_t, sp->workers); /* per rank: who holds room */
    memset(head, -1, sizeof *head * (size_t)sp->workers);
    for (int i = 0; i < state->sc->nmoments; i++) {
        int32_t m = state->sc->moment[i];
        *(m >= 0 ? &started[m] : &ended[~m]) = true;
    }
    for (int i = 0; i < state->sc->nmoments; i++) {
        const struct job *f = state->sc->moment[i] < 0 ? &sp->job[~state->sc->moment[i]] : NULL;
        int32_t back = f && f->d == OP_F ? last_backward(sp, f->s, f->b) : -1;
        if (back >= 0 && !ended[back]) {
            next[back] = head[sp->job[back].rank];
            head[sp->job[back].rank] = back;
        }
    }
    struct blocked blocked = {.at = NEW(int32_t, n + sp->workers + 1)};
    for (int32_t j = 0; j < n; j++) {
        if (!started[j])
            waits_of_job(state, ended, j, &blocked);
        blocked.at[j + 1] = (int32_t)blocked.n;
    }
    for (int r = 0; r < sp->workers; r++) {
        for (int32_t j = head[r]; j >= 0; j = next[j])
            waits(&blocked, j);
        blocked.at[n + r + 1] = (int32_t)blocked.n;
    }
    return blocked;
}

static void die_deadlocked(struct state *state) {
    const struct spec *sp = state->sp;
    struct blocked blocked = find_waits(state);
    int len, n = all_jobs(sp);
    int32_t *cycle = shortest_cycle(n + sp->workers, blocked.at, blocked.to, &len);
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
        else if (a->pair && a->pair == b->pair && !has_edge(state->g, from, to))
            put(&t, "\n  %s waits for %s, to overlap with it", name, other);
        else if (from < sp->njobs && to < sp->njobs && !has_edge(state->g, from, to))
            put(&t, "\n  %s waits for %s, which comes before it in the order of rank %d", name, other, a->rank);
        else
            put(&t, "\n  %s waits for %s", name, other);
        shown++;
    }
    if (len > 12)
        put(&t, "\n  ... and more");
    die("%s: deadlock: %d of %d jobs can never start; raise the cap or change the order, because%s", sp->file,
        n - state->sc->nstarts, n, t.s);
}

static struct state prepare(const struct spec *sp, const struct stage *st, const struct graph *graph,
                            struct sched *sc) {
    int n = all_jobs(sp), W = sp->workers;
    struct state state = {.sp = sp, .st = st, .g = graph, .sc = sc};
    state.pos = NEW(int32_t, n);
    state.by_pos = NEW(int32_t, n);
    for (int j = 0; j < n; j++)
        state.by_pos[j] = j;
    sorting = sp;
    qsort(state.by_pos, (size_t)n, sizeof *state.by_pos, by_priority);
    int *nfwd = NEW(int, W), *nall = NEW(int, W + 1), *nseq = NEW(int, W);
    for (int i = 0; i < n; i++) {
        const struct job *job = &sp->job[state.by_pos[i]];
        state.pos[state.by_pos[i]] = i;
        nfwd[job->rank] += job->d == OP_F;
        nall[job->rank]++;
        nseq[job->rank] += !job->fill;
    }
    state.fwd = NEW(struct ready, W);
    state.rest = NEW(struct ready, W);
    state.seq = NEW(int32_t, n);
    state.seq_at = NEW(int32_t, W + 1);
    state.seq_next = NEW(int32_t, W + 1);
    for (int r = 0; r < W; r++) {
        state.fwd[r] = (struct ready){NEW(int32_t, nfwd[r]), 0, (size_t)nfwd[r]};
        state.rest[r] = (struct ready){NEW(int32_t, nall[r] - nfwd[r]), 0, (size_t)(nall[r] - nfwd[r])};
        state.seq_at[r + 1] = state.seq_at[r] + nseq[r];
        state.seq_next[r] = state.seq_at[r];
    }
    for (int i = 0; i < n; i++) /* by rank, in the order of priority */
        if (!sp->job[state.by_pos[i]].fill)
            state.seq[state.seq_next[sp->job[state.by_pos[i]].rank]++] = state.by_pos[i];
    memcpy(state.seq_next, state.seq_at, sizeof *state.seq_at * (size_t)W);
    state.ready = NEW(bool, n);
    state.busy = NEW(bool, W);
    state.dirty = NEW(bool, W);
    state.live = NEW(int, W);
    state.touched = NEW(int, W);
    state.missing = NEW(int32_t, n);
    state.ready_at = NEW(double, n);
    return state;
}

struct sched *sched_run(const struct spec *sp, const struct stage *st, const struct graph *graph) {
    int n = all_jobs(sp);
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
    sc->version = sp->update ? NEW(int32_t, sp->njobs) : NULL;
    struct scratch scratch = scratch_begin();
    struct state state = prepare(sp, st, graph, sc);
    for (int j = 0; j < sp->njobs; j++)
        state.missing[j] = graph->pred_at[j + 1] - graph->pred_at[j];
    if (sp->update)
        state.versions = versions_begin(sp, st, sc->version, state.missing, state.ready_at);
    for (int j = 0; j < n; j++)
        if (!state.missing[j])
            make_ready(&state, j);
    start_idle(&state, 0);
    while (state.events.n > 0) {
        double t = state.events.a[0].t;
        while (state.events.n > 0 && state.events.a[0].t == t) {
            int32_t j = events_pop(&state.events).job;
            if (j >= 0)
                retire(&state, j, t);
            else
                make_ready(&state, ~j);
        }
        start_idle(&state, t);
        sc->makespan = t;
    }
    if (sc->nstarts < n)
        die_deadlocked(&state);
    scratch_end(scratch);
    return sc;
}
