/* Shared by lower*.c and fetch.c: the program under construction, homes of weights, fetches and gradients. */
#ifndef PIANOLA_LOWER_H
#define PIANOLA_LOWER_H
#include "lower_state.h"
#include "passes.h"

/* The set of weights that a job reads, and whose gradient it adds to: its stage's own, the table if its layers use it,
 * what its team shares. -1: it does not use this one. */
bool unembeds(const struct spec *sp,
              int s); /* is it the stage, or a member's, that has the unembedding of a tied model? */
int32_t set_read(const struct spec *sp, const struct job *j, enum which_set which);
int32_t set_added(const struct spec *sp, const struct job *j, enum which_set which);
/* The home that w() names for it, as job.home; for a table, the home of stage 0's forward of the same microbatch, by
 * the member at the same place. */
const int32_t *home_of_set(const struct spec *sp, const struct job *j, enum which_set which);
static inline int sets_of(const struct spec *sp) { return sp->stages + sp->names.sets; }
static inline const struct homes *homes_of(const struct spec *sp, int set) { return &sp->costs.homes[set]; }

/* Per rank and set, [rank * sets + set]: the rank's place in homes.rank, or -1. */
int32_t *home_places(const struct spec *sp);

/* A stay: weights that a rank fetches, keeps for a while, and drops. */
struct fetch {
    int32_t rank, set, home, inst, uses; /* home: as job.home */
    int32_t version;                     /* of the set's weights; 0 unless updates are jobs */
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
    int64_t *least;  /* per rank: the bytes that it receives by any plan with these slots and this room */
    size_t cap;
};
struct fetches fetch_plan(const struct compile *c, const int32_t *place);
/* The bytes of the set that the rank receives by a fetch: all but its own shard. */
int64_t fetch_bytes(const struct spec *sp, const int32_t *place, int rank, int32_t set);
struct fetch new_fetch(int rank, int set, int home, int inst, int32_t first); /* without uses, from its home */
void add_use(struct fetch *f, int32_t job);                                   /* by a job behind all others */
/* Whether choices.room limits what the rank keeps. */
static inline bool has_room_limit(const struct compile *c, int rank) {
    const int64_t *room = c->choices.room;
    return room && c->sched->norder[rank] > 0 && room[c->sched->order[rank][0]] < INT64_MAX;
}
/* Uses, as job * NSETS + which, by one job, or by two that overlap. */
bool at_once(const struct spec *sp, int32_t use, int32_t other);

/* A rank's uses of weights that travel, as job * NSETS + which, in the order of jobs. */
struct uses {
    int rank, n;
    const int32_t *a;
};
/* fetch_bytes.c: the rank's plan with the fewest bytes received, with `slots` sets at a time, within choices.room. */
void plan_bytes(const struct compile *c, const int32_t *place, struct uses use, int slots, struct fetches *fetches);

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

/* What comes at a moment of the schedule: the end of ~j or the start of j. */
struct moments {
    int32_t *start, *end; /* per job: its moments */
    int32_t *begin;       /* per job: the first of the starts at its time */
    double *time;         /* per moment */
};

/* Weights that travel, and the messages in which they do. */
struct weights_state {
    struct fetches fetches;
    struct transfers transfers;
    int32_t *fetched; /* per fetch: its buffer */
};

/* The program as far as it is issued. */
struct build {
    const struct choices *choices;
    const struct spec *sp;
    const struct stage *st;
    const struct graph *g;
    const struct sched *sc;
    struct program *p;
    int sets;          /* of weights: the stages', and those behind them */
    int32_t *place;    /* home_places */
    int32_t *edge_buf; /* per edge: the tensor, as a buffer of the consumer's rank */
    int32_t *job_ins;  /* per job: its instruction, or that of its newest part */
    struct caps *rank;
    struct delivery *delivery; /* per rank and kind, of the round in hand */
    int32_t round;
    struct weights_state weights;
    struct reload_state reloads;
    struct team_state teams;
    struct norm_state norms;
    struct gradient_state sums;
    struct version_state versions;
    struct group_state groups;
    struct clock_state clock;
};

/* The rank's place among the homes of the set, or -1; if it has one, its owner. */
static inline int place_at(const struct build *build, int rank, int set) {
    return build->place[(int64_t)rank * build->sets + set];
}
static inline struct owner *owner_at(const struct build *build, int rank, int set) {
    return &build->sums.owner[build->sums.owners_at[build->sums.gradient_at[set]] + place_at(build, rank, set)];
}

/* The homes of one shard, or of a whole set: those of its replicas. */
static inline struct owner *replica(const struct build *build, struct shard shard, int l) {
    return &build->sums
                .owner[build->sums.owners_at[shard.gradient] + l * homes_of(build->sp, shard.set)->size + shard.number];
}

/* lower_issue.c */
int32_t new_buf(struct build *build, int r, struct buf buf, int uses); /* its place is not planned yet */
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
/* Of the newest instruction, a collective: the cheaper, by its largest operand. */
void set_algorithm(struct build *build, int r);
void order_lanes(struct rank *k); /* lane 0 is compute; then by kind, and by peer or group */
/* The group of these ranks in this order. */
int intern_group(struct build *build, const int32_t *rank, int n);

/* lower_offload.c */
void plan_reloads(struct build *build);
void offload(struct build *build, int32_t e, const struct job *to,
             double t); /* what travels along edge e, if it is to */
void issue_reloads(struct build *build, int32_t moment, double t);
bool state_leaves(const struct spec *sp, int set);
int32_t fetch_state(struct build *build, const struct owner *owner);            /* returns its buffer on the device */
void return_state(struct build *build, const struct owner *owner, int32_t buf); /* behind its update, the newest */
/* fetch.c: the bytes of weights that the rank fetches and gathers, by the program. */
int64_t weights_received(const struct spec *sp, const int32_t *place, const struct program *p, int r);

/* lower_weights.c */
struct moments moments_in(const struct build *build);
void plan_transfers(struct build *build);
void issue_transfers(struct build *build, int32_t moment); /* those of this moment */
void read_weights(struct build *build, int32_t j);         /* as operands of job j's instruction, which is the newest */

/* How the gradient's sum is divided: as the weights; or, with zero 2, replicas of a whole set that all have parts of it
 * sum as a list over which it is sharded. */
static inline const struct homes *sums_of(const struct build *build, int set) { return &build->sums.homes[set]; }
/* The equal pieces in which its gradient travels, and those of each of its homes' sums. */
static inline int pieces_of_set(const struct build *build, int set) {
    return build->st[set].pieces > 1 ? build->st[set].pieces : 1;
}
static inline int pieces_of_sum(const struct build *build, int set) {
    int n = pieces_of_set(build, set), size = sums_of(build, set)->size;
    return n == 1 ? 1 : n / size;
}
/* The part that job j contributes to; NULL: none. */
static inline struct part *part_to(const struct build *build, int32_t j, int which) {
    int32_t p = build->sums.part_of[(int64_t)j * NSETS + which];
    return p < 0 ? NULL : &build->sums.part[p];
}

/* The gradient, as an index in build.sums.gradient, that job j adds to by adding to this set. */
static inline int32_t gradient_to(const struct build *build, int32_t j, int set) {
    const int *update = build->sp->updates.every;
    return build->sums.gradient_at[set] + (update ? build->sp->job[j].b / update[set] : 0);
}
/* A home's sum of that gradient. */
static inline struct owner *summing(const struct build *build, int rank, int32_t gradient) {
    return &build->sums
                .owner[build->sums.owners_at[gradient] + place_at(build, rank, build->sums.gradient[gradient].set)];
}

/* lower_versions.c */
void find_readers(struct build *build);
/* The home's buffer with that version; without updates that are jobs, its weights. It counts as read. */
int32_t read_version(struct build *build, int rank, int set, int32_t version);
void start_update(struct build *build, int32_t j);

/* lower_parts.c */
void find_parts(struct build *build);                   /* and owners, and what each waits for */
int parts_of_job(const struct build *build, int32_t j); /* in how many parts it runs; mostly 1 */
/* Job j is the last that adds to the part, whose pieces have somewhere to go before it has ended. */
bool leaves_early(const struct build *build, const struct part *part, int32_t j);

/* lower_teams.c */
/* It is the second of a braided pair, whose parts run between those of the first. */
static inline bool is_second(const struct spec *sp, int32_t j) {
    const struct pair *pair = sp->job[j].pair ? &sp->pair[sp->job[j].pair - 1] : NULL;
    return pair && pair->braided && pair->second == j;
}
/* The newest instruction is part p of job j: what it gets, and what it gives. */
void give_and_get(struct build *build, int32_t j, int p);
/* At time t, part p of job j has ended, or what was exchanged behind it is there. Once the last member's part has
 * ended, all members exchange what they gave. Returns the part of j that can run now, or -1. */
int next_of_team(struct build *build, int32_t j, int p, bool exchanged, double t);
void order_operands(struct rank *k); /* of the newest instruction, as ops.h lists them */

/* lower_gradients.c */
void start_empty_sums(struct build *build); /* of homes that get no contribution */
/* As operands of the newest instruction, job j's or the first of its parts; and to the own set of a later part p. */
void add_gradients(struct build *build, int32_t j);
void add_own_gradient(struct build *build, int32_t j, int p);
void part_ends(struct build *build, int32_t j, int p, double t); /* of job j; not its last */
void gradients_end(struct build *build, int32_t j, double t);    /* job j has ended at t */
void issue_updates(struct build *build);
/* As operand of the newest instruction: what the l-th replica of the shard's homes updates by. */
void add_gradient(struct build *build, struct shard shard, int l);

/* lower_norm.c */
void issue_norms(struct build *build); /* where updates are clipped */
/* With post-validation, before and behind all else: see layers/post_validation.h. */
void add_up_last_norms(struct build *build);
void issue_next_norms(struct build *build);
#endif
