/* Addresses and sockets: tcp_socket.h. */
#include "tcp_socket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- addresses ---- */

struct address address_from_sockaddr(const struct sockaddr_storage *a) {
    struct address address = {0};
    if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)a;
        address.ip = six->sin6_addr;
        address.port = ntohs(six->sin6_port);
    } else {
        const struct sockaddr_in *four = (const void *)a;
        address.ip.s6_addr[10] = address.ip.s6_addr[11] = 0xff;
        memcpy(&address.ip.s6_addr[12], &four->sin_addr, 4);
        address.port = ntohs(four->sin_port);
    }
    return address;
}

socklen_t address_to_sockaddr(const struct address *address, struct sockaddr_storage *a) {
    memset(a, 0, sizeof *a);
    if (!IN6_IS_ADDR_V4MAPPED(&address->ip)) {
        struct sockaddr_in6 *six = (void *)a;
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)address->port)};
        six->sin6_addr = address->ip;
        return sizeof *six;
    }
    struct sockaddr_in *four = (void *)a;
    *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)address->port)};
    memcpy(&four->sin_addr, &address->ip.s6_addr[12], 4);
    return sizeof *four;
}

struct address socket_peer(int fd) {
    struct sockaddr_storage a = {.ss_family = AF_INET};
    socklen_t n = sizeof a;
    getpeername(fd, (struct sockaddr *)&a, &n);
    return address_from_sockaddr(&a);
}

struct address socket_own(int fd) {
    struct sockaddr_storage a = {.ss_family = AF_INET};
    socklen_t n = sizeof a;
    getsockname(fd, (struct sockaddr *)&a, &n);
    return address_from_sockaddr(&a);
}

bool address_is_loopback(const struct address *address) {
    return IN6_IS_ADDR_LOOPBACK(&address->ip) || (IN6_IS_ADDR_V4MAPPED(&address->ip) && address->ip.s6_addr[12] == 127);
}

bool address_is_literal(const char *addr) {
    struct in6_addr ip;
    return !strcmp(addr, "localhost") || inet_pton(AF_INET, addr, &ip) == 1 || inet_pton(AF_INET6, addr, &ip) == 1;
}

/* ---- sockets ---- */

void socket_raise_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

void socket_hurry(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

int socket_error(int fd) {
    int error = 0;
    socklen_t n = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 ? error : errno;
}

int socket_listen(const struct sockaddr *sockaddr, socklen_t n) {
    int yes = 1, no = 0, fd = socket(sockaddr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (sockaddr->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, sockaddr, n) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int socket_listen_anywhere(int family, int port) {
    struct address address = {.port = (uint32_t)port};
    if (family == AF_INET)
        address.ip.s6_addr[10] = address.ip.s6_addr[11] = 0xff;
    struct sockaddr_storage a;
    socklen_t n = address_to_sockaddr(&address, &a);
    return socket_listen((struct sockaddr *)&a, n);
}

bool socket_send_all(int fd, const void *from, size_t n) {
    for (const char *p = from; n > 0;) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        p += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

bool socket_receive_all(int fd, void *to, size_t n) {
    for (char *p = to; n > 0;) {
        ssize_t came = recv(fd, p, n, 0);
        if (came == 0 || (came < 0 && errno != EINTR))
            return false;
        p += came > 0 ? came : 0;
        n -= came > 0 ? (size_t)came : 0;
    }
    return true;
}
