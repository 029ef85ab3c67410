/* What the scripts said, as plain data. Only script/ knows Lua. */
#ifndef PIANOLA_SPEC_H
#define PIANOLA_SPEC_H
#include "../../runtime/ops.h"
#include "../../runtime/parameters.h"
#include "base/base.h"
#include "homes.h"
#include <math.h>
#include <string.h>

/* Times are 0 or lie between these bounds; so do speeds and bandwidths. What the compiler
 * adds up, multiplies or divides of them is then finite, however many there are. */
#define LEAST_TIME 1e-100
#define MOST_TIME  1e100

/* What stages and microbatches are called. Inside the compiler, each member of a team has a stage of its own, and each
 * slice is a microbatch of its own: stage and microbatch are consecutive numbers everywhere, and only what is read and
 * written says 1.0 and 3.1. */
struct names {
    int slices;              /* of a microbatch; 0: it is not cut */
    int sets;                /* of weights behind the stages' own: the tables of tokens, */
    int tables;              /* which are so many, one for each member of stage 0's team; then what teams share */
    const int32_t *shared;   /* per stage: the set that its team shares, or -1; NULL: none shares one */
    const bool *whole;       /* per stage: its team's members have some of its parameters whole; NULL: no team's do */
    int stages;              /* where teams are named: as scripts count them, */
    const int32_t *first;    /* and the first member's of each of these, [stages + 1] */
    const struct member {    /* per set of weights, of which the first are the stages'; NULL: no team is named */
        int32_t stage;       /* as scripts count */
        int32_t place, size; /* in a team of so many; place -1: it is no member's */
    } * member;
};

/* One (s,b,d). Stored in the canonical order: stage, then microbatch, then direction; behind them the updates U(s,k) on
 * each of a set's homes, if they are jobs: set, then k, then home. */
struct job {
    int32_t s, b; /* b: counts slices, where there are any; of an update, the set and its number k */
    uint8_t d;    /* OP_F .. OP_W, OP_U */
    bool fill;    /* strict order: no place in it; runs when the rank's next job cannot */
    int32_t rank; /* compute rank */
    int32_t team; /* as w() returned it: that rank, or workers + index in spec.list, the team; then, rank again */
    /* The owner of the weights it uses, as w() returned it: a rank, or workers + index in spec.list; -1: nobody. */
    int32_t home;
    int32_t pair;      /* 1 + the index of its overlapped pair; 0: it runs by itself */
    double prio, rest; /* n as the nearest double, and what that lacks: a Lua integer may need more than 53 bits */
    double cost;       /* NAN: not given by the script; cost.c fills it in */
    double exchange;   /* how long what its team exchanges in between takes; set by cost.c */
};

/* Two jobs of one rank, next to each other in its sequence, that start together and end together. */
struct pair {
    int32_t first, second;
    double cost;  /* of both at once; cost.c fills it in */
    bool braided; /* a team exchanges something within one of them: then parts of the other run meanwhile */
};

/* A list of ranks that own a set of weights, sharded over them in this order. */
struct home {
    int n;
    const int32_t *rank;
};

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

struct link {
    double latency, bandwidth; /* seconds and bytes per second; bandwidth INFINITY: free */
};

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

/* A parameter that a script declared, with the value that it ran with; values as text, such as "8" and "2,1,1". */
struct param {
    const char *name, *value, *otherwise; /* otherwise: its default */
    const char *script;                   /* "schedule", "model", "cluster" */
    const char *type;                     /* "integer", "number", "boolean", "string", "list" */
};

/* When a buffer's first access starts, and its last one ends. */
struct lifetime {
    double start, end;
};

/* What may be chosen: the scripts and the user say some of it, and the searches of plan/ vary the rest. */
struct choices {
    enum lanes_per lanes;
    enum launch_order launch;
    enum prefetch prefetch;
    bool least_memory; /* the smallest plan, even where instructions then wait for others to leave bytes */
    bool any_memory;   /* a plan may be larger than the cluster's memory */
    bool auto_offload; /* which stashes leave is searched, so that the program fits into memory */
    uint8_t *offload;  /* [stage * batches + b]: what its F keeps goes to host memory meanwhile; NULL: none does */
    int *slots;        /* weight slots per rank; 0: nothing is kept between jobs */
    int64_t *room;     /* bytes for fetched weights while a job runs on its rank, and since the job before it;
                        * INT64_MAX: as many as there are slots for. NULL: that for all jobs */
    bool *late;        /* per rank, with room: weights come after the job before the one that reads them */
    /* [rank][buffer]: bytes are reused only once they are free by these times; NULL: as soon as the schedule permits */
    struct lifetime **life;
};

/* What the scripts declare about themselves. */
struct declared {
    const char *params;  /* "workers=4 batches=8", for the record: the schedule's */
    struct param *param; /* those of all scripts, one script after the other, each by name */
    size_t nparams, params_capacity;
    double effort;        /* the largest share of its limits that any script used: at most 1 */
    struct tuned *tuned;  /* the parameters that `pianola tune` varies, by name */
    int ntuned;           /* their number */
    const double *bubble; /* by a closed form, for this spec's own costs and free links; NULL: none is known */
    bool recompute;       /* every stage and microbatch, whatever the script says: the user's */
};

/* Updates that are jobs, as the schedule says. */
struct updates {
    int *every; /* per stage, and once there are costs per set: the microbatches of each of its updates; NULL: one
                 * ends the step. As in batches, slices where there are any, of whole microbatches */
    struct job *asked; /* U(s,k), as scripts count, stage by stage: n, fill and cost */
    int32_t *reads;    /* per job: the version that it reads: so many updates back, or a word above */
    int turn;          /* the least number of microbatches that are whole updates of all stages */
    int64_t step;      /* the step's microbatches, of which the first `batches` are written out */
};

/* Who owns weights, as w() and the fields beside it say. */
struct ownership {
    struct home *list; /* the lists that w() returned, each once */
    int nlists;
    struct list_table *lists; /* finds them: keep_list */
    int tensor;               /* so many ranks each rank of the script becomes, a team; 1: it stays one */
    uint8_t *zero;            /* per stage; NULL: all 0 */
    int32_t *source;          /* per job: the rank from which its weights are taken; -1: their home. NULL: all homes */
};

/* What the schedule allows a rank, or a message, to have. */
struct limits {
    int *cap;            /* per rank; INT_MAX: none */
    bool *offload_state; /* per stage: the optimizer's state lies in host memory; NULL: none does */
    int64_t *bucket; /* per stage: the most bytes of its gradient that travel as one message; 0: by the cost model */
    int *grad_slots; /* per rank: of how many sets not at home it sums gradients at a time; NULL: of all */
};

/* What the cluster script says, and the user of memory. */
struct machine {
    bool has_cluster;
    struct link *link;      /* [src * workers + dst]; NULL: free */
    double *speed;          /* per rank: 2 takes half the time of 1; NULL: all 1 */
    double memory;          /* bytes per rank; INFINITY: no limit */
    double host_memory;     /* the same in host memory */
    struct link *host_link; /* per rank: to host memory, and the same back at the same time; NULL: free */
    double flops;           /* per second and rank; 0: not given, times are then in FLOP */
    double *took;           /* measured seconds, [stage * NOPS + op]; NAN: not measured. NULL: nothing was */
};

/* How a microbatch is cut into slices. */
struct slicing {
    int *rows;     /* rows of a sequence in each; NULL: equal. cost.c sets it, where there is a model */
    bool balanced; /* so many that slices take equally long */
};

/* What cost.c derives; constant after it. */
struct costs {
    struct stage *stage; /* costs and bytes per stage; NULL: not set */
    double
        grain; /* with updates: the schedule's times are multiples of it, so that sums are exact, and a period shows */
    int nupdates;               /* jobs that are updates: job[njobs .. njobs + nupdates), from updates.asked */
    int32_t *update_at;         /* per set: its first update, as an index in job */
    struct homes *homes;        /* per set, from all that w() named */
    bool *bare;                 /* per set: it has no weights, and no home. NULL: all have weights */
    bool shared;                /* what the members of each team have whole is a set of its own, which they share */
    struct exchanges *exchange; /* [stage * NDIRS + d]; NULL: no team exchanges anything */
    bool sliced;                /* stages have costs and bytes per slice: see stage_at */
    bool *attends; /* per stage, with slices and a model: the slices of a microbatch read each other's keys and values
                    * there. NULL: they do so on every stage */
    bool tied; /* the model's embedding, on stage 0, and its unembedding share a token table: a set of weights of its
                * own, with the number `stages` */
    int unembedding;      /* tied: the stage that has it */
    bool clip;            /* updates are clipped by the norm of all gradients */
    bool post_validation; /* which they don't wait for: see layers/post_validation.h */
};

/* What the scripts said, by what it is about; and, apart from that, what cost.c makes of it. */
struct spec {
    struct names names;
    const char *name; /* of the schedule: its file's base name without .lua */
    const char *file; /* as given by the user */
    struct declared declared;
    int workers, stages, batches; /* batches: of slices, where there are any */
    bool strict;
    struct choices choices; /* as the scripts and the user say, before anything is searched */
    struct job *job;
    int njobs;   /* without the updates, which follow them */
    int32_t *at; /* [(s * batches + b) * NDIRS + d] -> index in job, or -1 */
    struct pair *pair;
    int npairs;
    double overlap; /* the share of a pair's shorter job that hides behind the longer one */
    struct updates updates;
    struct ownership owners;
    struct limits limits;
    /* Custom dependencies: pred of job j is pred[pred_at[j] .. pred_at[j+1]), as job indices. NULL: the default. */
    int32_t *pred;
    int32_t *pred_at;
    struct slicing slicing;
    struct model *model; /* NULL: unit costs, every tensor 1 byte */
    struct machine machine;
    struct costs costs; /* filled by cost.c */
};

/* True if the model's stages form a graph, whose edges give the jobs' dependencies. */
static inline bool is_graph(const struct spec *sp) { return sp->model && sp->model->from; }

/* True if the model says only what its layers take: it can be scheduled and compared, but not run. */
static inline bool is_costs(const struct spec *sp) { return sp->model && sp->model->cost; }

/* Slices of a microbatch, at least 1; whole microbatches of what is written out; and whether the slices of a microbatch
 * read each other's keys and values on stage s. */
static inline int slices_of(const struct names *names) { return names->slices ? names->slices : 1; }
static inline int whole_batches(const struct spec *sp) { return sp->batches / slices_of(&sp->names); }
static inline bool has_kv(const struct spec *sp, int s) {
    return sp->names.slices && (!sp->costs.attends || sp->costs.attends[s]);
}

static inline int32_t job_at(const struct spec *sp, int s, int b, int d) {
    return sp->at[((int64_t)s * sp->batches + b) * NDIRS + d];
}

/* The job whose end frees the activation (s,b): B, or W when the backward is split. */
static inline int32_t last_backward(const struct spec *sp, int s, int b) {
    int32_t whole = job_at(sp, s, b, OP_B);
    return whole >= 0 ? whole : job_at(sp, s, b, OP_W);
}

/* With update. The number of jobs and updates; U(s,k) on the set's home of that place, as an index in job. */
static inline int all_jobs(const struct spec *sp) { return sp->njobs + sp->costs.nupdates; }
static inline int32_t update_at(const struct spec *sp, int s, int k, int place) {
    return sp->costs.update_at[s] + k * sp->costs.homes[s].lists + place;
}

static inline bool is_bare(const struct spec *sp, int set) { return sp->costs.bare && sp->costs.bare[set]; }
/* What the team of stage s shares, if that has weights; -1: nothing. */
static inline int shared_by(const struct spec *sp, int s) {
    int set = sp->names.shared ? sp->names.shared[s] : -1;
    return set >= 0 && !is_bare(sp, set) ? set : -1;
}
/* Whether the jobs of stage s read any weights: with update, of one version. */
static inline bool has_version(const struct spec *sp, int s) { return !is_bare(sp, s) || shared_by(sp, s) >= 0; }
/* The place of a stage's member in its team; 0: it has none. */
static inline int place_of_stage(const struct names *names, int s) {
    return names->member && names->member[s].place > 0 ? names->member[s].place : 0;
}

static inline struct home home_of(const struct spec *sp, const int32_t *home) {
    return *home < sp->workers ? (struct home){1, home} : sp->owners.list[*home - sp->workers];
}

/* Compares n: below 0 if a's is smaller, 0 if they are equal, above 0 if b's is smaller. */
static inline int compare_n(const struct job *a, const struct job *b) {
    if (a->prio != b->prio)
        return a->prio < b->prio ? -1 : 1;
    return (a->rest > b->rest) - (a->rest < b->rest);
}

static inline double on_grain(const struct spec *sp, double t) {
    return sp->costs.grain > 0 && isfinite(t) ? sp->costs.grain * rint(t / sp->costs.grain) : t;
}

/* How long job j runs. */
static inline double job_time(const struct spec *sp, int32_t j) {
    const struct job *job = &sp->job[j];
    return job->pair ? sp->pair[job->pair - 1].cost : job->cost + job->exchange;
}

/* The same without what a team exchanges in between. */
static inline double computing_time(const struct spec *sp, int32_t j) {
    const struct job *job = &sp->job[j];
    const struct pair *pair = job->pair ? &sp->pair[job->pair - 1] : NULL;
    return !pair ? job->cost : pair->braided ? sp->job[pair->first].cost + sp->job[pair->second].cost : pair->cost;
}

/* If j is the first of an overlapped pair, the second; else -1. */
static inline int32_t partner_of(const struct spec *sp, int32_t j) {
    const struct pair *pair = sp->job[j].pair ? &sp->pair[sp->job[j].pair - 1] : NULL;
    return pair && pair->first == j ? pair->second : -1;
}

/* What `pianola tune` tries of a parameter: these values, as text; none: the divisors of the script's workers. */
struct tuned {
    const char *name, **value;
    int n;
};

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
    double memory; /* bytes of a rank, instead of the cluster's; 0: the cluster's */
    int most;      /* of a step whose updates are jobs: about so many microbatches are written out; 0: all */
    int later;     /* of such a step: its functions are asked about jobs so many microbatches later; whole updates */
    struct script_text
        *text; /* [3], per kind of script: kept from the first run for later ones. NULL: read each time */
    const char **set;
    int nset;
    int nsizes; /* the last nsizes settings are for the schedule alone */
    bool *used; /* [nset]: set for each setting that a script used. NULL: every setting must be used */
};
/* Whether "workers=8" sets this key; whether a setting of the user's does. */
static inline bool sets_key(const char *setting, const char *key) {
    size_t n = strlen(key);
    return strncmp(setting, key, n) == 0 && setting[n] == '=';
}
static inline bool is_set(const struct script_args *args, const char *key) {
    bool set = false;
    for (int i = 0; i < args->nset; i++)
        set |= sets_key(args->set[i], key);
    return set;
}

/* teams.c: how the sets behind those of so many stages are called, and how many there are. Needs member and first. */
void name_sets(struct names *names, int stages, bool tied, bool shared);
/* Gives each member of a team a stage of its own, and makes teams of ranks. */
void expand_teams(struct spec *sp);
/* The other way, for all jobs on one rank: the script's stages and jobs, and of its settings per stage none. */
void join_teams(struct spec *sp);
int team_size(const struct spec *sp, int s); /* of that stage; 1: it has none */
/* The team's job of which j is a member's: of its first member; and the i-th member's, of team_size. */
static inline int32_t gang_of(const struct spec *sp, int32_t j) {
    const struct job *job = &sp->job[j];
    const struct member *member = sp->names.member ? &sp->names.member[job->s] : NULL;
    return !member || member->place <= 0 || job->d >= NDIRS ? j : job_at(sp, job->s - member->place, job->b, job->d);
}
static inline int32_t gang_job(const struct spec *sp, int32_t first, int i) {
    const struct job *job = &sp->job[first];
    return i == 0 ? first : job_at(sp, job->s + i, job->b, job->d);
}

/* updates.c: the entries of the sets behind the stages follow from those of these. */
void updates_of_sets(const struct names *names, int stages, int *update);
/* With update, to which it adds such entries: makes the updates, of all sets with weights, on each of their homes.
 * Needs homes. */
void place_updates(struct spec *sp);

/* How many stages the script has, of so many here. */
static inline int script_stages(const struct names *names, int stages) {
    return names->member ? names->stages : stages;
}

/* homes.c: as job.home says it: the rank, if it is one, or the list, which is kept once. */
int32_t keep_list(struct spec *sp, const int32_t *rank, int n);
/* homes.c: per stage, the homes of its jobs, which are of one size and disjoint; none of a set without weights. Behind
 * them, the tables' are those of stage 0's members; of what a team shares, those of all of its members. */
struct homes *find_homes(const struct spec *sp);
void find_bare(struct spec *sp); /* homes.c: the sets of those stages whose jobs have no home */

/* ---- cost.c: costs and bytes of each stage, and behind the stages those of a tied model's table ---- */

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

/* The stages, the sets behind them, and, where a model's microbatches are cut into slices, each stage anew for each
 * slice: so many, in the order of stages. What is not of a set of weights is that of the slice: costs, FLOP, and bytes
 * of what a microbatch has. */
static inline int stage_entries(const struct spec *sp) {
    return sp->stages + sp->names.sets + (sp->costs.sliced ? sp->stages * sp->names.slices : 0);
}
/* The entry of (s,b), which counts slices; of a set of weights or the table, b = -1. */
static inline const struct stage *stage_at(const struct spec *sp, const struct stage *st, int s, int b) {
    int slices = sp->names.slices;
    return sp->costs.sliced && s < sp->stages && b >= 0 ? &st[sp->stages + sp->names.sets + s * slices + b % slices]
                                                        : &st[s];
}
#endif
