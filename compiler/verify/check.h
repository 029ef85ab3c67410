/* Shared by the verify*.c files, which share no code with lower, mem and lanes. verify.c outlines the proof. */
#ifndef PIANOLA_CHECK_H
#define PIANOLA_CHECK_H
#include "verify.h"

struct check {
    const struct spec *sp;
    const struct graph *g;
    const struct program *p;
    int claims;
    int32_t **mate;        /* per rank and instruction: for SEND and RECV, the partner, by their edge's order; for a
                              collective, how many came before it in its lane; else -1 */
    struct series *series; /* of group g, per kind of lane: [GROUP_LANES * g], of its gather lanes */
    int32_t ncollectives;  /* in all series */
    int32_t *at;           /* per rank: the serial walk's next instruction */
    struct values *values;
    int failed; /* the refuted claim, or 0 */
    int holds;  /* claims proved so far */
    struct text why;
};

/* The collectives of a group in its lanes of one kind, which meet in order. */
struct series {
    const struct group *g;
    int32_t **ins, *count; /* per member: its instructions, and how many */
    int32_t n;             /* of each member */
    int32_t first;         /* the first one's number among all collectives */
};

/* verify.c. Refutes a claim at an instruction. Always returns false, for `return refute(…)`. */
bool refute(struct check *check, int claim, int rank, int32_t i, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same, when no single instruction is at fault. */
bool refute_all(struct check *check, int claim, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "rank 1 lane compute, line 12: F 1 3" */
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
/* A collective's number among all, the same for each member. */
static inline int32_t collective_of(const struct check *check, int rank, int32_t i) {
    return series_of(check, rank, &check->p->rank[rank].ins[i])->first + check->mate[rank][i];
}
/* The nth operand with that role, or NULL; its buffer of the rank, or -1. */
const struct arg *find_arg(const struct rank *k, const struct instr *x, int role, int nth);
int32_t operand(const struct rank *k, const struct instr *x, int role, int nth);

/* verify_pair.c: which instructions meet: the k-th of an edge or of a group's lanes. */
bool pair_messages(struct check *check);
bool pair_collectives(struct check *check);

/* Weights owned by a home, whole or a shard. */
static inline bool at_home(const struct buf *b) { return b->kind == K_wshard || (b->kind == K_weight && b->inst < 0); }
static inline bool holds_weights(int kind) { return kind == K_weight || kind == K_wshard; }
static inline bool holds_gradient(int kind) { return kind == K_wgrad || kind == K_gshard || kind == K_gown; }

/* A buffer's bytes are [first_byte, end_byte): the device's arena, and behind it the one in host memory. A zero-byte
 * buffer gets bytes of its own past both, as many as it may have pieces, so that its accesses are still checked for
 * order. */
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

/* What a buffer holds. */
struct value {
    int32_t stage, batch;
    int32_t count;  /* weight and optimizer state: updates applied; token: which job of (s,b), as an op; mid: how far
                     * it has come (verify_exchange.c) */
    int32_t sum;    /* wgrad: its sum of contributions (verify_sums.c); norm: what it is of; NO_SUM: none */
    int32_t part;   /* wgrad: the rank whose part it is, received from there; -1: this rank's own */
    int32_t inst;   /* wgrad: the number in its buffer's name, or -1 */
    int32_t pieces; /* where its pieces hold different things: which (verify_pieces.c), and set, count and sum say
                       nothing; else 0 */
    uint8_t kind;   /* a shard of weights or of a gradient is of the kind of the whole, a copy in host memory or back
                       from there of the kind of the original */
    bool live, set;
    bool half;     /* not set yet: a job in parts is writing it (verify_parts.c) */
    bool gave_way; /* a stash whose bytes are already those of the wstash that its I makes, in parts */
};
enum { NO_SUM };

/* Sets of weights, numbered: one per stage, then token tables that two stages share, then what teams share. */
struct weight_sets {
    int n;
    int32_t *table, *shared; /* verify_sets.c: per stage, that set; -1: it has none */
    int32_t *slots;          /* per set: how many stages contribute to its gradient */
    uint32_t *seen;          /* per set: the kinds of its buffers, as bits */
};

struct values {
    struct value **val;
    bool *done;        /* per job */
    uint8_t *section;  /* per job, where a period repeats: section_of its instruction */
    int32_t *declared; /* per job, where updates are jobs: the version that it says it reads; -1: it reads none */
    int32_t *newest;   /* and the newest that its rank has of all it reads, as it starts; -1: they are not at home */
    bool **stays; /* per buffer, whether it lives all step: a home's weights, gradient and optimizer state; workspace */
    struct weight_sets sets;
    int64_t *bytes[NKINDS]; /* at entry_of: the tensor's size, on which all its buffers must agree; -1: none seen yet */
    int64_t *bytes_read;    /* at entry_of: the largest buffer its forwards have read */
    bool has_state;         /* the optimizer has state for at least one set */
    struct tensors *scratch;
    struct plan *plan;       /* verify_memory.c */
    struct sums *sums;       /* verify_sums.c */
    struct orders_of *added; /* verify_members.c */
    struct norms *norms;     /* verify_norm.c */
    struct pool *pool;       /* verify_pieces.c */
    struct meeting *meeting; /* verify_groups.c */
    struct homes *homes;     /* per set */
    int32_t *units;          /* per set */
    struct divided *divided; /* per rank and workspace: verify_parts.c */
    int64_t *mid_bytes;      /* verify_exchange.c */
    int32_t *mid_at;         /* per stage: where its first mid's size is among these */
    struct state *state;     /* per rank: verify_period.c */
    struct owner *owner;     /* verify_homes.c: those of rank r are owner[owner_at[r] .. owner_at[r + 1]) */
    int32_t *owner_at;
};

/* Where the size of a buffer of a set stands: the set's, or, of what a slice has, the stage's and slice's. */
static inline int entry_of(const struct check *check, int set, int batch) {
    int slices = check->p->names.slices;
    return slices && batch >= 0 ? check->values->sets.n + set * slices + batch % slices : set;
}
static inline int entries(const struct check *check) {
    return check->values->sets.n + check->sp->stages * check->p->names.slices;
}

/* verify_values.c: tracks each buffer's value along the serial walk. Each returns false once a claim is refuted. */
bool values_begin(struct check *check);
bool values_run(struct check *check, int rank, int32_t i); /* an instruction without a partner */
bool values_message(struct check *check, int src, int32_t i, int dst, int32_t j);
bool values_end(struct check *check);
bool check_reads(struct check *check, int r, int32_t i); /* everything it reads holds something */
const char *buf_text(const struct check *check, int r, int32_t b);
const char *value_text(const struct check *check, const struct value *value);
bool is_tensor(const struct value *value, int kind, int s, int b, int d);
/* Refutes unless the buffer's name matches the tensor put into it. */
struct tensor_name {
    int kind, stage, batch, inst;
};
bool named(struct check *check, int r, int32_t i, int32_t b, struct tensor_name name);

/* Makes a message or a copy's destination ready for what comes into `span` of it: opens it under the name of the
 * tensor, or finds that span of it empty. */
bool ready(struct check *check, int r, int32_t i, const struct arg *a, struct tensor_name name);

/* verify_job.c: what a job reads. */
void jobs_begin(struct check *check);
bool verify_job(struct check *check, int r, int32_t i);

/* verify_groups.c: what a collective does, once all members have come; nth: of its series. */
bool values_collective(struct check *check, const struct series *series, int32_t nth);

/* verify_sets.c: the sets of weights behind the stages', and who uses which. */
bool sets_begin(struct check *check);
bool knows_homes(const struct spec *sp); /* what w() named, which a program's text does not say */
/* The set that a job's operand w, v, u, dw, dv or du is of; -1: the job has no such operand. */
int32_t set_of_operand(const struct check *check, const struct instr *x, int role);
/* The stages that contribute to a set's gradient are numbered, values.slots of them: which is s; -1: it does not. */
int slot_of(const struct check *check, int set, int s);

/* verify_exchange.c: teams, and what their members exchange between the parts of a job. */
bool teams_begin(struct check *check);
int exchanges_in(const struct check *check, const struct instr *x); /* between the parts of a job */
bool check_mid(struct check *check, int r, int32_t b);              /* its number and size */
/* A part gives what its next exchange moves, and has got what the one before it made. */
bool gives_and_gets(struct check *check, int r, int32_t i);
bool give_buffer(struct check *check, int r, int32_t i, int32_t b);
bool verify_exchange(struct check *check, const struct series *series, int32_t nth);

/* verify_parts.c: jobs in parts. */
void parts_begin(struct check *check);
/* A job is to run: as a whole, or the next part of the one that is under way. */
bool begin_part(struct check *check, int r, int32_t i);
static inline bool is_last_part(const struct instr *x) { return x->part == x->last; }
/* Whether an earlier, or a later, part of the job writes this operand too, a gradient. */
bool written_before(const struct check *check, int r, const struct instr *x, const struct arg *a);
bool written_again(const struct check *check, int r, const struct instr *x, const struct arg *a);
/* The job's contribution to the gradient of a set, which it makes when its first part runs. */
int32_t contribution_of(struct check *check, int r, int32_t i, int role);
/* A part writes what the job makes, other than a gradient, which part 0 has opened; the last one completes it. */
bool write_part(struct check *check, int r, int32_t i, int32_t b);

/* verify_ranges.c: what each part of a backward contributes to its stage's gradient. */
bool ranges_begin(struct check *check);
struct pieces { /* that a part names: from the highest to the lowest; -1: none */
    int32_t high, low;
};
/* Whether part i contributes the bytes that end at *left, which becomes where they begin, and names their pieces of dw.
 * The last part begins at 0. */
bool contributes(struct check *check, int r, int32_t i, const struct arg *dw, struct pieces named, int64_t *left);

/* Of a gradient: the number in its name is one that a part of rank r's own has. */
static inline bool names_own_part(const struct check *check, int r, const struct buf *b) {
    return b->inst < 0 || (b->inst >= check->p->workers && b->inst % check->p->workers == r);
}
/* Which of the parts that its rank sends of a set it is, or comes from. */
static inline int round_of(const struct check *check, const struct buf *b) {
    return b->inst < 0 ? 0 : b->inst / check->p->workers;
}

bool in_parts(const struct check *check, int r, int32_t i); /* a job that has begun goes on at i or later */
bool is_workspace(struct check *check, int r, int32_t i, int32_t b);

/* verify_updates.c: updates that are jobs, and versions of weights. */
bool updates_begin(struct check *check);
int32_t updates_of(const struct check *check, int set); /* per step */
struct batches {
    int32_t from, to;
};
struct batches batches_of(const struct check *check, int set, int32_t k); /* of an update, [from, to) */
/* What a job reads of a set, in b, is of the version that it declares; */
bool has_its_version(struct check *check, int r, int32_t i, int set, int32_t b);
/* which is the one that the rules say of it, and the same for all members of its team. */
bool declares_version(struct check *check, int r, int32_t i, int32_t job);
bool teams_agree(struct check *check);
bool versions_repeat(struct check *check);
/* The number in the name of rank r's own gradient for update k. */
int32_t own_name(const struct check *check, int r, int32_t k);
/* Where updates are jobs: a gradient that an instruction uses is named for the update that the instruction is of. */
bool is_of_its_update(struct check *check, int r, int32_t i, int32_t b);

/* verify_period.c */
void period_begin(struct check *check);
bool waits_stay(struct check *check);
/* Rank r is to go on at check->at[r]: if the period begins or ends there, takes its state or compares the two. */
bool at_mark(struct check *check, int r);
bool jobs_repeat(struct check *check); /* and which versions they read */

/* verify_copies.c: copies to host memory and back. */
/* Only these copies touch host memory, each in its direction. */
bool in_its_memory(struct check *check, int r, int32_t i, const struct arg *a);
bool run_copy_over(struct check *check, int r, int32_t i);
/* The optimizer's state that the step leaves behind is the updated one. */
bool state_has_come_back(struct check *check, int r, int32_t b);

/* verify_memory.c: sizes and liveness of buffers. */
bool memory_begin(struct check *check);
bool open_buffer(struct check *check, int r, int32_t i,
                 int32_t b); /* refutes unless its bytes are free and inside the arena */
bool free_buffers(struct check *check, int r, int32_t i, bool stashes);
/* From now on another buffer may lie where the stash does, which its I goes on to read. */
void give_way(struct check *check, int r, int32_t stash);
bool memory_end(struct check *check);

/* verify_sums.c: gradients as sums of contributions. */
void sums_begin(struct check *check);
bool accumulate(struct check *check, int r, int32_t i, int role); /* adds the job's own contribution */
int32_t new_contribution(struct check *check, const struct instr *x);
bool run_add(struct check *check, int r, int32_t i);
bool verify_update(struct check *check, int r, int32_t i);
int64_t contributions(const struct check *check, int32_t sum);
/* Sets *a to the sum of both. false: it would have more contributions than exist, which `refute_count` says. */
bool join(struct check *check, int32_t *a, int32_t b);
bool refute_count(struct check *check, int r, int32_t i, int set, int64_t n);
/* Whether an operand is all that this rank updates of the instruction's set, and its whole gradient. */
bool is_own_gradient(struct check *check, int r, int32_t i, const struct arg *dw);
/* Whether one sum has the contributions of another, a period later. */
bool is_moved_on(struct check *check, int32_t sum, int32_t later);

/* What a sum is of: of one contribution, ~its stage and its microbatch; else two sums, or of none twice NO_SUM. */
struct addends {
    int32_t a, b;
};
struct addends addends_of(const struct check *check, int32_t sum);

/* verify_members.c: what the members of a team have whole is added up in one order by all. */
void members_begin(struct check *check);
bool adds_in_order(struct check *check, int r, int32_t i, const struct arg *dw);

/* verify_norm.c: the norm by which updates are clipped. */
bool norms_begin(struct check *check);
bool norms_end(struct check *check);
bool verify_norm(struct check *check, int r, int32_t i);
bool add_up_norms(struct check *check, const struct series *series, int32_t nth);
bool is_clipped(struct check *check, int r, int32_t i); /* an update; or it is rightly not */

#endif
