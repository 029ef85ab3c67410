/* The CUDA runtime's calls: devices, memory, streams, events. */
#include "standin.h"
#include "cuda.h"
#include <cstdio>
#include <cstring>

extern "C" {

void standin_started(void) {
    entered here("standin_started");
    me()->started = true;
}

static cudaError_t fail(cudaError_t e) { return me()->last = e; }
/* Returns the status of a call that does not fail itself: a kernel's fault, once it has surfaced, fails every call. */
static cudaError_t outcome(void) { return fault_surfaced() ? cudaErrorIllegalAddress : cudaSuccess; }

/* ---- devices and errors ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    entered here("cudaGetDeviceCount", true);
    *count = the().devices;
    return the().devices > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    entered here("cudaSetDevice");
    if (device < 0 || device >= the().devices)
        return fail(the().devices > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    me()->device = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    entered here("cudaGetDevice", true);
    *device = me()->device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    entered here("cudaGetDeviceProperties");
    if (device < 0 || device >= the().devices)
        return fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "stand-in for a GPU");
    memcpy(p->uuid.bytes, &device, sizeof device);
    p->totalGlobalMem = the().total;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->major = the().capability / 10;
    p->minor = the().capability % 10;
    p->multiProcessorCount = 132;
    p->l2CacheSize = 50 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device) {
    snprintf(id, (size_t)n, "0000:%02x:00.0", device);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int) {
    switch (what) {
    case cudaDevAttrMemoryClockRate: *value = 2619000; break; /* an H100's */
    case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; break;
    case cudaDevAttrIpcEventSupport: *value = the().ipc; break;
    case cudaDevAttrCanFlushRemoteWrites: *value = the().flush; break;
    }
    return cudaSuccess;
}
/* STANDIN_DRIVER gives the CUDA version of the driver, for example 12080. */
cudaError_t cudaDriverGetVersion(int *v) {
    const char *s = getenv("STANDIN_DRIVER");
    return *v = s ? atoi(s) : CUDART_VERSION, cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **f, unsigned int version, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *found) {
    static const struct {
        const char *name;
        void *function;
    } known[] = {
        {"cuStreamWriteValue32", (void *)cuStreamWriteValue32}, {"cuStreamBatchMemOp", (void *)cuStreamBatchMemOp},
        {"cuModuleLoadData", (void *)cuModuleLoadData},         {"cuModuleGetFunction", (void *)cuModuleGetFunction},
        {"cuFuncSetAttribute", (void *)cuFuncSetAttribute},     {"cuLaunchKernel", (void *)cuLaunchKernel}};
    *f = nullptr;
    for (auto &k : known)
        if (strcmp(symbol, k.name) == 0)
            *f = k.function;
    if (found)
        *found = !*f                         ? cudaDriverEntryPointSymbolNotFound
                 : version <= CUDART_VERSION ? cudaDriverEntryPointSuccess
                                             : cudaDriverEntryPointVersionNotSufficent;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaGetLastError(void) {
    entered here("cudaGetLastError", true);
    cudaError_t e = me()->last, fault = outcome();
    me()->last = cudaSuccess;
    return fault ? fault : e;
}
cudaError_t cudaPeekAtLastError(void) {
    entered here("cudaPeekAtLastError", true);
    return me()->last;
}
const char *cudaGetErrorName(cudaError_t e) {
    switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorNotPermitted: return "cudaErrorNotPermitted";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    default: return "cudaErrorUnknown";
    }
}
const char *cudaGetErrorString(cudaError_t e) {
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorPeerAccessUnsupported: return "peer access is not supported between these two devices";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorNotPermitted: return "operation not permitted";
    case cudaErrorNotSupported: return "operation not supported";
    default: return "unknown error";
    }
}

/* ---- memory ---- */

/* STANDIN_MALLOC gives the error code of every cudaMalloc. */
cudaError_t cudaMalloc(void **p, size_t size) {
    entered here("cudaMalloc");
    if (const char *code = getenv("STANDIN_MALLOC"))
        return fail((cudaError_t)atoi(code));
    if (the().allocated + size > the().total)
        return fail(cudaErrorMemoryAllocation);
    *p = size ? memory_new(size, DEVICE, call) : nullptr;
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t size) {
    entered here("cudaMallocHost");
    *p = memory_new(size, PINNED, call);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned int) { return cudaMallocHost(p, size); }

static bool idle(int device) {
    for (auto &s : the().streams)
        if (s->device == device && !s->queue.empty())
            return false;
    return true;
}
static void saw(const cudaStream_t s) { join(the().seen, s->clock); }
static void drain(const char *what) {
    int device = me()->device;
    wait_until([=] { return idle(device); }, what);
    for (auto &s : the().streams)
        if (s->device == device)
            saw(s.get());
}

/* Waits for the device, as CUDA's cudaFree does. */
cudaError_t cudaFree(void *p) {
    entered here("cudaFree");
    check_not_capturing(call);
    drain("cudaFree");
    if (p)
        memory_free(p, DEVICE, call);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
    entered here("cudaFreeHost");
    check_not_capturing(call);
    drain("cudaFreeHost");
    if (p)
        memory_free(p, PINNED, call);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    entered here("cudaMemGetInfo");
    *total = the().total;
    *free = the().total - the().allocated;
    return cudaSuccess;
}

static bool is_pinned(const void *p) {
    memory *a = memory_find(p);
    return a && a->kind == PINNED;
}
static bool is_device(const void *p) {
    memory *a = memory_find(p);
    return a && a->kind != PINNED;
}

/* Checks that the given kind matches the pointers. */
static void check_kind(const char *what, void *dst, const void *src, enum cudaMemcpyKind kind) {
    static const char *names[] = {"HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice"};
    int is = (is_device(src) ? 2 : 0) + (is_device(dst) ? 1 : 0);
    if (kind != cudaMemcpyDefault && kind != is)
        broken("MEMORY", "%s is called cudaMemcpy%s, but goes from %p, which is %s memory, to %p, which is %s", what,
               names[kind], src, is & 2 ? "device" : "no device", dst, is & 1 ? "device memory" : "not");
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
    entered here("cudaMemcpyAsync");
    if (n == 0)
        broken("MEMORY", "cudaMemcpyAsync of 0 bytes");
    check_kind(call, dst, src, kind);
    if ((char *)dst < (const char *)src + n && (const char *)src < (char *)dst + n)
        broken("MEMORY", "cudaMemcpyAsync of %zu bytes between %p and %p, which overlap", n, src, dst);
    work w;
    w.what = text("cudaMemcpyAsync of %zu bytes", n);
    w.touches = {{src, n, false}, {dst, n, true}};
    w.run = [=] { memcpy(dst, src, n); };
    if (n == 4 && is_device(src) && is_device(dst)) { /* it may write a word that a stream awaits */
        w.word = (uint32_t *)dst;
        w.run = [=] { __atomic_store_n((uint32_t *)dst, *(const uint32_t *)src, __ATOMIC_RELEASE); };
    }
    enqueue(s, std::move(w));
    return outcome();
}

static void wait_for_legacy(void) {
    cudaStream_t s = stream_of(nullptr, call);
    wait_until([=] { return s->queue.empty(); }, call);
    saw(s);
}

/* Copies on the legacy stream. The host waits, except for two copies that CUDA leaves running: those within the device,
 * and those from pageable memory, which the call has staged and the scheduler delivers at some later time. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind) {
    entered here("cudaMemcpy");
    check_not_capturing(call);
    if (n == 0)
        return cudaSuccess;
    check_kind(call, dst, src, kind);
    work w;
    w.what = text("cudaMemcpy of %zu bytes", n);
    for (range r : {range{src, n, false}, range{dst, n, true}})
        if (is_device(r.at) || is_pinned(r.at))
            w.touches.push_back(r);
    bool staged = is_device(dst) && !is_device(src) && !is_pinned(src);
    if (staged) {
        wait_for_legacy();
        string stage((const char *)src, n);
        w.run = [=] { memcpy(dst, stage.data(), n); };
    } else {
        w.run = [=] { memmove(dst, src, n); };
    }
    enqueue(nullptr, std::move(w));
    if (!staged && !(is_device(dst) && is_device(src)))
        wait_for_legacy();
    return outcome();
}

static void memset_on(cudaStream_t s, void *p, int value, size_t n) {
    if (n == 0)
        return;
    work w;
    w.what = text("%s of %zu bytes", call, n);
    w.touches = {{p, n, true}};
    w.run = [=] { memset(p, value, n); };
    if (!is_device(p))
        check_range(w.touches[0], w.what.c_str());
    enqueue(s, std::move(w));
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) {
    entered here("cudaMemsetAsync");
    memset_on(s, p, value, n);
    return outcome();
}
/* Fills on the legacy stream; the host does not wait. */
cudaError_t cudaMemset(void *p, int value, size_t n) {
    entered here("cudaMemset");
    check_not_capturing(call);
    memset_on(nullptr, p, value, n);
    return cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority) {
    entered here("cudaStreamCreate");
    check_creation(call);
    check_not_capturing(call);
    the().streams.emplace_back(new CUstream_st(the().nids++, me()->device, new_chain(), flags));
    *out = the().streams.back().get();
    (*out)->priority = priority;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0); }

static void check_no_group(void) {
    if (me()->depth > 0)
        broken("NCCL", "%s with a group open (ncclGroupStart without ncclGroupEnd)", call);
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    entered here("cudaStreamDestroy");
    s = stream_of(s, call);
    if (s->legacy || s->cap || !s->queue.empty())
        broken("STREAM", "cudaStreamDestroy of %s, which %s", stream_name(s).c_str(),
               s->legacy ? "nobody created"
               : s->cap  ? "is being captured"
                         : "still has work: synchronise first");
    s->alive = false;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
    entered here("cudaStreamQuery", true);
    check_not_capturing(call);
    check_no_group();
    s = stream_of(s, call);
    if (s->cap)
        broken("CAPTURE", "cudaStreamQuery of %s, which is being captured", stream_name(s).c_str());
    for (int i = 0; i < 4 && !s->queue.empty(); i++)
        run_one();
    me()->polling = !s->queue.empty();
    if (!s->queue.empty())
        return check_stuck(true), fault_surfaced() ? cudaErrorIllegalAddress : fail(cudaErrorNotReady);
    saw(s);
    return outcome();
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    entered here("cudaStreamSynchronize");
    check_no_group();
    check_not_capturing(call);
    s = stream_of(s, call);
    if (s->cap)
        broken("CAPTURE", "cudaStreamSynchronize of %s, which is being captured", stream_name(s).c_str());
    wait_until([=] { return s->queue.empty(); }, "cudaStreamSynchronize of " + stream_name(s));
    saw(s);
    return outcome();
}
cudaError_t cudaDeviceSynchronize(void) {
    entered here("cudaDeviceSynchronize");
    check_no_group();
    check_not_capturing(call);
    for (auto &s : the().streams)
        if (s->device == me()->device && s->cap)
            broken("CAPTURE", "cudaDeviceSynchronize while %s is being captured", stream_name(s.get()).c_str());
    drain("cudaDeviceSynchronize");
    return outcome();
}

/* ---- events ---- */

static cudaEvent_t event_of(cudaEvent_t e) {
    for (auto &o : the().events)
        if (o.get() == e && e->alive)
            return e;
    broken("STREAM", "%s of an event that was destroyed, or is none", call);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags) {
    entered here("cudaEventCreate");
    check_creation(call);
    the().events.emplace_back(new CUevent_st);
    CUevent_st *e = the().events.back().get();
    e->id = the().nids++;
    e->device = me()->device;
    e->flags = flags;
    *out = e;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    entered here("cudaEventDestroy");
    event_of(e)->alive = false;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned int flags) {
    entered here("cudaEventRecord");
    event_of(e);
    s = stream_of(s, call);
    bool external = flags & cudaEventRecordExternal;
    if (e->device != s->device)
        broken("STREAM", "event %d of device %d is recorded on %s", e->id, e->device, stream_name(s).c_str());
    if (external && !s->cap)
        broken("CAPTURE", "cudaEventRecordExternal on %s, which is not captured", stream_name(s).c_str());
    nccl_check_settled(s);
    if (s->cap && !external) {
        e->at = nullptr;
        e->cap = s->cap;
        e->tips = s->tips;
        return cudaSuccess;
    }
    work w;
    w.kind = RECORD;
    w.what = text("event %d", e->id);
    if (external)
        w.external = e;
    else
        w.at = e->at = std::make_shared<mark>();
    e->cap = nullptr;
    enqueue(s, std::move(w));
    return outcome();
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecordWithFlags(e, s, 0); }

/* Lets a stream outside the capture join it, by waiting for an event recorded in it. */
static void wait_captured(cudaStream_t s, cudaEvent_t e) {
    if (e->cap->ended)
        broken("CAPTURE", "%s waits for event %d, which was recorded in a capture that has ended: isolation",
               stream_name(s).c_str(), e->id);
    if (s->cap && s->cap != e->cap)
        broken("CAPTURE", "%s, in one capture, waits for event %d of another: they would merge", stream_name(s).c_str(),
               e->id);
    if (!s->cap) {
        if (s->legacy || !(s->flags & cudaStreamNonBlocking))
            broken("CAPTURE", "%s, which is ordered with the legacy stream, joins a capture", stream_name(s).c_str());
        s->cap = e->cap;
        s->tips.clear();
        bool known = false;
        for (auto o : s->cap->streams)
            known |= o == s;
        if (!known)
            s->cap->streams.push_back(s);
    }
    for (int t : e->tips) {
        bool known = false;
        for (int o : s->tips)
            known |= o == t;
        if (!known)
            s->tips.push_back(t);
    }
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int flags) {
    entered here("cudaStreamWaitEvent");
    event_of(e);
    s = stream_of(s, call);
    if (flags != 0)
        broken("STREAM", "cudaStreamWaitEvent with flags %u, which the stand-in lacks", flags);
    if (e->cap) {
        wait_captured(s, e);
        return cudaSuccess;
    }
    if (s->cap)
        broken("CAPTURE", "%s, which is captured, waits for event %d, which was not recorded in the capture: isolation",
               stream_name(s).c_str(), e->id);
    if (!e->at) /* never recorded: no wait, as in CUDA */
        return cudaSuccess;
    work w;
    w.kind = WAIT;
    w.what = text("event %d", e->id);
    w.at = e->at;
    enqueue(s, std::move(w));
    return outcome();
}

static void check_outside(cudaEvent_t e) {
    check_not_capturing(call);
    if (event_of(e)->cap)
        broken("CAPTURE", "%s of event %d, which was recorded in a capture", call, e->id);
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
    entered here("cudaEventQuery", true);
    check_outside(e);
    check_no_group();
    for (int i = 0; i < 4 && e->at && !e->at->done; i++)
        run_one();
    me()->polling = e->at && !e->at->done;
    if (e->at && !e->at->done)
        return check_stuck(true), fault_surfaced() ? cudaErrorIllegalAddress : fail(cudaErrorNotReady);
    if (e->at)
        join(the().seen, e->at->clock);
    return outcome();
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    entered here("cudaEventSynchronize");
    check_outside(e);
    check_no_group();
    std::shared_ptr<mark> at = e->at;
    if (!at)
        return cudaSuccess;
    wait_until([=] { return at->done; }, text("cudaEventSynchronize of event %d", e->id));
    join(the().seen, at->clock);
    return outcome();
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    entered here("cudaEventElapsedTime");
    check_outside(a);
    check_outside(b);
    if ((a->flags | b->flags) & cudaEventDisableTiming)
        broken("STREAM", "cudaEventElapsedTime of an event made with cudaEventDisableTiming");
    if (!a->at || !b->at)
        broken("STREAM", "cudaEventElapsedTime of an event that was never recorded");
    if (!a->at->done || !b->at->done)
        return fail(cudaErrorNotReady);
    *ms = (float)((b->at->when - a->at->when) * 1e3);
    return cudaSuccess;
}

/* ---- words: calls of the driver ---- */

CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult e, const char **s) {
    return *s = e == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_UNKNOWN", CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult e, const char **s) {
    return *s = e == CUDA_SUCCESS ? "no error" : "unknown error", CUDA_SUCCESS;
}

static uint32_t *word_at(CUdeviceptr addr) {
    void *p = (void *)(uintptr_t)addr;
    check_range({p, 4, true}, call, true);
    if (addr % 4 != 0)
        broken("MEMORY", "%s at %p, which is not a multiple of 4", call, p);
    return (uint32_t *)p;
}

static CUresult wait_value(CUstream s, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    static const char *tests[] = {">=", "==", "&", "nor"};
    if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) && !the().flush)
        return CUDA_ERROR_NOT_SUPPORTED;
    work w;
    w.kind = AWAIT;
    w.word = word_at(addr);
    w.value = value;
    w.flags = flags;
    w.what = text("the word at %p %s %u", (void *)w.word, tests[flags & 3], value);
    enqueue(s, std::move(w));
    return CUDA_SUCCESS;
}
static CUresult write_value(CUstream s, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    if (flags & CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) /* the header: "not supported in the v2 API" */
        return CUDA_ERROR_NOT_SUPPORTED;
    uint32_t *p = word_at(addr);
    if (!the().peer_words && (memory_find(p)->kind == IMPORTED))
        return CUDA_ERROR_NOT_SUPPORTED;
    work w;
    w.word = p;
    w.what = text("cuStreamWriteValue32 at %p", (void *)p);
    w.run = [=] {
        check_range({p, 4, true}, "cuStreamWriteValue32", true);
        __atomic_store_n(p, value, __ATOMIC_RELEASE);
    };
    enqueue(s, std::move(w));
    return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue32(CUstream s, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    entered here("cuStreamWaitValue32");
    return wait_value(s, addr, value, flags);
}
CUresult cuStreamWriteValue32(CUstream s, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    entered here("cuStreamWriteValue32");
    CUresult code = write_value(s, addr, value, flags);
    return code ? code : (CUresult)outcome();
}
CUresult cuStreamBatchMemOp(CUstream s, unsigned int count, CUstreamBatchMemOpParams *all, unsigned int flags) {
    entered here("cuStreamBatchMemOp");
    CUresult code = count < 256 && flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && code == CUDA_SUCCESS; i++) {
        auto &x = all[i].waitValue; /* has the same layout as writeValue */
        code =
            (x.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? wait_value : write_value)(s, x.address, x.value, x.flags);
    }
    return code ? code : (CUresult)outcome();
}
}
