/* How ranks over TCP find one another, and whom they turn away. */
#include "tcp_ranks.h"

static int stranger(const void *says, size_t n) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = -1;
    for (int i = 0; fd < 0 && i < 500; i++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            break;
        close(fd);
        fd = -1;
        sleep_ms(10);
    }
    cr_assert_geq(fd, 0);
    cr_assert_eq(send(fd, says, n, MSG_NOSIGNAL), (ssize_t)n);
    return fd;
}

static int count(const char *in, const char *what) {
    int n = 0;
    while ((in = strstr(in, what)) != NULL) {
        in += strlen(what);
        n++;
    }
    return n;
}

static void meet_and_part(int rank, int size) {
    struct world w;
    open_world(&w, rank, size);
    close_world(&w);
    _exit(0);
}

Test(tcp_meet, strangers_are_turned_away, .timeout = 30) {
    char garbage[100000];
    new_room();
    memset(garbage, 0xee, sizeof garbage);
    if (forked(0))
        meet_and_part(0, 2);
    int fd[100];
    close(stranger("GET / HTTP/1.1\r\n\r\n", 18));
    fd[0] = stranger(garbage, 8);
    fd[1] = stranger(garbage, sizeof garbage);
    fd[2] = stranger("Pianola\nand nothing more", 24);
    close(stranger("Pianola\nand a hello of the right size", 32));
    close(stranger("", 0));
    for (int i = 3; i < 100; i++)
        fd[i] = stranger("Pian", 4);
    struct world w;
    open_world(&w, 1, 2);
    close_world(&w);
    for (int i = 0; i < 100; i++)
        close(fd[i]);
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    cr_expect_geq(count(said_by(0), "pianola: rank 0: warning: turned away a connection from 127.0.0.1, port "), 5);
    cr_expect_geq(count(said_by(0), "it is no rank of a program\n"), 3);
    cr_expect_geq(count(said_by(0), "it said nothing\n"), 1);
    cr_expect_eq(count(said_by(0), "another version"), 1, "%s", said_by(0));
    leave_room();
}

/* One message from rank 1 to rank 0. */
static void prepare_and_part(struct world *w, int rank) {
    static const int32_t no_groups[] = {-1};
    const struct rt_instr x = {.op = rank ? OP_SEND_F : OP_RECV_F, .peer = 1 - rank, .bytes = 1000};
    const struct rt_rank k = {.ins = &x, .nins = 1};
    char arena[1024], all[2];
    w->all(w->link, "x", all, 1);
    MUST(w->prepare(w->link, &k, 1, no_groups, arena));
    close_world(w);
}

Test(tcp_meet, strangers_at_the_second_door, .timeout = 30) {
    static const int32_t hello[8] = {0x6e616950, 0x0a616c6f, 1, 1,
                                     2,          7,          0, 0}; /* a rank, of a group that is not there */
    struct world w;
    new_room();
    if (forked(0)) {
        open_world(&w, 0, 2);
        prepare_and_part(&w, 0);
        _exit(0);
    }
    open_world(&w, 1, 2);
    int fd[] = {stranger("garbage", 7), stranger(hello, sizeof hello)};
    prepare_and_part(&w, 1);
    close(fd[0]);
    close(fd[1]);
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it is no rank of a program\n"), 1, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it is no rank of this run\n"), 1, "%s", said_by(0));
    leave_room();
}

static void expect_refused(int rank, int size, const char *wanted) {
    struct launch how = launch_of(rank, size);
    struct world w;
    char why[512] = "", all[600];
    snprintf(all, sizeof all, wanted, port);
    cr_assert(!tcp_open(&w, &how, why, sizeof why));
    cr_expect_str_eq(why, all);
}

Test(tcp_meet, ranks_that_do_not_belong_together, .timeout = 30) {
    new_room();
    if (forked(0))
        meet_and_part(0, 3);
    expect_refused(1, 2, "rank 0 at 127.0.0.1, port %s, waits for 3 ranks, but this is rank 1 of 2");
    expect_refused(4, 5, "rank 0 at 127.0.0.1, port %s, waits for 3 ranks, but this is rank 4 of 5");
    if (forked(2))
        meet_and_part(2, 3);
    sleep_ms(200);
    expect_refused(2, 3, "rank 0 at 127.0.0.1, port %s, has a rank 2 already");
    expect_refused(0, 3, "cannot listen at port %s: Address already in use; give all ranks another MASTER_PORT");
    if (forked(1))
        meet_and_part(1, 3);
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it is a rank of a run with another number of ranks\n"), 2, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "a rank of this number has come already\n"), 1, "%s", said_by(0));
    expect_good_end(1);
    expect_good_end(2);
    leave_room();
}

Test(tcp_meet, somebody_else_answers, .timeout = 30) {
    new_room();
    int listener = bound_socket(port);
    cr_assert_eq(listen(listener, 5), 0);
    if (forked(0)) {
        close(accept(listener, NULL, NULL)); /* closed before it answers: may be on its way out, and is called again */
        int fd = accept(listener, NULL, NULL);
        char byte;
        bool sent = send(fd, "HTTP/1.1 400 Bad Request\r\n", 26, MSG_NOSIGNAL) == 26;
        while (recv(fd, &byte, 1, 0) > 0)
            ;
        _exit(!sent);
    }
    expect_refused(1, 2, "whoever answers at 127.0.0.1, port %s, is no rank 0 of a program");
    cr_expect_eq(exit_of(0), 0);
    close(listener);
    leave_room();
}

Test(tcp_meet, a_rank_may_come_again_before_all_have, .timeout = 30) {
    new_room();
    if (forked(0))
        meet_and_part(0, 3);
    if (forked(1))
        meet_and_part(1, 3);
    sleep_ms(200);
    kill(pids[1], SIGKILL);
    exit_of(1);
    for (int r = 2; r > 0; r--, sleep_ms(100))
        if (forked(r))
            meet_and_part(r, 3);
    for (int r = 0; r < 3; r++)
        expect_good_end(r);
    leave_room();
}

Test(tcp_meet, the_deadline_names_who_is_missing, .timeout = 30) {
    new_room();
    if (forked_until(0, 0.5))
        meet_and_part(0, 4);
    if (forked(2))
        meet_and_part(2, 4);
    cr_expect_eq(exit_of(0), 1);
    cr_expect(strstr(said_by(0), "pianola: rank 0 waits for rank 1, 3 to start: "), "%s", said_by(0));
    exit_of(2);
    leave_room();
}
