/* Runs one search for each cap. An order for less room is also valid with more, and a bound for more room also holds
 * with less. So each search starts from the best order so far, and bounds are handed down at the end. */
#include "frontier.h"
#include "optimal.h"
#include "order.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct order {
    int64_t ticks;  /* when it ends */
    double time;    /* when it ends, in the script's unit, without rounding */
    int64_t *start; /* per job, in ticks */
    bool known;
};

struct optimum search_at(const struct searched *what, const struct instance *in, int64_t own) {
    return find_optimum(in, what->c->graph, own, what->searches.states, seconds_until(what->searches.seconds));
}

struct point end_search(const struct searched *what, struct scratch scratch, struct point point,
                        const char *certificate, const int64_t *start) {
    certificate = scratch_end_keeping(scratch, certificate);
    if (!what->searches.ended(what->searches.context, &point, certificate, start)) {
        point.lower = 0;
        point.proved = false;
    }
    return point;
}

const char *certificate_text(const struct searched *what, const struct instance *in, const struct optimum *best,
                             const char *with) {
    struct text t = {0};
    emit_certificate(&t, in, best, format("%s%s", what->searches.command, with));
    return t.s;
}

static void keep_best(const struct searched *what, struct order *order, const struct optimum *best) {
    double time = time_of_order(what->c, best->start);
    if (order->known && time >= order->time)
        return; /* better only in rounded times */
    *order = (struct order){best->makespan, time, order->start, true};
    memcpy(order->start, best->start, sizeof *best->start * (size_t)what->c->spec->njobs);
}

/* Searches with the caps of the compile's spec. order: the best known one; becomes the best one found. */
static struct point solve(const struct searched *what, int cap, struct order *order) {
    const struct searches *searches = &what->searches;
    struct scratch scratch = scratch_begin();
    if (searches->begins)
        searches->begins(searches->context, cap);
    const struct instance *in = instance_of(what->c);
    struct optimum best = search_at(what, in, order->known ? order->ticks : serial_time(in) + 1);
    if (best.start)
        keep_best(what, order, &best);
    bool closed = best.lower >= best.makespan;
    struct point point = {cap,
                          0,
                          order->known ? order->time : NAN,
                          (double)best.lower * in->tick,
                          cap,
                          closed && !(order->known && in->rounded)};
    if (closed && !in->rounded && order->known)
        point.lower = point.makespan;
    if (closed && !order->known)
        point.lower = NAN;
    const char *certificate = certificate_text(what, in, &best, cap ? format(", with cap = %d", cap) : "");
    return end_search(what, scratch, point, certificate, order->known ? order->start : NULL);
}

/* Returns the most activations that are live on a rank at once, each on the rank of its F. */
static int peak_of(const struct spec *sp, const int64_t *start) {
    struct scratch scratch = scratch_begin();
    const int32_t *order = jobs_by_start(sp, start);
    int *live = NEW(int, sp->workers), peak = 0;
    for (int32_t i = 0; i < sp->njobs; i++) {
        const struct job *job = &sp->job[order[i]];
        bool split = job_at(sp, job->s, job->b, OP_W) >= 0;
        live[job->rank] += job->d == OP_F;
        peak = live[job->rank] > peak ? live[job->rank] : peak;
        if (job->d == (split ? OP_W : OP_B))
            live[sp->job[job_at(sp, job->s, job->b, OP_F)].rank]--;
    }
    scratch_end(scratch);
    return peak;
}

void set_caps(struct compile *c, int cap) {
    struct spec *sp = memcpy(NEW(struct spec, 1), c->spec, sizeof *sp);
    sp->limits.cap = NEW(int, sp->workers);
    for (int r = 0; r < sp->workers; r++)
        sp->limits.cap[r] = cap;
    take_spec(c, sp);
}

/* Hands bounds down: a makespan that no order reaches with more room, none reaches with less. */
static void hand_down(struct frontier *frontier) {
    double lower = frontier->free.lower;
    int by = 0;
    for (int i = frontier->n - 1; i >= 0; i--) {
        struct point *point = &frontier->point[i];
        if (isnan(point->lower))
            break; /* nor does any order fit with less */
        if (lower > point->lower) {
            point->lower = lower;
            point->by = by;
        }
        lower = point->lower;
        by = point->by;
        point->proved |= lower >= point->makespan;
    }
}

struct frontier find_frontier(struct compile *c, struct searches searches) {
    const struct spec *sp = c->spec;
    const struct searched what = {c, searches};
    struct order order = {.start = NEW(int64_t, sp->njobs)}, best = {.start = NEW(int64_t, sp->njobs)};
    struct frontier frontier = {0};
    set_caps(c, INT_MAX);
    frontier.free = solve(&what, 0, &best);
    if (!best.known) /* one exists: any order that keeps the dependencies */
        die("%s: found no order at all; give more --time", sp->file);
    int peak = peak_of(sp, best.start);
    frontier.point = NEW(struct point, peak);
    while (frontier.n == 0 || order.ticks > best.ticks || !order.known) {
        int cap = frontier.n + 1;
        if (cap == peak)
            order = best;
        set_caps(c, cap);
        frontier.point[frontier.n++] = solve(&what, cap, &order);
    }
    frontier.free.makespan = order.time; /* a search that was cut short may have done better with less room */
    frontier.free.proved |= frontier.free.lower >= order.time;
    hand_down(&frontier);
    return frontier;
}
