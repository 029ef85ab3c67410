/* Messages over TCP, between ranks that are processes and were not started by an MPI launcher.
 *
 * On every edge, the sends and receives of a program agree in order and size. So the rank's only thread, between its
 * jobs, writes a message straight from the arena and reads it straight into the planned place, as far as the socket
 * allows without blocking. Only the kernel queues anything. The header of each message serves only to detect a
 * disagreement between the two ends at once.
 *
 * The pieces of collectives (pairwise.h) travel likewise, between the two members that exchange them.
 *
 * A socket that would block is not tried again until poll says that it is ready. Ranks close their connections only
 * after the last all(), which takes every rank: a connection that ends earlier means that a rank has died. */
#include "device/job.h"
#include "pairwise.h"
#include "device/device_host.h"
#include "tcp.h"
#include "watch.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static const double POLL_EVERY = 20e-6; /* seconds: a busy rank polls its sockets at most this often */

/* ---- a connection ---- */

void tcp_lost(int peer, int error) {
    char why[128];
    snprintf(why, sizeof why, "rank %d%s%s", peer, error ? ": " : " closed its connection",
             error ? strerror(error) : "");
    watch_fail(why);
}

static const char *head_name(const struct head *head, char *out, size_t n) {
    const char *what = head->what == ALL ? "exchange" : head->what == SUM ? "sum" : "message";
    if (head->what < 0)
        snprintf(out, n, "%s %d of %lld bytes", what, head->turn, (long long)head->bytes);
    else
        snprintf(out, n, "%s %d in turn %d, %lld bytes,", what, head->what, head->turn, (long long)head->bytes);
    return out;
}

static void check_head(const struct conn *conn, const struct head *due) {
    char came[96], expected[96], why[256];
    if (memcmp(&conn->in.head, due, HEAD) == 0)
        return;
    snprintf(why, sizeof why, "rank %d sent %s where %s was due", conn->peer,
             head_name(&conn->in.head, came, sizeof came), head_name(due, expected, sizeof expected));
    watch_fail(why);
}

static int64_t payload_bytes(const struct half *half) { return half->done > HEAD ? half->done - HEAD : 0; }

/* Returns whether all of an item has moved. If so, the next one may begin. */
static bool is_whole(struct half *half, int64_t bytes) {
    assert(half->done <= HEAD + bytes); /* nothing of the next item has moved with this one */
    if (half->done < HEAD + bytes)
        return false;
    half->done = 0;
    return true;
}

/* Moves the rest of the head and up to n bytes, with one system call. */
static void move_bytes(struct conn *conn, struct half *half, void *head, void *bytes, int64_t n) {
    int64_t left = half->done < HEAD ? HEAD - half->done : 0;
    assert(!half->stuck && n >= 0 && left + n > 0);
    struct iovec part[2] = {{(char *)head + HEAD - left, (size_t)left}, {bytes, (size_t)n}};
    struct msghdr msghdr = {.msg_iov = part, .msg_iovlen = 2};
    ssize_t moved = half == &conn->out ? sendmsg(conn->fd, &msghdr, MSG_NOSIGNAL | MSG_DONTWAIT)
                                       : recvmsg(conn->fd, &msghdr, MSG_DONTWAIT);
    if (moved == 0 && half == &conn->in)
        tcp_lost(conn->peer, 0);
    if (moved < 0 && errno == EINTR)
        return;
    if (moved < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        tcp_lost(conn->peer, errno);
    half->stuck = moved < left + n;
    half->done += moved > 0 ? moved : 0;
}

/* Continues sending an item. ready: how many of its bytes are available; -1: not even its head may be sent. */
static void send_item(struct conn *conn, const struct head *head, const void *from, int64_t ready) {
    while (!conn->out.stuck && ready >= 0 && conn->out.done < HEAD + ready) {
        int64_t at = payload_bytes(&conn->out);
        move_bytes(conn, &conn->out, (void *)head, (char *)from + at, ready - at);
    }
}

static void receive_item(struct conn *conn, const struct head *due, void *to) {
    while (!conn->in.stuck && conn->in.done < HEAD + due->bytes) {
        int64_t at = payload_bytes(&conn->in);
        move_bytes(conn, &conn->in, &conn->in.head, (char *)to + at, due->bytes - at);
        if (conn->in.done >= HEAD)
            check_head(conn, due);
    }
}

/* Continues receiving an item of floats, and adds them to those in place. */
static void receive_sum(struct tcp *tcp, struct conn *conn, const struct head *due, float *to) {
    struct half *in = &conn->in;
    char *scratch = (char *)tcp->scratch;
    while (!in->stuck && in->done < HEAD + due->bytes) {
        int64_t at = payload_bytes(in), part = at % 4, room = SCRATCH * 4;
        memcpy(scratch, in->part, (size_t)part);
        move_bytes(conn, in, &in->head, scratch + part, due->bytes - at < room ? due->bytes - at : room);
        if (in->done >= HEAD)
            check_head(conn, due);
        int64_t n = payload_bytes(in) / 4 - at / 4;
        host_add(to + at / 4, tcp->scratch, n, false);
        memcpy(in->part, scratch + 4 * n, 4);
    }
}

bool tcp_poll(struct tcp *tcp, int from, int to, int more, int milliseconds) {
    bool ready = false;
    for (int i = from; i < to; i++) {
        const struct conn *conn = &tcp->conn[i];
        tcp->poll[i] = (struct pollfd){.fd = conn->fd, .events = POLLRDHUP};
        tcp->poll[i].events |= (short)((conn->in.stuck ? POLLIN : 0) | (conn->out.stuck ? POLLOUT : 0));
    }
    while (poll(tcp->poll + from, (nfds_t)(to - from + more), milliseconds) < 0)
        if (errno != EINTR)
            tcp_lost(tcp->rank, errno);
    for (int i = from; i < to; i++) {
        struct conn *conn = &tcp->conn[i];
        int is = conn->fd >= 0 ? tcp->poll[i].revents : 0, error = 0;
        socklen_t n = sizeof error;
        bool reads = conn->in.stuck && (is & POLLIN), writes = conn->out.stuck && (is & POLLOUT);
        /* Reads a peer's last bytes before it reports that the peer closed. */
        if (!reads && (is & (POLLRDHUP | POLLHUP | POLLERR))) {
            getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &n);
            tcp_lost(conn->peer, error);
        }
        conn->in.stuck = conn->in.stuck && !reads;
        conn->out.stuck = conn->out.stuck && !writes;
        ready |= reads || writes;
    }
    return ready;
}

/* ---- among all ranks: to rank 0 and back ---- */

/* Continues the sum under way; returns true when it has ended. Rank 0 adds in rank order. */
static bool continue_sum(struct tcp *tcp) {
    struct sum *sum = &tcp->sum;
    const struct head head = {SUM, tcp->calls, 4 * (int64_t)sum->n};
    for (; tcp->rank == 0 && sum->from < tcp->ncontrol; sum->from++) {
        receive_sum(tcp, &tcp->conn[sum->from], &head, sum->x);
        if (!is_whole(&tcp->conn[sum->from].in, head.bytes))
            return false;
    }
    for (; sum->to < tcp->ncontrol; sum->to++) {
        send_item(&tcp->conn[sum->to], &head, sum->x, head.bytes);
        if (!is_whole(&tcp->conn[sum->to].out, head.bytes))
            return false;
    }
    for (; tcp->rank > 0 && sum->from < tcp->ncontrol; sum->from++) {
        receive_item(&tcp->conn[sum->from], &head, sum->x);
        if (!is_whole(&tcp->conn[sum->from].in, head.bytes))
            return false;
    }
    sum->under_way = false;
    return true;
}

static void tcp_sum_begin(void *link, float *x, int n) {
    struct tcp *tcp = link;
    assert(!tcp->sum.under_way);
    tcp->calls++;
    tcp->sum = (struct sum){.x = x, .n = n, .under_way = true};
    continue_sum(tcp);
}

static void tcp_sum_end(void *link) {
    struct tcp *tcp = link;
    while (tcp->sum.under_way && !continue_sum(tcp))
        tcp_poll(tcp, 0, tcp->ncontrol, 0, -1);
}

/* Waits for one connection only: other ranks may have ended normally meanwhile. */
static void give_all(struct tcp *tcp, int i, int32_t call, const void *from, size_t bytes) {
    const struct head head = {ALL, call, (int64_t)bytes};
    for (struct conn *conn = &tcp->conn[i];; tcp_poll(tcp, i, i + 1, 0, -1)) {
        send_item(conn, &head, from, head.bytes);
        if (is_whole(&conn->out, head.bytes))
            return;
    }
}

static void take_all(struct tcp *tcp, int i, int32_t call, void *to, size_t bytes) {
    const struct head head = {ALL, call, (int64_t)bytes};
    for (struct conn *conn = &tcp->conn[i];; tcp_poll(tcp, 0, tcp->ncontrol, 0, -1)) {
        receive_item(conn, &head, to);
        if (is_whole(&conn->in, head.bytes))
            return;
    }
}

static void tcp_all(void *link, const void *mine, void *all, size_t bytes) {
    struct tcp *tcp = link;
    tcp_sum_end(tcp); /* an earlier sum goes first on the same connections */
    int32_t call = ++tcp->calls;
    memcpy((char *)all + (size_t)tcp->rank * bytes, mine, bytes);
    if (tcp->rank > 0)
        give_all(tcp, 0, call, mine, bytes);
    for (int i = 0; tcp->rank == 0 && i < tcp->ncontrol; i++)
        take_all(tcp, i, call, (char *)all + (size_t)(i + 1) * bytes, bytes);
    for (int i = 0; tcp->rank == 0 && i < tcp->ncontrol; i++)
        give_all(tcp, i, call, all, bytes * (size_t)tcp->size);
    if (tcp->rank > 0)
        take_all(tcp, 0, call, all, bytes * (size_t)tcp->size);
}

static bool tcp_progress(void *link) {
    struct tcp *tcp = link;
    tcp_poll(tcp, 0, tcp->ncontrol, 0, 0);
    return !tcp->sum.under_way || continue_sum(tcp);
}

/* ---- the replay's messages ---- */

static int add_conn(struct tcp *tcp, int peer, int group, bool calls) {
    tcp->conn[tcp->nconns] = (struct conn){.fd = -1, .peer = peer, .group = group, .calls = calls};
    return tcp->nconns++;
}

/* Finds the members that this rank needs connections to, for each lane of each of its groups. Returns false if there is
 * no memory. */
static bool find_members(struct tcp *tcp, const struct rt_rank *k, int ngroups, int *nconns) {
    bool *meets = calloc((size_t)tcp->size, sizeof *meets);
    bool ok = meets && tcp->member;
    tcp->nchannels = ok ? GROUP_LANES * ngroups : 0;
    for (int32_t i = 0; ok && i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        if (!is_group(x->op))
            continue;
        const struct rt_group *group = &tcp->collectives.group[x->group];
        int **member = &tcp->member[collective_channel(x)];
        *member = *member ? *member : calloc((size_t)group->n, sizeof **member);
        ok = *member != NULL;
        memset(meets, 0, sizeof *meets * (size_t)group->n);
        collective_peers(x, group, meets);
        for (int m = 0; ok && m < group->n; m++) {
            *nconns += meets[m] && !(*member)[m];
            (*member)[m] |= meets[m];
        }
    }
    free(meets);
    return ok;
}

static bool take_memory(struct tcp *tcp, const struct rt_rank *k, const int32_t *groups, char *arena) {
    int ngroups = group_count(groups), nconns = tcp->ncontrol + 2 * tcp->size;
    tcp->to = malloc(sizeof *tcp->to * (size_t)tcp->size);
    tcp->from = malloc(sizeof *tcp->from * (size_t)tcp->size);
    tcp->member = calloc(GROUP_LANES * (size_t)ngroups + 1, sizeof *tcp->member);
    return tcp->to && tcp->from && collectives_open(&tcp->collectives, k, tcp->rank, groups, arena) &&
           find_members(tcp, k, ngroups, &nconns) && tcp_room(tcp, nconns);
}

static void add_members(struct tcp *tcp, int channel) {
    const struct rt_group *group = &tcp->collectives.group[channel / GROUP_LANES];
    int *member = tcp->member[channel];
    for (int m = 0; member && m < group->n; m++)
        member[m] = member[m] ? add_conn(tcp, group->member[m], channel, group->me < m) : -1;
}

static bool tcp_prepare(void *link, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena) {
    struct tcp *tcp = link;
    (void)nmsgs;
    char fine = take_memory(tcp, k, groups, arena);
    tcp_all(tcp, &fine, tcp->every, 1);
    if (memchr(tcp->every, false, (size_t)tcp->size))
        return false; /* here or on another rank: no rank may wait for connections that will not come */
    tcp->arena = arena;
    for (int r = 0; r < tcp->size; r++)
        tcp->to[r] = tcp->from[r] = -1;
    for (int32_t i = 0; i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        if (is_message(x->op) && !is_group(x->op)) {
            int *at = is_send(x->op) ? &tcp->to[x->peer] : &tcp->from[x->peer];
            *at = *at < 0 ? add_conn(tcp, x->peer, EDGE, is_send(x->op)) : *at;
        }
    }
    for (int c = 0; c < tcp->nchannels; c++)
        add_members(tcp, c);
    tcp_connect(tcp);
    return true;
}

/* Polls between jobs, at most once every POLL_EVERY seconds, since jobs may be short. */
static void poll_seldom(struct tcp *tcp, struct replay *re) {
    double now = re->device->clock(re);
    if (now < tcp->polled + POLL_EVERY)
        return;
    tcp->polled = now;
    tcp->fresh |= tcp_poll(tcp, 0, tcp->nconns, 0, 0);
}

static bool tcp_message(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct tcp *tcp = link;
    struct conn *conn = &tcp->conn[is_send(x->op) ? tcp->to[x->peer] : tcp->from[x->peer]];
    struct half *half = is_send(x->op) ? &conn->out : &conn->in;
    const struct head head = {x->msg, (int32_t)re->turn, x->bytes};
    assert(conn->peer == x->peer && (x->at.t || x->bytes == 0));
    char *tensor = job_operand(tcp->arena, x, ROLE_t);
    if (!half->begun) {
        half->begun = true;
        half->since = re->device->clock(re);
    }
    if (half->stuck)
        poll_seldom(tcp, re);
    if (is_send(x->op))
        send_item(conn, &head, tensor, x->bytes);
    else
        receive_item(conn, &head, tensor);
    if (!is_whole(half, x->bytes))
        return false;
    half->begun = false;
    *start = half->since;
    *end = re->device->clock(re);
    return true;
}

static bool tcp_move_piece(void *link, const struct replay *re, const struct rt_instr *x, int track,
                           const struct piece *piece) {
    struct tcp *tcp = link;
    struct conn *conn = &tcp->conn[tcp->member[collective_channel(x)][piece->member]];
    const struct head head = {x->msg, (int32_t)re->turn, piece->bytes};
    assert(conn->peer == tcp->collectives.group[x->group].member[piece->member]);
    (void)track;
    if (piece->sends)
        send_item(conn, &head, piece->at, piece->bytes);
    else
        receive_item(conn, &head, piece->at);
    return is_whole(piece->sends ? &conn->out : &conn->in, piece->bytes);
}

static bool tcp_collective(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct tcp *tcp = link;
    if (tcp->collectives.lane[x->lane].begun)
        poll_seldom(tcp, re);
    return collectives_run(&tcp->collectives, re, x, start, end);
}

static void tcp_idle(void *link, struct replay *re) {
    struct tcp *tcp = link;
    tcp_poll(tcp, 0, tcp->nconns, 0, tcp->fresh ? 0 : -1);
    tcp->fresh = false;
    tcp->polled = re->device->clock(re);
    if (tcp->sum.under_way)
        continue_sum(tcp);
}

static const struct host_transport comm_tcp = {tcp_message, tcp_collective, tcp_idle, NULL, NULL};

/* ---- from the first rank to the last ---- */

static void tcp_close(void *link) {
    struct tcp *tcp = link;
    for (int i = 0; tcp->conn && i < tcp->nconns; i++)
        if (tcp->conn[i].fd >= 0)
            close(tcp->conn[i].fd);
    if (tcp->listener >= 0)
        close(tcp->listener);
    free(tcp->conn);
    free(tcp->poll);
    free(tcp->to);
    free(tcp->from);
    for (int c = 0; c < tcp->nchannels; c++)
        free(tcp->member[c]);
    free(tcp->member);
    collectives_close(&tcp->collectives);
    free(tcp->scratch);
    free(tcp->every);
    free(tcp->address);
    free(tcp->callers.at);
    free(tcp->greeting);
    free(tcp);
}

/* Reads PIANOLA_SECRET. Refuses an empty secret, which may be a mistake, and short ones, which an eavesdropper could
 * guess. */
static bool find_secret(struct tcp *tcp, char *why, size_t nwhy) {
    enum { LEAST = 16 };
    const char *secret = getenv("PIANOLA_SECRET");
    tcp->secret = secret ? secret : "";
    if (!secret || strlen(secret) >= LEAST)
        return true;
    snprintf(why, nwhy,
             "PIANOLA_SECRET has %zu characters, but needs %d: use the output of head -c 32 /dev/urandom | base64",
             strlen(secret), LEAST);
    return false;
}

/* Opens a world over TCP. A single rank meets no other. */
bool tcp_open(struct world *world, const struct launch *how, char *why, size_t nwhy) {
    struct tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp) {
        snprintf(why, nwhy, "no memory");
        return false;
    }
    tcp->rank = how->rank < 0 ? 0 : how->rank;
    tcp->size = how->size < 0 ? 1 : how->size;
    tcp->program = how->program;
    tcp->collectives.move = tcp_move_piece;
    tcp->collectives.link = tcp;
    tcp->listener = -1;
    tcp->address = calloc((size_t)tcp->size, sizeof *tcp->address);
    tcp->every = calloc((size_t)tcp->size, 1);
    tcp->scratch = calloc(SCRATCH + 1, sizeof *tcp->scratch);
    bool fine = tcp->address && tcp->every && tcp->scratch && tcp_room(tcp, tcp->size);
    if (!fine)
        snprintf(why, nwhy, "no memory");
    for (int r = tcp->rank ? 0 : 1; fine && r < (tcp->rank ? 1 : tcp->size); r++)
        add_conn(tcp, r, CONTROL, false);
    tcp->ncontrol = tcp->nconns;
    if (!fine || (tcp->size > 1 && !(find_secret(tcp, why, nwhy) && tcp_meet(tcp, how, why, nwhy)))) {
        tcp_close(tcp);
        return false;
    }
    *world = (struct world){
        .rank = tcp->rank, .size = tcp->size, .transport = &comm_tcp, .messages = tcp, .link = tcp, .all = tcp_all};
    world->sum_begin = tcp_sum_begin;
    world->sum_end = tcp_sum_end;
    world->progress = tcp_progress;
    world->prepare = tcp_prepare;
    world->close = tcp_close;
    return true;
}
