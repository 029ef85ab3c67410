/* The program: the streams of all ranks, the memory plan, and the names that print them. */
#ifndef PIANOLA_PROGRAM_H
#define PIANOLA_PROGRAM_H
#include "base/text.h"
#include "spec.h"
#include <assert.h>

/* ---- the program ---- */

struct buf {
    uint8_t kind;               /* enum kind */
    int32_t stage, batch, inst; /* batch -1 where the kind has none; inst -1 when a rank holds only one */
    int32_t grows;              /* the larger buffer that takes over this one's place (stash -> wstash), or -1 */
    int64_t bytes, off;         /* off: in the arena of its kind's memory; -1: not planned yet */
};

/* An operand: a buffer of this rank, or one of 1 + last equal pieces of it. */
enum { MOST_PIECE = 4095 };
struct arg {
    uint32_t role : 8, piece : 12, last : 12;
    int32_t buf;
};
static inline int pieces_of(const struct arg *a) { return (int)a->last + 1; }

struct instr {
    uint8_t op;
    bool first; /* dw is written, not added to */
    uint16_t lane;
    int32_t stage, batch;     /* batch -1: none; of an update that is a job, its number */
    uint8_t algorithm;        /* enum algorithm, of a collective */
    uint8_t part, last;       /* of a backward that runs in parts, its layers from the last on: part 0 .. last */
    int32_t peer;             /* other rank of a message, or of the part that ADD adds; a collective's root; -1: none */
    int32_t inst;             /* of the tensor sent or fetched; where updates are jobs, the version of the weights that
                               * a job reads; -1: none */
    int32_t msg;              /* id shared by a SEND and its RECV, or by the members of a collective; -1: none */
    uint32_t arg, wait, free; /* where its operands, awaited instructions and freed buffers begin */
    uint16_t narg, nfree, nwait;
    bool vfirst, ufirst; /* dv, du is written, not added to */
};

struct lane {
    uint8_t kind;  /* enum lanekind */
    int32_t peer;  /* SEND, RECV, PEER */
    int32_t group; /* GATHER, GROUP: index in program.group */
};

struct group {
    int n;
    int32_t *rank; /* member i has piece i of what is gathered and scattered, and sums go in this order */
};

/* How a collective travels, by the cost model; sums are added in the order of members either way. */
enum algorithm { RING, TREE, NALGORITHMS };
extern const char *const algorithm_name[NALGORITHMS];

/* The part of a rank's program that repeats: ins[begin .. end), and event[event_begin .. event_end). */
struct rank_period {
    int32_t begin, end;
    size_t event_begin, event_end;
};

struct rank {
    struct instr *ins; /* in issue order; a lane is the restriction to its number */
    int nins;
    int32_t *line;     /* per instruction: its line in the file it was read from; NULL: it was compiled */
    struct lane *lane; /* lane 0 is compute; then by kind, and by peer or group */
    int nlanes;
    struct buf *buf;
    int nbufs;
    struct arg *arg;         /* pools the instructions point into */
    int32_t *wait;           /* indices in ins: instructions of other lanes that must have ended */
    int32_t *freed;          /* buffers whose last use this is, in issue order */
    int32_t *event;          /* buffers as they open (b) and close (~b) in scheduled time: what mem plans by */
    int32_t *over, *over_at; /* buffers whose bytes buffer b takes over: over[over_at[b] .. over_at[b+1]) */
    size_t nargs, nwaits, nfrees, nevents;
    int64_t arena, least; /* bytes: the plan's peak; that of the plan by the schedule alone, or, if smaller, arena */
    int64_t host;         /* bytes: the peak in host memory */
    struct ordered {      /* what follows from no operand: ins waits for `after`. lanes makes it a wait */
        int32_t ins, after;
    } * ordered; /* ascending by ins */
    size_t nordered;
    int64_t base;              /* where the buffers that stay for the whole step end */
    struct rank_period period; /* begin == end: nothing repeats */
};

struct job_name {
    int32_t s, b;
    uint8_t d;
};
struct need { /* the dependencies of a job where pred() gives them: program.pred[pred .. next need's pred) */
    struct job_name job;
    int32_t pred;
};

/* Of a rank, where weights are fetched or gathered: what a fixed prefetch would cost it. */
struct ahead {
    double exposed;       /* how long it would wait for weights; NAN: it does not fit into memory, on some rank */
    int64_t peak, beyond; /* bytes: its plan's; by how many the least one exceeds the cluster's memory */
};
/* And what comes in, by the program, and at least with these slots and this memory. */
struct weights_use {
    int64_t received, bound;
    bool tried;            /* where there is a cluster: */
    struct ahead ahead[2]; /* one and two ahead */
};
/* The weights that a program's ranks receive, where it was lowered from a schedule. */
struct weights_traffic {
    /* Per job: the most bytes that its rank has in buffers that come and go, except fetched weights, from the end of
     * the job before it to its own. */
    int64_t *beside;
    int64_t *least;          /* per rank: bytes that any plan with its slots and room would have it receive */
    struct weights_use *use; /* per rank; NULL: none travel, or their plan was given */
};

struct program {
    const char *name;
    struct names names;
    bool *attends; /* as in spec */
    int workers, stages, batches, nmsgs, ngroups;
    int *update; /* per set: the microbatches of each of its updates, which are jobs; NULL: one ends the step */
    /* The instructions are those of a step of `batches` microbatches. A step runs the period of all ranks `repeats`
     * times, each time moved on by so many microbatches, and what is behind it as if it had been written out: so its
     * microbatches are step_batches. All of a rank's lanes join at the period's begin and at its end. */
    int period;      /* microbatches; 0: nothing repeats, begin and end are 0 */
    int shortest;    /* of which they are a multiple, since no tensor may outlive the period; 0: not known */
    int64_t repeats; /* at least 1 */
    int copies;      /* unroll.c wrote the period, or the whole step where nothing repeats, so many times; 0: once */
    bool tied;       /* as in spec */
    int unembedding;
    bool *bare; /* per set, as in spec */
    struct group *group;
    struct exchanges *exchange; /* as in spec */
    /* [stage * NDIRS + d]: what each part of a B or W that runs in parts contributes; NULL: it says so of none */
    struct ranges *contributed;
    struct homes *homes; /* per set; NULL, in a text that has none: each set's homes are single ranks that update all */
    struct rank *rank;
    struct need *need; /* one per job, and one more that ends the last; NULL: the default dependencies */
    struct job_name *pred;
    int nneeds;
    struct weights_traffic traffic;
};

static inline int64_t step_batches(const struct program *p) { return p->batches + (p->repeats - 1) * p->period; }
/* Whether the rank's buffer is a copy of an earlier version of weights that are at home there. */
static inline bool is_copy_of_version(const struct program *p, int r, const struct buf *b) {
    return p->update && b->kind == K_weight && b->inst >= 0 && (!p->homes || place_in(&p->homes[b->stage], r) >= 0);
}
/* What a set of weights is called: a stage's member of a team, or place 0 of 0. */
static inline struct member member_at(const struct names *names, int set) {
    struct member member = names->member ? names->member[set] : (struct member){set, -1, 0};
    return member.place < 0 ? (struct member){member.stage, 0, 0} : member;
}
/* The model as a step of the program trains it. */
static inline struct rt_model trained_model(const struct spec *sp, const struct program *p) {
    struct rt_model m = sp->model->rt;
    assert(step_batches(p) <= INT32_MAX);
    m.batches = (int32_t)step_batches(p) / slices_of(&p->names);
    m.slices = p->names.slices;
    for (int s = 0; p->update && s < p->stages; s++)
        m.update = p->update[s] / slices_of(&p->names) > m.update ? p->update[s] / slices_of(&p->names) : m.update;
    return m;
}
/* 0: before the period, 1: in it, 2: behind it. Messages stay within their section. */
static inline int section_of(const struct rank *k, int32_t i) { return (i >= k->period.begin) + (i >= k->period.end); }

/* How many joins there are around what repeats, as far as it is written out more than once or is a period; and the
 * instruction before which rank k's lanes join for the i-th time. */
static inline int joins_of(const struct program *p) { return p->copies > 1 ? p->copies + 1 : p->period ? 2 : 0; }
static inline int32_t join_at(const struct program *p, const struct rank *k, int i) {
    int32_t copies = p->copies > 1 ? p->copies : 1, begin = p->period ? k->period.begin : 0,
            end = p->period ? k->period.end : k->nins;
    return begin + (end - begin) / copies * i;
}

/* When each instruction runs: start and end per rank, parallel to rank.ins. A RECV's end is the arrival. */
struct timeline {
    double **start, **end;
    double makespan;
    double step,
        period; /* sim_steady: the end of a step with all repetitions; the time between these, or steps; else 0 */
    enum launch_order launch; /* that a prediction was made with; LAUNCH_LANE where nothing is known */
};

/* ir.c: names, and operands as ops.h gives them */
extern const char *const op_name[NOPS], *const kind_name[NKINDS], *const role_name[NROLES];
extern const uint8_t op_lane[NOPS], op_cost[NOPS];
extern const bool kind_has_batch[NKINDS];
enum access { ACC_READ = 1, ACC_WRITE = 2 };
extern uint8_t op_accesses[NOPS][NROLES]; /* ir.c's, once it has read ops.h */
extern bool op_adds[NOPS][NROLES], operands_are_read;
void read_operands(void);
/* Access of an operand, ACC_* ored; 0: op has no such role. Here, as passes ask it of each operand several times. */
static inline int op_access(int op, int role) {
    if (!operands_are_read)
        read_operands();
    return op_accesses[op][role];
}
static inline bool op_accumulates(int op, int role) {
    if (!operands_are_read)
        read_operands();
    return op_adds[op][role];
}
static inline bool is_first(const struct instr *x, int role) {
    return role == ROLE_dv ? x->vfirst : role == ROLE_du ? x->ufirst : x->first;
}
static inline bool has_weights(const struct program *p, int set) { return !p->bare || !p->bare[set]; }
/* Whether the jobs of a stage read any weights, its own or its team's: where updates are jobs, of one version. */
static inline bool reads_weights_of(const struct program *p, int stage) {
    int set = p->names.shared ? p->names.shared[stage] : -1;
    return has_weights(p, stage) || (set >= 0 && has_weights(p, set));
}
static inline int sets_in(const struct program *p) { return p->stages + p->names.sets; }
/* What the text calls the exchanges of teams, from OP_ALL_REDUCE_A on. */
enum { NEXCHANGES = OP_ALL_TO_ALL_A - OP_ALL_REDUCE_A + 1 };
extern const char *const exchange_name[NEXCHANGES];
int op_roles(int op, const uint8_t **roles); /* roles in printing order; returns how many */
/* An operand's bytes, and where they begin in the arena (only once planned). */
static inline int64_t arg_bytes(const struct rank *k, const struct arg *a) {
    return k->buf[a->buf].bytes / pieces_of(a);
}
/* Which of a job's stops brings something that part p gets; -1: none. */
static inline int stop_got(const struct stop *stop, int p) {
    if (p > 1 && stop[p - 2].exchange.late)
        return p - 2;
    return p > 0 && stop[p - 1].exchange.op != OP_none && !stop[p - 1].exchange.late ? p - 1 : -1;
}
/* What of its stage's layers a job runs: all, or its part. */
struct layer_span {
    int32_t from, to; /* layers [from, to). One in whose middle something is exchanged is in two parts */
    int32_t weights_from, weights_to; /* those whose weight gradients it makes, if it is a B or a W */
    uint8_t sweep;                    /* enum sweep_kind */
};
struct layer_span layers_of(const struct stage *s, const struct instr *x);
/* The bytes that a buffer takes; a stash includes the room for what it grows into. */
static inline int64_t grown_bytes(const struct rank *k, const struct buf *b) {
    return b->grows >= 0 && k->buf[b->grows].bytes > b->bytes ? k->buf[b->grows].bytes : b->bytes;
}
static inline int memory_of(const struct buf *b) { return kind_row(b->kind)->memory; }
static inline int64_t arg_off(const struct rank *k, const struct arg *a) {
    return k->buf[a->buf].off + (int64_t)a->piece * arg_bytes(k, a);
}
/* What a message moves, or each member of a collective gives or takes: its smallest operand. 0: it has none. */
int64_t moved_bytes(const struct rank *k, const struct instr *in);
/* As scripts count: stage "1", or "1.0" of a team's first member; microbatch "3", or "3.1" of its second slice. names
 * NULL: plain numbers. */
void put_stage(struct text *t, const struct names *names, int32_t s);
void put_batch(struct text *t, const struct names *names, int32_t b);
/* "act(1,3)", "weight(2)[1/4]"; "1F3", in the arena; "act(1,3)", "weight(2)#0"; "F 0 3", "FETCH 2#0 from 1", which is
 * unique within a rank; "1F3" of a job, else the label */
void put_arg(struct text *t, const struct names *names, const struct rank *k, const struct arg *a);
const char *job_name(const struct names *names, int s, int b, int d);
void put_buf(struct text *t, const struct names *names, const struct buf *b);
void put_label(struct text *t, const struct names *names, const struct instr *in);
const char *short_name(const struct names *names, const struct instr *in);

/* lane.c: the names of lanes, what runs in them, and their instructions */
/* "compute", "send 1", "peer 1", "messages", "group 0,2" */
void put_lane(struct text *t, const struct program *p, const struct lane *lane);
/* The kind of the lane whose name begins here, and moves *name to its number, if it has one; -1: no lane's. */
int lane_kind(const char **name);
bool lane_takes(int kind, int op);
int compare_lanes(const void *x, const void *y); /* in a rank's order, for sort and bsearch: kind, peer, group */
/* Per lane, the other one of its group's two, gather and group, which share the group's links; or -1. */
int *sibling_lanes(const struct rank *k);
struct lane_lists {
    int32_t *at, *ins; /* of lane l: ins[at[l] .. at[l+1]), in issue order */
};
struct lane_lists lane_lists(const struct rank *k);

/* homes.c: the sets of weights of which rank r holds all or a shard; element: bytes of a weight */
struct held {
    int32_t set, memory;  /* memory: whose arena has the optimizer's state */
    int64_t weight, opt;  /* arena offsets; opt -1: none */
    int64_t first, count; /* the elements whose weights are here; the set is padded to equal shards */
    int64_t own, owned;   /* those that this rank updates, and whose optimizer state is here */
};
struct held *held_on(const struct program *p, int r, int64_t element, int *n);

/* match.c: which SEND meets which RECV, and which members of a collective meet */
const struct buf *payload(const struct rank *k, const struct instr *in); /* of a message or a collective; NULL: none */
/* Numbers messages by rank, then by issue order: a SEND and its RECV, or the members of a collective, share one id.
 * An instruction without a partner fails an assert, since our own programs have none; when lenient, it keeps msg -1 (in
 * a collective, at least the first member does), and the result is an error text that names the first one. NULL: all
 * have partners. */
char *number_messages(struct program *p, bool lenient);
#endif
