/* Files that are read whole. */
#ifndef PIANOLA_READ_FILE_H
#define PIANOLA_READ_FILE_H
#include <stddef.h>

/* A whole file as a NUL-terminated string; "-" is stdin. Of a text a byte order mark is left out, and a line's \r\n is
 * \n. Dies naming the file. */
char *read_file(const char *path, size_t *size);
const char *file_text(const char *path); /* the same of a file that must be text: without a byte that is zero */
#endif
