/* Messages between ranks that share one device and one thread. Each is an event and a copy inside the device.
 *
 * The side of a message that is enqueued second enqueues the whole exchange: the receiver's lane waits for the sender's
 * and copies from arena to arena, and the sender's lane waits for the copy. So a send ends no sooner than its receive,
 * as with any other transport, and the whole step of all ranks is one graph. */
#include "comm_loopback.cuh"
#include <stdlib.h>

struct meeting {
    int64_t came, done; /* sides that have come since the start, and number of completed exchanges */
    cudaEvent_t *event; /* per side: the event that it has come; for the first side, also the event that all is done */
    int64_t *turns;     /* per side: number of times it has come */
    int32_t *ins;       /* per side: its instruction */
    float *scratch;     /* scratch of the first side's lane, if it sums */
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

/* Marks the times of all sides: a message's two sides, or a collective's members, begin and end with the work. */
static void mark(const struct loopback *loopback, const struct rt_meeting *meeting, const struct meeting *y, bool end,
                 int on) {
    for (int side = 0; side < meeting->n; side++)
        cuda_mark(&loopback->rank[meeting->rank[side]], y->ins[side], end, lane(loopback, meeting, y, on));
}

/* Records that a side has come. Returns true for the side that comes last, on its first try; it does the work. */
static bool join_meeting(struct meeting *meeting, const struct rt_meeting *m, int side, int64_t turn) {
    if (meeting->turns[side] > turn)
        return false;
    meeting->turns[side] = turn + 1;
    return ++meeting->came == m->n * (turn + 1);
}

static const struct rt_instr *instr_of(const struct loopback *loopback, const struct rt_meeting *meeting,
                                       const struct meeting *y, int side) {
    return &loopback->p->rank[meeting->rank[side]].ins[y->ins[side]];
}

static char *tensor(const struct loopback *loopback, const struct rt_meeting *meeting, int side) {
    return loopback->rank[meeting->rank[side]].arena + meeting->off[side];
}
/* Returns a member's second operand. */
static char *result(const struct loopback *loopback, const struct rt_meeting *meeting, int side) {
    return loopback->rank[meeting->rank[side]].arena + meeting->to[side];
}

static void copy_on_stream(char *to, const char *from, int64_t bytes, cudaStream_t stream) {
    if (bytes > 0 && to != from)
        CUDA(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, stream));
}

static bool loopback_message(void *link, struct replay *re, const struct rt_instr *x) {
    struct loopback *loopback = (struct loopback *)link;
    const struct rt_meeting *meeting = &loopback->p->msg[x->msg];
    struct meeting *y = &loopback->meeting[x->msg];
    if (join_meeting(y, meeting, side_of(meeting, re->rank), re->turn)) {
        cudaStream_t from = lane(loopback, meeting, y, 0), to = lane(loopback, meeting, y, 1);
        CUDA(cudaEventRecord(y->event[0], from));
        CUDA(cudaStreamWaitEvent(to, y->event[0], 0));
        mark(loopback, meeting, y, false, 1);
        copy_on_stream(tensor(loopback, meeting, 1), tensor(loopback, meeting, 0), meeting->bytes, to);
        mark(loopback, meeting, y, true, 1);
        CUDA(cudaEventRecord(y->event[1], to));
        CUDA(cudaStreamWaitEvent(from, y->event[1], 0));
        y->done = re->turn + 1;
    }
    return y->done > re->turn;
}

/* ---- collectives: on the first member's lane, once all have come ---- */

enum { SCRATCH = REDUCE_PIECE }; /* maximum bytes per lane; a longer sum goes in pieces */

/* Adds the others' dw, or norm, to the first member's, in the members' order, and copies the sum to them all. */
static void all_reduce(const struct loopback *loopback, const struct rt_meeting *m, bool norm, cudaStream_t stream) {
    for (int i = 1; i < m->n; i++)
        if (norm)
            cuda_add_norm((uint64_t *)tensor(loopback, m, 0), (const uint64_t *)tensor(loopback, m, i), stream);
        else
            cuda_add((float *)tensor(loopback, m, 0), (const float *)tensor(loopback, m, i), m->bytes / 4, false,
                     stream);
    for (int i = 1; i < m->n; i++)
        copy_on_stream(tensor(loopback, m, i), tensor(loopback, m, 0), m->bytes, stream);
}

/* Sets member `to`'s result to, or increments it by, the sum of all first operands from `at` bytes on; to = -1: all
 * members' results. The result may overlap an operand, so each piece is summed before any of it is written. */
static void sum_to(const struct loopback *loopback, const struct rt_meeting *m, const struct meeting *y,
                   const struct rt_instr *x, int to, int64_t at, cudaStream_t stream) {
    int64_t size = summand_bytes(loopback->p->model, x->op);
    for (int64_t done = 0, bytes; done < m->bytes; done += bytes) {
        bytes = min(m->bytes - done, (int64_t)SCRATCH * size / (int64_t)sizeof(float));
        for (int i = 0; i < m->n; i++)
            cuda_widen(y->scratch, tensor(loopback, m, i) + at + done, size, bytes / size, i == 0, stream);
        for (int i = max(to, 0); i < (to < 0 ? m->n : to + 1); i++)
            if (size < (int64_t)sizeof(float))
                cuda_narrow((to < 0 ? tensor : result)(loopback, m, i) + done, y->scratch, bytes / size, stream);
            else
                cuda_add((float *)((to < 0 ? tensor : result)(loopback, m, i) + done), y->scratch, bytes / size,
                         writes_sum(instr_of(loopback, m, y, i)), stream);
    }
}

static void exchange(const struct loopback *loopback, const struct rt_meeting *m, const struct meeting *y,
                     const struct rt_instr *x, cudaStream_t stream) {
    int root = has_root(x->op) ? side_of(m, x->root) : -1, motion = motion_of(x->op);
    int64_t bytes = m->bytes, piece = bytes / m->n;
    if (x->op == OP_ALL_REDUCE || x->op == OP_ALL_REDUCE_N)
        all_reduce(loopback, m, x->op == OP_ALL_REDUCE_N, stream);
    if (x->op == OP_ALL_REDUCE_A)
        sum_to(loopback, m, y, x, -1, 0, stream);
    if (motion == OP_REDUCE)
        sum_to(loopback, m, y, x, root, 0, stream);
    for (int i = 0; i < m->n; i++) {
        if (motion == OP_REDUCE_SCATTER)
            sum_to(loopback, m, y, x, i, i * bytes, stream);
        if (motion == OP_BROADCAST && i != root)
            copy_on_stream(result(loopback, m, i), tensor(loopback, m, root), bytes, stream);
        for (int j = 0; j < m->n && motion == OP_ALL_GATHER; j++)
            copy_on_stream(result(loopback, m, i) + j * bytes, tensor(loopback, m, j), bytes, stream);
        for (int j = 0; j < m->n && motion == OP_ALL_TO_ALL_A; j++)
            copy_on_stream(result(loopback, m, i) + j * piece, tensor(loopback, m, j) + i * piece, piece, stream);
    }
}

static bool loopback_collective(void *link, struct replay *re, const struct rt_instr *x) {
    struct loopback *loopback = (struct loopback *)link;
    const struct rt_meeting *meeting = &loopback->p->msg[x->msg];
    struct meeting *y = &loopback->meeting[x->msg];
    if (join_meeting(y, meeting, side_of(meeting, re->rank), re->turn)) {
        cudaStream_t first = lane(loopback, meeting, y, 0);
        for (int i = 1; i < meeting->n; i++) {
            CUDA(cudaEventRecord(y->event[i], lane(loopback, meeting, y, i)));
            CUDA(cudaStreamWaitEvent(first, y->event[i], 0));
        }
        mark(loopback, meeting, y, false, 0);
        exchange(loopback, meeting, y, x, first);
        mark(loopback, meeting, y, true, 0);
        CUDA(cudaEventRecord(y->event[0], first));
        for (int i = 1; i < meeting->n; i++)
            CUDA(cudaStreamWaitEvent(lane(loopback, meeting, y, i), y->event[0], 0));
        y->done = re->turn + 1;
    }
    return y->done > re->turn;
}

/* ---- memory ---- */

/* Returns whether x sums into a scratch buffer on this rank, as the first member of its group. */
static bool has_scratch(const struct rt_program *p, int rank, const struct rt_instr *x) {
    return sums(x->op) && x->op != OP_ALL_REDUCE && x->op != OP_ALL_REDUCE_N && p->msg[x->msg].rank[0] == rank;
}

static int64_t scratch_bytes(const struct rt_program *p, int rank, int lane) {
    const struct rt_rank *k = &p->rank[rank];
    int64_t most = 0;
    for (int32_t c = k->lane_at[lane]; c < k->lane_at[lane + 1]; c++) {
        const struct rt_instr *x = &k->ins[k->lane_ins[c]];
        int64_t bytes =
            has_scratch(p, rank, x) ? x->bytes / summand_bytes(p->model, x->op) * (int64_t)sizeof(float) : 0;
        most = bytes > most ? bytes : most;
    }
    return (min(most, (int64_t)SCRATCH) + 4095) / 4096 * 4096;
}

static int64_t loopback_extra_bytes(const struct rt_program *p, int rank) {
    int64_t bytes = 0;
    for (int l = 0; l < p->rank[rank].nlanes; l++)
        bytes += scratch_bytes(p, rank, l);
    return bytes;
}

static void place_scratch(const struct loopback *loopback, int rank) {
    const struct rt_rank *k = &loopback->p->rank[rank];
    char *at = loopback->rank[rank].extra;
    for (int l = 0; l < k->nlanes; at += scratch_bytes(loopback->p, rank, l++))
        for (int32_t c = k->lane_at[l]; c < k->lane_at[l + 1]; c++) {
            const struct rt_instr *x = &k->ins[k->lane_ins[c]];
            if (has_scratch(loopback->p, rank, x))
                loopback->meeting[x->msg].scratch = (float *)at;
        }
}

static char *loopback_allocate(int, size_t bytes, char *why, size_t n) { return cuda_allocate(bytes, why, n); }
static void loopback_free(char *p) { cudaFree(p); }

extern const struct cuda_transport cuda_loopback = {"loopback",
                                                    NULL,
                                                    true,
                                                    loopback_message,
                                                    loopback_collective,
                                                    loopback_allocate,
                                                    loopback_free,
                                                    loopback_extra_bytes,
                                                    NULL,
                                                    NULL,
                                                    NULL,
                                                    NULL,
                                                    NULL};

/* ---- at the start, and at the end ---- */

struct loopback *loopback_open(const struct rt_program *p, struct cuda_rank *rank) {
    struct loopback *loopback = (struct loopback *)calloc(1, sizeof *loopback);
    struct meeting *meeting = (struct meeting *)calloc((size_t)p->nmsgs + 1, sizeof *meeting);
    bool ok = loopback && meeting;
    for (int i = 0; ok && i < p->nmsgs; i++) {
        size_t n = (size_t)p->msg[i].n;
        meeting[i].event = (cudaEvent_t *)calloc(n, sizeof *meeting[i].event);
        meeting[i].turns = (int64_t *)calloc(n, sizeof *meeting[i].turns);
        meeting[i].ins = (int32_t *)calloc(n, sizeof *meeting[i].ins);
        ok = meeting[i].event && meeting[i].turns && meeting[i].ins;
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
            if (is_message(x->op))
                meeting[x->msg].ins[side_of(&p->msg[x->msg], r)] = i;
        }
    for (int r = 0; r < p->workers; r++)
        place_scratch(loopback, r);
    return loopback;
}

void loopback_close(struct loopback *loopback) {
    for (int i = 0; i < loopback->p->nmsgs; i++) {
        for (int k = 0; k < loopback->p->msg[i].n; k++)
            cudaEventDestroy(loopback->meeting[i].event[k]);
        free(loopback->meeting[i].event);
        free(loopback->meeting[i].turns);
        free(loopback->meeting[i].ins);
    }
    free(loopback->meeting);
    free(loopback);
}
