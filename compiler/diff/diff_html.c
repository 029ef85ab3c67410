/* A diff as an interactive page: the picture, the figures of both sides, and the text. */
#include "diff.h"
#include "draw/svg.h"
#include <string.h>

enum { MOST_STATIC = 2000 }; /* operations in a picture for readers without scripts */

/* Returns "33 units → 27 units", or one value if both are the same; "?" if a side has none. */
static const char *both(const struct diff *diff, int which, const struct measure *measure) {
    char text[2][32] = {"?", "?"};
    for (int k = 0; k < 2; k++) {
        double x;
        if (diff_figure(diff, which, k, &x))
            diff_figure_text(which, x, measure, text[k]);
    }
    return strcmp(text[0], text[1]) == 0 ? format("%s", text[0]) : format("%s → %s", text[0], text[1]);
}

static const char *verdict(const struct diff *diff) {
    bool a = diff->side[0]->proved, b = diff->side[1]->proved;
    return a && b ? "A and B proved"
           : a    ? "A proved; B was read, not proved"
           : b    ? "B proved; A was read, not proved"
                  : "A and B were read, not proved";
}

void emit_diff_html(struct text *t, const struct diff *diff, const char *command) {
    static const char *const name[NFIGURES] = {
        [F_MAKESPAN] = "makespan",   [F_BUBBLE] = "bubble", [F_PERIOD] = "period",
        [F_PEAK] = "largest memory", [F_SENT] = "sent",     [F_OPERATIONS] = "operations",
    };
    struct measure measure = diff_measure(diff, false);
    struct figure figure[NFIGURES];
    struct text report = {0}, data = {0}, svg = {0};
    int nfigures = 0;
    double unused;
    for (int f = 0; f < NFIGURES; f++)
        if (f != F_PERIOD || diff_figure(diff, f, 0, &unused) || diff_figure(diff, f, 1, &unused))
            figure[nfigures++] = (struct figure){name[f], both(diff, f, &measure)};
    emit_diff(&report, diff, false, false);
    emit_diff_view(&data, diff);
    if (diff->side[0]->n + diff->side[1]->n <= MOST_STATIC)
        emit_diff_svg(&svg, diff);
    struct page page = {.name = format("%s → %s", diff->side[0]->name, diff->side[1]->name),
                        .command = command,
                        .verdict = verdict(diff),
                        .proved = diff->side[0]->proved && diff->side[1]->proved,
                        .figure = figure,
                        .nfigures = nfigures,
                        .report = report.s,
                        .data = &data,
                        .svg = svg.n ? &svg : NULL};
    put_page(t, &page);
}
