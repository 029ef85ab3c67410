/* Writes the data of an interactive picture: rows of operations, what each needs, and memory over time. The format is
 * described in viewer/data.js, which reads it. */
#ifndef PIANOLA_VIEW_H
#define PIANOLA_VIEW_H
#include "draw.h"

/* How an operation is drawn, as bits */
enum {
    VIEW_CRITICAL = 1,
    VIEW_UPPER = 2, /* it overlaps another operation and takes the upper half of the row */
    VIEW_LOWER = 4,
    VIEW_FADED = 8, /* these and the following are for diffs: unchanged but for its time */
    VIEW_MOVED = 16,
    VIEW_REORDERED = 32,
    VIEW_ALONE = 64 /* only one side has it */
};

/* Something that an operation needs. */
struct view_need {
    int32_t row, op;       /* the operation that made it, by its row and place there; op -1: none is drawn */
    int32_t tensor, batch; /* tensor: from view_tensor, for what a message brought; -1: none did */
    int32_t from, to;      /* the message's ranks */
    int64_t bytes;
    double sent, arrived;
};

struct view_op {
    int32_t symbol, batch, version; /* symbol: from view_symbol; batch, version -1: none */
    uint32_t flags;
    double start, end;
    const struct view_need *need;
    int nneeds;
    int32_t match, note, root; /* diffs: see viewer/data.js */
    double shift;              /* diffs: how much later it ends in B */
};

/* The first part of the data */
struct view_head {
    struct measure measure;
    double end, from, to; /* to 0: to the end */
    enum color_by by;
    bool sends, stages; /* sends: draw all messages; stages: names include the stage */
    double limit, top;  /* bytes: a rank's memory; the top of the curves */
    const char *joins;  /* meaning of the lines where lanes join; NULL: there are none */
    int panels;         /* 1, or 3 for a diff */
    const char *title[2];
    const char *note; /* a sentence about the whole picture, or "" */
};

struct view;
/* Begins the data. note_time must see all times before the first row. */
struct view *view_begin(const struct view_head *head);
void view_note_time(struct view *view, double t);
/* Returns whether a time has the same text in whole ticks. All times must be noted. */
bool view_keeps(const struct view *view, double t);
/* Return the number of an operation's name, and of a tensor's, without the microbatch. */
int32_t view_symbol(struct view *view, const struct names *names, const struct instr *x);
int32_t view_tensor(struct view *view, const struct names *names, const struct buf *b);
int32_t view_text(struct view *view, const char *note); /* returns the number of a diff's note */
/* Begins the next side, whose operations are numbered from 0. end: its makespan */
void view_side(struct view *view, double end);
/* Begins a row, whose operations follow, in order of time. ranks: [from, to] runs, as JSON. plan: bytes of its memory;
 * -1: unknown */
void view_row(struct view *view, const char *ranks, int64_t plan);
void view_lane(struct view *view, const char *name); /* begins the row's next lane */
void view_put(struct view *view, const struct view_op *op);
void view_memory(struct view *view, const struct usage *usage);
void view_joins(struct view *view, const double *at, int n);
void view_end(struct text *t, struct view *view);

/* emit_view.c: writes a timeline's data. Parameters as for emit_svg. */
void emit_view(struct text *t, const struct program *p, const struct timeline *tl, const struct report *rep,
               double limit, const struct style *style);
#endif
