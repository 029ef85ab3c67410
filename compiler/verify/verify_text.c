/* Proves a program read from its text form against its own text.
 *
 * The job graph follows from the streams: every (s,b) has an F and a B, or an I and a W if either occurs, and an R if
 * one occurs. A job's rank is the one that runs it. Its dependencies are the default ones or those listed. */
#include "check.h"
#include <limits.h>
#include <math.h>
#include <string.h>

static struct refutation *refuted(int claim, char *why) {
    struct refutation *no = NEW(struct refutation, 1);
    *no = (struct refutation){claim, 0, why};
    return no;
}

/* Returns "F 0 3", as the text writes it. */
static const char *label_of(const struct program *p, int s, int b, int d) {
    struct text t = {0};
    put_label(&t, &p->names, &(struct instr){.op = (uint8_t)d, .stage = s, .batch = b, .inst = -1, .peer = -1});
    return t.s;
}

/* Returns the rank that runs each job (s,b,d); -1 if none does. */
static int32_t *ranks_of_jobs(const struct program *p) {
    int64_t n = (int64_t)p->stages * p->batches * NDIRS;
    int32_t *rank = NEW(int32_t, n);
    memset(rank, -1, sizeof *rank * (size_t)n);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++) {
            const struct instr *x = &p->rank[r].ins[i];
            if (is_job(x->op))
                rank[((int64_t)x->stage * p->batches + x->batch) * NDIRS + x->op] = r;
        }
    return rank;
}

/* Infers clipping: updates are clipped if any norm is computed. With post-validation, a rank reads a norm before it
 * computes one. */
static void find_norms(const struct program *p, struct costs *costs) {
    for (int r = 0; r < p->workers; r++) {
        bool taken = false;
        for (const struct instr *x = p->rank[r].ins; x < p->rank[r].ins + p->rank[r].nins; x++) {
            taken |= x->op == OP_NORM;
            costs->post_validation |= x->op == OP_ALL_REDUCE_N && !taken;
        }
        costs->clip |= taken;
    }
    costs->post_validation &= costs->clip;
}

static struct spec *spec_of(const struct program *p) {
    struct spec *sp = NEW(struct spec, 1);
    *sp = (struct spec){.name = p->name, .file = p->name, .workers = p->workers, .stages = p->stages};
    sp->names = p->names;
    sp->batches = p->batches;
    sp->updates.every = p->update;
    sp->machine.memory = sp->machine.host_memory = INFINITY;
    int64_t cells = (int64_t)p->stages * p->batches;
    const int32_t *rank = ranks_of_jobs(p);
    sp->at = NEW(int32_t, cells * NDIRS);
    sp->job = NEW(struct job, cells * 4);
    for (int64_t c = 0; c < cells; c++) {
        const int32_t *r = rank + c * NDIRS;
        bool split = r[OP_I] >= 0 || r[OP_W] >= 0;
        const bool has[NDIRS] = {
            [OP_F] = true, [OP_R] = r[OP_R] >= 0, [OP_I] = split, [OP_B] = !split || r[OP_B] >= 0, [OP_W] = split};
        for (int d = 0; d < NDIRS; d++) {
            sp->at[c * NDIRS + d] = has[d] ? sp->njobs : -1;
            if (has[d])
                sp->job[sp->njobs++] = (struct job){.s = (int32_t)(c / p->batches),
                                                    .b = (int32_t)(c % p->batches),
                                                    .d = (uint8_t)d,
                                                    .rank = r[d],
                                                    .home = -1, /* the text does not record what w() named */
                                                    .cost = 1};
        }
    }
    return sp;
}

/* Converts the listed dependencies to the graph's form. Returns NULL, or why they are wrong. */
static char *take_needs(const struct program *p, struct spec *sp) {
    int32_t *where = NEW(int32_t, sp->njobs), *named_by = NEW(int32_t, sp->njobs);
    memset(where, -1, sizeof *where * (size_t)sp->njobs);
    for (int i = 0; i < p->nneeds; i++) {
        const struct job_name *j = &p->need[i].job;
        int32_t at = job_at(sp, j->s, j->b, j->d);
        if (at < 0 || where[at] >= 0)
            return format("`needs %s` names a job that %s", label_of(p, j->s, j->b, j->d),
                          at < 0 ? "does not occur" : "already has such a line");
        where[at] = i;
    }
    sp->pred_at = NEW(int32_t, sp->njobs + 1);
    sp->pred = NEW(int32_t, p->need[p->nneeds].pred + 1);
    for (int j = 0; j < sp->njobs; j++) {
        int32_t n = sp->pred_at[j];
        if (where[j] < 0)
            return format("no `needs` line for %s", label_of(p, sp->job[j].s, sp->job[j].b, sp->job[j].d));
        for (int32_t e = p->need[where[j]].pred; e < p->need[where[j] + 1].pred; e++) {
            const struct job_name *f = &p->pred[e];
            int32_t at = job_at(sp, f->s, f->b, f->d);
            if (at < 0)
                return format("`needs` names %s, which does not exist", label_of(p, f->s, f->b, f->d));
            if (named_by[at] == j + 1)
                return format("`needs %s` names %s twice", label_of(p, sp->job[j].s, sp->job[j].b, sp->job[j].d),
                              label_of(p, f->s, f->b, f->d));
            named_by[at] = j + 1;
            sp->pred[n++] = at;
        }
        sp->pred_at[j + 1] = n;
    }
    return NULL;
}

/* Returns costs with what the text records, which includes neither sizes nor times. */
static struct costs *costs_of(const struct program *p, const struct spec *sp) {
    struct costs *costs = NEW(struct costs, 1);
    *costs = (struct costs){.spec = sp, .job = sp->job, .njobs = sp->njobs, .exchange = p->exchange};
    costs->attends = p->attends;
    costs->whole = p->names.whole;
    costs->bare = p->bare;
    costs->unembedding = p->unembedding;
    find_norms(p, costs);
    return costs;
}

struct building {
    const struct costs *costs;
    const struct graph *graph;
};

/* Dies if the dependencies are wrong. */
static void build_graph(void *context) {
    struct building *building = context;
    building->graph = graph_build(building->costs);
}

struct refutation *verify_text(const struct program *p) {
    int64_t jobs = 0;
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            jobs += is_job(p->rank[r].ins[i].op);
    if ((double)p->stages * p->batches * 2 > (double)jobs)
        return refuted(CLAIM_JOBS, format("%d stages of %d microbatches have at least %.0f jobs; the streams have %lld",
                                          p->stages, p->batches, (double)p->stages * p->batches * 2, (long long)jobs));
    struct spec *sp = spec_of(p);
    for (int64_t c = 0; c < (int64_t)p->stages * p->batches; c++)
        if (sp->at[c * NDIRS + OP_B] >= 0 && sp->at[c * NDIRS + OP_I] >= 0)
            return refuted(CLAIM_JOBS,
                           format("the backward of stage %d and microbatch %d is both whole, B, and split, I and W",
                                  (int)(c / p->batches), (int)(c % p->batches)));
    char *why = p->nneeds ? take_needs(p, sp) : NULL;
    if (why)
        return refuted(CLAIM_JOBS, why);
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].rank < 0)
            return refuted(CLAIM_JOBS,
                           format("job %s never runs", job_name(&sp->names, sp->job[j].s, sp->job[j].b, sp->job[j].d)));
    const struct costs *costs = costs_of(p, sp);
    struct building building = {costs, NULL};
    if (try(build_graph, &building))
        return verify(costs, building.graph, p, CLAIM_ALL);
    size_t prefix = strlen("pianola: error: ") + strlen(sp->file) + strlen(": ");
    return refuted(CLAIM_JOBS, format("%.*s", (int)(strlen(diag_text) - prefix - 1), diag_text + prefix));
}
