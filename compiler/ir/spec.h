/* What the scripts said, as plain data. Only script/ knows Lua. */
#ifndef PIANOLA_SPEC_H
#define PIANOLA_SPEC_H
#include "choices.h"
#include "homes.h"
#include "model_spec.h"
#include "names.h"
#include "stage.h"
#include <math.h>

/* Times are 0 or lie between these bounds; so do speeds and bandwidths. What the compiler
 * adds up, multiplies or divides of them is then finite, however many there are. */
#define LEAST_TIME 1e-100
#define MOST_TIME  1e100

/* One (s,b,d). Stored in the canonical order: stage, then microbatch, then direction. Where updates are jobs,
 * costs.job has them too, after these: the updates U(s,k) on each of a set's homes, by set, then k, then home. */
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
    double cost;       /* as the script gives it; NAN: it does not */
};

/* Two jobs of one rank, next to each other in its sequence, that start together and end together. */
struct pair {
    int32_t first, second;
};

/* A list of ranks that own a set of weights, sharded over them in this order. */
struct home {
    int n;
    const int32_t *rank;
};

struct link {
    double latency, bandwidth; /* seconds and bytes per second; bandwidth INFINITY: free */
};

/* What version of the weights a job reads: what its forward reads; the newest there; what has the gradients of the
 * microbatches that are in what stage 0's forward reads (vertical sync). */
enum { READ_FORWARD = -1, READ_LATEST = -2, READ_INPUT = -3 };
/* A parameter that a script declared, with the value that it ran with; values as text, such as "8" and "2,1,1". */
struct param {
    const char *name, *value, *otherwise; /* otherwise: its default */
    const char *script;                   /* "schedule", "model", "cluster" */
    const char *type;                     /* "integer", "number", "boolean", "string", "list" */
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
    int *every; /* per set: the microbatches of each of its updates; NULL: one ends the step. As in batches, slices
                 * where there are any, of whole microbatches */
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
    int *rows;     /* rows of a sequence in each; NULL: equal */
    bool balanced; /* instead: so many that slices take equally long */
};

/* What the scripts said, by what it is about. Constant once they have ended. */
struct spec {
    struct names names;
    const char *name; /* of the schedule: its file's base name without .lua */
    const char *file; /* as given by the user */
    struct declared declared;
    int workers, stages, batches; /* batches: of slices, where there are any */
    bool strict;
    struct choices choices; /* as the scripts and the user say, before anything is searched */
    struct job *job;
    int njobs;
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
};

/* True if the model's stages form a graph, whose edges give the jobs' dependencies. */
static inline bool is_graph(const struct spec *sp) { return sp->model && sp->model->from; }

/* True if the model says only what its layers take: it can be scheduled and compared, but not run. */
static inline bool is_costs(const struct spec *sp) { return sp->model && sp->model->cost; }

/* The whole microbatches that are written out. */
static inline int whole_batches(const struct spec *sp) { return sp->batches / slices_of(&sp->names); }

static inline int32_t job_at(const struct spec *sp, int s, int b, int d) {
    return sp->at[((int64_t)s * sp->batches + b) * NDIRS + d];
}

/* The job whose end frees the activation (s,b): B, or W when the backward is split. */
static inline int32_t last_backward(const struct spec *sp, int s, int b) {
    int32_t whole = job_at(sp, s, b, OP_B);
    return whole >= 0 ? whole : job_at(sp, s, b, OP_W);
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

/* If j is the first job of an overlapped pair, the second; else, as for an update, -1. */
static inline int32_t partner_of(const struct spec *sp, int32_t j) {
    const struct pair *pair = j < sp->njobs && sp->job[j].pair ? &sp->pair[sp->job[j].pair - 1] : NULL;
    return pair && pair->first == j ? pair->second : -1;
}

/* What `pianola tune` tries of a parameter: these values, as text; none: the divisors of the script's workers. */
struct tuned {
    const char *name, **value;
    int n;
};

/* teams.c: gives each member of a team a stage of its own, and makes teams of ranks. */
void expand_teams(struct spec *sp);
/* The other way, for all jobs on one rank: the script's stages and jobs, and of its settings per stage none. */
void join_teams(struct spec *sp);
int team_size(const struct spec *sp, int s); /* of that stage; 1: it has none */
/* The team's job of which j is a member's: of its first member; and the i-th member's, of team_size. */
static inline int32_t gang_of(const struct spec *sp, int32_t j) {
    const struct job *job = j < sp->njobs ? &sp->job[j] : NULL;
    const struct member *member = job && sp->names.member ? &sp->names.member[job->s] : NULL;
    return !member || member->place <= 0 ? j : job_at(sp, job->s - member->place, job->b, job->d);
}
static inline int32_t gang_job(const struct spec *sp, int32_t first, int i) {
    return i == 0 ? first : job_at(sp, sp->job[first].s + i, sp->job[first].b, sp->job[first].d);
}

/* updates.c: names the sets of weights after the stages, and says when they are updated: as their stages are. */
void name_spec_sets(struct spec *sp, bool tied, bool shared);
void updates_of_sets(const struct names *names, int stages, int *update);

/* homes.c: as job.home says it: the rank, if it is one, or the list, which is kept once. */
int32_t keep_list(struct spec *sp, const int32_t *rank, int n);
#endif
