/* Costs: durations of jobs, sizes of tensors, and owners of weights, as cost.c derives them from the scripts. */
#ifndef PIANOLA_COSTS_H
#define PIANOLA_COSTS_H
#include "spec.h"

/* Filled by cost.c, and constant after it. */
struct costs {
    const struct spec *spec; /* the spec that they were derived from */
    struct stage *stage;     /* [stage_entries] costs and bytes; NULL: unknown, as in a program read from its text */
    bool sliced;             /* whether stages have costs and bytes per slice: see stage_at */
    const struct job *job;   /* the spec's jobs, then the updates if these are jobs */
    int njobs;               /* number of jobs and updates */
    double *computes;        /* per job: its computing time */
    double *exchanges;       /* per job of the spec: its waiting time for its team's exchanges; NULL: no team has any */
    struct pair_costs {
        double time;  /* duration of both jobs together */
        bool braided; /* whether a team exchanges tensors within one of them; parts of the other then run meanwhile */
    } * pair;
    double
        grain; /* if updates are jobs: schedule times are multiples of it, so sums are exact and periods can be found */
    int32_t *update_at;         /* per set: index in job of its first update */
    struct homes *homes;        /* per set: every home that w() returned */
    bool *bare;                 /* per set: whether it has no weights and no home. NULL: all have weights */
    struct exchanges *exchange; /* [stage * NDIRS + d]; NULL: no team exchanges anything */
    bool *attends; /* per stage, with slices and a model: whether its slices of a microbatch read each other's keys and
                    * values. NULL: they do on every stage */
    const bool *whole; /* per stage: whether its team's members hold some of its parameters whole; NULL: no team's do */
    const int *rows;   /* with slices and a model: rows of a sequence per slice */
    int unembedding;   /* if there are token tables: the stage of the unembedding */
    bool clip;         /* whether updates are clipped by the norm of all gradients */
    bool post_validation; /* whether updates start without waiting for that norm: see layers/post_validation.h */
};

/* Returns whether the slices of a microbatch read each other's keys and values on stage s. */
static inline bool has_kv(const struct costs *costs, int s) {
    return costs->spec->names.slices && (!costs->attends || costs->attends[s]);
}

/* Returns the index in job of U(s,k) on the set's home at that place. Only if updates are jobs. */
static inline int32_t update_at(const struct costs *costs, int s, int k, int place) {
    return costs->update_at[s] + k * costs->homes[s].lists + place;
}

static inline bool is_bare(const struct costs *costs, int set) { return costs->bare && costs->bare[set]; }
/* Returns the set that the team of stage s shares, if it has weights, else -1. */
static inline int shared_by(const struct costs *costs, int s) {
    int set = costs->spec->names.shared ? costs->spec->names.shared[s] : -1;
    return set >= 0 && !is_bare(costs, set) ? set : -1;
}
/* Returns whether the jobs of stage s read any weights; if updates are jobs, these have a version. */
static inline bool has_version(const struct costs *costs, int s) {
    return !is_bare(costs, s) || shared_by(costs, s) >= 0;
}

static inline double on_grain(const struct costs *costs, double t) {
    return costs->grain > 0 && isfinite(t) ? costs->grain * rint(t / costs->grain) : t;
}

static inline const struct pair_costs *pair_costs_of(const struct costs *costs, int32_t j) {
    return costs->job[j].pair ? &costs->pair[costs->job[j].pair - 1] : NULL;
}

/* Returns how long job j runs. */
static inline double job_time(const struct costs *costs, int32_t j) {
    const struct pair_costs *pair = pair_costs_of(costs, j);
    bool exchanges = costs->exchanges && j < costs->spec->njobs;
    return pair ? pair->time : costs->computes[j] + (exchanges ? costs->exchanges[j] : 0);
}

/* Returns how long job j or its pair runs without waiting for its team's exchanges. */
static inline double computing_time(const struct costs *costs, int32_t j) {
    const struct pair_costs *pair = pair_costs_of(costs, j);
    const struct pair *of = pair ? &costs->spec->pair[costs->job[j].pair - 1] : NULL;
    return !pair           ? costs->computes[j]
           : pair->braided ? costs->computes[of->first] + costs->computes[of->second]
                           : pair->time;
}

/* Returns the number of entries in costs->stage: the stages, then the shared sets, then, if slices differ, each stage
 * once per slice, grouped by stage. A slice's entry has the slice's costs, FLOP and bytes of activations; weights are
 * the stage's. */
static inline int stage_entries(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    return sp->stages + sp->names.sets + (costs->sliced ? sp->stages * sp->names.slices : 0);
}
/* Returns the entry of (s,b), where b counts slices. For a set of weights or a table, b is -1. */
static inline const struct stage *stage_at(const struct costs *costs, int s, int b) {
    const struct spec *sp = costs->spec;
    int slices = sp->names.slices;
    return &costs->stage[costs->sliced && s < sp->stages && b >= 0
                             ? sp->stages + sp->names.sets + s * slices + b % slices
                             : s];
}

/* updates.c: if updates are jobs, appends the updates of all sets with weights, on each home. Needs homes. */
void place_updates(struct costs *costs);
/* homes.c: returns each set's homes. A stage has the homes of its jobs, disjoint and of one size; a set without weights
 * has none. A table has the homes of stage 0's members, a shared set the homes of its whole team's members. */
struct homes *find_homes(const struct costs *costs);
void find_bare(struct costs *costs); /* homes.c: finds the stages whose jobs have no home, and their sets */
#endif
