/* The passes, in the order main.c runs them. Each comment says what a pass needs and what it gives. */
#ifndef PIANOLA_PASS_H
#define PIANOLA_PASS_H
#include "ir.h"

/* cost.c: needs the spec's model and cluster; gives what each stage weighs and fills in job costs not given.
 * Returns an array of spec->stages, and of a tied model the table behind them; sets spec's tied. Dies when the model
 * cannot be cut into that many stages. */
struct stage *cost_stages(struct spec *sp);
/* Seconds (or units, or FLOP) that update of a stage and adding `bytes` of gradient take. */
double cost_add(const struct spec *sp, int64_t bytes);

/* graph.c: needs the jobs; gives predecessors and successors. Dies on a cycle, naming it. */
struct graph *graph_build(const struct spec *sp);
/* The tensor that the edge from -> to carries when their ranks differ (K_token: none), and its bytes. */
int edge_kind(const struct job *from, const struct job *to);
int64_t edge_bytes(const struct stage *st, const struct job *from, const struct job *to);
/* The i-th of the stages whose outputs stage s reads, and of those that read its own; -1: there are no more. Its
 * neighbours in the chain, or what the model says. */
int source_of(const struct spec *sp, int s, int i);
int reader_of(const struct spec *sp, int s, int i);
bool has_edge(const struct graph *g, int32_t job, int32_t pred);
struct link link_of(const struct spec *sp, int src, int dst); /* free without a cluster */
/* The shortest cycle of a directed graph in compressed rows (to[at[v]..at[v+1])); there must be one. */
int32_t *shortest_cycle(int n, const int32_t *at, const int32_t *to, int *len);

/* sched.c: needs the graph; gives start, end and order of every job (DESIGN section 3). Dies on deadlock. */
struct sched *sched_run(const struct spec *sp, const struct stage *st, const struct graph *g);

/* lower.c: needs the schedule; gives the program without offsets, lanes assigned, waits missing. */
struct program *lower(const struct spec *sp, const struct stage *st, const struct graph *g, const struct sched *sc);

/* mem.c: needs lower; gives every buffer an offset and every rank its arena. Dies beyond the cluster's memory. */
void mem_plan(const struct spec *sp, struct program *p);

/* lanes.c: needs mem, because reused bytes are an order too; gives the waits, transitively reduced. */
void lanes_sync(struct program *p);

/* verify.c: needs nothing but the job graph and the streams; gives NULL when all claims asked for hold, else the first
 * that does not, with a counterexample. Shares no code with lower, mem and lanes. X(name, what it says) */
#define CLAIMS(X)                                                                                                      \
    X(JOBS, "jobs", "every job runs exactly once, on its rank, on the right tensors and weights")                      \
    X(GRADIENTS, "gradients", "every home adds the sum over all microbatches, each exactly once, in one update")       \
    X(RACES, "races", "any two accesses to a byte, of which one writes, are ordered")                                  \
    X(MEMORY, "memory", "nothing is read before it is written or after it is freed; live buffers never overlap; "      \
                        "peak <= plan <= limit")                                                                       \
    X(SERIAL, "serial deadlock", "each rank one instruction at a time, every send blocking until its receive: no "     \
                                 "deadlock")                                                                           \
    X(LANES, "lane deadlock", "each lane in its order, every send blocking until its receive: no deadlock")
#define X(name, ...) CLAIM_BIT_##name,
enum claim_bit { CLAIMS(X) NCLAIMS };
#undef X
#define X(name, ...) CLAIM_##name = 1 << CLAIM_BIT_##name,
enum claim { CLAIMS(X) CLAIM_ALL = (1 << NCLAIMS) - 1 };
#undef X
extern const char *const claim_word[NCLAIMS], *const claim_what[NCLAIMS];
/* The machine that they are claimed of: verify_orders.c describes it. */
#define MACHINE_MODEL "start-end"
extern int64_t verify_work; /* instructions and operands gone through so far, for tests of how that grows */
struct refutation {
    int claim; /* one of enum claim */
    int holds; /* those that were found to hold all the same */
    char *why; /* the counterexample: rank, lane, line, instruction, and the job or message behind it */
};
struct refutation *verify(const struct spec *sp, const struct graph *g, const struct program *p, int claims);
/* verify_text.c: proves a program by what it says itself: its jobs run where they stand, and need what DESIGN's default
 * or its own `needs` lines say. */
struct refutation *verify_text(const struct program *p);

/* sim.c: needs a verified program; gives the predicted timeline. */
struct timeline *sim_run(const struct spec *sp, const struct stage *st, const struct program *p);

/* report.c: needs the timeline; gives the figures that are reported. */
enum {
    HELD_WEIGHTS,
    HELD_GRADIENTS,
    HELD_OPTIMIZER,
    HELD_FETCHED,
    HELD_ACT,
    HELD_GRAD,
    HELD_STASH,
    HELD_WORK,
    HELD_GAPS,
    NHELD
};
extern const char *const held_name[NHELD];
struct rank_report {
    double busy, idle, span;
    int peak_activations;
    int64_t peak_bytes; /* the arena: what the device allocates */
    int64_t
        held[NHELD]; /* where they are when most are in use; together peak_bytes, tokens and padding among the gaps */
    int activations_received, gradients_received, weights_received, reductions_received, stages_stored;
    int64_t bytes_received;
};
struct report {
    const char *schedule;
    const char *unit; /* of times: "F" (one unit of cost), "FLOP" or "s" */
    int workers, stages, batches;
    int measured; /* so many steps, of which the times are the median; 0: predicted */
    double makespan, bubble, throughput;
    double lower_bound, bound_work, bound_path, bound_memory; /* the largest, and the three it is taken from */
    double gap;                                               /* makespan / lower_bound - 1 */
    struct rank_report *rank;
};
struct report *report_make(const struct spec *sp, const struct stage *st, const struct graph *g,
                           const struct program *p, const struct timeline *tl);

/* script.c: runs the scripts; the only file that knows Lua. Dies with file:line on their errors. */
struct spec *script_load(const struct script_args *a);
const char *script_name(const char *path); /* as outputs have it: of schedules/1f1b.lua, 1f1b */
void script_names(struct text *out);       /* script_names.c: every name and every field that scripts can use */

/* emit_text.c, read_text.c: the program's text form, both ways. Reading dies with file:line. rank.event is not in it.
 */
void emit_text(struct text *out, const struct program *p);
struct program *read_text(const char *file, const char *src);
/* emit_tsv.c */
void emit_tsv(struct text *out, const struct program *p, const struct timeline *tl, const char *unit);
/* read_tsv.c: timeline.tsv, predicted or measured, with rows by step, rank, lane and start. Dies with file:line. */
struct timeline_rows {
    int n, nsteps; /* rows of a step; row[k * n + i] is the k-th step's ith. nsteps 0: no step is named, there is one */
    int *step;     /* the numbers of the steps; NULL: a timeline without */
    const char *unit; /* of the times, as report.unit; NULL: the file does not say */
    struct timeline_row {
        int rank;
        const char *lane; /* "send 1" */
        uint8_t op;
        double start, end;
        int stage, batch, peer; /* -1: does not apply */
        int64_t bytes;          /* likewise */
    } * row;
};
struct timeline_rows *read_tsv(const char *file, const char *src);
/* read_times.c: the same of a file, or of a folder with each rank's own, DIR/timeline.<rank>.tsv. */
struct timeline_rows *read_times(const char *path);
bool holds_times(const char *path); /* such a folder? */
/* emit_json.c */
void emit_json(struct text *out, const struct report *r);
void put_string(struct text *t, const char *s); /* as a JSON string */
const char *quoted(const char *s);              /* the same, to be printed */
/* path.c: which instructions are on the timeline's critical path: [rank][index in ins]. */
bool **critical_path(const struct program *p, const struct timeline *tl);
/* usage.c: the bytes of a rank that hold something, from each of these times on; the first is 0. start, end: as in the
 * timeline. */
struct usage {
    int n;
    struct usage_step {
        double t;
        int64_t bytes;
    } * at;
};
struct usage memory_use(const struct rank *k, const double *start, const double *end);
/* feeds.c: where an instruction's operands come from: who wrote what it reads, on its rank or behind a message. */
struct feed {
    int32_t rank, i, msg; /* i -1: nobody did, as weights at the beginning; msg -1: it came by none */
};
struct feeds {
    struct feed *feed;
    int32_t **at; /* of instruction i of rank r: feed[at[r][i] .. at[r][i+1]) */
};
struct feeds feeds_of(const struct program *p);

/* How timelines are drawn, for terminals and as pictures. */
enum color_by { BY_OP, BY_MB, BY_STAGE };
enum with { WITH_LANES = 1, WITH_MEMORY = 2, WITH_PATH = 4, WITH_SENDS = 8 };
struct style {
    int width; /* columns */
    bool color, ascii;
    enum color_by by;
    int with;        /* what is drawn besides the jobs: of enum with */
    double from, to; /* the part that is drawn, in the ruler's unit; to 0: up to the end */
};
/* paint.c: what an instruction looks like. NULL name: it is not drawn. */
struct paint {
    const char *name;
    uint8_t text, ground, shade; /* of the 256-colour terminal */
    uint32_t fill;               /* 0xrrggbb */
};
struct paint paint_of(const struct instr *in, enum color_by by);
bool dark(uint32_t rgb); /* what is written on it should be white */
/* A lane's name where there is little room: a large group says only how many it is of. */
const char *lane_label(const struct program *p, const struct lane *l);
/* Whether one of its ranks runs jobs of several stages, so that a microbatch alone does not name one. */
bool several_stages(const struct program *p);
/* emit_grid.c: the timeline as rows of cells, and the report as a table, for people. */
/* unit: as report.unit, of the timeline's times */
void emit_grid(struct text *out, const struct program *p, const struct timeline *tl, const char *unit,
               const struct style *style);
void emit_report(struct text *out, const struct report *r, const struct style *style);
/* emit_svg.c: the timeline as a picture, by itself or in a page that answers the mouse. limit: a rank's memory. */
void emit_svg(struct text *out, const struct program *p, const struct timeline *tl, const struct report *r,
              double limit, const struct style *style, bool html);
/* Times are printed in the unit that suits the largest of them; bytes exact when few, else to a tenth in KiB, MiB… */
struct measure {
    double one; /* in the timeline's unit */
    const char *name;
};
struct measure measure_of(double largest, const char *unit, bool ascii);
const char *time_text(double t, const struct measure *m, char buf[32]);
const char *bytes_text(double n, char buf[32]);
/* emit_trace_*.c: timelines for Perfetto and other viewers, as Chrome's JSON and as TrackEvents in protobuf. */
struct steps { /* of one program, one after the other */
    int n;
    const int *number; /* as training counts them; NULL: it is one, predicted */
    const struct timeline *of;
};
void emit_chrome(struct text *out, const struct program *p, const struct steps *steps, const char *unit);
void emit_pftrace(struct text *out, const struct program *p, const struct steps *steps, const char *unit);
/* Of one rank, as Kineto would record it, for Holistic Trace Analysis. */
void emit_hta(struct text *out, const struct program *p, const struct steps *steps, const char *unit, int rank);
/* emit_torch.c: the order of jobs as PyTorch's pipelining CSV, with or without what moves tensors. Dies where PyTorch
 * could not say it. */
void emit_torch(struct text *out, const struct spec *sp, const struct sched *sc, bool comms);
/* read_torch.c: such a CSV, of either kind, as a schedule script. Dies with file, row and column. */
void read_torch(struct text *out, const char *file, const char *src);
bool is_torch(const char *file, const char *src); /* by its name or its first cell */
/* emit_cuda.c: rank r's own program. hash: of the whole compile; every rank of a run must carry the same. */
void emit_cuda(struct text *out, const struct spec *sp, const struct stage *st, const struct program *p, int r,
               uint64_t hash);
/* Text of the user's as it may stand in a comment or a string: what could end either becomes _. */
const char *tame(const char *s);
/* emit_launch.c: how to build and start them. dir: the folder as the user named it. */
void emit_makefile(struct text *out, const struct program *p);
void emit_starter(struct text *out, const struct program *p, const char *suffix); /* "", or ".gpu" */
void emit_app(struct text *out, const struct program *p, const char *dir, const char *suffix);
void emit_slurm(struct text *out, const struct program *p, const char *dir);
#endif
