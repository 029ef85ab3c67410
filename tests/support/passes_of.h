/* The passes, for tests that have parts of a compile instead of a whole one. */
#ifndef PASSES_OF_H
#define PASSES_OF_H
#include "plan/plan.h"

/* A spec and its costs, beside each other. */
struct costed {
    struct spec spec;
    struct costs costs;
};
static inline struct costs *costs_of(const struct spec *sp) {
    struct costs *costs = &((struct costed *)sp)->costs;
    costs->spec = sp;
    if (!costs->update_at) { /* there is no update yet */
        costs->job = sp->job;
        costs->njobs = sp->njobs;
    }
    return costs;
}
/* Sets the times of the spec's jobs, alone and in pairs: copies them from `before`, which has the same jobs, or, if it
 * is NULL, takes the times that the jobs give. */
static inline void take_job_costs(struct costs *costs, const struct costs *before) {
    const struct spec *sp = costs->spec;
    if (before) {
        costs->computes = before->computes;
        costs->pair = before->pair;
        return;
    }
    costs->computes = NEW(double, costs->njobs);
    for (int j = 0; j < costs->njobs; j++)
        costs->computes[j] = costs->job[j].cost;
    costs->pair = NEW(struct pair_costs, sp->npairs);
    for (int i = 0; i < sp->npairs; i++) {
        double a = costs->computes[sp->pair[i].first], b = costs->computes[sp->pair[i].second];
        costs->pair[i].time = a + b - sp->overlap * (a < b ? a : b);
    }
}
static inline struct spec *costed(const struct spec *sp) {
    struct costed *both = NEW(struct costed, 1);
    both->spec = *sp;
    both->costs = *costs_make(&both->spec);
    return &both->spec;
}
static inline struct stage *cost_stages(const struct spec *sp) { return costs_make(sp)->stage; }
static inline struct graph *graph_of(const struct spec *sp) { return graph_build(costs_of(sp)); }

static inline struct compile parts_of(const struct spec *sp, const struct costs *costs, const struct graph *g,
                                      const struct program *p) {
    struct compile c = compile_of(sp, costs);
    c.graph = (struct graph *)g;
    c.program = (struct program *)p;
    return c;
}

static inline struct sched *sched_of(const struct spec *sp, const struct costs *costs, const struct graph *g) {
    struct compile c = parts_of(sp, costs, g, NULL);
    return sched_run(&c);
}

static inline struct program *lower_of(const struct spec *sp, const struct costs *costs, const struct graph *g,
                                       const struct sched *sc) {
    struct compile c = parts_of(sp, costs, g, NULL);
    c.sched = (struct sched *)sc;
    return lower(&c);
}

static inline void mem_of(const struct spec *sp, struct program *p) {
    struct compile c = parts_of(sp, NULL, NULL, p);
    mem_plan(&c);
}

/* Returns whether the plan reuses bytes by lifetimes. */
static inline bool spare_of(const struct spec *sp, const struct costs *costs, struct program *p) {
    struct compile c = parts_of(sp, costs, NULL, p);
    search_spare(&c);
    return c.choices.life;
}

static inline struct timeline *sim_of(const struct spec *sp, const struct costs *costs, const struct program *p) {
    struct compile c = parts_of(sp, costs, NULL, p);
    return sim_run(&c);
}

static inline struct report *report_of(const struct spec *sp, const struct costs *costs, const struct graph *g,
                                       const struct program *p, struct timeline *tl) {
    struct compile c = parts_of(sp, costs, g, p);
    c.timeline = tl;
    return report_make(&c);
}
#endif
