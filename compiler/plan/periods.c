/* Chooses how much of a step is written out if its updates are jobs: all of it, or a prologue, one period, and an
 * epilogue (repetition.c).
 *
 * The script runs with more and more microbatches until its schedule repeats itself, then with as many as the program
 * needs. A period must be so long that no tensor outlives it, because each repetition reuses the tensor's place. The
 * step's end must also be far enough away that it does not affect the period, since the next uses of fetched weights
 * decide what is kept. */
#include "passes/period.h"
#include "plan.h"
#include "repetition.h"
#include <math.h>

enum {
    MOST_BEHIND = 2,           /* further periods written out after the first */
    MOST_JOBS = 1000000,       /* per program */
    MOST_TRIED = 8 * MOST_JOBS /* over all programs tried */
};

/* Returns a compile with `most` microbatches written out. */
static struct compile of_microbatches(const struct compile *c, int most) {
    struct compile with = compile_vary(c, SPEC);
    with.args.most = most;
    compile_until(&with, SCHED);
    return with;
}

static bool may_look_further(const struct compile *c) {
    return c->spec->batches < c->spec->updates.step && c->spec->njobs <= MOST_JOBS / 2;
}

/* Writes the whole step out, because no part of it is known to repeat. Dies if the step is too long for that. */
static void write_all_out(struct compile *c, const char *why) {
    if ((double)c->spec->njobs / c->spec->batches * (double)c->spec->updates.step > MOST_JOBS)
        die("%s: %s, and all %lld of a step are too many jobs to write out: give a rank that runs further and further "
            "ahead a cap, and let n, w and cost repeat after some number of microbatches",
            c->spec->file, why, (long long)c->spec->updates.step);
    if (c->spec->batches < c->spec->updates.step)
        *c = of_microbatches(c, (int)c->spec->updates.step);
    tried_add(c, "period", "all of the step", NAN, NULL);
    tried_ships(c, "all of the step");
}

/* A period: its first microbatch, its length, and the length of the schedule's shortest one. */
struct period {
    int first, length, shortest;
};

/* Compiles `microbatches` microbatches with the period. Returns whether no tensor outlives the period; if one does, c
 * stays as it is. */
static bool try_period(struct compile *c, struct period period, int microbatches, int64_t *tried) {
    const char *variation = format("%d microbatches; %d of them repeat", microbatches, period.length);
    struct scratch scratch = scratch_begin(); /* stays open if this program is chosen */
    struct tried *before = c->tried;
    struct compile with = of_microbatches(c, microbatches);
    *tried += with.spec->njobs;
    bool fits = with.spec->batches == microbatches &&
                set_period(with.costs, with.sched, period.first, period.length, period.shortest);
    if (fits) {
        compile_until(&with, TRIED_OFFLOADS | STREAMS);
        fits = period_fits(with.program);
    }
    if (fits)
        *c = with;
    else {
        scratch_end(scratch);
        c->tried = before;
    }
    tried_add(c, "period", variation, NAN, fits ? NULL : "some tensor outlives the period");
    if (fits)
        tried_ships(c, variation);
    return fits;
}

static const struct costs *ask(const struct compile *c, int microbatches, int later) {
    struct compile with = compile_vary(c, SPEC);
    with.args.most = microbatches;
    with.args.later = later;
    compile_until(&with, COSTS);
    return with.costs;
}

/* Returns whether the scripts give the same answers for later repetitions: the last repetition with everything after
 * it, and some earlier ones. No function needs to be periodic over all microbatches: a schedule may begin with a
 * synchronous part, say. */
static bool goes_on(const struct compile *c, int first, int shortest) {
    int64_t step = c->spec->updates.step, least = first + least_period(c->costs, c->sched, first, shortest) + 1;
    int64_t asked = least + ((step - least) % shortest + shortest) % shortest; /* a program has at least this many */
    struct scratch scratch = scratch_begin();
    const struct costs *costs = asked < step ? ask(c, (int)asked, 0) : NULL;
    bool same = true;
    for (int64_t repeats = (step - asked) / shortest; same && repeats > 0; repeats /= 2)
        same = same_jobs(costs, ask(c, (int)asked, (int)(repeats * shortest)), first);
    scratch_end(scratch);
    return same;
}

void search_periods(struct compile *c) {
    struct period period;
    int microbatches;
    int64_t tried = 0;
    if (!c->spec->updates.every)
        return;
    while (!find_period(c->costs, c->sched, &period.first, &period.shortest) ||
           !goes_on(c, period.first, period.shortest)) {
        if (c->spec->batches == c->spec->updates.step)
            return;
        if (!may_look_further(c)) {
            write_all_out(c, format("its first %d microbatches show no lasting period", c->spec->batches));
            return;
        }
        *c = of_microbatches(c, 2 * c->spec->batches);
    }
    period.length = least_period(c->costs, c->sched, period.first, period.shortest);
    for (; tried < MOST_TRIED; period.length += period.shortest) {
        while ((microbatches = written_out(c->costs, c->sched, period.first, period.length)) < 0 && may_look_further(c))
            *c = of_microbatches(c, 2 * c->spec->batches);
        if (microbatches < 0)
            break; /* the step is too short, or the search has become too long */
        for (int more = 0; more <= MOST_BEHIND && microbatches + more * period.length < c->spec->updates.step; more++)
            if (try_period(c, period, microbatches + more * period.length, &tried))
                return;
    }
    write_all_out(c, format("its schedule repeats after %d microbatches, but some tensor is kept longer and longer",
                            period.shortest));
}
