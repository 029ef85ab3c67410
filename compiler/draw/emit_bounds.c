/* Of the report, what the makespan is held against: what no schedule of these jobs can beat, and what noise does to it.
 */
#include "draw.h"
#include <string.h>

/* Omits the name of plain units. */
static const char *with_unit(double t, const struct measure *measure) {
    char buf[32];
    return format(strcmp(measure->name, "units") ? "%s %s" : "%s", time_text(t, measure, buf), measure->name);
}

static void put_jitter(struct text *out, const struct jitter *jitter, const struct measure *measure) {
    char mean[32], most[32], worst[32];
    put(out,
        "jitter       mean %s, 95 %% of runs within %s, worst %s %s; %lld runs, times up to %g %% longer or shorter\n",
        time_text(jitter->mean, measure, mean), time_text(jitter->p95, measure, most),
        time_text(jitter->worst, measure, worst), measure->name, (long long)jitter->runs, 100 * jitter->level);
}

void put_bounds(struct text *out, const struct report *report, const struct measure *measure) {
    char a[32];
    put(out, "lower bound  %s %s, from ", time_text(report->lower_bound, measure, a), measure->name);
    const char *work = with_unit(report->bound_work, measure), *path = with_unit(report->bound_path, measure);
    const char *live = with_unit(report->bound_memory, measure);
    if (report->lower_bound == report->bound_work)
        put(out, "a rank's work (path %s, live activations %s)\n", path, live);
    else if (report->lower_bound == report->bound_path)
        put(out, "the longest path (work %s, live activations %s)\n", work, live);
    else
        put(out, "live activations (work %s, path %s)\n", work, path);
    put(out, "gap          %.1f %%\n", 100 * report->gap);
    if (report->jitter)
        put_jitter(out, report->jitter, measure);
}
