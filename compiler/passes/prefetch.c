/* Which plan of gathered and fetched weights is the fastest.
 *
 * Keeping weights by Belady's rule gives the fewest transfers, but a slot that is kept cannot receive the next weights
 * meanwhile. So where there is a cluster, the plans with a fixed prefetch are lowered and simulated too. Where its
 * links take time, the program is the fastest of those that fit into memory and into every rank's slots; of equally
 * fast ones, that which keeps the most. What the fixed ones would cost each rank is reported. */
#include "lower.h"
#include <math.h>
#include <string.h>

static bool links_take_time(const struct spec *sp) {
    for (int64_t i = 0; sp->link && i < (int64_t)sp->workers * sp->workers; i++)
        if (sp->link[i].latency > 0 || !isinf(sp->link[i].bandwidth))
            return true;
    return false;
}

static bool fetches_weights(const struct program *p) {
    for (int r = 0; r < p->workers; r++)
        for (int b = 0; b < p->rank[r].nbufs; b++)
            if (p->rank[r].buf[b].kind == K_weight && p->rank[r].buf[b].inst >= 0)
                return true;
    return false;
}

static bool have_slots(const int *slots, int workers, int need) {
    for (int r = 0; r < workers; r++)
        if (slots[r] < need)
            return false;
    return true;
}

/* The program's makespan; infinite if it needs more memory than there is even where bytes are reused at once. ahead:
 * where not NULL, per rank, what it takes and waits. The program stays as it was lowered. */
static double makespan_of(const struct spec *sp, const struct stage *st, struct program *p, struct ahead *ahead) {
    struct scratch scratch = scratch_begin();
    double makespan = INFINITY;
    bool fits = plan_least(sp, p);
    for (int r = 0; ahead && r < p->workers; r++)
        ahead[r] = (struct ahead){NAN, p->rank[r].arena, beyond_memory(sp, p, r)};
    if (fits) {
        if (!sp->least_memory)
            mem_plan_spare(sp, st, p);
        lanes_sync(p);
        const struct timeline *tl = sim_run(sp, st, p);
        makespan = tl->makespan;
        for (int r = 0; ahead && r < p->workers; r++) {
            double exposed[NEXPOSED] = {0};
            exposed_waits(&p->rank[r], tl->start[r], tl->end[r], exposed);
            ahead[r] = (struct ahead){exposed[EXPOSED_WEIGHTS], p->rank[r].arena, 0};
        }
    }
    mem_forget(p);
    scratch_end(scratch);
    return makespan;
}

static bool is_faster(double makespan, double than) { return makespan < than * (1 - 1e-9); }

struct program *lower_fastest(const struct spec *sp, const struct stage *st, const struct graph *graph,
                              const struct sched *sc) {
    struct program *p = lower(sp, st, graph, sc);
    if (sp->prefetch != SOLVED || sp->update || !fetches_weights(p)) /* versions leave little to choose */
        return p;
    struct fit fit = fit_weights(sp, st, graph, sc, p);
    struct spec with = *sp;
    struct ahead *ahead[2] = {NEW(struct ahead, sp->workers), NEW(struct ahead, sp->workers)};
    const int32_t *place = home_places(sp);
    struct weights_use *weights = NEW(struct weights_use, sp->workers);
    bool timed = links_take_time(sp), tried = timed || sp->has_cluster,
         several = fit.by_room || have_slots(fit.slots, sp->workers, 2);
    p = fit.by_room ? fit.by_room : fit.by_slots;
    double best = timed && several ? makespan_of(sp, st, p, NULL) : 0;
    if (timed && fit.by_room) {
        double makespan = makespan_of(sp, st, fit.by_slots, NULL);
        if (is_faster(makespan, best)) {
            best = makespan;
            p = fit.by_slots;
        }
    }
    for (int i = 0; i < 2 && tried; i++) {
        struct scratch scratch = scratch_begin(); /* it does not end where its program is the one */
        with.prefetch = i ? TWO_AHEAD : ONE_AHEAD;
        struct program *other = lower(&with, st, graph, sc);
        double makespan = makespan_of(&with, st, other, ahead[i]);
        if (timed && have_slots(fit.slots, sp->workers, i + 2) && is_faster(makespan, best)) { /* one ahead takes two */
            best = makespan;
            p = other;
        } else
            scratch_end(scratch);
    }
    for (int r = 0; r < sp->workers; r++)
        weights[r] =
            (struct weights_use){weights_received(sp, place, p, r), fit.bound[r], tried, {ahead[0][r], ahead[1][r]}};
    p->weights = weights;
    return p;
}
