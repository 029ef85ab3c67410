/* Muon on a device: the step of muon_host.c, all fp32, with the products by cuBLASLt.
 *
 * cuBLASLt is column-major, so it sees a matrix X of in x out as XT, out x in; the squares S and T are symmetric. A
 * product's C and D may differ, which saves the copies that the host needs. Plans are made at the start, like
 * linear.cu's, and take the heuristic's first algorithm. Sums have one order, so every run gives the same bits. */
#include "cublaslt.cuh"
#include "cuda_math.cuh"
#include "muon.h"
#include "optim.cuh"
#include "store/parameter_walk.h"

enum { THREADS = 256, BLOCKS = 132 };

enum product { SQUARE, CUBIC, STEP, NPRODUCTS };
struct plan {
    int in, out;
    cublasLtMatrixLayout_t x, square;
    struct lt_product product[NPRODUCTS];
    cublasLtMatmulAlgo_t algo[NPRODUCTS];
};
static struct {
    cublasLtHandle_t handle;
    struct plan *plan;
    int n;
} lt;

/* ---- plans ---- */

static bool tall(const struct plan *plan) { return plan->in > plan->out; }
static struct plan *find_plan(const struct rt_parameter *p) {
    for (struct plan *plan = lt.plan; plan < lt.plan + lt.n; plan++)
        if (plan->in == p->dim[0] && plan->out == p->dim[1])
            return plan;
    return NULL;
}

static void plan_product(struct plan *plan, int w) {
    static const struct lt_promise promise = {CUDA_WORKSPACE, {ALIGNED, ALIGNED, ALIGNED, ALIGNED}};
    const int64_t side = tall(plan) ? plan->out : plan->in, other = tall(plan) ? plan->in : plan->out;
    const bool square_a = w == CUBIC || (w == STEP && tall(plan)), square_b = w == CUBIC || (w == STEP && !tall(plan));
    cublasOperation_t a = w == SQUARE && !tall(plan) ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = w == SQUARE && tall(plan) ? CUBLAS_OP_T : CUBLAS_OP_N;
    struct lt_product *p = &plan->product[w];
    int n;
    p->a = square_a ? plan->square : plan->x;
    p->b = square_b ? plan->square : plan->x;
    p->d = w == STEP ? plan->x : plan->square;
    p->m = w == STEP ? plan->out : side;
    p->n = w == STEP ? plan->in : side;
    p->k = w == SQUARE ? other : side;
    p->types = "fp32 to fp32";
    LT(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    lt_must_multiply(lt_heuristic(lt.handle, p, &promise, &plan->algo[w], 1, &n), p, "the heuristic");
}

static void plan_matrix(const struct rt_parameter *p) {
    if (find_plan(p))
        return;
    struct plan *plan = &lt.plan[lt.n++];
    plan->in = (int)p->dim[0];
    plan->out = (int)p->dim[1];
    int side = tall(plan) ? plan->out : plan->in;
    LT(cublasLtMatrixLayoutCreate(&plan->x, CUDA_R_32F, (uint64_t)plan->out, (uint64_t)plan->in, plan->out));
    LT(cublasLtMatrixLayoutCreate(&plan->square, CUDA_R_32F, (uint64_t)side, (uint64_t)side, side));
    for (int w = 0; w < NPRODUCTS; w++)
        plan_product(plan, w);
}

static void plan_matrices(const struct rt_program *p) {
    int all = 0;
    for (int s = 0; s < p->stages; s++)
        all += p->stage[s].nlayers;
    lt.plan = (struct plan *)calloc((size_t)all * MOST_PARAMETERS + 1, sizeof *lt.plan);
    LT(cublasLtCreate(&lt.handle));
    for (int s = 0; lt.plan && s < p->stages; s++)
        for (struct parameter_walk w = walk_parameters({p->model, &p->stage[s], 0, INT64_MAX}); next_parameter(&w);)
            if (matrix_work(p->model, w.l, w.p) > 0)
                plan_matrix(w.p);
}

static void forget(void) {
    for (struct plan *plan = lt.plan; plan < lt.plan + lt.n; plan++) {
        for (int w = 0; w < NPRODUCTS; w++)
            cublasLtMatmulDescDestroy(plan->product[w].desc);
        cublasLtMatrixLayoutDestroy(plan->x);
        cublasLtMatrixLayoutDestroy(plan->square);
    }
    if (lt.handle)
        cublasLtDestroy(lt.handle);
    free(lt.plan);
    memset(&lt, 0, sizeof lt);
}

/* ---- elements ---- */

/* Sets x to Nesterov's direction; parts: each block's sum of its squares. A hidden matrix has no second moment: it is
 * 0. */
static __global__ void direct(float *momentum, float *second, const float *dw, float scale, const uint64_t *norm,
                              int64_t n, struct rt_model m, struct cuda_number number, float *x, double *parts) {
    const bool begin = update_count(number) == 1;
    double square = 0;
    __shared__ float factor;
    if (stands(number))
        return;
    if (threadIdx.x == 0)
        factor = gradient_scale(m, scale, norm, number);
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        float v = begin ? 0 : momentum[i], y = muon_direction(&m, times(factor, dw[i]), &v);
        momentum[i] = v;
        if (begin)
            second[i] = 0;
        x[i] = y;
        square += (double)y * (double)y;
    }
    square = block_sum(square);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = square;
}

static __global__ void divide_by_length(float *x, int64_t n, const double *parts) {
    double square = 0;
    for (int i = 0; i < BLOCKS; i++)
        square += parts[i];
    const float unit = muon_unit(square);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        x[i] = times(x[i], unit);
}

template <typename T>
static __global__ void go_along(T *w, float *master, const float *x, float size, int64_t n, struct rt_model m,
                                struct cuda_number number) {
    __shared__ float lr;
    if (stands(number))
        return;
    if (threadIdx.x == 0)
        lr = rate_at(&m, update_count(number), number.of);
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        float y = master[i];
        muon_move(&m, lr, size, x[i], &y);
        master[i] = y;
        if (sizeof(T) < sizeof(float))
            w[i] = narrow<T>(y);
    }
}

/* ---- a matrix ---- */

/* Operands of d = alpha a b + beta c. */
struct operands {
    float alpha;
    const float *a, *b;
    float beta;
    const float *c;
    float *d;
};
static void multiply_scaled(const struct plan *plan, int w, const struct operands &o, void *workspace,
                            cudaStream_t stream) {
    const struct lt_product *p = &plan->product[w];
    cublasStatus_t status = cublasLtMatmul(lt.handle, p->desc, &o.alpha, o.a, p->a, o.b, p->b, &o.beta, o.c, p->d, o.d,
                                           p->d, &plan->algo[w], workspace, CUDA_WORKSPACE, stream);
    lt_must_multiply(status, p, "cublasLtMatmul");
}

/* Iterates x, and returns the result: in x or in next. */
static float *orthogonalize(const struct rt_parameter *p, float *x, float *next, void *workspace, cudaStream_t stream) {
    const struct plan *plan = find_plan(p);
    int64_t side = tall(plan) ? plan->out : plan->in;
    float *s = next + whole_lines(p->count), *t = s + whole_lines(side * side);
    for (int k = 0; k < MUON_STEPS; k++) {
        multiply_scaled(plan, SQUARE, {1, x, x, 0, s, s}, workspace, stream);
        multiply_scaled(plan, CUBIC, {MUON_C, s, s, MUON_B, s, t}, workspace, stream);
        multiply_scaled(plan, STEP, {1, tall(plan) ? t : x, tall(plan) ? x : t, MUON_A, x, next}, workspace, stream);
        float *before = x;
        x = next;
        next = before;
    }
    return x;
}

static void step_matrix(const struct rt_update *u, const struct rt_parameter *p, int64_t at,
                        const struct cuda_number *number, void *workspace, cudaStream_t stream) {
    const struct rt_model *m = u->piece.m;
    const bool bf16 = m->precision == BF16;
    float *master = (bf16 ? u->opt : (float *)u->w) + at, *momentum = u->opt + (bf16 ? u->piece.n : 0) + at;
    LAUNCH(direct, BLOCKS, THREADS, 0, stream, momentum, momentum + u->piece.n, u->dw + at, update_scale(m, u->piece.s),
           u->norm, p->count, *m, *number, u->work, (double *)workspace);
    LAUNCH(divide_by_length, BLOCKS, THREADS, 0, stream, u->work, p->count, (const double *)workspace);
    const float *x = orthogonalize(p, u->work, u->work + whole_lines(p->count), workspace, stream);
    const float size = muon_size(p);
    if (bf16)
        LAUNCH(go_along<__nv_bfloat16>, BLOCKS * 8, THREADS, 0, stream, (__nv_bfloat16 *)u->w + at, master, x, size,
               p->count, *m, *number);
    else
        LAUNCH(go_along<float>, BLOCKS * 8, THREADS, 0, stream, master, master, x, size, p->count, *m, *number);
}

extern const struct cuda_matrix_optimizer cuda_muon = {plan_matrices, step_matrix, forget};
