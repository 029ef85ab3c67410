/* Declarations shared by lower*.c and fetch.c: the program under construction, homes of weights, fetches and
 * gradients. */
#ifndef PIANOLA_LOWER_H
#define PIANOLA_LOWER_H
#include "lower_state.h"
#include "passes.h"

/* set_read, set_added: return the set of weights that a job reads, and the set whose gradient it adds to. These are its
 * stage's own, the table if its layers use it, or what its team shares. -1: the job does not use this set. */
bool unembeds(const struct costs *costs,
              int s); /* returns whether stage s, or a member's, has the unembedding of a tied model */
int32_t set_read(const struct costs *costs, const struct job *j, enum which_set which);
int32_t set_added(const struct costs *costs, const struct job *j, enum which_set which);
/* Returns the home that w() names for the set, like job.home. For a table, it is the home of stage 0's forward of the
 * same microbatch, by the member at the same place. */
const int32_t *home_of_set(const struct spec *sp, const struct job *j, enum which_set which);
static inline int sets_of(const struct spec *sp) { return sp->stages + sp->names.sets; }
static inline const struct homes *homes_of(const struct costs *costs, int set) { return &costs->homes[set]; }

/* Returns, per rank and set, [rank * sets + set], the rank's place in homes.rank, or -1. */
int32_t *home_places(const struct costs *costs);

/* A stay: weights that a rank fetches, keeps for a while, and drops. */
struct fetch {
    int32_t rank, set, home, inst, uses; /* home: like job.home */
    int32_t version;                     /* version of the set's weights; 0 unless updates are jobs */
    int32_t after;                       /* job whose end frees the slot, or -1 */
    int32_t beside;      /* job from whose start on the slot is free, or -1. Both -1: free from the start of the step */
    int32_t first, last; /* first and last job that read it */
    int32_t source;      /* rank that relays it, or -1: it comes from its home */
    int32_t from;        /* fetch of that rank whose weights are copied, or -1: its weights at home */
};
struct fetches {
    struct fetch *a;
    int n;
    int32_t *of_job; /* [job * NSETS + which]: fetch whose weights the job reads, or -1 */
    int64_t *least;  /* per rank: the least bytes that any plan with these slots and this room receives */
    size_t cap;
};
struct fetches fetch_plan(const struct compile *c, const int32_t *place);
/* Returns the bytes of the set that the rank receives in a fetch: all but its own shard. */
int64_t fetch_bytes(const struct costs *costs, const int32_t *place, int rank, int32_t set);
struct fetch new_fetch(int rank, int set, int home, int inst, int32_t first); /* without uses, from its home */
void add_use(struct fetch *f, int32_t job); /* adds a use by a job later than all others */
/* Returns whether choices.room limits what the rank keeps. */
static inline bool has_room_limit(const struct compile *c, int rank) {
    const int64_t *room = c->choices.room;
    return room && c->sched->norder[rank] > 0 && room[c->sched->order[rank][0]] < INT64_MAX;
}
/* Returns whether two uses, job * NSETS + which, are by one job, or by two that overlap. */
bool at_once(const struct costs *costs, int32_t use, int32_t other);

/* A rank's uses of fetched weights, as job * NSETS + which, in the order of jobs. */
struct uses {
    int rank, n;
    const int32_t *a;
};
/* fetch_bytes.c: plans the rank's fetches with the fewest bytes received, with at most `slots` sets at a time, within
 * choices.room. */
void plan_bytes(const struct compile *c, const int32_t *place, struct uses use, int slots, struct fetches *fetches);

/* Fetches that travel together, gathered or broadcast, or one that travels alone. */
struct transfer {
    uint8_t op;           /* OP_ALL_GATHER, OP_BROADCAST or OP_FETCH */
    const int32_t *fetch; /* n fetches, by rank; a relayed one is alone */
    int32_t n, group;
    int32_t moment; /* first the moment from which all have room; then the moment at which it starts */
    int32_t due;    /* moment at which some rank needs the weights */
};
struct transfers {
    struct transfer *a; /* sorted by moment */
    int n, next;        /* next: the first transfer not yet issued */
};

/* Moments of the schedule: each is the end of ~j or the start of j. */
struct moments {
    int32_t *start, *end; /* per job: its moments */
    int32_t *begin;       /* per job: first of the starts at the time of its start */
    double *time;         /* per moment */
};

/* Weights that travel, and their transfers. */
struct weights_state {
    struct fetches fetches;
    struct transfers transfers;
    int32_t *fetched; /* per fetch: its buffer */
};

/* The program under construction. */
struct build {
    const struct choices *choices;
    const struct spec *sp;
    const struct costs *costs;
    const struct graph *g;
    const struct sched *sc;
    struct program *p;
    int sets;          /* number of sets of weights: the stages', and those that follow them */
    int32_t *place;    /* result of home_places */
    int32_t *edge_buf; /* per edge: the buffer of its tensor on the consumer's rank */
    int32_t *job_ins;  /* per job: its instruction, or its newest part's */
    struct caps *rank;
    struct delivery *delivery; /* per rank and kind, valid in the current round */
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

/* Returns the rank's place among the homes of the set, or -1. owner_at returns its owner; the rank must have a
 * place. */
static inline int place_at(const struct build *build, int rank, int set) {
    return build->place[(int64_t)rank * build->sets + set];
}
static inline struct owner *owner_at(const struct build *build, int rank, int set) {
    return &build->sums.owner[build->sums.owners_at[build->sums.gradient_at[set]] + place_at(build, rank, set)];
}

/* Returns the owner of a shard, or of a whole set, in replica l. */
static inline struct owner *replica(const struct build *build, struct shard shard, int l) {
    return &build->sums.owner[build->sums.owners_at[shard.gradient] + l * homes_of(build->costs, shard.set)->size +
                              shard.number];
}

/* lower_issue.c */
int32_t new_buf(struct build *build, int r, struct buf buf, int uses); /* its offset is not planned yet */
/* Opens a buffer that lives from now to its last use. A stash whose I runs on this rank includes room for what I
 * adds. */
int32_t open_buf(struct build *build, int r, int kind, int s, int b, int inst, int uses);
void push_event(struct build *build, int r, int32_t e);
void close_until(struct build *build, double t); /* closes buffers of messages that have left by time t */
void add_lane(struct build *build, int r, struct lane lane);
struct instr *issue(struct build *build, int r, int op, int s, int b, int peer, int inst);
/* Issues a member's side of a collective; its operands follow, then set_algorithm. inst, root: -1 if there is none. */
struct instr *issue_collective(struct build *build, int r, int op, int s, int inst, int root, int g);
void add_operand(struct build *build, int r, int role, int32_t buf); /* adds to the newest instruction */
void add_piece(struct build *build, int r, int role, int32_t buf, int piece, int pieces);
/* Counts a use of buf by the newest instruction, and frees buf if that is the last use. Returns whether it does. */
bool use_up(struct build *build, int r, int32_t buf);
/* Ends a use by an instruction, issued at time t, that moves the buffer's bytes. The bytes become free when it has
 * ended, but not before time `read` if jobs read them too. */
void end_shared_use(struct build *build, double t, double read, int r, int32_t buf);
static inline void end_use(struct build *build, double t, int r, int32_t buf) { end_shared_use(build, t, t, r, buf); }
/* Issues a SEND of buf and its RECV. Returns the received buffer, which has `uses` uses. Frees buf at its last use. */
int32_t send_message(struct build *build, double t, int from, int to, int32_t buf, int inst, int uses);
/* Chooses the cheaper algorithm for the newest instruction, a collective, by its largest operand. */
void set_algorithm(struct build *build, int r);
void order_lanes(struct rank *k); /* orders lanes: lane 0 is compute; the others by kind, then by peer or group */
/* Returns the group of these ranks in this order. */
int intern_group(struct build *build, const int32_t *rank, int n);

/* lower_offload.c */
void plan_reloads(struct build *build);
void offload(struct build *build, int32_t e, const struct job *to,
             double t); /* moves edge e's tensor to host memory, if it is to be offloaded */
void issue_reloads(struct build *build, int32_t moment, double t);
bool state_leaves(const struct spec *sp, int set);
int32_t fetch_state(struct build *build, const struct owner *owner);            /* returns its buffer on the device */
void return_state(struct build *build, const struct owner *owner, int32_t buf); /* after its update, the newest */
/* fetch.c: returns the bytes of weights that the program makes the rank fetch and gather. */
int64_t weights_received(const struct costs *costs, const int32_t *place, const struct program *p, int r);

/* lower_weights.c */
struct moments moments_in(const struct build *build);
void plan_transfers(struct build *build);
void issue_transfers(struct build *build, int32_t moment); /* issues the transfers of this moment */
void read_weights(struct build *build, int32_t j);         /* adds operands to job j's instruction, which is the
                                                            * newest */

/* Returns the homes by which the gradient's sum is divided: the homes of the weights. With zero 2, if all replicas of a
 * whole set have parts of the sum, the replicas form a list over which it is sharded. */
static inline const struct homes *sums_of(const struct build *build, int set) { return &build->sums.homes[set]; }
/* Returns the number of equal pieces in which the set's gradient travels. pieces_of_sum returns the number in each
 * home's sum. */
static inline int pieces_of_set(const struct build *build, int set) {
    return build->costs->stage[set].pieces > 1 ? build->costs->stage[set].pieces : 1;
}
static inline int pieces_of_sum(const struct build *build, int set) {
    int n = pieces_of_set(build, set), size = sums_of(build, set)->size;
    return n == 1 ? 1 : n / size;
}
/* Returns the part that job j contributes to, or NULL. */
static inline struct part *part_to(const struct build *build, int32_t j, int which) {
    int32_t p = build->sums.part_of[(int64_t)j * NSETS + which];
    return p < 0 ? NULL : &build->sums.part[p];
}

/* Returns the gradient, as an index in build.sums.gradient, that job j adds to by adding to this set. */
static inline int32_t gradient_to(const struct build *build, int32_t j, int set) {
    const int *update = build->sp->updates.every;
    return build->sums.gradient_at[set] + (update ? build->costs->job[j].b / update[set] : 0);
}
/* Returns a home's sum of that gradient. */
static inline struct owner *summing(const struct build *build, int rank, int32_t gradient) {
    return &build->sums
                .owner[build->sums.owners_at[gradient] + place_at(build, rank, build->sums.gradient[gradient].set)];
}

/* lower_versions.c */
void find_readers(struct build *build);
/* Returns the home's buffer with that version, and counts a read; without updates that are jobs, returns its
 * weights. */
int32_t read_version(struct build *build, int rank, int set, int32_t version);
void start_update(struct build *build, int32_t j);

/* lower_parts.c */
void find_parts(struct build *build);                   /* also finds owners, and what each waits for */
int parts_of_job(const struct build *build, int32_t j); /* returns the number of parts of the job; usually 1 */
/* Returns whether job j is the last that adds to the part, and the part's pieces may leave before the job has ended. */
bool leaves_early(const struct build *build, const struct part *part, int32_t j);

/* lower_teams.c */
/* Returns whether j is the second of a braided pair, whose parts run between the first job's parts. */
static inline bool is_second(const struct costs *costs, int32_t j) {
    const struct pair_costs *pair = pair_costs_of(costs, j);
    return pair && pair->braided && partner_of(costs->spec, j) < 0;
}
/* Adds what part p of job j, the newest instruction, receives from and gives to its team. */
void give_and_get(struct build *build, int32_t j, int p);
/* Notes at time t that part p of job j has ended, or that the result of the exchange after it has arrived. Once the
 * last member's part has ended, issues the exchange of all members. Returns the part of j that can run now, or -1. */
int next_of_team(struct build *build, int32_t j, int p, bool exchanged, double t);
void order_operands(struct rank *k); /* orders the newest instruction's operands as ops.h lists them */

/* lower_gradients.c */
void start_empty_sums(struct build *build); /* starts the sums of homes that get no contribution */
/* Add gradients as operands of the newest instruction: job j's or the first of its parts; or, for the own set, a later
 * part p. */
void add_gradients(struct build *build, int32_t j);
void add_own_gradient(struct build *build, int32_t j, int p);
void part_ends(struct build *build, int32_t j, int p, double t); /* part p of job j has ended; it is not the last */
void gradients_end(struct build *build, int32_t j, double t);    /* job j has ended at t */
void issue_updates(struct build *build);
/* Adds to the newest instruction the gradient by which the l-th replica of the shard's homes updates. */
void add_gradient(struct build *build, struct shard shard, int l);

/* lower_norm.c */
void issue_norms(struct build *build); /* called if updates are clipped */
/* Issue the norms of post-validation, before and after everything else: see layers/post_validation.h. */
void add_up_last_norms(struct build *build);
void issue_next_norms(struct build *build);
#endif
