/* The program: streams of all ranks, the memory plan, and the names for printing them. */
#ifndef PIANOLA_PROGRAM_H
#define PIANOLA_PROGRAM_H
#include "base/text.h"
#include "spec.h"
#include <assert.h>

/* ---- the program ---- */

struct buf {
    uint8_t kind;               /* enum kind */
    int32_t stage, batch, inst; /* batch -1: its kind has none; inst -1: the rank holds only one */
    int32_t grows;              /* the larger buffer that replaces this one at its place (stash -> wstash), or -1 */
    int64_t bytes, off;         /* off: offset in the arena of its kind's memory; -1: not planned yet */
};

/* An operand: a buffer of this rank, or one of its 1 + last equal pieces. */
enum { MOST_PIECE = 4095 };
struct arg {
    uint32_t role : 8, piece : 12, last : 12;
    int32_t buf;
};
static inline int pieces_of(const struct arg *a) { return (int)a->last + 1; }

struct instr {
    uint8_t op;
    bool first; /* writes dw instead of adding to it */
    uint16_t lane;
    int32_t stage, batch; /* batch -1: none; for an update that is a job, its number */
    uint8_t algorithm;    /* enum algorithm, for a collective */
    uint8_t part, last;   /* for a backward that runs in parts, from its last layers on: part 0 .. last */
    int32_t peer; /* other rank of a message, or source of the part that ADD adds; root of a collective; -1: none */
    int32_t inst; /* instance of the tensor sent or fetched; if updates are jobs, the version of the weights that a job
                   * reads; -1: none */
    int32_t msg;  /* id shared by a SEND and its RECV, or by the members of a collective; -1: none */
    uint32_t arg, wait, free; /* starts of its operands, awaited instructions and freed buffers */
    uint16_t narg, nfree, nwait;
    bool vfirst, ufirst; /* write dv, du instead of adding to them */
};

struct lane {
    uint8_t kind;  /* enum lanekind */
    int32_t peer;  /* SEND, RECV, PEER */
    int32_t group; /* GATHER, GROUP: index in program.group */
};

struct group {
    int n;
    int32_t *rank; /* member i has piece i of gathered and scattered tensors; sums follow this order */
};

/* Route of a collective, chosen by the cost model. Sums are added in the members' order either way. */
enum algorithm { RING, TREE, NALGORITHMS };
extern const char *const algorithm_name[NALGORITHMS];

/* The repeating part of a rank's program: ins[begin .. end), and event[event_begin .. event_end). */
struct rank_period {
    int32_t begin, end;
    size_t event_begin, event_end;
};

struct rank {
    struct instr *ins; /* in issue order; a lane's stream is its instructions in this order */
    int nins;
    int32_t *line;     /* per instruction: its line in the file it was read from; NULL: compiled */
    struct lane *lane; /* lane 0 is compute; then by kind, and by peer or group */
    int nlanes;
    struct buf *buf;
    int nbufs;
    struct arg *arg;         /* pools that instructions point into: arg, wait, freed */
    int32_t *wait;           /* indices in ins: instructions of other lanes that must have ended */
    int32_t *freed;          /* buffers whose last use this is, in issue order */
    int32_t *event;          /* buffers in scheduled time as they open (b) and close (~b), from which mem plans */
    int32_t *over, *over_at; /* buffers whose bytes buffer b takes over: over[over_at[b] .. over_at[b+1]) */
    size_t nargs, nwaits, nfrees, nevents;
    int64_t arena, least; /* bytes: the plan's peak; least: the lower of that peak and the peak by the schedule alone */
    int64_t host;         /* bytes: peak in host memory */
    struct ordered {      /* orders that no operand implies: ins waits for `after`. The pass lanes makes them waits */
        int32_t ins, after;
    } * ordered; /* ascending by ins */
    size_t nordered;
    int64_t base;              /* end of the buffers that stay for the whole step */
    struct rank_period period; /* begin == end: nothing repeats */
};

struct job_name {
    int32_t s, b;
    uint8_t d;
};
struct need { /* Dependencies of a job given by pred(): program.pred[pred .. next need's pred). */
    struct job_name job;
    int32_t pred;
};

/* Cost of a fixed prefetch on a rank, if weights are fetched or gathered. */
struct ahead {
    double exposed;       /* waiting time for weights; NAN: the plan does not fit into some rank's memory */
    int64_t peak, beyond; /* bytes: the plan's peak; excess of the least plan over the cluster's memory */
};
/* Bytes of weights that a rank receives, and the least for these slots and this memory. */
struct weights_use {
    int64_t received, bound;
    bool tried;            /* whether fixed prefetches were tried, which needs a cluster */
    struct ahead ahead[2]; /* one and two jobs ahead */
};
/* Weights that the ranks receive, for a program lowered from a schedule. */
struct weights_traffic {
    /* Per job: the peak bytes of temporary buffers on its rank, fetched weights excluded, from the end of the job
     * before it to its own end. */
    int64_t *beside;
    int64_t *least;          /* per rank: least bytes received by any plan with its slots and room */
    struct weights_use *use; /* per rank; NULL: no weights travel, or their plan was given */
};

struct program {
    const char *name;
    struct names names;
    bool *attends; /* as in costs */
    int workers, stages, batches, nmsgs, ngroups;
    int *update; /* per set: microbatches per update, if updates are jobs; NULL: one update ends the step */
    /* The instructions are a step of `batches` microbatches. A step runs the period of all ranks `repeats` times,
     * shifted by its microbatches each time. What follows the period runs as if all repetitions had been written out,
     * so the step has step_batches microbatches. All lanes of a rank join at the period's begin and at its end. */
    int period;      /* in microbatches; 0: nothing repeats, begin and end are 0 */
    int shortest;    /* the schedule's shortest period; `period` is the multiple that no tensor outlives; 0: unknown */
    int64_t repeats; /* at least 1 */
    int copies; /* number of times that unroll.c wrote out the period, or the whole step if nothing repeats; 0: once */
    bool tied;  /* as in the model */
    int unembedding;
    bool *bare; /* per set, as in costs */
    struct group *group;
    struct exchanges *exchange; /* as in costs */
    /* [stage * NDIRS + d]: contribution of each part of a B or W that runs in parts; NULL: not recorded */
    struct ranges *contributed;
    struct homes *homes; /* per set; NULL in a text without homes: single ranks that update all of a set */
    struct rank *rank;
    struct need *need; /* one per job, and a sentinel; NULL: the default dependencies */
    struct job_name *pred;
    int nneeds;
    struct weights_traffic traffic;
};

static inline int64_t step_batches(const struct program *p) { return p->batches + (p->repeats - 1) * p->period; }
/* Returns whether the rank's buffer is a copy of an earlier version of weights that are at home there. */
static inline bool is_copy_of_version(const struct program *p, int r, const struct buf *b) {
    return p->update && b->kind == K_weight && b->inst >= 0 && (!p->homes || place_in(&p->homes[b->stage], r) >= 0);
}
/* Returns the stage and place by which a set of weights is named; without a team, place 0 of 0. */
static inline struct member member_at(const struct names *names, int set) {
    struct member member = names->member ? names->member[set] : (struct member){set, -1, 0};
    return member.place < 0 ? (struct member){member.stage, 0, 0} : member;
}
/* Returns the model as a step of the program trains it. */
static inline struct rt_model trained_model(const struct spec *sp, const struct program *p) {
    struct rt_model m = sp->model->rt;
    assert(step_batches(p) <= INT32_MAX);
    m.batches = (int32_t)step_batches(p) / slices_of(&p->names);
    m.slices = p->names.slices;
    for (int s = 0; p->update && s < p->stages; s++)
        m.update = p->update[s] / slices_of(&p->names) > m.update ? p->update[s] / slices_of(&p->names) : m.update;
    return m;
}
/* Returns 0 before the period, 1 in it, 2 after it. Messages stay within their section. */
static inline int section_of(const struct rank *k, int32_t i) { return (i >= k->period.begin) + (i >= k->period.end); }

/* joins_of returns the number of joins around written-out repetitions or a period. join_at returns the instruction
 * before which rank k's lanes join for the i-th time. */
static inline int joins_of(const struct program *p) { return p->copies > 1 ? p->copies + 1 : p->period ? 2 : 0; }
static inline int32_t join_at(const struct program *p, const struct rank *k, int i) {
    int32_t copies = p->copies > 1 ? p->copies : 1, begin = p->period ? k->period.begin : 0,
            end = p->period ? k->period.end : k->nins;
    return begin + (end - begin) / copies * i;
}

/* Execution times of instructions: start and end per rank, parallel to rank.ins. A RECV's end is the arrival. */
struct timeline {
    double **start, **end;
    double makespan;
    double step, period;      /* sim_steady: end of a step with all repetitions; time per period, or per step; else 0 */
    enum launch_order launch; /* the launch order of a prediction; LAUNCH_LANE if unknown */
};

/* ir.c: names, and operands as ops.h declares them */
extern const char *const op_name[NOPS], *const kind_name[NKINDS], *const role_name[NROLES];
extern const uint8_t op_lane[NOPS], op_cost[NOPS];
extern const bool kind_has_batch[NKINDS];
enum access { ACC_READ = 1, ACC_WRITE = 2 };
extern uint8_t op_accesses[NOPS][NROLES]; /* filled by read_operands */
extern bool op_adds[NOPS][NROLES], operands_are_read;
void read_operands(void);
/* Returns the access of an operand, ACC_* ored; 0: op has no such role. Inline, since passes call it several times per
 * operand. */
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
/* Returns whether the jobs of a stage read any weights, its own or its team's; if updates are jobs, these have a
 * version. */
static inline bool reads_weights_of(const struct program *p, int stage) {
    int set = p->names.shared ? p->names.shared[stage] : -1;
    return has_weights(p, stage) || (set >= 0 && has_weights(p, set));
}
static inline int sets_in(const struct program *p) { return p->stages + p->names.sets; }
/* Names of the teams' exchanges in the text, from OP_ALL_REDUCE_A on. */
enum { NEXCHANGES = OP_ALL_TO_ALL_A - OP_ALL_REDUCE_A + 1 };
extern const char *const exchange_name[NEXCHANGES];
int op_roles(int op, const uint8_t **roles); /* roles in printing order; returns their number */
/* Return the bytes of an operand and, once planned, its offset in the arena. */
static inline int64_t arg_bytes(const struct rank *k, const struct arg *a) {
    return k->buf[a->buf].bytes / pieces_of(a);
}
/* Returns which stop of a job brings a tensor that part p receives; -1: none. */
static inline int stop_got(const struct stop *stop, int p) {
    if (p > 1 && stop[p - 2].exchange.late)
        return p - 2;
    return p > 0 && stop[p - 1].exchange.op != OP_none && !stop[p - 1].exchange.late ? p - 1 : -1;
}
/* The layers of its stage that a job, or its part, runs. */
struct layer_span {
    int32_t from, to;                 /* layers [from, to); a layer split by an exchange is in two parts */
    int32_t weights_from, weights_to; /* layers whose weight gradients a B or W makes */
    uint8_t sweep;                    /* enum sweep_kind */
};
struct layer_span layers_of(const struct stage *s, const struct instr *x);
/* Returns the bytes reserved for a buffer; a stash includes the room for the buffer that it grows into. */
static inline int64_t grown_bytes(const struct rank *k, const struct buf *b) {
    return b->grows >= 0 && k->buf[b->grows].bytes > b->bytes ? k->buf[b->grows].bytes : b->bytes;
}
static inline int memory_of(const struct buf *b) { return kind_row(b->kind)->memory; }
static inline int64_t arg_off(const struct rank *k, const struct arg *a) {
    return k->buf[a->buf].off + (int64_t)a->piece * arg_bytes(k, a);
}
/* Returns the bytes that a message moves, or that each member of a collective gives or receives: its smallest operand.
 * 0: it has none. */
int64_t moved_bytes(const struct rank *k, const struct instr *in);
/* Write numbers as scripts do: stage "1", or "1.0" for a team's first member; microbatch "3", or "3.1" for its second
 * slice. names NULL: writes plain numbers. */
void put_stage(struct text *t, const struct names *names, int32_t s);
void put_batch(struct text *t, const struct names *names, int32_t b);
/* Names: put_arg writes "act(1,3)" or "weight(2)[1/4]"; job_name returns "1F3" in the arena; put_buf writes "act(1,3)"
 * or "weight(2)#0". put_label writes "F 0 3" or "FETCH 2#0 from 1", unique within a rank. A job's display name is
 * "1F3", any other's its label. */
void put_arg(struct text *t, const struct names *names, const struct rank *k, const struct arg *a);
const char *job_name(const struct names *names, int s, int b, int d);
void put_buf(struct text *t, const struct names *names, const struct buf *b);
void put_label(struct text *t, const struct names *names, const struct instr *in);
const char *short_name(const struct names *names, const struct instr *in);

/* lane.c: names of lanes, the operations that run in them, and their instructions */
/* Writes "compute", "send 1", "peer 1", "messages" or "group 0,2". */
void put_lane(struct text *t, const struct program *p, const struct lane *lane);
/* Returns the kind of the lane whose name begins here, and moves *name to its number, if it has one; -1: no lane's
 * name. */
int lane_kind(const char **name);
bool lane_takes(int kind, int op);
int compare_lanes(const void *x, const void *y); /* orders a rank's lanes for sort and bsearch: by kind, peer, group */
/* Returns per lane the other lane of its group, gather or group, which shares the group's links; -1: none. */
int *sibling_lanes(const struct rank *k);
struct lane_lists {
    int32_t *at, *ins; /* lane l: ins[at[l] .. at[l+1]), in issue order */
};
struct lane_lists lane_lists(const struct rank *k);

/* homes.c: the sets of weights of which rank r holds all or a shard. element: bytes per weight */
struct held {
    int32_t set, memory;  /* memory: which arena has the optimizer state */
    int64_t weight, opt;  /* arena offsets; opt -1: none */
    int64_t first, count; /* elements whose weights are here; the set is padded to equal shards */
    int64_t own, owned;   /* elements that this rank updates, whose optimizer state is here */
};
struct held *held_on(const struct program *p, int r, int64_t element, int *n);

/* match.c: matches each SEND with its RECV, and the members of each collective */
const struct buf *payload(const struct rank *k, const struct instr *in); /* a message's or collective's; NULL: none */
/* Numbers messages by rank, then by issue order: a SEND and its RECV, or the members of a collective, share one id.
 * An instruction without a partner fails an assert, since our own programs have none. If lenient, it keeps msg -1
 * instead; in a collective, at least the first member does. Returns an error text that names the first one, or NULL
 * if all have partners. */
char *number_messages(struct program *p, bool lenient);
#endif
