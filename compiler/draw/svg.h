/* Parts shared by pictures of timelines and of diffs. */
#ifndef PIANOLA_SVG_H
#define PIANOLA_SVG_H
#include "draw.h"

enum { LEFT = 64, RIGHT = 16, NARROW = 560, WIDE = 14000 };

/* The interval of time to draw, which begins at x = LEFT. */
struct span {
    double from, to, px; /* px: width of a unit of time */
    struct measure m;
};
/* Sets px so that all but the shortest tenth of n jobs of these lengths have room for names of this many letters. */
void span_scale(struct span *span, double *length, int n, int letters);
double x_of(const struct span *span, double t);
double svg_width(const struct span *span);
void put_axis(struct text *t, const struct span *span, double y, double bottom); /* y: the labels' baseline */

/* svg_begin writes everything up to the heading. The second line, at HEADING, the shapes and </svg> follow. */
enum { HEADING = 34 };
struct svg {
    const char *name;        /* heading */
    const char *style, *top; /* CSS and <defs> content in addition to what all pictures have */
    double width, height;
};
void svg_begin(struct text *t, const struct svg *svg);
void put_xml(struct text *t, const char *s);
/* Writes ", microbatch 3, slice 1". slices 0: microbatches are not cut */
void svg_put_number(struct text *t, int op, int batch, int slices);

/* A timeline that a page shows once its place in the static picture is selected. */
struct shown {
    const char *place, *said; /* id of an element of the picture; a line about the timeline */
    struct text data;         /* for the viewer (view.h) */
};
/* put_page.c: writes a page with a picture. The name, command, the proof's verdict and figures precede it; the report
 * follows. */
struct page {
    const char *name, *command, *verdict; /* verdict NULL: none */
    bool proved;
    const struct figure { const char *name, *value; } * figure;
    int nfigures;
    const char *note, *report; /* note: a sentence below the figures, or NULL */
    const struct text *data;   /* for the viewer (view.h); NULL: the picture is static */
    const struct text *svg;    /* shown without data, or without scripts; NULL: none */
    const struct shown *shown; /* timelines shown below a static picture; at first, the first one */
    int nshown;
};
void put_page(struct text *t, const struct page *page);

/* A box for the longest of the names 1F3, F3 and 3 that fits. */
struct box {
    double x, y, width, height;
    uint32_t fill;
};
void put_name(struct text *t, const struct names *names, const struct instr *x, const struct box *box, bool stages);

/* A rank's memory over time, drawn under its row. `base` is the bottom edge, and `high` the height of `top` bytes. A
 * folded band has the same height everywhere, and darker shades for more bytes. */
struct band {
    double base, high, top, limit;
    bool folded;
};
extern const char folded_style[];           /* CSS of folded bands */
double band_top(double plan, double limit); /* plan: the largest plan of any rank */
/* who: "rank 3" */
void put_band(struct text *t, const struct span *span, const struct band *band, const struct rank *k, const char *who,
              const double *start, const double *end);

/* rows.c: finds the rows of a picture. If there are more than MANY_ROWS ranks, equal ranks may share a row. If there
 * are more than MANY_ROWS rows, the rows are low, with folded bands. */
enum { MANY_ROWS = 16, FOLDED = 4 }; /* FOLDED: height of a folded band */
struct rows {
    int n, *leader; /* leader, per rank: the first of the ranks that share its row */
    int32_t **twin; /* per rank that shares another's row: the leader's instruction for each of its own, or -1 if it is
                     * no block */
    const char **who;   /* per leader: "rank 3", "ranks 0–3, 8" */
    const char **label; /* a shortened form of who; NULL: the rank is alone */
};
struct rows rows_of(const struct program *p, const struct timeline *tl, bool share);
/* Marks a leader's instruction as critical if it is critical on any rank of its row. */
void rows_share_path(const struct rows *rows, const struct program *p, bool **path);

/* Position of the next legend entry, which starts a new line at the right edge. */
struct pen {
    double x, y, right;
};
void put_key(struct text *t, struct pen *at, const char *shape, const char *what);
void put_op_keys(struct text *t, struct pen *at, uint32_t drawn); /* drawn: bits of the operations to list */
void put_band_keys(struct text *t, struct pen *at, double top, double limit, bool folded);
#endif
