/* `pianola frontier`: the least makespan of a script's jobs as a function of the live activations that a rank may hold,
 * and where known schedules lie.
 *
 * The first script defines the jobs; its own caps are ignored. Its order and the other scripts' orders are plotted at
 * their peak and makespan. The other scripts get its numbers of ranks and microbatches, as in compare, unless -D sets
 * them. They may cut the model into more or fewer stages, or microbatches into slices. An activation is then counted in
 * proportion to the first script's, and so is a job if there is no model.
 *
 * --bytes counts a model's bytes instead of live activations: points are where the curve falls (staircase.c).
 *
 * -o names a folder for the points: cap_3.lua is the best order known with a cap of 3, and cap_3.bound the certificate
 * of its bound. The bound of a larger cap holds too, and so does the bound without a cap, in no_cap.bound. If one of
 * these is better, its certificate proves the point. With --bytes, memory_4096.lua is the order for 4096 bytes. */
#include "base/put_json.h"
#include "cli/pipeline.h"
#include "cli/files.h"
#include "closed.h"
#include "curve.h"
#include "cli/terminal.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

static void tell_point(void *curve, int cap) {
    (void)curve;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\033[Kpianola: %s\r", cap ? format("cap %d", cap) : "without a cap");
}

/* ---- points ---- */

static const char *file_of(const struct curve *curve, int cap, const char *ending) {
    return cap ? format("%s/cap_%d.%s", curve->folder, cap, ending) : format("%s/no_cap.%s", curve->folder, ending);
}
static const char *file_with(const struct curve *curve, int64_t memory, const char *ending) {
    return format("%s/memory_%lld.%s", curve->folder, (long long)memory, ending);
}

static void stage_script(const struct curve *curve, const char *file, const char *limit, double makespan,
                         const int64_t *start) {
    struct text script = {0};
    char a[32];
    put(&script, "-- The best order known of the jobs of %s with %s: %s.\n", command_line(&curve->first.args), limit,
        sum_text(makespan, a));
    emit_sequence(&script, curve->first.costs, lists_by_start(curve->first.spec, start));
    stage_file(file, &script, false);
}

static void note_order(struct curve *curve, int64_t room, const char *certificate, const int64_t *start) {
    size_t n = (size_t)curve->first.spec->njobs;
    if (!start)
        return;
    GROW(curve->order, curve->capacity, (size_t)curve->norders + 1);
    int64_t *kept = memcpy(NEW(int64_t, n), start, sizeof *start * n);
    curve->order[curve->norders++] = (struct kept_order){room, certificate, kept};
}

/* Writes a point's files. Without a cap, the order is the same as with the last cap, but the bound may not be. */
static bool keep_point(void *context, const struct point *point, const char *certificate, const int64_t *start) {
    struct curve *curve = context;
    if (point->cap > 0)
        note_order(curve, point->cap, certificate, start);
    if (curve->folder) {
        struct text proof = {0};
        put_word(&proof, certificate);
        stage_file(file_of(curve, point->cap, "bound"), &proof, false);
        if (start && point->cap > 0)
            stage_script(curve, file_of(curve, point->cap, "lua"), format("a cap of %d", point->cap), point->makespan,
                         start);
    }
    return is_accepted(certificate);
}

static bool keep_step(void *context, const struct point *point, const char *certificate, const int64_t *start) {
    note_order(context, point->memory, certificate, start);
    return is_accepted(certificate);
}

const struct kept_order *order_at(const struct curve *curve, const struct point *point) {
    for (int i = 0; i < curve->norders; i++)
        if (curve->order[i].room == (curve->bytes ? point->memory : point->cap))
            return &curve->order[i];
    return NULL;
}

/* Writes the files of the points over bytes. */
static void stage_steps(const struct curve *curve) {
    for (int i = 0; i < curve->frontier.n; i++) {
        const struct point *point = &curve->frontier.point[i];
        const struct kept_order *order = order_at(curve, point);
        struct text proof = {0};
        if (!order)
            continue;
        put_word(&proof, order->certificate);
        stage_file(file_with(curve, point->memory, "bound"), &proof, false);
        stage_script(curve, file_with(curve, point->memory, "lua"),
                     format("%lld bytes of memory, not counting messages and gaps", (long long)point->memory),
                     point->makespan, order->start);
    }
}

/* ---- known schedules ---- */

/* Returns the size of one stage of one slice, relative to the whole, as in the first script. */
static double stage_share(const struct spec *sp) {
    return 1.0 / (script_stages(&sp->names, sp->stages) * slices_of(&sp->names));
}

/* Measures a script's order. bytes: by its smallest plan, messages and gaps included. */
static struct known measure_smallest(struct compile *c, const struct spec *first, bool bytes) {
    struct known known = {.name = script_name(c->args.schedule), .why = try(compile_it, c) ? NULL : diag_line()};
    if (known.why)
        return known;
    const struct spec *sp = c->spec;
    if (sp->workers != first->workers || whole_batches(sp) != whole_batches(first)) {
        known.why = format("%d ranks and %d microbatches, not %d and %d", sp->workers, whole_batches(sp),
                           first->workers, whole_batches(first));
        return known;
    }
    double scale = stage_share(sp) / stage_share(first);
    known.compile = c;
    known.unit = sp->model ? 1 : scale;
    for (int r = 0; r < c->report->workers; r++)
        known.peak =
            fmax(known.peak, bytes ? (double)c->program->rank[r].least : scale * c->report->rank[r].peak_activations);
    known.makespan = c->sched->makespan * known.unit;
    return known;
}

/* Returns the settings for another script: the first one's, and its size. */
static struct script_args args_for(const struct settings *settings, const struct spec *first, bool *used,
                                   const char *file) {
    struct script_args args = settings->args;
    args.schedule = file;
    args.used = used;
    args.set = NEW(const char *, args.nset + 2);
    for (int i = 0; i < args.nset; i++)
        args.set[i] = settings->args.set[i];
    if (!is_set(&settings->args, "workers"))
        args.set[args.nset + args.nsizes++] = format("workers=%d", first->workers);
    if (!is_set(&settings->args, "batches"))
        args.set[args.nset + args.nsizes++] = format("batches=%d", whole_batches(first));
    args.nset += args.nsizes;
    return args;
}

static void measure_all(struct curve *curve, const struct settings *settings, bool *any) {
    curve->known = NEW(struct known, settings->nfiles);
    for (int i = 0; i < settings->nfiles; i++) {
        bool *used = NEW(bool, settings->args.nset + 2);
        struct compile *c = NEW(struct compile, 1);
        c->args = args_for(settings, curve->first.spec, used, settings->file[i]);
        struct known known = measure_smallest(c, curve->first.spec, curve->bytes);
        if (i == 0 && !known.why)
            curve->own = curve->known;
        if (i > 0 || !known.why) /* the first one's own order may deadlock */
            curve->known[curve->nknown++] = known;
        for (int k = 0; k < settings->args.nset; k++)
            any[k] |= used[k];
    }
    for (int k = 0; k < settings->args.nset; k++)
        if (!any[k])
            die("-D %s: none of the scripts has this parameter", settings->args.set[k]);
}

/* ---- printing ---- */

double allowed_at(const struct curve *curve, const struct point *point) {
    return curve->bytes ? (double)point->memory : point->cap;
}

/* Returns whether the schedule belongs to this point: over caps, if this is the first point where it fits; over bytes,
 * if it fits here but not at the next point. The last point also gets schedules that need more. */
static bool lies_at(const struct curve *curve, const struct known *known, const struct point *point) {
    const struct point *last = &curve->frontier.point[curve->frontier.n - 1];
    if (known->why)
        return false;
    if (curve->bytes)
        return known->peak >= (double)point->memory && (point == last || known->peak < (double)point[1].memory);
    return known->peak > point->cap - 1 && (known->peak <= point->cap || point == last);
}

static void put_known_json(struct text *t, const struct curve *curve, const struct point *point) {
    char a[32], b[32];
    const char *comma = "";
    put_word(t, ", \"known\": [");
    for (int i = 0; i < curve->nknown; i++) {
        const struct known *known = &curve->known[i];
        if (!lies_at(curve, known, point))
            continue;
        put(t, "%s{\"schedule\": %s, \"peak\": %s, \"makespan\": %s}", comma, quoted(known->name),
            number(known->peak, a), sum_text(known->makespan, b));
        comma = ", ";
    }
    put_word(t, "]");
}

static void put_curve_json(struct text *t, const struct curve *curve) {
    char a[32], b[32];
    put_word(t, "{\"schema\": 1, \"points\": [\n ");
    for (int i = 0; i < curve->frontier.n; i++) {
        const struct point *point = &curve->frontier.point[i];
        put(t, "%s{\"%s\": %.0f, \"makespan\": %s, \"lower_bound\": %s, \"optimal\": %s", i ? ",\n " : "",
            curve->bytes ? "memory" : "cap", allowed_at(curve, point),
            isfinite(point->makespan) ? sum_text(point->makespan, a) : "null",
            isfinite(point->lower) ? sum_text(point->lower, b) : "null", point->proved ? "true" : "false");
        put_known_json(t, curve, point);
        if (curve->folder && curve->bytes)
            put(t, ", \"script\": %s, \"certificate\": %s", quoted(file_with(curve, point->memory, "lua")),
                quoted(file_with(curve, point->memory, "bound")));
        else if (curve->folder)
            put(t, ", \"script\": %s, \"certificate\": %s",
                isnan(point->makespan) ? "null" : quoted(file_of(curve, point->cap, "lua")),
                quoted(file_of(curve, point->by, "bound")));
        put_word(t, "}");
    }
    put_word(t, "]}\n");
}

static const char *known_at(const struct curve *curve, const struct point *point, const struct measure *measure) {
    struct text t = {0};
    char a[32];
    put_word(&t, "");
    for (int i = 0; i < curve->nknown; i++) {
        const struct known *known = &curve->known[i];
        if (!lies_at(curve, known, point))
            continue;
        put(&t, "%s%s", t.n ? ", " : "", known->name);
        if (!(known->makespan <= point->makespan * (1 + 1e-9)))
            put(&t, " %s", time_text(known->makespan, measure, a));
        if (known->peak != allowed_at(curve, point))
            put(&t, curve->bytes ? " (with %.0f)" : " (with %.4g)", known->peak);
    }
    return t.s;
}

static void put_point(struct text *t, const struct curve *curve, const struct point *point,
                      const struct measure *measure) {
    char a[32], b[32];
    bool none = isnan(point->makespan);
    const char *known = known_at(curve, point, measure);
    put(t, "%*.0f  %8s  %11s  %-*s%s\n", curve->bytes ? 12 : 3, allowed_at(curve, point),
        none ? "-" : time_text(point->makespan, measure, a),
        isnan(point->lower) ? "-" : time_text(point->lower, measure, b), *known ? 8 : 0,
        point->proved && none ? "no order fits"
        : point->proved       ? "yes"
        : none                ? "none found"
                              : "no",
        known);
}

struct measure measure_of_curve(const struct curve *curve, bool ascii) {
    double most = curve->frontier.free.makespan;
    for (int i = 0; i < curve->frontier.n; i++)
        most = fmax(most, curve->frontier.point[i].makespan);
    return measure_of(most, time_unit(curve->first.spec), ascii);
}

static void put_curve_table(struct text *t, const struct curve *curve) {
    const struct spec *sp = curve->first.spec;
    const struct frontier *frontier = &curve->frontier;
    char a[32];
    struct measure measure = measure_of_curve(curve, !is_utf8());
    put(t, "%s: %s, %s; times in %s\n\n", sp->name, counted(sp->workers, "rank"),
        counted(whole_batches(sp), "microbatch"), measure.name);
    put(t, "%s  makespan  lower bound  proved  known schedules\n", curve->bytes ? "memory/bytes" : "cap");
    for (int i = 0; i < frontier->n; i++)
        put_point(t, curve, &frontier->point[i], &measure);
    if (curve->bytes)
        put(t, "\nwith %lld bytes %s\n", (long long)frontier->none.memory,
            frontier->none.proved ? "no order fits" : "none was found");
    else
        put(t, "\nwithout a cap: %s, %s\n", time_text(frontier->free.makespan, &measure, a),
            frontier->free.proved ? "which is proved to be the least" : "the best known");
    if (curve->folder)
        put(t, "wrote each as %s, and its certificate\n",
            curve->bytes ? file_with(curve, frontier->point[0].memory, "lua") : file_of(curve, 1, "lua"));
}

/* Reports on stderr what was left out, since JSON does not include it. */
static void tell_left_out(const struct curve *curve) {
    for (int i = 0; i < curve->nknown; i++)
        if (curve->known[i].why)
            fprintf(stderr, "pianola: left out: %s: %s\n", tame(curve->known[i].name), tame(curve->known[i].why));
}

/* Dies before the search if a picture could not be written afterwards. */
static void check_picture(const char *option, const char *file, const struct settings *settings) {
    if (file && strcmp(file, "-") == 0)
        die("%s -: the figures go to stdout; name a file for the picture", option);
    check_destination(file, settings);
}

/* Dies if the script has something that is not counted in bytes. */
static void check_bytes(const struct spec *sp) {
    if (!sp->model)
        die("--bytes counts what a model's layers keep; give --model");
    if (sp->choices.offload)
        die("%s: --bytes counts memory of devices alone, and this schedule keeps things in host memory", sp->file);
}

int cmd_frontier(const struct settings *settings) {
    bool *used = NEW(bool, settings->args.nset);
    struct curve curve = {.first.args = settings->args,
                          .bytes = settings->search.bytes,
                          .folder = settings->output ? folder_named(settings->output) : NULL};
    struct text out = {0}, table = {0};
    check_picture("--svg", settings->diff.svg, settings);
    check_picture("--html", settings->diff.html, settings);
    curve.first.args.used = used;
    compile_until(&curve.first, SPEC);
    if (curve.bytes)
        check_bytes(curve.first.spec);
    measure_all(&curve, settings, used);
    compile_until(&curve.first, GRAPH);
    if (curve.folder)
        make_folder(curve.folder);
    curve.frontier = (curve.bytes ? find_staircase : find_frontier)(
        &curve.first, (struct searches){.states = states_within(settings->search.seconds),
                                        .seconds = settings->search.seconds,
                                        .command = command_line(&settings->args),
                                        .context = &curve,
                                        .begins = tell_point,
                                        .ended = curve.bytes ? keep_step : keep_point});
    if (curve.folder && curve.bytes)
        stage_steps(&curve);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\033[K");
    put_curve_table(&table, &curve);
    stage_pictures(&curve, settings, table.s);
    place_files();
    tell_left_out(&curve);
    if (settings->json)
        put_curve_json(&out, &curve);
    else
        put_bytes(&out, table.s, table.n);
    write_file("-", &out);
    return 0;
}
