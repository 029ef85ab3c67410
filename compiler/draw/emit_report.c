/* The report as text: a table of ranks, then one line per figure of the whole schedule. */
#include "draw.h"
#include <string.h>

/* A table with columns as wide as their contents. A group is a heading over several columns. */
enum { COLUMNS = 12 };
static const struct {
    const char *group, *name;
} heading[COLUMNS] = {{"", "rank"},     {"time", "busy"}, {"", "idle"},        {"", "span"},
                      {"peak", "live"}, {"", "memory"},   {"received", "act"}, {"", "grad"},
                      {"", "weight"},   {"", "part"},     {"", "bytes"},       {"stages", "stored"}};

static void fill_row(char cell[COLUMNS][32], int rank, const struct rank_report *report,
                     const struct measure *measure) {
    int count[] = {report->activations_received, report->gradients_received, report->weights_received,
                   report->reductions_received};
    snprintf(cell[0], 32, "%d", rank);
    time_text(report->busy, measure, cell[1]);
    time_text(report->idle, measure, cell[2]);
    time_text(report->span, measure, cell[3]);
    snprintf(cell[4], 32, "%d", report->peak_activations);
    bytes_text(report->peak_bytes, cell[5]);
    for (int i = 0; i < 4; i++)
        snprintf(cell[6 + i], 32, "%d", count[i]);
    bytes_text(report->bytes_received, cell[10]);
    snprintf(cell[11], 32, "%d", report->stages_stored);
}

static void put_rank_figures(struct text *t, const struct report *report, const struct measure *measure) {
    const char *time = strcmp(measure->name, "units") ? format("time, %s", measure->name) : "time"; /* the ruler's */
    char(*row)[COLUMNS][32] = alloc(sizeof *row * (size_t)report->workers);
    int width[COLUMNS], end = 0, at = 0;
    for (int c = 0; c < COLUMNS; c++)
        width[c] = (int)strlen(heading[c].name);
    for (int i = 0; i < report->workers; i++) {
        fill_row(row[i], i, &report->rank[i], measure);
        for (int c = 0; c < COLUMNS; c++)
            width[c] = (int)strlen(row[i][c]) > width[c] ? (int)strlen(row[i][c]) : width[c];
    }
    for (int c = 0; c < COLUMNS; at += width[c++] + 2)
        if (*heading[c].group) { /* starts above the right-aligned heading of its first column */
            const char *group = c == 1 ? time : heading[c].group;
            int left = at + width[c] - (int)strlen(heading[c].name);
            put(t, "%*s%s", left - end, "", group);
            end = left + (int)strlen(group);
        }
    put(t, "\n");
    for (int c = 0; c < COLUMNS; c++)
        put(t, "%*s%s", width[c], heading[c].name, c + 1 < COLUMNS ? "  " : "\n");
    for (int i = 0; i < report->workers; i++)
        for (int c = 0; c < COLUMNS; c++)
            put(t, "%*s%s", width[c], row[i][c], c + 1 < COLUMNS ? "  " : "\n");
}

/* Prints the contents of each rank's memory at its peak. Leaves out columns that are all zero. */
static void put_held(struct text *t, const struct report *report) {
    int width[NHELD];
    char cell[32];
    for (int h = 0; h < NHELD; h++) {
        width[h] = 0;
        for (int i = 0; i < report->workers; i++)
            if (report->rank[i].held[h] > 0 && (int)strlen(bytes_text(report->rank[i].held[h], cell)) > width[h])
                width[h] = (int)strlen(cell);
        if (width[h] > 0 && (int)strlen(held_name[h]) > width[h])
            width[h] = (int)strlen(held_name[h]);
    }
    int wide = decimal_digits(report->workers - 1), rank = wide > 4 ? wide : 4;
    put(t, "\nmemory at the peak\n%*s", rank, "rank");
    for (int h = 0; h < NHELD; h++)
        if (width[h] > 0)
            put(t, "  %*s", width[h], held_name[h]);
    put(t, "\n");
    for (int i = 0; i < report->workers; i++) {
        put(t, "%*d", rank, i);
        for (int h = 0; h < NHELD; h++)
            if (width[h] > 0)
                put(t, "  %*s", width[h], bytes_text(report->rank[i].held[h], cell));
        put(t, "\n");
    }
}

/* Prints the largest peak of any rank, and the least memory that would suffice. Prints nothing if they are equal. */
static void put_spare(struct text *t, const struct report *report) {
    char a[32], b[32];
    int64_t peak = 0, least = 0;
    for (int i = 0; i < report->workers; i++) {
        peak = report->rank[i].peak_bytes > peak ? report->rank[i].peak_bytes : peak;
        least = report->rank[i].least_bytes > least ? report->rank[i].least_bytes : least;
    }
    if (peak > least)
        put(t, "memory       %s a rank at most; %s would do, with waits (--memory least)\n", bytes_text(peak, a),
            bytes_text(least, b));
}

/* Prints the largest host memory of any rank, and the largest number of bytes that a rank copies there. Prints nothing
 * if nothing is copied. */
static void put_host(struct text *t, const struct report *report) {
    char a[32], b[32];
    int64_t most = 0, copied = 0;
    for (int i = 0; i < report->workers; i++) {
        most = report->rank[i].host_bytes > most ? report->rank[i].host_bytes : most;
        copied = report->rank[i].offloaded > copied ? report->rank[i].offloaded : copied;
    }
    if (most > 0)
        put(t, "host memory  %s a rank at most; %s copied there per step\n", bytes_text(most, a),
            bytes_text(copied, b));
}

void emit_report(struct text *out, const struct report *report, const struct style *style) {
    struct measure measure = measure_of(report->makespan, report->unit, style->ascii);
    char a[32];
    put(out, "%s: %s, %s, %s", report->schedule, counted(report->workers, "worker"), counted(report->stages, "stage"),
        counted(report->step_batches, "microbatch"));
    if (report->slices)
        put(out, " of %s", counted(report->slices, "slice"));
    if (report->batches < report->step_batches)
        put(out, ", %d written out", report->batches);
    if (report->measured)
        put(out, "; measured, %s",
            report->measured > 1 ? format("the median of %d steps", report->measured) : "one step");
    put(out, "\n\n");
    put_rank_figures(out, report, &measure);
    if (strcmp(report->unit, "F") != 0) /* bytes are real only with a model */
        put_held(out, report);
    put(out, "\nmakespan     %s %s", time_text(report->makespan, &measure, a), measure.name);
    double share = share_of_units(report);
    if (strcmp(report->unit, "F") == 0 && share != 1)
        put(out, "; %s where F is 1 for a rank's share of the model, as in `compare`",
            time_text(report->makespan * share, &measure, a));
    put(out, "\n");
    put(out, "bubble       %.1f %%%s%s%s\n", 100 * report->bubble, beside_bubble(report),
        *waits_text(report) ? "; " : "", waits_text(report));
    put(out, "throughput   %.3f of the ranks' time is progress: F, B, I and W, but no recomputation\n",
        report->throughput);
    put_bounds(out, report, &measure);
    put_steady(out, report, &measure);
    put_spare(out, report);
    put_host(out, report);
    put_weights(out, report, &measure);
}
