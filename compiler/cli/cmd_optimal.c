/* `pianola optimal`: the best order of a script's jobs, with a certificate. */
#include "base/put_json.h"
#include "command.h"
#include "compile.h"
#include "files.h"
#include "optimal/closed.h"
#include "optimal/optimal.h"
#include "verify/bound.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { SEARCHED = 4000000, SEARCHED_LATER = 200000 }; /* of one search, without --time; with more microbatches */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The command that says what the certificate is of. */
static const char *command_line(const struct settings *settings) {
    struct text t = {0};
    put(&t, "%s", settings->args.schedule);
    for (int i = 0; i < settings->args.nset; i++)
        put(&t, " -D %s", settings->args.set[i]);
    if (settings->args.model)
        put(&t, " --model %s", settings->args.model);
    if (settings->args.cluster)
        put(&t, " --cluster %s", settings->args.cluster);
    return tame(t.s);
}

/* FILE.lua's is FILE.bound. */
static const char *certificate_of(const char *script) {
    size_t n = strlen(script);
    bool lua = n > 4 && !strcmp(script + n - 4, ".lua");
    return format("%.*s.bound", (int)(lua ? n - 4 : n), script);
}

static const char *how(const struct instance *in, const struct optimum *best) {
    return best->proof == PROOF_COVER ? format("no order of any of %d states leads to less", covering_states(in, best))
                                      : "a rank's work, and what must come before and after it, takes as long";
}

/* Whether the checker, which knows nothing of the search, accepts the certificate. */
static bool is_accepted(const char *certificate) {
    const char *by;
    return check_bound(read_bound("certificate", certificate), &by) == NULL;
}

struct figures {
    double makespan, lower, seconds;
    bool optimal;
    int states;
};

/* Above 0: no order takes less with so many microbatches; below 0: another one does; 0: that is not known. */
static int stays_optimal(const struct hold *hold) {
    double least = hold->makespan * (1 - 1e-9);
    return hold->lower >= least ? 1 : hold->best < least ? -1 : 0;
}

/* What the written script consists of. */
static const char *form(const struct closed *closed) {
    return !closed->kind                ? "a sequence: no rule that we know gives this order, and it repeats nothing"
           : !strcmp(closed->kind, "n") ? "as an n, for any number of microbatches"
                                        : "as a pattern, for any number of microbatches";
}

/* A line for each other number of microbatches. */
static const char *holds(const struct closed *closed, const char *before) {
    struct text t = {0};
    char a[32], b[32];
    put(&t, "%s", "");
    for (int i = 0; i < closed->nholds; i++) {
        const struct hold *hold = &closed->hold[i];
        put(&t, "%s%d microbatches: ", before, hold->batches);
        if (isinf(hold->makespan)) {
            put_word(&t, "it does not run\n");
            continue;
        }
        put(&t, "%s, ", number(hold->makespan, a));
        if (stays_optimal(hold) > 0)
            put_word(&t, "optimal\n");
        else if (stays_optimal(hold) < 0)
            put(&t, "not optimal: %s is possible\n", number(hold->best, b));
        else if (isnan(hold->lower))
            put_word(&t, "and the script cannot be asked for so many\n");
        else
            put(&t, "and no order takes less than %s\n", number(hold->lower, b));
    }
    return t.s;
}

/* `"rule": "n", "holds": [...]`: how the written script does with more microbatches. */
static void put_closed_json(struct text *t, const struct closed *closed) {
    char a[32], b[32], c[32];
    put(t, ", \"rule\": %s, \"holds\": [", closed->kind ? quoted(closed->kind) : "null");
    for (int i = 0; i < closed->nholds; i++) {
        const struct hold *hold = &closed->hold[i];
        put(t, "%s{\"batches\": %d, \"makespan\": %s, \"best\": %s, \"lower_bound\": %s, \"optimal\": %s}",
            i ? ", " : "", hold->batches, isinf(hold->makespan) ? "null" : number(hold->makespan, a),
            isfinite(hold->best) ? number(hold->best, b) : "null", isnan(hold->lower) ? "null" : number(hold->lower, c),
            stays_optimal(hold) > 0   ? "true"
            : stays_optimal(hold) < 0 ? "false"
                                      : "null");
    }
    put_word(t, "]");
}

static void put_json(struct text *t, const struct settings *settings, const struct compile *c,
                     const struct optimum *best, const struct closed *closed, const struct figures *figures) {
    char a[32], b[32], d[32];
    put(t, "{\"schema\": 1, \"schedule\": %s", quoted(c->spec->name));
    if (settings->output)
        put_closed_json(t, closed);
    put(t, ", \"makespan\": %s, \"own\": %s, \"lower_bound\": %s, ", number(figures->makespan, a),
        c->sched ? number(c->sched->makespan, b) : "null", number(figures->lower, d));
    put(t, "\"optimal\": %s, \"proof\": \"%s\", \"states\": %d, \"seconds\": %s", figures->optimal ? "true" : "false",
        best->proof == PROOF_COVER ? "cover" : "work", figures->states, format("%.3f", figures->seconds));
    if (settings->output)
        put(t, ", \"script\": %s, \"certificate\": %s", quoted(settings->output),
            quoted(certificate_of(settings->output)));
    put_word(t, "}\n");
}

static void put_result(struct text *t, const struct settings *settings, const struct compile *c,
                       const struct instance *in, const struct optimum *best, const struct closed *closed,
                       bool accepted, double seconds) {
    char a[32], b[32];
    struct figures figures = {
        .makespan = best->start ? time_of_order(c->spec, c->stage, c->graph, best->start) : c->sched->makespan,
        .lower = (double)best->lower * in->tick,
        .seconds = seconds,
        .optimal = accepted && best->lower >= best->makespan && !in->rounded,
        .states = covering_states(in, best),
    };
    if (settings->json) {
        put_json(t, settings, c, best, closed, &figures);
        return;
    }
    put(t, "%s: %s %s; the script's own order %s\n", c->spec->name, number(figures.makespan, a),
        figures.optimal ? "is optimal" : "is the best known",
        c->sched ? format("takes %s", number(c->sched->makespan, b)) : "comes to a deadlock");
    put(t, "no order takes less than %s: %s\n", number(figures.lower, a), how(in, best));
    if (!figures.optimal)
        put(t, "between them are %.3g %%%s\n", 100 * (figures.makespan - figures.lower) / figures.makespan,
            in->rounded ? "; times were rounded down to a thousandth of the longest job for the bound" : "");
    if (settings->output)
        put(t, "wrote %s, %s, and the certificate to %s\n%s", settings->output, form(closed),
            certificate_of(settings->output), holds(closed, ""));
}

/* The rule, the pattern or the sequence for the order found. */
static struct closed close_up(const struct settings *settings, const struct compile *c, const struct instance *in,
                              const struct optimum *best, enum aim aim) {
    double until = settings->seconds > 0 ? now() + settings->seconds : 0;
    int64_t *start = best->start ? best->start : NEW(int64_t, c->spec->njobs);
    for (int32_t j = 0; j < c->spec->njobs && !best->start; j++)
        start[j] = llround(c->sched->start[j] / in->tick);
    struct lists lists =
        best->start ? lists_by_start(c->spec, start) : (struct lists){c->sched->order, c->sched->norder};
    return find_closed(&c->args, c->spec, lists, start, in, c->graph, aim, SEARCHED_LATER, until);
}

static void write_script(const struct settings *settings, const struct closed *closed, const char *notes) {
    struct text script = {0};
    put_word(&script, notes);
    put_bytes(&script, closed->body.s, closed->body.n);
    stage_file(settings->output, &script, false);
}

static struct closed write_results(const struct settings *settings, const struct compile *c, const struct instance *in,
                                   const struct optimum *best, const struct text *certificate) {
    struct closed closed = close_up(settings, c, in, best, AIM_MAKESPAN);
    char a[32], b[32];
    write_script(settings, &closed,
                 format("-- The best order of the jobs of %s: %s, and no order takes less than %s.\n"
                        "-- The proof is %s, which `pianola check-bound` checks.\n%s",
                        command_line(settings), number(closed.makespan, a), number((double)best->lower * in->tick, b),
                        tame(certificate_of(settings->output)), holds(&closed, "-- ")));
    stage_file(certificate_of(settings->output), certificate, false);
    place_files();
    return closed;
}

/* ---- what each further microbatch takes ---- */

static void put_period(struct text *t, const struct settings *settings, const struct compile *c,
                       const struct closed *closed, double lower, const char *proof) {
    char a[32], b[32];
    bool known = isfinite(closed->period), optimal = known && closed->period <= lower * (1 + 1e-9);
    if (settings->json) {
        put(t, "{\"schema\": 1, \"schedule\": %s, \"objective\": \"period\", \"period\": %s, ", quoted(c->spec->name),
            known ? number(closed->period, a) : "null");
        put(t, "\"lower_bound\": %s, \"optimal\": %s, \"proof\": \"%s\", \"rule\": %s}\n", number(lower, b),
            optimal ? "true" : "false", proof, closed->kind ? quoted(closed->kind) : "null");
        return;
    }
    if (known)
        put(t, "%s: %s for each further microbatch %s\n", c->spec->name, number(closed->period, a),
            optimal ? "is optimal" : "is the best known");
    else
        put(t, "%s: no rule and no pattern is known for any number of microbatches\n", c->spec->name);
    put(t, "no steady state takes less than %s: %s\n", number(lower, b),
        !strcmp(proof, "work") ? "a rank's work for a microbatch"
                               : "how long a rank must hold what a microbatch keeps, against the room for it");
    if (settings->output)
        put(t, "wrote %s, %s\n", settings->output, form(closed));
}

static void find_period(struct text *t, const struct settings *settings, const struct compile *c,
                        const struct instance *in, const struct optimum *best) {
    struct steady bound = steady_bound(in, c->spec->batches);
    struct closed closed = close_up(settings, c, in, best, AIM_PERIOD);
    double lower = fmax(bound.work, bound.memory) * in->tick;
    char a[32], b[32];
    if (settings->output) {
        write_script(settings, &closed,
                     format("-- %s: with each further microbatch %s more, and no steady state takes less than %s.\n",
                            command_line(settings),
                            isfinite(closed.period) ? number(closed.period, a) : "it is not known how much",
                            number(lower, b)));
        place_files();
    }
    put_period(t, settings, c, &closed, lower, bound.memory > bound.work ? "memory" : "work");
}

/* Two files are written, each under a name of its own: stdout and devices have none to spare. */
static void check_outputs(const struct settings *settings) {
    const char *path[] = {settings->output, certificate_of(settings->output)};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (strcmp(settings->output, "-") == 0 || (stat(path[i], &st) == 0 && !S_ISREG(st.st_mode)))
            die("%s: the script and its certificate are written as two files, and this is none; -o takes a file's "
                "name, "
                "e.g. best.lua",
                path[i]);
        check_target(path[i], &settings->args);
    }
}

/* The script's own order, or NULL where that comes to a deadlock. */
static struct sched *own_order(const struct compile *c) {
    jmp_buf trap;
    struct sched *volatile own = NULL;
    diag_trap = &trap;
    if (!setjmp(trap))
        own = sched_run(c->spec, c->stage, c->graph);
    diag_trap = NULL;
    diag_text[0] = 0;
    return own;
}

int cmd_optimal(const struct settings *settings) {
    struct compile c = {.args = settings->args};
    struct text out = {0}, certificate = {0};
    double begin = now();
    if (settings->output)
        check_outputs(settings);
    load_schedule(&c);
    c.stage = cost_stages(c.spec);
    c.graph = graph_build(c.spec);
    const struct instance *in = instance_of(c.spec, c.stage, c.graph);
    c.sched = own_order(&c);
    double ticks = c.sched ? c.sched->makespan / in->tick : 0;
    int64_t own = !c.sched ? serial_time(in) + 1 : in->rounded ? (int64_t)ceil(ticks) : llround(ticks);
    struct optimum best = find_optimum(in, c.graph, own, settings->seconds > 0 ? INT32_MAX - 1 : SEARCHED,
                                       settings->seconds > 0 ? begin + settings->seconds : 0);
    if (best.start && c.sched && time_of_order(c.spec, c.stage, c.graph, best.start) > c.sched->makespan)
        best.start = NULL; /* better by rounded times only */
    if (!best.start && !c.sched)
        die(best.gave_up ? "%s: found no order that its caps leave room for; give more --time, or raise a cap"
                         : "%s: its caps leave room for no order at all; raise them",
            c.spec->file);
    if (settings->objective == LEAST_PERIOD) {
        find_period(&out, settings, &c, in, &best);
        write_file("-", &out);
        return 0;
    }
    struct closed closed = {0};
    emit_certificate(&certificate, in, &best, command_line(settings));
    if (settings->output)
        closed = write_results(settings, &c, in, &best, &certificate);
    put_result(&out, settings, &c, in, &best, &closed, is_accepted(certificate.s), now() - begin);
    write_file("-", &out);
    return 0;
}
