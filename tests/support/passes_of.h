/* The passes, for tests that have parts of a compile instead of a whole one. */
#ifndef PASSES_OF_H
#define PASSES_OF_H
#include "plan/plan.h"

static inline struct compile parts_of(const struct spec *sp, const struct stage *st, const struct graph *g,
                                      const struct program *p) {
    struct compile c = compile_of((struct spec *)sp, (struct stage *)st);
    c.graph = (struct graph *)g;
    c.program = (struct program *)p;
    return c;
}

static inline struct sched *sched_of(const struct spec *sp, const struct stage *st, const struct graph *g) {
    struct compile c = parts_of(sp, st, g, NULL);
    return sched_run(&c);
}

static inline struct program *lower_of(const struct spec *sp, const struct stage *st, const struct graph *g,
                                       const struct sched *sc) {
    struct compile c = parts_of(sp, st, g, NULL);
    c.sched = (struct sched *)sc;
    return lower(&c);
}

static inline void mem_of(const struct spec *sp, struct program *p) {
    struct compile c = parts_of(sp, NULL, NULL, p);
    mem_plan(&c);
}

/* Returns whether the plan reuses bytes by lifetimes. */
static inline bool spare_of(const struct spec *sp, const struct stage *st, struct program *p) {
    struct compile c = parts_of(sp, st, NULL, p);
    search_spare(&c);
    return c.choices.life;
}

static inline struct timeline *sim_of(const struct spec *sp, const struct stage *st, const struct program *p) {
    struct compile c = parts_of(sp, st, NULL, p);
    return sim_run(&c);
}

static inline struct report *report_of(const struct spec *sp, const struct stage *st, const struct graph *g,
                                       const struct program *p, struct timeline *tl) {
    struct compile c = parts_of(sp, st, g, p);
    c.timeline = tl;
    return report_make(&c);
}
#endif
