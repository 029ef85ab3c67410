/* Identifies a mapped text, and reports when it changes. */
#include "store/data_file.h"
#include "text_file.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct data_file *opened(const char *path) {
    char why[300] = "";
    struct data_file *f = data_file_open(path, why, sizeof why);
    cr_assert(f, "%s", why);
    return f;
}

/* ---- identity ---- */

static uint64_t hash_at(const char *path) {
    struct data_file *f = opened(path);
    uint64_t hash = f->hash;
    data_file_close(f);
    return hash;
}

static uint64_t hash_of(const void *bytes, size_t n) {
    char *path = text_file(bytes, n);
    uint64_t hash = hash_at(path);
    cr_assert_eq(hash, hash_at(path));
    unlink(path);
    return hash;
}

Test(data_file, any_byte_tells_files_apart) {
    static const int sizes[] = {1, 7, 31, 32, 33, 64, 100};
    for (int i = 0; i < 7; i++) {
        unsigned char text[101] = {0};
        size_t n = (size_t)sizes[i];
        uint64_t hash = hash_of(text, n);
        cr_assert(hash != hash_of(text, n + 1) && hash != hash_of(text, n - 1), "zeros, but more or fewer of them");
        for (size_t k = 0; k < n; k++) {
            text[k] = 1;
            cr_assert_neq(hash, hash_of(text, n), "byte %zu of %zu", k, n);
            text[k] = 0;
        }
        cr_assert_eq(hash, hash_of(text, n), "the same bytes in another file");
    }
}

Test(data_file, order_tells_files_apart) {
    unsigned char a[128] = {0}, b[128] = {0};
    for (int from = 0; from < 128; from += 8)
        for (int to = 0; to < from; to += 8) {
            a[from] = b[to] = 1;
            a[to] = b[from] = 2;
            cr_assert_neq(hash_of(a, 128), hash_of(b, 128), "words at %d and %d exchanged", from, to);
            a[from] = a[to] = b[from] = b[to] = 0;
        }
}

/* Only a part of a large file is read (here a sparse one), but always its beginning and its end. */
Test(data_file, large_files) {
    char *path = text_file("", 0);
    int fd = open(path, O_WRONLY);
    off_t size = ((off_t)1 << 32) + 5;
    cr_assert_eq(ftruncate(fd, size), 0);
    uint64_t hash[5] = {hash_at(path)};
    for (int i = 0; i < 2; i++) {
        off_t at = i ? size - 1 : 0;
        cr_assert_eq(pwrite(fd, "x", 1, at), 1);
        hash[i + 1] = hash_at(path);
        cr_assert_eq(pwrite(fd, "", 1, at), 1);
    }
    cr_assert_eq(ftruncate(fd, size - 1), 0);
    hash[3] = hash_at(path);
    cr_assert_eq(ftruncate(fd, (64 << 20) - 1), 0); /* this one is read completely */
    cr_assert_eq(pwrite(fd, "x", 1, 34567890), 1);
    hash[4] = hash_at(path);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            cr_assert_neq(hash[i], hash[j], "%d and %d", j, i);
    close(fd);
    unlink(path);
}

/* ---- changes ---- */

/* Writes a file of 10000 bytes with an old time: anything written now has another time, even on a coarse clock. */
static char *old_file(void) {
    static const char text[10000];
    char *path = text_file(text, sizeof text);
    cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){{1000, 5}, {1000, 5}}, 0), 0);
    return path;
}

static void expect_same(const struct data_file *f, const char *reason) {
    char why[300] = "";
    bool same = data_file_same(f, why, sizeof why);
    cr_expect_eq(same, reason == NULL);
    cr_expect_str_eq(why, reason ? format("%s: %s", f->path, reason) : "");
}

Test(data_file, untouched_is_the_same) {
    struct data_file *f = opened(old_file());
    cr_expect_eq(f->text[9999], 0);
    expect_same(f, NULL);
    cr_assert_eq(chmod(f->path, 0644), 0);
    cr_assert_eq(link(f->path, format("%s.too", f->path)), 0);
    unlink(format("%s.too", f->path));
    expect_same(f, NULL); /* the content is the same */
    unlink(f->path);
    data_file_close(f);
}

Test(data_file, written_over) {
    struct data_file *f = opened(old_file());
    int fd = open(f->path, O_WRONLY);
    cr_assert_eq(pwrite(fd, "x", 1, 5000), 1);
    expect_same(f, "changed while it was used");
    cr_assert_eq(futimens(fd, (struct timespec[2]){{1000, 5}, {1000, 5}}), 0);
    expect_same(f, NULL); /* as far as it can be detected */
    cr_assert_eq(futimens(fd, (struct timespec[2]){{1000, 5}, {1000, 6}}), 0);
    expect_same(f, "changed while it was used");
    cr_assert_eq(futimens(fd, (struct timespec[2]){{1000, 5}, {1001, 5}}), 0);
    expect_same(f, "changed while it was used");
    close(fd);
    unlink(f->path);
    data_file_close(f);
}

Test(data_file, longer_and_shorter) {
    struct data_file *f = opened(old_file());
    cr_assert_eq(truncate(f->path, 10001), 0);
    cr_assert_eq(utimensat(AT_FDCWD, f->path, (struct timespec[2]){{1000, 5}, {1000, 5}}, 0), 0);
    expect_same(f, "changed while it was used");
    cr_assert_eq(truncate(f->path, 9999), 0);
    expect_same(f, "shrank");
    unlink(f->path);
    data_file_close(f);
}

Test(data_file, replaced_and_removed) {
    struct data_file *f = opened(old_file());
    cr_assert_eq(rename(old_file(), f->path), 0); /* the same bytes and time */
    expect_same(f, "was replaced");
    unlink(f->path);
    expect_same(f, "is gone");
    data_file_close(f);
}

Test(data_file, another_file_behind_a_link) {
    char *first = old_file(), *second = old_file(), *way = format("%s.link", first);
    cr_assert_eq(symlink(first, way), 0);
    struct data_file *f = opened(way);
    expect_same(f, NULL);
    unlink(way);
    cr_assert_eq(symlink(second, way), 0);
    expect_same(f, "was replaced");
    unlink(first);
    unlink(second);
    unlink(way);
    data_file_close(f);
}

/* ---- faults, each in its own process, which it ends ---- */

struct end {
    int status;
    char said[400];
};

static struct end of_child(void (*body)(void)) {
    int out[2];
    cr_assert_eq(pipe(out), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGBUS, SIG_DFL); /* a sanitizer would write a report */
        alarm(20);
        body();
        _exit(0);
    }
    close(out[1]);
    struct end end = {0};
    for (ssize_t n = 0, got; (got = read(out[0], end.said + n, sizeof end.said - 1 - (size_t)n)) > 0;)
        n += got;
    close(out[0]);
    cr_assert_eq(waitpid(child, &end.status, 0), child);
    return end;
}

static char *shrinking, *staying;
static volatile unsigned char seen;

static void read_shrunk(void) {
    struct data_file *f = opened(shrinking), *other = opened(staying);
    cr_assert_eq(truncate(shrinking, 4096), 0);
    seen = f->text[0];
    seen = other->text[9999];
    seen = f->text[8192];
}

static void read_shrunk_after_another_is_closed(void) {
    struct data_file *other = opened(staying), *f = opened(shrinking);
    data_file_close(opened(staying));
    data_file_close(other);
    cr_assert_eq(truncate(shrinking, 0), 0);
    seen = f->text[0];
}

static pthread_barrier_t all_there;

static void *read_it(void *file) {
    pthread_barrier_wait(&all_there);
    seen = ((struct data_file *)file)->text[9000];
    return NULL;
}

static void read_shrunk_by_many(void) {
    struct data_file *f = opened(shrinking);
    cr_assert_eq(truncate(shrinking, 0), 0);
    pthread_t thread[8];
    pthread_barrier_init(&all_there, NULL, 8);
    for (int i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, read_it, f);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
}

static void disk_fails(void) { /* sends the kernel's signal for a failing disk: an address within the file's length */
    struct data_file *f = opened(staying);
    siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_ADRERR};
    info.si_addr = (void *)(uintptr_t)(f->text + 5000);
    syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, &info);
}

Test(data_file, a_fault_names_its_file) {
    static void (*const bodies[])(void) = {read_shrunk, read_shrunk_after_another_is_closed, read_shrunk_by_many,
                                           disk_fails};
    staying = old_file();
    for (int i = 0; i < 4; i++) {
        shrinking = old_file();
        struct end end = of_child(bodies[i]);
        cr_expect(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 2, "%d: status %x", i, end.status);
        cr_expect_str_eq(end.said, bodies[i] == disk_fails
                                       ? format("pianola: error: %s: could not be read\n", staying)
                                       : format("pianola: error: %s: shrank while it was read\n", shrinking));
        unlink(shrinking);
    }
    unlink(staying);
}

static void read_elsewhere(void) {
    struct data_file *f = opened(staying);
    int fd = open(shrinking, O_RDWR);
    const unsigned char *p = mmap(NULL, 10000, PROT_READ, MAP_PRIVATE, fd, 0);
    cr_assert_eq(ftruncate(fd, 0), 0);
    seen = p[0];
    seen = f->text[0];
}

static void send_it(void) {
    opened(staying);
    kill(getpid(), SIGBUS);
}

static void read_after_closing(void) {
    struct data_file *f = opened(staying);
    const unsigned char *text = f->text;
    data_file_close(f);
    siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_ADRERR};
    info.si_addr = (void *)(uintptr_t)(text + 5000);
    syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, &info);
    raise(SIGBUS); /* repeats the fault */
}

Test(data_file, other_faults_kill_as_ever) {
    static void (*const bodies[])(void) = {read_elsewhere, send_it, read_after_closing};
    staying = old_file();
    for (int i = 0; i < 3; i++) {
        shrinking = old_file();
        struct end end = of_child(bodies[i]);
        cr_expect(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGBUS, "%d: status %x", i, end.status);
        cr_expect_str_eq(end.said, "");
        unlink(shrinking);
    }
    unlink(staying);
}
