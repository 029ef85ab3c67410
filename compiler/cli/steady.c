/* How much of a step is written out, where its updates are jobs: all of it, or what leads to a period, the period, and
 * what follows it (passes/period.c).
 *
 * The script is asked about ever more microbatches until its schedule repeats itself; then about as many as the program
 * needs. A period must be so long that no tensor outlives it: its place is another's when the period comes again. And
 * the step's end must be so far that it changes nothing in the period: fetched weights are kept by their next uses. */
#include "compile.h"
#include "passes/period.h"

enum {
    FIRST_TRY = 64,            /* microbatches */
    MOST_BEHIND = 2,           /* periods that are written out again behind it */
    MOST_JOBS = 1000000,       /* of a program */
    MOST_TRIED = 8 * MOST_JOBS /* of all programs that are tried */
};

static void schedule(struct compile *c, int most) {
    c->args.most = most;
    c->spec = script_load(&c->args);
    c->stage = cost_stages(c->spec);
    c->graph = graph_build(c->spec);
    c->sched = sched_run(c->spec, c->stage, c->graph);
}

void load_schedule(struct compile *c) {
    if (!c->args.text)
        c->args.text = NEW(struct script_text, 3);
    c->args.most = FIRST_TRY;
    c->spec = script_load(&c->args);
}

static bool may_look_further(const struct compile *c) {
    return c->spec->batches < c->spec->step && c->spec->njobs <= MOST_JOBS / 2;
}

/* Of a schedule that is not known to repeat itself, or of which no program does: all of the step, if it is not too long
 * for that. */
static void write_all_out(struct compile *c, const char *why) {
    if ((double)c->spec->njobs / c->spec->batches * (double)c->spec->step > MOST_JOBS)
        die("%s: %s, and all %lld of a step are too many jobs to write out: a rank that runs ever further ahead needs "
            "a cap, and n, w and cost must come back to the same after some microbatches",
            c->spec->file, why, (long long)c->spec->step);
    if (c->spec->batches < c->spec->step)
        schedule(c, (int)c->spec->step);
}

/* The program with a period of that many microbatches, if no tensor outlives it; else c stays as it is. */
static bool try_period(struct compile *c, int first, int length, int shortest, int microbatches, int64_t *tried) {
    struct scratch scratch = scratch_begin(); /* it does not end where its program is the one */
    struct compile with = *c;
    schedule(&with, microbatches);
    *tried += with.spec->njobs;
    bool marked = with.spec->batches == microbatches && set_period(with.spec, with.sched, first, length, shortest);
    if (marked)
        choose_offloads(with.spec, with.stage, with.graph, with.sched);
    if (marked && period_fits(lower(with.spec, with.stage, with.graph, with.sched))) {
        *c = with;
        return true;
    }
    scratch_end(scratch);
    return false;
}

static struct spec *ask(const struct compile *c, int microbatches, int later) {
    struct script_args args = c->args;
    args.most = microbatches;
    args.later = later;
    struct spec *sp = script_load(&args);
    cost_stages(sp);
    return sp;
}

/* Whether the scripts say the same of later repetitions: of the last one and all that is behind it, and of some before.
 * None of their functions need come back to the same for ever: a schedule may begin with a synchronous part, say. */
static bool goes_on(const struct compile *c, int first, int shortest) {
    int64_t step = c->spec->step, least = first + least_period(c->spec, c->sched, first, shortest) + 1;
    int64_t asked = least + ((step - least) % shortest + shortest) % shortest; /* a program has at least as many */
    struct scratch scratch = scratch_begin();
    const struct spec *sp = asked < step ? ask(c, (int)asked, 0) : NULL;
    bool same = true;
    for (int64_t repeats = (step - asked) / shortest; same && repeats > 0; repeats /= 2)
        same = same_jobs(sp, ask(c, (int)asked, (int)(repeats * shortest)), first);
    scratch_end(scratch);
    return same;
}

void find_steady_state(struct compile *c) {
    int first, shortest, microbatches;
    int64_t tried = 0;
    while (!find_period(c->spec, c->sched, &first, &shortest) || !goes_on(c, first, shortest)) {
        if (c->spec->batches == c->spec->step)
            return;
        if (!may_look_further(c)) {
            write_all_out(c, format("its first %d microbatches show no period that lasts", c->spec->batches));
            return;
        }
        schedule(c, 2 * c->spec->batches);
    }
    for (int length = least_period(c->spec, c->sched, first, shortest); tried < MOST_TRIED; length += shortest) {
        while ((microbatches = written_out(c->spec, c->sched, first, length)) < 0 && may_look_further(c))
            schedule(c, 2 * c->spec->batches);
        if (microbatches < 0)
            break; /* the step is no longer than that, or it takes too much */
        for (int more = 0; more <= MOST_BEHIND && microbatches + more * length < c->spec->step; more++)
            if (try_period(c, first, length, shortest, microbatches + more * length, &tried))
                return;
    }
    write_all_out(c, format("its schedule comes back to the same after %d microbatches, but some tensor is kept for "
                            "ever longer",
                            shortest));
}
