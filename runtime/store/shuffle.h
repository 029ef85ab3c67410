#ifndef PIANOLA_SHUFFLE_H
#define PIANOLA_SHUFFLE_H
#include "hash.h"

/* Returns the item at a place of a shuffle: a permutation of 0 .. n-1 that the key chooses, computed for any place
 * directly and without memory. A Feistel network permutes the numbers of 2 x half bits, whatever its round function
 * (Luby & Rackoff 1988). Repeating it until the number is below n makes it a permutation of n numbers (cycle walking:
 * Black & Rogaway 2002), in less than four turns on average. Small n needs eight rounds: with six, some orders of five
 * items are 1.5 times as frequent as they should be. */
static inline uint64_t shuffled(uint64_t place, uint64_t n, uint64_t key) {
    int half = 1;
    while (half < 32 && n > (uint64_t)1 << 2 * half)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = place >> half, right = place & mask;
        for (uint64_t round = 0; round < 8; round++) {
            uint64_t next = left ^ (host_hash(host_hash(key, round), right) & mask);
            left = right;
            right = next;
        }
        place = left << half | right;
    } while (place >= n);
    return place;
}
#endif
