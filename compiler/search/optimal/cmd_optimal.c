/* `pianola optimal`: the best order of a script's jobs, with a certificate. */
#include "base/put_json.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "cli/files.h"
#include "closed.h"
#include "local.h"
#include "memory.h"
#include "optimal.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { SEARCHED_LATER = 200000 }; /* states per search with more microbatches */

/* Returns the certificate's file: FILE.bound for FILE.lua. */
static const char *certificate_of(const char *script) {
    size_t n = strlen(script);
    bool lua = n > 4 && !strcmp(script + n - 4, ".lua");
    return format("%.*s.bound", (int)(lua ? n - 4 : n), script);
}

/* Returns a time with its unit, for people: "27 units", "338.912 us". It is ASCII, because scripts contain it too. */
static const char *timed(const struct compile *c, double t) {
    struct measure measure = measure_of(t, time_unit(c->spec), true);
    char buf[32];
    if (!strcmp(measure.name, "units"))
        return format(t == 1 ? "%s unit" : "%s units", sum_text(t, buf));
    return format("%.6g %s", t / measure.one, measure.name);
}

static const char *how(const struct optimum *best) {
    return best->proof == PROOF_COVER ? format("no order of any of %d states leads to less", covering_states(best))
                                      : "a rank's work, and what must come before and after it, takes as long";
}

/* With --jitter: the results of noisy runs, before a local search and after it */
struct noisy {
    struct jitter before, after;
    bool asked;
    int64_t orders; /* number tried */
};

struct figures {
    double makespan, lower, seconds;
    bool optimal;
    struct noisy noisy;
    int states;
    int64_t excess; /* bytes by which its smallest plan exceeds the cluster's memory */
};

/* Returns > 0 if no order takes less with that many microbatches, < 0 if another one does, 0 if that is not known. */
static int stays_optimal(const struct hold *hold) {
    double least = hold->makespan * (1 - 1e-9);
    return hold->lower >= least ? 1 : hold->best < least ? -1 : 0;
}

/* Returns the form of the written script. */
static const char *form(const struct settings *settings, const struct closed *closed) {
    return settings->jitter.level > 0   ? "a sequence"
           : !closed->kind              ? "a sequence: no rule that we know gives this order, and it repeats nothing"
           : !strcmp(closed->kind, "n") ? "a script with a function n, for other numbers of microbatches too"
                                        : "a script with a pattern, for other numbers of microbatches too";
}

/* Returns a line for each other number of microbatches. */
static const char *holds(const struct compile *c, const struct closed *closed, const char *before) {
    struct text t = {0};
    put(&t, "%s", "");
    for (int i = 0; i < closed->nholds; i++) {
        const struct hold *hold = &closed->hold[i];
        put(&t, "%s%s: ", before, counted(hold->batches, "microbatch"));
        if (isinf(hold->makespan)) {
            put_word(&t, "it does not run\n");
            continue;
        }
        put(&t, "%s, ", timed(c, hold->makespan));
        if (stays_optimal(hold) > 0)
            put_word(&t, "optimal\n");
        else if (stays_optimal(hold) < 0)
            put(&t, "not optimal: %s is possible\n", timed(c, hold->best));
        else if (isnan(hold->lower))
            put_word(&t, "but the original script refuses that many, so no bound is known\n");
        else
            put(&t, "and no order takes less than %s\n", timed(c, hold->lower));
    }
    return t.s;
}

/* Writes `"rule": "n", "holds": [...]`: results of the written script for more microbatches. */
static void put_closed_json(struct text *t, const struct closed *closed) {
    char a[32], b[32], c[32];
    put(t, ", \"rule\": %s, \"holds\": [", closed->kind ? quoted(closed->kind) : "null");
    for (int i = 0; i < closed->nholds; i++) {
        const struct hold *hold = &closed->hold[i];
        put(t, "%s{\"batches\": %d, \"makespan\": %s, \"best\": %s, \"lower_bound\": %s, \"optimal\": %s}",
            i ? ", " : "", hold->batches, isinf(hold->makespan) ? "null" : sum_text(hold->makespan, a),
            isfinite(hold->best) ? sum_text(hold->best, b) : "null",
            isnan(hold->lower) ? "null" : sum_text(hold->lower, c),
            stays_optimal(hold) > 0   ? "true"
            : stays_optimal(hold) < 0 ? "false"
                                      : "null");
    }
    put_word(t, "]");
}

static void put_optimum_json(struct text *t, const struct settings *settings, const struct compile *c,
                             const struct instance *in, const struct optimum *best, const struct closed *closed,
                             const struct figures *figures) {
    char a[32], b[32], d[32];
    put(t, "{\"schema\": 1, \"schedule\": %s", quoted(c->spec->name));
    if (settings->output)
        put_closed_json(t, closed);
    put(t, ", \"makespan\": %s, \"own\": %s, \"lower_bound\": %s, ", sum_text(figures->makespan, a),
        c->sched ? sum_text(c->sched->makespan, b) : "null", sum_text(figures->lower, d));
    put(t, "\"optimal\": %s, \"proof\": \"%s\", \"states\": %d, \"seconds\": %s", figures->optimal ? "true" : "false",
        best->proof == PROOF_COVER ? "cover" : "work", figures->states, format("%.3f", figures->seconds));
    const struct noisy *noisy = &figures->noisy;
    if (noisy->asked) {
        put(t, ", \"level\": %s, \"runs\": %lld", number(noisy->after.level, a), (long long)noisy->after.runs);
        put(t, ", \"mean\": %s, \"p95\": %s", number(noisy->after.mean, a), number(noisy->after.p95, b));
        put(t, ", \"mean_before\": %s, \"p95_before\": %s", number(noisy->before.mean, a),
            number(noisy->before.p95, b));
    }
    if (in->bytes)
        put(t, ", \"excess_bytes\": %lld", (long long)figures->excess);
    if (settings->output)
        put(t, ", \"script\": %s, \"certificate\": %s", quoted(settings->output),
            quoted(certificate_of(settings->output)));
    put_word(t, "}\n");
}

static struct lists own_lists(const struct compile *c) { return (struct lists){c->sched->order, c->sched->norder}; }
static struct lists order_of(const struct compile *c, const struct optimum *best) {
    return best->start ? lists_by_start(c->spec, best->start) : own_lists(c);
}

/* Returns a remark if memory is counted in bytes and the script's own order exceeds it. */
static const char *exceeds(const struct compile *c, const struct instance *in) {
    bool more = in->bytes && excess_of_plan(c, own_lists(c)) > 0;
    return more ? ", but needs more than the cluster's memory" : "";
}

static void put_noisy(struct text *t, const struct noisy *noisy) {
    put(t, "with %g %% of noise, 95 of 100 runs take at most %.4g, the mean %.4g; ", 100 * noisy->after.level,
        noisy->after.p95, noisy->after.mean);
    if (noisy->after.p95 < noisy->before.p95)
        put(t, "before a local search over %s, %.4g and %.4g\n", counted(noisy->orders, "order"), noisy->before.p95,
            noisy->before.mean);
    else
        put(t, "a local search over %s found no better one\n", counted(noisy->orders, "order"));
}

static void put_result(struct text *t, const struct settings *settings, const struct compile *c,
                       const struct instance *in, const struct optimum *best, const struct closed *closed,
                       const struct figures *figures) {
    if (settings->json) {
        put_optimum_json(t, settings, c, in, best, closed, figures);
        return;
    }
    put(t, "%s: %s %s; the script's own order %s\n", c->spec->name, timed(c, figures->makespan),
        figures->optimal ? "is optimal" : "is the best known",
        !c->sched ? "comes to a deadlock" : format("takes %s%s", timed(c, c->sched->makespan), exceeds(c, in)));
    put(t, "no order takes less than %s: %s\n", timed(c, figures->lower), how(best));
    if (!figures->optimal)
        put(t, "between them are %.3g %%%s\n", 100 * (figures->makespan - figures->lower) / figures->makespan,
            in->rounded ? "; times were rounded down to a thousandth of the longest job for the bound" : "");
    if (figures->noisy.asked)
        put_noisy(t, &figures->noisy);
    if (figures->excess > 0)
        put(t, "its smallest plan exceeds the cluster's memory by %lld bytes on some rank, for messages and gaps\n",
            (long long)figures->excess);
    if (settings->output)
        put(t, "wrote %s, %s, and the certificate to %s\n%s", settings->output, form(settings, closed),
            certificate_of(settings->output), holds(c, closed, ""));
}

/* Returns the rule, the pattern or the sequence for the order found. */
static struct closed close_up(const struct settings *settings, const struct compile *c, const struct instance *in,
                              const struct optimum *best, enum aim aim) {
    double until = seconds_until(settings->search.seconds);
    int64_t *start = best->start ? best->start : NEW(int64_t, c->spec->njobs);
    for (int32_t j = 0; j < c->spec->njobs && !best->start; j++)
        start[j] = llround(c->sched->start[j] / in->tick);
    return find_closed(c, order_of(c, best), start, in, aim, SEARCHED_LATER, until);
}

static void write_script(const struct settings *settings, const struct closed *closed, const char *notes) {
    struct text script = {0};
    put_word(&script, notes);
    put_bytes(&script, closed->body.s, closed->body.n);
    stage_file(settings->output, &script, false);
}

/* Writes the results. Another order with the same makespan may tolerate noise less well, so with --jitter the order
 * itself is written. */
static struct closed write_results(const struct settings *settings, const struct compile *c, const struct instance *in,
                                   const struct optimum *best, const struct text *certificate) {
    struct closed closed = {.makespan = (double)best->makespan * in->tick};
    if (settings->jitter.level > 0)
        emit_sequence(&closed.body, c->costs, order_of(c, best));
    else
        closed = close_up(settings, c, in, best, AIM_MAKESPAN);
    write_script(settings, &closed,
                 format("-- The best order of the jobs of %s: %s, and no order takes less than %s.\n"
                        "-- The proof is %s, which `pianola check-bound` checks.\n%s",
                        command_line(&settings->args), timed(c, closed.makespan),
                        timed(c, (double)best->lower * in->tick), tame(certificate_of(settings->output)),
                        holds(c, &closed, "-- ")));
    stage_file(certificate_of(settings->output), certificate, false);
    place_files();
    return closed;
}

/* ---- the largest span: a rank's time from its first job to its last ---- */

static double span_of(const struct spec *sp, const double *start, const double *end) {
    double *begin = NEW(double, sp->workers), *last = NEW(double, sp->workers), most = 0;
    for (int k = 0; k < sp->workers; k++)
        begin[k] = INFINITY;
    for (int32_t j = 0; j < sp->njobs; j++) {
        int k = sp->job[j].rank;
        begin[k] = fmin(begin[k], start[j]);
        last[k] = fmax(last[k], end[j]);
        most = fmax(most, last[k] - begin[k]);
    }
    return most;
}

/* Writes the largest span. Real ranks begin as early as they can, and may then have longer spans than ranks that begin
 * just in time. */
static void put_span(struct text *t, const struct settings *settings, const struct compile *c,
                     const struct instance *in, const struct optimum *best) {
    const struct sched *written = sched_in_order(c, order_of(c, best));
    double own = c->sched ? span_of(c->spec, c->sched->start, c->sched->end) : NAN,
           span = best->start ? (double)best->makespan * in->tick : own, lower = (double)best->lower * in->tick,
           early = span_of(c->spec, written->start, written->end);
    bool optimal = best->proof == PROOF_WORK && best->lower >= best->makespan && !in->rounded;
    char a[32], b[32], d[32], e[32];
    if (settings->json) {
        put(t, "{\"schema\": 1, \"schedule\": %s, \"objective\": \"span\", \"span\": %s, \"own\": %s, ",
            quoted(c->spec->name), sum_text(span, a), c->sched ? sum_text(own, b) : "null");
        put(t, "\"early\": %s, \"lower_bound\": %s, \"optimal\": %s, \"proof\": \"%s\", \"states\": %d",
            sum_text(early, d), sum_text(lower, e), optimal ? "true" : "false",
            best->proof == PROOF_WORK ? "work" : "cover", covering_states(best));
        if (settings->output)
            put(t, ", \"certificate\": %s", quoted(certificate_of(settings->output)));
        put_word(t, "}\n");
        return;
    }
    put(t, "%s: a largest span of %s %s; the script's own order %s\n", c->spec->name, timed(c, span),
        optimal ? "is optimal" : "is the best known",
        c->sched ? format("takes %s", timed(c, own)) : "comes to a deadlock");
    put(t, "%s less than %s\n",
        best->proof == PROOF_WORK ? "a rank's work, with what leads from it to another of its jobs, takes no"
                                  : format("with starts at multiples of %s, no order of any of %d states leads to",
                                           timed(c, in->tick), covering_states(best)),
        timed(c, lower));
    if (early > span * (1 + 1e-9))
        put(t, "where every rank begins as early as it can, the same order takes %s\n", timed(c, early));
    if (settings->output)
        put(t, "wrote %s, a sequence, and the certificate to %s\n", settings->output, certificate_of(settings->output));
}

static void find_span(struct text *t, const struct settings *settings, const struct compile *c,
                      const struct instance *in, const struct optimum *best) {
    struct closed closed = {0};
    struct text certificate = {0};
    emit_certificate(&certificate, in, best, command_line(&settings->args));
    if (settings->output) {
        emit_sequence(&closed.body, c->costs, order_of(c, best));
        write_script(
            settings, &closed,
            format(
                "-- %s: no rank takes more than %s from its first job to its last, if it begins as late as it can.\n",
                command_line(&settings->args), timed(c, (double)best->makespan * in->tick)));
        stage_file(certificate_of(settings->output), &certificate, false);
        place_files();
    }
    put_span(t, settings, c, in, best);
}

/* ---- the time per further microbatch ---- */

static void put_optimal_period(struct text *t, const struct settings *settings, const struct compile *c,
                               const struct closed *closed, double lower, const char *proof) {
    char a[32], b[32];
    bool known = isfinite(closed->period), optimal = known && closed->period <= lower * (1 + 1e-9);
    if (settings->json) {
        put(t, "{\"schema\": 1, \"schedule\": %s, \"objective\": \"period\", \"period\": %s, ", quoted(c->spec->name),
            known ? sum_text(closed->period, a) : "null");
        put(t, "\"lower_bound\": %s, \"optimal\": %s, \"proof\": \"%s\", \"rule\": %s}\n", sum_text(lower, b),
            optimal ? "true" : "false", proof, closed->kind ? quoted(closed->kind) : "null");
        return;
    }
    if (known)
        put(t, "%s: %s for each further microbatch %s\n", c->spec->name, timed(c, closed->period),
            optimal ? "is optimal" : "is the best known");
    else
        put(t, "%s: no rule and no pattern is known for any number of microbatches\n", c->spec->name);
    put(t, "no steady state takes less than %s: %s\n", timed(c, lower),
        !strcmp(proof, "work") ? "a rank's work for a microbatch"
                               : "how long a rank must hold what a microbatch keeps, against the room for it");
    if (settings->output)
        put(t, "wrote %s, %s\n", settings->output, form(settings, closed));
}

static void optimize_period(struct text *t, const struct settings *settings, const struct compile *c,
                            const struct instance *in, const struct optimum *best) {
    struct steady bound = steady_bound(in, c->spec->batches);
    struct closed closed = close_up(settings, c, in, best, AIM_PERIOD);
    double lower = fmax(bound.work, bound.memory) * in->tick;
    if (settings->output) {
        write_script(settings, &closed,
                     format("-- %s: with each further microbatch %s more, and no steady state takes less than %s.\n",
                            command_line(&settings->args),
                            isfinite(closed.period) ? timed(c, closed.period) : "it is not known how much",
                            timed(c, lower)));
        place_files();
    }
    put_optimal_period(t, settings, c, &closed, lower, bound.memory > bound.work ? "memory" : "work");
}

/* Dies unless two files can be written under different names; stdout and devices have only one name. */
static void check_two_outputs(const struct settings *settings) {
    const char *path[] = {settings->output, certificate_of(settings->output)};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (strcmp(settings->output, "-") == 0 || (stat(path[i], &st) == 0 && !S_ISREG(st.st_mode)))
            die("%s: is not a file, but the script and its certificate are written as two files; give -o the name of a "
                "file, e.g. best.lua",
                path[i]);
        check_destination(path[i], settings);
    }
}

/* Schedules the script's own order. */
static void schedule_instance(void *compile) { compile_until(compile, SCHED); }

/* Makes room for messages and gaps, which the search does not count, by repeating the search with less room until a
 * plan fits. The bound stays the same. Returns by how many bytes the best order's plan exceeds the memory. */
static int64_t make_it_fit(const struct compile *c, const struct instance *in, struct optimum *best, int64_t own,
                           int64_t states, double until) {
    enum { TRIES = 4 };
    int64_t *room = NEW(int64_t, in->ranks);
    int64_t excess = excess_of_plan(c, order_of(c, best));
    memcpy(room, in->bytes, sizeof *room * (size_t)in->ranks);
    for (int i = 0; i < TRIES && excess > 0; i++) {
        for (int r = 0; r < in->ranks; r++)
            room[r] -= room[r] < excess ? room[r] : excess;
        const struct instance *less = instance_in_bytes(c, room);
        struct optimum next = find_optimum(less, c->graph, own, states, until);
        if (!next.start)
            break;
        best->makespan = next.makespan;
        best->start = next.start;
        excess = excess_of_plan(c, order_of(c, best));
    }
    return excess;
}

/* Returns the room in bytes, if the cluster's memory is the only limit, else NULL. */
static const int64_t *find_bytes(const struct compile *c) {
    bool counts = c->sched && counts_bytes(c->spec);
    return counts ? room_in_bytes(c, own_lists(c)) : NULL;
}

/* Returns the time of the script's own order, in ticks, as an upper bound; if it does not run, more than any order
 * takes. */
static int64_t own_ticks(const struct compile *c, const struct instance *in) {
    if (!c->sched || *exceeds(c, in))
        return serial_time(in) + 1;
    double ticks = (in->span ? span_of(c->spec, c->sched->start, c->sched->end) : c->sched->makespan) / in->tick;
    return in->rounded ? (int64_t)ceil(ticks) : llround(ticks);
}

/* ---- noise ---- */

/* Replaces the order by one that tolerates noise better, if a local search finds one. The search uses other noise than
 * the comparison, so that it does not overfit the order to that noise. */
static struct noisy bear_noise(const struct settings *settings, const struct compile *c, const struct instance *in,
                               struct optimum *best, double until) {
    const struct judgement told = {settings->jitter.level, settings->seed, settings->jitter.runs},
                           seen = unseen_noise(told);
    struct local local = {settings->seed, orders_to_try(c->spec), until, 0};
    struct lists lists = order_of(c, best);
    struct noisy noisy = {.asked = true};
    if (isinf(judge_order(c, lists, told, &noisy.before)))
        die("%s: --jitter runs the program of the best order, which does not fit into the cluster's memory",
            c->spec->file);
    improve_order(c, lists, seen, &local);
    noisy.orders = local.tried;
    judge_order(c, lists, told, &noisy.after);
    if (noisy.after.p95 >= noisy.before.p95) {
        noisy.after = noisy.before;
        return noisy;
    }
    const struct sched *sched = sched_in_order(c, lists);
    best->start = NEW(int64_t, c->spec->njobs);
    for (int32_t j = 0; j < c->spec->njobs; j++)
        best->start[j] = llround(sched->start[j] / in->tick);
    best->makespan = llround(sched->makespan / in->tick);
    return noisy;
}

int cmd_optimal(const struct settings *settings) {
    struct compile c = {.args = settings->args};
    struct text out = {0}, certificate = {0};
    double begin = seconds_now();
    if (settings->jitter.level == AS_MEASURED)
        die("--jitter measured: only show and compare take it; give a level, such as 10%%");
    if (settings->jitter.level > 0 && settings->search.objective != LEAST_MAKESPAN)
        die("--jitter: noise counts for the makespan, not for --objective span or period");
    if (settings->output)
        check_two_outputs(settings);
    compile_until(&c, GRAPH);
    refuse_other_jobs(c.spec);
    try(schedule_instance, &c); /* a failure means that it deadlocks */
    struct instance *in = instance_in_bytes(&c, find_bytes(&c));
    if (settings->search.objective == LEAST_SPAN)
        minimise_span(in);
    int64_t own = own_ticks(&c, in), states = states_within(settings->search.seconds), excess = 0;
    double until = seconds_until(settings->search.seconds);
    struct optimum best = find_optimum(in, c.graph, own, states, until);
    if (best.start && c.sched && !in->bytes && !in->span && time_of_order(&c, best.start) > c.sched->makespan)
        best.start = NULL; /* better only in rounded times */
    if (!best.start && (!c.sched || own > serial_time(in)))
        die(best.gave_up
                ? "%s: found no order that its caps or the memory leave room for; give more --time, or raise them"
                : "%s: its caps or the memory leave room for no order at all; raise them",
            c.spec->file);
    if (in->bytes && !in->span)
        excess = make_it_fit(&c, in, &best, own, states, until);
    if (settings->search.objective != LEAST_MAKESPAN) {
        (settings->search.objective == LEAST_SPAN ? find_span : optimize_period)(&out, settings, &c, in, &best);
        write_file("-", &out);
        return 0;
    }
    struct closed closed = {0};
    struct figures figures = {.excess = excess};
    emit_certificate(&certificate, in, &best, command_line(&settings->args));
    if (settings->jitter.level > 0)
        figures.noisy = bear_noise(settings, &c, in, &best, until);
    if (settings->output)
        closed = write_results(settings, &c, in, &best, &certificate);
    figures.makespan = best.start ? time_of_order(&c, best.start) : c.sched->makespan;
    figures.lower = (double)best.lower * in->tick;
    figures.optimal = is_accepted(certificate.s) && excess == 0 && best.lower >= best.makespan && !in->rounded;
    if (figures.optimal)
        figures.lower = fmin(figures.lower, figures.makespan); /* the bound adds up the same times in another order */
    figures.states = covering_states(&best);
    figures.seconds = seconds_now() - begin;
    put_result(&out, settings, &c, in, &best, &closed, &figures);
    write_file("-", &out);
    return 0;
}
