#include "tcp_greet.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

static const uint64_t MAGIC = 0x0a616c6f6e616950; /* "Pianola\n"; another number in the other byte order */
enum { VERSION = 2, ANSWER_HEAD = offsetof(struct answer, with) };
enum { NO_RANK = -1 }; /* the caller's own verdict: the other side does not know the protocol or the secret */

#define SAME_SECRET "give all ranks the same PIANOLA_SECRET"

/* ---- both ends ---- */

static struct digest fresh_nonce(void) {
    struct digest digest;
    while (getrandom(&digest, sizeof digest, 0) !=
           sizeof digest) /* up to 256 bytes come at once, unless a signal interrupts */
        assert(errno == EINTR);
    return digest;
}

/* Returns the MAC over a greeting: the called rank's, or the caller's if answer is NULL. */
static struct digest mac(const struct tcp *tcp, const struct hello *h, int called, const struct digest *nonce,
                         const struct proof *proof, const struct answer *answer) {
    struct {
        char by[8];
        struct hello hello;
        struct digest nonce, proof_nonce;
        uint64_t program;
        int32_t called, verdict, number, zero;
    } all = {.hello = *h, .nonce = *nonce, .proof_nonce = proof->nonce, .program = proof->program, .called = called};
    static_assert(sizeof all == 8 + sizeof *h + 2 * sizeof *nonce + 24, "none of its bytes are random");
    memcpy(all.by, answer ? "called" : "caller", 6);
    all.verdict = answer ? answer->verdict : 0;
    all.number = answer ? answer->number : 0;
    return hmac_sha256(tcp->secret, strlen(tcp->secret), &all, sizeof all);
}

/* Receives with one system call, if there is room. Returns -1 with errno, 0 at end of file, else 1. */
static int receive_now(int fd, void *to, size_t *have, size_t n) {
    ssize_t came = *have < n ? recv(fd, (char *)to + *have, n - *have, MSG_DONTWAIT) : 1;
    if (came < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 1 : -1;
    *have += *have < n ? (size_t)came : 0;
    return came > 0;
}

/* Sends without blocking. The few bytes always fit: they are a connection's first, or answer bytes already read. */
static bool send_now(int fd, const void *what, size_t n) {
    return send(fd, what, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* ---- the called rank ---- */

static enum heard stranger(struct caller *caller, const char *why) {
    snprintf(caller->why, sizeof caller->why, "%s", why);
    return STRANGER;
}

void greet_answer(const struct tcp *tcp, struct caller *caller, int verdict, int number) {
    struct answer answer = {.magic = MAGIC, .verdict = verdict, .number = number};
    answer.with =
        verdict == PROVE ? caller->nonce : mac(tcp, &caller->hello, tcp->rank, &caller->nonce, &caller->proof, &answer);
    send_now(caller->fd, &answer, sizeof answer); /* a lost caller is noticed soon enough */
}

static enum heard hear_hello(const struct tcp *tcp, struct caller *caller) {
    bool goes_on = receive_now(caller->fd, &caller->hello, &caller->have, sizeof caller->hello) > 0;
    if (!goes_on ||
        memcmp(&caller->hello.magic, &MAGIC, caller->have < sizeof MAGIC ? caller->have : sizeof MAGIC) != 0)
        return stranger(caller, "it is not a rank of a program");
    if (caller->have < sizeof caller->hello)
        return MORE;
    if (caller->hello.version != VERSION) {
        greet_answer(tcp, caller, OTHER_VERSION, 0);
        return stranger(caller, "it is a rank of another version of Pianola");
    }
    caller->nonce = fresh_nonce();
    caller->asked = true;
    caller->have = 0;
    greet_answer(tcp, caller, PROVE, 0);
    return PROVED;
}

enum heard greet_hear(const struct tcp *tcp, struct caller *caller) {
    enum heard hello = caller->asked ? PROVED : hear_hello(tcp, caller);
    if (hello != PROVED)
        return hello;
    if (receive_now(caller->fd, &caller->proof, &caller->have, sizeof caller->proof) <= 0)
        return stranger(caller, "it disconnected before it proved to be a rank");
    if (caller->have < sizeof caller->proof)
        return MORE;
    struct digest due = mac(tcp, &caller->hello, tcp->rank, &caller->nonce, &caller->proof, NULL);
    if (digest_same(&due, &caller->proof.mac))
        return PROVED;
    greet_answer(tcp, caller, OTHER_SECRET, 0);
    snprintf(caller->why, sizeof caller->why, "it calls itself rank %d, but has a different secret: " SAME_SECRET,
             caller->hello.rank);
    return STRANGER;
}

/* ---- the caller ---- */

bool greet_begin(const struct tcp *tcp, struct greeting *greeting, int fd, int group, int port) {
    *greeting = (struct greeting){.proof = {.program = tcp->program, .nonce = fresh_nonce()}};
    greeting->hello = (struct hello){MAGIC, VERSION, tcp->rank, tcp->size, group, port, 0};
    return send_now(fd, &greeting->hello, sizeof greeting->hello);
}

/* Handles a complete answer. Its verdict counts only if its sender has the secret, or says that its secret differs. */
static enum greeted heed(const struct tcp *tcp, struct greeting *greeting, int fd, int peer) {
    struct answer *answer = &greeting->answer;
    if (!greeting->proved && answer->verdict == PROVE) {
        greeting->proof.mac = mac(tcp, &greeting->hello, peer, &answer->with, &greeting->proof, NULL);
        greeting->proved = true;
        greeting->nonce = answer->with;
        greeting->have = 0;
        return send_now(fd, &greeting->proof, sizeof greeting->proof) ? WAITS : GONE;
    }
    struct digest due = mac(tcp, &greeting->hello, peer, &greeting->nonce, &greeting->proof, answer);
    if (!greeting->proved || (answer->verdict != OTHER_SECRET && !digest_same(&due, &answer->with)))
        answer->verdict = NO_RANK;
    return GREETED;
}

enum greeted greet_go_on(const struct tcp *tcp, struct greeting *greeting, int fd, int peer) {
    errno = 0;
    int came = receive_now(fd, &greeting->answer, &greeting->have, sizeof greeting->answer);
    const struct answer *answer = &greeting->answer;
    if (greeting->have >= ANSWER_HEAD && answer->magic != MAGIC)
        greeting->answer.verdict = NO_RANK;
    if (greeting->have >= ANSWER_HEAD &&
        (answer->verdict == NO_RANK || (!greeting->proved && answer->verdict == OTHER_VERSION)))
        return GREETED;
    if (came <= 0)
        return GONE;
    return greeting->have < sizeof *answer ? WAITS : heed(tcp, greeting, fd, peer);
}

bool greet_welcome(const struct tcp *tcp, const struct greeting *greeting, int peer, const char *who, char *why,
                   size_t nwhy) {
    const struct answer *answer = &greeting->answer;
    if (answer->verdict == OTHER_VERSION)
        snprintf(why, nwhy, "rank %d%s is of another version of Pianola: compile again", peer, who);
    else if (answer->verdict == OTHER_SIZE)
        snprintf(why, nwhy, "rank %d%s waits for %d ranks, but this is rank %d of %d", peer, who, answer->number,
                 tcp->rank, tcp->size);
    else if (answer->verdict == TAKEN)
        snprintf(why, nwhy, "rank %d%s already has a rank %d: give each rank its own RANK", peer, who, tcp->rank);
    else if (answer->verdict == OTHER_SECRET)
        snprintf(why, nwhy, "rank %d%s has another secret than this rank %d%s: " SAME_SECRET, peer, who, tcp->rank,
                 *tcp->secret ? "" : ", which has none");
    else if (answer->verdict == NOT_OURS)
        snprintf(why, nwhy, "rank %d%s belongs to another run", peer, who);
    else if (answer->verdict != WELCOME)
        snprintf(why, nwhy, "whatever answers%s is not rank %d of a program", who, peer);
    return answer->verdict == WELCOME;
}
