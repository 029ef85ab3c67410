/* FNV-1a, 64 bits (Fowler, Noll & Vo): for values compared outside Pianola, by programs that anyone can write. Any
 * change of one byte changes it. For content that only Pianola compares, hash.h is faster. */
#ifndef PIANOLA_FNV1A_H
#define PIANOLA_FNV1A_H
#include <stddef.h>
#include <stdint.h>

#define FNV_START 0xcbf29ce484222325u
/* Continues hash; begin with FNV_START. */
static inline uint64_t fnv1a(uint64_t hash, const void *bytes, size_t n) {
    for (const unsigned char *b = (const unsigned char *)bytes; n > 0; n--, b++)
        hash = (hash ^ *b) * 0x100000001b3u;
    return hash;
}
#endif
