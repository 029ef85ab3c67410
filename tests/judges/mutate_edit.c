/* Edits that keep a program well-formed: instructions refer to each other by index, so waits follow those that move. */
#include "mutate_parts.h"
#include <string.h>

static void *copy(const void *from, size_t n, size_t size) {
    return n ? memcpy(alloc((n + 1) * size), from, n * size) : alloc(size);
}
#define COPY(from, n) copy(from, (size_t)(n), sizeof *(from))

struct program *copy_program(const struct program *p) {
    struct program *q = COPY(p, 1);
    q->rank = COPY(p->rank, p->workers);
    q->group = COPY(p->group, p->ngroups);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &q->rank[r];
        k->ins = COPY(k->ins, k->nins);
        k->lane = COPY(k->lane, k->nlanes);
        k->buf = COPY(k->buf, k->nbufs);
        k->arg = COPY(k->arg, k->nargs);
        k->wait = COPY(k->wait, k->nwaits);
        k->freed = COPY(k->freed, k->nfrees);
        k->event = k->over = k->over_at = NULL; /* notes between passes, which no run uses */
        k->nevents = 0;
    }
    return q;
}

/* ---- edits ---- */

/* Reorders instructions: number k of the new order is old[order[k]], -1 being `extra`. Drops waits for deleted ones. */
static void reorder(struct rank *k, const int32_t *order, int n, struct instr extra) {
    int32_t *now = NEW(int32_t, k->nins + 1);
    struct instr *ins = NEW(struct instr, n);
    memset(now, -1, sizeof *now * ((size_t)k->nins + 1));
    for (int i = 0; i < n; i++) {
        ins[i] = order[i] < 0 ? extra : k->ins[order[i]];
        if (order[i] >= 0)
            now[order[i]] = i;
    }
    int32_t *wait = NEW(int32_t, k->nwaits + 1 + (size_t)extra.nwait);
    size_t nwaits = 0;
    for (int i = 0; i < n; i++) {
        uint32_t from = ins[i].wait, to = from + ins[i].nwait;
        ins[i].wait = (uint32_t)nwaits;
        for (; from < to; from++)
            if (now[k->wait[from]] >= 0)
                wait[nwaits++] = now[k->wait[from]];
        ins[i].nwait = (uint16_t)(nwaits - ins[i].wait);
    }
    k->wait = wait;
    k->nwaits = nwaits;
    k->ins = ins;
    k->nins = n;
}

void move_to(struct rank *k, int from, int to) {
    int32_t *order = NEW(int32_t, k->nins);
    for (int i = 0, old = 0; i < k->nins; i++)
        order[i] = i == to ? from : (old += old == from, old++);
    reorder(k, order, k->nins, k->ins[0]);
}

void exchange(struct rank *k, int i, int j) {
    int32_t *order = NEW(int32_t, k->nins);
    for (int n = 0; n < k->nins; n++)
        order[n] = n == i ? j : n == j ? i : n;
    reorder(k, order, k->nins, k->ins[0]);
}

void remove_at(struct rank *k, int at) {
    int32_t *order = NEW(int32_t, k->nins);
    for (int i = 0; i < k->nins - 1; i++)
        order[i] = i + (i >= at);
    k->period.begin -= at < k->period.begin; /* marks stay with their neighbours */
    k->period.end -= at < k->period.end;
    reorder(k, order, k->nins - 1, k->ins[0]);
}

void insert_at(struct rank *k, int at, struct instr x) {
    int32_t *order = NEW(int32_t, k->nins + 1);
    for (int i = 0; i <= k->nins; i++)
        order[i] = i == at ? -1 : i - (i > at);
    k->period.begin += at < k->period.begin;
    k->period.end += at < k->period.end;
    reorder(k, order, k->nins + 1, x);
}

/* Replaces the instruction's waits with the list. */
void set_waits(struct rank *k, struct instr *x, const int32_t *list, int n) {
    int32_t *wait = NEW(int32_t, k->nwaits + (size_t)n);
    memcpy(wait, k->wait, sizeof *wait * k->nwaits);
    for (int i = 0; i < n; i++)
        wait[k->nwaits + (size_t)i] = list[i];
    k->wait = wait;
    x->wait = (uint32_t)k->nwaits;
    x->nwait = (uint16_t)n;
    k->nwaits += (size_t)n;
}

void set_frees(struct rank *k, struct instr *x, const int32_t *list, int n) {
    int32_t *freed = NEW(int32_t, k->nfrees + (size_t)n);
    memcpy(freed, k->freed, sizeof *freed * k->nfrees);
    for (int i = 0; i < n; i++)
        freed[k->nfrees + (size_t)i] = list[i];
    k->freed = freed;
    x->free = (uint32_t)k->nfrees;
    x->nfree = (uint8_t)n;
    k->nfrees += (size_t)n;
}

void add_wait(struct rank *k, struct instr *x, int32_t on) {
    int32_t *list = NEW(int32_t, x->nwait + 1);
    memcpy(list, k->wait + x->wait, sizeof *list * x->nwait);
    list[x->nwait] = on;
    set_waits(k, x, list, x->nwait + 1);
}

void add_free(struct rank *k, struct instr *x, int32_t buf) {
    int32_t *list = NEW(int32_t, x->nfree + 1);
    memcpy(list, k->freed + x->free, sizeof *list * x->nfree);
    list[x->nfree] = buf;
    set_frees(k, x, list, x->nfree + 1);
}

void drop_wait(struct rank *k, struct instr *x, int nth) {
    memmove(&k->wait[x->wait + (uint32_t)nth], &k->wait[x->wait + (uint32_t)nth + 1],
            sizeof *k->wait * (size_t)(x->nwait - nth - 1));
    x->nwait--;
}

void drop_free(struct rank *k, struct instr *x, int nth) {
    memmove(&k->freed[x->free + (uint32_t)nth], &k->freed[x->free + (uint32_t)nth + 1],
            sizeof *k->freed * (size_t)(x->nfree - nth - 1));
    x->nfree--;
}

/* Returns the rank's lane of this kind, or a new one in its place: compute, sends, receives by peer, groups. */
int lane_to(struct rank *k, int kind, int peer) {
    int at = 0;
    while (at < k->nlanes && (k->lane[at].kind < kind || (k->lane[at].kind == kind && k->lane[at].peer < peer)))
        at++;
    if (at < k->nlanes && k->lane[at].kind == kind && k->lane[at].peer == peer)
        return at;
    struct lane *lane = NEW(struct lane, k->nlanes + 1);
    memcpy(lane, k->lane, sizeof *lane * (size_t)at);
    memcpy(lane + at + 1, k->lane + at, sizeof *lane * (size_t)(k->nlanes++ - at));
    lane[at] = (struct lane){(uint8_t)kind, peer, -1};
    k->lane = lane;
    for (int i = 0; i < k->nins; i++)
        k->ins[i].lane += k->ins[i].lane >= at;
    return at;
}

int64_t *arena_of_buffer(struct rank *k, const struct buf *b) {
    return memory_of(b) == MEMORY_HOST ? &k->host : &k->arena;
}

int32_t buffer_like(struct rank *k, const struct buf *b) {
    for (int32_t i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind == b->kind && k->buf[i].stage == b->stage && k->buf[i].batch == b->batch &&
            k->buf[i].inst == b->inst)
            return i;
    struct buf *buf = NEW(struct buf, k->nbufs + 1);
    memcpy(buf, k->buf, sizeof *buf * (size_t)k->nbufs);
    buf[k->nbufs] = *b;
    buf[k->nbufs].grows = -1;
    int64_t *arena = arena_of_buffer(k, b);
    if (b->off + b->bytes > *arena) /* needs room at the end */
        buf[k->nbufs].off = *arena;
    if (buf[k->nbufs].off + b->bytes > *arena)
        *arena = buf[k->nbufs].off + b->bytes;
    k->buf = buf;
    return k->nbufs++;
}

void set_operands(struct rank *k, struct instr *x, const struct arg *list, int n) {
    struct arg *arg = NEW(struct arg, k->nargs + (size_t)n);
    memcpy(arg, k->arg, sizeof *arg * k->nargs);
    memcpy(arg + k->nargs, list, sizeof *arg * (size_t)n);
    k->arg = arg;
    x->arg = (uint32_t)k->nargs;
    x->narg = (uint16_t)n;
    k->nargs += (size_t)n;
}
