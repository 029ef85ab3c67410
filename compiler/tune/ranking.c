/* The best candidates so far. Of those that come to the same, program for program as far as figures tell, the first is
 * ranked: sharding over a single replica, say, changes nothing. */
#include "tune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ranking *sorted; /* sort has no context argument */

static int by_bound(const void *x, const void *y) {
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    double p = sorted->answer[a].bound, q = sorted->answer[b].bound;
    return p != q ? (p < q ? -1 : 1) : (a > b) - (a < b);
}

void order_by_bound(struct ranking *ranking) {
    const struct search_space *space = ranking->space;
    ranking->order = NEW(int32_t, space->n);
    for (int i = 0; i < space->n; i++)
        if (ranking->answer[i].outcome == WAITING)
            ranking->order[ranking->n++] = i;
    sorted = ranking;
    sort(ranking->order, (size_t)ranking->n, sizeof *ranking->order, by_bound);
}

double rank_value(const struct ranking *ranking, int candidate) {
    const struct answer *answer = &ranking->answer[candidate];
    return ranking->space->judgement.level > 0 ? answer->p95 : answer->makespan;
}

static bool are_alike(const struct ranking *ranking, int a, int b) {
    const struct answer *x = &ranking->answer[a], *y = &ranking->answer[b];
    const struct candidate *p = &ranking->space->candidate[a], *q = &ranking->space->candidate[b];
    return x->makespan == y->makespan && x->p95 == y->p95 && x->peak == y->peak && p->batches == q->batches &&
           p->recompute == q->recompute;
}

static bool is_before(const struct ranking *ranking, int a, int b) {
    const struct answer *x = &ranking->answer[a], *y = &ranking->answer[b];
    if (rank_value(ranking, a) != rank_value(ranking, b))
        return rank_value(ranking, a) < rank_value(ranking, b);
    if (x->peak != y->peak)
        return x->peak < y->peak;
    const struct candidate *p = &ranking->space->candidate[a], *q = &ranking->space->candidate[b];
    return p->batches != q->batches ? p->batches < q->batches : p->recompute < q->recompute;
}

void rank_answer(struct ranking *ranking, int candidate) {
    int *best = ranking->best, at;
    for (int i = 0; i < ranking->nbest; i++)
        if (are_alike(ranking, best[i], candidate)) {
            best[i] = candidate < best[i] ? candidate : best[i];
            return;
        }
    for (at = ranking->nbest; at > 0 && is_before(ranking, candidate, best[at - 1]); at--)
        continue;
    if (at == BEST)
        return;
    ranking->nbest += ranking->nbest < BEST;
    memmove(best + at + 1, best + at, sizeof *best * (size_t)(ranking->nbest - at - 1));
    best[at] = candidate;
}

double bar_of(const struct ranking *ranking) {
    return ranking->nbest < BEST ? INFINITY : rank_value(ranking, ranking->best[BEST - 1]);
}

void count_outcomes(struct ranking *ranking) {
    double bar = bar_of(ranking);
    for (int i = 0; i < ranking->space->n; i++) {
        const struct answer *answer = &ranking->answer[i];
        bool simulated = answer->bound > 0;
        if (answer->outcome == REFUSED && !simulated)
            ranking->refused++;
        else if (answer->outcome == BEYOND_MEMORY && !simulated)
            ranking->beyond++;
        else if (answer->bound > bar)
            ranking->slower++;
        else if (answer->outcome == REFUSED)
            ranking->refused++;
        else if (answer->outcome == BEYOND_MEMORY)
            ranking->beyond++;
        else if (answer->outcome == MEASURED)
            ranking->simulated++;
    }
}
