/* The linear layer, y = x W + bias, and the unembedding, y = x ET, through cuBLASLt: one matrix product each way.
 *
 * cuBLASLt counts columns first, so every matrix here is seen as its transpose: yT = WT xT, dxT = W dyT, dWT = dyT x;
 * yT = E xT, dxT = ET dyT, dET = xT dy.
 * The bias is added in the product's epilogue. A plan (descriptor, layouts, algorithm) depends on the shape alone; it
 * is made at the start and only looked up when a step is enqueued. */
#include "cuda_math.cuh"
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>

enum way { FORWARD, INPUT, WEIGHT, NWAYS };

struct plan {
    int rows, in, out;
    bool bias, table; /* table: of an unembedding */
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
        struct plan *p = &lt.plan[i];
        if (p->rows == l->rows && p->in == l->in && p->out == l->out && p->bias == has_bias(l) &&
            p->table == (l->kind == LAYER_unembedding))
            return p;
    }
    return NULL;
}

/* ---- plans ---- */

/* op(A) is m x k, op(B) k x n, D m x n, by columns. */
static void plan_way(struct plan *p, enum way w, bool transpose_a, bool transpose_b, int m, int n, int k, bool bf16) {
    cudaDataType_t type = bf16 ? CUDA_R_16BF : CUDA_R_32F, sum = w == WEIGHT ? CUDA_R_32F : type;
    cublasOperation_t a = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = w == FORWARD && p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    LT(cublasLtMatmulDescCreate(&p->product[w], CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(p->product[w], CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    LT(cublasLtMatmulDescSetAttribute(p->product[w], CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    LT(cublasLtMatmulDescSetAttribute(p->product[w], CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    LT(cublasLtMatmulDescSetAttribute(p->product[w], CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    int ra = transpose_a ? k : m, ca = transpose_a ? m : k, rb = transpose_b ? n : k, cb = transpose_b ? k : n;
    LT(cublasLtMatrixLayoutCreate(&p->a[w], type, (uint64_t)ra, (uint64_t)ca, ra));
    LT(cublasLtMatrixLayoutCreate(&p->b[w], type, (uint64_t)rb, (uint64_t)cb, rb));
    LT(cublasLtMatrixLayoutCreate(&p->d[w], sum, (uint64_t)m, (uint64_t)n, m));

    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found;
    size_t bytes = CUDA_WORKSPACE;
    int n_found = 0;
    LT(cublasLtMatmulPreferenceCreate(&wish));
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    LT(cublasLtMatmulAlgoGetHeuristic(lt.handle, p->product[w], p->a[w], p->b[w], p->d[w], p->d[w], wish, 1, &found,
                                      &n_found));
    LT(cublasLtMatmulPreferenceDestroy(wish));
    if (n_found == 0) {
        fprintf(stderr, "pianola: error: cuBLASLt knows no way to multiply %d x %d by %d x %d\n", m, k, k, n);
        _Exit(1);
    }
    p->algo[w] = found.algo;
}

void cuda_linear_plan(const struct rt_program *p) {
    int all = 0;
    for (int s = 0; s < p->stages; s++)
        all += p->stage[s].nlayers;
    lt.plan = (struct plan *)calloc((size_t)all + 1, sizeof *lt.plan);
    LT(cublasLtCreate(&lt.handle));
    for (int s = 0; lt.plan && s < p->stages; s++)
        for (int i = 0; i < p->stage[s].nlayers; i++) {
            const struct rt_layer *l = &p->stage[s].layer[i];
            if ((l->kind != LAYER_linear && l->kind != LAYER_unembedding) || find(l))
                continue;
            struct plan *y = &lt.plan[lt.n++];
            bool bf16 = p->model->precision == BF16;
            y->rows = l->rows;
            y->in = l->in;
            y->out = l->out;
            y->bias = has_bias(l);
            y->table = l->kind == LAYER_unembedding;
            plan_way(y, FORWARD, y->table, false, l->out, l->rows, l->in, bf16);
            plan_way(y, INPUT, !y->table, false, l->in, l->rows, l->out, bf16);
            plan_way(y, WEIGHT, false, true, y->table ? l->in : l->out, y->table ? l->out : l->in, l->rows, bf16);
        }
}

void cuda_linear_forget(void) {
    for (int i = 0; i < lt.n; i++)
        for (int w = 0; w < NWAYS; w++) {
            cublasLtMatmulDescDestroy(lt.plan[i].product[w]);
            cublasLtMatrixLayoutDestroy(lt.plan[i].a[w]);
            cublasLtMatrixLayoutDestroy(lt.plan[i].b[w]);
            cublasLtMatrixLayoutDestroy(lt.plan[i].d[w]);
        }
    cublasLtDestroy(lt.handle);
    free(lt.plan);
    memset(&lt, 0, sizeof lt);
}

/* ---- bias gradient: dbias += the sum of dy's rows, in one order ---- */

enum { COLUMNS = 32, STRANDS = 16 };

template <typename T> static __global__ void bias_gradient(const T *dy, float *dbias, int rows, int out, bool first) {
    __shared__ float part[STRANDS][COLUMNS];
    int j = (int)blockIdx.x * COLUMNS + (int)threadIdx.x;
    float sum = 0;
    for (int r = (int)threadIdx.y; j < out && r < rows; r += STRANDS)
        sum += widen(dy[(int64_t)r * out + j]);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || j >= out)
        return;
    for (int i = 1; i < STRANDS; i++)
        sum += part[i][threadIdx.x];
    dbias[j] = first ? sum : dbias[j] + sum;
}

/* ---- the layer ---- */

static void multiply(const struct cuda_call *c, enum way w, const void *a, const void *b, void *d, float beta) {
    const struct plan *p = find(c->l);
    const float one = 1;
    LT(cublasLtMatmul(lt.handle, p->product[w], &one, a, p->a[w], b, p->b[w], &beta, d, p->d[w], d, p->d[w],
                      &p->algo[w], c->workspace, CUDA_WORKSPACE, c->stream));
}

template <typename T> static void forward(const struct cuda_call *c) {
    const T *w = cuda_w<T>(c), *bias = w + (int64_t)c->l->in * c->l->out;
    if (has_bias(c->l))
        LT(cublasLtMatmulDescSetAttribute(find(c->l)->product[FORWARD], CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias));
    multiply(c, FORWARD, w, cuda_x<T>(c), cuda_at<T>(c, c->l->y), 0);
}

template <typename T> static void input(const struct cuda_call *c) {
    multiply(c, INPUT, cuda_w<T>(c), cuda_at<T>(c, c->l->dy), cuda_at<T>(c, c->l->dx), 0);
}

template <typename T> static void weight(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const T *dy = cuda_at<T>(c, l->dy);
    float *dw = cuda_dw<T>(c);
    multiply(c, WEIGHT, dy, cuda_x<T>(c), dw, c->at->first ? 0 : 1);
    if (has_bias(l))
        LAUNCH(bias_gradient<T>, blocks_for(l->out, COLUMNS), dim3(COLUMNS, STRANDS), 0, c->stream, dy,
               dw + (int64_t)l->in * l->out, l->rows, l->out, c->at->first);
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
