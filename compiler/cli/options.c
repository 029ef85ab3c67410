/* The commands, and the one table of their options. */
#include "base/text.h"
#include "command.h"
#include "format_table.h"
#include "options.h"
#include <string.h>

#define A_SCHEDULE "schedule, e.g. schedules/1f1b.lua"

const struct command commands[] = {
    {"check", "SCHEDULE.lua", "compile and prove",
     "  pianola check schedules/1f1b.lua\n"
     "  pianola check my.lua -D workers=16 --cluster schedules/clusters/latency.lua\n",
     CHECK, cmd_check, A_SCHEDULE, false},
    {"show", "SCHEDULE.lua", "print the timeline and the report",
     "  pianola show schedules/1f1b.lua\n"
     "  pianola show schedules/1f1b.lua -D workers=8 -D batches=32 --format streams\n"
     "  pianola show schedules/gpipe.lua --format json | jq .bubble\n"
     "  pianola show schedules/zbv.lua --format html -o zbv.html\n"
     "  pianola show schedules/1f1b.lua --model schedules/models/gpt.lua --measured run.tsv --format html -o run.html\n"
     "  pianola show my.lua --watch\n"
     "  pianola show --list\n",
     SHOW, cmd_show, A_SCHEDULE, false},
    {"compare", "SCHEDULE.lua ...",
     "one table over schedules, all with the ranks and microbatches of the first, or as -D says",
     "  pianola compare schedules/1f1b.lua schedules/zb_h1.lua schedules/zbv.lua -D workers=8 -D batches=32\n"
     "  pianola compare schedules/*.lua --model schedules/models/gpt.lua --sort peak_bytes --markdown\n"
     "  pianola compare schedules/gpipe.lua schedules/1f1b.lua schedules/zbv.lua --jitter 10% --sort p95\n"
     "  pianola compare schedules/bsp.lua schedules/pipedream.lua --train --model schedules/models/gpt.lua \\\n"
     "    --cluster schedules/clusters/latency.lua -D flops=1e12 -D bandwidth=1e9 --data book.txt --steps 20 -o "
     "loss.svg\n",
     COMPARE, cmd_compare, A_SCHEDULE, true},
    {"diff", "A B",
     "what changed between two, each a script, PyTorch's CSV, a compiled folder, streams.txt or a timeline, and why",
     "  pianola diff schedules/1f1b.lua schedules/zb_h1.lua -D workers=8\n"
     "  pianola diff schedules/zbv.lua dumped.csv\n"
     "  pianola diff schedules/1f1b.lua run.tsv --model schedules/models/gpt.lua --fit costs.lua\n"
     "  pianola diff generated/1f1b /tmp/1f1b --fail-on makespan:+2%,peak_bytes:+0\n"
     "  pianola diff schedules/gpipe.lua schedules/1f1b.lua --html diff.html\n"
     "  git -c diff.external='pianola diff --git' diff --ext-diff -- generated/1f1b\n",
     DIFF, cmd_diff, NULL, true},
    {"compile", "SCHEDULE.lua -o DIR", "write {files}; with a model, a program for every rank",
     "  pianola compile schedules/1f1b.lua -o generated/1f1b\n"
     "  pianola compile schedules/1f1b.lua --model schedules/models/gpt.lua -o /tmp/gpt\n",
     COMPILE, cmd_compile, A_SCHEDULE, false},
    {"run", "SCHEDULE.lua --model MODEL.lua", "train with all ranks in this process",
     "  pianola run schedules/1f1b.lua --model schedules/models/gpt.lua --data book.txt\n"
     "  pianola run schedules/gpipe.lua --model schedules/models/integers.lua --steps 3 --json\n",
     RUN, cmd_run, A_SCHEDULE, false},
    {"verify", "FILE", "prove a program from its text form (streams.txt)",
     "  pianola verify generated/1f1b/streams.txt\n"
     "  pianola show my.lua --format streams | pianola verify -\n",
     VERIFY, cmd_verify, "file, e.g. streams.txt", false},
    {"check-bound", "FILE [SCHEDULE.lua]",
     "prove a lower bound on the makespan from its certificate; and that it holds for this schedule's jobs, in any "
     "order",
     "  pianola check-bound 1f1b.bound\n"
     "  pianola check-bound best.bound schedules/1f1b.lua -D workers=8\n",
     CHECK_BOUND, cmd_check_bound, "file, e.g. 1f1b.bound", true},
    {"export-weights", "DIR", "write a checkpoint's weights as one safetensors file, weights.safetensors",
     "  pianola export-weights checkpoints -o gpt.safetensors\n"
     "  pianola export-weights checkpoints --step 200 --json\n"
     "  pianola export-weights checkpoints --names hf --model schedules/models/llama.lua -D size=SmolLM2-135M "
     "-o smol\n",
     EXPORT, cmd_export, "folder of checkpoints", false},
    {"tokenize", "FILE ...",
     "text as a model's tokens, for its training: each file is a document, or, if it is lines of JSON, each line, an "
     "object with a text",
     "  pianola tokenize book.txt more.jsonl --tokenizer tokenizer.json -o tokens.bin\n"
     "  pianola tokenize book.txt --tokenizer model.gguf -o tokens.bin --json\n"
     "  pianola tokenize --decode tokens.bin --tokenizer tokenizer.json -o book.txt\n",
     TOKENIZE, cmd_tokenize, "file of text", true},
    {"generate", "--weights FILE --prompt TEXT",
     "write on from a text, with a language model on one rank: GGUF, or safetensors with config.json and "
     "tokenizer.json beside them",
     "  pianola generate --weights SmolLM2-135M-Instruct.gguf --prompt 'What is a pianola?' --chat\n"
     "  pianola generate --weights model.safetensors --prompt 'Once upon a time' --tokens 50 --temperature 0 --json\n",
     GENERATE, cmd_generate, NULL, false},
    {"import", "FILE.csv",
     "write PyTorch's schedule CSV as a schedule script; show, diff and the others take the CSV itself too",
     "  pianola import zbv.csv -o zbv.lua\n"
     "  pianola show schedules/zbv.lua --format torch-csv | pianola import - | pianola show -\n",
     IMPORT, cmd_import, "file, e.g. schedule.csv", false},
    {"partition", "--profile FILE",
     "cut a model into stages, each on as many ranks as makes all the fastest (PipeDream's partitioner)",
     "  pianola partition --profile graph.txt --workers 4 --bandwidth 1e9\n"
     "  pianola partition --profile graph.txt --levels 4x10e9,2x1.25e9 --sum --transfers --json\n"
     "  pianola partition --profile graph.txt --workers 4 --bandwidth 1e9 -o pipedream.lua\n"
     "  pianola partition --model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua --workers 8\n",
     PARTITION, cmd_partition, NULL, false},
    {"profile", "--model MODEL.lua",
     "time a model's layers, and write what they take for partition, show and compare (PipeDream's profiler)",
     "  pianola profile --model schedules/models/gpt.lua -D width=256 -o gpt_costs.lua\n"
     "  pianola partition --model gpt_costs.lua --workers 4 --bandwidth 1e9\n"
     "  pianola profile --model schedules/models/gpt.lua -o graph.txt && pianola partition --profile graph.txt "
     "--workers 4 "
     "--bandwidth 1e9\n"
     "  pianola profile --model schedules/models/gpt.lua --fit costs.lua && pianola partition --model "
     "schedules/models/gpt.lua --cluster costs.lua --workers 4 --bandwidth 1e9\n",
     PROFILE, cmd_profile, NULL, false},
    {"optimal", "SCHEDULE.lua", "find the best order of a script's jobs, and prove that no order is better",
     "  pianola optimal schedules/1f1b.lua -o best.lua && pianola show best.lua\n"
     "  pianola optimal schedules/zbv.lua -D batches=16 --time 60 --json\n",
     OPTIMAL, cmd_optimal, A_SCHEDULE, false},
    {"frontier", "SCHEDULE.lua [OTHER.lua ...]",
     "the least makespan of the first script's jobs for each cap on live activations, and where the scripts' own "
     "orders lie",
     "  pianola frontier schedules/zbv.lua schedules/v_min.lua schedules/v_half.lua\n"
     "  pianola frontier schedules/zb_h1.lua schedules/zb_h2.lua -D batches=12 --svg frontier.svg\n"
     "  pianola frontier schedules/1f1b.lua --cluster schedules/clusters/latency.lua -D latency=1 --json\n"
     "  pianola frontier schedules/1f1b.lua --model schedules/models/gpt.lua --bytes\n",
     FRONTIER, cmd_frontier, A_SCHEDULE, true},
    {"tune", "[SCHEDULE.lua ...]",
     "find the schedule, of those given or of all that came with the program, and the parameters with which a model "
     "trains fastest, and why others lose",
     "  pianola tune --model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua --workers 8\n"
     "  pianola tune schedules/1f1b*.lua schedules/zbv.lua --model schedules/models/gpt2.lua -D size=774M \\\n"
     "    --cluster schedules/clusters/nodes.lua --workers 8 --rows 64 --memory 20e9 -o best.lua\n",
     TUNE, cmd_tune, NULL, true},
};
const int ncommands = sizeof commands / sizeof *commands;

const struct option_row options[] = {
    {"define", "KEY=VALUE", "set a parameter of the scripts (lists: 1,2,3)", 'D',
     SCRIPTS | PARTITION | PROFILE | OPTIMAL | FRONTIER | TUNE | CHECK_BOUND | GENERATE | EXPORT},
    {"model", "FILE.lua", "model script; without one, jobs have unit costs, and --weights say theirs (run, generate)",
     'm', SCRIPTS | PARTITION | PROFILE | OPTIMAL | FRONTIER | TUNE | CHECK_BOUND | GENERATE | EXPORT},
    {"cluster", "FILE.lua", "cluster script; without one, links are free", 'c',
     SCRIPTS | PARTITION | OPTIMAL | FRONTIER | TUNE | CHECK_BOUND},
    {"lanes", "PER", "a communication lane, and with NCCL a communicator, per edge (default), peer or rank", 'l',
     SCRIPTS},
    {"launch-order", "ORDER",
     "a communication starts when its lane is free: lane (default); and the one issued before it on its rank has "
     "started: issue, as with NCCL; or has ended: serial, as with NCCL on older drivers",
     'q', SCRIPTS & ~RUN},
    {"prefetch", "WHICH",
     "which weights are kept, and when others come: solved (default): as few as can be, as late as hides them; or none "
     "is "
     "kept, and each comes just-in-time, one-ahead or two-ahead, as others do",
     'p', SCRIPTS},
    {"recompute", NULL, "forwards keep only their input, and run again before the backward", 'r',
     SCRIPTS | OPTIMAL | FRONTIER | TUNE | CHECK_BOUND},
    {"memory", "PLAN",
     "spare (default): as much as the cluster has, where instructions would otherwise wait for others to leave bytes; "
     "least: as little as the schedule permits; a number: so many bytes of a rank, instead of the cluster's",
     'y', SCRIPTS},
    {"output", "PATH",
     "where to write: a folder (compile, show --format hta), a file (show, import, export-weights); a "
     "schedule script with the stages (partition); a model of costs, FILE.lua, or PipeDream's graph, FILE.txt "
     "(profile); a picture of the losses (compare --train); a schedule script with the best order, beside which the "
     "certificate goes (optimal); a folder for each cap's script and certificate (frontier); the best schedule, with "
     "its parameters as defaults (tune); a file of tokens, or of text (tokenize)",
     'o', SHOW | COMPILE | IMPORT | EXPORT | PARTITION | PROFILE | COMPARE | OPTIMAL | FRONTIER | TUNE | TOKENIZE},
    {"tokenizer", "FILE", "a tokenizer.json, a folder with vocab.json and merges.txt, or a GGUF file: byte-level BPE",
     '@', TOKENIZE | GENERATE | EXPORT},
    {"names", "NAMES",
     "own (default): layer.5.weight, in one file; hf: those of Hugging Face's transformers, in a folder with "
     "config.json "
     "that they load",
     '$', EXPORT},
    {"prompt", "TEXT", "the text to go on from", '!', GENERATE},
    {"tokens", "N", "at most so many tokens are written; default 200", '#', GENERATE},
    {"temperature", "T", "0: always the most probable token; 1: as the model says; default 0.8", '&', GENERATE},
    {"top-p", "P", "draw among the most probable tokens that together have at least this probability; default 0.95",
     '*', GENERATE},
    {"chat", NULL,
     "the prompt is a question in a conversation, written as ChatML, as SmolLM2-Instruct and Qwen know it", '+',
     GENERATE},
    {"decode", NULL, "the other way: the text of a file of tokens, without what separates documents", '0', TOKENIZE},
    {"time", "SECONDS",
     "search for so long at most (frontier: for each cap); default: through so many states, which takes a minute or "
     "two",
     '3', OPTIMAL | FRONTIER},
    {"bytes", NULL, "over a model's bytes in place of live activations: what stays, and what microbatches keep", '6',
     FRONTIER},
    {"objective", "OBJECTIVE",
     "what is to be least: the makespan (default); the span: the longest time that a rank takes from its first job to "
     "its last; "
     "or the period: what each further microbatch takes in a steady state",
     '9', OPTIMAL},
    {"profile", "FILE",
     "what each layer takes: PipeDream's graph.txt, a line per layer and per edge (milliseconds, bytes)", 'i',
     PARTITION},
    {"workers", "N", "ranks; all of them get layers", 'N', PARTITION | TUNE},
    {"rows", "N",
     "of a step, in all its microbatches, so that all candidates train the same; default: 4 microbatches of the "
     "model's rows per rank",
     '4', TUNE},
    {"memory", "BYTES", "of a rank, instead of the cluster's: what needs more is left out", '5', OPTIMAL | TUNE},
    {"bandwidth", "RATE", "bytes per second between them; default: the cluster's slowest link", 'B', PARTITION},
    {"levels", "LEVELS",
     "instead of both: ranks of a group x bandwidth, groups x bandwidth between them, ...: 4x10e9,2x1.25e9", 'E',
     PARTITION},
    {"sync", "HOW",
     "replicas sum gradients through servers (default), 4 (m-1)/m |w| bytes, or around a ring, 2 (m-1)/m |w|", 'Q',
     PARTITION},
    {"sum", NULL, "a stage takes compute + synchronization, as in PipeDream's code; default: the larger of both", 'U',
     PARTITION},
    {"transfers", NULL, "activations between stages take time too: 2 a / bandwidth", 'Y', PARTITION},
    {"memory", "BYTES", "of a rank: weights and activations of its layers, once per minibatch at a time", 'z',
     PARTITION},
    {"microbatches", "N", "to time, in whole steps of 8; default 64", 'I', PROFILE},
    {"warm-up", "N", "microbatches before those, likewise; default 8", 'K', PROFILE},
    {"format", "FORMAT", "{formats}", 'f', SHOW},
    {"measured", "PATH",
     "show these times instead of the predicted: what run --timeline wrote, or a folder of what ranks did", 'e', SHOW},
    {"with", "LIST", "draw too: lanes, memory, path (the critical one), sends (arrows, in pictures)", 'W', SHOW},
    {"color-by", "WHAT", "op (default), mb or stage", 'b', SHOW},
    {"from", "TIME", "draw from then on; in the ruler's unit, as --to", 'F', SHOW},
    {"to", "TIME", "draw up to then", 'T', SHOW},
    {"dump", "LETTERS", "print the program after a pass: l, m, w (help passes)", 'd', CHECK | SHOW | COMPILE},
    {"steps", "N",
     "draw so many steps, or repetitions of the period, one after the other: a rank begins one when its own lanes have "
     "ended the one before",
     'Z', SHOW},
    {"steady", NULL, "compare steady states too: time per microbatch, staleness and versions", 'R', COMPARE},
    {"jitter", "LEVEL",
     "run the program often in the simulator, each time with every job and message up to so much longer or shorter at "
     "random, 10% say: mean, 95th percentile and worst of the makespan (compare, show); look for the least 95th "
     "percentile (optimal, tune)",
     '7', COMPARE | SHOW | OPTIMAL | TUNE},
    {"runs", "N", "of --jitter; default 200", '8', COMPARE | SHOW | OPTIMAL | TUNE},
    {"train", NULL,
     "train each schedule on the same microbatches: losses, and the predicted time until they are below a target", '1',
     COMPARE},
    {"target", "LOSS", "with --train: the loss to reach; default: the worst that any of the schedules ends with", '2',
     COMPARE},
    {"weights", "FILE",
     "start from these weights: safetensors, an index of such files, or GGUF, in the names that the model says; "
     "default: "
     "random ones",
     '%', RUN | GENERATE},
    {"data", "FILE",
     "training text, or what tokenize made of it; several files, or a pattern such as 'shard*.bin', are one text", 'x',
     RUN | COMPARE},
    {"steps", "N",
     "training steps; default 100; 0: train nothing, and tell the loss on --val, or of the first batch (run)", 'n',
     RUN | COMPARE},
    {"step", "N", "the checkpoint of that step; default: the newest whole one", 'S', EXPORT},
    {"seed", "N", "of weights and of the order of the data, of --jitter, or of a local search over orders; default 1",
     's', RUN | COMPARE | SHOW | OPTIMAL | TUNE | GENERATE},
    {"compare", NULL, "train the same steps on one rank too, and compare", 'C', RUN},
    {"device", "DEVICE", "host (default), or cuda: all ranks on one GPU, as bf16 needs", 'u', RUN | PROFILE},
    {"no-graph", NULL, "on a GPU, enqueue every step anew instead of replaying a graph", 'g', RUN},
    {"algorithms", "FILE",
     "on a GPU, use the algorithms of layers' matrix products in FILE; time those it lacks and add them; Muon's are "
     "not timed",
     'A', RUN},
    {"timeline", "FILE", "write when the instructions of the last ten steps ran (TSV)", 't', RUN},
    {"losses", "FILE", "write the loss of each update of the last stage, and when it ended (TSV)", 'J', RUN},
    {"metrics", "FILE", "write each step's loss, learning rate, tokens per second, ... as a line of JSON", '^', RUN},
    {"tensorboard", "DIR", "write the same into DIR as TensorBoard and `wandb sync` read them", KEY_TENSORBOARD, RUN},
    {"loss-svg", "FILE", "draw there, at the end, the losses of training and validation", '=', RUN},
    {"val", "FILE",
     "held-out text, or what tokenize made of it: tell the loss on all of it before the first step and every "
     "--val-every steps",
     '/', RUN},
    {"val-every", "N", "steps from one validation to the next; default 100, or all steps if there are fewer", '~', RUN},
    {"checkpoint", "DIR", "write checkpoints into DIR, as ranks that are processes do, and read each other's",
     KEY_CHECKPOINT, RUN},
    {"every", "N", "steps between checkpoints; default 100. One is written at the end too", KEY_SAVE_EVERY, RUN},
    {"keep", "K", "checkpoints to keep, the newest; default 3", KEY_KEEP, RUN},
    {"resume", NULL, "go on from the newest checkpoint in DIR, if there is one", KEY_RESUME, RUN},
    {"new-data", NULL,
     "with --resume: where --data is not what the checkpoint's training read, begin with its first sequence",
     KEY_NEW_DATA, RUN},
    {"allow-nonfinite", NULL,
     "go on where a loss or a weight is inf or nan; default: stop with an error that names the first",
     KEY_ALLOW_NONFINITE, RUN},
    {"list", NULL, "instead of a schedule: the schedules that came with the program", 'L', SHOW},
    {"watch", NULL,
     "draw again, in a terminal, whenever the script, its model or its cluster changes, and say what that changed; "
     "after an error the last picture stays; Ctrl-C ends it",
     '>', SHOW},
    {"all", NULL, "print all of the ten best, not only the best of each schedule", '|', TUNE},
    {"sort", "COLUMN", "smallest first: by makespan, bubble, peak_activations, ..., as --json names them", 'O',
     COMPARE},
    {"markdown", NULL, "as Markdown", 'M', COMPARE | DIFF},
    {"fail-on", "LIMITS", "exit 1 only beyond these, and not by chance: makespan:+2%,peak_bytes:+0", 'X', DIFF},
    {"fit", "FILE",
     "write the costs of the measured side (diff), or of a stage per layer (profile), as a cluster script, for "
     "--cluster",
     'P', DIFF | PROFILE},
    {"svg", "FILE", "also draw there: A, B and the difference, on one time axis (diff); the curve (frontier)", 'v',
     DIFF | FRONTIER},
    {"html", "FILE", "the same picture, in a page that answers the mouse", 'H', DIFF},
    {"git", NULL, "as git's external diff: takes git's seven arguments", 'G', DIFF},
    {"json", NULL, "print figures as JSON", 'j', ALL & ~(COMPILE | IMPORT)},
    {"color", "WHEN", "always, never or auto (default)", 'k', SHOW | RUN},
    {"width", "N", "columns of the grid", 'w', SHOW | RUN},
    {"ascii", NULL, "no characters beyond ASCII, as in a locale that is not UTF-8", 'a',
     SHOW | RUN | COMPARE | DIFF | PARTITION | PROFILE | TUNE},
    {"help", NULL, "this text", 'h', ALL},
    {"version", NULL, "print the version", 'V', ALL},
};
const int noptions = sizeof options / sizeof *options;
const char option_letters[] = ":D:o:d:h";

/* The words an option takes, by the name of its value. Callers of choice() rely on the order of those listed here. */
static const struct choices {
    const char *arg, *words, *(*list)(void);
} choices[] = {
    {"PER", "edge peer rank", NULL},
    {"ORDER", "lane issue serial", NULL},
    {"FORMAT", NULL, format_words},
    {"LIST", "lanes memory path sends", NULL}, /* separated by commas */
    {"WHAT", "op mb stage", NULL},
    {"DEVICE", "host cuda", NULL},
    {"NAMES", "own hf", NULL},
    {"WHEN", "always never auto", NULL},
    {"COLUMN", NULL, column_words},
    {"WHICH", "solved just-in-time one-ahead two-ahead", NULL},
    {"PLAN", "spare least", NULL},
    {"HOW", "server ring", NULL},
    {"OBJECTIVE", "makespan span period", NULL},
};
enum { NCHOICES = sizeof choices / sizeof *choices };

const struct topic topics[] = {
    {"report", "what the figures mean", help_report},
    {"ops", "the instructions", help_ops},
    {"passes", "the pipeline", help_passes},
    {"scripts", "every name and field that scripts can use", help_scripts},
    {"man", "the manual page (roff)", help_man},
    {"completion-bash", "completion for bash; to try it: . <(pianola help completion-bash)", help_bash},
    {"completion-zsh", "completion for zsh: a file _pianola in a folder of $fpath", help_zsh},
    {"completion-fish", "completion for fish; to try it: pianola help completion-fish | source", help_fish},
};
const int ntopics = sizeof topics / sizeof *topics;

const char *what_of(const char *what) {
    static const struct {
        const char *mark, *(*list)(void);
    } lists[] = {{"{formats}", format_help}, {"{files}", format_files}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *at = strstr(what, lists[i].mark);
        if (at)
            what = format("%.*s%s%s", (int)(at - what), what, lists[i].list(), at + strlen(lists[i].mark));
    }
    return what;
}

/* Whether the n bytes at s equal the word. */
static bool is_word(const char *s, size_t n, const char *word) { return strlen(word) == n && strncmp(s, word, n) == 0; }

enum value value_of(const char *arg, const char **words) {
    size_t n = strcspn(arg, " ");
    for (int i = 0; i < NCHOICES; i++)
        if (is_word(arg, n, choices[i].arg)) {
            *words = choices[i].list ? choices[i].list() : choices[i].words;
            return V_WORDS;
        }
    if (n > 4 && strncmp(arg + n - 4, ".lua", 4) == 0)
        return V_LUA;
    if (is_word(arg, n, "FILE") || is_word(arg, n, "PATH"))
        return V_FILE;
    return is_word(arg, n, "DIR") ? V_FOLDER : V_OTHER;
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

const struct option_row *option_named(const char *name) {
    const struct option_row *o = options;
    while (strcmp(o->name, name) != 0)
        o++;
    return o;
}

const char **option_words(const struct option_row *o, int *n) {
    const char *words, **names = NULL;
    size_t cap = 0;
    *n = 0;
    if (!o->arg || value_of(o->arg, &words) != V_WORDS)
        return NULL;
    for (const char *w = words; *w; w += strspn(w, " ")) {
        GROW(names, cap, (size_t)*n + 1);
        names[*n] = format("%.*s", (int)strcspn(w, " "), w);
        w += strlen(names[(*n)++]);
    }
    return names;
}

int choice(const char *option, const char *word) {
    const struct option_row *o = option_named(option);
    const char *all;
    int n;
    const char **names = option_words(o, &n), *near;
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    near = nearest(word, names, n);
    value_of(o->arg, &all);
    die("--%s %s: expected %s%s", option, word, listed(all), near ? format("; did you mean %s?", near) : "");
}

const struct command *find_command(const char *name, bool topic) {
    const char **names = NEW(const char *, ncommands + ntopics);
    struct text all = {0};
    for (int i = 0; i < ncommands; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
        names[i] = commands[i].name;
        put(&all, "%s%s", i ? ", " : "", names[i]);
    }
    for (int i = 0; i < ntopics; i++)
        names[ncommands + i] = topics[i].name;
    const char *near = nearest(name, names, ncommands + (topic ? ntopics : 0));
    if (near)
        die("unknown %s '%s'; did you mean '%s'?", topic ? "topic" : "command", name, near);
    die("unknown %s '%s'; the commands are %s and help", topic ? "topic" : "command", name, all.s);
}
