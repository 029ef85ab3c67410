/* `pianola frontier`: the least makespan of a script's jobs over the live activations that a rank may hold, and where
 * known schedules lie.
 *
 * The first script says what the jobs are; its own caps do not count. Its order and those of the other scripts are
 * marked by their peak and their makespan. The others get its numbers of ranks and microbatches, as in compare, unless
 * -D says more; and where they cut the model into more or fewer stages, or microbatches into slices, an activation, and
 * without a model a job, counts as much of one of the first script's as it is. */
#include "base/put_json.h"
#include "command.h"
#include "compile.h"
#include "files.h"
#include "optimal/frontier.h"
#include "terminal.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { SEARCHED = 4000000 }; /* states of one search, without --time */

struct known {
    const char *name;
    double peak, makespan;
    const char *why; /* it is left out; NULL: it is not */
};
struct curve {
    struct compile first;
    struct frontier frontier;
    struct known *known;
    int nknown; /* those left out included */
};

static void tell(int cap) {
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\033[Kpianola: %s\r", cap ? format("cap %d", cap) : "without a cap");
}

/* ---- known schedules ---- */

/* Compiles; or says why not, in a line. */
static const char *compile_or_why(struct compile *c) {
    static const char said[] = "pianola: error: ";
    jmp_buf trap;
    const char *why = NULL;
    diag_trap = &trap;
    if (setjmp(trap) == 0)
        compile_all(c, "");
    else {
        const char *text = diag_text + (strncmp(diag_text, said, strlen(said)) == 0 ? strlen(said) : 0);
        why = format("%.*s", (int)strcspn(text, "\n"), text);
        *diag_text = 0;
    }
    diag_trap = NULL;
    return why;
}

/* What one stage of one slice is of all, as in the first script. */
static double part_of(const struct spec *sp) {
    return 1.0 / (script_stages(&sp->names, sp->stages) * slices_of(&sp->names));
}

static struct known measure(struct compile *c, const struct spec *first) {
    struct known known = {.name = script_name(c->args.schedule), .why = compile_or_why(c)};
    if (known.why)
        return known;
    const struct spec *sp = c->spec;
    if (sp->workers != first->workers || whole_batches(sp) != whole_batches(first)) {
        known.why = format("%d ranks and %d microbatches, not %d and %d", sp->workers, whole_batches(sp),
                           first->workers, whole_batches(first));
        return known;
    }
    double scale = part_of(sp) / part_of(first);
    for (int r = 0; r < c->report->workers; r++)
        known.peak = fmax(known.peak, scale * c->report->rank[r].peak_activations);
    known.makespan = c->sched->makespan * (sp->model ? 1 : scale);
    return known;
}

static bool sets(const struct script_args *args, const char *key) {
    for (int i = 0; i < args->nset; i++)
        if (strncmp(args->set[i], key, strlen(key)) == 0)
            return true;
    return false;
}

/* The other scripts' settings: those of the first, and its size. */
static struct script_args args_for(const struct settings *settings, const struct spec *first, bool *used,
                                   const char *file) {
    struct script_args args = settings->args;
    args.schedule = file;
    args.used = used;
    args.set = NEW(const char *, args.nset + 2);
    for (int i = 0; i < args.nset; i++)
        args.set[i] = settings->args.set[i];
    if (!sets(&settings->args, "workers="))
        args.set[args.nset + args.nsizes++] = format("workers=%d", first->workers);
    if (!sets(&settings->args, "batches="))
        args.set[args.nset + args.nsizes++] = format("batches=%d", whole_batches(first));
    args.nset += args.nsizes;
    return args;
}

static void measure_all(struct curve *curve, const struct settings *settings, bool *any) {
    curve->known = NEW(struct known, settings->nfiles);
    for (int i = 0; i < settings->nfiles; i++) {
        bool *used = NEW(bool, settings->args.nset + 2);
        struct compile c = {.args = args_for(settings, curve->first.spec, used, settings->file[i])};
        struct known known = measure(&c, curve->first.spec);
        if (i > 0 || !known.why) /* the first one's own order may come to a deadlock */
            curve->known[curve->nknown++] = known;
        for (int k = 0; k < settings->args.nset; k++)
            any[k] |= used[k];
    }
    for (int k = 0; k < settings->args.nset; k++)
        if (!any[k])
            die("-D %s: none of the scripts has this parameter", settings->args.set[k]);
}

/* ---- printing ---- */

static void put_points_json(struct text *t, const struct frontier *frontier) {
    char a[32], b[32];
    put_word(t, ", \"points\": [");
    for (int i = 0; i < frontier->n; i++) {
        const struct point *point = &frontier->point[i];
        put(t, "%s{\"cap\": %d, \"makespan\": %s, \"lower_bound\": %s, \"optimal\": %s}", i ? ", " : "", point->cap,
            number_or_null(point->makespan, a), number_or_null(point->lower, b), point->proved ? "true" : "false");
    }
    put_word(t, "]");
}

static void put_json(struct text *t, const struct curve *curve) {
    char a[32], b[32];
    const char *comma = "";
    put(t, "{\"schema\": 1, \"schedule\": %s", quoted(curve->first.spec->name));
    put_points_json(t, &curve->frontier);
    put_word(t, ", \"known\": [");
    for (int i = 0; i < curve->nknown; i++)
        if (!curve->known[i].why) {
            put(t, "%s{\"schedule\": %s, \"peak\": %s, \"makespan\": %s}", comma, quoted(curve->known[i].name),
                number(curve->known[i].peak, a), number(curve->known[i].makespan, b));
            comma = ", ";
        }
    put_word(t, "], \"left_out\": [");
    comma = "";
    for (int i = 0; i < curve->nknown; i++)
        if (curve->known[i].why) {
            put(t, "%s{\"schedule\": %s, \"why\": %s}", comma, quoted(curve->known[i].name),
                quoted(curve->known[i].why));
            comma = ", ";
        }
    put_word(t, "]}\n");
}

/* The schedules that fit into this cap and into none before it; the last also has those with more. */
static const char *known_at(const struct curve *curve, const struct point *point, const struct measure *measure) {
    struct text t = {0};
    char a[32];
    bool last = point->cap == curve->frontier.n;
    put_word(&t, "");
    for (int i = 0; i < curve->nknown; i++) {
        const struct known *known = &curve->known[i];
        if (known->why || !(known->peak > point->cap - 1) || (known->peak > point->cap && !last))
            continue;
        put(&t, "%s%s", t.n ? ", " : "", known->name);
        if (!(known->makespan <= point->makespan * (1 + 1e-9)))
            put(&t, " %s", time_text(known->makespan, measure, a));
        if (known->peak != point->cap)
            put(&t, " (with %.4g)", known->peak);
    }
    return t.s;
}

static void put_point(struct text *t, const struct curve *curve, const struct point *point,
                      const struct measure *measure) {
    char a[32], b[32];
    bool none = isnan(point->makespan);
    const char *known = known_at(curve, point, measure);
    put(t, "%3d  %8s  %11s  %-*s%s\n", point->cap, none ? "-" : time_text(point->makespan, measure, a),
        isnan(point->lower) ? "-" : time_text(point->lower, measure, b), *known ? 8 : 0,
        point->proved && none ? "no order fits"
        : point->proved       ? "yes"
        : none                ? "none found"
                              : "no",
        known);
}

static void put_table(struct text *t, const struct curve *curve) {
    const struct spec *sp = curve->first.spec;
    const struct frontier *frontier = &curve->frontier;
    double most = frontier->free.makespan;
    char a[32];
    for (int i = 0; i < frontier->n; i++)
        most = fmax(most, frontier->point[i].makespan);
    struct measure measure = measure_of(most, time_unit(sp), !is_utf8());
    put(t, "%s: %d ranks, %d microbatches; times in %s\n\n", sp->name, sp->workers, whole_batches(sp), measure.name);
    put_word(t, "cap  makespan  lower bound  proved  known schedules\n");
    for (int i = 0; i < frontier->n; i++)
        put_point(t, curve, &frontier->point[i], &measure);
    put(t, "\nwithout a cap: %s, %s\n", time_text(frontier->free.makespan, &measure, a),
        frontier->free.proved ? "which is proved to be the least" : "the best known");
    for (int i = 0; i < curve->nknown; i++)
        if (curve->known[i].why)
            put(t, "left out: %s: %s\n", curve->known[i].name, curve->known[i].why);
}

static void draw(struct text *t, const struct curve *curve) {
    const struct frontier *frontier = &curve->frontier;
    struct frontier_step *step = NEW(struct frontier_step, frontier->n);
    struct frontier_mark *mark = NEW(struct frontier_mark, curve->nknown);
    int nmarks = 0;
    for (int i = 0; i < frontier->n; i++)
        step[i] = (struct frontier_step){frontier->point[i].cap, frontier->point[i].makespan, frontier->point[i].lower};
    for (int i = 0; i < curve->nknown; i++)
        if (!curve->known[i].why)
            mark[nmarks++] =
                (struct frontier_mark){curve->known[i].name, curve->known[i].peak, curve->known[i].makespan};
    emit_frontier(t, format("%s: the least makespan over memory", curve->first.spec->name), step, frontier->n, mark,
                  nmarks);
}

/* Dies before the search of what cannot be written after it. */
static void check_picture(const struct settings *settings) {
    if (settings->svg && strcmp(settings->svg, "-") == 0)
        die("--svg -: the figures go to stdout; name a file for the picture");
    for (int i = 0; settings->svg && i < settings->nfiles; i++) {
        struct script_args in = {
            .schedule = settings->file[i], .model = settings->args.model, .cluster = settings->args.cluster};
        check_target(settings->svg, &in);
    }
}

int cmd_frontier(const struct settings *settings) {
    bool *used = NEW(bool, settings->args.nset);
    struct curve curve = {.first.args = settings->args};
    struct text out = {0}, picture = {0};
    check_picture(settings);
    curve.first.args.used = used;
    load_schedule(&curve.first);
    measure_all(&curve, settings, used);
    struct spec *sp = curve.first.spec;
    curve.first.stage = cost_stages(sp);
    curve.first.graph = graph_build(sp);
    curve.frontier =
        find_frontier(sp, curve.first.stage, curve.first.graph, (struct pains){SEARCHED, settings->seconds, tell});
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\033[K");
    if (settings->svg) {
        draw(&picture, &curve);
        write_file(settings->svg, &picture);
    }
    if (settings->json)
        put_json(&out, &curve);
    else
        put_table(&out, &curve);
    write_file("-", &out);
    return 0;
}
