/* The products of linear layers, planned at the start: linear_plan.cu makes the plans, linear_time.cu tries products
 * and chooses their algorithms by time, and linear.cu enqueues them.
 *
 * A way is a variant of a layer's product in one direction. It is plain, or has an epilogue that replaces a separate
 * kernel. All ways with an epilogue are optional. If cuBLASLt refuses one at any point, with any status, it is never
 * used again: its plain way and the kernel do the work, and one line on stderr reports each kind's first refusal. */
#ifndef PIANOLA_LINEAR_PLAN_CUH
#define PIANOLA_LINEAR_PLAN_CUH
#include "cublaslt.cuh"
#include "cuda_math.cuh"

enum way { FORWARD, FORWARD_BIAS, FORWARD_GELU, FORWARD_RELU, INPUT, INPUT_GELU, WEIGHT, WEIGHT_BIAS, NWAYS };

struct plan {
    int rows, in, out, experts; /* rows: per expert; experts 1: no experts */
    bool bias, table, bf16;     /* table: it is an unembedding */
    struct lt_product product[NWAYS];
    cublasLtMatmulAlgo_t algo[NWAYS];
    bool runs[NWAYS]; /* cuBLASLt has an algorithm for it, and has refused nothing yet */
    bool used[NWAYS]; /* it is used, rather than its plain way and a kernel */
};
struct linear {
    cublasLtHandle_t handle;
    struct plan *plan;
    int n;
    char device[256];
};
extern struct linear linear;

/* A product's operands in device memory. bias: the bias to add, or the place of its gradient. aux: gelu's input,
 * written in a forward and read in a backward. */
struct operands {
    const void *a, *b;
    void *d;
    const void *bias, *aux;
    float beta;
    void *workspace; /* CUDA_WORKSPACE bytes */
    cudaStream_t stream;
};

/* Returns w's way without the epilogue: w itself if it has none. */
static inline enum way plain_way(enum way w) { return w < INPUT ? FORWARD : w < WEIGHT ? INPUT : WEIGHT; }
static inline bool is_optional(enum way w) { return plain_way(w) != w; }
static inline bool is_weight(enum way w) { return w == WEIGHT || w == WEIGHT_BIAS; }
static inline bool has_aux(enum way w) { return w == FORWARD_GELU || w == INPUT_GELU; }
/* Returns whether op(A) is AT; in weight gradients, op(B) is BT. */
static inline bool turns_a(const struct plan *plan, enum way w) {
    return plan->table ? w == FORWARD : w == INPUT || w == INPUT_GELU;
}
/* Returns the bytes from the last multiple of ALIGNED to a forward's bias, which follows the weights. */
static inline int64_t bias_shift(const struct plan *plan) {
    return (int64_t)plan->in * plan->out * (plan->bf16 ? 2 : 4) % ALIGNED;
}
/* Returns the bytes of the workspace that the product may use. After them is room for a bias gradient. */
static inline size_t workspace_of(const struct plan *plan, enum way w) {
    size_t sums = ((size_t)plan->out * sizeof(float) + 255) / 256 * 256;
    return CUDA_WORKSPACE - (w == WEIGHT_BIAS ? sums : 0);
}

/* linear_plan.cu */
struct plan *linear_find(const struct rt_layer *l);
const char *linear_name(enum way w); /* names what the epilogue of an optional way computes */
cublasLtEpilogue_t linear_epilogue(const struct plan *plan, enum way w);
cublasStatus_t linear_ask(const struct plan *plan, enum way w, cublasLtMatmulAlgo_t *algo, int most, int *n);
cublasStatus_t linear_multiply(const struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo,
                               const struct operands *o);
/* Gives up an optional way. by: the step that failed. */
void linear_refuse(struct plan *plan, enum way w, cublasStatus_t status, const char *by);

/* linear_time.cu: runs each optional way once, in device memory of its own, and gives up those that fail. */
void linear_try_all(void);

/* linear.cu: adds dyT x to dw, and the bias gradient to dbias if that is not NULL. d, beta: dw, and 1 to add or 0 to
 * write. */
template <typename T>
cublasStatus_t linear_multiply_weight(const struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo,
                                      const struct operands *o, float *dbias);
#endif
