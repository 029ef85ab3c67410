/* A grid of CUDA threads on the CPU, for tests only. It shows whether kernels are correct, and nothing about their
 * speed.
 *
 * Blocks run one after another. The threads of a block are fibers: each runs until it must wait for others, at a
 * __syncthreads or in its warp. Behaviour that a GPU leaves undefined ends the program here with one line: a barrier
 * that some threads do not reach, or a shuffle that names a thread which has ended, is elsewhere or is not in the mask.
 * Shared memory is poisoned (NaN) at the start of each block, and ASan sees accesses beyond the dynamic part. */
#ifndef STANDIN_GRID_H
#define STANDIN_GRID_H
#include "cuda_runtime_api.h"
#include <functional>
#include <stddef.h>
#include <stdint.h>
#include <vector>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
/* Whether blocks and threads run from the last to the first. A kernel that lacks a barrier then gives other results. */
extern bool grid_reverse;
/* Number of barriers and warp operations that threads have reached since the program began. */
extern uint64_t grid_waits;

/* A place in the source; all threads must be at the same barrier. */
struct grid_place {
    const char *file;
    int line;
};
#define GRID_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

enum grid_kind { GRID_SYNC, GRID_SHUFFLE, GRID_BALLOT };

void grid_run(const char *kernel, dim3 grid, dim3 block, size_t shared, void (*body)(void *), void *context);
void *grid_shared(void); /* the block's dynamic shared memory */
void grid_sync(grid_place at);
/* Lets all threads of the mask meet. Each gets the value of the warp's lane `source`, or one bit per lane that is set
 * if its value is not 0. */
uint64_t grid_exchange(unsigned mask, grid_kind kind, uint64_t value, unsigned source, grid_place at);
unsigned grid_lane(void);
/* Copies 4, 8 or 16 bytes to shared memory asynchronously. wait lets all copies land except the copies of the last
 * `prior` groups, which end at commits. A thread must wait for all of its copies. */
void grid_copy(void *to, const void *from, size_t bytes, grid_place at);
void grid_commit(void);
void grid_wait(size_t prior);

/* A kernel that tests/gpu/ptx/to_cpp.py has made of PTX: a variable of its name in a library. */
struct grid_kernel {
    void (*run)(const char *params, char *shared, unsigned shared_bytes); /* for one thread */
    unsigned params;                                                      /* their number */
    const unsigned *bytes;                                                /* [params]: of each, in order */
    const unsigned *offset;                                               /* [params]: in the parameters' memory */
    const bool *pointer;                                                  /* [params]: whether it is one */
    unsigned threads;                                                     /* of a block; 0: any number */
};

/* Enqueues work: run holds the launch's arguments, and pointers lists those that are pointers. The stand-in's API keeps
 * it until the stream's turn; if only the thread grid is linked, it runs at once. */
void standin_enqueue(cudaStream_t stream, const char *what, std::function<void()> run,
                     std::vector<const void *> pointers);

template <typename T> void grid_pointer(std::vector<const void *> &all, T *p) { all.push_back((const void *)p); }
template <typename T> void grid_pointer(std::vector<const void *> &, const T &) {}
template <typename T> struct grid_same { using type = T; };

template <typename... P>
void grid_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                 typename grid_same<P>::type... args) {
    std::vector<const void *> pointers;
    (grid_pointer(pointers, args), ...);
    auto run = [=] {
        auto body = [&] { kernel(args...); };
        grid_run(
            name, grid, block, shared, +[](void *f) { (*static_cast<decltype(body) *>(f))(); }, &body);
    };
    standin_enqueue(stream, name, run, pointers);
}
#endif
