/* A text file to which a run adds lines for every step, and which --resume continues. */
#ifndef PIANOLA_JOURNAL_H
#define PIANOLA_JOURNAL_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct journal {
    FILE *f;
    const char *path; /* owned by the caller */
};
/* Format of a kind of journal: its first line, or "", and the text before the number in every other line. */
struct journal_kind {
    const char *head, *before, *what; /* what: its contents, for messages */
};
/* Begins the file. If an earlier run wrote it, keeps the lines with numbers up to `kept`. Returns false, with `path:
 * reason` in why, if the file cannot be written or is of another kind. */
bool journal_open(struct journal *journal, const char *path, const struct journal_kind *kind, int64_t kept, char *why,
                  size_t nwhy);
/* Flushes journal->f to disk. Returns false with why. */
bool journal_settle(struct journal *journal, char *why, size_t nwhy);
void journal_close(struct journal *journal);
#endif
