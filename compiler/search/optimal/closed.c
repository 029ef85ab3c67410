/* Tries rules and patterns. Each is written as a script, run and scheduled, also with more microbatches. */
#include "closed.h"
#include "memory.h"
#include "optimal.h"
#include "passes/passes.h"
#include "script/scripts.h"
#include <math.h>
#include <string.h>

enum { LONGEST_PERIOD = 4, MOST_CUTS = 16, MOST_SHIFTS = 8, MOST_OTHER = 200000 };
enum { ROUNDS = 120 }; /* microbatches: a multiple of the number after which a schedule in its steady state repeats */
static const double NEARLY = 1e-9; /* relative: makespans that differ by less count as equal */

/* Returns the arguments with another number of microbatches. */
static struct script_args with_batches(const struct script_args *args, int batches) {
    struct script_args with = *args;
    with.set = NEW(const char *, args->nset + 1);
    with.nset = 0;
    for (int i = 0; i < args->nset; i++)
        if (!sets_key(args->set[i], "batches"))
            with.set[with.nset++] = args->set[i];
    with.set[with.nset++] = format("batches=%d", batches);
    with.used = NEW(bool, with.nset);
    return with;
}

/* ---- trials ---- */

struct trial {
    struct compile c;
    int goal;
};

static void run_trial(void *context) {
    struct trial *trial = context;
    compile_until(&trial->c, trial->goal);
}

/* Compiles up to the goal. Returns false if the script fails, or if it deadlocks when it is scheduled. */
static bool try_script(const struct script_args *args, int goal, struct trial *trial) {
    *trial = (struct trial){{.args = *args}, goal};
    return try(run_trial, trial);
}

/* Returns the arguments with this text as the schedule. */
static struct script_args with_body(const struct script_args *args, const struct text *body, int batches) {
    struct script_args with = with_batches(args, batches);
    with.schedule = "closed.lua";
    with.text = NEW(struct script_text, 3);
    memcpy(with.text, args->text, 3 * sizeof *with.text);
    with.text[0] = (struct script_text){body->s, body->n};
    return with;
}

/* Returns the makespan; INFINITY: it does not run, or needs more than the cluster's memory, if bytes are limited. */
static double makespan_of(const struct script_args *args, const struct text *body, int batches, bool bytes) {
    struct scratch scratch = scratch_begin();
    struct script_args with = with_body(args, body, batches);
    struct trial trial;
    double makespan = try_script(&with, SCHED, &trial) ? trial.c.sched->makespan : INFINITY;
    if (bytes && isfinite(makespan)) {
        struct lists lists = {trial.c.sched->order, trial.c.sched->norder};
        makespan = excess_of_plan(&trial.c, lists) > 0 ? INFINITY : makespan;
    }
    scratch_end(scratch);
    return makespan;
}

/* ---- the best of them ---- */

struct closing {
    const struct script_args *args;
    const struct costs *costs;
    const struct instance *in;
    enum aim aim;
    double target, growth; /* makespan allowed; lower bound on the time of each further microbatch */
    double later[HOLDS];   /* makespans of the best so far, with more microbatches */
    struct closed best;
};

/* Returns a larger number of microbatches: twice and four times as many; for AIM_PERIOD, enough for the steady state,
 * then whole rounds more. */
static int more_batches(const struct closing *closing, int i) {
    int batches = closing->costs->spec->batches;
    return closing->aim == AIM_PERIOD ? 8 * batches + i * ROUNDS : batches << (i + 1);
}

/* Returns the time of each microbatch between the two larger numbers. */
static double growth_of(const struct closing *closing, const double *later) {
    double more = more_batches(closing, 1) - more_batches(closing, 0);
    return isfinite(later[0]) && isfinite(later[1]) ? (later[1] - later[0]) / more : INFINITY;
}

static double score_of(const struct closing *closing, const double *later) {
    return closing->aim == AIM_PERIOD ? growth_of(closing, later) : later[0] + later[1];
}

static bool nothing_better(const struct closing *closing) {
    const double *later = closing->later;
    double first = closing->aim == AIM_PERIOD ? 0 : later[0] - closing->target, bound = closing->growth * (1 + NEARLY);
    return closing->best.kind && first <= bound * closing->costs->spec->batches && growth_of(closing, later) <= bound;
}

static void consider_form(struct closing *closing, const char *kind, struct text *body) {
    double makespan = makespan_of(closing->args, body, closing->costs->spec->batches, closing->in->bytes), later[HOLDS];
    if (!(makespan <= closing->target * (1 + NEARLY)))
        return;
    for (int i = 0; i < HOLDS; i++)
        later[i] = makespan_of(closing->args, body, more_batches(closing, i), closing->in->bytes);
    if (closing->aim == AIM_PERIOD && isinf(growth_of(closing, later)))
        return;
    if (closing->best.kind && !(score_of(closing, later) < score_of(closing, closing->later) * (1 - NEARLY)))
        return;
    closing->best.kind = kind;
    closing->best.body = *body;
    closing->best.makespan = makespan;
    memcpy(closing->later, later, sizeof later);
}

static void try_rules(struct closing *closing, struct lists lists) {
    struct rules rules = rules_for(closing->costs->spec, lists, closing->in->bytes);
    for (size_t i = 0; i < rules.n && !nothing_better(closing); i++) {
        struct text body = {0};
        emit_rule(&body, closing->costs, &rules.rule[i]);
        consider_form(closing, "n", &body);
    }
}

/* ---- patterns ---- */

struct origin { /* an order, for its spec's number of microbatches, that may contain a pattern */
    const struct costs *costs;
    struct lists lists;
    const int64_t *start;
};

static void try_pattern(struct closing *closing, const struct costs *costs, struct lists lists, int period) {
    struct text body = {0};
    if (emit_pattern(&body, costs, lists, period, closing->costs->spec->batches))
        consider_form(closing, "pattern", &body);
}

/* Lists how much later jobs of the microbatch after the cut start than one period before, each difference once. */
static int find_lateness(const struct spec *sp, const int64_t *start, int cut, int period, int64_t *shift) {
    int n = 0;
    for (int s = 0; s < sp->stages; s++)
        for (int d = 0; d < NDIRS; d++) {
            int32_t j = job_at(sp, s, cut + 1, d);
            int64_t by = j < 0 ? 0 : start[j] - start[job_at(sp, s, cut + 1 - period, d)];
            bool known = by <= 0 || n == MOST_SHIFTS;
            for (int i = 0; i < n && !known; i++)
                known = shift[i] == by;
            if (!known)
                shift[n++] = by;
        }
    return n;
}

/* Returns the spec of the same jobs with more microbatches. */
static const struct costs *longer_costs(const struct closing *closing, const struct costs *costs) {
    struct text body = {0};
    struct trial trial;
    emit_rule(&body, costs, &(struct rule){"backward_first", false, costs->spec->limits.cap});
    struct script_args with = with_body(closing->args, &body, 5 * costs->spec->batches);
    return try_script(&with, COSTS, &trial) ? trial.c.costs : NULL;
}

/* Cuts the order open after a microbatch, and inserts repetitions of the microbatches before the cut. */
static void try_stretched(struct closing *closing, const struct origin *origin, int period) {
    const struct spec *sp = origin->costs->spec;
    const struct costs *longer = longer_costs(closing, origin->costs);
    int step = (sp->batches + MOST_CUTS - 1) / MOST_CUTS;
    if (!longer || 4 * sp->batches % period)
        return;
    for (int cut = period - 1; cut < sp->batches - 1; cut += step) {
        int64_t shift[MOST_SHIFTS];
        int n = find_lateness(sp, origin->start, cut, period, shift);
        for (int i = 0; i < n && !nothing_better(closing); i++)
            try_pattern(closing, longer, stretched(sp, longer->spec, origin->start, cut, period, shift[i]), period);
    }
}

static void try_patterns(struct closing *closing, const struct origin *origin) {
    for (int period = 1; period <= LONGEST_PERIOD && 2 * period <= closing->costs->spec->batches; period++) {
        if (!nothing_better(closing))
            try_pattern(closing, origin->costs, origin->lists, period);
        if (!nothing_better(closing))
            try_stretched(closing, origin, period);
    }
}

/* ---- with more microbatches ---- */

/* Tries other orders that take as long, found by narrow beam searches. */
static void try_others(struct closing *closing, const struct instance *in, const struct graph *graph,
                       int64_t makespan) {
    static const int beams[] = {1, 4, 16, 64, 256, 1024};
    for (size_t i = 0; i < sizeof beams / sizeof *beams && !nothing_better(closing); i++) {
        struct found found = search(in, makespan + 1, (struct effort){beams[i], MOST_OTHER, 0});
        if (found.visited.best < 0)
            continue;
        const int64_t *start = starts_of(in, &found, graph);
        try_patterns(closing, &(struct origin){closing->costs, lists_by_start(closing->costs->spec, start), start});
    }
}

/* Searches for the best order of hold->batches microbatches, by the original script. Returns an order that takes less
 * than the written one, if there is one. */
static struct origin find_best(struct hold *hold, const struct closing *closing, int64_t states, double until) {
    struct script_args with = with_batches(closing->args, hold->batches);
    struct trial trial;
    if (!try_script(&with, COSTS, &trial) || trial.c.spec->batches != hold->batches)
        return (struct origin){0};
    compile_until(&trial.c, GRAPH);
    const struct instance *in = instance_in_bytes(&trial.c, closing->in->bytes);
    double ticks = hold->makespan / in->tick;
    int64_t own = isinf(ticks) ? serial_time(in) + 1 : in->rounded ? (int64_t)ceil(ticks) : llround(ticks);
    struct optimum best = find_optimum(in, trial.c.graph, own, states, until);
    hold->lower = (double)best.lower * in->tick;
    hold->best = hold->makespan;
    double takes = best.start ? time_of_order(&trial.c, best.start) : INFINITY;
    if (!(takes < hold->makespan))
        return (struct origin){0};
    struct origin better = {trial.c.costs, lists_by_start(trial.c.spec, best.start), best.start};
    if (in->bytes && excess_of_plan(&trial.c, better.lists) > 0)
        return (struct origin){0};
    hold->best = takes;
    return better;
}

/* Searches with more microbatches, since a better order of these may contain a pattern that also suits fewer. */
static void hold_with_more(struct closing *closing, int64_t states, double until) {
    struct closed *best = &closing->best;
    for (int i = 0; i < HOLDS; i++) {
        struct hold *hold = &best->hold[best->nholds++];
        *hold = (struct hold){more_batches(closing, i), closing->later[i], NAN, NAN};
        struct origin better = find_best(hold, closing, states, until);
        if (i == 0 && better.costs)
            try_patterns(closing, &better);
        hold->makespan = closing->later[i];
    }
}

/* Tries an order of twice as many microbatches, which may show a period that the shorter one does not. */
static void try_longer(struct closing *closing, int64_t states, double until) {
    struct hold hold = {2 * closing->costs->spec->batches, INFINITY, NAN, NAN};
    struct origin longer = nothing_better(closing) ? (struct origin){0} : find_best(&hold, closing, states, until);
    if (longer.costs)
        try_patterns(closing, &longer);
}

static int64_t last_end(const struct instance *in, const int64_t *start, int32_t n) {
    int64_t end = 0;
    for (int32_t j = 0; j < n; j++) {
        int64_t ends = start[j] + in->class[in->class_of[j]].time;
        end = ends > end ? ends : end;
    }
    return end;
}

struct closed find_closed(const struct compile *c, struct lists lists, const int64_t *start, const struct instance *in,
                          enum aim aim, int64_t states, double until) {
    const struct spec *sp = c->spec;
    struct steady bound = steady_bound(in, sp->batches);
    double least = aim == AIM_PERIOD ? fmax(bound.work, bound.memory) : bound.work;
    struct closing closing = {
        .args = &c->args, .costs = c->costs, .in = in, .aim = aim, .target = INFINITY, .growth = least * in->tick};
    struct text sequence = {0};
    emit_sequence(&sequence, c->costs, lists);
    double makespan = makespan_of(&c->args, &sequence, sp->batches, in->bytes);
    if (aim == AIM_MAKESPAN)
        closing.target = makespan;
    if (isinf(makespan)) /* the memory of the smallest plan does not suffice */
        return (struct closed){.body = sequence, .makespan = makespan, .period = INFINITY};
    if (can_scale(c->costs)) {
        try_rules(&closing, lists);
        try_patterns(&closing, &(struct origin){c->costs, lists, start});
        try_others(&closing, in, c->graph, last_end(in, start, sp->njobs));
    }
    if (can_scale(c->costs) && aim == AIM_PERIOD)
        try_longer(&closing, states, until);
    if (!closing.best.kind)
        return (struct closed){.body = sequence, .makespan = makespan, .period = INFINITY};
    closing.best.period = growth_of(&closing, closing.later);
    if (aim == AIM_MAKESPAN)
        hold_with_more(&closing, states, until);
    return closing.best;
}
