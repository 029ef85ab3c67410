/* Teams: each member gets a stage of its own.
 *
 * A script names the ranks that compute a job together, or asks for every rank to become a team. Later passes see only
 * single-rank jobs: a stage that t ranks compute becomes t stages, one for each place in the team, each with its
 * place's part of the weights. names.member says which stage and place each is. Jobs of one (s,b,d) are separate from
 * now on, but start and end together (sched.c). */
#include "spec.h"
#include <string.h>

void name_sets(struct names *names, int stages, bool tied, bool shared) {
    const struct member *old = names->member;
    int n = stages, teams = 0;
    names->tables = !tied ? 0 : old && old[0].place >= 0 ? old[0].size : 1;
    for (int s = 0; old && shared && s < stages; s++)
        teams += old[s].place == 0;
    names->sets = names->tables + teams;
    names->shared = NULL;
    if (!old)
        return;
    struct member *member = NEW(struct member, stages + names->sets);
    int32_t *set = NEW(int32_t, stages);
    memcpy(member, old, sizeof *member * (size_t)stages);
    for (int i = 0; i < names->tables; i++)
        member[n++] = (struct member){names->stages, names->tables > 1 ? i : -1, names->tables};
    for (int s = 0; s < stages; s++) {
        bool first = old[s].place == 0 && shared;
        if (first)
            member[n] = (struct member){old[s].stage, -1, 1};
        set[s] = first ? n++ : old[s].place > 0 && shared ? set[s - 1] : -1;
    }
    names->member = member;
    names->shared = shared ? set : NULL;
}

struct expansion {
    struct spec *sp;
    struct spec before;
    int factor; /* number of ranks that each rank becomes */
    /* Per stage of the script: its first member stage; its number of jobs; the first of them; and the first member's
     * first job. */
    int32_t *first, *jobs, *from, *to;
    int32_t *rank; /* scratch space for a list of ranks */
};

static int slice_count(const struct expansion *all, const struct job *j) {
    return home_of(&all->before, &j->team).n * all->factor;
}

int team_size(const struct spec *sp, int s) {
    const struct member *member = sp->names.member ? &sp->names.member[s] : NULL;
    return member && member->place >= 0 ? member->size : 1;
}

/* Returns the job of the member at `place` of a team. If j's team is smaller, places wrap around. */
static int32_t member_job(const struct expansion *all, int32_t j, int place) {
    const struct job *job = &all->before.job[j];
    return all->to[job->s] + place % slice_count(all, job) * all->jobs[job->s] + (j - all->from[job->s]);
}

/* Returns the home of the weights of the member at a place of `size`. The list's ranks hold the stage's weights evenly,
 * one member's part after the other. */
static int32_t home_of_member(const struct expansion *all, const int32_t *home, int place, int size) {
    if (*home < 0)
        return -1;
    struct home list = home_of(&all->before, home);
    int named = size / all->factor, at = place / all->factor, among = place % all->factor;
    int from = at * list.n / named, n = list.n >= named ? list.n / named : 1;
    for (int i = 0; i < n; i++)
        all->rank[i] = list.rank[from + i] * all->factor + among;
    return keep_list(all->sp, all->rank, n);
}

static void expand_stages(struct expansion *all) {
    struct spec *sp = all->sp;
    const struct spec *before = &all->before;
    all->first = NEW(int32_t, before->stages + 1);
    all->jobs = NEW(int32_t, before->stages);
    all->from = NEW(int32_t, before->stages);
    all->to = NEW(int32_t, before->stages);
    for (int j = 0; j < before->njobs; j++) {
        const struct job *job = &before->job[j];
        all->first[job->s + 1] = slice_count(all, job);
        all->from[job->s] = all->jobs[job->s]++ ? all->from[job->s] : j;
    }
    for (int s = 0; s < before->stages; s++)
        all->first[s + 1] += all->first[s];
    sp->stages = all->first[before->stages];
    struct member *member = NEW(struct member, sp->stages);
    for (int s = 0; s < before->stages; s++)
        for (int32_t v = all->first[s], n = all->first[s + 1] - v; v < all->first[s + 1]; v++)
            member[v] = (struct member){s, n > 1 ? v - all->first[s] : -1, n};
    sp->names.member = member;
    sp->names.stages = before->stages;
    sp->names.first = all->first;
}

static void expand_jobs(struct expansion *all) {
    struct spec *sp = all->sp;
    const struct spec *before = &all->before;
    sp->njobs = 0;
    for (int s = 0; s < before->stages; s++) {
        all->to[s] = sp->njobs;
        sp->njobs += (all->first[s + 1] - all->first[s]) * all->jobs[s];
    }
    sp->job = NEW(struct job, sp->njobs);
    sp->at = NEW(int32_t, (int64_t)sp->stages * sp->batches * NDIRS);
    memset(sp->at, -1, sizeof *sp->at * (size_t)sp->stages * (size_t)sp->batches * NDIRS);
    for (int j = 0; j < before->njobs; j++) {
        const struct job *job = &before->job[j];
        struct home team = home_of(before, &job->team);
        for (int i = 0, size = slice_count(all, job); i < size; i++) {
            int32_t k = member_job(all, j, i);
            sp->job[k] = *job;
            sp->job[k].s = all->first[job->s] + i;
            sp->job[k].rank = team.rank[i / all->factor] * all->factor + i % all->factor;
            sp->job[k].home = home_of_member(all, &job->home, i, size);
            sp->job[k].team = sp->job[k].rank;
            sp->at[((int64_t)sp->job[k].s * sp->batches + job->b) * NDIRS + job->d] = k;
        }
    }
}

static void expand_pairs(struct expansion *all) {
    struct spec *sp = all->sp;
    const struct spec *before = &all->before;
    sp->npairs = 0;
    for (int i = 0; i < before->npairs; i++)
        sp->npairs += slice_count(all, &before->job[before->pair[i].first]);
    sp->pair = NEW(struct pair, sp->npairs);
    for (int i = 0, n = 0; i < before->npairs; i++)
        for (int m = 0; m < slice_count(all, &before->job[before->pair[i].first]); m++, n++) {
            sp->pair[n] = (struct pair){.first = member_job(all, before->pair[i].first, m),
                                        .second = member_job(all, before->pair[i].second, m)};
            sp->job[sp->pair[n].first].pair = sp->job[sp->pair[n].second].pair = n + 1;
        }
}

static void expand_preds(struct expansion *all) {
    struct spec *sp = all->sp;
    const struct spec *before = &all->before;
    if (!before->pred)
        return;
    int64_t n = 0;
    for (int j = 0; j < before->njobs; j++)
        n += (int64_t)(before->pred_at[j + 1] - before->pred_at[j]) * slice_count(all, &before->job[j]);
    if (n > INT32_MAX)
        die("%s: its jobs have more than 2^31 dependencies; use fewer microbatches", sp->file);
    sp->pred = NEW(int32_t, n + 1);
    sp->pred_at = NEW(int32_t, sp->njobs + 1);
    for (int j = 0; j < before->njobs; j++)
        for (int i = 0; i < slice_count(all, &before->job[j]); i++)
            sp->pred_at[member_job(all, j, i) + 1] = before->pred_at[j + 1] - before->pred_at[j];
    for (int j = 0; j < sp->njobs; j++)
        sp->pred_at[j + 1] += sp->pred_at[j];
    for (int j = 0; j < before->njobs; j++)
        for (int i = 0; i < slice_count(all, &before->job[j]); i++)
            for (int32_t e = before->pred_at[j], to = sp->pred_at[member_job(all, j, i)]; e < before->pred_at[j + 1];)
                sp->pred[to++] = member_job(all, before->pred[e++], i);
}

static void expand_sources(struct expansion *all) {
    struct spec *sp = all->sp;
    const struct spec *before = &all->before;
    if (!before->owners.source)
        return;
    sp->owners.source = NEW(int32_t, sp->njobs);
    for (int j = 0; j < before->njobs; j++)
        for (int i = 0; i < slice_count(all, &before->job[j]); i++)
            sp->owners.source[member_job(all, j, i)] =
                before->owners.source[j] < 0 ? -1 : before->owners.source[j] * all->factor + i % all->factor;
}

/* Returns the table expanded to the new ranks: each has the value of the rank that it came from. */
static int *expand_ranks(const struct expansion *all, const int *of_rank) {
    int *of = of_rank ? NEW(int, all->sp->workers) : NULL;
    for (int r = 0; of && r < all->sp->workers; r++)
        of[r] = of_rank[r / all->factor];
    return of;
}

/* Copies updates and versions to the members. They compute jobs together, so they update alike and read one version. */
static void expand_versions(struct expansion *all) {
    struct spec *sp = all->sp;
    const struct spec *before = &all->before;
    if (!before->updates.every)
        return;
    sp->updates.every = NEW(int, sp->stages);
    for (int v = 0; v < sp->stages; v++)
        sp->updates.every[v] = before->updates.every[sp->names.member[v].stage];
    sp->updates.reads = NEW(int32_t, sp->njobs);
    for (int j = 0; j < before->njobs; j++)
        for (int i = 0; i < slice_count(all, &before->job[j]); i++)
            sp->updates.reads[member_job(all, j, i)] = before->updates.reads[j];
}

static void expand_tables(struct expansion *all) {
    struct spec *sp = all->sp;
    const struct spec *before = &all->before;
    size_t batches = (size_t)sp->batches;
    sp->owners.zero = before->owners.zero ? NEW(uint8_t, sp->stages) : NULL;
    sp->limits.bucket = before->limits.bucket ? NEW(int64_t, sp->stages) : NULL;
    sp->limits.offload_state = before->limits.offload_state ? NEW(bool, sp->stages) : NULL;
    sp->choices.offload = before->choices.offload ? NEW(uint8_t, (int64_t)sp->stages * sp->batches) : NULL;
    for (int v = 0; v < sp->stages; v++) {
        int s = sp->names.member[v].stage;
        if (sp->owners.zero)
            sp->owners.zero[v] = before->owners.zero[s];
        if (sp->limits.bucket)
            sp->limits.bucket[v] = before->limits.bucket[s];
        if (sp->limits.offload_state)
            sp->limits.offload_state[v] = before->limits.offload_state[s];
        if (sp->choices.offload)
            memcpy(sp->choices.offload + (size_t)v * batches, before->choices.offload + (size_t)s * batches, batches);
    }
    sp->limits.cap = expand_ranks(all, before->limits.cap);
    sp->choices.slots = expand_ranks(all, before->choices.slots);
    sp->limits.grad_slots = expand_ranks(all, before->limits.grad_slots);
}

void expand_teams(struct spec *sp) {
    struct expansion all = {.sp = sp, .before = *sp, .factor = sp->owners.tensor > 1 ? sp->owners.tensor : 1};
    bool any = all.factor > 1;
    for (const struct job *j = sp->job; !any && j < sp->job + sp->njobs; j++)
        any = j->team >= sp->workers;
    if (!any)
        return;
    sp->workers *= all.factor;
    sp->owners.nlists = 0;
    sp->owners.list = NULL;
    sp->owners.lists = NULL;
    all.rank = NEW(int32_t, sp->workers);
    expand_stages(&all);
    expand_jobs(&all);
    expand_pairs(&all);
    expand_preds(&all);
    expand_sources(&all);
    expand_versions(&all);
    expand_tables(&all);
}

void join_teams(struct spec *sp) {
    const struct names names = sp->names;
    bool tied = names.tables > 0;
    if (!names.member)
        return;
    int32_t n = 0;
    struct job *job = NEW(struct job, sp->njobs);
    int32_t *at = NEW(int32_t, (int64_t)names.stages * sp->batches * NDIRS);
    memset(at, -1, sizeof *at * (size_t)names.stages * (size_t)sp->batches * NDIRS);
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
        const struct member *member = &names.member[j->s];
        if (member->place > 0)
            continue;
        at[((int64_t)member->stage * sp->batches + j->b) * NDIRS + j->d] = n;
        job[n] = *j;
        job[n++].s = member->stage;
    }
    sp->job = job;
    sp->njobs = n;
    sp->at = at;
    sp->stages = names.stages;
    sp->names.member = NULL;
    name_sets(&sp->names, sp->stages, tied, false);
    sp->owners.zero = NULL;
    sp->limits.bucket = NULL;
    sp->limits.offload_state = NULL;
    sp->choices.offload = NULL;
    sp->machine.took = NULL;
    sp->machine.spread = NULL;
}
