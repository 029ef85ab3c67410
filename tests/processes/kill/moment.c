#include "moment.h"
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

const char *const moment_names[NMOMENTS] = {"in the start", "in the steps", "in a checkpoint", "at the end"};

int moment_watch(const char *saved) {
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd < 0 || inotify_add_watch(fd, saved, IN_CREATE) < 0)
        give_up("cannot watch", saved);
    return fd;
}

struct look {
    int fd, folder; /* folder: watch of the checkpoint's folder, once it exists */
    int events;
    bool written;   /* whether its manifest exists */
    double last[2]; /* times at which the last two folders appeared */
};

/* Watches a folder; one that an earlier run left half written exists from the start. */
static void look_into(struct look *l, const char *path) {
    char manifest[PLACE + 96];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    l->folder = inotify_add_watch(l->fd, path, IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO);
    l->written = access(manifest, F_OK) == 0; /* before the watch began */
}

static void see(struct look *l, const struct inotify_event *e, const char *name, const char *path) {
    if (e->wd == l->folder) {
        l->events++;
        l->written = l->written || ((e->mask & IN_MOVED_TO) && strcmp(e->name, "manifest.json") == 0);
    } else if (e->len && strncmp(e->name, "step-", 5) == 0) {
        l->last[0] = l->last[1];
        l->last[1] = now();
        if (strcmp(e->name, name) == 0)
            look_into(l, path);
    }
}

/* Waits for the next events and notes them. */
static void take(struct look *l, const char *name, const char *path) {
    _Alignas(struct inotify_event) char buffer[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    if (poll(&p, 1, 20) < 1)
        return;
    ssize_t n = read(l->fd, buffer, sizeof buffer);
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *e = (const void *)(buffer + at);
        see(l, e, name, path);
        at += (ssize_t)(sizeof *e + e->len);
    }
}

static bool is_there(const struct look *l, const struct moment *m) {
    return m->kind == IN_CHECKPOINT ? l->folder >= 0 && (l->written || l->events >= m->event) : l->written;
}

pid_t moment_come(struct run *r, int watch, const char *saved, const struct moment *m, int victim) {
    char name[32], path[PLACE + 64];
    struct look l = {.fd = watch, .folder = -1};
    double until = now() + 60, delay = m->delay;
    bool ended = false;
    pid_t pid = 0;
    snprintf(name, sizeof name, "step-%08d", m->step);
    snprintf(path, sizeof path, "%s/%s", saved, name);
    look_into(&l, path);
    if (m->kind == IN_START)
        nap(delay);
    for (; !pid && !ended; ended = run_ended(r, -1) || now() > until)
        if (!(pid = run_rank(r, victim)))
            nap(0.002);
    while (m->kind != IN_START && !is_there(&l, m) && !ended) {
        take(&l, name, path);
        ended = run_ended(r, -1) || now() > until;
    }
    if (m->kind == IN_STEPS)
        delay *= l.last[0] > 0 ? l.last[1] - l.last[0] : 0.005;
    close(watch);
    if (!ended && m->kind != IN_START)
        nap(delay);
    return ended || run_ended(r, -1) ? 0 : pid;
}
