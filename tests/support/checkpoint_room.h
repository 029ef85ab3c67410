/* Helpers for tests of checkpoints: a folder for each test, whole files, and reading a file to its end. */
#ifndef PIANOLA_CHECKPOINT_ROOM_H
#define PIANOLA_CHECKPOINT_ROOM_H
#include "store/safetensors.h"
#include "handmade.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], why[8192]; /* the test's folder, and the last message */

static inline void make_dir(void) {
    strcpy(dir, "/tmp/test_checkpoint.XXXXXX");
    cr_assert(mkdtemp(dir));
}

static inline int forget(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void remove_dir(void) { nftw(dir, forget, 16, FTW_DEPTH | FTW_PHYS); }

static inline const char *in_dir(const char *name) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

static inline char *slurp(const char *path, size_t *n) {
    int fd = open(path, O_RDONLY);
    struct stat st;
    cr_assert(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
    *n = (size_t)st.st_size;
    char *s = fresh((int64_t)*n + 1);
    cr_assert_eq(read(fd, s, *n), (ssize_t)*n);
    s[*n] = 0;
    close(fd);
    return s;
}

/* Writes in place if the size is unchanged: file systems flush a file early that is truncated and rewritten. */
static inline void spill(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    struct stat st;
    cr_assert(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
    cr_assert((size_t)st.st_size == n || ftruncate(fd, (off_t)n) == 0, "%s", path);
    cr_assert(write(fd, bytes, n) == (ssize_t)n, "%s", path);
    close(fd);
}

/* Returns whether the file opens; then every tensor in its header must be readable. */
static inline bool opens(const char *path) {
    strcpy(why, "");
    struct safetensors *f = safetensors_open(path, why, sizeof why);
    if (!f)
        return false;
    for (int i = 0; i < f->n; i++) {
        float *to = malloc((size_t)(f->tensor[i].end - f->tensor[i].at) + 1);
        cr_assert(to && safetensors_read(f, &f->tensor[i], to, why, sizeof why), "%s", why);
        cr_assert_str_eq(safetensors_find(f, f->tensor[i].name)->name, f->tensor[i].name);
        free(to);
    }
    safetensors_close(f);
    return true;
}

static inline void refused(const char *path, const char *message) {
    cr_expect_not(opens(path), "expected: %s", message);
    cr_expect(strncmp(why, path, strlen(path)) == 0 && strstr(why, message), "got: %s\nexpected: %s", why, message);
}
#endif
