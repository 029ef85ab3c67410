/* One compilation: the passes' results, and the table that runs them. */
#ifndef PIANOLA_COMPILE_H
#define PIANOLA_COMPILE_H
#include "draw/draw.h"
#include "formats/formats.h"
#include "script/scripts.h"
#include "verify/verify.h"

struct compile {
    struct script_args args;
    const char *command; /* as in struct settings; for pages alone */
    struct spec *spec;
    struct stage *stage;
    struct graph *graph;
    struct sched *sched;
    struct program *program;
    struct timeline *timeline;
    struct report *report;
    struct steps steps;             /* the timeline, or all the steps of which it is the median */
    void (*done)(const char *pass); /* called after each pass, or NULL */
};

/* pipeline.c: runs all passes up to the report, except those whose results c already has (spec, stages, and the graph
 * with the schedule). dump: letters of passes after which the program is printed to stdout. */
void compile_all(struct compile *c, const char *dump);
/* pipeline.c: compile_all of a struct compile, for try(); prints nothing. */
void compile_it(void *compile);
/* pipeline.c: the schedule and what it was compiled with, as on a command line, for comments. */
const char *command_line(const struct script_args *args);

/* steady.c: runs the scripts; of a step whose updates are jobs, the first microbatches. Then, once these are scheduled,
 * chooses how many are written out and which part of them repeats, and schedules those. */
void load_schedule(struct compile *c);
void find_steady_state(struct compile *c);

/* measured.c: sets timeline, steps and report to those measured, read from the file or folder at path. */
void take_measured(struct compile *c, const char *path);
#endif
