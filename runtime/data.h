/* Microbatches by (step, b), the same on every rank: store/data.c. */
#ifndef PIANOLA_DATA_H
#define PIANOLA_DATA_H
#include "compute.h"
#include <stddef.h>
#include <string.h>

/* The layout of a microbatch: tokens or x; targets or y; inputs of units, one after the other; with labels, the number
 * of targets that count. */
static inline size_t data_half(const struct rt_model *m) { /* the bytes of tokens or x, and of targets or y */
    size_t columns = m->input == INPUT_INTEGERS ? (size_t)m->features : m->input == INPUT_TOKENS ? 1 : 0;
    return sizeof(float) * (size_t)m->rows * columns;
}
static inline size_t data_input_at(const struct rt_model *m, int k) { /* where input k begins */
    size_t at = 2 * data_half(m);
    for (int i = 0; i < k; i++)
        at += sizeof(float) * (size_t)m->rows * (size_t)m->input_of_units[i].columns;
    return at;
}
static inline size_t data_counted_at(const struct rt_model *m) { return (data_input_at(m, m->ninputs) + 7) / 8 * 8; }
static inline size_t data_bytes(const struct rt_model *m) {
    return m->labels ? data_counted_at(m) + sizeof(int64_t) : data_input_at(m, m->ninputs);
}

struct data;
/* Opens the data. INPUT_TOKENS maps the files at paths, ended by NULL, each a path or a shell pattern, and reads them
 * one after the other as one text. The text is their tokens, or bytes if the vocabulary is at most 256; if paths is
 * NULL, the tokens are random. The model's labels and its units' inputs are in files beside each: store/side_file.h.
 * INPUT_INTEGERS makes its own rows. Sequences are drawn without replacement until all
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
/* A validation's sum of losses, and how many sequences, or with labels targets, it has. loss[n]: a step's
 * microbatches', or their slices'. */
struct held_sum {
    double loss, weight;
};
void data_sum(const struct data *d, int64_t step, const float *loss, int32_t n, struct held_sum *sum);
/* Returns whether no label counts in a step of a training, so that its loss has no value. */
bool data_unlabelled(const struct data *d, int64_t step);
/* Fills *out with microbatch b of the step, into the caller's memory of data_bytes(m). No allocation. */
void data_batch(const struct data *d, int64_t step, int b, void *memory, struct rt_batch *out);
/* Points into such a microbatch, here or on a device. skip: bytes before a slice's rows. */
static inline void data_point(const struct rt_model *m, const char *at, size_t skip, struct rt_batch *out) {
    const char *half = at + data_half(m);
    memset(out, 0, sizeof *out);
    if (m->input == INPUT_TOKENS) {
        out->token = (const int32_t *)(const void *)(at + skip);
        out->target = (const int32_t *)(const void *)(half + skip);
    } else if (m->input == INPUT_INTEGERS) {
        out->x = (const float *)(const void *)(at + skip);
        out->y = (const float *)(const void *)(half + skip);
    }
    out->inputs = m->ninputs > 0 ? at + data_input_at(m, 0) : NULL;
    out->counted = m->labels ? (const int64_t *)(const void *)(at + data_counted_at(m)) : NULL;
}
/* Moves a slice to the front, in the same memory: rows first .. first + length of each sequence. */
void data_keep_slice(const struct rt_model *m, int first, int length, void *memory);
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
