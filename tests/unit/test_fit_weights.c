/* Travelling weights in too little memory for the slots: the program fits and is proved. It receives at least the
 * bound, and at most what the slots that fit require. */
#include "passes/lower.h"
#include "random_spec.h"
#include "verify/verify.h"
#include <criterion/criterion.h>

struct drawn {
    struct spec *sp;
    struct costs *costs;
    struct graph *g;
    struct sched *sc;
};

static struct drawn drawn(int seed) {
    struct drawn x = {.sp = draw_spec((uint64_t)seed, SHARDED | (seed % 3 ? 0 : TIED) | (seed % 4 ? 0 : BANDWIDTH))};
    x.costs = seed % 5 ? draw_stages(x.sp) : unit_stages(x.sp);
    x.g = graph_of(x.sp);
    x.sc = sched_of(x.sp, x.costs, x.g);
    return x;
}

/* Returns the largest arena with `slots` slots on each rank. */
static int64_t arena_with(struct drawn x, int slots) {
    int64_t most = 0;
    int *was = x.sp->choices.slots;
    x.sp->choices.slots = NEW(int, x.sp->workers);
    for (int r = 0; r < x.sp->workers; r++)
        x.sp->choices.slots[r] = slots;
    struct program *p = lower_of(x.sp, x.costs, x.g, x.sc);
    mem_of(x.sp, p);
    for (int r = 0; r < p->workers; r++)
        most = p->rank[r].arena > most ? p->rank[r].arena : most;
    x.sp->choices.slots = was;
    return most;
}

static struct compile scheduled(const struct drawn *x) {
    struct compile c = parts_of(x->sp, x->costs, x->g, NULL);
    c.sched = x->sc;
    return c;
}

Test(fit_weights, within_memory) {
    int less = 0, tight = 0, proved = 0;
    for (int seed = 0; seed < 600; seed++) {
        struct drawn x = drawn(seed);
        for (int r = 0; r < x.sp->workers; r++)
            x.sp->choices.slots[r] = 8;
        int64_t all = arena_with(x, 8), none = arena_with(x, 0);
        x.sp->machine.memory = (double)(none + (all - none) * below(8) / 8);
        if (all > none) {
            struct compile fitted = scheduled(&x);
            search_room(&fitted);
            const struct fit *fit = fitted.fit;
            const int32_t *place = home_places(x.costs);
            bool by_slots = !fit || plan_least(fit->by_slots);
            cr_assert(!fit || !fit->by_room || plan_least(fit->by_room), "seed %d", seed);
            for (int r = 0; r < x.sp->workers && fit && fit->by_room; r++) {
                int64_t received = weights_received(x.costs, place, fit->by_room->program, r);
                int64_t others = weights_received(x.costs, place, fit->by_slots->program, r);
                cr_assert_geq(received, fit->bound[r], "seed %d, rank %d", seed, r);
                cr_assert(!by_slots || received <= others, "seed %d", seed);
                less += received < others;
                tight += received == fit->bound[r];
            }
        }
        struct compile c = scheduled(&x);
        compile_until(&c, TRIED_ROOM | TRIED_PREFETCH | TRIED_SPARE | WAITS); /* dies if the program does not fit */
        struct program *p = c.program;
        for (int r = 0; r < p->workers; r++)
            cr_assert_leq((double)p->rank[r].arena, x.sp->machine.memory);
        struct refutation *no = verify(costs_of(x.sp), x.g, p, CLAIM_ALL);
        cr_assert_null(no, "seed %d: %s", seed, no ? no->why : "");
        proved += all > none;
        free_all();
    }
    cr_assert(less > 40 && tight > 40 && proved > 200, "%d, %d, %d", less, tight, proved);
}
