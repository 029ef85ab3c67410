/* A parsed CSV, as read_torch.c passes it to read_torch_check.c. */
#ifndef PIANOLA_READ_TORCH_H
#define PIANOLA_READ_TORCH_H
#include "formats.h"

enum {
    SEND_F = NDIRS,
    RECV_F,
    SEND_B,
    RECV_B,
    WAIT_SEND_F,
    WAIT_SEND_B,
    NNUMBERED,
    UNSHARD = NNUMBERED,
    RESHARD,
    REDUCE_GRAD,
    WAIT_REDUCE_GRAD,
    NACTIONS
};

struct action {
    int what, s, b;  /* b -1: none */
    int row, column; /* position of its cell, counted from 1 */
    int at;          /* column of the cell in its line, counted from 1 */
    bool pair;       /* first of a pair; the next action is the second */
    bool bw;         /* spelled BW, as PyTorch 2.5 does; `what` is B */
};

struct csv {
    const char *file, *src;
    struct action *action;
    int32_t n, *begin; /* row r's are action[begin[r] .. begin[r + 1]) */
    size_t cap, caprows;
    int rows, stages, batches, jobs;
    bool comms;
    bool old;       /* the file uses PyTorch 2.5's spelling */
    int32_t *index; /* [(s * batches + b) * NNUMBERED + what]: index of the action, or -1 */
    int *rank;      /* per stage; -1: not known yet */
};

#define FAIL(csv, a, fmt, ...)                                                                                         \
    die_at((csv)->file, (csv)->src, (a)->row, (a)->at, "row %d, column %d: " fmt, (a)->row, (a)->column, __VA_ARGS__)

/* Returns an action as spelled in the file. */
const char *torch_spelled(const struct csv *csv, const struct action *action);

/* read_torch_check.c: dies unless every action is present, once, and in its place, and the rows run to their ends. */
void torch_check(struct csv *csv);
#endif
