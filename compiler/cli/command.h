/* The parsed command line, and the commands that act on it. Each returns the program's exit status. */
#ifndef PIANOLA_COMMAND_H
#define PIANOLA_COMMAND_H
#include "draw/draw.h"
#include "ir/spec.h"

/* The members that options set, grouped by who reads them. options.c says which commands take which option. */
struct draw_options { /* of a timeline: show, and run at its end */
    struct style style;
    enum color_when { COLOR_ALWAYS, COLOR_NEVER, COLOR_AUTO } color;
    int format; /* a place in the table of formats; -1: not given */
    const char *measured;
    int64_t copies; /* steps to draw; 0: not given */
    bool list, watch;
};

struct train_options {
    int64_t steps, validate_every; /* validate_every: steps from one validation to the next */
    const char **data, **held_out; /* ended by NULL; NULL: none is given */
    const char *algorithms;
    double deadline;                             /* seconds; 0: not given */
    bool cuda, eager, one_rank, allow_nonfinite; /* eager: no CUDA graph */
};

/* Files that `run` writes as it goes. */
struct record_options {
    const char *timeline, *losses, *metrics, *tensorboard, *loss_svg, *flight;
};

struct checkpoint_options {
    const char *folder;
    int64_t every, keep; /* steps between checkpoints; how many stay */
    int64_t step;        /* the step of the checkpoint to use, or -1 */
    bool resume, new_data;
};

struct compare_options {
    const char *sort;
    bool steady, train;
    double target; /* NAN: not given */
};

struct diff_options {
    const char *fail_on, *svg, *html;
    bool git;
};

/* Runs of the simulator with noise. */
struct jitter_options {
    double level; /* -1: not given */
    int64_t runs;
};

/* The goal of optimal, frontier and tune, and how long they search. */
struct search_options {
    int64_t seconds; /* 0: not given */
    int64_t rows;    /* rows of a step; 0: not given */
    enum objective { LEAST_MAKESPAN, LEAST_SPAN, LEAST_PERIOD } objective;
    bool bytes, all; /* bytes: memory counts in bytes */
};

/* The ranks and links between which `partition` divides a model. */
struct partition_options {
    const char *profile, *levels;
    int64_t workers;        /* 0: not given; likewise the next two */
    double bandwidth, room; /* bytes per second; bytes of a machine */
    bool sum, ring, transfers;
};

struct profile_options {
    int64_t microbatches, warm_up; /* to time, and before them */
};

/* Weights and tokens in the formats of others. */
struct published_options {
    const char *weights, *tokenizer;
    bool names, decode; /* names: weights are written in the names of others */
};

/* The text that `generate` writes. */
struct generate_options {
    const char *prompt;
    int64_t tokens;
    double temperature, top_p;
    bool chat;
};

struct settings {
    struct script_args args;
    const char *command;     /* the command line, as a shell reads it, but for where things go */
    const char *const *file; /* the non-option arguments; the first is args.schedule */
    int nfiles;
    const char *output, *fit, *dump;
    uint64_t seed;
    bool json, markdown, help, version;
    struct draw_options draw;
    struct train_options train;
    struct record_options record;
    struct checkpoint_options checkpoint;
    struct compare_options compare;
    struct diff_options diff;
    struct jitter_options jitter;
    struct search_options search;
    struct partition_options partition;
    struct profile_options profile;
    struct published_options published;
    struct generate_options generate;
};

int cmd_check(const struct settings *settings);
int cmd_show(const struct settings *settings);
int cmd_compare(const struct settings *settings);
int cmd_diff(const struct settings *settings);
int cmd_compile(const struct settings *settings);
int cmd_run(const struct settings *settings);
int cmd_verify(const struct settings *settings);
int cmd_check_bound(const struct settings *settings);
int cmd_export(const struct settings *settings);
int cmd_import(const struct settings *settings);
int cmd_partition(const struct settings *settings);
int cmd_profile(const struct settings *settings);
int cmd_optimal(const struct settings *settings);
int cmd_frontier(const struct settings *settings);
int cmd_tokenize(const struct settings *settings);
int cmd_generate(const struct settings *settings);
int cmd_tune(const struct settings *settings);

/* export_published.c: `export-weights --names hf`, of a whole checkpoint */
int export_published(const struct settings *settings, const char *dir, int64_t step);
/* options.c: for use before long work: dies if `out` is read by this command, or could not be written. NULL: no output
 */
void check_destination(const char *out, const struct settings *settings);
/* cmd_verify.c: prints the claims as members of a JSON object; no: the refutation, or NULL */
struct refutation;
void print_claims(const struct refutation *no);
/* cmd_check_bound.c: whether the checker, which knows nothing of the search, accepts the certificate */
bool is_accepted(const char *certificate);
/* cmd_compare.c: the words that --sort takes */
const char *column_words(void);
/* shipped.c */
int list_schedules(void);
const char *const *shipped_schedules(int *n); /* their paths, by name */
const char *shipped_file(const char *name);   /* name: "models/llama.lua" */
/* weights_model.c: where no model is given, sets the shipped one that the file of weights is of, with its sizes as -D
 * before the user's; and says so on stderr. Dies where none is. */
void model_of_weights(struct script_args *args, const char *weights);
/* Says on stderr where the file, or the config.json beside it, says another base of rope, scaling, eps or width of
 * heads than these stages have, or fewer positions than rows, those of a sequence. */
void tell_difference(const char *weights, const struct stage *st, int n, int64_t rows);
#endif
