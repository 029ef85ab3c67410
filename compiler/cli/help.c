/* `pianola help`: the commands, from their table; the figures explained; the instructions, from the table in ops.h. */
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
    fprintf(out, "\n`pianola help COMMAND` explains one; `pianola help TOPIC` prints\n\n");
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
    printf("\nExit: 0 yes, 1 no (does not verify, differs), 2 usage or trouble.\n");
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

/* Terms of a report, and of other figures that commands print. Several strings, as C11 guarantees only 4095 bytes for
 * each. */
static const char *const report_terms[] = {
    "makespan       end of the last instruction, updates and reductions included; time begins at 0\n"
    "busy           of a rank: the sum of its jobs' durations (F, R, I, B, W); of two that overlap, once\n"
    "idle           makespan - busy\n"
    "span           the rank's own last job end - its own first job start: what the zero bubble papers take a "
    "rank's\n"
    "               bubble from, where others take it from the makespan\n"
    "bubble         1 - sum of busy / (workers x makespan); beside it what the script's `bubble` says, a closed\n"
    "               form of its own costs, where there is no model, no cluster and no --recompute:\n"
    "               closed_bubble in report.json\n"
    "throughput     rho = S B / (L W), L the makespan in units of one F + B: jobs per worker and unit of time;\n"
    "               with unequal costs, the cost of all F and backward jobs / (workers x makespan); above 1\n"
    "               where jobs overlap enough\n"
    "live           most live activations at a time: peak_activations in report.json. (s,b) counts on the rank\n"
    "               of its F from the start of F to the end of its backward (B, or W when split); on another\n"
    "               rank's backward, there from the end of F on. What ends at t leaves before what starts at t\n"
    "               counts. Where microbatches are cut into slices, each slice counts. `compare` counts in a\n"
    "               rank's share of the model: an activation of half that share is 0.5\n"
    "memory         the rank's arena: what the device allocates, to the byte; peak_bytes in report.json. Bytes are\n"
    "               reused once nobody, by the prediction, has to wait for that; sooner only where the cluster's\n"
    "               memory does not suffice, or with --memory least\n"
    "least          bytes that the rank could do with; `show` says it where its memory is more; least_bytes in\n"
    "               report.json\n"
    "host memory    what the rank takes of host memory, to the byte, for what is offloaded; host_bytes in\n"
    "               report.json\n"
    "exposed        of report.json: how long the compute lane waits, by what it waits for: activations,\n"
    "               gradients (of activations), weights, reductions, copies (to host memory, and back),\n"
    "               teams (what a team's members exchange within a job)\n"
    "hidden         of report.json: how long messages, collectives and copies that bring these run while the\n"
    "               rank computes\n"
    "at the peak    where these bytes are when most are in use: weights at home, gradients of weights,\n"
    "               optimizer state, fetched weights, activations and gradients on their way, what forwards\n"
    "               keep (stash, keys and values), workspace, gaps (and alignment). Printed where there is a "
    "model\n"
    "received       messages that came in: activations (act, stash, keys and values of slices), gradients\n"
    "               (of these), weights\n"
    "               (fetches), reductions (parts of weight gradients); bytes of all, a reduction over n homes\n"
    "               counting 2 (n-1) / n of its bytes\n",
    "weights_bytes  in report.json, of a rank where weights are fetched or gathered: the bytes of them that\n"
    "               come in\n"
    "gathers_apart  gathers that go shard by shard, since the owners of the shards need the stage at different\n"
    "               places of their streams: one of them would have to wait for another\n"
    "weights_bound  the least that could, whatever is kept within weight_slots and the cluster's memory\n"
    "weights_gap    weights_bytes / weights_bound - 1: more than 0 where more transfers are faster, where holes\n"
    "               between tensors take the room, or where the search for what to keep was cut short\n"
    "one_ahead,     with --prefetch one-ahead and two-ahead, where there is a cluster: how long the rank would\n"
    "two_ahead      wait for weights, its memory, and how many bytes of it are beyond the cluster's memory;\n"
    "               null where some rank does not fit\n"
    "stored         stages whose weights are at home on the rank; a shared token table counts as one more;\n"
    "               stages_stored in report.json\n"
    "lower bound    no schedule with this placement and these peaks is faster; `compare` calls it bound. It is\n"
    "               the largest of\n"
    "  work         a rank's busy time\n"
    "  path         the critical path through the jobs, links included\n"
    "  memory       memory-time: every (s,b) must live for at least its own chain; a rank that holds at most M\n"
    "               at a time needs their sum / M (rho <= M / S: Rahimi 2025, appendix)\n"
    "gap            makespan / lower bound - 1\n"
    "memory-time    activations x time. Room: a rank could hold as many as its cap (without one, its peak) for the\n"
    "               whole makespan; memory_room in report.json. Held: what activations occupy while they are\n"
    "               alive; memory_held. Needed: each (s,b) lives at least for its own chain, from its F through the\n"
    "               later stages and back; memory_needed. Held but not needed means waiting, and room that is not\n"
    "               held is empty. If a period repeats, only the part that is written out counts. (Rahimi's\n"
    "               L W M >= B S^2 lets each (s,b) live for all S stages. It lives for S - s of them, so the need\n"
    "               is B S (S+1) / 2, and schedules with several stages per rank can be below Rahimi's bound)\n"
    "jitter         with --jitter: the makespans of --runs simulated runs. In each, every job, message and\n"
    "               collective takes longer or shorter by up to the given share, uniformly at random and\n"
    "               independently; the order on the lanes stays. Printed are their mean, p95 (95 of 100 runs take\n"
    "               no longer) and the worst. The same seed gives the same numbers\n"
    "measured       with `show --measured`: all times are seconds of the median step. Each instruction has its\n"
    "               median start and end, counted from the beginning of the step. The lower bound uses the\n"
    "               measured times of jobs, and links that take no time\n",
    "period         the time from one repetition to the next, once ranks are in step: of a schedule whose updates\n"
    "               are jobs, per microbatch, or per as many as its period has; else of the whole step, where a\n"
    "               rank begins when its own lanes have ended the step before, and where it is printed only if\n"
    "               it is shorter than the makespan. Its bubble: 1 - sum of busy of one repetition /\n"
    "               (workers x period), steady_bubble in report.json\n"
    "staleness      of a stage, where updates are jobs: the most updates by which the weights that a job of\n"
    "               microbatch b reads lack those made of the microbatches before b\n"
    "versions       of a stage: the most versions of its weights that one of its homes has at once\n"
    "mixed          how many backwards read another version of the weights than their forwards did, and which is\n"
    "               the first: of the earliest microbatch; mixed_versions in report.json\n",
    "weights        of `run`: a sum of hashes of all parameters in fp32, with bf16 of their masters: runs\n"
    "               that learned the same print the same, under any schedule\n"
    "overlap        two jobs \"0F5+7B2\" of a sequence start and end together and take the longer's time and\n"
    "               1 - overlap of the shorter's. A device has one compute lane: it runs them one after the\n"
    "               other, and so they are in the prediction of a run; but where a team exchanges\n"
    "               something within one of them, parts of the other run meanwhile\n"
    "account        of `diff`: what the time of the rank that ends last went into; together the makespan\n"
    "  work         its own jobs and updates\n"
    "  dependency   waiting for other ranks to compute what it needs\n"
    "  link         waiting for messages on their way\n"
    "  lane         waiting while a lane is busy with what it does not need, here or where it waits for\n"
    "  memory       waiting for bytes that another tensor still has\n"
    "  other        waiting for nothing that the timeline shows; a prediction has none\n"
    "root           of `diff`: what ends later or earlier and was not pushed by another operation that does\n"
    "times          units of cost without a model, FLOP with a model, seconds with a cluster's flops or costs; "
    "those\n"
    "               of cost() and of links are in that unit, too\n"};

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
    fputs(
        "Instructions: operation, lane, operands (role:access), meaning. Access: r read, w written, m both in place,\n"
        "a accumulated (dw= writes, dw+= adds); a star may repeat. w: weights of the stage; v: the token table that "
        "an\n"
        "embedding and an unembedding share, which comes behind the last stage as if it were one; u: what the\n"
        "members of a team share; dw, dv, du: gradients.\n\n",
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
