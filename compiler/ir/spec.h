/* What the scripts said, as plain data. Only script/ knows Lua. */
#ifndef PIANOLA_SPEC_H
#define PIANOLA_SPEC_H
#include "../../runtime/ops.h"
#include "base/base.h"
#include "homes.h"
#include <math.h>

/* Times are 0 or lie between these bounds; so do speeds and bandwidths. What the compiler
 * adds up, multiplies or divides of them is then finite, however many there are. */
#define LEAST_TIME 1e-100
#define MOST_TIME  1e100

/* One (s,b,d). Stored in the canonical order: stage, then microbatch, then direction; behind them the updates U(s,k) on
 * each of a stage's homes, if they are jobs: stage, then k, then home. */
struct job {
    int32_t s, b; /* b: of an update, its number k */
    uint8_t d;    /* OP_F .. OP_W, OP_U */
    bool fill;    /* strict order: no place in it; runs when the rank's next job cannot */
    int32_t rank; /* compute rank */
    int32_t home; /* the owner of the weights it uses, as w() returned it: a rank, or workers + index in spec.list */
    int32_t pair; /* 1 + the index of its overlapped pair; 0: it runs by itself */
    double prio, rest; /* n as the nearest double, and what that lacks: a Lua integer may need more than 53 bits */
    double cost;       /* NAN: not given by the script; cost.c fills it in */
};

/* Two jobs of one rank, next to each other in its sequence, that start together and end together. */
struct pair {
    int32_t first, second;
    double cost; /* of both at once; cost.c fills it in */
};

/* A list of ranks that own a set of weights, sharded over them in this order. */
struct home {
    int n;
    const int32_t *rank;
};

struct link {
    double latency, bandwidth; /* seconds and bytes per second; bandwidth INFINITY: free */
};

struct model_layer {
    int kind;  /* enum layer_kind, fork and join included */
    int out;   /* columns of its output; 0: same as its input (script) */
    int heads; /* attention */
    int unit;  /* index of the top-level item it belongs to: a cut falls only between units */
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
    int *cut;                /* stages - 1 indices of units that open stages 1..; NULL: evenly by cost */
    int ncut;
    /* A model given as stages: stage s reads the sum of from[from_at[s] .. from_at[s+1]), ascending; or the batch, if
     * that list is empty. NULL: the stages form a chain. */
    int *from, *from_at;
    int *to, *to_at; /* in the same form, the stages that read stage s */
};

/* What version of the weights a job reads: what its forward reads; the newest there; what has the gradients of the
 * microbatches that are in what stage 0's forward reads (vertical sync). */
enum { READ_FORWARD = -1, READ_LATEST = -2, READ_INPUT = -3 };
enum lanes_per { PER_EDGE, PER_PEER, PER_RANK }; /* what has a communication lane of its own; an edge has a direction */
/* When a rank's communication starts: once its lane is free; not before the one issued before it, on whichever lane,
 * has started; or has ended. */
enum launch_order { LAUNCH_LANE, LAUNCH_ISSUE, LAUNCH_SERIAL };
/* Which weights are kept, and when others come: as fetch.c and lower_weights.c solve it; or none is kept beyond a run
 * of uses, and each comes as many runs ahead. */
enum prefetch { SOLVED, JUST_IN_TIME, ONE_AHEAD, TWO_AHEAD };

struct spec {
    const char *name;   /* of the schedule: its file's base name without .lua */
    const char *file;   /* as given by the user */
    const char *params; /* "workers=4 batches=8", for the record */
    double effort;      /* the largest share of its limits that any script used: at most 1 */
    int workers, stages, batches;
    bool strict;
    bool recompute; /* every stage and microbatch, whatever the script says */
    enum lanes_per lanes;
    enum launch_order launch;
    enum prefetch prefetch;
    bool least_memory; /* the smallest plan, even where instructions then wait for others to leave bytes */
    struct job *job;
    int njobs;    /* without the updates, */
    int nupdates; /* which are job[njobs .. njobs + nupdates) */
    int *update;  /* per stage: the microbatches of each of its updates, which are jobs; NULL: one ends the step */
    int32_t *update_at; /* per stage: its first update, as an index in job */
    int32_t *reads;     /* per job, with update: the version that it reads: so many updates back, or a word below */
    int turn;           /* with update: the least number of microbatches that are whole updates of all stages */
    double
        grain; /* with update: the schedule's times are multiples of it, so that sums are exact, and a period shows */
    int64_t step; /* with update: the step's microbatches, of which the first `batches` are written out */
    int32_t *at;  /* [(s * batches + b) * NDIRS + d] -> index in job, or -1 */
    struct pair *pair;
    int npairs;
    struct home *list; /* those that w() returned, each once */
    int nlists;
    uint8_t *zero;       /* per stage; NULL: all 0 */
    struct homes *homes; /* per set, from all that w() named; set by cost.c */
    int32_t *source;     /* per job: the rank from which its weights are taken; -1: their home. NULL: all homes */
    double overlap;      /* the share of a pair's shorter job that hides behind the longer one */
    int *cap;            /* per rank; INT_MAX: none */
    int *slots;          /* weight slots per rank; 0: nothing is kept between jobs */
    uint8_t *offload;    /* [stage * batches + b]: what its F keeps goes to host memory meanwhile; NULL: none does */
    bool auto_offload;   /* offload says, once it is chosen, what makes the program fit into memory */
    bool *offload_state; /* per stage: the optimizer's state lies in host memory; NULL: none does */
    int64_t *bucket; /* per stage: the most bytes of its gradient that travel as one message; 0: by the cost model */
    int *grad_slots; /* per rank: of how many sets not at home it sums gradients at a time; NULL: of all */
    int64_t *room;   /* bytes for fetched weights while a job runs on its rank, and since the job before it;
                      * INT64_MAX: as many as there are slots for. NULL: that for all jobs */
    bool *late;      /* per rank, with room: weights come after the job before the one that reads them */
    /* Custom dependencies: pred of job j is pred[pred_at[j] .. pred_at[j+1]), as job indices. NULL: the default. */
    int32_t *pred;
    int32_t *pred_at;
    struct stage *stage; /* costs and bytes per stage, set by cost.c; NULL: not set */
    struct model *model; /* NULL: unit costs, every tensor 1 byte */
    bool has_cluster;
    struct link *link;      /* [src * workers + dst]; NULL: free */
    double *speed;          /* per rank: 2 takes half the time of 1; NULL: all 1 */
    double memory;          /* bytes per rank; INFINITY: no limit */
    double host_memory;     /* the same in host memory */
    struct link *host_link; /* per rank: to host memory, and the same back at the same time; NULL: free */
    double flops;           /* per second and rank; 0: not given, times are then in FLOP */
    double *took;           /* measured seconds, [stage * NOPS + op]; NAN: not measured. NULL: nothing was */
    /* The model's embedding, on stage 0, and its unembedding share a token table: a set of weights of its own, with
     * the number `stages`. Set by cost.c. */
    bool tied;
    int unembedding; /* tied: the stage that has it */
};

/* True if the model's stages form a graph, whose edges give the jobs' dependencies. */
static inline bool is_graph(const struct spec *sp) { return sp->model && sp->model->from; }

/* True if the model says only what its layers take: it can be scheduled and compared, but not run. */
static inline bool is_costs(const struct spec *sp) { return sp->model && sp->model->cost; }

static inline int32_t job_at(const struct spec *sp, int s, int b, int d) {
    return sp->at[((int64_t)s * sp->batches + b) * NDIRS + d];
}

/* With update. The number of jobs and updates; U(s,k) on the stage's home of that place, as an index in job. */
static inline int all_jobs(const struct spec *sp) { return sp->njobs + sp->nupdates; }
static inline int32_t update_at(const struct spec *sp, int s, int k, int place) {
    return sp->update_at[s] + k * sp->homes[s].lists + place;
}

static inline struct home home_of(const struct spec *sp, const int32_t *home) {
    return *home < sp->workers ? (struct home){1, home} : sp->list[*home - sp->workers];
}

/* Compares n: below 0 if a's is smaller, 0 if they are equal, above 0 if b's is smaller. */
static inline int compare_n(const struct job *a, const struct job *b) {
    if (a->prio != b->prio)
        return a->prio < b->prio ? -1 : 1;
    return (a->rest > b->rest) - (a->rest < b->rest);
}

static inline double on_grain(const struct spec *sp, double t) {
    return sp->grain > 0 && isfinite(t) ? sp->grain * rint(t / sp->grain) : t;
}

/* How long job j runs. */
static inline double job_time(const struct spec *sp, int32_t j) {
    const struct job *job = &sp->job[j];
    return job->pair ? sp->pair[job->pair - 1].cost : job->cost;
}

/* If j is the first of an overlapped pair, the second; else -1. */
static inline int32_t partner_of(const struct spec *sp, int32_t j) {
    const struct pair *pair = sp->job[j].pair ? &sp->pair[sp->job[j].pair - 1] : NULL;
    return pair && pair->first == j ? pair->second : -1;
}

struct script_text {
    char *src;
    size_t size;
};

/* The arguments of script.c: files or NULL, and -D settings "key=value". */
struct script_args {
    const char *schedule, *model, *cluster;
    enum lanes_per lanes;
    enum launch_order launch;
    enum prefetch prefetch;
    bool recompute, least_memory;
    int most;  /* of a step whose updates are jobs: about so many microbatches are written out; 0: all */
    int later; /* of such a step: its functions are asked about jobs so many microbatches later; whole updates */
    struct script_text
        *text; /* [3], per kind of script: kept from the first run for later ones. NULL: read each time */
    const char **set;
    int nset;
    int nsizes; /* the last nsizes settings are for the schedule alone */
    bool *used; /* [nset]: set for each setting that a script used. NULL: every setting must be used */
};

/* homes.c: per stage, the homes of its jobs, which are of one size and disjoint; behind them, the table's: stage 0's.
 */
struct homes *find_homes(const struct spec *sp);

/* ---- cost.c: costs and bytes of each stage, and behind the stages those of a tied model's table ---- */

struct stage {
    double cost[NDIRS]; /* default cost of F, R, I, B, W: units, FLOP, or seconds */
    double flop[NDIRS];
    double update;         /* cost of U */
    int64_t bytes[NKINDS]; /* of weight, wgrad, opt, work, act, grad, stash, wstash, input, token */
    struct rt_stage rt;    /* layers and offsets; empty without a model */
    int pieces;            /* equal ones, in which its gradient travels */
    int parts;             /* in which a rank's last backward runs: part p is of layers [cut[p + 1], cut[p]) */
    const int *cut;        /* [parts + 1], from nlayers down to 0 */
    const struct touched { /* pieces of the gradient with bytes of the part's layers: from high down to low */
        int32_t low, high;
    } * touched; /* [parts] */
};
#endif
