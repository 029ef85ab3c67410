/* Ranks find one another. Rank 0 listens on the address and port given to all ranks; the others retry until they can
 * connect to it. Each says who it is (tcp_greet.h), and on which port it listens itself. When all have arrived, rank 0
 * sends everyone the table of addresses and ports. After that any rank can connect to any other, with the same
 * greeting.
 *
 * Anything may connect: a port scan, a health check, a rank of another run, an attacker. Ranks neither trust a caller
 * nor wait for it until it has proved that it has the ranks' secret. Each stranger causes one line of warning. */
#include "store/seconds.h"
#include "tcp_greet.h"
#include "watch.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STRANGERS = 64 }; /* places for silent callers, in addition to the ranks */

static const char all_start[] = "waits for all ranks to start"; /* for the watch */

/* ---- what the user is told of a wait ---- */

/* Seconds after which a rank says once whom it waits for, in case that rank was never started. */
static const double PATIENCE = 5;

struct wait {
    double since;
    bool told;
};
static int wait_left(const struct wait *wait) { /* in milliseconds; -1: nothing is left to say */
    double left = PATIENCE - (seconds() - wait->since);
    return wait->told ? -1 : left > 0 ? (int)(1e3 * left) + 1 : 0;
}
static void wait_tell(struct wait *wait, int rank, const char *what) {
    if (wait->told || seconds() - wait->since < PATIENCE)
        return;
    fprintf(stderr, "pianola: rank %d %s\n", rank, what);
    wait->told = true;
}

/* ---- callers ---- */

static void turn_away(const struct tcp *tcp, const struct caller *caller, const char *because) {
    char ip[INET6_ADDRSTRLEN] = "";
    const struct in6_addr *from = &caller->from.ip;
    bool four = IN6_IS_ADDR_V4MAPPED(from);
    inet_ntop(four ? AF_INET : AF_INET6, four ? (const void *)&from->s6_addr[12] : from, ip, sizeof ip);
    fprintf(stderr, "pianola: rank %d: warning: turned away a connection from %s, port %u: %s\n", tcp->rank, ip,
            caller->from.port, because);
    close(caller->fd);
}

static struct caller forget_caller(struct tcp *tcp, int i) {
    struct caller caller = tcp->callers.at[i];
    tcp->callers.n--;
    memmove(&tcp->callers.at[i], &tcp->callers.at[i + 1], sizeof *tcp->callers.at * (size_t)(tcp->callers.n - i));
    return caller;
}

/* Accepts callers while there is room for them. */
static void accept_callers(struct tcp *tcp) {
    while (tcp->callers.n < tcp->callers.room) {
        struct sockaddr_storage from = {.ss_family = AF_INET};
        socklen_t n = sizeof from;
        int fd = accept4(tcp->listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            char why[128];
            snprintf(why, sizeof why, "cannot accept a connection: %s (ulimit -n)", strerror(errno));
            watch_fail(why);
        }
        if (fd >= 0) /* else interrupted, or the other side is gone again */
            tcp->callers.at[tcp->callers.n++] = (struct caller){.fd = fd, .from = address_from_sockaddr(&from)};
    }
}

/* Finds the next caller that has the secret. If there is no room left, drops the one that has waited longest. */
static bool next_caller(struct tcp *tcp, struct caller *out) {
    for (;; *out = forget_caller(tcp, 0), turn_away(tcp, out, out->asked ? "it proved nothing" : "it said nothing")) {
        accept_callers(tcp);
        for (int i = 0; i < tcp->callers.n;) {
            enum heard heard = greet_hear(tcp, &tcp->callers.at[i]);
            if (heard == MORE) {
                i++;
                continue;
            }
            *out = forget_caller(tcp, i);
            if (heard == PROVED)
                return true;
            turn_away(tcp, out, out->why);
        }
        if (tcp->callers.n < tcp->callers.room)
            return false;
    }
}

/* Sets the entries of tcp->poll for callers, from `at` on; returns their number. */
static int poll_callers(struct tcp *tcp, int at) {
    tcp->poll[at] = (struct pollfd){.fd = tcp->listener, .events = POLLIN};
    for (int i = 0; i < tcp->callers.n; i++)
        tcp->poll[at + 1 + i] = (struct pollfd){.fd = tcp->callers.at[i].fd, .events = POLLIN};
    return 1 + tcp->callers.n;
}

bool tcp_room(struct tcp *tcp, int n) {
    tcp->callers.room = n + STRANGERS;
    struct conn *conn = realloc(tcp->conn, sizeof *conn * (size_t)n);
    struct caller *caller = realloc(tcp->callers.at, sizeof *caller * (size_t)tcp->callers.room);
    struct pollfd *poll = realloc(tcp->poll, sizeof *poll * (size_t)(n + 1 + tcp->callers.room));
    struct greeting *greeting = realloc(tcp->greeting, sizeof *greeting * (size_t)n);
    tcp->conn = conn ? conn : tcp->conn;
    tcp->callers.at = caller ? caller : tcp->callers.at;
    tcp->poll = poll ? poll : tcp->poll;
    tcp->greeting = greeting ? greeting : tcp->greeting;
    return conn && caller && poll && greeting;
}

/* ---- rank 0: all ranks connect to it ---- */

/* Listens at the given address, if it is this machine's own. Returns -1 with errno on failure. */
static int listen_at_address(const struct launch *how) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *all = NULL;
    int fd = -1, unknown = getaddrinfo(how->addr, how->port, &hints, &all);
    if (unknown == EAI_NONAME)
        fprintf(stderr, "pianola: rank 0: warning: MASTER_ADDR %.64s is a name that this machine does not know\n",
                how->addr);
    errno = EADDRNOTAVAIL;
    for (struct addrinfo *addrinfo = all; addrinfo && fd < 0 && errno != EADDRINUSE && address_is_literal(how->addr);
         addrinfo = addrinfo->ai_next)
        fd = socket_listen(addrinfo->ai_addr, addrinfo->ai_addrlen);
    int error = errno;
    if (!unknown && address_is_literal(how->addr) && fd < 0 && error == EADDRNOTAVAIL)
        fprintf(stderr,
                "pianola: rank 0: warning: MASTER_ADDR %.64s is not an address of this machine: listening at all "
                "addresses\n",
                how->addr);
    if (all)
        freeaddrinfo(all);
    errno = error;
    return fd;
}

static bool listen_for_all(struct tcp *tcp, const struct launch *how, char *why, size_t nwhy) {
    int port = atoi(how->port);
    tcp->listener = listen_at_address(how);
    /* The given address is a name, or an address that this machine does not have, such as a cluster service's. */
    for (int i = 0; i < 2 && tcp->listener < 0 && errno != EADDRINUSE; i++)
        tcp->listener = socket_listen_anywhere(i ? AF_INET : AF_INET6, port);
    int error = errno;
    if (tcp->listener < 0)
        snprintf(why, nwhy, "cannot listen at port %d: %s%s", port, strerror(error),
                 error == EADDRINUSE ? ": ss -ltnp shows who uses it; give all ranks another MASTER_PORT"
                 : error == EACCES   ? "; give all ranks a MASTER_PORT above 1023"
                                     : "");
    return tcp->listener >= 0;
}

/* Returns whether a rank is still connected; if not, closes its socket, so that rank 0 waits for it again. */
static bool is_there(struct conn *conn) {
    char byte;
    ssize_t n = conn->fd < 0 ? 0 : recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)))
        return true;
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    return false;
}

/* Returns why a caller is refused, or NULL if it is welcome. number: sent with the verdict. */
static const char *refusal(struct tcp *tcp, const struct hello *hello, int *verdict, int *number) {
    *verdict = NOT_OURS;
    *number = 0;
    if (hello->group != CONTROL)
        return "it is not a rank of this run";
    if (hello->size != tcp->size || hello->rank < 1 || hello->rank >= tcp->size) {
        *verdict = OTHER_SIZE;
        *number = tcp->size;
        return "it is a rank of a run with another number of ranks";
    }
    *verdict = TAKEN;
    if (is_there(&tcp->conn[hello->rank - 1]))
        return "a rank with this number has already connected";
    *verdict = WELCOME;
    return NULL;
}

/* Counts the missing ranks, and names them, also for the watch in case its deadline passes. */
static int count_missing(struct tcp *tcp, const char **names) {
    static char text[2][128];
    static int turn;
    int missing = 0, at = 0;
    char *out = text[turn = !turn]; /* the watch may be reading the other one */
    for (int r = 1; r < tcp->size; r++) {
        if (is_there(&tcp->conn[r - 1]))
            continue;
        if (missing++ < 10)
            at += snprintf(out + at, sizeof *text - (size_t)at, "%s %d", at ? "," : "waits for rank", r);
    }
    snprintf(out + at, sizeof *text - (size_t)at, "%s to start", missing > 10 ? ", ..." : "");
    watch_phase(missing ? out : all_start);
    *names = out;
    return missing;
}

static bool decide(struct tcp *tcp, struct caller *caller) {
    const struct hello *hello = &caller->hello;
    int verdict, number;
    const char *because = refusal(tcp, hello, &verdict, &number);
    greet_answer(tcp, caller, verdict, number);
    if (because) {
        turn_away(tcp, caller, because);
        return false;
    }
    socket_hurry(caller->fd);
    tcp->conn[hello->rank - 1].fd = caller->fd;
    tcp->address[hello->rank] = caller->from;
    tcp->address[hello->rank].port = (uint32_t)hello->port;
    return true;
}

/* Warns once that strangers may join. Only the rank whose port everyone knows prints this. */
static void warn_of_strangers(const struct tcp *tcp) {
    struct address own = socket_own(tcp->listener);
    if (!*tcp->secret && !address_is_loopback(&own))
        fprintf(stderr,
                "pianola: rank 0: warning: anyone who can connect to port %u may join this run as a rank: set the same "
                "PIANOLA_SECRET for all ranks\n",
                own.port);
}

static bool meet_all(struct tcp *tcp, const struct launch *how, char *why, size_t nwhy) {
    struct caller caller;
    const char *names;
    if (!listen_for_all(tcp, how, why, nwhy))
        return false;
    warn_of_strangers(tcp);
    struct wait wait = {seconds(), false};
    for (int missing = count_missing(tcp, &names); missing > 0;) {
        bool came = false;
        poll(tcp->poll, (nfds_t)poll_callers(tcp, 0), wait_left(&wait));
        while (next_caller(tcp, &caller))
            came |= decide(tcp, &caller);
        if (came)
            missing = count_missing(tcp, &names);
        if (missing > 0)
            wait_tell(&wait, tcp->rank, names);
    }
    tcp->address[0].port = (uint32_t)atoi(how->port);
    for (int r = 1; r < tcp->size; r++)
        socket_send_all(tcp->conn[r - 1].fd, tcp->address,
                        sizeof *tcp->address * (size_t)tcp->size); /* a lost rank is noticed soon enough */
    return true;
}

/* ---- the others: to rank 0 ---- */

static void nap(int milliseconds) {
    struct timespec t = {0, 1000000L * milliseconds};
    nanosleep(&t, NULL);
}

/* Connects. Returns false also if the socket connected to itself, which can happen if the port is in the ephemeral
 * range. */
static bool connected(int fd, const struct sockaddr *sockaddr, socklen_t n) {
    int code = connect(fd, sockaddr, n);
    if (code < 0 && errno == EINTR) { /* the connection continues in the background */
        struct pollfd pollfd = {.fd = fd, .events = POLLOUT};
        while (poll(&pollfd, 1, -1) < 0 && errno == EINTR)
            ;
        code = socket_error(fd) ? -1 : 0;
    }
    if (code < 0)
        return false;
    struct address here = socket_own(fd), there = socket_peer(fd);
    return memcmp(&here, &there, sizeof here) != 0;
}

/* Calls rank 0 once. Returns its socket, -1 if nothing answers for now, or -2 with why if nothing ever will. told: the
 * user knows that the name does not resolve yet. */
static int call_once(const struct launch *how, bool *told, char *why, size_t nwhy) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *all = NULL;
    int fd = -1, error = getaddrinfo(how->addr, how->port, &hints, &all);
    if (error && error != EAI_AGAIN) {
        snprintf(why, nwhy,
                 "MASTER_ADDR %.64s: %s: set it to an address of rank 0's machine, or to a name that all ranks' "
                 "machines can resolve",
                 how->addr, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        return -2;
    }
    if (error && !*told)
        fprintf(stderr, "pianola: rank %d: MASTER_ADDR %.64s: %s: asking again\n", how->rank, how->addr,
                gai_strerror(error));
    *told |= error;
    for (struct addrinfo *addrinfo = all; addrinfo && fd < 0; addrinfo = addrinfo->ai_next) {
        fd = socket(addrinfo->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && !connected(fd, addrinfo->ai_addr, addrinfo->ai_addrlen)) {
            close(fd);
            fd = -1;
        }
    }
    if (all)
        freeaddrinfo(all);
    return fd;
}

static bool listen_as_own(struct tcp *tcp, int control, const char *addr) {
    struct address own = socket_own(control);
    struct sockaddr_storage a;
    own.port = 0;
    socklen_t n = address_to_sockaddr(&own, &a);
    if (tcp->listener >= 0)
        close(tcp->listener); /* opened by an earlier try */
    tcp->listener =
        address_is_literal(addr) ? socket_listen((struct sockaddr *)&a, n) : socket_listen_anywhere(a.ss_family, 0);
    return tcp->listener >= 0;
}

/* Blocks until rank 0 has answered. Returns false if the other side is gone. */
static bool greet_rank0(struct tcp *tcp, int fd, const char *addr) {
    struct greeting *greeting = tcp->greeting;
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    if (!listen_as_own(tcp, fd, addr) || !greet_begin(tcp, greeting, fd, CONTROL, (int)socket_own(tcp->listener).port))
        return false;
    enum greeted how;
    while ((how = greet_go_on(tcp, greeting, fd, 0)) == WAITS)
        poll(&pollfd, 1, -1);
    return how == GREETED;
}

/* Calls rank 0 until it answers. what: the text for this wait. Retries if the other side closes before it answers: it
 * is shutting down, or is not one of our ranks. */
static int call_rank0(struct tcp *tcp, const struct launch *how, const char *what, char *why, size_t nwhy) {
    char where[128];
    bool told = false;
    snprintf(where, sizeof where, " at %.64s, port %.8s,", how->addr, how->port);
    struct wait wait = {seconds(), false};
    for (int pause = 10;; nap(pause), pause = pause < 500 ? 2 * pause : pause) {
        wait_tell(&wait, how->rank, what);
        int fd = call_once(how, &told, why, nwhy);
        if (fd == -2)
            return -1;
        if (fd < 0)
            continue;
        bool answered = greet_rank0(tcp, fd, how->addr);
        if (answered && greet_welcome(tcp, tcp->greeting, 0, where, why, nwhy))
            return fd;
        close(fd);
        if (answered)
            return -1;
    }
}

static bool meet_rank0(struct tcp *tcp, const struct launch *how, char *why, size_t nwhy) {
    static char text[128];
    snprintf(text, sizeof text, "waits for rank 0 to answer at %.64s, port %.8s", how->addr, how->port);
    watch_phase(text);
    int fd = tcp->conn[0].fd = call_rank0(tcp, how, text, why, nwhy);
    if (fd < 0)
        return false;
    watch_phase(all_start);
    socket_hurry(fd);
    if (!socket_receive_all(fd, tcp->address, sizeof *tcp->address * (size_t)tcp->size)) {
        snprintf(why, nwhy, "rank 0 disconnected before all ranks had connected");
        return false;
    }
    /* A rank that reached rank 0 over loopback is on rank 0's machine: takes rank 0's address as seen from here. */
    struct address rank0 = socket_peer(fd);
    for (int r = 0; r < tcp->size; r++)
        if (r == 0 || (address_is_loopback(&tcp->address[r]) && !address_is_loopback(&rank0)))
            tcp->address[r].ip = rank0.ip;
    return true;
}

bool tcp_meet(struct tcp *tcp, const struct launch *how, char *why, size_t nwhy) {
    socket_raise_limit();
    return (tcp->rank == 0 ? meet_all : meet_rank0)(tcp, how, why, nwhy);
}

/* ---- all to all ---- */

static void call(struct tcp *tcp, struct conn *conn) {
    struct sockaddr_storage a;
    socklen_t n = address_to_sockaddr(&tcp->address[conn->peer], &a);
    conn->fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (conn->fd < 0 || (connect(conn->fd, (struct sockaddr *)&a, n) < 0 && errno != EINPROGRESS && errno != EINTR))
        tcp_lost(conn->peer, errno);
    conn->out.stuck = true; /* until it is connected */
}

/* Continues a call whose socket is connected; returns true when the call is complete. Calls again if the other side
 * dropped the connection, as it does when too many strangers call at once. A rank that is gone no longer listens. */
static bool greet(struct tcp *tcp, int i) {
    struct conn *conn = &tcp->conn[i];
    struct greeting *greeting = &tcp->greeting[i];
    char why[256];
    if (!conn->greeted) {
        int error = socket_error(conn->fd);
        if (error || !greet_begin(tcp, greeting, conn->fd, conn->group, 0))
            tcp_lost(conn->peer, error ? error : errno);
        socket_hurry(conn->fd);
        conn->greeted = true;
    }
    enum greeted how = greet_go_on(tcp, greeting, conn->fd, conn->peer);
    if (how == GONE) {
        close(conn->fd);
        conn->greeted = false;
        call(tcp, conn);
        return false;
    }
    if (how == GREETED && !greet_welcome(tcp, greeting, conn->peer, "", why, sizeof why))
        watch_fail(why);
    conn->in.stuck = conn->calls = how == WAITS;
    return how == GREETED;
}

static bool take_in(struct tcp *tcp, struct caller *caller) {
    const struct hello *hello = &caller->hello;
    for (int i = tcp->ncontrol; i < tcp->nconns; i++) {
        struct conn *conn = &tcp->conn[i];
        if (conn->fd >= 0 || conn->peer != hello->rank || conn->group != hello->group || hello->size != tcp->size ||
            caller->proof.program != tcp->program)
            continue;
        socket_hurry(caller->fd);
        greet_answer(tcp, caller, WELCOME, 0);
        conn->fd = caller->fd;
        return true;
    }
    greet_answer(tcp, caller, NOT_OURS, 0);
    turn_away(tcp, caller, "it is not a rank of this run");
    return false;
}

/* Makes and accepts calls concurrently, so that no rank waits for another that is itself waiting. */
void tcp_connect(struct tcp *tcp) {
    struct caller caller;
    int missing = tcp->nconns - tcp->ncontrol;
    for (int i = tcp->ncontrol; i < tcp->nconns; i++)
        if (tcp->conn[i].calls)
            call(tcp, &tcp->conn[i]);
    while (missing > 0) {
        tcp_poll(tcp, 0, tcp->nconns, poll_callers(tcp, tcp->nconns), -1);
        for (int i = tcp->ncontrol; i < tcp->nconns; i++)
            if (tcp->conn[i].calls && !tcp->conn[i].out.stuck && !tcp->conn[i].in.stuck)
                missing -= greet(tcp, i);
        while (next_caller(tcp, &caller))
            missing -= take_in(tcp, &caller);
    }
    while (tcp->callers.n > 0)
        close(forget_caller(tcp, 0).fd);
    if (tcp->listener >= 0)
        close(tcp->listener);
    tcp->listener = -1;
}
