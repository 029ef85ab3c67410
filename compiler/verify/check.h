/* Declarations shared by the verify*.c files, which share no code with lower, mem and lanes. verify.c outlines the
 * proof. A function that refutes a claim returns false. */
#ifndef PIANOLA_CHECK_H
#define PIANOLA_CHECK_H
#include "verify.h"

struct check {
    const struct spec *sp;
    const struct costs *costs;
    const struct graph *g;
    const struct program *p;
    int claims;
    int32_t **mate; /* per rank and instruction: for a SEND or RECV, its partner on the edge; for a collective, the
                       number of collectives before it in its lane; else -1 */
    struct series *series; /* [GROUP_LANES * g]: group g's gather lanes; one entry per kind of lane */
    int32_t ncollectives;  /* number of collectives in all series */
    int32_t *at;           /* per rank: next instruction of the serial walk */
    struct values *values;
    int failed; /* refuted claim, or 0 */
    int holds;  /* claims proved so far */
    struct text why;
};

/* The collectives of a group in its lanes of one kind. The k-th ones of all members meet. */
struct series {
    const struct group *g;
    int32_t **ins, *count; /* per member: its instructions, and their number */
    int32_t n;             /* collectives per member */
    int32_t first;         /* index of the first one among all collectives */
};

/* verify.c. Refutes a claim at an instruction. Always returns false, for `return refute(…)`. */
bool refute(struct check *check, int claim, int rank, int32_t i, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Refutes a claim when no single instruction is at fault. */
bool refute_all(struct check *check, int claim, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Appends "rank 1 lane compute, line 12: F 1 3" to check->why. */
void put_place(struct check *check, int rank, int32_t i);
const char *stage_text(const struct check *check, int s);
const char *job_text(const struct check *check, int32_t j);
static inline const struct group *check_group(const struct check *check, int rank, const struct instr *x) {
    return &check->p->group[check->p->rank[rank].lane[x->lane].group];
}
static inline struct series *series_of(const struct check *check, int rank, const struct instr *x) {
    const struct lane *lane = &check->p->rank[rank].lane[x->lane];
    return &check->series[GROUP_LANES * lane->group + lane->kind - LANE_GATHER];
}
/* Returns a collective's index among all collectives, which is the same for each member. */
static inline int32_t collective_of(const struct check *check, int rank, int32_t i) {
    return series_of(check, rank, &check->p->rank[rank].ins[i])->first + check->mate[rank][i];
}
/* Returns the nth operand with that role, or NULL; operand() returns its buffer, or -1. */
const struct arg *find_arg(const struct rank *k, const struct instr *x, int role, int nth);
int32_t operand(const struct rank *k, const struct instr *x, int role, int nth);

/* verify_pair.c: pairs the k-th SEND and RECV of each edge, and the k-th collectives of a group's lanes. */
bool pair_messages(struct check *check);
bool pair_collectives(struct check *check);

/* Returns whether a buffer holds weights, whole or a shard, that its rank owns. */
static inline bool at_home(const struct buf *b) { return b->kind == K_wshard || (b->kind == K_weight && b->inst < 0); }
static inline bool holds_weights(int kind) { return kind == K_weight || kind == K_wshard; }
static inline bool holds_gradient(int kind) { return kind == K_wgrad || kind == K_gshard || kind == K_gown; }

/* A buffer's bytes are [first_byte, end_byte): the device's arena comes first, then the arena in host memory. A
 * zero-byte buffer gets MOST_PIECES bytes of its own past both, so that accesses to it and its pieces are still checked
 * for order. */
enum { MOST_PIECES = 4096 };
static inline bool in_host(const struct buf *b) { return memory_of(b) == MEMORY_HOST; }
static inline int64_t arena_of(const struct rank *k, const struct buf *b) { return in_host(b) ? k->host : k->arena; }
static inline int64_t first_byte(const struct rank *k, int32_t b) {
    const struct buf *x = &k->buf[b];
    if (!x->bytes)
        return k->arena + k->host + (int64_t)b * MOST_PIECES;
    return (in_host(x) ? k->arena : 0) + (x->off < 0 ? 0 : x->off);
}
static inline int64_t size_of(const struct rank *k, int32_t b) {
    return k->buf[b].bytes ? k->buf[b].bytes : MOST_PIECES;
}
static inline int64_t end_byte(const struct rank *k, int32_t b) { return first_byte(k, b) + size_of(k, b); }

/* The symbolic value of a buffer */
struct value {
    int32_t stage, batch;
    int32_t count; /* weight and optimizer state: updates applied; token: the op of the job of (s,b) that it stands for;
                      mid: its progress (verify_exchange.c) */
    int32_t sum;   /* wgrad: its sum of contributions (verify_sums.c); norm: its norm (verify_norm.c); NO_SUM: none */
    int32_t part;  /* wgrad: the rank whose part was received; -1: this rank's own */
    int32_t inst;  /* wgrad: number in its buffer's name, or -1 */
    int32_t pieces; /* if its pieces hold different things: its runs (verify_pieces.c); set, count and sum are then
                       unused. Else 0 */
    uint8_t kind;   /* a shard has the kind of the whole; a copy to or from host memory has the kind of the original */
    bool live, set;
    bool half;     /* not set yet, but a job in parts is writing it (verify_parts.c) */
    bool gave_way; /* a stash whose bytes already belong to the wstash that its I makes in parts */
};
enum { NO_SUM };

/* Sets of weights, numbered: one per stage, then token tables that two stages share, then what teams share */
struct weight_sets {
    int n;
    int32_t *table, *shared; /* verify_sets.c: per stage, its table and what its team shares; -1: none */
    int32_t *slots;          /* per set: number of stages that contribute to its gradient */
    uint32_t *seen;          /* per set: bit mask of the kinds of its buffers */
};

struct values {
    struct value **val;
    bool *done;        /* per job */
    uint8_t *section;  /* per job, if a period repeats: section_of its instruction */
    int32_t *declared; /* per job, if updates are jobs: version that it declares; -1: it reads none */
    int32_t *newest;   /* per job: newest version of its sets that its rank has at home when it starts; -1: none */
    bool **stays;      /* per buffer: whether it lives for the whole step, like the workspace and a home's permanent
                          buffers */
    struct weight_sets sets;
    int64_t *bytes[NKINDS]; /* at entry_of: the tensor's size, on which all its buffers must agree; -1: none seen yet */
    int64_t *bytes_read;    /* at entry_of: size of the largest buffer that its forwards have read */
    bool has_state;         /* whether the optimizer has state for at least one set */
    struct tensors *scratch;
    struct plan *plan;       /* verify_memory.c */
    struct sums *sums;       /* verify_sums.c */
    struct orders_of *added; /* verify_members.c */
    struct norms *norms;     /* verify_norm.c */
    struct pool *pool;       /* verify_pieces.c */
    struct meeting *meeting; /* verify_groups.c */
    struct homes *homes;     /* per set */
    int32_t *units;          /* per set */
    struct divided *divided; /* per rank and workspace (verify_parts.c) */
    int64_t *mid_bytes;      /* verify_exchange.c */
    int32_t *mid_at;         /* per stage: index in mid_bytes of its first mid's size */
    struct state *state;     /* per rank (verify_period.c) */
    struct owner *owner;     /* verify_homes.c: rank r's are owner[owner_at[r] .. owner_at[r + 1]) */
    int32_t *owner_at;
};

/* Returns the index of a buffer's size: one per set, or one per stage and slice for tensors that a slice has. */
static inline int entry_of(const struct check *check, int set, int batch) {
    int slices = check->p->names.slices;
    return slices && batch >= 0 ? check->values->sets.n + set * slices + batch % slices : set;
}
static inline int entries(const struct check *check) {
    return check->values->sets.n + check->sp->stages * check->p->names.slices;
}

/* verify_values.c: tracks each buffer's value along the serial walk. Each returns false once a claim is refuted. */
bool values_begin(struct check *check);
bool values_run(struct check *check, int rank, int32_t i); /* runs an instruction that has no partner */
bool values_message(struct check *check, int src, int32_t i, int dst, int32_t j);
bool values_end(struct check *check);
bool check_reads(struct check *check, int r, int32_t i); /* refutes unless every buffer that it reads holds something */
const char *buf_text(const struct check *check, int r, int32_t b);
const char *value_text(const struct check *check, const struct value *value);
bool is_tensor(const struct value *value, int kind, int s, int b, int d);
/* Refutes unless the buffer's name matches the tensor put into it. */
struct tensor_name {
    int kind, stage, batch, inst;
};
bool named(struct check *check, int r, int32_t i, int32_t b, struct tensor_name name);

/* Prepares the destination of a message or copy: opens it under the tensor's name, or, if it is live, refutes unless
 * the operand's span of it is empty. */
bool ready(struct check *check, int r, int32_t i, const struct arg *a, struct tensor_name name);

/* verify_job.c: checks what a job reads. */
void jobs_begin(struct check *check);
bool verify_job(struct check *check, int r, int32_t i);

/* verify_groups.c: runs the nth collective of a series once all members have arrived. */
bool values_collective(struct check *check, const struct series *series, int32_t nth);

/* verify_sets.c: the sets of weights that follow the stages' own, and which jobs use which. */
bool sets_begin(struct check *check);
bool knows_homes(const struct spec *sp); /* whether homes named by w() are recorded; a program's text has none */
/* Returns the set of weights that a job's operand w, v, u, dw, dv or du belongs to; -1: the job has no such operand. */
int32_t set_of_operand(const struct check *check, const struct instr *x, int role);
/* Returns stage s's number among the sets.slots[set] stages that contribute to a set's gradient; -1: it does not. */
int slot_of(const struct check *check, int set, int s);

/* verify_exchange.c: teams, and what their members exchange between the parts of a job. */
bool teams_begin(struct check *check);
int exchanges_in(const struct check *check, const struct instr *x); /* number of exchanges between the parts of a job */
bool check_mid(struct check *check, int r, int32_t b);              /* refutes unless its number and size are right */
/* Refutes unless a part gives what its next exchange moves, and gets what the exchange before it made. */
bool gives_and_gets(struct check *check, int r, int32_t i);
bool give_buffer(struct check *check, int r, int32_t i, int32_t b);
bool verify_exchange(struct check *check, const struct series *series, int32_t nth);

/* verify_parts.c: jobs in parts. */
void parts_begin(struct check *check);
/* Begins a job: as a whole, or the next part of the one in progress. */
bool begin_part(struct check *check, int r, int32_t i);
static inline bool is_last_part(const struct instr *x) { return x->part == x->last; }
/* Return whether an earlier, or a later, part of the job also writes this gradient operand. */
bool written_before(const struct check *check, int r, const struct instr *x, const struct arg *a);
bool written_again(const struct check *check, int r, const struct instr *x, const struct arg *a);
/* Returns the job's contribution to a set's gradient, which is made when its first part runs. */
int32_t contribution_of(struct check *check, int r, int32_t i, int role);
/* Writes an output of a job other than a gradient. Part 0 has opened it; the last part completes it. */
bool write_part(struct check *check, int r, int32_t i, int32_t b);

/* verify_ranges.c: checks which bytes of its stage's gradient each part of a backward contributes. */
bool ranges_begin(struct check *check);
struct pieces { /* pieces that a part names, highest to lowest, both inclusive; -1: none */
    int32_t high, low;
};
/* Refutes unless part i contributes the bytes that end at *left and names their pieces of dw. Moves *left to where they
 * begin; the last part must reach 0. */
bool contributes(struct check *check, int r, int32_t i, const struct arg *dw, struct pieces named, int64_t *left);

/* Returns whether the number in a gradient's name is one that rank r's own parts have. */
static inline bool names_own_part(const struct check *check, int r, const struct buf *b) {
    return b->inst < 0 || (b->inst >= check->p->workers && b->inst % check->p->workers == r);
}
/* Returns the round of a gradient: its index among the parts of one set that its rank sends. */
static inline int round_of(const struct check *check, const struct buf *b) {
    return b->inst < 0 ? 0 : b->inst / check->p->workers;
}

bool in_parts(const struct check *check, int r, int32_t i); /* a job that has begun continues at i or later */
bool is_workspace(struct check *check, int r, int32_t i, int32_t b);

/* verify_updates.c: updates that are jobs, and versions of weights. */
bool updates_begin(struct check *check);
int32_t updates_of(const struct check *check, int set); /* updates per step */
struct batches {
    int32_t from, to;
};
struct batches batches_of(const struct check *check, int set, int32_t k); /* microbatches of update k: [from, to) */
/* Refutes unless what a job reads of a set, in buffer b, has the version that the job declares. */
bool has_its_version(struct check *check, int r, int32_t i, int set, int32_t b);
/* Refutes unless a job declares the version that the schedule's rules give. teams_agree checks this for its whole
 * team. */
bool declares_version(struct check *check, int r, int32_t i, int32_t job);
bool teams_agree(struct check *check);
bool versions_repeat(struct check *check);
/* Returns the number in the name of rank r's own gradient for update k. */
int32_t own_name(const struct check *check, int r, int32_t k);
/* If updates are jobs: refutes unless a gradient is named for the update that the instruction belongs to. */
bool is_of_its_update(struct check *check, int r, int32_t i, int32_t b);

/* verify_period.c */
void period_begin(struct check *check);
bool waits_stay(struct check *check);
/* Runs before instruction check->at[r]: records rank r's state if the period begins there; if it ends there, compares
 * the state with the recorded one. */
bool at_mark(struct check *check, int r);
bool jobs_repeat(struct check *check); /* refutes unless jobs, and the versions that they read, repeat */

/* verify_copies.c: copies to host memory and back. */
/* Refutes unless host memory is touched only by these copies, each in its direction. */
bool in_its_memory(struct check *check, int r, int32_t i, const struct arg *a);
bool run_copy_over(struct check *check, int r, int32_t i);
/* Refutes unless the optimizer state in host memory at the end of the step is the updated one. */
bool state_has_come_back(struct check *check, int r, int32_t b);

/* verify_memory.c: sizes and liveness of buffers. */
bool memory_begin(struct check *check);
bool open_buffer(struct check *check, int r, int32_t i,
                 int32_t b); /* refutes unless its bytes are free and inside the arena */
bool free_buffers(struct check *check, int r, int32_t i, bool stashes);
/* Releases the stash's bytes for another buffer, although its I still reads it. */
void give_way(struct check *check, int r, int32_t stash);
bool memory_end(struct check *check);

/* verify_sums.c: gradients as sums of contributions. */
void sums_begin(struct check *check);
bool accumulate(struct check *check, int r, int32_t i, int role); /* adds the job's own contribution */
int32_t new_contribution(struct check *check, const struct instr *x);
bool run_add(struct check *check, int r, int32_t i);
bool verify_update(struct check *check, int r, int32_t i);
int64_t contributions(const struct check *check, int32_t sum);
/* Sets *a to the join of both sums. Returns false if it would have more contributions than exist; `refute_count`
 * reports that. */
bool join(struct check *check, int32_t *a, int32_t b);
bool refute_count(struct check *check, int r, int32_t i, int set, int64_t n);
/* Refutes unless an operand is exactly what this rank updates of the instruction's set, and its complete gradient. */
bool is_own_gradient(struct check *check, int r, int32_t i, const struct arg *dw);
/* Returns whether `later` has the contributions of `sum` moved by one period. */
bool is_moved_on(struct check *check, int32_t sum, int32_t later);

/* Parts of a sum: for one contribution, ~stage and microbatch; for a join, two sums; for the empty sum, NO_SUM
 * twice. */
struct addends {
    int32_t a, b;
};
struct addends addends_of(const struct check *check, int32_t sum);

/* verify_members.c: a team's members add up the gradients of parameters that each has whole, in one order. */
void members_begin(struct check *check);
bool adds_in_order(struct check *check, int r, int32_t i, const struct arg *dw);

/* verify_norm.c: the norm by which updates are clipped. */
bool norms_begin(struct check *check);
bool norms_end(struct check *check);
bool verify_norm(struct check *check, int r, int32_t i);
bool add_up_norms(struct check *check, const struct series *series, int32_t nth);
bool is_clipped(struct check *check, int r, int32_t i); /* refutes unless it clips as the script says */

#endif
