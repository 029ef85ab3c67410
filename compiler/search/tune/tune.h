/* `pianola tune`: which schedule, with which parameters, trains a model on a cluster in the least time per step.
 *
 *   space.c   the candidates: schedules with values of their parameters
 *   bound.c   what a candidate cannot beat, in time and in memory, without its schedule
 *   pool.c    work in child processes, as many at a time as there are cores
 *   ranking.c the best so far, and what need not be simulated any more
 *   why.c     what a step's time goes into, and what makes one candidate slower than another
 *   improve.c the best in a better order
 *   winner.c  the best as a script of its own
 *   put_tune.c the answer, for people and as JSON
 *
 * What is printed does not depend on the number of cores, nor on which child is done first: a candidate is left out
 * only if its bound is above its bar (ranking.c), and whatever was simulated beyond that in the end is not counted. */
#ifndef PIANOLA_TUNE_H
#define PIANOLA_TUNE_H
#include "search/optimal/local.h"
#include "passes/passes.h"
#include "script/scripts.h"

/* ---- space.c ---- */

struct schedule_file {
    const char *file, *name;
    const char *why;    /* it is not tried; NULL: it is */
    const char *params; /* as spec.params: its defaults */
    struct tuned *tuned;
    int ntuned;
};

struct candidate {
    int schedule; /* index of its file */
    int64_t rows; /* of a microbatch */
    int64_t batches;
    bool recompute;
    const char **set; /* -D for it alone, behind those of the user; the last nsizes are for the schedule only */
    int nset, nsizes;
};

struct search_space {
    const struct script_args *args; /* the user's: model, cluster, -D, --recompute */
    bool *of_machines;              /* per setting of the user: the model or the cluster uses it */
    int workers;
    int64_t step_rows, rows; /* of a step; of a microbatch, by the model's default */
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
/* The arguments with which a candidate is compiled. They are whole settings: none has to be used. */
struct script_args args_of(const struct search_space *space, const struct candidate *candidate);
/* The candidate with the model's settings alone; and the arguments of a script that says the rest itself. */
struct candidate of_model(const struct candidate *candidate, bool recompute);
struct script_args args_of_script(const struct search_space *space, const struct candidate *candidate, bool recompute,
                                  const char *src);
/* Its file and the options that give it, as for a shell: `1f1b.lua -D workers=8 --recompute`; and of another file. */
const char *options_of(const struct search_space *space, const struct candidate *candidate);
const char *options_of_file(const struct search_space *space, const struct candidate *candidate, const char *file);
bool has_param(const char *params, const char *key); /* of "workers=8 batches=8" */
/* Returns why a candidate does not compile, from the error that was trapped: one sentence, without where it is. */
const char *refusal_text(void);

/* ---- bound.c ---- */

/* No schedule of these jobs on these ranks ends sooner; and no plan of its memory is smaller. */
double least_makespan(const struct compile *c);
int64_t least_memory(const struct spec *sp, const struct stage *st);

/* ---- why.c ---- */

enum share {
    SHARE_COMPUTE,
    SHARE_RECOMPUTE,
    SHARE_UPDATES,
    SHARE_BUBBLE,   /* idle even if links were free */
    SHARE_MESSAGES, /* the rest of what ranks wait for activations and their gradients */
    SHARE_WEIGHTS,
    SHARE_REDUCTIONS,
    SHARE_COPIES,
    SHARE_TEAMS,
    NSHARES
};
extern const char *const share_name[NSHARES];
/* Of the time of all ranks, the part that goes into each; together 1. */
void shares_of_time(const struct compile *c, double share[NSHARES]);

/* ---- ranking.c ---- */

enum outcome { WAITING, REFUSED, BEYOND_MEMORY, MEASURED };
enum { WHY = 240 };
/* What a child says of a candidate. It goes through a pipe. */
struct answer {
    enum outcome outcome;
    double bound;               /* no run of it is shorter */
    int64_t least;              /* of memory: no plan is smaller */
    double makespan, mean, p95; /* without noise, and of noisy runs; these are 0 if there are none */
    int64_t peak, fits;         /* bytes of the worst rank: planned; that would do */
    int context;                /* tokens of a row; 0: rows are no sequences of tokens */
    double share[NSHARES];
    char why[WHY]; /* refused, or beyond memory: the error */
};

enum { BEST = 10 };
struct ranking {
    const struct search_space *space;
    struct answer *answer; /* per candidate */
    int32_t *order;        /* those that are simulated at all, by their bounds */
    int n;
    int best[BEST], nbest;                  /* the fastest, each unlike the others */
    int *fastest;                           /* per schedule: its fastest candidate; -1: none was simulated yet */
    int leader[BEST], nleaders;             /* the fastest of these */
    int simulated, slower, beyond, refused; /* slower: by the bound */
    bool interrupted;
};
/* Makes room for the answers, and ranks none. */
void begin_ranking(struct ranking *ranking);
/* Orders candidates that may be simulated by their bounds. */
void order_by_bound(struct ranking *ranking);
/* Adds a measured candidate. */
void rank_answer(struct ranking *ranking, int candidate);
/* The figure that candidates are ranked by: the makespan, or with noise, the p95. */
double rank_value(const struct ranking *ranking, int candidate);
/* The value that a candidate must reach to be among the best, or its schedule's fastest among the leaders; infinite
 * while there are fewer. It never rises. */
double bar_of(const struct ranking *ranking, int candidate);
/* Whether no other candidate of its schedule is before it. */
bool is_fastest(const struct ranking *ranking, int candidate);
/* Lists the candidates to print, in order: the leaders, and if all, also the best of the others. Leaves out those that
 * are alike one that is listed. Returns how many. */
int list_ranked(const struct ranking *ranking, bool all, int list[2 * BEST]);
/* Counts what became of the candidates. */
void count_outcomes(struct ranking *ranking);

/* ---- pool.c ---- */

struct pool {
    void *context;
    size_t size;                                               /* of an answer */
    int (*next)(void *context);                                /* the next task; -1: there is none left */
    void (*work)(void *context, int task, void *answer);       /* in a child */
    void (*done)(void *context, int task, const void *answer); /* in the parent; NULL: the child did not answer */
};
/* Runs tasks until there are none left. False: it was interrupted (SIGINT), and the tasks under way were given up. */
bool run_pool(const struct pool *pool);

/* ---- improve.c ---- */

struct improvement {
    const char *why;      /* no order was tried; NULL: some were */
    double before, after; /* as judged; the same: none is better */
    int64_t orders;       /* tried */
    bool whole;           /* false: it was interrupted, and what seeds had not finished was given up */
    struct text script;   /* of the better order */
};
/* value: of the winner, as judged. */
struct improvement improve_winner(const struct search_space *space, const struct candidate *winner, double value,
                                  struct judgement judgement, uint64_t seed);

/* ---- winner.c: a script's text, changed; NULL where it is not known how ---- */

const char *with_default(const char *src, const char *key, const char *value); /* of a parameter */
const char *with_field(const char *src, const char *field);                    /* "tensor = 2", of the schedule */
const char *without_picture(const char *src);

/* ---- put_tune.c ---- */

struct tuned_style {
    bool all; /* print every variant among the ten best, not only each schedule's best */
    bool ascii;
};
void put_tuned(struct text *out, const struct ranking *ranking, const struct improvement *improvement,
               struct tuned_style style);
void put_refusals(struct text *out, const struct ranking *ranking); /* and which schedules are not tried, and why */
void put_tuned_json(struct text *out, const struct ranking *ranking, const struct improvement *improvement);
#endif
