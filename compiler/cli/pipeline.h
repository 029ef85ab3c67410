/* Operations of the commands on a compile. */
#ifndef PIANOLA_PIPELINE_H
#define PIANOLA_PIPELINE_H
#include "draw/draw.h"
#include "formats/formats.h"
#include "plan/plan.h"
#include "script/scripts.h"
#include "verify/verify.h"

/* pipeline.c: runs all passes and searches whose results c has not yet. dump: letters of passes after which the program
 * is printed to stdout, and t for what the searches tried, to stderr. */
void compile_all(struct compile *c, const char *dump);
/* pipeline.c: compile_all of a struct compile, for try(); prints nothing. */
void compile_it(void *compile);
/* pipeline.c: the schedule and what it was compiled with, as on a command line, for comments. */
const char *command_line(const struct script_args *args);

/* measured.c: sets timeline, steps and report to those measured, read from the file or folder at path. */
void take_measured(struct compile *c, const char *path);
#endif
