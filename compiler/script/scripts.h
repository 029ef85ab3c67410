/* Runs the scripts. */
#ifndef PIANOLA_SCRIPTS_H
#define PIANOLA_SCRIPTS_H
#include "ir/spec.h"

/* script.c: runs the scripts; only script*.c use Lua. Dies with file:line on errors in them. */
struct spec *script_load(const struct script_args *args);
/* Reads only the model and, if there is one, the cluster, under a built-in schedule: a stage per unit of the model (a
 * layer or a residual block), all on rank 0 of `workers`, one microbatch after the other. args->schedule is not
 * used. */
struct spec *script_units(const struct script_args *args, int workers, int batches);
/* Whether the last script ended with an error that Lua itself found, such as bad syntax or an index of nil, rather than
 * its own error() or one of our checks. */
extern bool script_broken;
const char *script_name(const char *path); /* returns the name used in outputs: 1f1b for schedules/1f1b.lua */
void script_names(struct text *out);       /* script_names.c: lists every name and field that scripts can use */
#endif
