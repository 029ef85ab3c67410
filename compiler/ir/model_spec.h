/* A model as its script gives it: layers, or what its layers take, and where it is cut into stages. */
#ifndef PIANOLA_MODEL_SPEC_H
#define PIANOLA_MODEL_SPEC_H
#include "../../runtime/model.h"
#include "base/base.h"

struct model_layer {
    int kind;      /* enum layer_kind, fork and join included */
    int unit;      /* index of the top-level item it belongs to: a cut falls only between units */
    int32_t out;   /* columns of its output; 0: same as its input (script) */
    int32_t split; /* enum split: how a team divides it, where it divides its columns */
    int attends;   /* attention of a model whose values are divided by rows: SPLIT_ROWS, SPLIT_HEADS, or not */
    bool in_moe;   /* a script's moe made it */
    struct rt_config config; /* the rest of what the script says */
    struct rt_names names;
};

/* What a layer takes of one microbatch, in a model of costs. */
struct layer_cost {
    const char *name;
    double forward, backward;           /* seconds */
    double weight_gradient;             /* the part of backward that W takes; I takes the rest */
    int64_t activation, stash, weights; /* bytes: its output, what it keeps for the backward, its weights */
};

struct model {
    struct rt_model rt;
    struct model_layer *layer;
    int nlayers, nunits;
    struct layer_cost *cost; /* [nunits]: of a model of costs, which has no layers to run; NULL: there are layers */
    bool by_rows;            /* between layers whose columns a team divides, each member has rows of its own */
    bool by_chunks;          /* and these are two chunks of each sequence (rt_rows) */
    bool tied;               /* its embedding and its unembedding share a token table: a set of weights of its own */
    bool shares;             /* a team's members may have parameters that are a set of its own, which they share */
    int *cut;                /* stages - 1 indices of units that open stages 1..; NULL: evenly by cost */
    int ncut;
    /* A model given as stages: stage s reads the sum of from[from_at[s] .. from_at[s+1]), ascending; or the batch, if
     * that list is empty. NULL: the stages form a chain. */
    int *from, *from_at;
    int *to, *to_at; /* in the same form, the stages that read stage s */
};
#endif
