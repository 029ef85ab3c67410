#include "threads.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct member {
    _Alignas(64) _Atomic int64_t begun; /* number of sums begun */
    struct threads *threads;
    int rank;
    int64_t ended; /* number of sums ended; like the fields below, only the rank itself reads it */
    float *x;
    int n;
    const void *mine; /* its contribution to `all` */
};
struct threads {
    int size, most;
    struct member *member;
    float *slot; /* [2][size][most]: members' contributions to a sum and to the next one, which some begin while others
                  * still read */
    pthread_barrier_t barrier;
};

static void threads_gather(void *link, const void *mine, void *all, size_t bytes) {
    struct member *me = link;
    struct threads *threads = me->threads;
    me->mine = mine;
    pthread_barrier_wait(&threads->barrier);
    for (int r = 0; r < threads->size; r++)
        memcpy((char *)all + (size_t)r * bytes, threads->member[r].mine, bytes);
    pthread_barrier_wait(&threads->barrier);
}

static float *slot_of_member(const struct member *me, int rank) {
    const struct threads *threads = me->threads;
    return threads->slot + (size_t)(me->ended % 2 * threads->size + rank) * (size_t)threads->most;
}

static void sum_begin(void *link, float *x, int n) {
    struct member *me = link;
    me->x = x;
    me->n = n;
    memcpy(slot_of_member(me, me->rank), x, sizeof *x * (size_t)n);
    atomic_store(&me->begun, me->ended + 1);
}

static bool has_come(const struct member *me, int rank) {
    return atomic_load(&me->threads->member[rank].begun) > me->ended;
}

/* Adds up all contributions, once all have come, in rank order: the result has the same bits on all ranks. */
static void add_up(struct member *me) {
    for (int r = 0; r < me->threads->size; r++) {
        const float *slot = slot_of_member(me, r);
        for (int i = 0; i < me->n; i++)
            me->x[i] = r == 0 ? slot[i] : me->x[i] + slot[i];
    }
    me->ended++;
}

static bool is_under_way(const struct member *me) { return atomic_load(&me->begun) > me->ended; }

static bool threads_progress(void *link) {
    struct member *me = link;
    for (int r = 0; r < me->threads->size && is_under_way(me); r++)
        if (!has_come(me, r))
            return false;
    if (is_under_way(me))
        add_up(me);
    return true;
}

static void sum_end(void *link) {
    struct member *me = link;
    const struct timespec nap = {0, 50000};
    for (int tries = 0; !threads_progress(me); tries++)
        tries < 100 ? (void)sched_yield() : (void)nanosleep(&nap, NULL);
}

/* Waits for all ranks, so that none ends the process before rank 0 has reported why. */
static void leave(void *link) {
    const struct member *me = link;
    pthread_barrier_wait(&me->threads->barrier);
}

struct threads *threads_open(int size, int most) {
    struct threads *threads = calloc(1, sizeof *threads);
    if (!threads)
        return NULL;
    *threads = (struct threads){.size = size, .most = most};
    threads->member = aligned_alloc(64, sizeof *threads->member * (size_t)size);
    threads->slot = calloc(2 * (size_t)size * (size_t)most, sizeof *threads->slot);
    pthread_barrier_init(&threads->barrier, NULL, (unsigned)size);
    if (!threads->member || !threads->slot) {
        threads_close(threads);
        return NULL;
    }
    memset(threads->member, 0, sizeof *threads->member * (size_t)size);
    for (int r = 0; r < size; r++) {
        threads->member[r].threads = threads;
        threads->member[r].rank = r;
    }
    return threads;
}

struct world threads_world(struct threads *threads, int rank, const struct rt_program *self) {
    struct world world = {.self = self, .rank = rank, .size = threads->size, .link = &threads->member[rank]};
    world.all = threads_gather;
    world.sum_begin = sum_begin;
    world.sum_end = sum_end;
    world.progress = threads_progress;
    world.close = leave;
    return world;
}

void threads_close(struct threads *threads) {
    pthread_barrier_destroy(&threads->barrier);
    free(threads->member);
    free(threads->slot);
    free(threads);
}
