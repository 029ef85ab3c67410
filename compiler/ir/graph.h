/* The job graph, that is, the dependencies between jobs, and the schedule of the jobs. */
#ifndef PIANOLA_GRAPH_H
#define PIANOLA_GRAPH_H
#include "costs.h"

struct compile;

/* ---- the job graph ---- */

struct graph {
    int n;                   /* jobs */
    int32_t *pred, *pred_at; /* predecessors of j: pred[pred_at[j] .. pred_at[j+1]) */
    /* Parallel to pred: the tensor that the edge carries if its jobs' ranks differ (schedules/language.md, "Default
     * dependencies"); K_token: none, an order only. One job may need another twice, for two tensors. */
    uint8_t *kind;
    int32_t *succ, *succ_at;
    int32_t *succ_edge; /* parallel to succ: the same edge's index in pred */
};

/* ---- the schedule: of the jobs and, where they are jobs, the updates ---- */

struct sched {
    double *start, *end; /* per job */
    int32_t **order;     /* per rank: its jobs in the order they run */
    int *norder;
    /* All events in order: j means that job j started, ~j that it ended. Sorted by time; events at one time are in
     * causal order: a job whose time is 0, or too small to change the time at hand, starts before it ends. */
    int32_t *moment;
    int nmoments, nstarts;
    double makespan;
    /* What repeats (period.c): so many microbatches, 0: nothing does; how often; from which moment to before which. */
    int period, shortest; /* shortest: period, but for being as long as it must */
    int64_t repeats;
    int32_t begin, finish;
    int32_t *version; /* per job, where updates are jobs: of the weights that it reads; NULL: they are not */
};

/* graph.c: needs the jobs; gives predecessors and successors. Dies on a cycle, naming it. */
struct graph *graph_build(const struct costs *costs);
/* Bytes of the tensor of edge e, an index in pred, which job `to` waits for; and the least time from the end of the job
 * before it to the start of `to`. */
int64_t edge_bytes(const struct compile *c, int32_t e);
double edge_time(const struct compile *c, int32_t e, int32_t to);
/* The jobs, each after all that it needs. */
int32_t *graph_order(const struct graph *graph);
/* The i-th stage whose output stage s reads, and the i-th stage that reads its output; -1: there are no more. These are
 * its neighbours in the chain, or what the model says. */
int source_of(const struct spec *sp, int s, int i);
int reader_of(const struct spec *sp, int s, int i);
bool has_edge(const struct graph *graph, int32_t job, int32_t pred);
struct link link_of(const struct spec *sp, int src, int dst);            /* free without a cluster */
double link_time(const struct spec *sp, int src, int dst, double bytes); /* until so many bytes have arrived */
double host_time(const struct spec *sp, int r, int64_t bytes);           /* of a copy to host memory, or back */
#endif
