/* offload = "auto": which stashes leave the device, so that each rank's plan fits into the cluster's memory.
 *
 * The program is lowered and simulated with all of them on the device. Where a rank then uses more than it may, the
 * stash leaves that is worth most from there on: bytes times the time until it has to be back. Only those are in
 * question whose copy is there by then. Since a plan also has gaps, and copies take time, the bytes that a rank may use
 * in this picture are found by bisection: the most with which the plan of the program itself fits.
 *
 * Greedy, not optimal: which few stashes suffice depends on their overlaps, as bin packing does. For stashes of one
 * size it is Belady's rule, and no smaller number of copies would do. */
#include "lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct stay { /* of what the forward of (s, b) keeps, on the rank that reads it: it can be away in [from, to) */
    double from, to;
    int64_t bytes;
    int32_t rank, cell; /* cell: in spec.offload */
};

static int by_begin(const void *x, const void *y) { /* per rank */
    const struct stay *a = x, *b = y;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->from != b->from ? (a->from > b->from) - (a->from < b->from) : (a->cell > b->cell) - (a->cell < b->cell);
}

struct stays {
    struct stay *a;
    int *at; /* of rank r: a[at[r] .. at[r + 1]) */
};

static struct stays find_stays(const struct spec *sp, const struct stage *st, const struct graph *graph,
                               const struct sched *sc) {
    struct stays stays = {NEW(struct stay, (int64_t)sp->stages * sp->batches), NEW(int, sp->workers + 1)};
    int n = 0;
    for (int j = 0; j < sp->njobs; j++)
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            const struct job *from = &sp->job[graph->pred[e]], *to = &sp->job[j];
            int kind = edge_kind(from, to);
            if (from->d != OP_F || (kind != K_stash && kind != K_input))
                continue;
            int64_t bytes = st[to->s].bytes[kind];
            double took = host_time(sp, to->rank, bytes), there = sc->end[graph->pred[e]] + took;
            if (from->rank != to->rank)
                there += link_time(sp, from->rank, to->rank, (double)bytes);
            stays.a[n++] = (struct stay){there, sc->start[j] - took, bytes, to->rank, to->s * sp->batches + to->b};
            stays.at[to->rank + 1]++;
        }
    for (int r = 0; r < sp->workers; r++)
        stays.at[r + 1] += stays.at[r];
    qsort(stays.a, (size_t)n, sizeof *stays.a, by_begin);
    return stays;
}

/* Those of a rank that leave, so that it uses no more than `target` bytes at any time if it can. */
static void leave(const struct spec *sp, const struct stays *stays, int r, const struct usage *use, double target) {
    int n = stays->at[r + 1] - stays->at[r], open = 0, next = 0;
    const struct stay *stay = stays->a + stays->at[r];
    const struct stay **live = NEW(const struct stay *, n); /* n in all: there, or gone until `to` */
    int64_t away = 0;
    for (int i = 0; i < use->n; i++) {
        double t = use->at[i].t;
        for (; next < n && stay[next].from <= t; next++)
            live[open++] = &stay[next];
        for (int k = 0; k < open;)
            if (live[k]->to <= t) {
                away -= sp->offload[live[k]->cell] ? live[k]->bytes : 0;
                live[k] = live[--open];
            } else
                k++;
        while ((double)(use->at[i].bytes - away) > target) {
            const struct stay *best = NULL;
            for (int k = 0; k < open; k++) {
                double worth = (double)live[k]->bytes * (live[k]->to - t);
                double most = best ? (double)best->bytes * (best->to - t) : 0;
                if (!sp->offload[live[k]->cell] && live[k]->bytes > 0 &&
                    (!best || worth > most || (worth == most && live[k]->cell < best->cell)))
                    best = live[k];
            }
            if (!best)
                break;
            sp->offload[best->cell] = true;
            away += best->bytes;
        }
    }
}

/* Every rank's use of its device over time, with all stashes there. */
static struct usage *find_usage(const struct spec *sp, const struct stage *st, const struct graph *graph,
                                const struct sched *sc) {
    struct usage *use = NEW(struct usage, sp->workers);
    struct spec free = *sp;
    free.memory = free.host_memory = INFINITY;
    struct program *p = lower(&free, st, graph, sc);
    mem_plan(&free, p);
    lanes_sync(p);
    const struct timeline *tl = sim_run(&free, st, p);
    for (int r = 0; r < sp->workers; r++)
        use[r] = memory_use(&p->rank[r], tl->start[r], tl->end[r]);
    return use;
}

static void find_fits(const struct spec *sp, const struct stage *st, const struct graph *graph, const struct sched *sc,
                      bool *fits) {
    struct scratch scratch = scratch_begin();
    struct spec free = *sp;
    free.memory = free.host_memory = INFINITY;
    struct program *p = lower(&free, st, graph, sc);
    mem_plan(&free, p);
    for (int r = 0; r < sp->workers; r++)
        fits[r] = (double)p->rank[r].arena <= sp->memory;
    scratch_end(scratch);
}

static void choose(const struct spec *sp, const struct stays *stays, const struct usage *use, const double *target) {
    memset(sp->offload, 0, (size_t)sp->stages * (size_t)sp->batches);
    for (int r = 0; r < sp->workers; r++)
        leave(sp, stays, r, &use[r], target[r]);
}

void choose_offloads(struct spec *sp, const struct stage *st, const struct graph *graph, const struct sched *sc) {
    if (!sp->auto_offload || isinf(sp->memory))
        return;
    struct stays stays = find_stays(sp, st, graph, sc);
    struct usage *use = find_usage(sp, st, graph, sc);
    double *enough = NEW(double, sp->workers), *target = NEW(double, sp->workers), *most = NEW(double, sp->workers);
    bool *fits = NEW(bool, sp->workers);
    for (int r = 0; r < sp->workers; r++) {
        enough[r] = -1; /* all that can leave does */
        target[r] = most[r] = sp->memory;
    }
    bool open = true;
    for (int i = 0; i < 12 && open; i++) { /* to a few thousandths of the memory */
        choose(sp, &stays, use, target);
        find_fits(sp, st, graph, sc, fits);
        open = false;
        for (int r = 0; r < sp->workers; r++) {
            *(fits[r] ? &enough[r] : &most[r]) = target[r];
            target[r] = enough[r] == sp->memory ? enough[r] : floor((enough[r] + most[r]) / 2);
            open |= enough[r] < sp->memory && most[r] - enough[r] > 1;
        }
    }
    choose(sp, &stays, use, enough);
}
