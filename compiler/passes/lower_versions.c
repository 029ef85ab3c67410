/* Updates that are jobs, and copies of the weights' earlier versions.
 *
 * A home's weights are updated in place. If a job of the home or a message to another rank is still to read the version
 * that an update replaces, it reads a copy. The copy is made right before the update and freed by its last reader, so a
 * rank holds only the versions that it needs. */
#include "lower.h"
#include <string.h>

/* Returns the record of a version of a set's weights on a home. */
static struct version *version_at(const struct build *build, int rank, int set, int32_t version) {
    int32_t home = build->sums.owners_at[build->sums.gradient_at[set]] + place_at(build, rank, set);
    return &build->versions.version[build->versions.at[home] + version];
}

/* Counts the readers of each version, which are known from the schedule: jobs and fetches. */
void find_readers(struct build *build) {
    const struct spec *sp = build->sp;
    if (!sp->updates.every)
        return;
    int homes = build->sums.owners_at[build->sums.gradient_at[build->sets]];
    build->versions.at = NEW(int32_t, homes + 1);
    for (int i = 0; i < homes; i++) { /* only a set's first gradient has the weights */
        const struct owner *owner = &build->sums.owner[i];
        int n = build->sums.gradient[owner->gradient].update > 0 ? 0 : sp->batches / sp->updates.every[owner->set] + 1;
        build->versions.at[i + 1] = build->versions.at[i] + n;
    }
    build->versions.version = NEW(struct version, build->versions.at[homes]);
    for (int i = 0; i < build->versions.at[homes]; i++)
        build->versions.version[i].buf = -1;
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &build->costs->job[j];
        for (int which = 0; which < NSETS; which++) {
            int32_t set = set_read(build->costs, job, which);
            if (set >= 0 && place_at(build, job->rank, set) >= 0)
                version_at(build, job->rank, set, build->sc->version[j])->readers++;
        }
    }
    for (int i = 0; i < build->weights.fetches.n; i++) {
        const struct fetch *f = &build->weights.fetches.a[i];
        version_at(build, f->home, f->set, f->version)->readers++;
    }
}

int32_t read_version(struct build *build, int rank, int set, int32_t version) {
    struct version *v = build->sp->updates.every ? version_at(build, rank, set, version) : NULL;
    if (v)
        v->readers--;
    return v && v->buf >= 0 ? v->buf : owner_at(build, rank, set)->weight;
}

void start_update(struct build *build, int32_t j) {
    const struct job *job = &build->costs->job[j];
    int r = job->rank;
    const struct owner *home = owner_at(build, r, job->s);
    struct owner *owner = summing(build, r, build->sums.gradient_at[job->s] + job->b);
    struct version *old = version_at(build, r, job->s, job->b);
    if (old->readers > 0) {
        old->buf = open_buf(build, r, K_weight, job->s, -1, job->b, old->readers);
        issue(build, r, OP_COPY, job->s, -1, -1, job->b);
        add_operand(build, r, ROLE_src, home->weight);
        add_operand(build, r, ROLE_w, old->buf);
    }
    build->job_ins[j] = build->p->rank[r].nins;
    issue(build, r, OP_U, job->s, job->b, -1, -1);
    add_operand(build, r, ROLE_dw, owner->buf);
    if (home->opt >= 0)
        add_operand(build, r, ROLE_opt, home->opt);
    add_operand(build, r, ROLE_w, home->weight);
    use_up(build, r, owner->buf);
}
