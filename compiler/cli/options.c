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

/* Reads a percentage: "10%" is 0.1. */
static void percent(const struct option_row *row, const char *arg, void *field) {
    char *end;
    double x = strtod(arg, &end) / 100;
    if (end == arg || strcmp(end, "%") != 0 || !(x >= 0 && x <= 1))
        die("--%s %s: expected at least 0%% and at most 100%%, such as 10%%", row->name, arg);
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
             {COMPILES | PARTITION | PROFILE | GENERATE | EXPORT, "set a parameter of the scripts (lists: 1,2,3)"}),
    OPTION("model", "FILE.lua", SETS(args.model, string, .reads = true),
           {COMPILES & ~(RUN | TUNE), "model script; without one, jobs have unit costs"},
           {RUN, "script of the model to train; default: the shipped one that --weights fits"},
           {GENERATE, "model script; default: the shipped one that --weights fits"},
           {TUNE, "script of the model to train"}, {PARTITION, "script of the model to cut, instead of --profile"},
           {PROFILE, "script of the model whose layers are timed"},
           {EXPORT, "with --names hf: script of the model that the checkpoint is of"}),
    OPTION("cluster", "FILE.lua", SETS(args.cluster, string, .reads = true),
           {COMPILES | PARTITION, "cluster script; without one, links are free"}),
    OPTION("lanes", "PER", SETS(args.lanes, choice, .words = "edge peer rank"),
           {SCRIPTS, "a communication lane, and with NCCL a communicator, per edge (default), peer or rank"}),
    OPTION("launch-order", "ORDER", SETS(args.launch, choice, .words = "lane issue serial"),
           {SCRIPTS & ~RUN,
            "a communication starts when its lane is free: lane (default); and the one issued before it on its rank "
            "has started: issue, as with NCCL; or has ended: serial, as with NCCL on older drivers"}),
    OPTION("prefetch", "WHICH", SETS(args.prefetch, choice, .words = "solved just-in-time one-ahead two-ahead"),
           {SCRIPTS, "which weights are kept, and when others come: solved (default): as few as can be, as late as "
                     "hides them; or none is kept, and each comes just-in-time, one-ahead or two-ahead, as others do"}),
    OPTION("recompute", NULL, SETS(args.recompute, flag),
           {COMPILES, "forwards keep only their input, and run again before the backward"}),
    OPTION("memory", "PLAN", SETS(args, plan, .words = "spare least", .unit = "bytes"),
           {SCRIPTS,
            "spare (default): as much as the cluster has, where instructions would wait for others to leave bytes; "
            "least: as little as the schedule permits; a number: the bytes of a rank, instead of the cluster's"}),
    LETTERED('o', "output", "PATH", SETS(output, string, .unrecorded = true),
             {SHOW, "file to write instead of standard output; with --format hta, a folder"},
             {COMPILE, "folder to write into"}, {IMPORT, "file to write the script to, instead of standard output"},
             {EXPORT, "file to write; default: weights.safetensors; with --names hf a folder, default: hf"},
             {PARTITION, "schedule script to write, with the stages"},
             {PROFILE, "file to write: a model of costs, FILE.lua, or PipeDream's graph, FILE.txt"},
             {COMPARE, "with --train: picture to draw, the losses of all schedules (SVG)"},
             {OPTIMAL, "schedule script to write, with the best order; the certificate goes beside it"},
             {FRONTIER, "folder to write, with a script and a certificate for each cap"},
             {TUNE, "file to write the best schedule to, with its parameters as defaults"},
             {TOKENIZE, "file of tokens to write; with --decode, file of text, default: standard output"}),
    OPTION("tokenizer", "FILE", SETS(published.tokenizer, string, .reads = true),
           {TOKENIZE | GENERATE | EXPORT,
            "a tokenizer.json, a folder with vocab.json and merges.txt, or a GGUF file: byte-level BPE"}),
    OPTION("names", "NAMES", SETS(published.names, choice, .words = "own hf"),
           {EXPORT, "own (default): names such as layer.5.weight, in one file; hf: the names of Hugging Face's "
                    "transformers, in a folder with config.json that it loads"}),
    OPTION("prompt", "TEXT", SETS(generate.prompt, string), {GENERATE, "the text to go on from"}),
    OPTION("tokens", "N", SETS(generate.tokens, whole, .least = 1, .standard = "200"),
           {GENERATE, "the most tokens to write"}),
    OPTION("temperature", "T", SETS(generate.temperature, part, .most = 100, .standard = "0.8"),
           {GENERATE, "0: always the most probable token; 1: as the model says"}),
    OPTION("top-p", "P", SETS(generate.top_p, part, .most = 1, .standard = "0.95"),
           {GENERATE, "draw among the most probable tokens that together have at least this probability"}),
    OPTION("chat", NULL, SETS(generate.chat, flag),
           {GENERATE,
            "the prompt is a question in a conversation, written as ChatML, as SmolLM2-Instruct and Qwen know it"}),
    OPTION("decode", NULL, SETS(published.decode, flag),
           {TOKENIZE, "the other way: the text of a file of tokens, without what separates documents"}),
    OPTION("time", "SECONDS", SETS(search.seconds, whole, .least = 1),
           {OPTIMAL, "search for at most this long; default: until a number of states, which takes a minute or two"},
           {FRONTIER, "for each cap, search for at most this long; default: until a number of states"}),
    OPTION("bytes", NULL, SETS(search.bytes, flag),
           {FRONTIER, "over a model's bytes in place of live activations: what stays, and what microbatches keep"}),
    OPTION("objective", "OBJECTIVE", SETS(search.objective, choice, .words = "makespan span period"),
           {OPTIMAL, "what is to be least: the makespan (default); the span: the longest time that a rank takes from "
                     "its first job to its last; or the period: what each further microbatch takes in a steady state"}),
    OPTION("profile", "FILE", SETS(partition.profile, string, .reads = true),
           {PARTITION,
            "what each layer takes: PipeDream's graph.txt, a line per layer and per edge (milliseconds, bytes)"}),
    OPTION("workers", "N", SETS(partition.workers, whole, .least = 1), {PARTITION, "ranks; all of them get layers"},
           {TUNE, "ranks of each candidate"}),
    OPTION("rows", "N", SETS(search.rows, whole, .least = 1),
           {TUNE, "of a step, in all its microbatches, so that all candidates train the same; default: 4 microbatches "
                  "of the model's rows per rank"}),
    OPTION("memory", "BYTES", SETS(args.memory, amount, .unit = "bytes"),
           {OPTIMAL | TUNE, "of a rank, instead of the cluster's: what needs more is left out"}),
    OPTION("bandwidth", "RATE", SETS(partition.bandwidth, amount, .unit = "bytes per second"),
           {PARTITION, "bytes per second between them; default: the cluster's slowest link"}),
    OPTION("levels", "LEVELS", SETS(partition.levels, string),
           {PARTITION,
            "instead of both: ranks of a group x bandwidth, groups x bandwidth between them, ...: 4x10e9,2x1.25e9"}),
    OPTION("sync", "HOW", SETS(partition.ring, choice, .words = "server ring"),
           {PARTITION,
            "replicas sum gradients through servers (default), 4 (m-1)/m |w| bytes, or around a ring, 2 (m-1)/m |w|"}),
    OPTION("sum", NULL, SETS(partition.sum, flag),
           {PARTITION, "a stage takes compute + synchronization, as in PipeDream's code; default: the larger of both"}),
    OPTION("transfers", NULL, SETS(partition.transfers, flag),
           {PARTITION, "activations between stages take time too: 2 a / bandwidth"}),
    OPTION("memory", "BYTES", SETS(partition.room, amount, .unit = "bytes"),
           {PARTITION, "of a rank: weights and activations of its layers, once per minibatch at a time"}),
    OPTION("microbatches", "N", SETS(profile.microbatches, whole, .least = 1, .standard = "64"),
           {PROFILE, "to time, in whole steps of 8"}),
    OPTION("warm-up", "N", SETS(profile.warm_up, whole, .standard = "8"),
           {PROFILE, "microbatches before those, likewise"}),
    OPTION("format", "FORMAT", SETS(draw.format, choice, .list = format_words), {SHOW, "{formats}"}),
    OPTION(
        "measured", "PATH", SETS(draw.measured, string, .reads = true),
        {SHOW, "show these times instead of the predicted: what run --timeline wrote, or a folder of what ranks did"}),
    OPTION("with", "LIST", SETS(draw.style.with, choices, .words = "lanes memory path sends"),
           {SHOW, "draw too: lanes, memory, path (the critical one), sends (arrows, in pictures)"}),
    OPTION("color-by", "WHAT", SETS(draw.style.by, choice, .words = "op mb stage"),
           {SHOW, "op (default), mb or stage"}),
    OPTION("from", "TIME", SETS(draw.style.from, when), {SHOW, "draw from then on; in the ruler's unit, as --to"}),
    OPTION("to", "TIME", SETS(draw.style.to, when, .least = DBL_TRUE_MIN), {SHOW, "draw up to then"}),
    LETTERED('d', "dump", "LETTERS", SETS(dump, string),
             {CHECK | SHOW | COMPILE,
              "print the program after a pass: l, m, w; t: what the searches tried (help passes)"}),
    OPTION("steps", "N", SETS(draw.copies, whole, .least = 1),
           {SHOW, "draw N steps (or repetitions of the period) one after the other; a rank begins the next one when "
                  "its own lanes have ended the last"}),
    OPTION("steady", NULL, SETS(compare.steady, flag),
           {COMPARE, "compare steady states too: time per microbatch, staleness and versions"}),
    OPTION("jitter", "LEVEL", SETS(jitter.level, percent),
           {COMPARE | SHOW, "simulate the program often, each job and message up to this much longer or shorter at "
                            "random, 10% say: mean, 95th percentile and worst of the makespan"},
           {OPTIMAL | TUNE, "look for the least 95th percentile of the makespan where each job and message takes up to "
                            "this much longer or shorter at random, 10% say"}),
    OPTION("runs", "N", SETS(jitter.runs, whole, .least = 1, .standard = "200"),
           {COMPARE | SHOW | OPTIMAL | TUNE, "of --jitter"}),
    OPTION(
        "train", NULL, SETS(compare.train, flag),
        {COMPARE,
         "train each schedule on the same microbatches: losses, and the predicted time until they are below a target"}),
    OPTION("target", "LOSS", SETS(compare.target, loss),
           {COMPARE, "with --train: the loss to reach; default: the worst that any of the schedules ends with"}),
    OPTION("weights", "FILE", SETS(published.weights, string, .reads = true),
           {RUN, "start from these weights: safetensors, an index of such files, or GGUF, in the names that the model "
                 "says; default: random ones"},
           {GENERATE, "the model's weights: safetensors, an index of such files, or GGUF"}),
    OPTION(
        "data", "FILE", SETS(train.data, strings, .reads = true),
        {RUN | COMPARE,
         "training text, or what tokenize made of it; several files, or a pattern such as 'shard*.bin', are one text"}),
    OPTION("steps", "N", SETS(train.steps, whole, .standard = "100"),
           {RUN, "training steps; 0: train nothing, and tell the loss on --val, or of the first batch"}),
    OPTION("steps", "N", SETS(train.steps, whole, .least = 1, .standard = "100"),
           {COMPARE, "training steps, with --train"}),
    OPTION("step", "N", SETS(checkpoint.step, whole),
           {EXPORT, "the checkpoint of that step; default: the newest whole one"}),
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
           {RUN, "on a GPU, use the algorithms of layers' matrix products in FILE; time those it lacks and add them; "
                 "Muon's are not timed"}),
    OPTION("timeline", "FILE", SETS(record.timeline, string),
           {RUN, "write when the instructions of the last ten steps ran (TSV)"}),
    OPTION("losses", "FILE", SETS(record.losses, string),
           {RUN, "write the loss of each update of the last stage, and when it ended (TSV)"}),
    OPTION("metrics", "FILE", SETS(record.metrics, string),
           {RUN, "write each step's loss, learning rate, tokens per second, ... as a line of JSON"}),
    OPTION("tensorboard", "DIR", SETS(record.tensorboard, string),
           {RUN, "write the same into DIR as TensorBoard and `wandb sync` read them"}),
    OPTION("loss-svg", "FILE", SETS(record.loss_svg, string),
           {RUN, "draw there, at the end, the losses of training and validation"}),
    OPTION("val", "FILE", SETS(train.held_out, strings, .reads = true),
           {RUN, "held-out text, or what tokenize made of it: tell the loss on all of it before the first step and "
                 "every --val-every steps"}),
    OPTION("val-every", "N", SETS(train.validate_every, whole, .least = 1, .standard = "100"),
           {RUN, "steps from one validation to the next, or all steps if there are fewer"}),
    OPTION("checkpoint", "DIR", SETS(checkpoint.folder, string),
           {RUN, "write checkpoints into DIR, as ranks that are processes do, and read each other's"}),
    OPTION("every", "N", SETS(checkpoint.every, whole, .least = 1, .standard = "100"),
           {RUN, "steps between checkpoints, of which one is written at the end too"}),
    OPTION("keep", "K", SETS(checkpoint.keep, whole, .least = 1, .standard = "3"),
           {RUN, "checkpoints to keep, the newest"}),
    OPTION("resume", NULL, SETS(checkpoint.resume, flag),
           {RUN, "go on from the newest checkpoint in DIR, if there is one"}),
    OPTION(
        "new-data", NULL, SETS(checkpoint.new_data, flag),
        {RUN, "with --resume: where --data is not what the checkpoint's training read, begin with its first sequence"}),
    OPTION("allow-nonfinite", NULL, SETS(train.allow_nonfinite, flag),
           {RUN, "go on where a loss or a weight is inf or nan; default: stop with an error that names the first"}),
    OPTION("deadline", "SECONDS", SETS(train.deadline, limit),
           {RUN, "longest that a step, or a checkpoint, may take: then the run ends, and all ranks say where they "
                 "waited; default: no limit"}),
    OPTION("flight", "DIR", SETS(record.flight, string, .standard = "."),
           {RUN, "where ranks write their flight records when --deadline ends the run"}),
    OPTION("list", NULL, SETS(draw.list, flag),
           {SHOW, "instead of a schedule: the schedules that came with the program"}),
    OPTION("watch", NULL, SETS(draw.watch, flag),
           {SHOW, "draw again, in a terminal, whenever the script, its model or its cluster changes, and say what that "
                  "changed; after an error the last picture stays; Ctrl-C ends it"}),
    OPTION("all", NULL, SETS(search.all, flag),
           {TUNE, "print all of the ten best, not only the best of each schedule"}),
    OPTION("sort", "COLUMN", SETS(compare.sort, string, .list = column_words),
           {COMPARE, "smallest first: by makespan, bubble, live, memory, ..., as the headings say"}),
    OPTION("markdown", NULL, SETS(markdown, flag, .unrecorded = true), {COMPARE | DIFF, "as Markdown"}),
    OPTION("fail-on", "LIMITS", SETS(diff.fail_on, string, .unrecorded = true),
           {DIFF, "exit 1 only beyond these, and not by chance: makespan:+2%,peak_bytes:+0"}),
    OPTION("fit", "FILE", SETS(fit, string, .unrecorded = true),
           {DIFF, "write the costs of the measured side as a cluster script, for --cluster"},
           {PROFILE, "write the costs of a stage per layer as a cluster script, for --cluster"}),
    OPTION("svg", "FILE", SETS(diff.svg, string, .unrecorded = true),
           {DIFF, "also draw there: A, B and the difference, on one time axis"},
           {FRONTIER, "also draw there: the curve"}),
    OPTION("html", "FILE", SETS(diff.html, string, .unrecorded = true),
           {DIFF, "the same picture, in a page that answers the mouse"}),
    OPTION("git", NULL, SETS(diff.git, flag), {DIFF, "as git's external diff: takes git's seven arguments"}),
    OPTION("json", NULL, SETS(json, flag, .unrecorded = true), {ALL & ~(COMPILE | IMPORT), "print figures as JSON"}),
    OPTION("color", "WHEN", SETS(draw.color, choice, .words = "always never auto"),
           {SHOW | RUN, "always, never or auto (default)"}),
    OPTION("width", "N", SETS(draw.style.width, whole, .least = 20), {SHOW | RUN, "columns of the grid"}),
    OPTION("ascii", NULL, SETS(draw.style.ascii, flag),
           {SHOW | RUN | COMPARE | DIFF | PARTITION | PROFILE | TUNE,
            "no characters beyond ASCII, as in a locale that is not UTF-8"}),
    LETTERED('h', "help", NULL, SETS(help, flag), {ALL, "this text"}),
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
