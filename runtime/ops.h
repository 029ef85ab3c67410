/* The contract between compiler and runtime: declares every instruction, tensor kind and layer once.
 *
 * The enums, printer, parser, simulator, verifier, replayer and the reference in compiler/README.md all derive from
 * them. The structs at the end describe a compiled program at run time: plain constants. */
#ifndef PIANOLA_OPS_H
#define PIANOLA_OPS_H
#include <stdbool.h>
#include <stdint.h>

/* Instructions. X(name, lane, cost, tensor, partner, letter, operands, meaning)
 *
 * lane      COMPUTE: the rank's compute lane; SEND/RECV: the lane of a directed edge; GATHER/GROUP/TEAM: a group's lane
 *           for weights, for gradients, and for what a team exchanges within a job; OFFLOAD/RELOAD: the rank's copies
 *           to host memory, and back.
 * cost      JOB: the schedule's cost of the job; UPDATE, ADD: bytes touched; LINK: latency + bytes / bandwidth;
 *           COLLECTIVE: that of its algorithm (passes/collective.c); HOST: the same over the link to host memory.
 * tensor    the kind it moves, sums or updates; none: a job, which has several. SEND_S also sends inputs, and OFFLOAD_S
 *           and RELOAD_S copy them.
 * partner   the instruction at a message's other end; a collective's is itself: every member runs it; none: no message.
 * letter    its short name in timelines, before the microbatch or the stage.
 * operands  role:access, in printing order. Access r reads, w writes, m reads and writes in place, a accumulates: "dw="
 *           writes (the first contribution), "dw+=" adds. A starred operand may repeat; any may be absent. w is the
 *           weights of the job's stage. v is the token table that an embedding and an unembedding share: a separate set
 *           of weights, numbered after the last stage's, like a stage without jobs. dv: its gradient. u is a set that
 *           the members of a team have whole, numbered behind those; du: its gradient. A backward in parts adds to
 *           several pieces of dw.
 *
 * The first five are the jobs, in the order that breaks ties between equal priorities: F < R < I < B < W. Each SEND is
 * followed by its RECV. tests/unit/test_ops.c checks the other rules for rows. */
#define OPS(X)                                                                                                         \
    X(F, COMPUTE, JOB, none, none, 'F',                                                                                \
      "w:r v:r u:r x:r* kv:r* got:r stash:w input:w own:w give:w y:w work:m t:r* done:w",                              \
      "forward: y, stash = stage(x); with recompute, input = x; of a slice, own = its keys and values")                \
    X(R, COMPUTE, JOB, none, none, 'R', "w:r v:r u:r input:r kv:r* got:r stash:w give:w work:m t:r* done:w",           \
      "recompute: stash = stage(input), y is dropped")                                                                 \
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
    X(SEND_T, SEND, LINK, token, RECV_T, 'T', "t:r",                                                                   \
      "sends token(s,b): an order between ranks that carries no tensor")                                               \
    X(RECV_T, RECV, LINK, token, SEND_T, 'T', "t:w", "receives token(s,b)")                                            \
    X(SERVE, SEND, LINK, weight, FETCH, 'w', "t:r", "sends weight(s), at home or fetched, to peer")                    \
    X(FETCH, RECV, LINK, weight, SERVE, 'w', "t:w", "receives weight(s) from peer, which has it")                      \
    X(ADD, RECV, ADD, wgrad, none, '+', "src:r dw:a",                                                                  \
      "dw += a part of wgrad(s), or a piece of it, received from peer")                                                \
    X(TAKE, COMPUTE, ADD, wgrad, none, '+', "src:r dw:a", "dw += this rank's own piece of its part of wgrad(s)")       \
    X(COPY, COMPUTE, ADD, weight, none, 'c', "src:r w:w",                                                              \
      "w = src: this rank's own shard, into fetched weights; or its own weights, before an update")                    \
    X(ZERO, COMPUTE, ADD, wgrad, none, 'w', "dw:w", "dw = 0: a home that computes no part of the gradient")            \
    X(NORM, COMPUTE, ADD, norm, none, 'n', "dw:r norm:a", "norm += the squares of dw; without dw, of nothing")         \
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

/* Tensors. X(name, has_batch, number, memory, meaning). A buffer is written name(s,b) or name(s), with #k when a rank
 * holds several: weight(2)#0 is the first fetch of stage 2's weights on its rank, wgrad(2)#3 the part received from
 * rank 3.
 *
 * number    what k is. ONE: none, a rank has one per name; PEER: the rank it came from; INSTANCE: a number, which also
 *           appears in its messages' names.
 * memory    the arena that it lies in: the device's, or the one that the rank has in host memory. */
#define KINDS(X)                                                                                                       \
    X(weight, false, INSTANCE, DEVICE, "weights of a stage")                                                           \
    X(wshard, false, ONE, DEVICE, "a home's shard of the weights of a stage, which is sharded over several ranks")     \
    X(wgrad, false, PEER, DEVICE, "gradient of a stage's weights, summed over microbatches")                           \
    X(gshard, false, PEER, DEVICE, "a home's shard of wgrad(s)")                                                       \
    X(gown, false, ONE, DEVICE, "the piece of wgrad(s) or gshard(s) that this home updates, where zero(s) is 2")       \
    X(opt, false, ONE, DEVICE, "optimizer state of a stage; where it is offloaded, only while it is updated")          \
    X(work, false, INSTANCE, DEVICE,                                                                                   \
      "workspace of the compute lane; #1, of the second one of two jobs whose parts alternate")                        \
    X(act, true, ONE, DEVICE, "output of sFb")                                                                         \
    X(grad, true, ONE, DEVICE, "gradient with respect to the input of stage s: output of sBb or sIb")                  \
    X(stash, true, ONE, DEVICE, "what sFb or sRb keeps for the backward")                                              \
    X(wstash, true, ONE, DEVICE, "what sIb keeps for sWb")                                                             \
    X(input, true, ONE, DEVICE, "what sFb keeps for sRb")                                                              \
    X(kv, true, ONE, DEVICE, "keys and values of a slice, which the slices behind it read")                            \
    X(dkv, true, ONE, DEVICE,                                                                                          \
      "gradient with respect to the keys and values of the slices before this one, from this one on")                  \
    X(token, true, INSTANCE, DEVICE, "that a job of (s,b) has ended, #k saying which: an order between ranks")         \
    X(mid, true, INSTANCE, DEVICE,                                                                                     \
      "what a part of a job of (s,b) gives to its team, or gets from it; #k says which of them")                       \
    X(hstash, true, ONE, HOST, "stash(s,b) in host memory")                                                            \
    X(rstash, true, ONE, DEVICE, "stash(s,b), back from host memory")                                                  \
    X(hinput, true, ONE, HOST, "input(s,b) in host memory")                                                            \
    X(rinput, true, ONE, DEVICE, "input(s,b), back from host memory")                                                  \
    X(hopt, false, ONE, HOST, "optimizer state of a stage, in host memory")                                            \
    X(norm, false, ONE, DEVICE, "exact sum of the squares of gradients; a rank has one, and no stage is named")

#define ROLES(X)                                                                                                       \
    X(w)                                                                                                               \
    X(x) X(y) X(stash) X(input) X(dy) X(dx) X(wstash) X(dw) X(opt) X(t) X(src) X(done) X(v) X(dv) X(give) X(got)       \
        X(work) X(kv) X(own) X(dkv) X(dpast) X(u) X(du) X(norm)

#define X(name, ...) OP_##name,
enum op { OPS(X) NOPS, OP_none = NOPS };
#undef X
#define X(name, ...) K_##name,
enum kind { KINDS(X) NKINDS, K_none = NKINDS };
#undef X
#define X(name) ROLE_##name,
enum role { ROLES(X) NROLES };
#undef X

/* Lanes. X(name, word, of). A lane's name is its word and what it belongs to: a peer (`send 1`), a group's members
 * (`group 0,2`), or nothing (ALONE: a rank has one). A rank's first lane is compute; the others follow by kind. PEER
 * and ALL are coarser lanes, for programs that ask for them: both directions with a peer; all messages of a rank. */
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
enum { GROUP_LANES = LANE_TEAM - LANE_GATHER + 1 }; /* that a group may have */
enum laneof { OF_ALONE, OF_PEER, OF_GROUP };
enum costclass { COST_JOB, COST_UPDATE, COST_ADD, COST_LINK, COST_COLLECTIVE, COST_HOST };
enum numbering { NUMBER_ONE, NUMBER_PEER, NUMBER_INSTANCE };
enum memory { MEMORY_DEVICE, MEMORY_HOST, NMEMORIES };

/* Bytes that a reduction by NCCL exchanges and adds at a time. */
enum { REDUCE_PIECE = 32 << 20 };
enum { NDIRS = 5 };                                    /* jobs are ops OP_F .. OP_W */
enum { NORM_WORDS = 21, NORM_BYTES = 8 * NORM_WORDS }; /* of 64 bits: layers/clip.h */

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

/* Classes of instructions. A message is a send, a receive or a collective; jobs, updates and additions are not. */
static inline bool is_job(int op) { return op < NDIRS; }
static inline bool is_message(int op) { return op_row(op)->partner != OP_none; }
static inline bool is_send(int op) { return is_message(op) && op_row(op)->lane == LANE_SEND; }
static inline bool is_recv(int op) { return is_message(op) && op_row(op)->lane == LANE_RECV; }
static inline bool is_group(int op) { return is_message(op) && lanekind_row(op_row(op)->lane)->of == OF_GROUP; }
static inline bool is_copy(int op) { return op_row(op)->cost == COST_HOST; }          /* to host memory, or back */
static inline bool has_root(int op) { return op == OP_BROADCAST || op == OP_REDUCE; } /* as its peer */
static inline bool has_peer(int op) { return lanekind_row(op_row(op)->lane)->of == OF_PEER; } /* ADD has one too */
static inline bool has_bytes(int op) { return is_message(op) || is_copy(op); }                /* that timelines show */
/* A job or an update: the schedule, the model or the cluster gives its time. */
static inline bool has_cost(int op) { return op_row(op)->cost == COST_JOB || op_row(op)->cost == COST_UPDATE; }
static inline bool is_of_rank(int kind) { return kind == K_work || kind == K_norm; } /* and of no stage */
/* Is this operand in the arena in host memory? */
static inline bool on_host(int op, int role) {
    return is_copy(op) && role == (op_row(op)->lane == LANE_OFFLOAD ? ROLE_t : ROLE_src);
}

/* Layers. X(name, parameters, meaning)
 *
 * A tensor is rows x columns of the model's precision; a row is a token or a sample. fork and join bracket a residual
 * block: fork keeps its input, join adds it to the block's output.
 *
 * parameters  MATRIX(name, rows, columns) and VECTOR(name, n), in memory order, named as in checkpoints; WHOLE: a
 *             matrix that no team divides. One without elements is omitted. l is the layer, or a member's part of it,
 *             m the model; shared: the embedding's tokens are a separate table, shared with the unembedding. With
 *             integer data, a bias's sums would have too many terms to be exact: see store/data.c. */
#define LAYERS(X)                                                                                                      \
    X(embedding,                                                                                                       \
      MATRIX(token, shared ? 0 : share_of(l, SPLIT_ROWS, m->vocab), l->out) WHOLE(position, l->context, l->out),       \
      "token embedding, times its scale, and position embedding: tokens -> rows x out; without positions context is "  \
      "0")                                                                                                             \
    X(linear,                                                                                                          \
      MATRIX(weight, l->in, l->out)                                                                                    \
          VECTOR(bias, l->unbiased || m->input == INPUT_INTEGERS || l->share.split == SPLIT_ROWS ? 0 : l->out),        \
      "y = x W + bias; W is in x out, bias out; unbiased: it has no bias")                                             \
    X(relu, , "y = max(x, 0)")                                                                                         \
    X(gelu, , "y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel 2016)")                        \
    X(silu, , "y = x / (1 + e^-x)  (Elfwing et al. 2018)")                                                             \
    X(swiglu, , "y = silu(g) u on g,u side by side: 2F -> F  (Shazeer 2020)")                                          \
    X(geglu, , "y = gelu(g) u on g,u side by side: 2F -> F  (Shazeer 2020)")                                           \
    X(dropout, , "y = 0 with probability p, else x / (1 - p); in training alone  (Srivastava et al. 2014)")            \
    X(layernorm, VECTOR(gamma, l->out) VECTOR(beta, l->out),                                                           \
      "y = gamma (x - mean) / sqrt(var + eps) + beta over columns  (Ba et al. 2016)")                                  \
    X(rmsnorm, VECTOR(gamma, l->out), "y = gamma x / sqrt(mean(x^2) + eps) over columns  (Zhang & Sennrich 2019)")     \
    X(headnorm, VECTOR(gamma_q, head_columns(l)) VECTOR(gamma_k, head_columns(l)),                                     \
      "rmsnorm of each head of q and k over its columns, in front of attention; v as it is  (Dehghani et al. 2023)")   \
    X(attention, ,                                                                                                     \
      "causal, of heads of q, then k and v: H + 2K -> H; rope turns q, k  (Vaswani 2017, Ainslie 2023, Su 2021)")      \
    X(route, WHOLE(router, l->in, l->experts),                                                                         \
      "sends each token to its top experts, as long as these have room: tokens -> a sequence's places of each expert") \
    X(experts, MATRIX(weight, (int64_t)l->experts * l->in, l->out),                                                    \
      "y = x W, W that of the row's expert: in x out each, one below the other  (Shazeer 2017)")                       \
    X(combine, , "y = sum over a token's experts of the router's weight times the row there  (Lepikhin 2020)")         \
    X(to_experts, , "from all experts' places for a member's sequences to its experts' places for all sequences")      \
    X(to_tokens, , "from its experts' places for all sequences to all experts' places for its sequences")              \
    X(fork, , "opens a residual block")                                                                                \
    X(join, , "closes a residual block: y = x + the fork's input")                                                     \
    X(bias, VECTOR(bias, l->out), "y = x + bias: of a linear layer whose rows a team divides")                         \
    X(spread, , "a team's members go on apart: y = x; dx = sum of dx over the members")                                \
    X(reduce, , "their parts are added up: y = sum of x over the members; dx = dy")                                    \
    X(gather, , "y = all members' rows x; dx = this member's rows of the sum of dy over the members")                  \
    X(scatter, , "y = this member's rows of the sum of x over the members; dx = all members' rows dy")                 \
    X(again, , "y = x; for the weight gradient before it, gathers again what a gather before that did: rows x in")     \
    X(gather_kv, , "all members' keys and values for attention of some rows: y = x; their gradients are added up")     \
    X(again_kv, , "the same before attention's backward: y = x")                                                       \
    X(to_heads, , "from some rows of all heads to all rows of some heads  (Jacobs 2023, DeepSpeed-Ulysses)")           \
    X(to_rows, , "from all rows of some heads to some rows of all heads")                                              \
    X(unembedding, , "y = x E^T; E is the embedding's tokens, shared with it  (Press & Wolf 2017)")                    \
    X(cross_entropy, , "mean over rows of -log softmax(x)[target]; the last layer")                                    \
    X(mse, , "sum over columns of (x - target)^2 / 2, mean over rows; the last layer")

#define X(name, ...) LAYER_##name,
enum layer_kind { LAYERS(X) NLAYERS };
#undef X

/* Where a tensor of a layer lies: a space and a byte offset in it. */
enum space {
    SP_NONE,  /* absent */
    SP_X,     /* the stage's input, operand x */
    SP_Y,     /* the stage's output, operand y */
    SP_STASH, /* operand stash */
    SP_EXT,   /* what I adds to the stash for W: after it in wstash; in the workspace for a full B */
    SP_WORK,  /* workspace */
    SP_DY,    /* gradient of the stage's output, operand dy */
    SP_DX,    /* gradient of the stage's input, operand dx */
    SP_GIVE,  /* what this part of the job gives to its team, operand give */
    SP_GOT,   /* what it has got from there, operand got */
};
struct slot {
    int32_t space;
    int64_t off;
};

/* How the members of a team divide a layer's parameters: not at all; evenly by columns, where they lie in up to three
 * groups, such as queries, keys and values, each of which is divided; or evenly by rows. A parameter that has no
 * columns or rows of that kind is whole on each member. */
enum split { SPLIT_NONE, SPLIT_COLUMNS, SPLIT_ROWS, SPLIT_HEADS /* of attention only, in models */ };
struct rt_share {
    int32_t split;           /* enum split */
    int32_t member, members; /* 0: nobody divides it */
    int32_t group[3];        /* SPLIT_COLUMNS: the whole layer's columns, so many next to each other; 0: no more */
};

/* Which rows of a microbatch a layer has that works by rows: all of them, where members is 0; a run of as many as each
 * member; or, with context, so that causal attention is as much work for each, of the 2 members chunks of every
 * sequence the chunk `member` and the one as far from the end. */
struct rt_rows {
    int32_t member, members;
    int32_t context; /* rows of a sequence, of which each member has two chunks; 0: it has a run of rows */
};

/* What a part of a job runs of its layers: all; all but the weight gradient of the first that it runs to the end, which
 * the next part or the one after it makes; or weight gradients alone. */
enum sweep_kind { SWEEP_ALL, SWEEP_PUT_OFF, SWEEP_WEIGHTS };

/* The sets of weights that a stage's layers may have parameters in: its own, operand w; the table of tokens, v; what
 * the members of its team share, u. */
enum which_set { SET_OWN, SET_TABLE, SET_SHARED, NSETS };

/* How a rope's frequencies are lower than its base says, so that it reaches further than the context it was trained
 * with: by the factor; or, where a context is given, only those with fewer than `low` turns in that, those with more
 * than `high` not at all, and between the two by what is linear (Llama 3's). factor 0: they are not. */
struct rt_scaling {
    float factor, low, high;
    int32_t context;
};

struct rt_layer {
    int32_t kind;           /* enum layer_kind */
    int32_t rows, in, out;  /* rows x in -> out_rows x out */
    int32_t heads, context; /* attention: heads, and rows per sequence; headnorm: heads; embedding, …: context */
    int32_t kv_heads, rope; /* attention, headnorm: heads of keys and values; attention: base of its rope, or 0 */
    int32_t unbiased;       /* linear: 1 if it has no bias, whatever the input; others 0 */
    int32_t index;          /* position in the whole model: seeds its initial weights */
    struct rt_share share;  /* what a team's member has of it */
    int64_t param, nparam;  /* offset (bytes) and count of its parameters in the stage's weights */
    struct slot x, y;       /* forward input and output */
    struct slot aux;        /* saved by the forward for the backward: statistics, log-sum-exp */
    struct slot dy, dx;     /* gradients of y and x */
    struct slot tmp;        /* workspace of this layer alone */
    /* Of a slice: where its rows begin in their sequence, and how many of each it has, 0: all; and of attention, where
     * its keys and values begin in kv, in bytes. */
    int32_t first, length;
    int64_t kv;
    int32_t out_rows;    /* 0: as many as of its input */
    int32_t set;         /* enum which_set: has its parameters */
    struct rt_rows part; /* of the microbatch's rows */
    /* Mixture of experts, of route, experts and combine; others 0. How many experts there are, or a member has; how
     * many each token is sent to; how many tokens of a sequence, context rows, each expert has room for; and the factor
     * of the loss that balances their loads. */
    int32_t experts, top, capacity;
    float balance;
    float number; /* of norms eps, 0: 1e-5; of an embedding its scale, 0: 1; of dropout its probability; others 0 */
    struct rt_scaling scaling;
};
static inline float eps_of(const struct rt_layer *l) { return l->number > 0 ? l->number : 1e-5f; }

static inline float factor_of(const struct rt_layer *l) { return l->number > 0 ? l->number : 1; }

/* Of a layer whose input is heads of queries, keys and values side by side. */
static inline int32_t head_columns(const struct rt_layer *l) { return l->in / (l->heads + 2 * l->kv_heads); }

/* Bytes of what a route keeps: see routing_at in layers/moe.h. To a whole cache line. */
static inline int64_t routing_bytes(const struct rt_layer *route) {
    int64_t tokens = route->rows, sequences = tokens / route->context;
    int64_t words = tokens * route->experts + 3 * tokens * route->top + route->out_rows + sequences * route->experts;
    return (4 * words + 63) / 64 * 64;
}

/* Bytes of what a member gives of a loss whose vocabulary a team divides: three floats a row, the largest logit, the
 * sum of exponentials relative to it, and the target's logit or 0; to a whole cache line. */
static inline int64_t statistics_bytes(const struct rt_layer *l) { return (4 * 3 * (int64_t)l->rows + 63) / 64 * 64; }

static inline int32_t rows_out(const struct rt_layer *l) { return l->out_rows > 0 ? l->out_rows : l->rows; }
/* Which row of the microbatch, of `all`, is row `row` of the layer. */
static inline int32_t row_of_batch(const struct rt_layer *l, int32_t all, int32_t row) {
    const struct rt_rows *part = &l->part;
    if (part->members == 0)
        return row;
    if (part->context == 0)
        return part->member * (all / part->members) + row;
    int32_t length = part->context / part->members, chunk = length / 2, sequence = row / length, at = row % length;
    int32_t begin = at < chunk ? part->member * chunk : (2 * part->members - 1 - part->member) * chunk - chunk;
    return sequence * part->context + begin + at;
}

/* What a team exchanges around attention: pieces of so many rows and columns, one for each member, which begin at cache
 * lines; element: bytes of a value. */
static inline int32_t piece_rows(const struct rt_layer *l) { return l->kind == LAYER_to_rows ? rows_out(l) : l->rows; }
static inline int32_t piece_columns(const struct rt_layer *l) {
    switch (l->kind) {
    case LAYER_to_heads: return l->out;
    case LAYER_to_rows: return l->in;
    case LAYER_again_kv: return l->in / l->heads * 2 * l->kv_heads;
    default: return head_columns(l) * 2 * l->kv_heads; /* gather_kv, and attention itself */
    }
}
static inline int64_t piece_bytes(const struct rt_layer *l, int64_t element) {
    return (element * piece_rows(l) * piece_columns(l) + 63) / 64 * 64;
}
/* A team that divides attention by rows has at most so many members: a kernel has room for two chunks of each. */
enum { MOST_BY_ROWS = 32 };

struct rt_stage {
    const struct rt_layer *layer;
    int32_t nlayers;
    int64_t act, grad, stash, ext, input, weight, opt, work; /* bytes; wstash = stash + ext */
    int32_t update; /* microbatches, or slices of such, of each of its updates; 0: one update ends the step */
    /* The stage as scripts count. If a team computes it, its members have stages of their own, one behind the other:
     * this one's place among them, and how many they are; else 0 and 0. */
    int32_t number, place, members;
};

/* Optimizers. X(NAME, name, moments, flop, fields)
 *
 * moments  its fp32 state per weight, one letter per value, which checkpoints append to the parameter's name. "mv":
 *          layer.5.weight.m and layer.5.weight.v. They are 0 before step 1.
 * flop     per weight and step
 * fields   FIELD(name, range, default) for each setting in a script; NAN: required. OF_ALL: those of the learning
 *          rate, which layers/rate.h explains, and clip, which layers/clip.h does. decay is of matrices, token tables
 *          included, not of biases and norms. */
#define OPTIMIZERS(X)                                                                                                  \
    X(SGD, sgd, "", 2, OF_ALL)                                                                                         \
    X(ADAMW, adamw, "mv", 14,                                                                                          \
      OF_ALL FIELD(beta1, BELOW_1, 0.9) FIELD(beta2, BELOW_1, 0.95) FIELD(eps, ABOVE_0, 1e-8) FIELD(decay, FROM_0, 0)) \
    X(MOMENTUM, momentum, "m", 4, OF_ALL FIELD(momentum, BELOW_1, 0.9) FIELD(nesterov, FLAG, false))                   \
    X(MUON, muon, "mv", 14,                                                                                            \
      OF_ALL FIELD(adam_lr, ABOVE_0, NAN) FIELD(momentum, BELOW_1, 0.95) FIELD(beta1, BELOW_1, 0.9)                    \
          FIELD(beta2, BELOW_1, 0.95) FIELD(eps, ABOVE_0, 1e-8) FIELD(decay, FROM_0, 0))
#define OF_ALL                                                                                                         \
    FIELD(lr, ABOVE_0, NAN)                                                                                            \
    FIELD(schedule, SCHEDULE, 0) FIELD(clip, FROM_0, 0) FIELD(post_validation, FLAG, false) FIELD(warmup, BASE, 0)     \
        FIELD(steps, BASE, 0) FIELD(final, BELOW_1, 0) FIELD(cooldown, BELOW_1, 0.2)

/* The fields of all optimizers, as a model stores them; 0: its optimizer has no such field. COUNTS: whole numbers. */
#define RATES(X)  X(lr) X(beta1) X(beta2) X(eps) X(decay) X(momentum) X(final) X(cooldown) X(adam_lr) X(clip)
#define COUNTS(X) X(schedule) X(warmup) X(steps) X(nesterov) X(post_validation)

/* How the learning rate goes on after its warm-up: layers/rate.h. */
#define SCHEDULES(X) X(constant) X(linear) X(cosine) X(wsd)
#define X(name)      SCHEDULE_##name,
enum schedule { SCHEDULES(X) NSCHEDULES };
#undef X

#define X(NAME, ...) OPT_##NAME,
enum optimizer { OPT_NONE, OPTIMIZERS(X) NOPTIMIZERS };
#undef X
#define X(NAME, name, moments, ...) moments,
static inline const char *moments_of(int optimizer) {
    static const char *const letters[NOPTIMIZERS] = {"", OPTIMIZERS(X)};
    return letters[optimizer];
}
#undef X
static inline int count_moments(int optimizer) {
    int n = 0;
    while (moments_of(optimizer)[n])
        n++;
    return n;
}

enum input_kind { INPUT_NONE, INPUT_TOKENS, INPUT_INTEGERS };
enum precision { FP32, BF16 }; /* of weights, activations and their gradients; sums, statistics and masters are fp32 */
static inline int64_t precision_bytes(int precision) { return precision == BF16 ? 2 : 4; }

/* Everything about the model that a rank needs besides its stages. */
/* What a layer's parameters are called in files of others: see store/import.h. NULL: nothing is said. */
struct rt_names {
    const char *hf, *gguf;
};

struct rt_model {
    int32_t input;          /* enum input_kind */
    int32_t rows;           /* rows per microbatch: sequences x context for tokens */
    int32_t context, vocab; /* tokens */
    int32_t features;       /* integers: columns of input and target */
    int32_t optimizer;      /* enum optimizer */
#define X(name) float name;
    RATES(X)
#undef X
#define X(name) int32_t name;
    COUNTS(X)
#undef X
    int32_t batches;              /* microbatches per step; the loss is their mean */
    int32_t precision;            /* enum precision */
    int32_t update;               /* the most microbatches of an update; 0: one update ends the step */
    int32_t slices;               /* of a microbatch; 0: it is not cut */
    int32_t output;               /* index of the linear layer in front of the loss; -1: there is none */
    const struct rt_names *names; /* [by rt_layer.index]; NULL: no layer has any */
};

/* Slices of a microbatch, at least 1. */
static inline int32_t pieces_of_batch(const struct rt_model *m) { return m->slices > 0 ? m->slices : 1; }

/* Floats of an optimizer's state of n weights: masters, with bf16, and moments; and what post-validation keeps. */
enum { KEPT_HEADER = 16 }; /* of that: layers/post_validation.h */
static inline int64_t state_floats(const struct rt_model *m, int64_t n) {
    int moments = count_moments(m->optimizer);
    return ((m->precision == BF16) + moments) * n + (m->post_validation ? KEPT_HEADER + (moments + 2) * n : 0);
}

/* Rows of a sequence that a layer has: all, or those of a slice. */
static inline int32_t sequence_length(const struct rt_layer *l) { return l->length > 0 ? l->length : l->context; }

/* Bytes of an attention's keys and values, or of their gradients, in a slice's kv or in dkv: all keys, behind them all
 * values, to a whole cache line. */
static inline int64_t kv_bytes(const struct rt_layer *l, int64_t element) {
    return (element * l->rows * (l->in - l->out) + 63) / 64 * 64;
}

/* An attention's log-sum-exp, and whether it keeps its queries behind that, in aux: a slice's, since its keys and
 * values stay in kv, unless its whole input is in the stash. */
static inline int64_t lse_bytes(const struct rt_layer *l) { return (4 * (int64_t)l->rows * l->heads + 63) / 64 * 64; }
static inline bool keeps_queries(const struct rt_layer *l) { return l->length > 0 && l->x.space != SP_STASH; }
#endif
