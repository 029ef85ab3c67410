/* What is written. Files are written whole or not at all: beside their place first, then renamed. "-" is stdout. */
#ifndef PIANOLA_FILES_H
#define PIANOLA_FILES_H
#include "base/text.h"
#include "ir/spec.h"

void write_file(const char *path, const struct text *t);
/* Of several, all or none: each is staged, and place_files gives them their names. program: it can be run. */
void stage_file(const char *path, const struct text *t, bool program);
void place_files(void);
/* Before long work: these die where what is to be written could not be. */
void check_writable(const char *path);
bool same_place(const char *a, const char *b);     /* would both be written to one file? */
void check_apart(const char *out, const char *in); /* are they one file? NULL: there is none */
void check_target(const char *out, const struct script_args *in);
const char *folder_named(const char *name); /* without slashes at its end; it need not be there yet */
void make_folder(const char *path);         /* unless it is there */
#endif
