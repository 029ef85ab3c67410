/* The dynamic program of PipeDream's partitioner.
 *
 * A stage of the layers between the cuts i and j, on m machines, takes the time T(i, j, m) per minibatch: each of its
 * replicas runs every m-th minibatch, and they synchronize their weights after each m minibatches. The best pipeline up
 * to cut j on m machines is one stage, or the best one up to an earlier cut k on m - m' machines, then a stage between
 * k and j on m':
 *
 * A(j, m) = min(T(0, j, m), min over k, m' of max(A(k, m - m'), 2 a_k / bandwidth, T(k, j, m')))
 *
 * It is as fast as its slowest stage, or its slowest transfer. If machines form groups, a group is a machine of the
 * level above. In T, the computation is then the time A of the best pipeline between i and j within a group.
 *
 * In a chain few k matter. With c(k) the computation before cut k on the fastest machine, and u a time that some
 * pipeline up to j takes, A(k, m - m') <= u needs c(k) <= (m - m') u, and T(k, j, m') <= u needs c(j) - c(k) <= m' u.
 * Extending the last stage of the pipeline up to cut j - 1 by one layer gives a u that leaves few k if the work can be
 * divided evenly. For m' > 1 machines, synchronization must not exceed m' u either, which leaves only k near j if links
 * are slow. */
#include "partition.h"
#include <math.h>

#define MOST_TRIES 2e11 /* limit on the pairs of cuts and machines tried, some minutes' worth; more are refused */

/* The search on one level */
struct search {
    const struct cuts *cuts;
    const struct machines *machines;
    struct level level;
    const double *group; /* [i * n + j]: seconds of the best pipeline within a group; NULL: in the lowest level */
    double fastest;      /* fastest machine's speed */
};

/* The last stage, from cut `from` to this cut, of the best pipeline up to this cut */
struct best {
    double seconds;
    int from, machines;
};

int count_machines(const struct machines *machines) {
    int n = 1;
    for (int i = 0; i < machines->nlevels; i++)
        n *= machines->level[i].machines;
    return n;
}

static double slowest_of(const double *speed, int first, int n) {
    double slowest = speed ? speed[first] : 1;
    for (int i = 1; speed && i < n; i++)
        slowest = fmin(slowest, speed[first + i]);
    return slowest;
}

static double fastest_of(const struct machines *machines) {
    double fastest = machines->speed ? machines->speed[0] : 1;
    for (int i = 1; machines->speed && i < machines->level[0].machines; i++)
        fastest = fmax(fastest, machines->speed[i]);
    return fastest;
}

/* Returns the number of minibatches that each of m replicas has at a time to keep the `after` machines of later stages
 * busy: its warm-up forwards, plus one (Narayanan 2019; for the first stage, NOAM of Harlap 2018). */
static int versions_of(int m, int after) { return (after + m - 1) / m + 1; }

/* Returns the seconds in which m replicas synchronize this many bytes of weights. */
static double sync_of(const struct machines *machines, struct level level, double bytes, int m) {
    return (machines->ring ? 2 : 4) * (m - 1) * bytes / (m * level.bandwidth);
}

static double stage_time(const struct machines *machines, double compute, double sync, int m) {
    return (machines->sum ? compute + sync : fmax(compute, sync)) / m;
}

/* Returns T(i, j, m) on the machines from `first` on; INFINITY if their memory does not suffice. */
static double seconds_of(const struct search *search, int i, int j, int first, int m) {
    const struct cuts *cuts = search->cuts;
    const struct machines *machines = search->machines;
    double weights = cuts->weights[j] - cuts->weights[i], kept = cuts->kept[j] - cuts->kept[i];
    double compute = search->group ? search->group[i * cuts->n + j] : cuts->seconds[j] - cuts->seconds[i];
    int versions = versions_of(m, search->level.machines - first - m);
    if (versions * (weights + kept) > machines->memory)
        return INFINITY;
    return stage_time(machines, compute / slowest_of(machines->speed, first, m),
                      sync_of(machines, search->level, weights, m), m);
}

/* The pipelines between cut `start` and cut j on m machines whose last stage has `last` of them */
struct family {
    int start, j, m, last;
};

/* Tries the last stage from cut k on. Among equally fast ones the first k wins, then the first `last`. */
static void try_cut(const struct search *search, struct best *best, struct family f, int k) {
    const struct cuts *cuts = search->cuts;
    int all = search->level.machines;
    struct best *row = best + (size_t)f.j * (size_t)(all + 1) + f.m;
    double seconds = best[(size_t)k * (size_t)(all + 1) + (f.m - f.last)].seconds;
    if (search->machines->transfers)
        seconds = fmax(seconds, 2 * cuts->crossing[k] / search->level.bandwidth);
    if (seconds > row->seconds)
        return;
    seconds = fmax(seconds, seconds_of(search, k, f.j, f.m - f.last, f.last));
    bool earlier = row->from > f.start && (k < row->from || (k == row->from && f.last < row->machines));
    if (seconds < row->seconds || (seconds == row->seconds && earlier))
        *row = (struct best){seconds, k, f.last};
}

/* Returns, in a chain, the first of n cuts with at least this much before it. before: per cut, the computation or the
 * bytes of weights before it. */
static int cut_at(const double *before, int n, double least) {
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (before[middle] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The cuts from `first` on, before `end` */
struct span {
    int first, end;
};
enum { ROUNDING = 1000000 }; /* one part in ROUNDING: far more than sums are off */

/* Narrows the cuts to those for which the computation fits into u, the time of some known pipeline. */
static struct span within_compute(const struct search *search, struct family f, struct span span, double u) {
    const struct cuts *cuts = search->cuts;
    double most = u * search->fastest, begin = cuts->seconds[f.start], off = cuts->seconds[f.j] / ROUNDING;
    int from = cut_at(cuts->seconds, cuts->n, cuts->seconds[f.j] - f.last * most - off);
    int to = cut_at(cuts->seconds, cuts->n, begin + (f.m - f.last) * most + off) + 1;
    while (to < span.end && cuts->seconds[to] == cuts->seconds[to - 1]) /* layers that take no time */
        to++;
    return (struct span){from > span.first ? from : span.first, to < span.end ? to : span.end};
}

/* Narrows the cuts to those for which the replicas synchronize within u. */
static struct span within_sync(const struct search *search, struct family f, struct span span, double u) {
    const double *weights = search->cuts->weights;
    double each = sync_of(search->machines, search->level, 1, f.last) / f.last; /* seconds per byte */
    if (each == 0 || span.first >= span.end)
        return span;
    double least = weights[f.j] * (1 - 1.0 / ROUNDING) - u / each;
    if (weights[span.end - 1] < least)
        return (struct span){span.end, span.end};
    int from = cut_at(weights, search->cuts->n, least);
    return (struct span){from > span.first ? from : span.first, span.end};
}

/* Tries all cuts that may matter; returns their number. */
static int try_cuts(const struct search *search, struct best *best, struct family f) {
    const struct cuts *cuts = search->cuts;
    struct span span = {f.start + 1, f.j};
    double u = best[(size_t)f.j * (size_t)(search->level.machines + 1) + f.m].seconds;
    if (!cuts->below && !search->group && !isinf(u))
        span = within_sync(search, f, within_compute(search, f, span, u), u);
    int first = span.first, end = span.end;
    for (int k = first; k < end; k++)
        if (is_below(cuts, f.start, k) && is_below(cuts, k, f.j))
            try_cut(search, best, f, k);
    return end > first ? end - first : 0;
}

static _Noreturn void refuse_size(const struct cuts *cuts, const struct machines *machines) {
    die("%s: %d places for a cut and %d ranks are too many to try them all; merge layers that belong together, "
        "or give the ranks in levels of groups",
        cuts->profile->name, cuts->n - 2, count_machines(machines));
}

/* Fills best[j * (machines + 1) + m] for the cuts j after `start`. */
static void search_from(const struct search *search, int start, struct best *best) {
    const struct cuts *cuts = search->cuts;
    int all = search->level.machines, n = cuts->n;
    double tries = 0;
    for (int j = start + 1; j < n; j++) {
        if (!is_below(cuts, start, j))
            continue;
        struct best *row = best + (size_t)j * (size_t)(all + 1);
        for (int m = 1; m <= all; m++) {
            row[m] = (struct best){seconds_of(search, start, j, 0, m), start, m};
            struct best before = j > start + 1 && !cuts->below ? row[m - all - 1] : row[m];
            for (int k = before.from; before.from > start && k <= before.from + 1 && k < j; k++)
                try_cut(search, best, (struct family){start, j, m, before.machines}, k);
            for (int last = 1; last < m; last++)
                tries += 1 + try_cuts(search, best, (struct family){start, j, m, last});
        }
        if (tries > MOST_TRIES)
            refuse_size(cuts, search->machines);
    }
}

static struct best *best_from(const struct search *search, int start) {
    struct best *best = NEW(struct best, (size_t)search->cuts->n * (size_t)(search->level.machines + 1));
    search_from(search, start, best);
    return best;
}

/* Returns the times of the best pipelines between all pairs of cuts, on a whole group of this level. */
static double *times_of(const struct search *search) {
    int n = search->cuts->n, all = search->level.machines;
    size_t pairs = (size_t)n * (size_t)n;
    double *times = NEW(double, pairs);
    for (int i = 0; i < n; i++) {
        struct scratch scratch = scratch_begin();
        struct best *best = best_from(search, i);
        for (int j = i + 1; j < n; j++)
            times[i * n + j] = best[j * (all + 1) + all].seconds;
        scratch_end(scratch);
    }
    return times;
}

/* The groups that run a pipeline, each for other minibatches */
struct groups {
    int n, *first;       /* number of groups; first rank of each */
    double sync_of_byte; /* seconds per minibatch in which they synchronize a byte of weights */
};

/* Returns, as groups of their own, m machines from `first` on of each group. A machine has `size` ranks. A microbatch
 * stays in its group. */
static struct groups divide_groups(const struct search *search, struct groups groups, int first, int m, int size) {
    int n = groups.n * m;
    struct groups inner = {n, NEW(int, n), groups.sync_of_byte};
    for (int k = 0; k < n; k++)
        inner.first[k] = groups.first[k % groups.n] + (first + k / groups.n) * size;
    inner.sync_of_byte += sync_of(search->machines, search->level, 1, m) / n;
    return inner;
}

static struct part make_part(const struct search *search, int from, int to, int first, int m, struct groups groups) {
    const struct cuts *cuts = search->cuts;
    double compute = (cuts->seconds[to] - cuts->seconds[from]) / slowest_of(search->machines->speed, first, m);
    return (struct part){
        .from = from,
        .to = to,
        .replicas = groups.n,
        .rank = groups.first,
        .compute = compute / groups.n,
        .sync = groups.sync_of_byte * (cuts->weights[to] - cuts->weights[from]),
    };
}

/* Appends the stages between the cuts, level by level. search: one per level. */
static void expand(struct partition *p, const struct search *search, int level, int from, int to,
                   struct groups groups) {
    const struct search *s = &search[level];
    int all = s->level.machines, size = 1, nstages = 0, *cut = NEW(int, all), *count = NEW(int, all);
    for (int i = 0; i < level; i++)
        size *= search[i].level.machines;
    const struct best *best = best_from(s, from);
    for (int j = to, m = all; j != from; nstages++) {
        struct best last = best[j * (all + 1) + m];
        cut[nstages] = j;
        count[nstages] = last.machines;
        j = last.from;
        m -= last.machines;
    }
    for (int i = nstages - 1, first = 0; i >= 0; i--) {
        struct groups inner = divide_groups(s, groups, first, count[i], size);
        if (level > 0)
            expand(p, search, level - 1, from, cut[i], inner);
        else
            p->part[p->nparts++] = make_part(s, from, cut[i], first, count[i], inner);
        first += count[i];
        from = cut[i];
    }
}

/* Computes the times to compare with: on one machine, the fastest; and on all machines, each with the whole model. */
static void compare_times(struct partition *p, const struct cuts *cuts, const struct machines *machines) {
    double seconds = cuts->seconds[cuts->n - 1];
    p->one = seconds / fastest_of(machines);
    p->parallel = seconds / slowest_of(machines->speed, 0, machines->level[0].machines);
    for (int i = 0; i < machines->nlevels; i++) {
        struct level level = machines->level[i];
        double sync = sync_of(machines, level, cuts->weights[cuts->n - 1], level.machines);
        p->parallel = stage_time(machines, p->parallel, sync, level.machines);
    }
}

/* Refuses searches that would take many minutes. For a chain on one level, search_from checks this as it runs. */
static void check_effort(const struct cuts *cuts, const struct machines *machines) {
    double n = cuts->n, steps = 0;
    for (int i = 0; i < machines->nlevels; i++) {
        double m = machines->level[i].machines;
        steps += (i < machines->nlevels - 1 ? n / 3 : 1) * n * n / 2 * m * m / 2;
    }
    if (steps > MOST_TRIES && (cuts->below || machines->nlevels > 1))
        refuse_size(cuts, machines);
}

struct partition *find_partition(const struct cuts *cuts, const struct machines *machines) {
    struct partition *p = NEW(struct partition, 1);
    struct search search[MOST_LEVELS];
    int top = machines->nlevels - 1, last = cuts->n - 1, first = 0, after = 0;
    check_effort(cuts, machines);
    for (int i = 0; i <= top; i++)
        search[i] = (struct search){cuts, machines, machines->level[i], i > 0 ? times_of(&search[i - 1]) : NULL,
                                    fastest_of(machines)};
    int all = machines->level[top].machines;
    p->seconds = best_from(&search[top], 0)[last * (all + 1) + all].seconds;
    if (isinf(p->seconds))
        die("no partition of %s fits into %g bytes on each of %d ranks: a stage keeps its weights, and its layers' "
            "activations, once per minibatch that it has at a time; give --memory or --workers more",
            cuts->profile->name, machines->memory, count_machines(machines));
    p->part = NEW(struct part, count_machines(machines));
    expand(p, search, top, 0, last, (struct groups){1, &first, 0});
    for (int s = p->nparts - 1; s >= 0; after += p->part[s--].replicas)
        p->part[s].versions = versions_of(p->part[s].replicas, after);
    compare_times(p, cuts, machines);
    return p;
}
