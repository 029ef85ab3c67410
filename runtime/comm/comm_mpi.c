/* Messages over MPI: one persistent request per SEND and RECV, started when its lane reaches it and tested by the
 * rank's only thread between jobs. The tag is the message's id. Nothing is queued here: a lane has at most one request
 * in flight, or one in each track of its collective. All pieces of a collective (pairwise.h) have its id as tag.
 */
#include "device/job.h"
#include "pairwise.h"
#include "device/device_host.h"
#include "world.h"
#include <assert.h>
#include <stdio.h>
#ifdef NO_MPI
bool mpi_open(struct world *w, const struct launch *how, char *why, size_t nwhy) {
    (void)w, (void)how;
    snprintf(why, nwhy,
             "an MPI launcher started this program, but it was built without MPI: set RANK, WORLD_SIZE, MASTER_ADDR "
             "and MASTER_PORT, or give --rank, --world-size, --master-addr and --master-port");
    return false;
}
#else
#include "watch.h"
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct mpi {
    MPI_Comm ranks;
    const struct rt_rank *k;
    char *arena;
    MPI_Request *request; /* per instruction */
    int64_t *started;     /* times each instruction was started */
    double *since;
    struct collectives collectives;
    MPI_Request *track; /* request of the piece that is moving, per lane and track */
    MPI_Request sum;    /* request of sum_begin */
};

/* Reports the errors that Open MPI returns. If a connection breaks, Open MPI ends the process itself. */
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

/* Tests in a loop: MPI's own wait would keep the core busy and block ranks that share it. */
static void finish_request(MPI_Request *request) {
    for (int done = 0; !done;) {
        must(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (!done)
            sched_yield();
    }
}

static void mpi_all(void *link, const void *mine, void *all, size_t bytes) {
    struct mpi *mpi = link;
    MPI_Request request;
    must(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, mpi->ranks, &request));
    finish_request(&request);
}

static void mpi_sum_begin(void *link, float *x, int n) {
    struct mpi *mpi = link;
    must(MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, mpi->ranks, &mpi->sum));
}

static void mpi_sum_end(void *link) {
    struct mpi *mpi = link;
    finish_request(&mpi->sum);
}

/* Makes progress by testing. The launcher deals with dead ranks. */
static bool mpi_progress(void *link) {
    struct mpi *mpi = link;
    int done;
    must(MPI_Test(&mpi->sum, &done, MPI_STATUS_IGNORE));
    return done;
}

static void mpi_close(void *link) {
    struct mpi *mpi = link;
    for (int32_t i = 0; mpi->k && i < mpi->k->nins; i++)
        if (mpi->request[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&mpi->request[i]);
    free(mpi->request);
    free(mpi->started);
    free(mpi->since);
    free(mpi->track);
    collectives_close(&mpi->collectives);
    MPI_Comm_free(&mpi->ranks);
    free(mpi);
    MPI_Finalize();
}

enum { LONG = 1 << 30 }; /* bytes; a longer tensor does not fit MPI's counts, which are ints */

/* Returns a datatype for a tensor of several LONGs and a remainder. */
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

static void open_message(struct mpi *mpi, const struct rt_instr *x, MPI_Request *request) {
    char *tensor = job_operand(mpi->arena, x, ROLE_t);
    bool fits = x->bytes <= LONG;
    assert(x->at.t ? x->at.t->bytes == x->bytes : x->bytes == 0); /* both ends name the same bytes */
    MPI_Datatype type = fits ? MPI_BYTE : long_tensor(x->bytes);
    int count = fits ? (int)x->bytes : 1;
    if (is_send(x->op))
        must(MPI_Send_init(tensor, count, type, x->peer, x->msg, mpi->ranks, request));
    else
        must(MPI_Recv_init(tensor, count, type, x->peer, x->msg, mpi->ranks, request));
    if (!fits)
        must(MPI_Type_free(&type)); /* the request keeps it */
}

static bool mpi_prepare(void *link, const struct rt_rank *k, int nmsgs, const int32_t *groups, char *arena) {
    struct mpi *mpi = link;
    int rank;
    (void)nmsgs;
    MPI_Comm_rank(mpi->ranks, &rank);
    mpi->k = k;
    mpi->arena = arena;
    mpi->request = malloc(sizeof *mpi->request * (size_t)(k->nins + 1));
    mpi->started = calloc((size_t)k->nins + 1, sizeof *mpi->started);
    mpi->since = calloc((size_t)k->nins + 1, sizeof *mpi->since);
    mpi->track = malloc(sizeof *mpi->track * (size_t)(k->nlanes * TRACKS + 1));
    if (!mpi->request || !mpi->started || !mpi->since || !mpi->track ||
        !collectives_open(&mpi->collectives, k, rank, groups, arena))
        return false;
    for (int t = 0; t < k->nlanes * TRACKS; t++)
        mpi->track[t] = MPI_REQUEST_NULL;
    for (int32_t i = 0; i < k->nins; i++) {
        mpi->request[i] = MPI_REQUEST_NULL;
        if (is_message(k->ins[i].op) && !is_group(k->ins[i].op))
            open_message(mpi, &k->ins[i], &mpi->request[i]);
    }
    return true;
}

static bool mpi_message(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct mpi *mpi = link;
    int32_t i = (int32_t)(x - mpi->k->ins);
    int moved;
    assert(mpi->request[i] != MPI_REQUEST_NULL && mpi->started[i] <= re->turn + 1);
    if (mpi->started[i] <= re->turn) {
        assert(mpi->started[i] == re->turn); /* a persistent request, started once in each turn */
        mpi->started[i] = re->turn + 1;
        mpi->since[i] = re->device->clock(re);
        must(MPI_Start(&mpi->request[i]));
    }
    must(MPI_Test(&mpi->request[i], &moved, MPI_STATUS_IGNORE));
    if (!moved)
        return false;
    *start = mpi->since[i];
    *end = re->device->clock(re);
    return true;
}

static bool mpi_move_piece(void *link, const struct replay *re, const struct rt_instr *x, int track,
                           const struct piece *piece) {
    struct mpi *mpi = link;
    MPI_Request *request = &mpi->track[x->lane * TRACKS + track];
    int rank = mpi->collectives.group[x->group].member[piece->member], bytes = (int)piece->bytes, moved;
    (void)re;
    assert(bytes == piece->bytes && bytes >= 0);
    if (*request == MPI_REQUEST_NULL && piece->sends)
        must(MPI_Isend(piece->at, bytes, MPI_BYTE, rank, x->msg, mpi->ranks, request));
    else if (*request == MPI_REQUEST_NULL)
        must(MPI_Irecv(piece->at, bytes, MPI_BYTE, rank, x->msg, mpi->ranks, request));
    must(MPI_Test(request, &moved, MPI_STATUS_IGNORE));
    return moved;
}

static bool mpi_collective(void *link, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    return collectives_run(&((struct mpi *)link)->collectives, re, x, start, end);
}

/* Yields: testing makes progress, and other processes may want the core meanwhile. */
static void mpi_idle(void *link, struct replay *re) {
    (void)link, (void)re;
    sched_yield();
}

bool mpi_open(struct world *world, const struct launch *how, char *why, size_t nwhy) {
    static const struct host_transport messages = {mpi_message, mpi_collective, mpi_idle, NULL, NULL};
    struct mpi *mpi = calloc(1, sizeof *mpi);
    int level, rank;
    if (!mpi) {
        snprintf(why, nwhy, "no memory");
        return false;
    }
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level); /* the watch has a thread, which makes no MPI calls */
    mpi->sum = MPI_REQUEST_NULL;
    mpi->collectives.move = mpi_move_piece;
    mpi->collectives.link = mpi;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, how->rank >= 0 ? how->rank : rank, &mpi->ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(mpi->ranks, MPI_ERRORS_RETURN);
    *world = (struct world){
        .transport = &messages, .messages = mpi, .link = mpi, .all = mpi_all, .sum_begin = mpi_sum_begin};
    world->sum_end = mpi_sum_end;
    world->progress = mpi_progress;
    world->prepare = mpi_prepare;
    world->close = mpi_close;
    MPI_Comm_rank(mpi->ranks, &world->rank);
    MPI_Comm_size(mpi->ranks, &world->size);
    return true;
}
#endif
