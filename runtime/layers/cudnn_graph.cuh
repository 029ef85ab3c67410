/* cuDNN's C interface, opened at run time so that nothing links with it: descriptors, tensors, operations and plans of
 * a graph. attention_graph.cuh has the graphs. */
#ifndef PIANOLA_CUDNN_GRAPH_CUH
#define PIANOLA_CUDNN_GRAPH_CUH
#include <cudnn.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the library ---- */

#define CALLS(X)                                                                                                       \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnGetErrorString)                                                                                             \
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

/* ---- descriptors: a graph keeps them all in one list, and does nothing more after the first failure ---- */

typedef cudnnBackendDescriptor_t descriptor;
enum { MOST = 128, OPERATIONS = 24 };
struct graph {
    descriptor all[MOST], operation[OPERATIONS], plan;
    int n, operations;
    cudnnStatus_t status;
    int64_t engines, workspace; /* engines that could run it; bytes that the plan needs */
};

static void graph_check(struct graph *graph, cudnnStatus_t status) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = status;
}

static descriptor graph_make(struct graph *graph, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph_check(graph, graph->n == MOST ? CUDNN_STATUS_INTERNAL_ERROR : dnn.cudnnBackendCreateDescriptor(type, &d));
    if (d)
        graph->all[graph->n++] = d;
    return d;
}

static void graph_set(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph_check(graph, dnn.cudnnBackendSetAttribute(d, name, type, n, value));
}

static void set_descriptor(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name, descriptor value) {
    if (value)
        graph_set(graph, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static descriptor graph_finish(struct graph *graph, descriptor d) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph_check(graph, dnn.cudnnBackendFinalize(d));
    return d;
}

static void graph_forget(struct graph *graph) {
    while (graph->n > 0)
        dnn.cudnnBackendDestroyDescriptor(graph->all[--graph->n]);
    if (graph->plan)
        dnn.cudnnBackendDestroyDescriptor(graph->plan);
    graph->plan = NULL;
}

/* ---- tensors ---- */

enum place { MEMORY, VIRTUAL, VALUE };
struct extent {
    int64_t size[4], stride[4];
};

/* A tensor in memory has a name. The others are numbered from INNER on, and exist only in cuDNN's kernels. */
enum { INNER = 100 };
static descriptor graph_tensor(struct graph *graph, int64_t name, enum place place, cudnnDataType_t type,
                               const struct extent &extent) {
    int64_t align = type == CUDNN_DATA_FLOAT ? 4 : 16; /* a call begins where the previous one's sequences end */
    bool inner = place == VIRTUAL, value = place == VALUE;
    name = inner ? INNER + graph->n : name;
    descriptor t = graph_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    graph_set(graph, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    graph_set(graph, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extent.size);
    graph_set(graph, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, extent.stride);
    graph_set(graph, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    graph_set(graph, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    graph_set(graph, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
    graph_set(graph, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &value);
    return graph_finish(graph, t);
}

/* ---- operations: each returns its result ---- */

static descriptor add_operation(struct graph *graph, descriptor operation, descriptor result) {
    graph_finish(graph, operation);
    if (graph->operations == OPERATIONS)
        graph_check(graph, CUDNN_STATUS_INTERNAL_ERROR);
    else
        graph->operation[graph->operations++] = operation;
    return result;
}

/* Returns y = mode(x, b), or with t, t ? x : b. */
static descriptor pointwise(struct graph *graph, cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor t,
                            descriptor y, int64_t axis = -1) {
    cudnnDataType_t type = mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    descriptor how = graph_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0)
        graph_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    graph_finish(graph, how);
    descriptor o = graph_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    return add_operation(graph, o, y);
}

static descriptor graph_multiply(struct graph *graph, descriptor a, descriptor b, descriptor c) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = graph_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    graph_finish(graph, how);
    descriptor o = graph_make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    return add_operation(graph, o, c);
}

static descriptor graph_reduce(struct graph *graph, cudnnReduceTensorOp_t by, descriptor x, descriptor y) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = graph_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    graph_finish(graph, how);
    descriptor o = graph_make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    return add_operation(graph, o, y);
}

static descriptor graph_turn(struct graph *graph, descriptor x, descriptor y) {
    descriptor o = graph_make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(graph, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    return add_operation(graph, o, y);
}

/* ---- plans ---- */

/* Makes a plan for a device, given by a handle or properties, according to `type`. Engines are sorted best first; uses
 * the first that can be built. Returns false if there is none; the graph's status says why. */
static bool graph_plan(struct graph *graph, cudnnBackendAttributeType_t type, const void *device) {
    enum { TRIES = 8 };
    cudnnStatus_t refused = CUDNN_STATUS_NOT_SUPPORTED; /* unless an engine has another reason */
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor engine[TRIES] = {};
    descriptor whole = graph_make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph_set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operations,
              graph->operation);
    if (type == CUDNN_TYPE_HANDLE)
        graph_set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, type, 1, device);
    graph_finish(graph, whole);
    descriptor heuristic = graph_make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
    graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (type != CUDNN_TYPE_HANDLE)
        graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, type, 1, device);
    graph_finish(graph, heuristic);
    for (int i = 0; i < TRIES; i++)
        engine[i] = graph_make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph_check(graph, dnn.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, TRIES, &graph->engines, engine));
    for (int i = 0; graph->status == CUDNN_STATUS_SUCCESS && i < graph->engines && i < TRIES; i++) {
        struct graph one = {};
        descriptor p = graph_make(&one, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set_descriptor(&one, p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine[i]);
        graph_set(&one, p,
                  type == CUDNN_TYPE_HANDLE ? CUDNN_ATTR_EXECUTION_PLAN_HANDLE : CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                  type, 1, device);
        graph_finish(&one, p);
        if (one.status == CUDNN_STATUS_SUCCESS)
            graph_check(&one, dnn.cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                           CUDNN_TYPE_INT64, 1, NULL, &graph->workspace));
        if (one.status == CUDNN_STATUS_SUCCESS) {
            graph->plan = p;
            return true;
        }
        graph_forget(&one);
        refused = one.status;
    }
    graph_check(graph, refused);
    return false;
}
#endif
