/* Handmade programs of collectives alone, and the expected content of their arenas by the definitions in ops.h: a
 * reference that shares no code with the runtime. Used for ranks as threads and over TCP
 * (tests/unit/test_collectives.c) and over MPI (tests/processes/mpi/collectives.c). */
#ifndef PIANOLA_HAND_COLLECTIVES_H
#define PIANOLA_HAND_COLLECTIVES_H
#include "comm/pairwise.h"
#include <stdlib.h>
#include <string.h>

enum { HAND_RANKS = 7, HAND_GROUPS = 4, HAND_EACH = 10, HAND_MEETINGS = HAND_GROUPS * HAND_EACH, HAND_STEPS = 3 };

struct hand {
    struct rt_program program;
    struct rt_model model;
    struct rt_rank rank[HAND_RANKS];
    struct rt_instr ins[HAND_RANKS][HAND_MEETINGS];
    struct rt_buffer buffer[HAND_RANKS][HAND_MEETINGS][2];
    int32_t index[HAND_RANKS][2 * HAND_MEETINGS + GROUP_LANES * HAND_GROUPS + 3];
    struct rt_meeting meeting[HAND_MEETINGS];
    int32_t member[HAND_MEETINGS][HAND_RANKS];
    int64_t off[HAND_MEETINGS][HAND_RANKS], to[HAND_MEETINGS][HAND_RANKS];
    int32_t groups[HAND_GROUPS * (HAND_RANKS + 1) + 1];
    uint64_t random;
};
static int64_t hand_unit = 1; /* shard sizes are multiples of this many bytes */
/* A team's collective acts like the other one, on numbers of the model's precision, and never adds to its result. */
static const struct {
    int op, like;
} hand_ops[] = {
    {OP_ALL_GATHER, OP_ALL_GATHER},   {OP_BROADCAST, OP_BROADCAST},           {OP_ALL_REDUCE, OP_ALL_REDUCE},
    {OP_REDUCE, OP_REDUCE},           {OP_REDUCE_SCATTER, OP_REDUCE_SCATTER}, {OP_ALL_TO_ALL_A, OP_ALL_TO_ALL_A},
    {OP_ALL_REDUCE_A, OP_ALL_REDUCE}, {OP_ALL_GATHER_A, OP_ALL_GATHER},       {OP_REDUCE_SCATTER_A, OP_REDUCE_SCATTER}};
enum { HAND_OPS = sizeof hand_ops / sizeof *hand_ops };
static inline int hand_like(int op) {
    int i = 0;
    while (hand_ops[i].op != op)
        i++;
    return hand_ops[i].like;
}
static inline bool hand_team(int op) { return op_row(op)->lane == LANE_TEAM; }
static inline bool hand_halves(const struct hand *h, int op) { return hand_team(op) && h->model.precision == BF16; }

static inline int hand_below(struct hand *h, int n) {
    h->random = h->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((h->random >> 33) % (uint64_t)n);
}

/* Returns an integer, small enough for exact sums over all steps, or any float, whose sums show their order. */
static inline float hand_value(int rank, int64_t i, bool whole) {
    uint64_t x = ((uint64_t)rank << 40) + (uint64_t)i * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return whole ? (float)((int)(x >> 40) % 17 - 8) : (float)(x >> 40) * 0.0137f - 90000;
}
/* Fills an arena. With bf16, 2-byte numbers may lie anywhere, so each half of a float that is not whole is one too. */
static inline void hand_fill(const struct hand *h, char *arena, int64_t bytes, int rank, bool whole) {
    for (int64_t i = 0; i + 4 <= bytes; i += 4) {
        float x = hand_value(rank, i / 4, whole), y = hand_value(rank, i / 4 + bytes, whole);
        memcpy(arena + i, &x, 4);
        if (h->model.precision == BF16 && !whole)
            memcpy(arena + i, (const char *)&y + 2, 2);
    }
}

static inline int64_t hand_take(struct rt_rank *k, int64_t bytes) {
    int64_t at = k->arena;
    k->arena += (bytes + 127) / 64 * 64; /* a gap, which must stay unchanged */
    return at;
}

static inline int64_t hand_size(struct hand *h, int op) {
    static const int64_t floats[] = {0, 1, 3, 5, 777, 4096, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 17};
    int like = hand_like(op);
    bool sums = like == OP_ALL_REDUCE || like == OP_REDUCE || like == OP_REDUCE_SCATTER;
    int64_t bytes = 4 * floats[hand_below(h, sizeof floats / sizeof *floats)];
    bytes += !sums && bytes ? hand_below(h, 4) : sums && bytes && hand_halves(h, op) ? 2 * hand_below(h, 2) : 0;
    return (bytes + hand_unit - 1) / hand_unit * hand_unit;
}

static inline int64_t *hand_operand(struct rt_instr *x, int role, struct rt_buffer *b) {
    set_operand(x, role, b);
    return &b->off;
}

/* Sets the operands of member i for a shard of `bytes` bytes. */
static inline void hand_operands(struct hand *h, struct rt_rank *k, struct rt_instr *x, int i, int n, int64_t bytes,
                                 bool in_place) {
    int like = hand_like(x->op);
    bool gathers = like == OP_ALL_GATHER, scatters = like == OP_REDUCE_SCATTER, exchanges = like == OP_ALL_TO_ALL_A;
    bool rooted = has_root(x->op), root = rooted && x->root == (int)(k - h->rank);
    struct rt_buffer *src = h->buffer[k - h->rank][x - h->ins[k - h->rank]], *to = src + 1;
    int dst = hand_team(x->op) ? ROLE_t : gathers || x->op == OP_BROADCAST ? ROLE_w : ROLE_dw;
    if (like != OP_ALL_REDUCE && (x->op != OP_BROADCAST || root))
        *hand_operand(x, ROLE_src, src) = hand_take(k, (scatters || exchanges ? n : 1) * bytes);
    if (!rooted || root == (x->op == OP_REDUCE))
        *hand_operand(x, dst, to) = hand_take(k, (gathers || exchanges ? n : 1) * bytes);
    if (in_place && (x->op == OP_REDUCE || x->op == OP_ALL_REDUCE)) { /* a piece of a buffer, in place at the root */
        int64_t at = hand_take(k, 3 * bytes) + i % 3 * bytes;
        if (x->op == OP_REDUCE)
            *hand_operand(x, ROLE_src, src) = at;
        if (x->op == OP_ALL_REDUCE || root)
            *hand_operand(x, ROLE_dw, to) = at;
        else
            x->at.dw = NULL;
        x->first = x->first || x->op == OP_REDUCE;
    }
    if (in_place && gathers)
        src->off = to->off + i * bytes;
    if (in_place && scatters)
        to->off = src->off + i * bytes;
    x->bytes = (exchanges ? n : 1) * bytes;
}

static inline void hand_meet(struct hand *h, int number, int op) {
    const int32_t *member = group_at(h->groups, number);
    int m = h->program.nmsgs++, n = 0;
    int64_t bytes = hand_size(h, op);
    bool in_place = hand_below(h, 2) && !hand_team(op);
    while (member[n] >= 0)
        n++;
    int root = has_root(op) ? member[hand_below(h, n)] : 0;
    for (int i = 0; i < n; i++) {
        struct rt_rank *k = &h->rank[member[i]];
        struct rt_instr *x = &h->ins[member[i]][k->nins++];
        *x = (struct rt_instr){.op = (enum op)op, .batch = -1, .group = number, .root = root, .msg = m};
        x->lane = GROUP_LANES * number + op_row(op)->lane - LANE_GATHER;
        x->first = op != OP_ALL_REDUCE && !hand_team(op) && hand_below(h, 2);
        hand_operands(h, k, x, i, n, bytes, in_place);
        bool has_src = hand_like(op) != OP_ALL_REDUCE;
        int64_t dst = operand_at(x, x->at.w ? ROLE_w : x->at.t ? ROLE_t : ROLE_dw);
        h->member[m][i] = member[i];
        h->off[m][i] = has_src ? operand_at(x, ROLE_src) : dst;
        h->to[m][i] = has_src ? dst : -1;
        h->meeting[m].bytes = x->bytes;
    }
    h->meeting[m].n = n;
    h->meeting[m].rank = h->member[m];
    h->meeting[m].off = h->off[m];
    h->meeting[m].to = h->to[m];
}

/* Draws groups in random order: all ranks, two random subsets, a pair. Each has three lanes with all collectives. */
static inline void hand_groups(struct hand *h, int workers) {
    int32_t *at = h->groups;
    for (int g = 0; g < HAND_GROUPS; g++) {
        int32_t order[HAND_RANKS];
        for (int r = 0; r < workers; r++) {
            int other = hand_below(h, r + 1);
            order[r] = order[other];
            order[other] = r;
        }
        int n = g == 0 ? workers : g == HAND_GROUPS - 1 ? 2 : 2 + hand_below(h, workers - 1);
        for (int i = 0; i < n; i++)
            *at++ = order[i];
        *at++ = -1;
    }
    *at = -1;
}

static inline void hand_make(struct hand *h, uint64_t seed, int workers, int precision) {
    memset(h, 0, sizeof *h);
    h->model.precision = precision;
    h->random = seed;
    h->program = (struct rt_program){.name = "by hand", .workers = workers, .batches = 1, .model = &h->model};
    h->program.rank = h->rank;
    h->program.msg = h->meeting;
    hand_groups(h, workers);
    for (int j = 0; j < HAND_EACH; j++)
        for (int g = 0; g < HAND_GROUPS; g++)
            hand_meet(h, g, hand_ops[(j + g + (int)seed) % HAND_OPS].op);
    for (int r = 0; r < workers; r++) {
        struct rt_rank *k = &h->rank[r];
        k->ins = h->ins[r];
        k->nlanes = GROUP_LANES * HAND_GROUPS;
        rank_index(k, h->index[r]);
    }
}

/* ---- their meaning ---- */

/* Returns piece p of member i's operand, in the arenas before the collective. */
static inline const char *hand_at(const struct hand *h, char *const *arena, int m, int i, int64_t p, int64_t bytes) {
    return arena[h->member[m][i]] + h->off[m][i] + p * bytes;
}

static inline float hand_float(const char *at) {
    float x;
    memcpy(&x, at, 4);
    return x;
}

/* Reads a 2-byte number; hand_rounded rounds a float to one, to nearest with ties to even. */
static inline float hand_half(const char *at) {
    uint16_t bits;
    uint32_t wide;
    float x;
    memcpy(&bits, at, 2);
    wide = (uint32_t)bits << 16;
    memcpy(&x, &wide, 4);
    return x;
}
static inline uint16_t hand_rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t rest = bits & 0xffff, up = rest > 0x8000 || (rest == 0x8000 && (bits >> 16 & 1));
    return (uint16_t)((bits >> 16) + up);
}

/* Writes the sum of piece p over all members to dst, or adds it. */
static inline void hand_sum(const struct hand *h, char *const *before, int m, int64_t p, int64_t bytes, char *dst,
                            bool first, bool halves) {
    for (int64_t b = 0, size = halves ? 2 : 4; b < bytes; b += size) {
        float sum = 0;
        for (int i = 0; i < h->meeting[m].n; i++) {
            const char *at = hand_at(h, before, m, i, p, bytes) + b;
            float x = halves ? hand_half(at) : hand_float(at);
            sum = i == 0 ? x : sum + x;
        }
        sum = first ? sum : hand_float(dst + b) + sum;
        uint16_t half = hand_rounded(sum);
        memcpy(dst + b, halves ? (const void *)&half : &sum, (size_t)size);
    }
}

static inline void hand_apply(const struct hand *h, const struct rt_instr *x, int i, char *const *before,
                              char *const *after) {
    int m = x->msg, n = h->meeting[m].n, root = 0, like = hand_like(x->op);
    int64_t bytes = like == OP_ALL_TO_ALL_A ? x->bytes / n : x->bytes;
    char *dst = after[h->member[m][i]] + (like == OP_ALL_REDUCE ? h->off[m][i] : h->to[m][i]);
    bool first = x->first || hand_team(x->op), halves = hand_halves(h, x->op);
    while (has_root(x->op) && h->member[m][root] != x->root)
        root++;
    switch (like) {
    case OP_ALL_GATHER:
        for (int j = 0; j < n; j++)
            memcpy(dst + j * bytes, hand_at(h, before, m, j, 0, bytes), (size_t)bytes);
        break;
    case OP_ALL_TO_ALL_A:
        for (int j = 0; j < n; j++)
            memcpy(dst + j * bytes, hand_at(h, before, m, j, i, bytes), (size_t)bytes);
        break;
    case OP_BROADCAST:
        if (i != root)
            memcpy(dst, hand_at(h, before, m, root, 0, bytes), (size_t)bytes);
        break;
    case OP_ALL_REDUCE: hand_sum(h, before, m, 0, bytes, dst, true, halves); break;
    case OP_REDUCE_SCATTER: hand_sum(h, before, m, i, bytes, dst, first, halves); break;
    default:
        if (i == root)
            hand_sum(h, before, m, 0, bytes, dst, first, halves);
    }
}

/* Applies all steps to the arenas. `before` is scratch of the same size. No two collectives share memory. */
static inline void hand_expect(const struct hand *h, char *const *arena, char *const *before) {
    for (int step = 0; step < HAND_STEPS; step++) {
        for (int r = 0; r < h->program.workers; r++)
            memcpy(before[r], arena[r], (size_t)h->rank[r].arena);
        for (int r = 0; r < h->program.workers; r++)
            for (int i = 0; i < h->rank[r].nins; i++) {
                const struct rt_instr *x = &h->ins[r][i];
                hand_apply(h, x, side_of(&h->meeting[x->msg], r), before, arena);
            }
    }
}
#endif
