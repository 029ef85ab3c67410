/* A set of small numbers that knows its neighbours: a bitmap, with a summary above it that says which words are not 0,
 * and so on. */
#include "check.h"

void bits_init(struct bits *b, int n) {
    do {
        n = (n + 63) / 64;
        b->level[b->depth++] = NEW(uint64_t, n + 1);
    } while (n > 1);
}

void bits_set(struct bits *b, int i, bool on) {
    for (int d = 0; d < b->depth; d++, i /= 64) {
        uint64_t *w = &b->level[d][i / 64], m = (uint64_t)1 << i % 64;
        *w = on ? *w | m : *w & ~m;
        if (!on && *w)
            return;
    }
}

int bits_near(const struct bits *b, int i, bool above) {
    for (int d = 0; d < b->depth; d++, i /= 64) {
        uint64_t w = b->level[d][i / 64], low = ((uint64_t)1 << i % 64) - 1;
        uint64_t part = above ? w & ~(low << 1 | 1) : w & low;
        if (!part)
            continue;
        i = i / 64 * 64 + (above ? __builtin_ctzll(part) : 63 - __builtin_clzll(part));
        while (d-- > 0)
            i = i * 64 + (above ? __builtin_ctzll(b->level[d][i]) : 63 - __builtin_clzll(b->level[d][i]));
        return i;
    }
    return -1;
}
