/* Lower bounds on a candidate's time and memory, from its jobs and their ranks alone.
 *
 * Time: per rank, the sum of the least time before any of its jobs, all of its work, and the least time after any of
 * them; and the longest path through the jobs. Links are included, reductions and updates are not.
 *
 * Memory: per rank, its weights and their optimizer state, the largest of its gradients, and what a single forward
 * needs and keeps. */
#include "tune.h"
#include <math.h>

/* Returns the compute lane's time for a job; a pair's time counts for the first job only. */
static double lane_work(const struct costs *costs, int32_t j) {
    if (costs->spec->job[j].pair)
        return partner_of(costs->spec, j) >= 0 ? computing_time(costs, j) : 0;
    return job_time(costs, j);
}

double least_makespan(const struct compile *c) {
    const struct spec *sp = c->spec;
    const struct graph *graph = c->graph;
    const int32_t *order = graph_order(graph);
    double *head = NEW(double, graph->n), *tail = NEW(double, graph->n), most = 0;
    double *before = NEW(double, sp->workers), *work = NEW(double, sp->workers), *after = NEW(double, sp->workers);
    for (int r = 0; r < sp->workers; r++)
        before[r] = after[r] = INFINITY;
    for (int i = 0; i < graph->n; i++)
        for (int32_t j = order[i], e = graph->succ_at[j]; e < graph->succ_at[j + 1]; e++) {
            int32_t k = graph->succ[e];
            double there = head[j] + job_time(c->costs, j) + edge_time(c, graph->succ_edge[e], k);
            head[k] = fmax(head[k], there);
        }
    for (int i = graph->n - 1; i >= 0; i--)
        for (int32_t j = order[i], e = graph->succ_at[j]; e < graph->succ_at[j + 1]; e++) {
            int32_t k = graph->succ[e];
            double rest = edge_time(c, graph->succ_edge[e], k) + job_time(c->costs, k) + tail[k];
            tail[j] = fmax(tail[j], rest);
        }
    for (int j = 0; j < graph->n; j++) {
        int r = sp->job[j].rank;
        before[r] = fmin(before[r], head[j]);
        after[r] = fmin(after[r], tail[j]);
        work[r] += lane_work(c->costs, j);
        most = fmax(most, head[j] + job_time(c->costs, j) + tail[j]);
    }
    for (int r = 0; r < sp->workers; r++)
        if (work[r] > 0)
            most = fmax(most, before[r] + work[r] + after[r]);
    return most * (1 - 1e-9); /* the program adds up the same times in another order */
}

int64_t least_memory(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    int64_t *always = NEW(int64_t, sp->workers), *gradient = NEW(int64_t, sp->workers);
    int64_t *forward = NEW(int64_t, sp->workers), most = 0;
    for (int s = 0; s < sp->stages + sp->names.sets; s++) {
        const struct homes *homes = &costs->homes[s];
        const int64_t *bytes = costs->stage[s].bytes;
        bool sharded = homes->size > 1,
             away = sp->limits.offload_state && s < sp->stages && sp->limits.offload_state[s];
        int64_t sum = bytes[sharded ? K_gshard : K_wgrad];
        for (int i = 0; i < homes->lists * homes->size && !is_bare(costs, s); i++) {
            int r = homes->rank[i];
            always[r] += bytes[sharded ? K_wshard : K_weight] + (away ? 0 : bytes[K_opt]);
            gradient[r] = gradient[r] > sum ? gradient[r] : sum;
        }
    }
    for (int j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        const int64_t *bytes = stage_at(costs, job->s, job->b)->bytes;
        bool again = job_at(sp, job->s, job->b, OP_R) >= 0;
        int64_t need = bytes[again ? K_input : K_stash] + bytes[K_work];
        if (job->d == OP_F && need > forward[job->rank])
            forward[job->rank] = need;
    }
    for (int r = 0; r < sp->workers; r++) {
        int64_t held = gradient[r] > forward[r] ? gradient[r] : forward[r];
        most = always[r] + held > most ? always[r] + held : most;
    }
    return most;
}
