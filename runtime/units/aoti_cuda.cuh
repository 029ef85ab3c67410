/* Shared by the files that run PyTorch's graphs on a CUDA device. */
#ifndef PIANOLA_AOTI_CUDA_CUH
#define PIANOLA_AOTI_CUDA_CUH
#include "layers/cuda_math.cuh"
extern "C" {
#include "aoti_state.h"
}

/* Makes a function visible in the library, for graphs to import. */
#define IMPORTED extern "C" __attribute__((visibility("default")))

static inline cudaStream_t aoti_stream(void) { return (cudaStream_t)aoti_current()->stream; }
#endif
