/* Lower bounds that no schedule of the same jobs on the same ranks can beat, and closed forms.
 *
 * lower bound  the largest of three:
 *     work     of the busiest rank; or of all ranks, divided among the cores that they share
 *     path     the longest path through the job graph, links between ranks included
 *     memory   a rank holds activations for (their number) x (the time each must live) in all, and never more than its
 *              peak at once: Rahimi 2025's rho <= M / S, rank by rank. With pred(), only an activation's own jobs count
 *              towards the time it must live.
 *
 * A schedule reaches the third bound if its ranks always hold as many activations as they may, and no activation waits.
 * Memory-time shows how far it is from that. The room is caps (or peaks) x makespan. Activations hold some of it. Part
 * of what they hold is needed, since each must live for at least its own chain. The rest of what they hold is waiting;
 * the rest of the room is empty. */
#include "passes.h"
#include <limits.h>
#include <math.h>

/* Returns the least time from the end of one job to the start of another along their edges; 0: there are none. */
static double between(const struct compile *c, int32_t from, int32_t to) {
    double most = 0;
    for (int32_t e = c->graph->pred_at[to]; e < c->graph->pred_at[to + 1]; e++)
        if (c->graph->pred[e] == from)
            most = fmax(most, edge_time(c, e, to));
    return most;
}

static double bound_work(const struct spec *sp, const struct report *rep) {
    double most = 0, all = 0;
    for (int r = 0; r < rep->workers; r++) {
        most = fmax(most, rep->rank[r].busy);
        all += rep->rank[r].busy;
    }
    return sp->machine.cores > 0 ? fmax(most, all * sp->machine.threads / sp->machine.cores) : most;
}

static double bound_path(const struct compile *c) {
    const struct graph *graph = c->graph;
    const int32_t *order = graph_order(graph);
    double *start = NEW(double, graph->n), most = 0;
    for (int i = 0; i < graph->n; i++) {
        int32_t j = order[i];
        double end = start[j] + job_time(c->costs, j);
        most = fmax(most, end);
        for (int32_t e = graph->succ_at[j]; e < graph->succ_at[j + 1]; e++) {
            int32_t k = graph->succ[e];
            start[k] = fmax(start[k], end + edge_time(c, graph->succ_edge[e], k));
        }
    }
    return most;
}

/* Returns the stage, at the same place in its team, that reads this stage's output and sends back its gradient; -1:
 * there is none, or there may be several. */
static int next_in_chain(const struct spec *sp, int s) {
    int reader = sp->pred || is_graph(sp) ? -1 : reader_of(sp, s, 0);
    return reader >= 0 && source_of(sp, reader, 0) == s ? reader : -1;
}

/* Returns the least time from the start of F(s,b) to the end of B or I(s,b). inner: the same time for the next
 * stage. */
static double round_trip(const struct compile *c, int s, int b, double inner) {
    const struct spec *sp = c->spec;
    int32_t f = job_at(sp, s, b, OP_F), again = job_at(sp, s, b, OP_R), back = job_at(sp, s, b, OP_B);
    if (back < 0)
        back = job_at(sp, s, b, OP_I);
    double wait =
        again < 0 ? between(c, f, back) : between(c, f, again) + job_time(c->costs, again) + between(c, again, back);
    int reader = next_in_chain(sp, s);
    if (reader >= 0) {
        int32_t next = job_at(sp, reader, b, OP_B);
        if (next < 0)
            next = job_at(sp, reader, b, OP_I);
        inner += between(c, f, job_at(sp, reader, b, OP_F)) + between(c, next, back);
        wait = fmax(wait, inner);
    }
    return job_time(c->costs, f) + wait + job_time(c->costs, back);
}

/* Returns the memory bound, and sets memory_needed. */
static double bound_memory(const struct compile *c, struct report *rep) {
    const struct spec *sp = c->spec;
    const struct program *p = c->program;
    double *alive = NEW(double, sp->workers), *trip = NEW(double, sp->stages), most = 0;
    for (int b = 0; b < sp->batches; b++) {
        double times = b >= sp->batches - p->period ? (double)p->repeats : 1; /* repetitions of a period are alike */
        for (int s = sp->stages - 1; s >= 0; s--) {
            int32_t f = job_at(sp, s, b, OP_F), last = last_backward(sp, s, b);
            int reader = next_in_chain(sp, s);
            trip[s] = round_trip(c, s, b, reader >= 0 ? trip[reader] : 0);
            double life = trip[s];
            if (sp->job[last].d == OP_W)
                life += between(c, job_at(sp, s, b, OP_I), last) + job_time(c->costs, last);
            double here = sp->job[f].rank == sp->job[last].rank ? life : job_time(c->costs, f);
            rep->memory_time.needed += life;
            alive[sp->job[f].rank] += times * here;
            alive[sp->job[last].rank] += times * (life - here);
        }
    }
    for (int r = 0; r < sp->workers; r++)
        if (rep->rank[r].peak_activations > 0)
            most = fmax(most, alive[r] / rep->rank[r].peak_activations);
    return most;
}

/* Returns the memory-time that ranks could hold. */
static double memory_room(const struct spec *sp, const struct timeline *tl, struct report *rep) {
    double most = 0;
    for (int r = 0; r < rep->workers; r++) {
        bool capped = sp->limits.cap && sp->limits.cap[r] < INT_MAX;
        int peak = rep->rank[r].peak_activations; /* exceeds the cap where the rank takes over activations that others
                                                   * began */
        most += capped && sp->limits.cap[r] > peak ? sp->limits.cap[r] : peak;
        rep->memory_time.capped |= capped;
    }
    return most * tl->makespan;
}

/* Returns the script's closed form, which holds for its own costs and for free links, or NAN. */
static double closed_bubble(const struct spec *sp) {
    return sp->declared.bubble && !sp->model && !sp->machine.has_cluster && !sp->declared.recompute && !sp->machine.took
               ? *sp->declared.bubble
               : NAN;
}

/* Returns the share of the critical path during which none of its jobs runs. Overlapping jobs count once. */
static double links_on_path(const struct program *p, const struct timeline *tl) {
    struct scratch scratch = scratch_begin();
    bool **on = critical_path(p, tl);
    double jobs = 0;
    for (int r = 0; r < p->workers; r++) {
        double last = 0;
        for (int i = 0; i < p->rank[r].nins; i++)
            if (on[r][i] && p->rank[r].ins[i].lane == 0) {
                jobs += fmax(tl->end[r][i] - fmax(tl->start[r][i], last), 0);
                last = fmax(last, tl->end[r][i]);
            }
    }
    scratch_end(scratch);
    return tl->makespan > 0 ? fmax(1 - jobs / tl->makespan, 0) : 0;
}

void report_bounds(const struct compile *c, struct report *rep) {
    rep->bound.links = links_on_path(c->program, c->timeline);
    rep->bound.work = bound_work(c->spec, rep);
    rep->bound.path = bound_path(c);
    rep->bound.memory = bound_memory(c, rep);
    rep->bound.lower = fmax(rep->bound.work, fmax(rep->bound.path, rep->bound.memory));
    rep->gap = rep->bound.lower > 0 ? rep->makespan / rep->bound.lower - 1 : 0;
    if (rep->gap < 1e-9) /* the bound adds up the same times in another order */
        rep->gap = 0;
    rep->memory_time.room = memory_room(c->spec, c->timeline, rep);
    rep->closed_bubble = closed_bubble(c->spec);
}
