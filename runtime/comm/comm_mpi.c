/* Messages over MPI: one persistent request per SEND and RECV, started when its lane comes to it, tested by the rank's
 * one thread between its jobs. The tag is the message's id. Nothing is queued here: a lane has at most one request
 * going.
 *
 * A reduction runs along a chain, in the rank order that in-process runs keep, so that the bits agree: partial sums go
 * up, the total comes back down, in pieces that fit a scratch taken at the start. */
#include "device/device_host.h"
#include "world.h"
#include <stdio.h>
#ifdef NO_MPI
bool mpi_open(struct world *w, const struct launch *how, char *why, size_t nwhy) {
    (void)w, (void)how;
    snprintf(why, nwhy,
             "an MPI launcher started this, but it is built without MPI: set RANK, WORLD_SIZE, MASTER_ADDR and "
             "MASTER_PORT, or give --rank, --world-size, --master-addr and --master-port");
    return false;
}
#else
#include "watch.h"
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* floats */

struct chain { /* a reduction under way */
    struct rt_group group;
    int64_t at; /* pieces done in this phase */
    int phase;  /* 0: not begun, then UP, DOWN; see advance */
    bool sending;
    MPI_Request request;
};
struct mpi {
    MPI_Comm ranks;
    const struct rt_rank *k;
    int nmsgs;
    char *arena;
    MPI_Request *request; /* per instruction */
    int64_t *started;     /* per instruction: steps in which it was started */
    double *since;
    struct chain *chain; /* per instruction that is a REDUCE: place in this array */
    int32_t *chain_of;
    float *scratch;  /* PIECE floats per group lane */
    MPI_Request sum; /* of sum_begin */
};

/* Open MPI ends the process itself where a connection breaks; what it does return, we name. */
static void must(int code) {
    char text[MPI_MAX_ERROR_STRING], why[MPI_MAX_ERROR_STRING + 8];
    int n;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &n);
    snprintf(why, sizeof why, "MPI: %.*s", n, text);
    watch_fail(why);
}

/* ---- between steps ---- */

/* Tested rather than waited for: MPI's own waiting would keep a core from the ranks that share it. */
static void finish(MPI_Request *request) {
    for (int done = 0; !done;) {
        must(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (!done)
            sched_yield();
    }
}

static void mpi_all(void *link, const void *mine, void *all, size_t bytes) {
    struct mpi *c = link;
    MPI_Request request;
    must(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, c->ranks, &request));
    finish(&request);
}

static void mpi_sum_begin(void *link, float *x, int n) {
    struct mpi *c = link;
    must(MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, c->ranks, &c->sum));
}

static void mpi_sum_end(void *link) {
    struct mpi *c = link;
    finish(&c->sum);
}

/* Progress is made by testing. A rank that is gone is the launcher's business. */
static void mpi_progress(void *link) {
    struct mpi *c = link;
    int done;
    must(MPI_Test(&c->sum, &done, MPI_STATUS_IGNORE));
}

static void mpi_close(void *link) {
    struct mpi *c = link;
    for (int32_t i = 0; c->k && i < c->k->nins; i++)
        if (c->request[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&c->request[i]);
    free(c->request);
    free(c->started);
    free(c->since);
    free(c->chain);
    free(c->chain_of);
    free(c->scratch);
    MPI_Comm_free(&c->ranks);
    free(c);
    MPI_Finalize();
}

enum { LONG = 1 << 30 }; /* bytes; a longer tensor does not fit MPI's counts, which are ints */

/* A tensor of so many LONGs and a rest, as one thing to send. */
static MPI_Datatype long_tensor(int64_t bytes) {
    MPI_Datatype longs, parts[2], all;
    must(MPI_Type_contiguous(LONG, MPI_BYTE, &longs));
    parts[0] = longs;
    parts[1] = MPI_BYTE;
    must(MPI_Type_create_struct(2, (int[]){(int)(bytes / LONG), (int)(bytes % LONG)},
                                (MPI_Aint[]){0, bytes / LONG * LONG}, parts, &all));
    must(MPI_Type_commit(&all));
    must(MPI_Type_free(&longs));
    return all;
}

static void open_message(struct mpi *c, const struct rt_instr *x, MPI_Request *request) {
    char *tensor = c->arena + x->at[ROLE_t];
    bool fits = x->bytes <= LONG;
    MPI_Datatype type = fits ? MPI_BYTE : long_tensor(x->bytes);
    int count = fits ? (int)x->bytes : 1;
    if (is_send(x->op))
        must(MPI_Send_init(tensor, count, type, x->peer, x->msg, c->ranks, request));
    else
        must(MPI_Recv_init(tensor, count, type, x->peer, x->msg, c->ranks, request));
    if (!fits)
        must(MPI_Type_free(&type)); /* the request keeps it */
}

static bool mpi_prepare(void *link, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena) {
    struct mpi *c = link;
    int rank, chains = 0;
    MPI_Comm_rank(c->ranks, &rank);
    for (int32_t i = 0; i < k->nins; i++)
        chains += is_group(k->ins[i].op);
    c->k = k;
    c->nmsgs = nmsgs;
    c->arena = arena;
    c->request = malloc(sizeof *c->request * (size_t)(k->nins + 1));
    c->started = calloc((size_t)k->nins + 1, sizeof *c->started);
    c->since = calloc((size_t)k->nins + 1, sizeof *c->since);
    c->chain = calloc((size_t)chains + 1, sizeof *c->chain);
    c->chain_of = calloc((size_t)k->nins + 1, sizeof *c->chain_of);
    c->scratch = malloc(sizeof(float) * PIECE * (size_t)(k->nlanes + 1));
    if (!c->request || !c->started || !c->since || !c->chain || !c->chain_of || !c->scratch)
        return false;
    for (int32_t i = 0, n = 0; i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        c->request[i] = MPI_REQUEST_NULL;
        if (is_group(x->op)) {
            struct chain *g = &c->chain[n];
            c->chain_of[i] = n++;
            g->group = group_of(groups, x->peer, rank);
            continue;
        }
        if (x->msg < 0)
            continue;
        open_message(c, x, &c->request[i]);
    }
    return true;
}

static bool message(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct mpi *c = link;
    int32_t i = (int32_t)(x - c->k->ins);
    int moved;
    if (c->started[i] <= re->step) {
        c->started[i] = re->step + 1;
        c->since[i] = re->device->clock(re);
        must(MPI_Start(&c->request[i]));
    }
    must(MPI_Test(&c->request[i], &moved, MPI_STATUS_IGNORE));
    if (!moved)
        return false;
    *start = c->since[i];
    *end = re->device->clock(re);
    return true;
}

enum { UP = 1, UP_SENT, DOWN, DOWN_SENT };

/* One step of the chain: false when it must wait for a message. Each phase walks the tensor piece by piece. One of no
 * bytes has a piece too, of no floats: no member ends before all have come. */
static bool advance(struct mpi *c, struct chain *g, const struct rt_instr *x) {
    float *dw = (float *)(void *)(c->arena + x->at[ROLE_dw]), *scratch = c->scratch + (int64_t)PIECE * x->lane;
    int64_t n = x->bytes / (int64_t)sizeof(float), pieces = n ? (n + PIECE - 1) / PIECE : 1;
    int up = c->nmsgs + 2 * x->msg, down = up + 1;
    while (g->at < pieces) {
        float *piece = dw + g->at * PIECE;
        int count = (int)(g->at < pieces - 1 ? PIECE : n - g->at * PIECE), came;
        bool rises = g->phase == UP || g->phase == UP_SENT;
        int before = rises ? g->group.me - 1 : g->group.me + 1, next = rises ? g->group.me + 1 : g->group.me - 1;
        bool receives = before >= 0 && before < g->group.n, sends = next >= 0 && next < g->group.n;
        bool sent = g->phase == UP_SENT || g->phase == DOWN_SENT;
        if (g->request == MPI_REQUEST_NULL && !g->sending) {
            if (!sent && receives)
                must(MPI_Irecv(rises ? scratch : piece, count, MPI_FLOAT, g->group.member[before], rises ? up : down,
                               c->ranks, &g->request));
            else if (sent && sends)
                must(MPI_Isend(piece, count, MPI_FLOAT, g->group.member[next], rises ? up : down, c->ranks,
                               &g->request));
            g->sending = true; /* something is under way, if only nothing */
        }
        must(MPI_Test(&g->request, &came, MPI_STATUS_IGNORE));
        if (!came)
            return false;
        g->sending = false;
        if (!sent && receives && rises)
            host_add(piece, scratch, count, false);
        g->phase += sent ? -1 : 1;
        g->at += sent;
    }
    return true;
}

static bool reduce(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct mpi *c = link;
    int32_t i = (int32_t)(x - c->k->ins);
    struct chain *g = &c->chain[c->chain_of[i]];
    if (c->started[i] <= re->step) {
        c->started[i] = re->step + 1;
        c->since[i] = re->device->clock(re);
        g->phase = UP;
        g->at = 0;
        g->request = MPI_REQUEST_NULL;
        g->sending = false;
    }
    if (g->phase == UP || g->phase == UP_SENT) {
        if (!advance(c, g, x))
            return false;
        g->phase = DOWN;
        g->at = 0;
    }
    if (!advance(c, g, x))
        return false;
    *start = c->since[i];
    *end = re->device->clock(re);
    return true;
}

/* Nothing chains here: progress is made by testing. Other processes may want the core meanwhile. */
static void idle(void *link, struct replay *re) {
    (void)link, (void)re;
    sched_yield();
}

bool mpi_open(struct world *w, const struct launch *how, char *why, size_t nwhy) {
    static const struct host_transport messages = {message, reduce, idle};
    struct mpi *c = calloc(1, sizeof *c);
    int level, rank;
    if (!c) {
        snprintf(why, nwhy, "no memory");
        return false;
    }
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level); /* the watch has a thread, which knows no MPI */
    c->sum = MPI_REQUEST_NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, how->rank >= 0 ? how->rank : rank, &c->ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(c->ranks, MPI_ERRORS_RETURN);
    *w = (struct world){.transport = &messages, .link = c, .all = mpi_all, .sum_begin = mpi_sum_begin};
    w->sum_end = mpi_sum_end;
    w->progress = mpi_progress;
    w->prepare = mpi_prepare;
    w->close = mpi_close;
    MPI_Comm_rank(c->ranks, &w->rank);
    MPI_Comm_size(c->ranks, &w->size);
    return true;
}
#endif
