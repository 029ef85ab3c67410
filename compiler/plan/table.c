/* The table of passes and searches: a row for each, with its inputs and results. */
#include "plan.h"
#include "script/scripts.h"
#include "verify/verify.h"
#include <assert.h>
#include <stdlib.h>

static void do_script(struct compile *c) {
    if (!c->args.text)
        c->args.text = NEW(struct script_text, 3);
    c->args.most = c->args.most ? c->args.most : FIRST_TRY;
    c->spec = script_load(&c->args);
    c->choices = c->spec->choices;
}
static void do_cost(struct compile *c) { c->costs = costs_make(c->spec); }
static void do_graph(struct compile *c) { c->graph = graph_build(c->costs); }
static void do_sched(struct compile *c) { c->sched = sched_run(c); }
static void do_lower(struct compile *c) { c->program = lower(c); }
static void do_mem(struct compile *c) { c->hurried = mem_plan(c); }
static void do_lanes(struct compile *c) { lanes_sync(c->program); }
static void do_verify(struct compile *c) {
    struct refutation *no = verify(c->costs, c->graph, c->program, CLAIM_ALL);
    if (no) {
        fprintf(stderr, "pianola: %s does not verify; this is a bug of the compiler, please report it\n%s\n",
                c->spec->file, no->why);
        exit(1);
    }
}
static void do_sim(struct compile *c) {
    c->timeline = sim_run(c);
    c->steps = (struct steps){1, NULL, c->timeline};
}
static void do_steady(struct compile *c) { sim_steady(c); }
static void do_report(struct compile *c) { c->report = report_make(c); }

const struct pass passes[] = {
    {0, false, "script", do_script, 0, SPEC, "runs the Lua scripts"},
    {0, false, "cost", do_cost, SPEC, COSTS, "cuts the model into stages; computes costs and bytes"},
    {0, false, "graph", do_graph, COSTS, GRAPH, "which job needs which"},
    {0, false, "sched", do_sched, COSTS | GRAPH, SCHED, "when each job runs"},
    {0, true, "period", search_periods, SCHED, TRIED_PERIODS, "how much of a step with updates to write out"},
    {0, true, "offload", search_offloads, SCHED, TRIED_OFFLOADS, "which stashes to offload, if offload is \"auto\""},
    {0, true, "fit", search_room, SCHED, TRIED_ROOM, "how many fetched weights to keep"},
    {0, true, "prefetch", search_prefetch, TRIED_ROOM, TRIED_PREFETCH, "when to fetch weights"},
    {'l', false, "lower", do_lower, SCHED, STREAMS, "instruction streams with explicit messages"},
    {0, true, "spare", search_spare, STREAMS, TRIED_SPARE, "when to reuse bytes, if some are to spare"},
    {'m', false, "mem", do_mem, STREAMS, OFFSETS, "each buffer's offset in its rank's arena"},
    {'w', false, "lanes", do_lanes, OFFSETS, WAITS, "waits between lanes"},
    {0, false, "verify", do_verify, WAITS, PROOF, "the proof, always"},
    {0, false, "sim", do_sim, WAITS, TIMES, "the predicted timeline"},
    {0, false, "steady", do_steady, TIMES, IN_STEP, "time per additional repetition"},
    {0, false, "report", do_report, TIMES | IN_STEP | PROOF, REPORT, "the figures"},
};
const int npasses = sizeof passes / sizeof *passes;

int compile_has(const struct compile *c) {
    return c->have | (c->spec ? SPEC : 0) | (c->costs ? COSTS : 0) | (c->graph ? GRAPH : 0) | (c->sched ? SCHED : 0) |
           (c->program ? STREAMS : 0) | (c->timeline ? TIMES : 0) | (c->report ? REPORT : 0);
}

void compile_until(struct compile *c, int goal) {
    int have = compile_has(c);
    for (int i = npasses - 1; i >= 0; i--)
        if (passes[i].gives & goal & ~have)
            goal |= passes[i].needs;
    for (int i = 0; i < npasses; i++)
        if (passes[i].gives & goal & ~compile_has(c)) {
            assert((passes[i].needs & ~compile_has(c)) == 0);
            passes[i].run(c);
            passes_promise(c, passes[i].gives);
            c->have |= passes[i].gives;
        }
}

static void remove_waits(struct program *p) {
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        for (int32_t i = 0; i < k->nins; i++)
            k->ins[i].wait = k->ins[i].nwait = 0;
        k->wait = NULL;
        k->nwaits = 0;
    }
}

void compile_forget(struct compile *c, int from) {
    bool waits = compile_has(c) & WAITS;
    c->have &= from - 1;
    c->report = NULL;
    if (from <= TIMES)
        c->timeline = NULL;
    if (from <= WAITS && from > STREAMS && waits)
        remove_waits(c->program);
    if (from <= STREAMS)
        c->program = NULL;
    if (from <= TRIED_SPARE)
        c->choices.life = NULL;
    if (from <= TRIED_ROOM)
        c->fit = NULL;
    if (from <= SCHED)
        c->sched = NULL;
    if (from <= GRAPH)
        c->graph = NULL;
    if (from <= COSTS)
        c->costs = NULL;
    if (from <= SPEC)
        c->spec = NULL;
}

struct compile compile_vary(const struct compile *c, int from) {
    struct compile with = *c;
    compile_forget(&with, from);
    return with;
}
