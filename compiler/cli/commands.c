/* The commands and the topics of `pianola help`. */
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
     "compare schedules in one table, with the first one's number of ranks and microbatches unless -D sets them",
     "  pianola compare schedules/1f1b.lua schedules/zb_h1.lua schedules/zbv.lua -D workers=8 -D batches=32\n"
     "  pianola compare schedules/*.lua --model schedules/models/gpt.lua --sort peak_bytes --markdown\n"
     "  pianola compare schedules/gpipe.lua schedules/1f1b.lua schedules/zbv.lua --jitter 10% --sort p95\n"
     "  pianola compare schedules/bsp.lua schedules/pipedream.lua --train --model schedules/models/gpt.lua \\\n"
     "    --cluster schedules/clusters/latency.lua -D flops=1e12 -D bandwidth=1e9 --data book.txt --steps 20 -o "
     "loss.svg\n",
     COMPARE, cmd_compare, A_SCHEDULE, true},
    {"diff", "A B",
     "say what changed between A and B, and why; each is a script, PyTorch's CSV, a compiled folder, streams.txt or a "
     "timeline; one may be a folder of the ranks' recordings by PyTorch's profiler or flight recorder",
     "  pianola diff schedules/1f1b.lua schedules/zb_h1.lua -D workers=8\n"
     "  pianola diff schedules/zbv.lua dumped.csv\n"
     "  pianola diff schedules/1f1b.lua run.tsv --model schedules/models/gpt.lua --fit costs.lua\n"
     "  pianola diff torch.csv traces --fit costs.lua\n"
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
     "prove a lower bound on the makespan from its certificate; with a schedule, also prove that the bound holds for "
     "its jobs in any order",
     "  pianola check-bound 1f1b.bound\n"
     "  pianola check-bound best.bound schedules/1f1b.lua -D workers=8\n",
     CHECK_BOUND, cmd_check_bound, "file, e.g. 1f1b.bound", true},
    {"check-unit", "MODEL.lua [NAME]",
     "test the code of a model's units on random data: what it writes, whether it gives the same bits twice, and its "
     "gradients against finite differences; without NAME, then test all layers alike",
     "  pianola check-unit schedules/models/gpt.lua\n"
     "  pianola check-unit schedules/models/gated_mlp.lua gated_mlp\n"
     "  pianola check-unit my_model.lua my_unit -D rows=2 --json\n",
     CHECK_UNIT, cmd_check_unit, "model script, e.g. schedules/models/gated_mlp.lua", true},
    {"export-weights", "DIR", "write a checkpoint's weights as one safetensors file, weights.safetensors",
     "  pianola export-weights checkpoints -o gpt.safetensors\n"
     "  pianola export-weights checkpoints --step 200 --json\n"
     "  pianola export-weights checkpoints --names hf --model schedules/models/llama.lua -D size=SmolLM2-135M "
     "-o smol\n",
     EXPORT, cmd_export, "folder of checkpoints", false},
    {"tokenize", "FILE ...",
     "turn text into a model's tokens, for training; a file is one document, or one document per line if its lines are "
     "JSON objects with a text",
     "  pianola tokenize book.txt more.jsonl --tokenizer tokenizer.json -o tokens.bin\n"
     "  pianola tokenize book.txt --tokenizer model.gguf -o tokens.bin --json\n"
     "  pianola tokenize --decode tokens.bin --tokenizer tokenizer.json -o book.txt\n",
     TOKENIZE, cmd_tokenize, "file of text", true},
    {"generate", "--weights FILE --prompt TEXT",
     "continue a text with a language model on one rank; the model is a GGUF file, or safetensors with config.json and "
     "tokenizer.json beside them",
     "  pianola generate --weights SmolLM2-135M-Instruct.gguf --prompt 'What is a pianola?' --chat\n"
     "  pianola generate --weights model.safetensors --prompt 'Once upon a time' --tokens 50 --temperature 0 --json\n",
     GENERATE, cmd_generate, NULL, false},
    {"import", "FILE.csv",
     "turn PyTorch's schedule CSV into a schedule script; show, diff and the other commands also read the CSV itself",
     "  pianola import zbv.csv -o zbv.lua\n"
     "  pianola show schedules/zbv.lua --format torch-csv | pianola import - | pianola show -\n",
     IMPORT, cmd_import, "file, e.g. schedule.csv", false},
    {"partition", "--profile FILE",
     "partition a model into stages, replicated where that makes the whole faster (PipeDream's partitioner)",
     "  pianola partition --profile graph.txt --workers 4 --bandwidth 1e9\n"
     "  pianola partition --profile graph.txt --levels 4x10e9,2x1.25e9 --sum --transfers --json\n"
     "  pianola partition --profile graph.txt --workers 4 --bandwidth 1e9 -o pipedream.lua\n"
     "  pianola partition --model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua --workers 8\n",
     PARTITION, cmd_partition, NULL, false},
    {"profile", "--model MODEL.lua",
     "time a model's layers, and write the times for partition, show and compare (PipeDream's profiler)",
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
     "find the least makespan of the first script's jobs for each cap on live activations, and show where the scripts' "
     "own orders lie",
     "  pianola frontier schedules/zbv.lua schedules/v_min.lua schedules/v_half.lua\n"
     "  pianola frontier schedules/zb_h1.lua schedules/zb_h2.lua -D batches=12 --svg frontier.svg\n"
     "  pianola frontier schedules/1f1b.lua --cluster schedules/clusters/latency.lua -D latency=1 --json\n"
     "  pianola frontier schedules/1f1b.lua --model schedules/models/gpt.lua --bytes\n",
     FRONTIER, cmd_frontier, A_SCHEDULE, true},
    {"tune", "[SCHEDULE.lua ...]",
     "find the schedule and the parameters that train a model fastest, and say why others lose; searches the schedules "
     "given, or all that came with the program",
     "  pianola tune --model schedules/models/gpt.lua --cluster schedules/clusters/nodes.lua --workers 8\n"
     "  pianola tune schedules/1f1b*.lua schedules/zbv.lua --model schedules/models/gpt2.lua -D size=774M \\\n"
     "    --cluster schedules/clusters/nodes.lua --workers 8 --rows 64 --memory 20e9 -o best.lua\n",
     TUNE, cmd_tune, NULL, true},
};
const int ncommands = sizeof commands / sizeof *commands;

const struct topic topics[] = {
    {"report", "what the figures mean", help_report},
    {"ops", "the instructions", help_ops},
    {"passes", "the passes of the compiler", help_passes},
    {"scripts", "every name and field that scripts can use", help_scripts},
    {"man", "the manual page (roff)", help_man},
    {"completion-bash", "completion for bash; try it with: . <(pianola help completion-bash)", help_bash},
    {"completion-zsh", "completion for zsh; save it as _pianola in a folder of $fpath", help_zsh},
    {"completion-fish", "completion for fish; try it with: pianola help completion-fish | source", help_fish},
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

/* Returns whether the n bytes at s equal the word. */
static bool is_word(const char *s, size_t n, const char *word) { return strlen(word) == n && strncmp(s, word, n) == 0; }

enum value_kind value_of(const char *arg) {
    size_t n = strcspn(arg, " ");
    if (n > 4 && strncmp(arg + n - 4, ".lua", 4) == 0)
        return V_LUA;
    if (is_word(arg, n, "FILE") || is_word(arg, n, "PATH"))
        return V_FILE;
    return is_word(arg, n, "DIR") ? V_FOLDER : V_OTHER;
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
