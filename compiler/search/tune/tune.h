/* `pianola tune`: finds the schedule and parameters that train a model on a cluster in the least time per step.
 *
 *   space.c    candidates: schedules with values of their parameters
 *   bound.c    lower bounds on a candidate's time and memory, without its schedule
 *   pool.c     work in child processes, as many at a time as there are cores
 *   ranking.c  the best so far, and which candidates need no simulation
 *   why.c      the shares of a step's time, and why one candidate is slower than another
 *   improve.c  the best in a better order
 *   winner.c   the best as a script of its own
 *   put_tune.c the answer, for people and as JSON
 *
 * The output does not depend on the number of cores, nor on which child finishes first. A candidate is skipped only if
 * its bound is above its bar (ranking.c), and candidates that were simulated despite being above it are not counted. */
#ifndef PIANOLA_TUNE_H
#define PIANOLA_TUNE_H
#include "search/optimal/local.h"
#include "passes/passes.h"
#include "script/scripts.h"

/* ---- space.c ---- */

struct schedule_file {
    const char *file, *name;
    const char *why;    /* why it is not tried; NULL: it is */
    const char *params; /* like spec.params: its defaults */
    struct tuned *tuned;
    int ntuned;
};

struct candidate {
    int schedule; /* index of its file */
    int64_t rows; /* per microbatch */
    int64_t batches;
    bool recompute;
    const char **set; /* -D settings of its own, which follow the user's; the last nsizes are for the schedule only */
    int nset, nsizes;
};

struct search_space {
    const struct script_args *args; /* the user's: model, cluster, -D, --recompute */
    bool *of_machines;              /* per setting of the user: whether the model or the cluster uses it */
    int workers;
    int64_t step_rows, rows; /* rows per step; rows per microbatch by the model's default */
    bool vary_rows;          /* the model has a parameter `rows`, and the user did not fix it */
    struct judgement judgement;
    bool named; /* the user named the schedules */
    struct schedule_file *schedule;
    int nschedules;
    struct candidate *candidate;
    int n;
    size_t cap;
};
/* Fills in the schedules, from their files, and the candidates. */
void list_candidates(struct search_space *space);
/* Returns the arguments with which a candidate is compiled. All of its settings are passed, and none has to be used. */
struct script_args args_of(const struct search_space *space, const struct candidate *candidate);
/* Returns the candidate with only the model's settings; args_of_script: the arguments of a script that sets the rest
 * itself. */
struct candidate of_model(const struct candidate *candidate, bool recompute);
struct script_args args_of_script(const struct search_space *space, const struct candidate *candidate, bool recompute,
                                  const char *src);
/* Returns a candidate's file and the options that give it, as for a shell: `1f1b.lua -D workers=8 --recompute`.
 * options_of_file: with another file. */
const char *options_of(const struct search_space *space, const struct candidate *candidate);
const char *options_of_file(const struct search_space *space, const struct candidate *candidate, const char *file);
bool has_param(const char *params, const char *key); /* params: as in "workers=8 batches=8" */
/* Returns why a candidate does not compile, from the error that was trapped: one sentence, without the place. */
const char *refusal_text(void);

/* ---- bound.c ---- */

/* Returns a lower bound on the makespan of these jobs on these ranks; least_memory: on their memory plan. */
double least_makespan(const struct compile *c);
int64_t least_memory(const struct costs *costs);

/* ---- why.c ---- */

enum share {
    SHARE_COMPUTE,
    SHARE_RECOMPUTE,
    SHARE_UPDATES,
    SHARE_BUBBLE,   /* idle even if links took no time */
    SHARE_MESSAGES, /* the rest of the time that ranks wait for activations and their gradients */
    SHARE_WEIGHTS,
    SHARE_REDUCTIONS,
    SHARE_COPIES,
    SHARE_TEAMS,
    NSHARES
};
extern const char *const share_name[NSHARES];
/* Computes the share of all ranks' time that goes into each; they add up to 1. */
void shares_of_time(const struct compile *c, double share[NSHARES]);

/* ---- ranking.c ---- */

enum outcome { WAITING, REFUSED, BEYOND_MEMORY, MEASURED };
enum { WHY = 240 };
/* A child's answer about a candidate, sent through a pipe */
struct answer {
    enum outcome outcome;
    double bound;               /* lower bound on its makespan */
    int64_t least;              /* lower bound on its memory */
    double makespan, mean, p95; /* without noise; mean and p95 of noisy runs, 0 if there are none */
    int64_t peak, fits;         /* bytes of the worst rank: planned; least that would do */
    int context;                /* tokens per row; 0: rows are no sequences of tokens */
    double share[NSHARES];
    char why[WHY]; /* if refused or beyond memory: the error */
};

enum { BEST = 10 };
struct ranking {
    const struct search_space *space;
    struct answer *answer; /* per candidate */
    int32_t *order;        /* candidates that may be simulated, by their bounds */
    int n;
    int best[BEST], nbest;                  /* the fastest, no two alike */
    int *fastest;                           /* per schedule: its fastest candidate; -1: none simulated yet */
    int leader[BEST], nleaders;             /* the fastest of these */
    int simulated, slower, beyond, refused; /* slower: ruled out by the bound */
    bool interrupted;
};
/* Allocates the answers; ranks none yet. */
void begin_ranking(struct ranking *ranking);
/* Orders candidates that may be simulated by their bounds. */
void order_by_bound(struct ranking *ranking);
/* Adds a measured candidate. */
void rank_answer(struct ranking *ranking, int candidate);
/* Returns the figure that candidates are ranked by: the makespan, or with noise, the p95. */
double rank_value(const struct ranking *ranking, int candidate);
/* Returns the value that a candidate must reach to be among the best, or to be its schedule's fastest among the
 * leaders; infinite while there are fewer. It never rises. */
double bar_of(const struct ranking *ranking, int candidate);
/* Returns whether a candidate is the fastest of its schedule. */
bool is_fastest(const struct ranking *ranking, int candidate);
/* Lists the candidates to print, in order: the leaders and, if all, also the best of the others. Leaves out candidates
 * with the same figures as a listed one. Returns their number. */
int list_ranked(const struct ranking *ranking, bool all, int list[2 * BEST]);
/* Counts the candidates by outcome. */
void count_outcomes(struct ranking *ranking);

/* ---- pool.c ---- */

struct pool {
    void *context;
    size_t size;                                               /* bytes of an answer */
    int (*next)(void *context);                                /* returns the next task; -1: none left */
    void (*work)(void *context, int task, void *answer);       /* runs a task, in a child */
    void (*done)(void *context, int task, const void *answer); /* in the parent; NULL: the child did not answer */
};
/* Runs tasks until none are left. Returns false if interrupted (SIGINT); the tasks in progress are then abandoned. */
bool run_pool(const struct pool *pool);

/* ---- improve.c ---- */

struct improvement {
    const char *why;      /* why no order was tried; NULL: some were */
    double before, after; /* values as judged; equal if none is better */
    int64_t orders;       /* number tried */
    bool whole;           /* false: interrupted; what unfinished seeds had found is lost */
    struct text script;   /* the script with the better order */
};
/* Searches for a better order. value: the winner's, as judged. */
struct improvement improve_winner(const struct search_space *space, const struct candidate *winner, double value,
                                  struct judgement judgement, uint64_t seed);

/* ---- winner.c: change a script's text; NULL if that is not possible ---- */

const char *with_default(const char *src, const char *key, const char *value); /* sets a parameter's default */
const char *with_field(const char *src, const char *field); /* adds a field to the schedule, as "tensor = 2" */
const char *without_picture(const char *src);

/* ---- put_tune.c ---- */

struct tuned_style {
    bool all; /* print every variant among the ten best, not only each schedule's best */
    bool ascii;
};
void put_tuned(struct text *out, const struct ranking *ranking, const struct improvement *improvement,
               struct tuned_style style);
void put_refusals(struct text *out, const struct ranking *ranking); /* and why schedules are not tried */
void put_tuned_json(struct text *out, const struct ranking *ranking, const struct improvement *improvement);
#endif
