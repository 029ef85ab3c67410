/* The job graph, that is, the dependencies between jobs, and the schedule of the jobs. */
#ifndef PIANOLA_GRAPH_H
#define PIANOLA_GRAPH_H
#include "costs.h"

struct compile;

/* ---- the job graph ---- */

struct graph {
    int n;                   /* number of jobs */
    int32_t *pred, *pred_at; /* predecessors of j: pred[pred_at[j] .. pred_at[j+1]) */
    /* Parallel to pred: the tensor that the edge carries if its jobs' ranks differ (schedules/language.md, "Default
     * dependencies"); K_token: none, only an order. One job may need another twice, for two tensors. */
    uint8_t *kind;
    int32_t *succ, *succ_at;
    int32_t *succ_edge; /* parallel to succ: the same edge's index in pred */
};

/* ---- the schedule of the jobs and, if they are jobs, the updates ---- */

struct sched {
    double *start, *end; /* per job */
    int32_t **order;     /* per rank: its jobs in execution order */
    int *norder;
    /* All events in order: j is the start of job j, ~j its end. Sorted by time. Events at one time are in causal order:
     * a job whose duration is 0, or too small to change the time, starts before it ends. */
    int32_t *moment;
    int nmoments, nstarts;
    double makespan;
    /* The period (period.c): its length in microbatches, or 0 if nothing repeats; how often it runs; its first moment,
     * and the first after it. */
    int period, shortest; /* shortest: length of the schedule's shortest period; `period` is a multiple of it */
    int64_t repeats;
    int32_t begin, finish;
    int32_t *version; /* per job, if updates are jobs: version of the weights that it reads; NULL: they are not */
};

/* graph.c: builds the edges between jobs in both directions. Dies if there is a cycle, and names it. */
struct graph *graph_build(const struct costs *costs);
/* edge_bytes returns the bytes of the tensor of edge e, an index in pred, which job `to` waits for. edge_time returns
 * the least time from its source's end to the start of `to`. */
int64_t edge_bytes(const struct compile *c, int32_t e);
double edge_time(const struct compile *c, int32_t e, int32_t to);
/* Returns the jobs in topological order. */
int32_t *graph_order(const struct graph *graph);
/* source_of returns the i-th stage whose output stage s reads, reader_of the i-th stage that reads its output; -1: no
 * more. These are the neighbours in the chain, or follow the model's edges. */
int source_of(const struct spec *sp, int s, int i);
int reader_of(const struct spec *sp, int s, int i);
bool has_edge(const struct graph *graph, int32_t job, int32_t pred);
struct link link_of(const struct spec *sp, int src, int dst);            /* free without a cluster */
double link_time(const struct spec *sp, int src, int dst, double bytes); /* seconds until the bytes arrive */
double host_time(const struct spec *sp, int r, int64_t bytes);           /* seconds of a copy to or from host memory */
#endif
