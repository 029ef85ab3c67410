/* Explains a deadlock of a schedule: the shortest cycle of jobs that wait for each other. */
#include "base/cycle.h"
#include "sched_state.h"
#include <string.h>

/* The waits of blocked jobs, as a graph. A job waits for its predecessors, the job before it in a strict order, or room
 * on its rank. Room is a node of its own (n + rank), which waits for the last backwards of all live activations. */
struct blocked {
    int32_t *at, *to;
    size_t n, cap;
};

static void note_wait(struct blocked *blocked, int32_t node) {
    GROW(blocked->to, blocked->cap, blocked->n + 1);
    blocked->to[blocked->n++] = node;
}

/* Notes the wait for a job unless it has ended. ended NULL: none has. */
static void note_unended(struct blocked *blocked, const bool *ended, int32_t j) {
    if (!ended || !ended[j])
        note_wait(blocked, j);
}

/* Notes the waits of an update: for the update before it, and for backwards; an update of a shared set waits for all
 * members' backwards. */
static void waits_of_update(struct sched_state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct spec *sp = state->sp;
    const struct job *job = &state->c->costs->job[j];
    int32_t before = j - state->c->costs->homes[job->s].lists;
    bool shared = job->s >= sp->stages;
    int from = shared ? sp->names.first[sp->names.member[job->s].stage] : job->s,
        size = shared ? sp->names.member[from].size : 1;
    if (job->b > 0)
        note_unended(blocked, ended, before);
    for (int b = 0; b < sp->updates.every[job->s]; b++)
        for (int s = from; s < from + size; s++)
            note_unended(blocked, ended, last_backward(sp, s, job->b * sp->updates.every[job->s] + b));
}

/* Notes the waits for the updates that make a job's version. */
static void waits_of_version(struct sched_state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct job *job = &state->c->costs->job[j];
    for (int n = 0; n < VERSIONED && job->d != OP_U; n++) {
        int32_t update = versions_awaited(&state->versions, j, n);
        if (update >= 0)
            note_unended(blocked, ended, update);
    }
    if (job->d == OP_U)
        waits_of_update(state, ended, j, blocked);
}

/* Returns the obstacle of a job that is ready, and first in a strict order: room on its rank; another job, which its
 * rank prefers; or such an obstacle on another member of its team. */
static int32_t obstacle(const struct sched_state *state, int32_t j) {
    const struct spec *sp = state->sp;
    const struct job *job = &state->c->costs->job[j];
    int32_t with = partner_of(sp, j);
    int forwards = (job->d == OP_F) + (with >= 0 && state->c->costs->job[with].d == OP_F), size = job_size(state, j);
    if (!state->absent || forwards > sp->limits.cap[job->rank] - state->live[job->rank])
        return state->c->costs->njobs + job->rank;
    const struct ready *f = &state->fwd[job->rank];
    bool ordered = sp->strict && !job->fill;
    int32_t chosen = sched_choose(state, job->rank).j, forward = f->n > 0 ? state->by_pos[f->a[0]] : j;
    if (!ordered && chosen >= 0 && chosen != j)
        return chosen;
    if (!ordered && job->d == OP_F && forward != j)
        return forward;
    int32_t other = j;
    for (int i = 0; i < size; i++) {
        int32_t k = gang_job(sp, gang_of(sp, j), i);
        int rank = state->c->costs->job[k].rank;
        if (forwards > sp->limits.cap[rank] - state->live[rank])
            return k;
        other = !ordered && sched_choose(state, rank).j != k ? k : other;
    }
    return other;
}

static void waits_of_job(struct sched_state *state, const bool *ended, int32_t j, struct blocked *blocked) {
    const struct job *job = &state->c->costs->job[j];
    size_t before = blocked->n;
    if (state->sp->updates.every)
        waits_of_version(state, ended, j, blocked);
    for (int32_t e = job->d == OP_U ? 0 : state->c->graph->pred_at[j];
         job->d != OP_U && e < state->c->graph->pred_at[j + 1]; e++)
        note_unended(blocked, ended, state->c->graph->pred[e]);
    int32_t first = state->sp->strict && !job->fill ? state->seq[state->seq_next[job->rank]] : j,
            with = partner_of(state->sp, first);
    if (first == j && with >= 0 && !state->ready[with])
        note_wait(blocked, with);
    if (first != j && (with != j || blocked->n == before))
        note_wait(blocked, first);
    int size = job_size(state, j);
    for (int i = 0; i < size && size > 1 && blocked->n == before; i++) { /* not ready, or not its turn */
        int32_t k = gang_job(state->sp, gang_of(state->sp, j), i);
        int rank = state->c->costs->job[k].rank;
        if (state->missing[k] > 0 || (state->sp->strict && !job->fill && state->seq[state->seq_next[rank]] != k))
            note_wait(blocked, k);
    }
    if (blocked->n == before)
        note_wait(blocked, obstacle(state, j));
}

static struct blocked find_blocked(struct sched_state *state) {
    const struct spec *sp = state->sp;
    int n = state->c->costs->njobs;
    bool *started = NEW(bool, n), *ended = NEW(bool, n);
    int32_t *next = NEW(int32_t, n), *head = NEW(int32_t, sp->workers); /* per rank: jobs that hold room */
    memset(head, -1, sizeof *head * (size_t)sp->workers);
    for (int i = 0; i < state->sc->nmoments; i++) {
        int32_t m = state->sc->moment[i];
        *(m >= 0 ? &started[m] : &ended[~m]) = true;
    }
    for (int i = 0; i < state->sc->nmoments; i++) {
        const struct job *f = state->sc->moment[i] < 0 ? &state->c->costs->job[~state->sc->moment[i]] : NULL;
        int32_t back = f && f->d == OP_F ? last_backward(sp, f->s, f->b) : -1;
        if (back >= 0 && !ended[back]) {
            next[back] = head[state->c->costs->job[back].rank];
            head[state->c->costs->job[back].rank] = back;
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

/* Dies if two forwards of a pair need room for two on a rank with room for one. */
static void die_of_pairs(const struct sched_state *state) {
    const struct spec *sp = state->sp;
    for (int i = 0; i < sp->npairs; i++) {
        const struct job *a = &state->c->costs->job[sp->pair[i].first], *b = &state->c->costs->job[sp->pair[i].second];
        if (a->d == OP_F && b->d == OP_F && sp->limits.cap[a->rank] < 2)
            die("%s: deadlock: %d of %d jobs can never start; raise the cap, because\n  %s waits for room on rank %d, "
                "whose cap is 1, for %s, too, to overlap with it",
                sp->file, state->c->costs->njobs - state->sc->nstarts, state->c->costs->njobs,
                job_name(&sp->names, a->s, a->b, a->d), a->rank, job_name(&sp->names, b->s, b->b, b->d));
    }
}

/* Reasons why a job of the cycle waits. */
enum wait { WAIT_ROOM, WAIT_ORDER, WAIT_TEAM, WAIT_PAIR, WAIT_VERSION, WAIT_INPUT, NWAITS };

/* Returns whether job `from` waits for `to` because of weights: one of them is an update. */
static bool waits_for_weights(struct sched_state *state, int32_t from, int32_t to) {
    struct blocked blocked = {0};
    if (state->sp->updates.every)
        waits_of_version(state, NULL, from, &blocked);
    for (size_t i = 0; i < blocked.n; i++)
        if (blocked.to[i] == to)
            return true;
    return false;
}

/* Returns why job `from` waits for job `to`. */
static enum wait wait_between(struct sched_state *state, int32_t from, int32_t to) {
    const struct spec *sp = state->sp;
    const struct job *a = &state->c->costs->job[from], *b = &state->c->costs->job[to];
    bool jobs = from < sp->njobs && to < sp->njobs;
    if (jobs && a->b == b->b && a->d == b->d && gang_of(sp, from) == gang_of(sp, to))
        return WAIT_TEAM;
    if (jobs && has_edge(state->c->graph, from, to))
        return WAIT_INPUT;
    if (a->pair && a->pair == b->pair)
        return WAIT_PAIR;
    return waits_for_weights(state, from, to) ? WAIT_VERSION : WAIT_ORDER;
}

static void put_wait_of_job(struct text *t, const struct sched_state *state, enum wait wait, int32_t from, int32_t to) {
    const struct names *names = &state->sp->names;
    const struct job *a = &state->c->costs->job[from], *b = &state->c->costs->job[to];
    put(t, "\n  %s waits for ", job_name(names, a->s, a->b, a->d));
    if (wait == WAIT_ROOM)
        put(t, "room on rank %d, whose cap of %d is full until ", a->rank, state->sp->limits.cap[a->rank]);
    put(t, "%s", job_name(names, b->s, b->b, b->d));
    if (wait == WAIT_TEAM)
        put(t, ", to start with it");
    if (wait == WAIT_PAIR)
        put(t, ", to overlap with it");
    if (wait == WAIT_ORDER)
        put(t, ", which comes before it in the order of rank %d", a->rank);
}

/* Returns what would break the cycle, from the kinds of its waits. */
static const char *way_out(const bool found[NWAITS]) {
    struct text t = {0};
    put(&t, "%s", found[WAIT_ROOM] ? "raise the cap" : "");
    if (found[WAIT_ORDER] || found[WAIT_TEAM])
        put(&t, "%schange the order", t.n ? " or " : "");
    if (found[WAIT_PAIR])
        put(&t, "%soverlap other jobs", t.n ? " or " : "");
    if (!t.n)
        put(&t, found[WAIT_VERSION] ? "let jobs read older weights (version)" : "change w or pred");
    return t.s;
}

_Noreturn void sched_deadlock(struct sched_state *state) {
    die_of_pairs(state);
    struct blocked blocked = find_blocked(state);
    int len, n = state->c->costs->njobs;
    int32_t *cycle = shortest_cycle(n + state->sp->workers, blocked.at, blocked.to, &len);
    bool found[NWAITS] = {0};
    struct text t = {0};
    for (int i = 0, shown = 0; i < len; i++) {
        int32_t from = cycle[i], to = cycle[(i + 1) % len];
        if (from >= n)
            continue;
        enum wait wait = to >= n ? WAIT_ROOM : wait_between(state, from, to);
        found[wait] = true;
        if (shown++ < 12)
            put_wait_of_job(&t, state, wait, from, to < n ? to : cycle[(i + 2) % len]);
    }
    if (len > 12)
        put(&t, "\n  ... and more");
    die("%s: deadlock: %d of %d jobs can never start; %s, because%s", state->sp->file, n - state->sc->nstarts, n,
        way_out(found), t.s);
}
