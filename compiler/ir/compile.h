/* A compile as one value: what it was asked for, what the passes have made of that so far, and what the searches have
 * chosen. plan/ runs the passes, and its searches try variations of the value. */
#ifndef PIANOLA_COMPILE_H
#define PIANOLA_COMPILE_H
#include "costs.h"
#include "graph.h"
#include "program.h"

/* The results of passes and searches, in the order in which they are made. */
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
    struct tried *before; /* the one tried before it, or NULL */
    const char *search, *variation;
    double makespan; /* NAN: the search did not need to know */
    const char *why; /* it was refused; NULL: it was not */
    bool ships;      /* the search chose it */
};

/* steps of one program: the predicted one, or those that were measured, one after the other */
struct steps {
    int n;
    const int *number; /* as training counts them; NULL: one predicted step */
    const struct timeline *of;
};

struct compile {
    struct script_args args;
    const char *command; /* as in struct settings; for pages alone */
    int have;            /* results that no pointer shows: bits of the searches and of what passes add to the program */
    const struct spec *spec;
    const struct costs *costs;
    struct graph *graph;
    struct sched *sched;
    struct choices choices;  /* the spec's, as far as no search has varied them */
    const struct fit *fit;   /* plans of weights for the cluster's memory; NULL: there is nothing to choose */
    struct program *program; /* what mem and lanes add to it is in place */
    bool hurried;            /* mem reuses some bytes sooner than choices.life says */
    struct timeline *timeline;
    struct report *report;
    struct steps steps;             /* the timeline, or all the steps of which it is the median */
    struct tried *tried;            /* the variation that was tried last, or NULL */
    void (*done)(const char *pass); /* called after each pass that compile_all runs, or NULL */
};

/* A compile of a spec, and of its costs, that are there already. */
static inline struct compile compile_of(const struct spec *sp, const struct costs *costs) {
    return (struct compile){.spec = sp, .costs = costs, .choices = sp->choices};
}
#endif
