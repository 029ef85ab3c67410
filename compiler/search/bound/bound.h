/* Certificates of lower bounds, and their independent proof: `pianola check-bound`. compiler/certificates.md describes
 * the text; nothing here shares code with what searches for schedules and writes certificates.
 *
 * The instance. Classes of items, each class on one rank; a rank runs one item at a time, for `time` ticks. Item k of a
 * class with an `after` line starts at least `lag` after the start of item k of each class named there; item k of a
 * pool once k + 1 items of the classes named there, taken together, have started at least their lags ago. An item takes
 * `take` of its rank's room when it starts and gives `give` back when it ends; what ends at a tick gives before what
 * starts at it takes, and no start may exceed the room. The claim: the last end of every such schedule is at `limit`
 * or later.
 *
 * Why items may be numbered in the order of their starts. Let a schedule have item k after item k of another class for
 * every k. Sort the starts of both classes: the k+1 first of the later class have k+1 distinct predecessors at least
 * `lag` before the k-th of them, so the k-th start of the one is at least `lag` after the k-th of the other. Items of a
 * class are alike in everything else. The same count proves the rule of pools.
 *
 * Why whole ticks suffice. Keep each rank's order of items and let everything start as early as that order, the lags
 * and the times allow: starts are sums of whole ticks and none is later. Room depends on a rank's order alone.
 *
 * Why times may have been rounded down. A schedule stays one when its items become shorter and its lags smaller. */
#ifndef PIANOLA_BOUND_H
#define PIANOLA_BOUND_H
#include "base/base.h"

enum {
    MOST_CLASSES = 4096,
    MOST_BOUND_RANKS = 4096,
    MOST_ITEMS = 1000000, /* of a class */
    MOST_ARCS = 65536,
    MOST_STATES = 10000000,
    MOST_CHOICES = 1 << 20, /* of a cover, besides */
    STATE_CHOICES = 1024    /* for each of its states */
};
/* Each number, and the sum of all times and lags, of all that is taken and of all that is given, is at most this: sums
 * of a few of them cannot overflow. */
#define MOST_SUM   ((int64_t)1 << 59)
#define MOST_STEPS ((int64_t)200000000000) /* of the check of a cover, some minutes: refused beyond */

struct bound_arc {
    int32_t class; /* the other class: of a class's arcs the one it comes after; of its next, the one that follows */
    int64_t lag;
};

struct bound_class {
    const char *name;
    int32_t rank, items;
    int64_t time, take, give;
    bool pool;
    struct bound_arc *arc, *next; /* what its own line names, and who names it */
    int32_t narc, nnext;
    int line, arc_line; /* in the file; arc_line 0: none */
    int64_t latest;     /* the largest of its time and of the lags that name it */
    int64_t head, tail; /* bound_paths() */
};

enum bound_proof { BOUND_WORK, BOUND_PATH, BOUND_MEMORY, BOUND_COVER };
extern const char *const bound_proof_word[];

/* States of a cover, in the file's order; classes beside each other. Starts are relative to the state's time. */
struct cover {
    int32_t n;
    int first_line;
    int64_t *at;
    int32_t *started;  /* n x nclass */
    size_t *recent_at; /* n + 1: where in recent a state's groups are */
    int64_t *recent;   /* groups: class, how many, their starts, ascending */
    int64_t *since;    /* of spans: n x nused; 0: not begun, or ended */
    size_t nrecent, cap;
};

struct bound {
    const char *file, *src, *schedule;
    double tick;
    int64_t limit;
    bool spans; /* the claim is of the largest span of a rank, not of the last end */
    int32_t ranks, nclass;
    int64_t *room; /* per rank; -1: no limit */
    int *room_line;
    struct bound_class *class;
    int32_t *order; /* classes, each behind those it comes after */
    int32_t *used;  /* ranks that have a class */
    int32_t nused;
    int64_t *way; /* bound_span.c: nclass x nused */
    enum bound_proof proof;
    struct cover cover;
};

/* bound_read.c: dies, with the line and what to do, where the text is not a certificate. src stays in use. */
struct bound *read_bound(const char *file, const char *src);
/* bound_arcs.c, for bound_read.c: sets next, latest, order and used; dies on a circle. */
void bound_link(struct bound *b);

/* NULL: proved. Else why not; *by: of what, for people, when proved. */
const char *check_bound(struct bound *b, const char **by);
struct compile;
/* bound_script.c. NULL: what is proved of the certificate's instance holds of all schedules of the script. Else why
 * that is not known. */
const char *check_script(const struct bound *b, const struct compile *c);

/* A state laid out for comparison: what has started before `at`, and when, relative to it. */
struct bound_state {
    int64_t at;
    int32_t *started; /* per class */
    int32_t *first;   /* per class, and one more: where in start its recent starts are, ascending */
    int64_t *start;
    size_t cap;
    int64_t *free;  /* per rank: when what it runs ends, relative to at; 0: it runs nothing */
    int64_t *since; /* of spans, per rank: for how long it has begun; 0: it has not, or it has ended */
};
struct bound_state bound_state_new(const struct bound *b);
void state_of_cover(const struct bound *b, int32_t n, struct bound_state *x);

bool has_begun(const struct bound *b, const int32_t *started, int32_t rank);
bool has_left(const struct bound *b, const int32_t *started, int32_t rank);

/* bound_span.c */
void bound_ways(struct bound *b);
const char *check_span_work(const struct bound *b, const char **by);

/* bound_cover.c */
const char *check_cover(const struct bound *b);

/* bound_index.c: the states of a cover, to be found by what they are as good as */
struct cover_index;
struct cover_index *cover_index_new(const struct bound *b);
/* Whether a state of the cover at y's time dominates y; adds to *steps what the search took. */
bool cover_dominates(const struct cover_index *index, const struct bound_state *y, int64_t *steps);
#endif
