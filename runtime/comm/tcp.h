/* Ranks over TCP: tcp_meet.c makes connections, on the sockets of tcp_socket.c, tcp_greet.c authenticates both ends,
 * and comm_tcp.c moves tensors over them.
 *
 * Every rank has one connection to rank 0, for exchanges among all ranks. It has one connection per direction to each
 * rank that it exchanges messages with. For each lane of collectives, it has one to each member that it exchanges
 * pieces with. */
#ifndef PIANOLA_TCP_H
#define PIANOLA_TCP_H
#include "pairwise.h"
#include "tcp_socket.h"
#include "world.h"
#include <poll.h>

/* Header of an item. Both ends know in advance which item comes next. */
struct head {
    int32_t what; /* number of the message or collective; or ALL, SUM */
    int32_t turn; /* how often the message has come before; or the number of the call of all() or sum_begin() */
    int64_t bytes;
};
enum { HEAD = sizeof(struct head), ALL = -1, SUM = -2 };

struct half {         /* one direction of a connection, and the item in transit */
    int64_t done;     /* bytes moved, including the head's */
    struct head head; /* as received */
    char part[4];     /* the last done % 4 bytes received, for sums, which add whole floats */
    bool stuck;       /* the socket would block; cleared when poll reports it ready */
    bool begun;
    double since;
};
enum { CONTROL = -2, EDGE = -1 };
struct conn {
    int fd, peer;
    int group;    /* the channel number that both ends use (collective_channel); or CONTROL, EDGE */
    bool calls;   /* this rank is connecting to the peer, which has not sent WELCOME yet */
    bool greeted; /* this rank has sent its hello */
    struct half in, out;
};
struct caller; /* a process that has connected but not yet proved who it is */
struct greeting;

struct tcp {
    int rank, size;
    const char *secret;  /* PIANOLA_SECRET; "": none */
    uint64_t program;    /* hash of the compile */
    struct conn *conn;   /* CONTROL connections first: rank 0 has one with each rank r, at r - 1; other ranks have one
                          * with rank 0 */
    struct pollfd *poll; /* one entry per connection, then the listener's and the callers' */
    int nconns, ncontrol;
    int *to, *from; /* connection for messages, per rank; -1: none */
    int **member;   /* connection per channel (collective_channel) and member; -1 or NULL: none */
    int nchannels;
    struct collectives collectives;
    float *scratch; /* SCRATCH + 1 floats */
    char *every;    /* one byte per rank */
    char *arena;
    double polled; /* time of the last poll of the sockets, by the replay's clock */
    bool fresh;    /* a socket has become ready since the replay was last idle */
    int32_t calls; /* calls of all() and sum_begin() */
    struct sum {
        float *x;
        int n;
        int from, to; /* numbers of CONTROL connections that are done receiving, and done sending */
        bool under_way;
    } sum;
    int listener; /* -1: none */
    struct address *address;
    struct {
        struct caller *at;
        int n, room;
    } callers;
    struct greeting *greeting; /* one per connection */
};
enum { SCRATCH = 1 << 16 };

/* tcp_meet.c. Allocates n connections; returns false if there is no memory. */
bool tcp_room(struct tcp *tcp, int n);
/* Makes the CONTROL connections and learns every rank's address. Returns false and sets why if the ranks cannot
 * meet. */
bool tcp_meet(struct tcp *tcp, const struct launch *how, char *why, size_t nwhy);
/* Makes all other connections, which both ends list in tcp->conn; then stops listening. */
void tcp_connect(struct tcp *tcp);

/* comm_tcp.c. Waits until a stuck connection in [from, to), or one of the `more` entries of tcp->poll from `to` on, is
 * ready; milliseconds as for poll. Ends the process if a peer is gone. Returns true if a connection is no longer
 * stuck. */
bool tcp_poll(struct tcp *tcp, int from, int to, int more, int milliseconds);
_Noreturn void tcp_lost(int peer, int error); /* error 0: the peer closed the connection */
#endif
