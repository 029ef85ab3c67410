/* Layers in the compiler: one row each, from which scripts, shapes and teams are derived. LAYERS of model.h has their
 * names and parameters, and kinds.h what they keep and cost, which the runtime knows too. */
#ifndef PIANOLA_LAYERS_H
#define PIANOLA_LAYERS_H
#include "../../runtime/kinds.h"
#include "ir/spec.h"
#include <stddef.h>

/* A field that a script gives a layer, an input or an optimizer. Its value goes `at` bytes into a struct model_layer,
 * or for inputs and optimizers into a struct rt_model. */
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
/* Describes the field `name`, which goes to that member of the struct. */
#define FIELD_TO(name, range, otherwise, tag, member)                                                                  \
    {name, FIELD_##range, otherwise, offsetof(struct tag, member),                                                     \
     _Generic(((struct tag *)0)->member, int32_t                                                                       \
              : HOLDS_INT32, float                                                                                     \
              : HOLDS_FLOAT, double                                                                                    \
              : HOLDS_DOUBLE)},

/* How a team may divide a layer. by_columns: each column is independent. groups: divides by what the columns stand for,
 * in up to three groups, which a linear layer before it then makes; NULL: it cannot be divided this way. */
struct division {
    bool by_columns;
    void (*groups)(const struct rt_layer *l, int32_t group[3]);
    bool in_common; /* all columns, or heads, have the parameters in common, so members that divide them share these */
    bool by_rows;   /* the layer works on each row by itself, so scripts may let members have rows of their own */
    /* Exchanges of a team in the middle of the layer, if the team divides it, in a forward, an input gradient, and a
     * weight gradient: OP_ALL_REDUCE_A, …; 0: none. exchanged: bytes of the whole tensor, given the model's bytes per
     * value, if the layer computes the tensor (host_halves); NULL: it is the layer's input or output, or a gradient. */
    struct {
        uint8_t f, i, w;
    } exchange;
    int64_t (*exchanged)(const struct rt_layer *l, int64_t element);
};

struct layer_row {
    /* Syntax in scripts */
    const struct field *field; /* ends with a field without a name; NULL: none */
    bool first;                /* must be the first layer if the model's input is tokens, and stands nowhere else */
    bool loss;                 /* must be the last layer, and stands nowhere else */
    int input;                 /* enum input_kind: the input that the model must have; INPUT_NONE: any */
    const char *because;       /* reason for `input`, for messages */
    int block;                 /* 1: opens a residual block, -1: closes one; scripts write `residual` */
    bool of_moe;               /* scripts write `moe` */
    int routed;                /* 1: sends tokens to experts, -1: brings them back */
    bool named;                /* scripts may give its parameters' names in files of other programs */
    bool declared;             /* scripts declare its operations: script/script_unit.c reads the table */
    bool of_team;              /* scripts do not write it; a team that divides its neighbours needs it (split.c) */

    /* Shape. out: returns the columns of layer i's output, given its input's columns, or reports a user error; NULL: as
     * many as its input. forked: columns at the entry of the block, or of the span between route and combine. size:
     * sets the layer's other sizes from the model, and out_rows if it differs from the input's rows. */
    int (*out)(const struct model *m, int i, int in, int forked);
    void (*size)(const struct model *m, int i, struct rt_layer *l);
    bool sequences;       /* rows belong to sequences, so the layer has a context */
    bool any_rows;        /* its rows, in and out, need not be a microbatch's */
    bool shares;          /* its weights are the embedding's tokens, which then form a separate table */
    bool same_y, same_dx; /* the output is the input; the input's gradient is the output's. Nothing is computed */
    const char *(*title)(const struct model_layer *layer); /* in messages; NULL: its kind's name */

    struct division team;
};
/* layer_unit.c: the functions of a unit's row. */
int unit_out(const struct model *m, int i, int in, int forked);
void size_unit(const struct model *m, int i, struct rt_layer *l);
const char *unit_title(const struct model_layer *layer);

extern const struct layer_row layer_rows[NLAYERS];

static inline const struct layer_row *row_of(int kind) { return &layer_rows[kind]; }
/* Returns 1 if the layer opens a span that must be in one stage, because its two ends refer to each other; -1 if it
 * closes one. */
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
const char *where_layer(const struct model *m, int i); /* returns "layer 3 (linear)", as the script's user counts */
#endif
