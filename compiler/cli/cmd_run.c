/* `pianola run`: passes the compiled program to the runtime, in this process. */
#include "../../runtime/process/turns.h"
#include "../../runtime/store/timeline.h"
#include "base/put_json.h"
#include "command.h"
#include "pipeline.h"
#include "files.h"
#include "prediction.h"
#include "run_record.h"
#include "run_times.h"
#include "passes/runtime_program.h"
#include "terminal.h"
#include "trained_weights.h"
#include "training.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct outcome {
    int64_t steps, from; /* from: the step at which training resumed */
    float first, last;
    double step, tokens_per_second, predicted, measured, work, largest, norm; /* norm: of the last step; NAN: none */
    uint64_t weights;
    struct rt_routed routed;
    int64_t twice;
    bool compared, same_weights;
    int64_t timed;               /* number of last steps, from which the times were taken */
    double cores;                /* or the number of GPUs */
    const struct cuda_run *cuda; /* or NULL */
};

/* Prints both makespans, and the steps they describe. */
static void print_makespan(const struct compile *c, const struct outcome *outcome) {
    int workers = c->spec->workers;
    bool alone = outcome->timed == 1;
    const char *steps = alone ? format("step %lld", (long long)outcome->steps)
                              : format("steps %lld to %lld", (long long)(outcome->steps - outcome->timed + 1),
                                       (long long)outcome->steps);
    const char *measured = alone ? "measured is this step" : "measured is their median";
    if (!isfinite(outcome->predicted)) {
        printf("makespan  measured %.2f ms (%s%s)\n", 1e3 * outcome->measured, alone ? "" : "median of ", steps);
        return;
    }
    printf("makespan  predicted %.2f ms, measured %.2f ms\n", 1e3 * outcome->predicted, 1e3 * outcome->measured);
    if (outcome->cuda)
        printf("of        %s: %s; predicted from the jobs' times on one rank, for %d ranks with a GPU each. Here they "
               "share one GPU, on which one rank takes %.2f ms\n",
               steps, measured, workers, 1e3 * outcome->work);
    else
        printf("of        %s: %s; predicted from each job's mean CPU time in %s, %d rank%s on %g core%s\n", steps,
               measured, alone ? "it" : "them", workers, workers > 1 ? "s" : "", outcome->cores,
               outcome->cores == 1 ? "" : "s");
}

static void print_text(const struct compile *c, const struct outcome *outcome) {
    if (outcome->from)
        printf("\nresumed   from step %lld", (long long)outcome->from);
    printf("\nloss      %.4f to %.4f in %s, %.0f tokens/s\n", outcome->first, outcome->last,
           counted(outcome->steps - outcome->from, "step"), outcome->tokens_per_second);
    if (outcome->compared)
        printf("one rank  the same %s: losses differ by at most %.2g (relative), weights %s\n",
               counted(outcome->steps, "step"), outcome->largest,
               outcome->same_weights ? "equal bit for bit" : "not bit for bit");
    if (c->costs->post_validation)
        printf("rerun     %lld of %s, because their updates had to be clipped afterwards\n", (long long)outcome->twice,
               counted(outcome->steps, "step"));
    if (outcome->routed.pairs)
        printf("dropped   %lld of %lld (token, expert) pairs, %.3g%%\n", (long long)outcome->routed.dropped,
               (long long)outcome->routed.pairs,
               100.0 * (double)outcome->routed.dropped / (double)outcome->routed.pairs);
    printf("weights   %016llx (fingerprint)\n", (unsigned long long)outcome->weights);
    print_makespan(c, outcome);
}

/* Returns the number as JSON; JSON cannot represent inf or nan. */
static const char *figure_or_null(double x) { return isfinite(x) ? format("%.9g", x) : "null"; }

static void print_json(const struct compile *c, const struct outcome *outcome) {
    printf("{\n  \"schema\": 1,\n  \"schedule\": %s,\n  \"steps\": %lld,\n", quoted(c->spec->name),
           (long long)outcome->steps);
    printf("  \"loss_first\": %s,\n  \"loss_last\": %s,\n", figure_or_null(outcome->first),
           figure_or_null(outcome->last));
    printf("  \"seconds_per_step\": %.6g,\n  \"tokens_per_second\": %.6g,\n", outcome->step,
           outcome->tokens_per_second);
    if (outcome->from)
        printf("  \"resumed_from\": %lld,\n", (long long)outcome->from);
    if (outcome->compared)
        printf("  \"one_rank_largest_difference\": %s,\n  \"one_rank_same_weights\": %s,\n",
               figure_or_null((double)(float)outcome->largest), outcome->same_weights ? "true" : "false");
    if (outcome->routed.pairs)
        printf("  \"routed_pairs\": %lld,\n  \"dropped_pairs\": %lld,\n", (long long)outcome->routed.pairs,
               (long long)outcome->routed.dropped);
    if (isfinite(outcome->norm))
        printf("  \"gradient_norm_last\": %.17g,\n", outcome->norm);
    else if (c->costs->clip)
        printf("  \"gradient_norm_last\": null,\n");
    if (c->costs->post_validation)
        printf("  \"steps_run_twice\": %lld,\n", (long long)outcome->twice);
    if (outcome->cuda)
        printf("  \"device\": \"%s\",\n  \"device_bytes_planned\": %lld,\n  \"device_bytes_taken\": %lld,\n"
               "  \"device_bytes_at_end\": %lld,\n  \"host_bytes_planned\": %lld,\n  \"host_bytes_taken\": %lld,\n  "
               "\"cpu_seconds_per_step\": %.6g,\n",
               outcome->cuda->device, (long long)outcome->cuda->planned, (long long)outcome->cuda->taken,
               (long long)outcome->cuda->at_end, (long long)outcome->cuda->host_planned,
               (long long)outcome->cuda->host_taken, outcome->cuda->host);
    printf("  \"makespan_predicted\": %s,\n", figure_or_null(outcome->predicted));
    printf("  \"work\": %s,\n  \"%s\": %g,\n", figure_or_null(outcome->work), outcome->cuda ? "gpus" : "cores",
           outcome->cores);
    printf("  \"timed_steps\": %lld,\n", (long long)outcome->timed);
    printf("  \"weights\": \"%016llx\",\n  \"makespan_measured\": %.9g\n}\n", (unsigned long long)outcome->weights,
           outcome->measured);
}

/* Dies if an option's file cannot be written, or is stdout. */
static void check_written(const char *option, const char *path, const struct settings *settings) {
    if (path && strcmp(path, "-") == 0)
        die("--%s -: stdout has the report; name a file", option);
    check_destination(path, settings);
}

/* Dies before any work if the request cannot be met. */
static void check_run(const struct compile *c, const struct settings *settings) {
    if (!c->spec->model)
        die("`run` trains a model: give one with --model, e.g. --model schedules/models/gpt.lua");
    check_device(c, settings->train.cuda);
    if (settings->train.steps == 0 && settings->train.one_rank)
        die("--steps 0 trains nothing: there is nothing for --compare");
    if (settings->checkpoint.folder && settings->train.one_rank)
        die("--compare trains one rank from the start: it takes no --checkpoint");
    if ((settings->checkpoint.resume && !settings->checkpoint.folder) ||
        (settings->checkpoint.new_data && !settings->checkpoint.resume))
        die(settings->checkpoint.resume ? "--resume needs --checkpoint DIR, the folder to continue from"
                                        : "--new-data needs --resume, which continues from a checkpoint");
    if (settings->train.steps == 0 && settings->checkpoint.folder &&
        (!settings->checkpoint.resume || !settings->train.held_out))
        die("--steps 0 trains nothing: to print the newest checkpoint's loss on --val FILE, give --checkpoint and "
            "--resume");
    if (settings->train.held_out && c->spec->model->rt.input != INPUT_TOKENS)
        die("--val: %s: its input is not text, so there is nothing to hold out", c->args.model);
    if (settings->train.algorithms && !settings->train.cuda)
        die("--algorithms needs a GPU: train with --device cuda");
    if (settings->train.one_rank && c->spec->updates.every)
        die("--compare: one rank would train differently, because this schedule updates stages before others are done; "
            "compare the --losses of two runs");
    if (settings->train.steps == 0 && !settings->train.held_out && settings->train.deadline > 0)
        die("--steps 0 trains nothing: there is nothing for --deadline");
    if (settings->train.steps == 0 && settings->record.tensorboard)
        die("--steps 0 trains nothing: there is nothing for --tensorboard");
    const struct {
        const char *option, *path;
    } written[] = {{"timeline", settings->record.timeline},
                   {"losses", settings->record.losses},
                   {"metrics", settings->record.metrics},
                   {"loss-svg", settings->record.loss_svg}};
    for (int i = 0; i < (int)(sizeof written / sizeof *written); i++) {
        if (settings->train.steps == 0 && written[i].path)
            die("--steps 0 trains nothing: there is nothing for --%s", written[i].option);
        check_written(written[i].option, written[i].path, settings);
        for (int k = 0; k < i && written[i].path; k++)
            if (written[k].path && same_place(written[i].path, written[k].path))
                die("--%s %s: --%s is written there; name another file", written[i].option, written[i].path,
                    written[k].option);
    }
}

/* Returns the plan of the run and its device as text. */
static struct introduction introduction_of(const struct compile *c, const struct settings *settings) {
    struct style style = terminal_style(settings);
    struct introduction introduction = {0};
    struct text *notes = &introduction.notes;
    if (!settings->json) {
        emit_grid(&introduction.out, c->program, c->timeline, c->report->unit, &style);
        emit_report(&introduction.out, c->report, &style);
    }
    const struct rt_model *model = &c->spec->model->rt;
    if (model->input == INPUT_TOKENS)
        put(notes, "pianola: microbatches of %s of %s\n", counted(model->rows / model->context, "row"),
            counted(model->context, "token"));
    if (model->input == INPUT_TOKENS && !settings->train.data && settings->train.steps > 0)
        put(notes, "pianola: no --data: training on random tokens; give a text with --data FILE\n");
    if (!settings->train.cuda)
        put(notes, "pianola: %s in one process, matrix products by %s, one thread a rank\n",
            counted(c->spec->workers, "rank"), host_blas());
    return introduction;
}

/* Prints the first step's loss, for --steps 0. The loss is computed with the weights before the update, and the update
 * is then discarded. */
static void tell_first_loss(const struct compile *c, const struct settings *settings, struct data *data,
                            const struct introduction *introduction) {
    struct listener listener = {.introduction = introduction};
    struct trained trained = train(c, settings, data, 1, 0, NULL, listener);
    if (settings->json)
        printf("{\n  \"schema\": 1,\n  \"schedule\": %s,\n  \"steps\": 0,\n  \"loss\": %s\n}\n", quoted(c->spec->name),
               figure_or_null(trained.loss[0]));
    else
        printf("\nloss      %.4f on the first batch; nothing was trained\n", trained.loss[0]);
    if (!isfinite(trained.loss[0]) && settings->published.weights)
        fprintf(stderr, "pianola: warning: %s: the loss is %g: its weights are damaged, or belong to another model\n",
                settings->published.weights, (double)fabsf(trained.loss[0]));
    host_free(trained.program, trained.arena);
}

/* Keeps the loss of a validation, for --steps 0 --val: it validates --weights or the newest checkpoint. */
static void note_loss(void *context, const struct rt_program *p, const struct rt_ended *of) {
    (void)p;
    *(double *)context = of->validation;
}

static void evaluate(const struct compile *c, const struct settings *settings, struct data *data, struct data *held_out,
                     const struct introduction *introduction) {
    double loss = NAN;
    int64_t n = data_sequences(held_out), tokens = n * c->spec->model->rt.context;
    struct listener listener = {.ended = note_loss, .context = &loss, .held_out = held_out, .records = true};
    listener.introduction = introduction;
    struct trained trained = train(c, settings, data, 0, 0, NULL, listener);
    int64_t step = trained.result.from;
    const char *of = settings->checkpoint.folder ? format(", of step %lld", (long long)step) : "";
    if (settings->json)
        printf(
            "{\n  \"schema\": 1,\n  \"schedule\": %s,\n  \"steps\": 0,\n  \"step\": %lld,\n  \"validation_loss\": %s,\n"
            "  \"perplexity\": %s,\n  \"sequences\": %lld,\n  \"tokens\": %lld\n}\n",
            quoted(c->spec->name), (long long)step, figure_or_null(loss), figure_or_null(exp(loss)), (long long)n,
            (long long)tokens);
    else
        printf("\nloss      %.4f, perplexity %.4f on %s of %s%s; nothing was trained\n", loss, exp(loss),
               counted(n, "sequence"), counted(c->spec->model->rt.context, "token"), of);
    if (!isfinite(loss))
        fprintf(stderr, "pianola: warning: the loss is %g: the weights are damaged, or belong to another model\n",
                fabs(loss));
    host_free(trained.program, trained.arena);
}

/* Returns how far a loss is from another, relative to that one. Losses that agree in not being finite are equal. */
static double relative_difference(double loss, double other) {
    bool equal = loss == other || (isnan(loss) && isnan(other));
    double difference = equal ? 0 : fabs(loss - other) / fabs(other);
    return isnan(difference) ? INFINITY : difference;
}

/* Trains the same jobs on one rank. With --compare, runs the same steps; otherwise runs enough steps to measure the
 * jobs' durations on a GPU. */
static struct prediction train_alone(const struct compile *c, const struct settings *settings, struct data *data,
                                     const struct trained *trained, struct outcome *outcome) {
    bool long_ones = outcome->measured * c->spec->workers > 1;
    int64_t steps = settings->train.one_rank ? settings->train.steps : long_ones ? 1 : 3;
    struct compile serial = compile_serial(c);
    struct trained alone =
        train(&serial, settings, data, steps, 1, settings->train.one_rank ? "one rank" : NULL, (struct listener){0});
    for (int64_t s = 0; settings->train.one_rank && s < settings->train.steps; s++)
        outcome->largest = fmax(outcome->largest, relative_difference(trained->loss[s], alone.loss[s]));
    outcome->same_weights = settings->train.one_rank && hash_trained(alone.program, alone.arena) == outcome->weights;
    host_free(alone.program, alone.arena);
    return predict_from_one(c, &serial, &alone, steps);
}

static struct outcome outcome_of(const struct compile *c, const struct settings *settings,
                                 const struct trained *trained) {
    const struct rt_result *result = &trained->result;
    int64_t from = result->from, here = result->done - from;
    struct outcome outcome = {.steps = result->done, .from = from, .norm = result->norm, .routed = result->routed};
    outcome.first = trained->loss[from];
    outcome.last = trained->loss[result->done - 1];
    outcome.step = trained->seconds / (double)here;
    outcome.tokens_per_second = (double)c->spec->model->rt.rows * trained->program->model->batches / outcome.step;
    outcome.weights = hash_trained(trained->program, trained->arena);
    outcome.measured = run_makespan(trained);
    outcome.timed = run_timed(result);
    outcome.twice = result->twice;
    outcome.cores = settings->train.cuda ? 1 : usable_cores();
    outcome.cuda = settings->train.cuda ? &trained->cuda : NULL;
    return outcome;
}

/* Trains and reports; returns the exit status. If a signal ended the run, predicts nothing, because the steps to be
 * timed come last. */
static int train_steps(const struct compile *c, const struct settings *settings, struct data *data,
                       struct data *held_out, const struct introduction *introduction) {
    bool times = settings->record.timeline || !settings->train.cuda;
    int64_t kept = times ? timeline_kept(settings->train.steps) : 0;
    struct trained trained = train_and_record(c, settings, data, held_out, kept, introduction);
    struct outcome outcome = outcome_of(c, settings, &trained);
    struct prediction prediction = {NAN, NAN};
    bool whole = trained.result.signal == 0;
    host_free(trained.program, trained.arena);
    if (whole && (settings->train.cuda || settings->train.one_rank))
        prediction = train_alone(c, settings, data, &trained, &outcome);
    if (whole && !settings->train.cuda) {
        struct work work = run_work(&trained, outcome.cores);
        prediction = (struct prediction){predict_from_work(c, &work)->step, all_work(c->program, &work)};
    }
    outcome.compared = whole && settings->train.one_rank;
    outcome.predicted = prediction.makespan;
    outcome.work = prediction.work;
    if (whole && settings->record.timeline)
        run_timeline(&trained, settings->train.cuda ? 0 : outcome.cores, settings->record.timeline);
    else if (settings->record.timeline)
        fprintf(stderr, "pianola: no step was left to measure: wrote no timeline\n");
    (settings->json ? print_json : print_text)(c, &outcome);
    return whole ? 0 : 128 + trained.result.signal;
}

int cmd_run(const struct settings *given) {
    struct settings own = *given, *settings = &own;
    if (settings->train.validate_every > settings->train.steps && settings->train.steps > 0)
        settings->train.validate_every = settings->train.steps; /* else no validation would run */
    if (settings->published.weights)
        model_of_weights(&settings->args, settings->published.weights);
    struct compile c = {.args = settings->args};
    compile_all(&c, "");
    check_run(&c, settings);
    if (settings->published.weights)
        tell_difference(settings->published.weights, c.costs->stage, c.spec->stages + c.spec->names.sets,
                        c.spec->model->rt.context);
    char why[512];
    struct rt_model model = trained_model(c.spec, c.program);
    struct data *data = data_open(&model, settings->train.data, settings->seed, why, sizeof why);
    if (!data)
        die("%s", why);
    struct data *held_out = NULL;
    if (settings->train.held_out &&
        !(held_out = data_open(&model, settings->train.held_out, settings->seed, why, sizeof why)))
        die("%s", why);
    if (held_out)
        data_hold_out(held_out, data_sequences(held_out));
    struct introduction introduction = introduction_of(&c, settings);
    if (settings->train.steps == 0) {
        if (held_out)
            evaluate(&c, settings, data, held_out, &introduction);
        else
            tell_first_loss(&c, settings, data, &introduction);
        data_close(data);
        if (held_out)
            data_close(held_out);
        return 0;
    }
    int code = train_steps(&c, settings, data, held_out, &introduction);
    data_close(data);
    if (held_out)
        data_close(held_out);
    return code;
}
