/* The linear layer, y = x W + bias, the unembedding, y = x ET, and experts, each a linear layer without bias for its
 * rows, through cuBLASLt: one matrix product each way, of experts one for all of them.
 *
 * cuBLASLt is column-major, so every matrix here is seen as its transpose: yT = WT xT, dxT = W dyT, dWT = dyT x;
 * yT = E xT, dxT = ET dyT, dET = xT dy.
 * The product's epilogue adds the bias and applies what follows: gelu or relu, and in a gelu's backward its slope. A
 * product with gelu also writes gelu's input (the "auxiliary" matrix) where the layout keeps it.
 *
 * A plan (descriptor, layouts, algorithm) depends on the shape alone; it is made at the start and only looked up when a
 * step is enqueued. The algorithm is the heuristic's first, or, of its first few, the one that a file says was the
 * fastest: timing them in each run would choose differently from run to run, and so give other bits.
 *
 * The weight gradient's product also sums its A, dyT, over k: that is the bias gradient (cublasLt.h,
 * CUBLASLT_EPILOGUE_BGRADA: "the bias size corresponds to the number of rows of the matrix D. The reduction happens
 * over the GEMM's k dimension"). The epilogue writes and cannot add, so it writes into the workspace's end, from where
 * a small kernel adds. The sums are fp32, as D is: "bias vector elements are the same type as the elements of output
 * matrix" (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), and cublasLtMatmul()'s table of types has no other bias for bf16 A and
 * B with fp32 C. Where there is no algorithm for it, a kernel reads dy once more instead; and where the two were timed
 * and it is the faster, which users saw for large shapes (NVIDIA/CUDALibrarySamples#90). */
#include "cublaslt.cuh"
#include "cuda_math.cuh"
extern "C" {
#include "store/algorithms.h"
}

enum way { FORWARD, FORWARD_GELU, FORWARD_RELU, INPUT, INPUT_GELU, WEIGHT, WEIGHT_BIAS, NWAYS };

struct plan {
    int rows, in, out, experts;           /* rows: of each; 1: no experts */
    bool bias, table, bf16, known[NWAYS]; /* table: of an unembedding; known: there is such a product */
    int64_t m[NWAYS], n[NWAYS], k[NWAYS]; /* op(A) is m x k, op(B) k x n, D m x n, by columns */
    cublasLtMatmulDesc_t product[NWAYS];
    cublasLtMatrixLayout_t a[NWAYS], b[NWAYS], d[NWAYS];
    cublasLtMatmulAlgo_t algo[NWAYS];
};
static struct {
    cublasLtHandle_t handle;
    struct plan *plan;
    int n;
    char device[256];
} lt;

static bool has_bias(const struct rt_layer *l) {
    return l->kind == LAYER_linear && l->nparam > (int64_t)l->in * l->out;
}
static int experts_of(const struct rt_layer *l) { return l->kind == LAYER_experts ? l->experts : 1; }

static struct plan *find(const struct rt_layer *l) {
    for (int i = 0; i < lt.n; i++) {
        struct plan *plan = &lt.plan[i];
        if (plan->rows * plan->experts == l->rows && plan->experts == experts_of(l) && plan->in == l->in &&
            plan->out == l->out && plan->bias == has_bias(l) && plan->table == (l->kind == LAYER_unembedding))
            return plan;
    }
    return NULL;
}

/* ---- plans ---- */

enum { CANDIDATES = 8, ROUNDS = 7 }; /* of a product: algorithms to time, and how often */

static cublasLtEpilogue_t epilogue_of(const struct plan *plan, enum way w) {
    switch (w) {
    case FORWARD: return plan->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case FORWARD_GELU: return plan->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case FORWARD_RELU: return plan->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case INPUT_GELU: return CUBLASLT_EPILOGUE_DGELU;
    case WEIGHT_BIAS: return CUBLASLT_EPILOGUE_BGRADA;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

#define SET(attribute, value)                                                                                          \
    LT(cublasLtMatmulDescSetAttribute(plan->product[w], CUBLASLT_MATMUL_DESC_##attribute, &value, sizeof value))

/* The epilogue's operands. The heuristic takes their alignment from the pointers that it finds there. */
static void set_epilogue(struct plan *plan, enum way w, const void *bias, const void *aux) {
    if ((plan->bias && w <= FORWARD_RELU) || w == WEIGHT_BIAS)
        SET(BIAS_POINTER, bias);
    if (w == FORWARD_GELU || w == INPUT_GELU)
        SET(EPILOGUE_AUX_POINTER, aux);
}

/* A forward's bias comes behind the weights: bytes from the last multiple of ALIGNED. */
static int64_t bias_shift(const struct plan *plan) {
    return (int64_t)plan->in * plan->out * (plan->bf16 ? 2 : 4) % ALIGNED;
}

static bool is_weight(enum way w) { return w == WEIGHT || w == WEIGHT_BIAS; }
/* Whether op(A) is AT; op(B) is BT in weight gradients. */
static bool turns_a(const struct plan *plan, enum way w) {
    return plan->table ? w == FORWARD : w == INPUT || w == INPUT_GELU;
}

enum { WIDEST = 1 << 20 }; /* columns whose bias gradient has room in the workspace */

/* Bytes of the workspace that the product may use. What is behind them has room for a bias gradient. */
static size_t workspace_of(const struct plan *plan, enum way w) {
    size_t sums = ((size_t)plan->out * sizeof(float) + 255) / 256 * 256;
    return CUDA_WORKSPACE - (w == WEIGHT_BIAS ? sums : 0);
}

/* Values from an expert's matrix to the next one's: of A, B, and C or D. */
static int64_t stride_of(const struct plan *plan, enum way w, int matrix) {
    return matrix == 0 ? plan->m[w] * plan->k[w] : matrix == 1 ? plan->k[w] * plan->n[w] : plan->m[w] * plan->n[w];
}

/* What all addresses of a matrix are multiples of: where there are several, they are a stride apart. */
static uint32_t alignment_of(const struct plan *plan, enum way w, int matrix) {
    int64_t bytes = stride_of(plan, w, matrix) * (plan->bf16 && !(matrix > 1 && is_weight(w)) ? 2 : 4);
    return plan->experts > 1 && (bytes & -bytes) < ALIGNED ? (uint32_t)(bytes & -bytes) : ALIGNED;
}

static void set_stride(cublasLtMatrixLayout_t layout, int32_t n, int64_t stride) {
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n));
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

/* Finds up to most algorithms, the ones expected to be fastest first, and returns how many. A call that succeeds may
 * return results that did not: "other fields are only valid if [...] this member is set to CUBLAS_STATUS_SUCCESS"
 * (cublasLt.h, cublasLtMatmulHeuristicResult_t::state). */
static int ask(const struct plan *plan, enum way w, cublasLtMatmulAlgo_t *algo, int most) {
    static const cublasLtMatmulPreferenceAttributes_t matrix[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES] = {};
    size_t bytes = workspace_of(plan, w);
    int n = 0, usable = 0;
    LT(cublasLtMatmulPreferenceCreate(&wish));
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    for (int i = 0; i < 4; i++) {
        uint32_t aligned = alignment_of(plan, w, i);
        LT(cublasLtMatmulPreferenceSetAttribute(wish, matrix[i], &aligned, sizeof aligned));
    }
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(lt.handle, plan->product[w], plan->a[w], plan->b[w],
                                                           plan->d[w], plan->d[w], wish, most, found, &n);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
        LT(status);
    LT(cublasLtMatmulPreferenceDestroy(wish));
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= bytes)
            algo[usable++] = found[i].algo;
    return usable;
}

static void plan_way(struct plan *plan, enum way w, int m, int n, int k) {
    bool weight = is_weight(w), aux = w == FORWARD_GELU || w == INPUT_GELU, turned = turns_a(plan, w);
    cudaDataType_t type = plan->bf16 ? CUDA_R_16BF : CUDA_R_32F, sum = weight ? CUDA_R_32F : type;
    cublasOperation_t a = turned ? CUBLAS_OP_T : CUBLAS_OP_N, b = weight ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(plan, w);
    int64_t aux_ld = m;
    const char *somewhere = (const char *)(uintptr_t)(4096 + ALIGNED); /* a multiple of no more than that */
    if (plan->product[w] || (aux && m % 8 != 0))                       /* as cuBLASLt wants auxiliary matrices */
        return;
    LT(cublasLtMatmulDescCreate(&plan->product[w], CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(TRANSA, a);
    SET(TRANSB, b);
    SET(EPILOGUE, epilogue);
    SET(BIAS_DATA_TYPE, sum);
    if (aux)
        SET(EPILOGUE_AUX_LD, aux_ld);
    set_epilogue(plan, w, somewhere + (weight ? 0 : bias_shift(plan)), somewhere);
    LT(cublasLtMatrixLayoutCreate(&plan->a[w], type, (uint64_t)(turned ? k : m), (uint64_t)(turned ? m : k),
                                  turned ? k : m));
    LT(cublasLtMatrixLayoutCreate(&plan->b[w], type, (uint64_t)(weight ? n : k), (uint64_t)(weight ? k : n),
                                  weight ? n : k));
    LT(cublasLtMatrixLayoutCreate(&plan->d[w], sum, (uint64_t)m, (uint64_t)n, m));
    plan->m[w] = m, plan->n[w] = n, plan->k[w] = k;
    const cublasLtMatrixLayout_t layouts[] = {plan->a[w], plan->b[w], plan->d[w]};
    for (int i = 0; i < 3 && plan->experts > 1; i++)
        set_stride(layouts[i], plan->experts, stride_of(plan, w, i));
    plan->known[w] = ask(plan, w, &plan->algo[w], 1) == 1;
    if (!plan->known[w] && (w == FORWARD || w == INPUT || w == WEIGHT)) {
        fprintf(stderr, "pianola: error: cuBLASLt knows no way to multiply %d x %d by %d x %d\n", m, k, k, n);
        _Exit(1);
    }
}

/* Layer i of a stage. On GPUs older than Hopper, cuBLASLt's gelu is slower than a separate kernel, as llm.c found. */
static void plan_layer(const struct rt_stage *s, int i, bool bf16, bool hopper) {
    const struct rt_layer *l = &s->layer[i];
    struct plan *plan = find(l);
    if (!plan) {
        plan = &lt.plan[lt.n++];
        plan->experts = experts_of(l);
        plan->rows = l->rows / plan->experts;
        plan->in = l->in;
        plan->out = l->out;
        plan->bias = has_bias(l);
        plan->bf16 = bf16;
        plan->table = l->kind == LAYER_unembedding;
    }
    plan_way(plan, FORWARD, l->out, plan->rows, l->in);
    plan_way(plan, INPUT, l->in, plan->rows, l->out);
    plan_way(plan, WEIGHT, plan->table ? l->in : l->out, plan->table ? l->out : l->in, plan->rows);
    if (l->kind != LAYER_linear)
        return;
    if (plan->bias && plan->out <= WIDEST)
        plan_way(plan, WEIGHT_BIAS, l->out, l->in, l->rows);
    if (i + 1 < s->nlayers && l[1].kind == LAYER_relu)
        plan_way(plan, FORWARD_RELU, l->out, l->rows, l->in);
    if (hopper && i + 1 < s->nlayers && l[1].kind == LAYER_gelu)
        plan_way(plan, FORWARD_GELU, l->out, l->rows, l->in);
    if (hopper && i > 0 && l[-1].kind == LAYER_gelu)
        plan_way(plan, INPUT_GELU, l->in, l->rows, l->out);
}

static bool is_product(int kind) { return kind == LAYER_linear || kind == LAYER_unembedding || kind == LAYER_experts; }

void cuda_linear_plan(const struct rt_program *p) {
    const struct rt_stage *stage = p->slice ? p->slice : p->stage;
    int all = 0, device, n = p->slice ? p->stages * p->model->slices : p->stages;
    struct cudaDeviceProp is;
    CUDA(cudaGetDevice(&device));
    CUDA(cudaGetDeviceProperties(&is, device));
    for (int s = 0; s < n; s++)
        all += stage[s].nlayers;
    lt.plan = (struct plan *)calloc((size_t)all + 1, sizeof *lt.plan);
    LT(cublasLtCreate(&lt.handle));
    snprintf(lt.device, sizeof lt.device, "%s", is.name);
    for (int s = 0; lt.plan && s < n; s++)
        for (int i = 0; i < stage[s].nlayers; i++)
            if (is_product(stage[s].layer[i].kind))
                plan_layer(&stage[s], i, p->model->precision == BF16, is.major >= 9);
}

void cuda_linear_forget(void) {
    for (int i = 0; i < lt.n; i++)
        for (int w = 0; w < NWAYS; w++)
            if (lt.plan[i].product[w]) {
                cublasLtMatmulDescDestroy(lt.plan[i].product[w]);
                cublasLtMatrixLayoutDestroy(lt.plan[i].a[w]);
                cublasLtMatrixLayoutDestroy(lt.plan[i].b[w]);
                cublasLtMatrixLayoutDestroy(lt.plan[i].d[w]);
            }
    cublasLtDestroy(lt.handle);
    free(lt.plan);
    memset(&lt, 0, sizeof lt);
}

/* ---- products ---- */

static cublasStatus_t multiply(const struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo, const void *a,
                               const void *b, void *d, float beta, void *workspace, cudaStream_t stream) {
    const float one = 1;
    return cublasLtMatmul(lt.handle, plan->product[w], &one, a, plan->a[w], b, plan->b[w], &beta, d, plan->d[w], d,
                          plan->d[w], algo, workspace, workspace_of(plan, w), stream);
}

/* dw += dyT x, and dbias if it is not NULL. WEIGHT_BIAS leaves the bias gradient behind its workspace. */
template <typename T>
static cublasStatus_t multiply_weight(struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo, const T *dy,
                                      const T *x, float *dw, float *dbias, bool first, void *workspace,
                                      cudaStream_t stream) {
    float *scratch = (float *)workspace, *sums = scratch + workspace_of(plan, w) / sizeof *sums;
    set_epilogue(plan, w, sums, NULL);
    cublasStatus_t status = multiply(plan, w, algo, dy, x, dw, first ? 0 : 1, workspace, stream);
    if (status == CUBLAS_STATUS_SUCCESS && w == WEIGHT_BIAS)
        cuda_sum_parts(dbias, sums, plan->out, 1, first, stream);
    else if (status == CUBLAS_STATUS_SUCCESS && dbias)
        cuda_sum_rows(dbias, scratch, dy, plan->rows, plan->out, first, stream);
    return status;
}

/* ---- algorithms chosen by time, and kept ---- */

struct candidate {
    enum way w; /* of WEIGHT_BIAS also WEIGHT, with a kernel behind it */
    cublasLtMatmulAlgo_t algo;
    bool runs;
    float ms[ROUNDS];
};
struct trial { /* device memory, and the time of what is done in it */
    char *a, *b, *d, *aux, *bias, *workspace;
    cudaEvent_t begin, end;
};

static int64_t padded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Fills it with signs, and magnitudes from 1/8 to 2, as bf16 and as fp32: on zeros a GPU would be faster than it is. */
static void randomize(char *p, int64_t bytes) {
    static uint16_t some[1 << 14];
    uint32_t state = 1;
    for (uint16_t &x : some) {
        state = state * 1664525 + 1013904223;
        x = (uint16_t)(state >> 31 << 15 | (0x3e00 + (state >> 20) % 0x200));
    }
    int64_t done = bytes < (int64_t)sizeof some ? bytes : (int64_t)sizeof some;
    CUDA(cudaMemcpy(p, some, (size_t)done, cudaMemcpyHostToDevice));
    for (; done < bytes; done *= 2)
        CUDA(cudaMemcpy(p + done, p, (size_t)(done < bytes - done ? done : bytes - done), cudaMemcpyDeviceToDevice));
}

/* False: no memory. */
static bool trial_open(struct trial *t, const struct plan *plan, enum way w) {
    int64_t size = (plan->bf16 ? 2 : 4) * plan->experts, m = plan->m[w], n = plan->n[w], k = plan->k[w];
    int64_t a = padded(size * m * k), b = padded(size * k * n), d = padded(4 * plan->experts * m * n),
            aux = padded(size * m * n), bias = padded(4 * plan->out + ALIGNED);
    if (cudaMalloc((void **)&t->a, (size_t)(a + b + d + aux + bias + CUDA_WORKSPACE)) != cudaSuccess) {
        cudaGetLastError(); /* the next call must not see this error */
        return false;
    }
    t->b = t->a + a, t->d = t->b + b, t->aux = t->d + d, t->bias = t->aux + aux, t->workspace = t->bias + bias;
    randomize(t->a, a + b + d + aux + bias);
    CUDA(cudaEventCreate(&t->begin));
    CUDA(cudaEventCreate(&t->end));
    return true;
}

static void trial_close(struct trial *t) {
    CUDA(cudaEventDestroy(t->begin));
    CUDA(cudaEventDestroy(t->end));
    CUDA(cudaFree(t->a));
}

/* Weight gradients add to what is there, as they do for all microbatches but the first. */
template <typename T> static cublasStatus_t try_once(struct plan *plan, const struct candidate *one, struct trial *t) {
    if (plan->table || one->w < WEIGHT) {
        set_epilogue(plan, one->w, t->bias + bias_shift(plan), t->aux);
        return multiply(plan, one->w, &one->algo, t->a, t->b, t->d, one->w < WEIGHT ? 0 : 1, t->workspace, 0);
    }
    return multiply_weight(plan, one->w, &one->algo, (const T *)t->a, (const T *)t->b, (float *)t->d,
                           plan->bias ? (float *)t->bias : NULL, false, t->workspace, 0);
}

static int by_time(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The one of the smallest median. They take turns, so that clocks and caches are the same to all. n: none runs. */
static int fastest(struct plan *plan, struct candidate *all, int n, struct trial *t) {
    int best = n;
    for (int round = -1; round < ROUNDS; round++) /* the first is not timed */
        for (struct candidate *one = all; one < all + n; one++) {
            if (round >= 0 && !one->runs)
                continue;
            CUDA(cudaEventRecord(t->begin, 0));
            one->runs = (plan->bf16 ? try_once<__nv_bfloat16> : try_once<float>)(plan, one, t) == CUBLAS_STATUS_SUCCESS;
            CUDA(cudaEventRecord(t->end, 0));
            CUDA(cudaEventSynchronize(t->end));
            if (round >= 0)
                CUDA(cudaEventElapsedTime(&one->ms[round], t->begin, t->end));
        }
    for (int i = 0; i < n; i++) {
        qsort(all[i].ms, ROUNDS, sizeof *all[i].ms, by_time);
        if (all[i].runs && (best == n || all[i].ms[ROUNDS / 2] < all[best].ms[ROUNDS / 2]))
            best = i;
    }
    return best;
}

static const char *type_name(bool bf16) { return bf16 ? "bf16" : "fp32"; }

static void key_of(const struct plan *plan, enum way w, char *key, size_t n) {
    bool weight = is_weight(w);
    int at =
        snprintf(key, n, "%s\t%zu\t%c%c %lld x %lld x %lld, %s to %s, epilogue %d", lt.device, cublasLtGetVersion(),
                 turns_a(plan, w) ? 'T' : 'N', weight ? 'T' : 'N', (long long)plan->m[w], (long long)plan->n[w],
                 (long long)plan->k[w], type_name(plan->bf16), type_name(plan->bf16 && !weight), epilogue_of(plan, w));
    if (plan->experts > 1)
        snprintf(key + at, n - (size_t)at, ", %d at once", plan->experts);
}

/* The algorithm's bytes may be kept: it "can be trivially serialized and later restored for use with the same version
 * of cuBLAS library" (cublasLt.h, cublasLtMatmulAlgo_t). */
static_assert(sizeof(cublasLtMatmulAlgo_t) == ALGORITHM_BYTES, "a file has all of it");

static bool use_kept(struct plan *plan, enum way w, const struct algorithm *kept) {
    cublasLtMatmulHeuristicResult_t result = {};
    if (kept->apart) {
        plan->known[w] = false;
        return w == WEIGHT_BIAS;
    }
    memcpy(&plan->algo[w], kept->bytes, sizeof plan->algo[w]);
    return cublasLtMatmulAlgoCheck(lt.handle, plan->product[w], plan->a[w], plan->b[w], plan->d[w], plan->d[w],
                                   &plan->algo[w], &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= workspace_of(plan, w);
}

/* WEIGHT comes before WEIGHT_BIAS, and its algorithm stands. */
static const char *time_way(struct plan *plan, enum way w, struct algorithm *chosen) {
    struct candidate all[CANDIDATES + 1] = {};
    cublasLtMatmulAlgo_t algo[CANDIDATES];
    struct trial trial;
    int n = ask(plan, w, algo, CANDIDATES);
    for (int i = 0; i < n; i++)
        all[i] = {w, algo[i], true, {}};
    if (w == WEIGHT_BIAS)
        all[n++] = {WEIGHT, plan->algo[WEIGHT], true, {}};
    if (!trial_open(&trial, plan, w))
        return "there is no device memory to time products";
    int best = fastest(plan, all, n, &trial);
    trial_close(&trial);
    if (best == n)
        return "none of cuBLASLt's algorithms runs";
    chosen->apart = all[best].w != w;
    plan->known[w] = !chosen->apart;
    plan->algo[w] = all[best].algo;
    memcpy(chosen->bytes, &plan->algo[w], sizeof plan->algo[w]);
    return NULL;
}

static bool pin(struct plan *plan, enum way w, struct algorithms *all, char *why, size_t nwhy) {
    char key[512];
    struct algorithm kept = {};
    key_of(plan, w, key, sizeof key);
    if (algorithms_find(all, key, &kept)) {
        snprintf(why, nwhy, "%s:%d: cuBLASLt does not take this algorithm; remove the line, and it is timed anew",
                 all->path, kept.line);
        return use_kept(plan, w, &kept);
    }
    const char *trouble = time_way(plan, w, &kept);
    if (!trouble && !algorithms_add(all, key, &kept))
        trouble = "there is no memory on the host";
    if (trouble)
        snprintf(why, nwhy, "%s: %s", strrchr(key, '\t') + 1, trouble);
    return !trouble;
}

bool cuda_linear_pin(struct algorithms *all, char *why, size_t nwhy) {
    for (int i = 0; i < lt.n; i++)
        for (int w = 0; w < NWAYS; w++)
            if (lt.plan[i].known[w] && !pin(&lt.plan[i], (enum way)w, all, why, nwhy))
                return false;
    return true;
}

bool cuda_linear_algorithms(const char *path, char *why, size_t nwhy) {
    struct algorithms all;
    if (!algorithms_read(&all, path, why, nwhy))
        return false;
    size_t had = all.n;
    bool ok = cuda_linear_pin(&all, why, nwhy) && (all.n == had || algorithms_write(&all, why, nwhy));
    algorithms_free(&all);
    return ok;
}

/* ---- the layer ---- */

static void enqueue(const struct cuda_call *c, enum way w, const void *a, const void *b, void *d, float beta) {
    const struct plan *plan = find(c->l);
    LT(multiply(plan, w, &plan->algo[w], a, b, d, beta, c->workspace, c->stream));
}

/* y: this layer's, or that of the gelu or relu after it. */
template <typename T> static void forward_as(const struct cuda_call *c, enum way w, struct slot slot) {
    const T *weights = cuda_w<T>(c);
    set_epilogue(find(c->l), w, weights + (int64_t)c->l->in * c->l->out, cuda_at<T>(c, c->l->y));
    enqueue(c, w, weights, cuda_x<T>(c), cuda_at<T>(c, slot), 0);
}

template <typename T> static void forward(const struct cuda_call *c) { forward_as<T>(c, FORWARD, c->l->y); }

template <typename T> static void input(const struct cuda_call *c) {
    enqueue(c, INPUT, cuda_w<T>(c), cuda_at<T>(c, c->l->dy), cuda_at<T>(c, c->l->dx), 0);
}

/* As in linear_host.c. */
template <typename T> static const T *weight_x(const struct cuda_call *c) {
    return c->l->aux.space == SP_NONE ? cuda_x<T>(c) : cuda_at<T>(c, c->l->aux);
}

template <typename T> static void weight(const struct cuda_call *c) {
    struct plan *plan = find(c->l);
    enum way w = plan->known[WEIGHT_BIAS] ? WEIGHT_BIAS : WEIGHT;
    float *dw = cuda_dw<T>(c), *dbias = plan->bias ? dw + (int64_t)plan->in * plan->out : NULL;
    LT(multiply_weight(plan, w, &plan->algo[w], cuda_at<T>(c, c->l->dy), weight_x<T>(c), dw, dbias, cuda_first(c),
                       c->workspace, c->stream));
}

template <typename T> static void table_forward(const struct cuda_call *c) {
    enqueue(c, FORWARD, c->at->v, cuda_x<T>(c), cuda_at<T>(c, c->l->y), 0);
}

template <typename T> static void table_input(const struct cuda_call *c) {
    enqueue(c, INPUT, c->at->v, cuda_at<T>(c, c->l->dy), cuda_at<T>(c, c->l->dx), 0);
}

template <typename T> static void table_weight(const struct cuda_call *c) {
    enqueue(c, WEIGHT, weight_x<T>(c), cuda_at<T>(c, c->l->dy), c->at->dv, c->at->vfirst ? 0 : 1);
}

extern const struct cuda_layer cuda_unembedding = {EITHER(table_forward), EITHER(table_input), EITHER(table_weight)};
extern const struct cuda_layer cuda_linear = {EITHER(forward), EITHER(input), EITHER(weight)};
extern const struct cuda_layer cuda_experts = {EITHER(forward), EITHER(input), EITHER(weight)};

/* ---- fused with the layer after it, and in the backward with the one before it ---- */

bool cuda_linear_map(const struct cuda_call *c, const struct rt_layer *next) {
    enum way w = next->kind == LAYER_gelu ? FORWARD_GELU : FORWARD_RELU;
    if (!find(c->l)->known[w])
        return false;
    (c->m->precision == BF16 ? forward_as<__nv_bfloat16> : forward_as<float>)(c, w, next->y);
    return true;
}

bool cuda_linear_gelu_input(const struct cuda_call *c, const struct rt_layer *gelu) {
    if (!find(c->l)->known[INPUT_GELU] || gelu->dx.space == SP_NONE)
        return false;
    set_epilogue(find(c->l), INPUT_GELU, NULL, cuda_at<char>(c, gelu->x));
    enqueue(c, INPUT_GELU, cuda_w<char>(c), cuda_at<char>(c, c->l->dy), cuda_at<char>(c, gelu->dx), 0);
    return true;
}
