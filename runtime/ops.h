/* The contract between compiler and runtime: declares every instruction, tensor kind and lane once.
 *
 * The enums, printer, parser, simulator, verifier, replayer and the reference in compiler/instructions.md all derive
 * from them. model.h declares the layers and the optimizers. */
#ifndef PIANOLA_OPS_H
#define PIANOLA_OPS_H
#include <stdbool.h>
#include <stdint.h>

/* Instructions. X(name, lane, cost, tensor, partner, letter, operands, meaning)
 *
 * lane      COMPUTE: the rank's compute lane; SEND/RECV: the lane of a directed edge; GATHER/GROUP/TEAM: a group's lane
 *           for weights, for gradients, and for a team's exchanges within a job; OFFLOAD/RELOAD: the rank's copies
 *           to host memory, and back.
 * cost      JOB: the schedule's cost of the job; UPDATE, ADD: bytes touched; LINK: latency + bytes / bandwidth;
 *           COLLECTIVE: its algorithm's (passes/collective.c); HOST: as LINK, over the link to host memory.
 * tensor    the kind it moves, sums or updates; none: a job, which has several. SEND_S also sends inputs, and OFFLOAD_S
 *           and RELOAD_S copy them.
 * partner   the instruction at a message's other end; a collective's is itself: every member runs it; none: no message.
 * letter    its short name in timelines, before the microbatch or the stage.
 * operands  role:access, in printing order. Access r reads, w writes, m reads and writes in place, a accumulates: "dw="
 *           writes (the first contribution), "dw+=" adds. A starred operand may repeat; any may be absent. w is the
 *           weights of the job's stage. v is the token table that an embedding and an unembedding share: a separate set
 *           of weights, numbered after the last stage's, like a stage without jobs. dv: its gradient. u is a set that
 *           all members of a team have whole, numbered after those; du: its gradient. A backward in parts adds to
 *           several pieces of dw.
 *
 * The first five are the jobs, in the order that breaks ties between equal priorities: F < R < I < B < W. Each SEND is
 * followed by its RECV. tests/unit/test_ops.c checks the other rules for rows. */
#define OPS(X)                                                                                                         \
    X(F, COMPUTE, JOB, none, none, 'F',                                                                                \
      "w:r v:r u:r x:r* kv:r* got:r stash:w input:w own:w give:w y:w work:m t:r* done:w",                              \
      "forward: y, stash = stage(x); with recompute, input = x; for a slice, own = its keys and values")               \
    X(R, COMPUTE, JOB, none, none, 'R', "w:r v:r u:r input:r kv:r* got:r stash:w give:w work:m t:r* done:w",           \
      "recompute: stash = stage(input); drops y")                                                                      \
    X(I, COMPUTE, JOB, none, none, 'I',                                                                                \
      "w:r v:r u:r stash:r kv:r* dy:r* dkv:r got:r wstash:w give:w dx:w dpast:w work:m t:r* done:w",                   \
      "input gradient: dx; wstash grows in place of stash")                                                            \
    X(B, COMPUTE, JOB, none, none, 'B',                                                                                \
      "w:r v:r u:r stash:r kv:r* dy:r* dkv:r got:r give:w dx:w dpast:w dw:a* dv:a du:a work:m t:r* done:w",            \
      "full backward: dx, and dw += this microbatch's gradient")                                                       \
    X(W, COMPUTE, JOB, none, none, 'W', "wstash:r got:r give:w dw:a* dv:a du:a work:m t:r* done:w",                    \
      "weight gradient: dw += this microbatch's gradient")                                                             \
    X(U, COMPUTE, UPDATE, weight, none, 'U', "dw:r norm:r opt:m w:m", "update: the optimizer steps a stage's weights") \
    X(SEND_F, SEND, LINK, act, RECV_F, 'F', "t:r", "sends act(s,b) to peer")                                           \
    X(RECV_F, RECV, LINK, act, SEND_F, 'F', "t:w", "receives act(s,b) from peer")                                      \
    X(SEND_B, SEND, LINK, grad, RECV_B, 'B', "t:r", "sends grad(s,b) to peer")                                         \
    X(RECV_B, RECV, LINK, grad, SEND_B, 'B', "t:w", "receives grad(s,b) from peer")                                    \
    X(SEND_S, SEND, LINK, stash, RECV_S, 'S', "t:r", "sends stash(s,b), or input(s,b) with recompute, to peer")        \
    X(RECV_S, RECV, LINK, stash, SEND_S, 'S', "t:w", "receives stash(s,b) or input(s,b) from peer")                    \
    X(SEND_W, SEND, LINK, wstash, RECV_W, 'W', "t:r", "sends wstash(s,b) to peer")                                     \
    X(RECV_W, RECV, LINK, wstash, SEND_W, 'W', "t:w", "receives wstash(s,b) from peer")                                \
    X(SEND_K, SEND, LINK, kv, RECV_K, 'K', "t:r", "sends kv(s,b) to peer")                                             \
    X(RECV_K, RECV, LINK, kv, SEND_K, 'K', "t:w", "receives kv(s,b) from peer")                                        \
    X(SEND_D, SEND, LINK, dkv, RECV_D, 'D', "t:r", "sends dkv(s,b) to peer")                                           \
    X(RECV_D, RECV, LINK, dkv, SEND_D, 'D', "t:w", "receives dkv(s,b) from peer")                                      \
    X(SEND_G, SEND, LINK, wgrad, RECV_G, 'G', "t:r", "sends this rank's part of wgrad(s) to its home")                 \
    X(RECV_G, RECV, LINK, wgrad, SEND_G, 'G', "t:w", "receives a part of wgrad(s) from peer")                          \
    X(SEND_T, SEND, LINK, token, RECV_T, 'T', "t:r", "sends token(s,b), which orders ranks and carries no tensor")     \
    X(RECV_T, RECV, LINK, token, SEND_T, 'T', "t:w", "receives token(s,b)")                                            \
    X(SERVE, SEND, LINK, weight, FETCH, 'w', "t:r", "sends weight(s), at home or fetched, to peer")                    \
    X(FETCH, RECV, LINK, weight, SERVE, 'w', "t:w", "receives weight(s) from peer, which has it")                      \
    X(ADD, RECV, ADD, wgrad, none, '+', "src:r dw:a",                                                                  \
      "dw += a part of wgrad(s), or a piece of it, received from peer")                                                \
    X(TAKE, COMPUTE, ADD, wgrad, none, '+', "src:r dw:a", "dw += this rank's own piece of its part of wgrad(s)")       \
    X(COPY, COMPUTE, ADD, weight, none, 'c', "src:r w:w",                                                              \
      "w = src: copies this rank's own shard into fetched weights, or its own weights before an update")               \
    X(ZERO, COMPUTE, ADD, wgrad, none, 'w', "dw:w", "dw = 0, on a home that computes no part of the gradient")         \
    X(NORM, COMPUTE, ADD, norm, none, 'n', "dw:r norm:a", "norm += the squares of dw; without dw, adds 0")             \
    X(ALL_GATHER, GATHER, COLLECTIVE, weight, ALL_GATHER, 'g', "src:r w:w",                                            \
      "piece i of w = src of member i; in place where src is a piece of w")                                            \
    X(BROADCAST, GATHER, COLLECTIVE, weight, BROADCAST, 'c', "src:r w:w",                                              \
      "w = src of the root, peer, which alone has src and has no w")                                                   \
    X(ALL_REDUCE, GROUP, COLLECTIVE, wgrad, ALL_REDUCE, 'r', "dw:m",                                                   \
      "dw = sum of dw over the members, in their order")                                                               \
    X(REDUCE_SCATTER, GROUP, COLLECTIVE, wgrad, REDUCE_SCATTER, 's', "src:r dw:a",                                     \
      "dw of member i += sum of piece i of src over the members, in their order; in place where dw is that piece")     \
    X(REDUCE, GROUP, COLLECTIVE, wgrad, REDUCE, 'd', "src:r dw:a",                                                     \
      "dw of the root, peer, += sum of src over the members, in their order; the others have no dw")                   \
    X(ALL_REDUCE_N, GROUP, COLLECTIVE, norm, ALL_REDUCE_N, 'n', "norm:m", "norm = sum of norm over the members; s: 0") \
    X(ALL_REDUCE_A, TEAM, COLLECTIVE, mid, ALL_REDUCE_A, 'r', "t:m", "t = sum of t over the members, in their order")  \
    X(ALL_GATHER_A, TEAM, COLLECTIVE, mid, ALL_GATHER_A, 'g', "src:r t:w", "piece i of t = src of member i")           \
    X(REDUCE_SCATTER_A, TEAM, COLLECTIVE, mid, REDUCE_SCATTER_A, 's', "src:r t:w",                                     \
      "t of member i = sum of piece i of src over the members, in their order")                                        \
    X(ALL_TO_ALL_A, TEAM, COLLECTIVE, mid, ALL_TO_ALL_A, 'a', "src:r t:w",                                             \
      "piece j of t of member i = piece i of src of member j")                                                         \
    X(OFFLOAD_S, OFFLOAD, HOST, stash, none, 'o', "src:r t:w",                                                         \
      "hstash(s,b) = stash(s,b), or with recompute hinput(s,b) = input(s,b)")                                          \
    X(RELOAD_S, RELOAD, HOST, stash, none, 'l', "src:r t:w",                                                           \
      "rstash(s,b) = hstash(s,b), or with recompute rinput(s,b) = hinput(s,b)")                                        \
    X(OFFLOAD_O, OFFLOAD, HOST, opt, none, 'O', "src:r t:w", "hopt(s) = opt(s)")                                       \
    X(RELOAD_O, RELOAD, HOST, opt, none, 'L', "src:r t:w", "opt(s) = hopt(s)")

/* Tensors. X(name, has_batch, number, memory, meaning). A buffer is written name(s,b) or name(s), with #k if a rank
 * holds several: weight(2)#0 is the first fetch of stage 2's weights on its rank, wgrad(2)#3 the part received from
 * rank 3.
 *
 * number    meaning of k. ONE: none, a rank has one per name; PEER: the rank it came from; INSTANCE: a number, which
 *           also appears in its messages' names.
 * memory    its arena: the device's, or the rank's in host memory. */
#define KINDS(X)                                                                                                       \
    X(weight, false, INSTANCE, DEVICE, "weights of a stage")                                                           \
    X(wshard, false, ONE, DEVICE, "a home's shard of the weights of a stage that is sharded over several ranks")       \
    X(wgrad, false, PEER, DEVICE, "gradient of a stage's weights, summed over microbatches")                           \
    X(gshard, false, PEER, DEVICE, "a home's shard of wgrad(s)")                                                       \
    X(gown, false, ONE, DEVICE, "the piece of wgrad(s) or gshard(s) that this home updates, if zero(s) is 2")          \
    X(opt, false, ONE, DEVICE, "optimizer state of a stage; if offloaded, present only during its update")             \
    X(work, false, INSTANCE, DEVICE,                                                                                   \
      "workspace of the compute lane; #1 belongs to the second of two jobs whose parts alternate")                     \
    X(act, true, ONE, DEVICE, "output of sFb")                                                                         \
    X(grad, true, ONE, DEVICE, "gradient with respect to the input of stage s: output of sBb or sIb")                  \
    X(stash, true, ONE, DEVICE, "what sFb or sRb keeps for the backward")                                              \
    X(wstash, true, ONE, DEVICE, "what sIb keeps for sWb")                                                             \
    X(input, true, ONE, DEVICE, "what sFb keeps for sRb")                                                              \
    X(kv, true, ONE, DEVICE, "keys and values of a slice, which later slices read")                                    \
    X(dkv, true, ONE, DEVICE,                                                                                          \
      "gradient with respect to the earlier slices' keys and values, summed over this slice and later ones")           \
    X(token, true, INSTANCE, DEVICE, "signal that a job of (s,b) has ended, which orders ranks; #k says which job")    \
    X(mid, true, INSTANCE, DEVICE,                                                                                     \
      "what a part of a job of (s,b) gives to its team, or gets from it; #k numbers these tensors")                    \
    X(hstash, true, ONE, HOST, "stash(s,b) in host memory")                                                            \
    X(rstash, true, ONE, DEVICE, "stash(s,b), back from host memory")                                                  \
    X(hinput, true, ONE, HOST, "input(s,b) in host memory")                                                            \
    X(rinput, true, ONE, DEVICE, "input(s,b), back from host memory")                                                  \
    X(hopt, false, ONE, HOST, "optimizer state of a stage, in host memory")                                            \
    X(norm, false, ONE, DEVICE, "exact sum of the squares of gradients, one per rank and of no stage")

#define ROLES(X)                                                                                                       \
    X(w)                                                                                                               \
    X(x)                                                                                                               \
    X(y)                                                                                                               \
    X(stash)                                                                                                           \
    X(input)                                                                                                           \
    X(dy) X(dx) X(wstash) X(dw) X(opt) X(t) X(src) X(done) X(v) X(dv) X(give) X(got) X(work) X(kv) X(own) X(dkv)       \
        X(dpast) X(u) X(du) X(norm)

#define X(name, ...) OP_##name,
enum op { OPS(X) NOPS, OP_none = NOPS };
#undef X
#define X(name, ...) K_##name,
enum kind { KINDS(X) NKINDS, K_none = NKINDS };
#undef X
#define X(name) ROLE_##name,
enum role { ROLES(X) NROLES };
#undef X

/* Lanes. X(name, word, of). A lane's name is its word and its owner: a peer (`send 1`), a group's members
 * (`group 0,2`), or nothing (ALONE: a rank has one). A rank's first lane is compute; the others follow by kind. PEER
 * and ALL are coarser lanes, for programs that ask for them: PEER has both directions with a peer, ALL all messages of
 * a rank. */
#define LANES(X)                                                                                                       \
    X(COMPUTE, "compute", ALONE)                                                                                       \
    X(SEND, "send", PEER)                                                                                              \
    X(RECV, "recv", PEER)                                                                                              \
    X(PEER, "peer", PEER)                                                                                              \
    X(ALL, "messages", ALONE)                                                                                          \
    X(GATHER, "gather", GROUP)                                                                                         \
    X(GROUP, "group", GROUP)                                                                                           \
    X(TEAM, "team", GROUP)                                                                                             \
    X(OFFLOAD, "offload", ALONE)                                                                                       \
    X(RELOAD, "reload", ALONE)

#define X(name, ...) LANE_##name,
enum lanekind { LANES(X) NLANEKINDS };
#undef X
enum { GROUP_LANES = LANE_TEAM - LANE_GATHER + 1 }; /* lanes that a group may have */
enum laneof { OF_ALONE, OF_PEER, OF_GROUP };
enum costclass { COST_JOB, COST_UPDATE, COST_ADD, COST_LINK, COST_COLLECTIVE, COST_HOST };
enum numbering { NUMBER_ONE, NUMBER_PEER, NUMBER_INSTANCE };
enum memory { MEMORY_DEVICE, MEMORY_HOST, NMEMORIES };

/* Bytes that an NCCL reduction exchanges and adds at a time. */
enum { REDUCE_PIECE = 32 << 20 };
enum { NDIRS = 5 };                                    /* jobs are ops OP_F .. OP_W */
enum { NORM_WORDS = 21, NORM_BYTES = 8 * NORM_WORDS }; /* words of 64 bits: layers/clip.h */

/* The rows of the tables. */
struct op_row {
    const char *name;
    uint8_t lane, cost, tensor, partner; /* enum lanekind, costclass, kind or K_none, op or OP_none */
    char letter;
    const char *operands, *meaning;
};
static inline const struct op_row *op_row(int op) {
#define X(name, lane, cost, tensor, partner, letter, operands, meaning)                                                \
    {#name, LANE_##lane, COST_##cost, K_##tensor, OP_##partner, letter, operands, meaning},
    static const struct op_row row[NOPS] = {OPS(X)};
#undef X
    return &row[op];
}
struct kind_row {
    const char *name;
    bool has_batch;
    uint8_t number, memory; /* enum numbering, memory */
    const char *meaning;
};
static inline const struct kind_row *kind_row(int kind) {
#define X(name, has_batch, number, memory, meaning) {#name, has_batch, NUMBER_##number, MEMORY_##memory, meaning},
    static const struct kind_row row[NKINDS] = {KINDS(X)};
#undef X
    return &row[kind];
}
struct lanekind_row {
    const char *word;
    uint8_t of; /* enum laneof */
};
static inline const struct lanekind_row *lanekind_row(int kind) {
#define X(name, word, of) {word, OF_##of},
    static const struct lanekind_row row[NLANEKINDS] = {LANES(X)};
#undef X
    return &row[kind];
}

/* Classes of instructions. A message is a send, a receive or a collective, but not a job, an update or an addition. */
static inline bool is_job(int op) { return op < NDIRS; }
static inline bool is_message(int op) { return op_row(op)->partner != OP_none; }
static inline bool is_send(int op) { return is_message(op) && op_row(op)->lane == LANE_SEND; }
static inline bool is_recv(int op) { return is_message(op) && op_row(op)->lane == LANE_RECV; }
static inline bool is_group(int op) { return is_message(op) && lanekind_row(op_row(op)->lane)->of == OF_GROUP; }
static inline bool is_copy(int op) { return op_row(op)->cost == COST_HOST; }          /* to host memory, or back */
static inline bool has_root(int op) { return op == OP_BROADCAST || op == OP_REDUCE; } /* it is the peer */
/* Returns the collective of weights or gradients that moves data as `op` does. A team's collectives and a norm's differ
 * from these only in their elements: a team's have the model's precision if they are gradients, otherwise they are just
 * bytes; a norm's are integers. */
static inline int motion_of(int op) {
    switch (op) {
    case OP_ALL_REDUCE_A:
    case OP_ALL_REDUCE_N: return OP_ALL_REDUCE;
    case OP_ALL_GATHER_A: return OP_ALL_GATHER;
    case OP_REDUCE_SCATTER_A: return OP_REDUCE_SCATTER;
    default: return op;
    }
}
static inline bool has_peer(int op) { return lanekind_row(op_row(op)->lane)->of == OF_PEER; } /* ADD has one too */
static inline bool has_bytes(int op) { return is_message(op) || is_copy(op); }                /* shown by timelines */
/* Returns whether it is a job or an update, whose time the schedule, the model or the cluster gives. */
static inline bool has_cost(int op) { return op_row(op)->cost == COST_JOB || op_row(op)->cost == COST_UPDATE; }
static inline bool is_of_rank(int kind) { return kind == K_work || kind == K_norm; } /* and of no stage */
/* Returns whether this operand is in the arena in host memory. */
static inline bool on_host(int op, int role) {
    return is_copy(op) && role == (op_row(op)->lane == LANE_OFFLOAD ? ROLE_t : ROLE_src);
}
#endif
