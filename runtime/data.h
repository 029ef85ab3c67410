/* Microbatches by (step, b), the same on every rank: store/data.c. */
#ifndef PIANOLA_DATA_H
#define PIANOLA_DATA_H
#include "compute.h"
#include <stddef.h>

struct data;
/* Opens the data. INPUT_TOKENS maps the files at paths, ended by NULL, each a path or a shell pattern, and reads them
 * one after the other as one text. The text is their tokens, or bytes if the vocabulary is at most 256; if paths is
 * NULL, the tokens are random. INPUT_INTEGERS makes its own rows. Sequences are drawn without replacement until all
 * have been used, in an order that depends on seed. Returns NULL on error, with why. */
struct data *data_open(const struct rt_model *m, const char *const *paths, uint64_t seed, char *why, size_t nwhy);
/* Sets the position from which a training continues: step `step` begins with sequence number `sequence`.
 */
void data_begin(struct data *d, int64_t step, int64_t sequence);
/* Returns the sequences that a step reads. */
static inline int64_t sequences_per_step(const struct rt_model *m) {
    return m->context > 0 ? (int64_t)m->rows / m->context * m->batches : m->batches;
}
int64_t data_sequences(const struct data *d); /* sequences in its files; 0: it has no files */
/* Uses the data as held-out text of the given number of sequences, its own or, if this rank reads none, another rank's.
 * Each is read once, in order. If they do not fill the last step, some are repeated there, with a lower weight or 0. */
void data_hold_out(struct data *d, int64_t sequences);
/* Returns the steps of a validation, at least 1. */
int64_t data_steps(const struct data *d);
/* A validation's sum of losses, and the number of sequences in it. loss[n]: a step's microbatches', or their slices'.
 */
struct held_sum {
    double loss;
    int64_t sequences;
};
void data_sum(const struct data *d, int64_t step, const float *loss, int32_t n, struct held_sum *sum);
/* Fills *out with microbatch b of the step, into the caller's memory of data_bytes(m). No allocation. */
void data_batch(const struct data *d, int64_t step, int b, void *memory, struct rt_batch *out);
/* Does the same for a slice: rows first .. first + length of each sequence. */
void data_slice(const struct data *d, int64_t step, int b, int first, int length, void *memory, struct rt_batch *out);
size_t data_bytes(const struct rt_model *m);
/* Moves the rows that a team's members read to the front, in the same memory: the input's rows that layer `input` has,
 * and the targets' that the loss `target` has. NULL: all are read. */
void data_keep(const struct rt_model *m, const struct rt_layer *input, const struct rt_layer *target, void *memory);
/* Returns whether the file is unchanged since it was opened. If not, why has `path: reason`: it changed, shrank or is
 * gone. Call this before keeping anything computed from it. If the file shrinks while being read, the process names it
 * and ends. */
bool data_same(const struct data *d, char *why, size_t nwhy);
/* Identifies the data by the file's size in bytes (0: no file) and a hash of its content. */
void data_identity(const struct data *d, int64_t *bytes, uint64_t *hash);
void data_close(struct data *d);
#endif
