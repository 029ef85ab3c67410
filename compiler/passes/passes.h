/* The passes, in the order pipeline.c runs them. Each comment says what a pass needs and what it gives. */
#ifndef PIANOLA_PASSES_H
#define PIANOLA_PASSES_H
#include "ir/graph.h"
#include "ir/program.h"

/* cost.c: needs the spec's model and cluster; gives what each stage weighs and fills in job costs not given.
 * Returns an array of spec->stages, and of a tied model the table behind them; sets spec's tied. Dies when the model
 * cannot be cut into that many stages. */
struct stage *cost_stages(struct spec *sp);
/* Seconds (or units, or FLOP) that update of a stage and adding `bytes` of gradient take. */
double cost_add(const struct spec *sp, int64_t bytes);

/* sched.c: needs the graph; gives start, end and order of every job, by the rules of schedules/README.md ("How jobs are
 * scheduled"). Dies on deadlock. */
struct sched *sched_run(const struct spec *sp, const struct stage *st, const struct graph *g);

/* lower.c: needs the schedule; gives the program without offsets, lanes assigned, waits missing. */
struct program *lower(const struct spec *sp, const struct stage *st, const struct graph *g, const struct sched *sc);

/* mem.c: needs lower; gives every buffer an offset and every rank its arena. Dies beyond the cluster's memory. */
void mem_plan(const struct spec *sp, struct program *p);

/* lanes.c: needs mem, because reused bytes are an order too; gives the waits, transitively reduced. */
void lanes_sync(struct program *p);

/* sim.c: needs a verified program; gives the predicted timeline. */
struct timeline *sim_run(const struct spec *sp, const struct stage *st, const struct program *p);

/* report.c: needs the timeline; gives the figures that are reported. */
enum {
    HELD_WEIGHTS,
    HELD_GRADIENTS,
    HELD_OPTIMIZER,
    HELD_FETCHED,
    HELD_ACT,
    HELD_GRAD,
    HELD_STASH,
    HELD_WORK,
    HELD_GAPS,
    NHELD
};
extern const char *const held_name[NHELD];
struct rank_report {
    double busy, idle, span;
    int peak_activations;
    int64_t peak_bytes; /* the arena: what the device allocates */
    int64_t
        held[NHELD]; /* where they are when most are in use; together peak_bytes, tokens and padding among the gaps */
    int activations_received, gradients_received, weights_received, reductions_received, stages_stored;
    int64_t bytes_received;
};
struct report {
    const char *schedule;
    const char *unit; /* of times: "F" (one unit of cost), "FLOP" or "s" */
    int workers, stages, batches;
    int measured; /* so many steps, of which the times are the median; 0: predicted */
    double makespan, bubble, throughput;
    double lower_bound, bound_work, bound_path, bound_memory; /* the largest, and the three it is taken from */
    double gap;                                               /* makespan / lower_bound - 1 */
    struct rank_report *rank;
};
struct report *report_make(const struct spec *sp, const struct stage *st, const struct graph *g,
                           const struct program *p, const struct timeline *tl);

/* path.c: which instructions are on the timeline's critical path: [rank][index in ins]. */
bool **critical_path(const struct program *p, const struct timeline *tl);
/* usage.c: the bytes of a rank that hold something, from each of these times on; the first is 0. start, end: as in the
 * timeline. */
struct usage {
    int n;
    struct usage_step {
        double t;
        int64_t bytes;
    } * at;
};
struct usage memory_use(const struct rank *k, const double *start, const double *end);
/* feeds.c: where an instruction's operands come from: who wrote what it reads, on its rank or behind a message. */
struct feed {
    int32_t rank, i, msg; /* i -1: nobody did, as weights at the beginning; msg -1: it came by none */
};
struct feeds {
    struct feed *feed;
    int32_t **at; /* of instruction i of rank r: feed[at[r][i] .. at[r][i+1]) */
};
struct feeds feeds_of(const struct program *p);
#endif
