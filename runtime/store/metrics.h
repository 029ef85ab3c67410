/* --metrics FILE: JSON lines, one for every step and one for every validation: the step's number, from 1, those of
 * earlier runs included, and figures of it, or of the validation after it. What is not known, or no number, is null.
 * rank/rank_record.c says which figures there are. */
#ifndef PIANOLA_METRICS_H
#define PIANOLA_METRICS_H
#include "journal.h"

struct metric {
    const char *name, *tag; /* tag: in TensorBoard; NULL: it is not told there */
    int digits;             /* of which the number is known */
    bool always;            /* TensorBoard is told of it even where it is no number */
    double value;
};
/* See journal_open. */
bool metrics_open(struct journal *metrics, const char *path, int64_t kept, char *why, size_t nwhy);
/* Appends a line of n figures, which is then on the disk. */
bool metrics_line(struct journal *metrics, int64_t step, const struct metric *metric, int n, char *why, size_t nwhy);
#endif
