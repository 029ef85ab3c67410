/* Messages between ranks of one process.
 *
 * A message's flag has three states per step: the sender has come, the receiver has come, moved. The side that comes
 * second copies the tensor, from the planned offset of one arena to that of the other. No thread blocks on a lock or
 * waits for another to wake and copy; a rank with nothing else to do sleeps on its bell. */
#include "comm_local.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SENDER_CAME = 1, RECEIVER_CAME = 2, MOVED = 3, STATES = 4 }; /* of a message in a step */

struct meeting {                        /* where a message's two sides, or a reduction's members, meet */
    _Alignas(64) _Atomic int64_t state; /* message: STATES * step + state. Reduction: arrivals since the beginning */
    _Atomic int64_t reduced;            /* reduction: steps completed */
    int64_t *arrived;                   /* reduction, per member: steps it has come to; written by it alone */
    double start, end;                  /* written by the side that moves the tensor */
};
struct bell {
    _Alignas(64) _Atomic uint32_t rung;
    _Atomic uint32_t asleep;
};
struct local {
    const struct rt_program *p;
    char *const *arena;
    struct meeting *meeting;
    struct bell *bell;
    int64_t *arrived;
    uint32_t *heard; /* per rank: its bell when it last began to try its lanes */
};

struct local *local_open(const struct rt_program *p, char *const *arena) {
    struct local *local = calloc(1, sizeof *local);
    if (!local)
        return NULL;
    local->p = p;
    local->arena = arena;
    local->meeting = aligned_alloc(64, sizeof *local->meeting * (size_t)(p->nmsgs + 1));
    local->bell = aligned_alloc(64, sizeof *local->bell * (size_t)p->workers);
    int64_t members = 0;
    for (int i = 0; i < p->nmsgs; i++)
        members += p->msg[i].n;
    local->arrived = calloc((size_t)members + 1, sizeof *local->arrived);
    local->heard = calloc((size_t)p->workers, sizeof *local->heard);
    if (!local->meeting || !local->bell || !local->arrived || !local->heard) {
        local_close(local);
        return NULL;
    }
    memset(local->meeting, 0, sizeof *local->meeting * (size_t)(p->nmsgs + 1));
    memset(local->bell, 0, sizeof *local->bell * (size_t)p->workers);
    int64_t *next = local->arrived;
    for (int i = 0; i < p->nmsgs; next += p->msg[i++].n)
        local->meeting[i].arrived = next;
    return local;
}

void local_close(struct local *local) {
    if (!local)
        return;
    free(local->meeting);
    free(local->arrived);
    free(local->heard);
    free(local->bell);
    free(local);
}

static void ring(struct local *local, int rank) {
    struct bell *bell = &local->bell[rank];
    atomic_fetch_add(&bell->rung, 1);
    if (atomic_load(&bell->asleep))
        syscall(SYS_futex, &bell->rung, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Every lane has been tried since the bell was last heard; if it has rung meanwhile, returns at once. */
static void local_idle(void *link, struct replay *re) {
    struct local *local = link;
    struct bell *bell = &local->bell[re->rank];
    uint32_t heard = local->heard[re->rank];
    atomic_store(&bell->asleep, 1);
    while (atomic_load(&bell->rung) == heard)
        syscall(SYS_futex, &bell->rung, FUTEX_WAIT_PRIVATE, heard, NULL, NULL, 0);
    atomic_store(&bell->asleep, 0);
    local->heard[re->rank] = atomic_load(&bell->rung);
}

static bool local_message(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct local *local = link;
    const struct rt_meeting *m = &local->p->msg[x->msg];
    struct meeting *meeting = &local->meeting[x->msg];
    bool sends = m->rank[0] == re->rank;
    int64_t base = STATES * re->step, mine = base + (sends ? SENDER_CAME : RECEIVER_CAME);
    int64_t state = atomic_load(&meeting->state);
    if (state < base + SENDER_CAME && atomic_compare_exchange_strong(&meeting->state, &state, mine))
        return false; /* first here; a failed exchange has loaded what the other side wrote */
    if (state == mine)
        return false;
    if (state < base + MOVED) {
        meeting->start = re->device->clock(re);
        memcpy(local->arena[m->rank[1]] + m->off[1], local->arena[m->rank[0]] + m->off[0], (size_t)m->bytes);
        meeting->end = re->device->clock(re);
        *start = meeting->start;
        *end = meeting->end;
        atomic_store(&meeting->state, base + MOVED);
        ring(local, sends ? m->rank[1] : m->rank[0]);
        return true;
    }
    *start = meeting->start;
    *end = meeting->end;
    return true;
}

/* dw of every member = the sum over members, added in rank order: the same bits everywhere. */
static void sum_all(struct local *local, const struct rt_meeting *meeting) {
    float *first = (float *)(void *)(local->arena[meeting->rank[0]] + meeting->off[0]);
    int64_t n = meeting->bytes / (int64_t)sizeof(float);
    for (int i = 1; i < meeting->n; i++)
        host_add(first, (const float *)(const void *)(local->arena[meeting->rank[i]] + meeting->off[i]), n, false);
    for (int i = 1; i < meeting->n; i++)
        memcpy(local->arena[meeting->rank[i]] + meeting->off[i], first, (size_t)meeting->bytes);
}

static bool local_reduce(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct local *local = link;
    const struct rt_meeting *m = &local->p->msg[x->msg];
    struct meeting *meeting = &local->meeting[x->msg];
    int me = side_of(m, re->rank);
    if (meeting->arrived[me] <= re->step) {
        meeting->arrived[me] = re->step + 1;
        if (atomic_fetch_add(&meeting->state, 1) + 1 == m->n * (re->step + 1)) { /* the last to come does the work */
            meeting->start = re->device->clock(re);
            sum_all(local, m);
            meeting->end = re->device->clock(re);
            atomic_store(&meeting->reduced, re->step + 1);
            for (int i = 0; i < m->n; i++)
                ring(local, m->rank[i]);
        }
    }
    if (atomic_load(&meeting->reduced) <= re->step)
        return false;
    *start = meeting->start;
    *end = meeting->end;
    return true;
}

const struct host_transport host_local = {local_message, local_reduce, local_idle};
