/* Messages between ranks of one process.
 *
 * Each time a message is sent, its flag has three states: the sender has come, the receiver has come, moved. The side
 * that comes second copies the tensor between the planned offsets of the two arenas. No thread waits for another to
 * wake and copy; a rank with nothing else to do gives its turn to others (turns.h). */
#include "comm_local.h"
#include "turns.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SENDER_CAME = 1, RECEIVER_CAME = 2, MOVED = 3, STATES = 4 }; /* states of a message, in each turn */

struct member {      /* member of a collective; only the member itself writes it */
    int64_t arrived; /* number of times it has come */
    bool first;      /* its sum is written, not added to existing values */
};
struct meeting {                        /* meeting point of a message's two sides, or of a collective's members */
    _Alignas(64) _Atomic int64_t state; /* message: STATES * turn + state. Collective: arrivals since the start */
    _Atomic int64_t done;               /* collective: number of times it has been completed */
    struct member *member;              /* collective: its members */
    double start, end;                  /* written by the side that moves the tensor */
};
struct local {
    const struct rt_program *p;
    char **arena; /* one per rank */
    struct meeting *meeting;
    struct member *member;
    struct turns *turns;
};

struct local *local_open(const struct rt_program *p) {
    struct local *local = calloc(1, sizeof *local);
    if (!local)
        return NULL;
    local->p = p;
    local->arena = calloc((size_t)p->workers, sizeof *local->arena);
    local->meeting = aligned_alloc(64, sizeof *local->meeting * (size_t)(p->nmsgs + 1));
    int64_t members = 0;
    for (int i = 0; i < p->nmsgs; i++)
        members += p->msg[i].n;
    local->member = calloc((size_t)members + 1, sizeof *local->member);
    local->turns = turns_open(p->workers, usable_cores());
    if (!local->arena || !local->meeting || !local->member || !local->turns) {
        local_close(local);
        return NULL;
    }
    memset(local->meeting, 0, sizeof *local->meeting * (size_t)(p->nmsgs + 1));
    struct member *next = local->member;
    for (int i = 0; i < p->nmsgs; next += p->msg[i++].n)
        local->meeting[i].member = next;
    return local;
}

bool local_prepare(void *messages, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena) {
    struct local *local = messages;
    (void)nmsgs, (void)groups;
    local->arena[k - local->p->rank] = arena;
    return true;
}

void local_close(struct local *local) {
    if (!local)
        return;
    free(local->arena);
    free(local->meeting);
    free(local->member);
    if (local->turns)
        turns_close(local->turns);
    free(local);
}

double local_handoff(const struct local *local) { return turns_handoff(local->turns); }

static void local_begin(void *link, struct replay *re) { turns_begin(((struct local *)link)->turns, re->rank); }
static void local_end(void *link, struct replay *re) { turns_end(((struct local *)link)->turns, re->rank); }
static void local_idle(void *link, struct replay *re) { turns_wait(((struct local *)link)->turns, re->rank); }

static bool local_message(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct local *local = link;
    const struct rt_meeting *m = &local->p->msg[x->msg];
    struct meeting *meeting = &local->meeting[x->msg];
    bool sends = m->rank[0] == re->rank;
    /* Both ends agree on who they are and on the number of bytes. */
    assert(m->n == 2 && m->rank[0] != m->rank[1] && m->rank[!sends] == re->rank);
    assert(sends == is_send(x->op) && m->rank[sends] == x->peer && m->bytes == x->bytes);
    int64_t base = STATES * re->turn, mine = base + (sends ? SENDER_CAME : RECEIVER_CAME);
    int64_t state = atomic_load(&meeting->state);
    assert(state < base + STATES + MOVED); /* the other side may have come for the next turn, but no further */
    if (state < base + SENDER_CAME && atomic_compare_exchange_strong(&meeting->state, &state, mine))
        return false; /* this side is first; a failed compare-exchange has loaded the other side's value */
    if (state == mine)
        return false;
    if (state < base + MOVED) {
        assert(state == base + (sends ? RECEIVER_CAME : SENDER_CAME));
        meeting->start = re->device->clock(re);
        memcpy(local->arena[m->rank[1]] + m->off[1], local->arena[m->rank[0]] + m->off[0], (size_t)m->bytes);
        meeting->end = re->device->clock(re);
        *start = meeting->start;
        *end = meeting->end;
        atomic_store(&meeting->state, base + MOVED);
        turns_wake(local->turns, sends ? m->rank[1] : m->rank[0]);
        return true;
    }
    *start = meeting->start;
    *end = meeting->end;
    return true;
}

/* ---- collectives: the last member to arrive does the work for all ---- */

enum { PART = 1 << 12 }; /* floats that are summed at a time */

struct together {
    const struct local *local;
    const struct rt_meeting *m;
    const struct member *member;
};

static char *member_operand(const struct together *all, int i, const int64_t *off) {
    return off[i] < 0 ? NULL : all->local->arena[all->m->rank[i]] + off[i];
}
static char *first_of(const struct together *all, int i) { return member_operand(all, i, all->m->off); }
static char *second_of(const struct together *all, int i) { return member_operand(all, i, all->m->to); }

/* Sums the first operands' n floats from `at` bytes on, in the members' order, which gives the same bits everywhere.
 * Members [from, to) get the sum. Each part is summed before any of it is written, because the result may overlap an
 * operand. */
static void sum_operands(const struct together *all, const struct rt_instr *x, int64_t at, int64_t n, int from,
                         int to) {
    float part[PART];
    bool in_place = motion_of(x->op) == OP_ALL_REDUCE;
    for (int64_t done = 0; done < n; done += PART) {
        int64_t floats = n - done < PART ? n - done : PART;
        for (int i = 0; i < all->m->n; i++)
            host_add(part, (const float *)(const void *)(first_of(all, i) + at) + done, floats, i == 0);
        for (int i = from; i < to; i++)
            host_add((float *)(void *)(in_place ? first_of(all, i) : second_of(all, i)) + done, part, floats,
                     in_place || all->member[i].first);
    }
}

static void sum_norms(const struct together *all) {
    uint64_t sum[NORM_WORDS] = {0};
    for (int i = 0; i < all->m->n; i++)
        host_add_norm(sum, (const uint64_t *)(const void *)first_of(all, i));
    for (int i = 0; i < all->m->n; i++)
        memcpy(first_of(all, i), sum, sizeof sum);
}

static void exchange_pieces(const struct together *all, const struct rt_instr *x) {
    const struct rt_meeting *m = all->m;
    int n = m->n, root = has_root(x->op) ? side_of(m, x->root) : -1, motion = motion_of(x->op);
    int64_t bytes = m->bytes, piece = bytes / n;
    assert(motion != OP_ALL_TO_ALL_A || piece * n == bytes);
    assert(!sums(x->op) || bytes % 4 == 0);
    assert(x->op != OP_ALL_REDUCE_N || bytes == NORM_BYTES);
    assert(!has_root(x->op) || root >= 0);
    if (x->op == OP_ALL_REDUCE_N)
        sum_norms(all);
    else if (motion == OP_ALL_REDUCE)
        sum_operands(all, x, 0, bytes / 4, 0, n);
    if (motion == OP_REDUCE)
        sum_operands(all, x, 0, bytes / 4, root, root + 1);
    for (int i = 0; i < n; i++) {
        if (motion == OP_REDUCE_SCATTER)
            sum_operands(all, x, i * bytes, bytes / 4, i, i + 1);
        if (motion == OP_BROADCAST && i != root)
            memcpy(second_of(all, i), first_of(all, root), (size_t)bytes);
        for (int j = 0; j < n; j++) {
            if (motion == OP_ALL_GATHER && second_of(all, i) + j * bytes != first_of(all, j)) /* else it is in place */
                memcpy(second_of(all, i) + j * bytes, first_of(all, j), (size_t)bytes);
            if (motion == OP_ALL_TO_ALL_A)
                memcpy(second_of(all, i) + j * piece, first_of(all, j) + i * piece, (size_t)piece);
        }
    }
}

static bool local_collective(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct local *local = link;
    const struct rt_meeting *m = &local->p->msg[x->msg];
    struct meeting *meeting = &local->meeting[x->msg];
    struct member *me = &meeting->member[side_of(m, re->rank)];
    assert(m->bytes == x->bytes && me->arrived <= re->turn + 1);
    if (me->arrived <= re->turn) {
        assert(me->arrived == re->turn); /* a member comes once in each turn */
        me->arrived = re->turn + 1;
        me->first = writes_sum(x);
        if (atomic_fetch_add(&meeting->state, 1) + 1 == m->n * (re->turn + 1)) {
            const struct together all = {local, m, meeting->member};
            meeting->start = re->device->clock(re);
            exchange_pieces(&all, x);
            meeting->end = re->device->clock(re);
            atomic_store(&meeting->done, re->turn + 1);
            for (int i = 0; i < m->n; i++)
                turns_wake(local->turns, m->rank[i]);
        }
    }
    if (atomic_load(&meeting->done) <= re->turn)
        return false;
    assert(atomic_load(&meeting->done) == re->turn + 1); /* no member begins the next turn before all have seen this
                                                          * one */
    *start = meeting->start;
    *end = meeting->end;
    return true;
}

const struct host_transport host_local = {local_message, local_collective, local_idle, local_begin, local_end};
