/* The curve of `frontier`, the best order at each point, and known schedules. */
#ifndef PIANOLA_CURVE_H
#define PIANOLA_CURVE_H
#include "cli/command.h"
#include "frontier.h"

struct known {
    const char *name;
    const struct compile *compile;
    double peak, makespan; /* counted in the first script's stages */
    double unit;           /* length of its own unit of time, in the first script's */
    const char *why;       /* why it is left out; NULL: it is not */
};
struct kept_order {
    int64_t room; /* the cap or, over bytes, the memory */
    const char *certificate;
    const int64_t *start;
};
struct curve {
    struct compile first;
    bool bytes;
    struct kept_order *order; /* each search's order; over bytes, only some of these become points */
    int norders;
    size_t capacity;    /* of order */
    const char *folder; /* NULL: do not write the points */
    struct frontier frontier;
    struct known *known;
    int nknown;              /* number, including those left out */
    const struct known *own; /* the first script's own order; NULL: it has no program */
};

/* ---- cmd_frontier.c ---- */

/* Returns what a rank may hold at this point: live activations, or bytes. */
double allowed_at(const struct curve *curve, const struct point *point);
/* Returns the best order at this point, or NULL. */
const struct kept_order *order_at(const struct curve *curve, const struct point *point);
struct measure measure_of_curve(const struct curve *curve, bool ascii);

/* curve_page.c: stages the pictures that the settings ask for. table: the page's report. */
void stage_pictures(const struct curve *curve, const struct settings *settings, const char *table);

/* ---- emit_frontier.c: draws the least makespan over memory, beside known schedules ---- */

struct frontier_step {
    const char *label;
    double room;
    double makespan, lower; /* NAN: none */
};
struct frontier_mark {
    const char *name, *label;
    double peak, makespan;
};
const char *step_place(int i); /* return the id of a step's or mark's element */
const char *mark_place(int i);
struct frontier_chart {
    const char *title, *room, *time; /* room, time: names of the axes */
    const struct frontier_step *step;
    int nsteps;
    const struct frontier_mark *mark;
    int nmarks;
};
/* Draws the steps as a staircase and each known schedule as a mark. */
void emit_frontier(struct text *out, const struct frontier_chart *chart);
#endif
