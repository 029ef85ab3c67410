/* The timeline in an interactive page, with the report and its key figures. */
#include "svg.h"
#include "view.h"

enum { KEY_FIGURES = 6, MOST_STATIC = 2000 }; /* operations in a picture for readers without scripts */

static void key_figures(const struct report *rep, const struct measure *m, struct figure figure[KEY_FIGURES]) {
    char a[32];
    int64_t peak = 0, received = 0;
    int live = 0;
    for (int r = 0; r < rep->workers; r++) {
        peak = rep->rank[r].peak_bytes > peak ? rep->rank[r].peak_bytes : peak;
        live = rep->rank[r].peak_activations > live ? rep->rank[r].peak_activations : live;
        received += rep->rank[r].bytes_received;
    }
    figure[0] = (struct figure){"makespan", format("%s %s", time_text(rep->makespan, m, a), m->name)};
    figure[1] = (struct figure){"bubble", format("%.1f %%", 100 * rep->bubble)};
    figure[2] = (struct figure){"largest memory", format("%s", bytes_text((double)peak, a))};
    figure[3] = (struct figure){"live activations", format("%d", live)};
    figure[4] = (struct figure){"received", format("%s", bytes_text((double)received, a))};
    figure[5] = (struct figure){"lower bound", format("%s %s", time_text(rep->bound.lower, m, a), m->name)};
}

/* Returns the number of operations in a picture. */
static int64_t count_instructions(const struct program *p) {
    int64_t n = 0;
    for (int r = 0; r < p->workers; r++)
        n += p->rank[r].nins;
    return n;
}

void emit_html(struct text *t, const struct program *p, const struct timeline *tl, const struct report *rep,
               double limit, const struct style *style, const char *command) {
    static const struct style plain = {.width = 120};
    struct measure m = measure_of(rep->makespan, rep->unit, false);
    struct figure figure[KEY_FIGURES];
    struct text report = {0}, data = {0}, svg = {0};
    const char *note = waits_text(rep);
    key_figures(rep, &m, figure);
    emit_report(&report, rep, &plain);
    emit_view(&data, p, tl, rep, limit, style);
    if (count_instructions(p) <= MOST_STATIC)
        emit_svg(&svg, p, tl, rep, limit, style);
    struct page page = {.name = p->name,
                        .command = command,
                        .verdict = "Proved: no race, no deadlock, every gradient complete",
                        .proved = true,
                        .figure = figure,
                        .nfigures = KEY_FIGURES,
                        .note = *note ? note : NULL,
                        .report = report.s,
                        .data = &data,
                        .svg = svg.n ? &svg : NULL};
    put_page(t, &page);
}
