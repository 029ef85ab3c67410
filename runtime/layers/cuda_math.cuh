/* Setup at the start, for layers that need more than kernels: a cuBLASLt plan for every product. */
#ifndef PIANOLA_CUDA_MATH_CUH
#define PIANOLA_CUDA_MATH_CUH
#include "cuda.cuh"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether the environment sets a switch to 0. Dies if it is set to anything but 0 or 1. */
static inline bool cuda_switched_off(const char *name) {
    const char *s = getenv(name);
    if (!s || strcmp(s, "1") == 0)
        return false;
    if (strcmp(s, "0") == 0)
        return true;
    fprintf(stderr, "pianola: error: %s=%s: expected 0 or 1\n", name, s);
    fflush(NULL);
    _Exit(1);
}

#ifndef CUDA_WORKSPACE_BYTES
#define CUDA_WORKSPACE_BYTES (32 << 20) /* at least: NVIDIA's recommendation on sm_90 */
#endif
enum { CUDA_WORKSPACE = CUDA_WORKSPACE_BYTES };

/* linear_plan.cu: plans the products of the program's stages. PIANOLA_EPILOGUES=0 leaves out all epilogues. Call before
 * allocating any rank's memory: products with an epilogue are tried once, in memory of their own. */
void cuda_linear_plan(const struct rt_program *p);
void cuda_linear_forget(void);

/* linear_time.cu: gives each product the algorithm that `all` names (store/algorithms.h), or the fastest of several,
 * which it adds to `all`. Call after planning, and before allocating any rank's memory. If cuBLASLt refuses an
 * algorithm of `all`, the heuristic's first one stays, and one line on stderr reports this. Returns false with why if
 * there is no memory. */
struct algorithms;
bool cuda_linear_pin(struct algorithms *all, char *why, size_t nwhy);
/* Does the same with a file, which it reads, and writes if anything was timed. */
bool cuda_linear_algorithms(const char *path, char *why, size_t nwhy);
/* An epilogue of a linear layer's product, and two times: the product with it (fused), and the plain product plus a
 * kernel (apart). */
struct cuda_epilogue {
    const char *name; /* the epilogue's name */
    int rows, in, out;
    bool used;                 /* a step uses it */
    double fused_us, apart_us; /* NAN: it fails, or there is no memory to time it */
    double flops, bytes;       /* of the fused product, if each operand moves once */
};
/* Times the i-th epilogue that cuBLASLt has, from 0. Returns false if there are no more. */
bool cuda_linear_epilogue(int i, struct cuda_epilogue *x);
/* update.cu: plans the products of an optimizer of matrices, if the program has one. */
void cuda_update_plan(const struct rt_program *p);
void cuda_update_forget(void);

/* attention_cudnn.cu: plans attention, if cuDNN is available. Plan before allocating any rank's memory, since the plans
 * determine the workspace's size. cuda_attention_cudnn enqueues a forward or a backward, or returns false to leave it
 * to attention.cu. */
void cuda_attention_plan(const struct rt_program *p);
void cuda_attention_forget(void);
int64_t cuda_workspace(void); /* bytes of the workspace: CUDA_WORKSPACE or more */
bool cuda_attention_cudnn(const struct cuda_call *c, bool forward);

/* layers_cuda.cu: host_forward_part and host_backward_part (compute.h), on a stream. workspace: cuda_workspace() bytes
 * of device memory that no other stream uses. ahead: set by a backward's first part and passed to the next: how many of
 * the next part's layers already have their input gradient, from a kernel that fuses several layers. */
void cuda_forward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, int from, int to,
                       void *workspace, cudaStream_t stream);
static inline void cuda_forward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                                void *workspace, cudaStream_t stream) {
    cuda_forward_part(m, s, at, 0, s->nlayers, workspace, stream);
}
void cuda_backward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                        struct rt_sweep sweep, int *ahead, void *workspace, cudaStream_t stream);
static inline void cuda_backward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                                 bool input, bool weight, void *workspace, cudaStream_t stream) {
    int ahead = 0;
    cuda_backward_part(m, s, at, {input, weight, SWEEP_ALL, 0, s->nlayers}, &ahead, workspace, stream);
}

#define CUDA(call) cuda_must(call, #call)
/* device_cuda.cu: returns whether there is code for the device's architecture, and if not, why. */
bool cuda_fits(const struct cudaDeviceProp *device, char *why, size_t nwhy);
/* device_cuda.cu: returns a driver function, found through the runtime, so that the library loads without a driver. */
void *cuda_driver(const char *name);
/* Copies host memory to device memory, and returns when it is there for all streams. cudaMemcpy of pageable memory
 * returns once the data is staged, while the copy to the device may still be under way (CUDA Runtime API, "API
 * synchronization behavior"), and non-blocking streams do not wait for the copy's stream. */
void cuda_store(void *device, const void *host, size_t bytes);
/* Word operations on pinned or device memory, of this process or another; graphs can capture them. write: in stream
 * order and after a system-wide fence. take: awaits the value, then resets the word to 0; with flush, earlier writes of
 * other devices are then visible too. writes: returns whether the device can write this word, which is 0. */
void cuda_write_word(cudaStream_t stream, uint32_t *word, uint32_t value);
bool cuda_writes_word(cudaStream_t stream, uint32_t *word);
void cuda_take_word(cudaStream_t stream, uint32_t *word, uint32_t value, bool flush);
#endif
