/* `show --watch`. A child process makes each frame, so that a slow or failing script, or even a bug in the compiler,
 * cannot harm this process. When a file changes meanwhile, the child is killed and another one starts. The child sends
 * its output through a pipe and, if it succeeded, the gist after it.
 *
 * inotify watches the files through their folders, because editors often write another file and rename it. Nothing
 * polls. */
#include "redraw.h"
#include "base/path.h"
#include "draw/draw.h"
#include "terminal.h"
#include <errno.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the terminal: the alternate screen is active while this runs ---- */

static volatile sig_atomic_t resized, entered;
static volatile pid_t child; /* 0: none */
static pid_t owner;          /* the process that owns the terminal; children leave it alone */

static void tell_terminal(const char *s) {
    for (size_t n = strlen(s); n > 0;) {
        ssize_t wrote = write(STDOUT_FILENO, s, n);
        if (wrote < 0)
            return;
        s += wrote;
        n -= (size_t)wrote;
    }
}

static void enter_screen(void) { /* hides the cursor and truncates long lines */
    entered = 1;
    tell_terminal("\033[?1049h\033[?25l\033[?7l");
}

static void leave_screen(void) {
    if (entered && getpid() == owner)
        tell_terminal("\033[0m\033[?7h\033[?25h\033[?1049l");
    entered = 0;
}

/* Leaves the alternate screen first, so that the error stays readable. */
#define give_up(...) (leave_screen(), die(__VA_ARGS__))

static void on_resize(int signal) {
    (void)signal;
    resized = 1;
}

/* Leaves the alternate screen, then lets the signal take its default action: end or suspend this program. */
static void on_end(int number) {
    int error = errno;
    sigset_t mask, before;
    struct sigaction plain = {.sa_handler = SIG_DFL}, mine;
    leave_screen();
    if (child > 0 && number != SIGTSTP)
        kill(child, SIGKILL);
    sigaction(number, &plain, &mine);
    sigemptyset(&mask);
    sigaddset(&mask, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &mask, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    sigaction(number, &mine, NULL);
    enter_screen();
    resized = 1;
    errno = error;
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
enum { NENDS = sizeof ends / sizeof *ends };

/* Installs the handlers and blocks SIGWINCH and SIGTSTP; they arrive only while waiting with the returned mask. */
static sigset_t take_signals(void) {
    struct sigaction end = {.sa_handler = on_end}, resize = {.sa_handler = on_resize};
    sigset_t late, before;
    sigemptyset(&late);
    sigaddset(&late, SIGWINCH);
    sigaddset(&late, SIGTSTP);
    sigprocmask(SIG_BLOCK, &late, &before);
    for (int i = 0; i < NENDS; i++)
        sigaction(ends[i], &end, NULL);
    sigaction(SIGWINCH, &resize, NULL);
    return before;
}

/* ---- the files ---- */

enum { MOST_FILES = 6, SETTLE = 20 }; /* SETTLE: milliseconds without a further change before a new frame */

struct files {
    int fd, n;
    struct {
        int folder;             /* inotify's watch descriptor */
        const char *name, *arg; /* name in that folder; path as the user gave it */
    } file[MOST_FILES];
};

static void add_watched(struct files *files, const char *path, const char *arg) {
    const char *folder = dirname(copy_string(path));
    int number = inotify_add_watch(files->fd, folder,
                                   IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVE | IN_DELETE_SELF | IN_MOVE_SELF);
    if (number < 0)
        die("%s: cannot be watched: %s", folder, strerror(errno));
    files->file[files->n].folder = number;
    files->file[files->n].name = basename(copy_string(path));
    files->file[files->n++].arg = arg;
}

/* Watches a file and, if it is a link, its target too: either may change. */
static void watch_file(struct files *files, const char *path) {
    if (!path)
        return;
    if (strcmp(path, "-") == 0)
        die("-: stdin cannot be watched; name a file");
    add_watched(files, path, path);
    const char *real = resolved_path(path);
    if (real && strcmp(real, path) != 0)
        add_watched(files, real, path);
}

static struct files watch_files(const struct script_args *args) {
    struct files files = {.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    if (files.fd < 0)
        die("files cannot be watched here: %s", strerror(errno));
    watch_file(&files, args->schedule);
    watch_file(&files, args->model);
    watch_file(&files, args->cluster);
    return files;
}

/* Returns the last file that changed, as the user named it, or NULL. */
static const char *changed_file(const struct files *files) {
    char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    const char *changed = NULL;
    for (ssize_t n; (n = read(files->fd, buf, sizeof buf)) > 0;)
        for (char *p = buf; p < buf + n;) {
            const struct inotify_event *event = (const struct inotify_event *)p;
            p += sizeof *event + event->len;
            if (event->mask & IN_Q_OVERFLOW)
                changed = files->file[0].arg;
            for (int i = 0; i < files->n; i++) {
                if (event->wd != files->file[i].folder)
                    continue;
                if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF))
                    give_up("%s: its folder is gone", files->file[i].arg);
                if (event->len && strcmp(event->name, files->file[i].name) == 0)
                    changed = files->file[i].arg;
            }
        }
    return changed;
}

/* ---- frames ---- */

struct watcher {
    const struct settings *settings;
    struct gist (*frame)(const struct settings *, struct text *);
    struct files files;
    int pipe;            /* from the child; -1: no child */
    struct text coming;  /* the child's output so far */
    struct text good;    /* the last frame */
    struct text bad;     /* why there is no newer frame; empty if there is no error */
    struct gist gist;    /* the last frame's */
    const char *changed; /* file changed since the last frame */
    struct text line;    /* effect of the last change */
};

static _Noreturn void make_frame(const struct watcher *watcher, const struct style *style, int to) {
    struct settings settings = *watcher->settings;
    struct text t = {0};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    for (int i = 0; i < NENDS; i++)
        sigaction(ends[i], &plain, NULL);
    dup2(to, STDOUT_FILENO);
    dup2(to, STDERR_FILENO);
    settings.draw.style.width = style->width;
    settings.draw.color = style->color ? COLOR_ALWAYS : COLOR_NEVER;
    struct gist gist = watcher->frame(&settings, &t);
    put_bytes(&t, (const char *)&gist, sizeof gist);
    fwrite(t.s, 1, t.n, stdout);
    exit(0);
}

static void end_child(struct watcher *watcher) {
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(watcher->pipe);
    }
    child = 0;
    watcher->pipe = -1;
}

static void begin_child(struct watcher *watcher) {
    struct style style = terminal_style(watcher->settings);
    int ends[2];
    end_child(watcher);
    if (pipe(ends) != 0)
        give_up("cannot create a pipe: %s", strerror(errno));
    watcher->coming.n = 0;
    pid_t pid = fork();
    if (pid < 0)
        give_up("cannot start a process: %s", strerror(errno));
    if (pid == 0) {
        close(ends[0]);
        make_frame(watcher, &style, ends[1]);
    }
    child = pid;
    close(ends[1]);
    watcher->pipe = ends[0];
}

/* Writes "33 -> 27 units", or the value once if it did not change. */
static void put_change(struct text *t, const char *before, const char *now, const char *unit) {
    if (before && strcmp(before, now) != 0)
        put(t, "%s -> ", before);
    put(t, "%s%s%s", now, *unit ? " " : "", unit);
}

static void say_change(struct watcher *watcher, const struct gist *now) {
    const struct gist *before = watcher->gist.unit[0] ? &watcher->gist : NULL;
    bool one_unit = before && strcmp(before->unit, now->unit) == 0;
    double most = one_unit && before->makespan > now->makespan ? before->makespan : now->makespan;
    struct measure m = measure_of(most, now->unit, true);
    char was[64], is[64];
    if (before && !one_unit) {
        struct measure old = measure_of(before->makespan, before->unit, true);
        snprintf(was, sizeof was, "%s %s", time_text(before->makespan, &old, is), old.name);
    } else if (before)
        time_text(before->makespan, &m, was);
    struct text *line = &watcher->line;
    line->n = 0;
    put(line, "%s%s: ", before ? "" : "watching ", before ? watcher->changed : watcher->settings->args.schedule);
    put_change(line, before ? was : NULL, time_text(now->makespan, &m, is), m.name);
    put_word(line, ", ");
    put_change(line, before ? bytes_text(before->peak, was) : NULL, bytes_text(now->peak, is), "");
}

static int count_text_lines(const struct text *t) {
    int n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->s[i] == '\n' || i + 1 == t->n;
    return n;
}

/* Writes at most `most` lines, and erases the rest of each terminal line. */
static void put_lines(struct text *out, const struct text *t, int most) {
    const char *end = t->s + t->n;
    for (const char *s = t->s; s < end && most-- > 0;) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        stop = stop ? stop : end;
        put_bytes(out, s, (size_t)(stop - s));
        put_word(out, "\033[K\n");
        s = stop + (stop < end);
    }
}

/* Draws as much of the last frame as fits, and below it what has happened since. */
static void draw_frame(const struct watcher *watcher) {
    struct scratch scratch = scratch_begin();
    struct winsize size;
    struct text out = {0};
    int rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
    int below = count_text_lines(&watcher->bad) + 1, lines = count_text_lines(&watcher->good),
        room = rows - below - (lines > 0);
    bool cut = lines > room;
    put_word(&out, "\033[H");
    put_lines(&out, &watcher->good, cut ? room - 1 : room);
    if (cut && room > 0)
        put(&out, "... %d more lines\033[K\n", lines - room + 1);
    if (lines > 0 && room >= 0)
        put_word(&out, "\033[K\n");
    put_lines(&out, &watcher->bad, rows - 1);
    put(&out, "%s\033[K\033[J", watcher->line.n ? watcher->line.s : "watching; Ctrl-C stops");
    tell_terminal(out.s);
    scratch_end(scratch);
}

static void keep_text(struct text *to, const struct text *from, size_t n) {
    to->n = 0;
    put_bytes(to, n ? from->s : "", n);
}

static void take_frame(struct watcher *watcher) {
    struct gist gist;
    int status;
    waitpid(child, &status, 0);
    child = 0;
    close(watcher->pipe);
    watcher->pipe = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && watcher->coming.n >= sizeof gist) {
        size_t n = watcher->coming.n - sizeof gist;
        memcpy(&gist, watcher->coming.s + n, sizeof gist);
        keep_text(&watcher->good, &watcher->coming, n);
        watcher->bad.n = 0;
        if (watcher->changed)
            say_change(watcher, &gist);
        watcher->changed = NULL;
        watcher->gist = gist;
    } else {
        keep_text(&watcher->bad, &watcher->coming, watcher->coming.n);
        if (WIFSIGNALED(status))
            put(&watcher->bad, "pianola: error: signal %d ended the compiler\n", WTERMSIG(status));
    }
    draw_frame(watcher);
}

static void read_frame(struct watcher *watcher) {
    char buf[1 << 16];
    ssize_t n = read(watcher->pipe, buf, sizeof buf);
    if (n > 0)
        put_bytes(&watcher->coming, buf, (size_t)n);
    else if (n == 0)
        take_frame(watcher);
}

int watch(const struct settings *settings, struct gist (*frame)(const struct settings *, struct text *)) {
    struct watcher watcher = {.settings = settings, .frame = frame, .files = watch_files(&settings->args), .pipe = -1};
    owner = getpid();
    sigset_t waiting = take_signals();
    atexit(leave_screen);
    enter_screen();
    watcher.changed = settings->args.schedule;
    begin_child(&watcher);
    for (bool settling = false;;) {
        struct pollfd fd[] = {{watcher.files.fd, POLLIN, 0}, {watcher.pipe, POLLIN, 0}};
        struct timespec settle = {0, SETTLE * 1000000L};
        int ready = ppoll(fd, 2, settling ? &settle : NULL, &waiting);
        if (resized) { /* until a newer frame exists, the last one is truncated */
            resized = 0;
            draw_frame(&watcher);
            if (!watcher.bad.n && !settling)
                begin_child(&watcher);
            continue;
        }
        if (ready == 0) {
            settling = false;
            begin_child(&watcher);
        }
        const char *changed = ready > 0 && fd[0].revents ? changed_file(&watcher.files) : NULL;
        if (changed) {
            watcher.changed = changed;
            settling = true;
            end_child(&watcher);
        } else if (ready > 0 && fd[1].revents)
            read_frame(&watcher);
    }
}
