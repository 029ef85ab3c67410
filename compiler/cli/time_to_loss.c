/* Compares what schedules learn when all of them train the same model on the same microbatches.
 *
 * Losses of single microbatches vary more than schedules differ. So a schedule's loss after an update is the mean over
 * the last `window` microbatches, with the same window for all schedules. A schedule reaches the target at the first
 * update after which this loss stays at or below it. Its final loss is the mean of the last window. Times are
 * predicted, because this machine may have fewer cores than there are ranks. */
#include "time_to_loss.h"
#include "../../runtime/rt.h"
#include "base/put_json.h"
#include "training.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { WINDOWS = 10 }; /* windows in the whole training */

/* ---- training ---- */

void check_course(const struct compile *c, const struct settings *settings) {
    if (!c->spec->model)
        die("--train needs a model: give one with --model, e.g. --model schedules/models/gpt.lua");
    check_device(c, settings->train.cuda);
    if (strcmp(c->report->unit, "s") != 0)
        die("--train compares times in seconds: give a cluster that says how fast its ranks are, e.g. --cluster "
            "schedules/clusters/nodes.lua, or latency.lua with -D flops=1e12");
}

static void note_step(void *context, const struct rt_program *p, const struct rt_ended *of) {
    struct course *course = context;
    int32_t batches = p->model->batches, slices = p->batches / batches;
    int64_t n = batches / course->each;
    for (int32_t b = 0; b < batches; b++) {
        float sum = 0; /* a microbatch's loss is the mean over its slices */
        for (int32_t q = 0; q < slices; q++)
            sum += of->loss[b * slices + q];
        course->loss[of->step * batches + b] = sum / (float)slices;
    }
    memcpy(course->measured + of->step * n, of->when, sizeof *of->when * (size_t)n);
}

struct course run_course(const struct compile *c, const struct settings *settings, const char *name) {
    char why[512];
    struct rt_model model = trained_model(c->spec, c->program);
    struct update_times times = update_times(c->program, c->timeline);
    struct data *data = data_open(&model, settings->train.data, settings->seed, why, sizeof why);
    if (!data)
        die("%s", why);
    struct course course = {.name = name, .updates = times.n * settings->train.steps, .report = c->report};
    course.each = (int)(model.batches / times.n);
    course.loss = NEW(float, settings->train.steps *model.batches);
    course.predicted = NEW(double, course.updates);
    course.measured = NEW(double, course.updates);
    for (int64_t k = 0; k < course.updates; k++)
        course.predicted[k] = times.at[k % times.n] + (double)(k / times.n) * times.step;
    course.seconds = (double)(settings->train.steps - 1) * times.step + c->timeline->step;
    host_blas();
    struct trained trained = train(c, settings, data, settings->train.steps, 0, name,
                                   (struct listener){.ended = note_step, .context = &course});
    course.spent = trained.seconds;
    host_free(trained.program, trained.arena);
    data_close(data);
    return course;
}

/* ---- figures ---- */

static double *smooth(const struct course *course, int64_t window) {
    int64_t n = course->updates * course->each;
    double *sum = NEW(double, n + 1), *mean = NEW(double, course->updates);
    for (int64_t b = 0; b < n; b++)
        sum[b + 1] = sum[b] + (double)course->loss[b];
    for (int64_t k = 0; k < course->updates; k++) {
        int64_t b = (k + 1) * course->each;
        mean[k] = b < window ? NAN : (sum[b] - sum[b - window]) / (double)window;
    }
    return mean;
}

static double at_the_end(const struct course *course) { return course->smooth[course->updates - 1]; }

struct courses judge_courses(struct course *course, int n, int64_t steps, double target) {
    struct courses all = {.course = course, .n = n, .steps = steps, .target = target, .given = !isnan(target)};
    all.batches = course[0].updates * course[0].each / steps;
    all.window = steps * all.batches / WINDOWS;
    for (int i = 0; i < n; i++)
        all.window = course[i].each > all.window ? course[i].each : all.window;
    for (int i = 0; i < n; i++) {
        course[i].smooth = smooth(&course[i], all.window);
        if (!all.given && isfinite(at_the_end(&course[i])))
            all.target = fmax(all.target, at_the_end(&course[i])); /* a diverged schedule sets no target */
    }
    for (int i = 0; i < n; i++) {
        int64_t k = course[i].updates;
        while (k > 0 && course[i].smooth[k - 1] <= all.target)
            k--;
        course[i].reached = k < course[i].updates ? k : -1;
    }
    return all;
}

/* Returns the staleness of the stages' weights in updates: "3", or "0-3" from least to most. */
static const char *staleness(const struct report *report) {
    int least = report->staleness[0], most = least;
    for (int s = 1; s < report->stages; s++) {
        least = report->staleness[s] < least ? report->staleness[s] : least;
        most = report->staleness[s] > most ? report->staleness[s] : most;
    }
    return least == most ? format("%d", most) : format("%d-%d", least, most);
}

/* ---- printing ---- */

enum { NAME, STALENESS, UPDATES, LOSS, TIME, TO_TIME, TO_UPDATES, TO_BATCHES, NCOLUMNS };
static const char *const head[NCOLUMNS] = {"schedule", "staleness",       "updates", "loss",
                                           "time",     "to target: time", "updates", "microbatches"};

static void fill_cells(const char **cell, const struct course *course, const struct measure *measure) {
    char buf[32];
    int64_t k = course->reached;
    cell[NAME] = course->name;
    cell[STALENESS] = staleness(course->report);
    cell[UPDATES] = format("%lld", (long long)course->updates);
    cell[LOSS] = format("%.4f", at_the_end(course));
    cell[TIME] = format("%s", time_text(course->seconds, measure, buf));
    cell[TO_TIME] = k < 0 ? "never" : format("%s", time_text(course->predicted[k], measure, buf));
    cell[TO_UPDATES] = k < 0 ? "" : format("%lld", (long long)(k + 1));
    cell[TO_BATCHES] = k < 0 ? "" : format("%lld", (long long)((k + 1) * course->each));
}

static void put_cells(struct text *out, const char *const *cell, const int *width, bool markdown) {
    for (int c = 0; c < NCOLUMNS; c++)
        put(out, "%s%*s%s", markdown ? "| " : c ? "  " : "", c ? width[c] : -width[c], cell[c], markdown ? " " : "");
    put(out, markdown ? "|\n" : "\n");
}

void put_courses(struct text *out, const struct courses *courses, const struct settings *settings) {
    const char *cell[courses->n][NCOLUMNS];
    int width[NCOLUMNS];
    double longest = 0;
    for (int i = 0; i < courses->n; i++)
        longest = fmax(longest, courses->course[i].seconds);
    struct measure measure = measure_of(longest, "s", settings->draw.style.ascii);
    for (int i = 0; i < courses->n; i++)
        fill_cells(cell[i], &courses->course[i], &measure);
    for (int c = 0; c < NCOLUMNS; c++) {
        width[c] = (int)strlen(head[c]);
        for (int i = 0; i < courses->n; i++)
            width[c] = (int)strlen(cell[i][c]) > width[c] ? (int)strlen(cell[i][c]) : width[c];
    }
    put(out, "%s, %s of %s; losses are means over the last %s\n", counted(courses->course[0].report->workers, "rank"),
        counted(courses->steps, "step"), counted(courses->batches, "microbatch"),
        counted(courses->window, "microbatch"));
    put(out, "target: %.4f%s; times are predicted, in %s\n\n", courses->target,
        courses->given ? "" : ", the worst loss at the end", measure.name);
    put_cells(out, head, width, settings->markdown);
    for (int c = 0; settings->markdown && c < NCOLUMNS; c++)
        put(out, "|%s%s", c ? "---:" : "---", c == NCOLUMNS - 1 ? "|\n" : "");
    for (int i = 0; i < courses->n; i++)
        put_cells(out, cell[i], width, settings->markdown);
}

static void put_curve(struct text *out, const struct course *course) {
    char buf[4][32];
    for (int64_t k = 0; k < course->updates; k++) {
        double sum = 0;
        for (int64_t b = k * course->each; b < (k + 1) * course->each; b++)
            sum += (double)course->loss[b];
        put(out, "%s\n        [%lld, %s, %s, %s, %s]", k ? "," : "", (long long)((k + 1) * course->each),
            number_or_null(sum / course->each, buf[0]), number_or_null(course->smooth[k], buf[1]),
            number_or_null(course->predicted[k], buf[2]), number_or_null(course->measured[k], buf[3]));
    }
}

static void put_object(struct text *out, const struct course *course) {
    char buf[32];
    int64_t k = course->reached;
    put(out, "    {\n      \"schedule\": %s,\n      \"staleness\": [", quoted(course->name));
    for (int s = 0; s < course->report->stages; s++)
        put(out, "%s%d", s ? ", " : "", course->report->staleness[s]);
    put(out, "],\n      \"updates\": %lld,\n", (long long)course->updates);
    put(out, "      \"loss\": %s,\n", number_or_null(at_the_end(course), buf));
    put(out, "      \"predicted\": %s,\n", number_or_null(course->seconds, buf));
    put(out, "      \"measured\": %s,\n", number_or_null(course->spent, buf));
    put(out, "      \"target_predicted\": %s,\n", number_or_null(k < 0 ? NAN : course->predicted[k], buf));
    put(out, "      \"target_measured\": %s,\n", number_or_null(k < 0 ? NAN : course->measured[k], buf));
    put(out, "      \"target_updates\": %s,\n", number_or_null(k < 0 ? NAN : (double)(k + 1), buf));
    put(out, "      \"target_microbatches\": %s,\n",
        number_or_null(k < 0 ? NAN : (double)((k + 1) * course->each), buf));
    put(out, "      \"curve\": [");
    put_curve(out, course);
    put(out, "\n      ]\n    }");
}

void put_courses_json(struct text *out, const struct courses *courses) {
    char buf[32];
    put(out, "  \"steps\": %lld,\n  \"window\": %lld,\n  \"target\": %s,\n", (long long)courses->steps,
        (long long)courses->window, number_or_null(courses->target, buf));
    put(out, "  \"curve\": [\"microbatches\", \"loss\", \"smoothed\", \"predicted\", \"measured\"],\n");
    put(out, "  \"schedules\": [\n");
    for (int i = 0; i < courses->n; i++) {
        put_object(out, &courses->course[i]);
        put(out, "%s\n", i + 1 < courses->n ? "," : "");
    }
    put(out, "  ],\n");
}

void draw_courses(struct text *out, const struct courses *courses) {
    struct loss_line *line = NEW(struct loss_line, courses->n);
    for (int i = 0; i < courses->n; i++) {
        const struct course *course = &courses->course[i];
        line[i] = (struct loss_line){course->name,   course->updates,   course->each,
                                     course->smooth, course->predicted, course->reached};
    }
    emit_losses(out,
                format("%s on %s; losses are means over %lld", counted(courses->steps * courses->batches, "microbatch"),
                       counted(courses->course[0].report->workers, "rank"), (long long)courses->window),
                "predicted time", line, courses->n, courses->target);
}
