/* A grid of CUDA threads on the CPU, for tests only: it shows that kernels are correct, and nothing about their speed.
 *
 * Blocks run one after another. The threads of a block are fibers: each runs until it must wait for others, at a
 * __syncthreads or for its warp. What a GPU leaves undefined ends the program here with one line: a barrier that not
 * all threads reach, or a shuffle that names a thread which has ended, is elsewhere or is not in the mask. Shared
 * memory is poisoned (NaN) at the start of each block, and ASan sees accesses beyond the dynamic kind. */
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
/* Runs blocks and threads from the last to the first. A kernel that lacks a barrier then gives other results. */
extern bool grid_reverse;
/* Barriers and warp operations that threads have reached since the program began. */
extern uint64_t grid_waits;

/* The place in the source, since all threads must be at the same barrier. */
struct grid_place {
    const char *file;
    int line;
};
#define GRID_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

enum grid_kind { GRID_SYNC, GRID_SHUFFLE, GRID_BALLOT };

void grid_run(const char *kernel, dim3 grid, dim3 block, size_t shared, void (*body)(void *), void *context);
void *grid_shared(void); /* the block's dynamic shared memory */
void grid_sync(grid_place at);
/* All threads of the mask meet. Each gets the value of the warp's lane `source`, or a bit per lane whose value is not
 * 0. */
uint64_t grid_exchange(unsigned mask, grid_kind kind, uint64_t value, unsigned source, grid_place at);
unsigned grid_lane(void);
/* Asynchronous copies of 4, 8 or 16 bytes to shared memory: wait lets all land but those of the last `prior` groups,
 * which commits ended. A thread must wait for all of its copies. */
void grid_copy(void *to, const void *from, size_t bytes, grid_place at);
void grid_commit(void);
void grid_wait(size_t prior);

/* Work of a stream: run, holding the launch's arguments. pointers: those among them. The stand-in's API keeps it until
 * the stream's turn; if only the thread grid is linked, it runs at once. */
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
