/* What the passes work on: the schedule as the scripts gave it (spec), the jobs, and the program. */
#ifndef PIANOLA_IR_H
#define PIANOLA_IR_H
#include "../runtime/ops.h"
#include "base.h"

/* ---- the scripts' answers, plain data: nothing above this floor knows Lua ---- */

/* Times lie between these, or are 0; so do speeds, and bandwidths. Whatever is added up, multiplied or divided of them
 * is finite then, however many there are. */
#define LEAST_TIME 1e-100
#define MOST_TIME  1e100

/* One (s,b,d). Stored in the canonical order: stage, then microbatch, then direction. */
struct job {
    int32_t s, b;
    uint8_t d;         /* OP_F .. OP_W */
    int32_t rank;      /* compute rank */
    int32_t home;      /* the owner of the weights it uses, as w() returned it */
    int32_t pair;      /* 1 + the index of its overlapped pair; 0: it runs by itself */
    double prio, rest; /* n as the nearest double, and what that lacks: a Lua integer may need more than 53 bits */
    double cost;       /* NAN: not given by the script; cost.c fills it in */
    bool fill;         /* strict order: no place in it; runs when the rank's next job cannot */
};

/* Two jobs of one rank, next to each other in its sequence, that start together and end together. */
struct pair {
    int32_t first, second;
    double cost; /* of both at once; cost.c fills it in */
};

struct link {
    double latency, bandwidth; /* seconds and bytes per second; bandwidth INFINITY: free */
};

struct model_layer {
    int kind;  /* enum layer_kind, fork and join included */
    int out;   /* columns of its output; 0: same as its input (script) */
    int heads; /* attention */
    int unit;  /* index of the top-level item it belongs to: a cut falls only between units */
};

struct model {
    struct rt_model rt;
    struct model_layer *layer;
    int nlayers, nunits;
    int *cut; /* stages - 1 indices of units that open stages 1..; NULL: evenly by cost */
    int ncut;
    /* A model given as stages: stage s reads the sum of from[from_at[s] .. from_at[s+1]), ascending, or, where there is
     * none, the batch. NULL: a chain. */
    int *from, *from_at;
    int *to, *to_at; /* likewise, the stages that read stage s */
};

enum lanes_per { PER_EDGE, PER_PEER, PER_RANK }; /* what has a communication lane of its own; an edge has a direction */

struct spec {
    const char *name;   /* of the schedule: its file's base name without .lua */
    const char *file;   /* as given by the user */
    const char *params; /* "workers=4 batches=8", for the record */
    double effort;      /* the largest share of what a script may do and hold that its script took: at most 1 */
    int workers, stages, batches;
    bool strict;
    bool recompute; /* every stage and microbatch, whatever the script says */
    enum lanes_per lanes;
    struct job *job;
    int njobs;
    int32_t *at; /* [(s * batches + b) * NDIRS + d] -> index in job, or -1 */
    struct pair *pair;
    int npairs;
    double overlap; /* the share of a pair's shorter job that hides behind the longer one */
    int *cap;       /* per rank; INT_MAX: none */
    int *slots;     /* weight slots per rank; 0: nothing is kept between jobs */
    /* Custom dependencies: pred of job j is pred[pred_at[j] .. pred_at[j+1]), as job indices. NULL: the default. */
    int32_t *pred;
    int32_t *pred_at;
    struct stage *stage; /* what each stage weighs, once cost.c has said; NULL: unknown */
    struct model *model; /* NULL: unit costs, every tensor 1 byte */
    bool has_cluster;
    struct link *link; /* [src * workers + dst]; NULL: free */
    double *speed;     /* per rank: 2 takes half the time of 1; NULL: all 1 */
    double memory;     /* bytes per rank; INFINITY: no limit */
    double flops;      /* per second and rank; 0: not given, times are then in FLOP */
    double *took;      /* measured seconds, [stage * NOPS + op]; NAN: not measured. NULL: nothing was */
    /* The model's embedding, on stage 0, and its unembedding share a token table: a set of weights of its own, number
     * `stages`. cost.c says. */
    bool tied;
    int unembedding; /* tied: the stage that has it */
};

/* Do the model's stages form a graph, whose edges are the jobs' dependencies? */
static inline bool is_graph(const struct spec *sp) { return sp->model && sp->model->from; }

static inline int32_t job_at(const struct spec *sp, int s, int b, int d) {
    return sp->at[((int64_t)s * sp->batches + b) * NDIRS + d];
}

/* Whose n is smaller: below 0, a's; 0: they are equal. */
static inline int compare_n(const struct job *a, const struct job *b) {
    if (a->prio != b->prio)
        return a->prio < b->prio ? -1 : 1;
    return (a->rest > b->rest) - (a->rest < b->rest);
}

/* How long job j runs. */
static inline double job_time(const struct spec *sp, int32_t j) {
    const struct job *job = &sp->job[j];
    return job->pair ? sp->pair[job->pair - 1].cost : job->cost;
}

/* The job that j, the first of an overlapped pair, runs together with; -1: j is none. */
static inline int32_t partner_of(const struct spec *sp, int32_t j) {
    const struct pair *p = sp->job[j].pair ? &sp->pair[sp->job[j].pair - 1] : NULL;
    return p && p->first == j ? p->second : -1;
}

/* script.c's result is made from these: files or NULL, and -D settings "key=value". */
struct script_args {
    const char *schedule, *model, *cluster;
    enum lanes_per lanes;
    bool recompute;
    const char **set;
    int nset;
    int nsizes; /* of these the last are for the schedule alone */
    bool *used; /* [nset]: the settings that a script had a use for are marked. NULL: all must be of use */
};

/* ---- cost.c: what each stage weighs; behind the stages, of a tied model, what the table does ---- */

struct stage {
    double cost[NDIRS]; /* default cost of F, R, I, B, W: units, FLOP, or seconds */
    double flop[NDIRS];
    double update;         /* cost of U */
    int64_t bytes[NKINDS]; /* of weight, wgrad, opt, work, act, grad, stash, wstash, input, token */
    struct rt_stage rt;    /* layers and offsets; empty without a model */
};

/* ---- the job graph ---- */

struct graph {
    int n;                   /* jobs */
    int32_t *pred, *pred_at; /* predecessors of j: pred[pred_at[j] .. pred_at[j+1]) */
    int32_t *succ, *succ_at;
    int32_t *succ_edge; /* parallel to succ: the same edge's index in pred */
};

/* ---- the schedule ---- */

struct sched {
    double *start, *end; /* per job */
    int32_t **order;     /* per rank: its jobs in the order they run */
    int *norder;
    /* All that happened, in its order: j, job j started; ~j, it ended. Sorted by time, and where times are equal still
     * in the order of causes: a job that takes no time, or none beside the time it is, starts before it ends. */
    int32_t *moment;
    int nmoments, nstarts;
    double makespan;
};

/* ---- the program ---- */

struct buf {
    uint8_t kind;               /* enum kind */
    int32_t stage, batch, inst; /* batch -1 where the kind has none; inst -1 when a rank holds only one */
    int32_t grows;              /* the larger buffer that takes over this one's place (stash -> wstash), or -1 */
    int64_t bytes, off;         /* off -1: not planned yet */
};

struct arg {
    uint8_t role;
    int32_t buf; /* of this rank */
};

struct instr {
    uint8_t op;
    bool first; /* dw is written, not added to */
    uint16_t lane;
    int32_t stage, batch;     /* batch -1: none */
    int32_t peer;             /* other rank of a message, or of the part that ADD adds; -1: none */
    int32_t inst;             /* of the tensor sent or fetched; -1: none */
    int32_t msg;              /* id shared by a SEND and its RECV, or by the members of a REDUCE; -1: none */
    uint32_t arg, wait, free; /* where its operands, awaited instructions and freed buffers begin */
    uint16_t narg, nfree, nwait;
    bool vfirst; /* dv is written, not added to */
};

struct lane {
    uint8_t kind;  /* enum lanekind */
    int32_t peer;  /* SEND, RECV, PEER */
    int32_t group; /* GROUP: index in program.group */
};

struct group {
    int n;
    int32_t *rank; /* ascending */
};

struct rank {
    struct instr *ins; /* in issue order; a lane is the restriction to its number */
    int nins;
    int32_t *line;     /* per instruction: its line in the file it was read from; NULL: compiled */
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
    int64_t arena; /* bytes; the plan's peak */
};

struct job_name {
    int32_t s, b;
    uint8_t d;
};
struct need { /* what a job needs, where pred() says so: program.pred[pred .. next need's pred) */
    struct job_name job;
    int32_t pred;
};

struct program {
    const char *name;
    int workers, stages, batches, nmsgs, ngroups;
    bool tied; /* as in spec */
    int unembedding;
    struct group *group;
    struct rank *rank;
    struct need *need; /* one per job, and one more that ends the last; NULL: the default dependencies */
    struct job_name *pred;
    int nneeds;
};

/* When each instruction runs: start and end per rank, parallel to rank.ins. A RECV's end is the arrival. */
struct timeline {
    double **start, **end;
    double makespan;
};

/* ir.c: names, and reading operands */
extern const char *const op_name[NOPS], *const kind_name[NKINDS], *const role_name[NROLES];
extern const uint8_t op_lane[NOPS], op_cost[NOPS];
extern const bool kind_has_batch[NKINDS];
bool lane_takes(int kind, int op);
enum access { ACC_READ = 1, ACC_WRITE = 2 };
int op_access(int op, int role); /* access of an operand, ACC_* ored; 0: op has no such role */
bool op_accumulates(int op, int role);
static inline bool is_first(const struct instr *x, int role) { return role == ROLE_dv ? x->vfirst : x->first; }
int op_roles(int op, const uint8_t **roles);       /* roles in printing order; returns how many */
const char *job_name(int s, int b, int d);         /* "1F3", in the arena */
void put_buf(struct text *t, const struct buf *b); /* "act(1,3)", "weight(2)#0" */

/* message.c: what instructions and lanes are called, and which SEND meets which RECV */
bool is_message(int op);                                                 /* SEND_x, RECV_x, SERVE, FETCH, REDUCE */
const struct buf *payload(const struct rank *k, const struct instr *in); /* by a message, or summed; NULL: none */
void put_int(struct text *t, int64_t v);
void put_label(struct text *t, const struct instr *in); /* "F 0 3", "FETCH 2#0 from 1": unique within a rank */
const char *short_name(const struct instr *in);         /* "1F3" of a job, else the label */
void put_lane(struct text *t, const struct program *p,
              const struct lane *lane); /* "compute", "send 1", "peer 1", "messages", "group 0,2" */
/* Numbers messages in the order of ranks and their issue: a SEND and its RECV, or a REDUCE's members, get one id.
 * Where one has no partner: dies of an assert, for programs we made; when lenient, leaves msg -1 at every such
 * instruction (in a REDUCE, at the first member at least) and returns an error text that names the first. NULL: all
 * met. */
char *number_messages(struct program *p, bool lenient);
#endif
