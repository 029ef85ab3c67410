/* A member's messages are divided into tracks. Messages of one track move one after the other; tracks move
 * concurrently, except that a message may wait for the message of another track that brings its contents. With n
 * members, each sends:
 *
 *   ALL_GATHER      n-1 shards: in a ring, first its own to the next member, then those received from the member before
 *   BROADCAST       the whole, once: in the same ring, from the root to the member before it
 *   ALL_REDUCE      the whole, twice: sums go up the chain of members, the total comes back down
 *   REDUCE          the whole, once: up the same chain, and from its end to the root
 *   REDUCE_SCATTER  n-1 shards, each to its owner, which adds what it receives, in the members' order
 *   ALL_TO_ALL_A    likewise, without adding
 *
 * No member waits for ever, even if each message blocks its sender until it is received. For the last two, both ends
 * order messages by piece, then sender, then receiver; so the first message in that order that has not moved can
 * move. */
#include "device/job.h"
#include "pairwise.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- which messages ---- */

static float *floats_at(char *at) { return (float *)(void *)at; }

/* Returns piece k of the data that begin at `from`. */
static struct piece piece_of(const struct collective *c, char *from, int64_t k, bool sends, int member) {
    const int64_t most = 4 * PIECE;
    struct piece piece = {.member = member, .sends = sends};
    piece.at = from ? from + k * most : NULL;
    piece.bytes = k < c->pieces - 1 ? most : c->bytes - k * most;
    assert(k >= 0 && k < c->pieces && piece.bytes >= 0 && piece.bytes <= most);
    assert(member >= 0 && member < c->group.n);
    return piece;
}

static struct piece piece_at(struct piece piece, int track, int64_t count) {
    piece.after = track;
    piece.count = count;
    return piece;
}

static struct piece in_scratch(struct piece piece, float *scratch) {
    piece.at = (char *)scratch;
    return piece;
}

static void plan_gather(struct collective *c) { c->length[IN] = c->length[OUT] = (c->group.n - 1) * c->pieces; }

static struct piece gather_piece(const struct collective *c, int track, int64_t k) {
    int n = c->group.n, me = c->group.me, before = (me + n - 1) % n;
    int owner = ((track == IN ? before : me) + n - (int)(k / c->pieces)) % n;
    char *shard = c->dst ? c->dst + owner * c->bytes : NULL;
    if (track == IN)
        return piece_of(c, shard, k % c->pieces, false, before);
    return piece_at(piece_of(c, shard, k % c->pieces, true, (me + 1) % n), IN, k - c->pieces + 1);
}

static int behind_root(const struct collective *c) { return (c->group.me + c->group.n - c->root) % c->group.n; }

static void plan_broadcast(struct collective *c) {
    c->length[IN] = behind_root(c) > 0 ? c->pieces : 0;
    c->length[OUT] = behind_root(c) < c->group.n - 1 ? c->pieces : 0;
}

static struct piece broadcast_piece(const struct collective *c, int track, int64_t k) {
    int n = c->group.n, me = c->group.me;
    if (track == IN)
        return piece_of(c, c->dst, k, false, (me + n - 1) % n);
    if (behind_root(c) == 0)
        return piece_of(c, c->src, k, true, (me + 1) % n);
    return piece_at(piece_of(c, c->dst, k, true, (me + 1) % n), IN, k + 1);
}

static bool is_top(const struct collective *c) { return c->group.me == c->group.n - 1; }

static void plan_all_reduce(struct collective *c) {
    c->length[IN] = c->length[DOWN_OUT] = c->group.me > 0 ? c->pieces : 0;
    c->length[OUT] = c->length[DOWN_IN] = is_top(c) ? 0 : c->pieces;
}

static struct piece all_reduce_piece(const struct collective *c, int track, int64_t k) {
    int me = c->group.me;
    switch (track) {
    case IN: return in_scratch(piece_of(c, c->dst, k, false, me - 1), c->came);
    case OUT: return piece_at(piece_of(c, c->dst, k, true, me + 1), IN, me > 0 ? k + 1 : 0);
    case DOWN_IN: return piece_at(piece_of(c, c->dst, k, false, me + 1), OUT, k + 1);
    default: return piece_at(piece_of(c, c->dst, k, true, me - 1), is_top(c) ? IN : DOWN_IN, k + 1);
    }
}

/* Plans a reduction. The first member receives an empty message from itself. */
static void plan_reduce(struct collective *c) {
    c->length[IN] = c->pieces;
    c->length[OUT] = is_top(c) && c->root == c->group.me ? 0 : c->pieces;
    c->length[DOWN_IN] = c->root == c->group.me && !is_top(c) ? c->pieces : 0;
}

static struct piece reduced_piece(const struct collective *c, int track, int64_t k) {
    int me = c->group.me;
    if (track == IN) /* the new sum overwrites the previous one, once that is sent */
        return piece_at(in_scratch(piece_of(c, c->src, k, false, me > 0 ? me - 1 : 0), c->came), OUT,
                        c->length[OUT] ? k : 0);
    if (track == OUT)
        return piece_at(in_scratch(piece_of(c, c->src, k, true, is_top(c) ? c->root : me + 1), c->sum), IN, k + 1);
    return in_scratch(piece_of(c, c->dst, k, false, c->group.n - 1), c->result);
}

/* Plans direct messages: one to and one from each member per piece. The message to itself is empty. */
static void plan_direct(struct collective *c) { c->length[IN] = c->length[OUT] = c->group.n * c->pieces; }

static struct piece direct_piece(const struct collective *c, int track, int64_t k) {
    int other = (int)(k % c->group.n);
    int64_t at = k / c->group.n;
    if (track == OUT)
        return piece_of(c, c->src ? c->src + other * c->bytes : NULL, at, true, other);
    if (c->motion == OP_REDUCE_SCATTER)
        return in_scratch(piece_of(c, c->dst, at, false, other), c->came);
    return piece_of(c, c->dst ? c->dst + other * c->bytes : NULL, at, false, other);
}

/* ---- processing of received pieces ---- */

static void add_all_reduce(struct collective *c, int track, int64_t k, int64_t floats) {
    if (track == IN && c->x->op == OP_ALL_REDUCE_N) /* in one piece */
        host_add_norm((uint64_t *)(void *)c->dst, (const uint64_t *)(const void *)c->came);
    else if (track == IN)
        host_add(floats_at(c->dst) + k * PIECE, c->came, floats, false);
}

static void add_reduce(struct collective *c, int track, int64_t k, int64_t floats) {
    if (track == IN && c->group.me > 0)
        host_add(c->sum, c->came, floats, true);
    if (track == IN)
        host_add(c->sum, floats_at(c->src) + k * PIECE, floats, c->group.me == 0);
    if (track == DOWN_IN || (track == IN && !c->length[OUT]))
        host_add(floats_at(c->dst) + k * PIECE, track == IN ? c->sum : c->result, floats, writes_sum(c->x));
}

/* Adds a piece that has arrived. The result may overwrite this member's own part, which has been added by then. */
static void add_scatter(struct collective *c, int track, int64_t k, int64_t floats) {
    int other = (int)(k % c->group.n), me = c->group.me;
    int64_t at = k / c->group.n * PIECE;
    if (track != IN)
        return;
    host_add(c->sum, other == me ? floats_at(c->src + me * c->bytes) + at : c->came, floats, other == 0);
    if (other == c->group.n - 1)
        host_add(floats_at(c->dst) + at, c->sum, floats, writes_sum(c->x));
}

static void keep_own(struct collective *c, int track, int64_t k, int64_t floats) {
    int me = c->group.me;
    (void)floats;
    if (track == IN && k == me) /* all pieces at once */
        memcpy(c->dst + me * c->bytes, c->src + me * c->bytes, (size_t)c->bytes);
}

static const struct algorithm {
    void (*plan)(struct collective *c);                                        /* sets the tracks' lengths */
    struct piece (*piece)(const struct collective *c, int track, int64_t k);   /* message k of a track */
    void (*moved)(struct collective *c, int track, int64_t k, int64_t floats); /* called after it has moved; NULL:
                                                                                * nothing to do */
} algorithms[NOPS] = {
    /* indexed by motion_of */
    [OP_ALL_GATHER] = {plan_gather, gather_piece, NULL},
    [OP_BROADCAST] = {plan_broadcast, broadcast_piece, NULL},
    [OP_ALL_REDUCE] = {plan_all_reduce, all_reduce_piece, add_all_reduce},
    [OP_REDUCE] = {plan_reduce, reduced_piece, add_reduce},
    [OP_REDUCE_SCATTER] = {plan_direct, direct_piece, add_scatter},
    [OP_ALL_TO_ALL_A] = {plan_direct, direct_piece, keep_own},
};

/* ---- one collective after the other, in each lane ---- */

static void plan_collective(struct collective *c, const struct rt_instr *x, const struct rt_group *group,
                            int64_t bytes) {
    c->x = x;
    c->motion = motion_of(x->op);
    c->group = *group;
    assert(algorithms[c->motion].plan && bytes >= 0 && group->n > 0 && group->me < group->n);
    assert(c->motion != OP_ALL_TO_ALL_A || bytes % group->n == 0);
    assert(x->op != OP_ALL_REDUCE_N || bytes <= 4 * PIECE); /* add_all_reduce takes it in one piece */
    c->bytes = c->motion == OP_ALL_TO_ALL_A ? bytes / group->n : bytes;
    c->pieces = c->bytes ? (c->bytes + 4 * PIECE - 1) / (4 * PIECE) : 1;
    c->root = -1;
    for (int i = 0; i < group->n; i++)
        c->root = has_root(x->op) && group->member[i] == x->root ? i : c->root;
    assert(!has_root(x->op) || c->root >= 0);
    memset(c->length, 0, sizeof c->length);
    memset(c->done, 0, sizeof c->done);
    algorithms[c->motion].plan(c);
}

static void begin_collective(const struct collectives *all, struct collective *c, struct replay *re,
                             const struct rt_instr *x) {
    c->src = job_operand(all->arena, x, ROLE_src);
    c->dst = result_at(x) < 0 ? NULL : all->arena + result_at(x);
    plan_collective(c, x, &all->group[x->group], x->bytes);
    if (c->motion == OP_ALL_GATHER && c->src != c->dst + c->group.me * c->bytes) /* else it is in place */
        memcpy(c->dst + c->group.me * c->bytes, c->src, (size_t)c->bytes);
    c->begun = true;
    c->since = re->device->clock(re);
}

/* Moves a track's messages. Returns true if any has moved. */
static bool continue_track(const struct collectives *all, struct collective *c, const struct replay *re, int track) {
    const struct algorithm *algorithm = &algorithms[c->motion];
    int64_t from = c->done[track];
    for (; c->done[track] < c->length[track]; c->done[track]++) {
        struct piece piece = algorithm->piece(c, track, c->done[track]);
        assert(piece.count <= c->length[piece.after]); /* the messages it waits for exist */
        if (c->done[piece.after] < piece.count)
            break;
        assert(piece.at || piece.bytes == 0 || piece.member == c->group.me);
        if (piece.member != c->group.me && !all->move(all->link, re, c->x, track, &piece))
            break;
        if (algorithm->moved)
            algorithm->moved(c, track, c->done[track], piece.bytes / 4);
    }
    return c->done[track] > from;
}

bool collectives_run(struct collectives *all, struct replay *re, const struct rt_instr *x, double *start, double *end) {
    struct collective *c = &all->lane[x->lane];
    if (!c->begun)
        begin_collective(all, c, re, x);
    assert(c->x == x); /* a lane runs one at a time */
    for (bool moved = true; moved;) {
        moved = false;
        for (int track = 0; track < TRACKS; track++)
            moved |= continue_track(all, c, re, track);
    }
    if (memcmp(c->done, c->length, sizeof c->done) != 0)
        return false;
    assert(c->begun);
    c->begun = false;
    *start = c->since;
    *end = re->device->clock(re);
    return true;
}

void collective_peers(const struct rt_instr *x, const struct rt_group *group, bool *meets) {
    struct collective c = {.begun = false};
    plan_collective(&c, x, group, 0); /* with one piece: all pieces take the same route */
    for (int track = 0; track < TRACKS; track++)
        for (int64_t k = 0; k < c.length[track]; k++) {
            int member = algorithms[c.motion].piece(&c, track, k).member;
            meets[member] |= member != group->me;
        }
}

bool collectives_open(struct collectives *all, const struct rt_rank *k, int rank, const int32_t *groups, char *arena) {
    enum { SCRATCHES = 3 };
    int ngroups = group_count(groups), lanes = 0;
    all->arena = arena;
    all->group = calloc((size_t)ngroups + 1, sizeof *all->group);
    all->lane = calloc((size_t)k->nlanes + 1, sizeof *all->lane);
    for (int32_t i = 0; all->lane && i < k->nins; i++) {
        struct collective *c = &all->lane[k->ins[i].lane];
        lanes += is_group(k->ins[i].op) && !c->x;
        if (is_group(k->ins[i].op))
            c->x = &k->ins[i];
    }
    all->scratch = malloc(sizeof(float) * SCRATCHES * PIECE * (size_t)lanes + 1);
    if (!all->group || !all->lane || !all->scratch)
        return false;
    for (int g = 0; g < ngroups; g++)
        all->group[g] = group_of(groups, g, rank);
    float *next = all->scratch;
    for (int l = 0; l < k->nlanes; l++)
        if (all->lane[l].x) {
            all->lane[l].came = next;
            all->lane[l].sum = next + PIECE;
            all->lane[l].result = next + 2 * PIECE;
            next += SCRATCHES * PIECE;
        }
    return true;
}

void collectives_close(struct collectives *all) {
    free(all->group);
    free(all->lane);
    free(all->scratch);
}
