/* Updates that are jobs, and the version of the weights that each job reads.
 *
 * A weight's value counts its updates, so a copy, wherever it goes, keeps its version. A job must find the version that
 * it declares and, if the schedule's rules are known, declare the one that they give. A program read from its text has
 * no rules but its own declarations. */
#include "check_homes.h"
#include <string.h>

int32_t updates_of(const struct check *check, int set) {
    return check->p->update ? check->p->batches / check->p->update[set] : 1;
}

struct batches batches_of(const struct check *check, int set, int32_t k) {
    int32_t m = check->p->update ? check->p->update[set] : check->sp->batches;
    return check->p->update ? (struct batches){k * m, (k + 1) * m} : (struct batches){0, m};
}

/* ---- what may occur together ---- */

static bool has_state_in_host(const struct program *p) {
    for (int r = 0; r < p->workers; r++)
        for (const struct buf *b = p->rank[r].buf; b < p->rank[r].buf + p->rank[r].nbufs; b++)
            if (b->kind == K_hopt)
                return true;
    return false;
}

/* Refutes unless each set's updates are whole numbers of microbatches and agree with the script. */
static bool are_whole(struct check *check) {
    const struct program *p = check->p;
    const struct spec *sp = check->sp;
    if (!sp->updates.every != !p->update)
        return refute_all(check, CLAIM_JOBS, "the script says that updates are %s; the program's are %s",
                          sp->updates.every ? "jobs" : "none", p->update ? "jobs" : "none");
    for (int s = 0; p->update && s < check->values->sets.n; s++) {
        int m = p->update[s];
        if (m != sp->updates.every[s])
            return refute_all(check, CLAIM_JOBS,
                              "the script says %d microbatches per update of stage %d, the program %d",
                              sp->updates.every[s], s, m);
        if (m < 1 || p->batches % m || p->period % m)
            return refute_all(check, CLAIM_JOBS,
                              "%d microbatches, in periods of %d, are not a whole number of updates of %d of stage %d",
                              p->batches, p->period, m, s);
    }
    return true;
}

bool updates_begin(struct check *check) {
    const struct program *p = check->p;
    if (!are_whole(check))
        return false;
    if (!p->update)
        return !p->period || refute_all(check, CLAIM_PERIOD, "a period repeats, but updates are not jobs");
    if (check->sp->updates.step && check->sp->updates.step != step_batches(p))
        return refute_all(check, CLAIM_PERIOD, "the script's step has %lld microbatches, the program's %lld",
                          (long long)check->sp->updates.step, (long long)step_batches(p));
    const char *too = p->tied                ? "a token table that two stages share"
                      : has_state_in_host(p) ? "optimizer state in host memory"
                                             : NULL;
    for (int s = 0; p->homes && s < check->values->sets.n && !too; s++)
        if (p->homes[s].size > 1 || p->homes[s].zero)
            too = format("homes of stage %d that share it", s);
    size_t n = (size_t)check->sp->njobs;
    memset(check->values->declared = NEW(int32_t, n), -1, sizeof(int32_t) * n);
    memset(check->values->newest = NEW(int32_t, n), -1, sizeof(int32_t) * n);
    return !too || refute_all(check, CLAIM_JOBS, "updates that are jobs cannot be proved together with %s", too);
}

/* ---- versions ---- */

/* Returns the owner of a set of weights, as a possessive: "stage 1.0's", or "stage 1's" for what members share. */
static const char *whose(const struct check *check, int set) {
    struct text t = {0};
    put_stage(&t, &check->p->names, set);
    return format("stage %s's", t.s);
}

static bool is_of_first_stage(const struct check *check, const struct job *job) {
    const struct member *member = check->p->names.member;
    return (member ? member[job->s].stage : job->s) == 0;
}

/* Returns the member of stage 0 at the same place as j's stage, modulo the size of stage 0's team. All members declare
 * the same version. */
static int first_stage_for(const struct check *check, const struct job *job) {
    const struct member *member = check->p->names.member;
    return member && member[0].place >= 0 && member[job->s].place > 0 ? member[job->s].place % member[0].size : 0;
}

/* Returns the job whose declaration gives the version that job j reads, or -1. */
static int32_t model_of(const struct check *check, int32_t j) {
    const struct spec *sp = check->sp;
    const struct job *job = &sp->job[j];
    if (sp->updates.reads[j] == READ_FORWARD && job->d != OP_F)
        return job_at(sp, job->s, job->b, OP_F);
    return sp->updates.reads[j] == READ_INPUT && (job->d != OP_F || !is_of_first_stage(check, job))
               ? job_at(sp, first_stage_for(check, job), job->b, OP_F)
               : -1;
}

/* Returns the newest version, among the sets that a job reads, that rank r has at home; -1: it is a home of none. */
static int32_t newest_here(const struct check *check, int r, const struct instr *x) {
    const int32_t set[] = {set_of_operand(check, x, ROLE_w), set_of_operand(check, x, ROLE_u)};
    int32_t newest = -1;
    for (int n = 0; n < 2; n++) {
        int32_t home = set[n] < 0 ? -1 : weights_at_home(check, r, set[n]);
        int32_t has = home < 0 ? -1 : check->values->val[r][home].count;
        newest = has >= 0 && (newest < 0 || has < newest) ? has : newest;
    }
    return newest;
}

static int count_team(const struct check *check, int s) {
    const struct member *member = check->p->names.member;
    return member && member[s].place >= 0 ? member[s].size : 1;
}

/* Returns the version that the rules give for job j; -1: the newest that its whole team has (team_agrees). */
static int32_t version_by_rule(const struct check *check, int32_t j) {
    const struct spec *sp = check->sp;
    const struct job *job = &sp->job[j];
    const int *m = check->p->update;
    int32_t model = model_of(check, j), back = sp->updates.reads[j];
    if (back >= 0)
        return job->b / m[job->s] > back ? job->b / m[job->s] - back : 0;
    if (model >= 0)
        return (int32_t)((int64_t)check->values->declared[model] * m[sp->job[model].s] / m[job->s]);
    return count_team(check, job->s) > 1 ? -1 : check->values->newest[j];
}

bool has_its_version(struct check *check, int r, int32_t i, int set, int32_t b) {
    const struct instr *x = &check->p->rank[r].ins[i];
    int32_t has = check->values->val[r][b].count;
    return has == x->inst || refute(check, CLAIM_JOBS, r, i, "reads version %d of %s weights, but declares %d", has,
                                    whose(check, set), x->inst);
}

bool declares_version(struct check *check, int r, int32_t i, int32_t j) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct spec *sp = check->sp;
    int32_t *declared = &check->values->declared[j];
    if (x->part > 0)
        return x->inst == *declared ||
               refute(check, CLAIM_JOBS, r, i, "declares version %d, but the part before it declares %d", x->inst,
                      *declared);
    *declared = x->inst;
    check->values->newest[j] = newest_here(check, r, x);
    if (!sp->updates.reads)
        return true;
    int32_t model = model_of(check, j);
    if (model >= 0 && !check->values->done[model])
        return refute(check, CLAIM_JOBS, r, i, "what it reads depends on %s, which has not run",
                      job_name(&check->p->names, sp->job[model].s, sp->job[model].b, OP_F));
    int32_t must = version_by_rule(check, j);
    if (must >= 0 && must != x->inst)
        return refute(check, CLAIM_JOBS, r, i, "reads version %d of %s weights, but must read %d", x->inst,
                      whose(check, x->stage), must);
    if (section_of(&check->p->rank[r], i) == 1 && sp->updates.reads[j] > x->batch / check->p->update[x->stage])
        return refute(check, CLAIM_PERIOD, r, i,
                      "reads version 0 only because %d updates are missing, which repetitions have",
                      sp->updates.reads[j]);
    return true;
}

/* ---- teams ---- */

/* Refutes unless all members of a team read one version, since they compute one job. If the rule is "newest", it must
 * be the newest version that all of them have, or, if some fetch their weights, no newer. */
static bool team_agrees(struct check *check, int32_t first, int size) {
    const struct spec *sp = check->sp;
    const struct job *job = &sp->job[first];
    const int32_t *declared = check->values->declared;
    int32_t newest = INT32_MAX;
    bool all_at_home = true;
    for (int n = 0; n < size; n++) {
        int32_t j = job_at(sp, job->s + n, job->b, job->d), has = check->values->newest[j];
        if (declared[j] != declared[first])
            return refute_all(check, CLAIM_JOBS,
                              "%s reads version %d of the weights, but %s, of the same team, reads %d",
                              job_text(check, first), declared[first], job_text(check, j), declared[j]);
        all_at_home &= has >= 0;
        newest = has >= 0 && has < newest ? has : newest;
    }
    bool latest = sp->updates.reads && version_by_rule(check, first) < 0 && declared[first] >= 0 && newest < INT32_MAX;
    return !latest || (all_at_home ? declared[first] == newest : declared[first] <= newest) ||
           refute_all(check, CLAIM_JOBS,
                      "%s reads version %d of stage %d's weights, but the newest that all of its team have is %d",
                      job_text(check, first), declared[first], check->p->names.member[job->s].stage, newest);
}

bool teams_agree(struct check *check) {
    for (int32_t j = 0; check->p->update && j < check->sp->njobs; j++) {
        const struct job *job = &check->sp->job[j];
        int size = count_team(check, job->s);
        bool first = size > 1 && check->p->names.member[job->s].place == 0;
        if (first && job->d != OP_W && !team_agrees(check, j, size))
            return false;
    }
    return true;
}

/* ---- in a period ---- */

/* Checks each job after the period's beginning whose version is declared by a forward before the period. In the next
 * repetition, the forward one period later declares it, so that declaration must be shifted as well. */
bool versions_repeat(struct check *check) {
    const struct spec *sp = check->sp;
    const uint8_t *section = check->values->section;
    int K = check->p->period;
    for (int32_t j = 0; sp->updates.reads && j < sp->njobs; j++) {
        int32_t model = model_of(check, j);
        if (model < 0 || section[model] > 0 || section[j] == 0 || !has_version(check->costs, sp->job[j].s))
            continue;
        const struct job *f = &sp->job[model];
        int32_t next = f->b + K < sp->batches ? job_at(sp, f->s, f->b + K, OP_F) : -1;
        int32_t *declared = check->values->declared;
        if (next < 0 || declared[next] != declared[model] + K / check->p->update[f->s])
            return refute_all(check, CLAIM_PERIOD,
                              "%s reads version %d where %s, %d microbatches before it, reads %d: the versions that %s "
                              "and its counterparts read do not repeat",
                              job_name(&check->p->names, f->s, f->b + K, OP_F), next < 0 ? -1 : declared[next],
                              job_name(&check->p->names, f->s, f->b, OP_F), K, declared[model],
                              job_name(&check->p->names, sp->job[j].s, sp->job[j].b, sp->job[j].d));
    }
    return true;
}

/* ---- gradients ---- */

int32_t own_name(const struct check *check, int r, int32_t k) { return k > 0 ? r + check->p->workers * k : -1; }

/* Returns the update that an instruction on a gradient belongs to. */
static int32_t gradient_update(const struct check *check, const struct instr *x) {
    return is_job(x->op) ? x->batch / check->p->update[x->stage] : x->op == OP_U ? x->batch : x->inst < 0 ? 0 : x->inst;
}

bool is_of_its_update(struct check *check, int r, int32_t i, int32_t b) {
    if (!check->p->update)
        return true;
    const struct buf *x = &check->p->rank[r].buf[b];
    int32_t k = gradient_update(check, &check->p->rank[r].ins[i]), has = round_of(check, x);
    return !holds_gradient(x->kind) || has == k ||
           refute(check, CLAIM_GRADIENTS, r, i, "%s is the gradient of update %d, but this is update %d",
                  buf_text(check, r, b), has, k);
}
