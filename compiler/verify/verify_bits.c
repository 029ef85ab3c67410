/* A set of small numbers with nearest-neighbour lookup: a bitmap, and above it summary bitmaps that mark which words of
 * the level below are non-zero. */
#include "check_orders.h"

void bits_init(struct bits *bits, int n) {
    do {
        n = (n + 63) / 64;
        bits->level[bits->depth++] = NEW(uint64_t, n + 1);
    } while (n > 1);
}

void bits_set(struct bits *bits, int i, bool on) {
    for (int d = 0; d < bits->depth; d++, i /= 64) {
        uint64_t *w = &bits->level[d][i / 64], m = (uint64_t)1 << i % 64;
        *w = on ? *w | m : *w & ~m;
        if (!on && *w)
            return;
    }
}

int bits_near(const struct bits *bits, int i, bool above) {
    for (int d = 0; d < bits->depth; d++, i /= 64) {
        uint64_t w = bits->level[d][i / 64], low = ((uint64_t)1 << i % 64) - 1;
        uint64_t part = above ? w & ~(low << 1 | 1) : w & low;
        if (!part)
            continue;
        i = i / 64 * 64 + (above ? __builtin_ctzll(part) : 63 - __builtin_clzll(part));
        while (d-- > 0)
            i = i * 64 + (above ? __builtin_ctzll(bits->level[d][i]) : 63 - __builtin_clzll(bits->level[d][i]));
        return i;
    }
    return -1;
}
