/* Which plan of gathered and fetched weights is the fastest.
 *
 * Keeping weights by Belady's rule gives the fewest transfers, but a slot that is kept cannot receive the next weights
 * meanwhile. So where links take time, the plans with a fixed prefetch that fit into every rank's slots are lowered and
 * simulated too, and the program is the fastest of them that fits into memory; of equally fast ones, Belady's.
 *
 * weight_slots is the most that a rank may keep. Where the cluster's memory is too small for that, it keeps as many as
 * fit, by bisection. */
#include "passes.h"
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

static bool have_slots(const struct spec *sp, int slots) {
    for (int r = 0; r < sp->workers; r++)
        if (sp->slots[r] < slots)
            return false;
    return true;
}

/* The program's makespan; infinite if it needs more memory than there is even where bytes are reused at once. */
static double makespan_of(const struct spec *sp, const struct stage *st, struct program *p) {
    struct spec free = *sp;
    free.memory = INFINITY;
    mem_plan(&free, p);
    for (int r = 0; r < p->workers; r++)
        if ((double)p->rank[r].arena > sp->memory)
            return INFINITY;
    if (!sp->least_memory)
        mem_plan_spare(sp, st, p);
    lanes_sync(p);
    return sim_run(sp, st, p)->makespan;
}

/* Per rank: whether the program, with bytes reused as early as the schedule allows, fits into memory. */
static void find_fits(const struct spec *sp, const struct stage *st, const struct graph *graph, const struct sched *sc,
                      bool *fits) {
    struct scratch scratch = scratch_begin();
    struct spec free = *sp;
    free.memory = INFINITY;
    struct program *p = lower(&free, st, graph, sc);
    mem_plan(&free, p);
    for (int r = 0; r < sp->workers; r++)
        fits[r] = (double)p->rank[r].arena <= sp->memory;
    scratch_end(scratch);
}

/* The most slots with which each rank fits into memory; 0 if none does. */
static int *slots_that_fit(const struct spec *sp, const struct stage *st, const struct graph *graph,
                           const struct sched *sc) {
    int *slots = NEW(int, sp->workers), *least = NEW(int, sp->workers), *most = NEW(int, sp->workers);
    bool *fits = NEW(bool, sp->workers), open = true;
    struct spec with = *sp;
    with.slots = slots;
    for (int r = 0; r < sp->workers; r++) {
        least[r] = -1;
        most[r] = slots[r] = sp->slots[r] < sp->stages + 1 ? sp->slots[r] : sp->stages + 1;
    }
    while (open) {
        find_fits(&with, st, graph, sc, fits);
        open = false;
        for (int r = 0; r < sp->workers; r++) {
            if (fits[r])
                least[r] = slots[r];
            else
                most[r] = slots[r] - 1;
            slots[r] =
                most[r] <= least[r] || most[r] <= 0 ? (least[r] > 0 ? least[r] : 0) : (least[r] + most[r] + 1) / 2;
            open |= least[r] < most[r] && most[r] > 0;
        }
    }
    return slots;
}

struct program *lower_fastest(const struct spec *sp, const struct stage *st, const struct graph *graph,
                              const struct sched *sc) {
    struct spec with = *sp;
    double best = INFINITY;
    enum prefetch fastest = SOLVED;
    struct program *p = lower(sp, st, graph, sc);
    if (sp->prefetch != SOLVED || !fetches_weights(p))
        return p;
    if (!isinf(sp->memory)) {
        with.slots = slots_that_fit(sp, st, graph, sc);
        if (memcmp(with.slots, sp->slots, sizeof *sp->slots * (size_t)sp->workers) != 0)
            p = lower(&with, st, graph, sc);
    }
    if (!links_take_time(sp) || !have_slots(&with, 2))
        return p;
    for (int i = SOLVED; i <= TWO_AHEAD; i++) { /* one ahead takes two slots */
        if (i == JUST_IN_TIME || (i != SOLVED && !have_slots(&with, i - JUST_IN_TIME + 1)))
            continue;
        struct scratch scratch = scratch_begin();
        with.prefetch = (enum prefetch)i;
        double makespan = makespan_of(&with, st, lower(&with, st, graph, sc));
        if (makespan < best * (1 - 1e-9)) {
            best = makespan;
            fastest = (enum prefetch)i;
        }
        scratch_end(scratch);
    }
    with.prefetch = fastest;
    return fastest == SOLVED ? p : lower(&with, st, graph, sc);
}
