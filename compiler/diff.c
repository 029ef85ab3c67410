/* `pianola diff A B`: finds out what A and B are, loads both, and says what changed. */
#include "compile.h"
#include "diff.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }
static bool is_streams(const char *s) { return begins(s, "pianola "); }
static bool is_timeline(const char *s) { return begins(s, "rank\tlane\t") || begins(s, "step\trank\t"); }

/* The unit of a compiled folder's times, which its report names. */
static const char *unit_of(const char *path) {
    static const char key[] = "\"unit\": \"";
    const char *at = access(path, R_OK) == 0 ? strstr(file_text(path), key) : NULL;
    at = at ? at + strlen(key) : NULL;
    return at ? format("%.*s", (int)strcspn(at, "\""), at) : NULL;
}

static struct side *load_folder(const char *path) {
    const char *streams = format("%s/streams.txt", path), *times = format("%s/timeline.tsv", path);
    struct side *s = side_of_program(path, read_text(streams, file_text(streams)), NULL);
    if (access(times, R_OK) == 0)
        side_times(s, times, read_tsv(times, file_text(times)));
    s->unit = unit_of(format("%s/report.json", path));
    return s;
}

static struct side *load_script(const struct compile *how, const char *path, bool *used) {
    struct compile c = *how;
    c.args.schedule = path;
    c.args.used = used;
    compile_all(&c, "");
    struct side *s = side_of_program(path, c.program, c.timeline);
    s->unit = c.report->unit;
    s->flops = c.spec->took ? 0 : c.spec->flops;
    s->limit = c.spec->memory;
    return s;
}

static struct side *load(const struct compile *how, const char *path, bool *used) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return holds_times(path) ? side_of_rows(path, read_times(path)) : load_folder(path);
    const char *s = file_text(path);
    if (is_streams(s))
        return side_of_program(path, read_text(path, s), NULL);
    if (is_timeline(s))
        return side_of_rows(path, read_tsv(path, s));
    if (strcmp(path, "-") == 0)
        die("-: expected streams or a timeline; a schedule is read from a file only");
    return load_script(how, path, used);
}

static struct diff *load_both(const struct compile *how, const struct diff_args *a) {
    bool *used = NEW(bool, how->args.nset + 1);
    struct side *x = load(how, a->file[0], used), *y = load(how, a->file[1], used);
    for (int i = 0; i < how->args.nset; i++)
        if (!used[i])
            die("-D %s: no script here has this parameter", how->args.set[i]);
    bool measured = (x->steps != NULL) != (y->steps != NULL); /* the prediction's times are made seconds */
    if (!measured && x->timed && y->timed && x->unit && y->unit && strcmp(x->unit, y->unit) != 0)
        die("the times of %s are in %s, those of %s in %s; a cluster's `flops` makes them seconds", x->name, x->unit,
            y->name, y->unit);
    return diff_make(x, y);
}

/* ---- --fail-on ---- */

struct limit {
    int figure;
    double most; /* how much more B may have */
    bool percent;
};

/* Reads the limit that stands at s; returns what follows it. */
static const char *read_limit(const char *s, struct limit *l) {
    size_t n = strcspn(s, ":,");
    char *end;
    l->figure = 0;
    while (l->figure < NFIGURES && (strlen(figure_name[l->figure]) != n || strncmp(s, figure_name[l->figure], n) != 0))
        l->figure++;
    if (l->figure == NFIGURES)
        die("--fail-on %.*s: expected makespan, bubble, peak_bytes, bytes_sent or operations", (int)n, s);
    const char *number = s + n + (s[n] == ':');
    errno = 0;
    l->most = strtod(number, &end);
    if (s[n] != ':' || *number != '+' || end == number || errno || !isfinite(l->most) || l->most < 0)
        die("--fail-on %s: expected what B may have more than A, as in %s:+2%% or %s:+0", s, figure_name[l->figure],
            figure_name[l->figure]);
    l->percent = *end == '%';
    end += l->percent;
    if (*end && *end != ',')
        die("--fail-on %s: expected a comma or the end behind the limit", s);
    return *end ? end + 1 : end;
}

/* Whether B is beyond a limit; each such is said on stderr. With d NULL the limits are only read. */
static bool beyond(const struct diff *d, const char *limits) {
    bool failed = false;
    do {
        struct limit l;
        double a, b;
        const char *here = limits;
        limits = read_limit(limits, &l);
        if (!d)
            continue;
        if (!diff_figure(d, l.figure, 0, &a) || !diff_figure(d, l.figure, 1, &b))
            die("--fail-on %s: one of the two has no such figure: streams have no times, timelines no memory",
                figure_name[l.figure]);
        if (b - a > (l.percent ? a * l.most / 100 : l.most)) {
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

/* git calls with PATH OLD HEX MODE NEW HEX MODE, and of a renamed file with its new name and a header too. What is not
 * ours to compare, diff does. git takes any exit but 0 as a failure. */
static int git_diff(const struct compile *how, const struct diff_args *a) {
    if (a->nfiles != 7 && a->nfiles != 9)
        die("--git takes what git gives an external diff: a path, and file, hash and mode of both sides");
    const char *path = a->file[0], *both[2] = {a->file[1], a->file[4]};
    struct text out = {0};
    if (!is_ours(both[0]) || !is_ours(both[1])) {
        const char *old = format("a/%s", path), *new = format("b/%s", path);
        execlp("sh", "sh", "-c", "diff -u --label \"$1\" --label \"$2\" \"$3\" \"$4\"; test $? -le 1", "sh", old, new,
               both[0], both[1], (char *)NULL);
        die("sh: %s", strerror(errno));
    }
    struct diff_args two = {.file = both, .nfiles = 2};
    struct diff *d = load_both(how, &two);
    d->side[0]->name = format("a/%s", path);
    d->side[1]->name = format("b/%s", path);
    put(&out, "diff --pianola a/%s b/%s\n", path, path);
    emit_diff(&out, d, false, a->ascii);
    write_file("-", &out);
    return 0;
}

/* ---- pictures ---- */

static void draw(const struct diff *d, const char *path, bool html) {
    struct text t = {0};
    emit_diff_svg(&t, d, html);
    write_file(path, &t);
}

/* Beside the text, or in its place where a picture goes to stdout. Whether one does. */
static bool draw_all(const struct diff *d, const struct diff_args *a) {
    for (int k = 0; k < 2; k++)
        if ((a->svg || a->html) && !d->side[k]->timed)
            die("%s: it has no times, and a picture needs them; give the script, the compiled folder or timeline.tsv",
                d->side[k]->name);
    if (a->svg)
        draw(d, a->svg, false);
    if (a->html)
        draw(d, a->html, true);
    return (a->svg && !strcmp(a->svg, "-")) || (a->html && !strcmp(a->html, "-"));
}

/* Before anything is compiled. */
static void check_pictures(const struct diff_args *a) {
    const char *const path[] = {a->svg, a->html};
    int out = a->json || a->markdown;
    for (int k = 0; k < 2; k++)
        if (path[k]) {
            check_writable(path[k]);
            out += strcmp(path[k], "-") == 0;
        }
    if (out > 1)
        die("one thing goes to stdout: name a file for the picture");
}

int diff_command(const struct compile *how, const struct diff_args *a) {
    if (a->git)
        return git_diff(how, a);
    if (a->nfiles != 2)
        die("`diff` needs two: A and B, each a script, PyTorch's CSV, a compiled folder, streams.txt or a timeline; "
            "see `pianola help "
            "diff`");
    if (a->fail_on)
        beyond(NULL, a->fail_on);
    check_pictures(a);
    struct diff *d = load_both(how, a);
    bool drawn = draw_all(d, a);
    struct text out = {0};
    if (a->json)
        emit_diff_json(&out, d);
    else
        emit_diff(&out, d, a->markdown, a->ascii);
    if (a->fit) {
        struct text costs = {0};
        emit_fit(&costs, d);
        write_file(a->fit, &costs);
    }
    int code = a->fail_on ? beyond(d, a->fail_on) : !diff_same(d);
    if (!drawn)
        write_file("-", &out);
    return code;
}
