/* Which instructions of other lanes each instruction waits for.
 *
 * A rank's instructions are walked in issue order. Each must run after the last writer of what it reads, after every
 * access to what it writes, and after the previous users of its buffer's bytes (rank.over). Within a lane, order gives
 * that. Across lanes it takes a wait, unless other waits imply it: a vector clock per lane holds, for every other lane,
 * how far that lane must have come by now. Waits are taken newest first, so that each implies as many others as
 * possible. */
#include "passes.h"
#include <assert.h>
#include <string.h>

struct touch {                /* by one lane, to one buffer, since it was last written by another */
    int32_t lane, any, write; /* newest access, newest write; -1: none */
    int32_t next;
};

struct sync {
    struct rank *k;
    int32_t *head; /* per buffer: its accesses */
    struct touch *a;
    size_t na, cap;
    int32_t spare;
    int32_t *clock;         /* [lane][lane]: instruction of the other lane known to have ended */
    int32_t *shot;          /* [instruction][lane]: the clock of its lane when it ends */
    int32_t *need;          /* per lane: newest instruction to wait for, or -1 */
    size_t wait_cap, ordered; /* ordered: the first of rank.ordered that is not used yet */
};

static void need(struct sync *sync, int32_t i) {
    int lane = sync->k->ins[i].lane;
    if (sync->need[lane] < i)
        sync->need[lane] = i;
}

static void need_all(struct sync *sync, int32_t buf) {
    for (int32_t n = sync->head[buf]; n >= 0; n = sync->a[n].next)
        need(sync, sync->a[n].any);
}

static void drop_accesses(struct sync *sync, int32_t buf) {
    while (sync->head[buf] >= 0) {
        int32_t n = sync->head[buf];
        sync->head[buf] = sync->a[n].next;
        sync->a[n].next = sync->spare;
        sync->spare = n;
    }
}

static void record(struct sync *sync, int32_t buf, int32_t i, bool write) {
    int lane = sync->k->ins[i].lane;
    if (write) /* it is after all the others, which need not be kept */
        drop_accesses(sync, buf);
    int32_t n = sync->head[buf];
    while (n >= 0 && sync->a[n].lane != lane)
        n = sync->a[n].next;
    if (n < 0) {
        n = sync->spare;
        if (n >= 0)
            sync->spare = sync->a[n].next;
        else {
            GROW(sync->a, sync->cap, sync->na + 1);
            n = (int32_t)sync->na++;
        }
        sync->a[n] = (struct touch){lane, -1, -1, sync->head[buf]};
        sync->head[buf] = n;
    }
    sync->a[n].any = i;
    if (write)
        sync->a[n].write = i;
}

static void needs_of(struct sync *sync, int32_t i) {
    const struct rank *k = sync->k;
    const struct instr *x = &k->ins[i];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int32_t b = k->arg[a].buf;
        if (op_access(x->op, k->arg[a].role) & ACC_WRITE) {
            if (sync->head[b] < 0 && k->over_at)
                for (int32_t o = k->over_at[b]; o < k->over_at[b + 1]; o++)
                    need_all(sync, k->over[o]);
            need_all(sync, b);
        } else
            for (int32_t n = sync->head[b]; n >= 0; n = sync->a[n].next)
                if (sync->a[n].write >= 0)
                    need(sync, sync->a[n].write);
    }
    for (; sync->ordered < k->nordered && k->ordered[sync->ordered].ins == i; sync->ordered++)
        need(sync, k->ordered[sync->ordered].after);
}

static void add_waits(struct sync *sync, int32_t i) {
    struct rank *k = sync->k;
    struct instr *x = &k->ins[i];
    int L = k->nlanes;
    int32_t *clock = sync->clock + (int64_t)x->lane * L;
    x->wait = (uint32_t)k->nwaits;
    sync->need[x->lane] = -1;
    for (;;) {
        int32_t newest = -1;
        for (int m = 0; m < L; m++)
            if (sync->need[m] > newest && sync->need[m] > clock[m])
                newest = sync->need[m];
        if (newest < 0)
            break;
        GROW(k->wait, sync->wait_cap, k->nwaits + 1);
        k->wait[k->nwaits++] = newest;
        x->nwait++;
        const int32_t *shot = sync->shot + (int64_t)newest * L;
        for (int m = 0; m < L; m++)
            if (shot[m] > clock[m])
                clock[m] = shot[m];
    }
    for (int m = 0; m < L; m++)
        sync->need[m] = -1;
    clock[x->lane] = i;
    memcpy(sync->shot + (int64_t)i * L, clock, sizeof *clock * (size_t)L);
}

void lanes_sync(struct program *p) {
    int64_t most = 0, lanes = 0, bufs = 0;
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        int64_t cells = (int64_t)k->nins * k->nlanes;
        most = cells > most ? cells : most;
        lanes = k->nlanes > lanes ? k->nlanes : lanes;
        bufs = k->nbufs > bufs ? k->nbufs : bufs;
    }
    struct sync sync = {.spare = -1};
    sync.head = NEW(int32_t, bufs);
    sync.clock = NEW(int32_t, lanes * lanes);
    sync.shot = NEW(int32_t, most);
    sync.need = NEW(int32_t, lanes);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = sync.k = &p->rank[r];
        sync.na = sync.ordered = 0;
        sync.spare = -1;
        sync.wait_cap = 0;
        memset(sync.head, -1, sizeof *sync.head * (size_t)k->nbufs);
        memset(sync.clock, -1, sizeof *sync.clock * (size_t)k->nlanes * (size_t)k->nlanes);
        memset(sync.need, -1, sizeof *sync.need * (size_t)k->nlanes);
        for (int32_t i = 0; i < k->nins; i++) {
            needs_of(&sync, i);
            add_waits(&sync, i);
            const struct instr *x = &k->ins[i];
            for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
                record(&sync, k->arg[a].buf, i, op_access(x->op, k->arg[a].role) & ACC_WRITE);
        }
    }
}
