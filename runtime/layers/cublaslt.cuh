/* A product as cuBLASLt sees it, the heuristic, and errors that end the process; for linear.cu and muon.cu. */
#ifndef PIANOLA_CUBLASLT_CUH
#define PIANOLA_CUBLASLT_CUH
#include "cuda_math.cuh"
#include <cublasLt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGNED = 64 }; /* bytes; alignment of every tensor, of a layer's parameters, and of whole_lines */

/* D = op(A) op(B) + beta C, column-major: op(A) is m x k, op(B) k x n; C and D are m x n and share a layout. */
struct lt_product {
    cublasLtMatmulDesc_t desc; /* NULL: not planned */
    cublasLtMatrixLayout_t a, b, d;
    int64_t m, n, k;
    const char *types; /* "bf16 to fp32": types of A and B, and of D */
};

/* Ends the process after a failed call. Also reports the fault of an earlier kernel, which cuBLASLt only passes on and
 * which cudaGetLastError does not clear. */
[[noreturn]] static inline void lt_end(const char *call) {
    cudaGetLastError();
    cuda_must(cudaPeekAtLastError(), call);
    fflush(NULL);
    _Exit(1);
}

static inline void lt_must(cublasStatus_t status, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "pianola: error: cuBLASLt: %s: %s\n", call, cublasLtGetStatusName(status));
    lt_end(call);
}
#define LT(call) lt_must(call, #call)

/* Dies because a product without a fallback failed. by: the step that failed. */
static inline void lt_must_multiply(cublasStatus_t status, const struct lt_product *p, const char *by) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "pianola: error: cuBLASLt cannot multiply %lld x %lld by %lld x %lld, %s: %s by %s\n",
            (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n, p->types, cublasLtGetStatusName(status),
            by);
    lt_end(by);
}

/* Guarantees that a product's algorithm may rely on. */
struct lt_promise {
    size_t workspace;    /* bytes, at most */
    uint32_t aligned[4]; /* bytes, at least: alignment of A, B, C and D */
};
enum { LT_MOST = 8 }; /* algorithms per request */

/* If an algorithm splits k, its partial sums are added in fp32. By default they may be rounded to the output's type
 * first (cublasLt.h, cublasLtReductionScheme_t), which in bf16 loses integers above 256. */
static const uint32_t LT_REDUCTION = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

/* Finds up to `most` algorithms, in order of expected speed, and sets n to their number. If there is none, returns the
 * reason, a status other than CUBLAS_STATUS_SUCCESS. A successful call may return results that are invalid: "other
 * fields are only valid if [...] this member is set to CUBLAS_STATUS_SUCCESS" (cublasLt.h,
 * cublasLtMatmulHeuristicResult_t::state). */
static inline cublasStatus_t lt_heuristic(cublasLtHandle_t handle, const struct lt_product *p,
                                          const struct lt_promise *promise, cublasLtMatmulAlgo_t *algo, int most,
                                          int *n) {
    static const cublasLtMatmulPreferenceAttributes_t matrix[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const size_t bytes = promise->workspace;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found[LT_MOST] = {};
    int results = 0;
    *n = 0;
    LT(cublasLtMatmulPreferenceCreate(&wish));
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &LT_REDUCTION,
                                            sizeof LT_REDUCTION));
    for (int i = 0; i < 4; i++)
        LT(cublasLtMatmulPreferenceSetAttribute(wish, matrix[i], &promise->aligned[i], sizeof promise->aligned[i]));
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, p->desc, p->a, p->b, p->d, p->d, wish, most, found, &results);
    LT(cublasLtMatmulPreferenceDestroy(wish));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (int i = 0; i < results; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= bytes)
            algo[(*n)++] = found[i].algo;
        else
            status = found[i].state;
    if (*n > 0)
        return CUBLAS_STATUS_SUCCESS;
    return status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_NOT_SUPPORTED;
}
#endif
