/* The parsed command line, and the commands that act on it. Each returns the program's exit status. */
#ifndef PIANOLA_COMMAND_H
#define PIANOLA_COMMAND_H
#include "draw/draw.h"
#include "ir/spec.h"

/* The members that options set, grouped by reader. options.c says which commands take which option. */
struct draw_options { /* timelines, for show and for run at its end */
    struct style style;
    enum color_when { COLOR_ALWAYS, COLOR_NEVER, COLOR_AUTO } color;
    int format; /* index into the table of formats; -1: not given */
    const char *measured;
    int64_t copies; /* steps to draw; 0: not given */
    bool list, watch;
};

struct train_options {
    int64_t steps, validate_every; /* validate_every: steps from one validation to the next */
    const char **data, **held_out; /* NULL-terminated; NULL: not given */
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
    int64_t every, keep; /* steps between checkpoints; number of checkpoints to keep */
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

/* Simulator runs with noise. */
struct jitter_options {
    double level; /* -1: not given */
    int64_t runs;
};

/* Goal of optimal, frontier and tune, and their time limit. */
struct search_options {
    int64_t seconds; /* 0: not given */
    int64_t rows;    /* rows of a step; 0: not given */
    enum objective { LEAST_MAKESPAN, LEAST_SPAN, LEAST_PERIOD } objective;
    bool bytes, all; /* bytes: measure memory in bytes */
};

/* Ranks and links among which `partition` divides a model. */
struct partition_options {
    const char *profile, *levels;
    int64_t workers;        /* 0: not given; likewise the next two */
    double bandwidth, room; /* bytes per second; memory of a machine in bytes */
    bool sum, ring, transfers;
};

struct profile_options {
    int64_t microbatches, warm_up; /* microbatches to time, and those before them */
};

/* Weights and tokens in published formats. */
struct published_options {
    const char *weights, *tokenizer;
    bool names, decode; /* names: write weights under their published names */
};

/* The prompt of `generate`, and the length of its answer. */
struct generate_options {
    const char *prompt;
    int64_t tokens;
    double temperature, top_p;
    bool chat;
};

struct settings {
    struct script_args args;
    const char *command;     /* the command line in shell syntax, without the options that only direct output */
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
int cmd_check_unit(const struct settings *settings);
int cmd_export(const struct settings *settings);
int cmd_import(const struct settings *settings);
int cmd_partition(const struct settings *settings);
int cmd_profile(const struct settings *settings);
int cmd_optimal(const struct settings *settings);
int cmd_frontier(const struct settings *settings);
int cmd_tokenize(const struct settings *settings);
int cmd_generate(const struct settings *settings);
int cmd_tune(const struct settings *settings);

/* export_published.c: exports a whole checkpoint for `export-weights --names hf`. */
int export_published(const struct settings *settings, const char *dir, int64_t step);
/* options.c: dies if this command reads `out`, or if `out` cannot be written. Call it before long work. NULL: no
 * output. */
void check_destination(const char *out, const struct settings *settings);
/* cmd_verify.c: prints the claims as members of a JSON object. no: the refutation, or NULL. */
struct refutation;
void print_claims(const struct refutation *no);
/* cmd_check_bound.c: returns whether the checker accepts the certificate. It shares no code with the search. */
bool is_accepted(const char *certificate);
/* cmd_compare.c: returns the words that --sort accepts. */
const char *column_words(void);
/* shipped.c */
int list_schedules(void);
/* Returns the folder of schedules: next to the program's folder in a build tree, under share/ when installed; NULL:
 * there is none. */
const char *shipped_folder(void);
const char *const *shipped_schedules(int *n); /* their paths, sorted by name */
const char *shipped_file(const char *name);   /* name: "models/llama.lua" */
/* weights_model.c: if no model is given, chooses the shipped model that the file of weights belongs to. Sets its sizes
 * as -D settings before the user's, and reports them on stderr. Dies if no shipped model fits. */
void model_of_weights(struct script_args *args, const char *weights);
/* Warns on stderr if the file, or the config.json beside it, disagrees with these stages: another rope base, scaling,
 * eps or head width, or fewer positions than the rows of a sequence. */
void tell_difference(const char *weights, const struct stage *st, int n, int64_t rows);
#endif
