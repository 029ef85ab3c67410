/* The protocol by which both ends of a new connection prove who they are. tcp_meet.c makes connections; tcp_greet.c
 * implements the protocol. The caller connects, the called listens:
 *
 *     caller    hello: who I am, and for what
 *     called    answer PROVE, with a nonce
 *     caller    proof: a nonce of its own, and a MAC
 *     called    answer WELCOME or why not, with a MAC
 *
 * A MAC is HMAC-SHA-256, keyed with the ranks' common secret, over its sender, hello, both nonces, the rank that is
 * called, the hash of the compile and the answer. Nonces are fresh for each connection, so bytes recorded from one are
 * useless for another. Ranks without a secret use an empty one, as can anyone. */
#ifndef PIANOLA_TCP_GREET_H
#define PIANOLA_TCP_GREET_H
#include "store/sha256.h"
#include "tcp.h"

struct hello { /* the same in all versions */
    uint64_t magic;
    int32_t version, rank, size, group; /* group: as in struct conn */
    int32_t port, zero;                 /* port: the rank's listening port, for CONTROL */
};
struct proof {
    struct digest nonce, mac;
    uint64_t program;
};
struct answer { /* the same in all versions up to number, and throughout if it says OTHER_VERSION */
    uint64_t magic;
    int32_t verdict, number;
    struct digest with; /* a nonce, or the MAC */
};
enum { PROVE, WELCOME, OTHER_VERSION, OTHER_SIZE, TAKEN, OTHER_SECRET, NOT_OURS };

struct caller { /* the called rank's view of a connection */
    int fd;
    struct address from; /* address of the caller, which a broken connection no longer reports */
    size_t have;         /* bytes of the hello, then of the proof */
    bool asked;          /* the caller was asked for its proof */
    struct hello hello;
    struct proof proof;
    struct digest nonce;
    char why[128];
};
enum heard { MORE, PROVED, STRANGER };
/* Reads the bytes that have arrived, without blocking. Returns PROVED if the caller has the secret and awaits
 * greet_answer, STRANGER (with caller->why) if it is not a rank of this training, MORE if more must arrive. */
enum heard greet_hear(const struct tcp *tcp, struct caller *caller);
void greet_answer(const struct tcp *tcp, struct caller *caller, int verdict, int number);

struct greeting { /* the caller's view of a connection */
    struct hello hello;
    struct proof proof;
    struct answer answer;
    struct digest nonce; /* the called rank's nonce */
    size_t have;         /* bytes of the answer */
    bool proved;
};
/* Sends the hello. Returns false with errno if that fails. */
bool greet_begin(const struct tcp *tcp, struct greeting *greeting, int fd, int group, int port);
enum greeted { WAITS, GREETED, GONE };
/* Continues a greeting without blocking. Returns GREETED when greeting->answer is final (see greet_welcome), and GONE
 * with errno, or 0 if the other side closed the connection. peer: the rank that is called. */
enum greeted greet_go_on(const struct tcp *tcp, struct greeting *greeting, int fd, int peer);
/* Returns true if the other side is the expected rank and admits this one. Otherwise sets why, which begins with `who`
 * and ends with the remedy. */
bool greet_welcome(const struct tcp *tcp, const struct greeting *greeting, int peer, const char *who, char *why,
                   size_t nwhy);
#endif
