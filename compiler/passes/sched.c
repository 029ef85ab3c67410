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
    const struct compile *c;
    const struct spec *sp;
    const struct graph *g;
    struct sched *sc;
    int32_t *pos, *by_pos;            /* a job's place in the order of ranks, then of priority, and back */
    struct ready *fwd, *rest;         /* per rank: ready jobs */
    int32_t *seq, *seq_at, *seq_next; /* strict: each rank's jobs in order, and the next one */
    bool *ready;                      /* strict */
    bool *busy, *dirty;
    int *live;              /* live activations per rank */
    int *touched, ntouched; /* ranks that might start something now, */
    int *next_touched;      /* and room for those of the next turn */
    int *waiting, nwaiting; /* ranks that found a team's job to be their best, which could not start: each once, */
    bool *waits;            /* as this says */
    int32_t *missing;       /* predecessors not yet ended */
    int32_t *absent;        /* per team's job: the members on which it is ready; NULL: there are no teams */
    double *ready_at;
    struct versions versions; /* where updates are jobs */
    struct events events;
};

static const struct spec *sorting; /* sort has no context argument */

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

static void touch_rank(struct state *state, int rank) {
    if (!state->dirty[rank]) {
        state->dirty[rank] = true;
        state->touched[state->ntouched++] = rank;
    }
}

/* A rank has one live activation more. If its room is used up, others may no longer have to wait for a team's F. */
static void use_room(struct state *state, int rank) {
    if (++state->live[rank] < state->sp->limits.cap[rank])
        return;
    while (state->nwaiting > 0) {
        state->waits[state->waiting[--state->nwaiting]] = false;
        touch_rank(state, state->waiting[state->nwaiting]);
    }
}

static int job_size(const struct state *state, int32_t j) {
    return state->absent && j < state->sp->njobs ? team_size(state->sp, state->sp->job[j].s) : 1;
}

/* A team's job is ready when it is on all members. */
static void make_ready(struct state *state, int32_t j) {
    const struct spec *sp = state->sp;
    int size = job_size(state, j);
    int32_t first = size > 1 ? gang_of(sp, j) : j;
    if (size > 1 && ++state->absent[first] < size)
        return;
    for (int i = 0; i < size; i++) {
        int32_t k = gang_job(sp, first, i);
        const struct job *job = &sp->job[k];
        if (sp->strict && !job->fill)
            state->ready[k] = true;
        else
            ready_push(job->d == OP_F ? &state->fwd[job->rank] : &state->rest[job->rank], state->pos[k]);
        touch_rank(state, job->rank);
    }
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
    for (int n = 0; n < VERSIONED && (job->d == OP_B || job->d == OP_W); n++) {
        int set = versioned_set(sp, job->s, n);
        for (int l = 0; set >= 0 && l < sp->costs.homes[set].lists; l++)
            arrive(state, update_at(sp, set, job->b / sp->updates.every[set], l), t,
                   t + on_grain(sp, link_time(sp, job->rank, sp->costs.homes[set].rank[l],
                                              (double)state->c->stage[set].bytes[K_wgrad])));
    }
    if (job->d != OP_U)
        return;
    int32_t waiting = versions_update(&state->versions, j, t), next = j + sp->costs.homes[job->s].lists;
    for (; waiting >= 0; waiting = state->versions.next[waiting])
        arrive(state, waiting / VERSIONED, t,
               t + on_grain(sp, link_time(sp, job->rank, sp->job[waiting / VERSIONED].rank,
                                          (double)state->c->stage[job->s].bytes[K_weight])));
    if (next < sp->costs.update_at[job->s + 1])
        arrive(state, next, t, t);
}

static void retire(struct state *state, int32_t j, double t) {
    const struct spec *sp = state->sp;
    const struct job *job = &sp->job[j];
    state->sc->moment[state->sc->nmoments++] = ~j;
    state->busy[job->rank] = false;
    touch_rank(state, job->rank);
    if (job->d == OP_F) {
        state->live[job->rank]--;
        use_room(state, sp->job[last_backward(sp, job->s, job->b)].rank);
    } else if (job->d == OP_B || job->d == OP_W)
        state->live[job->rank]--;
    if (sp->updates.every)
        retire_versions(state, j, t);
    for (int32_t e = j < sp->njobs ? state->g->succ_at[j] : 0; j < sp->njobs && e < state->g->succ_at[j + 1]; e++) {
        const struct job *to = &sp->job[state->g->succ[e]];
        struct link link = link_of(sp, job->rank, to->rank);
        double at = t;
        if (job->rank != to->rank) {
            double bytes = isinf(link.bandwidth) ? 0 : (double)edge_bytes(state->c, state->g->succ_edge[e]);
            at += on_grain(sp, link.latency + bytes / link.bandwidth);
        }
        arrive(state, state->g->succ[e], t, at);
    }
}

/* Whether all members of its team have room for so many forwards more. */
static bool has_room(const struct state *state, int32_t j, int forwards) {
    const struct spec *sp = state->sp;
    int size = job_size(state, j);
    int32_t first = size > 1 ? gang_of(sp, j) : j;
    for (int i = 0; i < size && forwards; i++) {
        int rank = sp->job[gang_job(sp, first, i)].rank;
        if (forwards > sp->limits.cap[rank] - state->live[rank])
            return false;
    }
    return true;
}

/* Whether the next job of a strict order can start now: it is the next one on all members of its team, which are idle.
 */
static bool turn_of(const struct state *state, int32_t j) {
    const struct spec *sp = state->sp;
    int32_t with = partner_of(sp, j), first = gang_of(sp, j);
    int forwards = (sp->job[j].d == OP_F) + (with >= 0 && sp->job[with].d == OP_F), size = job_size(state, j);
    if (!state->ready[j] || (with >= 0 && !state->ready[with]) || !has_room(state, j, forwards))
        return false;
    for (int i = 0; i < size && size > 1; i++) {
        int32_t k = gang_job(sp, first, i);
        int rank = sp->job[k].rank;
        if (state->busy[rank] || state->seq[state->seq_next[rank]] != k)
            return false;
    }
    return true;
}

/* The best job that the rank could start now, and where it is from; -1: none. */
struct choice {
    int32_t j;
    struct ready *from; /* NULL: from its sequence */
};
static struct choice choose_job(const struct state *state, int rank) {
    struct ready *f = &state->fwd[rank], *r = &state->rest[rank];
    const struct choice none = {-1, NULL}, other = {r->n > 0 ? state->by_pos[r->a[0]] : -1, r};
    if (r->n > 0 && state->sp->job[other.j].prio == -INFINITY) /* an update that n says nothing of */
        return other;
    int32_t next = state->sp->strict ? state->seq_next[rank] : 0;
    if (state->sp->strict && next < state->seq_at[rank + 1] && turn_of(state, state->seq[next]))
        return (struct choice){state->seq[next], NULL};
    int32_t forward = f->n > 0 ? state->by_pos[f->a[0]] : -1;
    if (forward >= 0 && has_room(state, forward, 1) && (r->n == 0 || f->a[0] < r->a[0]))
        return (struct choice){forward, f};
    return r->n > 0 ? other : none;
}

/* from: where another member of the team had it from. */
static void take_value(struct state *state, int32_t j, const struct ready *from) {
    int rank = state->sp->job[j].rank;
    if (!from)
        state->seq_next[rank] += partner_of(state->sp, j) >= 0 ? 2 : 1;
    else
        ready_pop(state->sp->job[j].d == OP_F ? &state->fwd[rank] : &state->rest[rank]);
}

/* The members of its team are idle, and it is the best of all. */
static bool all_choose(const struct state *state, int32_t j) {
    const struct spec *sp = state->sp;
    int size = job_size(state, j);
    int32_t first = size > 1 ? gang_of(sp, j) : j;
    for (int i = 0; i < size && size > 1; i++) {
        int32_t k = gang_job(sp, first, i);
        if (state->busy[sp->job[k].rank] || choose_job(state, sp->job[k].rank).j != k)
            return false;
    }
    return true;
}

static int ascending(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

static void begin_job(struct state *state, int32_t j, double t) {
    struct sched *sc = state->sc;
    int rank = state->sp->job[j].rank;
    state->busy[rank] = true;
    if (state->sp->job[j].d == OP_F)
        use_room(state, rank);
    sc->start[j] = t;
    sc->end[j] = t + on_grain(state->sp, job_time(state->sp, j));
    sc->moment[sc->nmoments++] = j;
    sc->nstarts++;
    sc->order[rank][sc->norder[rank]++] = j;
    events_push(&state->events, (struct event){sc->end[j], j});
}

/* A team waits until it is the turn of its job on all members. */
static void start_best(struct state *state, int rank, double t) {
    const struct spec *sp = state->sp;
    struct choice best = choose_job(state, rank);
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

/* By the rank of the team's first member; of one team, by place; of a pair, as in the sequence. A rank has started no
 * more than that. */
static int by_first_rank(const void *x, const void *y) {
    int32_t i = *(const int32_t *)x, j = *(const int32_t *)y;
    const struct job *a = &sorting->job[i], *b = &sorting->job[j];
    int rank = sorting->job[gang_of(sorting, i)].rank, other = sorting->job[gang_of(sorting, j)].rank;
    if (rank != other)
        return rank < other ? -1 : 1;
    if (a->rank != b->rank)
        return sorting->names.member[a->s].place < sorting->names.member[b->s].place ? -1 : 1;
    return i == j ? 0 : partner_of(sorting, i) == j ? -1 : 1;
}

/* What one rank starts may use up the room that another's team waits for. What starts in one instant does not depend on
 * the order in which ranks are asked: a job is started only where nothing else can start on any of its ranks. */
static void start_idle(struct state *state, double t) {
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

/* What each blocked job waits for, as a graph: its predecessors; the job before it in a strict order; or room on its
 * rank, a node of its own (n + rank), which waits for the last backwards of all live activations. */
struct blocked {
    int32_t *at, *to;
    size_t n, cap;
};

static void note_wait(struct blocked *blocked, int32_t node) {
    GROW(blocked->to, blocked->cap, blocked->n + 1);
    blocked->to[blocked->n++] = node;
}

/* An update waits for the one before it, and for backwards, of a shared set by all members. */
static void waits_of_update(struct state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct spec *sp = state->sp;
    const struct job *job = &sp->job[j];
    int32_t before = j - sp->costs.homes[job->s].lists;
    bool shared = job->s >= sp->stages;
    int from = shared ? sp->names.first[sp->names.member[job->s].stage] : job->s,
        size = shared ? sp->names.member[from].size : 1;
    if (job->b > 0 && !ended[before])
        note_wait(blocked, before);
    for (int b = 0; b < sp->updates.every[job->s]; b++)
        for (int s = from; s < from + size; s++) {
            int32_t back = last_backward(sp, s, job->b * sp->updates.every[job->s] + b);
            if (!ended[back])
                note_wait(blocked, back);
        }
}

/* A job may wait for the updates that make its version. */
static void waits_of_version(struct state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct spec *sp = state->sp;
    const struct job *job = &sp->job[j];
    for (int n = 0; n < VERSIONED && job->d != OP_U; n++) {
        int32_t update = versions_awaited(&state->versions, j, n);
        if (update >= 0 && !ended[update])
            note_wait(blocked, update);
    }
    if (job->d == OP_U)
        waits_of_update(state, ended, j, blocked);
}

/* What holds up a job that is ready, and first in a strict order: room on its rank; another job, which its rank takes
 * first; or the same on another member of its team. */
static int32_t obstacle(const struct state *state, int32_t j) {
    const struct spec *sp = state->sp;
    const struct job *job = &sp->job[j];
    int32_t with = partner_of(sp, j);
    int forwards = (job->d == OP_F) + (with >= 0 && sp->job[with].d == OP_F), size = job_size(state, j);
    if (!state->absent || forwards > sp->limits.cap[job->rank] - state->live[job->rank])
        return all_jobs(sp) + job->rank;
    const struct ready *f = &state->fwd[job->rank];
    bool ordered = sp->strict && !job->fill;
    int32_t chosen = choose_job(state, job->rank).j, forward = f->n > 0 ? state->by_pos[f->a[0]] : j;
    if (!ordered && chosen >= 0 && chosen != j)
        return chosen;
    if (!ordered && job->d == OP_F && forward != j)
        return forward;
    int32_t other = j;
    for (int i = 0; i < size; i++) {
        int32_t k = gang_job(sp, gang_of(sp, j), i);
        int rank = sp->job[k].rank;
        if (forwards > sp->limits.cap[rank] - state->live[rank])
            return k;
        other = !ordered && choose_job(state, rank).j != k ? k : other;
    }
    return other;
}

static void waits_of_job(struct state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct job *job = &state->sp->job[j];
    size_t before = blocked->n;
    if (state->sp->updates.every)
        waits_of_version(state, ended, j, blocked);
    for (int32_t e = job->d == OP_U ? 0 : state->g->pred_at[j]; job->d != OP_U && e < state->g->pred_at[j + 1]; e++)
        if (!ended[state->g->pred[e]])
            note_wait(blocked, state->g->pred[e]);
    int32_t first = state->sp->strict && !job->fill ? state->seq[state->seq_next[job->rank]] : j,
            with = partner_of(state->sp, first);
    if (first == j && with >= 0 && !state->ready[with])
        note_wait(blocked, with);
    if (first != j && (with != j || blocked->n == before))
        note_wait(blocked, first);
    int size = job_size(state, j);
    for (int i = 0; i < size && size > 1 && blocked->n == before; i++) { /* not ready, or not its turn */
        int32_t k = gang_job(state->sp, gang_of(state->sp, j), i);
        int rank = state->sp->job[k].rank;
        if (state->missing[k] > 0 || (state->sp->strict && !job->fill && state->seq[state->seq_next[rank]] != k))
            note_wait(blocked, k);
    }
    if (blocked->n == before)
        note_wait(blocked, obstacle(state, j));
}

static struct blocked find_blocked(struct state *state) {
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
            note_wait(&blocked, j);
        blocked.at[n + r + 1] = (int32_t)blocked.n;
    }
    return blocked;
}

/* Two forwards at once can never start where there is room for one. */
static void die_of_pairs(const struct state *state) {
    const struct spec *sp = state->sp;
    for (int i = 0; i < sp->npairs; i++) {
        const struct job *a = &sp->job[sp->pair[i].first], *b = &sp->job[sp->pair[i].second];
        if (a->d == OP_F && b->d == OP_F && sp->limits.cap[a->rank] < 2)
            die("%s: deadlock: %d of %d jobs can never start; raise the cap, because\n  %s waits for room on rank %d, "
                "whose cap is 1, for %s, too, to overlap with it",
                sp->file, all_jobs(sp) - state->sc->nstarts, all_jobs(sp), job_name(&sp->names, a->s, a->b, a->d),
                a->rank, job_name(&sp->names, b->s, b->b, b->d));
    }
}

static void die_deadlocked(struct state *state) {
    const struct spec *sp = state->sp;
    die_of_pairs(state);
    struct blocked blocked = find_blocked(state);
    int len, n = all_jobs(sp);
    int32_t *cycle = shortest_cycle(n + sp->workers, blocked.at, blocked.to, &len);
    struct text t = {0};
    for (int i = 0, shown = 0; i < len && shown < 12; i++) {
        int32_t from = cycle[i], to = cycle[(i + 1) % len];
        if (from >= n)
            continue;
        const struct job *a = &sp->job[from], *b = &sp->job[to < n ? to : cycle[(i + 2) % len]];
        const char *name = job_name(&sp->names, a->s, a->b, a->d), *other = job_name(&sp->names, b->s, b->b, b->d);
        if (to >= n)
            put(&t, "\n  %s waits for room on rank %d, whose cap of %d is full until %s", name, a->rank,
                sp->limits.cap[a->rank], other);
        else if (a->b == b->b && a->d == b->d && gang_of(sp, from) == gang_of(sp, to))
            put(&t, "\n  %s waits for %s, to start with it", name, other);
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

static struct state prepare_state(const struct compile *c, struct sched *sc) {
    const struct spec *sp = c->spec;
    int n = all_jobs(sp), W = sp->workers;
    struct state state = {.c = c, .sp = sp, .g = c->graph, .sc = sc};
    state.pos = NEW(int32_t, n);
    state.by_pos = NEW(int32_t, n);
    int *nfwd = NEW(int, W), *nseq = NEW(int, W), *all_at = NEW(int, W + 2);
    for (int j = 0; j < n; j++) {
        const struct job *job = &sp->job[j];
        nfwd[job->rank] += job->d == OP_F;
        nseq[job->rank] += !job->fill;
        all_at[job->rank + 2]++;
    }
    for (int r = 0; r < W; r++)
        all_at[r + 2] += all_at[r + 1];
    for (int j = 0; j < n; j++)
        state.by_pos[all_at[sp->job[j].rank + 1]++] = j;
    sorting = sp;
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
        if (!sp->job[state.by_pos[i]].fill)
            state.seq[state.seq_next[sp->job[state.by_pos[i]].rank]++] = state.by_pos[i];
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
    sc->version = sp->updates.every ? NEW(int32_t, sp->njobs) : NULL;
    struct scratch scratch = scratch_begin();
    struct state state = prepare_state(c, sc);
    for (int j = 0; j < sp->njobs; j++)
        state.missing[j] = graph->pred_at[j + 1] - graph->pred_at[j];
    if (sp->updates.every)
        state.versions = versions_begin(sp, c->stage, sc->version, state.missing, state.ready_at);
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
