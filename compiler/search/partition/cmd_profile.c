/* `pianola profile`: measures the time that each unit of a model, a layer or a residual block, takes per microbatch.
 *
 * It trains the model on one rank, with a stage per unit, and takes the times of the jobs, as `run --timeline` writes
 * them. */
#include "base/path.h"
#include "base/put_json.h"
#include "cli/files.h"
#include "cli/training.h"
#include "units.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP = 8, MOST = 100000 }; /* microbatches per step; upper bound on those to be timed */

struct timing {
    struct compile c;
    struct profile *profile; /* with medians as its times */
    double *update;          /* [sets]: medians, in seconds */
    int64_t microbatches;
    double step, sum; /* the median step; the sum of its jobs and updates */
};

static void check_profiling(const struct settings *settings) {
    const char *out = settings->output, *fit = settings->fit;
    if (settings->nfiles)
        die("`profile` takes no file, but got '%s'; name a model with --model", settings->file[0]);
    if (!settings->args.model)
        die("`profile` times the layers of a model: give one with --model, e.g. --model schedules/models/gpt.lua");
    if (settings->profile.microbatches > MOST || settings->profile.warm_up > MOST)
        die("--%s: at most %d microbatches", settings->profile.microbatches > MOST ? "microbatches" : "warm-up", MOST);
    if (out && strcmp(out, "-") != 0 && !has_ending(out, ".lua") && !has_ending(out, ".txt"))
        die("-o %s: expected a name that ends in .lua, for a cost model, or in .txt, for PipeDream's graph", out);
    if (out && fit && same_place(out, fit))
        die("-o and --fit both write to %s", out);
    if (fit && strcmp(fit, "-") == 0)
        die("--fit -: the table goes to stdout; name a file");
    check_destination(out, settings);
    check_destination(fit, settings);
}

/* Returns the median of the kept times of an operation of set s on its one rank. */
static double median_time(const struct compile *c, const struct trained *trained, int s, int op) {
    const struct rank *k = &c->program->rank[0];
    struct scratch scratch = scratch_begin();
    double *took = NEW(double, trained->kept * c->spec->batches);
    int64_t n = 0;
    for (int i = 0; i < k->nins; i++)
        for (int64_t step = 0; k->ins[i].stage == s && k->ins[i].op == op && step < trained->kept; step++) {
            const struct rt_stamp *stamp = &trained->stamp[0][step * k->nins + i];
            took[n++] = stamp->end - stamp->start;
        }
    double t = n > 0 ? median(took, n) : 0;
    scratch_end(scratch);
    return t;
}

static void take_times(struct timing *timing, const struct trained *trained, int64_t steps) {
    const struct compile *c = &timing->c;
    int sets = c->spec->stages + c->spec->names.sets;
    timing->update = NEW(double, sets);
    for (int s = 0; s < sets; s++) {
        timing->update[s] = median_time(c, trained, s, OP_U);
        timing->sum += timing->update[s];
    }
    for (int s = 0; s < c->spec->stages; s++) {
        struct profiled *layer = &timing->profile->layer[s];
        layer->forward = median_time(c, trained, s, OP_F);
        layer->backward = median_time(c, trained, s, OP_B);
        timing->sum += c->spec->batches * (layer->forward + layer->backward);
    }
    timing->microbatches = trained->kept * c->spec->batches;
    timing->step = median(trained->makespan + steps - trained->kept, trained->kept);
}

static struct timing measure_layers(const struct settings *settings) {
    int batches = settings->profile.microbatches < STEP ? (int)settings->profile.microbatches : STEP;
    int64_t kept = (settings->profile.microbatches + batches - 1) / batches;
    int64_t steps = kept + (settings->profile.warm_up + batches - 1) / batches;
    struct timing timing = {.c = {.args = settings->args, .spec = script_units(&settings->args, 1, batches)}};
    struct compile *c = &timing.c;
    if (is_costs(c->spec))
        die("%s: is a cost model, which already gives the times of its layers; give one with layers",
            settings->args.model);
    compile_all(c, "");
    check_device(c, settings->train.cuda);
    timing.profile = profile_of(c->costs, settings->args.model);
    host_blas();
    char why[512];
    struct data *data = data_open(&c->spec->model->rt, NULL, settings->seed, why, sizeof why);
    if (!data)
        die("%s", why);
    struct trained trained =
        train(c, settings, data, steps, kept, isatty(STDERR_FILENO) ? "profiling" : NULL, (struct listener){0});
    take_times(&timing, &trained, steps);
    host_free(trained.program, trained.arena);
    data_close(data);
    return timing;
}

/* ---- output ---- */

static const char *measured_text(const struct timing *timing, const struct settings *settings) {
    struct text t = {0};
    put(&t, "`pianola profile` of %s", settings->args.model);
    for (int i = 0; i < settings->args.nset; i++)
        put(&t, " -D %s", settings->args.set[i]);
    put(&t, ", on the %s: medians of %s.", settings->train.cuda ? "GPU" : "CPU",
        counted(timing->microbatches, "microbatch"));
    return t.s;
}

static void put_seconds(struct text *out, const char *op, int n, double (*of)(const struct timing *, int),
                        const struct timing *timing) {
    char buf[32];
    put(out, "  %s = { [0] =", op);
    for (int s = 0; s < n; s++)
        put(out, "%s %s", s ? "," : "", number(round(1e9 * of(timing, s)) / 1e9, buf));
    put(out, " },\n");
}

static double forward_of(const struct timing *timing, int s) { return timing->profile->layer[s].forward; }
static double backward_of(const struct timing *timing, int s) { return timing->profile->layer[s].backward; }
static double update_time(const struct timing *timing, int s) { return timing->update[s]; }

static void put_cluster(struct text *out, const struct timing *timing, const struct settings *settings) {
    int stages = timing->c.spec->stages;
    put(out, "-- %s\n-- Seconds of a stage per layer or residual block, for --cluster.\nlocal seconds = {\n",
        tame(measured_text(timing, settings)));
    put_seconds(out, "F", stages, forward_of, timing);
    put_seconds(out, "B", stages, backward_of, timing);
    put_seconds(out, "U", stages + timing->c.spec->names.sets, update_time, timing);
    put(out,
        "}\n\nreturn cluster {\n  stages = %d,\n"
        "  cost = function(s, op) return seconds[op] and seconds[op][s] end,\n}\n",
        stages);
}

static void put_profile_json(struct text *out, const struct timing *timing, const struct settings *settings) {
    char buf[32];
    const struct profile *p = timing->profile;
    put(out, "{\n  \"schema\": 1,\n  \"model\": %s,\n", quoted(p->name));
    put(out, "  \"device\": \"%s\",\n  \"microbatches\": %lld,\n", settings->train.cuda ? "cuda" : "host",
        (long long)timing->microbatches);
    put(out, "  \"step_microbatches\": %d,\n", timing->c.spec->batches);
    put(out, "  \"step_seconds\": %s,\n", number_or_null(timing->step, buf));
    put(out, "  \"step_sum\": %s,\n  \"layers\": [", number_or_null(timing->sum, buf));
    for (int s = 0; s < p->nlayers; s++) {
        const struct profiled *layer = &p->layer[s];
        put(out, "%s\n    {\"name\": %s", s ? "," : "", quoted(layer->id));
        put(out, ", \"kind\": %s", quoted(layer->what));
        put(out, ", \"forward\": %s", number_or_null(layer->forward, buf));
        put(out, ", \"backward\": %s", number_or_null(layer->backward, buf));
        put(out, ", \"update\": %s", number_or_null(timing->update[s], buf));
        put(out, ", \"activation\": %.0f, \"stash\": %.0f, \"weights\": %.0f}", layer->output, layer->kept,
            layer->weights);
    }
    put(out, "\n  ]\n}\n");
}

static void put_times_table(struct text *out, const struct timing *timing, const struct settings *settings) {
    const struct profile *p = timing->profile;
    double largest = 0, forward = 0, backward = 0;
    char buf[32];
    for (int s = 0; s < p->nlayers; s++)
        largest = fmax(largest, p->layer[s].backward);
    struct measure measure = measure_of(largest, "s", settings->draw.style.ascii);
    put(out, "%s: %s on the %s; times in %s per microbatch, medians of %lld\n\n", p->name, counted(p->nlayers, "layer"),
        settings->train.cuda ? "GPU" : "CPU", measure.name, (long long)timing->microbatches);
    put(out, "layer                     forward  backward  activation       stash     weights\n");
    for (int s = 0; s < p->nlayers; s++) {
        const struct profiled *layer = &p->layer[s];
        put(out, "%-24s", format("%s %s", layer->id, layer->what));
        put(out, " %8s", time_text(layer->forward, &measure, buf));
        put(out, "  %8s", time_text(layer->backward, &measure, buf));
        put(out, "  %10s", bytes_text(layer->output, buf));
        put(out, "  %10s", bytes_text(layer->kept, buf));
        put(out, "  %10s\n", bytes_text(layer->weights, buf));
        forward += layer->forward;
        backward += layer->backward;
    }
    put(out, "%-24s %8s", "all", time_text(forward, &measure, buf));
    put(out, "  %8s\n", time_text(backward, &measure, buf));
    measure = measure_of(timing->step, "s", settings->draw.style.ascii);
    put(out, "\na step of %s took %s %s", counted(timing->c.spec->batches, "microbatch"),
        time_text(timing->step, &measure, buf), measure.name);
    put(out, "; these times and its updates add up to %s %s, %+.1f %%\n", time_text(timing->sum, &measure, buf),
        measure.name, 100 * (timing->sum / timing->step - 1));
}

int cmd_profile(const struct settings *settings) {
    struct text out = {0}, file = {0}, cluster = {0};
    check_profiling(settings);
    struct timing timing = measure_layers(settings);
    if (settings->output) {
        if (has_ending(settings->output, ".txt"))
            emit_graph(&file, timing.profile);
        else
            emit_costs(&file, timing.profile, measured_text(&timing, settings));
        write_file(settings->output, &file);
    }
    if (settings->fit) {
        put_cluster(&cluster, &timing, settings);
        write_file(settings->fit, &cluster);
    }
    if (settings->output && strcmp(settings->output, "-") == 0)
        return 0;
    if (settings->json)
        put_profile_json(&out, &timing, settings);
    else
        put_times_table(&out, &timing, settings);
    write_file("-", &out);
    return 0;
}
