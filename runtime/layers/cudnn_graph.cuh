/* Attention as cuDNN is asked for it, through its C interface: opened at run time, so that nothing links with it.
 *
 * cuDNN takes a graph of operations and recognises the pattern: the two below are attention's forward and backward as
 * cuDNN's own C++ front end lowers them (NVIDIA/cudnn-frontend 1.23: composite SDPA, causal, deterministic). q, k and v
 * lie side by side in a row, and so do the heads in each. The statistics are those of attention.cu: the natural
 * logarithm of the sum of exponentials, heads side by side. */
#ifndef PIANOLA_CUDNN_GRAPH_CUH
#define PIANOLA_CUDNN_GRAPH_CUH
#include <cudnn.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the library ---- */

#define CALLS(X)                                                                                                       \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnCreate)                                                                                                     \
    X(cudnnDestroy)                                                                                                    \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendExecute)

static struct {
    void *library;
    cudnnHandle_t handle;
#define X(name) decltype(&::name) name;
    CALLS(X)
#undef X
} dnn;

static bool open_library(void) {
    dnn.library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    bool whole = dnn.library != NULL;
#define X(name) whole = whole && (dnn.name = (decltype(&::name))dlsym(dnn.library, #name)) != NULL;
    CALLS(X)
#undef X
    return whole;
}

/* ---- descriptors: all of a graph's in one list. The first failure stops what follows ---- */

typedef cudnnBackendDescriptor_t descriptor;
enum { MOST = 128, OPERATIONS = 24 };
struct graph {
    descriptor all[MOST], operation[OPERATIONS], plan;
    int n, operations;
    cudnnStatus_t status;
    int64_t engines, workspace; /* that could do it; bytes that the plan takes */
};

static void check(struct graph *g, cudnnStatus_t status) {
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = status;
}

static descriptor make(struct graph *g, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    if (g->status == CUDNN_STATUS_SUCCESS)
        check(g, g->n == MOST ? CUDNN_STATUS_INTERNAL_ERROR : dnn.cudnnBackendCreateDescriptor(type, &d));
    if (d)
        g->all[g->n++] = d;
    return d;
}

static void set(struct graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *value) {
    if (g->status == CUDNN_STATUS_SUCCESS)
        check(g, dnn.cudnnBackendSetAttribute(d, name, type, n, value));
}

static void set_descriptor(struct graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor value) {
    if (value)
        set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static descriptor finish(struct graph *g, descriptor d) {
    if (g->status == CUDNN_STATUS_SUCCESS)
        check(g, dnn.cudnnBackendFinalize(d));
    return d;
}

static void forget(struct graph *g) {
    while (g->n > 0)
        dnn.cudnnBackendDestroyDescriptor(g->all[--g->n]);
    if (g->plan)
        dnn.cudnnBackendDestroyDescriptor(g->plan);
    g->plan = NULL;
}

/* ---- tensors ---- */

/* Names of what lies in memory. The others are numbered from INNER on, and exist in cuDNN's kernels only. */
enum name { Q = 1, K, V, O, DO, STATISTICS, DQ, DK, DV, SUMS, SCALE, ONE, LEAST, NAMES, INNER = 100 };
enum place { MEMORY, VIRTUAL, VALUE };

struct tensors { /* rows: of a sequence */
    struct graph *g;
    int64_t sequences, heads, rows, dim;
};

static descriptor tensor(struct graph *g, int64_t name, enum place place, cudnnDataType_t type, int64_t a, int64_t b,
                         int64_t c, int64_t d, int64_t sa, int64_t sb, int64_t sc, int64_t sd) {
    int64_t size[4] = {a, b, c, d}, stride[4] = {sa, sb, sc, sd};
    int64_t align = type == CUDNN_DATA_FLOAT ? 4 : 16; /* calls begin where the last one's sequences end */
    bool inner = place == VIRTUAL, value = place == VALUE;
    name = inner ? INNER + g->n : name;
    descriptor t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
    set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &value);
    return finish(g, t);
}

/* One of `side` tensors that lie side by side in a row; turned: rows and columns exchanged. */
static descriptor heads_of(const struct tensors *t, int64_t name, int side, bool turned) {
    int64_t row = side * t->heads * t->dim, c = turned ? t->dim : t->rows, d = turned ? t->rows : t->dim;
    return tensor(t->g, name, MEMORY, CUDNN_DATA_BFLOAT16, t->sequences, t->heads, c, d, t->rows * row, t->dim,
                  turned ? 1 : row, turned ? row : 1);
}

/* One number for each row and head, heads side by side. */
static descriptor numbers(const struct tensors *t, int64_t name) {
    return tensor(t->g, name, MEMORY, CUDNN_DATA_FLOAT, t->sequences, t->heads, t->rows, 1, t->rows * t->heads, 1,
                  t->heads, 1);
}
static descriptor inner_numbers(const struct tensors *t) {
    return tensor(t->g, 0, VIRTUAL, CUDNN_DATA_FLOAT, t->sequences, t->heads, t->rows, 1, t->rows * t->heads, t->rows,
                  1, 1);
}

static descriptor square(const struct tensors *t, cudnnDataType_t type, bool turned) {
    return tensor(t->g, 0, VIRTUAL, type, t->sequences, t->heads, t->rows, t->rows, t->heads * t->rows * t->rows,
                  t->rows * t->rows, turned ? 1 : t->rows, turned ? t->rows : 1);
}
static descriptor scores(const struct tensors *t) { return square(t, CUDNN_DATA_FLOAT, false); }

static descriptor constant(const struct tensors *t, int64_t name) {
    return tensor(t->g, name, VALUE, CUDNN_DATA_FLOAT, 1, 1, 1, 1, 1, 1, 1, 1);
}

/* ---- operations: each returns its result ---- */

static descriptor add_operation(struct graph *g, descriptor operation, descriptor result) {
    finish(g, operation);
    if (g->operations == OPERATIONS)
        check(g, CUDNN_STATUS_INTERNAL_ERROR);
    else
        g->operation[g->operations++] = operation;
    return result;
}

/* y = mode(x, b), and where t is given t ? x : b. */
static descriptor pointwise(struct graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor t,
                            descriptor y, int64_t axis = -1) {
    cudnnDataType_t type = mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    descriptor how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, how);
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    return add_operation(g, o, y);
}

static descriptor multiply(struct graph *g, descriptor a, descriptor b, descriptor c) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(g, how);
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    return add_operation(g, o, c);
}

static descriptor reduce(struct graph *g, cudnnReduceTensorOp_t by, descriptor x, descriptor y) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    finish(g, how);
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    return add_operation(g, o, y);
}

static descriptor turn(struct graph *g, descriptor x, descriptor y) {
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(g, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    return add_operation(g, o, y);
}

/* Scores of columns behind their row become LEAST. */
static descriptor mask(const struct tensors *t, descriptor s) {
    struct graph *g = t->g;
    descriptor row = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, square(t, CUDNN_DATA_INT32, false), 2);
    descriptor column = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, square(t, CUDNN_DATA_INT32, false), 3);
    descriptor seen = pointwise(g, CUDNN_POINTWISE_CMP_GE, row, column, NULL, square(t, CUDNN_DATA_BOOLEAN, false));
    return pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, s, constant(t, LEAST), seen, scores(t));
}

/* ---- the two graphs ---- */

static void forward_graph(const struct tensors *t) {
    struct graph *g = t->g;
    descriptor s = multiply(g, heads_of(t, Q, 3, false), heads_of(t, K, 3, true), scores(t));
    s = mask(t, pointwise(g, CUDNN_POINTWISE_MUL, s, constant(t, SCALE), NULL, scores(t)));
    descriptor top = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, inner_numbers(t));
    descriptor below = pointwise(g, CUDNN_POINTWISE_SUB, s, top, NULL, scores(t));
    descriptor e = pointwise(g, CUDNN_POINTWISE_EXP, below, NULL, NULL, scores(t));
    descriptor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, inner_numbers(t));
    descriptor log = pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, NULL, inner_numbers(t));
    pointwise(g, CUDNN_POINTWISE_ADD, top, log, NULL, numbers(t, STATISTICS));
    descriptor p = pointwise(g, CUDNN_POINTWISE_DIV, e, sum, NULL, square(t, CUDNN_DATA_BFLOAT16, false));
    multiply(g, p, heads_of(t, V, 3, false), heads_of(t, O, 1, false));
}

static void backward_graph(const struct tensors *t) {
    struct graph *g = t->g;
    descriptor q = heads_of(t, Q, 3, false), k = heads_of(t, K, 3, true), dy = heads_of(t, DO, 1, false);
    descriptor scale = constant(t, SCALE),
               part = tensor(g, 0, VIRTUAL, CUDNN_DATA_FLOAT, t->sequences, t->heads, t->rows, t->dim,
                             t->rows * t->heads * t->dim, t->rows * t->dim, t->dim, 1);
    pointwise(g, CUDNN_POINTWISE_MUL, dy, heads_of(t, O, 1, false), NULL, part);
    descriptor sums = reduce(g, CUDNN_REDUCE_TENSOR_ADD, part, inner_numbers(t));
    sums = pointwise(g, CUDNN_POINTWISE_MUL, sums, constant(t, ONE), NULL, numbers(t, SUMS));

    descriptor s = multiply(g, q, k, scores(t));
    s = pointwise(g, CUDNN_POINTWISE_MUL, s, scale, NULL, scores(t));
    s = mask(t, pointwise(g, CUDNN_POINTWISE_SUB, s, numbers(t, STATISTICS), NULL, scores(t)));
    descriptor p = pointwise(g, CUDNN_POINTWISE_EXP, s, NULL, NULL, scores(t));
    multiply(g, turn(g, p, square(t, CUDNN_DATA_BFLOAT16, true)), dy, heads_of(t, DV, 3, false));

    descriptor dp = multiply(g, dy, heads_of(t, V, 3, true), scores(t));
    dp = pointwise(g, CUDNN_POINTWISE_SUB, dp, sums, NULL, scores(t));
    descriptor ds = pointwise(g, CUDNN_POINTWISE_MUL, dp, p, NULL, scores(t));
    ds = pointwise(g, CUDNN_POINTWISE_MUL, ds, scale, NULL, scores(t));
    multiply(g, turn(g, ds, square(t, CUDNN_DATA_BFLOAT16, true)), q, heads_of(t, DK, 3, false));
    int64_t row = 3 * t->heads * t->dim;
    descriptor straight =
        tensor(g, 0, VIRTUAL, CUDNN_DATA_FLOAT, t->sequences, t->heads, t->rows, t->dim, t->rows * row, t->dim, row, 1);
    multiply(g, ds, turn(g, k, straight), heads_of(t, DQ, 3, false));
}

/* ---- plans ---- */

/* device: what cuDNN plans for, its handle. Engines come best first; the first that can be built is taken. */
static bool plan(struct graph *g, cudnnBackendAttributeType_t type, const void *device) {
    enum { TRIES = 8 };
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor engine[TRIES] = {};
    descriptor whole = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations, g->operation);
    if (type == CUDNN_TYPE_HANDLE)
        set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, type, 1, device);
    finish(g, whole);
    descriptor heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (type != CUDNN_TYPE_HANDLE)
        set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, type, 1, device);
    finish(g, heuristic);
    for (int i = 0; i < TRIES; i++)
        engine[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status == CUDNN_STATUS_SUCCESS)
        check(g, dnn.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                              TRIES, &g->engines, engine));
    for (int i = 0; g->status == CUDNN_STATUS_SUCCESS && i < g->engines && i < TRIES; i++) {
        struct graph one = {};
        descriptor p = make(&one, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set_descriptor(&one, p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine[i]);
        set(&one, p,
            type == CUDNN_TYPE_HANDLE ? CUDNN_ATTR_EXECUTION_PLAN_HANDLE : CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, type,
            1, device);
        finish(&one, p);
        if (one.status == CUDNN_STATUS_SUCCESS)
            check(&one, dnn.cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                                     NULL, &g->workspace));
        if (one.status == CUDNN_STATUS_SUCCESS) {
            g->plan = p;
            return true;
        }
        forget(&one);
    }
    return false;
}
#endif
