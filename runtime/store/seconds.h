/* Clocks, to measure how long something takes. */
#ifndef PIANOLA_SECONDS_H
#define PIANOLA_SECONDS_H
#include <time.h>

/* Returns the monotonic clock: seconds since some moment before the process began. */
static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* Returns the thread's CPU time, which excludes the time that others ran on its core. */
static inline double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
