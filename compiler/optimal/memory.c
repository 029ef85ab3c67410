/* Memory in bytes: what a rank has left for what microbatches keep, and whether the plan of an order fits. */
#include "memory.h"
#include "ir/program.h"
#include "passes/passes.h"
#include <limits.h>
#include <math.h>
#include <string.h>

bool counts_bytes(const struct spec *sp) {
    bool capped = false;
    for (int r = 0; sp->cap && r < sp->workers; r++)
        capped |= sp->cap[r] < INT_MAX;
    return !capped && sp->model && isfinite(sp->memory) && !sp->offload;
}

static struct spec in_order(const struct spec *sp, struct lists lists) {
    struct spec strict = *sp;
    strict.strict = true;
    strict.memory = strict.host_memory = INFINITY;
    strict.job = NEW(struct job, sp->njobs);
    memcpy(strict.job, sp->job, sizeof *sp->job * (size_t)sp->njobs);
    for (int r = 0; r < sp->workers; r++)
        for (int i = 0; i < lists.n[r]; i++) {
            struct job *job = &strict.job[lists.job[r][i]];
            job->prio = i;
            job->rest = 0;
            job->fill = false;
        }
    return strict;
}

struct sched *sched_in_order(const struct spec *sp, const struct stage *st, const struct graph *graph,
                             struct lists lists) {
    struct spec strict = in_order(sp, lists);
    return sched_run(&strict, st, graph);
}

/* Without a limit to its memory. */
static struct program *plan_of(const struct spec *sp, const struct stage *st, const struct graph *graph,
                               struct lists lists) {
    struct spec strict = in_order(sp, lists);
    struct program *p = lower_fastest(&strict, st, graph, sched_run(&strict, st, graph));
    mem_plan(&strict, p);
    return p;
}

int64_t *room_in_bytes(const struct spec *sp, const struct stage *st, const struct graph *graph, struct lists lists) {
    const struct program *p = plan_of(sp, st, graph, lists);
    int64_t *room = NEW(int64_t, sp->workers);
    for (int r = 0; r < sp->workers; r++) {
        double left = fmin(sp->memory, 0x1p52) - (double)p->rank[r].base;
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
