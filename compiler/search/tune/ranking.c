/* Keeps the ten best candidates so far, and the ten schedules whose fastest candidates are the fastest. Of several
 * candidates with the same figures, which are most likely the same program, only the first is ranked. Sharding over a
 * single replica, for example, changes nothing. */
#include "tune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ranking *sorted; /* sort has no context argument */

static int by_lower_bound(const void *x, const void *y) {
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    double p = sorted->answer[a].bound, q = sorted->answer[b].bound;
    return p != q ? (p < q ? -1 : 1) : (a > b) - (a < b);
}

void begin_ranking(struct ranking *ranking) {
    int schedules = ranking->space->nschedules;
    ranking->answer = NEW(struct answer, ranking->space->n);
    ranking->fastest = NEW(int, schedules);
    for (int i = 0; i < schedules; i++)
        ranking->fastest[i] = -1;
}

void order_by_bound(struct ranking *ranking) {
    const struct search_space *space = ranking->space;
    ranking->order = NEW(int32_t, space->n);
    for (int i = 0; i < space->n; i++)
        if (ranking->answer[i].outcome == WAITING)
            ranking->order[ranking->n++] = i;
    sorted = ranking;
    sort(ranking->order, (size_t)ranking->n, sizeof *ranking->order, by_lower_bound);
}

double rank_value(const struct ranking *ranking, int candidate) {
    const struct answer *answer = &ranking->answer[candidate];
    return ranking->space->judgement.level > 0 ? answer->p95 : answer->makespan;
}

static bool are_equal_answers(const struct ranking *ranking, int a, int b) {
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
    if (p->batches != q->batches)
        return p->batches < q->batches;
    return p->recompute != q->recompute ? p->recompute < q->recompute : a < b;
}

/* Inserts the candidate at its place in a list of at most `most`, or drops it. */
static void insert(const struct ranking *ranking, int *list, int *n, int most, int candidate) {
    int at = *n;
    while (at > 0 && is_before(ranking, candidate, list[at - 1]))
        at--;
    if (at == most)
        return;
    *n += *n < most;
    memmove(list + at + 1, list + at, sizeof *list * (size_t)(*n - at - 1));
    list[at] = candidate;
}

/* Returns the index in a list of a candidate with the same figures; -1: none. */
static int place_of_alike(const struct ranking *ranking, const int *list, int n, int candidate) {
    for (int i = 0; i < n; i++)
        if (are_equal_answers(ranking, list[i], candidate))
            return i;
    return -1;
}

/* Updates the leaders. Equal leaders each keep their place, so that the last one's value never rises. */
static void rank_leaders(struct ranking *ranking, int candidate) {
    int *fastest = &ranking->fastest[ranking->space->candidate[candidate].schedule];
    if (*fastest >= 0 && !is_before(ranking, candidate, *fastest))
        return;
    *fastest = candidate;
    ranking->nleaders = 0;
    for (int i = 0; i < ranking->space->nschedules; i++)
        if (ranking->fastest[i] >= 0)
            insert(ranking, ranking->leader, &ranking->nleaders, BEST, ranking->fastest[i]);
}

void rank_answer(struct ranking *ranking, int candidate) {
    int *best = ranking->best, alike = place_of_alike(ranking, best, ranking->nbest, candidate);
    if (alike < 0)
        insert(ranking, best, &ranking->nbest, BEST, candidate);
    else if (candidate < best[alike])
        best[alike] = candidate;
    rank_leaders(ranking, candidate);
}

static double last_value(const struct ranking *ranking, const int *list, int n) {
    return n < BEST ? INFINITY : rank_value(ranking, list[BEST - 1]);
}

double bar_of(const struct ranking *ranking, int candidate) {
    int fastest = ranking->fastest[ranking->space->candidate[candidate].schedule];
    double own = fastest < 0 ? INFINITY : rank_value(ranking, fastest);
    return fmax(last_value(ranking, ranking->best, ranking->nbest),
                fmin(own, last_value(ranking, ranking->leader, ranking->nleaders)));
}

bool is_fastest(const struct ranking *ranking, int candidate) {
    return ranking->fastest[ranking->space->candidate[candidate].schedule] == candidate;
}

int list_ranked(const struct ranking *ranking, bool all, int list[2 * BEST]) {
    int n = 0;
    for (int i = 0; i < ranking->nleaders; i++)
        if (place_of_alike(ranking, list, n, ranking->leader[i]) < 0)
            list[n++] = ranking->leader[i];
    for (int i = 0; all && i < ranking->nbest; i++)
        if (place_of_alike(ranking, list, n, ranking->best[i]) < 0)
            insert(ranking, list, &n, 2 * BEST, ranking->best[i]);
    return n;
}

void count_outcomes(struct ranking *ranking) {
    for (int i = 0; i < ranking->space->n; i++) {
        const struct answer *answer = &ranking->answer[i];
        bool simulated = answer->bound > 0;
        if (answer->outcome == REFUSED && !simulated)
            ranking->refused++;
        else if (answer->outcome == BEYOND_MEMORY && !simulated)
            ranking->beyond++;
        else if (answer->bound > bar_of(ranking, i))
            ranking->slower++;
        else if (answer->outcome == REFUSED)
            ranking->refused++;
        else if (answer->outcome == BEYOND_MEMORY)
            ranking->beyond++;
        else if (answer->outcome == MEASURED)
            ranking->simulated++;
    }
}
