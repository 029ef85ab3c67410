/* The linear layer, y = x W + bias, and the unembedding, y = x ET, through cuBLASLt: one matrix product each way.
 *
 * cuBLASLt is column-major, so every matrix here is seen as its transpose: yT = WT xT, dxT = W dyT, dWT = dyT x;
 * yT = E xT, dxT = ET dyT, dET = xT dy.
 * The product's epilogue adds the bias and applies what follows: gelu or relu, and in a gelu's backward its slope. A
 * product with gelu also writes gelu's input (the "auxiliary" matrix) where the layout keeps it.
 *
 * A plan (descriptor, layouts, algorithm) depends on the shape alone; it is made at the start and only looked up when a
 * step is enqueued. The algorithm is the heuristic's first: timing several would choose differently from run to run,
 * and so give other bits.
 *
 * The weight gradient's product also sums its A, dyT, over k: that is the bias gradient (cublasLt.h,
 * CUBLASLT_EPILOGUE_BGRADA: "the bias size corresponds to the number of rows of the matrix D. The reduction happens
 * over the GEMM's k dimension"). The epilogue writes and cannot add, so it writes into the workspace's end, from where
 * a small kernel adds. The sums are fp32, as D is: "bias vector elements are the same type as the elements of output
 * matrix" (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), and cublasLtMatmul()'s table of types has no other bias for bf16 A and
 * B with fp32 C. Where there is no algorithm for it, a kernel reads dy once more instead. */
#include "cuda_math.cuh"
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>

enum way { FORWARD, FORWARD_GELU, FORWARD_RELU, INPUT, INPUT_GELU, WEIGHT, WEIGHT_BIAS, NWAYS };

struct plan {
    int rows, in, out;
    bool bias, table, known[NWAYS]; /* table: of an unembedding; known: there is such a product */
    cublasLtMatmulDesc_t product[NWAYS];
    cublasLtMatrixLayout_t a[NWAYS], b[NWAYS], d[NWAYS];
    cublasLtMatmulAlgo_t algo[NWAYS];
};
static struct {
    cublasLtHandle_t handle;
    struct plan *plan;
    int n;
} lt;

static void must(cublasStatus_t status, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "pianola: error: cuBLASLt: %s: status %d\n", call, (int)status);
    fflush(NULL);
    _Exit(1);
}
#define LT(call) must(call, #call)

static bool has_bias(const struct rt_layer *l) { return l->nparam > (int64_t)l->in * l->out; }

static struct plan *find(const struct rt_layer *l) {
    for (int i = 0; i < lt.n; i++) {
        struct plan *plan = &lt.plan[i];
        if (plan->rows == l->rows && plan->in == l->in && plan->out == l->out && plan->bias == has_bias(l) &&
            plan->table == (l->kind == LAYER_unembedding))
            return plan;
    }
    return NULL;
}

/* ---- plans ---- */

enum { ALIGNED = 64 }; /* bytes, of every tensor and of a layer's parameters */

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

enum { WIDEST = 1 << 20 }; /* columns whose bias gradient has room in the workspace */

/* Bytes of the workspace that the product may use. What is behind them has room for a bias gradient. */
static size_t workspace_of(const struct plan *plan, enum way w) {
    size_t sums = ((size_t)plan->out * sizeof(float) + 255) / 256 * 256;
    return CUDA_WORKSPACE - (w == WEIGHT_BIAS ? sums : 0);
}

/* Whether there is an algorithm. A call that succeeds may return a result that did not: "other fields are only valid if
 * [...] this member is set to CUBLAS_STATUS_SUCCESS" (cublasLt.h, cublasLtMatmulHeuristicResult_t::state). */
static bool ask(struct plan *plan, enum way w) {
    static const cublasLtMatmulPreferenceAttributes_t matrix[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found = {};
    size_t bytes = workspace_of(plan, w);
    uint32_t aligned = ALIGNED;
    int n = 0;
    LT(cublasLtMatmulPreferenceCreate(&wish));
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    for (int i = 0; i < 4; i++)
        LT(cublasLtMatmulPreferenceSetAttribute(wish, matrix[i], &aligned, sizeof aligned));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(lt.handle, plan->product[w], plan->a[w], plan->b[w],
                                                           plan->d[w], plan->d[w], wish, 1, &found, &n);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
        LT(status);
    LT(cublasLtMatmulPreferenceDestroy(wish));
    if (n < 1 || found.state != CUBLAS_STATUS_SUCCESS || found.workspaceSize > bytes)
        return false;
    plan->algo[w] = found.algo;
    return true;
}

/* op(A) is m x k, op(B) k x n, D m x n, by columns. */
static void plan_way(struct plan *plan, enum way w, int m, int n, int k, bool bf16) {
    bool weight = w == WEIGHT || w == WEIGHT_BIAS, aux = w == FORWARD_GELU || w == INPUT_GELU,
         turned = plan->table ? w == FORWARD : w == INPUT || w == INPUT_GELU;
    cudaDataType_t type = bf16 ? CUDA_R_16BF : CUDA_R_32F, sum = weight ? CUDA_R_32F : type;
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
    set_epilogue(plan, w, somewhere + (weight ? 0 : (int64_t)plan->in * plan->out * (bf16 ? 2 : 4) % ALIGNED),
                 somewhere);
    LT(cublasLtMatrixLayoutCreate(&plan->a[w], type, (uint64_t)(turned ? k : m), (uint64_t)(turned ? m : k),
                                  turned ? k : m));
    LT(cublasLtMatrixLayoutCreate(&plan->b[w], type, (uint64_t)(weight ? n : k), (uint64_t)(weight ? k : n),
                                  weight ? n : k));
    LT(cublasLtMatrixLayoutCreate(&plan->d[w], sum, (uint64_t)m, (uint64_t)n, m));
    plan->known[w] = ask(plan, w);
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
        plan->rows = l->rows;
        plan->in = l->in;
        plan->out = l->out;
        plan->bias = has_bias(l);
        plan->table = l->kind == LAYER_unembedding;
    }
    plan_way(plan, FORWARD, l->out, l->rows, l->in, bf16);
    plan_way(plan, INPUT, l->in, l->rows, l->out, bf16);
    plan_way(plan, WEIGHT, plan->table ? l->in : l->out, plan->table ? l->out : l->in, l->rows, bf16);
    if (plan->table)
        return;
    if (plan->bias && plan->out <= WIDEST)
        plan_way(plan, WEIGHT_BIAS, l->out, l->in, l->rows, bf16);
    if (i + 1 < s->nlayers && l[1].kind == LAYER_relu)
        plan_way(plan, FORWARD_RELU, l->out, l->rows, l->in, bf16);
    if (hopper && i + 1 < s->nlayers && l[1].kind == LAYER_gelu)
        plan_way(plan, FORWARD_GELU, l->out, l->rows, l->in, bf16);
    if (hopper && i > 0 && l[-1].kind == LAYER_gelu)
        plan_way(plan, INPUT_GELU, l->in, l->rows, l->out, bf16);
}

void cuda_linear_plan(const struct rt_program *p) {
    int all = 0, device;
    struct cudaDeviceProp is;
    CUDA(cudaGetDevice(&device));
    CUDA(cudaGetDeviceProperties(&is, device));
    for (int s = 0; s < p->stages; s++)
        all += p->stage[s].nlayers;
    lt.plan = (struct plan *)calloc((size_t)all + 1, sizeof *lt.plan);
    LT(cublasLtCreate(&lt.handle));
    for (int s = 0; lt.plan && s < p->stages; s++)
        for (int i = 0; i < p->stage[s].nlayers; i++)
            if (p->stage[s].layer[i].kind == LAYER_linear || p->stage[s].layer[i].kind == LAYER_unembedding)
                plan_layer(&p->stage[s], i, p->model->precision == BF16, is.major >= 9);
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

/* ---- bias gradient, where no product computes it: dbias += the sum of dy's rows ---- */

template <typename T, int V>
static __global__ void __launch_bounds__(ACROSS *DOWN) bias_gradient(float *parts, const T *dy, int rows, int out) {
    int j = ((int)blockIdx.x * ACROSS + (int)threadIdx.x) * V;
    float sum[V] = {};
    for (int r = (int)(blockIdx.y * DOWN + threadIdx.y); j < out && r < rows; r += (int)gridDim.y * DOWN) {
        pack<T, V> d = load<V>(dy + (int64_t)r * out + j);
        for (int v = 0; v < V; v++)
            sum[v] += widen(d.v[v]);
    }
    give_part<V>(parts + (int64_t)blockIdx.y * out, sum, out);
}

/* ---- the layer ---- */

static void multiply(const struct cuda_call *c, enum way w, const void *a, const void *b, void *d, float beta) {
    const struct plan *plan = find(c->l);
    const float one = 1;
    LT(cublasLtMatmul(lt.handle, plan->product[w], &one, a, plan->a[w], b, plan->b[w], &beta, d, plan->d[w], d,
                      plan->d[w], &plan->algo[w], c->workspace, workspace_of(plan, w), c->stream));
}

/* y: this layer's, or that of the gelu or relu after it. */
template <typename T> static void forward_as(const struct cuda_call *c, enum way w, struct slot slot) {
    const T *weights = cuda_w<T>(c);
    set_epilogue(find(c->l), w, weights + (int64_t)c->l->in * c->l->out, cuda_at<T>(c, c->l->y));
    multiply(c, w, weights, cuda_x<T>(c), cuda_at<T>(c, slot), 0);
}

template <typename T> static void forward(const struct cuda_call *c) { forward_as<T>(c, FORWARD, c->l->y); }

template <typename T> static void input(const struct cuda_call *c) {
    multiply(c, INPUT, cuda_w<T>(c), cuda_at<T>(c, c->l->dy), cuda_at<T>(c, c->l->dx), 0);
}

template <typename T> static void weight(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    struct plan *plan = find(l);
    const T *dy = cuda_at<T>(c, l->dy);
    float *dw = cuda_dw<T>(c), *dbias = dw + (int64_t)l->in * l->out, beta = c->at->first ? 0 : 1;
    if (plan->known[WEIGHT_BIAS]) {
        float *sums = (float *)((char *)c->workspace + workspace_of(plan, WEIGHT_BIAS));
        set_epilogue(plan, WEIGHT_BIAS, sums, NULL);
        multiply(c, WEIGHT_BIAS, dy, cuda_x<T>(c), dw, beta);
        cuda_sum_parts(dbias, sums, l->out, 1, c->at->first, c->stream);
        return;
    }
    multiply(c, WEIGHT, dy, cuda_x<T>(c), dw, beta);
    if (!plan->bias)
        return;
    dim3 grid = row_grid<T>(l->rows, l->out);
    float *parts = (float *)c->workspace;
    LAUNCH_ROWS(bias_gradient, T, l->out, grid, dim3(ACROSS, DOWN), c->stream, parts, dy, l->rows, l->out);
    cuda_sum_parts(dbias, parts, l->out, (int)grid.y, c->at->first, c->stream);
}

template <typename T> static void table_forward(const struct cuda_call *c) {
    multiply(c, FORWARD, c->at->v, cuda_x<T>(c), cuda_at<T>(c, c->l->y), 0);
}

template <typename T> static void table_input(const struct cuda_call *c) {
    multiply(c, INPUT, c->at->v, cuda_at<T>(c, c->l->dy), cuda_at<T>(c, c->l->dx), 0);
}

template <typename T> static void table_weight(const struct cuda_call *c) {
    multiply(c, WEIGHT, cuda_x<T>(c), cuda_at<T>(c, c->l->dy), c->at->dv, c->at->vfirst ? 0 : 1);
}

extern const struct cuda_layer cuda_unembedding = {EITHER(table_forward), EITHER(table_input), EITHER(table_weight)};
extern const struct cuda_layer cuda_linear = {EITHER(forward), EITHER(input), EITHER(weight)};

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
    multiply(c, INPUT_GELU, cuda_w<char>(c), cuda_at<char>(c, c->l->dy), cuda_at<char>(c, gelu->dx), 0);
    return true;
}
