/* Private to lower*.c: the components of struct build, by subject. */
#ifndef PIANOLA_LOWER_STATE_H
#define PIANOLA_LOWER_STATE_H
#include "base/heap.h"
#include "base/map.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor kept by a forward, which comes back from host memory for the job that reads it over `edge`. */
struct reload {
    int32_t rank, set, kind, edge;
    int32_t after;  /* job of the rank that has ended by then, or -1 */
    int32_t moment; /* moment from which on it may be issued */
    int32_t due;    /* moment of the reader's start */
};

/* A rank's sum of a set's gradient, in wgrad, until it is sent: the whole sum, or one of several rounds. */
struct part {
    int32_t rank, set, list; /* list: the list of the set's homes that gets it */
    int32_t sum;             /* its gradient: index in build.sums.gradient */
    int32_t round, rounds;   /* rounds: number of rounds of this rank and set */
    int32_t buf;             /* -1: not open yet */
    int32_t first, jobs;     /* first: the contributing job with the lowest number; jobs: contributing jobs that have
                              * not ended */
    int32_t last;            /* the contributing job that runs last */
    int32_t pieces;          /* pieces not sent yet, which are the lowest ones */
    int32_t *received;       /* per member of the list: the buffer on that member, or -1 */
    bool written;            /* something has been accumulated */
    bool direct;             /* its rank is a home of the whole set, so jobs add to the home's sum instead */
    int32_t apart; /* number, from 1 on, of an unembedding's part that is kept apart from the embedding's sum; else 0 */
    bool together; /* all members of its list have such a part, so they meet in collectives */
};
/* A home of a set: the buffers that it owns, and its sum, of its shard or of the whole set. */
struct owner {
    int32_t rank, set, place;  /* place in homes.rank */
    int32_t gradient;          /* index in build.sums.gradient */
    int32_t weight, opt, gown; /* buffers; -1: none */
    int32_t buf;               /* buffer of its sum, wgrad or gshard; -1: not open yet */
    int32_t sums;              /* piece k's sum is build.sums.sum[sums + k] */
};
/* The sum of a piece on a home. */
struct sum {
    int32_t own;      /* parts of its own rank that are still missing */
    int32_t arrivals; /* parts of other ranks that are still missing */
    int32_t waiting;  /* received parts that wait for parts of its own rank; a list through received.next */
    bool written;
};
/* The rounds in which parts of the members of lists meet in collectives. */
struct meetings {
    int32_t rounds; /* largest number of rounds of a list; 0: no parts meet */
    int32_t *left;  /* [(list * rounds + round) * pieces + piece]: number of members' parts in which the piece is not
                     * complete */
    int32_t *part;  /* [(list * rounds + round) * size + member] */
};
struct received {
    int32_t from, name, buf, next; /* name: the message's number */
};

struct closing { /* a buffer whose message has left at time t */
    double t;
    int32_t rank, buf;
};
static inline bool closes_before(struct closing x, struct closing y) { return x.t < y.t; }
HEAP(closings, struct closing, closes_before)

struct partial { /* event at time t: part p of job j, which is not its last, ends; or the result of its exchange
                  * arrives */
    double t;
    int32_t j, p;
    bool exchanged;
};
static inline bool ends_before(struct partial x, struct partial y) { return x.t != y.t ? x.t < y.t : x.j < y.j; }
HEAP(partials, struct partial, ends_before)

struct reached { /* number of parts of a job that have ended, and 1 + the exchange whose result has arrived */
    int16_t part, exchange;
};

/* Tensors that come back from host memory. */
struct reload_state {
    struct reload *reload; /* sorted by moment */
    int n, issued;
};

/* State of teams' exchanges. */
struct team_state {
    int32_t *mid;            /* two per job, for even and odd exchanges: the tensor that its parts give, or are to
                              * receive */
    int32_t *came;           /* two per team's job: members that have reached its current even, odd exchange */
    struct reached *reached; /* per job */
    int32_t *second_work;    /* per rank: the workspace of the second job of a braided pair */
    double *free;            /* per group that is a team: time until which its lane is busy */
    size_t cap;
};

/* State of gradients' norms, if updates are clipped. */
struct norm_state {
    int32_t *buf; /* per rank: its norm, or -1 */
    bool *begun;  /* per rank: the norm of this step has begun */
};

/* State of gradients' sums, from the parts that jobs make to the gradients that updates read. */
struct gradient_state {
    struct gradient {
        int32_t set, update;
    } * gradient;         /* one entry per sum: a set's, or, if updates are jobs, one per update of the set */
    int32_t *gradient_at; /* of set s: gradient[gradient_at[s] .. gradient_at[s+1]) */
    struct homes *homes;  /* per set: its homes, divided as sums_of describes */
    struct part *part;
    int nparts;
    int32_t *part_of;    /* [job * NSETS + which]: index in part, or -1 */
    struct owner *owner; /* of gradient g: owner[owners_at[g] + place]; the owners of a set's first gradient also have
                          * its weights */
    int32_t *owners_at;
    struct sum *sum;
    struct meetings *meetings; /* per gradient */
    int32_t **incomplete;      /* per gradient and shard, or piece of a whole set: number of its sums that are not
                                * complete */
    int32_t *rest;             /* per gradient: shards, or pieces of the whole, that are not complete and exchanged */
    struct received *received;
    size_t nreceived, received_cap;
    struct shard {
        int32_t set, number, gradient;
    } * done; /* complete shards, in the order of completion */
    int ndone;
};

/* Versions of a home's weights, if updates are jobs. */
struct version_state {
    struct version {
        int32_t readers; /* readers to come: jobs on the rank, and fetches */
        int32_t buf;     /* its copy; -1: it has not been replaced, or had no readers left by then */
    } * version;
    int32_t *at; /* of owner i: version[at[i] + number] */
};

/* Groups of the program's collectives, by their members. */
struct group_state {
    struct map map;
    int room;
    size_t cap;
    struct travel { /* cache of the last collective's algorithm and time; op 0: empty */
        int32_t op, group;
        int64_t whole;
        int algorithm;
        double time;
    } travel;
};

/* Future times, while instructions are issued in the order of time. */
struct clock_state {
    double *lane_free; /* per rank: end of its last part that a team waits for */
    double *busy;      /* per rank: end of its last job */
    struct closings closings;
    struct partials partials;
};

/* Capacities of a rank's arrays, and counts of what is in use. */
struct caps {
    size_t ins, buf, arg, freed, event, uses, lanes, orders;
    int32_t *left;     /* per buffer: uses yet to be issued */
    int16_t *lane;     /* lane by purpose, see lane_of; -1: none yet */
    int32_t updates;   /* number of updates issued with state from host memory */
    int32_t update[2]; /* the last two such updates */
    int64_t now, most; /* bytes in buffers that come and go, except fetched weights; and their peak since the rank's
                        * last job ended */
};
#endif
