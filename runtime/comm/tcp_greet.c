#include "tcp_greet.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

static const uint64_t MAGIC = 0x0a616c6f6e616950; /* "Pianola\n"; another number where bytes are the other way round */
enum { VERSION = 2, ANSWER_HEAD = offsetof(struct answer, with) };
enum { NO_RANK = -1 }; /* a verdict of the caller's own: whoever answered does not know the words, or the secret */

#define SAME_SECRET "give all ranks the same PIANOLA_SECRET"

/* ---- what both do ---- */

static struct digest fresh_nonce(void) {
    struct digest n;
    while (getrandom(&n, sizeof n, 0) != sizeof n) /* up to 256 bytes come at once, unless a signal does */
        assert(errno == EINTR);
    return n;
}

/* answer NULL: the caller's. */
static struct digest mac(const struct tcp *c, const struct hello *h, int called, const struct digest *nonce,
                         const struct proof *p, const struct answer *answer) {
    struct {
        char by[8];
        struct hello hello;
        struct digest nonce, proof_nonce;
        uint64_t program;
        int32_t called, verdict, number, zero;
    } all = {.hello = *h, .nonce = *nonce, .proof_nonce = p->nonce, .program = p->program, .called = called};
    static_assert(sizeof all == 8 + sizeof *h + 2 * sizeof *nonce + 24, "no byte of it is chance");
    memcpy(all.by, answer ? "called" : "caller", 6);
    all.verdict = answer ? answer->verdict : 0;
    all.number = answer ? answer->number : 0;
    return hmac_sha256(c->secret, strlen(c->secret), &all, sizeof all);
}

/* One system call, if there is room: -1 with errno, 0 at the end of what comes, else 1. */
static int take(int fd, void *to, size_t *have, size_t n) {
    ssize_t came = *have < n ? recv(fd, (char *)to + *have, n - *have, MSG_DONTWAIT) : 1;
    if (came < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 1 : -1;
    *have += *have < n ? (size_t)came : 0;
    return came > 0;
}

/* So few bytes, the first of a connection or after what has been read, always find room. */
static bool say(int fd, const void *what, size_t n) {
    return send(fd, what, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* ---- the called ---- */

static enum heard stranger(struct caller *w, const char *why) {
    snprintf(w->why, sizeof w->why, "%s", why);
    return STRANGER;
}

void greet_answer(const struct tcp *c, struct caller *w, int verdict, int number) {
    struct answer a = {.magic = MAGIC, .verdict = verdict, .number = number};
    a.with = verdict == PROVE ? w->nonce : mac(c, &w->hello, c->rank, &w->nonce, &w->proof, &a);
    say(w->fd, &a, sizeof a); /* who is gone shows soon enough */
}

static enum heard hear_hello(const struct tcp *c, struct caller *w) {
    bool goes_on = take(w->fd, &w->hello, &w->have, sizeof w->hello) > 0;
    if (!goes_on || memcmp(&w->hello.magic, &MAGIC, w->have < sizeof MAGIC ? w->have : sizeof MAGIC) != 0)
        return stranger(w, "it is no rank of a program");
    if (w->have < sizeof w->hello)
        return MORE;
    if (w->hello.version != VERSION) {
        greet_answer(c, w, OTHER_VERSION, 0);
        return stranger(w, "it is a rank of another version of Pianola");
    }
    w->nonce = fresh_nonce();
    w->asked = true;
    w->have = 0;
    greet_answer(c, w, PROVE, 0);
    return PROVED;
}

enum heard greet_hear(const struct tcp *c, struct caller *w) {
    enum heard hello = w->asked ? PROVED : hear_hello(c, w);
    if (hello != PROVED)
        return hello;
    if (take(w->fd, &w->proof, &w->have, sizeof w->proof) <= 0)
        return stranger(w, "it went away before it proved to be a rank");
    if (w->have < sizeof w->proof)
        return MORE;
    struct digest due = mac(c, &w->hello, c->rank, &w->nonce, &w->proof, NULL);
    if (digest_same(&due, &w->proof.mac))
        return PROVED;
    greet_answer(c, w, OTHER_SECRET, 0);
    snprintf(w->why, sizeof w->why, "it calls itself rank %d, but has another secret: " SAME_SECRET, w->hello.rank);
    return STRANGER;
}

/* ---- the caller ---- */

bool greet_begin(const struct tcp *c, struct greeting *g, int fd, int group, int port) {
    *g = (struct greeting){.proof = {.program = c->program, .nonce = fresh_nonce()}};
    g->hello = (struct hello){MAGIC, VERSION, c->rank, c->size, group, port, 0};
    return say(fd, &g->hello, sizeof g->hello);
}

/* A whole answer has come. Of who has the secret, or says that its own is another, the verdict is the last word. */
static enum greeted heed(const struct tcp *c, struct greeting *g, int fd, int peer) {
    struct answer *a = &g->answer;
    if (!g->proved && a->verdict == PROVE) {
        g->proof.mac = mac(c, &g->hello, peer, &a->with, &g->proof, NULL);
        g->proved = true;
        g->nonce = a->with;
        g->have = 0;
        return say(fd, &g->proof, sizeof g->proof) ? WAITS : GONE;
    }
    struct digest due = mac(c, &g->hello, peer, &g->nonce, &g->proof, a);
    if (!g->proved || (a->verdict != OTHER_SECRET && !digest_same(&due, &a->with)))
        a->verdict = NO_RANK;
    return GREETED;
}

enum greeted greet_go_on(const struct tcp *c, struct greeting *g, int fd, int peer) {
    errno = 0;
    int came = take(fd, &g->answer, &g->have, sizeof g->answer);
    const struct answer *a = &g->answer;
    if (g->have >= ANSWER_HEAD && a->magic != MAGIC)
        g->answer.verdict = NO_RANK;
    if (g->have >= ANSWER_HEAD && (a->verdict == NO_RANK || (!g->proved && a->verdict == OTHER_VERSION)))
        return GREETED;
    if (came <= 0)
        return GONE;
    return g->have < sizeof *a ? WAITS : heed(c, g, fd, peer);
}

bool greet_welcome(const struct tcp *c, const struct greeting *g, int peer, const char *who, char *why, size_t nwhy) {
    const struct answer *a = &g->answer;
    if (a->verdict == OTHER_VERSION)
        snprintf(why, nwhy, "rank %d%s is of another version of Pianola: compile again", peer, who);
    else if (a->verdict == OTHER_SIZE)
        snprintf(why, nwhy, "rank %d%s waits for %d ranks, but this is rank %d of %d", peer, who, a->number, c->rank,
                 c->size);
    else if (a->verdict == TAKEN)
        snprintf(why, nwhy, "rank %d%s has a rank %d already: give each rank a RANK of its own", peer, who, c->rank);
    else if (a->verdict == OTHER_SECRET)
        snprintf(why, nwhy, "rank %d%s has another secret than this rank %d%s: " SAME_SECRET, peer, who, c->rank,
                 *c->secret ? "" : ", which has none");
    else if (a->verdict == NOT_OURS)
        snprintf(why, nwhy, "rank %d%s is of another run", peer, who);
    else if (a->verdict != WELCOME)
        snprintf(why, nwhy, "whoever answers%s is no rank %d of a program", who, peer);
    return a->verdict == WELCOME;
}
