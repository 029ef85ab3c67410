/* `pianola diff`: two sides, their operations matched by identity, and why their makespans differ.
 *
 * An operation is identified by what it does and where: rank, kind, stage, microbatch, peer; among equals, by its
 * count; where updates are jobs, also by the update that it belongs to. Never by its place or time. Unmatched
 * operations are matched again without the rank: those have moved.
 *
 * Times are whole ticks. A tick is a power of two, small enough to keep the doubles of both timelines to one part in
 * 2^53. Sums and differences of ticks are exact, so the parts of an account add up to the makespan, and so do their
 * deltas, even as decimal numbers that are read back. */
#ifndef PIANOLA_DIFF_H
#define PIANOLA_DIFF_H
#include "draw/draw.h"
#include "formats/formats.h"

/* Why an operation began no earlier: by the last to end of all it had to wait for. */
enum why { BY_NOTHING, BY_DATA, BY_MEMORY, BY_LANE };

struct diff_op {
    int32_t rank, lane, stage, batch, peer, nth; /* lane: of the side; batch and peer -1: none */
    int32_t slices;                              /* of its microbatch; then batch counts slices. 0: it is not cut */
    int32_t ring;    /* the next operation of the same message or reduction, in a ring; itself: it is alone */
    int32_t match;   /* in the other side, or -1 */
    int32_t bind;    /* what it waited for; -1: nothing */
    int32_t number;  /* where updates are jobs: of the update whose gradient it moves, or the version it copies; -1 */
    int32_t version; /* of the weights that a job reads; -1: unknown, or none */
    int64_t start, end; /* ticks */
    int64_t bytes;      /* -1: it moves none */
    uint8_t op, why;
    bool moved, reordered, longer, critical; /* longer: or shorter */
    bool reread;                             /* it reads another version in the other side */
    bool split;  /* a B that is I and W in the other side, or one of these; W has no match */
    bool steady; /* its ends in both sides differ by no more than between steps */
};

struct diff_lane {
    int32_t rank, first, n; /* its operations, in order, are op[first .. first + n) */
    uint8_t kind;           /* enum lanekind */
    const char *name;
};

struct side {
    const char *name; /* as the user named it */
    const char *unit; /* of its times; NULL: its file does not say, or it has none */
    double flops;     /* the rate that turned FLOP into its times; 0: unknown, or none did */
    bool timed;
    bool proved;        /* it was compiled here */
    struct diff_op *op; /* by rank, lane and place in the lane */
    int n, nlanes, workers;
    struct diff_lane *lane;
    int32_t *lane_at;            /* rank r's lanes are lane[lane_at[r] .. lane_at[r+1]) */
    const struct program *p;     /* NULL: only a timeline is known */
    const struct program *waits; /* what its operations wait for: p, or the other side's; NULL: unknown */
    enum launch_order launch;    /* as in struct timeline */
    double *start, *end;         /* per operation, as read, or the median of the steps; ticks come from them */
    struct timeline_rows *steps; /* measured: a row per operation and step, since it began; NULL: predicted */
    double *begin;               /* of each step */
    double *clock, clock_error;  /* what was added to each rank's clock, and its largest error; NULL: nothing */
    int64_t makespan;            /* ticks */
    double work;                 /* ticks of jobs on all ranks, an overlapping pair counted once: may exceed int64_t */
    int64_t peak_bytes;          /* of the rank with the largest arena; -1: unknown */
    double sent;                 /* bytes of all messages */
    double limit;                /* bytes of a rank's memory; 0: unknown */
};

/* Where the time of the rank that ends last went. Together they are the makespan. */
enum account { ACC_WORK, ACC_DEPENDENCY, ACC_LINK, ACC_LANE, ACC_MEMORY, ACC_OTHER, NACCOUNTS };
extern const char *const account_name[NACCOUNTS];

/* An operation that makes others earlier or later, and is not pushed by any. */
struct root {
    int32_t a, b;   /* the operation in A and in B; -1: absent */
    int32_t pushed; /* how many other ends it explains */
    int64_t shift;  /* ticks: its end in B minus that in A; if only one side has it, its largest push */
    bool critical;
};

/* How long the operations of a kind, or the traffic over a link, take in B compared with A. */
struct diff_group {
    const char *name;       /* "SEND_F", "0 to 1", "group 0,1" */
    int n, longer;          /* operations that A gives a duration; those that changed, longer or shorter */
    double a, b;            /* all durations together */
    double bias, low, high; /* of the ratios B / A: median and quartiles; 0 where A has no durations */
    double p;               /* probability that the steps' sums differ by chance; NAN: unknown */
};

enum { F_MAKESPAN, F_BUBBLE, F_PEAK, F_SENT, F_OPERATIONS, NFIGURES };

struct diff {
    struct side *side[2];
    double tick; /* in the unit of the times; 0: a side has none */
    const char *unit;
    int only[2], split, moved, reordered, longer, reread, shifted;
    bool repeated; /* the sides differ in what an update is of, or in what repeats and how often */
    bool rewired;  /* the above are all 0, but operands, waits or memory differ: known if both are programs */
    int64_t account[2][NACCOUNTS];
    int ends[2];   /* the rank that ends last */
    int64_t least; /* differences of more ticks count */
    struct root *root;
    int nroots;
    int32_t *root_of;               /* per operation of A, then per operation of B that A lacks: its root, or -1 */
    struct diff_group *kind, *link; /* those with an operation whose duration changed */
    int nkinds, nlinks;
    bool tells;         /* there are enough steps to tell a change from chance */
    double p[NFIGURES]; /* of the makespan and the bubble; NAN: unknown */
    double rate;        /* the factor that made the prediction's times seconds; 0: they are compared unscaled */
};

/* diff_side.c. tl NULL: no times are known yet; side_times sets them, from rows such as side_of_rows takes. */
struct side *side_of_program(const char *name, const struct program *p, const struct timeline *tl);
struct side *side_of_rows(const char *name, struct timeline_rows *rows);
void side_times(struct side *side, const char *file, struct timeline_rows *rows);
int32_t *side_ops(const struct side *side, int r); /* the operation of each instruction of rank r in side->waits */
void side_forget_numbers(struct side *side);       /* since the other side does not know them */
bool side_leads(const struct side *side, int o);   /* is o the first of a ring of at least two? */
/* diff_clock.c: puts all steps on one clock, each from its own beginning, a message from when all its ends have
 * arrived; their medians become the times of side. Changes the rows. */
void side_steps(struct side *side, struct timeline_rows *rows);
double median_of(double *x, int n); /* sorts x */
/* diff_steps.c: what differs no more than between steps. Probabilities are two-sided. */
double rank_sum_test(double *x, int n, double *y, int m); /* sorts both */
double sign_test(double x, const double *y, int m);
double diff_p(double *x, int n, double *y, int m); /* the test that applies; NAN: neither side has steps */
bool diff_by_chance(double p);
int side_nsteps(const struct side *side); /* 1: predicted */
/* When operation i ended, or how long it took, in each step. */
void diff_sample(const struct side *side, int i, bool ends, double *out);
void diff_significance(struct diff *diff);
/* diff_match.c: the whole comparison: what is only in one, moved or reordered, what takes longer, then the rest. */
struct diff *diff_make(struct side *a, struct side *b);
bool diff_compares(const struct diff_op *op); /* does it do all that its match does? */
/* diff_cause.c: what each operation waited for, the critical paths, the accounts, the roots. */
void diff_causes(struct diff *diff);
bool diff_changed(const struct diff_op *op);                             /* in more than its time */
int64_t diff_shift(const struct diff *diff, int side, int op);           /* how much later in B; 0: or one has it */
const struct root *diff_root(const struct diff *diff, int side, int op); /* what made it earlier or later, or NULL */
int64_t diff_begin(const struct side *side, const struct diff_op *op);
int64_t diff_took(const struct side *side, const struct diff_op *op); /* of a RECV: since its SEND began */
/* diff_group.c */
void diff_groups(struct diff *diff);
/* diff_fit.c: the measured side's costs, as a cluster script. Dies if nothing was measured. */
void emit_fit(struct text *out, const struct diff *diff);
/* diff_text.c */
struct names diff_names(const struct diff_op *op);
const char *diff_op_name(const struct diff_op *op); /* "1F3", "SEND_F 1 3 to 2" */
const char *diff_figure_text(int which, double x, const struct measure *measure, char buf[32]);
extern const char *const figure_name[NFIGURES];
bool diff_figure(const struct diff *diff, int which, int side, double *x);        /* whether that side has it */
bool diff_figure_changed(const struct diff *diff, int which, double a, double b); /* and not by rounding or chance */
bool diff_same(const struct diff *diff);
enum diff_class { ONLY_A, ONLY_B, SPLIT, MOVED, REORDERED, LONGER, REREAD, NCLASSES };
bool diff_has(const struct diff_op *op, enum diff_class c); /* of side B for ONLY_B, else of A */
void put_changes(struct text *t, const struct diff *diff);  /* "; 3 only in A, 4 moved" */
void emit_diff(struct text *out, const struct diff *diff, bool markdown, bool ascii);
void emit_diff_json(struct text *out, const struct diff *diff);
/* diff_svg.c: both timelines and the difference as a picture. Both need times. html: it is for a page, with what each
 * operation needs. diff_html.c: the same in a page, with the text. command: what made it. */
void emit_diff_svg(struct text *out, const struct diff *diff, bool html);
void emit_diff_html(struct text *out, const struct diff *diff, const char *command);
#endif
