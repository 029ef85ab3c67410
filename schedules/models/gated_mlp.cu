/* gated_mlp.c for GPUs: the same functions and the same places, one thread per number of a result. */
#include <pianola/unit.h>

#include <cuda_runtime.h>

enum { INNER = 128, THREADS = 256 };

static __device__ float logistic(float x) { return 1 / (1 + expf(-x)); }

/* silu(x G) * (x U) of row r, column j, from the stash. */
static __device__ float gated(const float *stash, int r, int j) {
    float gate = stash[r * 2 * INNER + j], up = stash[r * 2 * INNER + INNER + j];
    return gate * logistic(gate) * up;
}

/* c = a b, for a of rows x inner and b of inner x columns. */
static __global__ void product(float *c, const float *a, const float *b, int rows, int inner, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, r = i / columns, j = i % columns;
    if (r >= rows)
        return;
    float sum = 0;
    for (int k = 0; k < inner; k++)
        sum += a[r * inner + k] * b[k * columns + j];
    c[i] = sum;
}

/* c = a bT, for a of rows x columns and b of inner x columns. */
static __global__ void product_turned(float *c, const float *a, const float *b, int rows, int inner, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, r = i / inner, k = i % inner;
    if (r >= rows)
        return;
    float sum = 0;
    for (int j = 0; j < columns; j++)
        sum += a[r * columns + j] * b[k * columns + j];
    c[i] = sum;
}

/* c = or += aT b, for a of rows x inner and b of rows x columns. */
static __global__ void turned_product(float *c, const float *a, const float *b, int rows, int inner, int columns,
                                      bool add) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, k = i / columns, j = i % columns;
    if (k >= inner)
        return;
    float sum = 0;
    for (int r = 0; r < rows; r++)
        sum += a[r * inner + k] * b[r * columns + j];
    c[i] = add ? c[i] + sum : sum;
}

static __global__ void gate_rows(float *h, const float *stash, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * INNER)
        h[i] = gated(stash, i / INNER, i % INNER);
}

/* The gradients of x G and x U, from dh, the gradient of their gated product. */
static __global__ void ungate_rows(float *d, const float *dh, const float *stash, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, r = i / INNER, j = i % INNER;
    if (r >= rows)
        return;
    float gate = stash[r * 2 * INNER + j], up = stash[r * 2 * INNER + INNER + j], s = logistic(gate);
    d[r * 2 * INNER + j] = dh[i] * up * (s + gate * s * (1 - s));
    d[r * 2 * INNER + INNER + j] = dh[i] * gate * s;
}

static unsigned blocks(int n) { return (unsigned)((n + THREADS - 1) / THREADS); }

extern "C" void gated_mlp_forward_cuda(const struct pianola_unit_call *c) {
    cudaStream_t stream = (cudaStream_t)c->stream;
    const float *gate_up = (const float *)c->w, *down = gate_up + (size_t)c->in * 2 * INNER;
    float *stash = (float *)c->stash, *h = (float *)c->work;
    product<<<blocks(c->rows * 2 * INNER), THREADS, 0, stream>>>(stash, (const float *)c->x, gate_up, c->rows, c->in,
                                                                 2 * INNER);
    gate_rows<<<blocks(c->rows * INNER), THREADS, 0, stream>>>(h, stash, c->rows);
    product<<<blocks(c->rows * c->out), THREADS, 0, stream>>>((float *)c->y, h, down, c->rows, INNER, c->out);
}

extern "C" void gated_mlp_input_cuda(const struct pianola_unit_call *c) {
    cudaStream_t stream = (cudaStream_t)c->stream;
    const float *gate_up = (const float *)c->w, *down = gate_up + (size_t)c->in * 2 * INNER;
    float *d = (float *)c->extra, *dh = (float *)c->work;
    product_turned<<<blocks(c->rows * INNER), THREADS, 0, stream>>>(dh, (const float *)c->dy, down, c->rows, INNER,
                                                                    c->out);
    ungate_rows<<<blocks(c->rows * INNER), THREADS, 0, stream>>>(d, dh, (const float *)c->stash, c->rows);
    if (c->dx)
        product_turned<<<blocks(c->rows * c->in), THREADS, 0, stream>>>((float *)c->dx, d, gate_up, c->rows, c->in,
                                                                        2 * INNER);
}

extern "C" void gated_mlp_weight_cuda(const struct pianola_unit_call *c) {
    cudaStream_t stream = (cudaStream_t)c->stream;
    float *gate_up = (float *)c->dw, *down = gate_up + (size_t)c->in * 2 * INNER, *h = (float *)c->work;
    turned_product<<<blocks(c->in * 2 * INNER), THREADS, 0, stream>>>(
        gate_up, (const float *)c->x, (const float *)c->extra, c->rows, c->in, 2 * INNER, c->add);
    gate_rows<<<blocks(c->rows * INNER), THREADS, 0, stream>>>(h, (const float *)c->stash, c->rows);
    turned_product<<<blocks(INNER * c->out), THREADS, 0, stream>>>(down, h, (const float *)c->dy, c->rows, INNER,
                                                                   c->out, c->add);
}
