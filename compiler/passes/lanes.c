/* Finds the instructions of other lanes that each instruction waits for.
 *
 * A rank's instructions are walked in issue order. Each must run after the last writer of what it reads, after every
 * access to what it writes (buffers or pieces of them), and after the previous users of its buffer's bytes (rank.over).
 * Within a lane, the order ensures that. Across lanes it needs a wait, unless other waits imply it: a vector clock per
 * lane holds, for every other lane, how far that lane must have come by now. Waits are taken newest first, so that each
 * implies as many others as possible.
 *
 * A rank may have a thousand lanes, and one instruction changes what is known about only a few of them. So a clock is a
 * list of blocks that clocks share until they differ, and two clocks are compared where their blocks do. */
#include "passes.h"
#include <assert.h>
#include <string.h>

struct touch {                /* accesses of one lane to one piece of a buffer, since another lane last wrote it */
    int32_t lane, any, write; /* newest access, newest write; -1: none */
    int32_t next;
    struct arg piece;
};

struct sync {
    struct rank *k;
    int32_t *head; /* per buffer: list of its accesses */
    struct touch *a;
    size_t na, cap;
    int32_t spare;
    struct block *block; /* block 0: nothing is known */
    size_t nblocks, block_cap;
    int blocks;      /* blocks of a clock */
    int32_t *clock;  /* [lane][block] */
    int32_t *shot;   /* [instruction][block]: its lane's clock when it ends */
    int32_t *need;   /* per lane: newest instruction to wait for, or -1 */
    int32_t *needed; /* lanes with such an instruction */
    int nneeded;
    size_t wait_cap, ordered; /* ordered: the first of rank.ordered that is not used yet */
};

enum { BLOCK = 16 };
struct block {
    int32_t of[BLOCK]; /* per lane: the instruction that is known to have ended, or -1 */
};

static void need_lane(struct sync *sync, int32_t i) {
    int lane = sync->k->ins[i].lane;
    if (sync->need[lane] < 0)
        sync->needed[sync->nneeded++] = lane;
    if (sync->need[lane] < i)
        sync->need[lane] = i;
}

/* overlap returns whether two pieces of a buffer share bytes, covers whether a contains all of b. */
static bool overlap(const struct arg *a, const struct arg *b) {
    return a->piece * (b->last + 1) < (b->piece + 1) * (a->last + 1) &&
           b->piece * (a->last + 1) < (a->piece + 1) * (b->last + 1);
}
static bool covers(const struct arg *a, const struct arg *b) {
    return a->piece * (b->last + 1) <= b->piece * (a->last + 1) &&
           (b->piece + 1) * (a->last + 1) <= (a->piece + 1) * (b->last + 1);
}

static void need_all(struct sync *sync, int32_t buf) {
    for (int32_t n = sync->head[buf]; n >= 0; n = sync->a[n].next)
        need_lane(sync, sync->a[n].any);
}

/* Makes a write of this piece wait for all accesses to it. The first write also waits for all accesses to the buffers
 * whose bytes it takes over. */
static void need_accesses(struct sync *sync, const struct arg *piece) {
    const struct rank *k = sync->k;
    int32_t b = piece->buf;
    bool first = true;
    for (int32_t n = sync->head[b]; n >= 0; n = sync->a[n].next)
        if (overlap(&sync->a[n].piece, piece)) {
            need_lane(sync, sync->a[n].any);
            first &= !covers(&sync->a[n].piece, piece);
        }
    for (int32_t o = first && k->over_at ? k->over_at[b] : 0; first && k->over_at && o < k->over_at[b + 1]; o++)
        need_all(sync, k->over[o]);
}

/* Drops accesses to this piece, which a write of it is known to follow. */
static void drop_accesses(struct sync *sync, const struct arg *piece) {
    for (int32_t *at = &sync->head[piece->buf]; *at >= 0;) {
        int32_t n = *at;
        if (!covers(piece, &sync->a[n].piece)) {
            at = &sync->a[n].next;
            continue;
        }
        *at = sync->a[n].next;
        sync->a[n].next = sync->spare;
        sync->spare = n;
    }
}

static void record_access(struct sync *sync, const struct arg *piece, int32_t i, bool write) {
    int lane = sync->k->ins[i].lane;
    if (write)
        drop_accesses(sync, piece);
    int32_t n = sync->head[piece->buf];
    while (n >= 0 &&
           (sync->a[n].lane != lane || sync->a[n].piece.piece != piece->piece || sync->a[n].piece.last != piece->last))
        n = sync->a[n].next;
    if (n < 0) {
        n = sync->spare;
        if (n >= 0)
            sync->spare = sync->a[n].next;
        else {
            GROW(sync->a, sync->cap, sync->na + 1);
            n = (int32_t)sync->na++;
        }
        sync->a[n] = (struct touch){lane, -1, -1, sync->head[piece->buf], *piece};
        sync->head[piece->buf] = n;
    }
    sync->a[n].any = i;
    if (write)
        sync->a[n].write = i;
}

static void needs_of(struct sync *sync, int32_t i) {
    const struct rank *k = sync->k;
    const struct instr *x = &k->ins[i];
    for (const struct arg *piece = k->arg + x->arg; piece < k->arg + x->arg + x->narg; piece++)
        if (op_access(x->op, (int)piece->role) & ACC_WRITE)
            need_accesses(sync, piece);
        else
            for (int32_t n = sync->head[piece->buf]; n >= 0; n = sync->a[n].next)
                if (sync->a[n].write >= 0 && overlap(&sync->a[n].piece, piece))
                    need_lane(sync, sync->a[n].write);
    for (; sync->ordered < k->nordered && k->ordered[sync->ordered].ins == i; sync->ordered++)
        need_lane(sync, k->ordered[sync->ordered].after);
}

static int32_t copy_block(struct sync *sync, int32_t old) {
    GROW(sync->block, sync->block_cap, sync->nblocks + 1);
    sync->block[sync->nblocks] = sync->block[old];
    return (int32_t)sync->nblocks++;
}

/* Returns a block with the knowledge of both blocks; it is one of them, if that one knows everything. */
static int32_t join_blocks(struct sync *sync, int32_t x, int32_t y) {
    bool more = false, less = false; /* compares y with x */
    for (int i = 0; i < BLOCK; i++) {
        more |= sync->block[y].of[i] > sync->block[x].of[i];
        less |= sync->block[y].of[i] < sync->block[x].of[i];
    }
    if (!more || !less)
        return more ? y : x;
    int32_t both = copy_block(sync, x);
    for (int i = 0; i < BLOCK; i++)
        if (sync->block[y].of[i] > sync->block[both].of[i])
            sync->block[both].of[i] = sync->block[y].of[i];
    return both;
}

/* Adds what y knows to x, which no other clock shares. */
static void learn(struct block *x, struct block y) {
    for (int i = 0; i < BLOCK; i++)
        x->of[i] = y.of[i] > x->of[i] ? y.of[i] : x->of[i];
}

/* Returns the newest instruction that is needed and not known to have ended; -1: none. */
static int32_t newest_needed(const struct sync *sync, const int32_t *clock) {
    int32_t newest = -1;
    for (int n = 0; n < sync->nneeded; n++) {
        int lane = sync->needed[n];
        if (sync->need[lane] > newest && sync->need[lane] > sync->block[clock[lane / BLOCK]].of[lane % BLOCK])
            newest = sync->need[lane];
    }
    return newest;
}

static void add_waits(struct sync *sync, int32_t i) {
    struct rank *k = sync->k;
    struct instr *x = &k->ins[i];
    int32_t *clock = sync->clock + (int64_t)x->lane * sync->blocks;
    int own = x->lane / BLOCK; /* this block of its clock is about to change, so it is copied at once */
    clock[own] = copy_block(sync, clock[own]);
    x->wait = (uint32_t)k->nwaits;
    sync->need[x->lane] = -1;
    for (int32_t newest; (newest = newest_needed(sync, clock)) >= 0;) {
        GROW(k->wait, sync->wait_cap, k->nwaits + 1);
        k->wait[k->nwaits++] = newest;
        x->nwait++;
        const int32_t *shot = sync->shot + (int64_t)newest * sync->blocks;
        learn(&sync->block[clock[own]], sync->block[shot[own]]);
        for (int b = 0; b < sync->blocks; b++)
            if (shot[b] != clock[b] && b != own)
                clock[b] = join_blocks(sync, clock[b], shot[b]);
    }
    while (sync->nneeded > 0)
        sync->need[sync->needed[--sync->nneeded]] = -1;
    sync->block[clock[own]].of[x->lane % BLOCK] = i;
    memcpy(sync->shot + (int64_t)i * sync->blocks, clock, sizeof *clock * (size_t)sync->blocks);
}

/* Joins all lanes: every lane knows that everything issued has ended. */
static void join_lanes(struct sync *sync, int32_t i) {
    const struct rank *k = sync->k;
    for (int b = 0; b < sync->blocks; b++) {
        int32_t all = copy_block(sync, 0);
        for (int l = 0; l < k->nlanes; l++)
            sync->clock[(int64_t)l * sync->blocks + b] = all;
    }
    for (int32_t before = 0; before < i; before++) {
        int lane = k->ins[before].lane;
        sync->block[sync->clock[lane / BLOCK]].of[lane % BLOCK] = before;
    }
}

static int count_blocks(const struct rank *k) { return (k->nlanes + BLOCK - 1) / BLOCK; }

void lanes_sync(struct program *p) {
    int64_t most = 0, lanes = 0, bufs = 0;
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        assert(k->nwaits == 0 && k->nlanes > 0); /* lanes has not run */
        int64_t cells = (int64_t)k->nins * count_blocks(k);
        most = cells > most ? cells : most;
        lanes = k->nlanes > lanes ? k->nlanes : lanes;
        bufs = k->nbufs > bufs ? k->nbufs : bufs;
    }
    struct sync sync = {.spare = -1};
    sync.head = NEW(int32_t, bufs);
    sync.clock = NEW(int32_t, lanes * ((lanes + BLOCK - 1) / BLOCK));
    sync.shot = NEW(int32_t, most);
    sync.need = NEW(int32_t, lanes);
    sync.needed = NEW(int32_t, lanes);
    GROW(sync.block, sync.block_cap, 1);
    memset(sync.block, -1, sizeof *sync.block);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = sync.k = &p->rank[r];
        sync.na = sync.ordered = 0;
        sync.spare = -1;
        sync.wait_cap = 0;
        sync.nblocks = 1;
        sync.blocks = count_blocks(k);
        memset(sync.head, -1, sizeof *sync.head * (size_t)k->nbufs);
        memset(sync.clock, 0, sizeof *sync.clock * (size_t)k->nlanes * (size_t)sync.blocks);
        memset(sync.need, -1, sizeof *sync.need * (size_t)k->nlanes);
        for (int32_t i = 0; i < k->nins; i++) {
            if (p->period && (i == k->period.begin || i == k->period.end))
                join_lanes(&sync, i);
            needs_of(&sync, i);
            add_waits(&sync, i);
            const struct instr *x = &k->ins[i];
            for (const struct arg *piece = k->arg + x->arg; piece < k->arg + x->arg + x->narg; piece++)
                record_access(&sync, piece, i, op_access(x->op, (int)piece->role) & ACC_WRITE);
        }
    }
}
