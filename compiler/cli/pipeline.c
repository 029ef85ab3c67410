/* The pipeline: one row per pass, with its inputs and outputs. */
#include "compile.h"
#include "options.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPEC = 1, STAGES = 2, GRAPH = 4, SCHED = 8, STREAMS = 16, OFFSETS = 32, WAITS = 64, PROOF = 128, TIMES = 256 };

/* Says beforehand how much memory a large schedule may take. */
static void announce_memory(const struct spec *sp) {
    enum { LARGE = 2000000, BYTES_PER_JOB = 2200 }; /* measured: 500 to 2,100 */
    if (sp->njobs >= LARGE)
        fprintf(stderr, "pianola: %s has %d jobs; compiling them takes up to about %.0f GB of memory\n", sp->name,
                sp->njobs, 1e-9 * BYTES_PER_JOB * sp->njobs);
}
static void do_script(struct compile *c) {
    load_schedule(c);
    announce_memory(c->spec);
}
static void do_cost(struct compile *c) { c->stage = cost_stages(c->spec); }
static void do_graph(struct compile *c) { c->graph = graph_build(c->spec); }
static void do_sched(struct compile *c) {
    c->sched = sched_run(c->spec, c->stage, c->graph);
    if (c->spec->update)
        find_steady_state(c);
}
static void do_lower(struct compile *c) {
    choose_offloads(c->spec, c->stage, c->graph, c->sched);
    c->program = lower_fastest(c->spec, c->stage, c->graph, c->sched);
}
static void do_mem(struct compile *c) {
    if (c->spec->least_memory)
        mem_plan(c->spec, c->program);
    else
        mem_plan_spare(c->spec, c->stage, c->program);
}
static void do_lanes(struct compile *c) { lanes_sync(c->program); }
static void do_verify(struct compile *c) {
    struct refutation *no = verify(c->spec, c->graph, c->program, CLAIM_ALL);
    if (no) {
        fprintf(stderr, "pianola: %s does not verify; this is a bug of the compiler, please report it\n%s\n",
                c->spec->file, no->why);
        exit(1);
    }
}
static void do_sim(struct compile *c) {
    c->timeline = sim_run(c->spec, c->stage, c->program);
    sim_steady(c->spec, c->stage, c->program, c->timeline);
    c->steps = (struct steps){1, NULL, c->timeline};
}
static void do_report(struct compile *c) {
    c->report = report_make(c->spec, c->stage, c->graph, c->program, c->timeline);
}

static const struct pass {
    char letter; /* the letter for -d */
    const char *name;
    void (*run)(struct compile *);
    int needs, gives;
    const char *what;
} passes[] = {
    {0, "script", do_script, 0, SPEC, "runs the Lua scripts"},
    {0, "cost", do_cost, SPEC, STAGES, "cuts the model into stages; costs and bytes"},
    {0, "graph", do_graph, SPEC, GRAPH, "who needs whom"},
    {0, "sched", do_sched, STAGES | GRAPH, SCHED, "which job runs when"},
    {'l', "lower", do_lower, SCHED, STREAMS, "instruction streams with explicit messages"},
    {'m', "mem", do_mem, STAGES | STREAMS, OFFSETS, "every buffer an offset in its rank's arena"},
    {'w', "lanes", do_lanes, OFFSETS, WAITS, "waits between lanes"},
    {0, "verify", do_verify, WAITS, PROOF, "the proof, always"},
    {0, "sim", do_sim, PROOF, TIMES, "the predicted timeline"},
    {0, "report", do_report, TIMES, 0, "the figures"},
};
enum { NPASSES = sizeof passes / sizeof *passes };

void help_passes(FILE *out) {
    for (int i = 0; i < NPASSES; i++)
        fprintf(out, "  %-8s %-50s %s%c\n", passes[i].name, passes[i].what, passes[i].letter ? "-d" : "",
                passes[i].letter ? passes[i].letter : ' ');
}

/* For large programs on a terminal: shows which pass is running. A fatal error is printed over this shorter line; ""
 * erases it. */
static void tell(const struct compile *c, const char *line) {
    enum { MANY = 100000 };
    if (c->spec && c->spec->njobs >= MANY && isatty(STDERR_FILENO))
        fprintf(stderr, "\033[K%s\r", line);
}

void compile_all(struct compile *c, const char *dump) {
    for (const char *d = dump; *d; d++) {
        bool known = false;
        for (int i = 0; i < NPASSES; i++)
            known |= passes[i].letter == *d;
        if (!known)
            die("-d%c: no pass has that letter; there are -dl (lower), -dm (mem) and -dw (lanes)", *d);
    }
    int have = (c->spec ? SPEC : 0) | (c->stage ? STAGES : 0) | (c->sched ? GRAPH | SCHED : 0);
    for (int i = 0; i < NPASSES; i++) {
        if (passes[i].gives & have)
            continue;
        assert((passes[i].needs & ~have) == 0);
        tell(c, format("pianola: %s, %d of %d", passes[i].name, i + 1, NPASSES));
        passes[i].run(c);
        have |= passes[i].gives;
        if (c->done)
            c->done(passes[i].name);
        if (passes[i].letter && strchr(dump, passes[i].letter)) {
            struct text t = {0};
            emit_text(&t, c->program);
            fwrite(t.s, 1, t.n, stdout);
        }
    }
    tell(c, "");
}

void compile_it(void *compile) { compile_all(compile, ""); }

const char *command_line(const struct script_args *args) {
    struct text t = {0};
    put_word(&t, args->schedule);
    for (int i = 0; i < args->nset; i++)
        put(&t, " -D %s", args->set[i]);
    if (args->model)
        put(&t, " --model %s", args->model);
    if (args->cluster)
        put(&t, " --cluster %s", args->cluster);
    if (args->recompute)
        put_word(&t, " --recompute");
    return tame(t.s);
}
