/* The scripts' answers as plain data. Only script/ knows Lua. */
#ifndef PIANOLA_SPEC_H
#define PIANOLA_SPEC_H
#include "choices.h"
#include "homes.h"
#include "model_spec.h"
#include "names.h"
#include "stage.h"
#include <math.h>

/* Bounds of times other than 0, and of speeds and bandwidths. They keep all sums, products and quotients finite. */
#define LEAST_TIME 1e-100
#define MOST_TIME  1e100

/* A job (s,b,d). Jobs are stored in canonical order: by stage, then microbatch, then direction. If updates are jobs,
 * costs.job has them after these: U(s,k) on each of a set's homes, by set, then k, then home. */
struct job {
    int32_t s, b; /* b counts slices, if there are any; for an update: the set and its number k */
    uint8_t d;    /* OP_F .. OP_W, OP_U */
    bool fill;    /* fills gaps of a strict order: it has no place there, and runs when the rank's next job cannot */
    int32_t rank; /* compute rank */
    int32_t team; /* from w(): that rank, or workers + index in spec.list for a team; later the rank again */
    /* Owner of its weights, from w(): a rank, or workers + index in spec.list; -1: none. */
    int32_t home;
    int32_t pair;      /* 1 + index of its overlapped pair; 0: not overlapped */
    double prio, rest; /* n rounded to a double, and the remainder: a Lua integer may need more than 53 bits */
    double cost;       /* from the script; NAN: not given */
};

/* Two adjacent jobs of one rank's sequence that start together and end together. */
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

/* Version of the weights that a job reads: the version its forward read; the newest on its rank; or (vertical sync) the
 * newest version that contains only microbatches already in the version that stage 0's forward reads. */
enum { READ_FORWARD = -1, READ_LATEST = -2, READ_INPUT = -3 };
/* A parameter that a script declared, and its value in this compile. Values are text, such as "8" and "2,1,1". */
struct param {
    const char *name, *value, *otherwise; /* otherwise: the default */
    const char *script;                   /* "schedule", "model", "cluster" */
    const char *type;                     /* "integer", "number", "boolean", "string", "list" */
};

/* Declarations of the scripts about themselves. */
struct declared {
    const char *params;  /* "workers=4 batches=8": the schedule's, for the record */
    struct param *param; /* parameters of all scripts, script by script, sorted by name */
    size_t nparams, params_capacity;
    double effort;        /* largest share of its limits that any script used; at most 1 */
    struct tuned *tuned;  /* parameters that `pianola tune` varies, sorted by name */
    int ntuned;           /* their number */
    const double *bubble; /* closed form for this spec's own costs and free links; NULL: unknown */
    bool recompute;       /* the user's option: recompute every stage and microbatch, whatever the script says */
};

/* Updates that are jobs, as the schedule declares them. */
struct updates {
    int *every; /* per set: microbatches per update, a whole number, but counted in slices if there are any; NULL: one
                 * update ends the step */
    struct job *asked; /* U(s,k) by the script's stage: n, fill and cost */
    int32_t *reads;    /* per job: the version that it reads: how many updates back, or one of the READ_ constants */
    int turn;          /* least number of microbatches that makes a whole number of updates on every stage */
    int64_t step;      /* microbatches per step, the first `batches` of which are written out */
};

/* Owners of weights, from w() and related fields. */
struct ownership {
    struct home *list; /* lists that w() returned, without duplicates */
    int nlists;
    struct list_table *lists; /* hash table over them: keep_list */
    int tensor;               /* number of ranks in the team that each of the script's ranks becomes; 1: no team */
    uint8_t *zero;            /* per stage; NULL: all 0 */
    int32_t *source; /* per job: rank that its weights are fetched from; -1: their home. NULL: all from their homes */
};

/* Limits that the schedule sets on ranks and messages. */
struct limits {
    int *cap;            /* per rank: activations; INT_MAX: no limit */
    bool *offload_state; /* per stage: whether the optimizer state is in host memory; NULL: none is */
    int64_t *bucket;     /* per stage: most bytes of its gradient per message; 0: the cost model chooses */
    int *grad_slots;     /* per rank: number of sets not at home whose gradients it sums at a time; NULL: all */
};

/* The cluster, from its script, and the user's memory limit. */
/* Equally spaced quantiles of a duration, the least and the greatest included, as multiples of its mean. */
struct spread {
    int n; /* 0: unknown, else at least 2 */
    double *at;
};

struct machine {
    bool has_cluster;
    struct link *link;       /* [src * workers + dst]; NULL: free */
    struct link *collective; /* [motion * (workers + 1) + n]; NULL, or latency NAN: by the links */
    double *speed;           /* per rank: 2 takes half as long as 1; NULL: all 1 */
    double memory;           /* bytes per rank; INFINITY: no limit */
    double host_memory;      /* bytes of host memory */
    struct link *host_link; /* per rank: to host memory; the other direction is a link of its own with the same figures;
                             * NULL: free */
    double flops;           /* per second and rank; 0: not given, so times are in FLOP */
    double cores;           /* cores that all ranks share; 0: each rank has enough of its own */
    int threads;            /* threads that a job runs in */
    bool serial;            /* a rank is one thread, which does its jobs and moves its messages one by one */
    double handoff;         /* seconds until a rank that gets a core runs, if serial */
    double *message;        /* seconds that moving a message takes, by its id, if serial; NULL: by the links */
    struct spread *spread;  /* of the same; NULL: unknown */
    double *took;           /* measured seconds, [stage * NOPS + op]; NAN: not measured. NULL: no measurements */
};

/* The division of a microbatch into slices. */
struct slicing {
    int *rows;     /* rows of a sequence per slice; NULL: equal */
    bool balanced; /* instead: chooses rows so that slices take equally long */
};

/* The scripts' answers by subject. Constant once the scripts have ended. */
struct spec {
    struct names names;
    const char *name; /* the schedule's: its file's base name without .lua */
    const char *file; /* as given by the user */
    struct declared declared;
    int workers, stages, batches; /* batches: counts slices, if there are any */
    bool strict;
    struct choices choices; /* from the scripts and the user, before any search */
    struct job *job;
    int njobs;
    int32_t *at; /* [(s * batches + b) * NDIRS + d] -> index in job, or -1 */
    struct pair *pair;
    int npairs;
    double overlap; /* share of a pair's shorter job that the longer one hides */
    struct updates updates;
    struct ownership owners;
    struct limits limits;
    /* Custom dependencies: pred[pred_at[j] .. pred_at[j+1]) are the jobs that job j needs. NULL: the default. */
    int32_t *pred;
    int32_t *pred_at;
    struct slicing slicing;
    struct model *model; /* NULL: unit costs, every tensor 1 byte */
    struct machine machine;
};

/* Returns whether the model's stages form a graph, whose edges give the jobs' dependencies. */
static inline bool is_graph(const struct spec *sp) { return sp->model && sp->model->from; }

/* Returns whether the model consists of costs only: it can be scheduled and compared, but not run. */
static inline bool is_costs(const struct spec *sp) { return sp->model && sp->model->cost; }

/* Returns the number of whole microbatches that are written out. */
static inline int whole_batches(const struct spec *sp) { return sp->batches / slices_of(&sp->names); }

static inline int32_t job_at(const struct spec *sp, int s, int b, int d) {
    return sp->at[((int64_t)s * sp->batches + b) * NDIRS + d];
}

/* Returns the job whose end frees the activation (s,b): B, or W if the backward is split. */
static inline int32_t last_backward(const struct spec *sp, int s, int b) {
    int32_t whole = job_at(sp, s, b, OP_B);
    return whole >= 0 ? whole : job_at(sp, s, b, OP_W);
}

static inline struct home home_of(const struct spec *sp, const int32_t *home) {
    return *home < sp->workers ? (struct home){1, home} : sp->owners.list[*home - sp->workers];
}

/* Compares n: returns less than 0 if a's is smaller, 0 if equal, more than 0 if b's is smaller. */
static inline int compare_n(const struct job *a, const struct job *b) {
    if (a->prio != b->prio)
        return a->prio < b->prio ? -1 : 1;
    return (a->rest > b->rest) - (a->rest < b->rest);
}

/* Returns the second job of an overlapped pair if j is the first, else -1, also for an update. */
static inline int32_t partner_of(const struct spec *sp, int32_t j) {
    const struct pair *pair = j < sp->njobs && sp->job[j].pair ? &sp->pair[sp->job[j].pair - 1] : NULL;
    return pair && pair->first == j ? pair->second : -1;
}

/* Values of a parameter that `pianola tune` tries, as text; none: the divisors of the script's workers. */
struct tuned {
    const char *name, **value;
    int n;
};

/* teams.c: gives each member of a team a stage of its own, and makes teams of ranks. */
void expand_teams(struct spec *sp);
/* Undoes expand_teams for a run on one rank: restores the script's stages and jobs, and drops its settings per
 * stage. */
void join_teams(struct spec *sp);
/* untrained.c: makes a full backward of each input gradient of the stages marked, and drops their weight gradients. */
void merge_backwards(struct spec *sp, const bool *untrained);
int team_size(const struct spec *sp, int s); /* the stage's; 1: no team */
/* gang_of returns the first member's job of the team that j belongs to; gang_job returns the i-th member's, i <
 * team_size. */
static inline int32_t gang_of(const struct spec *sp, int32_t j) {
    const struct job *job = j < sp->njobs ? &sp->job[j] : NULL;
    const struct member *member = job && sp->names.member ? &sp->names.member[job->s] : NULL;
    return !member || member->place <= 0 ? j : job_at(sp, job->s - member->place, job->b, job->d);
}
static inline int32_t gang_job(const struct spec *sp, int32_t first, int i) {
    return i == 0 ? first : job_at(sp, sp->job[first].s + i, sp->job[first].b, sp->job[first].d);
}

/* updates.c: names the sets after the stages' own, and gives them their stages' update intervals. */
void name_spec_sets(struct spec *sp, bool tied, bool shared);
void updates_of_sets(const struct names *names, int stages, int *update);

/* homes.c: returns the encoding of a list of ranks as in job.home: the rank if there is one, else workers + index in
 * spec.list. Stores each list once. */
int32_t keep_list(struct spec *sp, const int32_t *rank, int n);
#endif
