/* Times each layer of a model alone, many times over, and compares with the limits of the device.
 *
 * `pianola run schedules/serial.lua --device cuda` loads this library instead of the runtime (PIANOLA_CUDA). It takes
 * the rank as the runtime does and runs one step. Then it times every layer's forward, input gradient and weight
 * gradient for the first microbatch, at the plan's addresses. Layers of one shape take turns, so that none reads what
 * the previous one left in the cache. The limit is the larger of FLOPs / peak and bytes / bandwidth, where bytes counts
 * each operand once. Layers that a step runs as one kernel (layers_cuda.cu) are timed one by one here. PEAK_TFLOPS
 * gives the peak, 0 for unknown; MEMORY_TBS, or else the device, gives the bandwidth. With LIMITS_ONLY nothing runs,
 * and us is the limit. The lines go to stdout, separated by tabs, followed by facts that begin with a #:
 *
 *     layer  way  count  us  share  flops  bytes  limit_us  of_limit
 *
 * count: per microbatch; us: one alone; share: of all layers and updates of a step, each alone. Each epilogue of a
 * linear layer's product has two more lines, which no sum counts: way fused is the product with it, apart is the
 * product and a kernel; a * marks the one that a step takes. */
#include "process/comm_loopback.cuh"
extern "C" {
#include "device/job.h"
#include "process/train_cuda.h"
}
#include "layers/cuda_math.cuh"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define X(name, ...) &cuda_##name,
static const struct cuda_layer *const kinds[NLAYERS] = {LAYERS(X)};
#undef X
#define X(name, ...) #name,
static const char *const names[NLAYERS] = {LAYERS(X)};
#undef X
static const char *const ways[] = {"forward", "input", "weight"};

struct line {
    char layer[80];
    const char *way;
    int count;
    double us, flops, bytes;
};
struct bench {
    const struct rt_program *p;
    struct replay z;
    struct cuda_rank c;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    bool cudnn;                    /* whether it ran attention */
    bool estimate;                 /* limits only: nothing runs */
    double peak, bandwidth, least; /* peak: FLOP/s, 0 if unknown; bandwidth: bytes/s; least: seconds of a measurement */
    struct line line[3 * NLAYERS * 8];
    int n;
};

static double figure(const char *name, double otherwise) {
    const char *s = getenv(name);
    return s ? atof(s) : otherwise;
}

/* ---- a layer's work ---- */

static void work_of(const struct rt_model *m, const struct rt_layer *l, int way, double *flops, double *bytes) {
    double r = l->rows, x = r * l->in, y = r * l->out, heads = l->config.attention.heads, t = l->context,
           e = precision_bytes(m->precision);
    double w = (double)(l->nparam + shared_table(m, l));
    *flops = 0;
    switch (l->kind) {
    case LAYER_linear:
    case LAYER_unembedding:
        *flops = 2 * r * l->in * l->out;
        *bytes = way == 2 ? e * (x + y) + 4 * w : e * (x + y + w);
        break;
    case LAYER_attention: /* causal: half of the pairs. The backward computes scores again, dp, dv, dq and dk */
        *flops = (way == 0 ? 2 : 5) * t * r * l->out;
        *bytes = way == 0 ? e * (x + y) + 4 * r * heads : e * (2 * x + 2 * y) + 4 * r * heads;
        break;
    case LAYER_embedding: *bytes = way == 0 ? e * 3 * y : e * y + 4 * w; break;
    case LAYER_layernorm: *bytes = (way == 1 ? 3 : 2) * e * x + 8 * r + (way == 2 ? 4 : e) * w; break;
    case LAYER_swiglu:
    case LAYER_geglu: *bytes = e * (way == 0 ? x + y : 2 * x + y); break;
    case LAYER_dropout: *bytes = 2 * e * x; break;
    case LAYER_headnorm:
        *bytes = (way == 1 ? 3 : 2) * e * x + 4 * r * (heads + l->config.attention.kv_heads) + (way == 2 ? 4 : e) * w;
        break;
    case LAYER_rmsnorm: *bytes = (way == 1 ? 3 : 2) * e * x + 4 * r + (way == 2 ? 4 : e) * w; break;
    case LAYER_cross_entropy: *bytes = 2 * e * x; break;
    default: *bytes = (way == 0 && l->kind != LAYER_join ? 2 : 3) * e * x; break;
    }
}

/* ---- timing ---- */

/* Returns the seconds of one run(context, i), with i from 0 to n - 1 in turn. */
template <typename F> static double alone(struct bench *k, int n, F run) {
    for (int rounds = 1;; rounds *= 4) {
        float ms;
        run(0);
        CUDA(cudaEventRecord(k->begin, k->stream));
        for (int i = 0; i < rounds * n; i++)
            run(i % n);
        CUDA(cudaEventRecord(k->end, k->stream));
        CUDA(cudaEventSynchronize(k->end));
        CUDA(cudaEventElapsedTime(&ms, k->begin, k->end));
        if (1e-3 * ms >= k->least)
            return 1e-3 * ms / (rounds * n);
    }
}

static bool alike(const struct rt_layer *a, const struct rt_layer *b) {
    return a->kind == b->kind && a->in == b->in && a->out == b->out && a->nparam == b->nparam &&
           a->config.attention.heads == b->config.attention.heads;
}

static const struct rt_instr *find(const struct bench *k, int op, int stage) {
    const struct rt_rank *rank = &k->p->rank[0];
    for (int32_t i = 0; i < rank->nins; i++)
        if (rank->ins[i].op == op && rank->ins[i].stage == stage)
            return &rank->ins[i];
    return NULL;
}

static void (*function(const struct rt_layer *l, int way))(const struct cuda_call *) {
    const struct cuda_layer *f = kinds[l->kind];
    if (way == 1 && l->dx.space == SP_NONE)
        return NULL;
    return way == 0 ? f->forward : way == 1 ? f->input : f->weight;
}

static struct rt_batch first_batch(const struct bench *k) {
    struct rt_batch batch = {};
    const char *half = k->c.feed.input + data_half(k->p->model);
    if (k->p->model->input == INPUT_TOKENS)
        batch.token = (const int32_t *)k->c.feed.input, batch.target = (const int32_t *)half;
    else
        batch.x = (const float *)k->c.feed.input, batch.y = (const float *)half;
    return batch;
}

static double limit_us(const struct bench *k, const struct line *y) {
    return 1e6 * fmax(k->peak > 0 ? y->flops / k->peak : 0, y->bytes / k->bandwidth);
}

/* Times layer `first` of stage s together with the stage's equal layers. */
static void time_layer(struct bench *k, int s, int first, int way) {
    const struct rt_stage *stage = &k->p->stage[s];
    const struct rt_layer *l = &stage->layer[first];
    struct line *y = &k->line[k->n++];
    snprintf(y->layer, sizeof y->layer, "%s %d x %d to %d", names[l->kind], l->rows, l->in, l->out);
    y->way = ways[way];
    for (int i = 0; i < stage->nlayers; i++)
        y->count += alike(l, &stage->layer[i]);
    work_of(k->p->model, l, way, &y->flops, &y->bytes);
    y->us = limit_us(k, y);
    if (k->estimate)
        return;
    struct rt_batch batch = first_batch(k);
    struct rt_bind at = job_bind(k->p, 0, k->c.arena, find(k, way == 0 ? OP_F : OP_B, s));
    struct cuda_call *call = (struct cuda_call *)calloc((size_t)stage->nlayers, sizeof *call);
    int n = 0;
    at.batch = &batch;
    at.loss = k->c.loss;
    at.first = at.vfirst = true;
    for (int i = 0; i < stage->nlayers; i++)
        if (alike(l, &stage->layer[i]))
            call[n++] = {k->p->model, &stage->layer[i], &at, k->stream, k->c.workspace};
    auto run = function(l, way);
    y->us = 1e6 * alone(k, n, [&](int i) { run(&call[i]); });
    if (l->kind == LAYER_attention && way == 0)
        k->cudnn = cuda_attention_cudnn(&call[0], true);
    free(call);
}

static void time_update(struct bench *k, int s) {
    const struct rt_model *m = k->p->model;
    const struct rt_instr *x = find(k, OP_U, s);
    struct line *y = &k->line[k->n++];
    double n = 0;
    for (int i = 0; i < k->p->stage[s].nlayers; i++)
        n += (double)k->p->stage[s].layer[i].nparam;
    snprintf(y->layer, sizeof y->layer, "update of %.0f parameters", n);
    y->way = "update";
    y->count = 1;
    /* dw is read; weights, or with bf16 their fp32 masters, and the moments are read and written; bf16 is written */
    y->bytes = n * (4 + 8 + (m->precision == BF16 ? 2 : 0) + 8 * count_moments(m->optimizer));
    y->us = limit_us(k, y);
    if (k->estimate)
        return;
    y->us = 1e6 * alone(k, 1, [&](int) {
                const struct cuda_number number = {k->c.counted, 1, 0, 0, 1, NULL, 0};
                const struct rt_stage *stage = &k->p->stage[s];
                const struct rt_piece piece = {m, stage, 0, weight_count(m, stage)};
                const struct rt_update u = {piece,
                                            job_operand(k->c.arena, x, ROLE_w),
                                            (const float *)job_operand(k->c.arena, x, ROLE_dw),
                                            (float *)job_operand(k->c.arena, x, ROLE_opt),
                                            NULL,
                                            NULL,
                                            0,
                                            1,
                                            false};
                cuda_update_part(&u, 0, piece.n, &number, k->stream);
            });
}

/* ---- the whole ---- */

static void time_stage(struct bench *k, int s) {
    const struct rt_layer *l = k->p->stage[s].layer;
    for (int i = 0; i < k->p->stage[s].nlayers; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= alike(&l[i], &l[j]);
        for (int way = 0; way < 3 && !seen; way++)
            if (function(&l[i], way))
                time_layer(k, s, i, way);
    }
}

/* Prints which attention ran: cuDNN's, with its version, or attention.cu. */
static void print_attention(const struct bench *k) {
    void *library = k->cudnn ? dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    size_t (*version)(void) = library ? (size_t(*)(void))dlsym(library, "cudnnGetVersion") : NULL;
    if (k->cudnn)
        printf("# attention by cuDNN %zu\n", version ? version() : 0);
    else
        printf("# attention by attention.cu, not cuDNN\n");
}

/* Returns bytes/s from the memory clock, with two transfers a period, and the width of its bus. */
static double device_bandwidth(void) {
    int khz, bits;
    CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, 0));
    CUDA(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, 0));
    return 2e3 * khz * bits / 8;
}

/* Prints each epilogue in both ways, one line after the other. */
static void print_epilogues(const struct bench *k) {
    struct cuda_epilogue x;
    for (int i = 0; cuda_linear_epilogue(i, &x); i++)
        for (bool fused : {true, false}) {
            struct line y = {};
            double us = fused ? x.fused_us : x.apart_us;
            y.flops = x.flops, y.bytes = x.bytes;
            printf("linear %d x %d to %d with %s\t%s%s\t0\t%.2f\t0\t%.4g\t%.4g\t%.2f\t%.3f\n", x.rows, x.in, x.out,
                   x.name, fused ? "fused" : "apart", fused == x.used ? " *" : "", us, y.flops, y.bytes,
                   limit_us(k, &y), limit_us(k, &y) / us);
        }
}

static void print(const struct bench *k) {
    double all = 0;
    for (int i = 0; i < k->n; i++)
        all += k->line[i].us * k->line[i].count * (*k->line[i].way == 'u' ? 1 : k->p->batches);
    printf("layer\tway\tcount\tus\tshare\tflops\tbytes\tlimit_us\tof_limit\n");
    for (int i = 0; i < k->n; i++) {
        const struct line *y = &k->line[i];
        double limit = limit_us(k, y);
        double us = y->us * y->count * (*y->way == 'u' ? 1 : k->p->batches);
        printf("%s\t%s\t%d\t%.2f\t%.4f\t%.4g\t%.4g\t%.2f\t%.3f\n", y->layer, y->way, y->count, y->us, us / all,
               y->flops, y->bytes, limit, limit / y->us);
    }
    if (!k->estimate)
        print_epilogues(k);
    printf("all\tstep\t%d\t%.2f\t1\t\t\t\t\n", k->p->batches, all);
    printf("# %g\n", k->bandwidth / 1e12);
    if (!k->estimate)
        print_attention(k);
}

/* Takes the rank as the runtime does, and runs one step. Returns NULL, or the error. */
static const char *take_device(struct bench *k, struct cuda_run *run) {
    static char why[512];
    CUDA(cudaSetDevice(0));
    CUDA(cudaEventCreate(&k->begin));
    CUDA(cudaEventCreate(&k->end));
    cuda_attention_plan(k->p);
    cuda_linear_plan(k->p);
    if (run->run.flags.algorithms && !cuda_linear_algorithms(run->run.flags.algorithms, why, sizeof why))
        return why;
    const char *trouble = cuda_take(&k->z, &k->c, k->p, 0, &cuda_loopback, false);
    if (trouble)
        return trouble;
    const struct start start = {(uint64_t)run->run.flags.seed, NULL};
    if (!cuda_begin(&k->z, &start, why, sizeof why))
        return why;
    k->stream = k->c.lane[0];
    cuda_feed(&k->z, 0, 0, run->run.data, k->stream);
    cuda_count(k->c.counted, PASS_BEGINS, 1, NULL, 0, k->stream);
    replay_step(&k->z);
    CUDA(cudaStreamSynchronize(k->stream));
    return NULL;
}

extern "C" __attribute__((visibility("default"))) char **cuda_train(struct cuda_run *run, char *why, size_t nwhy) {
    static struct bench k;
    k.p = run->run.program;
    k.estimate = getenv("LIMITS_ONLY") != NULL;
    k.peak = 1e12 * figure("PEAK_TFLOPS", 0);
    k.bandwidth = 1e12 * figure("MEMORY_TBS", 0);
    if (k.bandwidth == 0)
        k.bandwidth = device_bandwidth();
    k.least = figure("LEAST_SECONDS", 0.02);
    if (k.p->workers != 1) {
        snprintf(why, nwhy, "the layers are timed on one rank: use schedules/serial.lua");
        return NULL;
    }
    if (!k.estimate) {
        const char *trouble = take_device(&k, run);
        if (trouble) {
            snprintf(why, nwhy, "%s", trouble);
            return NULL;
        }
    }
    for (int s = 0; s < k.p->stages; s++)
        time_stage(&k, s);
    for (int s = 0; k.p->model->optimizer != OPT_NONE && s < k.p->sets; s++)
        time_update(&k, s);
    print(&k);
    fflush(stdout);
    _Exit(0); /* nothing was trained, so the command must not report it */
}
