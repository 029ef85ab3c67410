/* The report's reference values for the makespan: the lower bound for any schedule of these jobs, and the effect of
 * noise. */
#include "draw.h"
#include <math.h>
#include <string.h>

const char *beside_bubble(const struct report *report) {
    if (isnan(report->closed_bubble))
        return "";
    bool same = fabs(report->bubble - report->closed_bubble) < 1e-9;
    return same ? ", as the closed form says" : format("; the closed form says %.1f %%", 100 * report->closed_bubble);
}

const char *waits_text(const struct report *report) {
    return report->bound.links > 0.5 ? format("links take %.1f %% of the critical path", 100 * report->bound.links)
                                     : "";
}

/* Returns the time with its unit, unless the unit is plain units. */
static const char *with_unit(double t, const struct measure *measure) {
    char buf[32];
    return format(strcmp(measure->name, "units") ? "%s %s" : "%s", time_text(t, measure, buf), measure->name);
}

/* Writes the shares of the allowed activation memory x makespan that are needed, held waiting, and empty. */
static void put_memory_time(struct text *out, const struct report *report) {
    double all = report->memory_time.room / 100, held = report->memory_time.held, needed = report->memory_time.needed;
    if (all > 0)
        put(out, "memory-time  of %s x makespan, %.1f %% is needed, %.1f %% held while waiting, %.1f %% empty\n",
            report->memory_time.capped ? "caps" : "peaks", needed / all, fmax(held - needed, 0) / all,
            fmax(100 - held / all, 0));
}

static void put_jitter(struct text *out, const struct jitter *jitter, const struct measure *measure) {
    char mean[32], most[32], worst[32];
    put(out, "jitter       mean %s, 95 %% of runs within %s, worst %s %s; %s, %s\n",
        time_text(jitter->mean, measure, mean), time_text(jitter->p95, measure, most),
        time_text(jitter->worst, measure, worst), measure->name, counted(jitter->runs, "run"),
        jitter_text(jitter->level));
}

void put_bounds(struct text *out, const struct report *report, const struct measure *measure) {
    char a[32];
    put(out, "lower bound  %s %s, from ", time_text(report->bound.lower, measure, a), measure->name);
    const char *work = with_unit(report->bound.work, measure), *path = with_unit(report->bound.path, measure);
    const char *live = with_unit(report->bound.memory, measure);
    double busiest = 0;
    for (int r = 0; r < report->workers; r++)
        busiest = fmax(busiest, report->rank[r].busy);
    const char *whose =
        report->bound.work > busiest ? "the work of all ranks on the cores they share" : "a rank's work";
    if (report->bound.lower == report->bound.work)
        put(out, "%s (path %s, live activations %s)\n", whose, path, live);
    else if (report->bound.lower == report->bound.path)
        put(out, "the longest path (work %s, live activations %s)\n", work, live);
    else
        put(out, "live activations (work %s, path %s)\n", work, path);
    put(out, "gap          %.1f %%\n", 100 * report->gap);
    put_memory_time(out, report);
    if (report->jitter)
        put_jitter(out, report->jitter, measure);
}
