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
    int with;        /* what to draw besides jobs: bits of enum with */
    double from, to; /* interval to draw, in the ruler's unit; to 0: to the end */
};
/* colors.c: an instruction's paint. name NULL: it is not drawn. */
struct paint {
    const char *name;
    uint8_t text, ground, shade; /* in the terminal's 256 colours */
    uint32_t fill;               /* 0xrrggbb */
};
struct paint paint_of(const struct instr *in, enum color_by by);
bool dark(uint32_t rgb);         /* colors.c: whether text on this colour should be white */
double lightness_of(uint8_t op); /* colors.c: lightness of a job coloured by microbatch or stage; 0: none */
/* labels.c: times in the unit that suits the largest; small byte counts exact, others to a tenth in KiB, MiB… */
struct measure {
    double one; /* the unit's size in the timeline's unit */
    const char *name;
};
struct measure measure_of(double largest, const char *unit, bool ascii);
const char *time_text(double t, const struct measure *measure, char buf[32]);
struct measure measure_of_bytes(double largest);
const char *bytes_text(double n, char buf[32]);
/* Returns a short name for a lane; a large group shows only its size. */
const char *lane_label(const struct program *p, const struct lane *lane);
/* Returns the legend's text about repetitions. */
const char *repeated_text(const struct program *p, const struct timeline *tl, const struct measure *measure);
/* Returns whether any rank runs jobs of several stages, so that a microbatch alone does not identify a job. */
bool several_stages(const struct program *p);
/* emit_grid.c: writes the timeline as rows of cells. unit: the timeline's, as report.unit */
void emit_grid(struct text *out, const struct program *p, const struct timeline *tl, const char *unit,
               const struct style *style);
/* emit_report.c: writes the report as a table and lines */
void emit_report(struct text *out, const struct report *report, const struct style *style);
/* emit_bounds.c: writes the report's lower bound, gap, memory-time, and the effect of noise on the makespan */
const char *beside_bubble(const struct report *report); /* returns the closed form, or "" if there is none */
/* Returns a sentence if ranks spend most of the time waiting for links, else "". */
const char *waits_text(const struct report *report);
void put_bounds(struct text *out, const struct report *report, const struct measure *measure);
/* emit_weights.c: writes the report's lines on received weights, or nothing if there are none */
void put_weights(struct text *t, const struct report *report, const struct measure *measure);
/* emit_steady.c: writes the report's period, staleness and versions */
void put_steady(struct text *t, const struct report *report, const struct measure *measure);
/* emit_svg.c: draws the timeline. limit: a rank's memory */
void emit_svg(struct text *out, const struct program *p, const struct timeline *tl, const struct report *report,
              double limit, const struct style *style);
/* emit_html.c: writes an interactive page with the picture and the report. command: the command line to show. */
void emit_html(struct text *out, const struct program *p, const struct timeline *tl, const struct report *report,
               double limit, const struct style *style, const char *command);
/* emit_losses.c: draws losses in two panels, over seconds and over microbatches, with a line for each schedule or kind
 * of loss. time: meaning of the seconds. target: NAN if there is none. */
struct loss_line {
    const char *name;
    int64_t n;             /* number of updates */
    int each;              /* microbatches per update */
    const double *loss;    /* [n], smoothed; NAN: not drawn */
    const double *seconds; /* [n]: end of each update */
    int64_t reached;       /* the update from which on the loss stays at or below the target, or -1 */
};
void emit_losses(struct text *out, const char *title, const char *time, const struct loss_line *line, int n,
                 double target);
#endif
