/* Shared by lower.c, lower_issue.c and fetch.c: the program under construction, homes of weights, and fetches. */
#ifndef PIANOLA_LOWER_H
#define PIANOLA_LOWER_H
#include "base/heap.h"
#include "passes.h"

/* The set of weights that a job reads, and whose gradient it adds to: its stage's own, and the table if its layers use
 * it. -1: it does not use this one. */
enum which_set { OWN, TABLE, NSETS };
int32_t set_read(const struct spec *sp, const struct job *j, enum which_set which);
int32_t set_added(const struct spec *sp, const struct job *j, enum which_set which);
/* The home that w() names for it; for the table, the home of stage 0's forward of the same microbatch. */
int32_t home_of_set(const struct spec *sp, const struct job *j, enum which_set which);
static inline int sets_of(const struct spec *sp) { return sp->stages + sp->tied; }

struct owners {
    int32_t *at, *rank; /* the homes of set s: rank[at[s] .. at[s+1]), ascending; the table's are stage 0's */
};
struct owners homes_of(const struct spec *sp);
bool is_home(const struct owners *homes, int set, int rank);

struct fetch {
    int32_t rank, stage, home, inst, uses; /* stage: the set of weights */
    int32_t after;                         /* the job whose end leaves the slot; -1: the slot is free from the start */
};
struct fetches {
    struct fetch *a;
    int n;
    int32_t *of_job;       /* [job * NSETS + which]: the fetch whose weights it reads, or -1 */
    int32_t *after, *next; /* fetches that the end of job j starts: after[j], then next[]; after[njobs]: at the start */
};
struct fetches fetch_plan(const struct spec *sp, const struct sched *sc, const struct owners *homes);
/* A rank's part of the gradient of a stage, or of the table. */
struct part {
    int32_t rank, stage, buf;
    int32_t jobs;           /* its own contributions that have not ended */
    int32_t home;           /* where it goes: the rank itself if it is a home */
    int32_t arrivals;       /* at a home: parts of other ranks that are not added yet */
    int32_t waiting;        /* at a home: received parts that wait for its own jobs; a list through next */
    int32_t next, received; /* as a member of that list: the received buffer, at the home */
    bool written;           /* something has been accumulated */
};

struct closing { /* a buffer whose message has left at time t */
    double t;
    int32_t rank, buf;
};
static inline bool closes_before(struct closing x, struct closing y) { return x.t < y.t; }
HEAP(closings, struct closing, closes_before)

struct build {
    const struct spec *sp;
    const struct stage *st;
    const struct graph *g;
    const struct sched *sc;
    struct program *p;
    struct owners homes;
    struct fetches fetches;
    int32_t *fetched;  /* per fetch: its buffer */
    int32_t *edge_buf; /* per edge: the tensor, as a buffer of the consumer's rank */
    int32_t *job_ins;  /* per job: its instruction */
    int sets;          /* of weights: the stages', and the table */
    int32_t **weight;  /* per rank and set: home buffers, or -1; likewise: */
    int32_t *part_at;  /* rank * sets + set -> index in part, or -1 */
    struct part *part;
    int nparts;
    int *homes_left;           /* per set: homes whose gradient is not complete */
    struct delivery *delivery; /* per rank and kind, of the round in hand */
    int32_t round;
    struct closings closings;
    struct caps {
        size_t ins, buf, arg, freed, event, uses, lanes;
        int32_t *left; /* per buffer: uses yet to be issued */
        int16_t *lane; /* by what it is for, see lane_of; -1: none yet */
        int32_t *update;
        int nupdates;
    } * rank;
};

/* lower_issue.c */
int32_t new_buf(struct build *build, int r, int kind, int s, int b, int inst, int64_t bytes, int uses);
/* A buffer that lives from here to its last use. A stash whose I runs here includes room for what I adds. */
int32_t open_buf(struct build *build, int r, int kind, int s, int b, int inst, int uses);
void push_event(struct build *build, int r, int32_t e);
void close_until(struct build *build, double t); /* buffers of messages that have left by then */
void add_lane(struct build *build, int r, struct lane lane);
struct instr *issue(struct build *build, int r, int op, int s, int b, int peer, int inst);
void issue_collective(struct build *build, int r, int op, int s, int g);
void add_operand(struct build *build, int r, int role, int32_t buf); /* to the newest instruction */
/* The newest instruction uses buf once, and frees it if that is the last use. Returns whether it does. */
bool use_up(struct build *build, int r, int32_t buf);
/* A SEND of buf and its RECV; returns the received buffer, used `uses` times. Frees buf at its last use. */
int32_t send_message(struct build *build, double t, int from, int to, int32_t buf, int inst, int uses);
void order_lanes(struct rank *k); /* lane 0 is compute; then by kind, and by peer or group */
#endif
