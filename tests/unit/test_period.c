/* Schedules that repeat themselves: their periods are found, and the programs with one period written out are proved
 * for any number of repetitions. */
#include "passes/lower.h"
#include "passes/period.h"
#include "plan/repetition.h"
#include "random_spec.h"
#include "verify/verify.h"
#include <criterion/criterion.h>

/* Repeats the base schedule, older microbatches first; or, if strict, in the base's order. */
static struct spec *tile(const struct spec *base, int64_t step, int batches) {
    struct costed *both = memcpy(NEW(struct costed, 1), base, sizeof *both);
    struct spec *sp = &both->spec;
    sp->batches = batches;
    sp->updates.step = step;
    sp->njobs = 0;
    int64_t cells = (int64_t)sp->stages * batches * NDIRS;
    sp->job = NEW(struct job, cells);
    sp->at = NEW(int32_t, cells);
    sp->updates.reads = NEW(int32_t, cells);
    for (int64_t i = 0; i < cells; i++) {
        int s = (int)(i / NDIRS / batches), b = (int)(i / NDIRS % batches), round = b / base->batches;
        int32_t j = job_at(base, s, b % base->batches, (int)(i % NDIRS));
        sp->at[i] = j < 0 ? -1 : sp->njobs;
        if (j < 0)
            continue;
        sp->updates.reads[sp->njobs] = base->updates.reads[j];
        sp->job[sp->njobs] = base->job[j];
        sp->job[sp->njobs].b = b;
        sp->job[sp->njobs++].prio += 1000.0 * round;
    }
    if (base->choices.offload)
        sp->choices.offload = NEW(uint8_t, (int64_t)sp->stages * batches);
    for (int i = 0; base->choices.offload && i < sp->stages * batches; i++)
        sp->choices.offload[i] = base->choices.offload[i / batches * base->batches + i % batches % base->batches];
    struct costs *costs = costs_of(sp);
    costs->update_at = NEW(int32_t, sp->stages + 1);
    costs->update_at[0] = sp->njobs;
    for (int s = 0; s < sp->stages; s++)
        costs->update_at[s + 1] = costs->update_at[s] + batches / sp->updates.every[s] * costs->homes[s].lists;
    costs->njobs = costs->update_at[sp->stages];
    return sp;
}

/* Repeats the base's updates, shifted. */
static void tile_updates(const struct spec *base, struct spec *sp) {
    struct costs *costs = costs_of(sp);
    struct job *job = NEW(struct job, costs->njobs);
    memcpy(job, sp->job, sizeof *job * (size_t)sp->njobs);
    for (int s = 0; s < sp->stages; s++)
        for (int32_t j = costs->update_at[s]; j < costs->update_at[s + 1]; j++) {
            int each = costs_of(base)->update_at[s + 1] - costs_of(base)->update_at[s], at = j - costs->update_at[s];
            job[j] = costs_of(base)->job[costs_of(base)->update_at[s] + at % each];
            job[j].b = at / costs->homes[s].lists;
            job[j].prio += 1000.0 * (at / each);
        }
    costs->job = job;
    take_job_costs(costs, NULL);
}

struct tiled {
    const struct spec *base;
    struct spec *sp;
    struct graph *g;
    struct sched *sc;
    int batches;
    int64_t step;
};

static void schedule(void *with) {
    struct tiled *x = with;
    x->sp = tile(x->base, x->step, x->batches);
    tile_updates(x->base, x->sp);
    x->g = graph_of(x->sp);
    x->sc = sched_of(x->sp, costs_of(x->sp), x->g);
}

/* Returns the planned program with a period, or NULL. */
static struct program *with_period(struct tiled *x) {
    int first, shortest, all = x->batches = 32 * x->base->batches;
    x->step = 1000 * (int64_t)x->base->batches;
    if (death_of(schedule, x) || !find_period(costs_of(x->sp), x->sc, &first, &shortest))
        return NULL;
    struct tiled followed = *x;
    for (int n = least_period(costs_of(x->sp), x->sc, first, shortest); n < all; n += shortest) {
        *x = followed;
        int batches = written_out(costs_of(x->sp), x->sc, first, n);
        for (x->batches = batches; batches > 0 && x->batches <= batches + 2 * n; x->batches += n) {
            schedule(x);
            if (!set_period(costs_of(x->sp), x->sc, first, n, shortest))
                continue;
            struct program *p = lower_of(x->sp, costs_of(x->sp), x->g, x->sc);
            if (!period_fits(p))
                continue;
            spare_of(x->sp, costs_of(x->sp), p);
            lanes_sync(p);
            return p;
        }
    }
    return NULL;
}

/* Returns how many have a period. */
static int prove(int first, int n, int flags) {
    int found = 0;
    for (int seed = first; seed < first + n; seed++) {
        struct scratch scratch = scratch_begin();
        struct spec *base = draw_spec((uint64_t)seed, flags);
        struct tiled x = {.base = base};
        draw_stages(base);
        if (draw_updates(base)) {
            struct program *p = with_period(&x);
            struct refutation *no = p ? verify(costs_of(x.sp), x.g, p, CLAIM_ALL) : NULL;
            cr_assert_null(no, "seed %d: %s", seed, no ? no->why : "");
            found += p != NULL;
        }
        scratch_end(scratch);
    }
    return found;
}

Test(period, at_home) { cr_expect(prove(1, 150, AT_HOME | CAPS) > 50); }
Test(period, anywhere) { cr_expect(prove(1000, 150, CAPS | LATENCY) > 30); }
Test(period, messages_that_take_time) { cr_expect(prove(2000, 150, CAPS | BANDWIDTH | COARSE) > 30); }
Test(period, host_memory) { cr_expect(prove(3000, 150, CAPS | HOST) > 30); }
