/* Runs tasks in child processes. Each child has a copy of everything known when it began, runs one task, writes its
 * answer into a pipe and exits. At most one child per core of this process runs at a time. */
#include "tune.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}

static int count_cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

struct child {
    pid_t pid; /* 0: none */
    int fd, task;
    size_t got; /* bytes of the answer so far */
    char *answer;
};

/* Runs one task in a child. Discards its messages: what scripts print would appear once per candidate. */
static _Noreturn void be_child(const struct pool *pool, int task, int fd) {
    char *answer = alloc(pool->size);
    int nowhere = open("/dev/null", O_WRONLY);
    signal(SIGINT, SIG_DFL);
    if (nowhere >= 0)
        dup2(nowhere, STDERR_FILENO);
    pool->work(pool->context, task, answer);
    for (size_t n = 0; n < pool->size;) {
        ssize_t wrote = write(fd, answer + n, pool->size - n);
        if (wrote <= 0)
            _exit(1);
        n += (size_t)wrote;
    }
    _exit(0);
}

static void start_child(const struct pool *pool, struct child *child, int task) {
    int fd[2];
    fflush(NULL);
    if (pipe(fd) != 0 || (child->pid = fork()) < 0)
        die("cannot start another process: %s", strerror(errno));
    if (child->pid == 0) {
        close(fd[0]);
        be_child(pool, task, fd[1]);
    }
    close(fd[1]);
    child->fd = fd[0];
    child->task = task;
    child->got = 0;
}

static void stop_child(struct child *child) {
    close(child->fd);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    child->pid = 0;
}

/* Reads the output available; returns true at its end. */
static bool take_output(const struct pool *pool, struct child *child) {
    ssize_t n = read(child->fd, child->answer + child->got, pool->size - child->got);
    if (n < 0 && errno == EINTR)
        return false;
    child->got += n > 0 ? (size_t)n : 0;
    return n <= 0 || child->got == pool->size;
}

/* Waits until some child has ended, and delivers its answer. */
static void wait_for_children(const struct pool *pool, struct child *child, int width) {
    struct pollfd ready[width];
    int who[width], n = 0;
    for (int i = 0; i < width; i++)
        if (child[i].pid) {
            ready[n] = (struct pollfd){child[i].fd, POLLIN, 0};
            who[n++] = i;
        }
    if (poll(ready, (nfds_t)n, -1) < 0)
        return;
    for (int i = 0; i < n && !interrupted; i++) {
        struct child *c = &child[who[i]];
        if (!ready[i].revents || !take_output(pool, c) || interrupted)
            continue;
        stop_child(c);
        pool->done(pool->context, c->task, c->got == pool->size ? c->answer : NULL);
    }
}

bool run_pool(const struct pool *pool) {
    struct sigaction act = {.sa_handler = on_interrupt}, before;
    int width = count_cores(), busy = 1;
    struct child *child = NEW(struct child, width);
    sigaction(SIGINT, &act, &before);
    for (int i = 0; i < width; i++)
        child[i].answer = alloc(pool->size);
    for (bool more = true; busy > 0 && !interrupted;) {
        busy = 0;
        for (int i = 0; i < width; i++) {
            int task = child[i].pid || !more ? -1 : pool->next(pool->context);
            if (task >= 0)
                start_child(pool, &child[i], task);
            more &= child[i].pid || task >= 0;
            busy += child[i].pid != 0;
        }
        if (busy > 0)
            wait_for_children(pool, child, width);
    }
    for (int i = 0; i < width; i++)
        if (child[i].pid) {
            kill(child[i].pid, SIGKILL);
            stop_child(&child[i]);
        }
    sigaction(SIGINT, &before, NULL);
    return !interrupted;
}
