/* Finds the repeating part of a schedule whose updates are jobs, so that a step may have any number of microbatches.
 *
 * After a while, such a schedule repeats itself with later microbatches. All starts and ends between the starts of
 * 0F(b) and 0F(b+K) then recur K microbatches later, in the same order and at the same intervals. An update recurs
 * with its number increased by the updates of K microbatches. That is the period. The compiler writes out what
 * precedes it, one period, and what follows the last one; the period then runs as often as the step needs
 * (program.h). */
#include "repetition.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- in a schedule ---- */

struct search {
    const struct costs *costs;
    const struct sched *sc;
    int32_t *start; /* per microbatch: the moment when stage 0's forward starts */
};

static double time_at(const struct sched *sc, int32_t moment) {
    int32_t j = sc->moment[moment];
    return j >= 0 ? sc->start[j] : sc->end[~j];
}

static struct search begin_search(const struct costs *costs, const struct sched *sc) {
    struct search search = {costs, sc, NEW(int32_t, costs->spec->batches)};
    for (int32_t i = 0; i < sc->nmoments; i++) {
        const struct job *job = sc->moment[i] >= 0 ? &costs->job[sc->moment[i]] : NULL;
        if (job && job->s == 0 && job->d == OP_F)
            search.start[job->b] = i;
    }
    return search;
}

/* Returns whether moment y repeats moment x n microbatches later, `apart` after it. */
static bool same_moment(const struct search *search, int32_t x, int32_t y, int n, double apart, double period) {
    const struct spec *sp = search->costs->spec;
    const struct sched *sc = search->sc;
    int32_t i = sc->moment[x], j = sc->moment[y];
    if ((i >= 0) != (j >= 0))
        return false;
    i = i >= 0 ? i : ~i;
    j = j >= 0 ? j : ~j;
    const struct job *a = &search->costs->job[i], *b = &search->costs->job[j];
    int later = a->d == OP_U ? n / sp->updates.every[a->s] : n;
    if (a->s != b->s || a->d != b->d || a->rank != b->rank || b->b != a->b + later)
        return false;
    int32_t forward = a->d == OP_U ? -1 : job_at(sp, a->s, a->b, OP_F),
            on = a->d != OP_U && has_version(search->costs, a->s) ? n / sp->updates.every[a->s] : 0;
    if (forward >= 0 && sc->version[job_at(sp, b->s, b->b, OP_F)] != sc->version[forward] + on)
        return false; /* what it keeps for its backward is named by that version */
    if (forward >= 0 && a->d != OP_W && sc->version[j] != sc->version[i] + on)
        return false;
    return fabs(time_at(sc, y) - time_at(sc, x) - apart) <= 1e-9 * period;
}

/* Returns whether the n microbatches from b on are a period, that is, whether the next n repeat them, up to where the
 * schedule's end disturbs it. */
static bool repeats_from(const struct search *search, int b, int n) {
    const struct sched *sc = search->sc;
    if (b + 2 * n >= search->costs->spec->batches)
        return false;
    int32_t from = search->start[b], to = search->start[b + n], end = search->start[b + 2 * n];
    if (to <= from || end - to != to - from)
        return false;
    double apart = time_at(sc, to) - time_at(sc, from);
    for (int32_t i = 0; i < to - from; i++)
        if (!same_moment(search, from + i, to + i, n, apart, apart))
            return false;
    return true;
}

/* Returns whether n microbatches from b on are a period, given that those from b + turn on are. */
static bool repeats_before(const struct search *search, int b, int n) {
    const struct sched *sc = search->sc;
    int turn = search->costs->spec->updates.turn, next = b + turn;
    int32_t from = search->start[b], end = search->start[next], to = search->start[b + n];
    if (end <= from)
        return repeats_from(search, b, n);
    if (to <= from || search->start[next + n] - to != end - from)
        return false;
    double apart = time_at(sc, search->start[next + n]) - time_at(sc, end);
    for (int32_t i = 0; i < end - from; i++)
        if (!same_moment(search, from + i, to + i, n, apart, apart))
            return false;
    return true;
}

/* Returns the first microbatch from which the schedule has this period, given that it has it from `late` on. Before
 * that it may have had another period. */
static int earliest(const struct search *search, int late, int n) {
    int turn = search->costs->spec->updates.turn;
    while (late >= turn && repeats_before(search, late - turn, n))
        late -= turn;
    return late;
}

bool find_period(const struct costs *costs, const struct sched *sc, int *first, int *length) {
    const struct spec *sp = costs->spec;
    struct search search = begin_search(costs, sc);
    int turn = sp->updates.turn,
        last = sp->batches - (turn > sp->batches / 8 ? turn : sp->batches / 8); /* leaves out the schedule's end */
    for (int n = turn; 2 * n < last; n += turn) {
        int late = (last - 2 * n) / turn * turn;
        if (!repeats_from(&search, late, n))
            continue;
        *first = earliest(&search, late, n);
        *length = n;
        return true;
    }
    return false;
}

/* Returns a length such that most jobs and updates of a microbatch last less than one period. A period must have at
 * least this many microbatches, or some tensor would live from before its beginning until after its end. */
int least_period(const struct costs *costs, const struct sched *sc, int first, int length) {
    const struct spec *sp = costs->spec;
    struct search search = begin_search(costs, sc);
    double period = time_at(sc, search.start[first + length]) - time_at(sc, search.start[first]), longest = 0;
    for (int s = 0; s < sp->stages; s++)
        for (int b = first; b < first + length; b++) {
            int32_t back = last_backward(sp, s, b);
            longest = fmax(longest, sc->end[back] - sc->start[job_at(sp, s, b, OP_F)]);
        }
    int times = period > 0 ? (int)fmin(ceil(longest / period * (1 - 1e-9)), 1e6) : 1;
    return (times > 1 ? times : 1) * length;
}

/* Returns how many microbatches must be written out for the period from `first` on to be undisturbed by the schedule's
 * end. */
static int needed(const struct costs *costs, const struct sched *sc, int first, int length) {
    struct search search = begin_search(costs, sc);
    int last = first + length;
    for (int32_t i = 0; i < search.start[first + length]; i++)
        if (sc->moment[i] >= 0 && costs->job[sc->moment[i]].d != OP_U && costs->job[sc->moment[i]].b > last)
            last = costs->job[sc->moment[i]].b;
    return last + 1;
}

int written_out(const struct costs *costs, const struct sched *sc, int first, int length) {
    const struct spec *sp = costs->spec;
    if (first + length >= sp->batches)
        return -1;
    int64_t least = needed(costs, sc, first, length),
            n = least + ((sp->updates.step - least) % length + length) % length;
    return least >= sp->batches && sp->batches < sp->updates.step ? -1 : n < sp->updates.step ? (int)n : -1;
}

/* ---- in a script ---- */

struct asked {
    const struct costs *costs;
    int32_t job;
};

static int by_order(const void *x, const void *y) {
    const struct asked *p = x, *q = y;
    const struct job *a = &p->costs->job[p->job], *b = &q->costs->job[q->job];
    if (a->rank != b->rank)
        return a->rank - b->rank;
    if (compare_n(a, b))
        return compare_n(a, b);
    if (a->b != b->b)
        return a->b - b->b;
    return a->s != b->s ? a->s - b->s : a->d - b->d;
}

/* Returns the jobs of microbatches and updates from `first` on, by rank, then in the order of n. */
static struct asked *in_order(const struct costs *costs, int first, int32_t *n) {
    struct asked *list = NEW(struct asked, costs->njobs);
    *n = 0;
    for (int32_t j = 0; j < costs->njobs; j++)
        if (costs->job[j].b >= (costs->job[j].d == OP_U ? first / costs->spec->updates.every[costs->job[j].s] : first))
            list[(*n)++] = (struct asked){costs, j};
    sort(list, (size_t)*n, sizeof *list, by_order);
    return list;
}

static bool same_preds(const struct spec *sp, const struct spec *later, int32_t j) {
    if (!sp->pred || j >= sp->njobs)
        return true;
    int32_t n = sp->pred_at[j + 1] - sp->pred_at[j];
    return later->pred_at[j + 1] - later->pred_at[j] == n &&
           memcmp(sp->pred + sp->pred_at[j], later->pred + later->pred_at[j], sizeof *sp->pred * (size_t)n) == 0;
}

static bool same_job(const struct costs *costs, const struct costs *other, int32_t j) {
    const struct spec *sp = costs->spec, *later = other->spec;
    const struct job *a = &costs->job[j], *b = &other->job[j];
    int64_t pair = (int64_t)a->s * sp->batches + a->b;
    if (a->s != b->s || a->b != b->b || a->d != b->d || a->rank != b->rank || a->home != b->home || a->fill != b->fill)
        return false;
    if (costs->computes[j] != other->computes[j])
        return false;
    if (j < sp->njobs && (sp->updates.reads[j] != later->updates.reads[j] ||
                          (sp->choices.offload && sp->choices.offload[pair] != later->choices.offload[pair])))
        return false;
    return same_preds(sp, later, j);
}

/* Returns whether the later job would run before the one at its place here. In a strict order it does if its n is
 * smaller. In a greedy order it must also be a forward, since a forward can be ready long before. */
static bool runs_earlier(const struct costs *costs, const struct costs *later, int32_t j) {
    return (costs->spec->strict || costs->job[j].d == OP_F) && compare_n(&later->job[j], &costs->job[j]) < 0;
}

bool same_jobs(const struct costs *costs, const struct costs *later, int first) {
    if (costs->spec->njobs != later->spec->njobs || costs->njobs != later->njobs)
        return false;
    int32_t n, m;
    const struct asked *a = in_order(costs, first, &n), *b = in_order(later, first, &m);
    if (n != m)
        return false;
    for (int32_t i = 0; i < n; i++)
        if (a[i].job != b[i].job || !same_job(costs, later, a[i].job) || runs_earlier(costs, later, a[i].job))
            return false;
    return true;
}

bool set_period(const struct costs *costs, struct sched *sc, int first, int length, int shortest) {
    const struct spec *sp = costs->spec;
    struct search search = begin_search(costs, sc);
    if (first + length >= sp->batches)
        return false;
    sc->period = length;
    sc->shortest = shortest;
    sc->repeats = 1 + (sp->updates.step - sp->batches) / length;
    sc->begin = search.start[first];
    sc->finish = search.start[first + length];
    return true;
}
