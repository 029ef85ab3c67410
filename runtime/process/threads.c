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
    int core;         /* where it ran when its last step began; -1: not known. Protected by threads.placing */
};
struct threads {
    int size, most;
    struct member *member;
    float *slot; /* [2][size][most]: members' contributions to a sum and to the next one, which some begin while others
                  * still read */
    pthread_barrier_t barrier;
    pthread_mutex_t placing;
    int on[CPU_SETSIZE]; /* ranks per core, as far as known. Protected by placing */
    cpu_set_t cores;     /* that the process may use; empty: not known */
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

static void set_core(struct member *me, int core) {
    if (me->core >= 0)
        me->threads->on[me->core]--;
    me->threads->on[core]++;
    me->core = core;
}

/* Moves a rank's thread to the core with the fewest ranks if its own has more than its share. Since 6.12, Linux may
 * wake a thread on the core where it last ran, even if another thread runs there and another core idles. Ranks that
 * wake each other in turn would then share one core for the whole training. The thread may move to other cores
 * afterwards. */
static void spread_rank(struct member *me) {
    struct threads *threads = me->threads;
    int cores = CPU_COUNT(&threads->cores), here = sched_getcpu(), best = here;
    if (cores < 2 || here < 0 || here >= CPU_SETSIZE)
        return;
    pthread_mutex_lock(&threads->placing);
    set_core(me, here);
    if (threads->on[here] > (threads->size + cores - 1) / cores)
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET(core, &threads->cores) && threads->on[core] < threads->on[best])
                best = core;
    set_core(me, best);
    pthread_mutex_unlock(&threads->placing);
    if (best == here)
        return;
    cpu_set_t there;
    CPU_ZERO(&there);
    CPU_SET(best, &there);
    sched_setaffinity(0, sizeof there, &there);
    sched_setaffinity(0, sizeof threads->cores, &threads->cores);
}

/* Begins a step's sum. Every step begins with it. */
static void sum_begin(void *link, float *x, int n) {
    struct member *me = link;
    spread_rank(me);
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
    pthread_mutex_init(&threads->placing, NULL);
    if (sched_getaffinity(0, sizeof threads->cores, &threads->cores) != 0)
        CPU_ZERO(&threads->cores);
    if (!threads->member || !threads->slot) {
        threads_close(threads);
        return NULL;
    }
    memset(threads->member, 0, sizeof *threads->member * (size_t)size);
    for (int r = 0; r < size; r++) {
        threads->member[r].threads = threads;
        threads->member[r].rank = r;
        threads->member[r].core = -1;
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
    pthread_mutex_destroy(&threads->placing);
    free(threads->member);
    free(threads->slot);
    free(threads);
}
