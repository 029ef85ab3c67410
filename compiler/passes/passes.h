/* The passes, in the order of the table in plan/table.c. Each comment names a pass's inputs and results. A pass that
 * needs three or more parts of a compile takes the whole compile. No pass runs another one. */
#ifndef PIANOLA_PASSES_H
#define PIANOLA_PASSES_H
#include "ir/compile.h"

enum { MOST_PARTS = 255 }; /* maximum number of parts of a job */

/* cost.c: needs the spec's model and cluster; gives the costs and sizes of each stage, and fills in job costs not
 * given. Returns an array of spec->stages entries and, for a tied model, the table after them; sets costs.tied. Dies if
 * the model cannot be cut into that many stages. */
struct costs *costs_make(const struct spec *sp);
/* Returns, per stage of a model, whether it has no weight gradient: no parameters, or frozen ones only. */
bool *untrained_stages(const struct spec *sp);
/* Sets the sizes of weights, gradients and optimizer state as costs.homes divide them. */
void cost_homes(const struct costs *costs);
/* Returns the time of a rank's update of a set of weights, or of the piece that it updates. */
double cost_update(const struct costs *costs, int set);
/* Returns a part's share of the time of a job that runs in `parts` parts. */
double cost_part(const struct stage *st, int op, int part, int parts);
/* Returns the time, in seconds, units or FLOP, of adding `bytes` of gradient. */
double cost_add(const struct spec *sp, int64_t bytes);

/* Returns the ranks that compute job j together, in the order of their places. */
struct group team_of(const struct spec *sp, int32_t j);

/* Returns the time of one of a team's exchanges. */
double stop_time(const struct spec *sp, const struct stop *stop, const struct group *team);

/* bucket.c: choose_buckets sets stage.pieces, on which the sizes of sets depend; cut_backwards, with these sizes, the
 * parts. */
void choose_buckets(const struct costs *costs);
void cut_backwards(const struct spec *sp, struct stage *st);

/* collective.c: costs and traffic of a collective. whole: bytes of the whole tensor; a shard is its n-th part. */
/* Returns the bytes by which the bandwidth of a cluster's collective(op, n) counts, which are the most that a rank
 * sends in a ring: the factors of nccl-tests' "bus bandwidth" (doc/PERFORMANCE.md there). motion: as motion_of gives
 * it. */
double bus_bytes(int motion, int n, double whole);
double collective_time(const struct spec *sp, int op, int algorithm, const struct group *g, int64_t whole);
int cheaper_algorithm(const struct spec *sp, int op, const struct group *g, int64_t whole);
int64_t whole_bytes(const struct rank *k, const struct instr *x);
struct moved {
    int64_t sent, received;
};
/* Returns the bytes that rank r moves in its collective x. */
struct moved collective_moved(const struct program *p, int r, const struct instr *x);

/* sched.c: needs the graph; gives start, end and order of every job, by the rules of schedules/language.md ("How jobs
 * are scheduled"). Dies on deadlock. */
struct sched *sched_run(const struct compile *c);

/* lower.c: needs the schedule; gives the program, with lanes, without offsets and waits. */
struct program *lower(const struct compile *c);

/* mem.c: needs lower; gives every buffer an offset and every rank its arena. Bytes are reused as soon as the schedule
 * permits; with choices.life, only once they are free by these times too. If the cluster lacks the memory for that,
 * reuses them earlier, by the smallest time that makes the plan fit, but not before the schedule permits, and returns
 * true. Dies if the plan exceeds the cluster's memory, unless choices.any_memory permits it. */
bool mem_plan(const struct compile *c);
/* Returns the bytes of an arena that a buffer occupies. Even an empty one (a stage without weights) gets a place of its
 * own. */
int64_t mem_room(const struct spec *sp, int64_t bytes);

/* memory_check.c: dies if some rank's arenas are beyond the cluster's memory, naming the rank that needs most */
void memory_check(const struct spec *sp, const struct program *p);
bool is_beyond_memory(const char *error); /* returns whether an error reports that */

/* lanes.c: needs mem, because reused bytes are an order too; gives the waits, transitively reduced. */
void lanes_sync(struct program *p);

/* sim.c: needs lanes; gives the predicted timeline. */
struct timeline *sim_run(const struct compile *c);
/* Sets the timeline's period: the time from one repetition of the period to the next, once ranks are in step. If
 * nothing in the step repeats, the whole step is the period. Each rank begins a repetition when its own lanes have
 * ended the one before. Also sets the timeline's step: the end of a step with all repetitions. If the period does not
 * settle within 64 repetitions (2, with more than 10^6 instructions), it is the mean of the last ones. */
void sim_steady(const struct compile *c);
/* Sets the makespans of `runs` runs of the step. In each, the times of jobs, messages and collectives are longer or
 * shorter by up to the fraction `level`, by random numbers from the seed. */
void sim_noisy(const struct compile *c, double level, uint64_t seed, int64_t runs, double *makespan);
/* jitter.c: random_bits returns random number `which` of a seed; random_part converts it to a number in [-1, 1) */
uint64_t random_bits(uint64_t seed, uint64_t which);
double random_part(uint64_t random);
/* Summary of the makespans of noisy runs. p95: the least that 95 of 100 runs do not exceed. */
struct jitter {
    double level;
    int64_t runs;
    double mean, p95, worst;
};
#define AS_MEASURED INFINITY           /* a level: as the cluster's spread says */
const char *jitter_text(double level); /* what varies, in words */
struct jitter *jitter_make(const struct compile *c, double level, uint64_t seed, int64_t runs);
/* Returns the timeline of unroll_program(c->program, copies), whose repetitions it simulates one by one. */
struct timeline *sim_unrolled(const struct compile *c, int copies);
/* unroll.c: needs mem; gives the program with its period written out `copies` times, one after the other, with the
 * microbatches, updates and versions of each. If nothing repeats, the whole step is written out. The result is only for
 * drawing timelines: its memory is not planned, and steps of a flush schedule use the same names. */
struct program *unroll_program(const struct program *p, int copies);
/* Returns the times at which the lanes of rank r join around what repeats: [joins_of(p)]. */
double *join_times(const struct program *p, const struct timeline *tl, int r);
/* update_times.c: needs sim_steady; gives the ends of the last stage's updates in a predicted step, in the timeline's
 * unit: n of them, in order, or one if a single update ends the step. The next step's updates end `step` later. */
struct update_times {
    int64_t n;
    double *at, step;
};
struct update_times update_times(const struct program *p, const struct timeline *tl);
/* Returns how long before its end rank k's ALL_REDUCE x, which takes `took`, lets the next communication launch under
 * --reduce ordered. Its pieces are scattered and gathered, each by a launch, and the last launch is half a piece before
 * the end. */
double reduction_tail(const struct rank *k, const struct instr *x, double took);

/* promises.c: asserts what the pass that has just produced `gives` (compile.h) promises to later passes. */
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
/* exposed.c: times for which the compute lane waits, and hidden times, in which a tensor moves while the lane computes,
 * by kind of tensor. */
enum {
    EXPOSED_ACTIVATIONS,
    EXPOSED_GRADIENTS,
    EXPOSED_WEIGHTS,
    EXPOSED_REDUCTIONS,
    EXPOSED_COPIES, /* copies to host memory and back */
    EXPOSED_TEAMS,  /* exchanges of a team's members within a job */
    NEXPOSED
};
extern const char *const exposed_name[NEXPOSED];
int exposed_by(const struct instr *x); /* returns the category of what x moves */
void exposed_waits(const struct rank *k, const double *start, const double *end, double exposed[NEXPOSED]);
void hidden_moves(const struct rank *k, const double *start, const double *end, double hidden[NEXPOSED]);

struct rank_report {
    double busy, idle, span, exposed[NEXPOSED], hidden[NEXPOSED];
    double steady_busy; /* time in jobs in the period, or in the step if nothing in it repeats */
    int peak_activations;
    int64_t peak_bytes;  /* size of the arena, which the device allocates */
    int64_t least_bytes; /* least size with which it works: `--memory least` */
    int64_t held[NHELD]; /* peak_bytes by content, when most bytes are in use; HELD_GAPS includes tokens and padding */
    int activations_received, gradients_received, weights_received, reductions_received, stages_stored;
    int gathers, reductions; /* collectives that the rank takes part in, and gathers shard by shard; */
    int gathers_apart;       /* number of gathers shard by shard, because members need the weights at different times */
    int64_t bytes_received, bytes_sent;
    int64_t host_bytes;                /* size of the arena in host memory */
    int64_t offloaded, reloaded;       /* bytes copied to host memory, and back */
    const struct weights_use *weights; /* NULL: no weights travel, or the times are measured */
};
struct report {
    const char *schedule;
    const char *unit; /* unit of times: "F" (one unit of cost), "FLOP" or "s" */
    int workers, stages, batches;
    int slices;   /* slices of a microbatch; if not 0, activations are counted in slices. 0: microbatches are whole */
    int measured; /* number of steps, whose median times are reported; 0: predicted */
    double makespan, bubble, throughput;
    double period;             /* time between the starts of repetitions, once ranks are in step */
    int period_batches;        /* microbatches of a repetition, or of a step if nothing in it repeats */
    int64_t step_batches;      /* microbatches of a step, which `batches` of the program represent */
    double steady_bubble;      /* 1 - busy of a period / (W * period) */
    bool updates;              /* updates are jobs */
    int *staleness, *versions; /* per stage: updates that a job's weights are behind; versions held at once */
    int64_t mixed;             /* backwards that read another version than their forwards; the first of them is in
                                * mix */
    struct {
        int s, b, backward, forward; /* versions that the backward and its forward read */
    } mix;
    struct {
        double lower, work, path, memory; /* lower is the largest of the other three */
        double links; /* share of the critical path outside jobs: messages, collectives and latencies */
    } bound;
    double gap;           /* makespan / bound.lower - 1 */
    double closed_bubble; /* bubble that the script declares; NAN: none, or it holds for other costs */
    /* Activations x time, in the program as written out: room, what ranks could hold, by their caps, or else their
     * peaks; held, what they hold; and needed, what they would hold if no activation waited. */
    struct {
        double room, held, needed;
        bool capped; /* some rank has a cap */
    } memory_time;
    struct rank_report *rank;
    const struct jitter *jitter; /* NULL: not requested */
};
const char *time_unit(const struct spec *sp); /* returns report.unit */
/* Returns the factor that converts units, in which a stage's F takes one, to units in which the F of a rank's share of
 * the model takes one. Schedules with more stages than ranks then compare with others. */
static inline double share_of_units(const struct report *report) {
    double slices = report->slices ? report->slices : 1;
    return (double)report->workers / report->stages / slices;
}
struct report *report_make(const struct compile *c);

/* bounds.c: sets the bounds, the gap and the figures beside them; needs the makespan, and of each rank its busy time
 * and peak. */
void report_bounds(const struct compile *c, struct report *rep);
/* critical_path.c: returns which instructions are on the timeline's critical path: [rank][index in ins]. */
bool **critical_path(const struct program *p, const struct timeline *tl);
/* memory_use.c: returns the bytes of a rank that are in use from each of these times on; the first time is 0. start,
 * end: as in the timeline. */
struct usage {
    int n;
    struct usage_step {
        double t;
        int64_t bytes;
    } * at;
};
struct usage memory_use(const struct rank *k, const double *start, const double *end);
/* producers.c: returns, for each operand of an instruction, the instruction that wrote it, on its rank or before a
 * message. */
struct producer {
    int32_t rank, i, msg; /* i -1: none wrote it, such as the initial weights; msg -1: no message carried it */
};
struct producers {
    struct producer *a;
    int32_t **at; /* operands of instruction i of rank r: a[at[r][i] .. at[r][i+1]) */
};
struct producers producers_of(const struct program *p);
#endif
