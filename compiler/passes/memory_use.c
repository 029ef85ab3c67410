/* Bytes of a rank's arena in use, over the timeline. A buffer is in use from the start of the first instruction that
 * uses it to the end of the last one; if nothing frees it, for the whole step. At time t, ending buffers are subtracted
 * before starting ones are added. The sum never exceeds the plan, which also includes the gaps between buffers. */
#include "passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct change {
    double t;
    int64_t bytes;
};

static int by_event(const void *x, const void *y) {
    double a = ((const struct change *)x)->t, b = ((const struct change *)y)->t;
    return (a > b) - (a < b);
}

struct usage memory_use(const struct rank *k, const double *start, const double *end) {
    double *open = NEW(double, k->nbufs), *close = NEW(double, k->nbufs);
    bool *leaves = NEW(bool, k->nbufs), *inside = NEW(bool, k->nbufs); /* inside: the buffer lies in another's room */
    for (int b = 0; b < k->nbufs; b++) {
        open[b] = INFINITY;
        if (k->buf[b].grows >= 0)
            inside[k->buf[b].grows] = true;
    }
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
            int32_t b = k->arg[a].buf;
            open[b] = fmin(open[b], start[i]);
            close[b] = fmax(close[b], end[i]);
        }
        for (uint32_t f = x->free; f < x->free + x->nfree; f++)
            leaves[k->freed[f]] = true;
    }
    struct change *change = NEW(struct change, 2 * k->nbufs);
    struct usage usage = {.at = NEW(struct usage_step, 2 * k->nbufs + 1), .n = 1};
    struct change *closing = change + k->nbufs; /* each half is nearly in the order of time, which makes sort fast */
    int n = 0;
    for (int b = 0; b < k->nbufs; b++) {
        int g = k->buf[b].grows;
        int64_t bytes = g >= 0 && k->buf[g].bytes > k->buf[b].bytes ? k->buf[g].bytes : k->buf[b].bytes;
        double last = g >= 0 ? fmax(close[b], close[g]) : close[b];
        if (inside[b] || memory_of(&k->buf[b]) == MEMORY_HOST)
            continue;
        if (!leaves[b])
            usage.at[0].bytes += bytes;
        else if (open[b] < last) {
            change[n] = (struct change){open[b], bytes};
            closing[n++] = (struct change){last, -bytes};
        }
    }
    memmove(change + n, closing, sizeof *change * (size_t)n);
    n *= 2;
    sort(change, (size_t)n, sizeof *change, by_event);
    for (int i = 0; i < n; i++) {
        if (change[i].t > usage.at[usage.n - 1].t) {
            usage.at[usage.n] = (struct usage_step){change[i].t, usage.at[usage.n - 1].bytes};
            usage.n++;
        }
        usage.at[usage.n - 1].bytes += change[i].bytes;
    }
    return usage;
}
