/* A stage's costs and bytes, and what its team exchanges in the middle of its jobs. */
#ifndef PIANOLA_STAGE_H
#define PIANOLA_STAGE_H
#include "../../runtime/ops.h"
#include "../../runtime/parameters.h"
#include "base/base.h"

/* What a team's job exchanges between its parts: a job with n has n + 1 parts. What is behind part p is there for part
 * p + 1; what is late, for part p + 2, so that part p + 1 runs meanwhile. */
struct exchange {
    uint8_t op; /* OP_ALL_REDUCE_A .. OP_ALL_TO_ALL_A; OP_none: nothing */
    bool late;
};
struct exchanges {
    int n;
    const struct exchange *at;
};

/* Bytes of a stage's gradient to which a part of a backward contributes, [from, to); from == to: none. */
struct byte_range {
    int64_t from, to;
};
struct ranges { /* of each part; n 0: not known */
    int n;
    const struct byte_range *at;
};

/* Filled by cost.c: costs and bytes of a stage, or of a set of weights that stands after the stages. */
struct stage {
    double cost[NDIRS]; /* default cost of F, R, I, B, W: units, FLOP, or seconds */
    double flop[NDIRS];
    double update;         /* cost of U */
    int64_t update_work;   /* bytes of workspace that it takes */
    int64_t bytes[NKINDS]; /* of weight, wgrad, opt, work, act, grad, stash, wstash, input, token */
    struct rt_stage rt;    /* layers and offsets; empty without a model */
    struct stop {          /* where a part of a job ends, for what it exchanges with the rest of its team */
        struct exchange exchange;
        int32_t layer;   /* in the middle of this one, which belongs to the part before and to that which gets it */
        int32_t weights; /* of a backward: the layers from here on have their weight gradients */
        int64_t bytes;   /* of the whole tensor */
    } * stop[NDIRS];     /* in the order of the sweep */
    int nstops[NDIRS];
    double *share[NDIRS];  /* of the time of a job, that of each of its nstops + 1 parts; NULL: it has no stops */
    int pieces;            /* equal ones, in which its gradient travels */
    int parts;             /* in which a rank's last backward runs: part p is of layers [cut[p + 1], cut[p]) */
    const int *cut;        /* [parts + 1], from nlayers down to 0 */
    const struct touched { /* pieces of the gradient with bytes of the part's layers: from high down to low */
        int32_t low, high;
    } * touched[NDIRS];                    /* of B and W, per part */
    const struct byte_range *range[NDIRS]; /* likewise, what the part contributes; NULL: not known */
};
/* Parameters that a layer has in the own set of its stage. */
static inline int64_t own_parameters(const struct rt_layer *l) { return l->set == SET_OWN ? l->nparam : 0; }
#endif
