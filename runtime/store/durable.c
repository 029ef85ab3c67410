#include "durable.h"
#include "hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool trouble(const char *path, char *why, size_t nwhy) {
    snprintf(why, nwhy, "%s: %s", path, strerror(errno));
    return false;
}

/* ---- writing ---- */

static bool open_beside(struct durable *durable, const char *path, int how, char *why, size_t nwhy) {
    durable->why = why;
    durable->nwhy = nwhy;
    snprintf(durable->path, sizeof durable->path, "%s", path);
    snprintf(durable->beside, sizeof durable->beside, "%s.tmp", path);
    durable->fd = open(durable->beside, O_WRONLY | O_CLOEXEC | how, 0666);
    return durable->fd >= 0 || trouble(durable->beside, why, nwhy);
}

bool durable_begin(struct durable *durable, const char *path, char *why, size_t nwhy) {
    return open_beside(durable, path, O_CREAT | O_TRUNC, why, nwhy);
}

/* Opens the file to write only: over NFS, a page that has been read may be written back whole, and overwrite what
 * others have written there in the meantime. */
bool durable_join(struct durable *durable, const char *path, char *why, size_t nwhy) {
    return open_beside(durable, path, 0, why, nwhy);
}

void durable_drop(struct durable *durable) {
    if (durable->fd < 0)
        return;
    close(durable->fd);
    durable->fd = -1;
    unlink(durable->beside);
}

static bool failed(struct durable *durable) {
    trouble(durable->path, durable->why, durable->nwhy);
    durable_drop(durable);
    return false;
}

bool durable_write(struct durable *durable, const void *bytes, size_t n) {
    for (const char *at = bytes; durable->fd >= 0 && n > 0;) {
        ssize_t done = write(durable->fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return failed(durable);
        at += done;
        n -= (size_t)done;
    }
    return durable->fd >= 0;
}

bool durable_write_at(struct durable *durable, const void *bytes, size_t n, int64_t at) {
    if (durable->fd >= 0 && lseek(durable->fd, at, SEEK_SET) < 0)
        return failed(durable);
    return durable_write(durable, bytes, n);
}

static bool flush(int fd) {
    int done;
    do
        done = fsync(fd);
    while (done < 0 && errno == EINTR);
    return done == 0;
}

bool durable_names(const char *path, char *why, size_t nwhy) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && flush(fd);
    if (!ok)
        trouble(path, why, nwhy);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Returns the folder that holds path, by cutting path at its last slash. */
static const char *above(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    slash[slash == path] = 0;
    return path;
}

bool durable_leave(struct durable *durable) {
    if (durable->fd < 0)
        return false;
    if (!flush(durable->fd))
        return failed(durable);
    int closed = close(durable->fd);
    durable->fd = -1;
    if (closed < 0) {
        trouble(durable->path, durable->why, durable->nwhy);
        unlink(durable->beside);
    }
    return closed == 0;
}

bool durable_end(struct durable *durable) {
    if (!durable_leave(durable))
        return false;
    if (rename(durable->beside, durable->path) < 0) {
        trouble(durable->path, durable->why, durable->nwhy);
        unlink(durable->beside);
        return false;
    }
    return durable_names(above(durable->path), durable->why, durable->nwhy);
}

bool durable_folder(const char *path, char *why, size_t nwhy) {
    char name[DURABLE_PATH];
    struct stat st;
    if ((mkdir(path, 0777) < 0 && errno != EEXIST) || stat(path, &st) < 0) {
        snprintf(why, nwhy, "%s: %s%s", path, strerror(errno), errno == ENOENT ? ": make its parent folder first" : "");
        return false;
    }
    if (!S_ISDIR(st.st_mode)) {
        snprintf(why, nwhy, "%s: is no folder", path);
        return false;
    }
    snprintf(name, sizeof name, "%s", path);
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] == '/')
        name[--n] = 0;
    return durable_names(above(name), why, nwhy);
}

/* ---- reading ---- */

/* Opens with O_NONBLOCK: a pipe in place of a file must not block before it is recognised. */
int durable_open(const char *path, int64_t *bytes, char *why, size_t nwhy) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *bytes = st.st_size;
        return fd;
    }
    if (fd >= 0 && !S_ISREG(st.st_mode))
        snprintf(why, nwhy, "%s: is not a regular file", path);
    else
        trouble(path, why, nwhy);
    if (fd >= 0)
        close(fd);
    return -1;
}

bool durable_read(int fd, const char *path, void *out, size_t n, int64_t at, char *why, size_t nwhy) {
    for (char *to = out; n > 0;) {
        ssize_t got = pread(fd, to, n, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return trouble(path, why, nwhy);
        if (got == 0) {
            snprintf(why, nwhy, "%s: ended at byte %lld while it was read", path, (long long)at);
            return false;
        }
        to += got;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

bool durable_sum(const char *path, int64_t *bytes, uint64_t *hash, char *why, size_t nwhy) {
    char part[1 << 16];
    int fd = durable_open(path, bytes, why, nwhy);
    bool ok = fd >= 0;
    struct hash h = hash_begin();
    for (int64_t at = 0; ok && at < *bytes; at += (int64_t)sizeof part) {
        size_t n = *bytes - at < (int64_t)sizeof part ? (size_t)(*bytes - at) : sizeof part;
        ok = durable_read(fd, path, part, n, at, why, nwhy);
        hash_feed(&h, part, ok ? n : 0);
    }
    *hash = ok ? hash_end(&h, (uint64_t)*bytes) : 0;
    if (fd >= 0)
        close(fd);
    return ok;
}
