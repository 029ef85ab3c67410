/* Random numbers from an explicit state (SplitMix64, Steele, Lea & Flood 2014). */
#ifndef PIANOLA_RANDOM_H
#define PIANOLA_RANDOM_H
#include <stdint.h>

static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static inline int random_below(uint64_t *state, int n) { return (int)(random_next(state) % (uint64_t)n); }
#endif
