/* Linear layers through cuBLASLt: the linear layer, y = x W + bias; the unembedding, y = x ET; and experts, each a
 * linear layer without bias for its rows. Each way is one matrix product; for experts, one for all of them.
 *
 * The product's epilogue adds the bias and applies the next layer, if it is gelu or relu. In the backward, it
 * multiplies by gelu's slope. A product with gelu also writes gelu's input (the "auxiliary" matrix) where the layout
 * keeps it.
 *
 * The weight gradient's product also sums its A, dyT, over k, which gives the bias gradient (cublasLt.h,
 * CUBLASLT_EPILOGUE_BGRADA: "the bias size corresponds to the number of rows of the matrix D. The reduction happens
 * over the GEMM's k dimension"). The epilogue can only write, so it writes to the end of the workspace, and a small
 * kernel adds from there. The sums are fp32, as D is: "bias vector elements are the same type as the elements of output
 * matrix" (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), and cublasLtMatmul()'s table of types has no other bias for bf16 A and
 * B with fp32 C.
 *
 * Where an epilogue is not used (linear_plan.cuh), a kernel follows the plain product. In bf16 it reads the rounded
 * product, so its result may differ in the last bit. */
#include "linear_plan.cuh"

/* Returns whether a call that failed with this status may have enqueued a part of its work. The other statuses report
 * bad arguments (cublasLtMatmul's return values in NVIDIA's documentation). */
static bool may_have_begun(cublasStatus_t status) {
    return status != CUBLAS_STATUS_NOT_INITIALIZED && status != CUBLAS_STATUS_INVALID_VALUE &&
           status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_ARCH_MISMATCH;
}

/* Returns whether way w was enqueued. An optional way that fails is given up; the plain way then follows and overwrites
 * anything that it wrote. Dies if the plain way fails, or if a failed way may already have added to its result, since
 * nothing can undo that. */
static bool enqueued(struct plan *plan, enum way w, cublasStatus_t status, bool adds) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    if (!is_optional(w) || (adds && may_have_begun(status)))
        lt_must_multiply(status, &plan->product[w],
                         is_optional(w) ? "cublasLtMatmul, which may have added a part; PIANOLA_EPILOGUES=0 avoids it"
                                        : "cublasLtMatmul");
    linear_refuse(plan, w, status, "cublasLtMatmul");
    return false;
}

/* Enqueues way w, which overwrites d or is plain. Returns false if it is optional and not used. */
static bool enqueue_product(const struct cuda_call *c, enum way w, struct operands o) {
    struct plan *plan = linear_find(c->l);
    if (!plan->used[w])
        return false;
    o.workspace = c->workspace;
    o.stream = c->stream;
    return enqueued(plan, w, linear_multiply(plan, w, &plan->algo[w], &o), false);
}

/* ---- forward ---- */

/* y: the output of this layer, or of the gelu or relu after it. */
template <typename T> static struct operands forward_operands(const struct cuda_call *c, struct slot y) {
    const T *weights = cuda_w<T>(c);
    return {weights,
            cuda_x<T>(c),
            cuda_at<T>(c, y),
            weights + (int64_t)c->l->in * c->l->out,
            cuda_at<T>(c, c->l->y),
            0,
            NULL,
            0};
}

template <typename T> static void multiply_forward(const struct cuda_call *c) {
    const struct operands o = forward_operands<T>(c, c->l->y);
    if (enqueue_product(c, FORWARD_BIAS, o))
        return;
    enqueue_product(c, FORWARD, o);
    if (linear_find(c->l)->bias)
        cuda_add_bias((T *)o.d, (const T *)o.d, (const T *)o.bias, c->l->rows, c->l->out, c->stream);
}

template <typename T> static void table_forward(const struct cuda_call *c) {
    enqueue_product(c, FORWARD,
                    {layer_table(c->at, c->l), cuda_x<T>(c), cuda_at<T>(c, c->l->y), NULL, NULL, 0, NULL, 0});
}

/* ---- input gradient ---- */

template <typename T> static struct operands input_operands(const struct cuda_call *c, const void *weights) {
    return {weights, cuda_at<T>(c, c->l->dy), cuda_at<T>(c, c->l->dx), NULL, NULL, 0, NULL, 0};
}
template <typename T> static void input(const struct cuda_call *c) {
    enqueue_product(c, INPUT, input_operands<T>(c, cuda_w<T>(c)));
}
template <typename T> static void table_input(const struct cuda_call *c) {
    enqueue_product(c, INPUT, input_operands<T>(c, layer_table(c->at, c->l)));
}

/* ---- weight gradient ---- */

/* WEIGHT_BIAS leaves the bias gradient after its part of the workspace. */
template <typename T>
cublasStatus_t linear_multiply_weight(const struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo,
                                      const struct operands *o, float *dbias) {
    float *scratch = (float *)o->workspace, *sums = scratch + workspace_of(plan, w) / sizeof *sums;
    const bool first = o->beta == 0;
    struct operands mine = *o;
    mine.bias = sums;
    cublasStatus_t status = linear_multiply(plan, w, algo, &mine);
    if (status == CUBLAS_STATUS_SUCCESS && w == WEIGHT_BIAS)
        cuda_sum_parts(dbias, sums, plan->out, 1, first, o->stream);
    else if (status == CUBLAS_STATUS_SUCCESS && dbias)
        cuda_sum_rows(dbias, scratch, (const T *)o->a, plan->rows, plan->out, first, o->stream);
    return status;
}
template cublasStatus_t linear_multiply_weight<float>(const struct plan *, enum way, const cublasLtMatmulAlgo_t *,
                                                      const struct operands *, float *);
template cublasStatus_t linear_multiply_weight<__nv_bfloat16>(const struct plan *, enum way,
                                                              const cublasLtMatmulAlgo_t *, const struct operands *,
                                                              float *);

/* Returns the input for a weight gradient, as in linear_host.c. */
template <typename T> static const T *weight_x(const struct cuda_call *c) {
    return c->l->aux.space == SP_NONE ? cuda_x<T>(c) : cuda_at<T>(c, c->l->aux);
}

template <typename T> static void multiply_weight(const struct cuda_call *c) {
    struct plan *plan = linear_find(c->l);
    float *dw = cuda_dw<T>(c), *dbias = plan->bias ? dw + (int64_t)plan->in * plan->out : NULL;
    const bool adds = !cuda_first(c);
    const struct operands o = {cuda_at<T>(c, c->l->dy), weight_x<T>(c), dw,       NULL, NULL,
                               adds ? 1.0f : 0.0f,      c->workspace,   c->stream};
    for (enum way w : {WEIGHT_BIAS, WEIGHT})
        if (plan->used[w] && enqueued(plan, w, linear_multiply_weight<T>(plan, w, &plan->algo[w], &o, dbias), adds))
            return;
}

template <typename T> static void table_weight(const struct cuda_call *c) {
    enqueue_product(
        c, WEIGHT,
        {weight_x<T>(c), cuda_at<T>(c, c->l->dy), c->at->dv, NULL, NULL, c->at->vfirst ? 0.0f : 1.0f, NULL, 0});
}

extern const struct cuda_layer cuda_unembedding = {EITHER(table_forward), EITHER(table_input), EITHER(table_weight)};
extern const struct cuda_layer cuda_linear = {EITHER(multiply_forward), EITHER(input), EITHER(multiply_weight)};
extern const struct cuda_layer cuda_experts = {EITHER(multiply_forward), EITHER(input), EITHER(multiply_weight)};

/* ---- fused with the next layer; in the backward, with the one before ---- */

bool cuda_linear_map(const struct cuda_call *c, const struct rt_layer *next) {
    return enqueue_product(c, next->kind == LAYER_gelu ? FORWARD_GELU : FORWARD_RELU,
                           c->m->precision == BF16 ? forward_operands<__nv_bfloat16>(c, next->y)
                                                   : forward_operands<float>(c, next->y));
}

bool cuda_linear_gelu_input(const struct cuda_call *c, const struct rt_layer *gelu) {
    if (gelu->dx.space == SP_NONE)
        return false;
    return enqueue_product(c, INPUT_GELU,
                           {cuda_w<char>(c), cuda_at<char>(c, c->l->dy), cuda_at<char>(c, gelu->dx), NULL,
                            cuda_at<char>(c, gelu->x), 0, NULL, 0});
}
