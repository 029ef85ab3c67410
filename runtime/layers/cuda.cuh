/* Shared by the CUDA layers: a tensor's address, its element type, loads of 16 bytes, sums over a warp and a block.
 *
 * The layers are the device's counterpart of host.h's, with the same tables, slots and operands, and every pointer in
 * device memory. They only launch kernels, so a step can be captured into a graph. Activations, their gradients and
 * weights have the model's precision T, float or __nv_bfloat16; arithmetic, statistics and weight gradients are fp32.
 * Sums have one order: there are no atomics on floats, so every run gives the same bits.
 *
 * The same source compiles as C++ against tests/gpu/standin/, where a grid of threads runs on the CPU. */
#ifndef PIANOLA_CUDA_CUH
#define PIANOLA_CUDA_CUH
extern "C" {
#include "rt.h"
}
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "attend.h" /* included here so that devices have it too, since CUDA's keywords are now known */

/* One layer of one job. The batch's x has the model's precision, its y is fp32. */
struct cuda_call {
    const struct rt_model *m;
    const struct rt_layer *l;
    const struct rt_bind *at;
    cudaStream_t stream;
    void *workspace; /* the stream's cuda_workspace() bytes: scratch from one launch to the next */
};
struct cuda_layer {
    void (*forward)(const struct cuda_call *c);
    void (*input)(const struct cuda_call *c);
    void (*weight)(const struct cuda_call *c);
};

/* The counterpart of host_halves (host.h). */
struct cuda_halves {
    void (*give)(const struct cuda_call *c);
    void (*get)(const struct cuda_call *c);
    void (*give_back)(const struct cuda_call *c);
    void (*get_back)(const struct cuda_call *c);
};
extern const struct cuda_halves cuda_cross_entropy_halves; /* loss.cu */
extern const struct cuda_halves cuda_gather_kv_halves, cuda_again_kv_halves, cuda_to_heads_halves,
    cuda_to_rows_halves;                                                       /* team_attention.cu */
extern const struct cuda_halves cuda_to_experts_halves, cuda_to_tokens_halves; /* moe.cu */

/* Each is defined at the end of the file that has its functions. */
#define X(name, ...) extern const struct cuda_layer cuda_##name;
LAYERS(X)
#undef X

/* elementwise.cu: dst = src when first, else dst += src; n floats */
void cuda_add(float *dst, const float *src, int64_t n, bool first, cudaStream_t stream);
/* elementwise.cu: cuda_widen does the same for src of values of `size` bytes, 2 for bf16 or 4; cuda_narrow stores src,
 * rounded, in dst, of bf16 */
void cuda_widen(float *dst, const void *src, int64_t size, int64_t n, bool first, cudaStream_t stream);
void cuda_narrow(void *dst, const float *src, int64_t n, cudaStream_t stream);
/* elementwise.cu: adds each of at->more to dst, n values of the model's precision, like host_add_more (compute.h) */
void cuda_add_more(const struct rt_model *m, const struct rt_bind *at, void *dst, int64_t n, cudaStream_t stream);
/* elementwise.cu: dst = or += the sum of `splits` rows of n floats */
void cuda_sum_parts(float *dst, const float *parts, int n, int splits, bool first, cudaStream_t stream);
/* bias.cu: y = x + bias, of rows x out values each; y may be x */
template <typename T> void cuda_add_bias(T *y, const T *x, const T *bias, int rows, int out, cudaStream_t stream);
/* bias.cu: dbias, out floats, = or += the sum of dy's rows. parts: scratch, whose size row_grid gives */
template <typename T>
void cuda_sum_rows(float *dbias, float *parts, const T *dy, int rows, int out, bool first, cudaStream_t stream);
/* The number of an update, from 1: (counted[0] - 1) * each + place + counted[1] * more + 1. counted[0] is the
 * training's step, from 1; counted[1] is the repetition of the period in this step, from 0. */
struct cuda_number {
    const int64_t *counted; /* on the device */
    int64_t each, place, more;
    int64_t of; /* updates in the whole run */
    /* layers/post_validation.h: the verdict, which may redo the previous update; NULL: no post-validation */
    const struct kept *kept;
    int32_t settles;
};
/* optim.cu: updates the piece's elements [from, to), including gaps between parameters. It works like host_update but
 * steps no matrix as a whole. The update's number is read on the device. */
void cuda_update_part(const struct rt_update *u, int64_t from, int64_t to, const struct cuda_number *number,
                      cudaStream_t stream);
/* update.cu: updates all of the piece. workspace: cuda_workspace() bytes. */
void cuda_update(const struct rt_update *u, const struct cuda_number *number, void *workspace, cudaStream_t stream);
/* NAME.cu for each of MATRIX_OPTIMIZERS: plan makes what its steps need; step steps the matrix p, which begins `at`
 * elements into the piece; forget frees what plan made. */
struct cuda_matrix_optimizer {
    void (*plan)(const struct rt_program *p);
    void (*step)(const struct rt_update *u, const struct rt_parameter *p, int64_t at, const struct cuda_number *number,
                 void *workspace, cudaStream_t stream);
    void (*forget)(void);
};
#define X(NAME, name, ...) extern const struct cuda_matrix_optimizer cuda_##name;
MATRIX_OPTIMIZERS(X)
#undef X
/* post_validation.cu: the device's host_update_ahead, with the arguments of cuda_update */
void cuda_update_ahead(const struct rt_update *u, const struct cuda_number *number, void *workspace,
                       cudaStream_t stream);
/* clip.cu: the device's host_norm. scratch: 256 KiB */
void cuda_norm(struct rt_piece piece, const float *dw, uint64_t *norm, bool writes, void *scratch, cudaStream_t stream);
void cuda_add_norm(uint64_t *dst, const uint64_t *src, cudaStream_t stream);
/* optim.cu: counts a pass (device/replay.h) of a step. The pass begins the step, repeats the period, or ends the step.
 * reached: n words. The last becomes the number of passes, from 1; at the beginning of a step, the others become 0.
 */
enum cuda_pass { PASS_BEGINS, PASS_REPEATS, PASS_ENDS };
void cuda_count(int64_t *counted, enum cuda_pass pass, int64_t passes, uint32_t *reached, int n, cudaStream_t stream);

/* attention.cu: host_attend and host_attend_backward (attend.h) in the model's precision, with at most 64 segments,
 * each of at least one row. */
void cuda_attend(const struct attend *a, int precision, cudaStream_t stream);
void cuda_attend_backward(const struct attend *a, int precision, cudaStream_t stream);
/* attention.cu: rotates q and k of a layer's rows, which lie side by side in x, or rotates their gradients back. Does
 * nothing without rope. */
void cuda_rotate(const struct cuda_call *c, struct slot x, bool back);
/* team_attention.cu: attention from the layer's rows to all members' rows */
void cuda_attend_to_team(const struct cuda_call *c, bool backward);

/* Fuse adjacent layers into one kernel; layers_cuda.cu decides when. c is the first layer in sweep order, the other
 * argument the last. They return false if nothing was enqueued, and the layers then run one by one. */
bool cuda_linear_map(const struct cuda_call *c, const struct rt_layer *next);        /* linear.cu: then gelu or relu */
bool cuda_linear_gelu_input(const struct cuda_call *c, const struct rt_layer *gelu); /* linear.cu: gelu before it */
bool cuda_join_norm(const struct cuda_call *c, const struct rt_layer *norm);       /* norm.cu: a fork may be between */
bool cuda_norm_fork_input(const struct cuda_call *c, const struct rt_layer *fork); /* norm.cu: then a fork */

/* device_cuda.cu: ends the process on a device error, since nothing that was enqueued can be trusted */
void cuda_must(cudaError_t code, const char *call);

/* Launches a kernel; one with commas in its template arguments must be in parentheses. A launch returns nothing: only
 * cudaGetLastError, which captures allow, reports why it failed. It also reports errors left by earlier calls, so code
 * that continues after an error must clear it with cudaGetLastError. The same holds after cudaErrorNotReady:
 * driver_types.h says that it is "not actually an error", but not that it leaves nothing to clear, and PyTorch clears
 * it too (pytorch#18584, #61554). */
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                                               \
    do {                                                                                                               \
        ENQUEUE(kernel, grid, block, shared, stream, __VA_ARGS__);                                                     \
        cuda_must(cudaGetLastError(), "launch of " #kernel);                                                           \
    } while (0)
#ifdef __CUDACC__
#define ENQUEUE(kernel, grid, block, shared, stream, ...) kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#define DYNAMIC_SHARED(type, name)                                                                                     \
    extern __shared__ __align__(16) char dynamic_shared[];                                                             \
    type *name = (type *)dynamic_shared
#else
#define ENQUEUE(kernel, grid, block, shared, stream, ...)                                                              \
    grid_launch(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)
#define DYNAMIC_SHARED(type, name) type *name = (type *)grid_shared()
#endif

/* ---- addresses of tensors ---- */

template <typename T> static T *cuda_at(const struct cuda_call *c, struct slot slot) {
    char *base = c->at->at[slot.space];
    return base ? (T *)(base + slot.off) : NULL;
}

template <typename T> static const T *cuda_x(const struct cuda_call *c) {
    return c->l->x.space == SP_NONE ? (const T *)c->at->batch->x : cuda_at<T>(c, c->l->x);
}

/* Returns the operand that a join adds to x, or a fork to its gradient. */
template <typename T> static const T *cuda_other(const struct cuda_call *c) {
    return c->l->aux.space == SP_NONE ? (const T *)c->at->batch->x : cuda_at<T>(c, c->l->aux);
}

/* Return the layer's parameters, and their gradient, whose elements always have 4 bytes. */
template <typename T> static const T *cuda_w(const struct cuda_call *c) {
    return (const T *)((const char *)layer_weights(c->at, c->l) + c->l->param);
}
template <typename T> static float *cuda_dw(const struct cuda_call *c) {
    return layer_gradient(c->at, c->l) + c->l->param / (int64_t)sizeof(T);
}
static inline bool cuda_first(const struct cuda_call *c) { return writes_gradient(c->at, c->l); }

/* Turns a function template over the precision into one function that looks it up: EITHER(relu_forward). */
template <void (*fp32)(const struct cuda_call *), void (*bf16)(const struct cuda_call *)>
static void either(const struct cuda_call *c) {
    (c->m->precision == BF16 ? bf16 : fp32)(c);
}
#define EITHER(f) either<f<float>, f<__nv_bfloat16>>

/* ---- elements ---- */

static __host__ __device__ __forceinline__ float widen(float x) { return x; }
static __host__ __device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T> static __host__ __device__ __forceinline__ T narrow(float x);
template <> __host__ __device__ __forceinline__ float narrow<float>(float x) { return x; }
template <> __host__ __device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

/* V elements, loaded or stored at once. Tensors are aligned to 64 bytes, and their rows to 16 if a row is a multiple of
 * WIDE elements; otherwise V is 1. */
template <typename T, int V> struct __align__(sizeof(T) * V) pack { T v[V]; };
template <typename T> constexpr int WIDE = 16 / (int)sizeof(T);

template <int V, typename T> static __device__ __forceinline__ pack<T, V> load(const T *p) {
    return *(const pack<T, V> *)p;
}
template <int V, typename T> static __device__ __forceinline__ void store(T *p, pack<T, V> x) { *(pack<T, V> *)p = x; }

/* Launches kernel<T, V> for rows of n elements. */
#define LAUNCH_ROWS(kernel, T, n, grid, block, stream, ...)                                                            \
    do {                                                                                                               \
        if ((n) % WIDE<T> == 0)                                                                                        \
            LAUNCH((kernel<T, WIDE<T>>), grid, block, 0, stream, __VA_ARGS__);                                         \
        else                                                                                                           \
            LAUNCH((kernel<T, 1>), grid, block, 0, stream, __VA_ARGS__);                                               \
    } while (0)

static inline unsigned blocks_for(int64_t n, int64_t each) { return (unsigned)((n + each - 1) / each); }
/* Returns how many blocks cover the rows if each thread has a pack, with the packs of LAUNCH_ROWS. */
template <typename T> static unsigned row_blocks(int64_t rows, int64_t columns, int64_t threads) {
    return blocks_for(rows * columns, threads * (columns % WIDE<T> == 0 ? WIDE<T> : 1));
}

/* ---- sums ---- */

static constexpr unsigned ALL_LANES = 0xffffffffu;

template <typename N> static __device__ __forceinline__ N warp_sum(N x) {
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, i);
    return x;
}
static __device__ __forceinline__ float warp_max(float x) {
    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, i));
    return x;
}

/* Reduces over a block of whole warps; every thread gets the result. A kernel that calls one of these twice needs a
 * barrier in between, because threads may still be reading `part`. */
template <typename N> static inline __device__ N block_sum(N x) {
    __shared__ N part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_sum(x);
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : N(0));
}
static inline __device__ float block_max(float x) {
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_max(x);
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    return warp_max(lane < warps ? part[lane] : part[0]);
}

/* ---- sums over rows, column by column ----
 *
 * A block handles ACROSS packs of columns, one line of memory, and DOWN of every DOWN x gridDim.y rows, so that even
 * few columns fill a device. It writes partial sums to scratch, which cuda_sum_parts adds up. Their number depends on
 * the shape alone, so all devices give the same bits. */
enum { ACROSS = 8, DOWN = 32, ROW_BLOCKS = 132 * 8 };

template <typename T> static inline dim3 row_grid(int rows, int n) {
    int across = (int)blocks_for(n, ACROSS * (n % WIDE<T> == 0 ? WIDE<T> : 1)), parts = ROW_BLOCKS / across;
    int most = rows / (4 * DOWN); /* with less work per thread, the parts would cost as much as the rows */
    parts = parts < most ? parts : most;
    return dim3((unsigned)across, (unsigned)(parts > 1 ? parts : 1));
}

/* Adds up the block's per-thread sums of V columns each, and stores the totals. Two calls need a barrier between. */
template <int V> static __device__ void give_part(float *to, const float *sum, int n) {
    __shared__ float part[DOWN][ACROSS * V];
    int mine = (int)(threadIdx.y * ACROSS + threadIdx.x), j = (int)blockIdx.x * ACROSS * V + mine;
    for (int v = 0; v < V; v++)
        part[threadIdx.y][threadIdx.x * V + v] = sum[v];
    __syncthreads();
    if (mine >= ACROSS * V || j >= n)
        return;
    float total = 0;
    for (int i = 0; i < DOWN; i++)
        total += part[i][mine];
    to[j] = total;
}
#endif
