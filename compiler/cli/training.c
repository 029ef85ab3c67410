/* Training with all ranks in this process, on the host or on one GPU. */
#include "training.h"
#include "../../runtime/store/import.h"
#include "../../runtime/units/unit_check.h"
#include "cuda_library.h"
#include "passes/layers.h"
#include "passes/runtime_program.h"
#include "unit_library.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void check_device(const struct compile *c, bool cuda) {
    const struct model *m = c->spec->model;
    if (is_costs(c->spec))
        die("%s: is a cost model, which has no layers to train; give one with layers, e.g. --model "
            "schedules/models/gpt.lua, or see the prediction: `pianola show`",
            c->args.model);
    if (!cuda && m->rt.precision == BF16)
        die("%s: precision = \"bf16\" runs on GPUs only; train with --device cuda, or set precision = \"fp32\"",
            c->args.model);
    for (int s = 0; cuda && s < c->spec->stages; s++)
        for (int i = 0; i < c->costs->stage[s].rt.nlayers; i++) {
            const struct rt_layer *l = &c->costs->stage[s].rt.layer[i];
            if (l->kind == LAYER_attention && l->out / l->config.attention.heads > CUDA_HEAD)
                die("%s: its heads have %d columns; --device cuda takes at most %d: use at least "
                    "heads = %d",
                    where_layer(m, l->index), l->out / l->config.attention.heads, CUDA_HEAD,
                    (l->out + CUDA_HEAD - 1) / CUDA_HEAD);
            if (l->kind == LAYER_attention && c->spec->names.slices > CUDA_SLICES)
                die("%s: %d slices of a microbatch read each other's keys and values; --device cuda takes at most %d",
                    where_layer(m, l->index), c->spec->names.slices, CUDA_SLICES);
        }
    open_units(m, cuda);
}

struct told {
    struct listener listener;
    const struct rt_program *program;
};

static void tell_step_loss(void *context, const struct rt_ended *of) {
    const struct told *told = context;
    told->listener.ended(told->listener.context, told->program, of);
}

static void introduce(void *context) {
    const struct introduction *introduction = ((const struct told *)context)->listener.introduction;
    if (introduction->out.n > 0)
        fwrite(introduction->out.s, 1, introduction->out.n, stdout);
    fflush(stdout);
    if (introduction->notes.n > 0)
        fwrite(introduction->notes.s, 1, introduction->notes.n, stderr);
}

static char **train_on_cuda(const struct rt_run *run, struct cuda_run *cuda) {
    char why[512];
    *cuda = (struct cuda_run){.run = *run};
    char **arena = cuda_library()(cuda, why, sizeof why);
    if (!arena)
        die("%s", why);
    return arena;
}

static void tell_device(const struct settings *settings, const struct cuda_run *cuda) {
    const char *pinned = cuda->host_planned == 0 ? ""
                                                 : format("; pinned host memory planned %lld, taken %lld",
                                                          (long long)cuda->host_planned, (long long)cuda->host_taken);
    fprintf(stderr,
            "pianola: %s on %s, %s; device memory planned %lld bytes, taken %lld, at the end %lld%s; "
            "%.1f us of CPU a step\n",
            counted(cuda->run.program->workers, "rank"), cuda->device,
            settings->train.eager ? "each step enqueued anew" : "one graph for the step", (long long)cuda->planned,
            (long long)cuda->taken, (long long)cuda->at_end, pinned, 1e6 * cuda->host);
}

/* Opens the file of weights before any rank starts; a missing tensor is the user's error. NULL: weights are random. */
static struct named_file *open_weights(const struct settings *settings, const struct rt_program *p) {
    char why[1000] = "";
    if (!settings->published.weights)
        return NULL;
    struct named_file *file = named_open(settings->published.weights, why, sizeof why);
    bool ok = file;
    for (int s = 0; ok && s < p->sets; s++)
        ok = import_check(file, p->model, &p->stage[s], why, sizeof why);
    if (!ok || !import_check_rest(file, why, sizeof why))
        die("%s", why);
    if (*why)
        fprintf(stderr, "pianola: warning: %s\n", why);
    return file;
}

/* Dies if the arenas of all ranks exceed this machine's memory; the kernel would only kill the process. */
static void check_machine_memory(const struct compile *c) {
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), needed = 0;
    const struct rt_model *model = &c->spec->model->rt;
    for (int r = 0; r < c->program->workers; r++)
        needed += (double)(c->program->rank[r].arena + c->program->rank[r].host);
    if (needed > machine)
        die("the ranks of this schedule together need %.1f GB of memory, and this machine has %.1f GB; use %s",
            1e-9 * needed, 1e-9 * machine,
            model->input == INPUT_TOKENS ? format("fewer or shorter rows than %d of %d tokens: -D rows=N -D context=N",
                                                  model->rows / model->context, model->context)
                                         : "microbatches of fewer rows, or a smaller model");
}

/* Returns "; to continue from the newest checkpoint: COMMAND", or NULL without --checkpoint. */
static const char *how_to_go_on(const struct settings *settings) {
    return settings->checkpoint.folder ? format("; to continue from the newest checkpoint: %s%s", settings->command,
                                                settings->checkpoint.resume ? "" : " --resume")
                                       : NULL;
}

/* Returns the flags with which a rank's own program would run the same training. */
static struct rank_flags flags_of(const struct settings *settings, int64_t steps, bool records) {
    struct rank_flags flags = {.steps = steps, .seed = (int64_t)settings->seed, .json = settings->json};
    flags.eager = settings->train.eager;
    flags.algorithms = settings->train.algorithms;
    flags.val_every = settings->train.validate_every;
    if (!records)
        return flags;
    flags.checkpoint = settings->checkpoint.folder;
    flags.resume = settings->checkpoint.resume;
    flags.new_data = settings->checkpoint.new_data;
    flags.every = settings->checkpoint.every;
    flags.keep = settings->checkpoint.keep;
    flags.deadline = settings->train.deadline;
    flags.flight = settings->record.flight;
    flags.allow_nonfinite = settings->train.allow_nonfinite;
    flags.how = how_to_go_on(settings);
    flags.losses = settings->record.losses;
    flags.metrics = settings->record.metrics;
    flags.tensorboard = settings->record.tensorboard;
    return flags;
}

/* Tests the model's units on the host. (For a GPU, the CUDA library tests them on the GPU.) */
static void test_units(const struct rt_program *p) {
    char why[512];
    if (!units_check(p, &unit_memory_host, why, sizeof why))
        die("%s", why);
}

static void take_results(struct trained *trained, struct rt_run *run, int64_t steps) {
    int W = trained->program->workers;
    trained->loss = NEW(float, steps + 1);
    trained->makespan = NEW(double, steps + 1);
    trained->stamp = NEW(struct rt_stamp *, W);
    for (int r = 0; r < W; r++)
        trained->stamp[r] = NEW(struct rt_stamp, trained->kept * trained->program->rank[r].nins);
    run->loss = trained->loss;
    run->makespan = trained->makespan;
    run->stamp = trained->kept ? trained->stamp : NULL;
    run->kept = trained->kept;
    run->result = &trained->result;
}

struct trained train(const struct compile *c, const struct settings *settings, struct data *data, int64_t steps,
                     int64_t kept, const char *what, struct listener listener) {
    struct trained trained = {.program = runtime_program(c->costs, c->program), .kept = kept};
    struct told told = {listener, trained.program};
    struct rt_run run = {.program = trained.program, .data = data, .held_out = listener.held_out, .what = what};
    open_units(c->spec->model, settings->train.cuda);
    if (!settings->train.cuda)
        test_units(trained.program);
    take_results(&trained, &run, steps);
    run.flags = flags_of(settings, steps, listener.records);
    run.predicted = listener.predicted;
    run.predicted_step = listener.predicted_step;
    run.looks = listener.records;
    run.begun = listener.introduction ? introduce : NULL;
    run.ended = listener.ended ? tell_step_loss : NULL;
    run.context = &told;
    run.evaluates = settings->train.steps == 0;
    if (!settings->train.cuda)
        check_machine_memory(c);
    run.weights = open_weights(settings, trained.program);
    trained.arena = settings->train.cuda ? train_on_cuda(&run, &trained.cuda) : host_train(&run);
    if (!trained.arena)
        die("out of memory: the ranks of this schedule together need more than this machine has");
    if (run.weights)
        named_close(run.weights);
    if (settings->train.cuda && what)
        tell_device(settings, &trained.cuda);
    for (int64_t s = trained.result.from; s < trained.result.done; s++)
        trained.seconds += trained.makespan[s];
    return trained;
}

double median(const double *x, int64_t n) {
    double *a = NEW(double, n);
    memcpy(a, x, sizeof *a * (size_t)n);
    sort(a, (size_t)n, sizeof *a, by_value);
    return n % 2 ? a[n / 2] : (a[n / 2 - 1] + a[n / 2]) / 2;
}
