#include "journal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 512 };

static bool journal_trouble(const struct journal *journal, char *why, size_t nwhy) {
    snprintf(why, nwhy, "%s: %s", journal->path, strerror(errno));
    return false;
}

/* Returns the bytes of f before the first line whose number is above `kept`, or that a crash cut short. Returns -1 if
 * the file does not begin like this kind of journal; an empty file does. */
static long bytes_to_keep(FILE *f, const struct journal_kind *kind, int64_t kept) {
    char line[LINE];
    size_t before = strlen(kind->before);
    rewind(f);
    bool any = fgets(line, sizeof line, f);
    if (any && (*kind->head ? strcmp(line, kind->head) : strncmp(line, kind->before, before)) != 0)
        return -1;
    if (!*kind->head)
        rewind(f);
    long at = any ? ftell(f) : 0;
    while (any && fgets(line, sizeof line, f) && strchr(line, '\n') && strncmp(line, kind->before, before) == 0 &&
           strtoll(line + before, NULL, 10) <= kept)
        at = ftell(f);
    return kept > 0 ? at : 0;
}

bool journal_open(struct journal *journal, const char *path, const struct journal_kind *kind, int64_t kept, char *why,
                  size_t nwhy) {
    journal->path = path;
    journal->f = fopen(path, "a+e"); /* writes append, wherever the file is read */
    if (!journal->f)
        return journal_trouble(journal, why, nwhy);
    long at = bytes_to_keep(journal->f, kind, kept);
    if (at < 0) {
        snprintf(why, nwhy, "%s: this file holds something other than %s; name another one to write to", path,
                 kind->what);
        return false;
    }
    if (ftruncate(fileno(journal->f), at) != 0)
        return journal_trouble(journal, why, nwhy);
    fseek(journal->f, 0, SEEK_END); /* switches from reading to writing */
    if (at == 0)
        fputs(kind->head, journal->f);
    return journal_settle(journal, why, nwhy);
}

bool journal_settle(struct journal *journal, char *why, size_t nwhy) {
    return (fflush(journal->f) == 0 && fdatasync(fileno(journal->f)) == 0) || journal_trouble(journal, why, nwhy);
}

void journal_close(struct journal *journal) { fclose(journal->f); }
