/* Timelines as people look at them, in terminals and as pictures. */
#ifndef PIANOLA_DRAW_H
#define PIANOLA_DRAW_H
#include "passes/passes.h"

/* How timelines are drawn, for terminals and as pictures. */
enum color_by { BY_OP, BY_MB, BY_STAGE };
enum with { WITH_LANES = 1, WITH_MEMORY = 2, WITH_PATH = 4, WITH_SENDS = 8 };
struct style {
    int width; /* columns */
    bool color, ascii;
    enum color_by by;
    int with;        /* what is drawn besides the jobs: of enum with */
    double from, to; /* the part that is drawn, in the ruler's unit; to 0: up to the end */
};
/* colors.c: what an instruction looks like. NULL name: it is not drawn. */
struct paint {
    const char *name;
    uint8_t text, ground, shade; /* of the 256-colour terminal */
    uint32_t fill;               /* 0xrrggbb */
};
struct paint paint_of(const struct instr *in, enum color_by by);
bool dark(uint32_t rgb); /* what is written on it should be white */
/* labels.c: times in the unit that suits the largest of them; bytes exact when few, else to a tenth in KiB, MiB… */
struct measure {
    double one; /* in the timeline's unit */
    const char *name;
};
struct measure measure_of(double largest, const char *unit, bool ascii);
const char *time_text(double t, const struct measure *measure, char buf[32]);
const char *bytes_text(double n, char buf[32]);
/* A lane's name where there is little room: a large group says only how many it is of. */
const char *lane_label(const struct program *p, const struct lane *lane);
/* Whether one of its ranks runs jobs of several stages, so that a microbatch alone does not name one. */
bool several_stages(const struct program *p);
/* emit_grid.c: the timeline as rows of cells, and the report as a table, for people. unit: as report.unit, of the
 * timeline's times */
void emit_grid(struct text *out, const struct program *p, const struct timeline *tl, const char *unit,
               const struct style *style);
void emit_report(struct text *out, const struct report *report, const struct style *style);
/* emit_svg.c: the timeline as a picture, by itself or in a page that answers the mouse. limit: a rank's memory. */
void emit_svg(struct text *out, const struct program *p, const struct timeline *tl, const struct report *report,
              double limit, const struct style *style, bool html);
#endif
