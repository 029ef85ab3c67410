/* The report's lines on weights that ranks receive: their bytes, the time that ranks wait for them, and what a fixed
 * prefetch would cost instead. */
#include "draw.h"
#include <math.h>

/* Writes a fixed prefetch's largest waiting time and memory over all ranks, or how far it exceeds the memory. */
static void put_ahead(struct text *t, const struct report *report, const struct measure *measure, int i) {
    double exposed = 0;
    int64_t peak = 0, beyond = 0;
    char time[32], bytes[32];
    for (int r = 0; r < report->workers; r++) {
        const struct ahead *ahead = &report->rank[r].weights->ahead[i];
        exposed = exposed < ahead->exposed || isnan(ahead->exposed) ? ahead->exposed : exposed;
        peak = ahead->peak > peak ? ahead->peak : peak;
        beyond = ahead->beyond > beyond ? ahead->beyond : beyond;
    }
    const char *name = i ? "two" : "one";
    if (beyond > 0)
        put(t, "             %s ahead would need %s more than is available\n", name, bytes_text(beyond, bytes));
    else
        put(t, "             %s ahead: %s %s, in %s\n", name, time_text(exposed, measure, time), measure->name,
            bytes_text(peak, bytes));
}

void put_weights(struct text *t, const struct report *report, const struct measure *measure) {
    int64_t received = 0, bound = 0, peak = 0;
    double exposed = 0;
    int gathers = 0, apart = 0;
    char a[32], b[32];
    if (!report->rank[0].weights)
        return;
    for (int r = 0; r < report->workers; r++) {
        const struct rank_report *rank = &report->rank[r];
        received += rank->weights->received;
        bound += rank->weights->bound;
        gathers += rank->gathers;
        apart += rank->gathers_apart;
        exposed = rank->exposed[EXPOSED_WEIGHTS] > exposed ? rank->exposed[EXPOSED_WEIGHTS] : exposed;
        peak = rank->peak_bytes > peak ? rank->peak_bytes : peak;
    }
    put(t, "fetched      %s of weights, ", bytes_text(received, a)); /* in `run`, "weights" means a fingerprint */
    put(t, received == bound ? "the least" : "at least %s", bytes_text(bound, b));
    put(t, "; a rank waits for them at most %s %s, in %s\n", time_text(exposed, measure, a), measure->name,
        bytes_text(peak, b));
    if (apart > 0) /* the owners of a stage's shards need the gather at different places */
        put(t, "             %d of %d gathers run shard by shard\n", apart, gathers);
    for (int i = 0; i < 2 && report->rank[0].weights->tried; i++)
        put_ahead(t, report, measure, i);
}
