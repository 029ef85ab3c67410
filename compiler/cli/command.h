/* The parsed command line, and the commands that act on it. Each returns the program's exit status. */
#ifndef PIANOLA_COMMAND_H
#define PIANOLA_COMMAND_H
#include "draw/draw.h"
#include "ir/spec.h"

struct settings {
    struct script_args args;
    const char *command;     /* the command line, as a shell reads it, but for where things go */
    const char *const *file; /* the non-option arguments; the first is args.schedule */
    int nfiles;
    const char *output, *format, *dump, *color, *measured, *timeline, *losses, *sort;
    const char *metrics, *tensorboard, *loss_svg;
    const char **data, **held_out; /* ended by NULL; NULL: none is given */
    const char *fail_on, *fit, *svg, *html, *algorithms;
    int64_t steps, step; /* steps to train; the step of the checkpoint to use, or -1 */
    int64_t every;       /* steps from one validation to the next */
    int64_t copies;      /* steps to draw; 0: not given */
    uint64_t seed;
    const char *profile, *levels, *weights;
    int64_t workers;        /* 0: not given; likewise the next three */
    int64_t rows;           /* of a step */
    double bandwidth, room; /* bytes per second; bytes of a machine */
    double seconds;         /* to search; 0: not given */
    bool bytes;             /* memory counts in bytes */
    enum objective { LEAST_MAKESPAN, LEAST_SPAN, LEAST_PERIOD } objective;
    bool sum, ring, transfers, train, all;
    int64_t microbatches, warm_up; /* to time, and before them */
    const double *target;          /* NULL: not given */
    const char *tokenizer, *prompt;
    int64_t tokens; /* to generate */
    double temperature, top_p;
    bool chat, published; /* published: in the names of others */
    double jitter;        /* the level, or -1: not given */
    int64_t runs;         /* with jitter */
    struct style style;
    const char *checkpoint;
    int64_t save_every, keep; /* steps between checkpoints; how many stay */
    bool allow_nonfinite, new_data, resume;
    bool json, list, watch, markdown, one_rank, cuda, eager, git, steady, decode; /* eager: no CUDA graph */
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
