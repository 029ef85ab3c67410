/* A profiler for tests/gpu/nvtx/test.sh: writes each range that a program opens, `depth name`, to the file NVTX_RANGES.
 * Ends the program if it closes a range that is not open. NVTX loads it if NVTX_INJECTION64_PATH names it. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;
static int depth;

static nvtxDomainHandle_t create(const char *name) {
    fprintf(out, "domain %s\n", name);
    return (nvtxDomainHandle_t)(void *)out;
}
static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range) {
    if (!domain || range->version != NVTX_VERSION || range->messageType != NVTX_MESSAGE_TYPE_ASCII)
        abort();
    fprintf(out, "%d %s\n", depth, range->message.ascii);
    return depth++;
}
static int pop(nvtxDomainHandle_t domain) {
    if (!domain || depth == 0)
        abort();
    fflush(out);
    return --depth;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned n;
    out = fopen(getenv("NVTX_RANGES"), "w");
    if (!out || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n))
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
