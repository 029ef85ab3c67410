/* The report's lines on the steady state: the time per repetition and, if updates are jobs, the staleness of the
 * weights that jobs read, and the number of versions that a home holds. */
#include "draw.h"
#include <string.h>

/* Writes the period; a flush schedule's only if it differs from the makespan. */
static void put_period(struct text *t, const struct report *report, const struct measure *measure) {
    char time[32];
    bool steps = report->period_batches == report->step_batches;
    if (report->period <= 0 || (steps && report->period >= report->makespan * (1 - 1e-9)))
        return;
    bool unit = strcmp(measure->name, "units") == 0;
    put(t, "period       %s %s per ", time_text(report->period, measure, time),
        unit && report->period == 1 ? "unit" : measure->name);
    if (steps)
        put(t, "step of ");
    if (steps || report->period_batches > 1)
        put(t, "%d microbatch%s", report->period_batches, report->period_batches > 1 ? "es" : "");
    else
        put(t, "microbatch");
    put(t, ", once ranks are in step; bubble %.1f %%\n", 100 * report->steady_bubble);
}

/* Writes a figure per stage, or once if all stages agree. */
static void put_stages(struct text *t, const char *name, const int *figure, int stages, const char *of,
                       const char *what) {
    bool same = true;
    for (int s = 1; s < stages; s++)
        same &= figure[s] == figure[0];
    put(t, "%-13s", name);
    for (int s = 0; s < (same ? 1 : stages); s++)
        put(t, "%s%d", s ? " " : "", figure[s]);
    put(t, " %s%s %s%s\n", of, same && figure[0] == 1 ? "" : "s", what,
        stages == 1 ? ""
        : same      ? ", on every stage"
                    : ", stage by stage");
}

void put_steady(struct text *t, const struct report *report, const struct measure *measure) {
    put_period(t, report, measure);
    if (!report->updates)
        return;
    put_stages(t, "staleness", report->staleness, report->stages, "update", "behind at most");
    put_stages(t, "versions", report->versions, report->stages, "set", "of weights at once");
    if (report->mixed > 0)
        put(t, "mixed        B(%d,%d) reads v%d, F(%d,%d) read v%d; %lld backward%s read another version than %s\n",
            report->mix.s, report->mix.b, report->mix.backward, report->mix.s, report->mix.b, report->mix.forward,
            (long long)report->mixed, report->mixed > 1 ? "s" : "",
            report->mixed > 1 ? "their forwards" : "its forward");
}
