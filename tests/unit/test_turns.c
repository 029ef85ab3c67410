/* Ranks that are threads of one process: at most one runs on each core, the longest ready first, and no call of
 * turns_wake is lost. */
#include "process/turns.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { RANKS = 8, ROUNDS = 3000 };

struct rank {
    struct turns *turns;
    int rank;
    pthread_t thread;
};
static struct rank ranks[RANKS];
static _Atomic int running, most;
static _Atomic int given[RANKS]; /* tokens that each rank was given */

static void runs(void) {
    int now = atomic_fetch_add(&running, 1) + 1, old = atomic_load(&most);
    while (now > old && !atomic_compare_exchange_weak(&most, &old, now))
        ;
}
static void stops(void) { atomic_fetch_sub(&running, 1); }

/* Passes a token around: each rank gives the next one its token, and waits for its own. */
static void *pass_around(void *arg) {
    struct rank *me = arg;
    int next = (me->rank + 1) % RANKS;
    for (int round = 1; round <= ROUNDS; round++) {
        turns_begin(me->turns, me->rank);
        runs();
        atomic_fetch_add(&given[next], 1);
        turns_wake(me->turns, next);
        while (atomic_load(&given[me->rank]) < round) {
            stops();
            turns_wait(me->turns, me->rank);
            runs();
        }
        stops();
        turns_end(me->turns, me->rank);
    }
    return NULL;
}

static void start(struct turns *turns, int n, void *(*run)(void *)) {
    for (int r = 0; r < n; r++) {
        ranks[r] = (struct rank){.turns = turns, .rank = r};
        cr_assert_eq(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
    }
}

static void join(int n) {
    for (int r = 0; r < n; r++)
        pthread_join(ranks[r].thread, NULL);
}

/* Returns how many ranks ran at once. */
static int most_at_once(double cores) {
    struct turns *turns = turns_open(RANKS, cores);
    for (int r = 0; r < RANKS; r++)
        given[r] = 0;
    most = 0;
    start(turns, RANKS, pass_around);
    join(RANKS);
    turns_close(turns);
    return most;
}

Test(turns, as_many_as_cores, .timeout = 120) {
    cr_assert_eq(most_at_once(1), 1);
    cr_assert_eq(most_at_once(0.5), 1);
    int two = most_at_once(2), part = most_at_once(1.5);
    cr_assert(two <= 2 && part <= 2, "%d and %d ran at once", two, part);
    most_at_once(RANKS); /* they run freely */
}

Test(turns, woken_before_it_waits, .timeout = 30) {
    for (double cores = 0.5; cores < 4; cores += 2) {
        struct turns *turns = turns_open(2, cores);
        turns_begin(turns, 0);
        turns_wake(turns, 0);
        turns_wait(turns, 0); /* returns at once */
        turns_end(turns, 0);
        turns_close(turns);
    }
}

/* ---- the order ---- */

static int order[RANKS], ran;

/* Sleeps until woken, then notes its place. */
static void *sleep_once(void *arg) {
    struct rank *me = arg;
    turns_begin(me->turns, me->rank);
    if (me->rank > 0)
        turns_wait(me->turns, me->rank);
    order[ran++] = me->rank; /* there is one core, so only one rank is here at a time */
    if (me->rank == 0) {
        static const int woken[] = {3, 1, 4, 2};
        for (int i = 0; i < 4; i++)
            turns_wake(me->turns, woken[i]);
    }
    turns_end(me->turns, me->rank);
    return NULL;
}

Test(turns, longest_ready_first, .timeout = 60) {
    struct turns *turns = turns_open(5, 1);
    for (int r = 4; r >= 0; r--) { /* rank 0 begins last, when the others sleep */
        ranks[r] = (struct rank){.turns = turns, .rank = r};
        cr_assert_eq(pthread_create(&ranks[r].thread, NULL, sleep_once, &ranks[r]), 0);
        usleep(100000);
    }
    join(5);
    static const int expected[] = {0, 3, 1, 4, 2};
    cr_assert_eq(ran, 5);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(order[i], expected[i], "place %d: rank %d", i, order[i]);
    turns_close(turns);
}
