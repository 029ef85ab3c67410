/* Finds a good order first, with narrow beams; then searches all states, until nothing better is left. */
#include "optimal.h"
#include "order.h"
#include <string.h>

static const int beams[] = {1, 16, 256, 4096};
enum { NBEAMS = sizeof beams / sizeof *beams };

struct task {
    const struct instance *in;
    const struct graph *graph;
    int64_t states;
    double until;
    int64_t *start; /* buffer for the best order */
};

/* Searches for an order that ends before `limit`, and keeps it. Returns whether it is proved that nothing better
 * exists; if so, keeps the visited states as the proof, else frees their memory for the next search. */
static bool attempt(struct optimum *best, const struct task *task, int64_t limit, int beam) {
    struct scratch scratch = scratch_begin();
    struct found found = search(task->in, limit, (struct effort){beam, task->states, task->until});
    if (found.visited.best >= 0) {
        memcpy(task->start, starts_of(task->in, &found, task->graph), sizeof *task->start * (size_t)task->graph->n);
        best->makespan = found.makespan;
        best->start = task->start;
    }
    if (!found.all || beam) {
        scratch_end(scratch);
        return false;
    }
    if (best->lower < found.makespan) {
        best->lower = found.makespan;
        best->proof = PROOF_COVER;
        best->cover = found.visited;
    }
    return true;
}

/* Raises the lower bound as far as searches of this many states can. */
static void raise_lower(struct optimum *best, const struct task *task) {
    for (int64_t step = 1; step > 0 && best->lower < best->makespan; step /= 2)
        for (; best->lower + step <= best->makespan && attempt(best, task, best->lower + step, 0); step *= 2)
            ;
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
    const struct task task = {in, graph, states, until, NEW(int64_t, graph->n)};
    for (int i = 0; i < NBEAMS && best.makespan > best.lower; i++)
        attempt(&best, &task, best.makespan, beams[i]);
    if (best.makespan > best.lower && !attempt(&best, &task, best.makespan, 0)) {
        best.gave_up = true;
        raise_lower(&best, &task);
    }
    return best;
}

double time_of_order(const struct compile *c, const int64_t *start) {
    return sched_in_order(c, lists_by_start(c->spec, start))->makespan;
}
