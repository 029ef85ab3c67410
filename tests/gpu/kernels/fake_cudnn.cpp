/* A cuDNN that knows one pattern, for tests/gpu/kernels/cudnn_run.cpp: attention as attention_cudnn.cu requests it. It
 * finds the tensors by their unique ids, dimensions and strides. It computes with the host layer, on the given stream,
 * and writes all of its workspace. FAKE_CUDNN in the environment makes it go wrong: its results are wrong or random, or
 * it fails with a status, PLACE:STATUS, at create, heuristic, plan, forward or backward. */
#include "layers/cuda.cuh"
#include <cudnn.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

struct fake {
    int type;
    std::map<int, std::vector<char>> value;
};
struct seen {
    int64_t size[4], stride[4];
    bool bf16;
};
typedef std::map<int64_t, seen> tensors; /* by unique id */

static cudaStream_t current;
static bool goes(const char *how) {
    const char *wish = getenv("FAKE_CUDNN");
    return wish && strcmp(wish, how) == 0;
}
/* Returns the status with which a call at this place fails. Leaves an error in the runtime, as a failed launch does. */
static cudnnStatus_t failure(const char *place) {
    const char *wish = getenv("FAKE_CUDNN");
    size_t n = strlen(place);
    void *none;
    if (!wish || strncmp(wish, place, n) != 0 || wish[n] != ':')
        return CUDNN_STATUS_SUCCESS;
    cudaMalloc(&none, (size_t)1 << 60);
    return (cudnnStatus_t)atoi(wish + n + 1);
}
template <typename T> static std::vector<T> get(const fake *f, int name) {
    auto found = f->value.find(name);
    std::vector<T> v;
    if (found != f->value.end())
        v.assign((const T *)(const void *)found->second.data(),
                 (const T *)(const void *)(found->second.data() + found->second.size()));
    return v;
}
static const fake *only(const fake *f, int name) { return (const fake *)get<cudnnBackendDescriptor_t>(f, name).at(0); }

/* Finds the tensors of a plan's graph that lie in memory, and returns its number of operations. */
static int look(const fake *plan, tensors &all) {
    const fake *graph =
        only(only(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    auto operations = get<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (auto o : operations)
        for (auto &attribute : ((const fake *)o)->value) {
            if (attribute.second.size() != sizeof(void *))
                continue;
            const fake *t = *(const fake *const *)(const void *)attribute.second.data();
            if (t->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || get<bool>(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL)[0])
                continue;
            seen s;
            memcpy(s.size, get<int64_t>(t, CUDNN_ATTR_TENSOR_DIMENSIONS).data(), sizeof s.size);
            memcpy(s.stride, get<int64_t>(t, CUDNN_ATTR_TENSOR_STRIDES).data(), sizeof s.stride);
            s.bf16 = get<cudnnDataType_t>(t, CUDNN_ATTR_TENSOR_DATA_TYPE)[0] == CUDNN_DATA_BFLOAT16;
            if (s.size[3] > 1 && s.stride[2] == 1) { /* transposed: turns it back */
                std::swap(s.size[2], s.size[3]);
                std::swap(s.stride[2], s.stride[3]);
            }
            all[get<int64_t>(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)[0]] = s;
        }
    return (int)operations.size();
}

/* Visits a tensor's elements together with columns from .. of dense rows of floats. */
template <typename F> static void each(const seen &s, int64_t width, int64_t from, F f) {
    for (int64_t b = 0; b < s.size[0]; b++)
        for (int64_t h = 0; h < s.size[1]; h++)
            for (int64_t r = 0; r < s.size[2]; r++)
                for (int64_t c = 0; c < s.size[3]; c++)
                    f((b * s.size[2] + r) * width + from + h * s.size[3] + c,
                      b * s.stride[0] + h * s.stride[1] + r * s.stride[2] + c * s.stride[3]);
}
static void load(const seen &s, const void *at, std::vector<float> &to, int64_t width, int64_t from) {
    each(s, width, from, [&](int64_t i, int64_t j) {
        to[(size_t)i] = s.bf16 ? widen(((const __nv_bfloat16 *)at)[j]) : ((const float *)at)[j];
    });
}
static void save(const seen &s, void *at, const std::vector<float> &x, int64_t width, int64_t from) {
    each(s, width, from, [&](int64_t i, int64_t j) {
        if (s.bf16)
            ((__nv_bfloat16 *)at)[j] = narrow<__nv_bfloat16>(x[(size_t)i]);
        else
            ((float *)at)[j] = x[(size_t)i];
    });
}

enum { Q = 1, K, V, O, DO, STATISTICS, DQ, DK, DV, SUMS }; /* as in attention_graph.cuh */

static void work(tensors t, std::map<int64_t, void *> at, bool forward, void *workspace, size_t bytes) {
    int64_t rows = t[Q].size[0] * t[Q].size[2], width = t[Q].size[1] * t[Q].size[3];
    std::vector<float> x((size_t)(3 * rows * width)), y((size_t)(rows * width)), lse((size_t)(rows * t[Q].size[1])),
        dy = y, dx = x, d = lse;
    struct rt_model m = {};
    struct rt_layer l = {};
    struct rt_stage s = {};
    struct rt_bind b = {};
    memset(workspace, 0xff, bytes);
    l.kind = LAYER_attention, l.rows = (int)rows, l.in = (int)(3 * width), l.out = (int)width;
    l.config.attention.heads = l.config.attention.kv_heads = (int)t[Q].size[1], l.context = (int)t[Q].size[2];
    l.x.space = SP_X, l.y.space = SP_Y, l.aux.space = SP_EXT, l.dy.space = SP_DY, l.dx.space = SP_DX,
    l.tmp.space = SP_WORK;
    s.layer = &l, s.nlayers = 1;
    b.at[SP_X] = (char *)x.data(), b.at[SP_Y] = (char *)y.data(), b.at[SP_EXT] = (char *)lse.data();
    b.at[SP_DY] = (char *)dy.data(), b.at[SP_DX] = (char *)dx.data(), b.at[SP_WORK] = (char *)d.data();
    for (int i = 0; i < 3; i++)
        load(t[Q + i], at[Q + i], x, 3 * width, i * width);
    if (forward) {
        host_forward(&m, &s, &b);
        if (goes("wrong"))
            y[0] += 10;
        save(t[O], at[O], y, width, 0);
        save(t[STATISTICS], at[STATISTICS], lse, l.config.attention.heads, 0);
        return;
    }
    static int calls;
    load(t[O], at[O], y, width, 0);
    load(t[DO], at[DO], dy, width, 0);
    load(t[STATISTICS], at[STATISTICS], lse, l.config.attention.heads, 0);
    host_backward(&m, &s, &b, true, false);
    if (goes("random"))
        dx.back() *= 1 + 0.1f * (float)++calls;
    for (int i = 0; i < 3; i++)
        save(t[DQ + i], at[DQ + i], dx, 3 * width, i * width);
    save(t[SUMS], at[SUMS], d, l.config.attention.heads, 0);
}

extern "C" {
int fake_cudnn_calls[2]; /* backward calls, forward calls */
size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(cudnnStatus_t status) {
    static char text[32];
    snprintf(text, sizeof text, "CUDNN_STATUS_%d", (int)status);
    return text;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *h) {
    *h = (cudnnHandle_t)&current;
    return failure("create");
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t s) {
    current = s;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d) {
    *d = (cudnnBackendDescriptor_t) new fake{type, {}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    delete (fake *)d;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    return ((fake *)d)->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? failure("plan") : CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *from) {
    size_t each = type == CUDNN_TYPE_BOOLEAN ? 1
                  : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_BACKEND_DESCRIPTOR ||
                          type == CUDNN_TYPE_HANDLE
                      ? 8
                      : 4;
    ((fake *)d)->value[name].assign((const char *)from, (const char *)from + (size_t)n * each);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t, int64_t *n, void *to) {
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) { /* one result, which remembers its graph */
        cudnnStatus_t status = failure("heuristic");
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
        fake *engine = *(fake **)to;
        engine->value[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
            ((fake *)d)->value[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH];
        *n = 1;
    } else {
        tensors t;
        int operations = look((const fake *)d, t);
        *(int64_t *)to = operations == 14 ? 256 : 2 * t[Q].size[0] * t[Q].size[1] * t[Q].size[2] * t[Q].size[2];
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    tensors t;
    int64_t bytes = 0;
    bool forward = look((const fake *)plan, t) == 14;
    auto name = get<int64_t>((fake *)pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    auto pointer = get<void *>((fake *)pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    void *workspace = get<void *>((fake *)pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0];
    std::map<int64_t, void *> at;
    for (size_t i = 0; i < name.size(); i++)
        at[name[i]] = pointer[i];
    cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, NULL, &bytes);
    for (auto &tensor : t)
        if (at.count(tensor.first) == 0)
            return CUDNN_STATUS_BAD_PARAM;
    cudnnStatus_t status = failure(forward ? "forward" : "backward");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    std::vector<const void *> pointers(1, workspace);
    for (auto &tensor : t)
        if (tensor.second.size[2] > 1)
            pointers.push_back(at[tensor.first]);
    fake_cudnn_calls[forward]++;
    standin_enqueue(
        current, "cuDNN", [=] { work(t, at, forward, workspace, (size_t)bytes); }, pointers);
    return CUDNN_STATUS_SUCCESS;
}
}
