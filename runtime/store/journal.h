/* A text file that a run adds to as it goes, a line or some for every step, and that --resume continues. */
#ifndef PIANOLA_JOURNAL_H
#define PIANOLA_JOURNAL_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct journal {
    FILE *f;
    const char *path; /* the caller's */
};
/* What a kind of journal looks like: its first line, or ""; and what every other begins with, before its number. */
struct journal_kind {
    const char *head, *before, *what; /* what: it holds, for messages */
};
/* Begins the file. Of one that an earlier run wrote, the lines with numbers up to `kept` stay. False, with `path:
 * reason` in why: it cannot be written, or is a file of another kind. */
bool journal_open(struct journal *journal, const char *path, const struct journal_kind *kind, int64_t kept, char *why,
                  size_t nwhy);
/* What has been written to journal->f is then on the disk. False with why. */
bool journal_settle(struct journal *journal, char *why, size_t nwhy);
void journal_close(struct journal *journal);
#endif
