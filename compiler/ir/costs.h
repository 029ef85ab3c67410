/* Costs: how long jobs take, how large tensors are, and who owns weights, as cost.c derives it from the scripts. */
#ifndef PIANOLA_COSTS_H
#define PIANOLA_COSTS_H
#include "spec.h"

/* Filled by cost.c, and constant after it. */
struct costs {
    const struct spec *spec; /* whose costs they are */
    struct stage *stage;     /* costs and bytes per stage_entries; NULL: not known, as of a program's text */
    bool sliced;             /* stages have costs and bytes per slice: see stage_at */
    const struct job *job;   /* the spec's jobs; after them, where updates are jobs, these */
    int njobs;               /* of both */
    double *computes;        /* per job: how long it computes */
    double *exchanges; /* per job of the spec: how long it waits for what its team exchanges; NULL: no team does */
    struct pair_costs {
        double time;  /* of both jobs at once */
        bool braided; /* a team exchanges something within one of them: then parts of the other run meanwhile */
    } * pair;
    double
        grain; /* with updates: the schedule's times are multiples of it, so that sums are exact, and a period shows */
    int32_t *update_at;         /* per set: its first update, as an index in job */
    struct homes *homes;        /* per set, from all that w() named */
    bool *bare;                 /* per set: it has no weights, and no home. NULL: all have weights */
    struct exchanges *exchange; /* [stage * NDIRS + d]; NULL: no team exchanges anything */
    bool *attends; /* per stage, with slices and a model: the slices of a microbatch read each other's keys and values
                    * there. NULL: they do so on every stage */
    const bool *whole;    /* per stage: its team's members have some of its parameters whole; NULL: no team's do */
    const int *rows;      /* of a sequence in each slice, with slices and a model */
    int unembedding;      /* the stage that has it, with tables of tokens */
    bool clip;            /* updates are clipped by the norm of all gradients */
    bool post_validation; /* which they don't wait for: see layers/post_validation.h */
};

/* Whether the slices of a microbatch read each other's keys and values on stage s. */
static inline bool has_kv(const struct costs *costs, int s) {
    return costs->spec->names.slices && (!costs->attends || costs->attends[s]);
}

/* With update: U(s,k) on the set's home of that place, as an index in job. */
static inline int32_t update_at(const struct costs *costs, int s, int k, int place) {
    return costs->update_at[s] + k * costs->homes[s].lists + place;
}

static inline bool is_bare(const struct costs *costs, int set) { return costs->bare && costs->bare[set]; }
/* What the team of stage s shares, if that has weights; -1: nothing. */
static inline int shared_by(const struct costs *costs, int s) {
    int set = costs->spec->names.shared ? costs->spec->names.shared[s] : -1;
    return set >= 0 && !is_bare(costs, set) ? set : -1;
}
/* Whether the jobs of stage s read any weights: with update, of one version. */
static inline bool has_version(const struct costs *costs, int s) {
    return !is_bare(costs, s) || shared_by(costs, s) >= 0;
}

static inline double on_grain(const struct costs *costs, double t) {
    return costs->grain > 0 && isfinite(t) ? costs->grain * rint(t / costs->grain) : t;
}

static inline const struct pair_costs *pair_costs_of(const struct costs *costs, int32_t j) {
    return costs->job[j].pair ? &costs->pair[costs->job[j].pair - 1] : NULL;
}

/* How long job j runs. */
static inline double job_time(const struct costs *costs, int32_t j) {
    const struct pair_costs *pair = pair_costs_of(costs, j);
    bool exchanges = costs->exchanges && j < costs->spec->njobs;
    return pair ? pair->time : costs->computes[j] + (exchanges ? costs->exchanges[j] : 0);
}

/* The same without what a team exchanges in between. */
static inline double computing_time(const struct costs *costs, int32_t j) {
    const struct pair_costs *pair = pair_costs_of(costs, j);
    const struct pair *of = pair ? &costs->spec->pair[costs->job[j].pair - 1] : NULL;
    return !pair           ? costs->computes[j]
           : pair->braided ? costs->computes[of->first] + costs->computes[of->second]
                           : pair->time;
}

/* The stages, the sets behind them, and, where a model's microbatches are cut into slices, each stage anew for each
 * slice: so many, in the order of stages. What is not of a set of weights is that of the slice: costs, FLOP, and bytes
 * of what a microbatch has. */
static inline int stage_entries(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    return sp->stages + sp->names.sets + (costs->sliced ? sp->stages * sp->names.slices : 0);
}
/* The entry of (s,b), which counts slices; of a set of weights or the table, b = -1. */
static inline const struct stage *stage_at(const struct costs *costs, int s, int b) {
    const struct spec *sp = costs->spec;
    int slices = sp->names.slices;
    return &costs->stage[costs->sliced && s < sp->stages && b >= 0
                             ? sp->stages + sp->names.sets + s * slices + b % slices
                             : s];
}

/* updates.c: with update, makes the updates, of all sets with weights, on each of their homes. Needs homes. */
void place_updates(struct costs *costs);
/* homes.c: per stage, the homes of its jobs, which are of one size and disjoint; none of a set without weights. Behind
 * them, the tables' are those of stage 0's members; of what a team shares, those of all of its members. */
struct homes *find_homes(const struct costs *costs);
void find_bare(struct costs *costs); /* homes.c: the sets of those stages whose jobs have no home */
#endif
