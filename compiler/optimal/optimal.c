/* A good order first, with narrow beams; then all states, until nothing better is left. */
#include "optimal.h"
#include <math.h>
#include <stdlib.h>

static const int beams[] = {1, 16, 256, 4096};
enum { NBEAMS = sizeof beams / sizeof *beams };

static void take(struct optimum *best, const struct instance *in, const struct graph *graph, const struct found *found) {
    if (found->visited.best < 0)
        return;
    best->makespan = found->makespan;
    best->start = starts_of(in, found, graph);
}

/* Raises the lower bound as far as searches of so many states can: there is nothing below `lower`. */
static void raise(struct optimum *best, const struct instance *in, int64_t states, double until) {
    for (int64_t step = 1, limit; best->lower < best->makespan; step = step > 1 ? step / 2 : 0) {
        if (step == 0)
            return;
        for (; (limit = best->lower + step) <= best->makespan; step *= 2) {
            struct found found = search(in, limit, (struct effort){0, states, until});
            if (!found.all || found.visited.best >= 0)
                break;
            best->lower = limit;
            best->proof = PROOF_COVER;
            best->cover = found.visited;
        }
    }
}

static int64_t least_span(const struct instance *in) {
    int64_t bound = 0;
    for (int r = 0; r < in->ranks; r++)
        bound = span_bound(in, r) > bound ? span_bound(in, r) : bound;
    return bound;
}

struct optimum find_optimum(const struct instance *in, const struct graph *graph, int64_t own, int64_t states,
                            double until) {
    struct optimum best = {.makespan = own, .lower = work_bound(in), .proof = PROOF_WORK};
    if (in->span)
        best.lower = least_span(in);
    for (int i = 0; i < NBEAMS && best.makespan > best.lower; i++) {
        struct found found = search(in, best.makespan, (struct effort){beams[i], states, until});
        take(&best, in, graph, &found);
    }
    if (best.makespan == best.lower)
        return best;
    struct found found = search(in, best.makespan, (struct effort){0, states, until});
    take(&best, in, graph, &found);
    if (found.all) {
        best.lower = best.makespan;
        best.proof = PROOF_COVER;
        best.cover = found.visited;
    } else {
        best.gave_up = true;
        raise(&best, in, states, until);
    }
    return best;
}

struct turn {
    int64_t start;
    int32_t job;
};

static int by_start(const void *x, const void *y) {
    const struct turn *a = x, *b = y;
    return a->start != b->start ? (a->start < b->start ? -1 : 1) : (a->job > b->job) - (a->job < b->job);
}

double time_of_order(const struct spec *sp, const struct stage *st, const struct graph *graph, const int64_t *start) {
    struct turn *turn = NEW(struct turn, sp->njobs);
    double *end = NEW(double, sp->njobs), *free = NEW(double, sp->workers), makespan = 0;
    for (int32_t j = 0; j < sp->njobs; j++)
        turn[j] = (struct turn){start[j], j};
    qsort(turn, (size_t)sp->njobs, sizeof *turn, by_start);
    for (int32_t i = 0; i < sp->njobs; i++) { /* whatever a job needs starts before it, since it takes some time */
        int32_t j = turn[i].job, rank = sp->job[j].rank;
        double begin = free[rank];
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            int from = sp->job[graph->pred[e]].rank;
            double delay = from == rank ? 0 : link_time(sp, from, rank, (double)edge_bytes(sp, st, graph, e));
            begin = fmax(begin, end[graph->pred[e]] + delay);
        }
        end[j] = free[rank] = begin + job_time(sp, j);
        makespan = fmax(makespan, end[j]);
    }
    return makespan;
}
