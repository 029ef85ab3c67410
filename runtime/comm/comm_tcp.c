/* Messages over TCP, between the processes of ranks that no MPI launcher started.
 *
 * A program's sends and receives agree, along every edge, in order and bytes: so a message is written to a connection
 * straight out of the arena and read straight into the planned place, as far as the socket takes and gives without
 * waiting, by the rank's one thread between its jobs. Nothing is queued here but by the kernel. The head before each
 * message is not needed to find it, only to notice at once if the two ends ever disagree.
 *
 * A reduction runs along a chain of its group, in the rank order that in-process runs keep, so that the bits agree:
 * partial sums go up, the total comes back down, both at once and each rank passing on what it has so far.
 *
 * A socket that would block is not tried again until poll says that it is ready. Ranks close their connections only
 * after the last all(), to which everyone came: one that ends before is the death of a rank. */
#include "device/device_host.h"
#include "tcp.h"
#include "watch.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static const double POLL_EVERY = 20e-6; /* seconds: the sockets of a rank at work are polled this often at most */

/* ---- a connection ---- */

void tcp_lost(int peer, int error) {
    char why[128];
    snprintf(why, sizeof why, "rank %d%s%s", peer, error ? ": " : " closed its connection",
             error ? strerror(error) : "");
    watch_fail(why);
}

static const char *name_of(const struct head *h, char *out, size_t n) {
    const char *what = h->what == ALL ? "exchange" : h->what == SUM ? "sum" : "message";
    if (h->what < 0)
        snprintf(out, n, "%s %d of %lld bytes", what, h->step, (long long)h->bytes);
    else
        snprintf(out, n, "%s %d of step %d, %lld bytes,", what, h->what, h->step, (long long)h->bytes);
    return out;
}

static void check(const struct conn *k, const struct head *due) {
    char came[96], expected[96], why[256];
    if (memcmp(&k->in.head, due, HEAD) == 0)
        return;
    snprintf(why, sizeof why, "rank %d sent %s where %s was due", k->peer, name_of(&k->in.head, came, sizeof came),
             name_of(due, expected, sizeof expected));
    watch_fail(why);
}

static int64_t payload(const struct half *h) { return h->done > HEAD ? h->done - HEAD : 0; }

/* All of an item has moved: the next one may begin. */
static bool whole(struct half *h, int64_t bytes) {
    if (h->done < HEAD + bytes)
        return false;
    h->done = 0;
    return true;
}

/* One system call: what is left of the head, then n bytes, or as many of them as go. */
static void move(struct conn *k, struct half *h, void *head, void *bytes, int64_t n) {
    int64_t left = h->done < HEAD ? HEAD - h->done : 0;
    struct iovec part[2] = {{(char *)head + HEAD - left, (size_t)left}, {bytes, (size_t)n}};
    struct msghdr m = {.msg_iov = part, .msg_iovlen = 2};
    ssize_t moved = h == &k->out ? sendmsg(k->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(k->fd, &m, MSG_DONTWAIT);
    if (moved == 0 && h == &k->in)
        tcp_lost(k->peer, 0);
    if (moved < 0 && errno == EINTR)
        return;
    if (moved < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        tcp_lost(k->peer, errno);
    h->stuck = moved < left + n;
    h->done += moved > 0 ? moved : 0;
}

/* Goes on sending an item, of which `ready` bytes are there; -1: not even its head may go. */
static void give(struct conn *k, const struct head *head, const void *from, int64_t ready) {
    while (!k->out.stuck && ready >= 0 && k->out.done < HEAD + ready) {
        int64_t at = payload(&k->out);
        move(k, &k->out, (void *)head, (char *)from + at, ready - at);
    }
}

static void take(struct conn *k, const struct head *due, void *to) {
    while (!k->in.stuck && k->in.done < HEAD + due->bytes) {
        int64_t at = payload(&k->in);
        move(k, &k->in, &k->in.head, (char *)to + at, due->bytes - at);
        if (k->in.done >= HEAD)
            check(k, due);
    }
}

/* The same for floats, each added to what is there. */
static void take_sum(struct tcp *c, struct conn *k, const struct head *due, float *to) {
    struct half *in = &k->in;
    char *scratch = (char *)c->scratch;
    while (!in->stuck && in->done < HEAD + due->bytes) {
        int64_t at = payload(in), part = at % 4, room = SCRATCH * 4;
        memcpy(scratch, in->part, (size_t)part);
        move(k, in, &in->head, scratch + part, due->bytes - at < room ? due->bytes - at : room);
        if (in->done >= HEAD)
            check(k, due);
        int64_t n = payload(in) / 4 - at / 4;
        host_add(to + at / 4, c->scratch, n, false);
        memcpy(in->part, scratch + 4 * n, 4);
    }
}

bool tcp_poll(struct tcp *c, int from, int to, int more, int milliseconds) {
    bool ready = false;
    for (int i = from; i < to; i++) {
        const struct conn *k = &c->conn[i];
        c->poll[i] = (struct pollfd){.fd = k->fd, .events = POLLRDHUP};
        c->poll[i].events |= (short)((k->in.stuck ? POLLIN : 0) | (k->out.stuck ? POLLOUT : 0));
    }
    while (poll(c->poll + from, (nfds_t)(to - from + more), milliseconds) < 0)
        if (errno != EINTR)
            tcp_lost(c->rank, errno);
    for (int i = from; i < to; i++) {
        struct conn *k = &c->conn[i];
        int is = k->fd >= 0 ? c->poll[i].revents : 0, error = 0;
        socklen_t n = sizeof error;
        bool reads = k->in.stuck && (is & POLLIN), writes = k->out.stuck && (is & POLLOUT);
        /* Whoever has written its last and closed is only gone once that is read. */
        if (!reads && (is & (POLLRDHUP | POLLHUP | POLLERR))) {
            getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &n);
            tcp_lost(k->peer, error);
        }
        k->in.stuck = k->in.stuck && !reads;
        k->out.stuck = k->out.stuck && !writes;
        ready |= reads || writes;
    }
    return ready;
}

/* ---- among all ranks: to rank 0 and back ---- */

/* Goes on with the sum that has begun; true when it has ended. Rank 0 adds in rank order. */
static bool go_on(struct tcp *c) {
    struct sum *s = &c->sum;
    const struct head head = {SUM, c->calls, 4 * (int64_t)s->n};
    for (; c->rank == 0 && s->from < c->ncontrol; s->from++) {
        take_sum(c, &c->conn[s->from], &head, s->x);
        if (!whole(&c->conn[s->from].in, head.bytes))
            return false;
    }
    for (; s->to < c->ncontrol; s->to++) {
        give(&c->conn[s->to], &head, s->x, head.bytes);
        if (!whole(&c->conn[s->to].out, head.bytes))
            return false;
    }
    for (; c->rank > 0 && s->from < c->ncontrol; s->from++) {
        take(&c->conn[s->from], &head, s->x);
        if (!whole(&c->conn[s->from].in, head.bytes))
            return false;
    }
    s->under_way = false;
    return true;
}

static void tcp_sum_begin(void *link, float *x, int n) {
    struct tcp *c = link;
    c->calls++;
    c->sum = (struct sum){.x = x, .n = n, .under_way = true};
    go_on(c);
}

static void tcp_sum_end(void *link) {
    struct tcp *c = link;
    while (c->sum.under_way && !go_on(c))
        tcp_poll(c, 0, c->ncontrol, 0, -1);
}

/* Waits for one connection only: the others' ranks may have ended well meanwhile. */
static void give_all(struct tcp *c, int i, int32_t call, const void *from, size_t bytes) {
    const struct head head = {ALL, call, (int64_t)bytes};
    for (struct conn *k = &c->conn[i];; tcp_poll(c, i, i + 1, 0, -1)) {
        give(k, &head, from, head.bytes);
        if (whole(&k->out, head.bytes))
            return;
    }
}

static void take_all(struct tcp *c, int i, int32_t call, void *to, size_t bytes) {
    const struct head head = {ALL, call, (int64_t)bytes};
    for (struct conn *k = &c->conn[i];; tcp_poll(c, 0, c->ncontrol, 0, -1)) {
        take(k, &head, to);
        if (whole(&k->in, head.bytes))
            return;
    }
}

static void tcp_all(void *link, const void *mine, void *all, size_t bytes) {
    struct tcp *c = link;
    tcp_sum_end(c); /* what began earlier goes first, on the same connections */
    int32_t call = ++c->calls;
    memcpy((char *)all + (size_t)c->rank * bytes, mine, bytes);
    if (c->rank > 0)
        give_all(c, 0, call, mine, bytes);
    for (int i = 0; c->rank == 0 && i < c->ncontrol; i++)
        take_all(c, i, call, (char *)all + (size_t)(i + 1) * bytes, bytes);
    for (int i = 0; c->rank == 0 && i < c->ncontrol; i++)
        give_all(c, i, call, all, bytes * (size_t)c->size);
    if (c->rank > 0)
        take_all(c, 0, call, all, bytes * (size_t)c->size);
}

static void tcp_progress(void *link) {
    struct tcp *c = link;
    tcp_poll(c, 0, c->ncontrol, 0, 0);
    if (c->sum.under_way)
        go_on(c);
}

/* ---- the replay's messages ---- */

static int add_conn(struct tcp *c, int peer, int group, bool calls) {
    c->conn[c->nconns] = (struct conn){.fd = -1, .peer = peer, .group = group, .calls = calls};
    return c->nconns++;
}

static void add_chain(struct tcp *c, const int32_t *groups, int number) {
    struct chain *g = &c->chain[number];
    if (g->known)
        return;
    struct rt_group of = group_of(groups, number, c->rank);
    g->known = true;
    g->below = of.me > 0 ? add_conn(c, of.member[of.me - 1], number, false) : -1;
    g->above = of.me < of.n - 1 ? add_conn(c, of.member[of.me + 1], number, true) : -1;
}

static bool take_memory(struct tcp *c, int ngroups) {
    c->to = malloc(sizeof *c->to * (size_t)c->size);
    c->from = malloc(sizeof *c->from * (size_t)c->size);
    c->chain = calloc((size_t)ngroups + 1, sizeof *c->chain);
    return c->to && c->from && c->chain && tcp_room(c, c->ncontrol + 2 * c->size + 2 * ngroups);
}

static bool tcp_prepare(void *link, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena) {
    struct tcp *c = link;
    (void)nmsgs;
    char fine = take_memory(c, group_count(groups));
    tcp_all(c, &fine, c->every, 1);
    if (memchr(c->every, false, (size_t)c->size))
        return false; /* here or elsewhere: nobody may wait for connections that do not come */
    c->arena = arena;
    for (int r = 0; r < c->size; r++)
        c->to[r] = c->from[r] = -1;
    for (int32_t i = 0; i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        if (is_group(x->op))
            add_chain(c, groups, x->peer);
        else if (x->msg >= 0) {
            int *at = is_send(x->op) ? &c->to[x->peer] : &c->from[x->peer];
            *at = *at < 0 ? add_conn(c, x->peer, EDGE, is_send(x->op)) : *at;
        }
    }
    tcp_connect(c);
    return true;
}

/* Between jobs too, though not after every short one: a rank at work would hold up those that send to it. */
static void poll_seldom(struct tcp *c, struct replay *re) {
    double now = re->device->clock(re);
    if (now < c->polled + POLL_EVERY)
        return;
    c->polled = now;
    c->fresh |= tcp_poll(c, 0, c->nconns, 0, 0);
}

static bool message(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct tcp *c = link;
    struct conn *k = &c->conn[is_send(x->op) ? c->to[x->peer] : c->from[x->peer]];
    struct half *h = is_send(x->op) ? &k->out : &k->in;
    const struct head head = {x->msg, (int32_t)re->step, x->bytes};
    char *tensor = c->arena + x->at[ROLE_t];
    if (!h->begun) {
        h->begun = true;
        h->since = re->device->clock(re);
    }
    if (h->stuck)
        poll_seldom(c, re);
    if (is_send(x->op))
        give(k, &head, tensor, x->bytes);
    else
        take(k, &head, tensor);
    if (!whole(h, x->bytes))
        return false;
    h->begun = false;
    *start = h->since;
    *end = re->device->clock(re);
    return true;
}

static bool both_whole(const struct conn *k, int64_t bytes) {
    return !k || (k->in.done == HEAD + bytes && k->out.done == HEAD + bytes);
}

/* As give() counts them: the head says that those behind the other end have come to the reduction, bytes or not. */
static int64_t came(const struct half *h) { return h->done < HEAD ? -1 : payload(h); }

/* What has come up from below, own gradient included, goes on up; at the top it is the total, which goes down. */
static bool pass_on(struct tcp *c, const struct chain *g, const struct head *head, float *dw) {
    struct conn *below = g->below < 0 ? NULL : &c->conn[g->below], *above = g->above < 0 ? NULL : &c->conn[g->above];
    int64_t risen = head->bytes, fallen;
    if (below) {
        take_sum(c, below, head, dw);
        risen = came(&below->in);
        risen -= risen > 0 ? risen % 4 : 0; /* whole floats have been added */
    }
    fallen = risen;
    if (above) {
        give(above, head, dw, risen);
        take(above, head, dw);
        fallen = came(&above->in);
    }
    if (below)
        give(below, head, dw, fallen);
    if (!both_whole(below, head->bytes) || !both_whole(above, head->bytes))
        return false;
    if (below)
        below->in.done = below->out.done = 0;
    if (above)
        above->in.done = above->out.done = 0;
    return true;
}

static bool reduce(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct tcp *c = link;
    struct chain *g = &c->chain[x->peer];
    const struct head head = {x->msg, (int32_t)re->step, x->bytes};
    if (g->begun)
        poll_seldom(c, re);
    else
        g->since = re->device->clock(re);
    g->begun = true;
    if (!pass_on(c, g, &head, (float *)(void *)(c->arena + x->at[ROLE_dw])))
        return false;
    g->begun = false;
    *start = g->since;
    *end = re->device->clock(re);
    return true;
}

static void idle(void *link, struct replay *re) {
    struct tcp *c = link;
    tcp_poll(c, 0, c->nconns, 0, c->fresh ? 0 : -1);
    c->fresh = false;
    c->polled = re->device->clock(re);
    if (c->sum.under_way)
        go_on(c);
}

static const struct host_transport comm_tcp = {message, reduce, idle};

/* ---- from the first rank to the last ---- */

static void tcp_close(void *link) {
    struct tcp *c = link;
    for (int i = 0; c->conn && i < c->nconns; i++)
        if (c->conn[i].fd >= 0)
            close(c->conn[i].fd);
    if (c->listener >= 0)
        close(c->listener);
    free(c->conn);
    free(c->poll);
    free(c->to);
    free(c->from);
    free(c->chain);
    free(c->scratch);
    free(c->every);
    free(c->address);
    free(c->caller);
    free(c->greeting);
    free(c);
}

/* One that was meant to be set, and is not, must not go unnoticed; and who overhears a greeting can try short ones. */
static bool find_secret(struct tcp *c, char *why, size_t nwhy) {
    enum { LEAST = 16 };
    const char *secret = getenv("PIANOLA_SECRET");
    c->secret = secret ? secret : "";
    if (!secret || strlen(secret) >= LEAST)
        return true;
    snprintf(why, nwhy,
             "PIANOLA_SECRET has %zu characters, and needs %d: take what head -c 32 /dev/urandom | base64 prints",
             strlen(secret), LEAST);
    return false;
}

/* One rank alone has nobody to meet. */
bool tcp_open(struct world *w, const struct launch *how, char *why, size_t nwhy) {
    struct tcp *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(why, nwhy, "no memory");
        return false;
    }
    c->rank = how->rank < 0 ? 0 : how->rank;
    c->size = how->size < 0 ? 1 : how->size;
    c->program = how->program;
    c->listener = -1;
    c->address = calloc((size_t)c->size, sizeof *c->address);
    c->every = calloc((size_t)c->size, 1);
    c->scratch = calloc(SCRATCH + 1, sizeof *c->scratch);
    bool fine = c->address && c->every && c->scratch && tcp_room(c, c->size);
    if (!fine)
        snprintf(why, nwhy, "no memory");
    for (int r = c->rank ? 0 : 1; fine && r < (c->rank ? 1 : c->size); r++)
        add_conn(c, r, CONTROL, false);
    c->ncontrol = c->nconns;
    if (!fine || (c->size > 1 && !(find_secret(c, why, nwhy) && tcp_meet(c, how, why, nwhy)))) {
        tcp_close(c);
        return false;
    }
    *w = (struct world){.rank = c->rank, .size = c->size, .transport = &comm_tcp, .link = c, .all = tcp_all};
    w->sum_begin = tcp_sum_begin;
    w->sum_end = tcp_sum_end;
    w->progress = tcp_progress;
    w->prepare = tcp_prepare;
    w->close = tcp_close;
    return true;
}
