/* Messages over MPI: one persistent request per SEND and RECV, started when its lane comes to it, tested by the rank's
 * one thread between its jobs. The tag is the message's id. Nothing is queued here: a lane has at most one request
 * going.
 *
 * A reduction runs along a chain, in the rank order that in-process runs keep, so that the bits agree: partial sums go
 * up, the total comes back down, in pieces that fit a scratch taken at the start. */
#include "comm_mpi.h"
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* floats */

struct ring { /* a reduction under way */
    const int32_t *member;
    int n, me;
    int64_t at; /* floats done in this phase */
    int phase;  /* 0: not begun, then UP, DOWN; see advance */
    bool sending;
    MPI_Request request;
};
struct mpi {
    const struct rt_rank *k;
    int nmsgs;
    char *arena;
    MPI_Request *request; /* per instruction */
    int64_t *started;     /* per instruction: steps in which it was started */
    double *since;
    struct ring *ring; /* per instruction that is a REDUCE: place in this array */
    int32_t *ring_of;
    float *scratch; /* PIECE floats per group lane */
};

struct mpi *mpi_open(int *argc, char ***argv, int *rank, int *size) {
    int level;
    MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return calloc(1, sizeof(struct mpi));
}

void mpi_all(struct mpi *c, const void *mine, void *all, size_t bytes) {
    (void)c;
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

void mpi_sum(struct mpi *c, float *x, int64_t n) {
    (void)c;
    for (int64_t at = 0; at < n; at += 1 << 20)
        MPI_Allreduce(MPI_IN_PLACE, x + at, (int)(n - at < 1 << 20 ? n - at : 1 << 20), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
}

void mpi_spread(struct mpi *c, void *x, size_t bytes, int from) {
    (void)c;
    MPI_Bcast(x, (int)bytes, MPI_BYTE, from, MPI_COMM_WORLD);
}

void mpi_abort(struct mpi *c, int code) {
    (void)c;
    MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code);
}

void mpi_close(struct mpi *c) {
    for (int32_t i = 0; c->k && i < c->k->nins; i++)
        if (c->request[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&c->request[i]);
    free(c->request);
    free(c->started);
    free(c->since);
    free(c->ring);
    free(c->ring_of);
    free(c->scratch);
    free(c);
    MPI_Finalize();
}

static const int32_t *group_at(const int32_t *groups, int number) {
    for (; number > 0; groups++)
        number -= *groups < 0;
    return groups;
}

bool mpi_prepare(struct mpi *c, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena) {
    int rank, rings = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int32_t i = 0; i < k->nins; i++)
        rings += k->ins[i].op == OP_REDUCE;
    c->k = k;
    c->nmsgs = nmsgs;
    c->arena = arena;
    c->request = malloc(sizeof *c->request * (size_t)(k->nins + 1));
    c->started = calloc((size_t)k->nins + 1, sizeof *c->started);
    c->since = calloc((size_t)k->nins + 1, sizeof *c->since);
    c->ring = calloc((size_t)rings + 1, sizeof *c->ring);
    c->ring_of = calloc((size_t)k->nins + 1, sizeof *c->ring_of);
    c->scratch = malloc(sizeof(float) * PIECE * (size_t)(k->nlanes + 1));
    if (!c->request || !c->started || !c->since || !c->ring || !c->ring_of || !c->scratch)
        return false;
    for (int32_t i = 0, n = 0; i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        c->request[i] = MPI_REQUEST_NULL;
        if (x->op == OP_REDUCE) {
            struct ring *g = &c->ring[n];
            c->ring_of[i] = n++;
            g->member = group_at(groups, x->peer);
            while (g->member[g->n] >= 0) {
                g->me = g->member[g->n] == rank ? g->n : g->me;
                g->n++;
            }
            continue;
        }
        if (x->msg < 0)
            continue;
        char *tensor = arena + x->at[ROLE_t];
        bool sends = (x->op - OP_SEND_F) % 2 == 0; /* ORDER OPS: SENDs and RECVs alternate */
        if (sends)
            MPI_Send_init(tensor, (int)x->bytes, MPI_BYTE, x->peer, x->msg, MPI_COMM_WORLD, &c->request[i]);
        else
            MPI_Recv_init(tensor, (int)x->bytes, MPI_BYTE, x->peer, x->msg, MPI_COMM_WORLD, &c->request[i]);
    }
    return true;
}

static bool message(void *link, struct replay *z, const struct rt_instr *x, double *start, double *end) {
    struct mpi *c = link;
    int32_t i = (int32_t)(x - c->k->ins);
    int moved;
    if (c->started[i] <= z->step) {
        c->started[i] = z->step + 1;
        c->since[i] = z->device->clock(z);
        MPI_Start(&c->request[i]);
    }
    MPI_Test(&c->request[i], &moved, MPI_STATUS_IGNORE);
    if (!moved)
        return false;
    *start = c->since[i];
    *end = z->device->clock(z);
    return true;
}

enum { UP = 1, UP_SENT, DOWN, DOWN_SENT };

/* One step of the chain: false when it must wait for a message. Each phase walks the tensor piece by piece. */
static bool chain(struct mpi *c, struct ring *g, const struct rt_instr *x) {
    float *dw = (float *)(void *)(c->arena + x->at[ROLE_dw]), *scratch = c->scratch + (int64_t)PIECE * x->lane;
    int64_t n = x->bytes / (int64_t)sizeof(float);
    int up = c->nmsgs + 2 * x->msg, down = up + 1;
    while (g->at < n) {
        int count = (int)(n - g->at < PIECE ? n - g->at : PIECE), came;
        bool rises = g->phase == UP || g->phase == UP_SENT;
        int before = rises ? g->me - 1 : g->me + 1, next = rises ? g->me + 1 : g->me - 1;
        bool receives = before >= 0 && before < g->n, sends = next >= 0 && next < g->n;
        bool sent = g->phase == UP_SENT || g->phase == DOWN_SENT;
        if (g->request == MPI_REQUEST_NULL && !g->sending) {
            if (!sent && receives)
                MPI_Irecv(rises ? scratch : dw + g->at, count, MPI_FLOAT, g->member[before], rises ? up : down,
                          MPI_COMM_WORLD, &g->request);
            else if (sent && sends)
                MPI_Isend(dw + g->at, count, MPI_FLOAT, g->member[next], rises ? up : down, MPI_COMM_WORLD,
                          &g->request);
            g->sending = true; /* something is under way, if only nothing */
        }
        MPI_Test(&g->request, &came, MPI_STATUS_IGNORE);
        if (!came)
            return false;
        g->sending = false;
        if (!sent && receives && rises)
            host_add(dw + g->at, scratch, count, false);
        g->phase += sent ? -1 : 1;
        g->at += sent ? count : 0;
    }
    return true;
}

static bool reduce(void *link, struct replay *z, const struct rt_instr *x, double *start, double *end) {
    struct mpi *c = link;
    int32_t i = (int32_t)(x - c->k->ins);
    struct ring *g = &c->ring[c->ring_of[i]];
    if (c->started[i] <= z->step) {
        c->started[i] = z->step + 1;
        c->since[i] = z->device->clock(z);
        g->phase = UP;
        g->at = 0;
        g->request = MPI_REQUEST_NULL;
        g->sending = false;
    }
    if (g->phase == UP || g->phase == UP_SENT) {
        if (!chain(c, g, x))
            return false;
        g->phase = DOWN;
        g->at = 0;
    }
    if (!chain(c, g, x))
        return false;
    *start = c->since[i];
    *end = z->device->clock(z);
    return true;
}

/* Nothing rings here: progress is made by testing. Other processes may want the core meanwhile. */
static void idle(void *link, struct replay *z) {
    (void)link, (void)z;
    sched_yield();
}

const struct comm comm_mpi = {message, reduce, idle};
