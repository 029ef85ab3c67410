/* Shared by lower*.c and fetch.c: the program under construction, homes of weights, fetches and gradients. */
#ifndef PIANOLA_LOWER_H
#define PIANOLA_LOWER_H
#include "base/heap.h"
#include "base/map.h"
#include "passes.h"

/* The set of weights that a job reads, and whose gradient it adds to: its stage's own, and the table if its layers use
 * it. -1: it does not use this one. */
enum which_set { OWN, TABLE, NSETS };
int32_t set_read(const struct spec *sp, const struct job *j, enum which_set which);
int32_t set_added(const struct spec *sp, const struct job *j, enum which_set which);
/* The home that w() names for it, as job.home; for the table, the home of stage 0's forward of the same microbatch. */
const int32_t *home_of_set(const struct spec *sp, const struct job *j, enum which_set which);
static inline int sets_of(const struct spec *sp) { return sp->stages + sp->tied; }
static inline const struct homes *homes_of(const struct spec *sp, int set) { return &sp->homes[set]; }

/* Per rank and set, [rank * sets + set]: the rank's place in homes.rank, or -1. */
int32_t *home_places(const struct spec *sp);

/* A stay: weights that a rank fetches, keeps for a while, and drops. */
struct fetch {
    int32_t rank, set, home, inst, uses; /* home: as job.home */
    int32_t after;       /* the job whose end leaves the slot, or -1; the slot is free from the start of */
    int32_t beside;      /* this job on, or -1. Both -1: from the start of the step */
    int32_t first, last; /* the first and the last job that read it */
    int32_t source;      /* the rank from which it is relayed, or -1: it comes from its home */
    int32_t from;        /* the fetch of that rank which it copies, or -1: its weights at home */
};
struct fetches {
    struct fetch *a;
    int n;
    int32_t *of_job; /* [job * NSETS + which]: the fetch whose weights it reads, or -1 */
};
struct fetches fetch_plan(const struct spec *sp, const struct sched *sc, const int32_t *place);

/* Fetches that travel together: gathered, broadcast, or one alone, before this moment of the schedule. */
struct transfer {
    uint8_t op;           /* OP_ALL_GATHER, OP_BROADCAST or OP_FETCH */
    const int32_t *fetch; /* n of them, by rank; a relayed one is alone */
    int32_t n, group;
    int32_t moment; /* from which on all have room; then, when it starts */
    int32_t due;    /* the moment at which some rank needs them */
};
struct transfers {
    struct transfer *a; /* by moment */
    int n, next;        /* next: the first not issued yet */
};

/* A rank's part of the gradient of a set, in wgrad. */
struct part {
    int32_t rank, set;
    int32_t buf;  /* -1: not open yet */
    int32_t jobs; /* its contributions that have not ended */
    int32_t list; /* of the set's homes, where it goes */
    bool written; /* something has been accumulated */
};
/* A home of a set: what it owns, and the sum that it makes, of its shard or of the whole set. */
struct owner {
    int32_t rank, set, place;  /* in homes.rank */
    int32_t weight, opt, gown; /* buffers; -1: none */
    int32_t sum;               /* its buffer, wgrad or gshard; -1: not open yet */
    int32_t own;               /* 1: what its own rank contributes is not in the sum yet */
    int32_t arrivals;          /* parts of other ranks that are not added yet */
    int32_t waiting;           /* received parts that wait for its own; a list through received.next */
    bool written;
};
struct received {
    int32_t from, buf, next;
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
    int sets;       /* of weights: the stages', and the table */
    int32_t *place; /* home_places */
    struct fetches fetches;
    struct transfers transfers;
    int32_t *fetched;  /* per fetch: its buffer */
    int32_t *edge_buf; /* per edge: the tensor, as a buffer of the consumer's rank */
    int32_t *job_ins;  /* per job: its instruction */
    int32_t *part_at;  /* [rank * sets + set]: index in part, or -1 */
    struct part *part;
    int nparts;
    struct owner *owner; /* of set s: owner[owners_at[s] + place] */
    int32_t *owners_at;
    struct list {              /* of homes */
        int32_t members, left; /* how many of its ranks have a part; of those that meet, how many are not complete */
    } * list;                  /* of set s: list[list_at[s] + i] */
    int32_t *list_at;
    int32_t *incomplete; /* per set and shard, [owners_at[set] + shard]: its sums that are not complete */
    struct received *received;
    size_t nreceived, received_cap;
    struct shard {
        int32_t set, number;
    } * done; /* complete, in that order */
    int ndone;
    struct map groups;
    int room_for_groups;
    size_t cap_groups;
    struct delivery *delivery; /* per rank and kind, of the round in hand */
    int32_t round;
    struct closings closings;
    struct caps {
        size_t ins, buf, arg, freed, event, uses, lanes;
        int32_t *left; /* per buffer: uses yet to be issued */
        int16_t *lane; /* by what it is for, see lane_of; -1: none yet */
    } * rank;
};

/* The rank's place among the homes of the set, or -1; if it has one, its owner. */
static inline int place_at(const struct build *build, int rank, int set) {
    return build->place[(int64_t)rank * build->sets + set];
}
static inline struct owner *owner_at(const struct build *build, int rank, int set) {
    return &build->owner[build->owners_at[set] + place_at(build, rank, set)];
}

/* lower_issue.c */
int32_t new_buf(struct build *build, int r, int kind, int s, int b, int inst, int64_t bytes, int uses);
/* A buffer that lives from here to its last use. A stash whose I runs here includes room for what I adds. */
int32_t open_buf(struct build *build, int r, int kind, int s, int b, int inst, int uses);
void push_event(struct build *build, int r, int32_t e);
void close_until(struct build *build, double t); /* buffers of messages that have left by then */
void add_lane(struct build *build, int r, struct lane lane);
struct instr *issue(struct build *build, int r, int op, int s, int b, int peer, int inst);
/* A member's side of a collective; its operands follow, then set_algorithm. inst, root: -1 where there is none. */
struct instr *issue_collective(struct build *build, int r, int op, int s, int inst, int root, int g);
void add_operand(struct build *build, int r, int role, int32_t buf); /* to the newest instruction */
void add_piece(struct build *build, int r, int role, int32_t buf, int piece, int pieces);
/* The newest instruction uses buf once, and frees it if that is the last use. Returns whether it does. */
bool use_up(struct build *build, int r, int32_t buf);
/* The same where the instruction, issued at time t, moves the buffer's bytes: they are free when it has ended, and, if
 * jobs read them too, at time `read` at the earliest. */
void end_shared_use(struct build *build, double t, double read, int r, int32_t buf);
static inline void end_use(struct build *build, double t, int r, int32_t buf) { end_shared_use(build, t, t, r, buf); }
/* A SEND of buf and its RECV; returns the received buffer, used `uses` times. Frees buf at its last use. */
int32_t send_message(struct build *build, double t, int from, int to, int32_t buf, int inst, int uses);
/* The same of a piece of a part of a gradient, which arrives as a shard. */
int32_t send_piece(struct build *build, double t, int from, int to, int32_t buf, int piece, int pieces);
/* Of the newest instruction, a collective: the cheaper, by its largest operand. */
void set_algorithm(struct build *build, int r);
void order_lanes(struct rank *k); /* lane 0 is compute; then by kind, and by peer or group */
/* The group of these ranks in this order. */
int intern_group(struct build *build, const int32_t *rank, int n);

/* lower_weights.c */
void plan_transfers(struct build *build);
void issue_transfers(struct build *build, int32_t moment); /* those of this moment */
void read_weights(struct build *build, int32_t j);         /* as operands of job j's instruction, which is the newest */

/* lower_gradients.c */
void find_parts(struct build *build);               /* and owners */
void start_empty_sums(struct build *build);         /* of homes that get no contribution */
void add_gradients(struct build *build, int32_t j); /* as operands of job j's instruction, which is the newest */
void gradients_end(struct build *build, int32_t j, double t); /* job j has ended at t */
void issue_updates(struct build *build);
#endif
