/* One compile: what the passes give, and the table that runs them. The top floor: main.c, pipeline.c, run.c. */
#ifndef PIANOLA_COMPILE_H
#define PIANOLA_COMPILE_H
#include "pass.h"

struct compile {
    struct script_args args;
    struct spec *spec;
    struct stage *stage;
    struct graph *graph;
    struct sched *sched;
    struct program *program;
    struct timeline *timeline;
    struct report *report;
};

/* pipeline.c: all passes up to the report; dump: letters of passes after which the program is printed to stdout. */
void compile_all(struct compile *c, const char *dump);
void help_passes(FILE *out);

/* help.c */
void help_report(FILE *out);

/* run.c */
struct run_args {
    const char *data, *timeline;
    int64_t steps;
    uint64_t seed;
    bool json, compare, quiet;
    struct style style;
};
int run_command(struct compile *c, const struct run_args *a);

/* Writes a file whole or not at all: beside its place first, then renamed. "-" is stdout. */
void write_file(const char *path, const struct text *t);
#endif
