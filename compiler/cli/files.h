/* Output files, written whole or not at all: under a temporary name next to the file, then renamed. "-" is stdout. */
#ifndef PIANOLA_FILES_H
#define PIANOLA_FILES_H
#include "base/text.h"

void write_file(const char *path, const struct text *t);
/* Stages one of several files that are written all or none; place_files renames them all. program: make it
 * executable. */
void stage_file(const char *path, const struct text *t, bool program);
void place_files(void);
/* Opens a file to be written piece by piece; end_file gives it its name. Not for "-", a device or a pipe. */
FILE *begin_file(const char *path);
void end_file(FILE *f, const char *path);
/* Die if the output could not be written. Call these before long work. */
void check_writable(const char *path);
bool same_place(const char *a, const char *b);     /* whether both name the same file */
void check_apart(const char *out, const char *in); /* dies if both are one file; NULL: no file */
const char *folder_named(const char *name);        /* without trailing slashes; it need not exist yet */
void make_folder(const char *path);                /* and its missing ancestors */
/* Locks a folder against other writers that lock it, until the result is closed or the process ends. Waits for its
 * turn, and reports that. */
int lock_folder(const char *path);
#endif
