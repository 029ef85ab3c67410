/* Reads whole files. */
#ifndef PIANOLA_READ_FILE_H
#define PIANOLA_READ_FILE_H
#include <stddef.h>

/* Returns a whole file as a NUL-terminated string; "-" is stdin. In text, drops a byte order mark and turns \r\n into
 * \n. Dies with the file's name on failure. */
char *read_file(const char *path, size_t *size);
/* If not NULL, returns the file that the user may have meant by a missing one's name, or NULL; the error suggests
 * it. */
extern const char *(*read_file_guess)(const char *missing);
const char *file_text(const char *path); /* for a file that must be text, without a zero byte */
#endif
