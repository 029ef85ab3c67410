/* Ranges for NVIDIA's profilers (NVTX), named after the instructions: `1F3`, `U 2`, `RECV_F 1 3 from 0`.
 *
 * They appear on the enqueuing thread, in eager replay and while a step is captured. A domain exists only while a
 * profiler is attached: otherwise nvtxDomainCreateA gives NULL, and a range costs one comparison. */
#include "device_cuda.cuh"
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain(void) {
    static nvtxDomainHandle_t made = nvtxDomainCreateA("Pianola");
    return made;
}

void nvtx_begin(const struct rt_program *p, const struct rt_instr *x) {
    char name[64];
    nvtxEventAttributes_t range = {};
    if (!domain())
        return;
    cuda_instr_name(p, x, name, sizeof name);
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &range);
}

void nvtx_end(void) {
    if (domain())
        nvtxDomainRangePop(domain());
}
#else
void nvtx_begin(const struct rt_program *, const struct rt_instr *) {}
void nvtx_end(void) {}
#endif
