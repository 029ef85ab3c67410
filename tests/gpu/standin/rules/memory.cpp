/* Rules of memory, races, words, and the start. */
#include "rules.h"
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

static float *pinned(size_t n) {
    float *p;
    OK(cudaMallocHost(&p, n * sizeof *p));
    memset(p, 0, n * sizeof *p);
    return p;
}

static void past_the_end(void) { OK(cudaMemsetAsync(floats(10) + 5, 0, 24, new_stream())); }
static void no_memory(void) { OK(cudaMemsetAsync((void *)4096, 0, 4, new_stream())); }
static void pageable(void) {
    static float x[4];
    OK(cudaMemcpyAsync(floats(4), x, 16, cudaMemcpyHostToDevice, new_stream()));
}
static void wrong_kind(void) { OK(cudaMemcpyAsync(floats(4), pinned(4), 16, cudaMemcpyDeviceToDevice, new_stream())); }
static void after_free(void) {
    float *p = floats(64);
    OK(cudaFree(p));
    fill_on(new_stream(), p, 64, 1);
}
static void freed_twice(void) {
    float *p = floats(64);
    OK(cudaFree(p));
    OK(cudaFree(p));
}
static void graph_after_free(void) {
    cudaStream_t s = new_stream();
    cudaGraph_t g;
    cudaGraphExec_t e;
    float *p = floats(64);
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(p, 0, 256, s));
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&e, g, 0));
    OK(cudaFree(p));
    OK(cudaGraphLaunch(e, s));
    OK(cudaStreamSynchronize(s));
}
static void kernel_past_the_end(void) {
    fill_on(new_stream(), floats(64), 2048, 1);
    OK(cudaDeviceSynchronize());
}
static void kernel_before(void) {
    static float x[64];
    fill_on(new_stream(), x, 64, 1);
}
static void kernel_without(void) {
    fill_on(new_stream(), nullptr, 64, 1);
    OK(cudaDeviceSynchronize());
}
static void host_reads(void) { MUST(*floats(64) == 0); }
static void odd_word(void) { OK(cuStreamWriteValue32(new_stream(), (CUdeviceptr)((char *)floats(4) + 2), 1, 0)); }
static void no_bytes(void) { OK(cudaMemcpyAsync(floats(4), pinned(4), 0, cudaMemcpyHostToDevice, new_stream())); }
static void out_of_memory(void) {
    void *p;
    size_t before, after, all;
    OK(cudaMemGetInfo(&before, &all));
    float *q = floats(1000);
    OK(cudaMemGetInfo(&after, &all));
    MUST(before - after == 4000);
    MUST(cudaMalloc(&p, (size_t)1 << 40) == cudaErrorMemoryAllocation);
    MUST(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    OK(cudaFree(q));
}

/* ---- races ---- */

static void two_write(void) {
    float *p = floats(64);
    OK(cudaMemsetAsync(p, 0, 128, new_stream()));
    OK(cudaMemsetAsync(p + 16, 0, 128, new_stream()));
    OK(cudaDeviceSynchronize());
}
static void two_read(void) {
    float *p = floats(64), *q = floats(64), *r = floats(64);
    OK(cudaMemcpyAsync(q, p, 256, cudaMemcpyDeviceToDevice, new_stream()));
    OK(cudaMemcpyAsync(r, p, 256, cudaMemcpyDeviceToDevice, new_stream()));
    OK(cudaDeviceSynchronize());
}
static void missing_wait(void) {
    cudaStream_t a = new_stream(), b = new_stream();
    float *p = floats(64), *h = pinned(64);
    OK(cudaMemcpyAsync(p, h, 256, cudaMemcpyHostToDevice, a));
    OK(cudaMemcpyAsync(h, p, 256, cudaMemcpyDeviceToHost, b));
    OK(cudaDeviceSynchronize());
}
/* A race between kernels, which STANDIN_PAGES detects. */
static void kernels_race(void) {
    setenv("STANDIN_PAGES", "1", 1);
    float *p = floats(2048), *q = floats(2048);
    fill_on(new_stream(), p, 2048, 1);
    add_on(new_stream(), q, p, 2048);
    OK(cudaDeviceSynchronize());
}
/* A memset on the legacy stream: neither the host nor a non-blocking stream waits for it. */
static void memset_then_stream(void) {
    float *p;
    OK(cudaMalloc(&p, 256));
    OK(cudaMemset(p, 0, 256));
    OK(cudaMemsetAsync(p, 1, 256, new_stream()));
    OK(cudaDeviceSynchronize());
}
/* A copy from pageable memory, which may be overwritten at once: neither of them waits for it. */
static float copied(bool synchronised) {
    float x[64] = {3}, *p = floats(64), *h = pinned(64);
    cudaStream_t s = new_stream();
    OK(cudaMemcpy(p, x, 256, cudaMemcpyHostToDevice));
    x[0] = 4;
    if (synchronised)
        OK(cudaStreamSynchronize(cudaStreamLegacy));
    OK(cudaMemcpyAsync(h, p, 256, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    return h[0];
}
static void copy_then_stream(void) {
    copied(false);
    OK(cudaDeviceSynchronize());
}
static void copy_synchronised(void) { MUST(copied(true) == 3); }
static void legacy_and_blocking(void) {
    cudaStream_t s;
    float *p;
    OK(cudaStreamCreate(&s));
    OK(cudaMalloc(&p, 256));
    OK(cudaMemset(p, 0, 256));
    fill_on(s, p, 64, 2);
    MUST(read(p + 63) == 2);
}

/* ---- words ---- */

static void words(void) {
    cudaStream_t a = new_stream(), b = new_stream();
    float *p = floats(64), *h = pinned(64);
    CUdeviceptr word = (CUdeviceptr)floats(1);
    OK(cuStreamWaitValue32(b, word, 7, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cudaMemcpyAsync(h, p, 256, cudaMemcpyDeviceToHost, b));
    fill_on(a, p, 64, 5);
    OK(cudaMemsetAsync(p, 0, 4, a));
    OK(cuStreamWriteValue32(a, word, 7, 0));
    OK(cudaStreamSynchronize(b));
    MUST(h[0] == 0 && h[1] == 5);
}
/* A word is taken and reset in one operation; a copy posts it. */
static void word_batch(void) {
    cudaStream_t a = new_stream(), b = new_stream();
    float *word = floats(1), *one = floats(1);
    uint32_t *h = (uint32_t *)pinned(1);
    CUstreamBatchMemOpParams both[2] = {};
    both[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    both[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    both[0].waitValue.address = both[1].writeValue.address = (CUdeviceptr)word;
    both[0].waitValue.value = 1;
    both[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    OK(cuStreamBatchMemOp(b, 2, both, 0));
    OK(cudaMemcpyAsync(h, word, 4, cudaMemcpyDeviceToHost, b));
    OK(cuStreamWriteValue32(a, (CUdeviceptr)one, 1, 0));
    OK(cudaMemcpyAsync(word, one, 4, cudaMemcpyDeviceToDevice, a));
    OK(cudaStreamSynchronize(b));
    MUST(*h == 0);
}
static void word_never(void) {
    cudaStream_t s = new_stream();
    OK(cuStreamWaitValue32(s, (CUdeviceptr)floats(1), 7, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cudaStreamSynchronize(s));
}
static void word_never_asked(void) {
    cudaStream_t s = new_stream();
    setenv("STANDIN_STUCK", "1", 1);
    OK(cuStreamWaitValue32(s, (CUdeviceptr)floats(1), 7, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cudaStreamSynchronize(s));
}

/* Between processes: the child writes into the parent's memory, then the word for which the parent waits. */
static void processes(void) {
    int ends[2], status;
    cudaIpcMemHandle_t handle;
    MUST(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        float *p;
        MUST(read(ends[0], &handle, sizeof handle) == sizeof handle);
        OK(cudaIpcOpenMemHandle((void **)&p, handle, cudaIpcMemLazyEnablePeerAccess));
        cudaStream_t s = new_stream();
        fill_on(s, p, 64, 9);
        OK(cuStreamWriteValue32(s, (CUdeviceptr)(p + 64), 1, 0));
        OK(cudaStreamSynchronize(s));
        OK(cudaIpcCloseMemHandle(p));
        exit(0);
    }
    float *p = floats(65);
    cudaStream_t s = new_stream();
    OK(cudaIpcGetMemHandle(&handle, p));
    MUST(write(ends[1], &handle, sizeof handle) == sizeof handle);
    OK(cuStreamWaitValue32(s, (CUdeviceptr)(p + 64), 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cudaStreamSynchronize(s));
    MUST(read(p + 63) == 9);
    waitpid(child, &status, 0);
    MUST(status == 0);
}

/* The child has the parent's memory open when the parent frees it, and then ends. */
static void freed_while_open(void) {
    int to[2], from[2];
    char c = 0;
    cudaIpcMemHandle_t handle;
    MUST(pipe(to) == 0 && pipe(from) == 0);
    if (fork() == 0) {
        float *p;
        close(to[1]);
        MUST(read(to[0], &handle, sizeof handle) == sizeof handle);
        OK(cudaIpcOpenMemHandle((void **)&p, handle, cudaIpcMemLazyEnablePeerAccess));
        MUST(write(from[1], &c, 1) == 1);
        MUST(read(to[0], &c, 1) == 0);
        _exit(0);
    }
    float *p = floats(64);
    OK(cudaIpcGetMemHandle(&handle, p));
    MUST(write(to[1], &handle, sizeof handle) == sizeof handle);
    MUST(read(from[0], &c, 1) == 1);
    OK(cudaFree(p));
}
static void exports_nccl(void) {
    void *p;
    cudaIpcMemHandle_t handle;
    OK(ncclMemAlloc(&p, 4096));
    OK(cudaIpcGetMemHandle(&handle, p));
}
/* Calls that a device, or this version of CUDA, does not support. */
static void not_supported(void) {
    cudaStream_t s = new_stream();
    CUdeviceptr word = (CUdeviceptr)floats(1);
    MUST(cuStreamWriteValue32(s, word, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) == CUDA_ERROR_NOT_SUPPORTED);
    int can;
    OK(cudaDeviceGetAttribute(&can, cudaDevAttrCanFlushRemoteWrites, 0));
    MUST(cuStreamWaitValue32(s, word, 0, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH) == CUDA_SUCCESS && can);
}

static void allocates_late(void) {
    standin_started();
    floats(1);
}
static void stream_late(void) {
    standin_started();
    new_stream();
}
static void event_late(void) {
    standin_started();
    new_event();
}

const rule memory_rules[] = {
    {"out_of_memory", nullptr, out_of_memory},
    {"past_the_end", "writes 24 bytes at byte 20 of an allocation of 40", past_the_end},
    {"no_memory", "MEMORY: cudaMemsetAsync", no_memory},
    {"pageable", "neither device nor pinned host memory", pageable},
    {"wrong_kind", "is called cudaMemcpyDeviceToDevice", wrong_kind},
    {"after_free", "after the free of that memory", after_free},
    {"freed_twice", "a second time", freed_twice},
    {"graph_after_free", "after the free of that memory", graph_after_free},
    {"kernel_past_the_end", "kernel fill writes at byte 256 of an allocation of 256", kernel_past_the_end},
    {"kernel_before", "kernel fill has an argument that", kernel_before},
    {"kernel_without", "kernel fill writes at (nil), which is no device memory", kernel_without},
    {"host_reads", "the program itself reads at byte 0", host_reads},
    {"odd_word", "which is not a multiple of 4", odd_word},
    {"no_bytes", "MEMORY: cudaMemcpyAsync of 0 bytes", no_bytes},
    {"two_write", "RACE: cudaMemsetAsync", two_write},
    {"two_read", nullptr, two_read},
    {"missing_wait", "RACE: cudaMemcpyAsync", missing_wait},
    {"kernels_race", "RACE: kernel", kernels_race},
    {"memset_then_stream", "RACE: cudaMemset", memset_then_stream},
    {"copy_then_stream", "RACE: cudaMemcpy", copy_then_stream},
    {"copy_synchronised", nullptr, copy_synchronised},
    {"legacy_and_blocking", nullptr, legacy_and_blocking},
    {"words", nullptr, words},
    {"word_batch", nullptr, word_batch},
    {"word_never", "DEADLOCK: nothing can go on", word_never},
    {"word_never_asked", "waits for the word at", word_never_asked},
    {"processes", nullptr, processes},
    {"freed_while_open", "which another process has open", freed_while_open},
    {"exports_nccl", "that cudaMalloc did not give", exports_nccl},
    {"not_supported", nullptr, not_supported},
    {"allocates_late", "START: cudaMalloc", allocates_late},
    {"stream_late", "START: cudaStreamCreate", stream_late},
    {"event_late", "START: cudaEventCreate", event_late},
    {nullptr, nullptr, nullptr},
};
