/* The command line. */
#include "base/put_json.h"
#include "base/read_file.h"
#include "compile.h"
#include "options.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct settings {
    struct compile compile;
    struct run_args run;
    struct compare_args compare;
    struct diff_args diff;
    const char *output, *format, *dump, *color, *measured;
    int64_t step;
    struct style style;
    bool json, list;
};

static long number_arg(const char *name, const char *s, long least) {
    char *end;
    errno = 0;
    long n = strtol(s, &end, 10);
    if (end == s || *end || errno || n < least)
        die("--%s %s: expected a whole number of at least %ld", name, s, least);
    return n;
}

static double time_arg(const char *name, const char *s, bool zero) {
    char *end;
    double t = strtod(s, &end);
    if (end == s || *end || !(t > 0 || (zero && t == 0)) || isinf(t))
        die("--%s %s: expected a time %s 0", name, s, zero ? "of at least" : "after");
    return t;
}

/* Words separated by commas, as bits of enum with, which are in the order of the words. */
static int list_arg(const char *name, const char *arg) {
    int bits = 0;
    for (const char *s = arg;; s++) {
        int n = (int)strcspn(s, ",");
        bits |= 1 << choice(name, format("%.*s", n, s));
        s += n;
        if (!*s)
            return bits;
    }
}

static int usable_width(const struct settings *z) {
    struct winsize size;
    if (z->style.width)
        return z->style.width;
    if (!isatty(STDOUT_FILENO))
        return 120; /* a pipe gets the same text whatever the terminal */
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *columns = getenv("COLUMNS");
    return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

/* --color, then NO_COLOR, then FORCE_COLOR, then TERM=dumb, then whether this is a terminal (no-color.org). */
static bool use_color(const char *when) {
    const char *no = getenv("NO_COLOR"), *force = getenv("FORCE_COLOR"), *term = getenv("TERM");
    enum { ALWAYS, NEVER, AUTO } how = when ? choice("color", when) : AUTO;
    if (how != AUTO)
        return how == ALWAYS;
    if (no && *no)
        return false;
    if (force && *force)
        return true;
    return !(term && strcmp(term, "dumb") == 0) && isatty(STDOUT_FILENO);
}

/* Whether the locale takes characters beyond ASCII: LC_ALL, LC_CTYPE, LANG, the first that says something; else it is
 * C. */
static bool is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *locale = NULL;
    for (int i = 0; i < 3 && !(locale && *locale); i++)
        locale = getenv(names[i]);
    return locale && (strcasestr(locale, "UTF-8") || strcasestr(locale, "UTF8"));
}

static struct style terminal_style(const struct settings *z) {
    struct style style = z->style;
    style.width = usable_width(z);
    style.color = use_color(z->color);
    return style;
}

static void set_option(struct settings *z, const struct command *c, int key, const char *name, const char *arg) {
    struct script_args *s = &z->compile.args;
    switch (key) {
    case 'D': s->set[s->nset++] = arg; break;
    case 'm': s->model = arg; break;
    case 'c': s->cluster = arg; break;
    case 'l': s->lanes = (enum lanes_per)choice(name, arg); break;
    case 'r': s->recompute = true; break;
    case 'o': z->output = arg; break;
    case 'f': z->format = arg; break;
    case 'd': z->dump = arg; break;
    case 'x': z->run.data = arg; break;
    case 'n': z->run.steps = number_arg(name, arg, 1); break;
    case 'S': z->step = number_arg(name, arg, 0); break;
    case 's': z->run.seed = (uint64_t)number_arg(name, arg, 0); break;
    case 'C': z->run.compare = true; break;
    case 't': z->run.timeline = arg; break;
    case 'g': z->run.eager = true; break;
    case 'u': z->run.cuda = choice(name, arg) == 1; break;
    case 'j': z->json = z->run.json = true; break;
    case 'k': z->color = arg; break;
    case 'e': z->measured = arg; break;
    case 'w': z->style.width = (int)number_arg(name, arg, 20); break;
    case 'a': z->style.ascii = true; break;
    case 'W': z->style.with = list_arg(name, arg); break;
    case 'b': z->style.by = (enum color_by)choice(name, arg); break;
    case 'F': z->style.from = time_arg(name, arg, true); break;
    case 'T': z->style.to = time_arg(name, arg, false); break;
    case 'L': z->list = true; break;
    case 'O': z->compare.sort = arg; break;
    case 'M': z->compare.markdown = z->diff.markdown = true; break;
    case 'X': z->diff.fail_on = arg; break;
    case 'P': z->diff.fit = arg; break;
    case 'v': z->diff.svg = arg; break;
    case 'H': z->diff.html = arg; break;
    case 'G': z->diff.git = true; break;
    case 'h': help_about(c); exit(0);
    case 'V': printf("pianola %s\n", VERSION); exit(0);
    }
}

static void parse(struct settings *z, const struct command *c, int argc, char **argv) {
    struct option *longs = NEW(struct option, noptions + 1);
    const char **names = NEW(const char *, noptions);
    for (int i = 0; i < noptions; i++) {
        longs[i] =
            (struct option){options[i].name, options[i].arg ? required_argument : no_argument, NULL, options[i].key};
        names[i] = options[i].name;
    }
    z->compile.args.set = NEW(const char *, argc);
    opterr = 0;
    for (int key, at = 0; (key = getopt_long(argc, argv, option_letters, longs, &at)) != -1;) {
        const char *word = argv[optind - 1];
        if (key == ':')
            die("%s needs a value; see `pianola help %s`", word, c->name);
        if (key == '?') {
            const char *near = strncmp(word, "--", 2) == 0 ? nearest(word + 2, names, noptions) : NULL;
            die("unknown option %s%s%s; see `pianola help %s`", word, near ? "; did you mean --" : "", near ? near : "",
                c->name);
        }
        const struct option_row *o = options;
        while (o->key != key)
            o++;
        if (!(o->commands & c->bit))
            die("`%s` takes no --%s; see `pianola help %s`", c->name, o->name, c->name);
        if (o->arg && !*optarg)
            die("--%s needs a value, but got an empty one; see `pianola help %s`", o->name, c->name);
        set_option(z, c, key, o->name, optarg);
    }
    for (int i = optind; i < argc; i++)
        if (!*argv[i])
            die("`%s` was given an empty name instead of a file's", c->name);
    z->compare.file = (const char **)argv + optind;
    z->compare.nfiles = argc - optind;
    if (z->list) {
        if (optind < argc)
            die("`show --list` takes no file, but got '%s'", argv[optind]);
        return;
    }
    if (c->bit == DIFF) {
        z->diff.file = z->compare.file;
        z->diff.nfiles = z->compare.nfiles;
        return;
    }
    if (optind == argc)
        die("`%s` needs a %s; see `pianola help %s`", c->name,
            c->bit == VERIFY   ? "file, e.g. streams.txt"
            : c->bit == EXPORT ? "folder of checkpoints"
            : c->bit == IMPORT ? "file, e.g. schedule.csv"
                               : "schedule, e.g. schedules/1f1b.lua",
            c->name);
    if (optind + 1 < argc && c->bit != COMPARE)
        die("`%s` takes one %s, but got '%s' too", c->name, c->bit == EXPORT ? "folder" : "file", argv[optind + 1]);
    z->compile.args.schedule = argv[optind];
}

/* Before anything is compiled: what is asked for can be drawn. */
static void check_style(const struct style *s, bool picture, bool grid) {
    if (!picture && !grid && (s->with || s->by || s->from > 0 || s->to > 0))
        die("--with, --color-by, --from and --to are for what is drawn: --format grid, svg or html");
    if (grid && s->with & WITH_SENDS)
        die("--with sends: arrows are for pictures, --format svg or html; try --with lanes");
    if (s->to > 0 && s->to <= s->from)
        die("--to %g: not after --from %g", s->to, s->from);
}

static void draw(struct text *t, const struct settings *z, bool picture, bool html) {
    const struct compile *c = &z->compile;
    struct style style = terminal_style(z);
    struct measure m = measure_of(c->timeline->makespan, c->report->unit, style.ascii);
    if (style.from > 0 && style.from * m.one >= c->timeline->makespan)
        die("--from %g: the timeline ends at %g %s", style.from, c->timeline->makespan / m.one, m.name);
    if (picture)
        emit_svg(t, c->program, c->timeline, c->report, c->spec->memory, &style, html);
    else {
        emit_grid(t, c->program, c->timeline, c->report->unit, &style);
        emit_report(t, c->report, &style);
    }
}

static void streams_text(struct text *t, struct compile *c) { emit_text(t, c->program); }
static void timeline_text(struct text *t, struct compile *c) { emit_tsv(t, c->program, c->timeline, c->report->unit); }
static void report_text(struct text *t, struct compile *c) { emit_json(t, c->report); }
static void chrome_text(struct text *t, struct compile *c) { emit_chrome(t, c->program, &c->steps, c->report->unit); }
static void pftrace_bytes(struct text *t, struct compile *c) {
    emit_pftrace(t, c->program, &c->steps, c->report->unit);
}
static void torch_text(struct text *t, struct compile *c) { emit_torch(t, c->spec, c->sched, false); }
static void torch_comms_text(struct text *t, struct compile *c) { emit_torch(t, c->spec, c->sched, true); }

/* As options.c lists the formats; those without one here are drawn, with a style. */
static void (*const show_as[])(struct text *, struct compile *) = {
    NULL,          streams_text, timeline_text, report_text,      NULL, NULL, chrome_text,
    pftrace_bytes, NULL,         torch_text,    torch_comms_text,
};

/* A file for each rank. */
static int show_hta(const struct compile *c, const char *dir) {
    const char *more = format("%s/rank%d.json", dir, c->program->workers);
    if (access(more, F_OK) == 0)
        die("%s: of a trace with more ranks; together they would be read as one: remove it, or name another folder",
            more);
    make_folder(dir);
    for (int r = 0; r < c->program->workers; r++) {
        struct text t = {0};
        emit_hta(&t, c->program, &c->steps, c->report->unit, r);
        stage_file(format("%s/rank%d.json", dir, r), &t, false);
    }
    place_files();
    return 0;
}

static int show(struct settings *z) {
    if (z->list)
        return list_schedules();
    struct compile *c = &z->compile;
    enum { GRID, STREAMS, SVG = 4, HTML, HTA = 8, TORCH };
    int which = choice("format", z->json ? "json" : z->format ? z->format : "grid");
    bool picture = which == SVG || which == HTML;
    struct text t = {0};
    if (z->json && z->format && strcmp(z->format, "json") != 0)
        die("--json and --format %s exclude each other", z->format);
    check_style(&z->style, picture, which == GRID);
    if (z->measured && (which == STREAMS || which >= TORCH))
        die("--measured: --format %s has no times", z->format);
    if (which == HTA && !z->output)
        die("--format hta writes a file for each rank: give their folder with -o DIR");
    const char *dir = which == HTA ? folder_named(z->output) : NULL;
    if (!dir) {
        check_target(z->output, &c->args);
        check_apart(z->output, z->measured);
    }
    compile_all(c, z->dump);
    if (z->measured)
        take_measured(c, z->measured);
    if (dir)
        return show_hta(c, dir);
    if (show_as[which])
        show_as[which](&t, c);
    else
        draw(&t, z, picture, which == HTML);
    write_file(z->output ? z->output : "-", &t);
    return 0;
}

static int compile(struct settings *z) {
    if (!z->output)
        die("`compile` needs -o DIR");
    const char *dir = folder_named(z->output);
    compile_all(&z->compile, z->dump);
    write_folder(dir, &z->compile);
    return 0;
}

/* The claims one by one; null: not decided, since another one fell first. */
static void print_claims(const struct refutation *no) {
    printf(", \"model\": \"%s\", \"claims\": [", MACHINE_MODEL);
    for (int i = 0; i < NCLAIMS; i++)
        printf("%s{\"claim\": \"%s\", \"says\": %s, \"holds\": %s}", i ? ", " : "", claim_word[i],
               quoted(claim_what[i]),
               !no || no->holds >> i & 1 ? "true"
               : no->claim == 1 << i     ? "false"
                                         : "null");
    printf("]");
}

static int check(const struct compile *c, bool json) {
    long long n = 0, parameters = 0;
    for (int r = 0; r < c->program->workers; r++)
        n += c->program->rank[r].nins;
    for (int s = 0; s < c->spec->stages + c->spec->tied; s++)
        for (int l = 0; l < c->stage[s].rt.nlayers; l++)
            parameters += c->stage[s].rt.layer[l].nparam;
    printf(json ? "{\"schema\": 1, \"schedule\": %s" : "%s", json ? quoted(c->spec->name) : c->spec->name);
    printf(json ? ", \"proved\": true, \"jobs\": %d, \"instructions\": %lld, \"workers\": %d"
                : ": proved: %d jobs, %lld instructions on %d ranks",
           c->spec->njobs, n, c->spec->workers);
    if (c->spec->model)
        printf(json ? ", \"parameters\": %lld" : ", %lld parameters", parameters);
    if (json)
        print_claims(NULL);
    printf(json ? "}\n" : ", machine model %s\n", MACHINE_MODEL);
    return 0;
}

static int import_command(const char *path, const char *output) {
    struct text t = {0};
    check_target(output, &(struct script_args){.schedule = path});
    read_torch(&t, path, file_text(path));
    write_file(output ? output : "-", &t);
    return 0;
}

static int verify_command(const char *path, bool json) {
    const struct program *p = read_text(path, file_text(path));
    struct refutation *no = verify_text(p);
    int claim = 0;
    while (no && no->claim >> (claim + 1))
        claim++;
    if (json) {
        printf("{\"schema\": 1, \"proved\": %s", no ? "false" : "true");
        print_claims(no);
        if (no)
            printf(", \"claim\": \"%s\", \"why\": %s", claim_word[claim], quoted(no->why));
        printf("}\n");
    } else if (no)
        printf("%s: refuted (%s)\n%s\n", path, claim_word[claim], no->why);
    else
        printf("%s: proved: %s on %d ranks, machine model %s\n", path, p->name, p->workers, MACHINE_MODEL);
    return no != NULL;
}

/* What was printed is out, or its reader hears of it: a disk may be full. */
static void close_stdout(void) {
    if (!*diag_text && (fflush(stdout) != 0 || ferror(stdout))) { /* else that was said, or worse */
        fprintf(stderr, "pianola: error: stdout: %s\n", strerror(errno));
        _exit(2);
    }
}

int main(int argc, char **argv) {
    atexit(close_stdout);
    if (argc < 2) {
        help_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_command(argc - 2, argv + 2);
    if (strcmp(argv[1], "--version") == 0) {
        printf("pianola %s\n", VERSION);
        return 0;
    }
    const struct command *c = find_command(argv[1], false);
    struct settings z = {.style.ascii = !is_utf8(), .dump = "", .step = -1, .run = {.steps = 100, .seed = 1}};
    parse(&z, c, argc - 1, argv + 1);
    if (z.json && z.compare.markdown)
        die("--json and --markdown exclude each other");
    z.compare.json = z.diff.json = z.json;
    z.compare.ascii = z.diff.ascii = z.style.ascii;
    switch (c->bit) {
    case CHECK: compile_all(&z.compile, z.dump); return check(&z.compile, z.json);
    case SHOW: return show(&z);
    case COMPARE: return compare_command(&z.compile, &z.compare);
    case DIFF: return diff_command(&z.compile, &z.diff);
    case VERIFY: return verify_command(z.compile.args.schedule, z.json);
    case COMPILE: return compile(&z);
    case IMPORT: return import_command(z.compile.args.schedule, z.output);
    case EXPORT:
        return export_weights(z.compile.args.schedule, z.step, z.output ? z.output : "weights.safetensors", z.json);
    default:
        z.run.style = terminal_style(&z);
        compile_all(&z.compile, "");
        return run_command(&z.compile, &z.run);
    }
}
