/* Files beside a file of tokens, with a row for each token: FILE.labels.npy, and FILE.NAME.npy for an input of units.
 */
#ifndef PIANOLA_SIDE_FILE_H
#define PIANOLA_SIDE_FILE_H
#include "data_file.h"
#include "npy.h"

/* The numbers that a file must have. Integers are from least to below - 1. */
struct side_kind {
    const char *name;
    char kind; /* 'i' or 'f' */
    int32_t columns;
    int64_t least, below;
};
struct side_file {
    struct data_file *file; /* NULL: none */
    struct npy array;
    struct side_kind kind;
};
/* The files beside one file of tokens: its labels, and the inputs of the model's units. */
struct sides {
    struct side_file labels, input[MOST_INPUTS];
};
/* Opens the files beside a path that the model needs, and checks each number. rows: the tokens of the path. Returns
 * false on error, with why. */
bool sides_open(struct sides *sides, const struct rt_model *m, const char *path, int64_t rows, char *why, size_t nwhy);
void sides_close(struct sides *sides);
enum { MOST_SIDES = 1 + MOST_INPUTS };
const struct data_file *sides_file(const struct sides *sides, int i); /* i < MOST_SIDES; NULL: there is none */
/* Writes rows [from, from + n) as 4-byte numbers; each negative label as -1. An integer out of its range ends the
 * process, since sides_open found none. If the file was overwritten while it was open, it becomes 0 instead, because
 * data_same will report the change. */
void side_rows(const struct side_file *side, int64_t from, int64_t n, void *to);
#endif
