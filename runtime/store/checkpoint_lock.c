/* One run at a time writes into a folder of checkpoints. The kernel's record locks keep other runs out. A lock ends
 * with the process that holds it, however it ends, and NFS supports them between hosts. So there are no stale locks to
 * remove, and the locked file stays in place.
 *
 * Rank k of a run holds byte k. Rank 0 comes first and requests all bytes, which it gets only if no rank of another run
 * is alive; then it writes its identity into the file, and keeps its own byte. */
#include "checkpoint.h"
#include "durable.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TO_THE_END = 0, HOLDER = 256 }; /* TO_THE_END: a length of locks; HOLDER: bytes for the holder's description */

static struct flock range(short type, int64_t from, int64_t n) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = n};
}

static bool lock_range(int fd, short type, int64_t from, int64_t n) {
    struct flock flock = range(type, from, n);
    return fcntl(fd, F_SETLK, &flock) == 0;
}

/* Returns the first byte of a range that another process holds, or -1. */
static int64_t held(int fd, int64_t from, int64_t n) {
    struct flock flock = range(F_WRLCK, from, n);
    return fcntl(fd, F_GETLK, &flock) == 0 && flock.l_type != F_UNLCK ? flock.l_start : -1;
}

static bool say_who(int fd, const char *run) {
    char text[HOLDER], host[65] = "?", since[32];
    time_t now = time(NULL);
    struct tm utc;
    gethostname(host, sizeof host - 1);
    strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &utc));
    int n = snprintf(text, sizeof text, "%.100s: rank 0 is process %ld on %s, since %s\n", run, (long)getpid(), host,
                     since);
    return ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) == n;
}

/* Names the lock's holder in why; always returns false. */
static bool name_holder(int fd, const char *dir, char *why, size_t nwhy) {
    char text[HOLDER] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? strcspn(text, "\n") : 0] = 0;
    for (char *s = text; *s; s++)
        *s = isprint((unsigned char)*s) ? *s : '?';
    int64_t rank = held(fd, 0, 1) == 0 ? 0 : held(fd, 0, TO_THE_END);
    char who[64] = "another run is writing its checkpoints there";
    if (rank > 0)
        snprintf(who, sizeof who, "rank %lld of another run still runs", (long long)rank);
    snprintf(why, nwhy, "%s: %s (%s); let it end, or name another folder", dir, who,
             *text ? text : "it has only begun");
    return false;
}

static bool take_rank_lock(int fd, const char *dir, int rank, const char *run, char *why, size_t nwhy) {
    bool mine = rank == 0 ? lock_range(fd, F_WRLCK, 0, TO_THE_END) : lock_range(fd, F_WRLCK, rank, 1);
    if (!mine && (errno == EAGAIN || errno == EACCES))
        return name_holder(fd, dir, why, nwhy);
    if (!mine) /* on NFS without its lock daemon, or Lustre mounted without flock */
        snprintf(why, nwhy, "%s: no locks here (%s): another run could write there at the same time", dir,
                 strerror(errno));
    if (rank > 0)
        return true;
    bool said = say_who(fd, run);
    if (!said)
        snprintf(why, nwhy, "%s/.lock: %s", dir, strerror(errno));
    if (mine)
        lock_range(fd, F_UNLCK, 1, TO_THE_END);
    return said;
}

static bool is_open_at(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool checkpoint_lock(int *lock, const char *dir, int rank, const char *run, char *why, size_t nwhy) {
    char path[DURABLE_PATH];
    bool before = *lock >= 0;
    snprintf(path, sizeof path, "%s/.lock", dir);
    *why = 0;
    if (before && is_open_at(*lock, path))
        return true;
    if (!durable_folder(dir, why, nwhy))
        return false;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        snprintf(why, nwhy, "%s: %s", path, strerror(errno));
        return false;
    }
    if (!take_rank_lock(fd, dir, rank, run, why, nwhy)) {
        close(fd);
        return false;
    }
    if (before) {
        close(*lock);
        snprintf(why, nwhy, "%s: was moved or removed: continuing in a new folder", dir);
    }
    *lock = fd;
    return true;
}
