/* Waits suffice, by the transitive closure over all pairs of accesses, and none is superfluous. */
#include "random_spec.h"
#include <criterion/criterion.h>

static struct program *planned(struct spec *sp, struct costs *costs) {
    struct graph *g = graph_of(sp);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    return p;
}

/* ---- instructions known to end before others start, by lanes and waits ---- */

struct order {
    const struct rank *k;
    int words;
    uint64_t *before; /* [instruction][words]: bits of instructions that have ended */
    int32_t *prev;    /* previous one on its lane, or -1 */
};

static bool ended(const struct order *o, int32_t early, int32_t late) {
    return o->before[(int64_t)late * o->words + early / 64] >> early % 64 & 1;
}

static void include(struct order *o, int32_t early, int32_t late) {
    if (early < 0)
        return;
    cr_assert_lt(early, late, "a wait for what is issued later");
    for (int w = 0; w < o->words; w++)
        o->before[(int64_t)late * o->words + w] |= o->before[(int64_t)early * o->words + w];
    o->before[(int64_t)late * o->words + early / 64] |= (uint64_t)1 << early % 64;
}

static struct order order_of(const struct rank *k) {
    struct order o = {.k = k, .words = k->nins / 64 + 1, .prev = NEW(int32_t, k->nins)};
    o.before = NEW(uint64_t, (int64_t)o.words * k->nins);
    int32_t *last = NEW(int32_t, k->nlanes);
    memset(last, -1, sizeof *last * (size_t)k->nlanes);
    for (int32_t i = 0; i < k->nins; i++) {
        o.prev[i] = last[k->ins[i].lane];
        last[k->ins[i].lane] = i;
        include(&o, o.prev[i], i);
        for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait; w++)
            include(&o, k->wait[w], i);
    }
    return o;
}

/* Returns whether both touch a common byte and one of them writes it. */
static bool conflict(const struct rank *k, const struct instr *x, const struct instr *y) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        for (uint32_t b = y->arg; b < y->arg + y->narg; b++) {
            const struct buf *p = &k->buf[k->arg[a].buf], *q = &k->buf[k->arg[b].buf];
            int access = op_access(x->op, k->arg[a].role) | op_access(y->op, k->arg[b].role);
            if (access & ACC_WRITE && p->off < q->off + q->bytes && q->off < p->off + p->bytes)
                return true;
        }
    return false;
}

static int expect_enough(const struct rank *k) {
    struct order o = order_of(k);
    int crossing = 0;
    for (int32_t i = 0; i < k->nins; i++)
        for (int32_t j = 0; j < i; j++)
            if (conflict(k, &k->ins[j], &k->ins[i])) {
                cr_assert(ended(&o, j, i), "%s %d may run before %s %d", op_name[k->ins[i].op], i,
                          op_name[k->ins[j].op], j);
                crossing += k->ins[i].lane != k->ins[j].lane;
            }
    return crossing;
}

/* Checks that each wait is for another lane, and implied neither by the lane nor by other waits. */
static int expect_no_more(const struct rank *k) {
    struct order o = order_of(k);
    int waits = 0;
    for (int32_t i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        for (uint32_t w = x->wait; w < x->wait + x->nwait; w++, waits++) {
            int32_t on = k->wait[w];
            bool implied = k->ins[on].lane == x->lane || (o.prev[i] >= 0 && ended(&o, on, o.prev[i]));
            for (uint32_t v = x->wait; v < x->wait + x->nwait; v++)
                implied |= v != w && (k->wait[v] == on || ended(&o, on, k->wait[v]));
            cr_assert(!implied, "%s %d need not wait for %s %d", op_name[x->op], i, op_name[k->ins[on].op], on);
        }
    }
    cr_assert_eq(waits, (int)k->nwaits);
    return waits;
}

Test(lanes, waits_are_enough_and_none_too_many) {
    int crossing = 0, waits = 0;
    for (int seed = 0; seed < 150; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, ORDERS | BANDWIDTH | COARSE);
        struct program *p = planned(sp, draw_stages(sp));
        for (int r = 0; r < p->workers; r++) {
            crossing += expect_enough(&p->rank[r]);
            waits += expect_no_more(&p->rank[r]);
        }
        free_all();
    }
    cr_assert(crossing > 4 * waits && waits > 5000, "%d orders, %d waits", crossing, waits);
}

/* An order that memory does not force: a token, which only says that a job has ended, leaves after the job. */
Test(lanes, a_token_leaves_after_its_job) {
    int tokens = 0;
    for (int seed = 0; seed < 100; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, ORDERS | COARSE);
        struct program *p = planned(sp, draw_stages(sp));
        for (int r = 0; r < p->workers; r++) {
            const struct rank *k = &p->rank[r];
            struct order o = order_of(k);
            for (int32_t i = 0; i < k->nins; i++)
                for (int32_t j = 0; k->ins[i].op == OP_SEND_T && j < k->nins; j++) {
                    const struct instr *x = &k->ins[j];
                    if (x->op != k->ins[i].inst || x->stage != k->ins[i].stage || x->batch != k->ins[i].batch)
                        continue; /* token(s,b)#d says that job d of (s,b) has ended */
                    cr_assert(ended(&o, j, i), "SEND_T %d runs before its job %d", i, j);
                    tokens++;
                }
        }
        free_all();
    }
    cr_assert_gt(tokens, 200);
}

/* Returns the waits of one handmade rank: lanes are compute 0, send 1, recv 2. */
static const char *waits_of(const char *streams, int32_t takes_over) {
    struct program *p = read_text("hand.txt", streams);
    struct rank *k = &p->rank[0];
    k->over_at = NEW(int32_t, k->nbufs + 1);
    k->over = NEW(int32_t, 1);
    for (int b = 0; takes_over >= 0 && b <= k->nbufs; b++) /* the last buffer takes over its bytes */
        k->over_at[b] = b == k->nbufs;
    k->over[0] = takes_over;
    lanes_sync(p);
    struct text t = {0};
    for (int i = 0; i < k->nins; i++) {
        put(&t, "%s%s:", i ? " " : "", op_name[k->ins[i].op]);
        for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait; w++)
            put(&t, "%s%s", w > k->ins[i].wait ? "," : "", op_name[k->ins[k->wait[w]].op]);
    }
    return t.s;
}

#define PARTNER                                                                                                        \
    "rank 1 lane compute\nrank 1 lane send 0\nSEND_B 1 0 to 0 t=grad(1,0)\nrank 1 lane recv 0\n"                       \
    "RECV_F 0 0 from 0 t=act(0,0)\nrank 1 issue\n2 1\nrank 1 memory 2\ngrad(1,0) 0 1\nact(0,0) 1 1\n"
#define STREAMS(issue, off)                                                                                            \
    "pianola 1\nprogram hand workers 2 stages 2 batches 1\n"                                                           \
    "rank 0 lane compute\nF 0 0 w=weight(0) stash=stash(0,0) y=act(0,0)\n"                                             \
    "B 0 0 w=weight(0) stash=stash(0,0) dy=grad(1,0) dw=wgrad(0) free(stash(0,0) grad(1,0))\n"                         \
    "U 0 dw=wgrad(0) w=weight(0)\n"                                                                                    \
    "rank 0 lane send 1\nSEND_F 0 0 to 1 t=act(0,0) free(act(0,0))\n"                                                  \
    "rank 0 lane recv 1\nRECV_B 1 0 from 1 t=grad(1,0)\n"                                                              \
    "rank 0 issue\n" issue "\nrank 0 memory 5\nweight(0) 0 1\nwgrad(0) 1 1\nstash(0,0) 2 1\nact(0,0) 3 1\n"            \
    "grad(1,0) " off " 1\n" PARTNER

/* SEND_F reads what F wrote, B what RECV_B wrote; the compute lane implies the rest. */
Test(lanes, reads_after_writes_by_hand) {
    cr_assert_str_eq(waits_of(STREAMS("0 1 2 0*2", "4"), -1), "F: SEND_F:F RECV_B: B:RECV_B U:");
}

/* grad(1,0) takes over the bytes of act(0,0), buffer 3: RECV_B follows SEND_F, and so F. */
Test(lanes, reused_bytes_by_hand) {
    cr_assert_str_eq(waits_of(STREAMS("0 1 2 0*2", "3"), 3), "F: SEND_F:F RECV_B:SEND_F B:RECV_B U:");
}
