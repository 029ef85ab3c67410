/* Updates that are jobs, and which version of the weights each job reads.
 *
 * A weight's value counts its updates, so a copy, wherever it goes, keeps its version. A job must find the version that
 * it declares, and where the schedule's rules are known, declare the one that they say. A program that is read from its
 * text has no rules but its own declarations. */
#include "check.h"

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

/* The stages' updates are whole numbers of microbatches, and those of the script. */
static bool are_whole(struct check *check) {
    const struct program *p = check->p;
    const struct spec *sp = check->sp;
    if (!sp->update != !p->update)
        return refute_all(check, CLAIM_JOBS, "the script says that updates are %s; the program's are %s",
                          sp->update ? "jobs" : "none", p->update ? "jobs" : "none");
    for (int s = 0; p->update && s < p->stages; s++) {
        int m = p->update[s];
        if (m != sp->update[s])
            return refute_all(check, CLAIM_JOBS,
                              "the script says %d microbatches per update of stage %d, the program %d", sp->update[s],
                              s, m);
        if (m < 1 || p->batches % m || p->period % m)
            return refute_all(check, CLAIM_JOBS,
                              "%d microbatches, in periods of %d, are no whole updates of %d of stage %d", p->batches,
                              p->period, m, s);
    }
    return true;
}

bool updates_begin(struct check *check) {
    const struct program *p = check->p;
    if (!are_whole(check))
        return false;
    if (!p->update)
        return !p->period || refute_all(check, CLAIM_PERIOD, "a period repeats, but updates are no jobs");
    if (check->sp->step && check->sp->step != step_batches(p))
        return refute_all(check, CLAIM_PERIOD, "the script's step has %lld microbatches, the program's %lld",
                          (long long)check->sp->step, (long long)step_batches(p));
    const char *too = p->tied                ? "a token table that two stages share"
                      : p->names.shared      ? "weights that the members of teams share"
                      : has_state_in_host(p) ? "optimizer state in host memory"
                                             : NULL;
    for (int s = 0; p->homes && s < p->stages && !too; s++)
        if (p->homes[s].size > 1 || p->homes[s].zero)
            too = format("homes of stage %d that share it", s);
    check->values->declared = NEW(int32_t, check->sp->njobs);
    return !too || refute_all(check, CLAIM_JOBS, "nothing is proved of updates that are jobs together with %s", too);
}

/* ---- versions ---- */

/* The job whose declaration gives the version that job j reads, or -1. */
static int32_t model_of(const struct check *check, int32_t j) {
    const struct spec *sp = check->sp;
    const struct job *job = &sp->job[j];
    if (sp->reads[j] == READ_FORWARD && job->d != OP_F)
        return job_at(sp, job->s, job->b, OP_F);
    return sp->reads[j] == READ_INPUT && (job->d != OP_F || job->s > 0) ? job_at(sp, 0, job->b, OP_F) : -1;
}

/* What the rules say that job j, which runs on rank r, reads; -1: they leave it open. */
static int32_t version_by_rule(const struct check *check, int r, int32_t j) {
    const struct spec *sp = check->sp;
    const struct job *job = &sp->job[j];
    const int *m = check->p->update;
    int32_t model = model_of(check, j), back = sp->reads[j];
    if (back >= 0)
        return job->b / m[job->s] > back ? job->b / m[job->s] - back : 0;
    if (model >= 0)
        return (int32_t)((int64_t)check->values->declared[model] * m[sp->job[model].s] / m[job->s]);
    int32_t home = weights_at_home(check, r, job->s);
    return home < 0 ? -1 : check->values->val[r][home].count; /* the newest there */
}

bool reads_version(struct check *check, int r, int32_t i, int32_t j, int32_t b) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct spec *sp = check->sp;
    int32_t has = check->values->val[r][b].count;
    if (has != x->inst)
        return refute(check, CLAIM_JOBS, r, i, "reads version %d of stage %d's weights, where it declares %d", has,
                      x->stage, x->inst);
    check->values->declared[j] = x->inst;
    if (!sp->reads)
        return true;
    int32_t model = model_of(check, j);
    if (model >= 0 && !check->values->done[model])
        return refute(check, CLAIM_JOBS, r, i, "what it reads depends on %s, which has not run",
                      job_name(&check->p->names, sp->job[model].s, sp->job[model].b, OP_F));
    int32_t must = version_by_rule(check, r, j);
    if (must >= 0 && must != x->inst)
        return refute(check, CLAIM_JOBS, r, i, "reads version %d of stage %d's weights, and must read %d", x->inst,
                      x->stage, must);
    if (section_of(&check->p->rank[r], i) == 1 && sp->reads[j] > x->batch / check->p->update[x->stage])
        return refute(check, CLAIM_PERIOD, r, i, "reads version 0 for want of %d updates, which repetitions have",
                      sp->reads[j]);
    return true;
}

/* A job behind the period's begin, of which the forward whose version it reads runs before that: the next repetition's
 * reads what the forward a period later declares. */
bool versions_repeat(struct check *check) {
    const struct spec *sp = check->sp;
    const uint8_t *section = check->values->section;
    int K = check->p->period;
    for (int32_t j = 0; sp->reads && j < sp->njobs; j++) {
        int32_t model = model_of(check, j);
        if (model < 0 || section[model] > 0 || section[j] == 0)
            continue;
        const struct job *f = &sp->job[model];
        int32_t next = f->b + K < sp->batches ? job_at(sp, f->s, f->b + K, OP_F) : -1;
        int32_t *declared = check->values->declared;
        if (next < 0 || declared[next] != declared[model] + K / check->p->update[f->s])
            return refute_all(check, CLAIM_PERIOD,
                              "%s reads version %d where %s, %d microbatches before it, reads %d: the versions that %s "
                              "and its like read do not repeat",
                              job_name(&check->p->names, f->s, f->b + K, OP_F), next < 0 ? -1 : declared[next],
                              job_name(&check->p->names, f->s, f->b, OP_F), K, declared[model],
                              job_name(&check->p->names, sp->job[j].s, sp->job[j].b, sp->job[j].d));
    }
    return true;
}

/* ---- gradients ---- */

int32_t own_name(const struct check *check, int r, int32_t k) { return k > 0 ? r + check->p->workers * k : -1; }

/* The update that an instruction on a gradient is of. */
static int32_t update_of(const struct check *check, const struct instr *x) {
    return is_job(x->op) ? x->batch / check->p->update[x->stage] : x->op == OP_U ? x->batch : x->inst < 0 ? 0 : x->inst;
}

bool is_of_its_update(struct check *check, int r, int32_t i, int32_t b) {
    if (!check->p->update)
        return true;
    const struct buf *x = &check->p->rank[r].buf[b];
    int32_t k = update_of(check, &check->p->rank[r].ins[i]), has = round_of(check, x);
    return !holds_gradient(x->kind) || has == k ||
           refute(check, CLAIM_GRADIENTS, r, i, "%s is the gradient of update %d, and this is of update %d",
                  buf_text(check, r, b), has, k);
}
