/* `pianola diff`: two sides, their operations matched by identity, and why their makespans differ.
 *
 * An operation is identified by what it does and where: rank, kind, stage, microbatch, peer; among equals, by its
 * count; if updates are jobs, also by the update that it belongs to. Its position and time never count. Unmatched
 * operations are matched again without the rank; any that match then have moved.
 *
 * Times are whole ticks. A tick is a power of two, small enough to represent both timelines' doubles to one part in
 * 2^53. Sums and differences of ticks are exact, so the parts of an account add up to the makespan. So do their deltas,
 * even as decimal numbers that are read back. */
#ifndef PIANOLA_DIFF_H
#define PIANOLA_DIFF_H
#include "draw/draw.h"
#include "formats/formats.h"

/* Why an operation did not begin earlier: the reason for the wait that ended last */
enum why { BY_NOTHING, BY_DATA, BY_MEMORY, BY_LANE };

struct diff_op {
    int32_t rank, lane, stage, batch, peer, nth; /* lane: index in the side's lanes; batch and peer -1: none */
    int32_t slices;                              /* slices per microbatch; batch then counts slices. 0: not cut */
    int32_t ring;       /* the next operation of the same message or reduction, in a ring; itself if alone */
    int32_t match;      /* index in the other side, or -1 */
    int32_t bind;       /* the operation it waited for; -1: none */
    int32_t number;     /* if updates are jobs: the update whose gradient it moves, or the version it copies; else -1 */
    int32_t version;    /* version of the weights that a job reads; -1: unknown, or none */
    int64_t start, end; /* ticks */
    int64_t bytes;      /* bytes moved; -1: none */
    uint8_t op, why;
    bool moved, reordered, longer, critical; /* longer: its duration differs, either way */
    bool reread;                             /* it reads another version in the other side */
    bool split;    /* a B that the other side splits into I and W, or one of these two; W has no match */
    bool overlaps; /* it overlaps another job on one side only, or other jobs on the two */
    bool steady;   /* its ends differ between the sides no more than between steps */
};

struct diff_lane {
    int32_t rank, first, n; /* its operations, in order, are op[first .. first + n) */
    uint8_t kind;           /* enum lanekind */
    const char *name;
};

enum { SIZE_RANKS, SIZE_STAGES, SIZE_BATCHES, NSIZES };
extern const char *const size_name[NSIZES];

struct side {
    const char *name; /* as the user named it */
    const char *unit; /* unit of its times; NULL: its file does not say, or it has none */
    double flops;     /* the rate that converted FLOP into its times; 0: unknown, or none */
    bool timed;
    bool proved;        /* it was compiled here */
    struct diff_op *op; /* sorted by rank, lane and position in the lane */
    int n, nlanes, workers;
    struct {
        int64_t of[NSIZES];
        int slices; /* per microbatch, at least 1 */
    } size;         /* of what its jobs do */
    struct diff_lane *lane;
    int32_t *lane_at;            /* rank r's lanes are lane[lane_at[r] .. lane_at[r+1]) */
    const struct program *p;     /* NULL: only a timeline is known */
    const struct program *waits; /* program with its operations' waits: p, or the other side's; NULL: unknown */
    enum launch_order launch;    /* as in struct timeline */
    double *start, *end;         /* per operation, as read, or the median of the steps; ticks are derived from them */
    struct timeline_rows *steps; /* measured: a row per operation and step, from its beginning; NULL: predicted */
    double *begin;               /* per step */
    struct clocks {
        double *offset; /* per rank: seconds added to its clock; NULL: none */
        double error;   /* largest error of the offsets */
        double unmet;   /* by how much a message still arrives before it was sent: clocks may drift */
    } clocks;
    int64_t makespan;   /* ticks */
    double work;        /* ticks of jobs on all ranks, counting an overlapping pair once; may exceed int64_t */
    int64_t peak_bytes; /* on the rank with the largest arena; -1: unknown */
    struct {
        double sent;   /* bytes of all messages and collectives; -1: unknown */
        double period; /* from the start of a step to the start of the next one; 0: unknown */
    } step;
    struct {
        double cores;  /* that the ranks share; 0: each rank has its own, or unknown */
        bool serial;   /* ranks are threads, which also move messages */
        double memory; /* of a rank, in bytes; 0: unknown */
    } on;
};

/* Shares of the time of the rank that ends last; they add up to the makespan */
enum account { ACC_WORK, ACC_DEPENDENCY, ACC_LINK, ACC_LANE, ACC_COPIES, ACC_MEMORY, ACC_CORE, ACC_OTHER, NACCOUNTS };
extern const char *const account_name[NACCOUNTS];

/* An operation that makes others earlier or later, and is itself pushed by none */
struct root {
    int32_t a, b;   /* the operation in A and in B; -1: absent */
    int32_t pushed; /* number of other ends that it explains */
    int64_t shift;  /* ticks: its end in B minus its end in A; if only one side has it, its largest push */
    int64_t effect; /* ticks: how much longer B is because of it; less than 0: shorter */
    bool critical;
};

/* OVERLAPPED: jobs that overlap on one side only; each takes as long as the pair. RECUT: the model is cut into
 * another number of stages, so that no job has a counterpart */
enum diff_class { ONLY_A, ONLY_B, SPLIT, MOVED, REORDERED, LONGER, REREAD, NCLASSES, OVERLAPPED, RECUT };
/* Equal changes of operations of one kind; changes of duration by different factors are grouped by rank as well. */
struct diff_cause {
    enum diff_class class;
    int op, rank, n; /* op -1: all kinds; rank -1: any */
    int32_t a, b;    /* the first of them, in A and in B; -1: absent */
    int64_t effect;  /* as in struct root, for all of them together */
    bool unknown;    /* the effect is not known: without this change alone, B would deadlock */
};

struct diff_causes {
    struct diff_cause *of; /* by the size of their effects */
    int n;
};

/* How long the operations of a kind, or the traffic over a link, take in B compared with A */
struct diff_group {
    const char *name;       /* "SEND_F", "0 to 1", "group 0,1" */
    int n, longer;          /* operations with a duration in A; those whose duration changed */
    double a, b;            /* sums of all durations */
    double bias, low, high; /* median and quartiles of the ratios B / A; 0 if A has no durations */
    double p;               /* probability that the steps' sums differ by chance; NAN: unknown */
};

/* Source of the times of the two sides */
struct diff_base {
    const char *of[2]; /* per side: the source of predicted seconds, as text; NULL: the unit suffices */
    double rate;       /* the factor that converted the prediction's times to seconds; 0: compared unscaled */
    double flops;      /* FLOP per second of the measured jobs, by their CPU time; 0: not known */
};

struct diff_groups {
    struct diff_group *of;
    int n;
};

enum { F_MAKESPAN, F_BUBBLE, F_PERIOD, F_PEAK, F_SENT, F_OPERATIONS, NFIGURES };

struct diff {
    struct side *side[2];
    double tick; /* in the unit of the times; 0: one side has none */
    const char *unit;
    double share; /* times are in units of an F of 1 / share of the model; 0: as the sides give them */
    int only[2], split, moved, reordered, longer, reread, shifted;
    bool repeated; /* the sides differ in how many microbatches an update covers, or in what repeats and how often */
    bool rewired;  /* the above are all 0, but operands, waits or memory differ; known only if both are programs */
    int64_t account[2][NACCOUNTS];
    int ends[2];       /* per side: the rank that ends last */
    int64_t least;     /* differences of more ticks count as changes */
    struct root *root; /* by the size of their effects */
    int nroots;
    struct diff_causes causes;
    int32_t *root_of;                /* per operation of A, then per operation of B: its root, or -1 */
    struct diff_groups kinds, links; /* those that contain an operation whose duration changed */
    bool tells;                      /* there are enough steps to distinguish a change from chance */
    double p[NFIGURES];              /* for the makespan and the bubble; NAN: unknown */
    struct diff_base base;
};

/* diff_side.c. tl NULL: no times are known yet. side_times sets them from rows, as side_of_rows takes them; dies, with
 * advice, if they are from another program. */
struct side *side_of_program(const char *name, const struct program *p, const struct timeline *tl);
struct side *side_of_rows(const char *name, struct timeline_rows *rows);
void side_times(struct side *side, const char *file, struct timeline_rows *rows, const char *advice);
int32_t *side_ops(const struct side *side, int r); /* the operation of each of rank r's instructions in waits */
/* Returns whether the rows are the side's operations, one by one. */
bool side_has_rows(const struct side *side, const struct timeline_rows *rows);
void side_forget_numbers(struct side *side);     /* drops numbers that the other side lacks */
bool side_leads(const struct side *side, int o); /* whether o is the first of a ring of at least two */
/* diff_clock.c: puts all steps on one clock, each from its own beginning, and starts a message when all its ends have
 * arrived. The medians of the steps become the side's times. Changes the rows. */
void side_steps(struct side *side, struct timeline_rows *rows);
double median_of(double *x, int n); /* sorts x */
/* diff_steps.c: decides which differences are no larger than those between steps. Probabilities are two-sided. */
double rank_sum_test(double *x, int n, double *y, int m); /* sorts both */
double sign_test(double x, const double *y, int m);
double diff_p(double *x, int n, double *y, int m); /* the test that applies; NAN: neither side has steps */
bool diff_by_chance(double p);
int side_nsteps(const struct side *side); /* 1: predicted */
/* Writes when operation i ended, or how long it took, in each step. */
void diff_sample(const struct side *side, int i, bool ends, double *out);
void diff_significance(struct diff *diff);
/* diff_size.c. side_sizes finds the sizes of what a side's jobs do. diff_scale scales costs in units, if stages have
 * another size on each side. diff_per_work returns a makespan, per unit of work if the sides do different work; per:
 * how to call it, or NULL. put_resized writes how B's sizes differ. */
void side_sizes(struct side *side);
bool diff_resized(const struct diff *diff, int size);
/* Returns whether the sides' bytes compare. Without a model, a tensor of a stage has 1 byte, however large the stage.
 */
bool diff_compares_bytes(const struct diff *diff);
void diff_scale(struct diff *diff);
double diff_per_work(const struct diff *diff, int side, const char **per);
void put_resized(struct text *t, const struct diff *diff);
/* diff_match.c: runs the whole comparison: finds operations on one side only, those that moved or were reordered, those
 * that take longer, then the rest. */
struct diff *diff_make(struct side *a, struct side *b);
bool diff_compares(const struct diff_op *op); /* whether its match does everything that it does */
/* diff_cause.c: finds what each operation waited for, the critical paths, the accounts and the roots. */
void diff_causes(struct diff *diff);
int diff_partner(const struct side *side, int o);              /* the job that overlaps o, or -1 */
bool diff_changed(const struct diff_op *op);                   /* whether more than its time changed */
int64_t diff_shift(const struct diff *diff, int side, int op); /* how much later in B; 0 if one side lacks it */
const struct root *diff_root(const struct diff *diff, int side, int op); /* what made it earlier or later, or NULL */
int64_t diff_begin(const struct side *side, const struct diff_op *op);
int64_t diff_took(const struct side *side, const struct diff_op *op); /* a RECV: since its SEND began */
bool diff_waits_in_lane(const struct side *side, int o);  /* whether o waits for its lane's previous operation */
bool diff_follows(const struct side *side, int p, int o); /* the same if p were the previous operation */
int diff_by_weight(const void *x, const void *y);         /* orders roots by how many they pushed, and then how far */
/* diff_account.c: divides the time of the rank that ends last. last: the side's last operation, or -1. Returns its
 * rank, or -1. */
int diff_account(const struct side *side, int last, double tick, int64_t *acc);
/* diff_undo.c: finds the causes, and the effects of causes and roots. */
void diff_undo(struct diff *diff);
/* diff_why.c: writes what changed and its effect, without a newline; and what a cause's operations did. */
void put_diff_sentence(struct text *t, const struct diff *diff, const struct measure *measure);
void put_diff_cause(struct text *t, const struct diff *diff, const struct diff_cause *cause);
/* diff_group.c */
void diff_groups(struct diff *diff);
/* diff_fit.c: writes the measured side's costs as a cluster script. Dies if nothing was measured. */
void emit_fit(struct text *out, const struct diff *diff);
/* diff_text.c */
struct names diff_names(const struct diff_op *op);
const char *diff_signed_time(const struct diff *diff, int64_t ticks, const struct measure *measure); /* "+2 units" */
const char *diff_op_name(const struct diff_op *op); /* "1F3", "SEND_F 1 3 to 2" */
double diff_span(const struct diff *diff);          /* the longer makespan, in the unit of the times */
struct measure diff_measure(const struct diff *diff, bool ascii);
const char *diff_time_text(double x, const struct measure *measure); /* with its unit: "1 unit", "2.5 ms" */
const struct diff_op *diff_before(const struct side *side, int i);   /* the operation before i in its lane, or NULL */
const char *diff_figure_text(int which, double x, const struct measure *measure, char buf[32]);
extern const char *const figure_name[NFIGURES];
bool diff_figure(const struct diff *diff, int which, int side, double *x);        /* whether that side has it */
bool diff_figure_changed(const struct diff *diff, int which, double a, double b); /* whether by more than chance */
bool diff_same(const struct diff *diff);
bool diff_has(const struct diff_op *op, enum diff_class c); /* counts B's operations for ONLY_B, else A's */
void put_changes(struct text *t, const struct diff *diff);  /* "; 3 only in A, 4 moved" */
/* Writes the sentence, the largest causes, the figures and the account. emit_diff adds every change, durations by link
 * and the roots. */
void emit_diff_summary(struct text *out, const struct diff *diff, bool markdown, bool ascii);
void emit_diff(struct text *out, const struct diff *diff, bool markdown, bool ascii);
void emit_diff_json(struct text *out, const struct diff *diff);
/* diff_svg.c: draws both timelines and the difference. Both need times. diff_view.c writes the same as data for the
 * viewer, diff_html.c a page with both and the text. command: the command that made it. */
void emit_diff_svg(struct text *out, const struct diff *diff);
void emit_diff_view(struct text *out, const struct diff *diff);
void emit_diff_html(struct text *out, const struct diff *diff, const char *command);
#endif
