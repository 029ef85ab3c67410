/* The training loop of a rank: step by step, together with all others, under the watchdog. */
#include "rank_train.h"
#include "comm/watch.h"
#include "layers/rate.h"
#include "store/durable.h"
#include "store/progress.h"
#include "store/seconds.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float mean_of_batches(const struct rank_run *run, const float *loss) {
    float sum = 0;
    for (int b = 0; b < run->program.batches; b++)
        sum += loss[b];
    return sum / (float)run->program.batches;
}

static void check_data(struct rank_run *run) {
    char why[DURABLE_PATH + 512];
    if (!data_same(run->data, why, sizeof why))
        rank_fail(run, why);
}

static int stopped_by(const struct training *training) {
    return training->pulse[INTS] > 0 ? SIGINT : training->pulse[TERMS] > 0 ? SIGTERM : 0;
}

/* Returns whether the next step may be enqueued before this one has ended. It may not if something must come between
 * the two: the report after the first step; a checkpoint, which holds this step's state; reading this step's times,
 * which the next one overwrites; or a repetition of this step. Also, the first step may be the only one that is not
 * captured, and NCCL cannot run a communicator in a graph and outside one at once (NCCL's user guide, env.rst:
 * NCCL_GRAPH_MIXING_SUPPORT). */
static bool may_run_ahead(const struct rank_run *run, int64_t step) {
    const struct rank_flags *flags = &run->flags;
    bool saves = flags->checkpoint && (step + 1) % flags->every == 0;
    return backend_leads && step > run->from && step + 1 < flags->steps && !saves && !rank_keeps(run, step) &&
           !rank_records(run) && !run->held_out && !run->self->model->post_validation;
}

static void enqueue_step(struct rank_run *run, struct training *training, int64_t step) {
    if (training->enqueued > step)
        return;
    backend_enqueue(run, step);
    training->enqueued = step + 1;
}

/* Runs a step. Along with its messages, ranks exchange whether to stop after it, and the previous step's losses. So a
 * signal ends the run after the current step, or after a step that others have begun meanwhile. The next step is
 * enqueued ahead only once all ranks know that it will run: then every rank has enqueued this step and has ended the
 * previous one. */
static void run_step(struct rank_run *run, struct training *training) {
    int64_t step = training->step;
    if (rank_keeps(run, step)) /* steps whose times are kept begin together, as predictions assume */
        world_verdict(&run->world, true, NULL);
    training->pulse[INTS] = watch_signal() == SIGINT;
    training->pulse[TERMS] = watch_signal() == SIGTERM;
    training->pulse[NONFINITE] = run->replay->bad.step > 0;
    watch_step(run->replay, step);
    run->world.sum_begin(run->world.link, training->pulse, LOSSES + run->program.batches);
    enqueue_step(run, training, step);
    if (may_run_ahead(run, step)) {
        while (!run->world.progress(run->world.link))
            backend_look(run);
        if (!stopped_by(training) && training->pulse[NONFINITE] == 0)
            enqueue_step(run, training, step + 1);
    }
    double *when = rank_tells(run, &training->record) ? training->record.when : NULL;
    const struct nonfinite bad = run->replay->bad;
    backend_wait(run, step, training->loss, when);
    if (runs_again(&training->ahead, run->self->model, backend_found(run))) {
        run->replay->bad = bad;
        watch_step(run->replay, step); /* the deadline starts again */
        backend_again(run, step, training->loss, when);
    }
    nonfinite_look(&run->replay->bad, step + 1, run->world.rank, training->loss, run->program.batches);
    if (run->replay->bad.step == step + 1 && run->replay->bad.kind == NONFINITE_LOSS)
        run->replay->bad.unlabelled = data_unlabelled(run->data, step);
    if (rank_keeps(run, step))
        backend_times(run, step, rank_times(run, step));
    if (run->spans)
        run->spans[run->world.rank * run->flags.steps + step] = backend_span(run, step);
    run->world.sum_end(run->world.link);
    training->step++;
    check_data(run);
}

/* Settles the last update, before its weights are read or recorded. */
static void settle_step(struct rank_run *run, struct training *training, bool asked) {
    if (!must_settle(&training->ahead, asked))
        return;
    watch_phase("waits for all ranks to settle the last update");
    settled(&training->ahead, run->self->model, backend_settle(run));
}

double rank_rate(const struct rank_run *run, int64_t step) {
    return (double)rate_at(run->program.model, step * rank_updates(run), run->is.steps * rank_updates(run));
}

double rank_makespan(const struct rank_run *run, int64_t step) {
    double first = INFINITY, last = 0;
    for (int r = 0; r < run->world.size; r++) {
        const struct rt_stamp *span = &run->spans[r * run->flags.steps + step];
        first = fmin(first, span->start);
        last = fmax(last, span->end);
    }
    return last - first;
}

/* Computes the loss on all of the held-out text; all ranks take part in each of its steps. While one step runs, the
 * losses of the previous one are added up, by every rank, but only a reader's sum is right: others lack the labels. */
static void validate_run(struct rank_run *run, struct training *training) {
    int32_t B = run->program.batches;
    char why[DURABLE_PATH + 512];
    struct held_sum sum = {0, 0}, *all = malloc(sizeof *all * (size_t)run->world.size);
    if (!all)
        rank_error(run->self, "no memory");
    watch_phase("waits for all ranks to validate");
    for (int64_t k = 0; k <= run->held_steps; k++) {
        if (k < run->held_steps)
            backend_validate(run, k, training->held_out[k % 2]);
        if (k > 0) {
            run->world.sum_end(run->world.link);
            data_sum(run->held_out, k - 1, training->held_out[(k - 1) % 2], B, &sum);
        }
        if (k < run->held_steps)
            run->world.sum_begin(run->world.link, training->held_out[k % 2], B);
    }
    if (!data_same(run->held_out, why, sizeof why))
        rank_fail(run, why);
    run->world.all(run->world.link, &sum, all, sizeof sum);
    if (run->world.rank == 0)
        rank_record_validation(run, training, all[run->reader].loss / all[run->reader].weight);
    free(all);
}

/* Collective: also checks every home's learned state, because so far only losses were checked on the host. If any rank
 * has found a non-finite number, ends all ranks, or warns once and continues. */
static void judge_nonfinite(struct rank_run *run, const struct training *training) {
    const struct rt_rank *k = &run->program.rank[run->world.rank];
    struct nonfinite *mine = &run->replay->bad, first = {0}, *all = malloc(sizeof *all * (size_t)run->world.size);
    char what[128], why[DURABLE_PATH + 512], how[96];
    const char *on = run->flags.how ? run->flags.how : "";
    if (!all)
        rank_error(run->self, "no memory");
    for (int h = 0; h < k->nhomes && mine->step == 0; h++)
        rank_scan(run, &k->home[h], training->step);
    run->world.all(run->world.link, mine, all, sizeof *mine);
    for (int r = 0; r < run->world.size; r++)
        nonfinite_join(&first, &all[r]);
    free(all);
    if (first.step == 0)
        return;
    nonfinite_say(&first, what, sizeof what);
    if (!run->flags.how && run->flags.checkpoint && training->saved > 0) {
        snprintf(how, sizeof how, "; --resume continues from the checkpoint of step %lld", (long long)training->saved);
        on = how;
    }
    snprintf(why, sizeof why, "%s: the training has stopped; %s; --allow-nonfinite continues%s", what,
             first.unlabelled ? "give steps more sequences, or leave out text without labels"
                              : "lower lr, or clip the gradient (-D clip=1)",
             on);
    world_verdict(&run->world, run->flags.allow_nonfinite, why);
    run->is.nonfinite = true;
    if (run->world.rank == 0 && !run->whole)
        fprintf(stderr, "%spianola: warning: %s; the training continues (--allow-nonfinite)\n",
                isatty(STDERR_FILENO) ? "\r\033[K" : "", what);
}

/* Takes the loss of the previous step, which arrived with this step's pulse; after the last step, an extra pulse
 * carries it. */
static void know_loss(struct rank_run *run, struct training *training, int64_t step, struct progress *told) {
    training->last = mean_of_batches(run, training->pulse + LOSSES);
    if (step == run->from + 1)
        training->first = training->last;
    if (run->world.rank > 0)
        return;
    if (run->whole && run->whole->loss)
        run->whole->loss[step - 1] = training->last;
    if (told->what)
        progress_tell(told, step, training->last, rank_rate(run, step), training->seconds);
}

/* Does everything that comes between two steps. */
static void follow(struct rank_run *run, struct training *training, bool stop) {
    const struct rank_flags *flags = &run->flags;
    bool looks = (!run->whole || run->whole->looks) && !run->is.nonfinite, found = training->pulse[NONFINITE] > 0;
    bool saves = flags->checkpoint && (stop || training->step % flags->every == 0);
    bool validates = run->held_out && training->step % flags->val_every == 0;
    settle_step(run, training, stop || saves || validates || rank_records(run));
    training->seconds = seconds() - training->begun;
    if (rank_records(run))
        rank_record_step(run, training);
    if (looks && (found || saves))
        judge_nonfinite(run, training);
    if (validates)
        validate_run(run, training);
    if (rank_records(run))
        rank_record_end(run, training);
    if (!saves)
        return;
    rank_save(run, training->step);
    training->saved = training->step;
}

static void bring_loss(struct rank_run *run, struct training *training) {
    memcpy(training->pulse + LOSSES, training->loss, sizeof *training->pulse * (size_t)run->program.batches);
}

/* Validates before the first step. */
static void validate_first(struct rank_run *run, struct training *training) {
    training->record.ended = (struct rt_ended){-1, NULL, NULL, NAN};
    validate_run(run, training);
    rank_record_end(run, training);
}

void rank_tell_signal(const struct rank_run *run, const struct training *training) {
    fprintf(stderr, "pianola: %s came: stopped after step %lld%s\n", training->signal == SIGINT ? "SIGINT" : "SIGTERM",
            (long long)training->step, run->flags.checkpoint ? ", with a checkpoint" : "; there is no --checkpoint");
}

void rank_train(struct rank_run *run, struct training *training) {
    const struct rank_flags *flags = &run->flags;
    struct progress told = {.what = "training", .from = run->from, .steps = flags->steps, .tty = isatty(STDERR_FILENO)};
    told.tokens = (int64_t)run->program.model->rows * run->program.model->batches;
    if (run->whole)
        told.what = run->whole->what;
    training->begun = seconds();
    training->saved = run->from;
    if (run->held_out && (run->from == 0 || rank_evaluates(run)))
        validate_first(run, training);
    for (bool stop = run->from >= flags->steps; !stop;) {
        bring_loss(run, training);
        double began = seconds();
        run_step(run, training);
        training->took = seconds() - began;
        if (training->step == run->from + 1)
            backend_report(run);
        else
            know_loss(run, training, training->step - 1, &told);
        training->signal = stopped_by(training);
        stop = training->signal || training->step == flags->steps;
        follow(run, training, stop);
    }
    if (training->step == run->from)
        return;
    watch_phase("waits for all ranks to end");
    bring_loss(run, training);
    run->world.sum_begin(run->world.link, training->pulse, LOSSES + run->program.batches);
    run->world.sum_end(run->world.link);
    know_loss(run, training, training->step, &told);
    if ((!run->whole || run->whole->looks) && !run->is.nonfinite)
        judge_nonfinite(run, training);
}
