/* The machine model's worst machine, wrapped around a rank's replay: it overwrites memory that a transport may not
 * touch, and delays everything. Linked with --wrap=replay_step into any program that trains on CPUs, over any
 * transport. Ranks as processes are compiled with PROCESSES, and also use --wrap=rank_main, which knows the groups.
 *
 * Before a RECV or a collective starts, nothing may write the tensors that it only writes, so they are overwritten as
 * it starts. Once a SEND, a RECV or a collective has ended, nothing else may read or write its operands. For a while
 * they are overwritten, must stay so, and then get their contents back. A late read gets NaN, which shows in the
 * trained weights; a late write ends the process. A seed gives the same delays in each run, but not the
 * same interleavings.
 *
 * If ORDERS names a folder, orders<rank> there gets a line for every message: its turn, number and kind, its start and
 * end in nanoseconds of the host's clock, whether its data reach other ranks, and whether theirs reach it. */
#include "process/comm_local.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 64, SCRIBBLE = 0xff }; /* as a float, NaN */

struct worst {
    const struct device *real;
    struct device device;  /* the real device with some functions replaced */
    bool *started, *ended; /* per instruction: in this pass of the step */
    int64_t pass;          /* counted like the replay's passes */
    int64_t *since;        /* per instruction: when it started */
    char *kept;
    FILE *orders;
    uint64_t random;
};
static struct worst all[RANKS];
static const int32_t *groups; /* NULL: all ranks are in this process */

void __real_replay_step(struct replay *re);
void __wrap_replay_step(struct replay *re);

static struct worst *self(const struct replay *re) { return &all[re->rank]; }
static const struct rt_rank *rank_of(const struct replay *re) { return &re->program->rank[re->rank]; }

static uint32_t below(struct worst *w, uint32_t n) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % n;
}

/* Sleeps mostly not at all, often briefly, rarely for as long as a job. */
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

/* An operand, as bytes of the rank's arena. */
struct range {
    int64_t at, bytes;
    bool only_written;
};
enum { MOST_RANGES = 3 };

static bool within(const struct range *a, const struct range *b) {
    return a->at >= b->at && a->at + a->bytes <= b->at + b->bytes;
}

static int64_t members(const struct replay *re, const struct rt_instr *x) {
    return groups ? group_of(groups, x->group, re->rank).n : re->program->msg[x->msg].n;
}

/* Lists a message's operands in out, and returns their number. If one lies in the other, only the rest of that other is
 * only written. */
static int operands(const struct replay *re, const struct rt_instr *x, struct range *out) {
    int n = 0;
    if (!is_group(x->op)) {
        out[n++] = (struct range){operand_at(x, ROLE_t), x->bytes, is_recv(x->op)};
        return n;
    }
    int64_t shards = members(re, x);
    bool gathers = x->op == OP_ALL_GATHER, scatters = x->op == OP_REDUCE_SCATTER;
    struct range src = {operand_at(x, ROLE_src), x->bytes * (scatters ? shards : 1), false};
    int to = x->at.w ? ROLE_w : x->at.y ? ROLE_y : ROLE_dw;
    struct range dst = {operand_at(x, to), x->bytes * (gathers ? shards : 1), to != ROLE_dw || x->first};
    bool from_piece = src.at >= 0 && dst.at >= 0 && within(&src, &dst);
    if (from_piece) {
        int64_t before = src.at - dst.at;
        out[n++] = (struct range){dst.at, before, dst.only_written};
        out[n++] = (struct range){src.at + src.bytes, dst.bytes - before - src.bytes, dst.only_written};
    }
    if (src.at >= 0)
        out[n++] = src;
    if (dst.at >= 0 && !from_piece && !(src.at >= 0 && within(&dst, &src)))
        out[n++] = dst;
    return n;
}

/* Returns whether a message in progress uses some of the bytes. Two SENDs may read one tensor at the same time. */
static bool shared(const struct worst *w, const struct replay *re, const struct range *range) {
    const struct rt_rank *k = rank_of(re);
    struct range other[MOST_RANGES];
    for (int32_t i = 0; i < k->nins; i++)
        for (int n = w->started[i] && !w->ended[i] ? operands(re, &k->ins[i], other) : 0; n > 0; n--)
            if (other[n - 1].at < range->at + range->bytes && range->at < other[n - 1].at + other[n - 1].bytes)
                return true;
    return false;
}

static void scribble_for_a_while(struct worst *w, const struct replay *re, const struct rt_instr *x,
                                 const struct range *range) {
    size_t n = (size_t)range->bytes;
    char *tensor = ((struct host_rank *)re->self)->arena + range->at;
    if (shared(w, re, range))
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
    struct range range[MOST_RANGES];
    int n = operands(re, x, range);
    if (w->pass != re->passes) {
        memset(w->started, 0, sizeof *w->started * (size_t)rank_of(re)->nins);
        memset(w->ended, 0, sizeof *w->ended * (size_t)rank_of(re)->nins);
        w->pass = re->passes;
    }
    if (!w->started[i]) {
        dawdle(w);
        for (int k = 0; k < n; k++)
            if (range[k].only_written)
                memset(((struct host_rank *)re->self)->arena + range[k].at, SCRIBBLE, (size_t)range[k].bytes);
        w->started[i] = true;
        w->since[i] = now();
    }
    if (!w->real->meet(re, x))
        return false;
    w->ended[i] = true;
    bool root = x->root == re->rank, reaches = is_send(x->op), reached = is_recv(x->op);
    if (is_group(x->op)) {
        reaches = !has_root(x->op) || root == (x->op == OP_BROADCAST);
        reached = !has_root(x->op) || root == (x->op == OP_REDUCE);
    }
    if (w->orders)
        fprintf(w->orders, "%lld %d %s %lld %lld %d %d\n", (long long)re->turn, x->msg, op_row(x->op)->name,
                (long long)w->since[i], (long long)now(), reaches, reached);
    for (int k = 0; k < n; k++)
        scribble_for_a_while(w, re, x, &range[k]);
    return true;
}

static void worst_launch(struct replay *re, const struct rt_instr *x) {
    dawdle(self(re));
    self(re)->real->launch(re, x);
}

/* Within one process, polls the other side's flag: a rank that sleeps until it is woken would not see a flag that comes
 * too early. */
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

/* Starts a training, at its first step. Memory of an earlier training in this process is not freed. */
static void begin(struct worst *w, const struct replay *re) {
    const struct rt_rank *k = rank_of(re);
    const char *seed = getenv("SCRIBBLES");
    *w = (struct worst){.real = re->device, .device = *re->device};
    w->device.meet = worst_meet;
    w->device.launch = worst_launch;
    w->device.idle = worst_idle;
    w->device.begin = w->device.end = NULL; /* ranks take no turns, so any of them may run at any time */
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
    __real_replay_step(re);
    if (w->orders)
        fflush(w->orders);
}

#ifdef PROCESSES
int __real_rank_main(int argc, char **argv, const struct rt_program *self);
int __wrap_rank_main(int argc, char **argv, const struct rt_program *self);

int __wrap_rank_main(int argc, char **argv, const struct rt_program *self) {
    groups = self->groups;
    return __real_rank_main(argc, argv, self);
}
#endif
