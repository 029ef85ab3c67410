/* --tensorboard DIR: each step's and validation's figures, for TensorBoard and other tools that read its files (`wandb
 * sync DIR` does). A run writes a file of its own. If it resumes from a checkpoint, the file says from which step, and
 * TensorBoard drops the later steps of earlier files.
 *
 * A file is a sequence of records: 8 bytes of length, its checksum, the data, their checksum. Each checksum is CRC-32C,
 * rotated by 15 bits plus a constant. The data are protocol buffers, tensorflow.Event with a Summary of scalars. */
#ifndef PIANOLA_TENSORBOARD_H
#define PIANOLA_TENSORBOARD_H
#include "metrics.h"

struct tensorboard {
    FILE *f; /* NULL: it is not open */
    char path[4096];
};
/* Opens a new file. Makes the folder if it is not there. from: steps done before this run. Returns false with `path:
 * reason` in why. */
bool tensorboard_open(struct tensorboard *board, const char *dir, int64_t from, char *why, size_t nwhy);
bool tensorboard_line(struct tensorboard *board, int64_t step, const struct metric *metric, int n, char *why,
                      size_t nwhy);
void tensorboard_close(struct tensorboard *board);
#endif
