/* The kinds of layers, a row each: what a layer's operations read, keep, leave, need and cost on one microbatch. Our
 * layers answer by formulas, and a unit, whose code a model brings (unit.h), by what its script says. Compiler and
 * runtime ask the row, so that only the unit's own row knows which layers are units. LAYERS (model.h) has the layers'
 * parameters, layers/host.h and layers/cuda.cuh their functions. */
#ifndef PIANOLA_KINDS_H
#define PIANOLA_KINDS_H
#include "parameters.h"

/* FLOP of the host's layers; an addition, product or comparison counts one. */
struct flop {
    double f, i, w; /* forward, input gradient, weight gradient */
};

struct rt_values;
struct rt_kind {
    /* Work: FLOP for every value of the output, unless flop counts them. */
    struct flop each;
    struct flop (*flop)(const struct rt_layer *l);

    /* Operands. keeps: UNIT_KEEPS_X, UNIT_KEEPS_Y, if the backward reads the input, the output. reads: UNIT_READS_…,
     * data that operations read beside them. NULL: none. */
    int32_t (*keeps)(const struct rt_layer *l), (*reads)(const struct rt_layer *l);

    /* Bytes. stash: what the forward leaves for the backward besides what the layer keeps, given the model's bytes per
     * value. extra: what the input gradient leaves for the weight gradient. work: workspace of a running operation.
     * NULL: none. */
    int64_t (*stash)(const struct rt_layer *l, int64_t element);
    int64_t (*extra)(const struct rt_layer *l);
    int64_t (*work)(const struct rt_layer *l, enum unit_operation op);
    bool begun;    /* extra holds all that the weight gradient needs of dy, and the span's last layer begins it */
    bool one_work; /* all operations have the same workspace, which lies after all others' of the stage */

    /* Weights. table: it may compute with the embedding's tokens as a table of their own. data: returns the safetensors
     * file with its parameters' first values, or NULL. init: sets one parameter's initial values, which are 0 before.
     * own_names: files of other programs have the parameters under their names in the script. */
    bool table, own_names;
    const char *(*data)(const struct rt_layer *l);
    void (*init)(const struct rt_model *m, const struct rt_values *v);

    bool whole;   /* computes whole microbatches only: no slices, no team's share, no single tokens */
    bool brought; /* its code comes with the model, which may be wrong: tested before it trains */
    const char *(*name)(const struct rt_layer *l); /* NULL: the kind's, as in LAYERS */
};
/* layers/parameters.c: initial values */
void init_embedding(const struct rt_model *m, const struct rt_values *v);
void init_linear(const struct rt_model *m, const struct rt_values *v);
void init_experts(const struct rt_model *m, const struct rt_values *v);
void init_scale(const struct rt_model *m, const struct rt_values *v);
void init_declared(const struct rt_model *m, const struct rt_values *v);
extern const struct rt_kind rt_kinds[NLAYERS]; /* layers/kinds.c */
extern const char *const layer_name[NLAYERS];

static inline const struct rt_kind *rt_kind_of(const struct rt_layer *l) { return &rt_kinds[l->kind]; }

/* Return what a layer's row says of it, with 0 or NULL where the row is silent. */
static inline bool keeps_x(const struct rt_layer *l) {
    return rt_kind_of(l)->keeps && (rt_kind_of(l)->keeps(l) & UNIT_KEEPS_X) != 0;
}
static inline bool keeps_y(const struct rt_layer *l) {
    return rt_kind_of(l)->keeps && (rt_kind_of(l)->keeps(l) & UNIT_KEEPS_Y) != 0;
}
static inline int64_t work_bytes(const struct rt_layer *l, enum unit_operation op) {
    return rt_kind_of(l)->work ? rt_kind_of(l)->work(l, op) : 0;
}
static inline int64_t extra_bytes(const struct rt_layer *l) {
    return rt_kind_of(l)->extra ? rt_kind_of(l)->extra(l) : 0;
}
static inline const char *first_values(const struct rt_layer *l) {
    return rt_kind_of(l)->data ? rt_kind_of(l)->data(l) : NULL;
}
static inline const char *name_of_layer(const struct rt_layer *l) {
    return rt_kind_of(l)->name ? rt_kind_of(l)->name(l) : layer_name[l->kind];
}

/* Returns whether a layer reads the batch's tokens, targets or inputs of units. */
static inline bool reads_batch(const struct rt_layer *l) {
    return rt_kind_of(l)->reads && (rt_kind_of(l)->reads(l) & ~UNIT_READS_SEED) != 0;
}
/* Returns whether a layer has a weight gradient. One that uses a table may have no parameters of its own. */
static inline bool has_weight_gradient(const struct rt_layer *l) {
    return l->set != SET_FROZEN && (l->nparam > 0 || rt_kind_of(l)->table);
}
/* Returns whether the row has a layer's FLOP. */
static inline bool counts_flop(const struct rt_layer *l) {
    const struct flop each = rt_kind_of(l)->each;
    return rt_kind_of(l)->flop || each.f + each.i + each.w > 0;
}
struct flop flop_of(const struct rt_layer *l);
#endif
