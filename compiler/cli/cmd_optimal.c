/* `pianola optimal`: the best order of a script's jobs, with a certificate. */
#include "optimal/optimal.h"
#include "base/put_json.h"
#include "command.h"
#include "compile.h"
#include "verify/bound.h"
#include "files.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { SEARCHED = 4000000 }; /* of one search, where no --time is given */

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
    return best->proof == PROOF_COVER
               ? format("no order of any of %d states leads to less", covering_states(in, best))
               : "a rank's work, and what must come before and after it, takes as long";
}

/* Whether the checker, which knows nothing of the search, accepts the certificate. */
static bool is_accepted(const char *certificate) {
    const char *by;
    return check_bound(read_bound("certificate", certificate), &by) == NULL;
}

static void put_result(struct text *t, const struct settings *settings, const struct compile *c,
                       const struct instance *in, const struct optimum *best, bool accepted, double seconds) {
    char a[32], b[32];
    bool optimal = accepted && best->lower >= best->makespan && !in->rounded;
    double makespan = best->start ? time_of_order(c->spec, c->stage, c->graph, best->start) : c->sched->makespan,
           lower = (double)best->lower * in->tick;
    if (settings->json) {
        put(t, "{\"schema\": 1, \"schedule\": %s, \"makespan\": %s, ", quoted(c->spec->name), number(makespan, a));
        put(t, "\"own\": %s, \"lower_bound\": %s, ", c->sched ? number(c->sched->makespan, a) : "null", number(lower, b));
        put(t, "\"optimal\": %s, \"proof\": \"%s\", \"states\": %d, \"seconds\": %s", optimal ? "true" : "false",
            best->proof == PROOF_COVER ? "cover" : "work", covering_states(in, best), format("%.3f", seconds));
        if (settings->output)
            put(t, ", \"script\": %s, \"certificate\": %s", quoted(settings->output),
                quoted(certificate_of(settings->output)));
        put_word(t, "}\n");
        return;
    }
    put(t, "%s: %s %s; the script's own order %s\n", c->spec->name, number(makespan, a),
        optimal ? "is optimal" : "is the best known",
        c->sched ? format("takes %s", number(c->sched->makespan, b)) : "comes to a deadlock");
    put(t, "no order takes less than %s: %s\n", number(lower, a), how(in, best));
    if (!optimal)
        put(t, "between them are %.3g %%%s\n", 100 * (makespan - lower) / makespan,
            in->rounded ? "; times were rounded down to a thousandth of the longest job for the bound" : "");
    if (settings->output)
        put(t, "wrote %s, and the certificate to %s\n", settings->output, certificate_of(settings->output));
}

static void write_results(const struct settings *settings, const struct compile *c, const struct instance *in,
                          const struct optimum *best, const struct text *certificate) {
    struct text script = {0};
    char a[32], b[32];
    const char *command = command_line(settings);
    int64_t *own = NEW(int64_t, c->spec->njobs);
    for (int32_t j = 0; j < c->spec->njobs && !best->start; j++)
        own[j] = llround(c->sched->start[j] / in->tick);
    const char *notes =
        format("-- The best order of the jobs of %s: %s, and no order takes less than %s.\n-- The proof is %s, which "
               "`pianola check-bound` checks.\n",
               command, number(best->start ? time_of_order(c->spec, c->stage, c->graph, best->start) : c->sched->makespan, a),
               number((double)best->lower * in->tick, b),
               tame(certificate_of(settings->output)));
    emit_sequence(&script, c->spec, best->start ? best->start : own, notes);
    stage_file(settings->output, &script, false);
    stage_file(certificate_of(settings->output), certificate, false);
    place_files();
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
    if (settings->output) {
        check_target(settings->output, &settings->args);
        check_writable(settings->output);
    }
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
    emit_certificate(&certificate, in, &best, command_line(settings));
    if (settings->output)
        write_results(settings, &c, in, &best, &certificate);
    put_result(&out, settings, &c, in, &best, is_accepted(certificate.s), now() - begin);
    write_file("-", &out);
    return 0;
}
