/* `pianola help`: prints the table of commands, the meanings of figures, and the table of instructions in ops.h. */
#include "pipeline.h"
#include "options.h"
#include <string.h>

void help_version(void) { printf("pianola %s\n", VERSION); }

void help_usage(FILE *out) {
    fprintf(out, "Pianola compiles a training schedule into one proved instruction stream per rank.\n\nExamples:\n");
    for (int i = 0; i < ncommands; i++)
        fprintf(out, "%.*s\n", (int)strcspn(commands[i].examples, "\n"), commands[i].examples);
    fprintf(out, "\nCommands:\n");
    for (int i = 0; i < ncommands; i++)
        fprintf(out, "  %-14s %s\n", commands[i].name, what_of(commands[i].what));
    fprintf(out, "\n`pianola help COMMAND` explains a command; `pianola help TOPIC` prints one of these topics:\n\n");
    for (int i = 0; i < ntopics; i++)
        fprintf(out, "  %-16s %s\n", topics[i].name, topics[i].what);
}

void help_about(const struct command *command) {
    printf("pianola %s %s [options]\n  %s.\n\nExamples:\n%s\nOptions:\n", command->name, command->args,
           what_of(command->what), command->examples);
    for (int i = 0; i < noptions; i++) {
        const struct option_row *row = &options[i];
        const char *text = option_text(row, command);
        if (text)
            printf("  %s--%s%s%-*s %s\n", row->letter ? format("-%c, ", row->letter) : "    ", row->name,
                   row->arg ? " " : "", 18 - (int)strlen(row->name) - (row->arg != NULL), row->arg ? row->arg : "",
                   text);
    }
    printf("\nExits 0 for yes, 1 for no (does not verify, or differs), 2 for a usage error or other trouble.\n");
}

int help_command(int argc, char **argv) {
    if (argc == 0) {
        help_usage(stdout);
        return 0;
    }
    for (int i = 0; i < ntopics; i++)
        if (strcmp(argv[0], topics[i].name) == 0) {
            topics[i].print(stdout);
            return 0;
        }
    help_about(find_command(argv[0], true));
    return 0;
}

void help_scripts(FILE *out) {
    struct text t = {0};
    script_names(&t);
    fwrite(t.s, 1, t.n, out);
}

/* Meanings of the terms in reports and other output. C11 guarantees only 4095 bytes per string, so there are several.
 */
static const char *const report_terms[] = {
    "makespan       end of the last instruction, updates and reductions included; time starts at 0\n"
    "busy           sum of the durations of a rank's jobs (F, R, I, B, W); time in which two jobs overlap counts once\n"
    "idle           makespan - busy\n"
    "span           end of the rank's own last job - start of its own first job. The zero bubble papers compute a\n"
    "               rank's bubble from the span; others compute it from the makespan\n"
    "bubble         1 - sum of busy / (workers x makespan). The script's `bubble`, a closed form for its own costs,\n"
    "               is printed next to it, except with a model, a cluster or --recompute; in report.json it is\n"
    "               closed_bubble\n"
    "throughput     rho = S B / (L W), with the makespan L in units of one F + B: jobs per worker and unit of time.\n"
    "               With unequal costs: cost of all F and backward jobs / (workers x makespan). Above 1 if jobs\n"
    "               overlap enough\n"
    "live           maximum number of live activations; peak_activations in report.json. (s,b) is live on the rank\n"
    "               of its F from the start of F to the end of its backward (B, or W if split). If another rank\n"
    "               runs the backward, (s,b) is live there from the end of F. An activation that ends at t is not\n"
    "               live together with one that starts at t. If microbatches are cut into slices, each slice counts.\n"
    "               `compare` counts in a rank's share of the model: an activation of half that share is 0.5\n"
    "memory         size of the rank's arena: what the device allocates, to the byte; peak_bytes in report.json.\n"
    "               Bytes are reused where, by the prediction, no instruction has to wait for them. If the cluster's\n"
    "               memory is too small for that, or with --memory least, they are reused earlier\n"
    "least          smallest arena that the rank could run in; `show` prints it if its memory is more; least_bytes in\n"
    "               report.json\n"
    "host memory    host memory of the rank, to the byte, for everything that is offloaded; host_bytes in report.json\n"
    "exposed        in report.json: how long the compute lane waits, by cause: activations, gradients (of\n"
    "               activations), weights, reductions, copies (to host memory and back), teams (exchanges between a\n"
    "               team's members within a job)\n"
    "hidden         in report.json: how long the messages, collectives and copies with the same causes run while\n"
    "               the rank computes\n"
    "at the peak    how the bytes are used when most are in use: weights at home, gradients of weights, optimizer\n"
    "               state, fetched weights, activations and gradients in flight, what forwards keep (stash, keys\n"
    "               and values), workspace, gaps (and alignment). Printed if there is a model\n"
    "received       messages received: activations (act, stash, keys and values of slices), their gradients, weights\n"
    "               (fetches), reductions (parts of weight gradients); and the bytes of all of them, where a\n"
    "               reduction over n homes counts 2 (n-1) / n of its bytes\n",
    "weights_bytes  in report.json: bytes of weights that a rank receives, if weights are fetched or gathered\n"
    "weights_bound  lower bound on weights_bytes, whatever is kept within weight_slots and the cluster's memory\n"
    "weights_gap    weights_bytes / weights_bound - 1. It is above 0 if more transfers are faster, if gaps between\n"
    "               tensors take up memory, or if the search for what to keep was cut short\n"
    "gathers_apart  gathers that run shard by shard, because the owners of the shards need the stage at different\n"
    "               places in their streams: with one gather, one owner would have to wait for another\n"
    "one_ahead,     with --prefetch one-ahead and two-ahead, if there is a cluster: how long the rank would wait for\n"
    "two_ahead      weights, its memory, and how many bytes of it exceed the cluster's memory; null if some rank\n"
    "               does not fit\n"
    "stored         stages whose weights are at home on the rank; a shared token table counts as one more;\n"
    "               stages_stored in report.json\n"
    "lower bound    no schedule with this placement and these peaks is faster; `compare` calls it bound. It is\n"
    "               the largest of\n"
    "  work         a rank's busy time\n"
    "  path         the critical path through the jobs, links included\n"
    "  memory       memory-time: every (s,b) must live for at least its own chain, so a rank that holds at most M\n"
    "               at a time needs their sum / M (rho <= M / S: Rahimi 2025, appendix)\n"
    "gap            makespan / lower bound - 1\n"
    "memory-time    activations x time. Room is what a rank could hold: its cap (or its peak, if it has no cap) x\n"
    "               makespan; memory_room in report.json. Held is what activations occupy while they are live;\n"
    "               memory_held. Needed is what they occupy at least, if each (s,b) lives only for its own chain,\n"
    "               from its F through the later stages and back; memory_needed. Held but not needed means waiting,\n"
    "               and room that is not held is empty. If a period repeats, only the part that is written out\n"
    "               counts. (Rahimi's L W M >= B S^2 lets each (s,b) live for all S stages. It lives for S - s of\n"
    "               them, so the need is B S (S+1) / 2, and schedules with several stages per rank can be below\n"
    "               Rahimi's bound)\n"
    "jitter         with --jitter: makespans of --runs simulated runs. In each run, every job, message and\n"
    "               collective is longer or shorter by up to the given share, uniformly at random and\n"
    "               independently; the order on the lanes stays. Printed are the mean, the p95 (95 of 100 runs take\n"
    "               no longer) and the worst. The same seed gives the same numbers\n"
    "measured       with `show --measured`: all times are seconds of the median step. Each instruction has its\n"
    "               median start and end, counted from the beginning of the step. The lower bound uses the\n"
    "               measured times of jobs, and links that take no time\n",
    "period         time from one repetition to the next, once ranks are in step. If updates are jobs, it is per\n"
    "               microbatch, or per the number of microbatches in the period. Otherwise the period is a whole\n"
    "               step: a rank begins once its own lanes have ended the step before. It is printed only if it is\n"
    "               shorter than the makespan. Its bubble is 1 - sum of busy of one repetition /\n"
    "               (workers x period); steady_bubble in report.json\n"
    "staleness      per stage, if updates are jobs: how many updates the weights that a job reads are behind, at\n"
    "               most. Weights that include all microbatches before the job's own are 0 updates behind\n"
    "versions       per stage: the most versions of its weights that one of its homes holds at once\n"
    "mixed          number of backwards that read another version of the weights than their forwards did, and the\n"
    "               first of them, in order of microbatches; mixed_versions in report.json\n",
    "weights        in `run`: a sum of hashes of all parameters in fp32 (with bf16, of the master weights). Runs that\n"
    "               end with the same weights print the same number, under any schedule\n"
    "overlap        two jobs \"0F5+7B2\" of a sequence start and end together. They take the longer one's time and\n"
    "               1 - overlap of the shorter one's. A device has one compute lane, which runs them one after the\n"
    "               other, and so does the prediction of a run. But while a team exchanges data within one of them,\n"
    "               parts of the other run\n"
    "account        in `diff`: how the rank that ends last spent its time; the parts add up to the makespan\n"
    "  work         its own jobs and updates\n"
    "  dependency   waiting for other ranks to compute what it needs\n"
    "  link         waiting for messages in flight\n"
    "  lane         waiting while a lane, or the links that two lanes of a group share, are busy with something else,\n"
    "               here or on a rank that it waits for\n"
    "  copies       waiting for copies to host memory or back\n"
    "  memory       waiting for bytes that another tensor still occupies\n"
    "  core         waiting for a core while other ranks, or other programs, use all of them\n"
    "  other        waiting for nothing that the timeline shows; a prediction has none\n"
    "root           in `diff`: an operation that ends earlier or later, and not because another operation does\n"
    "times          units of cost without a model, FLOP with a model, seconds with a cluster's flops or costs. The\n"
    "               results of cost() and link() are in the same unit\n"};

void help_report(FILE *out) {
    for (size_t i = 0; i < sizeof report_terms / sizeof *report_terms; i++)
        fputs(report_terms[i], out);
}

void help_ops(FILE *out) {
    static const char *const layers[NLAYERS][2] = {
#define X(name, parameters, meaning) {#name, meaning},
        LAYERS(X)
#undef X
    };
    fputs("Instructions: operation, lane, operands (role:access), meaning. Access: r reads, w writes, m modifies in "
          "place,\n"
          "a accumulates (dw= writes, dw+= adds). A star marks an operand that may repeat. w: weights of the stage;\n"
          "v: the token table that an embedding and an unembedding share, numbered as a stage after the last;\n"
          "u: weights that the members of a team share; dw, dv, du: their gradients.\n\n",
          out);
    for (int i = 0; i < NOPS; i++) {
        const struct op_row *x = op_row(i);
        fprintf(out, "  %-7s %-8s %-48s %s\n", x->name, lanekind_row(x->lane)->word, x->operands, x->meaning);
    }
    fputs("\nTensors\n\n", out);
    for (int i = 0; i < NKINDS; i++) {
        const struct kind_row *x = kind_row(i);
        const char *of = is_of_rank(i) ? "" : x->has_batch ? "(s,b)" : "(s)";
        fprintf(out, "  %-14s %s\n", format("%s%s", x->name, of), x->meaning);
    }
    fputs("\nLayers\n\n", out);
    for (int i = 0; i < NLAYERS; i++)
        fprintf(out, "  %-14s %s\n", layers[i][0], layers[i][1]);
}
