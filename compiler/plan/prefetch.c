/* Chooses the fastest plan of gathered and fetched weights.
 *
 * Belady's rule gives the fewest transfers, but a slot that is kept cannot receive the next weights meanwhile. So with
 * a cluster, plans with a fixed prefetch are compiled and simulated too. If links take time, the fastest plan that fits
 * into memory and into every rank's slots becomes the program. Ties go to the plan that keeps the most. The costs of
 * fixed prefetches are reported per rank. */
#include "passes/lower.h"
#include "plan.h"
#include <math.h>

enum plan { BY_ROOM, BY_SLOTS, AHEAD_1, AHEAD_2, NPLANS };
static const char *const plan_name[NPLANS] = {"as many as fit", "one per slot", "each one job ahead",
                                              "each two jobs ahead"};

static bool links_take_time(const struct spec *sp) {
    for (int64_t i = 0; sp->machine.link && i < (int64_t)sp->workers * sp->workers; i++)
        if (sp->machine.link[i].latency > 0 || !isinf(sp->machine.link[i].bandwidth))
            return true;
    return false;
}

/* Returns whether each rank has the slots that a plan needs: prefetching one ahead needs two. */
static bool have_slots(const struct compile *c, enum plan plan) {
    for (int r = 0; r < c->spec->workers; r++)
        if (plan >= AHEAD_1 && c->fit->slots[r] < (plan == AHEAD_1 ? 2 : 3))
            return false;
    return true;
}

struct compile vary_prefetch(const struct compile *c, enum prefetch prefetch) {
    struct compile with = compile_vary(c, TRIED_ROOM);
    with.choices = c->spec->choices;
    with.choices.offload = c->choices.offload;
    with.choices.prefetch = prefetch;
    return with;
}

static struct compile with_plan(const struct compile *c, enum plan plan) {
    if (plan <= BY_SLOTS)
        return plan == BY_ROOM ? *c->fit->by_room : *c->fit->by_slots;
    return vary_prefetch(c, plan == AHEAD_1 ? ONE_AHEAD : TWO_AHEAD);
}

/* Compiles until the times are known, and returns the makespan. Returns INFINITY if the program exceeds the memory even
 * with bytes reused as early as possible. ahead: if not NULL, receives each rank's memory and waiting time. */
static double time_plan(struct compile *with, struct ahead *ahead) {
    compile_until(with, STREAMS);
    struct scratch scratch = scratch_begin();
    double makespan = INFINITY;
    bool fits = plan_least(with);
    int workers = with->program->workers;
    for (int r = 0; ahead && r < workers; r++)
        ahead[r] = (struct ahead){NAN, with->program->rank[r].arena, beyond_memory(with, r)};
    if (fits) {
        compile_forget(with, OFFSETS);
        compile_until(with, TRIED_SPARE | TIMES);
        makespan = with->timeline->makespan;
        for (int r = 0; ahead && r < workers; r++) {
            const struct rank *k = &with->program->rank[r];
            double exposed[NEXPOSED] = {0};
            exposed_waits(k, with->timeline->start[r], with->timeline->end[r], exposed);
            ahead[r] = (struct ahead){exposed[EXPOSED_WEIGHTS], k->arena, 0};
        }
    }
    unplan(with);
    scratch_end(scratch);
    return makespan;
}

static struct weights_use *uses_of_weights(const struct compile *c, struct ahead *const ahead[2], bool tried) {
    const int32_t *place = home_places(c->costs);
    struct weights_use *use = NEW(struct weights_use, c->spec->workers);
    for (int r = 0; r < c->spec->workers; r++)
        use[r] = (struct weights_use){
            weights_received(c->costs, place, c->program, r), c->fit->bound[r], tried, {ahead[0][r], ahead[1][r]}};
    return use;
}

void search_prefetch(struct compile *c) {
    if (!c->fit)
        return;
    int workers = c->spec->workers;
    struct ahead *ahead[2] = {NEW(struct ahead, workers), NEW(struct ahead, workers)};
    bool timed = links_take_time(c->spec), tried = timed || c->spec->machine.has_cluster;
    bool rivals = timed && (c->fit->by_room || have_slots(c, AHEAD_1));
    enum plan ships = c->fit->by_room ? BY_ROOM : BY_SLOTS;
    struct compile best = with_plan(c, ships);
    double least = INFINITY;
    best.tried = c->tried;
    best.fit = c->fit;
    for (enum plan plan = ships; plan < NPLANS && tried; plan++) {
        bool kept = plan <= BY_SLOTS;
        if (kept && !rivals)
            continue;                             /* ships without a rival, so its time does not matter */
        struct scratch scratch = scratch_begin(); /* stays open if this program is the best */
        struct compile with = with_plan(c, plan);
        struct tried *before = best.tried;
        double makespan = time_plan(&with, kept ? NULL : ahead[plan - AHEAD_1]);
        bool may = timed && have_slots(c, plan), better = may && makespan < least * (1 - 1e-9);
        if (better) {
            least = makespan;
            ships = plan;
            best = with;
            best.fit = c->fit;
            best.tried = before;
        } else if (!kept)
            scratch_end(scratch);
        tried_add(&best, "prefetch", plan_name[plan], makespan,
                  isinf(makespan) ? "does not fit"
                  : !timed        ? "gains nothing: links take no time"
                  : !may          ? "needs more slots than there are"
                                  : NULL);
    }
    *c = best;
    if (rivals)
        tried_ships(c, plan_name[ships]);
    c->program->traffic.use = uses_of_weights(c, ahead, tried);
}
