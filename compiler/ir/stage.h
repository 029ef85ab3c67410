/* A stage's costs and bytes, and its team's exchanges within jobs. */
#ifndef PIANOLA_STAGE_H
#define PIANOLA_STAGE_H
#include "../../runtime/ops.h"
#include "../../runtime/parameters.h"
#include "base/base.h"

/* An exchange of a team between parts of a job; n exchanges make n + 1 parts. The result of the exchange after part p
 * reaches part p + 1. If late, it reaches part p + 2, so that part p + 1 runs meanwhile. */
struct exchange {
    uint8_t op; /* OP_ALL_REDUCE_A .. OP_ALL_TO_ALL_A; OP_none: nothing */
    bool late;
};
struct exchanges {
    int n;
    const struct exchange *at;
};

/* Bytes [from, to) of a stage's gradient to which a part of a backward contributes; from == to: none. */
struct byte_range {
    int64_t from, to;
};
struct ranges { /* per part; n 0: unknown */
    int n;
    const struct byte_range *at;
};

/* Filled by cost.c: costs and bytes of a stage, or of a set of weights after the stages. */
struct stage {
    double cost[NDIRS]; /* default cost of F, R, I, B, W: units, FLOP, or seconds */
    double flop[NDIRS];
    double update;         /* cost of U */
    int64_t update_work;   /* bytes of workspace for the update */
    int64_t bytes[NKINDS]; /* of weight, wgrad, opt, work, act, grad, stash, wstash, input, token */
    struct rt_stage rt;    /* layers and offsets; empty without a model */
    struct stop {          /* end of a part of a job, where it exchanges a tensor with the rest of its team */
        struct exchange exchange;
        int32_t layer;   /* the exchange is in the middle of this layer, which is in both adjacent parts */
        int32_t weights; /* for a backward: layers from here on have their weight gradients */
        int64_t bytes;   /* the whole tensor's */
    } * stop[NDIRS];     /* in the order of the sweep */
    int nstops[NDIRS];
    double *share[NDIRS]; /* share of the job's time in each of its nstops + 1 parts; NULL: no stops */
    int pieces;           /* number of equal pieces in which its gradient travels */
    int parts;      /* number of parts in which a rank's last backward runs: part p has layers [cut[p + 1], cut[p]) */
    const int *cut; /* [parts + 1], from nlayers down to 0 */
    const struct touched { /* pieces of the gradient that contain bytes of the part's layers, from high down to low */
        int32_t low, high;
    } * touched[NDIRS];                    /* for B and W, per part */
    const struct byte_range *range[NDIRS]; /* for B and W, per part: its contribution; NULL: unknown */
};
/* Returns the number of a layer's parameters in its stage's own set. */
static inline int64_t own_parameters(const struct rt_layer *l) { return l->set == SET_OWN ? l->nparam : 0; }
#endif
