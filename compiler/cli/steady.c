/* How much of a step is written out, where its updates are jobs: all of it, or what leads to a period, the period, and
 * what follows it (passes/period.c).
 *
 * The script is asked about ever more microbatches until its schedule repeats itself; then about as many as the program
 * needs. A period must be so long that no tensor outlives it: its place is another's when the period comes again. And
 * the step's end must be so far that it changes nothing in the period: fetched weights are kept by their next uses. */
#include "compile.h"
#include "passes/period.h"

enum { MOST_BEHIND = 2 /* periods that are written out again behind it */ };
enum { FIRST_TRY = 64, MOST_TRIES = 256, MOST_JOBS = 1000000 };

static void schedule(struct compile *c, int most) {
    c->args.most = most;
    c->spec = script_load(&c->args);
    c->stage = cost_stages(c->spec);
    c->graph = graph_build(c->spec);
    c->sched = sched_run(c->spec, c->stage, c->graph);
}

void load_schedule(struct compile *c) {
    c->args.most = FIRST_TRY;
    c->spec = script_load(&c->args);
}

/* Twice as many microbatches. */
static void look_further(struct compile *c) {
    if (c->spec->njobs > MOST_JOBS)
        die("%s: the first %d of %lld microbatches show no period, and all of them are too many jobs to write out: a "
            "rank "
            "that runs ever further ahead needs a cap, and n, w and cost must come back to the same after some "
            "microbatches",
            c->spec->file, c->spec->batches, (long long)c->spec->step);
    schedule(c, 2 * c->spec->batches);
}

/* The program with a period of that many microbatches, if no tensor outlives it. */
static bool try_period(const struct compile *all, struct compile *c, int first, int length, int shortest,
                       int microbatches) {
    *c = *all;
    schedule(c, microbatches);
    return c->spec->batches == microbatches && set_period(c->spec, c->sched, first, length, shortest) &&
           period_fits(lower(c->spec, c->stage, c->graph, c->sched));
}

void find_steady_state(struct compile *c) {
    int first, shortest, microbatches;
    while (!find_period(c->spec, c->sched, &first, &shortest)) {
        if (c->spec->batches == c->spec->step)
            return;
        look_further(c);
    }
    int length = least_period(c->spec, c->sched, first, shortest);
    for (int tries = 0; tries < MOST_TRIES; tries++, length += shortest) {
        while ((microbatches = written_out(c->spec, c->sched, first, length)) < 0 && c->spec->batches < c->spec->step)
            look_further(c);
        if (microbatches < 0)
            return; /* the whole step is no longer than that */
        struct compile with;
        for (int more = 0; more <= MOST_BEHIND && microbatches + more * length < c->spec->step; more++)
            if (try_period(c, &with, first, length, shortest, microbatches + more * length)) {
                *c = with;
                return;
            }
    }
    die("%s: its schedule repeats itself after %d microbatches, but no program does: some tensor is kept for ever "
        "longer",
        c->spec->file, shortest);
}
