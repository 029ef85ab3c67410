/* A hash table of indices into the caller's array. It holds no keys; the caller compares.
 *
 *     for (at = map_start(&m, hash); (k = m.slot[at] - 1) >= 0; at = map_next(&m, at))
 *         if (array[k] is what is looked for) …
 *     m.slot[at] = new_index + 1;            // not found: at is where it belongs */
#ifndef PIANOLA_MAP_H
#define PIANOLA_MAP_H
#include "base.h"

struct map {
    int32_t *slot; /* index + 1; 0: empty */
    uint32_t mask;
};

/* Returns an empty map for n entries, which then fill at most half of it. */
static inline struct map map_new(size_t n) {
    uint32_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return (struct map){NEW(int32_t, size), size - 1};
}

static inline uint64_t hash_add(uint64_t hash, int64_t x) {
    hash = (hash ^ (uint64_t)x) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static inline uint32_t map_start(const struct map *map, uint64_t hash) { return (uint32_t)hash & map->mask; }
static inline uint32_t map_next(const struct map *map, uint32_t at) { return (at + 1) & map->mask; }
#endif
