/* What is optimised: a schedule script's jobs without their order.
 *
 * A class is all jobs of one stage, direction and slice, of microbatches of one kind: those for which the script says
 * the same of every job. In some best schedule a class's jobs, its items, run in the order of microbatches: sort the
 * starts of every class; what an item needs, and how much memory there is, depends on how many items have started.
 * Weight gradients of a rank that take equally long and free equally much are one pool, since nothing waits for them:
 * whichever is there may run.
 *
 * Times are whole ticks. Where those of the script are multiples of no tick that is large enough, they are rounded
 * down, which permits only more: what is a lower bound here is one there. */
#ifndef PIANOLA_INSTANCE_H
#define PIANOLA_INSTANCE_H
#include "ir/graph.h"

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct lag { /* starts at least so many ticks behind the start of an item of class `from` */
    int32_t from;
    int64_t ticks;
};
struct class {
    int32_t s, d, rank, items; /* of a pool: the first of its stages */
    int64_t time;              /* of an item, at least 1 */
    int64_t take, give;        /* of the rank's room: from an item's start on, up to its end */
    struct lag *lag;
    int nlags;
    bool pool; /* item k waits until k + 1 items of all its lags' classes together are there; else for their item k */
    int64_t head, tail; /* the least time up to an item's start, and from an item's end to the end of everything */
    int64_t reach;      /* as long as a start matters: its time, or the longest lag behind it */
    int32_t *job;       /* [items]; a pool's are in no order */
    int32_t until;      /* of what takes room: the class that gives it back; */
    int32_t by;         /* and where that is a pool, the class of the same stage that it waits for */
};
struct instance {
    double tick; /* of the script's unit of time */
    bool rounded;
    int ranks, n;
    int64_t *room;        /* per rank; INT64_MAX: no limit */
    const int64_t *bytes; /* per rank: that room, in bytes; NULL: it is in activations */
    struct class *class;
    int *of_rank,
        *of_rank_at;   /* the classes of rank r, longest tail first: of_rank[of_rank_at[r] .. of_rank_at[r+1]) */
    int32_t *class_of; /* per job */
    bool *one_taker;   /* per rank: at most one of its classes takes room */
    bool span; /* what is to be least: the longest time that a rank takes from its first item to its last. Then also: */
    /* [class * ranks + r]: the least time from an item's end to that of one of rank r; -1: none follows */
    int64_t *tail_to;
};

/* Dies of the same, but for the jobs' times. */
void refuse_other_jobs(const struct spec *sp);
/* Dies, saying why, of what is not optimised: teams, pairs, updates within the step, and jobs that take no time. */
struct instance *instance_of(const struct compile *c);
/* The same with room in bytes for what microbatches keep, per rank, instead of caps; NULL: instance_of. */
struct instance *instance_in_bytes(const struct compile *c, const int64_t *room);

/* The largest bound on the makespan that one rank's work gives, with what must come before and after it. */
int64_t work_bound(const struct instance *in);
void minimise_span(struct instance *in); /* instead of the makespan */
/* The same for the span of rank r: its work, with what must lead from the last of it to another item of r. */
int64_t span_bound(const struct instance *in, int r);
/* What a microbatch of so many takes at least in a steady state: the busiest rank's work, or what it takes to hold, on
 * a rank with room, all that is to be held for as long as it must be. In ticks. */
struct steady {
    double work, memory;
};
struct steady steady_bound(const struct instance *in, int batches);
int64_t serial_time(const struct instance *in); /* of one item after the other: no order needs more, if it can run */
#endif
