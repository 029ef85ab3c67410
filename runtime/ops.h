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
 * lane      COMPUTE: the rank's compute lane; SEND/RECV: the lane of a directed edge; GATHER/GROUP: a group's lane for
 *           weights, and for the rest; OFFLOAD/RELOAD: the rank's copies to host memory, and back.
 * cost      JOB: the schedule's cost of the job; UPDATE, ADD: bytes touched; LINK: latency + bytes / bandwidth;
 *           COLLECTIVE: that of its algorithm (passes/collective.c); HOST: the same over the link to host memory.
 * tensor    the kind it moves, sums or updates; none: a job, which has several. SEND_S also sends inputs, and OFFLOAD_S
 *           and RELOAD_S copy them.
 * partner   the instruction at a message's other end; a collective's is itself: every member runs it; none: no message.
 * letter    its short name in timelines, before the microbatch or the stage.
 * operands  role:access, in printing order. Access r reads, w writes, m reads and writes in place, a accumulates: "dw="
 *           writes (the first contribution), "dw+=" adds. A starred operand may repeat; any may be absent. w is the
 *           weights of the job's stage. v is the token table that an embedding and an unembedding share: a separate set
 *           of weights, numbered after the last stage's, like a stage without jobs. dv: its gradient. A backward in
 *           parts adds to several pieces of dw.
 *
 * The first five are the jobs, in the order that breaks ties between equal priorities: F < R < I < B < W. Each SEND is
 * followed by its RECV. tests/unit/test_ops.c checks the other rules for rows. */
#define OPS(X)                                                                                                         \
    X(F, COMPUTE, JOB, none, none, 'F', "w:r v:r x:r* stash:w input:w y:w t:r* done:w",                                \
      "forward: y, stash = stage(x); with recompute, input = x")                                                       \
    X(R, COMPUTE, JOB, none, none, 'R', "w:r v:r input:r stash:w t:r* done:w",                                         \
      "recompute: stash = stage(input), y is dropped")                                                                 \
    X(I, COMPUTE, JOB, none, none, 'I', "w:r v:r stash:r dy:r* wstash:w dx:w t:r* done:w",                             \
      "input gradient: dx; wstash grows in place of stash")                                                            \
    X(B, COMPUTE, JOB, none, none, 'B', "w:r v:r stash:r dy:r* dx:w dw:a* dv:a t:r* done:w",                           \
      "full backward: dx, and dw += this microbatch's gradient")                                                       \
    X(W, COMPUTE, JOB, none, none, 'W', "wstash:r dw:a* dv:a t:r* done:w",                                             \
      "weight gradient: dw += this microbatch's gradient")                                                             \
    X(U, COMPUTE, UPDATE, weight, none, 'U', "dw:r opt:m w:m", "update: the optimizer steps the weights of a stage")   \
    X(SEND_F, SEND, LINK, act, RECV_F, 'F', "t:r", "sends act(s,b) to peer")                                           \
    X(RECV_F, RECV, LINK, act, SEND_F, 'F', "t:w", "receives act(s,b) from peer")                                      \
    X(SEND_B, SEND, LINK, grad, RECV_B, 'B', "t:r", "sends grad(s,b) to peer")                                         \
    X(RECV_B, RECV, LINK, grad, SEND_B, 'B', "t:w", "receives grad(s,b) from peer")                                    \
    X(SEND_S, SEND, LINK, stash, RECV_S, 'S', "t:r", "sends stash(s,b), or input(s,b) with recompute, to peer")        \
    X(RECV_S, RECV, LINK, stash, SEND_S, 'S', "t:w", "receives stash(s,b) or input(s,b) from peer")                    \
    X(SEND_W, SEND, LINK, wstash, RECV_W, 'W', "t:r", "sends wstash(s,b) to peer")                                     \
    X(RECV_W, RECV, LINK, wstash, SEND_W, 'W', "t:w", "receives wstash(s,b) from peer")                                \
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
    X(COPY, COMPUTE, ADD, weight, none, 'c', "src:r w:w", "w = src: this rank's own shard, into fetched weights; or its own weights, before an update")      \
    X(ZERO, COMPUTE, ADD, wgrad, none, 'w', "dw:w", "dw = 0: a home that computes no part of the gradient")            \
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
    X(ALL_TO_ALL, GROUP, COLLECTIVE, act, ALL_TO_ALL, 'a', "src:r y:w",                                                \
      "piece j of y of member i = piece i of src of member j")                                                         \
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
    X(work, false, ONE, DEVICE, "workspace of the compute lane")                                                       \
    X(act, true, ONE, DEVICE, "output of sFb")                                                                         \
    X(grad, true, ONE, DEVICE, "gradient with respect to the input of stage s: output of sBb or sIb")                  \
    X(stash, true, ONE, DEVICE, "what sFb or sRb keeps for the backward")                                              \
    X(wstash, true, ONE, DEVICE, "what sIb keeps for sWb")                                                             \
    X(input, true, ONE, DEVICE, "what sFb keeps for sRb")                                                              \
    X(token, true, INSTANCE, DEVICE, "that a job of (s,b) has ended, #k saying which: an order between ranks")         \
    X(hstash, true, ONE, HOST, "stash(s,b) in host memory")                                                            \
    X(rstash, true, ONE, DEVICE, "stash(s,b), back from host memory")                                                  \
    X(hinput, true, ONE, HOST, "input(s,b) in host memory")                                                            \
    X(rinput, true, ONE, DEVICE, "input(s,b), back from host memory")                                                  \
    X(hopt, false, ONE, HOST, "optimizer state of a stage, in host memory")

#define ROLES(X) X(w) X(x) X(y) X(stash) X(input) X(dy) X(dx) X(wstash) X(dw) X(opt) X(t) X(src) X(done) X(v) X(dv)

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
    X(OFFLOAD, "offload", ALONE)                                                                                       \
    X(RELOAD, "reload", ALONE)

#define X(name, ...) LANE_##name,
enum lanekind { LANES(X) NLANEKINDS };
#undef X
enum laneof { OF_ALONE, OF_PEER, OF_GROUP };
enum costclass { COST_JOB, COST_UPDATE, COST_ADD, COST_LINK, COST_COLLECTIVE, COST_HOST };
enum numbering { NUMBER_ONE, NUMBER_PEER, NUMBER_INSTANCE };
enum memory { MEMORY_DEVICE, MEMORY_HOST, NMEMORIES };

/* Bytes that a reduction by NCCL exchanges and adds at a time. */
enum { REDUCE_PIECE = 32 << 20 };
enum { NDIRS = 5 }; /* jobs are ops OP_F .. OP_W */

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
/* Is this operand in the arena in host memory? */
static inline bool on_host(int op, int role) {
    return is_copy(op) && role == (op_row(op)->lane == LANE_OFFLOAD ? ROLE_t : ROLE_src);
}

/* Layers. X(name, parameters, meaning)
 *
 * A tensor is rows x columns of the model's precision; a row is a token or a sample. fork and join bracket a residual
 * block: fork keeps its input, join adds it to the block's output.
 *
 * parameters  MATRIX(name, rows, columns) and VECTOR(name, n), in memory order, named as in checkpoints. One without
 *             elements is omitted. l is the layer, m the model; shared: the embedding's tokens are a separate table,
 *             shared with the unembedding. With integer data, a bias's sums would have too many terms to be exact: see
 *             store/data.c. */
#define LAYERS(X)                                                                                                      \
    X(embedding, MATRIX(token, shared ? 0 : m->vocab, l->out) MATRIX(position, l->context, l->out),                    \
      "token and position embedding: tokens -> rows x out")                                                            \
    X(linear, MATRIX(weight, l->in, l->out) VECTOR(bias, m->input == INPUT_INTEGERS ? 0 : l->out),                     \
      "y = x W + bias; W is in x out, bias out")                                                                       \
    X(relu, , "y = max(x, 0)")                                                                                         \
    X(gelu, , "y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel 2016)")                        \
    X(layernorm, VECTOR(gamma, l->out) VECTOR(beta, l->out),                                                           \
      "y = gamma (x - mean) / sqrt(var + 1e-5) + beta over columns  (Ba et al. 2016)")                                 \
    X(attention, , "causal multi-head self-attention on q,k,v side by side: 3C -> C  (Vaswani et al. 2017)")           \
    X(fork, , "opens a residual block")                                                                                \
    X(join, , "closes a residual block: y = x + the fork's input")                                                     \
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
};
struct slot {
    int32_t space;
    int64_t off;
};

struct rt_layer {
    int32_t kind;           /* enum layer_kind */
    int32_t rows, in, out;  /* rows x in -> rows x out */
    int32_t heads, context; /* attention: heads, and rows per sequence; embedding: context; others 0 */
    int32_t index;          /* position in the whole model: seeds its initial weights */
    int64_t param, nparam;  /* offset (bytes) and count of its parameters in the stage's weights */
    struct slot x, y;       /* forward input and output */
    struct slot aux;        /* saved by the forward for the backward: statistics, log-sum-exp */
    struct slot dy, dx;     /* gradients of y and x */
    struct slot tmp;        /* workspace of this layer alone */
};

struct rt_stage {
    const struct rt_layer *layer;
    int32_t nlayers;
    int64_t act, grad, stash, ext, input, weight, opt, work; /* bytes; wstash = stash + ext */
    int32_t update; /* microbatches of each of its updates; 0: one update ends the step */
};

/* Optimizers. X(NAME, name, moments, flop, fields)
 *
 * moments  its fp32 state per weight, one letter per value, which checkpoints append to the parameter's name. "mv":
 *          layer.5.weight.m and layer.5.weight.v. They are 0 before step 1.
 * flop     per weight and step
 * fields   FIELD(name, range, default) for each setting in a script; NAN: required */
#define OPTIMIZERS(X)                                                                                                  \
    X(SGD, sgd, "", 2, FIELD(lr, ABOVE_0, NAN))                                                                        \
    X(ADAMW, adamw, "mv", 14,                                                                                          \
      FIELD(lr, ABOVE_0, NAN) FIELD(beta1, BELOW_1, 0.9) FIELD(beta2, BELOW_1, 0.95) FIELD(eps, ABOVE_0, 1e-8)         \
          FIELD(decay, FROM_0, 0))

/* The fields of all optimizers, as a model stores them; 0: its optimizer has no such field. */
#define RATES(X) X(lr) X(beta1) X(beta2) X(eps) X(decay)

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
struct rt_model {
    int32_t input;          /* enum input_kind */
    int32_t rows;           /* rows per microbatch: sequences x context for tokens */
    int32_t context, vocab; /* tokens */
    int32_t features;       /* integers: columns of input and target */
    int32_t optimizer;      /* enum optimizer */
#define X(name) float name;
    RATES(X)
#undef X
    int32_t batches;   /* microbatches per step; the loss is their mean */
    int32_t precision; /* enum precision */
    int32_t update;    /* the most microbatches of an update; 0: one update ends the step */
};

/* The parameters of a layer, one after the other. */
enum { MOST_PARAMETERS = 4 };
struct rt_parameter {
    const char *name;
    int32_t ndims; /* a vector has 1 */
    int64_t dim[2], count;
};
struct rt_parameters {
    int32_t n;
    struct rt_parameter at[MOST_PARAMETERS];
};
static inline void add_parameter(struct rt_parameters *p, const char *name, int32_t ndims, int64_t rows,
                                 int64_t columns) {
    struct rt_parameter one = {name, ndims, {rows, columns}, ndims == 1 ? rows : rows * columns};
    if (one.count > 0)
        p->at[p->n++] = one;
}
/* The parameters of layer l of model m, from LAYERS. */
static inline struct rt_parameters parameters_of(const struct rt_model *m, const struct rt_layer *l, bool shared) {
    struct rt_parameters p;
    p.n = 0;
    switch (l->kind) {
#define MATRIX(name, rows, columns) add_parameter(&p, #name, 2, rows, columns);
#define VECTOR(name, n)             add_parameter(&p, #name, 1, n, 0);
#define X(name, parameters, ...)                                                                                       \
    case LAYER_##name: parameters break;
        LAYERS(X)
#undef X
#undef MATRIX
#undef VECTOR
    }
    return p;
}
#endif
