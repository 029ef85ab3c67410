/* Output files, written whole or not at all: under a temporary name next to the file, then renamed. "-" is stdout. */
#ifndef PIANOLA_FILES_H
#define PIANOLA_FILES_H
#include "base/text.h"

void write_file(const char *path, const struct text *t);
/* For several files, all or none: each is staged, and place_files renames them all. program: make it executable. */
void stage_file(const char *path, const struct text *t, bool program);
void place_files(void);
/* A file that is written piece by piece; it takes its name at the end. Not "-", nor a device or a pipe. */
FILE *begin_file(const char *path);
void end_file(FILE *f, const char *path);
/* For use before long work: these die if the output could not be written. */
void check_writable(const char *path);
bool same_place(const char *a, const char *b);     /* whether both name the same file */
void check_apart(const char *out, const char *in); /* dies if both are one file; NULL: no file */
const char *folder_named(const char *name);        /* without trailing slashes; it need not exist yet */
void make_folder(const char *path);                /* and those above it, unless they exist */
/* Keeps others that lock it from writing into a folder until the result is closed, or the process ends. Waits for its
 * turn, and says so. */
int lock_folder(const char *path);
#endif
