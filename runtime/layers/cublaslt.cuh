/* What those share that take products from cuBLASLt. */
#ifndef PIANOLA_CUBLASLT_CUH
#define PIANOLA_CUBLASLT_CUH
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ALIGNED = 64
}; /* bytes, of every tensor, of a layer's parameters, and of what Muon's workspace has (muon_part) */

static inline void lt_must(cublasStatus_t status, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "pianola: error: cuBLASLt: %s: status %d\n", call, (int)status);
    fflush(NULL);
    _Exit(1);
}
#define LT(call) lt_must(call, #call)
#endif
