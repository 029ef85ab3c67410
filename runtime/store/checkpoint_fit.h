/* Whether a run may go on from the newest checkpoint of a folder, and where in its data. */
#ifndef PIANOLA_CHECKPOINT_FIT_H
#define PIANOLA_CHECKPOINT_FIT_H
#include "checkpoint.h"

struct checkpoint_found {
    bool ok, some; /* some: there is one */
    int64_t step;
    struct checkpoint_run run;
    char why[1000];
};
/* The newest whole checkpoint; says on stderr if newer ones were passed over, or there is none yet. Not ok: with why.
 */
struct checkpoint_found checkpoint_find(const char *dir);

struct checkpoint_wish { /* what the user lets happen */
    bool new_data, allow_nonfinite;
};
bool checkpoint_fits(const char *dir, const struct checkpoint_found *found, const struct checkpoint_run *now,
                     const struct checkpoint_wish *wish, char *why, size_t n);
/* The sequence at which the run goes on: a number of sequences, since a step may read more or fewer than before. each:
 * those of its steps. note: what to tell the user, or "". */
int64_t checkpoint_place(const char *dir, const struct checkpoint_found *found, const struct checkpoint_run *now,
                         int64_t each, char *note, size_t n);
#endif
