/* The sum of the squares of gradients, on the host. Squares are added up by exponent. Several tables take turns, since
 * neighbours often share an exponent. Before a table's sum could overflow, all sums go to the norm's words. */
#include "clip.h"
#include "store/parameter_walk.h"

enum { EXPONENTS = 256, TABLES = 4, LONGEST = TABLES << 16 }; /* 2^16 squares of 48 bits fill 64 */

static void fold(uint64_t table[TABLES][EXPONENTS], uint64_t *norm) {
    for (int t = 0; t < TABLES; t++)
        for (uint32_t e = 0; e < EXPONENTS - 1; e++)
            if (table[t][e] > 0)
                norm_add(norm, 1, table[t][e], e > 0 ? e : 1);
    norm_carry(norm);
}

static void count_special(const float *x, int64_t n, uint64_t *norm) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            norm[isnan(x[i]) ? NORM_NAN : NORM_INF]++;
}

static void add_squares(const float *x, int64_t n, uint64_t *norm) {
    uint64_t table[TABLES][EXPONENTS] = {{0}}, special = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        uint32_t e = bits >> 23 & 255;
        uint64_t m = (bits & 0x7fffff) | (uint32_t)(e > 0) << 23;
        table[i % TABLES][e] += m * m;
    }
    for (int t = 0; t < TABLES; t++)
        special |= table[t][EXPONENTS - 1];
    if (special > 0)
        count_special(x, n, norm);
    fold(table, norm);
}

void host_norm(struct rt_piece piece, const float *dw, uint64_t *norm, bool writes) {
    if (writes)
        memset(norm, 0, NORM_BYTES);
    for (struct parameter_walk w = walk_parameters(piece); next_parameter(&w);)
        for (int64_t from = w.from; from < w.to && counts_here(piece.s, w.p); from += LONGEST)
            add_squares(dw + (from - piece.first), w.to - from < LONGEST ? w.to - from : LONGEST, norm);
}
