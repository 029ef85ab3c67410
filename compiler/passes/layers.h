/* Layers as the compiler sees them: one row each, from which scripts, shapes, costs and the layout are derived. What
 * the compiler and the runtime share, a layer's name and parameters, is in LAYERS of model.h. */
#ifndef PIANOLA_LAYERS_H
#define PIANOLA_LAYERS_H
#include "ir/spec.h"
#include <stddef.h>

/* A field that a script gives a layer, an input or an optimizer, and where its value goes: `at` bytes into a struct
 * model_layer, or for inputs and optimizers into a struct rt_model. */
struct field {
    const char *name;
    enum {
        FIELD_SIZE,
        FIELD_BASE,
        FIELD_FLAG,
        FIELD_ABOVE_0,
        FIELD_FROM_0,
        FIELD_BELOW_1,
        FIELD_DERIVED,
        FIELD_SPLIT,
        FIELD_SCHEDULE
    } range;          /* runtime/config.h; enum split; enum schedule */
    double otherwise; /* NAN: must be given */
    size_t at;
    enum { HOLDS_INT32, HOLDS_FLOAT, HOLDS_DOUBLE } type;
};
/* The field `name`, which goes to that member of the struct. */
#define FIELD_TO(name, range, otherwise, tag, member)                                                                  \
    {name, FIELD_##range, otherwise, offsetof(struct tag, member),                                                     \
     _Generic(((struct tag *)0)->member, int32_t                                                                       \
              : HOLDS_INT32, float                                                                                     \
              : HOLDS_FLOAT, double                                                                                    \
              : HOLDS_DOUBLE)},

/* FLOP as the host layers compute, an addition, product or comparison each counting one. */
struct flop {
    double f, i, w; /* forward, input gradient, weight gradient */
};

/* How a team divides a layer: each column by itself; or by what its columns stand for, in up to three groups (NULL: not
 * so), which a linear layer in front of it then makes. */
struct division {
    bool by_columns;
    void (*groups)(const struct rt_layer *l, int32_t group[3]);
    bool in_common; /* all columns, or heads, have its parameters in common: members that divide these share them */
    /* It works on each row by itself, and scripts may say of it that members of a team have rows of their own. */
    bool by_rows;
    /* What a team exchanges in the middle of it, if it divides it, in a forward, an input gradient, a weight gradient:
     * OP_ALL_REDUCE_A, …; 0: nothing. exchanged: bytes of the whole tensor, given the model's bytes per value, if the
     * layer makes it of something (host_halves); NULL: it is the layer's input or output, or a gradient. */
    struct {
        uint8_t f, i, w;
    } exchange;
    int64_t (*exchanged)(const struct rt_layer *l, int64_t element);
};

struct layer_row {
    /* What scripts write */
    const struct field *field; /* ended by one without a name; NULL: none */
    bool first;                /* the first layer of every model whose input is tokens, and nowhere else */
    bool loss;                 /* the last layer of every model, and nowhere else */
    int input;                 /* enum input_kind: the input that the model must have; INPUT_NONE: any */
    const char *because;       /* the reason for that, for messages */
    int block;                 /* 1: opens a residual block, -1: closes one; scripts write `residual` */
    bool of_moe;               /* scripts write `moe` */
    int routed;                /* 1: sends tokens to experts, -1: brings them back */
    bool named;                /* scripts may say what its parameters are called in files of others */
    bool of_team; /* scripts do not write it either: a team that divides its neighbours needs it (split.c) */

    /* Shape. out: the columns of layer i, from those of its input, or a user error; forked: those with which the block,
     * or what lies between route and combine, was entered. NULL: as many as its input has. size: sets what else the
     * model says of it, and out_rows where they are not those of its input. */
    int (*out)(const struct model *m, int i, int in, int forked);
    void (*size)(const struct model *m, int i, struct rt_layer *l);
    bool sequences; /* rows belong to sequences: it has a context */
    bool shares;    /* its weights are the embedding's tokens, which then form a separate table */

    /* Work: each, for every value of its output, unless flop counts */
    struct flop each;
    struct flop (*flop)(const struct rt_layer *l);
    struct division team;

    /* Memory: what the backward needs; the bytes that the forward leaves for it, given the model's bytes per value; and
     * the bytes of workspace that a forward and an input gradient use while they run; and what the input gradient of a
     * route leaves for its weight gradient, which then needs no dy. NULL: none. */
    bool keeps_x, keeps_y;
    bool same_y, same_dx; /* the output is the input, the gradient of the input that of the output: nothing is done */
    int64_t (*aux)(const struct rt_layer *l, int64_t element);
    int64_t (*forward_work)(const struct rt_layer *l), (*input_work)(const struct rt_layer *l);
    int64_t (*left)(const struct rt_layer *l);
};
extern const struct layer_row layer_rows[NLAYERS];
extern const char *const layer_name[NLAYERS];

static inline const struct layer_row *row_of(int kind) { return &layer_rows[kind]; }
/* 1: it and the layer that closes what it opens know each other, and lie in one stage; -1: that one. */
static inline int brackets(const struct layer_row *row) { return row->block + row->routed; }
static inline bool is_of_team(const struct rt_layer *l) { return row_of(l->kind)->of_team || l->share.members > 0; }
static inline int forward_exchange(const struct rt_layer *l) {
    return is_of_team(l) ? row_of(l->kind)->team.exchange.f : 0;
}
static inline int input_exchange(const struct rt_layer *l) {
    return is_of_team(l) ? row_of(l->kind)->team.exchange.i : 0;
}
static inline int weight_exchange(const struct rt_layer *l) {
    return is_of_team(l) ? row_of(l->kind)->team.exchange.w : 0;
}
const char *where_layer(const struct model *m, int i); /* "layer 3 (linear)", as the script's user counts */
struct flop flop_of(const struct rt_layer *l);
#endif
