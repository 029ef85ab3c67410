/* Decides which of two states of one moment the search may drop. */
#include "state.h"

bool state_dominates(const struct instance *in, const int32_t *a, const int32_t *b) {
    for (int c = 0; c < in->n; c++) {
        const struct class *class = &in->class[c];
        bool sole = !class->take || in->one_taker[class->rank] || in->room[class->rank] == INT64_MAX;
        if (a[c] < b[c] || (a[c] > b[c] && !sole))
            return false;
    }
    for (int r = 0; r < in->ranks; r++)
        if (a[in->n + r] > b[in->n + r])
            return false;
    for (int r = in->n + in->ranks; r < state_width(in) - 1; r++) /* a began no earlier than b, or neither has begun */
        if (a[r] > b[r] || (a[r] == 0) != (b[r] == 0))
            return false;
    const int32_t *x = a + state_width(in), *y = b + state_width(in);
    const int32_t *xend = x + 2 * recent_starts(in, a), *yend = y + 2 * recent_starts(in, b);
    for (int c = 0; c < in->n; c++) {
        const int32_t *xs = x, *ys = y;
        while (x < xend && *x == c)
            x += 2;
        while (y < yend && *y == c)
            y += 2;
        int32_t first = a[c] - (int32_t)(x - xs) / 2, other = b[c] - (int32_t)(y - ys) / 2; /* first items listed */
        for (int32_t item = first; item < b[c]; item++)
            if (item < other || xs[2 * (item - first) + 1] < ys[2 * (item - other) + 1])
                return false;
    }
    return true;
}

uint64_t state_key(const struct instance *in, const int32_t *row) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int c = 0; c < in->n; c++) {
        const struct class *class = &in->class[c];
        if (class->take && !in->one_taker[class->rank] && in->room[class->rank] < INT64_MAX)
            h = (h ^ (uint32_t)row[c]) * 0x100000001b3u;
    }
    return h ^ h >> 29;
}
