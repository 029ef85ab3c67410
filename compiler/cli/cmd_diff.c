/* `pianola diff A B`: detects the kinds of A and B, loads both, and reports the changes. */
#include "base/read_file.h"
#include "command.h"
#include "pipeline.h"
#include "diff/diff.h"
#include "files.h"
#include "prediction.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }
static bool is_streams(const char *s) { return begins(s, "pianola "); }
static bool is_timeline(const char *s) { return begins(s, "rank\tlane\t") || begins(s, "step\trank\t"); }

/* Returns the unit of a compiled folder's times from its report, for timelines that name none; NULL if unknown. */
static const char *unit_of(const char *report) {
    static const char *const unit[] = {"F", "FLOP", "s"};
    for (int i = 0; i < 3; i++)
        if (strstr(report, format("\"unit\": \"%s\"", unit[i])))
            return unit[i];
    return NULL;
}

/* Returns after how long a folder's schedule can begin again, from its report; 0 if unknown. */
static double period_of(const char *report) {
    const char *at = strstr(report, "\n  \"period\": ");
    return at ? fmax(strtod(at + strlen("\n  \"period\": "), NULL), 0) : 0;
}

static struct side *load_folder(const char *path) {
    const char *streams = format("%s/streams.txt", path), *times = format("%s/timeline.tsv", path);
    if (access(streams, F_OK) != 0)
        die("%s: neither streams.txt nor timeline.0.tsv is in this folder: it was neither compiled nor measured", path);
    struct side *side = side_of_program(path, read_text(streams, file_text(streams)), NULL);
    if (access(times, R_OK) == 0)
        side_times(side, times, read_tsv(times, file_text(times)), "compile both again");
    const char *file = format("%s/report.json", path), *report = access(file, R_OK) == 0 ? file_text(file) : "";
    if (!side->unit)
        side->unit = unit_of(report);
    side->step.period = side->p->period ? 0 : period_of(report);
    return side;
}

struct loading {
    const struct script_args *how;
    struct compile *script; /* the last script's compile; NULL: none */
    bool *used, scripts;    /* which -D settings a script used; whether any side is a script */
};

static struct side *load_script(struct loading *loading, const char *path) {
    struct compile *c = loading->script = NEW(struct compile, 1);
    c->args = *loading->how;
    c->args.schedule = path;
    c->args.used = loading->used;
    loading->scripts = true;
    compile_all(c, "");
    struct side *side = side_of_program(path, c->program, c->timeline);
    side->proved = true;
    side->unit = c->report->unit;
    side->step.period = c->program->period ? 0 : c->report->period;
    side->flops = c->spec->machine.took ? 0 : c->spec->machine.flops;
    side->on.memory = c->spec->machine.memory;
    side->on.cores = c->spec->machine.cores;
    side->on.serial = c->spec->machine.serial;
    return side;
}

/* Loads another tool's recording of the program of the other side. */
static struct side *load_recording(const char *path, const struct side *other) {
    if (!other->p)
        die("%s: a recording by another tool needs the schedule that it ran: give the script, PyTorch's CSV or the "
            "compiled folder as the other side",
            path);
    return side_of_rows(path, read_recorded(path, other->p));
}

static struct side *load_side(struct loading *loading, const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return holds_measured(path) ? side_of_rows(path, read_measured(path)) : load_folder(path);
    const char *s = file_text(path);
    if (is_streams(s))
        return side_of_program(path, read_text(path, s), NULL);
    if (is_timeline(s))
        return side_of_rows(path, read_tsv(path, s));
    if (strcmp(path, "-") == 0 || !S_ISREG(st.st_mode)) /* scripts are read twice */
        die("%s: expected streams or a timeline; a schedule is read from a file only", path);
    return load_script(loading, path);
}

/* Returns the mean CPU time of each instruction in a measured run of the program; cpu NULL: it is not known. */
static struct work work_of_rows(const struct side *side, const struct program *p, const struct timeline_rows *rows) {
    struct work work = {NEW(double *, p->workers), rows->cores, rows->handoff};
    bool known = side_has_rows(side, rows) && rows->cores > 0;
    for (int r = 0; known && r < p->workers; r++) {
        const int32_t *at = side_ops(side, r);
        work.cpu[r] = NEW(double, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins; i++)
            for (int k = 0; k < rows->nsteps; k++)
                work.cpu[r][i] += rows->row[(size_t)k * (size_t)rows->n + (size_t)at[i]].cpu / rows->nsteps;
        for (int i = 0; i < p->rank[r].nins; i++)
            known &= isfinite(work.cpu[r][i]);
    }
    return known ? work : (struct work){0};
}

/* Predicts a script as `run` does, from the CPU times of its own measured run, if its times are in units or FLOP.
 * Returns the new side, or NULL. */
static struct side *predict_measured(const struct loading *loading, const struct side *script,
                                     const struct side *measured, double *flops) {
    const struct compile *c = loading->script;
    if (!c || script->p != c->program || !measured->steps || strcmp(script->unit, "s") == 0)
        return NULL;
    struct work work = work_of_rows(script, c->program, measured->steps);
    if (!work.cpu)
        return NULL;
    struct side *side = side_of_program(script->name, c->program, predict_from_work(c, &work));
    side->proved = script->proved;
    side->on.memory = script->on.memory;
    side->on.cores = work.cores;
    side->on.serial = true;
    side->unit = "s";
    *flops = work_flops(c, &work);
    return side;
}

/* Returns text that says where a side's times come from, if they are a prediction in seconds. */
static const char *basis_of(const struct loading *loading, const struct side *side, const struct side *other,
                            bool predicted) {
    const struct machine *m = loading->script ? &loading->script->spec->machine : NULL;
    double cores = predicted ? other->steps->cores : m ? m->cores : 0;
    const char *on = cores > 0 ? format(", %d ranks on %g core%s", side->workers, cores, cores == 1 ? "" : "s") : "";
    if (predicted)
        return format("each job's mean CPU time in the measured steps%s", on);
    if (side->proved && side->unit && strcmp(side->unit, "s") == 0 && loading->how->cluster)
        return format("the %s of %s%s", m->took ? "costs" : "FLOP rate", loading->how->cluster, on);
    return NULL;
}

/* Returns an option that affects how scripts are compiled, if one was given, else NULL. */
static const char *for_scripts(const struct script_args *args) {
    return args->model          ? "--model"
           : args->cluster      ? "--cluster"
           : args->recompute    ? "--recompute"
           : args->lanes        ? "--lanes"
           : args->launch       ? "--launch-order"
           : args->least_memory ? "--memory"
           : args->prefetch     ? "--prefetch"
                                : NULL;
}

static struct diff *load_both(const struct script_args *how, const char *const *file) {
    struct loading loading = {.how = how, .used = NEW(bool, how->nset + 1)};
    if (strcmp(file[0], "-") == 0 && strcmp(file[1], "-") == 0)
        die("-: A and B cannot both be read from stdin");
    bool recorded[2] = {is_recording(file[0]), is_recording(file[1])};
    if (recorded[0] && recorded[1])
        die("%s and %s are both recordings by another tool, which need the schedule that they ran: `pianola show "
            "SCHEDULE --measured %s --format tsv -o a.tsv` writes a timeline that diff takes",
            file[0], file[1], file[0]);
    struct side *x = recorded[0] ? NULL : load_side(&loading, file[0]),
                *y = recorded[1] ? load_recording(file[1], x) : load_side(&loading, file[1]);
    if (recorded[0])
        x = load_recording(file[0], y);
    for (int i = 0; i < how->nset; i++)
        if (!loading.used[i])
            die("-D %s: neither script has this parameter", how->set[i]);
    if (!loading.scripts && for_scripts(how))
        die("%s is for scripts, and neither side is one", for_scripts(how));
    bool measured = (x->steps != NULL) != (y->steps != NULL); /* the prediction's times are then converted to seconds */
    if (!measured && x->timed && y->timed && x->unit && y->unit && strcmp(x->unit, y->unit) != 0)
        die("the times of %s are in %s, but %s has %s; a cluster's `flops` converts FLOP to seconds", x->name, x->unit,
            y->name, y->unit);
    double flops = 0;
    struct side *a = predict_measured(&loading, x, y, &flops), *b = predict_measured(&loading, y, x, &flops);
    struct diff *diff = diff_make(a ? a : x, b ? b : y);
    diff->base.flops = flops;
    diff->base.of[0] = basis_of(&loading, diff->side[0], y, a != NULL);
    diff->base.of[1] = basis_of(&loading, diff->side[1], x, b != NULL);
    return diff;
}

/* ---- --fail-on ---- */

struct limit {
    int figure;
    double most; /* largest increase from A to B that is allowed */
    bool percent;
};

/* Reads the limit at s; returns the text after it. */
static const char *read_limit(const char *s, struct limit *limit) {
    size_t n = strcspn(s, ":,");
    char *end;
    limit->figure = 0;
    while (limit->figure < NFIGURES &&
           (strlen(figure_name[limit->figure]) != n || strncmp(s, figure_name[limit->figure], n) != 0))
        limit->figure++;
    if (limit->figure == NFIGURES)
        die("--fail-on %.*s: expected makespan, bubble, period, peak_bytes, bytes_sent or operations", (int)n, s);
    const char *number = s + n + (s[n] == ':');
    errno = 0;
    limit->most = strtod(number, &end);
    if (s[n] != ':' || *number != '+' || end == number || errno || !isfinite(limit->most) || limit->most < 0)
        die("--fail-on %s: expected by how much B may exceed A, as in %s:+2%% or %s:+0", s, figure_name[limit->figure],
            figure_name[limit->figure]);
    limit->percent = *end == '%';
    end += limit->percent;
    if (*end && *end != ',')
        die("--fail-on %s: expected a comma or the end after the limit", s);
    return *end ? end + 1 : end;
}

/* Returns whether B exceeds a limit; reports each such limit on stderr. With diff NULL, only parses the limits. */
static bool beyond(const struct diff *diff, const char *limits) {
    bool failed = false;
    do {
        struct limit limit;
        double a, b;
        const char *here = limits;
        limits = read_limit(limits, &limit);
        if (!diff)
            continue;
        if (!diff_figure(diff, limit.figure, 0, &a) || !diff_figure(diff, limit.figure, 1, &b))
            die("--fail-on %s: one side has no such figure: streams have no times, timelines neither memory nor the "
                "bytes "
                "of collectives",
                figure_name[limit.figure]);
        if (diff_figure_changed(diff, limit.figure, a, b) &&
            b - a > (limit.percent ? a * limit.most / 100 : limit.most)) {
            fprintf(stderr, "pianola: %.*s: %.10g in A, %.10g in B\n", (int)strcspn(here, ","), here, a, b);
            failed = true;
        }
    } while (*limits);
    return failed;
}

/* ---- git's external diff ---- */

static bool is_ours(const char *path) {
    const char *s = file_text(path);
    return is_streams(s) || is_timeline(s);
}

/* Two sides to load. diff stays NULL if one cannot be read: it has conflict markers, say, or an older version wrote
 * it. */
struct both {
    const struct script_args *how;
    const char *const *file;
    struct diff *diff;
};

static void load_sides(void *context) {
    struct both *both = context;
    both->diff = load_both(both->how, both->file);
}

static struct diff *try_both(const struct script_args *how, const char *const *file) {
    struct both both = {how, file, NULL};
    return try(load_sides, &both) ? both.diff : NULL;
}

/* Runs as git's external diff. git passes PATH OLD HEX MODE NEW HEX MODE, and for a renamed file also its new name and
 * a header. Files that are not ours, or that cannot be read, are passed to diff. git treats any exit status but 0 as a
 * failure. */
static int git_diff(const struct settings *settings) {
    if (settings->nfiles != 7 && settings->nfiles != 9)
        die("--git takes git's arguments of an external diff: a path, then file, hash and mode of each side");
    if (settings->json || settings->markdown || settings->diff.fail_on || settings->fit || settings->diff.svg ||
        settings->diff.html)
        die("--git prints text for git: it cannot be combined with --json, --markdown, --fail-on, --fit, --svg, "
            "--html");
    if (settings->args.nset || for_scripts(&settings->args))
        die("--git: %s is for scripts, which git compares as text",
            settings->args.nset ? "-D" : for_scripts(&settings->args));
    const char *path = settings->file[0], *both[2] = {settings->file[1], settings->file[4]};
    struct text out = {0};
    struct diff *diff = is_ours(both[0]) && is_ours(both[1]) ? try_both(&settings->args, both) : NULL;
    if (!diff) {
        const char *old = format("a/%s", path), *new = format("b/%s", path);
        execlp("sh", "sh", "-c", "diff -u --label \"$1\" --label \"$2\" \"$3\" \"$4\"; test $? -le 1", "sh", old, new,
               both[0], both[1], (char *)NULL);
        die("sh: %s", strerror(errno));
    }
    diff->side[0]->name = format("a/%s", path);
    diff->side[1]->name = format("b/%s", path);
    put(&out, "diff --pianola a/%s b/%s\n", path, path);
    emit_diff(&out, diff, false, settings->draw.style.ascii);
    write_file("-", &out);
    return 0;
}

/* ---- output ---- */

enum { SVG, HTML, FIT, TEXT, NOUTPUTS };
struct output {
    const char *path; /* NULL: not requested */
    struct text text;
};

/* Checks, before any compile, that each output has its own destination. */
static void check_outputs(const struct output *out) {
    for (int k = 0; k < NOUTPUTS; k++) {
        for (int i = 0; i < k && out[k].path; i++)
            if (out[i].path && same_place(out[i].path, out[k].path))
                die("two outputs would go to %s: name another file for one",
                    strcmp(out[k].path, "-") ? out[k].path : "stdout");
    }
}

static void check_times(const struct diff *diff) {
    for (int k = 0; k < 2; k++)
        if (!diff->side[k]->timed)
            die("%s: a picture needs times, and this has none; give the script, the compiled folder or timeline.tsv",
                diff->side[k]->name);
}

/* Chooses the destinations. The text goes to stdout, unless another output goes there. */
static void choose_outputs(struct output *out, const struct settings *settings) {
    out[SVG].path = settings->diff.svg;
    out[HTML].path = settings->diff.html;
    out[FIT].path = settings->fit;
    out[TEXT].path = "-";
    for (int k = 0; k < TEXT && !settings->json && !settings->markdown; k++)
        if (out[k].path && strcmp(out[k].path, "-") == 0)
            out[TEXT].path = NULL;
    check_outputs(out);
    for (int k = 0; k < TEXT; k++)
        check_destination(out[k].path, settings);
}

int cmd_diff(const struct settings *settings) {
    if (settings->diff.git)
        return git_diff(settings);
    if (settings->nfiles != 2)
        die("`diff` needs A and B, each a script, PyTorch's CSV, a compiled folder, streams.txt or a timeline; see "
            "`pianola help diff`");
    if (settings->diff.fail_on)
        beyond(NULL, settings->diff.fail_on);
    struct output out[NOUTPUTS] = {0};
    choose_outputs(out, settings);
    struct diff *diff = load_both(&settings->args, settings->file);
    if (settings->diff.svg || settings->diff.html)
        check_times(diff);
    if (settings->diff.svg)
        emit_diff_svg(&out[SVG].text, diff);
    if (settings->diff.html)
        emit_diff_html(&out[HTML].text, diff, settings->command);
    if (settings->fit)
        emit_fit(&out[FIT].text, diff);
    if (settings->json)
        emit_diff_json(&out[TEXT].text, diff);
    else
        (settings->search.all ? emit_diff : emit_diff_summary)(&out[TEXT].text, diff, settings->markdown,
                                                               settings->draw.style.ascii);
    int code = settings->diff.fail_on ? beyond(diff, settings->diff.fail_on) : !diff_same(diff);
    for (int k = 0; k < NOUTPUTS; k++) /* all texts are complete by now */
        if (out[k].path)
            write_file(out[k].path, &out[k].text);
    return code;
}
