/* Private to lower*.c: the parts of struct build, by what they are about. */
#ifndef PIANOLA_LOWER_STATE_H
#define PIANOLA_LOWER_STATE_H
#include "base/heap.h"
#include "base/map.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor that a forward kept, on its way back from host memory for the job that reads it over `edge`. */
struct reload {
    int32_t rank, set, kind, edge;
    int32_t after;  /* a job of the rank that has ended by then, or -1 */
    int32_t moment; /* from which on it may be issued */
    int32_t due;    /* the reader's start */
};

/* A rank's sum of a set's gradient, in wgrad, until it is sent: all of it, or one round of several. */
struct part {
    int32_t rank, set, list; /* list: of the set's homes, where it goes */
    int32_t sum;             /* of which gradient: index in build.sums.gradient */
    int32_t round, rounds;   /* rounds: of this rank and set */
    int32_t buf;             /* -1: not open yet */
    int32_t first, jobs;     /* of the jobs that contribute, the first by number; how many have not ended */
    int32_t last;            /* the one that runs last */
    int32_t pieces;          /* not sent yet: the lowest ones */
    int32_t *received;       /* per member of the list: its buffer there, or -1 */
    bool written;            /* something has been accumulated */
    bool direct;             /* its rank is a home of the whole set: it adds to the home's sum instead */
    int32_t apart; /* the unembedding's n-th, from 1, where its rank has the sum, with the embedding's; else 0 */
    bool together; /* all members of its list have such a part: they meet in collectives */
};
/* A home of a set: what it owns, and the sum that it makes, of its shard or of the whole set. */
struct owner {
    int32_t rank, set, place;  /* in homes.rank */
    int32_t gradient;          /* index in build.sums.gradient */
    int32_t weight, opt, gown; /* buffers; -1: none */
    int32_t buf;               /* of its sum, wgrad or gshard; -1: not open yet */
    int32_t sums;              /* that of piece k: build.sums.sum[sums + k] */
};
/* The sum of a piece. */
struct sum {
    int32_t own;      /* parts of its own rank that are not in it yet */
    int32_t arrivals; /* parts of other ranks that are not added yet */
    int32_t waiting;  /* received parts that wait for its own; a list through received.next */
    bool written;
};
/* Of a list's members, each round of whose parts meets in collectives. */
struct meetings {
    int32_t rounds; /* the most that a list has; 0: none meets */
    int32_t *left;  /* [(list * rounds + round) * pieces + piece]: members' parts in which it is not complete */
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

struct partial { /* part p of job j, which is not its last, ends at time t; or what came of its exchange is there */
    double t;
    int32_t j, p;
    bool exchanged;
};
static inline bool ends_before(struct partial x, struct partial y) { return x.t != y.t ? x.t < y.t : x.j < y.j; }
HEAP(partials, struct partial, ends_before)

struct reached { /* how many parts of a job have ended, and which of its exchanges is there, + 1 */
    int16_t part, exchange;
};

/* Tensors that come back from host memory. */
struct reload_state {
    struct reload *reload; /* by moment */
    int n, issued;
};

/* Exchanges of teams. */
struct team_state {
    int32_t *mid;            /* two per job: what its parts give, or are to get, even and odd exchanges */
    int32_t *came;           /* two per team's job: how many members have come to its even, odd exchange at hand */
    struct reached *reached; /* per job */
    int32_t *second_work;    /* per rank: the workspace of the second job of a braided pair */
    double *free;            /* per group, as far as it is a team: until when its lane is taken */
    size_t cap;
};

/* Norms of gradients, where updates are clipped. */
struct norm_state {
    int32_t *buf; /* per rank: its norm, or -1 */
    bool *begun;  /* per rank: it has begun that of this step */
};

/* The sums of gradients, from the parts that jobs make to what updates read. */
struct gradient_state {
    struct gradient {
        int32_t set, update;
    } * gradient;         /* each a sum: of a set; where updates are jobs, of each of its updates */
    int32_t *gradient_at; /* of set s: gradient[gradient_at[s] .. gradient_at[s+1]) */
    struct homes *homes;  /* per set: as its homes, but see sums_of */
    struct part *part;
    int nparts;
    int32_t *part_of;    /* [job * NSETS + which]: index in part, or -1 */
    struct owner *owner; /* of gradient g: owner[owners_at[g] + place]; the first of a set's also has its weights */
    int32_t *owners_at;
    struct sum *sum;
    struct meetings *meetings; /* per gradient */
    int32_t **incomplete;      /* per gradient and shard, or piece of a whole set: its sums that are not complete */
    int32_t *rest;             /* per gradient: shards, or pieces of the whole, that are not complete and exchanged */
    struct received *received;
    size_t nreceived, received_cap;
    struct shard {
        int32_t set, number, gradient;
    } * done; /* complete, in that order */
    int ndone;
};

/* Versions of a home's weights, where updates are jobs. */
struct version_state {
    struct version {
        int32_t readers; /* to come: jobs there, and fetches */
        int32_t buf;     /* its copy; -1: it has not been replaced, or nobody reads it then */
    } * version;
    int32_t *at; /* of owner i: version[at[i] + number] */
};

/* The groups of the program's collectives, by their members. */
struct group_state {
    struct map map;
    int room;
    size_t cap;
    struct travel { /* of the last collective that was asked about; op 0: none was */
        int32_t op, group;
        int64_t whole;
        int algorithm;
        double time;
    } travel;
};

/* Times to come, while instructions are issued in the order of time. */
struct clock_state {
    double *lane_free; /* per rank: until when its last part runs that a team waits for */
    double *busy;      /* per rank: until when its last job runs */
    struct closings closings;
    struct partials partials;
};

/* The room in a rank's arrays, and what of it is in use. */
struct caps {
    size_t ins, buf, arg, freed, event, uses, lanes, orders;
    int32_t *left;     /* per buffer: uses yet to be issued */
    int16_t *lane;     /* by what it is for, see lane_of; -1: none yet */
    int32_t updates;   /* with state from host memory: how many are issued */
    int32_t update[2]; /* the last two */
    int64_t now, most; /* bytes in buffers that come and go, except fetched weights; since the rank's last job ended */
};
#endif
