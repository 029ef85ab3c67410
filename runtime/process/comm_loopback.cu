/* Messages between ranks that share one device and one thread: an event and a copy inside the device.
 *
 * Whichever side of a message is enqueued second enqueues it all: the receiver's lane waits for the sender's, copies
 * from arena to arena, and the sender's lane waits for the copy. So a send ends no sooner than its receive, as with any
 * other transport, and the whole step of all ranks is one graph. */
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

static cudaStream_t lane(const struct loopback *loopback, const struct rt_meeting *meeting, const struct meeting *y,
                         int side) {
    int rank = meeting->rank[side];
    return loopback->rank[rank].lane[loopback->p->rank[rank].ins[y->ins[side]].lane];
}

/* Both sides of a message, or all of a reduction, begin and end when the work does. */
static void mark(const struct loopback *loopback, const struct rt_meeting *meeting, const struct meeting *y, bool end,
                 int on) {
    for (int side = 0; side < meeting->n; side++)
        cuda_mark(&loopback->rank[meeting->rank[side]], y->ins[side], end, lane(loopback, meeting, y, on));
}

/* True for the side that comes last, on its first try: it does the work. */
static bool arrive(struct meeting *meeting, const struct rt_meeting *m, int side, int64_t step) {
    if (meeting->steps[side] > step)
        return false;
    meeting->steps[side] = step + 1;
    return ++meeting->came == m->n * (step + 1);
}

static char *tensor(const struct loopback *loopback, const struct rt_meeting *meeting, int side) {
    return loopback->rank[meeting->rank[side]].arena + meeting->off[side];
}

static bool message(void *link, struct replay *re, const struct rt_instr *x) {
    struct loopback *loopback = (struct loopback *)link;
    const struct rt_meeting *meeting = &loopback->p->msg[x->msg];
    struct meeting *y = &loopback->meeting[x->msg];
    if (arrive(y, meeting, side_of(meeting, re->rank), re->step)) {
        cudaStream_t from = lane(loopback, meeting, y, 0), to = lane(loopback, meeting, y, 1);
        CUDA(cudaEventRecord(y->event[0], from));
        CUDA(cudaStreamWaitEvent(to, y->event[0], 0));
        mark(loopback, meeting, y, false, 1);
        if (meeting->bytes > 0)
            CUDA(cudaMemcpyAsync(tensor(loopback, meeting, 1), tensor(loopback, meeting, 0), (size_t)meeting->bytes,
                                 cudaMemcpyDeviceToDevice, to));
        mark(loopback, meeting, y, true, 1);
        CUDA(cudaEventRecord(y->event[1], to));
        CUDA(cudaStreamWaitEvent(from, y->event[1], 0));
        y->done = re->step + 1;
    }
    return y->done > re->step;
}

/* On the first member's lane: adds the others' dw to its own, in rank order, and copies the sum to them all. */
static bool reduce(void *link, struct replay *re, const struct rt_instr *x) {
    struct loopback *loopback = (struct loopback *)link;
    const struct rt_meeting *meeting = &loopback->p->msg[x->msg];
    struct meeting *y = &loopback->meeting[x->msg];
    if (arrive(y, meeting, side_of(meeting, re->rank), re->step)) {
        cudaStream_t first = lane(loopback, meeting, y, 0);
        for (int i = 1; i < meeting->n; i++) {
            CUDA(cudaEventRecord(y->event[i], lane(loopback, meeting, y, i)));
            CUDA(cudaStreamWaitEvent(first, y->event[i], 0));
        }
        mark(loopback, meeting, y, false, 0);
        for (int i = 1; i < meeting->n; i++)
            cuda_add((float *)tensor(loopback, meeting, 0), (const float *)tensor(loopback, meeting, i),
                     meeting->bytes / 4, false, first);
        for (int i = 1; i < meeting->n && meeting->bytes > 0; i++)
            CUDA(cudaMemcpyAsync(tensor(loopback, meeting, i), tensor(loopback, meeting, 0), (size_t)meeting->bytes,
                                 cudaMemcpyDeviceToDevice, first));
        mark(loopback, meeting, y, true, 0);
        CUDA(cudaEventRecord(y->event[0], first));
        for (int i = 1; i < meeting->n; i++)
            CUDA(cudaStreamWaitEvent(lane(loopback, meeting, y, i), y->event[0], 0));
        y->done = re->step + 1;
    }
    return y->done > re->step;
}

static char *take(size_t bytes) {
    char *p = NULL;
    return cudaMalloc((void **)&p, bytes) == cudaSuccess ? p : NULL;
}
static void give(char *p) { cudaFree(p); }

extern const struct cuda_transport cuda_loopback = {"loopback", NULL, true, message, reduce, take, give,
                                                    NULL,       NULL, NULL, NULL,    NULL,   NULL};

/* ---- at the start, and at the end ---- */

struct loopback *loopback_open(const struct rt_program *p, struct cuda_rank *rank) {
    struct loopback *loopback = (struct loopback *)calloc(1, sizeof *loopback);
    struct meeting *meeting = (struct meeting *)calloc((size_t)p->nmsgs + 1, sizeof *meeting);
    bool ok = loopback && meeting;
    for (int i = 0; ok && i < p->nmsgs; i++) {
        size_t n = (size_t)p->msg[i].n;
        meeting[i].event = (cudaEvent_t *)calloc(n, sizeof *meeting[i].event);
        meeting[i].steps = (int64_t *)calloc(n, sizeof *meeting[i].steps);
        meeting[i].ins = (int32_t *)calloc(n, sizeof *meeting[i].ins);
        ok = meeting[i].event && meeting[i].steps && meeting[i].ins;
        for (size_t k = 0; ok && k < n; k++)
            CUDA(cudaEventCreateWithFlags(&meeting[i].event[k], cudaEventDisableTiming));
    }
    if (!ok)
        cuda_must(cudaErrorMemoryAllocation, "messages, on the host");
    loopback->p = p;
    loopback->rank = rank;
    loopback->meeting = meeting;
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++) {
            const struct rt_instr *x = &p->rank[r].ins[i];
            if (x->msg < 0)
                continue;
            meeting[x->msg].ins[side_of(&p->msg[x->msg], r)] = i;
        }
    return loopback;
}

void loopback_close(struct loopback *loopback) {
    for (int i = 0; i < loopback->p->nmsgs; i++) {
        for (int k = 0; k < loopback->p->msg[i].n; k++)
            cudaEventDestroy(loopback->meeting[i].event[k]);
        free(loopback->meeting[i].event);
        free(loopback->meeting[i].steps);
        free(loopback->meeting[i].ins);
    }
    free(loopback->meeting);
    free(loopback);
}
