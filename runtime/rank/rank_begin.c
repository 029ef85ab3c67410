/* A rank before its first step and after its last: its memory, its device, and the point at which it resumes. */
#include "comm/watch.h"
#include "device/rates.h"
#include "rank_train.h"
#include "store/durable.h"
#include <stdio.h>
#include <stdlib.h>

/* Counts updates per step. The optimizer state depends on them, so a run resumes only with the same counts. */
static void count_updates(struct rank_run *run) {
    const struct rt_program *p = &run->program;
    run->is.most = run->is.least = updates_per_step(p->batches, &p->stage[0]);
    for (int s = 1; s < p->stages; s++) {
        int64_t n = updates_per_step(p->batches, &p->stage[s]);
        run->is.most = n > run->is.most ? n : run->is.most;
        run->is.least = n < run->is.least ? n : run->is.least;
    }
}

static void take(struct rank_run *run, struct training *training) {
    size_t B = (size_t)run->program.batches;
    training->pulse = calloc(B + LOSSES, sizeof *training->pulse);
    training->loss = calloc(B, sizeof *training->loss);
    training->held_out[0] = run->held_out ? calloc(2 * B, sizeof *training->held_out[0]) : NULL;
    training->held_out[1] = training->held_out[0] + B;
    if (!training->pulse || !training->loss || (run->held_out && !training->held_out[0]))
        rank_error(run->self, "no memory");
}

/* Sets the length of the learning-rate schedule. A resumed run keeps its original length: the checkpoint's, unless the
 * model sets one. */
static void set_length(struct rank_run *run) {
    const struct rt_model *m = run->program.model;
    run->replay->steps = run->is.steps;
    if (run->world.rank > 0)
        return;
    if (run->is.steps != run->flags.steps && m->schedule != SCHEDULE_constant && m->steps == 0 && !run->whole)
        fprintf(stderr, "pianola: the learning rate follows the %lld steps that this training began with\n",
                (long long)run->is.steps);
    if (!run->whole || run->whole->looks)
        rates_warn(m, run->from, run->flags.steps, rank_updates(run), run->is.steps);
}

/* Dies if a run in one process has nothing to do, since this would otherwise look like success. */
static void refuse_nothing(struct rank_run *run) {
    char why[DURABLE_PATH + 256];
    const char *dir = run->flags.checkpoint;
    bool evaluates = run->whole->evaluates;
    if (evaluates)
        snprintf(why, sizeof why, "%s: holds no checkpoint whose loss could be printed", dir);
    else
        snprintf(why, sizeof why, "%s: has already reached step %lld: nothing is left to train up to --steps %lld", dir,
                 (long long)run->from, (long long)run->flags.steps);
    world_verdict(&run->world, evaluates ? run->from > 0 : run->from < run->flags.steps, why);
}

void rank_begin(struct rank_run *run, struct training *training) {
    char why[DURABLE_PATH + 512] = "";
    count_updates(run);
    take(run, training);
    backend_choose(run);
    replay_expects(&run->program, &run->program.rank[run->world.rank]);
    bool ok = backend_take(run, why, sizeof why);
    world_verdict(&run->world, ok, why); /* comes before the next line, which needs all ranks */
    backend_connect(run);
    rank_find_owners(run);
    backend_begin(run);
    if (run->flags.checkpoint)
        rank_try_checkpoint(run);
    if (run->flags.resume)
        rank_resume(run);
    if (run->flags.resume && run->whole)
        refuse_nothing(run);
    if (rank_records(run))
        rank_record_open(run, &training->record);
    set_length(run);
    training->step = training->enqueued = run->from;
}

void rank_end(struct rank_run *run, struct training *training) {
    free(run->owner);
    free(training->pulse);
    free(training->loss);
    free(training->held_out[0]);
    if (rank_records(run))
        rank_record_close(run, &training->record);
}
