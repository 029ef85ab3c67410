/* The code of a model's units: compiled into shared libraries for training in this process, and copied into the folder
 * of ranks' programs. */
#ifndef PIANOLA_UNIT_LIBRARY_H
#define PIANOLA_UNIT_LIBRARY_H
#include "ir/model_spec.h"

/* Compiles the units of a model, unless that was done before, and opens them for the host or for CUDA. Dies with the
 * unit's name if that fails. */
void open_units(const struct model *m, bool cuda);

/* A file that a rank's program needs: its name in the folder, and its path. */
struct unit_copy {
    const char *name, *path;
};
/* Lists the files of a model's units, and the headers beside them that they include. Notes the units' libraries in
 * their code, for ranks' programs. Dies if a file cannot serve. */
struct unit_copy *unit_copies(const struct model *m, int *n);
#endif
