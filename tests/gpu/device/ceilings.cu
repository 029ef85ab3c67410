/* Measures the limits of this GPU before anything is compared with them:
 *
 *     ceilings [N] [MIB]     bf16 products of N x N x N by cuBLASLt, 8192; a copy of MIB MiB within the device, 4096
 *
 * Both print the median and the range of 20 runs, each timed by events, after 5 untimed ones. A product counts 2 N^3
 * FLOP; a copy counts bytes read and bytes written. Operands are random: zeros draw less power, so they run faster.
 * Exits 1 if a call fails. */
#include "must.h"
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM = 5, RUNS = 20 };

#define LT(call)                                                                                                       \
    do {                                                                                                               \
        cublasStatus_t code = call;                                                                                    \
        must(code == CUBLAS_STATUS_SUCCESS, #call, cublasLtGetStatusName(code));                                       \
    } while (0)

/* A product D = A B of column-major N x N matrices, with the heuristic's first algorithm. */
struct product {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t square;
    cublasLtMatmulHeuristicResult_t found;
    void *a, *b, *d, *workspace;
};
struct copy {
    void *from, *to;
    size_t bytes;
};

static const size_t WORKSPACE = 32 << 20;

static void multiply(void *of, cudaStream_t stream) {
    struct product *p = (struct product *)of;
    const float one = 1, zero = 0;
    LT(cublasLtMatmul(p->lt, p->how, &one, p->a, p->square, p->b, p->square, &zero, p->d, p->square, p->d, p->square,
                      &p->found.algo, p->workspace, WORKSPACE, stream));
}
static void copy(void *of, cudaStream_t stream) {
    struct copy *c = (struct copy *)of;
    CUDA(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, stream));
}

static int by_time(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Prints the rate of `amount` (FLOP or bytes) per run, times 1e-12 per second. */
static void measure(const char *what, const char *unit, double amount, void (*run)(void *, cudaStream_t), void *of) {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float ms[RUNS];
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = -WARM; i < RUNS; i++) {
        CUDA(cudaEventRecord(begin, stream));
        run(of, stream);
        CUDA(cudaEventRecord(end, stream));
        CUDA(cudaEventSynchronize(end));
        if (i >= 0)
            CUDA(cudaEventElapsedTime(&ms[i], begin, end));
    }
    qsort(ms, RUNS, sizeof *ms, by_time);
    double median = (ms[(RUNS - 1) / 2] + ms[RUNS / 2]) / 2.0;
    printf("%-28s %.2f %s (median; %.2f to %.2f), %.3f ms\n", what, amount / median / 1e9, unit,
           amount / ms[RUNS - 1] / 1e9, amount / ms[0] / 1e9, median);
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    CUDA(cudaStreamDestroy(stream));
}

static void *random_matrix(size_t n) {
    __nv_bfloat16 *host = (__nv_bfloat16 *)malloc(n * sizeof *host);
    void *device;
    unsigned state = 1;
    must(host != NULL, "malloc", "no memory");
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223; /* generator of Numerical Recipes */
        host[i] = __float2bfloat16((float)(state >> 8) / 8388608 - 1);
    }
    CUDA(cudaMalloc(&device, n * sizeof *host));
    CUDA(cudaMemcpy(device, host, n * sizeof *host, cudaMemcpyHostToDevice));
    free(host);
    return device;
}

static void measure_product(int n) {
    struct product p;
    cublasLtMatmulPreference_t preference;
    char what[64];
    int found = 0;
    size_t side = (size_t)n;
    p.a = random_matrix(side * side);
    p.b = random_matrix(side * side);
    p.d = random_matrix(side * side);
    CUDA(cudaMalloc(&p.workspace, WORKSPACE));
    LT(cublasLtCreate(&p.lt));
    LT(cublasLtMatmulDescCreate(&p.how, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT(cublasLtMatrixLayoutCreate(&p.square, CUDA_R_16BF, side, side, n));
    LT(cublasLtMatmulPreferenceCreate(&preference));
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE,
                                            sizeof WORKSPACE));
    LT(cublasLtMatmulAlgoGetHeuristic(p.lt, p.how, p.square, p.square, p.square, p.square, preference, 1, &p.found,
                                      &found));
    must(found == 1, "cublasLtMatmulAlgoGetHeuristic", "no algorithm");
    CUDA(cudaDeviceSynchronize()); /* waits for copies from pageable memory */
    snprintf(what, sizeof what, "bf16 product of %d^3", n);
    measure(what, "TFLOP/s", 2.0 * n * n * n, multiply, &p);
    LT(cublasLtMatmulPreferenceDestroy(preference));
    LT(cublasLtMatrixLayoutDestroy(p.square));
    LT(cublasLtMatmulDescDestroy(p.how));
    LT(cublasLtDestroy(p.lt));
    CUDA(cudaFree(p.workspace));
    CUDA(cudaFree(p.a));
    CUDA(cudaFree(p.b));
    CUDA(cudaFree(p.d));
}

static void measure_copy(int mib) {
    struct copy c = {NULL, NULL, (size_t)mib << 20};
    char what[64];
    CUDA(cudaMalloc(&c.from, c.bytes));
    CUDA(cudaMalloc(&c.to, c.bytes));
    CUDA(cudaMemset(c.from, 1, c.bytes));
    CUDA(cudaDeviceSynchronize());
    snprintf(what, sizeof what, "copy of %d MiB", mib);
    measure(what, "TB/s", 2.0 * (double)c.bytes, copy, &c);
    CUDA(cudaFree(c.from));
    CUDA(cudaFree(c.to));
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 8192, mib = argc > 2 ? atoi(argv[2]) : 4096;
    must(n > 0 && mib > 0, "usage", "ceilings [N] [MIB]");
    CUDA(cudaSetDevice(0));
    measure_product(n);
    measure_copy(mib);
    return 0;
}
