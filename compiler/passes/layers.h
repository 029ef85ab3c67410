/* Layers as the compiler sees them: one row each, from which scripts, shapes, costs and the layout are derived. What
 * the compiler and the runtime share, a layer's name and parameters, is in LAYERS of ops.h. */
#ifndef PIANOLA_LAYERS_H
#define PIANOLA_LAYERS_H
#include "ir/spec.h"

/* A field that a script gives a layer, an input or an optimizer. */
struct field {
    const char *name;
    enum { FIELD_SIZE, FIELD_TRUE, FIELD_ABOVE_0, FIELD_FROM_0, FIELD_BELOW_1 } range; /* 1 ...; true; in [0, 1) */
    double otherwise;                                                                  /* NAN: must be given */
};

/* FLOP as the host layers compute, an addition, product or comparison each counting one. */
struct flop {
    double f, i, w; /* forward, input gradient, weight gradient */
};

struct layer_row {
    /* What scripts write */
    struct field field[4]; /* ended by one without a name */
    bool first;            /* the first layer of every model whose input is tokens, and nowhere else */
    bool loss;             /* the last layer of every model, and nowhere else */
    int input;             /* enum input_kind: the input that the model must have; INPUT_NONE: any */
    const char *because;   /* the reason for that, for messages */
    int block;             /* 1: opens a residual block, -1: closes one; scripts write `residual` */

    /* Shape. out: the columns of layer i, from those of its input, or a user error; forked: those with which the block
     * was entered. NULL: as many as its input has. */
    int (*out)(const struct model *m, int i, int in, int forked);
    bool sequences; /* rows belong to sequences: it has a context */
    bool shares;    /* its weights are the embedding's tokens, which then form a separate table */

    /* Work: each, for every value of its output, unless flop counts */
    struct flop each;
    struct flop (*flop)(const struct rt_layer *l);

    /* Memory: what the backward needs; the bytes that the forward leaves for it, given the model's bytes per value; and
     * the bytes of workspace that a forward and an input gradient use while they run. NULL: none. */
    bool keeps_x, keeps_y;
    int64_t (*aux)(const struct rt_layer *l, int64_t element);
    int64_t (*forward_work)(const struct rt_layer *l), (*input_work)(const struct rt_layer *l);
};
extern const struct layer_row layer_rows[NLAYERS];
extern const char *const layer_name[NLAYERS];

static inline const struct layer_row *row_of(int kind) { return &layer_rows[kind]; }
struct flop flop_of(const struct rt_layer *l);
#endif
