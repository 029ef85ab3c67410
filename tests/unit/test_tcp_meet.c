/* How ranks over TCP find one another, and which connections they reject. */
#include "comm/tcp_greet.h"
#include "tcp_ranks.h"
#include <dlfcn.h>
#include <netdb.h>

#define SECRET "a secret of these tests"
#define OTHER  "another one, of strangers"

/* Replaces the C library's function for names that must not reach a resolver. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out) {
    static int asked;
    typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    resolver *real = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!strcmp(node, "nowhere"))
        return EAI_NONAME;
    if (!strcmp(node, "later") && asked++ < 3)
        return EAI_AGAIN;
    return real(!strcmp(node, "later") ? "127.0.0.1" : node, service, hints, out);
}

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
    cr_expect_geq(count(said_by(0), "it is not a rank of a program\n"), 3);
    cr_expect_geq(count(said_by(0), "it said nothing\n"), 1);
    cr_expect_eq(count(said_by(0), "another version"), 1, "%s", said_by(0));
    leave_room();
}

/* Sends one message from rank 1 to rank 0. */
static void prepare_and_part(struct world *w, int rank) {
    static const int32_t no_groups[] = {-1};
    const struct rt_instr x = {.op = rank ? OP_SEND_F : OP_RECV_F, .peer = 1 - rank, .bytes = 1000};
    const struct rt_rank k = {.ins = &x, .nins = 1};
    char arena[1024], all[2];
    w->all(w->link, "x", all, 1);
    MUST(w->prepare(w->link, &k, 1, no_groups, arena));
    close_world(w);
}

/* Greets rank 0 as a rank with this secret would, over TCP alone. Returns the connection, and the greeting in g. */
static int caller(int rank, int size, const char *secret, int group, struct greeting *g) {
    const struct tcp c = {.rank = rank, .size = size, .secret = secret};
    enum greeted how;
    int fd = stranger("", 0);
    cr_assert(greet_begin(&c, g, fd, group, 1));
    while ((how = greet_go_on(&c, g, fd, 0)) == WAITS)
        sleep_ms(1);
    cr_assert_eq(how, GREETED);
    return fd;
}

static int verdict_on(int rank, int size, const char *secret, int group) {
    struct greeting g;
    close(caller(rank, size, secret, group, &g));
    return g.answer.verdict;
}

/* Replays the greeting g on another connection. */
static int verdict_on_replay(const struct greeting *g) {
    struct answer a[2];
    int fd = stranger(&g->hello, sizeof g->hello);
    cr_assert_eq(recv(fd, &a[0], sizeof a[0], MSG_WAITALL), (ssize_t)sizeof a[0]);
    cr_assert_eq(send(fd, &g->proof, sizeof g->proof, MSG_NOSIGNAL), (ssize_t)sizeof g->proof);
    cr_assert_eq(recv(fd, &a[1], sizeof a[1], MSG_WAITALL), (ssize_t)sizeof a[1]);
    cr_expect(recv(fd, &a[0], 1, 0) <= 0, "the connection stays");
    close(fd);
    return a[1].verdict;
}

static void meet_with_message(int rank, int size) {
    struct world w;
    open_world(&w, rank, size);
    prepare_and_part(&w, rank);
}

/* This test plays rank 1: rank 0 waits for its call at the second door, while strangers call. */
Test(tcp_meet, strangers_at_the_second_door, .timeout = 30) {
    struct greeting g;
    struct world w;
    char all[2];
    new_room();
    setenv("PIANOLA_SECRET", SECRET, 1);
    if (forked(0)) {
        meet_with_message(0, 2);
        _exit(0);
    }
    open_world(&w, 1, 2);
    w.all(w.link, "x", all, 1);
    w.all(w.link, "\1", all, 1); /* the collective of prepare */
    close(stranger("garbage", 7));
    int silent = stranger("Pianola\n", 8);
    cr_expect_eq(verdict_on(1, 2, SECRET, 7), NOT_OURS); /* a group that does not exist */
    cr_expect_eq(verdict_on(1, 2, OTHER, EDGE), OTHER_SECRET);
    cr_expect_eq(verdict_on(1, 2, "", EDGE), OTHER_SECRET);
    int fd = caller(1, 2, SECRET, EDGE, &g);
    cr_expect_eq(g.answer.verdict, WELCOME);
    close_world(&w);
    close(fd);
    close(silent);
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it is not a rank of a program\n"), 1, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it is not a rank of this run\n"), 1, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it calls itself rank 1, but has a different secret: give all ranks the same "
                                   "PIANOLA_SECRET\n"),
                 2, "%s", said_by(0));
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
    expect_refused(2, 3, "rank 0 at 127.0.0.1, port %s, already has a rank 2: give each rank its own RANK");
    expect_refused(
        0, 3,
        "cannot listen at port %s: Address already in use: ss -ltnp shows who uses it; give all ranks another "
        "MASTER_PORT");
    if (forked(1))
        meet_and_part(1, 3);
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it is a rank of a run with another number of ranks\n"), 2, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "a rank with this number has already connected\n"), 1, "%s", said_by(0));
    expect_good_end(1);
    expect_good_end(2);
    leave_room();
}

Test(tcp_meet, somebody_else_answers, .timeout = 30) {
    new_room();
    int listener = bound_socket(port);
    cr_assert_eq(listen(listener, 5), 0);
    if (forked(0)) {
        close(accept(listener, NULL, NULL)); /* closed before an answer: the peer may be ending, and is called again */
        int fd = accept(listener, NULL, NULL);
        char byte;
        bool sent = send(fd, "HTTP/1.1 400 Bad Request\r\n", 26, MSG_NOSIGNAL) == 26;
        while (recv(fd, &byte, 1, 0) > 0)
            ;
        _exit(!sent);
    }
    expect_refused(1, 2, "whatever answers at 127.0.0.1, port %s, is not rank 0 of a program");
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

Test(tcp_meet, after_five_seconds_ranks_say_whom_they_wait_for, .timeout = 30) {
    new_room();
    if (forked_until(0, 6))
        meet_and_part(0, 4);
    if (forked(2))
        meet_and_part(2, 4);
    cr_expect_eq(exit_of(0), 1);
    cr_expect(strstr(said_by(0), "pianola: rank 0 waits for rank 1, 3 to start\n"), "%s", said_by(0));
    exit_of(2);
    cr_expect_not(strstr(said_by(2), "waits for all"), "%s", said_by(2)); /* rank 0 speaks for all */
    char line[128];
    snprintf(line, sizeof line, "pianola: rank 1 waits for rank 0 to answer at 127.0.0.1, port %s\n", port);
    if (forked_until(1, 6)) /* nothing listens any longer */
        meet_and_part(1, 4);
    cr_expect_eq(exit_of(1), 1);
    cr_expect(strstr(said_by(1), line), "%s", said_by(1));
    leave_room();
}

/* ---- with a secret ---- */

Test(tcp_meet, with_a_secret, .timeout = 30) {
    new_room();
    setenv("PIANOLA_SECRET", SECRET, 1);
    for (int r = 0; r < 2; r++)
        if (forked(r)) {
            meet_with_message(r, 2);
            _exit(0);
        }
    expect_good_end(0);
    expect_good_end(1);
    leave_room();
}

Test(tcp_meet, forgers_cannot_stop_the_others, .timeout = 30) {
    struct greeting g;
    new_room();
    setenv("PIANOLA_SECRET", SECRET, 1);
    if (forked(0))
        meet_and_part(0, 3);
    int silent = stranger("Pianola\n", 8), fd;
    cr_expect_eq(verdict_on(1, 3, OTHER, CONTROL), OTHER_SECRET);
    cr_expect_eq(verdict_on(2, 3, "", CONTROL), OTHER_SECRET);
    cr_expect_eq(verdict_on(1, 4, OTHER, CONTROL), OTHER_SECRET); /* strangers learn nothing of the run */
    setenv("PIANOLA_SECRET", OTHER, 1);
    expect_refused(1, 3,
                   "rank 0 at 127.0.0.1, port %s, has another secret than this rank 1: give all ranks the same "
                   "PIANOLA_SECRET");
    unsetenv("PIANOLA_SECRET");
    expect_refused(1, 3,
                   "rank 0 at 127.0.0.1, port %s, has another secret than this rank 1, which has none: give all "
                   "ranks the same PIANOLA_SECRET");
    /* Records a true rank's greeting. */
    close(fd = caller(1, 3, SECRET, CONTROL, &g));
    cr_expect_eq(g.answer.verdict, WELCOME);
    cr_expect_eq(verdict_on_replay(&g), OTHER_SECRET);
    setenv("PIANOLA_SECRET", SECRET, 1);
    for (int r = 1; r < 3; r++)
        if (forked(r))
            meet_and_part(r, 3);
    for (int r = 1; r < 3; r++)
        expect_good_end(r);
    close(silent);
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it calls itself rank 1, but has a different secret"), 5, "%s", said_by(0));
    cr_expect_eq(count(said_by(0), "it calls itself rank 2, but has a different secret"), 1, "%s", said_by(0));
    leave_room();
}

/* Strangers that send a hello and part of a proof do not keep a connection forever. */
Test(tcp_meet, slow_strangers_have_to_go, .timeout = 30) {
    const struct tcp c = {.rank = 1, .size = 2, .secret = OTHER};
    struct greeting g;
    int fd[100];
    new_room();
    setenv("PIANOLA_SECRET", SECRET, 1);
    if (forked(0))
        meet_and_part(0, 2);
    for (int i = 0; i < 100; i++) {
        cr_assert(greet_begin(&c, &g, fd[i] = stranger("", 0), CONTROL, 1));
        cr_assert_eq(send(fd[i], &g.proof, 20, MSG_NOSIGNAL), 20);
    }
    struct world w;
    open_world(&w, 1, 2);
    close_world(&w);
    for (int i = 0; i < 100; i++)
        close(fd[i]);
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    cr_expect_geq(count(said_by(0), "it proved nothing\n"), 1, "%s", said_by(0));
    leave_room();
}

/* A forger in rank 0's place knows the words, but not the secret, and welcomes whoever calls. */
Test(tcp_meet, a_forger_of_rank_0, .timeout = 30) {
    new_room();
    int listener = bound_socket(port);
    cr_assert_eq(listen(listener, 5), 0);
    if (forked(0)) {
        const struct tcp c = {.size = 2, .secret = OTHER};
        struct caller w = {.fd = accept(listener, NULL, NULL)};
        MUST(recv(w.fd, &w.hello, sizeof w.hello, MSG_WAITALL) == sizeof w.hello);
        greet_answer(&c, &w, PROVE, 0);
        MUST(recv(w.fd, &w.proof, sizeof w.proof, MSG_WAITALL) == sizeof w.proof);
        greet_answer(&c, &w, WELCOME, 0);
        _exit(0);
    }
    setenv("PIANOLA_SECRET", SECRET, 1);
    expect_refused(1, 2, "whatever answers at 127.0.0.1, port %s, is not rank 0 of a program");
    cr_expect_eq(exit_of(0), 0, "%s", said_by(0));
    close(listener);
    leave_room();
}

/* The same where ranks call one another: the called rank 0 has forgotten the secret. */
Test(tcp_meet, the_second_door_asks_again, .timeout = 30) {
    struct world w;
    new_room();
    setenv("PIANOLA_SECRET", SECRET, 1);
    if (forked(1)) {
        meet_with_message(1, 2);
        _exit(0);
    }
    if (forked_until(0, 1)) {
        open_world(&w, 0, 2);
        ((struct tcp *)w.link)->secret = OTHER;
        prepare_and_part(&w, 0);
        _exit(0);
    }
    cr_expect_eq(exit_of(1), 1);
    cr_expect_eq(exit_of(0), 1);
    cr_expect(strstr(said_by(1), ": rank 0 has another secret than this rank 1: "), "%s", said_by(1));
    cr_expect(strstr(said_by(0), ": it calls itself rank 1, but has a different secret: "), "%s", said_by(0));
    leave_room();
}

/* This test plays rank 0: it drops the first call, as if there were no room, and accepts the second. */
Test(tcp_meet, a_call_that_is_dropped_is_made_again, .timeout = 30) {
    struct world w;
    char all[2];
    new_room();
    if (forked(1)) {
        meet_with_message(1, 2);
        _exit(0);
    }
    open_world(&w, 0, 2);
    struct tcp *c = w.link;
    w.all(w.link, "x", all, 1);
    w.all(w.link, "\1", all, 1); /* the collective of prepare */
    for (int call = 0; call < 2; call++) {
        struct caller k = {.fd = -1};
        for (int i = 0; k.fd < 0 && i < 5000; i++, sleep_ms(1))
            k.fd = accept(c->listener, NULL, NULL);
        cr_assert_geq(k.fd, 0, "call %d does not come", call);
        enum heard heard;
        while (call == 1 && (heard = greet_hear(c, &k)) != PROVED)
            cr_assert_eq(heard, MORE);
        if (call == 1)
            greet_answer(c, &k, WELCOME, 0);
        close(k.fd);
    }
    close_world(&w);
    expect_good_end(1);
    leave_room();
}

Test(tcp_meet, a_short_secret) {
    new_room();
    setenv("PIANOLA_SECRET", "15 characters..", 1);
    expect_refused(
        1, 2, "PIANOLA_SECRET has 15 characters, but needs 16: use the output of head -c 32 /dev/urandom | base64");
    setenv("PIANOLA_SECRET", "", 1);
    expect_refused(0, 2,
                   "PIANOLA_SECRET has 0 characters, but needs 16: use the output of head -c 32 /dev/urandom | base64");
    leave_room();
}

/* ---- names ---- */

Test(tcp_meet, a_name_that_nobody_knows, .timeout = 5) {
    struct launch how = {.rank = 1, .size = 2, .local = -1, .addr = "nowhere", .port = "1"};
    struct world w;
    char why[512] = "";
    cr_assert(!tcp_open(&w, &how, why, sizeof why));
    cr_expect_str_eq(why,
                     "MASTER_ADDR nowhere: Name or service not known: set it to an address of rank 0's machine, or "
                     "to a name that all ranks' machines can resolve");
}

Test(tcp_meet, a_name_that_is_late, .timeout = 30) {
    struct world w;
    char why[512] = "";
    new_room();
    if (forked(0))
        meet_and_part(0, 2);
    if (forked(1)) {
        struct launch how = launch_of(1, 2);
        how.addr = "later";
        MUST(tcp_open(&w, &how, why, sizeof why));
        close_world(&w);
        _exit(0);
    }
    expect_good_end(0);
    cr_expect_eq(exit_of(1), 0);
    cr_expect_str_eq(said_by(1),
                     "pianola: rank 1: MASTER_ADDR later: Temporary failure in name resolution: asking again\n");
    leave_room();
}
