/* A mapped file: its identity, and the handling of changes to it during the run.
 *
 * A mapping shows the file as it is, not as it was. Reads of overwritten bytes return the new ones, and only the file's
 * modification time shows it. If the file has become shorter, the kernel sends SIGBUS for a read past its end. That
 * would kill the process silently, so a handler names the file. */
#include "data_file.h"
#include "fault.h"
#include "hash.h"
#include "lfs.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- SIGBUS ---- */

static struct data_file *mapped; /* list of all open files */
static struct sigaction before;  /* SIGBUS's handler before ours: a sanitizer's, or none */

/* Reports a fault in a mapped file. Calls only what POSIX allows in a handler. Several threads may fault at once: the
 * first one reports. */
static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)context;
    static atomic_flag spoken = ATOMIC_FLAG_INIT;
    struct data_file *file = mapped;
    while (file && (info->si_code <= 0 || (uintptr_t)info->si_addr - (uintptr_t)file->text >= file->size))
        file = file->next;
    if (!file) { /* not ours: the faulting read is repeated, with the previous handler */
        sigaction(SIGBUS, &before, NULL);
        if (info->si_code <= 0)
            raise(signal); /* a signal that was sent does not recur by itself */
        return;
    }
    while (atomic_flag_test_and_set(&spoken))
        pause();
    struct stat now;
    bool shrank = fstat(file->fd, &now) == 0 && now.st_size < file->was.st_size;
    strcpy(file->fault + strlen(file->fault), shrank ? "shrank while it was read\n" : "could not be read\n");
    (void)!write(STDERR_FILENO, file->fault, strlen(file->fault));
    fault_tell(file->fault + strlen("pianola: error: "));
    _exit(2);
}

static void handle_bus(void) {
    static bool handled;
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    if (!handled)
        handled = sigaction(SIGBUS, &action, &before) == 0;
}

/* ---- identity ---- */

enum { PIECE = 65536, PIECES = 1024 }; /* at most 64 MiB are read */

/* Hashes every piece, or, for a large file, PIECES pieces evenly spread from the first to the last. Requests all pieces
 * before reading: on a disk, one request at a time takes a hundred times longer. */
static uint64_t hash_content(const struct data_file *file) {
    struct hash hash = hash_begin();
    size_t all = (file->size + PIECE - 1) / PIECE, n = all < PIECES ? all : PIECES;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            size_t at = (all == n ? i : i * (all - 1) / (n - 1)) * PIECE, left = file->size - at;
            size_t bytes = left < PIECE ? left : PIECE;
            if (pass == 0)
                madvise((void *)(uintptr_t)(file->text + at), bytes, MADV_WILLNEED);
            else
                hash_feed(&hash, file->text + at, bytes);
        }
    return hash_end(&hash, file->size);
}

bool data_file_plain(const struct data_file *file, char *why, size_t nwhy) {
    static const struct {
        const char *magic, *name;
        size_t n;
    } packed[] = {{"\x1f\x8b", "gzip", 2},
                  {"\x28\xb5\x2f\xfd", "zstd", 4},
                  {"\xfd"
                   "7zXZ",
                   "xz", 5},
                  {"BZh", "bzip2", 3}};
    if (file->size >= 6 && memcmp(file->text, "\x93NUMPY", 6) == 0) {
        snprintf(why, nwhy,
                 "%s: is an array of NumPy, not text; labels and other inputs are found by their names, "
                 "FILE.labels.npy beside FILE",
                 file->path);
        return false;
    }
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (file->size >= packed[i].n && memcmp(file->text, packed[i].magic, packed[i].n) == 0) {
            const char *dot = strrchr(file->path, '.');
            snprintf(why, nwhy, "%s: is compressed; unpack it first: `%s -dc %s > %.*s`, and give the result",
                     file->path, packed[i].name, file->path,
                     dot && !strchr(dot, '/') ? (int)(dot - file->path) : (int)strlen(file->path), file->path);
            return false;
        }
    return true;
}

size_t data_file_begin(const struct data_file *file) {
    return file->size >= 3 && memcmp(file->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Skips over strings and brackets to the end of the object, which must end the line, and looks for the key at the top
 * level. */
bool data_file_has_lines(const struct data_file *file) {
    const char *at = (const char *)file->text + data_file_begin(file), *end = (const char *)file->text + file->size;
    bool text = false;
    int depth = 0;
    while (file->text && at < end && strchr(" \t\r\n", *at))
        at++;
    if (!file->text || at == end || *at != '{')
        return false;
    for (; at < end && *at != '\n'; at++) {
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (depth == 0)
            break;
        if (*at != '"')
            continue;
        const char *from = ++at;
        while (at < end && *at != '"' && *at != '\n')
            at += *at == '\\' ? 2 : 1;
        if (at >= end || *at != '"')
            return false;
        const char *next = at + 1;
        while (next < end && (*next == ' ' || *next == '\t'))
            next++;
        text |= depth == 1 && at - from == 4 && memcmp(from, "text", 4) == 0 && next < end && *next == ':';
    }
    for (at++; at < end && *at != '\n'; at++)
        if (!strchr(" \t\r", *at))
            return false;
    return text && depth == 0;
}

bool data_file_same(const struct data_file *file, char *why, size_t nwhy) {
    struct stat now;
    const struct stat *was = &file->was;
    const char *what = NULL;
    /* While the file is open its inode is not reused, so the same number means the same file. */
    if (stat(file->path, &now) < 0)
        what = errno == ENOENT || errno == ENOTDIR ? "is gone" : strerror(errno);
    else if (now.st_dev != was->st_dev || now.st_ino != was->st_ino)
        what = "was replaced";
    else if (now.st_size < was->st_size)
        what = "shrank";
    else if (now.st_size != was->st_size || now.st_mtim.tv_sec != was->st_mtim.tv_sec ||
             now.st_mtim.tv_nsec != was->st_mtim.tv_nsec)
        what = "changed while it was used";
    if (what)
        snprintf(why, nwhy, "%s: %s", file->path, what);
    return !what;
}

/* ---- opening and closing ---- */

/* Maps the file. Returns false with errno. */
static bool map_text(struct data_file *file) {
    file->size = (size_t)file->was.st_size;
    if (file->size == 0)
        return true;
    void *at = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (at == MAP_FAILED)
        return false;
    file->text = at;
    file->next = mapped;
    mapped = file;
    handle_bus();
    return true;
}

struct data_file *data_file_open(const char *path, char *why, size_t nwhy) {
    struct data_file *file = calloc(1, sizeof *file);
    const char *what = NULL;
    if (file)
        file->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* O_NONBLOCK: does not wait for a pipe's writer */
    if (!file || file->fd < 0 || fstat(file->fd, &file->was) < 0)
        what = strerror(errno);
    else if (S_ISDIR(file->was.st_mode))
        what = "is a directory; give a file of text";
    else if (!S_ISREG(file->was.st_mode))
        what = "is not a regular file; text is read in random order, so save it to a file first";
    else if (!map_text(file))
        what = strerror(errno);
    else if (is_lfs_pointer((const char *)file->text, file->size))
        what = LFS_POINTER;
    if (what) {
        snprintf(why, nwhy, "%s: %s", path, what);
        data_file_close(file);
        return NULL;
    }
    snprintf(file->path, sizeof file->path, "%s", path); /* fits: it was opened */
    snprintf(file->fault, sizeof file->fault, "pianola: error: %s: ", path);
    file->hash = hash_content(file);
    return file;
}

void data_file_close(struct data_file *file) {
    if (!file)
        return;
    struct data_file **at = &mapped;
    while (*at && *at != file)
        at = &(*at)->next;
    if (*at)
        *at = file->next;
    if (file->text)
        munmap((void *)(uintptr_t)file->text, file->size);
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}
