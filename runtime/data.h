/* Microbatches by (step, b), the same on every rank: store/data.c. */
#ifndef PIANOLA_DATA_H
#define PIANOLA_DATA_H
#include "compute.h"
#include <stddef.h>

struct data;
/* INPUT_TOKENS maps the files at paths, ended by NULL, each a path or a pattern as shells have them, and reads them one
 * after the other as one text: their tokens, or the bytes of a text if the vocabulary is at most 256; or makes random
 * tokens if paths is NULL. INPUT_INTEGERS makes its own rows. Sequences are drawn without repetition until all have
 * been used, in an order that seed sets. NULL on error, with why. */
struct data *data_open(const struct rt_model *m, const char *const *paths, uint64_t seed, char *why, size_t nwhy);
/* Step `step` begins with sequence `sequence` of all that a training reads: where it goes on. */
void data_begin(struct data *d, int64_t step, int64_t sequence);
/* Sequences that a step reads. */
static inline int64_t sequences_per_step(const struct rt_model *m) {
    return m->context > 0 ? (int64_t)m->rows / m->context * m->batches : m->batches;
}
int64_t data_sequences(const struct data *d); /* in its files; 0: it has none */
/* Makes it held-out text of so many sequences, its own or, where this rank reads none, another rank's: each is read
 * once, in their order. What they leave of the last step repeats some, and counts less or nothing. */
void data_hold_out(struct data *d, int64_t sequences);
/* Steps of a validation; at least 1. */
int64_t data_steps(const struct data *d);
/* A validation's sum of losses, and how many sequences it is of. loss[n]: of a step's microbatches, or their slices. */
struct held_sum {
    double loss;
    int64_t sequences;
};
void data_sum(const struct data *d, int64_t step, const float *loss, int32_t n, struct held_sum *sum);
/* Fills *out with microbatch b of the step, into the caller's memory of data_bytes(m). No allocation. */
void data_batch(const struct data *d, int64_t step, int b, void *memory, struct rt_batch *out);
/* The same of a slice: rows first .. first + length of each sequence. */
void data_slice(const struct data *d, int64_t step, int b, int first, int length, void *memory, struct rt_batch *out);
size_t data_bytes(const struct rt_model *m);
/* Moves the rows to the front, in the same memory, that the members of teams have which read the batch: its input as
 * layer `input` does, its targets as the loss `target` does. NULL: all are read. */
void data_keep(const struct rt_model *m, const struct rt_layer *input, const struct rt_layer *target, void *memory);
/* True if the file is unchanged since it was opened. False, with `path: reason` in why: it changed, shrank or is gone.
 * Call this before keeping anything computed from it. If the file shrinks while being read, the process names it and
 * ends. */
bool data_same(const struct data *d, char *why, size_t nwhy);
/* What identifies this data: the file's size in bytes (0: no file), and a hash of its content. */
void data_identity(const struct data *d, int64_t *bytes, uint64_t *hash);
void data_close(struct data *d);
#endif
