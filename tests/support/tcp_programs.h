/* Runs programs on ranks over TCP, and on threads of one process. */
#ifndef PIANOLA_TCP_PROGRAMS_H
#define PIANOLA_TCP_PROGRAMS_H
#include "layers/host.h"
#include "process/comm_local.h"
#include "tcp_ranks.h"
#include <pthread.h>
#include <sys/mman.h>

enum { STEPS = 3 };

/* Starts ranks 1 and up as processes, and rank 0 in this one, where leaks are detected. Rank 0 has no watch thread: a
 * process with threads cannot fork safely. */
static inline void run_ranks(int size, void (*body)(int rank, int size, void *with), void *with) {
    for (int r = 1; r < size; r++)
        if (forked(r)) {
            body(r, size, with);
            _exit(0);
        }
    body(0, size, with);
    for (int r = 1; r < size; r++)
        expect_good_end(r);
}

static inline void *shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(p, MAP_FAILED);
    return p;
}

static inline uint64_t noise(int rank, int call, int64_t i) {
    return host_hash((uint64_t)rank * 1000 + (uint64_t)call, (uint64_t)i);
}
static inline float noisy(int rank, int call, int64_t i) {
    return (float)(noise(rank, call, i) % 100000) * 0.0137f - 600;
}

static inline void begin_sum(struct world *w, int call, float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = noisy(w->rank, call, i);
    w->sum_begin(w->link, x, n);
}

static inline void end_sum(struct world *w, int call, const float *x, int n) {
    w->sum_end(w->link);
    for (int i = 0; i < n; i++) {
        float sum = noisy(0, call, i);
        for (int r = 1; r < w->size; r++)
            sum += noisy(r, call, i);
        MUST(memcmp(&sum, &x[i], 4) == 0);
    }
}

struct run {
    struct rt_program *p;
    const struct data *data; /* NULL: no jobs */
    const int32_t *groups;
    char **arena; /* shared; input and result */
    float *loss;  /* [steps][batches], shared */
    int late;     /* milliseconds by which all ranks but 0 are late */
};

/* Replays as rank_main.c does. */
static inline void replay(int rank, int size, void *with) {
    struct run *run = with;
    const struct rt_rank *k = &run->p->rank[rank];
    struct world w;
    struct replay re;
    struct host_rank h = {.data = run->data};
    float pulse[3];
    open_world(&w, rank, size);
    h.transport = w.transport;
    h.link = w.link;
    MUST(host_take(&re, &h, run->p, rank));
    memcpy(h.arena, run->arena[rank], (size_t)k->arena);
    MUST(w.prepare(w.link, k, run->p->nmsgs, run->groups, h.arena));
    for (re.step = 0; re.step < STEPS; re.step++) {
        if (rank > 0 && run->late)
            sleep_ms(run->late);
        h.loss = run->loss + re.step * run->p->batches;
        if (rank > 0)
            watch_step(&re, re.step);
        begin_sum(&w, (int)re.step, pulse, 3);
        replay_step(&re);
        end_sum(&w, (int)re.step, pulse, 3);
    }
    memcpy(run->arena[rank], h.arena, (size_t)k->arena);
    close_world(&w);
    free(h.arena);
    host_release(&re, &h);
}

static inline void spawn(struct run *run) {
    groups_of_program = run->groups;
    new_room();
    run_ranks(run->p->workers, replay, run);
    leave_room();
}

struct thread {
    struct replay re;
    struct host_rank h;
    pthread_t id;
};

static inline void *in_thread(void *arg) {
    struct thread *t = arg;
    for (t->re.step = 0; t->re.step < STEPS; t->re.step++)
        replay_step(&t->re);
    return NULL;
}

/* Runs all ranks in one process. arena: input and result. */
static inline void run_threads(const struct rt_program *p, char *const *arena) {
    struct thread t[MOST];
    char *at[MOST];
    struct local *local = local_open(p);
    for (int r = 0; r < p->workers; r++) {
        t[r].h = (struct host_rank){.transport = &host_local};
        cr_assert(host_take(&t[r].re, &t[r].h, p, r));
        at[r] = t[r].h.arena;
        memcpy(at[r], arena[r], (size_t)p->rank[r].arena);
        local_prepare(local, &p->rank[r], 0, NULL, at[r]);
    }
    for (int r = 0; r < p->workers; r++) {
        t[r].h.link = local;
        cr_assert_eq(pthread_create(&t[r].id, NULL, in_thread, &t[r]), 0);
    }
    for (int r = 0; r < p->workers; r++)
        pthread_join(t[r].id, NULL);
    for (int r = 0; r < p->workers; r++) {
        memcpy(arena[r], at[r], (size_t)p->rank[r].arena);
        host_release(&t[r].re, &t[r].h);
        free(at[r]);
    }
    local_close(local);
}
#endif
