/* Files that are written entirely or not at all, through crashes and full disks. Bytes go to a temporary file in the
 * same folder, which takes the final name only when they are on the disk. An earlier file of that name is untouched
 * until then. */
#ifndef PIANOLA_DURABLE_H
#define PIANOLA_DURABLE_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for more than any path that a system call accepts. So the system rejects a path that is too long, and it is
 * never truncated to another file's path. */
enum { DURABLE_PATH = 2 * PATH_MAX };

struct durable {
    int fd; /* -1: an error occurred; why has the reason */
    char path[DURABLE_PATH], beside[DURABLE_PATH];
    char *why;
    size_t nwhy;
};

/* Begin, write as often as needed, end; return false with `path: reason` in why. After begin, call end: it reports
 * whether everything succeeded, so the calls between need no check. Only one process at a time may write a path. */
bool durable_begin(struct durable *durable, const char *path, char *why, size_t nwhy);
bool durable_write(struct durable *durable, const void *bytes, size_t n);
bool durable_end(struct durable *durable);
void durable_drop(struct durable *durable); /* call instead of end if the caller has failed itself */

/* Write a file from several processes. One process begins it and leaves. Then each process with something to write
 * joins, writes at places of its own, and leaves. Finally, one joins and ends. The caller ensures that order. After
 * leave, this process's writes are on disk. */
bool durable_join(struct durable *durable, const char *path, char *why, size_t nwhy);
bool durable_write_at(struct durable *durable, const void *bytes, size_t n, int64_t at);
bool durable_leave(struct durable *durable);

/* Creates the folder if it is missing, and makes its name durable. */
bool durable_folder(const char *path, char *why, size_t nwhy);
/* Makes the names in the folder durable. */
bool durable_names(const char *path, char *why, size_t nwhy);

/* Opens a regular file and sets *bytes to its size. Returns -1 with why on failure. */
int durable_open(const char *path, int64_t *bytes, char *why, size_t nwhy);
/* Computes size and hash (hash.h) of a file's bytes. */
bool durable_sum(const char *path, int64_t *bytes, uint64_t *hash, char *why, size_t nwhy);
/* Reads n bytes from byte `at` of an open file; path is for the message. */
bool durable_read(int fd, const char *path, void *out, size_t n, int64_t at, char *why, size_t nwhy);
#endif
