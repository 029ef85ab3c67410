/* A compile as one value: its arguments, the results of passes so far, and the searches' choices. plan/ runs the
 * passes, and its searches try variations of the value. */
#ifndef PIANOLA_COMPILE_H
#define PIANOLA_COMPILE_H
#include "costs.h"
#include "graph.h"
#include "program.h"

/* Results of passes and searches, in the order in which they are made. */
enum {
    SPEC = 1 << 0,
    COSTS = 1 << 1,
    GRAPH = 1 << 2,
    SCHED = 1 << 3,
    TRIED_PERIODS = 1 << 4,
    TRIED_OFFLOADS = 1 << 5,
    TRIED_ROOM = 1 << 6,
    TRIED_PREFETCH = 1 << 7,
    STREAMS = 1 << 8,
    TRIED_SPARE = 1 << 9,
    OFFSETS = 1 << 10,
    WAITS = 1 << 11,
    PROOF = 1 << 12,
    TIMES = 1 << 13,
    IN_STEP = 1 << 14,
    REPORT = 1 << 15,
    ALL_RESULTS = (1 << 16) - 1
};

/* A variation that a search has tried. */
struct tried {
    struct tried *before; /* the variation tried before it, or NULL */
    const char *search, *variation;
    double makespan; /* NAN: the search did not need it */
    const char *why; /* reason for refusing it; NULL: not refused */
    bool ships;      /* whether the search chose it */
};

/* Steps of one program: the predicted one, or the measured ones in sequence. */
struct steps {
    int n;
    const int *number; /* numbers in the training; NULL: one predicted step */
    const struct timeline *of;
};

struct compile {
    struct script_args args;
    const char *command; /* as in struct settings; only pages use it */
    int have;            /* bits of results without a pointer: searches, and what passes add to the program */
    const struct spec *spec;
    const struct costs *costs;
    struct graph *graph;
    struct sched *sched;
    struct choices choices;  /* the spec's, except where a search has varied them */
    const struct fit *fit;   /* plans of weights for the cluster's memory; NULL: nothing to choose */
    struct program *program; /* the passes mem and lanes add to it in place */
    bool hurried;            /* mem reuses some bytes earlier than choices.life says */
    struct timeline *timeline;
    struct report *report;
    struct steps steps;             /* the timeline's step, or all steps whose median it is */
    struct tried *tried;            /* the last variation tried, or NULL */
    void (*done)(const char *pass); /* called after each pass that compile_all runs, or NULL */
};

/* Returns a compile that starts from an existing spec and its costs. */
static inline struct compile compile_of(const struct spec *sp, const struct costs *costs) {
    return (struct compile){.spec = sp, .costs = costs, .choices = sp->choices};
}
#endif
