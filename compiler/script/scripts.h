/* Runs the scripts. */
#ifndef PIANOLA_SCRIPTS_H
#define PIANOLA_SCRIPTS_H
#include "ir/spec.h"

/* script.c: runs the scripts; the only file that knows Lua. Dies with file:line on their errors. */
struct spec *script_load(const struct script_args *args);
const char *script_name(const char *path); /* as outputs have it: of schedules/1f1b.lua, 1f1b */
void script_names(struct text *out);       /* script_names.c: every name and every field that scripts can use */
#endif
