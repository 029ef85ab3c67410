#include "run.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void nap(double seconds) {
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

void give_up(const char *what, const char *name) {
    fprintf(stderr, "kill: %s %s: %s\n", what, name, strerror(errno));
    exit(2);
}

/* ---- starting ---- */

enum { WORDS = 40 };
struct words {
    char *word[WORDS + 1];
    int n;
};

static void add(struct words *w, const char *word) {
    if (w->n == WORDS || !(w->word[w->n++] = strdup(word)))
        give_up("no memory for", word);
}

static void add_number(struct words *w, const char *flag, double n) {
    char text[32];
    snprintf(text, sizeof text, "%g", n);
    add(w, flag);
    add(w, text);
}

static void add_flags(struct words *w, const struct start *s) {
    add_number(w, "--steps", s->steps);
    add_number(w, "--every", s->every);
    add_number(w, "--keep", 2);
    add_number(w, "--deadline", s->deadline);
    add(w, "--checkpoint");
    add(w, s->saved);
    add(w, "--flight");
    add(w, s->logs);
    if (s->p->data) {
        add(w, "--data");
        add(w, s->p->data);
    }
    if (s->also)
        add(w, s->also);
}

static void say_to(int fd, const char *logs, const char *format, int number) {
    char path[PLACE + 32];
    int at = snprintf(path, sizeof path, "%s/", logs);
    snprintf(path + at, sizeof path - (size_t)at, format, number);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (file < 0 || dup2(file, fd) < 0)
        give_up("cannot write", path);
    close(file);
}

static void set(const char *name, const char *format, int a, int b, int c) {
    char text[64];
    snprintf(text, sizeof text, format, a, b, c);
    setenv(name, text, 1);
}

/* Becomes a rank, in the child. If the driver ends, TCP's ranks end with it, and mpirun ends its own. */
static _Noreturn void become(const struct start *s, int rank) {
    struct words w = {.n = 0};
    char path[2 * PLACE];
    setsid();
    prctl(PR_SET_PDEATHSIG, s->mpi ? SIGTERM : SIGKILL);
    if (s->mpi) {
        add(&w, "mpirun");
        add(&w, "--oversubscribe");
        add_number(&w, "-n", s->p->ranks);
        snprintf(path, sizeof path, "%s/%s/rank", s->room, s->p->name);
    } else {
        set("RANK", "%d", rank, 0, 0);
        set("WORLD_SIZE", "%d", s->p->ranks, 0, 0);
        /* Each run has its own address, so ports cannot clash. */
        set("MASTER_ADDR", "127.%d.%d.%d", 1 + (s->meeting >> 14 & 127), s->meeting >> 7 & 127, 1 + (s->meeting & 127));
        set("MASTER_PORT", "%d", 29500, 0, 0);
        snprintf(path, sizeof path, "%s/%s/rank%d", s->room, s->p->name, rank);
    }
    add(&w, path);
    add_flags(&w, s);
    say_to(1, s->logs, "out", 0);
    say_to(2, s->logs, "err%d", rank);
    execvp(w.word[0], w.word);
    give_up("cannot start", w.word[0]);
}

void run_start(struct run *r, const struct start *s) {
    *r = (struct run){.p = s->p, .mpi = s->mpi, .npids = s->mpi ? 1 : s->p->ranks};
    snprintf(r->logs, sizeof r->logs, "%s", s->logs);
    for (int k = 0; k < r->npids; k++) {
        r->code[k] = RUNS_ON;
        r->pid[k] = fork();
        if (r->pid[k] < 0)
            give_up("cannot fork for", s->p->name);
        if (r->pid[k] == 0)
            become(s, k);
    }
}

/* ---- processes of a session ---- */

/* Calls see for each running process of mpirun's session, until it returns true. A process whose first thread has ended
 * looks like a zombie, but keeps its files and locks until its last thread has. */
static pid_t among_session(const struct run *r, bool (*see)(pid_t pid, void *context), void *context) {
    DIR *d = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        char path[300], text[1024] = "", state = 'Z';
        int session = 0, threads = 0;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        int fd = *e->d_name > '9' ? -1 : open(path, O_RDONLY);
        if (fd < 0)
            continue;
        ssize_t n = read(fd, text, sizeof text - 1);
        close(fd);
        const char *at = n > 0 ? strrchr(text, ')') : NULL; /* after a name that may hold anything */
        if (at &&                                           /* proc(5): the 3rd, 6th and 20th field */
            sscanf(at, ") %c %*s %*s %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d", &state, &session,
                   &threads) == 3 &&
            session == r->pid[0] && (state != 'Z' || threads > 1) && see(atoi(e->d_name), context))
            found = atoi(e->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

static bool is_rank(pid_t pid, void *context) {
    char path[64], text[PLACE] = "", name[32];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    snprintf(name, sizeof name, "/rank%d", *(int *)context);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    size_t length = strlen(text); /* length of the first word */
    return n > 0 && length > strlen(name) && strcmp(text + length - strlen(name), name) == 0;
}

pid_t run_rank(const struct run *r, int rank) {
    return r->mpi ? among_session(r, is_rank, &rank) : r->code[rank] == RUNS_ON ? r->pid[rank] : 0;
}

static bool count(pid_t pid, void *context) {
    (void)pid;
    ++*(int *)context;
    return false;
}

int run_left(const struct run *r) {
    int n = 0;
    for (int k = 0; k < r->npids; k++)
        n += !r->mpi && r->code[k] == RUNS_ON;
    if (r->mpi)
        among_session(r, count, &n);
    return n;
}

static bool end(pid_t pid, void *context) {
    (void)context;
    kill(pid, SIGKILL);
    return false;
}

void run_kill(struct run *r) {
    for (int k = 0; k < r->npids; k++)
        if (r->code[k] == RUNS_ON)
            kill(r->pid[k], SIGKILL);
    if (r->mpi)
        among_session(r, end, NULL);
    run_wait(r, -1, 10);
}

/* ---- waiting ---- */

bool run_ended(struct run *r, int but) {
    int status;
    bool all = true;
    for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int k = 0; k < r->npids; k++)
            if (r->pid[k] == p)
                r->code[k] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    for (int k = 0; k < r->npids; k++)
        all = all && (k == but || r->code[k] != RUNS_ON);
    return all;
}

bool run_wait(struct run *r, int but, double seconds) {
    for (double end = now() + seconds; !run_ended(r, but); nap(0.002))
        if (now() > end)
            return false;
    return true;
}

const char *run_said(const struct run *r, const char *format, int number) {
    static char text[1 << 16];
    char path[PLACE + 32];
    int at = snprintf(path, sizeof path, "%s/", r->logs);
    snprintf(path + at, sizeof path - (size_t)at, format, number);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
    return text;
}
