/* --tensorboard DIR: each step's and validation's figures as TensorBoard reads them, and other tools that take its
 * files
 * (`wandb sync DIR` does). A run writes a file of its own; where it goes on from a checkpoint, the file says from which
 * step, and TensorBoard drops what earlier files have from there on.
 *
 * A file is records: 8 bytes of length, its checksum, the data, their checksum; each checksum is CRC-32C, rotated by 15
 * bits plus a constant. The data are protocol buffers, tensorflow.Event with a Summary of scalars. */
#ifndef PIANOLA_TENSORBOARD_H
#define PIANOLA_TENSORBOARD_H
#include "metrics.h"

struct tensorboard {
    FILE *f; /* NULL: it is not open */
    char path[4096];
};
/* Makes the folder if it is not there. from: steps done before this run. False with `path: reason` in why. */
bool tensorboard_open(struct tensorboard *board, const char *dir, int64_t from, char *why, size_t nwhy);
bool tensorboard_line(struct tensorboard *board, int64_t step, const struct metric *metric, int n, char *why,
                      size_t nwhy);
void tensorboard_close(struct tensorboard *board);
#endif
