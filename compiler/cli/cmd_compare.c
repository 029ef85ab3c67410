/* `pianola compare`: one row per schedule, at equal numbers of ranks and microbatches.
 *
 * The size comes from -D, else from the first schedule: the others' parameters `workers` and `batches` are set to it.
 * Schedules that do not support this size, or do not compile, are left out of the table and listed below it.
 *
 * A schedule with more stages than ranks has smaller jobs. With a model, the costs reflect that. Without one, every F
 * costs 1 whatever the number of stages, so times are scaled by W / S. The unit is then the F of a rank's share of the
 * model. Live activations are always scaled like that: 1 is one microbatch's activation in a rank's share. Where a team
 * divides a model's stage, each member has its part of the activation. So all schedules do the same work.
 *
 * Columns:
 *   exposed: the share of the ranks' time spent waiting for weights, gradient reductions and copies to host memory.
 *   closed: the bubble by the script's closed form.
 *   held: how much of the allowed activation memory (caps, or peaks, times the makespan) is occupied.
 *   memory: bytes of a rank's device that the plan takes; least: bytes that would suffice, where that is less.
 *   steady: time per microbatch in the steady state.
 *   stale: the largest staleness of a job's weights, in updates.
 *   versions: the most versions of a stage's weights that a home holds at once.
 *   mean, p95: makespans of runs with noise (--jitter).
 * The columns steady, stale and versions appear where updates are jobs, or with --steady. If weights are fetched, the
 * last two columns have the makespan with a fixed prefetch of one or two uses ahead.
 *
 * With --train, prints another table: the loss that each schedule reaches, and when (time_to_loss.c). */
#include "base/put_json.h"
#include "command.h"
#include "pipeline.h"
#include "files.h"
#include "options.h"
#include "time_to_loss.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME,
    STAGES,
    MAKESPAN,
    MEAN,
    P95,
    STEADY,
    BUBBLE,
    CLOSED,
    STALENESS,
    VERSIONS,
    EXPOSED,
    LIVE,
    MEMORY,
    LEAST,
    SENT,
    BOUND,
    GAP,
    HELD,
    ONE,
    TWO,
    NCOLUMNS
};
static const struct {
    const char *head, *key; /* the table's heading, which --sort takes; the key in JSON */
} column[NCOLUMNS] = {
    {"schedule", "schedule"}, {"stages", "stages"},     {"makespan", "makespan"},   {"mean", "mean"},
    {"p95", "p95"},           {"steady", "steady"},     {"bubble", "bubble"},       {"closed", "closed_bubble"},
    {"stale", "staleness"},   {"versions", "versions"}, {"exposed", "exposed"},     {"live", "peak_activations"},
    {"memory", "peak_bytes"}, {"least", "least_bytes"}, {"sent", "bytes_sent"},     {"bound", "lower_bound"},
    {"gap", "gap"},           {"held", "memory_time"},  {"one-ahead", "one_ahead"}, {"two-ahead", "two_ahead"},
};

struct row {
    const char *file, *name;
    bool updates;            /* whether updates are jobs */
    struct jitter jitter;    /* runs is 0 without --jitter */
    double figure[NCOLUMNS]; /* NAME's entry is unused */
    struct compile compiled; /* kept for --train */
};

enum { WHY = 400 };
struct left_out {
    const char *file, *name;
    char why[WHY];
};

static int sorted_by; /* sort has no context argument */

static int by_size(const void *x, const void *y) {
    const struct row *a = x, *b = y;
    double p = a->figure[sorted_by], q = b->figure[sorted_by];
    if (sorted_by != NAME && p != q)
        return p < q ? -1 : 1;
    return strcmp(a->name, b->name);
}

const char *column_words(void) {
    struct text t = {0};
    for (int i = 0; i < NCOLUMNS; i++)
        put(&t, "%s%s", i ? " " : "", column[i].head);
    return t.s;
}

static int column_named(const char *head) {
    const char *heads[NCOLUMNS];
    for (int i = 0; i < NCOLUMNS; i++) {
        if (strcmp(head, column[i].head) == 0)
            return i;
        heads[i] = column[i].head;
    }
    const char *near = nearest(head, heads, NCOLUMNS);
    die("--sort %s: there is no such column%s%s%s; use %s", head, near ? "; did you mean '" : "", near ? near : "",
        near ? "'?" : "", listed(column_words()));
}

/* Returns how many ranks' shares of the model (a W-th each) one live activation of c's report represents on average. */
static double shares_of_activation(const struct compile *c) {
    int parts = c->spec->model ? c->spec->stages : c->report->stages; /* a model's team members have a part each */
    return (double)c->report->workers / parts / slices_of(&c->spec->names);
}

static struct row measure_row(const struct compile *c, const char *file) {
    const struct report *report = c->report;
    struct row row = {.file = file, .updates = report->updates};
    double share = shares_of_activation(c), scale = c->spec->model ? 1 : share, *f = row.figure;
    f[STAGES] = report->stages;
    f[MAKESPAN] = report->makespan * scale;
    f[STEADY] = report->period / report->period_batches * scale;
    f[BUBBLE] = report->bubble;
    for (int s = 0; s < report->stages; s++) {
        f[STALENESS] = report->staleness[s] > f[STALENESS] ? report->staleness[s] : f[STALENESS];
        f[VERSIONS] = report->versions[s] > f[VERSIONS] ? report->versions[s] : f[VERSIONS];
    }
    f[BOUND] = report->bound.lower * scale;
    f[GAP] = report->gap;
    f[CLOSED] = report->closed_bubble;
    f[HELD] = report->memory_time.room > 0 ? report->memory_time.held / report->memory_time.room : 0;
    for (int k = 0; k < report->workers; k++) {
        const struct rank_report *rank = &report->rank[k];
        f[LIVE] = fmax(f[LIVE], rank->peak_activations * share);
        f[MEMORY] = (double)rank->peak_bytes > f[MEMORY] ? (double)rank->peak_bytes : f[MEMORY];
        f[LEAST] = (double)rank->least_bytes > f[LEAST] ? (double)rank->least_bytes : f[LEAST];
        f[SENT] += (double)rank->bytes_received;
        f[EXPOSED] += rank->exposed[EXPOSED_WEIGHTS] + rank->exposed[EXPOSED_REDUCTIONS] +
                      rank->exposed[EXPOSED_COPIES] + rank->exposed[EXPOSED_TEAMS];
    }
    f[EXPOSED] = report->makespan > 0 ? f[EXPOSED] / (report->makespan * report->workers) : 0;
    f[ONE] = f[TWO] = f[MEAN] = f[P95] = NAN;
    return row;
}

static void add_jitter(struct row *row, const struct compile *c, double scale, const struct settings *settings) {
    struct jitter *jitter = jitter_make(c, settings->jitter.level, settings->seed, settings->jitter.runs);
    row->figure[MEAN] = jitter->mean *= scale;
    row->figure[P95] = jitter->p95 *= scale;
    jitter->worst *= scale;
    row->jitter = *jitter;
}

/* ---- compiling the schedules, one at a time; each has the whole arena ---- */

/* A size that all schedules must have: from -D, else from the first schedule that compiles. */
struct size {
    const char *key, *what;
    bool given;    /* whether -D sets it */
    int64_t value; /* 0: not known yet */
    char set[32];  /* if -D does not set it: the setting passed to the other schedules */
};
enum { WORKERS, BATCHES, NSIZES };

struct table {
    struct size size[NSIZES];
    const char *unit;
    const struct settings *settings;
    int nrows, nleft;
    struct row *row;
    struct left_out *left;
};

/* Compiles one schedule. An error leaves that schedule out; if it is the only one, the command dies with the error. */
static bool compiles(struct compile *c, bool alone) {
    if (!alone)
        return try(compile_it, c);
    compile_all(c, "");
    return true;
}

static bool fetches(const struct report *report) {
    for (int k = 0; k < report->workers; k++)
        if (report->rank[k].weights_received > 0)
            return true;
    return false;
}

/* Returns the makespan with a fixed prefetch, or NAN if that does not compile, for example for lack of memory. */
static double makespan_with(const struct compile *c, enum prefetch prefetch) {
    struct compile other = vary_prefetch(c, prefetch);
    return try(compile_it, &other) ? other.report->makespan : NAN;
}

static void read_size(struct size *size, const struct script_args *args) {
    for (int i = 0; i < args->nset; i++)
        if (sets_key(args->set[i], size->key)) {
            size->given = true;
            size->value = atoll(strchr(args->set[i], '=') + 1); /* scripts reject anything but a number */
        }
}

/* Returns whether a schedule's size `has` is the required one; if not, writes the reason to why. */
static bool fits(struct size *size, int64_t has, const struct script_args *args, char *why) {
    if (size->value <= 0) {
        size->value = has;
        snprintf(size->set, sizeof size->set, "%s=%lld", size->key, (long long)has);
    }
    bool sets = false;
    for (int i = 0; i < args->nset; i++)
        sets |= args->used[i] && sets_key(args->set[i], size->key);
    if (has != size->value)
        snprintf(why, WHY, "%lld %s, not %lld%s%s", (long long)has, size->what, (long long)size->value,
                 sets ? "" : ": it has no parameter ", sets ? "" : size->key);
    return has == size->value;
}

/* Adds a row, or a schedule left out. used: receives, per setting, whether a script used it. */
static void compile_one(struct table *table, const struct script_args *how, const char *file, bool *used, bool alone) {
    struct compile c = {.args = *how};
    struct script_args *args = &c.args;
    const char *set[args->nset + NSIZES];
    struct left_out *left = &table->left[table->nleft];
    memcpy(set, args->set, sizeof *set * (size_t)args->nset);
    for (int z = 0; z < NSIZES; z++)
        if (*table->size[z].set && !table->size[z].given)
            set[args->nset + args->nsizes++] = table->size[z].set;
    args->nset += args->nsizes;
    args->schedule = file;
    args->set = set;
    args->used = used;
    left->file = file;
    if (!table->settings->compare.train)
        free_all();
    if (!compiles(&c, alone)) {
        snprintf(left->why, WHY, "%s", diag_line());
        table->nleft++;
    } else if (!fits(&table->size[WORKERS], c.report->workers, args, left->why) ||
               !fits(&table->size[BATCHES], c.report->step_batches, args, left->why))
        table->nleft++;
    else {
        struct row *row = &table->row[table->nrows++];
        *row = measure_row(&c, file);
        row->compiled = c;
        double scale = c.report->makespan > 0 ? row->figure[MAKESPAN] / c.report->makespan : 1;
        if (table->settings->jitter.level >= 0)
            add_jitter(row, &c, scale, table->settings);
        for (int k = ONE;
             k <= TWO && !table->settings->compare.train && fetches(c.report) && c.spec->choices.prefetch == SOLVED;
             k++)
            row->figure[k] = scale * makespan_with(&c, k == ONE ? ONE_AHEAD : TWO_AHEAD);
        table->unit = c.report->unit;
    }
}

static void compile_each(struct table *table) {
    const struct settings *settings = table->settings;
    int nset = settings->args.nset, n = nset + NSIZES;
    const char *set[nset + 1];
    bool used[n], any[n];
    struct script_args args = settings->args;
    memcpy(set, args.set, sizeof *set * (size_t)nset); /* the original array is in the arena, which is emptied */
    memset(any, 0, sizeof any);
    args.set = set;
    for (int z = 0; z < NSIZES; z++)
        read_size(&table->size[z], &args);
    for (int i = 0; i < settings->nfiles; i++) {
        memset(used, 0, sizeof used);
        compile_one(table, &args, settings->file[i], used, settings->nfiles == 1);
        for (int k = 0; k < nset; k++)
            any[k] |= used[k];
    }
    for (int i = 0; i < nset; i++)
        if (!any[i])
            die("-D %s: none of the scripts has this parameter", set[i]);
}

/* Names the schedules; files of the same name in different folders get their paths. */
static void name_all(struct table *table) {
    const struct settings *settings = table->settings;
    const char **name = NEW(const char *, settings->nfiles);
    for (int i = 0, row = 0, left = 0; i < settings->nfiles; i++) {
        int same = 0;
        for (int k = 0; k < settings->nfiles; k++) {
            name[k] = i == 0 ? script_name(settings->file[k]) : name[k];
            same += strcmp(name[k], name[i]) == 0;
        }
        bool in_table = row < table->nrows && table->row[row].file == settings->file[i];
        *(in_table ? &table->row[row++].name : &table->left[left++].name) = same > 1 ? settings->file[i] : name[i];
    }
}

/* ---- printing ---- */

enum { CELL = 32 };

static const char *cell_text(char cell[CELL], const struct row *row, int i, const struct measure *measure) {
    double x = row->figure[i];
    if (i == NAME)
        return row->name;
    if (isnan(x))
        return "";
    if (i == MAKESPAN || i == MEAN || i == P95 || i == STEADY || i == BOUND || i == ONE || i == TWO)
        return time_text(x, measure, cell);
    if (i == MEMORY || i == LEAST || i == SENT)
        return bytes_text(x, cell);
    if (i == BUBBLE || i == CLOSED || i == GAP || i == HELD || i == EXPOSED)
        snprintf(cell, CELL, "%.1f %%", 100 * x);
    else
        snprintf(cell, CELL, "%.4g", x);
    return cell;
}

/* Chooses the columns to print and returns their number. Steady-state columns need updates that are jobs, or --steady;
 * prefetch columns need fetched weights; noise columns need --jitter; the closed form needs a script that declares
 * one. */
static int choose_columns(const struct row *row, int n, bool steady, int *chosen) {
    bool travel = false, closed = false;
    int count = 0;
    for (int i = 0; i < n; i++) {
        steady |= row[i].updates;
        travel |= !isnan(row[i].figure[ONE]);
        closed |= !isnan(row[i].figure[CLOSED]);
    }
    for (int k = 0; k < NCOLUMNS; k++) {
        bool of_steady = k == STEADY || k == STALENESS || k == VERSIONS, of_travel = k == ONE || k == TWO;
        bool of_noise = k == MEAN || k == P95;
        if ((steady || !of_steady) && (travel || !of_travel) && (row[0].jitter.runs > 0 || !of_noise) &&
            (closed || k != CLOSED))
            chosen[count++] = k;
    }
    return count;
}

static void put_table(struct text *out, const struct row *row, int n, const struct measure *measure,
                      const struct settings *settings) {
    char cell[CELL];
    bool markdown = settings->markdown;
    int width[NCOLUMNS], chosen[NCOLUMNS], columns = choose_columns(row, n, settings->compare.steady, chosen);
    for (int c = 0; c < columns; c++) {
        int k = chosen[c];
        width[k] = (int)strlen(column[k].head);
        for (int i = 0; i < n; i++) {
            int wide = (int)strlen(cell_text(cell, &row[i], k, measure));
            width[k] = wide > width[k] ? wide : width[k];
        }
    }
    for (int i = -1; i < n; i++) {
        for (int c = 0; c < columns; c++) {
            int k = chosen[c];
            put(out,
                markdown ? "| %*s "
                : k      ? "  %*s"
                         : "%*s",
                k ? width[k] : -width[k], i < 0 ? column[k].head : cell_text(cell, &row[i], k, measure));
        }
        put(out, markdown ? "|\n" : "\n");
        for (int c = 0; markdown && i < 0 && c < columns; c++)
            put(out, "|%s%s", c ? "---:" : "---", c == columns - 1 ? "|\n" : "");
    }
}

/* Lists the schedules left out, and why, below the table. */
static void put_left_out(struct text *out, const struct table *table, bool markdown) {
    int width = 0;
    for (int i = 0; i < table->nleft; i++)
        width = (int)strlen(table->left[i].name) > width ? (int)strlen(table->left[i].name) : width;
    if (table->nleft)
        put(out, markdown ? "\nLeft out:\n\n" : "\nleft out:\n");
    for (int i = 0; i < table->nleft; i++)
        if (markdown)
            put(out, "- %s: %s\n", table->left[i].name, table->left[i].why);
        else
            put(out, "  %-*s  %s\n", width, table->left[i].name, table->left[i].why);
}

static void put_object_head(struct text *out, const struct table *table) {
    put(out, "{\n  \"schema\": 1,\n  \"workers\": %lld,\n  \"batches\": %lld,\n  \"unit\": \"%s\",\n",
        (long long)table->size[WORKERS].value, (long long)table->size[BATCHES].value, table->unit);
}

static void put_object_tail(struct text *out, const struct table *table) {
    put(out, "  \"left_out\": [");
    for (int i = 0; i < table->nleft; i++)
        put(out, "%s\n    {\"schedule\": %s, \"why\": %s}", i ? "," : "", quoted(table->left[i].name),
            quoted(table->left[i].why));
    put(out, table->nleft ? "\n  ]\n}\n" : "]\n}\n");
}

static void put_objects(struct text *out, const struct table *table) {
    char buf[32];
    put_object_head(out, table);
    put(out, "  \"schedules\": [\n");
    for (int i = 0; i < table->nrows; i++) {
        put(out, "    {\n      \"schedule\": %s", quoted(table->row[i].name));
        for (int k = NAME + 1; k < NCOLUMNS; k++)
            if (k != MEAN && k != P95)
                put(out, ",\n      \"%s\": %s", column[k].key, number_or_null(table->row[i].figure[k], buf));
        if (table->row[i].jitter.runs > 0) {
            put(out, ",\n      ");
            put_jitter_json(out, &table->row[i].jitter);
        }
        put(out, "\n    }%s\n", i + 1 < table->nrows ? "," : "");
    }
    put(out, "  ],\n");
    put_object_tail(out, table);
}

static void put_table_text(struct text *out, const struct table *table, const struct settings *settings) {
    double longest = 0;
    for (int i = 0; i < table->nrows; i++)
        longest = table->row[i].figure[MAKESPAN] > longest ? table->row[i].figure[MAKESPAN] : longest;
    struct measure measure = measure_of(longest, table->unit, settings->draw.style.ascii);
    bool unit = strcmp(measure.name, "units") == 0;
    put(out, "%s, %s; times in %s\n", counted(table->size[WORKERS].value, "rank"),
        counted(table->size[BATCHES].value, "microbatch"),
        unit ? "units: F is 1 for a rank's share of the model; every tensor is 1 byte" : measure.name);
    if (settings->jitter.level >= 0)
        put(out, "mean and p95 of %s, %s\n", counted(settings->jitter.runs, "run"),
            jitter_text(settings->jitter.level));
    put(out, "\n");
    put_table(out, table->row, table->nrows, &measure, settings);
    put_left_out(out, table, settings->markdown);
}

/* ---- --train ---- */

/* Dies before any work if options exclude each other or a file cannot be written. */
static void check_comparison(const struct settings *settings) {
    if (!settings->compare.train && (settings->train.data || settings->output || !isnan(settings->compare.target)))
        die("--%s needs --train", settings->train.data ? "data" : settings->output ? "output" : "target");
    if (settings->compare.train && (settings->compare.sort || settings->compare.steady || settings->jitter.level >= 0))
        die("--train and --%s exclude each other: --train prints a table of losses instead",
            settings->compare.sort     ? "sort"
            : settings->compare.steady ? "steady"
                                       : "jitter");
    if ((sorted_by == MEAN || sorted_by == P95) && settings->jitter.level < 0)
        die("--sort %s: this column exists only with --jitter", settings->compare.sort);
    if (!settings->output)
        return;
    if (strcmp(settings->output, "-") == 0)
        die("--output -: the table goes to stdout; name a file for the picture");
    check_destination(settings->output, settings);
}

static struct courses train_all(const struct table *table, const struct settings *settings) {
    struct course *course = NEW(struct course, table->nrows);
    for (int i = 0; i < table->nrows; i++)
        check_course(&table->row[i].compiled, settings);
    for (int i = 0; i < table->nrows; i++)
        course[i] = run_course(&table->row[i].compiled, settings, table->row[i].name);
    return judge_courses(course, table->nrows, settings->train.steps, settings->compare.target);
}

static void put_trained(struct text *out, const struct table *table, const struct settings *settings) {
    struct courses courses = train_all(table, settings);
    if (settings->json) {
        put_object_head(out, table);
        put_courses_json(out, &courses);
        put_object_tail(out, table);
    } else {
        put_courses(out, &courses, settings);
        put_left_out(out, table, settings->markdown);
    }
    if (settings->output) {
        struct text picture = {0};
        draw_courses(&picture, &courses);
        write_file(settings->output, &picture);
    }
}

int cmd_compare(const struct settings *settings) {
    sorted_by = settings->compare.sort ? column_named(settings->compare.sort) : -1;
    check_comparison(settings);
    struct row row[settings->nfiles];
    struct left_out left[settings->nfiles];
    struct table table = {.row = row, .left = left, .settings = settings};
    table.size[WORKERS] = (struct size){.key = "workers", .what = "ranks"};
    table.size[BATCHES] = (struct size){.key = "batches", .what = "microbatches"};
    compile_each(&table);
    name_all(&table);
    if (table.nrows == 0) {
        for (int i = 0; i < table.nleft; i++)
            fprintf(stderr, "pianola: %s: %s\n", left[i].name, left[i].why);
        die("none of these schedules can be compared");
    }
    if (sorted_by >= 0)
        sort(row, (size_t)table.nrows, sizeof *row, by_size);
    struct text out = {0};
    if (settings->compare.train)
        put_trained(&out, &table, settings);
    else if (settings->json)
        put_objects(&out, &table);
    else
        put_table_text(&out, &table, settings);
    write_file("-", &out);
    return 0;
}
