/* --metrics FILE: JSON lines, one for every step and one for every validation. A line has the step's number, from 1,
 * counting earlier runs, and figures of the step, or of the validation after it. A figure that is unknown or not a
 * number is null. rank/rank_record.c lists the figures. */
#ifndef PIANOLA_METRICS_H
#define PIANOLA_METRICS_H
#include "journal.h"

struct metric {
    const char *name, *tag; /* tag: name in TensorBoard; NULL: not recorded there */
    int digits;             /* significant digits */
    bool always;            /* TensorBoard gets the figure even if it is not finite */
    double value;
};
/* Opens the file: see journal_open. */
bool metrics_open(struct journal *metrics, const char *path, int64_t kept, char *why, size_t nwhy);
/* Appends a line of n figures and puts it on the disk. */
bool metrics_line(struct journal *metrics, int64_t step, const struct metric *metric, int n, char *why, size_t nwhy);
#endif
