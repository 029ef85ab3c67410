#include "turns.h"
#include "store/seconds.h"
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ANY = -1 };                  /* a core that the system chooses */
static const double LONGEST = 1e-4; /* seconds; a handoff that takes longer waited for another program */

struct seat {                      /* of a rank */
    _Alignas(64) _Atomic int rung; /* number of calls of turns_wake */
    _Atomic int asleep;            /* turns_wake must make it ready */
    _Atomic uint32_t granted;      /* it has its turn */
    int heard;                     /* `rung` when it last began to try its lanes; only the rank itself uses it */
    int core;                      /* where it runs, or ran last. Protected by the lock, like all below */
    bool moves;                    /* the core has changed */
    double since;                  /* when it got its turn */
    double handoff, turns; /* seconds from then until it ran, and the number of turns; only the rank uses them */
    pid_t thread;
};
struct turns {
    int ranks;
    bool shared; /* there are more ranks than cores */
    cpu_set_t may;
    struct seat *seat;
    pthread_mutex_t lock;
    int *core, idle;           /* core[0 .. idle): cores that no rank has */
    int *ready, first, nready; /* a ring of ranks that wait for a core, longest first, and how many do */
    int *on;                   /* ranks per core; used if every rank has one */
};

/* ---- cores ---- */

/* Returns the CPU time that the control group may use per second; INFINITY: no limit. */
static double group_limit(void) {
    double quota, period, limit = INFINITY;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f && fscanf(f, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
        limit = quota / period;
    if (f)
        fclose(f);
    return limit;
}

double usable_cores(void) {
    cpu_set_t set;
    bool known = sched_getaffinity(0, sizeof set, &set) == 0; /* fails on more than 1024 processors */
    double cores = known ? (double)CPU_COUNT(&set) : (double)sysconf(_SC_NPROCESSORS_ONLN);
    return fmin(cores, group_limit());
}

static void move_to(pid_t thread, int core) {
    cpu_set_t there;
    if (core == ANY)
        return;
    CPU_ZERO(&there);
    CPU_SET((unsigned)core, &there);
    sched_setaffinity(thread, sizeof there, &there); /* if it fails, the system chooses */
}

/* Lists n cores: all that the process may use. If it may use others as well, as under a control group's limit, the
 * system chooses where ranks run, because other programs with such limits would take the same cores. */
static void list_cores(struct turns *turns, int n) {
    int last = CPU_COUNT(&turns->may) == n ? CPU_SETSIZE : 0;
    for (int core = 0; core < last && turns->idle < n; core++)
        if (CPU_ISSET((unsigned)core, &turns->may))
            turns->core[turns->idle++] = core;
    while (turns->idle < n)
        turns->core[turns->idle++] = ANY;
}

struct turns *turns_open(int ranks, double cores) {
    struct turns *turns = calloc(1, sizeof *turns);
    if (!turns)
        return NULL;
    turns->ranks = ranks;
    turns->shared = cores < ranks;
    int n = turns->shared ? (int)fmax(1, ceil(cores)) : 0;
    if (sched_getaffinity(0, sizeof turns->may, &turns->may) != 0)
        CPU_ZERO(&turns->may);
    pthread_mutex_init(&turns->lock, NULL);
    turns->seat = aligned_alloc(64, sizeof *turns->seat * (size_t)ranks);
    turns->core = calloc((size_t)n + 1, sizeof *turns->core);
    turns->ready = calloc((size_t)ranks, sizeof *turns->ready);
    turns->on = calloc(CPU_SETSIZE, sizeof *turns->on);
    if (!turns->seat || !turns->core || !turns->ready || !turns->on) {
        turns_close(turns);
        return NULL;
    }
    memset(turns->seat, 0, sizeof *turns->seat * (size_t)ranks);
    for (int r = 0; r < ranks; r++)
        turns->seat[r].core = ANY;
    list_cores(turns, n);
    return turns;
}

void turns_close(struct turns *turns) {
    pthread_mutex_destroy(&turns->lock);
    free(turns->seat);
    free(turns->core);
    free(turns->ready);
    free(turns->on);
    free(turns);
}

/* Counts a rank where it runs. */
static void count_on(struct turns *turns, struct seat *seat, int core) {
    if (seat->core >= 0)
        turns->on[seat->core]--;
    turns->on[core]++;
    seat->core = core;
}

/* Moves a rank's thread to a core that no other rank has, if its own has two. Since 6.12, Linux may wake a thread on
 * the core where it last ran, even if another thread runs there and another core idles. Ranks that wake each other in
 * turn would then share one core for the whole training. The thread may move to other cores afterwards. */
static void spread_out(struct turns *turns, int rank) {
    int here = sched_getcpu(), best = here;
    if (CPU_COUNT(&turns->may) < 2 || here < 0 || here >= CPU_SETSIZE)
        return;
    pthread_mutex_lock(&turns->lock);
    count_on(turns, &turns->seat[rank], here);
    for (int core = 0; core < CPU_SETSIZE && turns->on[here] > 1; core++)
        if (CPU_ISSET((unsigned)core, &turns->may) && turns->on[core] < turns->on[best])
            best = core;
    count_on(turns, &turns->seat[rank], best);
    pthread_mutex_unlock(&turns->lock);
    if (best == here)
        return;
    move_to(0, best);
    sched_setaffinity(0, sizeof turns->may, &turns->may);
}

/* ---- turns; the lock is held ---- */

static struct seat *grant(struct turns *turns, int rank, int core) {
    struct seat *seat = &turns->seat[rank];
    seat->moves = seat->core != core;
    seat->core = core;
    return seat;
}

/* Gives a rank its turn, or queues it. Returns the rank's seat if it has its turn: rouse it without the lock. */
static struct seat *get_ready(struct turns *turns, int rank) {
    if (!turns->shared)
        return grant(turns, rank, turns->seat[rank].core);
    if (turns->idle > 0)
        return grant(turns, rank, turns->core[--turns->idle]);
    turns->ready[(turns->first + turns->nready++) % turns->ranks] = rank;
    return NULL;
}

/* Gives a core to the rank that has been ready for the longest time. Returns its seat: rouse it without the lock. */
static struct seat *pass_on(struct turns *turns, int core) {
    if (!turns->shared)
        return NULL;
    if (turns->nready == 0) {
        turns->core[turns->idle++] = core;
        return NULL;
    }
    int next = turns->ready[turns->first];
    turns->first = (turns->first + 1) % turns->ranks;
    turns->nready--;
    return grant(turns, next, core);
}

/* ---- without the lock ---- */

/* Wakes a rank that has its turn. The thread may run at once, on this core: so the lock must be free. */
static void rouse(struct seat *seat) {
    if (!seat)
        return;
    seat->since = seconds();
    if (seat->moves)
        move_to(seat->thread, seat->core);
    atomic_store(&seat->granted, 1);
    syscall(SYS_futex, &seat->granted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void sleep_until_granted(struct seat *seat) {
    while (!atomic_load(&seat->granted))
        syscall(SYS_futex, &seat->granted, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    atomic_store(&seat->granted, 0);
    double took = seconds() - seat->since;
    if (took > LONGEST)
        return;
    seat->handoff += took;
    seat->turns++;
}

void turns_begin(struct turns *turns, int rank) {
    struct seat *seat = &turns->seat[rank];
    if (!turns->shared) {
        spread_out(turns, rank);
        return;
    }
    pthread_mutex_lock(&turns->lock);
    seat->thread = (pid_t)syscall(SYS_gettid);
    struct seat *now = get_ready(turns, rank);
    pthread_mutex_unlock(&turns->lock);
    rouse(now);
    sleep_until_granted(seat);
}

void turns_end(struct turns *turns, int rank) {
    pthread_mutex_lock(&turns->lock);
    struct seat *next = pass_on(turns, turns->seat[rank].core);
    pthread_mutex_unlock(&turns->lock);
    rouse(next);
}

void turns_wait(struct turns *turns, int rank) {
    struct seat *seat = &turns->seat[rank], *next = NULL;
    pthread_mutex_lock(&turns->lock);
    atomic_store(&seat->asleep, 1);
    bool sleeps = atomic_load(&seat->rung) == seat->heard;
    if (sleeps)
        next = pass_on(turns, seat->core);
    else
        atomic_store(&seat->asleep, 0);
    pthread_mutex_unlock(&turns->lock);
    rouse(next);
    if (sleeps)
        sleep_until_granted(seat);
    seat->heard = atomic_load(&seat->rung);
}

void turns_wake(struct turns *turns, int rank) {
    struct seat *seat = &turns->seat[rank];
    atomic_fetch_add(&seat->rung, 1);
    if (!atomic_load(&seat->asleep))
        return;
    pthread_mutex_lock(&turns->lock);
    struct seat *now = atomic_exchange(&seat->asleep, 0) ? get_ready(turns, rank) : NULL;
    pthread_mutex_unlock(&turns->lock);
    rouse(now);
}

double turns_handoff(const struct turns *turns) {
    double handoff = 0, n = 0;
    for (int r = 0; r < turns->ranks; r++) {
        handoff += turns->seat[r].handoff;
        n += turns->seat[r].turns;
    }
    return n > 0 ? handoff / n : 0;
}
