/* Hashes of content: fast, and changed by any change of one word, but not cryptographic. */
#ifndef PIANOLA_HASH_H
#define PIANOLA_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define HASH_ON_BOTH static inline __host__ __device__
#else
#define HASH_ON_BOTH static inline
#endif

/* Returns a well mixed function of (a, b): SplitMix64 (Steele, Lea & Flood 2014). */
HASH_ON_BOTH uint64_t host_hash(uint64_t a, uint64_t b) {
    uint64_t z = a + (b + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The stripes of xxHash64 (Collet 2012): four independent lanes. Words are read in native byte order, so another byte
 * order gives other hashes. */
struct hash {
    uint64_t lane[4];
};

static inline struct hash hash_begin(void) { return (struct hash){{1, 2, 3, 4}}; }

/* Hashes n bytes; n is a multiple of 32, except in the last call. */
static inline void hash_feed(struct hash *hash, const void *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    unsigned char last[32] = {0};
    for (; n > 0; p += 32) {
        if (n < 32)
            p = (const unsigned char *)memcpy(last, p, n);
        n -= n < 32 ? n : 32;
        for (int i = 0; i < 4; i++) {
            uint64_t word;
            memcpy(&word, p + 8 * i, 8);
            word = hash->lane[i] + word * 0xC2B2AE3D27D4EB4Fu;
            hash->lane[i] = (word << 31 | word >> 33) * 0x9E3779B185EBCA87u;
        }
    }
}

/* Returns the hash. size: total bytes. */
static inline uint64_t hash_end(const struct hash *hash, uint64_t size) {
    for (int i = 0; i < 4; i++)
        size = host_hash(size, hash->lane[i]);
    return size;
}
#endif
