/* The passes, in the order of the table in plan/table.c. Each comment says what a pass needs and what it gives. A pass
 * that needs three or more parts of a compile takes the compile; none runs another one. */
#ifndef PIANOLA_PASSES_H
#define PIANOLA_PASSES_H
#include "ir/compile.h"

enum { MOST_PARTS = 255 }; /* in which a job runs */

/* cost.c: needs the spec's model and cluster; gives the costs and sizes of each stage, and fills in job costs not
 * given. Returns an array of spec->stages and, for a tied model, the table behind them; sets spec->tied. Dies if the
 * model cannot be cut into that many stages. */
struct stage *cost_stages(struct spec *sp);
/* Sets the sizes of weights, gradients and optimizer state as spec->homes divide them. */
void cost_homes(const struct spec *sp, struct stage *st);
/* The time that a rank's update of a set of weights takes: of the piece that it updates. */
double cost_update(const struct spec *sp, const struct stage *st, int set);
/* A part's share of the time of a job that runs in so many parts. */
double cost_part(const struct stage *st, int op, int part, int parts);
/* The time, in seconds, units or FLOP, that adding `bytes` of gradient takes. */
double cost_add(const struct spec *sp, int64_t bytes);

/* The ranks that compute job j together, in the order of their places. */
struct group team_of(const struct spec *sp, int32_t j);

/* How long one of its exchanges takes. */
double stop_time(const struct spec *sp, const struct stop *stop, const struct group *team);

/* bucket.c: sets stage.pieces, from which the sizes of sets follow; and, with these sizes, the parts. */
void choose_buckets(const struct spec *sp, struct stage *st);
void cut_backwards(const struct spec *sp, struct stage *st);

/* collective.c: what a collective costs and moves. whole: bytes of the whole tensor; a shard is its n-th part. */
double collective_time(const struct spec *sp, int op, int algorithm, const struct group *g, int64_t whole);
int cheaper_algorithm(const struct spec *sp, int op, const struct group *g, int64_t whole);
int64_t whole_bytes(const struct rank *k, const struct instr *x);
struct moved {
    int64_t sent, received;
};
/* By member me; root: its place in the group, where there is one. */
struct moved collective_moved(int op, int algorithm, const struct group *g, int root, int me, int64_t whole);

/* sched.c: needs the graph; gives start, end and order of every job, by the rules of schedules/language.md ("How jobs
 * are scheduled"). Dies on deadlock. */
struct sched *sched_run(const struct compile *c);

/* lower.c: needs the schedule; gives the program, with lanes, without offsets and waits. */
struct program *lower(const struct compile *c);

/* mem.c: needs lower; gives every buffer an offset and every rank its arena. Bytes are reused as soon as the schedule
 * permits; with choices.life, only once they are free by these times too. Where the cluster has not the memory for
 * that, as little earlier as fits, or as the schedule permits; then it returns true. Dies beyond the cluster's memory,
 * unless choices.any_memory says that it may be more. */
bool mem_plan(const struct compile *c);
bool is_beyond_memory(const char *error); /* whether an error says that */
/* The bytes that a buffer takes of an arena. Even an empty one (a stage without weights) gets a place of its own. */
int64_t mem_room(const struct spec *sp, int64_t bytes);

/* lanes.c: needs mem, because reused bytes are an order too; gives the waits, transitively reduced. */
void lanes_sync(struct program *p);

/* sim.c: needs lanes; gives the predicted timeline. */
struct timeline *sim_run(const struct compile *c);
/* Sets the timeline's period: the time from one repetition of the period to the next, or of the whole step where
 * nothing in it repeats, once ranks have come into step; each rank begins when its own lanes have ended the one before.
 * And its step: when a step ends, with all repetitions. Without a period that settles within 64 repetitions (2, of more
 * than 10^6 instructions), it is the mean of the last ones. */
void sim_steady(const struct compile *c);
/* The makespans of so many runs of the step, in each of which the times of jobs, messages and collectives are up to
 * `level` of them longer or shorter, by random numbers from the seed. */
void sim_noisy(const struct compile *c, double level, uint64_t seed, int64_t runs, double *makespan);
/* jitter.c: the random number `which` of a seed; the same as a number in [-1, 1) */
uint64_t random_bits(uint64_t seed, uint64_t which);
double random_part(uint64_t random);
/* What the makespans of noisy runs come to. p95: the least that 95 of 100 runs do not exceed. */
struct jitter {
    double level;
    int64_t runs;
    double mean, p95, worst;
};
struct jitter *jitter_make(const struct compile *c, double level, uint64_t seed, int64_t runs);
/* The timeline of unroll_program(c->program, copies): the same, written down. */
struct timeline *sim_unrolled(const struct compile *c, int copies);
/* unroll.c: needs mem; gives the program with its period, or, where nothing repeats, the whole step, written out so
 * many times, one after the other, with the microbatches, updates and versions of each. It is for timelines to be
 * drawn: its memory is not planned, and what is called the same in each of a flush schedule's steps keeps that name. */
struct program *unroll_program(const struct program *p, int copies);
/* When the lanes of rank r join around what repeats: [joins_of(p)]. */
double *join_times(const struct program *p, const struct timeline *tl, int r);
/* update_times.c: needs sim_steady; gives when the last stage's updates end in a predicted step, in the timeline's
 * unit: n of them, in order, or one where a single update ends the step. Those of the next step end `step` later. */
struct update_times {
    int64_t n;
    double *at, step;
};
struct update_times update_times(const struct program *p, const struct timeline *tl);
/* How long before its end an ALL_REDUCE x of rank k, which takes that long, lets the next communication be launched,
 * with the ranks' --reduce ordered: its pieces are scattered and gathered, each by a launch, and the last one is half a
 * piece before the end. */
double reduction_tail(const struct rank *k, const struct instr *x, double took);

/* promises.c: asserts what the pass that has just given `gives` (compile.h) promises to those after it. */
void passes_promise(const struct compile *c, int gives);

/* report.c: needs the timeline; gives the reported figures. */
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
/* exposed.c: for how long the compute lane waits, and for how long what it waits for moves while it computes; by what
 * that is. */
enum {
    EXPOSED_ACTIVATIONS,
    EXPOSED_GRADIENTS,
    EXPOSED_WEIGHTS,
    EXPOSED_REDUCTIONS,
    EXPOSED_COPIES, /* to host memory, and back */
    EXPOSED_TEAMS,  /* what the members of a team exchange within a job */
    NEXPOSED
};
extern const char *const exposed_name[NEXPOSED];
int exposed_by(const struct instr *x); /* which of them, for what x brings */
void exposed_waits(const struct rank *k, const double *start, const double *end, double exposed[NEXPOSED]);
void hidden_moves(const struct rank *k, const double *start, const double *end, double hidden[NEXPOSED]);

struct rank_report {
    double busy, idle, span, exposed[NEXPOSED], hidden[NEXPOSED];
    double steady_busy; /* in the period, or in the step where nothing in it repeats */
    int peak_activations;
    int64_t peak_bytes;  /* the arena: what the device allocates */
    int64_t least_bytes; /* what it could do with: `--memory least` */
    int64_t held[NHELD]; /* peak_bytes by content, when most are in use; HELD_GAPS includes tokens and padding */
    int activations_received, gradients_received, weights_received, reductions_received, stages_stored;
    int gathers, reductions; /* collectives that it takes part in, and gathers shard by shard: */
    int gathers_apart;       /* its members do not agree where they need the weights */
    int64_t bytes_received, bytes_sent;
    int64_t host_bytes;                /* the arena in host memory */
    int64_t offloaded, reloaded;       /* bytes copied there, and back */
    const struct weights_use *weights; /* NULL: none travel, or the times are measured */
};
struct report {
    const char *schedule;
    const char *unit; /* of times: "F" (one unit of cost), "FLOP" or "s" */
    int workers, stages, batches;
    int slices;   /* of a microbatch; then activations are counted in slices. 0: it is not cut */
    int measured; /* number of steps, whose median the times are; 0: predicted */
    double makespan, bubble, throughput;
    double period;             /* the time between the starts of repetitions, once ranks are in step */
    int period_batches;        /* the microbatches of each; of a step where nothing in it repeats */
    int64_t step_batches;      /* of a step, which `batches` of the program stand for */
    double steady_bubble;      /* 1 - busy of a period / (W * period) */
    bool updates;              /* they are jobs */
    int *staleness, *versions; /* per stage: updates that a job's weights lack; versions held at once */
    int64_t mixed;             /* backwards that read another version than their forwards; the first of them: */
    struct {
        int s, b, backward, forward; /* and the versions that it and its forward read */
    } mix;
    struct {
        double lower, work, path, memory; /* the largest of three, and the three */
    } bound;
    double gap;           /* makespan / bound.lower - 1 */
    double closed_bubble; /* what the script says the bubble is; NAN: nothing, or of other costs than these */
    /* Activations x time, of what is written out: what ranks could hold, by their caps, or else their peaks; what they
     * hold; and what they would hold if none of it waited. */
    struct {
        double room, held, needed;
        bool capped; /* some rank has a cap */
    } memory_time;
    struct rank_report *rank;
    const struct jitter *jitter; /* NULL: not asked for */
};
const char *time_unit(const struct spec *sp); /* as report.unit */
struct report *report_make(const struct compile *c);

/* bounds.c: sets the bounds, the gap and what is beside them; needs the makespan, and of ranks busy and the peak. */
void report_bounds(const struct compile *c, struct report *rep);
/* critical_path.c: which instructions are on the timeline's critical path: [rank][index in ins]. */
bool **critical_path(const struct program *p, const struct timeline *tl);
/* memory_use.c: the bytes of a rank that are in use, from each of these times on; the first time is 0. start, end: as
 * in the timeline. */
struct usage {
    int n;
    struct usage_step {
        double t;
        int64_t bytes;
    } * at;
};
struct usage memory_use(const struct rank *k, const double *start, const double *end);
/* producers.c: where an instruction's operands come from: which instruction wrote them, on its rank or before a
 * message. */
struct producer {
    int32_t rank, i, msg; /* i -1: none wrote it, such as the initial weights; msg -1: no message carried it */
};
struct producers {
    struct producer *a;
    int32_t **at; /* of instruction i of rank r: a[at[r][i] .. at[r][i+1]) */
};
struct producers producers_of(const struct program *p);
#endif
