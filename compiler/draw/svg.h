/* What the pictures of timelines and of diffs have in common. */
#ifndef PIANOLA_SVG_H
#define PIANOLA_SVG_H
#include "draw.h"

enum { LEFT = 64, RIGHT = 16, NARROW = 560, WIDE = 14000 };

/* The part of the time that is drawn, from LEFT on. */
struct span {
    double from, to, px; /* px: the width of one */
    struct measure m;
};
/* So wide that of n jobs of these lengths, all but the shortest tenth have room for names of so many letters. */
void span_scale(struct span *span, double *length, int n, int letters);
double x_of(const struct span *span, double t);
double svg_width(const struct span *span);
void put_axis(struct text *t, const struct span *span, double y, double bottom); /* y: of the labels' feet */

/* From the first byte up to the heading, and from behind the last shape to the end. */
struct svg {
    const char *name;        /* the heading */
    const char *style, *top; /* its own, besides what all have: CSS, and what <defs> holds */
    double width, height;
    bool html;
};
void svg_begin(struct text *t, const struct svg *svg);
void svg_end(struct text *t, const struct svg *svg, const char *hint);
void put_xml(struct text *t, const char *s);

/* A box in which a name is written: the longest that fits of 1F3, F3, 3. */
struct box {
    double x, y, width, height;
    uint32_t fill;
};
void put_name(struct text *t, const struct instr *x, const struct box *box, bool stages);

/* Under a row, a rank's memory over time; `base` is its foot, and `high` what `top` bytes are. */
struct band {
    double base, high, top, limit;
};
double band_top(double plan, double limit); /* of the largest plan */
void put_band(struct text *t, const struct span *span, const struct band *band, const struct rank *k, int r,
              const double *start, const double *end);

/* Where the next entry of the legend goes: a new line begins where the width ends. */
struct pen {
    double x, y, right;
};
void put_key(struct text *t, struct pen *at, const char *shape, const char *what);
void put_op_keys(struct text *t, struct pen *at, uint32_t drawn); /* of the jobs whose bits are set */
void put_band_keys(struct text *t, struct pen *at, double top, double limit);
#endif
