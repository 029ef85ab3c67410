/* The input of the optimizer: a schedule script's jobs without their order.
 *
 * A class consists of all jobs of one stage, direction and slice, for microbatches of one kind: those for which the
 * script says the same about every job. In some best schedule a class's jobs, its items, run in the order of
 * microbatches. To see this, sort the starts of every class: an item's inputs and the free memory depend only on how
 * many items have started. Weight gradients of a rank that take the same time and free the same memory form one pool,
 * since nothing waits for them: any ready one may run.
 *
 * Times are whole ticks. If no sufficiently large tick divides the script's times, they are rounded down. That only
 * permits more schedules, so a lower bound for the instance is one for the script. */
#ifndef PIANOLA_INSTANCE_H
#define PIANOLA_INSTANCE_H
#include "ir/graph.h"

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct lag { /* starts at least `ticks` after the start of an item of class `from` */
    int32_t from;
    int64_t ticks;
};
struct class {
    int32_t s, d, rank, items; /* s: for a pool, the first of its stages */
    int64_t time;              /* per item, at least 1 */
    int64_t take, give;        /* room of the rank, taken when an item starts and given back when it ends */
    struct lag *lag;
    int nlags;
    bool pool; /* item k waits until k + 1 items of all its lags' classes together have started; else for item k of each
                */
    int64_t head, tail; /* least time before an item's start; least time from an item's end to the end of everything */
    int64_t reach;      /* how long a start matters: its time, or the longest lag after it */
    int32_t *job;       /* [items]; in a pool, in no order */
    int32_t until;      /* if it takes room: the class that gives it back */
    int32_t by;         /* if that class is a pool: the class of the same stage that it waits for */
};
struct instance {
    double tick; /* in the script's unit of time */
    bool rounded;
    int ranks, n;
    int64_t *room;        /* per rank; INT64_MAX: no limit */
    const int64_t *bytes; /* per rank: the room in bytes; NULL: room counts activations */
    struct class *class;
    int *of_rank,
        *of_rank_at;   /* the classes of rank r, longest tail first: of_rank[of_rank_at[r] .. of_rank_at[r+1]) */
    int32_t *class_of; /* per job */
    bool *one_taker;   /* per rank: whether at most one of its classes takes room */
    bool span;         /* minimise the largest span, a rank's time from its first item to its last, with: */
    /* [class * ranks + r]: least time from an item's end to the end of one of rank r; -1: none follows */
    int64_t *tail_to;
};

/* Dies as instance_of does, except about the jobs' times. */
void refuse_other_jobs(const struct spec *sp);
/* Dies, saying why, if the script has something that is not optimised: teams, pairs, updates within the step, or jobs
 * that take no time. */
struct instance *instance_of(const struct compile *c);
/* Returns the instance with room in bytes per rank for what microbatches keep, instead of caps; NULL: instance_of. */
struct instance *instance_in_bytes(const struct compile *c, const int64_t *room);

/* Returns the largest bound on the makespan from one rank's work, with what must come before and after it. */
int64_t work_bound(const struct instance *in);
void minimise_span(struct instance *in); /* switches the objective from makespan to span */
/* Returns a bound on the span of rank r: its work, with what must lead from the last of it to another item of r. */
int64_t span_bound(const struct instance *in, int r);
/* Lower bounds on the time per microbatch in a steady state, in ticks: the busiest rank's work; or, on a rank with
 * room, the time to hold all that must be held for as long as it must be. */
struct steady {
    double work, memory;
};
struct steady steady_bound(const struct instance *in, int batches);
int64_t serial_time(const struct instance *in); /* all items one after the other: no valid order takes longer */
#endif
