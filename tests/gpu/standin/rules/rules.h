/* The stand-in's rules: each case breaks one, in its own process, or breaks none. */
#ifndef RULES_H
#define RULES_H
#include "../cuda.h"
#include "../cuda_runtime.h"
#include "../nccl.h"
#include <cstddef>

struct rule {
    const char *name, *wanted; /* wanted: the expected line, or NULL if nothing is wrong */
    void (*run)(void);
};
extern const rule capture_rules[], memory_rules[], nccl_rules[], process_rules[],
    matmul_rules[]; /* up to one without a name */

void must(bool fine, const char *what, int line);
#define MUST(fine) must(fine, #fine, __LINE__)
#define OK(call)   must((call) == 0, #call, __LINE__)

/* A rank's thread: run(rank) on device `rank`, with a communicator of all ranks if nccl is set. */
struct seat {
    int rank, ranks;
    ncclComm_t comm;
    cudaStream_t stream;
    float *x; /* device memory: 1024 floats, all equal to the rank's number */
};
void with_ranks(int n, void (*run)(seat *));
cudaStream_t new_stream(void);
cudaEvent_t new_event(void);
float *floats(size_t n); /* device memory, set to 0 */
float read(const float *p);

__global__ void fill(float *p, int n, float value);
__global__ void add(float *p, const float *q, int n);
void fill_on(cudaStream_t s, float *p, int n, float value);
void add_on(cudaStream_t s, float *p, const float *q, int n);
#endif
