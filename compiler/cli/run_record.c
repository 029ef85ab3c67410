#include "run_record.h"
#include "../../runtime/device/rates.h"
#include "../../runtime/store/losses.h"
#include "../../runtime/store/metrics.h"
#include "../../runtime/store/tensorboard.h"
#include "files.h"
#include "run_saving.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

struct record {
    const struct compile *c;
    const struct settings *settings;
    const struct data *held_out;
    int64_t from, of; /* as in rt_run */
    struct journal losses, metrics;
    struct tensorboard board;
    struct update_times times;
    double *predicted;      /* of a step's updates; NULL: the cluster does not tell seconds */
    double *loss, *seconds; /* of each step: its loss, and when it ended, for the picture */
    double *validation, *validated;
    int64_t validations;
};

/* The ranks' threads are at work: only the process can end. */
static void must(bool ok, const char *why) {
    if (ok)
        return;
    fprintf(stderr, "%spianola: error: %s\n", isatty(STDERR_FILENO) ? "\n" : "", why);
    _exit(2);
}

static int64_t most_memory(const struct rt_program *p) {
    int64_t most = 0;
    for (int r = 0; r < p->workers; r++)
        most = p->rank[r].arena > most ? p->rank[r].arena : most;
    return most;
}

static void keep(struct record *record, const struct rt_program *p, const struct rt_ended *of) {
    int32_t n = updates_per_step(p->batches, &p->stage[p->updated]);
    record->loss[of->step] = mean_loss(of->loss, p->batches);
    record->seconds[of->step] = of->when[n - 1];
    if (!isfinite(of->validation))
        return;
    record->validation[record->validations] = of->validation;
    record->validated[record->validations++] = of->when[n - 1];
}

static void tell_validation(struct record *record, int64_t step, double loss) {
    char why[512];
    if (record->settings->record.tensorboard)
        must(tensorboard_validation(&record->board, step, loss, why, sizeof why), why);
    if (record->settings->record.metrics)
        must(metrics_validation(&record->metrics, step, loss, why, sizeof why), why);
    fprintf(stderr, "%svalidation: step %lld  loss %.4f\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", (long long)step,
            loss);
}

static void tell(void *context, const struct rt_program *p, const struct rt_ended *of) {
    struct record *record = context;
    const struct settings *settings = record->settings;
    char why[512];
    if (of->step < 0) {
        tell_validation(record, 0, of->validation);
        return;
    }
    for (int64_t k = 0; record->predicted && k < record->times.n; k++)
        record->predicted[k] = record->times.at[k] + (double)of->step * record->times.step;
    if (settings->record.losses)
        must(losses_step(&record->losses, of->step, p->batches, p->model->slices, &p->stage[p->updated], of->loss,
                         record->predicted, of->when, why, sizeof why),
             why);
    struct metrics_step step = {.step = of->step + 1,
                                .loss = mean_loss(of->loss, p->batches),
                                .rate = rate_after(p, of->step + 1, record->of),
                                .norm = of->norm,
                                .seconds = of->seconds,
                                .tokens = (double)p->model->rows * p->model->batches,
                                .waited = of->waited,
                                .memory = most_memory(p)};
    if (settings->record.tensorboard)
        must(tensorboard_step(&record->board, &step, why, sizeof why), why);
    if (settings->record.metrics)
        must(metrics_step(&record->metrics, &step, why, sizeof why), why);
    keep(record, p, of);
    if ((of->step + 1) % settings->train.validate_every == 0 && record->held_out)
        tell_validation(record, of->step + 1, of->validation);
}

static void draw(const struct record *record) {
    const struct settings *settings = record->settings;
    int batches = whole_batches(record->c->spec);
    const struct loss_line line[] = {{"training", settings->train.steps - record->from, batches,
                                      record->loss + record->from, record->seconds + record->from, -1},
                                     {"validation", record->validations, batches * (int)settings->train.validate_every,
                                      record->validation, record->validated, -1}};
    struct text out = {0};
    emit_losses(
        &out,
        format("%s: %lld steps of %d microbatches", record->c->spec->name, (long long)settings->train.steps, batches),
        "time", line, record->validations > 0 ? 2 : 1, NAN);
    write_file(settings->record.loss_svg, &out);
}

/* Dies, unless the user lets such a training go on. */
static void tell_nonfinite(const struct nonfinite *bad, const struct settings *settings) {
    char what[128];
    if (bad->step == 0)
        return;
    nonfinite_say(bad, what, sizeof what);
    if (!settings->train.allow_nonfinite)
        die("%s: the training has stopped; lower lr, or clip the gradient (-D clip=1); --allow-nonfinite goes on%s",
            what, how_to_go_on(settings));
    fprintf(stderr, "pianola: warning: %s; the training went on (--allow-nonfinite)\n", what);
}

struct trained train_and_record(const struct compile *c, const struct settings *settings, struct data *data,
                                const struct data *held_out, const struct saving *saving, int64_t kept) {
    int64_t from = saving ? saving->from : 0,
            of = from > 0 && saving->is.steps > 0 ? saving->is.steps : settings->train.steps;
    struct record record = {
        .c = c, .held_out = held_out, .settings = settings, .times = update_times(c->program, c->timeline)};
    bool listens = settings->record.losses || settings->record.metrics || settings->record.tensorboard ||
                   settings->record.loss_svg || held_out;
    struct listener listener = {listens ? tell : NULL, &record, held_out, .times = !settings->train.cuda};
    listener.stops = !settings->train.allow_nonfinite;
    listener.saving = saving;
    record.of = listener.of = of;
    record.from = from;
    char why[512];
    if (strcmp(c->report->unit, "s") == 0)
        record.predicted = NEW(double, record.times.n);
    record.loss = NEW(double, settings->train.steps);
    record.seconds = NEW(double, settings->train.steps);
    record.validation = NEW(double, settings->train.steps / settings->train.validate_every + 1);
    record.validated = NEW(double, settings->train.steps / settings->train.validate_every + 1);
    if ((settings->record.losses &&
         !losses_open(&record.losses, settings->record.losses, from * record.times.n, why, sizeof why)) ||
        (settings->record.metrics && !metrics_open(&record.metrics, settings->record.metrics, from, why, sizeof why)) ||
        (settings->record.tensorboard &&
         !tensorboard_open(&record.board, settings->record.tensorboard, from, why, sizeof why)))
        die("%s", why);
    rates_warn(&c->spec->model->rt, from, settings->train.steps, record.times.n, of);
    struct trained trained = train(c, settings, data, settings->train.steps, kept, "training", listener);
    if (settings->record.losses)
        journal_close(&record.losses);
    tensorboard_close(&record.board);
    if (settings->record.metrics)
        journal_close(&record.metrics);
    tell_nonfinite(&trained.bad, settings);
    if (settings->record.loss_svg)
        draw(&record);
    return trained;
}
