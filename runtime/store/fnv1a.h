/* FNV-1a, 64 bits (Fowler, Noll & Vo), for values that programs outside Pianola compare, since anyone can implement it.
 * Any change of one byte changes the hash. For content that only Pianola compares, hash.h is faster. */
#ifndef PIANOLA_FNV1A_H
#define PIANOLA_FNV1A_H
#include <stddef.h>
#include <stdint.h>

#define FNV_START 0xcbf29ce484222325u
/* Continues a hash; start with FNV_START. */
static inline uint64_t fnv1a(uint64_t hash, const void *bytes, size_t n) {
    for (const unsigned char *b = (const unsigned char *)bytes; n > 0; n--, b++)
        hash = (hash ^ *b) * 0x100000001b3u;
    return hash;
}
#endif
