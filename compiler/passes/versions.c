/* Versions of weights. Version k of a set is the result of its first k updates, on any of its homes. */
#include "versions.h"
#include <math.h>
#include <string.h>

/* Returns the home that job j takes a set from, as a place in the set's homes: its own rank, or the one that w()
 * named. */
static int source_place(const struct costs *costs, const struct job *job, int set) {
    const struct homes *homes = &costs->homes[set];
    int own = place_in(homes, job->rank);
    return own >= 0 ? own : place_in(homes, job->home);
}

/* Returns the time in which the set travels from its home to j's rank. */
static double travel_time(const struct versions *v, int32_t j, int set) {
    const struct job *job = &v->costs->job[j];
    int home = v->costs->homes[set].rank[source_place(v->costs, job, set)];
    return on_grain(v->costs, link_time(v->sp, home, job->rank, (double)v->costs->stage[set].bytes[K_weight]));
}

int32_t versions_awaited(const struct versions *v, int32_t j, int n) {
    const struct job *job = &v->costs->job[j];
    int set = versioned_set(v->costs, job->s, n);
    return set >= 0 && v->version[j] > 0 ? update_at(v->costs, set, v->version[j] - 1, source_place(v->costs, job, set))
                                         : -1;
}

/* Makes job j read this version, and wait for its arrival. */
static void bind(struct versions *v, int32_t j, int32_t version) {
    v->version[j] = version;
    for (int n = 0; n < VERSIONED; n++) {
        int32_t update = versions_awaited(v, j, n) - v->sp->njobs, entry = j * VERSIONED + n;
        if (update < 0)
            continue;
        if (!isnan(v->ended[update])) {
            double travel = travel_time(v, j, versioned_set(v->costs, v->costs->job[j].s, n));
            v->ready_at[j] = fmax(v->ready_at[j], v->ended[update] + travel);
            continue;
        }
        v->missing[j]++;
        v->next[entry] = v->waiting[update];
        v->waiting[update] = entry;
    }
}

/* Counts what updates wait for: the update before, and their microbatches' last backwards; for a shared set, all
 * members'. */
static void count_awaited(struct versions *v) {
    const struct spec *sp = v->sp;
    int32_t *stages = NEW(int32_t, sp->stages + sp->names.sets); /* per set: number of stages that add to its
                                                                  * gradient */
    for (int s = 0; s < sp->stages; s++)
        for (int n = 0; n < VERSIONED; n++)
            if (versioned_set(v->costs, s, n) >= 0)
                stages[versioned_set(v->costs, s, n)]++;
    for (int32_t j = sp->njobs; j < v->costs->njobs; j++) {
        v->ended[j - sp->njobs] = NAN;
        v->missing[j] = sp->updates.every[v->costs->job[j].s] * stages[v->costs->job[j].s] + (v->costs->job[j].b > 0);
    }
}

struct versions versions_begin(const struct costs *costs, int32_t *version, int32_t *missing, double *ready_at) {
    const struct spec *sp = costs->spec;
    struct versions all = {.sp = sp, .costs = costs, .version = version, .missing = missing, .ready_at = ready_at},
                    *v = &all;
    int sets = sp->stages + sp->names.sets, updates = costs->njobs - sp->njobs;
    v->at = NEW(int32_t, sets + 1);
    for (int s = 0; s < sets; s++)
        v->at[s + 1] = v->at[s] + costs->homes[s].lists;
    v->newest = NEW(int32_t, v->at[sets]);
    v->ended = NEW(double, updates);
    v->waiting = NEW(int32_t, updates);
    v->next = NEW(int32_t, VERSIONED * (int64_t)sp->njobs);
    memset(v->version, -1, sizeof *v->version * (size_t)sp->njobs);
    memset(v->waiting, -1, sizeof *v->waiting * (size_t)updates);
    memset(v->next, -1, sizeof *v->next * VERSIONED * (size_t)sp->njobs);
    count_awaited(v);
    for (int32_t j = 0; j < sp->njobs; j++) {
        int32_t back = sp->updates.reads[j], synchronous = costs->job[j].b / sp->updates.every[costs->job[j].s];
        if (back >= 0 && costs->job[j].d != OP_W && has_version(costs, costs->job[j].s))
            bind(v, j, synchronous > back ? synchronous - back : 0);
    }
    return all;
}

/* Returns the newest version of a set that a job starting at t can read; on a rank other than the home, the newest that
 * has arrived. */
static int32_t latest_of(const struct versions *v, int32_t j, int set, double t) {
    const struct spec *sp = v->sp;
    int place = source_place(v->costs, &v->costs->job[j], set);
    int32_t newest = v->newest[v->at[set] + place];
    double travel = travel_time(v, j, set);
    while (newest > 0 && v->ended[update_at(v->costs, set, newest - 1, place) - sp->njobs] + travel > t)
        newest--;
    return newest;
}

/* Returns the newest version that every member of the team has, of all sets that they read. */
static int32_t latest(const struct versions *v, int32_t first, double t) {
    const struct spec *sp = v->sp;
    int32_t all = INT32_MAX;
    for (int i = 0; i < team_size(sp, v->costs->job[first].s); i++)
        for (int n = 0; n < VERSIONED; n++) {
            int32_t j = gang_job(sp, first, i);
            int set = versioned_set(v->costs, v->costs->job[j].s, n);
            int32_t newest = set >= 0 ? latest_of(v, j, set, t) : INT32_MAX;
            all = newest < all ? newest : all;
        }
    return all;
}

static void die_too_early(const struct spec *sp, int32_t j, const struct job *forward) {
    const struct job *job = &sp->job[j];
    die("%s: %s could start before %s, whose version of the weights it must read: let pred() return that job, too",
        sp->file, job_name(&sp->names, job->s, job->b, job->d), job_name(&sp->names, forward->s, forward->b, OP_F));
}

/* Makes all jobs of (s,b) with this rule read this version, unless they start together with the forward that determines
 * it. */
static void bind_all(struct versions *v, int s, int b, int rule, int32_t version, int32_t forward) {
    for (int d = OP_F; d <= OP_B; d++) {
        int32_t other = job_at(v->sp, s, b, d);
        if (other < 0 || gang_of(v->sp, other) == forward || v->sp->updates.reads[other] != rule ||
            !has_version(v->costs, s))
            continue;
        if (v->missing[other] == 0)
            die_too_early(v->sp, other, &v->costs->job[forward]);
        bind(v, other, version);
    }
}

void versions_read(struct versions *v, int32_t j, double t) {
    const struct spec *sp = v->sp;
    const struct job *job = &v->costs->job[j];
    if (job->d == OP_U || job->d == OP_W || !has_version(v->costs, job->s))
        return;
    bool forward = job->d == OP_F, input = forward && job->s == 0;
    int rule = sp->updates.reads[j], size = team_size(sp, job->s);
    if (rule == READ_LATEST || (forward && rule == READ_FORWARD) || (input && rule == READ_INPUT))
        v->version[j] = latest(v, j, t);
    if (v->version[j] < 0)
        die_too_early(sp, j, &v->costs->job[job_at(sp, rule == READ_INPUT ? 0 : job->s, job->b, OP_F)]);
    for (int i = 0; i < size; i++) {
        v->version[gang_job(sp, j, i)] = v->version[j];
        if (forward)
            bind_all(v, job->s + i, job->b, READ_FORWARD, v->version[j], j);
    }
    for (int s = 0; input && s < sp->stages; s++)
        bind_all(v, s, job->b, READ_INPUT,
                 (int32_t)((int64_t)v->version[j] * sp->updates.every[0] / sp->updates.every[s]), j);
}

int32_t versions_update(struct versions *v, int32_t j, double t) {
    const struct spec *sp = v->sp;
    const struct job *job = &v->costs->job[j];
    v->ended[j - sp->njobs] = t;
    v->newest[v->at[job->s] + (j - v->costs->update_at[job->s]) % v->costs->homes[job->s].lists] = job->b + 1;
    return v->waiting[j - sp->njobs];
}
