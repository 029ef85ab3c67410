/* Decides whether a run may continue from the newest checkpoint of a folder, and where in its data. */
#ifndef PIANOLA_CHECKPOINT_FIT_H
#define PIANOLA_CHECKPOINT_FIT_H
#include "checkpoint.h"

struct checkpoint_found {
    bool ok, some; /* some: there is a checkpoint */
    int64_t step;
    struct checkpoint_run run;
    char why[1000];
};
/* Finds the newest complete checkpoint. Reports on stderr if newer ones were skipped, or if there is none yet. If not
 * ok, sets why. */
struct checkpoint_found checkpoint_find(const char *dir);

struct checkpoint_wish { /* the user's permissions */
    bool new_data, allow_nonfinite;
};
bool checkpoint_fits(const char *dir, const struct checkpoint_found *found, const struct checkpoint_run *now,
                     const struct checkpoint_wish *wish, char *why, size_t n);
/* Returns the sequence at which the run continues. It is a number of sequences, since a step may read more or fewer
 * than before. each: sequences of a step of this run. note: text for the user, or "". */
int64_t checkpoint_place(const char *dir, const struct checkpoint_found *found, const struct checkpoint_run *now,
                         int64_t each, char *note, size_t n);
#endif
