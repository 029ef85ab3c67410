/* What the time of all ranks goes into. Waiting for activations and gradients is the pipeline's, as far as it would be
 * there with links that take no time, and the links', as far as it would not. */
#include "tune.h"
#include <math.h>

const char *const share_name[NSHARES] = {"compute", "recompute",  "bubble", "messages",
                                         "weights", "reductions", "copies", "teams"};

static double messages(const double exposed[NEXPOSED]) {
    return exposed[EXPOSED_ACTIVATIONS] + exposed[EXPOSED_GRADIENTS];
}

/* How long ranks wait for messages of activations and gradients. */
static double waits(const struct program *p, const struct timeline *tl) {
    double sum = 0;
    for (int r = 0; r < p->workers; r++) {
        double exposed[NEXPOSED] = {0};
        exposed_waits(&p->rank[r], tl->start[r], tl->end[r], exposed);
        sum += messages(exposed);
    }
    return sum;
}

static double waits_with_free_links(const struct spec *sp, const struct stage *st, const struct program *p) {
    struct spec *free = NEW(struct spec, 1);
    *free = *sp;
    free->link = NULL;
    return waits(p, sim_run(free, st, p));
}

void shares_of_time(const struct spec *sp, const struct stage *st, const struct program *p, const struct timeline *tl,
                    const struct report *report, double share[NSHARES]) {
    static const int exposed[][2] = {{SHARE_WEIGHTS, EXPOSED_WEIGHTS},
                                     {SHARE_REDUCTIONS, EXPOSED_REDUCTIONS},
                                     {SHARE_COPIES, EXPOSED_COPIES},
                                     {SHARE_TEAMS, EXPOSED_TEAMS}};
    double all = report->makespan * report->workers, rest = 1;
    if (all <= 0)
        return;
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].d == OP_R)
            share[SHARE_RECOMPUTE] += sp->job[j].cost / all;
    for (int r = 0; r < report->workers; r++) {
        share[SHARE_COMPUTE] += report->rank[r].busy / all;
        for (size_t i = 0; i < sizeof exposed / sizeof *exposed; i++)
            share[exposed[i][0]] += report->rank[r].exposed[exposed[i][1]] / all;
    }
    share[SHARE_COMPUTE] -= share[SHARE_RECOMPUTE];
    share[SHARE_MESSAGES] = fmax(waits(p, tl) - waits_with_free_links(sp, st, p), 0) / all;
    for (int i = 0; i < NSHARES; i++)
        rest -= i == SHARE_BUBBLE ? 0 : share[i];
    share[SHARE_BUBBLE] = fmax(rest, 0);
}
