/* Collectives between ranks that are processes, made of messages between two members: comm_tcp.c and comm_mpi.c move
 * them. The bits are those of one process. */
#ifndef PIANOLA_PAIRWISE_H
#define PIANOLA_PAIRWISE_H
#include "device/replay.h"

enum { PIECE = 1 << 16 }; /* floats: no message is longer */
enum { IN, OUT, DOWN_IN, DOWN_OUT, TRACKS };

/* A message to another member, or from it. A lane has at most one collective under way, and that at most one message in
 * each track; from one member to another, only one track sends. */
struct piece {
    int member; /* the other's place in the group */
    bool sends; /* this rank does */
    char *at;   /* in the arena, or in a scratch */
    int64_t bytes;
    int after; /* waits until `count` messages of this other track have moved */
    int64_t count;
};
/* Begins to move a piece, or goes on with it. True: it has moved, and its memory may be used again. */
typedef bool move_piece(void *link, const struct replay *re, const struct rt_instr *x, int track,
                        const struct piece *piece);

struct collective { /* a lane's, under way */
    const struct rt_instr *x;
    int motion; /* motion_of */
    struct rt_group group;
    int root;        /* its place in the group; -1: none */
    int64_t bytes;   /* of a shard or of the whole tensor, whichever one member sends another */
    int64_t pieces;  /* of so many bytes; of none too, there is one: no member ends before all have come */
    char *src, *dst; /* NULL: this member has none */
    float *came, *sum, *result;
    int64_t length[TRACKS], done[TRACKS]; /* messages in all; that have moved */
    bool begun;
    double since;
};
struct collectives {
    struct rt_group *group; /* of rt_program */
    struct collective *lane;
    float *scratch;
    char *arena;
    move_piece *move;
    void *link;
};

/* Takes the memory for those of a rank. False: there is none, and close is to be called all the same. */
bool collectives_open(struct collectives *all, const struct rt_rank *k, int rank, const int32_t *groups, char *arena);
void collectives_close(struct collectives *all);
/* As host_transport's collective. */
bool collectives_run(struct collectives *all, struct replay *re, const struct rt_instr *x, double *start, double *end);
/* Sets meets[i] for each member i of x's group that this member exchanges messages with. It is mutual. */
void collective_peers(const struct rt_instr *x, const struct rt_group *group, bool *meets);
/* Members number what is between them alike: a group has a lane for weights, one for gradients, and one for a team. */
static inline int collective_channel(const struct rt_instr *x) {
    return GROUP_LANES * x->group + op_row(x->op)->lane - LANE_GATHER;
}
#endif
