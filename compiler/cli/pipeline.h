/* Operations of commands on a compile. */
#ifndef PIANOLA_PIPELINE_H
#define PIANOLA_PIPELINE_H
#include "draw/draw.h"
#include "formats/formats.h"
#include "plan/plan.h"
#include "script/scripts.h"
#include "verify/verify.h"

/* pipeline.c: runs all passes and searches whose results c lacks. dump: letters of passes after which the program is
 * printed to stdout; t prints the variations that searches tried to stderr. */
void compile_all(struct compile *c, const char *dump);
/* pipeline.c: calls compile_all, for try(). Takes a struct compile, and prints nothing. */
void compile_it(void *compile);
/* pipeline.c: returns the schedule and its compile options in command-line syntax, for comments. */
const char *command_line(const struct script_args *args);

/* measured.c: replaces timeline, steps and report by measured ones, read from the file or folder at path. */
void take_measured(struct compile *c, const char *path);
#endif
