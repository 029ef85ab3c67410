/* Shared by the pictures of timelines and of diffs. */
#ifndef PIANOLA_SVG_H
#define PIANOLA_SVG_H
#include "draw.h"

enum { LEFT = 64, RIGHT = 16, NARROW = 560, WIDE = 14000 };

/* The interval of time that is drawn, from x = LEFT on. */
struct span {
    double from, to, px; /* px: the width of one unit of time */
    struct measure m;
    const double (*sight)[2]; /* as of struct style */
};
bool in_sight(const struct span *span, double from, double to); /* anything between these times */
/* Sets px so that, of n jobs of these lengths, all but the shortest tenth have room for names of this many letters. */
void span_scale(struct span *span, double *length, int n, int letters);
double x_of(const struct span *span, double t);
double svg_width(const struct span *span);
void put_axis(struct text *t, const struct span *span, double y, double bottom); /* y: the labels' baseline */

/* svg_begin writes everything up to the heading; the second line, at HEADING, and the shapes follow, and </svg>. */
enum { HEADING = 34 };
struct svg {
    const char *name;        /* the heading */
    const char *style, *top; /* CSS and <defs> content added to what all pictures have */
    double width, height;
};
void svg_begin(struct text *t, const struct svg *svg);
void put_xml(struct text *t, const char *s);
/* ", microbatch 3, slice 1"; slices 0: microbatches are not cut */
void svg_put_number(struct text *t, int op, int batch, int slices);

/* put_page.c: what is around a picture in an interactive page: before it the name, the command, the verdict of the
 * proof and figures, behind it the report. */
struct page {
    const char *name, *command, *verdict;
    bool proved;
    const struct figure { const char *name, *value; } * figure;
    int nfigures;
    const char *shows; /* what the page shows of an operation, for the hint */
    const char *report;
};
void page_begin(struct text *t, const struct page *page);
void page_end(struct text *t, const struct page *page);

/* A box for a name: the longest of 1F3, F3, 3 that fits. */
struct box {
    double x, y, width, height;
    uint32_t fill;
};
void put_name(struct text *t, const struct names *names, const struct instr *x, const struct box *box, bool stages);

/* A rank's memory over time, drawn under its row; `base` is the bottom edge, and `high` the height of `top` bytes.
 * Folded, it is as high everywhere, and the darker the more is in use. */
struct band {
    double base, high, top, limit;
    bool folded;
};
extern const char folded_style[];           /* CSS of such bands */
double band_top(double plan, double limit); /* plan: the largest of all ranks */
/* who: "rank 3" */
void put_band(struct text *t, const struct span *span, const struct band *band, const struct rank *k, const char *who,
              const double *start, const double *end);

/* rows.c: the rows of a picture. More than MANY_ROWS ranks that are equal share one, if they may; more than MANY_ROWS
 * rows are low, with folded bands. */
enum { MANY_ROWS = 16, FOLDED = 4 }; /* the height of a folded band */
struct rows {
    int n, *leader;     /* per rank: the first of those that share its row */
    int32_t **twin;     /* per rank that leads none: for each instruction that of its leader, or -1: it has no block */
    const char **who;   /* per leader: "rank 3", "ranks 0–3, 8" */
    const char **label; /* the same, shortened; NULL: it is alone */
};
struct rows rows_of(const struct program *p, const struct timeline *tl, bool share);

/* Position of the next legend entry, which starts a new line at the right edge. */
struct pen {
    double x, y, right;
};
void put_key(struct text *t, struct pen *at, const char *shape, const char *what);
void put_op_keys(struct text *t, struct pen *at, uint32_t drawn); /* drawn: bits of the operations to list */
void put_band_keys(struct text *t, struct pen *at, double top, double limit, bool folded);
#endif
