/* fine.c for GPUs, without or with both parameters frozen. */
#include <pianola/unit.h>

#include <cuda_runtime.h>

static __global__ void forward(float *y, float *square, const float *x, const float *w, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    square[i] = x[i] * x[i];
    y[i] = square[i] * w[i % columns] + w[columns + i % columns];
#ifdef BROKEN_AFTER_STASH
    square[i + 1] = x[i];
#endif
}

static __global__ void input(float *dx, float *extra, const float *dy, const float *x, const float *square,
                             const float *w, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    extra[i] = dy[i] * square[i];
    if (dx)
        dx[i] = 2 * dy[i] * w[i % columns] * x[i];
}

static __global__ void weight(float *dw, const float *dy, const float *extra, int rows, int columns, bool add) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns)
        return;
    float a = 0, b = 0;
    for (int r = 0; r < rows; r++) {
        a += extra[r * columns + j];
        b += dy[r * columns + j];
    }
    dw[j] = add ? dw[j] + a : a;
    dw[columns + j] = add ? dw[columns + j] + b : b;
}

static const float *parameters(const struct pianola_unit_call *c) { return (const float *)(c->frozen ? c->frozen : c->w); }

extern "C" void fine_forward_cuda(const struct pianola_unit_call *c) {
    int n = c->rows * c->in;
    forward<<<(n + 63) / 64, 64, 0, (cudaStream_t)c->stream>>>((float *)c->y, (float *)c->stash, (const float *)c->x,
                                                               parameters(c), n, c->in);
}

extern "C" void fine_input_cuda(const struct pianola_unit_call *c) {
    int n = c->rows * c->in;
    input<<<(n + 63) / 64, 64, 0, (cudaStream_t)c->stream>>>((float *)c->dx, (float *)c->extra, (const float *)c->dy,
                                                             (const float *)c->x, (const float *)c->stash,
                                                             parameters(c), n, c->in);
}

extern "C" void fine_weight_cuda(const struct pianola_unit_call *c) {
    weight<<<(c->in + 63) / 64, 64, 0, (cudaStream_t)c->stream>>>((float *)c->dw, (const float *)c->dy,
                                                                  (const float *)c->extra, c->rows, c->in, c->add);
}
