/* Timelines for people, in terminals and as pictures. */
#ifndef PIANOLA_DRAW_H
#define PIANOLA_DRAW_H
#include "passes/passes.h"

enum color_by { BY_OP, BY_MB, BY_STAGE };
enum with { WITH_LANES = 1, WITH_MEMORY = 2, WITH_PATH = 4, WITH_SENDS = 8 };
struct style {
    int width; /* columns */
    bool color, ascii;
    enum color_by by;
    int with;        /* what to draw besides the jobs: bits of enum with */
    double from, to; /* the part to draw, in the ruler's unit; to 0: to the end */
    /* Of a picture as wide as ever, only what is between these two x, or these two, and nothing's <title>: a page's
     * first glance at a large one. NULL: all of it. */
    const double (*sight)[2];
};
/* colors.c: how an instruction is painted. name NULL: not drawn. */
struct paint {
    const char *name;
    uint8_t text, ground, shade; /* in the terminal's 256 colours */
    uint32_t fill;               /* 0xrrggbb */
};
struct paint paint_of(const struct instr *in, enum color_by by);
bool dark(uint32_t rgb); /* whether text on it should be white */
/* labels.c: times in the unit that suits the largest; small byte counts exactly, others to a tenth in KiB, MiB… */
struct measure {
    double one; /* its size in the timeline's unit */
    const char *name;
};
struct measure measure_of(double largest, const char *unit, bool ascii);
const char *time_text(double t, const struct measure *measure, char buf[32]);
const char *bytes_text(double n, char buf[32]);
/* A short name for a lane: a large group shows only its size. */
const char *lane_label(const struct program *p, const struct lane *lane);
/* Whether any rank runs jobs of several stages, so that a microbatch alone does not identify a job. */
bool several_stages(const struct program *p);
/* emit_grid.c: the timeline as rows of cells. unit: the timeline's, as report.unit */
void emit_grid(struct text *out, const struct program *p, const struct timeline *tl, const char *unit,
               const struct style *style);
/* emit_report.c: the report as a table and lines */
void emit_report(struct text *out, const struct report *report, const struct style *style);
/* emit_bounds.c: of the report, the lower bound, the gap, memory-time, and what noise does to the makespan */
const char *beside_bubble(const struct report *report); /* the closed form, where there is one */
void put_bounds(struct text *out, const struct report *report, const struct measure *measure);
/* emit_weights.c: of the report, what is said of weights that travel; nothing where none do */
void put_weights(struct text *t, const struct report *report, const struct measure *measure);
/* emit_steady.c: of the report, the period, staleness and versions */
void put_steady(struct text *t, const struct report *report, const struct measure *measure);
/* emit_svg.c: the timeline as a picture. limit: a rank's memory. html: it is for a page, with what each operation
 * needs. */
void emit_svg(struct text *out, const struct program *p, const struct timeline *tl, const struct report *report,
              double limit, const struct style *style, bool html);
/* emit_html.c: the same in an interactive page, with the report. command: what made it. */
void emit_html(struct text *out, const struct program *p, const struct timeline *tl, const struct report *report,
               double limit, const struct style *style, const char *command);
/* emit_losses.c: two panels, losses over seconds and over microbatches, with a line for each schedule, or each kind of
 * loss. time: what the seconds are. target: NAN: there is none. */
struct loss_line {
    const char *name;
    int64_t n;             /* updates */
    int each;              /* microbatches of an update */
    const double *loss;    /* [n], smoothed; NAN: not drawn */
    const double *seconds; /* [n]: when each ended */
    int64_t reached;       /* the update from which on the loss is below the target, or -1 */
};
void emit_losses(struct text *out, const char *title, const char *time, const struct loss_line *line, int n,
                 double target);
#endif
