/* NCCL with what one GPU allows: one rank, whose sends and receives are to itself, grouped; enqueued, then captured and
 * replayed, next to a reduction of one. Exit 0: the data came, both ways. */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

static void must(bool fine, const char *what, const char *why) {
    if (fine)
        return;
    printf("%s: %s\n", what, why);
    exit(1);
}
#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t code = call;                                                                                       \
        must(code == cudaSuccess, #call, cudaGetErrorString(code));                                                    \
    } while (0)
#define NCCL(call)                                                                                                     \
    do {                                                                                                               \
        ncclResult_t code = call;                                                                                      \
        must(code == ncclSuccess, #call, ncclGetErrorString(code));                                                    \
    } while (0)

enum { N = 1 << 20 };

static void exchange(ncclComm_t comm, float *from, float *to, cudaStream_t stream) {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(from, N, ncclFloat, 0, comm, stream));
    NCCL(ncclRecv(to, N, ncclFloat, 0, comm, stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclAllReduce(to, to, N, ncclFloat, ncclSum, comm, stream));
}

static void came(const float *sent, float *to, float *got, cudaStream_t stream, const char *how) {
    CUDA(cudaMemcpyAsync(got, to, N * sizeof *got, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < N; i++)
        must(got[i] == sent[i], how, "the data did not come");
    CUDA(cudaMemsetAsync(to, 0xff, N * sizeof *to, stream));
}

int main(void) {
    static float sent[N];
    float *from, *to, *got; /* got: pinned */
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int version;
    for (int i = 0; i < N; i++)
        sent[i] = (float)i;
    CUDA(cudaSetDevice(0));
    NCCL(ncclGetVersion(&version));
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclCommInitRank(&comm, 1, id, 0));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&from, sizeof sent));
    CUDA(cudaMalloc((void **)&to, sizeof sent));
    CUDA(cudaMallocHost((void **)&got, sizeof sent));
    CUDA(cudaMemcpy(from, sent, sizeof sent, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    exchange(comm, from, to, stream);
    came(sent, to, got, stream, "enqueued");
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    exchange(comm, from, to, stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CUDA(cudaGraphLaunch(exec, stream));
        came(sent, to, got, stream, "in a graph");
    }
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    NCCL(ncclCommDestroy(comm));
    printf("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return 0;
}
