/* Paths of files. */
#ifndef PIANOLA_PATH_H
#define PIANOLA_PATH_H
#include <stdbool.h>

/* Returns the absolute path without links, or NULL if nothing is there. */
const char *resolved_path(const char *path);
const char *last_part(const char *path); /* what follows its last slash */
bool has_ending(const char *path, const char *ending);
#endif
