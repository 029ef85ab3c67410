/* Poses as CUDA's driver for cuDNN and does nothing, for tests/gpu/kernels/cudnn.cpp only. cuDNN makes these calls
 * before it names the engines for a graph, and loads some kernels to make a plan. Nothing ever runs. */
#define NOTHING(name)                                                                                                  \
    int name(void);                                                                                                    \
    int name(void) { return 0; }
#define ONE(name, value) /* the first argument points to the result */                                                 \
    int name(void *to);                                                                                                \
    int name(void *to) {                                                                                               \
        value;                                                                                                         \
        return 0;                                                                                                      \
    }
static int thing;

NOTHING(cuInit)
NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetDevice)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGetAttribute)
NOTHING(cuDevicePrimaryCtxRelease)
NOTHING(cuDevicePrimaryCtxReset)
NOTHING(cuDevicePrimaryCtxRetain)
NOTHING(cuFuncSetAttribute)
NOTHING(cuGetErrorName)
NOTHING(cuGetErrorString)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLibraryUnload)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuMemcpyDtoH_v2)
NOTHING(cuModuleGetGlobal_v2)
NOTHING(cuModuleLoadFatBinary)
NOTHING(cuModuleUnload)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)
NOTHING(cuStreamSynchronize)
ONE(cuDeviceGet, *(int *)to = 0)
ONE(cuDeviceGetCount, *(int *)to = 1)
ONE(cuDriverGetVersion, *(int *)to = 13000)
ONE(cuFuncGetAttribute, *(int *)to = 128)
ONE(cuKernelGetAttribute, *(int *)to = 128)
ONE(cuOccupancyMaxActiveBlocksPerMultiprocessor, *(int *)to = 1)
ONE(cuLibraryGetKernel, *(int **)to = &thing)
ONE(cuLibraryLoadData, *(int **)to = &thing)
ONE(cuModuleGetFunction, *(int **)to = &thing)
ONE(cuModuleLoadData, *(int **)to = &thing)

int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = (void *)0;
    return 500; /* not found */
}
