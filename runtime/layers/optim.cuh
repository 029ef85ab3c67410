/* Shared by updates on devices: rates and clipping as on hosts, and an update's number. */
#ifndef PIANOLA_OPTIM_CUH
#define PIANOLA_OPTIM_CUH
#include "cuda.cuh"
#include "optim.h"
#include "post_validation.h"

static __device__ __forceinline__ int64_t update_count(const struct cuda_number &number) {
    int64_t count = (number.counted[0] - 1) * number.each + number.place + 1;
    count += number.more > 0 ? number.counted[1] * number.more : 0;
    return number.kept ? made_number(number.kept, count, number.settles) : count;
}
/* Returns whether there is nothing to update. */
static __device__ __forceinline__ bool stands(const struct cuda_number &number) {
    return number.kept && number.kept->verdict == STANDS;
}
static __device__ __forceinline__ float gradient_scale(const struct rt_model &m, float scale, const uint64_t *norm,
                                                       const struct cuda_number &number) {
    bool clips = norm && (!number.kept || number.kept->verdict == TAKES_BACK);
    return clips ? times(scale, clip_scale(m.clip, norm)) : scale;
}
#endif
