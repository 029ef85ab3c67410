/* Files that are read whole. */
#ifndef PIANOLA_READ_FILE_H
#define PIANOLA_READ_FILE_H
#include <stddef.h>

/* A whole file as a NUL-terminated string; "-" is stdin. In text, drops a byte order mark and turns \r\n into \n. On
 * failure, dies with the file's name. */
char *read_file(const char *path, size_t *size);
const char *file_text(const char *path); /* the same for a file that must be text: it may contain no zero byte */
#endif
