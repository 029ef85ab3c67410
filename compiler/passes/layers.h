/* What a layer is to the compiler: a row each, from which scripts, shapes, costs and the layout follow. What it is to
 * both the compiler and the runtime, its name and its parameters, LAYERS of ops.h says. */
#ifndef PIANOLA_LAYERS_H
#define PIANOLA_LAYERS_H
#include "ir/spec.h"

/* What a script gives a layer, an input or an optimizer. */
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
    struct field field[4]; /* up to one without a name */
    bool first;            /* opens every model whose input is tokens, and stands nowhere else */
    bool loss;             /* ends every model, and stands nowhere else */
    int input;             /* enum input_kind: what the model's must be; INPUT_NONE: any */
    const char *because;   /* of that, for messages */
    int block;             /* 1: opens a residual block, -1: closes one; scripts write `residual` */

    /* Shape. out: columns, of layer i, from those of its input, or the user's error; forked: what the block was entered
     * with. NULL: as many as of its input. */
    int (*out)(const struct model *m, int i, int in, int forked);
    bool sequences; /* rows are of sequences: it has a context */
    bool shares;    /* its weights are the embedding's tokens, which then are a table of their own */

    /* Work: each, for every value of its output, unless flop counts */
    struct flop each;
    struct flop (*flop)(const struct rt_layer *l);

    /* Memory: what the backward needs, and in bytes what the forward leaves for it, given the model's bytes of a value,
     * and what a forward and an input gradient use of the workspace while they run. NULL: none. */
    bool keeps_x, keeps_y;
    int64_t (*aux)(const struct rt_layer *l, int64_t element);
    int64_t (*forward_work)(const struct rt_layer *l), (*input_work)(const struct rt_layer *l);
};
extern const struct layer_row layer_rows[NLAYERS];
extern const char *const layer_name[NLAYERS];

static inline const struct layer_row *row_of(int kind) { return &layer_rows[kind]; }
struct flop flop_of(const struct rt_layer *l);
#endif
