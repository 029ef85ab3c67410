/* `pianola run`: hands the compiled program to the runtime, in this process. */
#include "../../runtime/store/losses.h"
#include "../../runtime/store/progress.h"
#include "../../runtime/store/timeline.h"
#include "base/put_json.h"
#include "command.h"
#include "compile.h"
#include "files.h"
#include "passes/layers.h"
#include "runtime_program.h"
#include "terminal.h"
#include "training.h"
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the same jobs on one rank ---- */

static struct compile compile_serial(const struct compile *c) {
    struct spec *sp = NEW(struct spec, 1);
    *sp = *c->spec;
    sp->name = "serial";
    sp->workers = 1;
    sp->strict = false;
    sp->link = NULL;
    sp->speed = NULL;
    sp->memory = sp->host_memory = INFINITY;
    sp->offload = NULL;
    sp->offload_state = NULL;
    sp->auto_offload = false;
    sp->cap = NEW(int, 1);
    sp->slots = NEW(int, 1);
    sp->cap[0] = INT32_MAX;
    sp->job = NEW(struct job, sp->njobs);
    memcpy(sp->job, c->spec->job, sizeof *sp->job * (size_t)sp->njobs);
    for (int j = 0; j < sp->njobs; j++) {
        sp->job[j].rank = sp->job[j].home = sp->job[j].pair = 0;
        sp->job[j].prio = sp->job[j].b;
    }
    sp->update = NULL; /* one rank tells what jobs take, whichever weights they read */
    sp->nupdates = 0;
    sp->step = sp->batches;
    sp->pred = NULL; /* the default dependencies: a custom pred() must not change the result */
    sp->homes = find_homes(sp);
    struct compile serial = {.spec = sp, .stage = NEW(struct stage, sp->stages + sp->tied)};
    memcpy(serial.stage, c->stage, sizeof *c->stage * (size_t)(sp->stages + sp->tied));
    cost_homes(sp, serial.stage);
    sp->stage = serial.stage;
    compile_all(&serial, "");
    return serial;
}

/* ---- training ---- */

struct told {
    struct progress progress;
    struct losses *losses; /* NULL: nobody asks */
    const struct rt_program *program;
};

static void tell(void *context, int64_t step, float loss, double seconds) {
    struct told *told = context;
    progress_tell(&told->progress, step, loss, seconds);
}

/* The ranks' threads are at work: only the process can end. */
static void tell_losses(void *context, int64_t step, const float *loss, const double *when) {
    const struct told *told = context;
    const struct rt_program *p = told->program;
    char why[512];
    if (losses_step(told->losses, step, p->batches, &p->stage[p->stages - 1], loss, when, why, sizeof why))
        return;
    fprintf(stderr, "%spianola: error: %s\n", told->progress.tty ? "\n" : "", why);
    _exit(2);
}

/* The library is in the program's folder, or in lib/ under its prefix; PIANOLA_CUDA overrides both. */
static cuda_train_function *cuda_library(void) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/'), *dir = format("%.*s", slash ? (int)(slash - self) : 0, self);
    const char *named = getenv("PIANOLA_CUDA"), *beside = format("%s/libpianola-cuda.so", dir);
    const char *path = named ? named : access(beside, F_OK) == 0 ? beside : format("%s/../lib/libpianola-cuda.so", dir);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *train = library ? dlsym(library, "cuda_train") : NULL;
    if (!train)
        die("--device cuda needs its own library: %s; `make gpu` builds it where nvcc is", dlerror());
    return (cuda_train_function *)(uintptr_t)train;
}

static char **train_on_cuda(const struct rt_run *run, const struct settings *settings, struct cuda_run *cuda) {
    char why[512];
    *cuda = (struct cuda_run){.run = *run, .algorithms = settings->algorithms, .graph = !settings->eager};
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
            "pianola: %d ranks on %s, %s; device memory planned %lld bytes, taken %lld%s; %.1f us of CPU a step\n",
            cuda->run.program->workers, cuda->device,
            settings->eager ? "each step enqueued anew" : "one graph for the step", (long long)cuda->planned,
            (long long)cuda->taken, pinned, 1e6 * cuda->host);
}

struct trained train(const struct compile *c, const struct settings *settings, struct data *data, int64_t steps,
                     int64_t kept, const char *what, struct losses *losses) {
    struct trained trained = {.program = runtime_program(c->spec, c->stage, c->program), .kept = kept};
    int W = c->program->workers;
    trained.loss = NEW(float, steps);
    trained.makespan = NEW(double, steps);
    trained.stamp = NEW(struct rt_stamp *, W);
    for (int r = 0; r < W; r++)
        trained.stamp[r] = NEW(struct rt_stamp, kept * c->program->rank[r].nins);
    struct told told = {.losses = losses, .program = trained.program};
    told.progress = (struct progress){.what = what, .steps = steps, .tty = isatty(STDERR_FILENO)};
    told.progress.tokens = (int64_t)c->spec->model->rt.rows * trained.program->batches;
    struct rt_run run = {
        .program = trained.program, .data = data, .seed = settings->seed, .steps = steps, .loss = trained.loss};
    run.stamp = kept ? trained.stamp : NULL;
    run.kept = kept;
    run.makespan = trained.makespan;
    run.progress = what ? tell : NULL;
    run.ended = losses ? tell_losses : NULL;
    run.context = &told;
    trained.arena = settings->cuda ? train_on_cuda(&run, settings, &trained.cuda) : host_train(&run);
    if (!trained.arena)
        die("out of memory: the ranks of this schedule together need more than this machine has");
    if (settings->cuda && what)
        tell_device(settings, &trained.cuda);
    for (int64_t s = 0; s < steps; s++)
        trained.seconds += trained.makespan[s];
    return trained;
}

double median(const double *x, int64_t n) {
    double *a = NEW(double, n);
    memcpy(a, x, sizeof *a * (size_t)n);
    qsort(a, (size_t)n, sizeof *a, by_value);
    return n % 2 ? a[n / 2] : (a[n / 2 - 1] + a[n / 2]) / 2;
}

/* The predicted makespan, with each job's cost as measured alone on one rank. */
static double predict(const struct compile *c, const struct compile *serial, const struct trained *alone) {
    struct spec sp = *c->spec;
    int sets = sp.stages + sp.tied;
    struct stage *st = NEW(struct stage, sets);
    memcpy(st, c->stage, sizeof *st * (size_t)sets);
    double *cost = NEW(double, sets *NOPS);
    int *n = NEW(int, sets *NOPS);
    const struct rank *k = &serial->program->rank[0];
    double took = 0, flop = 0;
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        double t = alone->stamp[0][i].end - alone->stamp[0][i].start;
        cost[x->stage * NOPS + x->op] += t;
        n[x->stage * NOPS + x->op]++;
        took += is_job(x->op) ? t : 0;
        flop += is_job(x->op) ? st[x->stage].flop[x->op] : 0;
    }
    sp.flops = flop / took; /* for work that one rank never does: adding parts of gradients */
    for (int i = 0; i < sets * NOPS; i++)
        cost[i] /= n[i] ? n[i] : 1;
    int njobs = all_jobs(&sp);
    sp.job = NEW(struct job, njobs);
    memcpy(sp.job, c->spec->job, sizeof *sp.job * (size_t)njobs);
    for (int j = 0; j < njobs; j++) {
        sp.job[j].cost = cost[sp.job[j].s * NOPS + sp.job[j].d];
        sp.job[j].pair = 0; /* a device has one compute lane: it runs overlapped jobs sequentially */
    }
    for (int s = 0; s < sets; s++)
        st[s].update = cost[s * NOPS + OP_U];
    sp.link = sp.host_link = NULL;
    sp.speed = NULL;
    struct timeline *tl = sim_run(&sp, st, c->program);
    sim_steady(&sp, st, c->program, tl);
    return tl->step;
}

/* Time 0 is the start of the first kept step. */
static void write_timeline(const struct compile *c, const struct trained *trained, int64_t steps, const char *path) {
    const struct program *p = c->program;
    const char *const **lane = NEW(const char *const *, p->workers);
    double origin = INFINITY;
    for (int r = 0; r < p->workers; r++) {
        lane[r] = lane_names(p, &p->rank[r]);
        for (int i = 0; i < p->rank[r].nins; i++)
            origin = fmin(origin, trained->stamp[r][i].start);
    }
    struct text out = {0};
    FILE *f = open_memstream(&out.s, &out.n);
    if (!f)
        die("%s: %s", path, strerror(errno));
    timeline_head(f);
    for (int64_t k = 0; k < trained->kept; k++)
        for (int r = 0; r < p->workers; r++)
            timeline_rows(f, steps - trained->kept + k, r, &trained->program->rank[r], lane[r],
                          trained->stamp[r] + k * p->rank[r].nins, origin);
    bool ok = !ferror(f);
    if (fclose(f) != 0 || !ok)
        die("%s: no memory for the timeline", path);
    write_file(path, &out);
    free(out.s);
}

struct outcome {
    int64_t steps;
    float first, last;
    double step, tokens_per_second, predicted, measured, work, largest;
    uint64_t weights;
    bool compared, same_weights;
    long cores;                  /* or the number of GPUs */
    const struct cuda_run *cuda; /* or NULL */
};

static void print_text(const struct compile *c, const struct outcome *outcome) {
    printf("\nloss      %.4f to %.4f in %lld steps, %.0f tokens/s\n", outcome->first, outcome->last,
           (long long)outcome->steps, outcome->tokens_per_second);
    if (outcome->compared)
        printf("one rank  the same %lld steps: losses differ by %.2g at most (relative), weights %s\n",
               (long long)outcome->steps, outcome->largest,
               outcome->same_weights ? "equal bit for bit" : "not bit for bit");
    printf("weights   %016llx (fingerprint)\n", (unsigned long long)outcome->weights);
    printf("makespan  predicted %.2f ms, measured %.2f ms (median step)", 1e3 * outcome->predicted,
           1e3 * outcome->measured);
    if (outcome->cores < c->spec->workers && outcome->cuda)
        printf("; %d ranks share one GPU, on which one rank takes %.2f ms", c->spec->workers, 1e3 * outcome->work);
    else if (outcome->cores < c->spec->workers)
        printf("; %d ranks share %ld cores, which takes at least %.2f ms", c->spec->workers, outcome->cores,
               1e3 * outcome->work / (double)outcome->cores);
    printf("\n");
}

static void print_json(const struct compile *c, const struct outcome *outcome) {
    printf("{\n  \"schema\": 1,\n  \"schedule\": %s,\n  \"steps\": %lld,\n", quoted(c->spec->name),
           (long long)outcome->steps);
    printf("  \"loss_first\": %.9g,\n  \"loss_last\": %.9g,\n", outcome->first, outcome->last);
    printf("  \"seconds_per_step\": %.6g,\n  \"tokens_per_second\": %.6g,\n", outcome->step,
           outcome->tokens_per_second);
    if (outcome->compared)
        printf("  \"one_rank_largest_difference\": %.9g,\n  \"one_rank_same_weights\": %s,\n", outcome->largest,
               outcome->same_weights ? "true" : "false");
    if (outcome->cuda)
        printf("  \"device\": \"%s\",\n  \"device_bytes_planned\": %lld,\n  \"device_bytes_taken\": %lld,\n"
               "  \"host_bytes_planned\": %lld,\n  \"host_bytes_taken\": %lld,\n  \"cpu_seconds_per_step\": %.6g,\n",
               outcome->cuda->device, (long long)outcome->cuda->planned, (long long)outcome->cuda->taken,
               (long long)outcome->cuda->host_planned, (long long)outcome->cuda->host_taken, outcome->cuda->host);
    printf("  \"makespan_predicted\": %.9g,\n  \"work\": %.9g,\n  \"%s\": %ld,\n", outcome->predicted, outcome->work,
           outcome->cuda ? "gpus" : "cores", outcome->cores);
    printf("  \"weights\": \"%016llx\",\n  \"makespan_measured\": %.9g\n}\n", (unsigned long long)outcome->weights,
           outcome->measured);
}

void check_device(const struct compile *c, bool cuda) {
    const struct model *m = c->spec->model;
    int number = 0; /* the layer's number, as users count */
    if (!cuda && m->rt.precision == BF16)
        die("%s: precision = \"bf16\" runs on GPUs only; train with --device cuda, or set precision = \"fp32\"",
            c->args.model);
    for (int s = 0; cuda && s < c->spec->stages; s++)
        for (int i = 0; i < c->stage[s].rt.nlayers; i++) {
            const struct rt_layer *l = &c->stage[s].rt.layer[i];
            number += row_of(l->kind)->block == 0;
            if (l->kind == LAYER_attention && l->out / l->heads > CUDA_HEAD)
                die("layer %d (attention): its heads have %d columns; --device cuda takes at most %d: use at least "
                    "heads = %d",
                    number, l->out / l->heads, CUDA_HEAD, (l->out + CUDA_HEAD - 1) / CUDA_HEAD);
        }
}

/* Dies if an option's file is none to write to. */
static void check_written(const char *option, const char *path, const struct compile *c,
                          const struct settings *settings) {
    if (path && strcmp(path, "-") == 0)
        die("--%s -: the report goes to stdout; name a file", option);
    check_apart(path, settings->data);
    check_target(path, &c->args);
}

/* Dies, before any work, if the request cannot be met. */
static void check_run(const struct compile *c, const struct settings *settings) {
    if (!c->spec->model)
        die("`run` trains a model: give one with --model, e.g. --model schedules/models/gpt.lua");
    if (is_costs(c->spec))
        die("%s: is a model of costs, which has no layers to train; give one with layers, e.g. --model "
            "schedules/models/gpt.lua, or see the prediction: `pianola show`",
            c->args.model);
    check_device(c, settings->cuda);
    if (settings->algorithms && !settings->cuda)
        die("--algorithms is about GPUs: train with --device cuda");
    if (settings->one_rank && c->spec->update)
        die("--compare: one rank would train otherwise, as the stages of this schedule are updated before others are "
            "done; compare the losses of two runs, which --losses writes");
    check_written("timeline", settings->timeline, c, settings);
    check_written("losses", settings->losses, c, settings);
    if (settings->timeline && settings->losses)
        check_apart(settings->losses, settings->timeline);
}

/* Prints what will run, and on what. */
static void print_plan(const struct compile *c, const struct settings *settings, const struct style *style) {
    const char *blas = host_blas();
    if (!settings->json) {
        struct text t = {0};
        emit_grid(&t, c->program, c->timeline, c->report->unit, style);
        emit_report(&t, c->report, style);
        fwrite(t.s, 1, t.n, stdout);
        fflush(stdout);
    }
    if (c->spec->model->rt.input == INPUT_TOKENS && !settings->data)
        fprintf(stderr, "pianola: no --data: training on random tokens; give a text with --data FILE\n");
    if (!settings->cuda)
        fprintf(stderr, "pianola: %d ranks in one process, OpenBLAS kernel %s, one thread a rank\n", c->spec->workers,
                blas);
}

int cmd_run(const struct settings *settings) {
    struct style style = terminal_style(settings);
    struct compile c = {.args = settings->args};
    compile_all(&c, "");
    check_run(&c, settings);
    char why[512];
    struct rt_model model = trained_model(c.spec, c.program);
    struct data *data = data_open(&model, settings->data, settings->seed, why, sizeof why);
    if (!data)
        die("%s", why);
    print_plan(&c, settings, &style);
    int64_t kept = settings->timeline ? settings->steps - timeline_first(0, settings->steps) : 0;
    struct losses losses;
    if (settings->losses && !losses_open(&losses, settings->losses, 0, why, sizeof why))
        die("%s", why);
    struct trained trained =
        train(&c, settings, data, settings->steps, kept, "training", settings->losses ? &losses : NULL);
    if (settings->losses)
        losses_close(&losses);
    struct outcome outcome = {.steps = settings->steps,
                              .first = trained.loss[0],
                              .last = trained.loss[settings->steps - 1],
                              .compared = settings->one_rank};
    outcome.step = trained.seconds / (double)settings->steps;
    outcome.tokens_per_second = (double)c.spec->model->rt.rows * trained.program->batches / outcome.step;
    outcome.weights = fingerprint(trained.program, trained.arena);
    outcome.measured = median(trained.makespan, settings->steps);
    outcome.cores = settings->cuda ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
    outcome.cuda = settings->cuda ? &trained.cuda : NULL;
    int64_t steps = settings->one_rank ? settings->steps : 3; /* on one rank */
    struct compile serial = compile_serial(&c);
    struct trained alone = train(&serial, settings, data, steps, 1, settings->one_rank ? "one rank" : NULL, NULL);
    outcome.predicted = predict(&c, &serial, &alone);
    outcome.work = median(alone.makespan, steps);
    for (int64_t s = 0; settings->one_rank && s < settings->steps; s++)
        outcome.largest = fmax(outcome.largest, fabs((double)trained.loss[s] - alone.loss[s]) / fabs(alone.loss[s]));
    outcome.same_weights = settings->one_rank && fingerprint(alone.program, alone.arena) == outcome.weights;
    if (settings->timeline)
        write_timeline(&c, &trained, settings->steps, settings->timeline);
    (settings->json ? print_json : print_text)(&c, &outcome);
    host_free(trained.program, trained.arena);
    host_free(alone.program, alone.arena);
    data_close(data);
    return 0;
}
