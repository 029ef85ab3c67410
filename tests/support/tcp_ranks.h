/* Ranks as processes connected over loopback: starts them and checks their exit codes and output. */
#ifndef PIANOLA_TCP_RANKS_H
#define PIANOLA_TCP_RANKS_H
#include "comm/tcp.h"
#include "comm/watch.h"
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, LANES = 2 * MOST + 8 }; /* most ranks; lanes of each */

static char port[8], dir[32];
static pid_t pids[MOST];
static const int32_t *groups_of_program; /* groups whose members the watch names */

static inline int bound_socket(const char *at) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(at))};
    socklen_t n = sizeof a;
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    cr_assert(bind(fd, (struct sockaddr *)&a, n) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
    return fd;
}

static inline void new_room(void) {
    close(bound_socket("0"));
    strcpy(dir, "/tmp/test_comm_tcp.XXXXXX");
    cr_assert(mkdtemp(dir));
}

static inline const char *in_dir(const char *format, int rank) {
    static char path[2][64];
    static int turn;
    char *out = path[turn = !turn];
    int n = snprintf(out, sizeof path[0], "%s/", dir);
    snprintf(out + n, sizeof path[0] - (size_t)n, format, rank);
    return out;
}

static inline void leave_room(void) {
    for (int r = 0; r < MOST; r++) {
        unlink(in_dir("stderr%d", r));
        unlink(in_dir("flight-rank%d.txt", r));
    }
    cr_expect_eq(rmdir(dir), 0);
}

/* Asserts in a forked rank; cr_assert works only in the test's own process. */
#define MUST(...)                                                                                                      \
    do {                                                                                                               \
        if (!(__VA_ARGS__)) {                                                                                          \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #__VA_ARGS__);                                          \
            _exit(3);                                                                                                  \
        }                                                                                                              \
    } while (0)

static inline void be(int rank, double deadline) {
    static const char *lane[LANES];
    for (int l = 0; l < LANES; l++)
        lane[l] = "of a test";
    struct watch_args a = {.program = "a test", .rank = rank, .deadline = deadline, .flight = dir, .lane = lane};
    a.group = groups_of_program;
    MUST(watch_start(&a));
    watch_phase("waits for all ranks to start");
}

static inline struct launch launch_of(int rank, int size) {
    return (struct launch){.rank = rank, .size = size, .local = -1, .addr = "127.0.0.1", .port = port};
}

static inline void open_world(struct world *w, int rank, int size) {
    struct launch how = launch_of(rank, size);
    char why[512];
    bool met = tcp_open(w, &how, why, sizeof why);
    if (!met)
        fprintf(stderr, "rank %d: %s\n", rank, why);
    MUST(met);
    MUST(w->rank == rank && w->size == size);
}

/* Ends a rank that succeeded; every such rank calls it last. */
static inline void close_world(struct world *w) {
    char all[MOST], mine = 0;
    w->all(w->link, &mine, all, 1);
    w->close(w->link);
}

/* Starts a rank as a process that ends with this one; its stderr goes to a file. */
static inline bool forked_until(int rank, double deadline) {
    pids[rank] = fork();
    cr_assert_geq(pids[rank], 0);
    if (pids[rank])
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = open(in_dir("stderr%d", rank), O_CREAT | O_WRONLY | O_APPEND, 0666);
    MUST(fd >= 0 && dup2(fd, 2) == 2);
    be(rank, deadline);
    return true;
}

static inline bool forked(int rank) { return forked_until(rank, 20); }

static inline const char *said_by(int rank) {
    static char text[4096];
    int fd = open(in_dir("stderr%d", rank), O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    return text;
}

static inline int exit_of(int rank) {
    int status;
    cr_assert_eq(waitpid(pids[rank], &status, 0), pids[rank]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static inline void expect_good_end(int rank) {
    int code = exit_of(rank);
    cr_expect_eq(code, 0, "rank %d ended with %d: %s", rank, code, said_by(rank));
    cr_expect_str_empty(said_by(rank), "rank %d", rank);
}

static inline void sleep_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }
#endif
