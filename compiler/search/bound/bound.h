/* Certificates of lower bounds, and their independent proof: `pianola check-bound`. compiler/certificates.md describes
 * the text. Nothing here shares code with the searches that find schedules and write certificates.
 *
 * The instance. Items form classes, and each class is on one rank. A rank runs one item at a time, for `time` ticks. If
 * a class has an `after` line, its item k starts at least `lag` after the start of item k of each class named there.
 * Item k of a pool waits for the classes named there jointly: k + 1 of their items must have started at least their
 * lags ago. An item takes `take` of its rank's room when it starts and gives `give` back when it ends. At one tick,
 * ends give before starts take, and no start may exceed the room. The claim: the last end of every such schedule is at
 * `limit` or later.
 *
 * Items may be numbered in the order of their starts. Take a schedule in which item k follows item k of another class
 * for every k, and sort the starts of both classes. The first k+1 of the later class have k+1 distinct predecessors
 * that start at least `lag` before the k-th of them. So the k-th start of the later class is at least `lag` after the
 * k-th of the other. Items of a class do not differ in anything else. The same count proves the rule for pools.
 *
 * Whole ticks suffice. Keep each rank's order of items and let everything start as early as that order, the lags and
 * the times allow. Then starts are sums of whole ticks and none is later. Room depends only on a rank's order.
 *
 * Times may have been rounded down: a schedule stays valid when items become shorter and lags smaller. */
#ifndef PIANOLA_BOUND_H
#define PIANOLA_BOUND_H
#include "base/base.h"

enum {
    MOST_CLASSES = 4096,
    MOST_BOUND_RANKS = 4096,
    MOST_ITEMS = 1000000, /* limit on the items of a class */
    MOST_ARCS = 65536,
    MOST_STATES = 10000000,
    MOST_CHOICES = 1 << 20, /* limit on all choices of a cover */
    STATE_CHOICES = 1024    /* further choices per state of a cover */
};
/* Upper bound on each number, on the sum of all times and lags, and on the sums of all takes and of all gives. Sums of
 * a few of these cannot overflow. */
#define MOST_SUM   ((int64_t)1 << 59)
#define MOST_STEPS ((int64_t)200000000000) /* limit on the check of a cover: some minutes */

struct bound_arc {
    int32_t class; /* the other class: in `arc`, the predecessor; in `next`, the successor */
    int64_t lag;
};

struct bound_class {
    const char *name;
    int32_t rank, items;
    int64_t time, take, give;
    bool pool;
    struct bound_arc *arc, *next; /* arc: the classes that its own line names; next: the classes whose lines name it */
    int32_t narc, nnext;
    int line, arc_line; /* lines in the file; arc_line 0: none */
    int64_t latest;     /* the larger of its time and the lags that name it */
    int64_t head, tail; /* set by bound_paths() */
};

enum bound_proof { BOUND_WORK, BOUND_PATH, BOUND_MEMORY, BOUND_COVER };
extern const char *const bound_proof_word[];

/* States of a cover, in the file's order, with their classes side by side. Starts are relative to the state's time. */
struct cover {
    int32_t n;
    int first_line;
    int64_t *at;
    int32_t *started;  /* n x nclass */
    size_t *recent_at; /* n + 1: where in `recent` a state's groups begin */
    int64_t *recent;   /* groups: class, number of starts, then the starts, ascending */
    int64_t *since;    /* for spans: n x nused; 0: not begun, or ended */
    size_t nrecent, cap;
};

struct bound {
    const char *file, *src, *schedule;
    double tick;
    int64_t limit;
    bool spans; /* the claim is about the largest span of a rank, not the last end */
    int32_t ranks, nclass;
    int64_t *room; /* per rank; -1: no limit */
    int *room_line;
    struct bound_class *class;
    int32_t *order; /* classes, each after those that it follows */
    int32_t *used;  /* ranks that have a class */
    int32_t nused;
    int64_t *way; /* bound_span.c: nclass x nused */
    enum bound_proof proof;
    struct cover cover;
};

/* bound_read.c: reads a certificate. Dies, with the line and advice, if the text is not a certificate. src stays in
 * use. */
struct bound *read_bound(const char *file, const char *src);
/* bound_arcs.c, for bound_read.c: sets next, latest, order and used; dies on a cycle. */
void bound_link(struct bound *b);

/* Returns NULL if the bound is proved, else why not. *by: the method that proved it, as readable text. */
const char *check_bound(struct bound *b, const char **by);
struct compile;
/* bound_script.c: returns NULL if every bound on the certificate's instance holds for all schedules of the script, else
 * why that is unknown. */
const char *check_script(const struct bound *b, const struct compile *c);

/* A state laid out for comparison: which items have started before `at`, and when, relative to it. */
struct bound_state {
    int64_t at;
    int32_t *started; /* per class */
    int32_t *first;   /* per class, and one more: where in `start` its recent starts begin, ascending */
    int64_t *start;
    size_t cap;
    int64_t *free;  /* per rank: when its running item ends, relative to at; 0: it runs none */
    int64_t *since; /* for spans, per rank: time since it began; 0: not begun, or ended */
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

/* bound_index.c: the states of a cover, indexed by what dominance compares */
struct cover_index;
struct cover_index *cover_index_new(const struct bound *b);
/* Returns whether a state of the cover at y's time dominates y. Adds the steps of the search to *steps. */
bool cover_dominates(const struct cover_index *index, const struct bound_state *y, int64_t *steps);
#endif
