/* Records of a training as it runs: --losses, --metrics, --tensorboard, and the line of a validation. All ranks
 * contribute their figures of a step, and rank 0 writes them, on a CPU or a GPU, whether ranks are processes or
 * threads. */
#include "rank_train.h"
#include "store/durable.h"
#include "store/losses.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the figures of a step ---- */

static double loss_of(const struct rank_run *run, const struct training *training) {
    return mean_loss(training->record.loss, run->program.batches);
}
static double rate_of(const struct rank_run *run, const struct training *training) {
    return rank_rate(run, training->step);
}
static double norm_of(const struct rank_run *run, const struct training *training) {
    return backend_norm((struct rank_run *)(uintptr_t)run, training->step - 1);
}
static double seconds_of(const struct rank_run *run, const struct training *training) {
    return run->spans ? rank_makespan(run, training->step - 1) : training->took;
}
static double speed_of(const struct rank_run *run, const struct training *training) {
    return (double)run->program.model->rows * run->program.model->batches / seconds_of(run, training);
}
static double device_memory(const struct rank_run *run, const struct training *training) {
    (void)training;
    return (double)run->program.rank[run->world.rank].arena;
}
static double waited_of(const struct rank_run *run, const struct training *training) {
    (void)training;
    return backend_waited((struct rank_run *)(uintptr_t)run);
}

/* All figures; a new figure is a new row. whose: which ranks' value is recorded: rank 0's, the value of the rank that
 * updates the last stage, the largest, or the mean. */
enum whose { FIRST, TELLER, LARGEST, MEAN };
static const struct figure {
    struct metric is;
    enum whose whose;
    double (*of)(const struct rank_run *run, const struct training *training);
} figures[] = {
    {{"loss", "train/loss", 9, true, 0}, FIRST, loss_of},           /* with the weights before the step's update */
    {{"rate", "train/learning_rate", 9, false, 0}, FIRST, rate_of}, /* of the step's last update */
    {{"gradient_norm", "train/gradient_norm", 17, false, 0}, TELLER, norm_of}, /* the gradient's norm before clipping */
    {{"seconds", "train/seconds_per_step", 6, false, 0}, FIRST, seconds_of},
    {{"tokens_per_second", "train/tokens_per_second", 6, false, 0}, FIRST, speed_of},
    {{"memory_bytes", NULL, 17, false, 0}, LARGEST, device_memory}, /* arena on the device */
    /* Seconds that the compute lane waited for other lanes, between its first instruction and its last. */
    {{"waited_seconds", "train/waited_seconds", 6, false, 0}, MEAN, waited_of},
};
enum { NFIGURES = sizeof figures / sizeof *figures };

/* Combines a figure of all ranks. all: rank 0's figure; the ranks' figures are `apart` doubles apart. */
static double figure_of(const struct figure *figure, const double *all, int size, int64_t apart, int teller) {
    double sum = 0, largest = *all;
    for (int r = 0; r < size; r++) {
        sum += all[r * apart];
        largest = fmax(largest, all[r * apart]);
    }
    switch (figure->whose) {
    case FIRST: return *all;
    case TELLER: return all[teller * apart];
    case LARGEST: return largest;
    default: return sum / size;
    }
}

/* ---- at the start, and at the end ---- */

bool rank_records(const struct rank_run *run) {
    const struct rank_flags *flags = &run->flags;
    return flags->losses || flags->metrics || flags->tensorboard || (run->whole && run->whole->ended);
}

void rank_record_open(struct rank_run *run, struct record *record) {
    char why[DURABLE_PATH + 512] = "";
    size_t n = (size_t)rank_updates(run), size = (size_t)run->world.size;
    const struct rank_flags *flags = &run->flags;
    record->loss = calloc((size_t)run->program.batches, sizeof *record->loss);
    record->mine = calloc((NFIGURES + n) * (size + 1) + 2 * n, sizeof *record->mine);
    if (!record->loss || !record->mine)
        rank_error(run->self, "no memory");
    record->all = record->mine + NFIGURES + n;
    record->when = record->all + (NFIGURES + n) * size;
    record->predicted = record->when + n;
    record->teller = rank_owners(run, run->program.updated)[0];
    bool ok = true;
    if (run->world.rank == 0 && flags->losses)
        ok = losses_open(&record->losses, flags->losses, run->from * rank_updates(run), why, sizeof why);
    if (run->world.rank == 0 && flags->metrics && ok)
        ok = metrics_open(&record->metrics, flags->metrics, run->from, why, sizeof why);
    if (run->world.rank == 0 && flags->tensorboard && ok)
        ok = tensorboard_open(&record->board, flags->tensorboard, run->from, why, sizeof why);
    world_verdict(&run->world, ok, why);
}

void rank_record_close(struct rank_run *run, struct record *record) {
    free(record->loss);
    free(record->mine);
    if (run->world.rank > 0)
        return;
    if (run->flags.losses)
        journal_close(&record->losses);
    if (run->flags.metrics)
        journal_close(&record->metrics);
    tensorboard_close(&record->board);
}

/* ---- during the training ---- */

static void write_figures(struct rank_run *run, struct record *record, int64_t step, const struct metric *metric,
                          int n) {
    char why[DURABLE_PATH + 512];
    if ((run->flags.metrics && !metrics_line(&record->metrics, step, metric, n, why, sizeof why)) ||
        (run->flags.tensorboard && !tensorboard_line(&record->board, step, metric, n, why, sizeof why)))
        rank_error(run->self, why);
}

static void write_losses(struct rank_run *run, struct record *record, int64_t step) {
    char why[DURABLE_PATH + 512];
    const struct rt_run *whole = run->whole;
    bool predicts = whole && whole->predicted;
    for (int32_t k = 0; k < rank_updates(run) && predicts; k++)
        record->predicted[k] = whole->predicted[k] + (double)step * whole->predicted_step;
    const struct losses_step of = {step, record->loss, predicts ? record->predicted : NULL, record->when};
    if (run->flags.losses && !losses_step(&record->losses, &run->program, &of, why, sizeof why))
        rank_error(run->self, why);
}

void rank_record_step(struct rank_run *run, struct training *training) {
    struct record *record = &training->record;
    int32_t B = run->program.batches, n = rank_updates(run), apart = NFIGURES + n;
    struct metric metric[NFIGURES];
    memcpy(record->loss, training->loss, sizeof *record->loss * (size_t)B);
    run->world.sum_begin(run->world.link, record->loss, B);
    run->world.sum_end(run->world.link);
    for (int i = 0; i < NFIGURES; i++)
        record->mine[i] = figures[i].of(run, training);
    for (int32_t k = 0; k < n; k++)
        record->mine[NFIGURES + k] = rank_tells(run, record) ? record->when[k] - training->begun : 0;
    run->world.all(run->world.link, record->mine, record->all, sizeof *record->mine * (size_t)apart);
    if (run->world.rank > 0)
        return;
    for (int i = 0; i < NFIGURES; i++) {
        metric[i] = figures[i].is;
        metric[i].value = figure_of(&figures[i], record->all + i, run->world.size, apart, record->teller);
    }
    memcpy(record->when, record->all + (int64_t)record->teller * apart + NFIGURES, sizeof *record->when * (size_t)n);
    write_losses(run, record, training->step - 1);
    write_figures(run, record, training->step, metric, NFIGURES);
    record->ended = (struct rt_ended){training->step - 1, record->loss, record->when, NAN};
}

void rank_record_validation(struct rank_run *run, struct training *training, double loss) {
    struct record *record = &training->record;
    const struct metric metric = {"validation_loss", "validation/loss", 9, true, loss};
    record->ended.validation = loss;
    if (run->whole && run->whole->evaluates)
        return;
    fprintf(stderr, "%svalidation: step %lld  loss %.4f\n", isatty(STDERR_FILENO) ? "\r\033[K" : "",
            (long long)training->step, loss);
    write_figures(run, record, training->step, &metric, 1);
}

void rank_record_end(const struct rank_run *run, const struct training *training) {
    if (run->world.rank == 0 && run->whole && run->whole->ended)
        run->whole->ended(run->whole->context, &training->record.ended);
}
