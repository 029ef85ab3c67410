/* The pictures of `frontier`. The page also has the timelines of the points' best orders and of the known schedules; a
 * click on one in the curve shows its timeline below. */
#include "cli/files.h"
#include "cli/pipeline.h"
#include "curve.h"
#include "draw/svg.h"
#include "draw/view.h"
#include "order.h"
#include <math.h>

enum { MOST_DATA = 4800000 }; /* bytes of timelines: with the rest, a page stays below 5 MB */

/* ---- labels ---- */

static const char *point_name(const struct curve *curve, const struct point *point) {
    return format(curve->bytes ? "%.0f bytes" : "cap %.0f", allowed_at(curve, point));
}

static const char *point_label(const struct curve *curve, const struct point *point, const struct measure *measure) {
    char a[32];
    return format("%s: makespan %s %s, %s", point_name(curve, point), time_text(point->makespan, measure, a),
                  measure->name, point->proved ? "optimal" : "the best known");
}

static const char *known_label(const struct curve *curve, const struct known *known, const struct measure *measure) {
    char a[32];
    return format("%s: makespan %s %s, %.10g %s", known->name, time_text(known->makespan, measure, a), measure->name,
                  known->peak, curve->bytes ? "bytes" : "live activations");
}

/* ---- timelines ---- */

struct timelines {
    struct shown *shown;
    int n;
    int nlarge;      /* number left out to keep the page small */
    int nfailed;     /* number of points whose programs do not compile */
    const char *why; /* why the first of these does not */
    size_t bytes;    /* data so far */
};

/* Adds a compile's timeline. unit: length of its unit of time in the curve's. */
static void add_timeline(struct timelines *all, const struct compile *c, const char *place, const char *label,
                         double unit) {
    static const struct style plain = {.width = 120};
    struct measure measure = measure_of(c->timeline->makespan, c->report->unit, false);
    struct text said = {0}, data = {0};
    char a[32];
    emit_view(&data, c->program, c->timeline, c->report, c->spec->machine.memory, &plain);
    if (all->bytes + data.n > MOST_DATA) {
        all->nlarge++;
        return;
    }
    all->bytes += data.n;
    put(&said, "%s; bubble %.1f %%", label, 100 * c->report->bubble);
    if (unit != 1)
        put(&said, "; a unit of its timeline is %.4g units of the curve", unit);
    if (fabs(c->timeline->makespan - c->sched->makespan) > 1e-9 * c->sched->makespan)
        put(&said, "; the timeline, which also has messages and updates, takes %s %s",
            time_text(c->timeline->makespan, &measure, a), measure.name);
    all->shown[all->n++] = (struct shown){place, said.s, data};
}

static void add_known(struct timelines *all, const struct curve *curve, const struct measure *measure, bool own) {
    int nmarks = 0;
    for (int i = 0; i < curve->nknown; i++) {
        const struct known *known = &curve->known[i];
        if (known->why)
            continue;
        if ((known == curve->own) == own)
            add_timeline(all, known->compile, mark_place(nmarks), known_label(curve, known, measure), known->unit);
        nmarks++;
    }
}

static void add_curve_point(struct timelines *all, const struct curve *curve, int i, const struct measure *measure) {
    const struct point *point = &curve->frontier.point[i];
    const struct kept_order *order = order_at(curve, point);
    if (!order || !isfinite(point->makespan))
        return;
    struct compile c = vary_order(&curve->first, lists_by_start(curve->first.spec, order->start), true);
    if (try(compile_it, &c))
        add_timeline(all, &c, step_place(i), point_label(curve, point, measure), 1);
    else if (all->nfailed++ == 0)
        all->why = format("%s: %s", point_name(curve, point), diag_line());
}

/* Returns the timelines. The first one is shown at first: of the first script's own order or, if it has none, of the
 * last point. */
static struct timelines timelines_of(const struct curve *curve) {
    struct timelines all = {.shown = NEW(struct shown, curve->frontier.n + curve->nknown)};
    struct measure measure = measure_of_curve(curve, false);
    add_known(&all, curve, &measure, true);
    for (int i = curve->frontier.n - 1; i >= 0; i--)
        add_curve_point(&all, curve, i, &measure);
    add_known(&all, curve, &measure, false);
    return all;
}

/* Returns sentences about what is left out, or NULL. */
static const char *left_out(const struct timelines *all) {
    struct text note = {0};
    if (all->nfailed)
        put(&note, "Left out: timelines of %s, because the best order there does not compile. %s.",
            counted(all->nfailed, "point"), all->why);
    if (all->nlarge)
        put(&note, "%sLeft out: %d of %d timelines, to keep this page below 5 MB.", note.n ? " " : "", all->nlarge,
            all->nlarge + all->n);
    return note.s;
}

/* ---- the files ---- */

static struct measure measure_of_room(const struct curve *curve) {
    double most = 0;
    for (int i = 0; i < curve->frontier.n; i++)
        most = fmax(most, allowed_at(curve, &curve->frontier.point[i]));
    return curve->bytes ? measure_of_bytes(most) : (struct measure){1, "live activations"};
}

static void draw_curve(struct text *t, const struct curve *curve) {
    const struct frontier *frontier = &curve->frontier;
    struct frontier_step *step = NEW(struct frontier_step, frontier->n);
    struct frontier_mark *mark = NEW(struct frontier_mark, curve->nknown);
    struct measure time = measure_of_curve(curve, false), room = measure_of_room(curve);
    int nmarks = 0;
    for (int i = 0; i < frontier->n; i++) {
        const struct point *point = &frontier->point[i];
        step[i] = (struct frontier_step){point_label(curve, point, &time), allowed_at(curve, point) / room.one,
                                         point->makespan / time.one, point->lower / time.one};
    }
    for (int i = 0; i < curve->nknown; i++) {
        const struct known *known = &curve->known[i];
        if (!known->why)
            mark[nmarks++] = (struct frontier_mark){known->name, known_label(curve, known, &time),
                                                    known->peak / room.one, known->makespan / time.one};
    }
    struct frontier_chart chart = {.title = format("%s: the least makespan over memory", curve->first.spec->name),
                                   .room = format("%s of a rank, at most", room.name),
                                   .time = format("makespan in %s", time.name),
                                   .step = step,
                                   .nsteps = frontier->n,
                                   .mark = mark,
                                   .nmarks = nmarks};
    emit_frontier(t, &chart);
}

static void put_curve_page(struct text *t, const struct curve *curve, const struct text *picture, const char *command,
                           const char *table) {
    const struct figure figure[] = {{"points", format("%d", curve->frontier.n)},
                                    {"known schedules", format("%d", curve->nknown)}};
    struct timelines all = timelines_of(curve);
    struct page page = {.name = format("%s: the least makespan over memory", curve->first.spec->name),
                        .command = command,
                        .figure = figure,
                        .nfigures = 2,
                        .note = left_out(&all),
                        .report = table,
                        .svg = picture,
                        .shown = all.shown,
                        .nshown = all.n};
    put_page(t, &page);
}

void stage_pictures(const struct curve *curve, const struct settings *settings, const char *table) {
    struct text picture = {0}, page = {0};
    if (settings->diff.svg || settings->diff.html)
        draw_curve(&picture, curve);
    if (settings->diff.svg)
        stage_file(settings->diff.svg, &picture, false);
    if (settings->diff.html) {
        put_curve_page(&page, curve, &picture, settings->command, table);
        stage_file(settings->diff.html, &page, false);
    }
}
