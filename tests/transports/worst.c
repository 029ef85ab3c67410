/* The machine model's worst machine, around a rank's replay: what a transport may not touch is scribbled over, and
 * everything takes its time. Linked with --wrap=replay_step into whatever trains on CPUs, over any transport.
 *
 * Before a RECV starts, nobody may have written its tensor: it is scribbled over as the RECV starts. Once a SEND, a
 * RECV or a ALL_REDUCE has ended, nobody else may read or write its tensor: for a while that is scribbled over, must
 * stay so, and then gets back what it held. Who reads too late reads NaN, and the trained weights show it; who writes
 * too late ends the process. The scribbles of a seed are the same in each run, the moments they meet are not.
 *
 * Where ORDERS names a folder, orders<rank> there gets a line for every message: step, number, what it is, and its
 * start and end in nanoseconds of the host's clock. */
#include "process/comm_local.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 64, SCRIBBLE = 0xff }; /* floats of it are NaN */

struct worst {
    const struct device *real;
    struct device device;  /* the real one, but for what is below */
    bool *started, *ended; /* per instruction: in this step */
    int64_t *since;        /* per instruction: when it started */
    char *kept;
    FILE *orders;
    uint64_t random;
};
static struct worst all[RANKS];

void __real_replay_step(struct replay *re);
void __wrap_replay_step(struct replay *re);

static struct worst *self(const struct replay *re) { return &all[re->rank]; }
static const struct rt_rank *rank_of(const struct replay *re) { return &re->program->rank[re->rank]; }

static uint32_t below(struct worst *w, uint32_t n) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % n;
}

/* Mostly not at all, often shortly, seldom for as long as a job takes. */
static void dawdle(struct worst *w) {
    uint32_t kind = below(w, 16), most = kind < 10 ? 0 : kind < 15 ? 100000 : 2000000;
    if (most)
        nanosleep(&(struct timespec){0, below(w, most)}, NULL);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t offset(const struct rt_instr *x) { return x->at[x->op == OP_ALL_REDUCE ? ROLE_dw : ROLE_t]; }

/* Does a message that is under way have some of the tensor's bytes? Two SENDs may read one tensor side by side. */
static bool shared(const struct worst *w, const struct rt_rank *k, const struct rt_instr *x) {
    for (int32_t i = 0; i < k->nins; i++) {
        const struct rt_instr *y = &k->ins[i];
        if (w->started[i] && !w->ended[i] && offset(y) < offset(x) + x->bytes && offset(x) < offset(y) + y->bytes)
            return true;
    }
    return false;
}

static void scribble_for_a_while(struct worst *w, const struct replay *re, const struct rt_instr *x, char *tensor) {
    size_t n = (size_t)x->bytes;
    if (shared(w, rank_of(re), x))
        return;
    memcpy(w->kept, tensor, n);
    memset(tensor, SCRIBBLE, n);
    dawdle(w);
    for (size_t i = 0; i < n; i++)
        if (((volatile unsigned char *)tensor)[i] != SCRIBBLE) {
            fprintf(stderr, "rank %d: %s %d %d has ended, and byte %zu of %zu is still written\n", re->rank,
                    op_row(x->op)->name, x->stage, x->batch, i, n);
            _Exit(3);
        }
    memcpy(tensor, w->kept, n);
}

static bool worst_meet(struct replay *re, const struct rt_instr *x) {
    struct worst *w = self(re);
    int32_t i = (int32_t)(x - rank_of(re)->ins);
    char *tensor = ((struct host_rank *)re->self)->arena + offset(x);
    if (!w->started[i]) {
        dawdle(w);
        if (is_recv(x->op))
            memset(tensor, SCRIBBLE, (size_t)x->bytes);
        w->started[i] = true;
        w->since[i] = now();
    }
    if (!w->real->meet(re, x))
        return false;
    w->ended[i] = true;
    if (w->orders)
        fprintf(w->orders, "%lld %d %s %lld %lld\n", (long long)re->step, x->msg, op_row(x->op)->name,
                (long long)w->since[i], (long long)now());
    scribble_for_a_while(w, re, x, tensor);
    return true;
}

static void worst_launch(struct replay *re, const struct rt_instr *x) {
    dawdle(self(re));
    self(re)->real->launch(re, x);
}

/* In one process the other side's flag is looked at again and again: a rank that sleeps until it is woken would not see
 * one that comes too early. */
static void worst_idle(struct replay *re) {
    if (((struct host_rank *)re->self)->transport == &host_local)
        sched_yield();
    else
        self(re)->real->idle(re);
}

static void *take(size_t n, size_t size) {
    void *p = calloc(n + 1, size);
    if (!p)
        abort();
    return p;
}

static FILE *open_orders(const struct replay *re) {
    const char *folder = getenv("ORDERS");
    char path[512];
    if (!folder)
        return NULL;
    snprintf(path, sizeof path, "%s/orders%d", folder, re->rank);
    FILE *f = fopen(path, "a");
    if (!f)
        abort();
    return f;
}

/* A training's first step. What was taken for an earlier one in this process is the process's to give back. */
static void begin(struct worst *w, const struct replay *re) {
    const struct rt_rank *k = rank_of(re);
    const char *seed = getenv("SCRIBBLES");
    *w = (struct worst){.real = re->device, .device = *re->device};
    w->device.meet = worst_meet;
    w->device.launch = worst_launch;
    w->device.idle = worst_idle;
    w->started = take((size_t)k->nins, sizeof *w->started);
    w->ended = take((size_t)k->nins, sizeof *w->ended);
    w->since = take((size_t)k->nins, sizeof *w->since);
    w->kept = take((size_t)k->arena, 1);
    w->orders = open_orders(re);
    w->random = (seed ? strtoull(seed, NULL, 10) : 1) * RANKS + (uint64_t)re->rank;
}

void __wrap_replay_step(struct replay *re) {
    struct worst *w = self(re);
    if (re->rank >= RANKS)
        abort();
    if (re->device != &w->device) {
        begin(w, re);
        re->device = &w->device;
    }
    memset(w->started, 0, sizeof *w->started * (size_t)rank_of(re)->nins);
    memset(w->ended, 0, sizeof *w->ended * (size_t)rank_of(re)->nins);
    __real_replay_step(re);
    if (w->orders)
        fflush(w->orders);
}
