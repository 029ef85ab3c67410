/* Collectives between ranks that are processes, built from messages between two members. comm_tcp.c and comm_mpi.c move
 * the messages. The results have the same bits as in one process. */
#ifndef PIANOLA_PAIRWISE_H
#define PIANOLA_PAIRWISE_H
#include "device/replay.h"

enum { PIECE = 1 << 16 }; /* floats in the longest message */
enum { IN, OUT, DOWN_IN, DOWN_OUT, TRACKS };

/* A message to or from another member. A lane runs at most one collective at a time, and a collective has at most one
 * message in flight per track. For each pair of members, only one track sends from the one to the other. */
struct piece {
    int member; /* the other's place in the group */
    bool sends; /* this rank is the sender */
    char *at;   /* address in the arena, or in a scratch buffer */
    int64_t bytes;
    int after; /* the piece waits until `count` messages of this other track have moved */
    int64_t count;
};
/* Starts or continues to move a piece. Returns true once the piece has moved and its memory may be reused. */
typedef bool move_piece(void *link, const struct replay *re, const struct rt_instr *x, int track,
                        const struct piece *piece);

struct collective { /* the collective that runs in a lane */
    const struct rt_instr *x;
    int motion; /* motion_of */
    struct rt_group group;
    int root;        /* the root's place in the group; -1: none */
    int64_t bytes;   /* bytes that one member sends another: a shard's or the whole tensor's */
    int64_t pieces;  /* pieces that `bytes` are sent in; 1 for an empty tensor, so that no member finishes before all
                      * have arrived */
    char *src, *dst; /* NULL: this member has none */
    float *came, *sum, *result;
    int64_t length[TRACKS], done[TRACKS]; /* messages in all, and messages that have moved */
    bool begun;
    double since;
};
struct collectives {
    struct rt_group *group; /* group table of rt_program */
    struct collective *lane;
    float *scratch;
    char *arena;
    move_piece *move;
    void *link;
};

/* Allocates the memory for a rank's collectives. Returns false if there is none; call collectives_close even then. */
bool collectives_open(struct collectives *all, const struct rt_rank *k, int rank, const int32_t *groups, char *arena);
void collectives_close(struct collectives *all);
/* Runs a collective; implements host_transport's `collective`. */
bool collectives_run(struct collectives *all, struct replay *re, const struct rt_instr *x, double *start, double *end);
/* Sets meets[i] for each member i of x's group that this member exchanges messages with. The relation is mutual. */
void collective_peers(const struct rt_instr *x, const struct rt_group *group, bool *meets);
/* Returns the channel of x. All members use the same numbers: a group has a lane for weights, one for gradients, and
 * one for a team's exchanges. */
static inline int collective_channel(const struct rt_instr *x) {
    return GROUP_LANES * x->group + op_row(x->op)->lane - LANE_GATHER;
}
#endif
