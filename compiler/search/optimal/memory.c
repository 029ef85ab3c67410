/* Memory in bytes: what a rank has left for what microbatches keep, and whether the plan of an order fits. */
#include "memory.h"
#include "ir/program.h"
#include "passes/passes.h"
#include <limits.h>
#include <math.h>

bool counts_bytes(const struct spec *sp) {
    bool capped = false;
    for (int r = 0; sp->cap && r < sp->workers; r++)
        capped |= sp->cap[r] < INT_MAX;
    return !capped && sp->model && isfinite(sp->memory) && !sp->offload;
}

/* Without a limit to its memory. */
static struct program *plan_of(const struct spec *sp, const struct stage *st, const struct graph *graph,
                               struct lists lists) {
    struct spec strict = spec_in_order(sp, lists);
    struct program *p = lower_fastest(&strict, st, graph, sched_run(&strict, st, graph));
    mem_plan(&strict, p);
    return p;
}

int64_t *bytes_that_stay(const struct spec *sp, const struct stage *st, const struct graph *graph, struct lists lists) {
    const struct program *p = plan_of(sp, st, graph, lists);
    int64_t *stay = NEW(int64_t, sp->workers);
    for (int r = 0; r < sp->workers; r++)
        stay[r] = p->rank[r].base;
    return stay;
}

int64_t *room_in_bytes(const struct spec *sp, const struct stage *st, const struct graph *graph, struct lists lists) {
    int64_t *room = bytes_that_stay(sp, st, graph, lists);
    for (int r = 0; r < sp->workers; r++) {
        double left = fmin(sp->memory, 0x1p52) - (double)room[r];
        room[r] = left > 0 ? (int64_t)left : 0;
    }
    return room;
}

int64_t excess_of_plan(const struct spec *sp, const struct stage *st, const struct graph *graph, struct lists lists) {
    const struct program *p = plan_of(sp, st, graph, lists);
    double most = 0;
    for (int r = 0; r < sp->workers; r++)
        most = fmax(most, (double)p->rank[r].least - sp->memory);
    return (int64_t)ceil(most);
}
