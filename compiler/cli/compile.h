/* One compile: what the passes give, and the table that runs them. */
#ifndef PIANOLA_COMPILE_H
#define PIANOLA_COMPILE_H
#include "draw/draw.h"
#include "formats/formats.h"
#include "script/scripts.h"
#include "verify/verify.h"

struct compile {
    struct script_args args;
    struct spec *spec;
    struct stage *stage;
    struct graph *graph;
    struct sched *sched;
    struct program *program;
    struct timeline *timeline;
    struct report *report;
    struct steps steps;             /* the timeline, or all of which it is the median */
    void (*done)(const char *pass); /* called after each pass, or NULL */
};

/* pipeline.c: all passes up to the report, but for those that give what c has already: its spec, its stages. dump:
 * letters of passes after which the program is printed to stdout. */
void compile_all(struct compile *c, const char *dump);

/* measured.c: sets timeline, steps and report to what was measured, by the file or folder at path. */
void take_measured(struct compile *c, const char *path);
#endif
