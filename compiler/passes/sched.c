/* Decides when each job runs: an event-driven list scheduler, O(n log n). schedules/language.md, "How jobs are
 * scheduled", states the rules, including those for jobs that end in the instant they start.
 *
 * Each rank has two heaps of ready jobs, ordered by n and its ties: forwards, which must wait for room under the cap,
 * and the rest. A strict rank has its sequence, and uses the heaps only for jobs that fill: they run when the next job
 * of the sequence cannot. One heap of events holds the ends of running jobs and the arrivals of tensors. All events of
 * one time are handled before any rank starts a job. Jobs that then end at the same time start another round. */
#include "sched_state.h"
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct costs *sorting; /* sort has no context argument */

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

static void touch_rank(struct sched_state *state, int rank) {
    if (!state->dirty[rank]) {
        state->dirty[rank] = true;
        state->touched[state->ntouched++] = rank;
    }
}

/* Counts one more live activation on a rank. If the rank's room is now used up, ranks that waited for a team's F may
 * have another job to start. */
static void use_room(struct sched_state *state, int rank) {
    if (++state->live[rank] < state->sp->limits.cap[rank])
        return;
    while (state->nwaiting > 0) {
        state->waits[state->waiting[--state->nwaiting]] = false;
        touch_rank(state, state->waiting[state->nwaiting]);
    }
}

/* Makes a job ready; a team's job is ready when it is ready on all members. */
static void make_ready(struct sched_state *state, int32_t j) {
    const struct spec *sp = state->sp;
    int size = job_size(state, j);
    int32_t first = size > 1 ? gang_of(sp, j) : j;
    if (size > 1 && ++state->absent[first] < size)
        return;
    for (int i = 0; i < size; i++) {
        int32_t k = gang_job(sp, first, i);
        const struct job *job = &state->c->costs->job[k];
        if (sp->strict && !job->fill)
            state->ready[k] = true;
        else
            ready_push(job->d == OP_F ? &state->fwd[job->rank] : &state->rest[job->rank], state->pos[k]);
        touch_rank(state, job->rank);
    }
}

/* Notes that something job j waits for ended at t and arrives at `at`. */
static void arrive(struct sched_state *state, int32_t j, double t, double at) {
    if (at > state->ready_at[j])
        state->ready_at[j] = at;
    if (--state->missing[j] > 0)
        return;
    if (state->ready_at[j] > t)
        events_push(&state->events, (struct event){state->ready_at[j], ~j});
    else
        make_ready(state, j);
}

/* Sends a backward's gradient to the updates of its microbatch, and an update's weights to the jobs that wait for
 * it. */
static void retire_versions(struct sched_state *state, int32_t j, double t) {
    const struct spec *sp = state->sp;
    const struct job *job = &state->c->costs->job[j];
    for (int n = 0; n < VERSIONED && (job->d == OP_B || job->d == OP_W); n++) {
        int set = versioned_set(state->c->costs, job->s, n);
        for (int l = 0; set >= 0 && l < state->c->costs->homes[set].lists; l++)
            arrive(state, update_at(state->c->costs, set, job->b / sp->updates.every[set], l), t,
                   t + on_grain(state->c->costs, link_time(sp, job->rank, state->c->costs->homes[set].rank[l],
                                                           (double)state->c->costs->stage[set].bytes[K_wgrad])));
    }
    if (job->d != OP_U)
        return;
    int32_t waiting = versions_update(&state->versions, j, t), next = j + state->c->costs->homes[job->s].lists;
    for (; waiting >= 0; waiting = state->versions.next[waiting])
        arrive(state, waiting / VERSIONED, t,
               t + on_grain(state->c->costs, link_time(sp, job->rank, state->c->costs->job[waiting / VERSIONED].rank,
                                                       (double)state->c->costs->stage[job->s].bytes[K_weight])));
    if (next < state->c->costs->update_at[job->s + 1])
        arrive(state, next, t, t);
}

static void retire(struct sched_state *state, int32_t j, double t) {
    const struct spec *sp = state->sp;
    const struct job *job = &state->c->costs->job[j];
    state->sc->moment[state->sc->nmoments++] = ~j;
    state->busy[job->rank] = false;
    touch_rank(state, job->rank);
    if (job->d == OP_F) {
        state->live[job->rank]--;
        use_room(state, state->c->costs->job[last_backward(sp, job->s, job->b)].rank);
    } else if (job->d == OP_B || job->d == OP_W)
        state->live[job->rank]--;
    if (sp->updates.every)
        retire_versions(state, j, t);
    for (int32_t e = j < sp->njobs ? state->c->graph->succ_at[j] : 0;
         j < sp->njobs && e < state->c->graph->succ_at[j + 1]; e++) {
        const struct job *to = &state->c->costs->job[state->c->graph->succ[e]];
        struct link link = link_of(sp, job->rank, to->rank);
        double at = t;
        if (job->rank != to->rank) {
            double bytes = isinf(link.bandwidth) ? 0 : (double)edge_bytes(state->c, state->c->graph->succ_edge[e]);
            at += on_grain(state->c->costs, link.latency + bytes / link.bandwidth);
        }
        arrive(state, state->c->graph->succ[e], t, at);
    }
}

/* Returns whether all members of j's team have room for `forwards` more forwards. */
static bool has_room(const struct sched_state *state, int32_t j, int forwards) {
    const struct spec *sp = state->sp;
    int size = job_size(state, j);
    int32_t first = size > 1 ? gang_of(sp, j) : j;
    for (int i = 0; i < size && forwards; i++) {
        int rank = state->c->costs->job[gang_job(sp, first, i)].rank;
        if (forwards > sp->limits.cap[rank] - state->live[rank])
            return false;
    }
    return true;
}

/* Returns whether the next job of a strict order can start now: it is the next one on all members of its team, which
 * are idle. */
static bool turn_of(const struct sched_state *state, int32_t j) {
    const struct spec *sp = state->sp;
    int32_t with = partner_of(sp, j), first = gang_of(sp, j);
    int forwards = (state->c->costs->job[j].d == OP_F) + (with >= 0 && state->c->costs->job[with].d == OP_F),
        size = job_size(state, j);
    if (!state->ready[j] || (with >= 0 && !state->ready[with]) || !has_room(state, j, forwards))
        return false;
    for (int i = 0; i < size && size > 1; i++) {
        int32_t k = gang_job(sp, first, i);
        int rank = state->c->costs->job[k].rank;
        if (state->busy[rank] || state->seq[state->seq_next[rank]] != k)
            return false;
    }
    return true;
}

struct choice sched_choose(const struct sched_state *state, int rank) {
    struct ready *f = &state->fwd[rank], *r = &state->rest[rank];
    const struct choice none = {-1, NULL}, other = {r->n > 0 ? state->by_pos[r->a[0]] : -1, r};
    if (r->n > 0 && state->c->costs->job[other.j].prio == -INFINITY) /* an update for which n gives no priority */
        return other;
    int32_t next = state->sp->strict ? state->seq_next[rank] : 0;
    if (state->sp->strict && next < state->seq_at[rank + 1] && turn_of(state, state->seq[next]))
        return (struct choice){state->seq[next], NULL};
    int32_t forward = f->n > 0 ? state->by_pos[f->a[0]] : -1;
    if (forward >= 0 && has_room(state, forward, 1) && (r->n == 0 || f->a[0] < r->a[0]))
        return (struct choice){forward, f};
    return r->n > 0 ? other : none;
}

/* Removes j from where it was chosen. from: its heap on another member of the team; NULL: the sequence. */
static void take_value(struct sched_state *state, int32_t j, const struct ready *from) {
    int rank = state->c->costs->job[j].rank;
    if (!from)
        state->seq_next[rank] += partner_of(state->sp, j) >= 0 ? 2 : 1;
    else
        ready_pop(state->c->costs->job[j].d == OP_F ? &state->fwd[rank] : &state->rest[rank]);
}

/* Returns whether all members of j's team are idle, and j is the best job of each. */
static bool all_choose(const struct sched_state *state, int32_t j) {
    const struct spec *sp = state->sp;
    int size = job_size(state, j);
    int32_t first = size > 1 ? gang_of(sp, j) : j;
    for (int i = 0; i < size && size > 1; i++) {
        int32_t k = gang_job(sp, first, i);
        if (state->busy[state->c->costs->job[k].rank] || sched_choose(state, state->c->costs->job[k].rank).j != k)
            return false;
    }
    return true;
}

static int ascending(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

static void begin_job(struct sched_state *state, int32_t j, double t) {
    struct sched *sc = state->sc;
    int rank = state->c->costs->job[j].rank;
    state->busy[rank] = true;
    if (state->c->costs->job[j].d == OP_F)
        use_room(state, rank);
    sc->start[j] = t;
    sc->end[j] = t + on_grain(state->c->costs, job_time(state->c->costs, j));
    sc->moment[sc->nmoments++] = j;
    sc->nstarts++;
    sc->order[rank][sc->norder[rank]++] = j;
    events_push(&state->events, (struct event){sc->end[j], j});
}

/* Starts a rank's best job, if any. A team waits until its job is the best on all members. */
static void start_best(struct sched_state *state, int rank, double t) {
    const struct spec *sp = state->sp;
    struct choice best = sched_choose(state, rank);
    if (best.j < 0)
        return;
    if (!all_choose(state, best.j)) {
        if (!state->waits[rank])
            state->waiting[state->nwaiting++] = rank;
        state->waits[rank] = true;
        return;
    }
    int size = job_size(state, best.j);
    int32_t first = size > 1 ? gang_of(sp, best.j) : best.j;
    for (int32_t j = first; sp->updates.every && j >= 0; j = partner_of(sp, j))
        versions_read(&state->versions, j, t);
    for (int i = 0; i < size; i++) {
        int32_t j = gang_job(sp, first, i), with = partner_of(sp, j);
        take_value(state, j, best.from);
        begin_job(state, j, t);
        if (with >= 0)
            begin_job(state, with, t);
    }
}

/* Orders by the team's first rank, then by place in the team; paired jobs keep their sequence order. A rank starts no
 * more jobs in one instant. */
static int by_first_rank(const void *x, const void *y) {
    int32_t i = *(const int32_t *)x, j = *(const int32_t *)y;
    const struct job *a = &sorting->job[i], *b = &sorting->job[j];
    int rank = sorting->job[gang_of(sorting->spec, i)].rank, other = sorting->job[gang_of(sorting->spec, j)].rank;
    if (rank != other)
        return rank < other ? -1 : 1;
    if (a->rank != b->rank)
        return sorting->spec->names.member[a->s].place < sorting->spec->names.member[b->s].place ? -1 : 1;
    return i == j ? 0 : partner_of(sorting->spec, i) == j ? -1 : 1;
}

/* Starts jobs on idle ranks. A job that one rank starts may use up the room that another's team waits for. The jobs
 * that start in one instant do not depend on the order in which ranks are tried: a job is started only if nothing else
 * can start on any of its ranks. */
static void start_idle(struct sched_state *state, double t) {
    int before = state->sc->nmoments;
    while (state->ntouched > 0) {
        int n = state->ntouched, *turn = state->touched;
        sort(turn, (size_t)n, sizeof *turn, ascending);
        state->touched = state->next_touched;
        state->next_touched = turn;
        state->ntouched = 0;
        for (int i = 0; i < n; i++) {
            state->dirty[turn[i]] = false;
            if (!state->busy[turn[i]])
                start_best(state, turn[i], t);
        }
    }
    if (state->absent)
        sort(state->sc->moment + before, (size_t)(state->sc->nmoments - before), sizeof *state->sc->moment,
             by_first_rank);
}

static struct sched_state prepare_state(const struct compile *c, struct sched *sc) {
    const struct spec *sp = c->spec;
    int n = c->costs->njobs, W = sp->workers;
    struct sched_state state = {.c = c, .sp = sp, .sc = sc};
    state.pos = NEW(int32_t, n);
    state.by_pos = NEW(int32_t, n);
    int *nfwd = NEW(int, W), *nseq = NEW(int, W), *all_at = NEW(int, W + 2);
    for (int j = 0; j < n; j++) {
        const struct job *job = &c->costs->job[j];
        nfwd[job->rank] += job->d == OP_F;
        nseq[job->rank] += !job->fill;
        all_at[job->rank + 2]++;
    }
    for (int r = 0; r < W; r++)
        all_at[r + 2] += all_at[r + 1];
    for (int j = 0; j < n; j++)
        state.by_pos[all_at[c->costs->job[j].rank + 1]++] = j;
    sorting = c->costs;
    for (int r = 0; r < W; r++)
        sort(state.by_pos + all_at[r], (size_t)(all_at[r + 1] - all_at[r]), sizeof *state.by_pos, by_priority);
    for (int i = 0; i < n; i++)
        state.pos[state.by_pos[i]] = i;
    state.fwd = NEW(struct ready, W);
    state.rest = NEW(struct ready, W);
    state.seq = NEW(int32_t, n);
    state.seq_at = NEW(int32_t, W + 1);
    state.seq_next = NEW(int32_t, W + 1);
    for (int r = 0; r < W; r++) {
        state.fwd[r] = (struct ready){NEW(int32_t, nfwd[r]), 0, (size_t)nfwd[r]};
        int nrest = all_at[r + 1] - all_at[r] - nfwd[r];
        state.rest[r] = (struct ready){NEW(int32_t, nrest), 0, (size_t)nrest};
        state.seq_at[r + 1] = state.seq_at[r] + nseq[r];
        state.seq_next[r] = state.seq_at[r];
    }
    for (int i = 0; i < n; i++) /* by rank, in the order of priority */
        if (!c->costs->job[state.by_pos[i]].fill)
            state.seq[state.seq_next[c->costs->job[state.by_pos[i]].rank]++] = state.by_pos[i];
    memcpy(state.seq_next, state.seq_at, sizeof *state.seq_at * (size_t)W);
    state.ready = NEW(bool, n);
    state.busy = NEW(bool, W);
    state.dirty = NEW(bool, W);
    state.live = NEW(int, W);
    state.touched = NEW(int, W);
    state.next_touched = NEW(int, W);
    state.waiting = NEW(int, W);
    state.waits = NEW(bool, W);
    state.missing = NEW(int32_t, n);
    state.absent = sp->names.member ? NEW(int32_t, n) : NULL;
    state.ready_at = NEW(double, n);
    return state;
}

struct sched *sched_run(const struct compile *c) {
    const struct spec *sp = c->spec;
    const struct graph *graph = c->graph;
    int n = c->costs->njobs;
    struct sched *sc = NEW(struct sched, 1);
    sc->start = NEW(double, n);
    sc->end = NEW(double, n);
    sc->moment = NEW(int32_t, 2 * (int64_t)n);
    sc->order = NEW(int32_t *, sp->workers);
    sc->norder = NEW(int, sp->workers);
    for (int j = 0; j < n; j++)
        sc->norder[c->costs->job[j].rank]++;
    for (int r = 0; r < sp->workers; r++) {
        sc->order[r] = NEW(int32_t, sc->norder[r]);
        sc->norder[r] = 0;
    }
    sc->version = sp->updates.every ? NEW(int32_t, sp->njobs) : NULL;
    struct scratch scratch = scratch_begin();
    struct sched_state state = prepare_state(c, sc);
    for (int j = 0; j < sp->njobs; j++)
        state.missing[j] = graph->pred_at[j + 1] - graph->pred_at[j];
    if (sp->updates.every)
        state.versions = versions_begin(c->costs, sc->version, state.missing, state.ready_at);
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
        sched_deadlock(&state);
    scratch_end(scratch);
    return sc;
}
