/* Attention by cuDNN, for bf16 on Hopper: attention.cu's instructions cannot saturate Hopper's tensor cores.
 *
 * A microbatch's forward is one call. The deterministic backward keeps a square of scores, 2 bytes each, for each head
 * in its workspace; the forward needs none. To keep this workspace below SQUARES, the backward makes several calls of a
 * few sequences each.
 *
 * At the start, cuDNN is checked for every shape: its results on random numbers are compared with attention.cu's. If
 * they differ, or cuDNN fails there or later, attention.cu does the work, and one line on stderr reports why. Either
 * backward can follow either forward, because both keep the same statistics. PIANOLA_CUDNN=0 in the environment
 * disables cuDNN, to compare the two or to get the same bits with and without it. */
#include "cuda_math.cuh"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<cudnn.h>) && !defined(WITHOUT_CUDNN) /* else attention.cu computes everything */
#include "attention_graph.cuh"

/* ---- shapes ---- */

struct shape {
    int sequences, each, heads, rows, dim; /* sequences: per microbatch; each: per backward call; rows: per sequence */
    bool fits;                             /* planned, and compared with attention.cu */
    struct graph forward, backward;
};
static struct shape *known;
static int nknown;

/* Reports why cuDNN does not compute attention, for one shape or for all. Skips a reason that repeats the last one,
 * since many shapes may share it. */
static void report_reason(const char *attention, const char *why, cudnnStatus_t status) {
    static char last[256];
    char reason[sizeof last];
    const bool failed = status != CUDNN_STATUS_SUCCESS;
    snprintf(reason, sizeof reason, "%s%s%s", why, failed ? ": " : "", failed ? dnn.cudnnGetErrorString(status) : "");
    if (strcmp(reason, last) == 0)
        return;
    memcpy(last, reason, sizeof last);
    fprintf(stderr,
            "pianola: %s without cuDNN: %s; attention.cu computes it instead (PIANOLA_CUDNN=0 turns cuDNN off)\n",
            attention, reason);
}

/* Leaves a shape to attention.cu. */
static void give_up(struct shape *s, const char *why, cudnnStatus_t status) {
    char attention[128];
    s->fits = false;
    cudaGetLastError(); /* the next launch must not see what cuDNN may have left */
    snprintf(attention, sizeof attention, "attention of %d heads of %d, context %d,", s->heads, s->dim, s->rows);
    report_reason(attention, why, status);
}

#ifndef SQUARES /* tests set a small one */
#define SQUARES (256 << 20)
#endif

/* Returns the number of sequences per call of the backward, the same for all calls of the layer. */
static int sequences_of(const struct rt_layer *l) {
    int64_t all = l->rows / l->context, side = (l->context + 63) / 64 * 64,
            each = 2 * side * side * l->config.attention.heads;
    int64_t n = SQUARES / each < 1 ? 1 : SQUARES / each;
    n = n < all ? n : all;
    while (all % n != 0)
        n--;
    return (int)n;
}

static struct shape *find_shape(const struct rt_layer *l) {
    for (int i = 0; i < nknown; i++) {
        struct shape *s = &known[i];
        if (s->heads == l->config.attention.heads && s->rows == l->context && s->dim * s->heads == l->out &&
            (int64_t)s->sequences * s->rows == l->rows)
            return s;
    }
    return NULL;
}

static const char *plan_shape(struct shape *s, cudnnStatus_t *status) {
    struct tensors f = {&s->forward, s->sequences, s->heads, s->rows, s->dim},
                   b = {&s->backward, s->each, s->heads, s->rows, s->dim};
    if (s->dim % 8 != 0 || s->dim > 128)
        return "it takes heads of 8, 16, .. 128 columns";
    forward_graph(&f);
    backward_graph(&b);
    for (struct graph *graph : {&s->forward, &s->backward})
        if (!graph_plan(graph, CUDNN_TYPE_HANDLE, &dnn.handle)) {
            *status = graph->status;
            return "it has no plan";
        }
    return NULL;
}

/* ---- running ---- */

/* A call's tensors in device memory. */
struct call {
    const __nv_bfloat16 *x, *dy;
    __nv_bfloat16 *y, *dx;
    float *statistics, *sums;
};

static cudnnStatus_t run_graph(const struct shape *s, bool forward, const struct call *c, void *workspace,
                               cudaStream_t stream) {
    int64_t name[NAMES - 1], width = (int64_t)s->heads * s->dim;
    float scale = 1 / sqrtf((float)s->dim), one = 1, least = -INFINITY;
    const void *at[NAMES] = {};
    at[Q] = c->x, at[K] = c->x + width, at[V] = c->x + 2 * width, at[O] = c->y, at[DO] = c->dy;
    at[DQ] = c->dx, at[DK] = c->dx + width, at[DV] = c->dx + 2 * width;
    at[STATISTICS] = c->statistics, at[SUMS] = c->sums, at[SCALE] = &scale, at[ONE] = &one, at[LEAST] = &least;
    int n = 0;
    for (int i = 1; i < NAMES; i++)
        if (!forward || i <= O || i == STATISTICS || i == SCALE || i == LEAST) {
            name[n] = i;
            at[n++] = at[i];
        }
    struct graph pack = {};
    descriptor d = graph_make(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    graph_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, name);
    graph_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    graph_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    graph_finish(&pack, d);
    graph_check(&pack, dnn.cudnnSetStream(dnn.handle, stream));
    if (pack.status == CUDNN_STATUS_SUCCESS)
        graph_check(&pack, dnn.cudnnBackendExecute(dnn.handle, forward ? s->forward.plan : s->backward.plan, d));
    graph_forget(&pack);
    return pack.status;
}

/* Runs a microbatch's forward or backward. */
static cudnnStatus_t run_all(const struct shape *s, bool forward, struct call c, void *workspace, cudaStream_t stream) {
    int64_t rows = (int64_t)s->each * s->rows, y = rows * s->heads * s->dim, numbers = rows * s->heads;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (forward)
        return run_graph(s, true, &c, workspace, stream);
    for (int done = 0; status == CUDNN_STATUS_SUCCESS && done < s->sequences; done += s->each) {
        status = run_graph(s, false, &c, workspace, stream);
        c.x += 3 * y, c.y += y, c.dy += y, c.dx += 3 * y, c.statistics += numbers, c.sums += numbers;
    }
    return status;
}

bool cuda_attention_cudnn(const struct cuda_call *c, bool forward) {
    const struct rt_layer *l = c->l;
    struct shape *s =
        c->m->precision == BF16 && l->config.attention.kv_heads == l->config.attention.heads ? find_shape(l) : NULL;
    if (!s || !s->fits)
        return false;
    struct call at = {cuda_x<__nv_bfloat16>(c),        cuda_at<__nv_bfloat16>(c, l->dy),
                      cuda_at<__nv_bfloat16>(c, l->y), cuda_at<__nv_bfloat16>(c, l->dx),
                      cuda_at<float>(c, l->aux),       cuda_at<float>(c, l->tmp)};
    cudnnStatus_t status = run_all(s, forward, at, c->workspace, c->stream);
    if (status != CUDNN_STATUS_SUCCESS) /* attention.cu overwrites what was written */
        give_up(s, forward ? "its forward fails" : "its backward fails", status);
    return status == CUDNN_STATUS_SUCCESS;
}

/* ---- comparison with attention.cu, on random numbers ---- */

enum part { X, DY, OURS, THEIRS, PARTS }; /* places in device memory; OURS, THEIRS: y, dx, statistics, sums */

struct trial {
    const struct shape *s;
    int64_t values, rows; /* values: of y */
    char *device;
    uint16_t *host;
};

static int64_t side_bytes(const struct trial *t) {
    return (8 * t->values + 8 * t->rows * t->s->heads + 255) / 256 * 256;
}
static char *trial_part(const struct trial *t, enum part p) {
    int64_t before = p == X ? 0 : p == DY ? 6 * t->values : 8 * t->values + (p - OURS) * side_bytes(t);
    return t->device + before;
}
static struct call call_of(const struct trial *t, enum part p) {
    char *y = trial_part(t, p);
    return {(__nv_bfloat16 *)trial_part(t, X),
            (__nv_bfloat16 *)trial_part(t, DY),
            (__nv_bfloat16 *)y,
            (__nv_bfloat16 *)y + t->values,
            (float *)(y + 8 * t->values),
            (float *)(y + 8 * t->values) + t->rows * t->s->heads};
}

/* Signs, and magnitudes from 1/8 to 2. */
static void randomize_attention(const struct trial *t) {
    uint32_t state = 1;
    for (int64_t i = 0; i < 4 * t->values; i++) {
        state = state * 1664525 + 1013904223;
        t->host[i] = (uint16_t)(state >> 31 << 15 | (0x3e00 + (state >> 20) % 0x200));
    }
    CUDA(cudaMemcpy(t->device, t->host, 8 * (size_t)t->values, cudaMemcpyHostToDevice));
}

static void run_ours(const struct trial *t) {
    struct rt_model m = {};
    struct rt_layer l = {};
    struct rt_bind at = {};
    struct call c = call_of(t, OURS);
    m.precision = BF16;
    l.kind = LAYER_attention;
    l.rows = (int32_t)t->rows, l.in = 3 * t->s->heads * t->s->dim, l.out = t->s->heads * t->s->dim;
    l.config.attention.heads = l.config.attention.kv_heads = t->s->heads, l.context = t->s->rows;
    l.x.space = SP_X, l.y.space = SP_Y, l.aux.space = SP_STASH, l.dy.space = SP_DY, l.dx.space = SP_DX;
    l.tmp.space = SP_WORK;
    at.at[SP_X] = trial_part(t, X), at.at[SP_DY] = trial_part(t, DY), at.at[SP_Y] = (char *)c.y,
    at.at[SP_DX] = (char *)c.dx;
    at.at[SP_STASH] = (char *)c.statistics, at.at[SP_WORK] = (char *)c.sums;
    struct cuda_call call = {&m, &l, &at, 0, NULL};
    cuda_attention.forward(&call);
    cuda_attention.input(&call);
}

/* Returns the root mean square of n differences, relative to b's. NaN if any value is NaN. */
static double apart(const void *a, const void *b, int64_t rows, int64_t stride, int64_t n, bool fp32) {
    double differences = 0, squares = 1e-30;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = r * stride; i < r * stride + n; i++) {
            uint32_t bits[2] = {fp32 ? ((const uint32_t *)a)[i] : (uint32_t)((const uint16_t *)a)[i] << 16,
                                fp32 ? ((const uint32_t *)b)[i] : (uint32_t)((const uint16_t *)b)[i] << 16};
            float x[2];
            memcpy(x, bits, sizeof x);
            differences += ((double)x[0] - (double)x[1]) * ((double)x[0] - (double)x[1]);
            squares += (double)x[1] * (double)x[1];
        }
    return sqrt(differences / squares);
}

/* Both round p, ds and their results to bf16, a relative error of 2^-9; the log-sum-exp comes from fp32 sums. */
static bool near(const struct trial *t, const char *a, const char *b) {
    int64_t width = (int64_t)t->s->heads * t->s->dim;
    bool fine = apart(a, b, t->rows, width, width, false) < 0.01;
    for (int i = 0; i < 3; i++) /* dq, dk, dv */
        fine = fine && apart(a + 2 * (t->values + i * width), b + 2 * (t->values + i * width), t->rows, 3 * width,
                             width, false) < 0.02;
    return fine && apart(a + 8 * t->values, b + 8 * t->values, t->rows, t->s->heads, t->s->heads, true) < 1e-4;
}

static const char *compare(const struct shape *s, int64_t workspace, cudnnStatus_t *status) {
    struct trial t = {s, (int64_t)s->sequences * s->rows * s->heads * s->dim, (int64_t)s->sequences * s->rows, NULL,
                      NULL};
    int64_t side = side_bytes(&t), all = 8 * t.values + 2 * side, aligned = (all + 255) / 256 * 256;
    t.host = (uint16_t *)malloc((size_t)(3 * side)); /* first x and dy, which are smaller; then three results */
    if (!t.host || cudaMalloc((void **)&t.device, (size_t)(aligned + workspace)) != cudaSuccess) {
        cudaGetLastError(); /* the next call must not see this error */
        free(t.host);
        return "no memory to compare it";
    }
    randomize_attention(&t);
    CUDA(cudaMemset(trial_part(&t, OURS), 0xff, (size_t)(2 * side)));
    run_ours(&t);
    struct call theirs = call_of(&t, THEIRS);
    char *ours_made = (char *)t.host, *made = ours_made + side, *again = made + side;
    for (int i = 0; i < 2; i++) {
        for (bool forward : {true, false})
            if (*status == CUDNN_STATUS_SUCCESS)
                *status = run_all(s, forward, theirs, t.device + aligned, 0);
        CUDA(cudaMemcpy(i == 0 ? made : again, trial_part(&t, THEIRS), (size_t)side, cudaMemcpyDeviceToHost));
    }
    CUDA(cudaMemcpy(ours_made, trial_part(&t, OURS), (size_t)side, cudaMemcpyDeviceToHost));
    const char *why = *status != CUDNN_STATUS_SUCCESS          ? "it fails"
                      : !near(&t, made, ours_made)             ? "its results are others"
                      : memcmp(made, again, (size_t)side) != 0 ? "its bits vary from run to run"
                                                               : NULL;
    cudaFree(t.device);
    free(t.host);
    return why;
}

/* ---- at the start ---- */

static int64_t graph_workspace(const struct shape *s) {
    return s->forward.workspace > s->backward.workspace ? s->forward.workspace : s->backward.workspace;
}

static void take_shape(const struct rt_layer *l) {
    struct shape *s = &known[nknown++];
    s->sequences = l->rows / l->context;
    s->each = sequences_of(l);
    s->heads = l->config.attention.heads;
    s->rows = l->context;
    s->dim = l->out / l->config.attention.heads;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const char *why = plan_shape(s, &status);
    if (!why)
        why = compare(s, graph_workspace(s), &status);
    s->fits = !why;
    if (!why)
        return;
    give_up(s, why, status);
    graph_forget(&s->forward);
    graph_forget(&s->backward);
}

/* Grouped-query attention, slices, and attention to a part of the rows are left to attention.cu. */
static bool planned(const struct rt_program *p, const struct rt_layer *l) {
    return l->kind == LAYER_attention && l->config.attention.kv_heads == l->config.attention.heads &&
           p->model->slices == 0 && l->part.members == 0;
}

void cuda_attention_plan(const struct rt_program *p) {
    struct cudaDeviceProp is;
    int device, all = 0;
    for (int s = 0; s < p->stages; s++)
        for (int i = 0; i < p->stage[s].nlayers; i++)
            all += planned(p, &p->stage[s].layer[i]);
    CUDA(cudaGetDevice(&device));
    CUDA(cudaGetDeviceProperties(&is, device));
    if (all == 0 || p->model->precision != BF16 || is.major != 9 || cuda_switched_off("PIANOLA_CUDNN"))
        return;
    known = (struct shape *)calloc((size_t)all, sizeof *known);
    if (!known || !open_library() || dnn.cudnnGetVersion() < 91000) {
        report_reason("attention", "there is no libcudnn.so.9 of version 9.10 or later", CUDNN_STATUS_SUCCESS);
        return;
    }
    cudnnStatus_t status = dnn.cudnnCreate(&dnn.handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        cudaGetLastError(); /* the next launch must not see what cuDNN may have left */
        dnn.handle = NULL;
        report_reason("attention", "it does not start", status);
        return;
    }
    for (int s = 0; s < p->stages; s++)
        for (int i = 0; i < p->stage[s].nlayers; i++)
            if (planned(p, &p->stage[s].layer[i]) && !find_shape(&p->stage[s].layer[i]))
                take_shape(&p->stage[s].layer[i]);
}

int64_t cuda_workspace(void) {
    int64_t most = CUDA_WORKSPACE;
    for (int i = 0; i < nknown; i++)
        if (known[i].fits && graph_workspace(&known[i]) > most)
            most = graph_workspace(&known[i]);
    return most;
}

void cuda_attention_forget(void) {
    for (int i = 0; i < nknown; i++) {
        graph_forget(&known[i].forward);
        graph_forget(&known[i].backward);
    }
    free(known);
    known = NULL;
    nknown = 0;
    if (dnn.handle)
        dnn.cudnnDestroy(dnn.handle);
    dnn.handle = NULL; /* the library stays: others may have it open */
}

#else
void cuda_attention_plan(const struct rt_program *) {}
void cuda_attention_forget(void) {}
int64_t cuda_workspace(void) { return CUDA_WORKSPACE; }
bool cuda_attention_cudnn(const struct cuda_call *, bool) { return false; }
#endif
