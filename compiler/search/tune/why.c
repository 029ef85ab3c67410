/* Splits the time of all ranks into shares. Waiting for activations and gradients counts as bubble to the extent that
 * it would remain if links took no time; the rest counts as messages. */
#include "plan/plan.h"
#include "tune.h"
#include <math.h>

const char *const share_name[NSHARES] = {"compute", "recompute",  "updates", "bubble", "messages",
                                         "weights", "reductions", "copies",  "teams"};

static const enum share kind_of_share[NEXPOSED] = {
    [EXPOSED_ACTIVATIONS] = SHARE_MESSAGES,  [EXPOSED_GRADIENTS] = SHARE_MESSAGES, [EXPOSED_WEIGHTS] = SHARE_WEIGHTS,
    [EXPOSED_REDUCTIONS] = SHARE_REDUCTIONS, [EXPOSED_COPIES] = SHARE_COPIES,      [EXPOSED_TEAMS] = SHARE_TEAMS,
};

static double message_waits(const double exposed[NEXPOSED]) {
    return exposed[EXPOSED_ACTIVATIONS] + exposed[EXPOSED_GRADIENTS];
}

/* Returns how long ranks wait for messages of activations and gradients. */
static double waits(const struct program *p, const struct timeline *tl) {
    double sum = 0;
    for (int r = 0; r < p->workers; r++) {
        double exposed[NEXPOSED] = {0};
        exposed_waits(&p->rank[r], tl->start[r], tl->end[r], exposed);
        sum += message_waits(exposed);
    }
    return sum;
}

/* Adds up a rank's updates, and its work after its compute lane has ended, such as gathers of updated weights. */
static void count_end(const struct spec *sp, const struct rank *k, const double *start, const double *end, double all,
                      double share[NSHARES]) {
    double computed = 0;
    int last = -1;
    for (int i = 0; i < k->nins; i++) {
        if ((k->ins[i].op == OP_U && !sp->updates.every) || k->ins[i].op == OP_NORM)
            share[SHARE_UPDATES] += (end[i] - start[i]) / all;
        if (k->ins[i].lane == 0)
            computed = fmax(computed, end[i]);
        else if (last < 0 || end[i] > end[last])
            last = i;
    }
    if (last >= 0 && end[last] > computed)
        share[kind_of_share[exposed_by(&k->ins[last])]] += (end[last] - computed) / all;
}

static double waits_with_free_links(const struct compile *c) {
    struct spec free = *c->spec;
    struct costs costs = *c->costs;
    struct compile with = compile_vary(c, TIMES);
    free.machine.link = free.machine.collective = NULL;
    with.spec = costs.spec = &free;
    with.costs = &costs;
    compile_until(&with, TIMES);
    return waits(c->program, with.timeline);
}

void shares_of_time(const struct compile *c, double share[NSHARES]) {
    const struct spec *sp = c->spec;
    const struct program *p = c->program;
    const struct timeline *tl = c->timeline;
    const struct report *report = c->report;
    double all = report->makespan * report->workers, rest = 1;
    if (all <= 0)
        return;
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].d == OP_R)
            share[SHARE_RECOMPUTE] += c->costs->computes[j] / all;
    for (int r = 0; r < report->workers; r++) {
        share[SHARE_COMPUTE] += report->rank[r].busy / all;
        for (int i = 0; i < NEXPOSED; i++)
            if (i != EXPOSED_ACTIVATIONS && i != EXPOSED_GRADIENTS)
                share[kind_of_share[i]] += report->rank[r].exposed[i] / all;
        count_end(sp, &p->rank[r], tl->start[r], tl->end[r], all, share);
    }
    share[SHARE_COMPUTE] -= share[SHARE_RECOMPUTE];
    share[SHARE_MESSAGES] += fmax(waits(p, tl) - waits_with_free_links(c), 0) / all;
    for (int i = 0; i < NSHARES; i++)
        rest -= i == SHARE_BUBBLE ? 0 : share[i];
    share[SHARE_BUBBLE] = fmax(rest, 0);
}
