/* Stand-in for CUDA's asynchronous copies to shared memory, cp.async, for tests only. A copy lands only when its thread
 * waits for it; until then its destination is poisoned. */
#ifndef STANDIN_CUDA_PIPELINE_PRIMITIVES_H
#define STANDIN_CUDA_PIPELINE_PRIMITIVES_H
#include "cuda_runtime.h"

static inline void __pipeline_memcpy_async(void *dst_shared, const void *src_global, size_t size_and_align, GRID_HERE) {
    grid_copy(dst_shared, src_global, size_and_align, {file, line});
}
static inline void __pipeline_commit(void) { grid_commit(); }
static inline void __pipeline_wait_prior(size_t prior) { grid_wait(prior); }
#endif
