/* Text files for tests of data. */
#ifndef PIANOLA_TEXT_FILE_H
#define PIANOLA_TEXT_FILE_H
#include "base/base.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

/* Writes a file and returns its path. */
static inline char *text_file(const void *bytes, size_t n) {
    char *path = format("/tmp/pianola-test-data-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && close(fd) == 0);
    return path;
}
#endif
