/* Matrix products that PyTorch's graphs import, by cuBLASLt, in fp32. A plan depends on the product's layout alone. It
 * is made when the first product of this layout runs, in the trial before training, and takes the heuristic's first
 * algorithm. The workspace is an allocation of the graph.
 *
 * cuBLASLt is column-major, so it computes the transpose, cT = bT aT. */
#include "aoti_cuda.cuh"
#include "layers/cublaslt.cuh"
#include <pthread.h>

enum { WORKSPACE = 4 << 20 };

/* A matrix as cuBLASLt sees it. turned: op is the transpose. apart: elements from one of a batch to the next. */
struct operand {
    const float *at;
    int64_t ld, apart;
    bool turned;
};
struct layout {
    int64_t size[3], ld[3], apart[3]; /* m, n, k; of A, B and D */
    int32_t batch, turned[2], aligned[3];
};
struct plan {
    struct layout layout;
    struct lt_product product;
    cublasLtMatmulAlgo_t algo;
};
static struct {
    pthread_mutex_t lock;
    cublasLtHandle_t handle;
    struct plan *plan;
    int n;
} lt = {PTHREAD_MUTEX_INITIALIZER, NULL, NULL, 0};

/* ---- plans ---- */

static cublasLtMatrixLayout_t make_layout(const struct layout *l, int matrix, int64_t rows, int64_t columns) {
    cublasLtMatrixLayout_t made;
    const bool turned = matrix < 2 && l->turned[matrix];
    LT(cublasLtMatrixLayoutCreate(&made, CUDA_R_32F, (uint64_t)(turned ? columns : rows),
                                  (uint64_t)(turned ? rows : columns), l->ld[matrix]));
    LT(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &l->batch, sizeof l->batch));
    LT(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &l->apart[matrix],
                                        sizeof l->apart[matrix]));
    return made;
}

static void make_plan(struct plan *plan, const struct layout *l) {
    struct lt_product *p = &plan->product;
    const cublasOperation_t a = l->turned[0] ? CUBLAS_OP_T : CUBLAS_OP_N, b = l->turned[1] ? CUBLAS_OP_T : CUBLAS_OP_N;
    struct lt_promise promise = {WORKSPACE, {}};
    int n;
    memset(plan, 0, sizeof *plan);
    plan->layout = *l;
    p->m = l->size[0], p->n = l->size[1], p->k = l->size[2];
    p->types = "fp32 to fp32";
    for (int i = 0; i < 4; i++)
        promise.aligned[i] = (uint32_t)l->aligned[i < 2 ? i : 2];
    LT(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    p->a = make_layout(l, 0, p->m, p->k);
    p->b = make_layout(l, 1, p->k, p->n);
    p->d = make_layout(l, 2, p->m, p->n);
    lt_must_multiply(lt_heuristic(lt.handle, p, &promise, &plan->algo, 1, &n), p, "the heuristic");
}

/* Returns a copy of the plan of a layout. */
static struct plan plan_for(const struct layout *l) {
    pthread_mutex_lock(&lt.lock);
    int i = 0;
    while (i < lt.n && memcmp(&lt.plan[i].layout, l, sizeof *l) != 0)
        i++;
    if (i == lt.n) {
        struct plan *more = (struct plan *)realloc(lt.plan, (size_t)(lt.n + 1) * sizeof *more);
        if (!more)
            aoti_fail("no memory on the host");
        if (!lt.handle)
            LT(cublasLtCreate(&lt.handle));
        lt.plan = more;
        make_plan(&lt.plan[i], l);
        lt.n++;
    }
    const struct plan plan = lt.plan[i];
    pthread_mutex_unlock(&lt.lock);
    return plan;
}

/* ---- layouts ---- */

/* Describes the transpose of a matrix of rows x columns. Returns false if neither its rows nor its columns lie side by
 * side. */
static bool describe_operand(const struct aoti_tensor *t, struct operand *o) {
    const int32_t d = t->dims - 2;
    const int64_t rows = t->size[d], columns = t->size[d + 1];
    struct grid g = aoti_grid(t, 0);
    o->at = g.at;
    o->apart = d > 0 && t->size[0] > 1 ? t->stride[0] : 0;
    o->turned = !aoti_has_rows(g, rows, columns);
    if (!o->turned)
        o->ld = rows == 1 ? columns : g.down;
    else if (aoti_has_rows(transposed_grid(g), columns, rows))
        o->ld = columns == 1 ? rows : g.right;
    else
        return false;
    return true;
}

/* Returns the alignment of all matrices of a batch, in bytes, at most AOTI_AT_ONCE. */
static int32_t batch_alignment(const struct operand *o) {
    const uint64_t bits = (uint64_t)(uintptr_t)o->at | (uint64_t)o->apart * sizeof *o->at | AOTI_AT_ONCE;
    return (int32_t)(bits & -bits);
}

/* ---- products ---- */

struct factors {
    float alpha, beta;
};

/* Enqueues c = alpha a b + beta c. Each is a matrix, or a batch of them; c has rows. */
static void enqueue_multiply(const struct aoti_tensor *c, const struct operand *a, const struct operand *b, int64_t k,
                             struct factors factors) {
    const int32_t d = c->dims - 2;
    const int64_t workspace_size = WORKSPACE, one = 1;
    const struct operand *of[3] = {b, a, NULL}; /* the transposes */
    struct operand out;
    struct layout l;
    describe_operand(c, &out);
    of[2] = &out;
    memset(&l, 0, sizeof l);
    l.size[0] = c->size[d + 1], l.size[1] = c->size[d], l.size[2] = k;
    l.batch = d > 0 ? (int32_t)c->size[0] : 1;
    for (int i = 0; i < 3; i++) {
        l.ld[i] = of[i]->ld;
        l.apart[i] = of[i]->apart;
        l.aligned[i] = batch_alignment(of[i]);
        if (i < 2)
            l.turned[i] = of[i]->turned;
    }
    const struct plan plan = plan_for(&l);
    handle workspace = aoti_allocate(UINT8, 1, &workspace_size, &one);
    float *to = (float *)(void *)c->data;
    lt_must_multiply(cublasLtMatmul(lt.handle, plan.product.desc, &factors.alpha, b->at, plan.product.a, a->at,
                                    plan.product.b, &factors.beta, to, plan.product.d, to, plan.product.d, &plan.algo,
                                    workspace->data, WORKSPACE, aoti_stream()),
                     &plan.product, "cublasLtMatmul");
    aoti_delete(workspace);
}

static struct aoti_tensor transposed(const struct aoti_tensor *t) {
    struct aoti_tensor turned = *t;
    const int32_t d = t->dims - 2;
    turned.size[d] = t->size[d + 1], turned.size[d + 1] = t->size[d];
    turned.stride[d] = t->stride[d + 1], turned.stride[d + 1] = t->stride[d];
    return turned;
}

/* Returns a copy of a tensor, row after row. */
static handle dense_copy(const struct aoti_tensor *t) {
    int64_t stride[AOTI_DIMS], next = 1;
    for (int32_t d = t->dims - 1; d >= 0; next *= t->size[d--])
        stride[d] = next;
    handle copy = aoti_allocate(t->dtype, t->dims, t->size, stride);
    aoti_copy(copy, t);
    return copy;
}

/* Computes c = alpha a b + beta c. */
static void cuda_multiply_all(const struct aoti_tensor *c, const struct aoti_tensor *a, const struct aoti_tensor *b,
                              struct factors factors) {
    const int32_t d = c->dims - 2;
    const struct aoti_tensor *side[] = {a, b};
    struct operand of[2];
    handle copy[2] = {NULL, NULL};
    if (c->dims < 2 || c->dims > 3 || a->dims != c->dims || b->dims != c->dims || c->dtype != FLOAT32 ||
        a->dtype != FLOAT32 || b->dtype != FLOAT32 || aoti_elements(c) == 0 || aoti_elements(a) == 0)
        aoti_fail("a product of other things than fp32 matrices, which is not supported");
    if (!aoti_has_rows(aoti_grid(c, 0), c->size[d], c->size[d + 1])) {
        const struct aoti_tensor out = transposed(c), left = transposed(b), right = transposed(a);
        if (!aoti_has_rows(aoti_grid(&out, 0), out.size[d], out.size[d + 1]))
            aoti_fail("a product whose result has neither rows nor columns side by side, which is not supported");
        cuda_multiply_all(&out, &left, &right, factors);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (!describe_operand(side[i], &of[i])) {
            copy[i] = dense_copy(side[i]);
            describe_operand(copy[i], &of[i]);
        }
    enqueue_multiply(c, &of[0], &of[1], a->size[d + 1], factors);
    for (int i = 0; i < 2; i++)
        if (copy[i])
            aoti_delete(copy[i]);
}

IMPORTED int32_t aoti_torch_cuda_mm_out(handle out, handle a, handle b) {
    cuda_multiply_all(out, a, b, {1, aoti_adds(out) ? 1.0f : 0.0f});
    return OK;
}
IMPORTED int32_t aoti_torch_cuda_bmm_out(handle out, handle a, handle b) {
    cuda_multiply_all(out, a, b, {1, 0});
    return OK;
}

/* Computes out = beta c + alpha a b, where c may be out itself. */
static int32_t cuda_product_plus(handle out, handle c, handle a, handle b, double beta, double alpha) {
    const struct aoti_tensor wide = aoti_broadcast(c, out);
    const bool same = wide.data == out->data && memcmp(wide.stride, out->stride, sizeof wide.stride) == 0;
    if (beta != 0 && wide.data == out->data && !same)
        aoti_fail("a product that is added to itself in another order, which is not supported");
    if (beta != 0 && !same)
        aoti_copy(out, &wide);
    cuda_multiply_all(out, a, b, {(float)alpha, (float)beta});
    return OK;
}
IMPORTED int32_t aoti_torch_cuda_addmm_out(handle out, handle c, handle a, handle b, double beta, double alpha) {
    return cuda_product_plus(out, c, a, b, beta, alpha);
}
IMPORTED int32_t aoti_torch_cuda_baddbmm_out(handle out, handle c, handle a, handle b, double beta, double alpha) {
    return cuda_product_plus(out, c, a, b, beta, alpha);
}
