/* Lowers random schedules. */
#ifndef PIANOLA_LOWERED_H
#define PIANOLA_LOWERED_H
#include "passes/lower.h"
#include "random_spec.h"

static inline struct fetches fetch_of(const struct spec *sp, const struct sched *sc, const int32_t *place) {
    struct compile c = parts_of(sp, costs_of(sp), NULL, NULL);
    c.sched = (struct sched *)sc;
    return fetch_plan(&c, place);
}

struct lowered {
    struct spec *sp;
    struct costs *costs;
    struct graph *g;
    struct sched *sc;
    struct program *p;
};

static inline struct lowered lower_spec(struct spec *sp) {
    struct lowered x = {.sp = sp, .costs = draw_stages(sp), .g = graph_of(sp)};
    x.sc = sched_of(sp, x.costs, x.g);
    x.p = lower_of(sp, x.costs, x.g, x.sc);
    return x;
}
#endif
