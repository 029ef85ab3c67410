/* Ranges for NVIDIA's profilers (NVTX), named like the instructions: `1F3`, `U 2`, `RECV_F 1 3 from 0`.
 *
 * They appear on the enqueuing thread, in eager replay and while a step is captured. A domain exists only while a
 * profiler is attached: nvtxDomainCreateA gives NULL otherwise, and then a range costs one comparison. */
#include "device_cuda.cuh"
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

static nvtxDomainHandle_t domain(void) {
    static nvtxDomainHandle_t made = nvtxDomainCreateA("Pianola");
    return made;
}

static void name_of(const struct rt_program *p, const struct rt_instr *x, char *out, size_t n) {
    if (is_job(x->op)) {
        snprintf(out, n, "%s%s%d", stage_name(p, x->stage).s, op_row(x->op)->name, x->batch);
        return;
    }
    int at = snprintf(out, n, "%s %s", op_row(x->op)->name, stage_name(p, x->stage).s);
    if (x->batch >= 0)
        at += snprintf(out + at, n - (size_t)at, " %d", x->batch);
    if (x->peer >= 0)
        snprintf(out + at, n - (size_t)at, " %s %d", is_send(x->op) ? "to" : "from", x->peer);
}

void nvtx_begin(const struct rt_program *p, const struct rt_instr *x) {
    char name[64];
    nvtxEventAttributes_t range = {};
    if (!domain())
        return;
    name_of(p, x, name, sizeof name);
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
