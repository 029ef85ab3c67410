/* Reads whole files. */
#ifndef PIANOLA_READ_FILE_H
#define PIANOLA_READ_FILE_H
#include <stddef.h>

/* Returns a whole file as a NUL-terminated string; "-" is stdin. In text, drops a byte order mark and turns \r\n into
 * \n. Dies with the file's name on failure. */
char *read_file(const char *path, size_t *size);
const char *file_text(const char *path); /* for a file that must be text, without a zero byte */
#endif
