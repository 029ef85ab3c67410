/* Plans of linear layers' products.
 *
 * cuBLASLt is column-major, so every matrix here is seen as its transpose: yT = WT xT, dxT = W dyT, dWT = dyT x; yT =
 * E xT, dxT = ET dyT, dET = xT dy.
 *
 * A plan (descriptor, layouts, algorithm) depends on the shape alone. It is made at the start and only looked up when a
 * step is enqueued. The algorithm is the heuristic's first, or the one among its first few that a file records as
 * fastest. Timing them in each run could choose different algorithms from run to run, and so change the bits.
 *
 * cuBLASLt guarantees no epilogue: its heuristic may find no algorithm, and it refuses some shapes as invalid (PyTorch
 * avoids products with one row or one column for that reason). So a failure of an optional way never ends the process.
 */
#include "linear_plan.cuh"

struct linear linear;

static const struct {
    const char *name, *instead;
} optional[NWAYS] = {
    {},
    {"a bias", "a kernel adds it"},
    {"gelu", "a kernel computes it"},
    {"relu", "a kernel computes it"},
    {},
    {"gelu's slope", "a kernel computes it"},
    {},
    {"a bias's gradient", "a kernel sums it"},
};
const char *linear_name(enum way w) { return optional[w].name; }

void linear_refuse(struct plan *plan, enum way w, cublasStatus_t status, const char *by) {
    static bool reported[NWAYS]; /* once in a process, which may plan several times */
    const struct lt_product *p = &plan->product[w];
    plan->runs[w] = plan->used[w] = false;
    cudaGetLastError(); /* the next launch must not see what cuBLASLt may have left */
    if (reported[w])
        return;
    reported[w] = true;
    fprintf(stderr,
            "pianola: products with %s in their epilogue: %s by %s for %lld x %lld by %lld x %lld, %s; where cuBLASLt "
            "fails, %s instead (PIANOLA_EPILOGUES=0 turns all epilogues off)\n",
            optional[w].name, cublasLtGetStatusName(status), by, (long long)p->m, (long long)p->k, (long long)p->k,
            (long long)p->n, p->types, optional[w].instead);
}

static bool has_bias(const struct rt_layer *l) {
    return l->kind == LAYER_linear && l->nparam > (int64_t)l->in * l->out;
}
static int experts_of(const struct rt_layer *l) { return l->kind == LAYER_experts ? l->config.moe.experts : 1; }

struct plan *linear_find(const struct rt_layer *l) {
    for (int i = 0; i < linear.n; i++) {
        struct plan *plan = &linear.plan[i];
        if (plan->rows * plan->experts == l->rows && plan->experts == experts_of(l) && plan->in == l->in &&
            plan->out == l->out && plan->bias == has_bias(l) && plan->table == (l->kind == LAYER_unembedding))
            return plan;
    }
    return NULL;
}

/* ---- one product ---- */

cublasLtEpilogue_t linear_epilogue(const struct plan *plan, enum way w) {
    switch (w) {
    case FORWARD_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    case FORWARD_GELU: return plan->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case FORWARD_RELU: return plan->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case INPUT_GELU: return CUBLASLT_EPILOGUE_DGELU;
    case WEIGHT_BIAS: return CUBLASLT_EPILOGUE_BGRADA;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

/* Makes the call unless an earlier one failed: status is the first failure's. */
#define NEXT(call)                                                                                                     \
    do {                                                                                                               \
        if (status == CUBLAS_STATUS_SUCCESS)                                                                           \
            status = (call);                                                                                           \
    } while (0)
#define SET(attribute, value)                                                                                          \
    NEXT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_##attribute, &value, sizeof value))

/* Sets the epilogue's operands. */
static cublasStatus_t set_pointers(const struct plan *plan, enum way w, const void *bias, const void *aux) {
    const struct lt_product *p = &plan->product[w];
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if ((plan->bias && w < INPUT && w != FORWARD) || w == WEIGHT_BIAS)
        SET(BIAS_POINTER, bias);
    if (has_aux(w))
        SET(EPILOGUE_AUX_POINTER, aux);
    return status;
}

static cublasStatus_t describe_product(struct plan *plan, enum way w) {
    struct lt_product *p = &plan->product[w];
    bool weight = is_weight(w);
    cudaDataType_t sum = weight || !plan->bf16 ? CUDA_R_32F : CUDA_R_16BF;
    cublasOperation_t a = turns_a(plan, w) ? CUBLAS_OP_T : CUBLAS_OP_N, b = weight ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = linear_epilogue(plan, w);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    NEXT(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(TRANSA, a);
    SET(TRANSB, b);
    SET(EPILOGUE, epilogue);
    SET(BIAS_DATA_TYPE, sum);
    if (has_aux(w))
        SET(EPILOGUE_AUX_LD, p->m);
    return status;
}

/* Returns the distance from an expert's matrix to the next one's, in values, for A, B, and C or D. */
static int64_t stride_of(const struct lt_product *p, int matrix) {
    return matrix == 0 ? p->m * p->k : matrix == 1 ? p->k * p->n : p->m * p->n;
}

static cublasStatus_t make_layouts(struct plan *plan, enum way w) {
    struct lt_product *p = &plan->product[w];
    bool weight = is_weight(w), turned = turns_a(plan, w);
    cudaDataType_t type = plan->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    NEXT(cublasLtMatrixLayoutCreate(&p->a, type, turned ? k : m, turned ? m : k, turned ? p->k : p->m));
    NEXT(cublasLtMatrixLayoutCreate(&p->b, type, weight ? n : k, weight ? k : n, weight ? p->n : p->k));
    NEXT(cublasLtMatrixLayoutCreate(&p->d, weight ? CUDA_R_32F : type, m, n, p->m));
    for (int i = 0; i < 3 && plan->experts > 1; i++) {
        cublasLtMatrixLayout_t layout = i == 0 ? p->a : i == 1 ? p->b : p->d;
        int32_t count = plan->experts;
        int64_t stride = stride_of(p, i);
        NEXT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
        NEXT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                              sizeof stride));
    }
    return status;
}

/* Returns the alignment of all of a matrix's addresses; several matrices are a stride apart. */
static uint32_t alignment_of(const struct plan *plan, enum way w, int matrix) {
    int64_t bytes = stride_of(&plan->product[w], matrix) * (plan->bf16 && !(matrix > 1 && is_weight(w)) ? 2 : 4);
    return plan->experts > 1 && (bytes & -bytes) < ALIGNED ? (uint32_t)(bytes & -bytes) : ALIGNED;
}

/* Asks the heuristic for algorithms. It derives the alignment of the epilogue's operands from the given pointers, so
 * these are no more aligned here than in a step. */
cublasStatus_t linear_ask(const struct plan *plan, enum way w, cublasLtMatmulAlgo_t *algo, int most, int *n) {
    const char *somewhere = (const char *)(uintptr_t)(4096 + ALIGNED); /* no more aligned than ALIGNED */
    struct lt_promise promise = {workspace_of(plan, w), {}};
    for (int i = 0; i < 4; i++)
        promise.aligned[i] = alignment_of(plan, w, i);
    *n = 0;
    cublasStatus_t status = set_pointers(plan, w, somewhere + (is_weight(w) ? 0 : bias_shift(plan)), somewhere);
    return status != CUBLAS_STATUS_SUCCESS ? status
                                           : lt_heuristic(linear.handle, &plan->product[w], &promise, algo, most, n);
}

cublasStatus_t linear_multiply(const struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo,
                               const struct operands *o) {
    const struct lt_product *p = &plan->product[w];
    const float one = 1;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    NEXT(set_pointers(plan, w, o->bias, o->aux));
    NEXT(cublasLtMatmul(linear.handle, p->desc, &one, o->a, p->a, o->b, p->b, &o->beta, o->d, p->d, o->d, p->d, algo,
                        o->workspace, workspace_of(plan, w), o->stream));
    return status;
}

/* ---- all products ---- */

static void plan_way(struct plan *plan, enum way w, int m, int n, int k) {
    struct lt_product *p = &plan->product[w];
    const char *by = "the product's description";
    int found;
    if (p->desc || (has_aux(w) && m % 8 != 0)) /* cuBLASLt's requirement for auxiliary matrices */
        return;
    p->m = m, p->n = n, p->k = k;
    p->types = !plan->bf16 ? "fp32 to fp32" : is_weight(w) ? "bf16 to fp32" : "bf16 to bf16";
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    NEXT(describe_product(plan, w));
    NEXT(make_layouts(plan, w));
    if (status == CUBLAS_STATUS_SUCCESS) {
        by = "the heuristic";
        status = linear_ask(plan, w, &plan->algo[w], 1, &found);
    }
    plan->runs[w] = plan->used[w] = status == CUBLAS_STATUS_SUCCESS;
    if (!is_optional(w))
        lt_must_multiply(status, p, by);
    else if (status != CUBLAS_STATUS_SUCCESS)
        linear_refuse(plan, w, status, by);
}

static void plan_gelu(struct plan *plan, enum way w, int m, int k, bool fuses) {
    plan_way(plan, w, m, plan->rows, k);
    plan->used[w] = plan->used[w] && fuses;
}

/* Plans the epilogues that the layer's products may have. fuses_gelu applies unless a file of algorithms says
 * otherwise. */
static void plan_epilogues(struct plan *plan, const struct rt_stage *s, int i, bool fuses_gelu) {
    enum { WIDEST = 1 << 20 }; /* columns whose bias gradient has room in the workspace */
    const struct rt_layer *l = &s->layer[i];
    int next = i + 1 < s->nlayers ? l[1].kind : LAYER_linear, before = i > 0 ? l[-1].kind : LAYER_linear;
    if (plan->bias)
        plan_way(plan, FORWARD_BIAS, l->out, l->rows, l->in);
    if (plan->bias && plan->out <= WIDEST)
        plan_way(plan, WEIGHT_BIAS, l->out, l->in, l->rows);
    if (next == LAYER_relu)
        plan_way(plan, FORWARD_RELU, l->out, l->rows, l->in);
    if (next == LAYER_gelu)
        plan_gelu(plan, FORWARD_GELU, l->out, l->in, fuses_gelu);
    if (before == LAYER_gelu)
        plan_gelu(plan, INPUT_GELU, l->in, l->out, fuses_gelu);
}

static struct plan *plan_layer(const struct rt_layer *l, bool bf16) {
    struct plan *plan = linear_find(l);
    if (!plan) {
        plan = &linear.plan[linear.n++];
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
    return plan;
}

static bool is_product(int kind) { return kind == LAYER_linear || kind == LAYER_unembedding || kind == LAYER_experts; }

/* Plans all products. On GPUs older than Hopper, cuBLASLt's gelu is slower than a separate kernel, as llm.c found. */
void cuda_linear_plan(const struct rt_program *p) {
    const struct rt_stage *stage = p->slice ? p->slice : p->stage;
    bool epilogues = !cuda_switched_off("PIANOLA_EPILOGUES");
    int all = 0, device, n = p->slice ? p->stages * p->model->slices : p->stages;
    struct cudaDeviceProp is;
    CUDA(cudaGetDevice(&device));
    CUDA(cudaGetDeviceProperties(&is, device));
    for (int s = 0; s < n; s++)
        all += stage[s].nlayers;
    linear.plan = (struct plan *)calloc((size_t)all + 1, sizeof *linear.plan);
    LT(cublasLtCreate(&linear.handle));
    snprintf(linear.device, sizeof linear.device, "%s", is.name);
    for (int s = 0; linear.plan && s < n; s++)
        for (int i = 0; i < stage[s].nlayers; i++) {
            const struct rt_layer *l = &stage[s].layer[i];
            if (!is_product(l->kind))
                continue;
            struct plan *plan = plan_layer(l, p->model->precision == BF16);
            if (epilogues && l->kind == LAYER_linear)
                plan_epilogues(plan, &stage[s], i, is.major >= 9);
        }
    linear_try_all();
}

static void forget_product(struct lt_product *p) {
    if (p->desc)
        cublasLtMatmulDescDestroy(p->desc);
    for (cublasLtMatrixLayout_t layout : {p->a, p->b, p->d})
        if (layout)
            cublasLtMatrixLayoutDestroy(layout);
}

void cuda_linear_forget(void) {
    for (int i = 0; i < linear.n; i++)
        for (struct lt_product &p : linear.plan[i].product)
            forget_product(&p);
    cublasLtDestroy(linear.handle);
    free(linear.plan);
    memset(&linear, 0, sizeof linear);
}
