/* Messages between ranks that share one device and one thread: an event and a copy inside the device.
 *
 * Whichever side of a message is enqueued second enqueues it all: the receiver's lane waits for the sender's, copies
 * from arena to arena, and the sender's lane waits for the copy. So a send ends no sooner than its receive, as on
 * any other way, and the whole step of all ranks is one graph. */
#include "comm_loopback.cuh"
#include <stdlib.h>

struct meeting {
    int64_t came, done; /* sides that have come since the start; steps completed */
    cudaEvent_t *event; /* per side: it has come, or for the first, all is done */
    int64_t *steps;     /* per side: steps to which it has come */
    int32_t *ins;       /* per side: its instruction */
};
struct loopback {
    const struct rt_program *p;
    struct cuda_rank *rank;
    struct meeting *meeting;
};

static cudaStream_t lane(const struct loopback *l, const struct rt_meeting *m, const struct meeting *y, int side) {
    int rank = m->rank[side];
    return l->rank[rank].lane[l->p->rank[rank].ins[y->ins[side]].lane];
}

/* Both sides of a message, or all of a reduction, begin and end when the work does. */
static void mark(const struct loopback *l, const struct rt_meeting *m, const struct meeting *y, bool end, int on) {
    for (int side = 0; side < m->n; side++)
        cuda_mark(&l->rank[m->rank[side]], y->ins[side], end, lane(l, m, y, on));
}

/* True for the side that came last, in its first try: it has the work to do. */
static bool arrive(struct meeting *y, const struct rt_meeting *m, int side, int64_t step) {
    if (y->steps[side] > step)
        return false;
    y->steps[side] = step + 1;
    return ++y->came == m->n * (step + 1);
}

static char *tensor(const struct loopback *l, const struct rt_meeting *m, int side) {
    return l->rank[m->rank[side]].arena + m->off[side];
}

static bool message(void *link, struct replay *re, const struct rt_instr *x) {
    struct loopback *l = (struct loopback *)link;
    const struct rt_meeting *m = &l->p->msg[x->msg];
    struct meeting *y = &l->meeting[x->msg];
    if (arrive(y, m, side_of(m, re->rank), re->step)) {
        cudaStream_t from = lane(l, m, y, 0), to = lane(l, m, y, 1);
        CUDA(cudaEventRecord(y->event[0], from));
        CUDA(cudaStreamWaitEvent(to, y->event[0], 0));
        mark(l, m, y, false, 1);
        CUDA(cudaMemcpyAsync(tensor(l, m, 1), tensor(l, m, 0), (size_t)m->bytes, cudaMemcpyDeviceToDevice, to));
        mark(l, m, y, true, 1);
        CUDA(cudaEventRecord(y->event[1], to));
        CUDA(cudaStreamWaitEvent(from, y->event[1], 0));
        y->done = re->step + 1;
    }
    return y->done > re->step;
}

/* On the first member's lane: its dw gets the others' added, in rank order, and goes to them all. */
static bool reduce(void *link, struct replay *re, const struct rt_instr *x) {
    struct loopback *l = (struct loopback *)link;
    const struct rt_meeting *m = &l->p->msg[x->msg];
    struct meeting *y = &l->meeting[x->msg];
    if (arrive(y, m, side_of(m, re->rank), re->step)) {
        cudaStream_t first = lane(l, m, y, 0);
        for (int i = 1; i < m->n; i++) {
            CUDA(cudaEventRecord(y->event[i], lane(l, m, y, i)));
            CUDA(cudaStreamWaitEvent(first, y->event[i], 0));
        }
        mark(l, m, y, false, 0);
        for (int i = 1; i < m->n; i++)
            cuda_add((float *)tensor(l, m, 0), (const float *)tensor(l, m, i), m->bytes / 4, false, first);
        for (int i = 1; i < m->n; i++)
            CUDA(cudaMemcpyAsync(tensor(l, m, i), tensor(l, m, 0), (size_t)m->bytes, cudaMemcpyDeviceToDevice, first));
        mark(l, m, y, true, 0);
        CUDA(cudaEventRecord(y->event[0], first));
        for (int i = 1; i < m->n; i++)
            CUDA(cudaStreamWaitEvent(lane(l, m, y, i), y->event[0], 0));
        y->done = re->step + 1;
    }
    return y->done > re->step;
}

static char *take(size_t bytes) {
    char *p = NULL;
    return cudaMalloc((void **)&p, bytes) == cudaSuccess ? p : NULL;
}
static void give(char *p) { cudaFree(p); }

extern const struct cuda_transport cuda_loopback = {"loopback", true, message, reduce, take, give,
                                                    NULL,       NULL, NULL,    NULL,   NULL};

/* ---- at the start, and at the end ---- */

struct loopback *loopback_open(const struct rt_program *p, struct cuda_rank *rank) {
    struct loopback *l = (struct loopback *)calloc(1, sizeof *l);
    struct meeting *y = (struct meeting *)calloc((size_t)p->nmsgs + 1, sizeof *y);
    bool ok = l && y;
    for (int i = 0; ok && i < p->nmsgs; i++) {
        size_t n = (size_t)p->msg[i].n;
        y[i].event = (cudaEvent_t *)calloc(n, sizeof *y[i].event);
        y[i].steps = (int64_t *)calloc(n, sizeof *y[i].steps);
        y[i].ins = (int32_t *)calloc(n, sizeof *y[i].ins);
        ok = y[i].event && y[i].steps && y[i].ins;
        for (size_t k = 0; ok && k < n; k++)
            CUDA(cudaEventCreateWithFlags(&y[i].event[k], cudaEventDisableTiming));
    }
    if (!ok)
        cuda_must(cudaErrorMemoryAllocation, "messages, on the host");
    l->p = p;
    l->rank = rank;
    l->meeting = y;
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++) {
            const struct rt_instr *x = &p->rank[r].ins[i];
            if (x->msg < 0)
                continue;
            y[x->msg].ins[side_of(&p->msg[x->msg], r)] = i;
        }
    return l;
}

void loopback_close(struct loopback *l) {
    for (int i = 0; i < l->p->nmsgs; i++) {
        for (int k = 0; k < l->p->msg[i].n; k++)
            cudaEventDestroy(l->meeting[i].event[k]);
        free(l->meeting[i].event);
        free(l->meeting[i].steps);
        free(l->meeting[i].ins);
    }
    free(l->meeting);
    free(l);
}
