#include "run_record.h"
#include "files.h"
#include <math.h>
#include <string.h>

/* Each step's loss and end time, for --loss-svg. */
struct record {
    const struct compile *c;
    const struct settings *settings;
    double *loss, *seconds;
    double *validation, *validated;
    int64_t validations;
};

static void record_step(void *context, const struct rt_program *p, const struct rt_ended *of) {
    struct record *record = context;
    int32_t n = updates_per_step(p->batches, &p->stage[p->updated]);
    if (of->step < 0)
        return;
    record->loss[of->step] = mean_loss(of->loss, p->batches);
    record->seconds[of->step] = of->when[n - 1];
    if (!isfinite(of->validation))
        return;
    record->validation[record->validations] = of->validation;
    record->validated[record->validations++] = of->when[n - 1];
}

static void draw_record(const struct record *record, const struct rt_result *result) {
    const struct settings *settings = record->settings;
    int batches = whole_batches(record->c->spec);
    const struct loss_line line[] = {{"training", result->done - result->from, batches, record->loss + result->from,
                                      record->seconds + result->from, -1},
                                     {"validation", record->validations, batches * (int)settings->train.validate_every,
                                      record->validation, record->validated, -1}};
    struct text out = {0};
    emit_losses(
        &out,
        format("%s: %s of %s", record->c->spec->name, counted(result->done, "step"), counted(batches, "microbatch")),
        "time", line, record->validations > 0 ? 2 : 1, NAN);
    write_file(settings->record.loss_svg, &out);
}

struct trained train_and_record(const struct compile *c, const struct settings *settings, struct data *data,
                                struct data *held_out, int64_t kept, const struct introduction *introduction) {
    struct update_times times = update_times(c->program, c->timeline);
    struct record record = {.c = c, .settings = settings};
    int64_t validations = settings->train.steps / settings->train.validate_every + 1;
    char what[128];
    record.loss = NEW(double, settings->train.steps);
    record.seconds = NEW(double, settings->train.steps);
    record.validation = NEW(double, validations);
    record.validated = NEW(double, validations);
    struct listener listener = {.ended = settings->record.loss_svg ? record_step : NULL, .context = &record};
    listener.introduction = introduction;
    listener.held_out = held_out;
    listener.records = true;
    if (strcmp(c->report->unit, "s") == 0) {
        listener.predicted = times.at;
        listener.predicted_step = times.step;
    }
    struct trained trained = train(c, settings, data, settings->train.steps, kept, "training", listener);
    if (trained.result.bad.step > 0) /* the user allowed such a training to continue */
        fprintf(stderr, "pianola: warning: %s; the training continued (--allow-nonfinite)\n",
                nonfinite_say(&trained.result.bad, what, sizeof what));
    if (settings->record.loss_svg)
        draw_record(&record, &trained.result);
    return trained;
}
