/* Every collective of ops.h, among threads and over TCP, against its definition. Groups have 2 to 7 members in any
 * order, with two lanes of a group at once, in place or not, written or added, of no bytes, odd sizes, or several
 * pieces. */
#include "hand_collectives.h"
#include "tcp_programs.h"

static void expect_arenas(const struct hand *h, char *const *got, char *const *wanted, const char *over) {
    for (int m = 0; m < h->program.nmsgs; m++)
        for (int i = 0; i < h->meeting[m].n; i++) {
            int r = h->member[m][i], op = 0;
            for (int k = 0; k < h->rank[r].nins; k++)
                op = h->ins[r][k].msg == m ? (int)h->ins[r][k].op : op;
            int64_t at = h->to[m][i], n = h->meeting[m].bytes;
            cr_expect(at < 0 || !memcmp(got[r] + at, wanted[r] + at, (size_t)n), "%s: %s of %d, %d bytes, member %d",
                      over, op_row(op)->name, h->meeting[m].n, (int)n, i);
        }
    for (int r = 0; r < h->program.workers; r++)
        cr_expect(!memcmp(got[r], wanted[r], (size_t)h->rank[r].arena), "%s: arenas of rank %d differ", over, r);
}

static void expect_all(uint64_t seed, int workers, bool whole) {
    static struct hand hand;
    struct hand *h = &hand;
    char *wanted[HAND_RANKS], *threads[HAND_RANKS], *tcp[HAND_RANKS];
    float loss[HAND_STEPS];
    cr_assert_eq(HAND_STEPS, STEPS);
    hand_make(h, seed, workers, FP32);
    for (int r = 0; r < workers; r++) {
        size_t n = (size_t)h->rank[r].arena + 1;
        wanted[r] = shared(n), threads[r] = shared(n), tcp[r] = shared(n);
        hand_fill(h, wanted[r], h->rank[r].arena, r, whole);
    }
    for (int r = 0; r < workers; r++) {
        memcpy(threads[r], wanted[r], (size_t)h->rank[r].arena);
        memcpy(tcp[r], wanted[r], (size_t)h->rank[r].arena);
    }
    run_threads(&h->program, threads);
    struct run run = {.p = &h->program, .groups = h->groups, .arena = tcp, .loss = loss};
    spawn(&run);
    char *before[HAND_RANKS];
    for (int r = 0; r < workers; r++)
        before[r] = shared((size_t)h->rank[r].arena + 1);
    hand_expect(h, wanted, before);
    expect_arenas(h, threads, wanted, "threads");
    expect_arenas(h, tcp, wanted, "TCP");
    for (int r = 0; r < workers; r++) {
        size_t n = (size_t)h->rank[r].arena + 1;
        munmap(wanted[r], n), munmap(threads[r], n), munmap(tcp[r], n), munmap(before[r], n);
    }
}

Test(collectives, whole_numbers, .timeout = 60) {
    for (int workers = 2; workers <= HAND_RANKS; workers++)
        for (uint64_t seed = 0; seed < 2; seed++)
            expect_all(seed * 100 + (uint64_t)workers, workers, true);
}

Test(collectives, sums_in_the_order_of_members, .timeout = 60) {
    for (int workers = 3; workers <= HAND_RANKS; workers += 2)
        expect_all((uint64_t)workers + 50, workers, false);
}

/* Rings and chains connect neighbours only; a rank that sends to every other member has a connection with each. */
Test(collectives, members_meet_whom_they_have_to) {
    static const struct {
        int op, most;
    } wanted[] = {{OP_ALL_GATHER, 2},   {OP_BROADCAST, 2},      {OP_ALL_REDUCE, 2},
                  {OP_REDUCE, 3},       {OP_REDUCE_SCATTER, 6}, {OP_ALL_TO_ALL_A, 6},
                  {OP_ALL_REDUCE_A, 2}, {OP_ALL_GATHER_A, 2},   {OP_REDUCE_SCATTER_A, 6}};
    static const int32_t member[] = {4, 2, 9, 1, 0, 7, 3, -1};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (int root = 0; root < 7; root++) {
            bool meets[7][7] = {{false}};
            struct rt_instr x = {.op = (enum op)wanted[i].op, .root = member[root]};
            for (int me = 0; me < 7; me++)
                collective_peers(&x, &(struct rt_group){member, 7, me}, meets[me]);
            for (int a = 0; a < 7; a++) {
                int n = 0;
                for (int b = 0; b < 7; b++) {
                    n += meets[a][b];
                    cr_expect(meets[a][b] == meets[b][a] && !meets[a][a]);
                }
                cr_expect(n >= 1 && n <= wanted[i].most, "%s: member %d meets %d", op_row(x.op)->name, a, n);
            }
        }
}

Test(collectives, a_group_has_three_lanes) {
    const struct rt_instr gather = {.op = OP_ALL_GATHER, .group = 3}, reduce = {.op = OP_ALL_REDUCE, .group = 3},
                          exchange = {.op = OP_ALL_TO_ALL_A, .group = 3},
                          scatter = {.op = OP_REDUCE_SCATTER, .group = 3}, other = {.op = OP_ALL_GATHER, .group = 2};
    cr_expect_eq(collective_channel(&reduce), collective_channel(&scatter));
    cr_expect_neq(collective_channel(&reduce), collective_channel(&gather));
    cr_expect_neq(collective_channel(&exchange), collective_channel(&gather));
    cr_expect_neq(collective_channel(&exchange), collective_channel(&reduce));
    cr_expect_neq(collective_channel(&other), collective_channel(&exchange));
    cr_expect_neq(collective_channel(&other), collective_channel(&gather));
    cr_expect_neq(collective_channel(&other), collective_channel(&reduce));
}

Test(collectives, the_watch_names_who_takes_part) {
    static const int32_t groups[] = {0, 1, -1, 4, 2, 3, -1, -1};
    static const struct {
        int op, root;
        const char *name;
    } wanted[] = {{OP_ALL_GATHER, -1, "ALL_GATHER weight(5) with ranks 4,2,3"},
                  {OP_BROADCAST, 2, "BROADCAST weight(5) from rank 2 with ranks 4,2,3"},
                  {OP_ALL_REDUCE, -1, "ALL_REDUCE wgrad(5) with ranks 4,2,3"},
                  {OP_REDUCE_SCATTER, -1, "REDUCE_SCATTER wgrad(5) with ranks 4,2,3"},
                  {OP_REDUCE, 3, "REDUCE wgrad(5) to rank 3 with ranks 4,2,3"},
                  {OP_ALL_TO_ALL_A, -1, "ALL_TO_ALL_A mid(5) with ranks 4,2,3"}};
    const struct rt_stage stage[] = {{.number = 0}, {.number = 1}, {.number = 2},
                                     {.number = 3}, {.number = 4}, {.number = 5}};
    const struct rt_model model = {.slices = 0};
    const struct rt_program p = {.model = &model, .stage = stage};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct rt_instr x = {.op = (enum op)wanted[i].op, .stage = 5, .batch = -1, .group = 1, .root = wanted[i].root};
        char name[128];
        instr_name(name, sizeof name, &p, &x, groups);
        cr_expect_str_eq(name, wanted[i].name);
    }
}
