/* Addresses and sockets, for tcp_meet.c. */
#ifndef PIANOLA_TCP_SOCKET_H
#define PIANOLA_TCP_SOCKET_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct address { /* address of a rank's listening socket; IPv4 in its IPv6 form, ::ffff:a.b.c.d */
    struct in6_addr ip;
    uint32_t port;
};
struct address address_from_sockaddr(const struct sockaddr_storage *a);
/* Returns the length of *a. */
socklen_t address_to_sockaddr(const struct address *address, struct sockaddr_storage *a);
bool address_is_loopback(const struct address *address);
/* Returns whether addr is a numeric address or localhost. Any other name may mean loopback on rank 0's machine alone,
 * as with Debian's /etc/hosts; ranks then listen on all interfaces. */
bool address_is_literal(const char *addr);

struct address socket_peer(int fd);
struct address socket_own(int fd);
/* Raises the soft limit on open files, so that this rank can have a connection with every other. */
void socket_raise_limit(void);
void socket_hurry(int fd); /* turns off Nagle's algorithm, so that small items leave at once */
int socket_error(int fd);  /* pending errno; 0: none */
/* Return a listening socket that never blocks, or -1 with errno. */
int socket_listen(const struct sockaddr *sockaddr, socklen_t n);
int socket_listen_anywhere(int family, int port);
/* Block until all n bytes have moved. Return false if the socket fails (with errno) or the other end is gone. */
bool socket_send_all(int fd, const void *from, size_t n);
bool socket_receive_all(int fd, void *to, size_t n);
#endif
