/* A file of text or tokens, mapped while a run reads it. It must not change while it is open. */
#ifndef PIANOLA_DATA_FILE_H
#define PIANOLA_DATA_FILE_H
#include "rt.h"
#include <limits.h>
#include <sys/stat.h>

struct data_file {
    const uint8_t *text; /* NULL: the file is empty */
    size_t size;
    uint64_t hash; /* hash of the content: all of it, or 64 MiB in pieces evenly spread over it */
    int fd;
    struct stat was;
    char path[PATH_MAX], fault[PATH_MAX + 64]; /* fault: a fault's message, without the reason */
    struct data_file *next;
};
/* Opens and maps a file. Returns NULL on error, with why. If the file shrinks later or its disk fails, a read ends the
 * process with 2 and a line that names the file. Open and close from one thread at a time. */
struct data_file *data_file_open(const char *path, char *why, size_t nwhy);
/* Returns false if the file is an array of NumPy, or is compressed; then why has the command that unpacks it. */
bool data_file_plain(const struct data_file *file, char *why, size_t nwhy);
/* Returns whether the first line is a JSON object with a "text", as in data sets of one document per line. */
bool data_file_has_lines(const struct data_file *file);
/* Returns the offset at which the text begins: after a byte order mark. */
size_t data_file_begin(const struct data_file *file);
bool data_file_same(const struct data_file *file, char *why, size_t nwhy);
void data_file_close(struct data_file *file); /* NULL: nothing to close */
#endif
