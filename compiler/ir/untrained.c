/* Stages without trained parameters have no weight gradients, whatever the schedule splits: their input gradient is the
 * whole backward. */
#include "spec.h"
#include <string.h>

/* Returns whether a job is the weight gradient of a stage that has none. */
static bool is_dropped(const struct job *j, const bool *untrained) { return j->d == OP_W && untrained[j->s]; }

/* Numbers the jobs that stay; a dropped one gets its input gradient's number. Returns their number. */
static int32_t number_remaining(const struct spec *sp, const bool *untrained, int32_t *to) {
    int32_t n = 0;
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        to[j] = is_dropped(job, untrained) ? to[job_at(sp, job->s, job->b, OP_I)] : n++;
    }
    return n;
}

/* Copies the jobs that stay, with their sources and versions. */
static void merge_jobs(struct spec *sp, const struct spec *before, const bool *untrained, const int32_t *to) {
    int64_t places = (int64_t)sp->stages * sp->batches * NDIRS;
    sp->job = NEW(struct job, sp->njobs);
    sp->owners.source = before->owners.source ? NEW(int32_t, sp->njobs) : NULL;
    sp->updates.reads = before->updates.reads ? NEW(int32_t, sp->njobs) : NULL;
    sp->at = NEW(int32_t, places);
    memset(sp->at, -1, sizeof *sp->at * (size_t)places);
    for (int32_t j = 0; j < before->njobs; j++) {
        struct job *job = &sp->job[to[j]];
        if (is_dropped(&before->job[j], untrained))
            continue;
        *job = before->job[j];
        job->pair = 0;
        job->d = job->d == OP_I && untrained[job->s] ? OP_B : job->d;
        sp->at[((int64_t)job->s * sp->batches + job->b) * NDIRS + job->d] = to[j];
        if (sp->owners.source)
            sp->owners.source[to[j]] = before->owners.source[j];
        if (sp->updates.reads)
            sp->updates.reads[to[j]] = before->updates.reads[j];
    }
}

/* Renumbers the dependencies. Whatever waits for a dropped W waits for its backward. */
static void merge_preds(struct spec *sp, const struct spec *before, const bool *untrained, const int32_t *to) {
    if (!before->pred)
        return;
    int32_t n = 0, *last = NEW(int32_t, sp->njobs); /* per job: 1 + the job that last named it */
    sp->pred = NEW(int32_t, before->pred_at[before->njobs] + 1);
    sp->pred_at = NEW(int32_t, sp->njobs + 1);
    for (int32_t j = 0; j < before->njobs; j++) {
        if (is_dropped(&before->job[j], untrained))
            continue;
        for (int32_t e = before->pred_at[j]; e < before->pred_at[j + 1]; e++) {
            int32_t p = to[before->pred[e]];
            if (last[p] == to[j] + 1)
                continue;
            last[p] = to[j] + 1;
            sp->pred[n++] = p;
        }
        sp->pred_at[to[j] + 1] = n;
    }
}

/* Renumbers the pairs. A job whose partner is dropped runs alone. */
static void merge_pairs(struct spec *sp, const struct spec *before, const bool *untrained, const int32_t *to) {
    sp->pair = NEW(struct pair, before->npairs);
    sp->npairs = 0;
    for (const struct pair *pair = before->pair; pair < before->pair + before->npairs; pair++) {
        struct pair now = {to[pair->first], to[pair->second]};
        if (is_dropped(&before->job[pair->first], untrained) || is_dropped(&before->job[pair->second], untrained))
            continue;
        sp->pair[sp->npairs++] = now;
        sp->job[now.first].pair = sp->job[now.second].pair = sp->npairs;
    }
}

void merge_backwards(struct spec *sp, const bool *untrained) {
    struct spec before = *sp;
    int32_t *to = NEW(int32_t, sp->njobs);
    sp->njobs = number_remaining(&before, untrained, to);
    if (sp->njobs == before.njobs)
        return;
    merge_jobs(sp, &before, untrained, to);
    merge_preds(sp, &before, untrained, to);
    merge_pairs(sp, &before, untrained, to);
}
