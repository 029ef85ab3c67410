/* Checks cuDNN's verdict on the graphs of attention_cudnn.cu, without a GPU. cuDNN gets the properties of an H200 (from
 * its data sheet and from CUDA), names the engines that would take each graph, and makes a plan. It has none for a
 * graph it does not recognise. For that it needs a driver, or a substitute: no_driver.c. Needs cuDNN 9.11 or later;
 * without it, nothing is tested. */
#include "layers/attention_graph.cuh"
#include <stdio.h>
#include <string.h>

static const char h200[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
    "\"totalGlobalMem\":150000000000,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"deviceName\":\"NVIDIA H200\"}";

static int passed, failed;

static void judge(descriptor device, bool forward, int sequences, int heads, int rows, int dim) {
    struct graph g = {};
    struct tensors t = {&g, sequences, heads, rows, dim};
    (forward ? forward_graph : backward_graph)(&t);
    bool planned = graph_plan(&g, CUDNN_TYPE_BACKEND_DESCRIPTOR, &device);
    bool fine = planned && g.status == CUDNN_STATUS_SUCCESS;
    passed += fine;
    failed += !fine;
    printf("%s of %d x %d x %d x %d: %d engines", forward ? "forward" : "backward", sequences, heads, rows, dim,
           (int)g.engines);
    if (planned)
        printf(", %lld bytes of workspace", (long long)g.workspace);
    if (g.status != CUDNN_STATUS_SUCCESS)
        printf(", status %d", (int)g.status);
    printf("%s\n", fine ? "" : " FAILED");
    graph_forget(&g);
}

int main(void) {
    struct graph g = {};
    if (!open_library() || dnn.cudnnGetVersion() < 91100) {
        printf("cuDNN 9.11 is not here: its graphs were not looked at\n");
        return 0;
    }
    descriptor device = graph_make(&g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    graph_set(&g, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof h200, h200);
    graph_finish(&g, device);
    if (g.status != CUDNN_STATUS_SUCCESS) {
        printf("cuDNN %zu does not take the properties of a device: its graphs were not looked at\n",
               dnn.cudnnGetVersion());
        return 0;
    }
    /* GPT-2's heads of 64; wider ones; a context that no tile divides */
    static const int shape[][4] = {{8, 12, 1024, 64}, {64, 12, 1024, 64}, {4, 25, 1024, 64},
                                   {2, 8, 2048, 128}, {3, 4, 256, 80},    {1, 2, 100, 16}};
    for (const int *s : shape) {
        judge(device, true, s[0], s[1], s[2], s[3]);
        judge(device, false, s[0], s[1], s[2], s[3]);
    }
    printf("cuDNN's engines: %d passed, %d failed\n", passed, failed);
    graph_forget(&g);
    return failed > 0;
}
