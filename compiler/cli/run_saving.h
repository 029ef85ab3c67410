/* Checkpoints of `run`. */
#ifndef PIANOLA_RUN_SAVING_H
#define PIANOLA_RUN_SAVING_H
#include "command.h"
#include "training.h"

/* "; to go on from the newest checkpoint: COMMAND", or "" without --checkpoint. */
const char *how_to_go_on(const struct settings *settings);
/* Locks the folder, and finds where the training goes on, which it tells data. Dies if it cannot, or other runs use the
 * folder. NULL: --checkpoint is not given. */
const struct saving *open_saving(const struct settings *settings, const struct rt_program *p, struct data *data);
#endif
