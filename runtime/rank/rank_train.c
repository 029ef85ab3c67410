/* The training loop of a rank that is a process: step by step, in step with all others, under the watchdog. */
#include "rank_train.h"
#include "comm/watch.h"
#include "layers/rate.h"
#include "store/durable.h"
#include "store/losses.h"
#include "store/metrics.h"
#include "store/progress.h"
#include "store/seconds.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float mean(const struct rank_run *run, const float *loss) {
    float sum = 0;
    for (int b = 0; b < run->program.batches; b++)
        sum += loss[b];
    return sum / (float)run->program.batches;
}

static void check_data(struct rank_run *run) {
    char why[DURABLE_PATH + 512];
    if (!data_same(run->data, why, sizeof why))
        rank_error(run->self, why);
}

static int stopped_by(const struct training *training) {
    return training->pulse[INTS] > 0 ? SIGINT : training->pulse[TERMS] > 0 ? SIGTERM : 0;
}

/* May the step behind this one be enqueued before this one has ended? Not if something comes between them: the report
 * after the first; a checkpoint, which is of this step's state; reading times, which the next one takes anew; that this
 * one may have to run again. Nor if there is no such step. The first may also be the only one that is not captured, and
 * NCCL runs no communicator in a graph and outside at once (NCCL's user guide, env.rst: NCCL_GRAPH_MIXING_SUPPORT). */
static bool leads(const struct rank_run *run, int64_t step) {
    const struct rank_flags *flags = &run->flags;
    bool saves = flags->checkpoint && (step + 1) % flags->every == 0;
    return backend_leads && step > run->from && step + 1 < flags->steps && !saves && !flags->timeline &&
           !rank_records(flags) && !flags->held_out && !run->self->model->post_validation;
}

static void enqueue(struct rank_run *run, struct training *training, int64_t step) {
    if (training->enqueued > step)
        return;
    backend_enqueue(run, step);
    training->enqueued = step + 1;
}

/* In each step, along with its messages, ranks exchange whether to stop after it, and the losses of the step before. So
 * a signal ends the run after the current step, or after one that others have begun meanwhile. The next step is
 * enqueued ahead only once all know that it will come: then every rank has enqueued this one, and has ended the one
 * before. */
static void step(struct rank_run *run, struct training *training) {
    int64_t step = training->step;
    training->pulse[INTS] = watch_signal() == SIGINT;
    training->pulse[TERMS] = watch_signal() == SIGTERM;
    training->pulse[NONFINITE] = run->replay.bad.step > 0;
    watch_step(&run->replay, step);
    run->world.sum_begin(run->world.link, training->pulse, LOSSES + run->program.batches);
    enqueue(run, training, step);
    if (leads(run, step)) {
        while (!run->world.progress(run->world.link))
            backend_look(run);
        if (!stopped_by(training) && training->pulse[NONFINITE] == 0)
            enqueue(run, training, step + 1);
    }
    double *when = training->tells ? training->when : NULL;
    const struct nonfinite bad = run->replay.bad;
    backend_wait(run, step, training->loss, when);
    if (runs_again(&training->ahead, run->self->model, backend_found(run))) {
        run->replay.bad = bad;
        watch_step(&run->replay, step); /* its time begins again */
        backend_again(run, step, training->loss, when);
    }
    nonfinite_look(&run->replay.bad, step + 1, run->world.rank, training->loss, run->program.batches);
    if (run->flags.timeline)
        rank_timeline_keep(run, step);
    run->world.sum_end(run->world.link);
    training->step++;
    check_data(run);
}

/* Before anybody sees what the step has learned, or keeps a record of it. */
static void settle(struct rank_run *run, struct training *training, bool asked) {
    if (!must_settle(&training->ahead, asked))
        return;
    watch_phase("waits for all ranks to settle the last update");
    settled(&training->ahead, run->self->model, backend_settle(run));
}

static float rate_of(const struct rank_run *run, int64_t step) {
    return rate_at(run->program.model, step * rank_updates(run), run->is.steps * rank_updates(run));
}

/* seconds: the step took; waited: the ranks, together. */
static void tell_metrics(struct rank_run *run, struct training *training, double seconds, double waited, double norm) {
    const struct rt_model *m = run->program.model;
    char why[DURABLE_PATH + 512];
    struct metrics_step step = {.step = training->step,
                                .loss = mean_loss(training->known, run->program.batches),
                                .rate = rate_of(run, training->step),
                                .norm = norm,
                                .seconds = seconds,
                                .tokens = (double)m->rows * m->batches,
                                .waited = waited / run->world.size,
                                .memory = training->memory};
    if ((run->flags.metrics && !metrics_step(&training->metrics, &step, why, sizeof why)) ||
        (run->flags.tensorboard && !tensorboard_step(&training->board, &step, why, sizeof why)))
        rank_error(run->self, why);
}

/* The lines of the step that has just ended, before a checkpoint says that it has. A time is exchanged as two floats,
 * of which the second is what the first one lacks, and a norm as its bits; only one rank has them. */
static void tell_step(struct rank_run *run, struct training *training, double seconds) {
    int32_t B = run->program.batches, n = rank_updates(run);
    float *time = training->known + B, *norm = time + 2 * n + 1;
    char why[DURABLE_PATH + 512];
    time[2 * n] = (float)backend_waited(run);
    memcpy(training->known, training->loss, sizeof *training->known * (size_t)B);
    for (int32_t k = 0; k < n; k++) {
        double at = training->tells ? training->when[k] - training->begun : 0;
        time[2 * k] = (float)at;
        time[2 * k + 1] = (float)(at - (double)time[2 * k]);
    }
    double whole = training->tells ? backend_norm(run, training->step - 1) : 0;
    uint64_t bits;
    memcpy(&bits, &whole, sizeof bits);
    for (int i = 0; i < NORM_FLOATS; i++)
        norm[i] = (float)(bits >> 16 * i & 0xffff);
    run->world.sum_begin(run->world.link, training->known, B + 2 * n + 1 + NORM_FLOATS);
    run->world.sum_end(run->world.link);
    if (run->world.rank > 0)
        return;
    for (int32_t k = 0; k < n; k++)
        training->when[k] = (double)time[2 * k] + (double)time[2 * k + 1];
    bits = 0;
    for (int i = 0; i < NORM_FLOATS; i++)
        bits |= (uint64_t)norm[i] << 16 * i;
    memcpy(&whole, &bits, sizeof whole);
    if (run->flags.metrics || run->flags.tensorboard)
        tell_metrics(run, training, seconds, (double)time[2 * n], whole);
    if (run->flags.losses &&
        !losses_step(&training->losses, training->step - 1, B, run->program.model->slices,
                     &run->program.stage[run->program.updated], training->known, NULL, training->when, why, sizeof why))
        rank_error(run->self, why);
}

/* The loss on all of the held-out text; each step of it is all ranks'. */
static void validate(struct rank_run *run, struct training *training) {
    int32_t B = run->program.batches;
    char why[DURABLE_PATH + 512];
    struct held_sum sum = {0, 0};
    watch_phase("waits for all ranks to validate");
    for (int64_t k = 0; k < run->held_steps; k++) {
        backend_validate(run, k, training->held_out);
        run->world.sum_begin(run->world.link, training->held_out, B);
        run->world.sum_end(run->world.link);
        data_sum(run->held_out, k, training->held_out, B, &sum);
    }
    if (!data_same(run->held_out, why, sizeof why))
        rank_error(run->self, why);
    if (run->world.rank > 0)
        return;
    double loss = sum.loss / (double)sum.sequences;
    fprintf(stderr, "%svalidation: step %lld  loss %.4f\n", isatty(STDERR_FILENO) ? "\r\033[K" : "",
            (long long)training->step, loss);
    if ((run->flags.metrics && !metrics_validation(&training->metrics, training->step, loss, why, sizeof why)) ||
        (run->flags.tensorboard && !tensorboard_validation(&training->board, training->step, loss, why, sizeof why)))
        rank_error(run->self, why);
}

/* Collective: looks at what every home has learned, too, where only the host has been looking; then ends all ranks if
 * any of them has found a number that is not finite, or says so once and goes on. */
static void judge_nonfinite(struct rank_run *run, const struct training *training) {
    const struct rt_rank *k = &run->program.rank[run->world.rank];
    struct nonfinite *mine = &run->replay.bad, first = {0}, *all = malloc(sizeof *all * (size_t)run->world.size);
    char what[128], why[DURABLE_PATH + 512], how[96] = "";
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
    if (run->flags.checkpoint && training->saved > 0)
        snprintf(how, sizeof how, "; --resume goes on from the checkpoint of step %lld", (long long)training->saved);
    snprintf(why, sizeof why,
             "%s: the training has stopped; lower lr, or clip the gradient (-D clip=1); "
             "--allow-nonfinite goes on%s",
             what, how);
    world_verdict(&run->world, run->flags.allow_nonfinite, why);
    run->is.nonfinite = true;
    if (run->world.rank == 0)
        fprintf(stderr, "%spianola: warning: %s; the training goes on (--allow-nonfinite)\n",
                isatty(STDERR_FILENO) ? "\r\033[K" : "", what);
}

void rank_train(struct rank_run *run, struct training *training) {
    const struct rank_flags *flags = &run->flags;
    int B = run->program.batches;
    struct progress told = {.what = "training", .from = run->from, .steps = flags->steps, .tty = isatty(STDERR_FILENO)};
    told.tokens = (int64_t)run->program.model->rows * run->program.model->batches;
    training->begun = seconds();
    training->saved = run->from;
    if (flags->held_out && run->from == 0)
        validate(run, training);
    for (bool stop = run->from >= flags->steps; !stop;) {
        memcpy(training->pulse + LOSSES, training->loss, sizeof *training->pulse * (size_t)B);
        double began = seconds();
        step(run, training);
        double took = seconds() - began;
        if (training->step == run->from + 1)
            backend_report(run);
        training->last = mean(run, training->pulse + LOSSES);
        if (training->step == run->from + 2)
            training->first = training->last;
        training->signal = stopped_by(training);
        stop = training->signal || training->step == flags->steps;
        bool found = training->pulse[NONFINITE] > 0;
        bool saves = flags->checkpoint && (stop || training->step % flags->every == 0);
        bool validates = flags->held_out && training->step % flags->val_every == 0;
        settle(run, training, stop || saves || validates || rank_records(flags));
        training->seconds = seconds() - training->begun;
        if (run->world.rank == 0 && training->step > run->from + 1)
            progress_tell(&told, training->step - 1, training->last, (double)rate_of(run, training->step - 1),
                          training->seconds);
        if (rank_records(flags))
            tell_step(run, training, took);
        if ((found || saves) && !run->is.nonfinite)
            judge_nonfinite(run, training);
        if (validates)
            validate(run, training);
        if (saves) {
            rank_save(run, training->step);
            training->saved = training->step;
        }
    }
    watch_phase("waits for all ranks to end");
    memcpy(training->pulse + LOSSES, training->loss, sizeof *training->pulse * (size_t)B);
    run->world.sum_begin(run->world.link, training->pulse, LOSSES + B);
    run->world.sum_end(run->world.link);
    training->last = mean(run, training->pulse + LOSSES);
    if (training->step == run->from + 1)
        training->first = training->last;
    if (training->step > run->from && !run->is.nonfinite)
        judge_nonfinite(run, training);
    if (run->world.rank == 0 && training->step > run->from)
        progress_tell(&told, training->step, training->last, (double)rate_of(run, training->step), training->seconds);
}
