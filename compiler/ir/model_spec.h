/* A model as its script gives it: layers, or only their costs, and the cuts into stages. */
#ifndef PIANOLA_MODEL_SPEC_H
#define PIANOLA_MODEL_SPEC_H
#include "../../runtime/model.h"
#include "base/base.h"

struct model_layer {
    int kind;                /* enum layer_kind, fork and join included */
    int item;                /* index of its item in the list of layers: a layer or a block; cuts fall between items */
    int32_t out;             /* columns of its output; 0: same as its input (script) */
    int32_t split;           /* enum split: how a team divides it, if the team divides columns */
    int attends;             /* attention, if a team divides activations by rows: SPLIT_ROWS, SPLIT_HEADS, or none */
    bool in_moe;             /* whether a script's moe created it */
    bool frozen;             /* its parameters are not trained; a unit says so itself */
    struct rt_config config; /* its other properties from the script */
    struct rt_names names;
    /* Sizes of a unit. in_width, in_rows: columns and rows of its input; 0: any. out_rows: rows of its output; 0: as
     * many as its input's. */
    int32_t in_width, in_rows, out_rows;
    const struct rt_unit *unit; /* of LAYER_unit; else NULL */
};

/* The files with a unit's code, as the script names them: beside the script. */
struct unit_files {
    const struct rt_unit *unit;
    const char *script; /* the model script that names them */
    int line;           /* where it does */
    int n;
    const char **file;   /* [n]: sources, and then libraries */
    const char **sha256; /* [n]: what the script says that a library has; NULL: nothing */
    int nsources;
};

/* A layer's costs for one microbatch, in a cost model. */
struct layer_cost {
    const char *name;
    double forward, backward;           /* seconds */
    double weight_gradient;             /* W's part of backward; I takes the rest */
    int64_t activation, stash, weights; /* bytes: its output, its stash for the backward, its weights */
};

/* The files with a model's loss and gradients, as another program computed them (runtime/units/known.h), and with the
 * weights. NULL: none. */
struct known_files {
    const char *values, *weights;
};

struct model {
    struct rt_model rt;
    struct model_layer *layer;
    int nlayers, nitems;
    struct layer_cost *cost; /* [nitems]: in a cost model, which has no layers to run; NULL: there are layers */
    bool by_rows;            /* between layers whose columns a team divides, each member has its own rows */
    bool by_chunks;          /* and these are two chunks of each sequence (rt_rows) */
    bool tied;   /* its embedding and unembedding share a token table, which is a set of weights of its own */
    bool shares; /* a team's members may share a set of parameters */
    struct known_files check;
    struct unit_files *files; /* [nfiles]: a unit's code, each once */
    int nfiles;
    int *cut; /* indices of the stages - 1 items that start stages 1..; NULL: evenly by cost */
    int ncut;
    /* The edges of a model given as stages: stage s reads the sum of from[from_at[s] .. from_at[s+1]), ascending, or
     * the batch if that list is empty. NULL: the stages form a chain. */
    int *from, *from_at;
    int *to, *to_at; /* readers of stage s, in the same form */
};
#endif
