/* The model and its layers, as the compiler and the runtime share them: declares every layer and optimizer once, and
 * the structs that describe a rank's layers, stages and model as plain constants. */
#ifndef PIANOLA_MODEL_H
#define PIANOLA_MODEL_H
#include "config.h"
#include "unit_layer.h"
#include <stdbool.h>
#include <stdint.h>

/* Layers. X(name, parameters, meaning)
 *
 * A tensor is rows x columns of the model's precision; a row is a token or a sample. fork and join bracket a residual
 * block: fork keeps its input, join adds it to the block's output.
 *
 * parameters  MATRIX(name, rows, columns) and VECTOR(name, n), in memory order, named as in checkpoints; WHOLE: a
 *             matrix that no team divides; OF_UNIT: what l->unit lists. One without elements is omitted. l is the
 * layer, or a member's part of it, m the model; shared: the embedding's tokens are a separate table, shared with the
 * unembedding. With integer data, a bias's sums would have too many terms to be exact: see store/data.c. */
#define LAYERS(X)                                                                                                      \
    X(embedding,                                                                                                       \
      MATRIX(token, shared ? 0 : share_of(l, SPLIT_ROWS, m->vocab), l->out) WHOLE(position, l->context, l->out),       \
      "token embedding, times its scale, plus position embedding: tokens -> rows x out; without positions, context "   \
      "is "                                                                                                            \
      "0")                                                                                                             \
    X(linear,                                                                                                          \
      MATRIX(weight, l->in, l->out) VECTOR(                                                                            \
          bias, !l->config.linear.bias || m->input == INPUT_INTEGERS || l->share.split == SPLIT_ROWS ? 0 : l->out),    \
      "y = x W + bias; W is in x out, bias out; an unbiased one has no bias")                                          \
    X(relu, , "y = max(x, 0)")                                                                                         \
    X(gelu, , "y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel 2016)")                        \
    X(silu, , "y = x / (1 + e^-x)  (Elfwing et al. 2018)")                                                             \
    X(swiglu, , "y = silu(g) u on g,u side by side: 2F -> F  (Shazeer 2020)")                                          \
    X(geglu, , "y = gelu(g) u on g,u side by side: 2F -> F  (Shazeer 2020)")                                           \
    X(dropout, , "y = 0 with probability p, else x / (1 - p); only in training  (Srivastava et al. 2014)")             \
    X(layernorm, VECTOR(gamma, l->out) VECTOR(beta, l->out),                                                           \
      "y = gamma (x - mean) / sqrt(var + eps) + beta over columns  (Ba et al. 2016)")                                  \
    X(rmsnorm, VECTOR(gamma, l->out), "y = gamma x / sqrt(mean(x^2) + eps) over columns  (Zhang & Sennrich 2019)")     \
    X(headnorm, VECTOR(gamma_q, head_columns(l)) VECTOR(gamma_k, head_columns(l)),                                     \
      "rmsnorm of each head of q and k over its columns, before attention; v unchanged  (Dehghani et al. 2023)")       \
    X(attention, ,                                                                                                     \
      "causal, over heads of q, then k and v: H + 2K -> H; rope rotates q, k  (Vaswani 2017, Ainslie 2023, Su 2021)")  \
    X(route, WHOLE(router, l->in, l->config.moe.experts),                                                              \
      "sends each token to its top experts while they have room: tokens -> places in each expert, per sequence")       \
    X(experts, MATRIX(weight, (int64_t)l->config.moe.experts * l->in, l->out),                                         \
      "y = x W, with one W per expert: in x out, stored one after the other  (Shazeer 2017)")                          \
    X(combine, , "y = sum over a token's experts of the router's weight x the expert's row  (Lepikhin 2020)")          \
    X(to_experts, , "from all experts' places for a member's sequences to its experts' places for all sequences")      \
    X(to_tokens, , "from its experts' places for all sequences to all experts' places for its sequences")              \
    X(fork, , "opens a residual block")                                                                                \
    X(join, , "closes a residual block: y = x + the fork's input")                                                     \
    X(bias, VECTOR(bias, l->out), "y = x + bias, for a linear layer whose rows a team divides")                        \
    X(spread, , "starts a part that each member computes alone: y = x; dx = sum of dx over the members")               \
    X(reduce, , "adds up the members' parts: y = sum of x over the members; dx = dy")                                  \
    X(gather, , "y = all members' rows x; dx = this member's rows of the sum of dy over the members")                  \
    X(scatter, , "y = this member's rows of the sum of x over the members; dx = all members' rows dy")                 \
    X(again, , "y = x; repeats an earlier gather for the weight gradient before it: rows x in")                        \
    X(gather_kv, ,                                                                                                     \
      "gathers all members' keys and values for attention over some rows: y = x; adds up their gradients")             \
    X(again_kv, , "repeats gather_kv before attention's backward: y = x")                                              \
    X(to_heads, , "from some rows of all heads to all rows of some heads  (Jacobs 2023, DeepSpeed-Ulysses)")           \
    X(to_rows, , "from all rows of some heads to some rows of all heads")                                              \
    X(unit, OF_UNIT, "what its own code computes: unit.h")                                                             \
    X(unembedding, , "y = x E^T, where E is the embedding's token table, shared with it  (Press & Wolf 2017)")         \
    X(cross_entropy, , "mean over rows of -log softmax(x)[target]; the last layer")                                    \
    X(mse, , "sum over columns of (x - target)^2 / 2, mean over rows; the last layer")                                 \
    X(mean_loss, , "mean over rows of x, which has one column: losses that a unit makes of its rows; the last layer")

#define X(name, ...) LAYER_##name,
enum layer_kind { LAYERS(X) NLAYERS };
#undef X

/* The place of a layer's tensor: a space and a byte offset in it. */
enum space {
    SP_NONE,  /* absent */
    SP_X,     /* the stage's input, operand x */
    SP_Y,     /* the stage's output, operand y */
    SP_STASH, /* operand stash */
    SP_EXT,   /* what I adds to the stash for W; follows the stash in wstash, or is in the workspace for a full B */
    SP_WORK,  /* workspace */
    SP_DY,    /* gradient of the stage's output, operand dy */
    SP_DX,    /* gradient of the stage's input, operand dx */
    SP_GIVE,  /* tensor that this part of the job gives to its team, operand give */
    SP_GOT,   /* tensor that it has got from the team, operand got */
};
struct slot {
    int32_t space;
    int64_t off;
};

/* How the members of a team divide a layer's parameters: not at all; evenly by columns; or evenly by rows. Columns may
 * form up to three groups, such as queries, keys and values, each of which is divided. A parameter without such columns
 * or rows is whole on each member. */
enum split { SPLIT_NONE, SPLIT_COLUMNS, SPLIT_ROWS, SPLIT_HEADS /* only for attention, in models */ };
struct rt_share {
    int32_t split;           /* enum split */
    int32_t member, members; /* 0: it is not divided */
    int32_t group[3];        /* SPLIT_COLUMNS: contiguous columns of the whole layer, per group; 0: no more */
};

/* The microbatch's rows that a layer computes when rows are divided: all of them, if members is 0; otherwise a run of
 * rows, equally long for each member. With context, every sequence is cut into 2 * members chunks. A member has chunk
 * number `member` and the one equally far from the end, so that causal attention is equal work for all. */
struct rt_rows {
    int32_t member, members;
    int32_t context; /* rows of a sequence, whose chunks are divided; 0: each member has a run of rows */
};

/* The computations that a part of a job runs: all; all but the weight gradient of the first layer that it finishes,
 * which the next part or the one after it computes; or only weight gradients. */
enum sweep_kind { SWEEP_ALL, SWEEP_PUT_OFF, SWEEP_WEIGHTS };

/* The sets of weights that may hold a stage's parameters: its own, operand w; the token table, v; and what the members
 * of its team share, u. Frozen parameters are in none: each rank that computes the stage has a copy (rt_rank). All
 * parameters of a layer with SET_FROZEN are frozen; a unit may have both kinds, and says so itself. */
enum which_set { SET_OWN, SET_TABLE, SET_SHARED, NSETS, SET_FROZEN = NSETS };

struct rt_layer {
    int32_t kind;            /* enum layer_kind */
    int32_t rows, in, out;   /* rows x in -> out_rows x out */
    int32_t out_rows;        /* 0: as many as its input's */
    int32_t context;         /* rows per sequence; 0: in no sequence, or an embedding without positions */
    struct rt_config config; /* its fields in the script */
    int32_t index;           /* position in the whole model: seeds its initial weights */
    struct rt_share share;   /* a team member's share of its parameters */
    struct rt_rows part;     /* its part of the microbatch's rows */
    int32_t set;             /* enum which_set: the set with its parameters */
    int64_t param, nparam;   /* offset (bytes) and count of its parameters in the stage's weights */
    int64_t frozen;          /* offset of its frozen ones in the stage's frozen parameters */
    struct slot x, y;        /* forward input and output */
    struct slot aux;         /* saved by the forward for the backward: statistics, log-sum-exp */
    struct slot dy, dx;      /* gradients of y and x */
    struct slot tmp;         /* workspace of this layer alone */
    struct slot left;        /* what the input gradient leaves for the weight gradient, beside dy */
    /* For a slice: where its rows begin in their sequence, and how many of each sequence it has; length 0: all. For its
     * attention: where its keys and values begin in kv, in bytes. */
    int32_t first, length;
    int64_t kv;
    const struct rt_unit *unit; /* of LAYER_unit; else NULL */
};

/* Returns the bytes that a route keeps, rounded up to whole cache lines: see routing_at in layers/moe.h. */
static inline int64_t routing_bytes(const struct rt_layer *route) {
    int64_t tokens = route->rows, sequences = tokens / route->context;
    int64_t experts = route->config.moe.experts, top = route->config.moe.top;
    int64_t words = tokens * experts + 3 * tokens * top + route->out_rows + sequences * experts;
    return (4 * words + 63) / 64 * 64;
}

/* Returns the bytes that a member gives for a loss whose vocabulary a team divides, rounded up to whole cache lines. A
 * row has three floats: the largest logit, the sum of exponentials relative to it, and the target's logit or 0. */
static inline int64_t statistics_bytes(const struct rt_layer *l) { return (4 * 3 * (int64_t)l->rows + 63) / 64 * 64; }

/* Returns whether the layer has work in an input gradient's sweep: somebody needs dx, or its weight gradient what the
 * sweep leaves for it. */
static inline bool has_input_gradient(const struct rt_layer *l) {
    return l->dx.space != SP_NONE || l->left.space != SP_NONE;
}
static inline int32_t rows_out(const struct rt_layer *l) { return l->out_rows > 0 ? l->out_rows : l->rows; }
/* Returns the rows of a sequence that a layer has: all, or a slice's. */
static inline int32_t sequence_length(const struct rt_layer *l) { return l->length > 0 ? l->length : l->context; }

struct rt_stage {
    const struct rt_layer *layer;
    int32_t nlayers;
    int64_t act, grad, stash, ext, input, weight, opt, work; /* bytes; wstash = stash + ext */
    int64_t frozen;                                          /* bytes of its frozen parameters */
    int32_t update; /* microbatches, or slices, in each of its updates; 0: one update ends the step */
    /* number: the stage's number in scripts. If a team computes it, its members have consecutive stages of their own;
     * place is this member's place and members their number. Otherwise both are 0. */
    int32_t number, place, members;
};

/* Optimizers. X(NAME, name, moments, flop, fields)
 *
 * moments  fp32 state per weight, one letter per value, which checkpoints append to the parameter's name. "mv":
 *          layer.5.weight.m and layer.5.weight.v. They are 0 before step 1.
 * flop     per weight and step
 * fields   FIELD(name, range, default) for each setting in a script; NAN: required. OF_ALL: the learning rate's
 *          settings (layers/rate.h) and clip (layers/clip.h). decay applies to matrices, including token tables,
 *          but not to biases and norms. */
#define OPTIMIZERS(X)                                                                                                  \
    X(SGD, sgd, "", 2, OF_ALL)                                                                                         \
    X(ADAMW, adamw, "mv", 14,                                                                                          \
      OF_ALL FIELD(beta1, BELOW_1, 0.9) FIELD(beta2, BELOW_1, 0.95) FIELD(eps, ABOVE_0, 1e-8) FIELD(decay, FROM_0, 0)) \
    X(MOMENTUM, momentum, "m", 4, OF_ALL FIELD(momentum, BELOW_1, 0.9) FIELD(nesterov, FLAG, false))                   \
    X(MUON, muon, "mv", 14,                                                                                            \
      OF_ALL FIELD(adam_lr, ABOVE_0, NAN) FIELD(momentum, BELOW_1, 0.95) FIELD(beta1, BELOW_1, 0.9)                    \
          FIELD(beta2, BELOW_1, 0.95) FIELD(eps, ABOVE_0, 1e-8) FIELD(decay, FROM_0, 0))
/* Optimizers that step each hidden matrix as a whole, with NAME_host_step (layers/host.h) and cuda_NAME
 * (layers/cuda.cuh). They step all other weights like AdamW, at the rate adam_lr, and have AdamW's moments. X(NAME,
 * name, work, flop)
 *
 * work     floats of workspace for a matrix of n weights whose shorter side is `side`
 * flop     per step of the matrix */
#define MATRIX_OPTIMIZERS(X)                                                                                           \
    X(MUON, muon, 2 * whole_lines(n) + 2 * whole_lines(side * side), 5 * (4 * side * n + 2 * side * side * side))
#define OF_ALL                                                                                                         \
    FIELD(lr, ABOVE_0, NAN)                                                                                            \
    FIELD(schedule, SCHEDULE, 0)                                                                                       \
    FIELD(clip, FROM_0, 0)                                                                                             \
    FIELD(post_validation, FLAG, false)                                                                                \
    FIELD(warmup, BASE, 0) FIELD(steps, BASE, 0) FIELD(final, BELOW_1, 0) FIELD(cooldown, BELOW_1, 0.2)

/* The fields of all optimizers, as a model stores them; 0: its optimizer has no such field. COUNTS are integers. */
#define RATES(X)  X(lr) X(beta1) X(beta2) X(eps) X(decay) X(momentum) X(final) X(cooldown) X(adam_lr) X(clip)
#define COUNTS(X) X(schedule) X(warmup) X(steps) X(nesterov) X(post_validation)

/* Schedules of the learning rate after its warm-up: layers/rate.h. */
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

/* Names of a layer's parameters in others' files: see store/import.h. data: the file with the parameters of a frozen
 * layer other than a unit. NULL: not given. */
struct rt_names {
    const char *hf, *gguf, *data;
};

/* Numbers that units read besides x, a row for each token: floats, or integers from 0 to below - 1. */
enum { MOST_INPUTS = 8 };
struct rt_input {
    const char *name;
    int32_t columns, floats, below;
};

/* Everything about the model that a rank needs besides its stages. */
struct rt_model {
    int32_t input;          /* enum input_kind */
    int32_t rows;           /* rows per microbatch: sequences x context for tokens */
    int32_t context, vocab; /* tokens */
    int32_t labels;         /* tokens: whether a file gives the targets, of which negative ones do not count */
    int32_t features;       /* integers: columns of input and target */
    int32_t optimizer;      /* enum optimizer */
#define X(name) float name;
    RATES(X)
#undef X
#define X(name) int32_t name;
    COUNTS(X)
#undef X
    int32_t batches;                       /* microbatches per step; the loss is their mean */
    int32_t precision;                     /* enum precision */
    int32_t update;                        /* the most microbatches in an update; 0: one update ends the step */
    int32_t slices;                        /* per microbatch; 0: it is not cut */
    int32_t output;                        /* index of the linear layer before the loss; -1: none */
    const struct rt_names *names;          /* [by rt_layer.index]; NULL: no layer has any */
    const struct rt_input *input_of_units; /* [ninputs] */
    int32_t ninputs;
};

/* Returns the slices of a microbatch, at least 1. */
static inline int32_t pieces_of_batch(const struct rt_model *m) { return m->slices > 0 ? m->slices : 1; }

/* Returns the floats of optimizer state for n weights: masters, with bf16; moments; and post-validation's copy. */
enum { KEPT_HEADER = 16 }; /* floats of that copy's header: layers/post_validation.h */
static inline int64_t state_floats(const struct rt_model *m, int64_t n) {
    int moments = count_moments(m->optimizer);
    return ((m->precision == BF16) + moments) * n + (m->post_validation ? KEPT_HEADER + (moments + 2) * n : 0);
}

/* Returns the elements of a stage's weights, including gaps. Its gradient, and each array of its optimizer state, has
 * as many floats. */
static inline int64_t weight_count(const struct rt_model *m, const struct rt_stage *s) {
    return s->weight / precision_bytes(m->precision);
}
#endif
