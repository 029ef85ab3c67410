/* `pianola show`: prints the compiled program in one of the formats. */
#include "command.h"
#include "pipeline.h"
#include "files.h"
#include "format_table.h"
#include "options.h"
#include "redraw.h"
#include "terminal.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Checks, before any compile, that the format supports the requested style. */
static void check_style(const struct style *style, const struct format *format) {
    if (!(format->traits & DRAWN) && (style->with || style->by || style->from > 0 || style->to > 0))
        die("--with, --color-by, --from and --to are for formats that are drawn: --format %s",
            listed(format_words_with(DRAWN)));
    if (!(format->traits & ARROWS) && style->with & WITH_SENDS)
        die("--with sends: only pictures have arrows, --format %s; try --with lanes",
            listed(format_words_with(ARROWS)));
    if (style->to > 0 && style->to <= style->from)
        die("--to %g: not after --from %g", style->to, style->from);
}

/* Upper bound on the instructions to draw. */
enum { MOST_DRAWN = 4000000 };

static void check_steps(const struct settings *settings, const struct format *format) {
    if (settings->draw.copies && !(format->traits & STEPS))
        die("--steps: --format %s shows a single step; formats of several steps are %s", format->name,
            listed(format_words_with(STEPS)));
    if (settings->draw.copies && settings->draw.measured)
        die("--steps and --measured exclude each other: a trace has all measured steps");
}

static void check_jitter(const struct settings *settings, const struct format *format) {
    if (settings->jitter.level >= 0 && !(format->traits & FIGURES))
        die("--jitter: --format %s has no figures; formats with figures are %s", format->name,
            listed(format_words_with(FIGURES)));
    if (settings->jitter.level >= 0 && settings->draw.measured)
        die("--jitter and --measured exclude each other: a measurement has its own noise");
}

/* Replaces the compiled step by a number of steps, or of repetitions of the period. The report still covers one
 * step. */
static void draw_steps(struct compile *c, int64_t copies) {
    const struct program *p = c->program;
    int64_t n = 1, written = p->period ? p->period : p->batches;
    for (int r = 0; r < p->workers; r++)
        n += p->period ? p->rank[r].period.end - p->rank[r].period.begin : p->rank[r].nins;
    if (p->period && copies > p->repeats)
        die("--steps %lld: a step of %s runs its period %lld times", (long long)copies, c->spec->name,
            (long long)p->repeats);
    if (copies > MOST_DRAWN / n || copies > INT32_MAX / written)
        die("--steps %lld: too many to draw; at most %lld", (long long)copies,
            (long long)(MOST_DRAWN / n < 1 ? 1 : MOST_DRAWN / n));
    struct timeline *all = sim_unrolled(c, (int)copies);
    all->period = c->timeline->period;
    c->timeline = all;
    c->program = unroll_program(p, (int)copies);
    c->steps = (struct steps){1, NULL, all};
}

/* Dies if --from lies beyond the timeline's end, which only the compile determines. */
static void check_from(const struct compile *c, const struct style *style) {
    struct measure measure = measure_of(c->timeline->makespan, c->report->unit, style->ascii);
    if (style->from > 0 && style->from * measure.one >= c->timeline->makespan)
        die("--from %g: the timeline ends at %g %s", style->from, c->timeline->makespan / measure.one, measure.name);
}

static void write_ranks(const struct compile *c, const struct format *f, const char *dir) {
    const char *more = format("%s/%s%d%s", dir, f->prefix, c->program->workers, f->suffix);
    if (access(more, F_OK) == 0)
        die("%s: belongs to a trace with more ranks; the two would be read as one: remove it, or name another folder",
            more);
    for (int k = 0; k < c->program->workers; k++) {
        struct text t = {0};
        f->emit_rank(&t, c, k); /* may die, so no folder is made before */
        if (k == 0)
            make_folder(dir);
        stage_file(format("%s/%s%d%s", dir, f->prefix, k, f->suffix), &t, false);
    }
    if (f->emit_all) {
        struct text t = {0};
        f->emit_all(&t, c);
        stage_file(format("%s/%s", dir, f->all), &t, false);
    }
    place_files();
}

static const struct format *format_of(const struct settings *settings) {
    const struct format *json = format_named("json");
    if (settings->draw.format < 0)
        return settings->json ? json : &formats[0];
    const struct format *format = &formats[settings->draw.format];
    if (settings->json && format != json)
        die("--json and --format %s exclude each other", format->name);
    return format;
}

/* Compiles, and takes measured times or simulates several steps if asked. */
static void compile_shown(struct compile *c, const struct settings *settings) {
    compile_all(c, settings->dump);
    if (settings->draw.measured)
        take_measured(c, settings->draw.measured);
    if (settings->jitter.level >= 0)
        c->report->jitter = jitter_make(c, settings->jitter.level, settings->seed, settings->jitter.runs);
    if (settings->draw.copies > 1)
        draw_steps(c, settings->draw.copies);
}

static void emit(struct text *t, const struct compile *c, const struct settings *settings,
                 const struct format *format) {
    struct style style = settings->draw.style;
    if (format->traits & DRAWN) {
        style = terminal_style(settings);
        check_from(c, &style);
    }
    format->emit(t, c, &style);
}

/* Makes one frame of --watch. */
static struct gist show_frame(const struct settings *settings, struct text *t) {
    struct compile c = {.args = settings->args};
    struct gist gist = {0};
    compile_shown(&c, settings);
    emit(t, &c, settings, &formats[0]);
    gist.makespan = c.report->makespan;
    snprintf(gist.unit, sizeof gist.unit, "%s", c.report->unit);
    for (int r = 0; r < c.report->workers; r++)
        gist.peak = fmax(gist.peak, (double)c.report->rank[r].peak_bytes);
    return gist;
}

static void check_watch(const struct settings *settings, const struct format *format) {
    if (format != &formats[0] || settings->output || settings->draw.measured || *settings->dump)
        die("--watch redraws the %s of a prediction: it cannot be combined with --format, --json, --output, "
            "--measured, --dump",
            formats[0].name);
    if (!isatty(STDOUT_FILENO))
        die("--watch draws in a terminal, and stdout is not one");
}

int cmd_show(const struct settings *settings) {
    if (settings->draw.list)
        return list_schedules();
    const struct format *format = format_of(settings);
    check_style(&settings->draw.style, format);
    check_steps(settings, format);
    check_jitter(settings, format);
    if (settings->draw.watch) {
        check_watch(settings, format);
        return watch(settings, show_frame);
    }
    if (settings->draw.measured && !(format->traits & TIMED))
        die("--measured: --format %s has no times", format->name);
    if (format->emit_rank && !settings->output)
        die("--format %s writes a file for each rank: give their folder with -o DIR", format->name);
    const char *dir = format->emit_rank ? folder_named(settings->output) : NULL;
    if (!dir)
        check_destination(settings->output, settings);
    struct compile c = {.args = settings->args, .command = settings->command};
    compile_shown(&c, settings);
    if (dir) {
        write_ranks(&c, format, dir);
        return 0;
    }
    struct text t = {0};
    emit(&t, &c, settings, format);
    write_file(settings->output ? settings->output : "-", &t);
    return 0;
}
