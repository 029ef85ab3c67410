/* Preloaded into a program, it reports in which CUDA calls its host threads spend their time: LD_PRELOAD=host_calls.so.
 * When the program ends, stderr has a line for each function with a call of at least a millisecond: the number of such
 * calls, their wall-clock time and their CPU time, which is as long if a call spins. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Finds the real function. The library may have been opened for another one alone, so RTLD_NEXT may miss it. */
static void *real(const char *name) {
    void *library = dlopen("libcudart.so.13", RTLD_LAZY), *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "host_calls.so: no %s in libcudart.so.13\n", name);
        abort();
    }
    return found;
}

/* CUDA's calls, with types by size alone, so that this file needs no CUDA header. */
#define CALLS(X)                                                                                                       \
    X(cudaGraphLaunch, (void *exec, void *stream), (exec, stream))                                                     \
    X(cudaGraphInstantiate, (void *exec, void *graph, unsigned long long flags), (exec, graph, flags))                 \
    X(cudaMemcpyAsync, (void *to, const void *from, size_t n, int kind, void *stream), (to, from, n, kind, stream))    \
    X(cudaMemsetAsync, (void *to, int value, size_t n, void *stream), (to, value, n, stream))                          \
    X(cudaEventRecord, (void *event, void *stream), (event, stream))                                                   \
    X(cudaEventSynchronize, (void *event), (event))                                                                    \
    X(cudaStreamSynchronize, (void *stream), (stream))                                                                 \
    X(cudaDeviceSynchronize, (void), ())

#define COUNT(name, parameters, arguments)                                                                             \
    static double name##_wall, name##_cpu;                                                                             \
    static long name##_slow;
CALLS(COUNT)

#define WRAP(name, parameters, arguments)                                                                              \
    int name parameters {                                                                                              \
        static int(*call) parameters;                                                                                  \
        if (!call)                                                                                                     \
            *(void **)&call = real(#name);                                                                             \
        double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);                                        \
        int code = call arguments;                                                                                     \
        wall = now(CLOCK_MONOTONIC) - wall, cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;                                  \
        if (wall >= 1e-3)                                                                                              \
            name##_slow++, name##_wall += wall, name##_cpu += cpu;                                                     \
        return code;                                                                                                   \
    }
CALLS(WRAP)

#define TELL(name, parameters, arguments)                                                                              \
    if (name##_slow)                                                                                                   \
        fprintf(stderr, "host  %-22s %6ld calls of 1 ms or more: %.1f ms, %.1f ms of CPU\n", #name, name##_slow,       \
                1e3 * name##_wall, 1e3 * name##_cpu);
__attribute__((destructor)) static void tell(void) { CALLS(TELL) }
