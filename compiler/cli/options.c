/* The table of options: each row says what an option sets, how its value is read and what it means to each command. */
#include "options.h"
#include "base/text.h"
#include "command.h"
#include "files.h"
#include "format_table.h"
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- how values are read ---- */

static void flag(const struct option_row *row, const char *arg, void *field) {
    (void)row, (void)arg;
    *(bool *)field = true;
}

static void string(const struct option_row *row, const char *arg, void *field) {
    (void)row;
    *(const char **)field = arg;
}

/* Appends to a NULL-terminated list. */
static void strings(const struct option_row *row, const char *arg, void *field) {
    const char ***list = field;
    int n = 0;
    (void)row;
    while (*list && (*list)[n])
        n++;
    const char **more = NEW(const char *, n + 2);
    for (int i = 0; i < n; i++)
        more[i] = (*list)[i];
    more[n] = arg;
    *list = more;
}

static void parameter(const struct option_row *row, const char *arg, void *field) {
    struct script_args *args = field;
    (void)row;
    args->set[args->nset++] = arg;
}

static void put_whole(const struct option_row *row, int64_t n, void *field) {
    if (row->size == sizeof(bool))
        *(bool *)field = n;
    else if (row->size == sizeof(int))
        *(int *)field = (int)n;
    else
        *(int64_t *)field = n;
}

static void whole(const struct option_row *row, const char *arg, void *field) {
    char *end;
    errno = 0;
    long n = strtol(arg, &end, 10);
    if (end == arg || *end || errno || n < (long)row->least)
        die("--%s %s: expected a whole number of at least %ld", row->name, arg, (long)row->least);
    put_whole(row, n, field);
}

/* Returns whether the whole text is a number in the range, ends included; NAN is not. */
static bool number_within(const char *arg, double least, double most, double *x) {
    char *end;
    *x = strtod(arg, &end);
    return end != arg && !*end && *x >= least && *x <= most;
}

static void part(const struct option_row *row, const char *arg, void *field) {
    if (!number_within(arg, 0, row->most, field))
        die("--%s %s: expected a number from 0 to %g", row->name, arg, row->most);
}

static void when(const struct option_row *row, const char *arg, void *field) {
    if (!number_within(arg, row->least, DBL_MAX, field))
        die("--%s %s: expected a time %s 0", row->name, arg, row->least > 0 ? "after" : "of at least");
}

static void amount(const struct option_row *row, const char *arg, void *field) {
    if (!number_within(arg, LEAST_TIME, MOST_TIME, field))
        die("--%s %s: expected %s, such as 1e9", row->name, arg, row->unit);
}

static void limit(const struct option_row *row, const char *arg, void *field) {
    if (!number_within(arg, DBL_TRUE_MIN, 1e9, field))
        die("--%s %s: expected a number of seconds above 0", row->name, arg);
}

static void loss(const struct option_row *row, const char *arg, void *field) {
    if (!number_within(arg, -DBL_MAX, DBL_MAX, field))
        die("--%s %s: expected a loss, such as 2.5", row->name, arg);
}

/* Reads a percentage: "10%" is 0.1. Or the word "measured". */
static void jitter_level(const struct option_row *row, const char *arg, void *field) {
    char *end;
    double x = strtod(arg, &end) / 100;
    if (strcmp(arg, "measured") == 0)
        x = AS_MEASURED;
    else if (end == arg || strcmp(end, "%") != 0 || !(x >= 0 && x <= 1))
        die("--%s %s: expected at least 0%% and at most 100%%, such as 10%%, or measured", row->name, arg);
    *(double *)field = x;
}

static int index_of_word(const struct option_row *row, const char *word) {
    int n;
    const char **words = option_words(row, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    const char *near = nearest(word, words, n);
    die("--%s %s: expected %s%s", row->name, word, listed(words_of(row)),
        near ? format("; did you mean %s?", near) : "");
}

/* Stores the index of a word among the row's words; for two words this is whether it is the second. */
static void choice(const struct option_row *row, const char *arg, void *field) {
    put_whole(row, index_of_word(row, arg), field);
}

/* Reads words separated by commas as bits. */
static void choices(const struct option_row *row, const char *arg, void *field) {
    int bits = 0;
    for (const char *s = arg;; s++) {
        int n = (int)strcspn(s, ",");
        bits |= 1 << index_of_word(row, format("%.*s", n, s));
        s += n;
        if (!*s)
            break;
    }
    *(int *)field = bits;
}

/* Reads a memory plan, or a number of bytes. */
static void plan(const struct option_row *row, const char *arg, void *field) {
    struct script_args *args = field;
    if (isdigit((unsigned char)*arg))
        amount(row, arg, &args->memory);
    else
        args->least_memory = index_of_word(row, arg) == 1;
}

/* ---- the table ---- */

enum {
    SEARCHES = OPTIMAL | FRONTIER | TUNE,
    COMPILES = SCRIPTS | SEARCHES | CHECK_BOUND, /* commands that run a schedule's script */
};

/* Sets a member of struct settings to the result of a parse function; further arguments are what that function
 * needs. */
#define SETS(member, ...)                                                                                              \
    { .at = offsetof(struct settings, member), .size = sizeof((struct settings *)0)->member, .parse = __VA_ARGS__ }
#define OPTION(name, arg, value, ...)                                                                                  \
    {                                                                                                                  \
        name, arg, 0, value, { __VA_ARGS__ }                                                                           \
    }
#define LETTERED(letter, name, arg, value, ...)                                                                        \
    {                                                                                                                  \
        name, arg, letter, value, { __VA_ARGS__ }                                                                      \
    }

const struct option_row options[] = {
    LETTERED('D', "define", "KEY=VALUE", SETS(args, parameter),
             {COMPILES | PARTITION | PROFILE | GENERATE | EXPORT | CHECK_UNIT,
              "set a parameter of the scripts (lists: 1,2,3)"}),
    OPTION("model", "FILE.lua", SETS(args.model, string, .reads = true),
           {COMPILES & ~(RUN | TUNE), "model script; without one, jobs have unit costs"},
           {RUN, "script of the model to train; default: the shipped one that --weights fits"},
           {GENERATE, "model script; default: the shipped one that --weights fits"},
           {TUNE, "script of the model to train"}, {PARTITION, "script of the model to cut, instead of --profile"},
           {PROFILE, "script of the model whose layers are timed"},
           {EXPORT, "with --names hf: script of the checkpoint's model"}),
    OPTION("cluster", "FILE.lua", SETS(args.cluster, string, .reads = true),
           {COMPILES | PARTITION, "cluster script; without one, links are free"}),
    OPTION("lanes", "PER", SETS(args.lanes, choice, .words = "edge peer rank"),
           {SCRIPTS, "one communication lane (with NCCL, one communicator) per edge (default), peer or rank"}),
    OPTION("launch-order", "ORDER", SETS(args.launch, choice, .words = "lane issue serial"),
           {SCRIPTS & ~RUN,
            "when a communication may start: lane (default): once its lane is free; issue: also once the rank's "
            "previous one has started, as with NCCL; serial: once that one has ended, as on older drivers"}),
    OPTION("prefetch", "WHICH", SETS(args.prefetch, choice, .words = "solved just-in-time one-ahead two-ahead"),
           {SCRIPTS,
            "which fetched weights stay: solved (default): a plan that receives the fewest bytes; just-in-time, "
            "one-ahead, two-ahead: none; each is fetched when its job starts, or one or two jobs ahead"}),
    OPTION("recompute", NULL, SETS(args.recompute, flag),
           {COMPILES, "forwards keep only their input, and run again before the backward"}),
    OPTION("memory", "PLAN", SETS(args, plan, .words = "spare least", .unit = "bytes"),
           {SCRIPTS, "spare (default): use free memory of the cluster wherever instructions would wait for bytes to be "
                     "freed; least: as little as the schedule permits; a number: bytes per rank"}),
    LETTERED('o', "output", "PATH", SETS(output, string, .unrecorded = true),
             {SHOW, "file to write instead of standard output; with --format hta, a folder"},
             {COMPILE, "folder to write into"}, {IMPORT, "file to write the script to, instead of standard output"},
             {EXPORT, "file to write; default: weights.safetensors; with --names hf a folder, default: hf"},
             {PARTITION, "write a schedule script with these stages"},
             {PROFILE, "file to write: a cost model, FILE.lua, or PipeDream's graph, FILE.txt"},
             {COMPARE, "with --train: draw the losses of all schedules (SVG)"},
             {OPTIMAL, "write a schedule script with the best order, and its certificate beside it"},
             {FRONTIER, "folder to write a script and a certificate into for each cap"},
             {TUNE, "write the best schedule, with the best parameters as its defaults"},
             {TOKENIZE, "file of tokens to write; with --decode, file of text, default: standard output"}),
    OPTION("tokenizer", "FILE", SETS(published.tokenizer, string, .reads = true),
           {TOKENIZE | GENERATE | EXPORT,
            "a tokenizer.json, a folder with vocab.json and merges.txt, or a GGUF file: byte-level BPE"}),
    OPTION("names", "NAMES", SETS(published.names, choice, .words = "own hf"),
           {EXPORT, "own (default): names such as layer.5.weight, in one file; hf: the names in the model's `hf` "
                    "fields, such as the names in Hugging Face's transformers, in a folder"}),
    OPTION("prompt", "TEXT", SETS(generate.prompt, string), {GENERATE, "the text to continue"}),
    OPTION("tokens", "N", SETS(generate.tokens, whole, .least = 1, .standard = "200"),
           {GENERATE, "upper bound on the number of tokens to write"}),
    OPTION("temperature", "T", SETS(generate.temperature, part, .most = 100, .standard = "0.8"),
           {GENERATE, "0: always the most probable token; 1: the model's own probabilities"}),
    OPTION("top-p", "P", SETS(generate.top_p, part, .most = 1, .standard = "0.95"),
           {GENERATE, "draw among the most probable tokens that together have at least this probability"}),
    OPTION("chat", NULL, SETS(generate.chat, flag),
           {GENERATE, "wrap the prompt as a user's turn in ChatML, the format of SmolLM2-Instruct and Qwen"}),
    OPTION("decode", NULL, SETS(published.decode, flag),
           {TOKENIZE, "turn a file of tokens back into text, without the separators between documents"}),
    OPTION("time", "SECONDS", SETS(search.seconds, whole, .least = 1),
           {OPTIMAL, "time limit of the search; default: a limit on its states, which takes a minute or two"},
           {FRONTIER, "time limit of the search for each cap; default: a limit on its states"}),
    OPTION("bytes", NULL, SETS(search.bytes, flag),
           {FRONTIER, "limit bytes (the model's state, and what in-flight microbatches keep) instead of live "
                      "activations"}),
    OPTION("objective", "OBJECTIVE", SETS(search.objective, choice, .words = "makespan span period"),
           {OPTIMAL,
            "what to minimize: makespan (default); span: the longest time that a rank takes from its first job "
            "to its last; period: the time per additional microbatch in the steady state"}),
    OPTION(
        "profile", "FILE", SETS(partition.profile, string, .reads = true),
        {PARTITION,
         "each layer's times and sizes: PipeDream's graph.txt, a line per layer and per edge (milliseconds, bytes)"}),
    OPTION("workers", "N", SETS(partition.workers, whole, .least = 1), {PARTITION, "ranks; all of them get layers"},
           {TUNE, "ranks of each candidate"}),
    OPTION("rows", "N", SETS(search.rows, whole, .least = 1),
           {TUNE, "rows of a step, in all its microbatches together, so that all candidates train the same; default: 4 "
                  "microbatches of the model's rows per rank"}),
    OPTION("memory", "BYTES", SETS(args.memory, amount, .unit = "bytes"),
           {OPTIMAL | TUNE, "memory of a rank, instead of the cluster's: leaves out candidates that need more"}),
    OPTION("bandwidth", "RATE", SETS(partition.bandwidth, amount, .unit = "bytes per second"),
           {PARTITION, "bandwidth between ranks; default: the cluster's slowest link"}),
    OPTION("levels", "LEVELS", SETS(partition.levels, string),
           {PARTITION,
            "instead of --workers and --bandwidth: ranks in a group x bandwidth, groups x bandwidth between them, ...: "
            "4x10e9,2x1.25e9"}),
    OPTION("sync", "HOW", SETS(partition.ring, choice, .words = "server ring"),
           {PARTITION,
            "replicas sum gradients through servers (default), 4 (m-1)/m |w| bytes, or around a ring, 2 (m-1)/m |w|"}),
    OPTION("sum", NULL, SETS(partition.sum, flag),
           {PARTITION, "a stage takes compute + synchronization, as in PipeDream's code; default: the larger of the "
                       "two"}),
    OPTION("transfers", NULL, SETS(partition.transfers, flag),
           {PARTITION, "activations between stages take time too: 2 a / bandwidth"}),
    OPTION("memory", "BYTES", SETS(partition.room, amount, .unit = "bytes"),
           {PARTITION, "memory of a rank: it holds its layers' weights and activations once per minibatch in flight"}),
    OPTION("microbatches", "N", SETS(profile.microbatches, whole, .least = 1, .standard = "64"),
           {PROFILE, "microbatches to time, in whole steps of 8"}),
    OPTION("warm-up", "N", SETS(profile.warm_up, whole, .standard = "8"),
           {PROFILE, "microbatches to run first without timing them, in whole steps of 8"}),
    OPTION("format", "FORMAT", SETS(draw.format, choice, .list = format_words), {SHOW, "{formats}"}),
    OPTION("measured", "PATH", SETS(draw.measured, string, .reads = true),
           {SHOW,
            "show these measured times instead of the predicted ones: a file of run --timeline, a folder of the ranks' "
            "files, or a folder of the ranks' recordings by PyTorch's profiler or flight recorder"}),
    OPTION("with", "LIST", SETS(draw.style.with, choices, .words = "lanes memory path sends"),
           {SHOW, "also draw: lanes, memory, path (the critical path), sends (arrows, in pictures)"}),
    OPTION("color-by", "WHAT", SETS(draw.style.by, choice, .words = "op mb stage"),
           {SHOW, "color jobs by op (default), mb or stage"}),
    OPTION("from", "TIME", SETS(draw.style.from, when), {SHOW, "draw from this time on, in the ruler's unit"}),
    OPTION("to", "TIME", SETS(draw.style.to, when, .least = DBL_TRUE_MIN),
           {SHOW, "draw up to this time, in the ruler's unit"}),
    LETTERED('d', "dump", "LETTERS", SETS(dump, string),
             {CHECK | SHOW | COMPILE,
              "print the program after the passes lower (l), mem (m) or lanes (w), or what the searches tried (t)"}),
    OPTION("steps", "N", SETS(draw.copies, whole, .least = 1),
           {SHOW, "draw N steps (or repetitions of the period) in a row; a rank begins the next one as soon as its own "
                  "lanes have finished the last"}),
    OPTION("steady", NULL, SETS(compare.steady, flag),
           {COMPARE, "also compare steady states: time per microbatch, staleness and versions"}),
    OPTION(
        "jitter", "LEVEL", SETS(jitter.level, jitter_level),
        {COMPARE | SHOW, "simulate the program many times, with each job and message longer or shorter by up to this "
                         "much at random, e.g. 10%, or measured: as the cluster's spread says; mean, 95th percentile "
                         "and worst makespan"},
        {OPTIMAL | TUNE, "minimize the 95th percentile of the makespan when each job and message is longer or shorter "
                         "by up to this much at random, e.g. 10%"}),
    OPTION("runs", "N", SETS(jitter.runs, whole, .least = 1, .standard = "200"),
           {COMPARE | SHOW | OPTIMAL | TUNE, "simulated runs of --jitter"}),
    OPTION("train", NULL, SETS(compare.train, flag),
           {COMPARE,
            "train each schedule on the same microbatches: losses, and the predicted time until they reach a target"}),
    OPTION("target", "LOSS", SETS(compare.target, loss),
           {COMPARE, "with --train: the loss to reach; default: the worst final loss of these schedules"}),
    OPTION("weights", "FILE", SETS(published.weights, string, .reads = true),
           {RUN,
            "start from these weights: safetensors, an index of such files, or GGUF, under the names that the model "
            "script gives; default: random weights"},
           {GENERATE, "the model's weights: safetensors, an index of such files, or GGUF"}),
    OPTION("data", "FILE", SETS(train.data, strings, .reads = true),
           {RUN | COMPARE,
            "training text, or a file of tokenize; several files, or a pattern such as 'shard*.bin', are one text"}),
    OPTION("steps", "N", SETS(train.steps, whole, .standard = "100"),
           {RUN, "training steps; 0: train nothing, and print the loss on --val or on the first batch"}),
    OPTION("steps", "N", SETS(train.steps, whole, .least = 1, .standard = "100"),
           {COMPARE, "training steps, with --train"}),
    OPTION("step", "N", SETS(checkpoint.step, whole),
           {EXPORT, "which step's checkpoint to export; default: the newest complete one"}),
    OPTION("seed", "N", SETS(seed, whole, .standard = "1"), {RUN, "seed of the weights and of the order of the data"},
           {COMPARE, "seed of the weights and of the order of the data, and of --jitter"}, {SHOW, "seed of --jitter"},
           {OPTIMAL | TUNE, "seed of --jitter and of the local search over orders"},
           {GENERATE, "seed of the tokens drawn"}),
    OPTION("compare", NULL, SETS(train.one_rank, flag), {RUN, "train the same steps on one rank too, and compare"}),
    OPTION("device", "DEVICE", SETS(train.cuda, choice, .words = "host cuda"),
           {RUN | PROFILE, "host (default), or cuda: all ranks on one GPU, as bf16 needs"}),
    OPTION("no-graph", NULL, SETS(train.eager, flag),
           {RUN, "on a GPU, enqueue every step anew instead of replaying a graph"}),
    OPTION("algorithms", "FILE", SETS(train.algorithms, string),
           {RUN, "on a GPU, use FILE's algorithms for the layers' matrix products; time the products it lacks, and add "
                 "them; Muon's are not timed"}),
    OPTION("timeline", "FILE", SETS(record.timeline, string),
           {RUN, "write when the instructions of the last ten steps ran (TSV)"}),
    OPTION("losses", "FILE", SETS(record.losses, string),
           {RUN, "write the loss of each update of the last stage, and the time at which it ended (TSV)"}),
    OPTION("metrics", "FILE", SETS(record.metrics, string),
           {RUN, "write each step's loss, learning rate, tokens per second, ... as a line of JSON"}),
    OPTION("tensorboard", "DIR", SETS(record.tensorboard, string),
           {RUN, "write the same metrics into DIR, as event files for TensorBoard and `wandb sync`"}),
    OPTION("loss-svg", "FILE", SETS(record.loss_svg, string),
           {RUN, "at the end, draw the losses of training and validation"}),
    OPTION("val", "FILE", SETS(train.held_out, strings, .reads = true),
           {RUN, "held-out text, or a file of tokenize: print the loss on all of it before the first step and every "
                 "--val-every steps"}),
    OPTION("val-every", "N", SETS(train.validate_every, whole, .least = 1, .standard = "100"),
           {RUN, "steps between validations, or all steps if there are fewer"}),
    OPTION(
        "checkpoint", "DIR", SETS(checkpoint.folder, string),
        {RUN, "write checkpoints into DIR; ranks that run as processes can read them, and this command reads theirs"}),
    OPTION("every", "N", SETS(checkpoint.every, whole, .least = 1, .standard = "100"),
           {RUN, "steps between checkpoints; the last step writes one too"}),
    OPTION("keep", "K", SETS(checkpoint.keep, whole, .least = 1, .standard = "3"),
           {RUN, "how many of the newest checkpoints to keep"}),
    OPTION("resume", NULL, SETS(checkpoint.resume, flag),
           {RUN, "continue from the newest checkpoint in DIR, if there is one"}),
    OPTION("new-data", NULL, SETS(checkpoint.new_data, flag),
           {RUN, "with --resume: if --data differs from the data of the checkpoint's training, begin with its first "
                 "sequence"}),
    OPTION("allow-nonfinite", NULL, SETS(train.allow_nonfinite, flag),
           {RUN, "continue when a loss or a weight is inf or nan; default: stop with an error that names the first"}),
    OPTION("deadline", "SECONDS", SETS(train.deadline, limit),
           {RUN, "time limit of a step or a checkpoint: past it, the run ends and every rank says where it waited; "
                 "default: no limit"}),
    OPTION("flight", "DIR", SETS(record.flight, string, .standard = "."),
           {RUN, "where ranks write their flight records when --deadline ends the run"}),
    OPTION("list", NULL, SETS(draw.list, flag), {SHOW, "list the schedules that came with the program"}),
    OPTION("watch", NULL, SETS(draw.watch, flag),
           {SHOW, "redraw in the terminal whenever the script, its model or its cluster changes, and say what that "
                  "changed; after an error the last picture stays; Ctrl-C ends it"}),
    OPTION("all", NULL, SETS(search.all, flag),
           {TUNE, "print the ten best candidates, not only the best of each schedule"},
           {DIFF, "list every change, durations by link, and the roots of all shifts"}),
    OPTION("sort", "COLUMN", SETS(compare.sort, string, .list = column_words),
           {COMPARE, "sort by this column, smallest first: makespan, bubble, live, memory, ..., as in the headings"}),
    OPTION("markdown", NULL, SETS(markdown, flag, .unrecorded = true), {COMPARE | DIFF, "print Markdown"}),
    OPTION("fail-on", "LIMITS", SETS(diff.fail_on, string, .unrecorded = true),
           {DIFF, "exit 1 only if a figure exceeds its limit, and not by chance: makespan:+2%,peak_bytes:+0"}),
    OPTION("fit", "FILE", SETS(fit, string, .unrecorded = true),
           {DIFF, "write the costs of the measured side as a cluster script, for --cluster"},
           {PROFILE, "write the costs of a stage per layer as a cluster script, for --cluster"}),
    OPTION("svg", "FILE", SETS(diff.svg, string, .unrecorded = true),
           {DIFF, "also draw A, B and the difference on one time axis"}, {FRONTIER, "also draw the curve"}),
    OPTION("html", "FILE", SETS(diff.html, string, .unrecorded = true),
           {DIFF, "the picture of --svg in a page that responds to the mouse"},
           {FRONTIER, "write a page with the curve, its figures, and the timelines of its points"}),
    OPTION("git", NULL, SETS(diff.git, flag), {DIFF, "run as git's external diff, with git's seven arguments"}),
    OPTION("json", NULL, SETS(json, flag, .unrecorded = true), {ALL & ~(COMPILE | IMPORT), "print figures as JSON"}),
    OPTION("color", "WHEN", SETS(draw.color, choice, .words = "always never auto"),
           {SHOW | RUN, "use colors: always, never or auto (default)"}),
    OPTION("width", "N", SETS(draw.style.width, whole, .least = 20), {SHOW | RUN, "columns of the grid"}),
    OPTION("ascii", NULL, SETS(draw.style.ascii, flag),
           {SHOW | RUN | COMPARE | DIFF | PARTITION | PROFILE | TUNE,
            "print only ASCII characters; the default in a locale that is not UTF-8"}),
    LETTERED('h', "help", NULL, SETS(help, flag), {ALL, "print this text"}),
    OPTION("version", NULL, SETS(version, flag), {ALL, "print the version"}),
};
const int noptions = sizeof options / sizeof *options;

/* ---- queries of the table ---- */

const char *option_text(const struct option_row *row, const struct command *command) {
    for (const struct wording *w = row->wording; w->commands; w++)
        if (w->commands & command->bit)
            return wording_text(row, w);
    return NULL;
}

const char *wording_text(const struct option_row *row, const struct wording *wording) {
    const char *what = what_of(wording->what);
    return row->standard ? format("%s; default %s", what, row->standard) : what;
}

const struct option_row *option_named(const char *name, const struct command *command) {
    const struct option_row *row = options;
    while (strcmp(row->name, name) != 0 || !option_text(row, command))
        row++;
    return row;
}

const char *listed(const char *words) {
    struct text t = {0};
    while (*words) {
        size_t n = strcspn(words, " ");
        const char *next = words + n + (words[n] == ' ');
        put(&t, "%.*s%s", (int)n, words, !*next ? "" : strchr(next, ' ') ? ", " : " or ");
        words = next;
    }
    return t.s;
}

const char *words_of(const struct option_row *row) {
    const char *words = row->list ? row->list() : row->words;
    return words ? words : "";
}

const char **option_words(const struct option_row *row, int *n) {
    const char **names = NULL;
    size_t cap = 0;
    *n = 0;
    for (const char *w = words_of(row); *w; w += strspn(w, " ")) {
        GROW(names, cap, (size_t)*n + 1);
        names[*n] = format("%.*s", (int)strcspn(w, " "), w);
        w += strlen(names[(*n)++]);
    }
    return names;
}

void check_destination(const char *out, const struct settings *settings) {
    for (int i = 0; i < settings->nfiles; i++)
        check_apart(out, settings->file[i]);
    for (int i = 0; i < noptions; i++) {
        const void *member = (const char *)settings + options[i].at;
        if (!options[i].reads)
            continue;
        if (options[i].parse == string)
            check_apart(out, *(const char *const *)member);
        else
            for (const char *const *list = *(const char *const *const *)member; list && *list; list++)
                check_apart(out, *list);
    }
    if (out)
        check_writable(out);
}
