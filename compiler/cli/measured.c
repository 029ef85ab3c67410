/* `show --measured`: replaces the predicted times by a run's times, read and aligned in the same way as by diff.
 *
 * Traces get every recorded step in sequence, unchanged: a receive begins when it starts waiting for its send. Pictures
 * and figures get the median step, in which, as in predictions, a message begins once all its ends have arrived. */
#include "pipeline.h"
#include "diff/diff.h"
#include <math.h>
#include <string.h>

/* Makes a timeline from measured times. start, end: indexed by row. */
static struct timeline timeline_of(const struct program *p, int32_t **row, const double *start, const double *end) {
    struct timeline tl = {NEW(double *, p->workers), NEW(double *, p->workers), .launch = LAUNCH_LANE};
    for (int r = 0; r < p->workers; r++) {
        int n = p->rank[r].nins;
        tl.start[r] = NEW(double, n);
        tl.end[r] = NEW(double, n);
        for (int i = 0; i < n; i++) {
            tl.start[r][i] = start[row[r][i]];
            tl.end[r][i] = end[row[r][i]];
            tl.makespan = fmax(tl.makespan, tl.end[r][i]);
        }
    }
    return tl;
}

/* Returns each row's duration by its rank's own clock. */
static double *durations_of(const struct timeline_rows *rows) {
    double *took = NEW(double, (size_t)rows->nsteps *(size_t)rows->n);
    for (size_t i = 0; i < (size_t)rows->nsteps * (size_t)rows->n; i++)
        took[i] = rows->row[i].end - rows->row[i].start;
    return took;
}

static struct steps steps_of(const struct program *p, int32_t **row, const struct side *side, const double *took) {
    const struct timeline_rows *rows = side->steps;
    struct timeline *of = NEW(struct timeline, rows->nsteps);
    double *start = NEW(double, rows->n), *end = NEW(double, rows->n);
    for (int k = 0; k < rows->nsteps; k++) {
        const struct timeline_row *x = &rows->row[(size_t)k * (size_t)rows->n];
        for (int i = 0; i < rows->n; i++) {
            end[i] = side->begin[k] - side->begin[0] + x[i].end;
            start[i] = end[i] - *took++;
        }
        of[k] = timeline_of(p, row, start, end);
    }
    return (struct steps){rows->nsteps, rows->step, of};
}

/* Reports on a measured timeline. Its bounds assume the durations measured here, one job at a time, and links that take
 * no time, because the run did not measure other orders. */
static struct report *report_of(const struct compile *c, struct timeline *tl, int nsteps) {
    struct spec sp = *c->spec;
    struct costs costs = *c->costs;
    struct job *job = memcpy(NEW(struct job, costs.njobs), costs.job, sizeof *job * (size_t)costs.njobs);
    sp.machine.link = sp.machine.collective = NULL;
    costs.computes = NEW(double, costs.njobs);
    for (int r = 0; r < c->program->workers; r++)
        for (int i = 0; i < c->program->rank[r].nins; i++) {
            const struct instr *in = &c->program->rank[r].ins[i];
            bool update = in->op == OP_U && sp.updates.every;
            if (!is_job(in->op) && !update)
                continue;
            int32_t j = update ? update_at(&costs, in->stage, in->batch, place_in(&costs.homes[in->stage], r))
                               : job_at(&sp, in->stage, in->batch, in->op);
            costs.computes[j] += tl->end[r][i] - tl->start[r][i];
            job[j].pair = 0;
        }
    costs.job = sp.job = job;
    costs.spec = &sp;
    struct compile measured = *c;
    measured.spec = &sp;
    measured.costs = &costs;
    measured.timeline = tl;
    struct report *rep = report_make(&measured);
    rep->unit = "s";
    rep->measured = nsteps;
    for (int r = 0; r < rep->workers; r++)
        rep->rank[r].weights = NULL; /* the cost of a fixed prefetch is a prediction */
    return rep;
}

/* Returns advice for the case that the run was of another program, for example because an option is missing. */
static const char *advice_on(const struct script_args *args) {
    static const char same[] = "give the -D, --model, --cluster and --lanes that it was measured with";
    if (!args->model)
        return format("%s: --model is missing, and every run has one", same);
    return args->cluster ? same
                         : format("%s: --cluster is missing, and the order of the jobs depends on its times", same);
}

void take_measured(struct compile *c, const char *path) {
    struct side *side = side_of_program(path, c->program, NULL);
    struct timeline_rows *rows = is_recording(path) ? read_recorded(path, c->program) : read_measured(path);
    if (!rows->nsteps)
        die("%s: has no column `step`, so it is not a measured timeline; `pianola run --timeline FILE` writes one",
            path);
    const double *took = durations_of(rows);
    side_times(side, path, rows, advice_on(&c->args));
    if (rows->recorded) /* a message takes its time since its SEND */
        took = durations_of(rows);
    int32_t **row = NEW(int32_t *, c->program->workers); /* per instruction: its row within a step */
    for (int r = 0; r < c->program->workers; r++)
        row[r] = side_ops(side, r);
    c->timeline = NEW(struct timeline, 1);
    *c->timeline = timeline_of(c->program, row, side->start, side->end);
    c->steps = steps_of(c->program, row, side, took);
    c->report = report_of(c, c->timeline, rows->nsteps);
}
