/* offload = "auto": which stashes leave the device, so that each rank's plan fits into the cluster's memory.
 *
 * What is worth most leaves first: the most bytes for the longest time, between the forward and what reads its stash.
 * A rank keeps as many of the others as fit, by bisection over lowered and planned programs; none leaves where all fit.
 * Greedy, not optimal: which few stashes suffice depends on their overlaps, as bin packing does. */
#include "passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct stay {           /* of what the forward of (s, b) keeps, on the rank that reads it */
    double worth;       /* bytes times time */
    int32_t rank, cell; /* cell: in spec.offload */
};

static int by_worth(const void *x, const void *y) {
    const struct stay *a = x, *b = y;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->worth != b->worth ? (a->worth < b->worth) - (a->worth > b->worth)
                                : (a->cell > b->cell) - (a->cell < b->cell);
}

static struct stay *find_stays(const struct spec *sp, const struct stage *st, const struct graph *graph,
                               const struct sched *sc, int *n) {
    struct stay *stay = NEW(struct stay, (int64_t)sp->stages * sp->batches);
    *n = 0;
    for (int j = 0; j < sp->njobs; j++)
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            const struct job *from = &sp->job[graph->pred[e]], *to = &sp->job[j];
            int kind = edge_kind(from, to);
            if (from->d == OP_F && (kind == K_stash || kind == K_input))
                stay[(*n)++] = (struct stay){(double)st[to->s].bytes[kind] * (sc->start[j] - sc->end[graph->pred[e]]),
                                             to->rank, to->s * sp->batches + to->b};
        }
    qsort(stay, (size_t)*n, sizeof *stay, by_worth);
    return stay;
}

/* Per rank: whether it fits if so many of its stays leave. */
static void find_fits(struct spec *sp, const struct stage *st, const struct graph *graph, const struct sched *sc,
                      const struct stay *stay, int n, const int *leave, bool *fits) {
    memset(sp->offload, 0, (size_t)sp->stages * (size_t)sp->batches);
    for (int i = 0, of_rank = 0; i < n; i++) {
        of_rank = i > 0 && stay[i - 1].rank == stay[i].rank ? of_rank + 1 : 0;
        sp->offload[stay[i].cell] = of_rank < leave[stay[i].rank];
    }
    struct scratch scratch = scratch_begin();
    struct spec free = *sp;
    free.memory = free.host_memory = INFINITY;
    struct program *p = lower(&free, st, graph, sc);
    mem_plan(&free, p);
    for (int r = 0; r < sp->workers; r++)
        fits[r] = (double)p->rank[r].arena <= sp->memory;
    scratch_end(scratch);
}

void choose_offloads(struct spec *sp, const struct stage *st, const struct graph *graph, const struct sched *sc) {
    int n, *leave = NEW(int, sp->workers), *least = NEW(int, sp->workers), *most = NEW(int, sp->workers);
    bool *fits = NEW(bool, sp->workers), open = true;
    if (!sp->auto_offload || isinf(sp->memory))
        return;
    struct stay *stay = find_stays(sp, st, graph, sc, &n);
    for (int i = 0; i < n; i++)
        most[stay[i].rank]++;
    while (open) { /* each rank's answer lies in [least, most]; leave is asked */
        find_fits(sp, st, graph, sc, stay, n, leave, fits);
        open = false;
        for (int r = 0; r < sp->workers; r++) {
            if (fits[r])
                most[r] = leave[r] < most[r] ? leave[r] : most[r];
            else
                least[r] = leave[r] + 1 < most[r] ? leave[r] + 1 : most[r];
            open |= leave[r] != most[r] || least[r] < most[r];
            leave[r] = least[r] < most[r] ? (least[r] + most[r]) / 2 : most[r];
        }
    }
}
