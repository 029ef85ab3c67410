/* guess.c: guesses what a user meant by a name that does not exist. */
#ifndef PIANOLA_GUESS_H
#define PIANOLA_GUESS_H
#include "command.h"
#include "options.h"

/* Returns "; a script's parameter is set with -D batches=16" if the unknown option `word`, as in --batches or
 * --batches=16, names a parameter that scripts usually have; else "". next: the argument after it, or NULL. */
const char *guess_parameter(const struct command *command, const char *word, const char *next);
/* Dies if spaces tore a setting apart, as in -D workers = 8. several: the command takes several files. */
void refuse_spaces(const struct settings *settings, bool several);
/* Returns the shipped script, or the script here, that a missing file's name may have meant; or NULL. */
const char *guess_file(const char *missing);
#endif
