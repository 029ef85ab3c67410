/* Training with several updates per step, on the host: against PipeDream's definition, and against the same step
 * without a period. */
#include "cli/pipeline.h"
#include "passes/runtime_program.h"
#include "handmade.h"
#include "passes/passes.h"
#include "process/train.h"
#include "script/scripts.h"
#include <criterion/criterion.h>

enum { STEPS = 3, SEED = 5, MOST_SET = 8 };

struct trained {
    struct compile c;
    struct rt_program *p;
    char **arena;
    float *loss; /* loss of each microbatch of all steps */
    int64_t told;
    double *when;
};

static void keep(void *context, const struct rt_ended *of) {
    struct trained *t = context;
    int64_t step = of->step;
    const double *when = of->when;
    int N = t->p->batches, n = updates_per_step(N, &t->p->stage[t->p->stages - 1]);
    cr_assert_eq(step, t->told++);
    memcpy(t->loss + step * N, of->loss, sizeof *of->loss * (size_t)N);
    for (int k = 0; k < n; k++) {
        double before = k > 0 ? when[k - 1] : step > 0 ? t->when[step * n - 1] : 0;
        cr_assert(when[k] > before && when[k] < 100, "update %d of step %d ends at %g s", k, (int)step, when[k]);
        t->when[step * n + k] = when[k];
    }
}

static struct data *open_data(const struct rt_program *p) {
    char why[200];
    struct data *data = data_open(p->model, NULL, SEED, why, sizeof why);
    cr_assert_not_null(data, "%s", why);
    return data;
}

static void train(struct trained *t) {
    float mean[STEPS];
    double makespan[STEPS];
    t->p = runtime_program(t->c.costs, t->c.program);
    t->loss = NEW(float, STEPS * t->p->batches);
    t->when = NEW(double, STEPS * t->p->batches);
    struct data *data = open_data(t->p);
    struct rt_run run = {.program = t->p, .data = data, .flags = {.seed = SEED, .steps = STEPS}, .loss = mean};
    run.makespan = makespan;
    run.ended = keep;
    run.context = t;
    t->arena = host_train(&run);
    cr_assert_not_null(t->arena);
    cr_assert_eq(t->told, STEPS);
    data_close(data);
}

static struct script_args args_of(const char *schedule, const char *model, const char *settings) {
    struct script_args args = {.schedule = format("schedules/%s.lua", schedule)};
    args.model = format("schedules/models/%s.lua", model);
    args.set = NEW(const char *, MOST_SET);
    char *words = format("%s", settings);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        args.set[args.nset++] = word;
    return args;
}

static struct trained *train_compiled(struct script_args args) {
    struct trained *t = NEW(struct trained, 1);
    t->c.args = args;
    compile_all(&t->c, "");
    train(t);
    return t;
}

/* Trains with every microbatch of the step written out as its own instructions. */
static struct trained *train_written_out(struct script_args args) {
    struct trained *t = NEW(struct trained, 1);
    struct compile *c = &t->c;
    args.most = 0;
    c->spec = script_load(&args);
    c->costs = costs_make(c->spec);
    c->graph = graph_build(c->costs);
    c->sched = sched_of(c->spec, c->costs, c->graph);
    c->program = lower_of(c->spec, c->costs, c->graph, c->sched);
    mem_of(c->spec, c->program);
    lanes_sync(c->program);
    cr_assert_eq(c->program->period, 0);
    train(t);
    return t;
}

static const float *weights_of(const struct trained *t, int r, int s) {
    for (int h = 0; h < t->p->rank[r].nhomes; h++)
        if (t->p->rank[r].home[h].stage == s)
            return (const float *)(void *)(t->arena[r] + t->p->rank[r].home[h].weight);
    return NULL;
}

static void expect_weights(const struct trained *t, int s, const float *wanted, const char *what) {
    int homes = 0;
    for (int r = 0; r < t->p->workers; r++) {
        const float *w = weights_of(t, r, s);
        homes += w != NULL;
        cr_assert(!w || !memcmp(w, wanted, (size_t)t->p->stage[s].weight), "%s: weights of stage %d on rank %d", what,
                  s, r);
    }
    cr_assert_eq(homes > 0, t->p->stage[s].weight > 0);
}

/* ---- the definition ---- */

/* Version k of a stage's weights follows k updates of the step. A microbatch's forward and backward each read one. */
struct reference {
    const struct trained *t;
    struct rt_model alone;    /* steps of one microbatch with one update: nothing is scaled */
    struct rt_stage stage[8]; /* stages of that model */
    struct bench bench;
    float *version[8], *opt[8]; /* per stage: version k from k * weight_count on; the optimizer state */
    int (*reads)(const struct rt_program *p, int s, int b);
};

/* Narayanan 2019, section 3.3: of S stages, stage s has S - s in-flight microbatches. So its forward of microbatch b
 * follows the backward, and so the update, of b - (S - s). */
static int reads_stashed(const struct rt_program *p, int s, int b) {
    int newest = b - (p->stages - s) + 1;
    return newest > 0 ? newest : 0;
}
/* Narayanan 2021, section 3.1: the gradient of W(t - 1) turns W(t) into W(t + 1). */
static int reads_delayed(const struct rt_program *p, int s, int b) {
    int k = b / p->stage[s].update - 1;
    return k > 0 ? k : 0;
}
/* Vertical sync (Narayanan 2019, section 3.3): every stage reads the version that the first one reads. */
static int reads_vertical(const struct rt_program *p, int s, int b) {
    (void)s;
    return reads_stashed(p, 0, b);
}

static void one_microbatch(struct reference *ref, int64_t step, int b, const struct rt_batch *batch) {
    const struct rt_program *p = ref->t->p;
    float loss;
    for (int s = 0; s < p->stages; s++) {
        struct rt_bind *at = &ref->bench.at[s];
        at->w = ref->version[s] + ref->reads(p, s, b) * weight_count(p->model, &p->stage[s]);
        at->batch = batch;
        at->loss = &loss;
        at->first = b % p->stage[s].update == 0;
        host_forward(&ref->alone, &ref->stage[s], at);
    }
    cr_assert_eq(loss, ref->t->loss[step * p->batches + b], "loss of microbatch %d in step %d", b, (int)step);
    for (int s = p->stages - 1; s >= 0; s--)
        host_backward(&ref->alone, &ref->stage[s], &ref->bench.at[s], true, true);
    for (int s = 0; s < p->stages; s++) {
        int m = p->stage[s].update, k = b / m;
        int64_t n = weight_count(p->model, &p->stage[s]);
        float *next = ref->version[s] + (k + 1) * n, *dw = ref->bench.at[s].dw;
        if (b % m < m - 1)
            continue;
        for (int64_t i = 0; i < n; i++)
            dw[i] *= 1.0f / (float)m;
        memcpy(next, next - n, (size_t)n * sizeof *next);
        host_update(&(struct rt_update){.piece = {&ref->alone, &ref->stage[s], 0, n},
                                        .w = next,
                                        .dw = dw,
                                        .opt = ref->opt[s],
                                        .number = step * (p->batches / m) + k + 1});
    }
}

static void expect_definition(const char *schedule, const char *model, const char *settings,
                              int (*reads)(const struct rt_program *p, int s, int b)) {
    struct reference ref = {.t = train_compiled(args_of(schedule, model, settings)), .reads = reads};
    const struct rt_program *p = ref.t->p;
    struct data *data = open_data(p);
    void *memory = fresh((int64_t)data_bytes(p->model));
    ref.alone = *p->model;
    ref.alone.batches = 1;
    ref.alone.update = 0;
    ref.bench = bench_of(ref.t->c.costs->stage, p->stages, NULL);
    cr_assert(p->period > 0 && p->repeats > 3);
    for (int s = 0; s < p->stages; s++) {
        int64_t n = weight_count(p->model, &p->stage[s]);
        ref.stage[s] = p->stage[s];
        ref.stage[s].update = 0;
        ref.version[s] = fresh((p->batches + 1) * p->stage[s].weight);
        ref.opt[s] = fresh(p->stage[s].opt);
        host_init(p->model, &p->stage[s], ref.version[s] + p->batches / p->stage[s].update * n, SEED);
    }
    for (int64_t step = 0; step < STEPS; step++) {
        for (int s = 0; s < p->stages; s++)
            memcpy(ref.version[s],
                   ref.version[s] + p->batches / p->stage[s].update * weight_count(p->model, &p->stage[s]),
                   (size_t)p->stage[s].weight);
        for (int b = 0; b < p->batches; b++) {
            struct rt_batch batch;
            data_batch(data, step, b, memory, &batch);
            one_microbatch(&ref, step, b, &batch);
        }
    }
    for (int s = 0; s < p->stages; s++)
        expect_weights(ref.t, s,
                       ref.version[s] + p->batches / p->stage[s].update * weight_count(p->model, &p->stage[s]),
                       schedule);
    data_close(data);
    host_free(p, ref.t->arena);
    free_all();
}

#define INTEGERS "width=16 rows=16"
#define GPT      "width=16 layers=2 context=8 rows=1 heads=2"

Test(updates, are_those_of_the_papers) {
    host_blas();
    expect_definition("pipedream", "integers", "batches=40 " INTEGERS, reads_stashed);
    expect_definition("pipedream", "gpt", "batches=40 " GPT, reads_stashed);
    expect_definition("pipedream_2bw", "integers", "batches=48 update=6 width=48 rows=16", reads_delayed);
    expect_definition("pipedream_2bw", "gpt", "batches=40 " GPT, reads_delayed);
    expect_definition("pipedream_vertical", "gpt", "batches=40 " GPT, reads_vertical);
}

/* ---- a period, and the same step written out ---- */

static int expect_same(const char *schedule, const char *model, const char *settings) {
    struct script_args args = args_of(schedule, model, settings);
    struct trained *t = train_compiled(args), *all = train_written_out(args);
    const char *what = format("%s, %s, %s", schedule, model, settings);
    bool repeats = t->p->period > 0;
    cr_assert_eq(t->p->batches, all->p->batches);
    cr_assert(!memcmp(t->loss, all->loss, sizeof *t->loss * (size_t)(STEPS * t->p->batches)), "%s: losses", what);
    for (int s = 0; s < t->p->stages; s++)
        for (int r = 0; r < t->p->workers; r++)
            if (weights_of(all, r, s))
                expect_weights(t, s, weights_of(all, r, s), what);
    host_free(t->p, t->arena);
    host_free(all->p, all->arena);
    free_all();
    return repeats;
}

Test(updates, in_a_period_give_the_bits_of_the_step_written_out) {
    static const char *const schedule[] = {"pipedream", "pipedream_2bw", "pipedream_vertical", "pipedream_naive",
                                           "asp",       "bsp",           "model_parallel"};
    int repeat = 0, n = 0;
    host_blas();
    for (size_t i = 0; i < sizeof schedule / sizeof *schedule; i++, n += 2) {
        repeat += expect_same(schedule[i], "integers", "batches=48 width=32 rows=16");
        repeat += expect_same(schedule[i], "gpt", "batches=48 " GPT);
    }
    repeat += expect_same("pipedream", "gpt", "batches=48 replicas=2,1,1 " GPT);
    repeat += expect_same("pipedream", "integers", "batches=120 replicas=3,2 width=48 rows=16");
    cr_assert_gt(repeat, n, "%d of %d repeat a period", repeat, n + 2); /* asp's are long, because its layers differ */
}
