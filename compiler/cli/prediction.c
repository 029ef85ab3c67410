/* Predicts a run from its own measurements.
 *
 * On the host, a job's cost is the CPU time that its rank's thread spent on it, which is what it would take on a core
 * of its own. A rank is one thread, and all of them share the cores that the process may use (passes/sim_cores.c). The
 * rank that comes last to a message copies it, which takes the message's measured CPU time.
 *
 * On a GPU, which all ranks share, jobs take as long as on one rank, each rank has a GPU, and links take no time. */
#include "prediction.h"
#include "ir/homes.h"
#include <math.h>
#include <string.h>

/* ---- the same jobs on one rank ---- */

/* Returns the costs of the same jobs with one home for all weights. */
static struct costs *same_costs(const struct costs *costs, const struct spec *sp) {
    struct costs *same = memcpy(NEW(struct costs, 1), costs, sizeof *costs);
    same->spec = sp;
    same->job = sp->job;
    same->njobs = sp->njobs;
    same->stage = NEW(struct stage, stage_entries(costs));
    memcpy(same->stage, costs->stage, sizeof *costs->stage * (size_t)stage_entries(costs));
    same->homes = find_homes(same);
    cost_homes(same);
    return same;
}

struct compile compile_serial(const struct compile *c) {
    struct spec *sp = NEW(struct spec, 1);
    *sp = *c->spec;
    sp->name = "serial";
    sp->workers = 1;
    sp->strict = false;
    sp->machine.link = sp->machine.collective = NULL;
    sp->machine.speed = NULL;
    sp->machine.memory = sp->machine.host_memory = INFINITY;
    sp->choices.offload = NULL;
    sp->limits.offload_state = NULL;
    sp->choices.auto_offload = false;
    bool teams = sp->names.member;
    sp->job = NEW(struct job, sp->njobs);
    for (int j = 0; j < sp->njobs; j++) {
        sp->job[j] = c->spec->job[j];
        sp->job[j].cost = c->costs->computes[j];
        sp->job[j].rank = sp->job[j].home = sp->job[j].pair = 0;
        sp->job[j].prio = sp->job[j].b;
    }
    join_teams(sp);
    sp->limits.cap = NEW(int, 1);
    sp->choices.slots = NEW(int, 1);
    sp->limits.cap[0] = INT32_MAX;
    sp->npairs = 0;
    sp->updates.every = NULL; /* durations on one rank do not depend on the version of the weights */
    sp->updates.step = sp->batches;
    sp->pred = NULL; /* default dependencies: a custom pred() must not change the result */
    struct compile serial = compile_of(sp, teams ? costs_make(sp) : same_costs(c->costs, sp));
    compile_all(&serial, "");
    return serial;
}

/* ---- measured durations ---- */

/* Seconds of a job or update, by set of weights (the stages' and the shared ones) and operation. An update is the whole
 * set's. took and flop: sums over all jobs. */
struct took {
    double *of;
    double *message; /* per message, by its id; NULL: messages take no time */
    double took, flop;
};

static int count_sets(const struct spec *sp) { return sp->stages + sp->names.sets; }

static struct took costs_of_one(const struct compile *c, const struct compile *serial, const struct trained *alone) {
    int script_sets = count_sets(serial->spec);
    double *sum = NEW(double, script_sets *NOPS); /* indexed by the script's stages */
    int *n = NEW(int, script_sets *NOPS);
    const struct rank *k = &serial->program->rank[0];
    struct took costs = {.of = NEW(double, count_sets(c->spec) * NOPS)};
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        double t = alone->stamp[0][i].end - alone->stamp[0][i].start;
        sum[x->stage * NOPS + x->op] += t;
        n[x->stage * NOPS + x->op]++;
        costs.took += is_job(x->op) ? t : 0;
        costs.flop += is_job(x->op) ? stage_at(serial->costs, x->stage, x->batch)->flop[x->op] : 0;
    }
    for (int s = 0; s < count_sets(c->spec); s++) { /* a team's members do equal parts */
        struct member member = member_at(&c->spec->names, s);
        for (int op = 0; op < NOPS; op++) {
            int at = member.stage * NOPS + op;
            costs.of[s * NOPS + op] = sum[at] / (n[at] ? n[at] : 1) / (member.size > 0 ? member.size : 1);
        }
    }
    return costs;
}

static struct took costs_of_work(const struct compile *c, const struct work *work) {
    int sets = count_sets(c->spec);
    struct took costs = {.of = NEW(double, sets *NOPS), .message = NEW(double, c->program->nmsgs)};
    int *n = NEW(int, sets *NOPS);
    for (int r = 0; r < c->program->workers; r++)
        for (int i = 0; i < c->program->rank[r].nins; i++) {
            const struct instr *x = &c->program->rank[r].ins[i];
            double t = work->cpu[r][i];
            bool job = is_job(x->op), whole = x->part == 0; /* all parts of a job count as one job */
            if (x->msg >= 0)
                costs.message[x->msg] += t;
            if (!job && x->op != OP_U)
                continue;
            costs.of[x->stage * NOPS + x->op] += t;
            n[x->stage * NOPS + x->op] += whole;
            costs.took += job ? t : 0;
            costs.flop += job && whole ? stage_at(c->costs, x->stage, x->batch)->flop[x->op] : 0;
        }
    for (int at = 0; at < sets * NOPS; at++)
        costs.of[at] /= n[at] ? n[at] : 1;
    for (int s = 0; s < sets; s++) { /* each home updates its shard */
        const struct homes *homes = &c->costs->homes[s];
        costs.of[s * NOPS + OP_U] *= homes->size > 0 ? (double)homes->size * shares_of(homes) : 1;
    }
    return costs;
}

/* ---- the prediction ---- */

/* Returns the predicted timeline. work: says which cores the ranks share; NULL: each rank has a device of its own. */
static struct timeline *predict(const struct compile *c, const struct took *took, const struct work *work) {
    struct spec sp = *c->spec;
    struct costs costs = *c->costs;
    struct job *job = NEW(struct job, costs.njobs);
    sp.machine.flops = took->flop / took->took; /* for work outside jobs: adding parts of gradients */
    sp.machine.link = sp.machine.host_link = sp.machine.collective = NULL;
    sp.machine.speed = NULL;
    sp.machine.cores = work ? work->cores : 0;
    sp.machine.handoff = work ? work->handoff : 0;
    sp.machine.threads = 1;
    sp.machine.serial = sp.machine.cores > 0;
    sp.machine.message = took->message;
    costs.computes = NEW(double, costs.njobs);
    costs.exchanges = NULL;
    for (int j = 0; j < costs.njobs; j++) {
        job[j] = costs.job[j];
        job[j].pair = 0; /* a device has one compute lane, so overlapped jobs run sequentially */
        costs.computes[j] = took->of[job[j].s * NOPS + job[j].d];
    }
    costs.job = sp.job = job;
    costs.spec = &sp;
    costs.stage = NEW(struct stage, stage_entries(&costs));
    memcpy(costs.stage, c->costs->stage, sizeof *costs.stage * (size_t)stage_entries(&costs));
    for (int s = 0; s < count_sets(&sp); s++)
        costs.stage[s].update = took->of[s * NOPS + OP_U];
    struct compile predicted = compile_of(&sp, &costs);
    predicted.choices = c->choices;
    predicted.program = c->program;
    predicted.timeline = sim_run(&predicted);
    sim_steady(&predicted);
    return predicted.timeline;
}

struct prediction predict_from_one(const struct compile *c, const struct compile *serial, const struct trained *alone,
                                   int64_t steps) {
    struct took costs = costs_of_one(c, serial, alone);
    return (struct prediction){predict(c, &costs, NULL)->step, median(alone->makespan, steps)};
}

struct timeline *predict_from_work(const struct compile *c, const struct work *work) {
    struct took costs = costs_of_work(c, work);
    return predict(c, &costs, work);
}

double work_flops(const struct compile *c, const struct work *work) {
    struct took costs = costs_of_work(c, work);
    return costs.took > 0 ? costs.flop / costs.took : 0;
}

double all_work(const struct program *p, const struct work *work) {
    double sum = 0;
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            sum += work->cpu[r][i] * (p->period && section_of(&p->rank[r], i) == 1 ? (double)p->repeats : 1);
    return sum;
}
