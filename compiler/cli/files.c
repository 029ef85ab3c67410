/* Output files: a file gets its name once it is complete, and several files of one folder once all are complete.
 *
 * Each file is written under a temporary name in the same folder, then renamed. If an error, a full disk or Ctrl-C ends
 * the program before that, the temporary files are removed; during the renames, Ctrl-C is held back. Temporary files of
 * a killed process are removed by the next process that writes to the folder. */
#include "files.h"
#include "base/path.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static struct staged { const char *beside, *path; /* the temporary name, and the final one */ } * staged;
static size_t nstaged, capacity, numbered; /* numbered: temporary names given out so far */

/* Removes the temporary files. Also runs in a signal handler, so it must do nothing else. */
static void forget_staged(void) {
    while (nstaged > 0)
        unlink(staged[--nstaged].beside);
    staged = NULL; /* they are in the arena, which may be emptied */
    capacity = 0;
}

static const int endings[] = {SIGINT, SIGTERM, SIGHUP, SIGXFSZ};
enum { NENDINGS = sizeof endings / sizeof *endings };

static void on_ending(int sig) {
    forget_staged();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* Installs the handlers, at the first file. Signals that the parent process ignores, as nohup does, stay ignored. */
static void clean_up_at_end(void) {
    static bool done;
    if (done)
        return;
    done = true;
    atexit(forget_staged);
    for (int i = 0; i < NENDINGS; i++)
        if (signal(endings[i], on_ending) == SIG_IGN)
            signal(endings[i], SIG_IGN);
}

static void hold_endings(bool hold) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < NENDINGS; i++)
        sigaddset(&set, endings[i]);
    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* Returns whether the path is a device or a pipe, which is written directly, without a temporary file. */
static bool written_into(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Returns the path that `path` resolves to, even if nothing exists there. So a link stays a link, and its target is
 * written. */
static const char *follow_links(const char *path) {
    const char *at = resolved_path(path), *slash = strrchr(path, '/');
    if (at)
        return at;
    const char *folder = resolved_path(slash ? format("%.*s", (int)(slash - path) + 1, path) : ".");
    return folder ? format("%s/%s", folder, slash ? slash + 1 : path) : path;
}

#define TEMPORARY ".pianola-" /* followed by the process id, a dash and a number */

/* Returns the process whose temporary name this is; 0 if the name is no temporary one. */
static pid_t temporary_owner(const char *name) {
    long pid, number;
    int n = 0;
    bool is = sscanf(name, TEMPORARY "%ld-%ld%n", &pid, &number, &n) == 2 && name[n] == 0 && pid > 0 && pid <= INT_MAX;
    return is ? (pid_t)pid : 0;
}

/* Removes the temporary files of dead processes. Skips a folder that is the same as last time. */
static void remove_leftovers(const char *folder) {
    static struct stat last;
    struct stat st;
    DIR *dir =
        stat(folder, &st) == 0 && (st.st_ino != last.st_ino || st.st_dev != last.st_dev) ? opendir(folder) : NULL;
    if (!dir)
        return;
    last = st;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        pid_t pid = temporary_owner(entry->d_name);
        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

/* Returns a temporary name in the same folder. It is short, since the file's own name may have the maximum length. */
static const char *temporary_name(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *folder = slash ? format("%.*s", (int)(slash - path) + 1, path) : "./";
    remove_leftovers(folder);
    return format("%s" TEMPORARY "%ld-%zu", folder, (long)getpid(), numbered++);
}

/* Records a file before it exists, so that it is removed whatever happens next. */
static struct staged *stage(const char *path) {
    clean_up_at_end();
    hold_endings(true);
    GROW(staged, capacity, nstaged + 1);
    const char *place = follow_links(path);
    staged[nstaged] = (struct staged){temporary_name(place), place};
    struct staged *s = &staged[nstaged++];
    hold_endings(false);
    return s;
}

/* Gives the new file the mode of the file it replaces. */
static void keep_mode(FILE *f, const struct staged *staged, bool program) {
    struct stat st;
    if (stat(staged->path, &st) == 0)
        fchmod(fileno(f), st.st_mode & 0777);
    if (program)
        fchmod(fileno(f), 0755);
}

static void write_into(FILE *f, const char *name, const struct text *t) {
    bool ok = f && fwrite(t->s, 1, t->n, f) == t->n;
    int err = errno;
    if (f && (f == stdout ? fflush(f) : fclose(f)) != 0) {
        ok = false;
        err = errno;
    }
    if (!ok)
        die("%s: %s", name, strerror(err));
}

void stage_file(const char *path, const struct text *t, bool program) {
    struct staged *staged = stage(path);
    FILE *f = fopen(staged->beside, "wb");
    if (f)
        keep_mode(f, staged, program);
    write_into(f, path, t);
}

/* Renames the staged files, starting with `first`. */
static void place_from(size_t first) {
    hold_endings(true);
    for (size_t i = first; i < nstaged; i++)
        if (rename(staged[i].beside, staged[i].path) != 0)
            die("%s: %s%s", staged[i].path, strerror(errno),
                i > first ? "; the files before it are already new: write all of them again" : "");
    nstaged = first;
    if (nstaged == 0)
        forget_staged();
    hold_endings(false);
}

void place_files(void) { place_from(0); }

void write_file(const char *path, const struct text *t) {
    size_t first = nstaged;
    if (strcmp(path, "-") == 0)
        write_into(stdout, "stdout", t);
    else if (written_into(path))
        write_into(fopen(path, "wb"), path, t);
    else {
        stage_file(path, t, false);
        place_from(first);
    }
}

FILE *begin_file(const char *path) {
    if (strcmp(path, "-") == 0 || written_into(path))
        die("%s: is not a regular file, so it cannot be written to", path);
    struct staged *staged = stage(path);
    FILE *f = fopen(staged->beside, "wb");
    if (!f)
        die("%s: %s", path, strerror(errno));
    keep_mode(f, staged, false);
    return f;
}

void end_file(FILE *f, const char *path) {
    bool bad = ferror(f);
    if (fclose(f) != 0 || bad)
        die("%s: %s", path, strerror(errno));
    place_files();
}

/* Dies if the path cannot be written. named: the name for the error message. */
static void try_to_write(const char *path, const char *named) {
    FILE *f = fopen(stage(path)->beside, "wb");
    if (!f)
        die("%s: %s", named, strerror(errno));
    fclose(f);
    forget_staged();
}

void check_writable(const char *path) {
    struct stat st;
    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        die("%s: %s", path, strerror(EISDIR));
    if (strcmp(path, "-") != 0 && !written_into(path))
        try_to_write(path, path);
}

bool same_place(const char *a, const char *b) {
    bool out = strcmp(a, "-") == 0 || strcmp(b, "-") == 0;
    return strcmp(out ? a : follow_links(a), out ? b : follow_links(b)) == 0;
}

void check_apart(const char *out, const char *in) {
    struct stat a, b;
    if (out && in && strcmp(out, "-") != 0 && strcmp(in, "-") != 0 && stat(out, &a) == 0 && S_ISREG(a.st_mode) &&
        stat(in, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        die("%s: this file is an input; name another one to write to", out);
}

/* Returns the nearest existing ancestor of the path; missing folders are created in it. */
static const char *there_above(const char *path) {
    struct stat st;
    const char *slash;
    while (stat(path, &st) != 0 && (slash = strrchr(path, '/')) && slash > path)
        path = format("%.*s", (int)(slash - path), path);
    return stat(path, &st) == 0 ? path : *path == '/' ? "/" : ".";
}

const char *folder_named(const char *name) {
    struct stat st;
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] == '/')
        n--;
    const char *path = format("%.*s", (int)n, name);
    if (strcmp(path, "-") == 0)
        die("-o -: several files are written into a folder; for a folder named -, write ./-");
    if (stat(path, &st) != 0 && lstat(path, &st) == 0)
        die("%s: this link is broken; make the folder that it names, or remove it", path);
    if (stat(path, &st) != 0) /* a place for a file also has room for a folder */
        try_to_write(format("%s/file", there_above(path)), path);
    else if (S_ISDIR(st.st_mode))
        try_to_write(format("%s/file", path), path);
    else
        die("%s: this is not a folder, but several files are written: -o takes a folder, existing or new", path);
    return path;
}

void make_folder(const char *path) {
    for (const char *slash = path; (slash = strchr(slash + 1, '/'));)
        (void)mkdir(format("%.*s", (int)(slash - path), path), 0777); /* errors are reported for the last folder */
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        die("%s: %s", path, strerror(errno));
}

int lock_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        die("%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (errno == EWOULDBLOCK) {
        fprintf(stderr, "pianola: %s: another compile is writing there; waiting for it\n", path);
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
            ;
        return fd;
    }
    fprintf(stderr, "pianola: warning: %s: no locks here (%s): another compile could write there at the same time\n",
            path, strerror(errno)); /* this happens on NFS */
    return fd;
}
