/* Replays PyTorch's graphs on a CUDA device (aoti.h). A graph's own code runs on the host and enqueues: kernels that
 * Triton has compiled, and the functions of aoti_cuda_product.cu and aoti_cuda_attention.cu. So a step can be captured.
 *
 * Tensors' records are on the host, on the stack of the thread that enqueues. Kernels and constants are loaded when the
 * first function of a unit runs. That is in the trial before training, since a capture allows no loading. */
#include "aoti_cuda.cuh"
#include "store/hash.h"
#include <alloca.h>
#include <cuda.h>
#include <pthread.h>

/* ---- code ---- */

static CUresult load_module(const struct aoti_kernel *kernel, CUmodule *module) {
    static decltype(&cuModuleLoadData) load;
    load = load ? load : (decltype(load))cuda_driver("cuModuleLoadData");
    CUresult code = load(module, kernel->cubin);
    if (code == CUDA_ERROR_NO_BINARY_FOR_GPU || code == CUDA_ERROR_INVALID_IMAGE)
        code = load(module, kernel->ptx);
    return code;
}

/* Lets a kernel have more dynamic shared memory than it has by default. */
static CUresult allow_shared(CUfunction function, int32_t bytes) {
    static decltype(&cuFuncSetAttribute) set;
    set = set ? set : (decltype(set))cuda_driver("cuFuncSetAttribute");
    return set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static void load_kernel(const struct aoti_code *code, struct aoti_kernel *kernel, const char *machine) {
    static decltype(&cuModuleGetFunction) find;
    enum { DEFAULT_SHARED = 48 << 10 };
    CUmodule module = NULL;
    CUfunction function = NULL;
    struct cudaDeviceProp device;
    find = find ? find : (decltype(find))cuda_driver("cuModuleGetFunction");
    CUresult status = load_module(kernel, &module);
    if (status == CUDA_SUCCESS)
        status = find(&function, module, kernel->name);
    if (status == CUDA_SUCCESS && kernel->shared > DEFAULT_SHARED)
        status = allow_shared(function, kernel->shared);
    if (status != CUDA_SUCCESS) {
        CUDA(cudaGetDeviceProperties(&device, 0));
        aoti_fail("kernel %s of unit '%s', compiled for %s, cannot be loaded on %s, of compute capability %d.%d: error "
                  "%d of the driver; export the model again on a machine with this GPU",
                  kernel->name, code->unit, machine, device.name, device.major, device.minor, (int)status);
    }
    kernel->function = function;
}

IMPORTED void aoti_load(struct aoti_code *code, const char *machine) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!code->loaded) {
        for (int64_t i = 0; i < code->kernels; i++)
            load_kernel(code, &code->kernel[i], machine);
        if (code->bytes > 0) {
            CUDA(cudaMalloc(&code->on_device, (size_t)code->bytes));
            cuda_store(code->on_device, code->constants, (size_t)code->bytes);
        }
        code->loaded = true;
    }
    pthread_mutex_unlock(&lock);
}

IMPORTED void aoti_launch(const struct aoti_kernel *kernel, const uint32_t grid[3], uint32_t warps, void **arguments) {
    static decltype(&cuLaunchKernel) launch;
    launch = launch ? launch : (decltype(launch))cuda_driver("cuLaunchKernel");
    CUresult code = launch((CUfunction)kernel->function, grid[0], grid[1], grid[2], 32 * warps, 1, 1,
                           (unsigned)kernel->shared, aoti_stream(), arguments, NULL);
    cuda_must((cudaError_t)code, kernel->name);
}

IMPORTED void *aoti_current_stream(void) { return aoti_current()->stream; }

/* ---- copies ---- */

struct strides {
    int64_t size[AOTI_DIMS], to[AOTI_DIMS], from[AOTI_DIMS];
    int32_t dims;
};

template <typename T>
static __global__ void copy_elements(T *to, const T *from, int64_t n, const __grid_constant__ strides s) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, left = i, here = 0, there = 0;
    if (i >= n)
        return;
    for (int32_t d = s.dims - 1; d >= 0; d--) {
        int64_t at = left % s.size[d];
        left /= s.size[d];
        here += at * s.to[d];
        there += at * s.from[d];
    }
    to[here] = from[there];
}

enum { THREADS = 256 };

template <typename T> static void copy(handle to, const struct aoti_tensor *from, const strides &s) {
    int64_t n = aoti_elements(to);
    if (n > 0)
        LAUNCH(copy_elements<T>, blocks_for(n, THREADS), THREADS, 0, aoti_stream(), (T *)to->data,
               (const T *)from->data, n, s);
}

static void cuda_copy(struct aoti_state *, handle to, const struct aoti_tensor *from) {
    strides s = {};
    s.dims = to->dims;
    for (int32_t d = 0; d < to->dims; d++) {
        s.size[d] = to->size[d];
        s.to[d] = to->stride[d];
        s.from[d] = from->stride[d];
    }
    switch (aoti_element_bytes(to->dtype)) {
    case 1: copy<uint8_t>(to, from, s); break;
    case 2: copy<uint16_t>(to, from, s); break;
    case 4: copy<uint32_t>(to, from, s); break;
    default: copy<uint64_t>(to, from, s);
    }
}

/* ---- replay ---- */

/* Adds a gradient to dw, or copies it there. dw may be aligned for fp32 alone. */
static __global__ void give_gradient(float *dw, const float *more, int64_t n, bool add) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        dw[i] = add ? dw[i] + more[i] : more[i];
}

static __global__ void uniform_numbers(float *number, int64_t n, const uint64_t *seed) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        number[i] = (float)(host_hash(*seed, (uint64_t)i) >> 40) * 0x1p-24f;
}

/* Draws the graph's random numbers, with the same values as on the host. */
static void draw_randoms(const struct aoti_graph *graph, const struct pianola_unit_call *call) {
    if (graph->randoms > 0 && !call->seed)
        aoti_fail("it draws random numbers, but this call has no seed: a validation drops nothing; export the model "
                  "again");
    if (graph->randoms > 0)
        LAUNCH(uniform_numbers, blocks_for(graph->randoms, THREADS), THREADS, 0, (cudaStream_t)call->stream,
               (float *)((char *)call->work + graph->random), graph->randoms, call->seed);
}

IMPORTED void aoti_begin_cuda(struct aoti_state *state, const char *name, void *stream) {
    state->name = name;
    state->copy = cuda_copy;
    state->device_type = 1;
    state->stream = stream;
}

IMPORTED void aoti_run_cuda(const struct aoti_graph *graph, const struct pianola_unit_call *call) {
    enum { MOST_TENSORS = 4096 };
    struct aoti_state state;
    struct aoti_replay replay = {graph, call, NULL};
    float *dw;
    const float *more;
    memset(&state, 0, sizeof state);
    aoti_begin_cuda(&state, graph->name, call->stream);
    aoti_begin(&state, NULL, 0); /* for errors */
    if (graph->tensors > MOST_TENSORS)
        aoti_fail("it has %d tensors at once; at most %d are supported on a GPU", graph->tensors, MOST_TENSORS);
    aoti_load(graph->code, graph->machine);
    replay.constants = graph->code->on_device;
    draw_randoms(graph, call);
    aoti_replay(&replay, &state, alloca((size_t)graph->tensors * AOTI_RECORD));
    const struct aoti_allocation *a = graph->tape;
    for (; (a = aoti_spare_gradient(&replay, a, &dw, &more)); a++)
        LAUNCH(give_gradient, blocks_for(a->bytes / 4, THREADS), THREADS, 0, (cudaStream_t)call->stream, dw, more,
               a->bytes / 4, call->add);
}
